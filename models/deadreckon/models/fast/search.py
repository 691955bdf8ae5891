"""The search that drives a compiled engine, to the same numbers, counts and counterexamples as the plain one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import attrs
import numpy as np

from deadreckon.spec import EnvironmentFault, InternalError

from .. import expr as ir
from .. import intervals
from ..exploration import Bounds, Exploration, Graph, Unsuitable
from ..layout import Field, Flat
from ..search import SAMPLE, OnProgress, PlainSearch, Search, Subject
from ..symmetry import Symmetry
from . import packing
from .dataflow import Judged, Program
from .engine import Advance, Engine, Look, Misfit, Numbers
from .packing import Range

ROOMS = (4, 2, 1)
"""By how much a number may exceed what the probe saw of it."""

NARROW = 1 << 12
"""Intervals beyond this come from a limit that is not reached, and would cost bits for nothing."""

COMPARED = 500
"""States, spread over all, of which a compiled engine is compared with the machine's own functions by default."""


def explore_compiled(
    probe: PlainSearch, engine: str, bounds: Bounds, on_progress: OnProgress, *, keep_graph: bool
) -> Exploration:
    """Explore the subject of *probe*; a field that turns out to hold more than was expected begins it again, wider.

    Raises:
        Unsuitable: the machine is too large for the engine.
    """
    sure = _sure(probe.subject)
    expected = packing.ranges(_fields(probe), probe.order)
    while True:
        search = _begun(probe, engine, bounds, [_beyond(expected, sure, room) for room in ROOMS])
        try:
            return search.run(on_progress, keep_graph=keep_graph)
        except Misfit as misfit:
            expected = search.widened(misfit)
        finally:
            search.machinery.close()


def _fields(probe: PlainSearch) -> tuple[Field, ...]:
    return probe.subject.traced.layout.fields


def _sure(subject: Subject) -> list[Range | None]:
    """What intervals show of the fields."""
    within = subject.grounded.triggers[f"within:{subject.scope.name}"]
    starts = [subject.symmetry.canonical(start) for start in subject.code.initial]
    found = intervals.reachable(subject.grounded, within, subject.symmetry, starts)
    return [None if end is None or end[1] - end[0] > NARROW else Range(*end) for end in found]


def _beyond(seen: Sequence[Range], sure: Sequence[Range | None], room: int) -> tuple[Range, ...]:
    """What fields are expected to hold: what is sure, else what was seen and so much room."""
    return tuple(certain or one.with_room(room) for one, certain in zip(seen, sure, strict=True))


def _begun(probe: PlainSearch, engine: str, bounds: Bounds, offers: Sequence[tuple[Range, ...]]) -> CompiledSearch:
    """A search with the roomiest offer that is computed within 64 bits.

    Raises:
        Unsuitable: there is none.
    """
    *roomy, last = _fitting(offers, probe.subject.symmetry)
    for offer in roomy:
        with suppress(Unsuitable):
            return CompiledSearch(probe.subject, bounds, probe.compare_every, engine, offer)
    return CompiledSearch(probe.subject, bounds, probe.compare_every, engine, last)


def _fitting(offers: Sequence[tuple[Range, ...]], symmetry: Symmetry) -> Sequence[tuple[Range, ...]]:
    """Those offers, roomiest first, that take the fewest words; the last, if none fits."""
    words = [packing.words(offer, symmetry) for offer in offers]
    fewest = min((count for count in words if count), default=None)
    return offers[-1:] if fewest is None else [one for one, count in zip(offers, words, strict=True) if count == fewest]


