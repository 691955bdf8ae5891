"""A relation seen by a solver: what an invariant must contain, and the obligations that it must meet."""

from __future__ import annotations

from enum import Enum

import attrs

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr
from deadreckon.models.relation import Command, Relation
from deadreckon.spec import Kind

TYPES = "types"
"""Id of the claim that every enum field holds a member; it is proved with the rules, not assumed."""


@attrs.frozen(eq=False)
class System:
    """The claims of a machine that proofs are about, over one relation."""

    relation: Relation

    @property
    def claims(self) -> dict[str, Expr]:
        """Claims about states, lemmas and types included: the material of an inductive invariant."""
        always = {rule.id for rule in self.relation.machine.rules if rule.kind is Kind.ALWAYS}
        claims = {id: claim for id, claim in self.relation.claims.items() if id in always}
        return {TYPES: self.types(), **claims}

    @property
    def steps(self) -> dict[str, tuple[Expr, ...]]:
        """Claims about steps, one expression for each command."""
        always = {rule.id for rule in self.relation.machine.rules if rule.kind is Kind.ALWAYS}
        return {id: claims for id, claims in self.relation.steps.items() if id in always}

    def types(self) -> Expr:
        """Every enum field holds one of its members."""
        return ir.and_(
            *(
                ir.and_(ir.le(ir.const(0), leaf), ir.lt(leaf, ir.const(len(field.type))))
                for leaf, field in zip(self.relation.state, self.relation.layout.fields, strict=True)
                if issubclass(field.type, Enum)
            )
        )

    def enabled(self, command: Command) -> Expr:
        """The condition under which *command* may be taken: valid policy, inputs in their domains, guard."""
        return ir.and_(self.relation.policy_valid, *(one.within() for one in command.inputs), command.guard)

    def after(self, claim: Expr, command: Command) -> Expr:
        """*claim* about the state after *command*, in terms of the state before."""
        return ir.substitute((claim,), dict(zip(self.relation.state, command.updates, strict=True)))[0]

    def at_start(self, claim: Expr) -> Expr:
        """*claim* about every initial state."""
        starts = (dict(zip(self.relation.state, start, strict=True)) for start in self.relation.initial)
        return ir.implies(self.relation.policy_valid, ir.and_(*(ir.substitute((claim,), start)[0] for start in starts)))

    def variables(self) -> tuple[Expr, ...]:
        """Every variable once: policy, state, inputs."""
        inputs = (one.variable for command in self.relation.commands for one in command.inputs)
        return tuple(dict.fromkeys((*self.relation.policy, *self.relation.state, *inputs)))
