"""Exhaustive exploration: breadth first over canonical states, so that every counterexample is shortest."""

from __future__ import annotations

import resource
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import attrs

from deadreckon.spec import Kind, Machine, Rule, Scope

from .compiled import Compiled, Reference, compile_relation
from .grounding import Instance
from .layout import Flat
from .liveness import Lasso, fair_violation
from .relation import Relation, relation
from .symmetry import Symmetry
from .validation import Validator

T = TypeVar("T")

FIRST, SAMPLE = 256, 16
"""Of the states that are compared, the first and then every n-th are compared in everything, not in their edges alone."""


@attrs.frozen
class Progress:
    """Where an exploration stands."""

    states: int
    edges: int
    frontier: int
    depth: int
    seconds: float
    megabytes: int


@attrs.frozen
class Bounds:
    """When an exploration gives up; it says so, and is then not complete."""

    max_states: int = 5_000_000
    max_megabytes: int = 8_000
    max_depth: int | None = None


@attrs.frozen
class Step:
    """One step of a trace: the instance that was taken, and the state after it. The first has no instance."""

    instance: Instance | None
    state: Flat


@attrs.frozen
class Trace:
    """How a state is reached, shortest; ``loop`` is the position it returns to for ever, if it is a lasso."""

    steps: tuple[Step, ...]
    loop: int | None = None

    def __len__(self) -> int:
        """The number of steps taken."""
        return len(self.steps) - 1


@attrs.frozen(eq=False)
class Graph:
    """The canonical states in the order of discovery, and the steps between them.

    Step ``at`` leads from the state whose ``offsets`` enclose it to ``targets[at]``, by the instance ``labels[at]``.
    """

    index: Mapping[Flat, int]
    offsets: Sequence[int]
    targets: Sequence[int]
    labels: Sequence[int]


@attrs.define
class Exploration:
    """What an exploration found. A rule in neither mapping held (or was not reached) as far as it went."""

    relation: Relation
    scope: Scope
    judged: frozenset[str] = frozenset()
    states: int = 0
    edges: int = 0
    depth: int = 0
    cut: int = 0
    seconds: float = 0.0
    stopped: str = ""
    violated: dict[str, Trace] = attrs.field(factory=dict)
    reached: dict[str, Trace] = attrs.field(factory=dict)
    deadlock: Trace | None = None
    ran: set[str] = attrs.field(factory=set)
    compared: int = 0
    graph: Graph | None = None

    @property
    def complete(self) -> bool:
        """Whether every state within the scope was seen."""
        return not self.stopped

    def verdict(self, rule: Rule) -> str:
        """``holds``, ``violated`` or ``unknown`` for *rule* in this scope."""
        if rule.id not in self.judged:
            return "unknown"
        if rule.kind is Kind.SOMETIMES:
            return "holds" if rule.id in self.reached else "violated" if self.complete else "unknown"
        if rule.id in self.violated:
            return "violated"
        return "holds" if self.complete else "unknown"