class CompiledSearch(Search):
    """Runs of states, in machine code or NumPy."""

    def __init__(
        self, subject: Subject, bounds: Bounds, compare_every: int | None, engine: str, expected: Sequence[Range]
    ) -> None:
        super().__init__(subject, bounds, compare_every)
        self.expected = expected
        self.packing = packing.packing(subject.traced.layout.fields, expected, subject.symmetry)
        self.state_rules = [*subject.claims, *subject.goals]
        self.step_rules = [*subject.step_claims, *subject.step_goals]
        grounded = subject.grounded
        judged = Judged(
            tuple((id, ir.not_(grounded.claims[id])) for id in subject.claims)
            + tuple((id, grounded.claims[id]) for id in subject.goals),
            tuple((id, tuple(map(ir.not_, grounded.steps[id]))) for id in subject.step_claims)
            + tuple((id, grounded.steps[id]) for id in subject.step_goals),
        )
        program = Program(grounded, grounded.triggers[f"within:{subject.scope.name}"], judged, self.packing)
        self.machinery: Engine = _engine(engine, program)
        self.result.engine = self.machinery.name
        self.expanded = 0

    def widened(self, misfit: Misfit) -> tuple[Range, ...]:
        """The ranges of the fields, with room for the state that did not fit."""
        after = self._after(misfit.number, misfit.label)
        return tuple(
            one if place.holds(value) else one.with_room_for(value)
            for one, place, value in zip(self.expected, self.packing.places, after, strict=True)
        )

    def _search(self, started: float, on_progress: OnProgress) -> None:
        starts = [self.subject.symmetry.canonical(start) for start in self.subject.code.initial]
        self.machinery.start([self.packing.pack(start) for start in starts])
        for number in range(len(self.machinery)):
            self._met(number, self._state(number))
        self.result.states = level_end = len(self.machinery)
        while self.expanded < self.result.states and not self._stops(self.result.states):
            self._advance(min(self.expanded + self.machinery.run, level_end))
            if self.expanded == level_end < self.result.states:
                self.result.depth += 1
                level_end = self.result.states
            self._progress(started, self.expanded, on_progress)
        self._compare()

    def _advance(self, last: int) -> None:
        """Expand the states up to *last*, or as many as the plain search would before it stops."""
        first, known = self.expanded, self.result.states
        found = self.machinery.advance(first, last, self._pending())
        parents = self.machinery.parents(slice(known, None))
        end = min(last, self._decided_by(found), self._filled_by(known, parents, last))
        if end < last:
            edges, cut, ran = self.machinery.recount(first, end)
            found = attrs.evolve(found, edges=edges, cut=cut, ran=ran)
        self.expanded = end
        self.result.states = known + int(np.searchsorted(parents, end))
        self.result.edges += found.edges
        self.result.cut += found.cut
        self.result.ran |= {self.subject.code.instances[label].action for label in found.ran}
        self._note(found)

    def _decided_by(self, found: Advance) -> int:
        """How many states are expanded when the one rule that is asked for is decided."""
        if self.subject.only is None:
            return len(self.machinery)
        ends = [self._parent(number) + 1 for number in found.of_state.values()]
        ends += [number + 1 for number, _ in found.of_step.values()]
        return min(ends, default=len(self.machinery))

    def _filled_by(self, known: int, parents: Numbers, last: int) -> int:
        """How many states are expanded when there are more than the bounds allow."""
        over = self.bounds.max_states - known
        return int(parents[over]) + 1 if over < len(parents) else last

    def _note(self, found: Advance) -> None:
        """Keep what was met among the states and steps that count."""
        result = self.result
        for bit, number in found.of_state.items():
            if number < result.states:
                id = self.state_rules[bit]
                (result.violated if id in self.subject.claims else result.reached)[id] = self._trace(number)
        for bit, (number, label) in found.of_step.items():
            if number < self.expanded:
                id = self.step_rules[bit]
                trace = self._trace(number, (label, self._after(number, label)))
                (result.violated if id in self.subject.step_claims else result.reached)[id] = trace
        if found.deadlock is not None and found.deadlock < self.expanded and result.deadlock is None:
            result.deadlock = self._trace(found.deadlock)

    def _pending(self) -> tuple[int, int]:
        """The events that are still of interest."""
        decided = (*self.result.violated, *self.result.reached)

        def bits(rules: list[str]) -> int:
            return sum(1 << bit for bit, id in enumerate(rules) if id not in decided)

        return bits(self.state_rules), bits(self.step_rules)

    def _compare(self) -> None:
        """Run the Python code and the machine's own functions on some of the states, and compare.

        The states that the probe saw were compared as the plain search compares them; these lie all over.

        Raises:
            InternalError: they differ.
        """
        every = max(1, self.expanded // COMPARED) if self.compare_every is None else self.compare_every
        numbers = range(0, self.expanded, every) if every else range(0)
        for turn, (number, seen) in enumerate(zip(numbers, self.machinery.look(numbers), strict=True)):
            state = self._state(number)
            found = self.subject.code.successors(state)
            self.result.compared += len(found)
            expected = self._look(state, found)
            if seen != expected:
                raise InternalError(
                    f"{self.subject.traced.machine.name}: engine {self.machinery.name} and the plain code differ on "
                    f"{state}: {seen} and {expected}"
                )
            self.subject.validator.edges(state, found)
            if turn % SAMPLE == 0:
                self.subject.validator.everything(state, found)

    def _look(self, state: Flat, found: list[tuple[int, Flat]]) -> Look:
        """What an engine ought to see, from the plain code."""
        subject, steps = self.subject, []
        for label, after in found:
            met = {id: subject.code.steps[id][label](state) for id in self.step_rules}
            packed = self.packing.pack(subject.symmetry.canonical(after)) if subject.within(after) else ()
            steps.append((label, self._events(met), packed))
        events = self._events({id: subject.code.claims[id](state) for id in self.state_rules})
        return events, [step for step in steps if step[1] or step[2]]

    def _events(self, verdicts: Mapping[str, bool]) -> int:
        """The word of events, from what each rule says: an *always* rule is an event where it does not hold."""
        goals = (*self.subject.goals, *self.subject.step_goals)
        return sum(1 << bit for bit, (id, holds) in enumerate(verdicts.items()) if bool(holds) == (id in goals))

    def _after(self, number: int, label: int) -> Flat:
        return dict(self.subject.code.successors(self._state(number)))[label]

    def _state(self, number: int) -> Flat:
        return self.packing.unpack(self.machinery.words(slice(number, number + 1)))[0]

    def _parent(self, number: int) -> int:
        return int(self.machinery.parents(slice(number, number + 1))[0])

    def _graph(self) -> Graph:
        states = self.packing.unpack(self.machinery.words(slice(0, self.result.states)))
        return Graph(dict(zip(states, range(len(states)), strict=True)), *self.machinery.graph(self.expanded))


def _engine(name: str, program: Program) -> Engine:
    program.check_arithmetic()
    if name == "numpy":
        from .vector_engine import VectorEngine

        return VectorEngine(program)
    try:
        from .native_engine import NativeEngine  # here: without numba there is NumPy
    except ImportError as missing:
        raise EnvironmentFault(f"engine {name} needs {missing.name}: pip install 'deadreckon[fast]'") from missing
    return NativeEngine(program, program.digest().hexdigest())
