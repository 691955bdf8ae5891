"""A relation unrolled over time for Z3: step 0, 1, 2, ... each with its own copy of the state and a chosen command."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import z3

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Sort
from deadreckon.models.relation import Command, Relation

from .lowering import Algebra, lower


@attrs.frozen(eq=False)
class Moment:
    """The state at one step, as solver variables."""

    state: dict[Expr, z3.ExprRef]

    def equals(self, leaves: Sequence[z3.ExprRef]) -> z3.BoolRef:
        """The state here is this one."""
        return z3.And([variable == leaf for variable, leaf in zip(self.state.values(), leaves, strict=True)])


@attrs.frozen(eq=False)
class Choice:
    """Which command is taken from one moment to the next, and with which inputs."""

    selector: z3.ExprRef
    inputs: dict[Expr, z3.ExprRef]


class Unrolling:
    """Copies of the state over time, over integers or bit-vectors.

    Args:
        relation: the machine; its policy variables stay shared by all steps.
        commands: the commands to choose from (simplified ones, perhaps).
        algebra: the target language.
    """

    def __init__(self, relation: Relation, commands: tuple[Command, ...], algebra: Algebra[z3.ExprRef]) -> None:
        self.relation = relation
        self.commands = commands
        self.algebra = algebra
        self.moments: list[Moment] = []
        self.choices: list[Choice] = []

    def begin(self) -> Moment:
        """The first moment, unconstrained."""
        self.moments.append(self._moment(0))
        return self.moments[0]

    def _copy(self, variable: Expr, step: int) -> z3.ExprRef:
        return self.algebra.variable(f"{variable.value}@{step}", variable.sort)

    def _moment(self, step: int) -> Moment:
        return Moment({leaf: self._copy(leaf, step) for leaf in self.relation.state})

    def at(self, claim: Expr, step: int) -> z3.ExprRef:
        """A claim about the state at *step*."""
        return lower((claim,), self.algebra, self.moments[step].state)[0]

    def advance(self) -> list[z3.ExprRef]:
        """One more moment; returns the constraints that tie it to the last one."""
        step = len(self.choices)
        now, then = self.moments[step], self._moment(step + 1)
        inputs = {one.variable: self._copy(one.variable, step) for cmd in self.commands for one in cmd.inputs}
        choice = Choice(self.algebra.variable(f"taken@{step}", Sort.INT), inputs)
        self.moments.append(then)
        self.choices.append(choice)
        bindings = {**now.state, **inputs}
        enabled = []
        moved = {leaf: now.state[leaf] for leaf in self.relation.state}
        for number, command in enumerate(self.commands):
            taken = choice.selector == self.algebra.constant(number)
            within = [one.within() for one in command.inputs]
            guard, *updates = lower((ir.and_(command.guard, *within), *command.updates), self.algebra, bindings)
            enabled.append(z3.And(taken, guard))
            for leaf, original, update in zip(self.relation.state, command.updates, updates, strict=True):
                if original is not leaf:
                    moved[leaf] = z3.If(taken, update, moved[leaf])
        return [z3.Or(enabled), *(then.state[leaf] == moved[leaf] for leaf in self.relation.state)]

    def step_claim(self, claims: tuple[Expr, ...], step: int) -> z3.ExprRef:
        """A claim about the step taken from *step*, one expression for each command."""
        choice = self.choices[step]
        bindings = {**self.moments[step].state, **choice.inputs}
        holds = []
        for number, claim in enumerate(claims):
            if claim is not ir.TRUE:
                (lowered,) = lower((claim,), self.algebra, bindings)
                holds.append(z3.Implies(choice.selector == self.algebra.constant(number), lowered))
        return z3.And(holds) if holds else z3.BoolVal(True)


def number(model: z3.ModelRef, value: z3.ExprRef) -> int:
    """The value of a scalar in *model* as it stands in a flat state."""
    found = model.eval(value, model_completion=True)
    if z3.is_bool(found):
        return int(z3.is_true(found))
    return int(found.as_signed_long()) if z3.is_bv(found) else int(found.as_long())
