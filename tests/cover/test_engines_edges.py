"""Edges of the compiled engines: what random machines, and hands that break things, have found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import attrs
import numba
import pytest

from deadreckon.models import explorer
from deadreckon.models.explorer import Bounds, Progress, explore
from deadreckon.models.fast import kept
from deadreckon.models.fast.kept import SUFFIX, Pieces
from deadreckon.models.fast.native_engine import NativeEngine
from deadreckon.models.fast.packing import ranges
from deadreckon.models.fast.search import CompiledSearch
from deadreckon.models.relation import relation
from deadreckon.models.search import Subject
from deadreckon.spec import EnvironmentFault, Machine, action, always, scope, sometimes
from tests.cover.engines import told
from tests.cover.test_engines import pair
from tests.cover.test_explorer_search import ring

ENGINES = ("numba", "numpy")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bounds", [Bounds(max_states=0), Bounds(max_depth=-1)])
def test_a_search_that_expands_nothing_has_a_graph_without_steps(engine: str, bounds: Bounds) -> None:
    """What stops before the first step keeps the states to begin with."""
    found = [explore(ring, bounds=bounds, keep_graph=True, engine=one) for one in ("plain", engine)]
    assert told(found[1]) == told(found[0])
    assert found[0].graph is not None
    assert list(found[0].graph.offsets) == [0]


# One condition, said of states and of steps.


@attrs.frozen
class Count:
    """A number."""

    number: int


def nought() -> Count:
    return Count(0)


def up(state: Count) -> Count:
    return Count(state.number + 1)


def few(state: Count) -> bool:
    return state.number <= 6


@always("C1", "no step begins beyond three", source="here", on=("up",))
def c1(state: Count) -> bool:
    return state.number < 4


@always("C2", "no state is beyond three", source="here")
def c2(state: Count) -> bool:
    return state.number < 4


@sometimes("CS", "it is three", source="here", beside=("C1", "C2"))
def cs(state: Count) -> bool:
    return state.number == 3


count = Machine(
    name="count",
    title="It counts.",
    state=Count,
    initial=(nought,),
    actions=(action(up),),
    rules=(c1, c2, cs),
    scopes=(scope("few", why="a few are enough", within=few, liveness=False),),
)


def test_machine_code_is_kept_apart_by_what_it_judges() -> None:
    """A rule of steps and one of states with the same condition are not taken for each other."""
    for rule in ("C1", "C2", "C1"):
        found = [explore(count, only=rule, compare_every=0, engine=one) for one in ("plain", "numba")]
        assert told(found[1]) == told(found[0])
        assert len(found[0].violated[rule]) == (5 if rule == "C1" else 4)


# Machine code on disk.


def hits() -> list[int]:
    """Compile what a search of the counter runs: for each piece, whether it was there already."""
    traced = relation(count)
    subject, expected = Subject(traced, count.scopes[0]), ranges(traced.layout.fields, [(0,), (7,)])
    search = CompiledSearch(subject, Bounds(), 0, "numba", expected)
    assert isinstance(search.machinery, NativeEngine)
    search.run()
    search.machinery.close()
    assert search.result.states == 7
    return [callback.cache_hits for callback in search.machinery.callbacks.kept]


def test_machine_code_that_is_not_whole_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are empty, cut off, changed or another's are no error, and are not run."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert hits() == [0, 0]
    assert hits() == [1, 1]
    files = sorted(tmp_path.rglob(f"*{SUFFIX}"))
    assert len(files) == 2
    whole = [file.read_bytes() for file in files]
    changed = [data[:-100] + bytes(100) for data in whole]
    for wrong in ([b"", b""], [data[:2000] for data in whole], changed, whole[::-1]):
        for file, data in zip(files, wrong, strict=True):
            file.write_bytes(data)
        assert hits() == [0, 0]
        assert hits() == [1, 1]


def test_machine_code_that_can_not_be_kept_is_run_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No directory at all, one that went away, a full disk."""
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "IPythonCacheLocator")
    assert [hits(), hits()] == [[0, 0], [0, 0]]
    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Pieces, "save", full)
    assert [hits(), hits()] == [[0, 0], [0, 0]]


def test_machine_code_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many files, those go that were not used for longest."""
    monkeypatch.setattr(kept, "MOST", 3)
    pieces = Pieces(tmp_path, "run")
    for number in range(3):
        pieces.save(number, [number])
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1))
    pieces.save(3, [3])
    assert len(list(tmp_path.iterdir())) == 2
    assert pieces.load(3) == [3]
    pieces.flush()
    assert list(tmp_path.iterdir()) == []
    assert pieces.load(3) is None


@pytest.mark.parametrize("engine", ["plain", *ENGINES])
def test_an_interrupt_of_the_beginning_ends_the_search(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the states are looked at that tell what fields hold: no engine goes on after it."""
    monkeypatch.setattr("deadreckon.models.search.REPORT_SECONDS", 0.0)
    monkeypatch.setattr(explorer, "PROBED", 600)

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    found = explore(pair, bounds=Bounds(max_states=5_000), compare_every=0, engine=engine, on_progress=stop)
    assert found.stopped == "interrupted"
    assert found.states < 600


# What is not installed, and what does not fit.


@pytest.mark.parametrize("missing", ["deadreckon.models.fast.native_engine", "deadreckon.models.fast.search"])
def test_what_an_engine_needs_and_does_not_find_is_told(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was asked for names it; left to choose, the next one explores."""
    monkeypatch.setattr(explorer, "SMALL_COMPARED", 5)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(EnvironmentFault, match=r"numba needs .*pip install 'deadreckon\[fast\]'"):
        explore(ring, engine="numba")
    assert explore(ring).engine == ("numpy" if missing.endswith("native_engine") else "plain")


@pytest.mark.parametrize("engine", ENGINES)
def test_room_to_grow_does_not_make_a_number_too_large(engine: str) -> None:
    """Where four times of what was seen would leave 64 bits, less room is tried before the engine refuses."""
    found = [explore(leap, engine=one, compare_every=0, keep_graph=True) for one in ("plain", engine)]
    assert told(found[1]) == told(found[0])


FAR = 1 << 61


@attrs.frozen
class Leap:
    """A number that is far or not, and one that counts."""

    far: int
    steps: int


def here() -> Leap:
    return Leap(0, 0)


def jump(state: Leap) -> Leap:
    return Leap(FAR - state.far, state.steps + 1)


def near_the_end(state: Leap) -> bool:
    return state.steps <= 10_000


@always("LE", "it counts up", source="here")
def le(before: Leap, after: Leap) -> bool:
    return before.steps < after.steps


@sometimes("LS", "it is far", source="here", beside=("LE",))
def ls(state: Leap) -> bool:
    return state.far > 0


leap = Machine(
    name="leap",
    title="It leaps.",
    state=Leap,
    initial=(here,),
    actions=(action(jump),),
    rules=(le, ls),
    scopes=(scope("some", why="some are enough", within=near_the_end, liveness=False),),
)
