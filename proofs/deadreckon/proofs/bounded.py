"""Bounded model checking: is a rule violated within so many steps? Incremental, over bit-vectors.

A counterexample is believed only when the machine's own functions, run on it, do the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
import z3

from deadreckon.models import expr as ir
from deadreckon.models.compiled import Reference
from deadreckon.models.explorer import Step, Trace
from deadreckon.models.expr import Expr, Sort
from deadreckon.models.grounding import Instance
from deadreckon.models.intervals import Interval, hull
from deadreckon.models.relation import Command, Relation
from deadreckon.spec import InternalError, Kind, Scope

from .intervals import Narrowing
from .lowering import bits
from .unroll import Unrolling, number


@attrs.frozen
class Bounded:
    """The verdict on one rule: ``holds`` to ``depth`` steps, ``violated`` (with a trace), or ``unknown``."""

    verdict: str
    depth: int
    trace: Trace | None = None
    seconds: float = 0.0
    detail: str = ""


def bounded(
    traced: Relation,
    scope: Scope,
    rules: Sequence[str] | None = None,
    *,
    depth: int = 8,
    seconds: float = 60.0,
    on_depth: Callable[[int], None] | None = None,
) -> dict[str, Bounded]:
    """Look for a violation of each ``always`` rule within *depth* steps, under the policy of *scope*.

    The states are not confined to the scope; integer inputs take values between the least and the greatest that
    exploration tries.

    Args:
        traced: the machine.
        scope: whose policy to take.
        rules: the rules to check; all ``always`` rules by default.
        depth: the number of steps.
        seconds: time limit of the whole call; what is undecided then is ``unknown``.
        on_depth: called after each depth is done.

    Raises:
        InternalError: when a counterexample of the solver is none for the machine's own functions.
    """
    always = [rule.id for rule in traced.machine.rules if rule.kind is Kind.ALWAYS]
    return _Check(traced, scope, always if rules is None else list(rules), depth, seconds).run(on_depth)


class _Check:
    def __init__(self, traced: Relation, scope: Scope, rules: list[str], depth: int, seconds: float) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + seconds
        self.traced, self.scope, self.depth = traced, scope, depth
        self.open = rules
        self.found: dict[str, Bounded] = {}
        self.policy = _policy_values(traced, scope)
        commands = [_bound(command, self.policy) for command in traced.commands]
        narrowing = Narrowing(_ranges(traced, self._starts(), commands, depth))
        self.commands = tuple(
            attrs.evolve(command, guard=guard, updates=tuple(updates))
            for command in commands
            for guard, *updates in [narrowing((command.guard, *command.updates))]
        )
        self.claims = {id: self._under(narrowing, (traced.claims[id],)) for id in rules if id in traced.claims}
        self.steps = {id: self._under(narrowing, traced.steps[id]) for id in rules if id in traced.steps}
        inputs = (abs(end) for command in commands for one in command.inputs for end in (one.low, one.high or 0))
        largest = max(narrowing.largest, len(commands), *(abs(v) for start in self._starts() for v in start), *inputs)
        self.unrolled = Unrolling(traced, self.commands, bits(largest.bit_length() + 1))
        self.solver = z3.SolverFor("QF_BV")

    def _under(self, narrowing: Narrowing, claims: Iterable[Expr]) -> tuple[Expr, ...]:
        return narrowing(ir.substitute(tuple(claims), self.policy))

    def _starts(self) -> list[tuple[int, ...]]:
        starts = (ir.substitute(start, self.policy) for start in self.traced.initial)
        return [tuple(int(leaf.value) for leaf in start) for start in starts]

    def run(self, on_depth: Callable[[int], None] | None) -> dict[str, Bounded]:
        first = self.unrolled.begin()
        constant = self.unrolled.algebra.constant
        leaves = self.traced.state
        starts = [
            [constant(_typed(leaf, v)) for leaf, v in zip(leaves, start, strict=True)] for start in self._starts()
        ]
        self.solver.add(z3.Or([first.equals(start) for start in starts]))
        for step in range(self.depth + 1):
            if not self._settle(step):
                self._close("unknown", step - 1, f"the solver gave up at depth {step}")
                break
            if on_depth is not None:
                on_depth(step)
            if step < self.depth and self.open:
                self.solver.add(*self.unrolled.advance())
        self._close("holds", self.depth, "")
        return self.found

    def _close(self, verdict: str, depth: int, detail: str) -> None:
        for id in self.open:
            self.found[id] = Bounded(verdict, depth, None, time.monotonic() - self.started, detail)
        self.open = []

    def _settle(self, step: int) -> bool:
        """Decide every open rule at *step*; False when the solver gives up."""
        while self.open:
            holds = {id: self._holds(id, step) for id in self.open}
            self.solver.push()
            self.solver.add(z3.Not(z3.And(list(holds.values()))))
            self.solver.set("timeout", max(1, int((self.deadline - time.monotonic()) * 1000)))
            answer = self.solver.check()
            model = self.solver.model() if answer == z3.sat else None
            self.solver.pop()
            if model is None:
                if answer == z3.unsat:
                    self.solver.add(*holds.values())  # It follows from the steps so far; later ones may build on it.
                return bool(answer == z3.unsat)
            broken = [id for id, claim in holds.items() if z3.is_false(model.eval(claim, model_completion=True))]
            trace = self._replayed(model, step)
            for id in broken:
                self.found[id] = Bounded("violated", step, trace, time.monotonic() - self.started)
                self.open.remove(id)
        return True

    def _holds(self, id: str, step: int) -> z3.ExprRef:
        if id in self.claims:
            return self.unrolled.at(self.claims[id][0], step)
        return self.unrolled.step_claim(self.steps[id], step - 1) if step else z3.BoolVal(True)

    def _replayed(self, model: z3.ModelRef, steps: int) -> Trace:
        """The counterexample, step by step through the machine's own functions."""
        reference = Reference(self.traced, self.scope.policy)
        states = [self._flat(model, step) for step in range(steps + 1)]
        found = [Step(None, states[0])]
        for step in range(steps):
            instance = self._instance(model, step)
            real = reference.step(instance, reference.layout.rebuild(states[step]))  # type: ignore[arg-type]  # a pair
            if real != states[step + 1]:
                raise InternalError(
                    f"{self.traced.machine.name}: the solver's counterexample is none: {instance.name} leads to "
                    f"{real}, not to {states[step + 1]}"
                )
            found.append(Step(instance, states[step + 1]))
        return Trace(tuple(found))

    def _flat(self, model: z3.ModelRef, step: int) -> tuple[int, ...]:
        moment = self.unrolled.moments[step].state
        return tuple(number(model, moment[leaf]) for leaf in self.traced.state)

    def _instance(self, model: z3.ModelRef, step: int) -> Instance:
        choice = self.unrolled.choices[step]
        command = self.commands[number(model, choice.selector)]
        chosen = {one.name: number(model, choice.inputs[one.variable]) for one in command.inputs}
        fields = {one.name: one.field for one in command.inputs}
        return Instance(0, command.action, {**command.fixed, **chosen}, fields, command, command.guard, command.updates)


