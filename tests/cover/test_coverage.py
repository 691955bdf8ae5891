"""Coverage is counted against the reachable graph, states up to permutation, and points to what is not covered yet."""

from __future__ import annotations

import attrs
import pytest

from deadreckon.models.coverage import Coverage, Reachable, Recorder
from deadreckon.models.driver import Ground, MachineDriver
from deadreckon.models.explorer import Bounds, explore
from deadreckon.models.walk import Walk
from deadreckon.spec import Among, Machine, SpecError, action, require, scope
from deadreckon.spec.machines import incident


@attrs.frozen
class Boxes:
    """Two boxes; what was put in last is not stored yet."""

    held: tuple[int, ...]
    stored: tuple[int, ...]


def empty() -> Boxes:
    """Nothing is held."""
    return Boxes((0, 0), (0, 0))


def put(state: Boxes, box: int) -> Boxes:
    """One more in *box*."""
    return attrs.evolve(state, held=(*state.held[:box], state.held[box] + 1, *state.held[box + 1 :]))


def store(state: Boxes) -> Boxes:
    """What is held is stored."""
    require(state.held != state.stored, "B1", "nothing is new")
    return attrs.evolve(state, stored=state.held)


def small(state: Boxes) -> bool:
    """At most two in each box."""
    return state.held[0] <= 2 and state.held[1] <= 2


boxes = Machine(
    name="boxes",
    title="Two boxes.",
    state=Boxes,
    initial=(empty,),
    actions=(action(put, box=Among((0, 1))), action(store)),
    rules=(),
    scopes=(scope("small", why="two are enough", within=small),),
    interchangeable=(("held", "stored"),),
)


def taken(walk: Walk, name: str) -> None:
    """Take the instance of this name."""
    walk.take(next(one.index for one in walk.ground.instances if one.name == name))


def test_totals_are_those_of_the_exploration() -> None:
    """The denominator is what the explorer finds within the scope; a step counts once for its action and ends."""
    found = explore(boxes, keep_graph=True)
    reachable = Reachable(boxes)
    assert found.graph is not None
    ends = [
        (source, found.graph.labels[at] == 2, found.graph.targets[at])
        for source in range(found.states)
        for at in range(found.graph.offsets[source], found.graph.offsets[source + 1])
    ]
    assert (len(reachable.states), reachable.edges) == (found.states, len(set(ends))) == (21, 33)


def test_the_graph_is_not_kept_unless_asked_for() -> None:
    """An exploration keeps states and steps only if it is told to."""
    assert explore(boxes).graph is None


def test_states_count_up_to_permutation() -> None:
    """Two walks that differ by a permutation of interchangeable elements cover the same."""
    reachable = Reachable(boxes)
    recorder = Recorder(reachable.ground, reachable)
    for box in (0, 1):
        taken(Walk(reachable.ground, MachineDriver(boxes), recorder=recorder), f"put(box={box})")
    assert recorder.coverage == Coverage(states_seen=2, states=21, edges_seen=1, edges=33)
    assert str(recorder.coverage) == "2 of 21 (9.5%) states, 1 of 33 (3.0%) steps"


def test_no_step_leaves_the_scope() -> None:
    """A step that would leave the scope is not offered, so that every walk stays in the denominator."""
    walk = Walk(Ground(boxes), MachineDriver(boxes))
    for _ in range(2):
        taken(walk, "put(box=0)")
    assert {walk.ground.instances[label].name for label in walk.open()} == {"put(box=1)", "store()"}


def test_what_is_done_at_once_leaves_its_states_out() -> None:
    """States that an implementation leaves by itself are passed through, not walked from."""
    reachable = Reachable(boxes, at_once=("store",))
    assert (len(reachable.states), reachable.edges) == (12, 12)


def test_distance_leads_to_what_is_new() -> None:
    """The distance to the nearest uncovered step is 0 where one leaves, and absent once all are covered."""
    reachable = Reachable(boxes)
    recorder = Recorder(reachable.ground, reachable)
    assert recorder.ahead is not None
    start = reachable.ground.code.initial[0]
    assert recorder.ahead(start) == 0
    recorder.visit(start)
    for state in reachable.states:
        for label, after in reachable.ground.open(state):
            recorder.step(state, reachable.ground.instances[label].action, after)
    for state in reversed(reachable.states * 30):
        recorder.ahead.passing(state)
    assert recorder.ahead(start) is None
    assert recorder.coverage.of_edges == recorder.coverage.of_states == 1.0


def test_ways_are_shortest() -> None:
    """The way to a state has as many steps as the exploration needs levels."""
    reachable = Reachable(incident, incident.scopes[2])
    depth = explore(incident, incident.scopes[2], compare_every=0).depth
    assert max(len(reachable.way(goal)) for goal in range(0, len(reachable.states), 7)) <= depth + 1
    assert reachable.way(0) == [0]


def test_without_a_graph_there_is_no_fraction() -> None:
    """A recorder that knows no graph counts, and names no fraction."""
    recorder = Recorder(Ground(boxes))
    Walk(recorder.ground, MachineDriver(boxes), recorder=recorder)
    assert recorder.coverage == Coverage(1, None, 0, None)
    assert recorder.coverage.of_states is None


def test_a_graph_that_is_not_whole_is_refused() -> None:
    """A fraction of a graph that was not explored to its end is not given."""
    with pytest.raises(SpecError, match="larger bounds"):
        Reachable(incident, bounds=Bounds(max_states=10))


def test_a_graph_of_another_ground_is_refused() -> None:
    """A recorder counts against the graph of its own machine and scope only."""
    with pytest.raises(SpecError, match="another ground"):
        Recorder(Ground(boxes), Reachable(boxes))
