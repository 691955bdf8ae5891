"""Breadth-first search over canonical states, so that every counterexample is shortest: what all engines share.

:class:`PlainSearch` is the reference: compiled Python, one state after the other. ``fast.search`` is the other.
"""

from __future__ import annotations

import resource
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import attrs

from deadreckon.spec import Kind, Rule, Scope, SpecError

from .compiled import Compiled, Reference, compile_grounded
from .exploration import Bounds, Exploration, Graph, Progress, Step, Trace
from .grounding import ground
from .layout import Flat
from .liveness import Lasso, fair_violation
from .relation import Relation
from .symmetry import Symmetry
from .validation import Validator

T = TypeVar("T")
REPORT_SECONDS = 0.25
OnProgress = Callable[[Progress], None] | None

INTERRUPTED = "interrupted"
"""Why a search stopped that was interrupted."""

FIRST, SAMPLE = 256, 16
"""Of the states that are compared, the first and then every n-th are compared in everything, not in their edges alone."""


class Subject:
    """What is explored: a relation under the policy of a scope, compiled to Python, and the rules to judge.

    With *only*, that rule alone.
    """

    def __init__(self, traced: Relation, scope: Scope, only: str | None = None) -> None:
        machine = traced.machine
        self.traced = traced
        self.scope = scope
        self.only = only
        self.grounded = ground(traced, scope.policy)
        self.code: Compiled = compile_grounded(self.grounded)
        self.within = self.code.triggers[f"within:{scope.name}"]
        self.symmetry = Symmetry(machine, traced.layout)
        self.validator = Validator(self.code, Reference(traced, scope.policy), self.symmetry)
        rules = [rule for rule in machine.rules if only in (None, rule.id)]
        self.claims = _of_kind(rules, Kind.ALWAYS, self.code.claims)
        self.goals = _of_kind(rules, Kind.SOMETIMES, self.code.claims)
        self.step_claims = _of_kind(rules, Kind.ALWAYS, self.code.steps)
        self.step_goals = _of_kind(rules, Kind.SOMETIMES, self.code.steps)
        self.eventual = [rule for rule in rules if rule.kind is Kind.EVENTUALLY and scope.liveness]
        judged = (*self.claims, *self.goals, *self.step_claims, *self.step_goals, *(rule.id for rule in self.eventual))
        self.judged = frozenset(judged)


class Search(ABC):
    """One exploration of a subject; states are numbered in the order of discovery.

    *compare_every* is that of :func:`~.explorer.explore`.
    """

    engine = ""

    def __init__(self, subject: Subject, bounds: Bounds, compare_every: int | None) -> None:
        self.subject = subject
        self.bounds = bounds
        self.compare_every = compare_every
        self.next_report = 0.0
        self.result = Exploration(subject.traced, subject.scope, self.engine, subject.judged)

    def run(self, on_progress: OnProgress = None, *, keep_graph: bool = False) -> Exploration:
        """Search, and judge what needs all states; an interrupt ends the search, and what was found stays."""
        started = time.monotonic()
        try:
            self._search(started, on_progress)
        except KeyboardInterrupt:
            self.result.stopped = INTERRUPTED
        if keep_graph or (self.subject.eventual and self.result.complete):
            graph = self._graph()
            self.result.graph = graph if keep_graph else None
            if self.result.complete:
                self._judge_eventual(graph)
        self.result.seconds = time.monotonic() - started
        return self.result

    @abstractmethod
    def _search(self, started: float, on_progress: OnProgress) -> None:
        """Visit the states, and count and judge them."""

    @abstractmethod
    def _state(self, number: int) -> Flat:
        """The state with this number."""

    @abstractmethod
    def _parent(self, number: int) -> int:
        """From which state it was first reached; -1 if it is one to begin with."""

    @abstractmethod
    def _graph(self) -> Graph:
        """All states and steps."""

    def _met(self, number: int, state: Flat) -> None:
        """Judge a state that is new."""
        for id, holds in self.subject.claims.items():
            if id not in self.result.violated and not holds(state):
                self.result.violated[id] = self._trace(number)
        for id, holds in self.subject.goals.items():
            if id not in self.result.reached and holds(state):
                self.result.reached[id] = self._trace(number)

    def _progress(self, started: float, done: int, on_progress: OnProgress) -> None:
        """Tell now and then where the search stands, and keep to the memory."""
        found, now, megabytes = self.result, time.monotonic(), _megabytes()
        if on_progress is not None and now >= self.next_report:
            self.next_report = now + REPORT_SECONDS
            ahead = found.states - done
            on_progress(Progress(found.states, found.edges, ahead, found.depth, now - started, megabytes))
        if megabytes > self.bounds.max_megabytes:
            found.stopped = f"more than {self.bounds.max_megabytes} MB of memory"

    def _stops(self, states: int) -> bool:
        if self.result.stopped:
            return True
        if self.subject.only in self.result.violated or self.subject.only in self.result.reached:
            self.result.stopped = f"{self.subject.only} is decided"
        elif states > self.bounds.max_states:
            self.result.stopped = too_many(self.bounds.max_states)
        elif self.bounds.max_depth is not None and self.result.depth > self.bounds.max_depth:
            self.result.stopped = f"deeper than {self.bounds.max_depth} steps"
        return bool(self.result.stopped)

    def _trace(self, number: int, last: tuple[int, Flat] | None = None) -> Trace:
        """The path to a state, replayed from the start so that interchangeable elements keep their places."""
        path = [self._state(one) for one in self._path(number)]
        if last is None:
            return self._replayed(path)
        return self._replayed(
            [*path, self.subject.symmetry.canonical(last[1])], (self.subject.code.instances[last[0]].action,)
        )

    def _path(self, number: int) -> list[int]:
        path = []
        while number >= 0:
            path.append(number)
            number = self._parent(number)
        return path[::-1]

    def _replayed(self, path: list[Flat], actions: tuple[str, ...] = ()) -> Trace:
        """A real run along representatives, whose last steps are by *actions*."""
        by = (*[None] * (len(path) - 1 - len(actions)), *actions)
        state = next(start for start in self.subject.code.initial if self.subject.symmetry.canonical(start) == path[0])
        steps = [Step(None, state)]
        for target, action in zip(path[1:], by, strict=True):
            found = next(
                (
                    (label, after)
                    for label, after in self.subject.code.successors(state)
                    if action in (None, self.subject.code.instances[label].action)
                    and self.subject.symmetry.canonical(after) == target
                ),
                None,
            )
            if found is None:
                raise SpecError(
                    f"{self.subject.traced.machine.name} tells apart elements that it declares interchangeable: "
                    "no run goes along their representatives",
                    instead="leave the group out of interchangeable=, or treat its elements alike",
                )
            label, state = found
            steps.append(Step(self.subject.code.instances[label], state))
        return Trace(tuple(steps))

    def _judge_eventual(self, graph: Graph) -> None:
        order = list(graph.index)
        for rule in self.subject.eventual:
            lasso = fair_violation(
                rule,
                order,
                graph.offsets,
                graph.targets,
                [self.subject.code.instances[label].action for label in graph.labels],
                self.subject.code.triggers[rule.id],
                self.subject.code.claims[rule.id],
            )
            if lasso is not None:
                self.result.violated[rule.id] = self._closed(lasso)

    def _closed(self, lasso: Lasso) -> Trace:
        """The run of *lasso*, round after round until a state comes again: a round may exchange elements."""
        path = [self._state(number) for number in (*self._path(lasso.entry), *lasso.way)]
        rounds = [len(path) - 1]
        while True:
            path += [self._state(number) for number in lasso.loop]
            trace = self._replayed(path, lasso.actions * len(rounds))
            for start in rounds:
                if trace.steps[start].state == trace.steps[-1].state:
                    return attrs.evolve(trace, loop=start)
            rounds.append(len(path) - 1)