def explore(
    machine: Machine,
    scope: Scope | None = None,
    *,
    traced: Relation | None = None,
    only: str | None = None,
    bounds: Bounds | None = None,
    compare_every: int = 1,
    keep_graph: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Visit every state of *machine* within *scope* (its first, by default).

    Args:
        machine: what to explore.
        scope: the bounds of the state space.
        traced: its relation, if it is there already.
        only: judge this rule alone, and stop at its first violation.
        bounds: when to give up.
        compare_every: the machine's own functions are run on every edge of every n-th state and compared with the
            traced relation (translation validation), of a sample of these states on every refusal and rule too; 0 never.
        keep_graph: whether the result keeps all states and steps.
        on_progress: called a few times a second.

    Raises:
        InternalError: when the traced relation and the functions differ.
        SpecError: when elements that are declared interchangeable are told apart.
    """
    traced = traced or relation(machine)
    search = _Search(machine, scope or machine.scopes[0], traced, only, bounds or Bounds(), compare_every)
    result = search.run(on_progress)
    if keep_graph:
        result.graph = Graph(search.index, search.offsets, search.targets, search.labels)
    return result


class _Search:
    def __init__(
        self, machine: Machine, scope: Scope, traced: Relation, only: str | None, bounds: Bounds, compare_every: int
    ) -> None:
        self.machine = machine
        self.code: Compiled = compile_relation(traced, scope.policy)
        self.symmetry = Symmetry(machine, traced.layout)
        self.validator = Validator(self.code, Reference(traced, scope.policy), self.symmetry)
        self.within = self.code.triggers[f"within:{scope.name}"]
        self.bounds = bounds
        self.compare_every = compare_every
        self.only = only
        self.result = Exploration(traced, scope)
        rules = [rule for rule in machine.rules if only in (None, rule.id)]
        self.claims = _of_kind(rules, Kind.ALWAYS, self.code.claims)
        self.goals = _of_kind(rules, Kind.SOMETIMES, self.code.claims)
        self.step_claims = _of_kind(rules, Kind.ALWAYS, self.code.steps)
        self.step_goals = _of_kind(rules, Kind.SOMETIMES, self.code.steps)
        self.eventual = [rule for rule in rules if rule.kind is Kind.EVENTUALLY and scope.liveness]
        judged = (*self.claims, *self.goals, *self.step_claims, *self.step_goals, *(rule.id for rule in self.eventual))
        self.result.judged = frozenset(judged)
        self.index: dict[Flat, int] = {}
        self.order: list[Flat] = []
        self.parent = array("q")
        self.offsets = array("q", [0])
        self.targets = array("q")
        self.labels = array("l")

    def run(self, on_progress: Callable[[Progress], None] | None) -> Exploration:
        started = time.monotonic()
        try:
            self._search(started, on_progress)
        except KeyboardInterrupt:
            self.result.stopped = "interrupted"
        if self.result.complete:
            self._judge_eventual()
        self.result.states = len(self.order)
        self.result.edges = len(self.targets)
        self.result.seconds = time.monotonic() - started
        return self.result

    def _search(self, started: float, on_progress: Callable[[Progress], None] | None) -> None:
        for start in self.code.initial:
            self._visit(self.symmetry.canonical(start), -1)
        done, level_end, next_report = 0, len(self.order), 0.0
        while done < len(self.order) and not self._stops():
            self._expand(done)
            done += 1
            if done == level_end < len(self.order):
                self.result.depth += 1
                level_end = len(self.order)
            if done % 256 == 0 and time.monotonic() > next_report:
                next_report = time.monotonic() + 0.25
                progress = Progress(
                    len(self.order),
                    len(self.targets),
                    len(self.order) - done,
                    self.result.depth,
                    time.monotonic() - started,
                    _megabytes(),
                )
                if on_progress is not None:
                    on_progress(progress)
                if progress.megabytes > self.bounds.max_megabytes:
                    self.result.stopped = f"more than {self.bounds.max_megabytes} MB of memory"

    def _stops(self) -> bool:
        if self.only in self.result.violated or self.only in self.result.reached:
            self.result.stopped = f"{self.only} is decided"
        elif len(self.order) > self.bounds.max_states:
            self.result.stopped = f"more than {self.bounds.max_states} states"
        elif self.bounds.max_depth is not None and self.result.depth > self.bounds.max_depth:
            self.result.stopped = f"deeper than {self.bounds.max_depth} steps"
        return bool(self.result.stopped)

    def _visit(self, state: Flat, parent: int) -> int:
        known = self.index.get(state)
        if known is not None:
            return known
        number = self.index[state] = len(self.order)
        self.order.append(state)
        self.parent.append(parent)
        for id, holds in self.claims.items():
            if id not in self.result.violated and not holds(state):
                self.result.violated[id] = self._trace(number)
        for id, holds in self.goals.items():
            if id not in self.result.reached and holds(state):
                self.result.reached[id] = self._trace(number)
        return number

    def _expand(self, number: int) -> None:
        state = self.order[number]
        found = self.code.successors(state)
        if self.compare_every and number % self.compare_every == 0:
            self.result.compared += len(found)
            self.validator.edges(state, found)
            if number < FIRST or number % (SAMPLE * self.compare_every) == 0:
                self.validator.everything(state, found)
        for label, after in found:
            self._judge_step(number, label, state, after)
            if not self.within(after):
                self.result.cut += 1
                continue
            self.result.ran.add(self.code.instances[label].action)
            self.targets.append(self._visit(self.symmetry.canonical(after), number))
            self.labels.append(label)
        self.offsets.append(len(self.targets))
        if not found and self.result.deadlock is None and not self._may_rest(state):
            self.result.deadlock = self._trace(number)

    def _may_rest(self, state: Flat) -> bool:
        terminal = self.code.triggers.get("terminal")
        return terminal is not None and terminal(state)

    def _judge_step(self, number: int, label: int, state: Flat, after: Flat) -> None:
        for id, functions in self.step_claims.items():
            if id not in self.result.violated and not functions[label](state):
                self.result.violated[id] = self._trace(number, (label, after))
        for id, functions in self.step_goals.items():
            if id not in self.result.reached and functions[label](state):
                self.result.reached[id] = self._trace(number, (label, after))

    def _trace(self, number: int, last: tuple[int, Flat] | None = None) -> Trace:
        """The path to a state, replayed from the start so that interchangeable elements keep their places."""
        path = [self.order[one] for one in self._path(number)]
        if last is None:
            return self._replayed(path)
        return self._replayed([*path, self.symmetry.canonical(last[1])], (self.code.instances[last[0]].action,))

    def _path(self, number: int) -> list[int]:
        path = []
        while number >= 0:
            path.append(number)
            number = self.parent[number]
        return path[::-1]

    def _replayed(self, path: list[Flat], actions: tuple[str, ...] = ()) -> Trace:
        """A real run along representatives, whose last steps are by *actions*."""
        by = (*[None] * (len(path) - 1 - len(actions)), *actions)
        state = next(start for start in self.code.initial if self.symmetry.canonical(start) == path[0])
        steps = [Step(None, state)]
        for target, action in zip(path[1:], by, strict=True):
            label, state = next(
                (label, after)
                for label, after in self.code.successors(state)
                if action in (None, self.code.instances[label].action) and self.symmetry.canonical(after) == target
            )
            steps.append(Step(self.code.instances[label], state))
        return Trace(tuple(steps))

    def _judge_eventual(self) -> None:
        for rule in self.eventual:
            lasso = fair_violation(
                rule,
                self.order,
                self.offsets,
                self.targets,
                [self.code.instances[label].action for label in self.labels],
                self.code.triggers[rule.id],
                self.code.claims[rule.id],
            )
            if lasso is not None:
                self.result.violated[rule.id] = self._closed(lasso)

    def _closed(self, lasso: Lasso) -> Trace:
        """The run of *lasso*, round after round until a state comes again: a round may exchange elements."""
        path = [self.order[number] for number in (*self._path(lasso.entry), *lasso.way)]
        rounds = [len(path) - 1]
        while True:
            path += [self.order[number] for number in lasso.loop]
            trace = self._replayed(path, lasso.actions * len(rounds))
            for start in rounds:
                if trace.steps[start].state == trace.steps[-1].state:
                    return attrs.evolve(trace, loop=start)
            rounds.append(len(path) - 1)


def _of_kind(rules: list[Rule], kind: Kind, table: Mapping[str, T]) -> dict[str, T]:
    return {rule.id: table[rule.id] for rule in rules if rule.kind is kind and rule.id in table}


def _megabytes() -> int:
    """Memory in use now; where the system does not say, the most that ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize() // (1024 * 1024)
    except (OSError, ValueError, IndexError):
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)
