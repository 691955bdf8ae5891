"""k-induction over the rules and lemmas of a machine, all at once, with policies and inputs symbolic.

Claims strengthen each other: the largest set is sought whose members all survive every command, given that all of them
held before (and at the k - 1 states before that). What falls out of it leaves its counterexample to induction behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import attrs
import z3

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr
from deadreckon.models.layout import Flat
from deadreckon.models.relation import Command

from .lowering import integers, lower
from .solvers import SOLVERS, Answer
from .system import System
from .unroll import Unrolling, number

STEP_SECONDS = 20.0
"""The limit of one query; what a solver can't say in this time is not counted as shown."""


@attrs.frozen
class Counterexample:
    """A step that breaks a claim from a state in which all claims hold: reachable, or a lemma is missing."""

    rule: str
    command: Command
    policy: Flat
    before: Flat
    after: Flat


@attrs.define
class Induction:
    """The outcome: claims that are inductive together, and for each other claim what breaks it (None: unknown)."""

    proved: dict[str, int]
    broken: dict[str, Counterexample | None]


class Inductor:
    """Runs k-induction on one system."""

    def __init__(self, system: System, deadline: float) -> None:
        self.system = system
        self.deadline = deadline
        self.algebra = integers()
        self.lowered = dict(zip(system.claims, lower(system.claims.values(), self.algebra), strict=True))

    def run(self, rules: Iterable[str], depth: int = 3) -> Induction:
        """Try k = 1, 2, ... *depth* for the state claims, then judge the step claims by what was proved."""
        claims = self.system.claims
        result = Induction({}, {})
        open_ = {id for id in claims if self._initially(id)}
        self._shrink(open_, result)
        result.proved |= dict.fromkeys((id for id in claims if id in open_), 1)
        rules = tuple(rules)
        for k in range(2, depth + 1):
            for id in [id for id in rules if id in claims and id not in result.proved]:
                if time.monotonic() < self.deadline and self._k_inductive(id, k, result):
                    result.proved[id] = k
        for id in rules:
            if id in self.system.steps:
                self._judge_steps(id, result)
        for id in set(claims) - set(result.proved) - set(result.broken):
            result.broken[id] = None
        return result

    def _check(self, facts: list[z3.ExprRef]) -> tuple[str, z3.ModelRef | None]:
        solver = z3.Solver()
        left = min(STEP_SECONDS, self.deadline - time.monotonic())
        solver.set("timeout", max(1, int(left * 1000)))
        solver.add(*facts)
        answer = str(solver.check())
        return answer, solver.model() if answer == "sat" else None

    def _shown(self, facts: list[z3.ExprRef]) -> bool:
        """Whether every solver finds *facts* contradictory."""
        solver = z3.Solver()
        solver.add(*facts)
        seconds = max(0.001, min(STEP_SECONDS, self.deadline - time.monotonic()))
        return all(ask(solver.to_smt2(), seconds) is Answer.UNSAT for ask in SOLVERS.values())

    def _initially(self, id: str) -> bool:
        start = self.system.at_start(self.system.claims[id])
        return self._check(lower((ir.not_(start),), self.algebra))[0] == "unsat"

    def _shrink(self, open_: set[str], result: Induction) -> None:
        """Drop claims until the rest survives every command."""
        changed = True
        while changed:
            changed = False
            for command in self.system.relation.commands:
                lost = self._lost(command, open_, result)
                changed = changed or bool(lost)
                open_ -= lost

    def _lost(self, command: Command, open_: set[str], result: Induction) -> set[str]:
        """The claims of *open_* that *command* breaks; all of them if the solver can't say."""
        lost: set[str] = set()
        enabled = lower((self.system.enabled(command),), self.algebra)
        while open_ - lost:
            ids = sorted(open_ - lost)
            after = lower((self.system.after(self.system.claims[id], command) for id in ids), self.algebra)
            facts = [*enabled, *(self.lowered[id] for id in sorted(open_)), z3.Not(z3.And(after))]
            answer, model = self._check(facts)
            if answer == "unsat":
                return lost
            if model is None:
                return lost | set(ids)
            broken = [id for id, claim in zip(ids, after, strict=True) if not z3.is_true(model.eval(claim, True))]
            for id in broken:
                result.broken.setdefault(id, self._counterexample(id, command, model))
            lost |= set(broken)
        return lost

    def _judge_steps(self, id: str, result: Induction) -> None:
        known = [self.lowered[one] for one, k in result.proved.items() if k == 1 and one in self.lowered]
        for command, claim in zip(self.system.relation.commands, self.system.steps[id], strict=True):
            if claim is ir.TRUE:
                continue
            facts = [*lower((self.system.enabled(command), ir.not_(claim)), self.algebra), *known]
            answer, model = self._check(facts)
            if answer != "unsat":
                result.broken[id] = None if model is None else self._counterexample(id, command, model)
                return
        result.proved[id] = 1

    def _counterexample(self, id: str, command: Command, model: z3.ModelRef) -> Counterexample:
        def flat(leaves: tuple[Expr, ...]) -> Flat:
            return tuple(number(model, value) for value in lower(leaves, self.algebra))

        relation = self.system.relation
        return Counterexample(id, command, flat(relation.policy), flat(relation.state), flat(command.updates))

    def _k_inductive(self, id: str, k: int, result: Induction) -> bool:
        """Whether the claim follows from itself over *k* consecutive states (and holds in the first *k*)."""
        claim = self.system.claims[id]
        known = [self.system.claims[one] for one, at in result.proved.items() if at == 1 and one in self.lowered]
        relation = self.system.relation
        unrolled = Unrolling(relation, relation.commands, self.algebra)
        first = unrolled.begin()
        chain = lower((relation.policy_valid,), self.algebra)
        for _ in range(k):
            chain += unrolled.advance()
        chain += [unrolled.at(one, step) for one in known for step in range(k)]
        held = [unrolled.at(claim, step) for step in range(k)]
        if not self._shown([*chain, *held, z3.Not(unrolled.at(claim, k))]):
            return False
        start = z3.Or([first.equals(lower(leaves, self.algebra)) for leaves in relation.initial])
        prefix = [*lower((relation.policy_valid,), self.algebra), start]
        shorter = Unrolling(relation, relation.commands, self.algebra)
        shorter.begin()
        for step in range(k):
            if not self._shown([*prefix, z3.Not(shorter.at(claim, step))]):
                return False
            prefix += shorter.advance()
        return True