def _policy_values(traced: Relation, scope: Scope) -> dict[Expr, Expr]:
    if scope.policy is None:
        return {}
    values = traced.policy_layout.flatten(scope.policy)
    return {leaf: ir.const(_typed(leaf, value)) for leaf, value in zip(traced.policy, values, strict=True)}


def _typed(leaf: Expr, value: int) -> int | bool:
    return bool(value) if leaf.sort is Sort.BOOL else value


def _bound(command: Command, policy: Mapping[Expr, Expr]) -> Command:
    """*command* under a policy, with integer inputs between the values that exploration tries."""
    guard, *updates = ir.substitute((command.guard, *command.updates), policy)
    inputs = tuple(attrs.evolve(one, low=min(one.explore), high=max(one.explore)) for one in command.inputs)
    return attrs.evolve(command, guard=guard, updates=tuple(updates), inputs=inputs)


def _ranges(
    traced: Relation, starts: Sequence[tuple[int, ...]], commands: Sequence[Command], depth: int
) -> dict[Expr, Interval]:
    """How far each variable can get in *depth* steps."""
    ranges = {one.variable: (min(one.explore), max(one.explore)) for command in commands for one in command.inputs}
    for position, leaf in enumerate(traced.state):
        values = [start[position] for start in starts]
        ranges[leaf] = (min(values), max(values))
    integers = [(at, leaf) for at, leaf in enumerate(traced.state) if leaf.sort is Sort.INT]
    for _ in range(depth):
        narrowing = Narrowing(dict(ranges))
        for command in commands:
            updates = narrowing(command.updates)
            for at, leaf in integers:
                ranges[leaf] = hull(ranges[leaf], narrowing.interval(updates[at]))
    return ranges
