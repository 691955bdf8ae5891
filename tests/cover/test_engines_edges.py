"""Edges of the compiled engines: what random machines, and hands that break things, have found."""

from __future__ import annotations

import attrs
import pytest

from deadreckon.models.explorer import Bounds, explore
from deadreckon.spec import Machine, action, always, scope, sometimes
from tests.cover.engines import told
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