class PlainSearch(Search):
    """State by state, in Python."""

    engine = "plain"

    def __init__(self, subject: Subject, bounds: Bounds, compare_every: int | None) -> None:
        super().__init__(subject, bounds, compare_every)
        self.index: dict[Flat, int] = {}
        self.order: list[Flat] = []
        self.parent = array("q")
        self.offsets = array("q", [0])
        self.targets = array("q")
        self.labels = array("l")

    def _search(self, started: float, on_progress: OnProgress) -> None:
        try:
            self._visit_all(started, on_progress)
        finally:
            self._count()

    def _visit_all(self, started: float, on_progress: OnProgress) -> None:
        for start in self.subject.code.initial:
            self._visit(self.subject.symmetry.canonical(start), -1)
        done, level_end = 0, len(self.order)
        while done < len(self.order) and not self._stops(len(self.order)):
            self._expand(done)
            done += 1
            if done == level_end < len(self.order):
                self.result.depth += 1
                level_end = len(self.order)
            if done % 256 == 0:
                self._count()
                self._progress(started, done, on_progress)

    def _count(self) -> None:
        self.result.states = len(self.order)
        self.result.edges = len(self.targets)

    def _state(self, number: int) -> Flat:
        return self.order[number]

    def _parent(self, number: int) -> int:
        return self.parent[number]

    def _graph(self) -> Graph:
        return Graph(self.index, self.offsets, self.targets, self.labels)

    def _visit(self, state: Flat, parent: int) -> int:
        known = self.index.get(state)
        if known is not None:
            return known
        number = self.index[state] = len(self.order)
        self.order.append(state)
        self.parent.append(parent)
        self._met(number, state)
        return number

    def _expand(self, number: int) -> None:
        state = self.order[number]
        found = self.subject.code.successors(state)
        every = 1 if self.compare_every is None else self.compare_every
        if every and number % every == 0:
            self.result.compared += len(found)
            self.subject.validator.edges(state, found)
            if number < FIRST or number % (SAMPLE * every) == 0:
                self.subject.validator.everything(state, found)
        for label, after in found:
            self._judge_step(number, label, state, after)
            if not self.subject.within(after):
                self.result.cut += 1
                continue
            self.result.ran.add(self.subject.code.instances[label].action)
            self.targets.append(self._visit(self.subject.symmetry.canonical(after), number))
            self.labels.append(label)
        self.offsets.append(len(self.targets))
        if not found and self.result.deadlock is None and not self._may_rest(state):
            self.result.deadlock = self._trace(number)

    def _may_rest(self, state: Flat) -> bool:
        terminal = self.subject.code.triggers.get("terminal")
        return terminal is not None and terminal(state)

    def _judge_step(self, number: int, label: int, state: Flat, after: Flat) -> None:
        for id, functions in self.subject.step_claims.items():
            if id not in self.result.violated and not functions[label](state):
                self.result.violated[id] = self._trace(number, (label, after))
        for id, functions in self.subject.step_goals.items():
            if id not in self.result.reached and functions[label](state):
                self.result.reached[id] = self._trace(number, (label, after))


def too_many(states: int) -> str:
    """Why a search stopped that is bounded to so many states."""
    return f"more than {states} states"


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
