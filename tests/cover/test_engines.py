"""A compiled engine finds what the plain one finds, state for state, and says so where it can't."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import attrs
import numpy as np
import pytest

from deadreckon.models import explorer
from deadreckon.models.explorer import Bounds, Progress, Unsuitable, explore
from deadreckon.models.fast import packing as fast_packing
from deadreckon.models.fast import search as fast
from deadreckon.models.fast.dataflow import Judged, Program
from deadreckon.models.fast.engine import Look
from deadreckon.models.fast.native_engine import NativeEngine
from deadreckon.models.fast.packing import MARK, Range, packing, ranges
from deadreckon.models.fast.vector_engine import VectorEngine
from deadreckon.models.layout import Field
from deadreckon.models.relation import relation
from deadreckon.models.search import Subject
from deadreckon.models.symmetry import Symmetry
from deadreckon.spec import Among, EnvironmentFault, InternalError, Machine, action, always, require, scope, sometimes
from tests.cover.engines import told
from tests.cover.test_explorer import counter
from tests.cover.test_explorer_search import alike, ring, slots, table

ENGINES = ("numba", "numpy")
MACHINES = {"ring": ring, "table": table, "slots": slots, "alike": alike, "counter": counter}

# A pair of numbers that grow far apart, to more than a word holds; one falls below 0.


FARTHEST = 2**40


@attrs.frozen
class Pair:
    up: int
    down: int
    full: bool


def nothing() -> Pair:
    return Pair(0, 0, False)


def climb(state: Pair, by: int) -> Pair:
    require(not state.full, "W1", "it is full")
    return Pair(state.up + by, state.down, state.full)


def sink(state: Pair, by: int) -> Pair:
    require(not state.full, "W1", "it is full")
    return Pair(state.up, state.down - by, state.full)


def fill(state: Pair) -> Pair:
    require(state.up > state.down, "W1", "it is empty")
    return Pair(state.up, state.down, True)


def steep(state: Pair) -> bool:
    return state.up <= FARTHEST and state.down >= -FARTHEST


@always("W1", "it never goes down as far as it is up", source="here")
def uneven(state: Pair) -> bool:
    return state.up + state.down < FARTHEST or state.up == 0


@sometimes("WS", "it is full", source="here", beside=("W1",))
def filled(state: Pair) -> bool:
    return state.full


FAR = Among((1, 549_755_813_888))
pair = Machine(
    name="pair",
    title="A pair.",
    state=Pair,
    initial=(nothing,),
    actions=(action(climb, by=FAR), action(sink, by=FAR), action(fill)),
    rules=(uneven, filled),
    scopes=(scope("steep", why="high and low", within=steep, liveness=False),),
)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MACHINES)
def test_engine_finds_what_the_plain_one_finds(name: str, engine: str) -> None:
    """States, numbers, steps, verdicts, counterexamples and their lengths are the same in every scope."""
    machine = MACHINES[name]
    for one in machine.scopes:
        plain = explore(machine, one, keep_graph=True, engine="plain")
        compiled = explore(machine, one, keep_graph=True, engine=engine)
        assert told(compiled) == told(plain)
        assert (plain.engine, compiled.engine) == ("plain", engine)
        assert compiled.compared > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_stops_where_the_plain_one_stops(engine: str) -> None:
    """At the first violation of the one rule that is asked for, and at bounds, all counts are those of that moment."""
    for machine, rules in ((ring, ("T2", "TS")), (counter, ("N1", "N2", "S2")), (alike, ("D2", "D3", "DS"))):
        for rule in rules:
            found = [explore(machine, only=rule, engine=one) for one in ("plain", engine)]
            assert told(found[1]) == told(found[0])
            assert found[0].violated or found[0].reached
    for bounds in (Bounds(max_states=7), Bounds(max_depth=2), Bounds(max_states=1), Bounds(max_states=20)):
        found = [explore(slots, bounds=bounds, keep_graph=True, engine=one) for one in ("plain", engine)]
        assert told(found[1]) == told(found[0])
        assert found[1].stopped


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_with_several_threads_numbers_as_with_one(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the states are shared out, the first way to each is the one that is kept."""
    plain = explore(pair, bounds=Bounds(max_states=6_000), engine="plain", compare_every=0, keep_graph=True)
    for threads in (1, 2, 3):
        monkeypatch.setattr("deadreckon.models.fast.native_engine._cores", lambda threads=threads: threads)
        found = explore(pair, bounds=Bounds(max_states=6_000), engine=engine, compare_every=0, keep_graph=True)
        assert told(found) == told(plain)


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_widens_a_field_that_holds_more_than_was_seen(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that does not fit is never cut off: the field gets room, in a second word if need be, and all begins anew."""
    monkeypatch.setattr(explorer, "PROBED", 3)
    monkeypatch.setattr(fast, "ROOMS", (1,))
    tried: list[tuple[Range, ...]] = []
    real = fast_packing.packing

    def noted(fields: tuple[Field, ...], expected: tuple[Range, ...], symmetry: Symmetry) -> object:
        tried.append(tuple(expected))
        return real(fields, expected, symmetry)

    monkeypatch.setattr(fast_packing, "packing", noted)
    bounds = Bounds(max_states=2_000)
    found = explore(pair, bounds=bounds, compare_every=0, engine=engine)
    assert told(found) == told(explore(pair, bounds=bounds, compare_every=0, engine="plain"))
    assert len(tried) > 1
    assert tried[-1][0].high >= 1 << 39
    assert tried[-1][1].low <= -(1 << 39)
    assert packing(found.relation.layout.fields, tried[-1], Symmetry(pair, found.relation.layout)).words == 2


def unbounded(state: Pair) -> bool:
    return True


def double(state: Pair) -> Pair:
    return Pair(state.up * 3 + 1, state.down * 3 - 1, state.full)


WIDE = attrs.evolve(
    pair,
    actions=(action(double),),
    scopes=(scope("unbounded", why="it grows", within=unbounded, liveness=False),),
)


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_refuses_what_two_words_do_not_hold(engine: str) -> None:
    """The widest fields are named; left to choose, the plain engine goes on."""
    with pytest.raises(Unsuitable, match=r"up \(0 to \d+\).*plain engine|64 bits in .*plain engine"):
        explore(WIDE, bounds=Bounds(max_states=200), compare_every=0, engine=engine)
    auto = explore(WIDE, bounds=Bounds(max_states=200), compare_every=0)
    assert (auto.engine, auto.states) == ("plain", 201)


def test_auto_is_plain_for_what_is_small_then_the_quickest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few states are explored plainly; beyond that it is what is installed, and the result says which."""
    bounds = Bounds(max_states=3_000)
    assert explore(pair, bounds=bounds).engine == "plain"
    monkeypatch.setattr(explorer, "SMALL_COMPARED", 1_000)
    plain = explore(pair, bounds=bounds, engine="plain", compare_every=0)
    for missing, chosen in (((), "numba"), (("numba",), "numpy"), (("numba", "numpy"), "plain")):
        monkeypatch.setattr(explorer, "find_spec", lambda name, gone=missing: None if name in gone else find_spec(name))
        found = explore(pair, bounds=bounds)
        assert (found.engine, told(found)) == (chosen, told(plain))


def test_auto_is_plain_where_another_engine_can_not_carry_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a compiled engine refuses is explored all the same."""
    monkeypatch.setattr(explorer, "SMALL", 50)
    found = explore(WIDE, bounds=Bounds(max_states=100), compare_every=0)
    assert (found.engine, found.states) == ("plain", 101)


def test_an_engine_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(__import__("sys").modules, "deadreckon.models.fast.search", None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'deadreckon\[fast\]'"):
        explore(ring, engine="numba")


def test_an_engine_that_does_not_exist_is_refused() -> None:
    """The message lists those that do."""
    with pytest.raises(ValueError, match="auto, plain, numpy, numba"):
        explore(ring, engine="fortran")


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_stops_at_the_memory_that_it_may_use(engine: str) -> None:
    """What it did not decide is unknown."""
    found = explore(pair, bounds=Bounds(max_megabytes=1, max_states=100_000), compare_every=0, engine=engine)
    assert found.stopped == "more than 1 MB of memory"
    assert found.verdict(uneven) == "unknown"


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_says_where_it_stands_and_can_be_interrupted(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt keeps what was found so far, and nothing is complete."""
    monkeypatch.setattr("deadreckon.models.search.REPORT_SECONDS", 0.0)
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if progress.states > 3_000:
            raise KeyboardInterrupt

    found = explore(pair, bounds=Bounds(max_states=50_000), compare_every=0, engine=engine, on_progress=stop)
    assert found.stopped == "interrupted"
    assert 3_000 < found.states < 50_000
    assert seen[-1].megabytes > 0


@pytest.mark.parametrize(("engine", "cls"), [("numba", NativeEngine), ("numpy", VectorEngine)])
def test_engine_that_errs_is_found_out(
    engine: str, cls: type[NativeEngine] | type[VectorEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """States all over are compared with the plain code: a step that is missing or wrong ends the exploration."""
    right: Callable[..., list[Look]] = cls.look

    def lame(self: NativeEngine | VectorEngine, numbers: range) -> list[Look]:
        return [(events, steps[1:]) for events, steps in right(self, numbers)]

    monkeypatch.setattr(cls, "look", lame)
    with pytest.raises(InternalError, match=f"engine {engine} and the plain code differ"):
        explore(ring, engine=engine)
    assert explore(ring, engine=engine, compare_every=0).complete


def test_more_rules_than_a_word_has_bits_are_refused() -> None:
    """The plain engine judges as many as there are."""
    rules = [attrs.evolve(uneven, id=f"W{number}") for number in range(70)]
    many = attrs.evolve(pair, rules=(*rules, attrs.evolve(filled, beside=tuple(one.id for one in rules))))
    with pytest.raises(Unsuitable, match="more than 63 rules"):
        explore(many, bounds=Bounds(max_states=50), engine="numba")


def test_machine_code_is_kept_and_loaded() -> None:
    """A second engine for the same program compiles nothing; another program has code of its own."""
    traced = relation(ring)
    subject, expected = Subject(traced, ring.scopes[0]), ranges(traced.layout.fields, [(0, 0, 0, 0)])
    for _ in range(2):
        search = fast.CompiledSearch(subject, Bounds(), 0, "numba", expected)
        assert isinstance(search.machinery, NativeEngine)
        kept = [callback.cache_hits for callback in search.machinery.callbacks.kept]
        search.machinery.close()
    assert kept == [1, 1]


# Packing by itself.


def test_packing_is_exact_and_refuses_what_does_not_fit() -> None:
    """Every state comes back as it was; a value outside its range is named."""
    traced = relation(alike)
    found = explore(alike, keep_graph=True, engine="plain")
    assert found.graph is not None
    states = list(found.graph.index)
    packed = packing(traced.layout.fields, ranges(traced.layout.fields, states), Symmetry(alike, traced.layout))
    rows = [packed.pack(state) for state in states]
    assert len(set(rows)) == len(states)
    assert all(row[0] & MARK for row in rows)
    assert packed.unpack(np.array(rows, dtype=np.uint64)) == states
    number = next(at for at, field in enumerate(traced.layout.fields) if field.type is int)
    wrong = (*states[0][:number], 99, *states[0][number + 1 :])
    with pytest.raises(OverflowError, match="99"):
        packed.pack(wrong)


def test_elements_lie_side_by_side_so_that_they_compare_as_tuples_do() -> None:
    """Within a group the words of two elements are in the order of their leaves."""
    traced = relation(alike)
    symmetry = Symmetry(alike, traced.layout)
    found = explore(alike, keep_graph=True, engine="plain")
    assert found.graph is not None
    packed = packing(traced.layout.fields, ranges(traced.layout.fields, found.graph.index), symmetry)
    for state in found.graph.index:
        words = packed.pack(state)
        for columns, places in zip(symmetry.groups, packed.elements, strict=True):
            leaves = [tuple(state[index] for index in column) for column in columns]
            bits = [(words[place.word] & place.mask) >> place.shift for place in places]
            assert sorted(leaves) == [leaf for _, leaf in sorted(zip(bits, leaves, strict=True))]


def test_arithmetic_that_may_leave_64_bits_is_refused() -> None:
    """Before anything runs, from what the fields can hold."""
    traced = relation(WIDE)
    subject = Subject(traced, WIDE.scopes[0])
    wide = packing(traced.layout.fields, (Range(0, (1 << 62) - 1), Range(-1, 0), Range(0, 1)), subject.symmetry)
    program = Program(subject.grounded, subject.grounded.triggers["within:unbounded"], Judged((), ()), wide)
    with pytest.raises(Unsuitable, match="may leave 64 bits"):
        program.check_arithmetic()
