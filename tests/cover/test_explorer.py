"""Exploration is exhaustive, breadth first and exact, and says so when it is not."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from deadreckon.models import expr as ir
from deadreckon.models.explorer import Bounds, Progress, explore
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import (
    Among,
    InternalError,
    Machine,
    action,
    always,
    eventually,
    require,
    scope,
    sometimes,
)
from tests.cover.replay import replayed

# A counter that is cut at the bounds of its scope, with a ghost.


@attrs.frozen
class Counter:
    count: int


@attrs.frozen
class Highest:
    count: int = 0


def zero() -> Counter:
    return Counter(0)


def increase(state: Counter, by: int) -> Counter:
    return Counter(state.count + by)


def reset(state: Counter) -> Counter:
    require(state.count > 0, "N1", "it is reset already")
    return Counter(0)


def highest(before: Counter, after: Counter, ghost: Highest) -> Highest:
    return Highest(max(after.count, ghost.count))


def up_to_three(state: Counter) -> bool:
    return state.count <= 3


def up_to_a_thousand(state: Counter) -> bool:
    return state.count <= 1_000


@always("N1", "it stays below two", source="here")
def below_two(state: Counter) -> bool:
    return state.count < 2


@always("N2", "it never falls by three", source="here")
def falls_little(before: Counter, after: Counter) -> bool:
    return after.count > before.count - 3


@always("N3", "it is never negative", source="here")
def not_negative(state: Counter) -> bool:
    return state.count >= 0


@always("N4", "it rises by one at a time", source="here")
def rises_little(before: Counter, after: Counter) -> bool:
    return after.count <= before.count + 1


@sometimes("S4", "it rises", source="here", beside=("N4",))
def rises_at_all(before: Counter, after: Counter) -> bool:
    return after.count > before.count


@sometimes("S1", "it is reset after it was three", source="here", beside=("N1", "N2", "N3"))
def reset_from_three(state: Counter, ghost: Highest) -> bool:
    return state.count == 0 and ghost.count == 3


@sometimes("S2", "it falls by three", source="here", beside=("N3",), on=("reset",))
def falls_by_three(before: Counter, after: Counter) -> bool:
    return before.count == 3


@sometimes("S3", "it is four", source="here", beside=("N3",))
def is_four(state: Counter) -> bool:
    return state.count == 4


@eventually("E1", "it is reset", source="here", when=up_to_three, fair=("increase",))
def is_reset(state: Counter) -> bool:
    return state.count == 0


counter = Machine(
    name="counter",
    title="A counter.",
    state=Counter,
    ghost=Highest,
    observe=highest,
    initial=(zero,),
    actions=(action(increase, by=Among((1,))), action(reset)),
    rules=(below_two, falls_little, not_negative, reset_from_three, falls_by_three, is_four, is_reset),
    scopes=(
        scope("three", why="a few", within=up_to_three),
        scope("thousand", why="many", within=up_to_a_thousand, liveness=False),
    ),
)
plain_counter = attrs.evolve(counter, ghost=None, observe=None, rules=(not_negative, falls_by_three))


def test_explorer_step_counterexample_ends_with_the_step() -> None:
    """A rule over steps is refuted by a trace whose last step breaks it."""
    found = explore(counter)
    before, after = replayed(found, found.violated["N2"])[-2:]
    assert (before, after) == (Counter(3), Counter(0))
    assert len(found.violated["N2"]) == 4


def test_explorer_sometimes_is_reached_or_not() -> None:
    """A reached state or step comes with a shortest trace; what no state within the scope shows is violated."""
    found = explore(counter)
    assert {id: len(trace) for id, trace in found.reached.items()} == {"S1": 4, "S2": 4}
    verdicts = {rule.id: found.verdict(rule) for rule in counter.rules}
    assert verdicts == {
        "N1": "violated", "N2": "violated", "N3": "holds", "S1": "holds", "S2": "holds", "S3": "violated",
        "E1": "violated",
    }  # fmt: skip


def test_explorer_states_outside_of_the_scope_are_cut() -> None:
    """A step that leaves the scope is counted, judged and not taken, and a state that has only such is no deadlock."""
    found = explore(attrs.evolve(plain_counter, actions=(action(increase, by=Among((1,))),), rules=()), keep_graph=True)
    assert (found.states, found.edges, found.cut) == (4, 3, 1)
    assert found.graph is not None
    assert sorted(found.graph.index) == [(0,), (1,), (2,), (3,)]
    assert found.deadlock is None
    jumping = (action(increase, by=Among((1, 5))), action(reset))
    judged = explore(attrs.evolve(plain_counter, actions=jumping, rules=(rises_little, rises_at_all)))
    assert (judged.states, judged.cut, judged.verdict(rises_little)) == (4, 5, "violated")
    assert replayed(judged, judged.violated["N4"]) == [Counter(0), Counter(5)]


def test_explorer_keeps_the_graph_on_demand() -> None:
    """The graph holds every state in order of discovery, and for each the steps that lead on from it."""
    assert explore(plain_counter).graph is None
    found = explore(plain_counter, keep_graph=True)
    assert found.graph is not None
    assert list(found.graph.index.items()) == [((0,), 0), ((1,), 1), ((2,), 2), ((3,), 3)]
    assert list(found.graph.offsets) == [0, 1, 3, 5, 6]
    assert list(found.graph.targets) == [1, 2, 0, 3, 0, 0]


@pytest.mark.parametrize(
    ("bounds", "stopped", "states"),
    [
        (Bounds(max_states=5), "more than 5 states", 6),
        (Bounds(max_depth=2), "deeper than 2 steps", 4),
        (Bounds(max_megabytes=0), "more than 0 MB of memory", 257),
    ],
)
def test_explorer_that_gives_up_is_not_complete(bounds: Bounds, stopped: str, states: int) -> None:
    """An exploration that meets a bound stops there, says so, and holds nothing for shown that it did not see."""
    found = explore(plain_counter, plain_counter.scopes[1], bounds=bounds)
    assert not found.complete
    assert (found.stopped, found.states) == (stopped, states)
    assert found.verdict(not_negative) == "unknown"
    assert found.verdict(falls_by_three) == ("holds" if states > 5 else "unknown")


def test_explorer_within_its_bounds_is_complete() -> None:
    """Bounds that are just reached are not exceeded."""
    found = explore(plain_counter, bounds=Bounds(max_states=4, max_depth=3))
    assert found.complete
    assert found.states == 4


def test_explorer_reports_progress_and_can_be_interrupted() -> None:
    """Progress is reported now and then; an interrupt ends the exploration, which keeps what it has and says so."""
    seen: list[Progress] = []
    assert explore(plain_counter, plain_counter.scopes[1], on_progress=seen.append).states == 1_001
    assert seen[0].states == 257
    assert (seen[0].frontier, seen[0].edges) == (1, 511)
    assert seen[0].megabytes > 0

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    found = explore(plain_counter, plain_counter.scopes[1], on_progress=interrupt, keep_graph=True)
    assert (found.stopped, found.complete, found.states) == ("interrupted", False, 257)
    assert found.verdict(not_negative) == "unknown"


def test_explorer_of_one_rule_stops_early_and_judges_no_other() -> None:
    """With one rule alone the search ends at its first violation; the other rules stay unknown."""
    found = explore(counter, only="N1")
    assert found.states < 10
    assert not found.complete
    assert found.stopped == "N1 is decided"
    assert found.verdict(below_two) == "violated"
    assert found.verdict(not_negative) == "unknown"
    reached = explore(counter, only="S2")
    assert (reached.verdict(falls_by_three), reached.complete) == ("holds", False)
    whole = explore(counter, only="N3")
    assert whole.complete
    assert [whole.verdict(rule) for rule in (not_negative, below_two)] == ["holds", "unknown"]


def test_explorer_judges_liveness_only_where_the_scope_allows() -> None:
    """An eventually rule is unknown in a scope whose bounds themselves keep things from happening."""
    assert explore(counter, counter.scopes[0]).verdict(is_reset) == "violated"
    assert explore(plain_counter_live(), plain_counter.scopes[1]).verdict(is_reset) == "unknown"


def test_explorer_that_gives_up_judges_no_liveness() -> None:
    """An eventually rule is judged on a whole graph or not at all."""
    found = explore(counter, bounds=Bounds(max_states=2))
    assert not found.complete
    assert found.verdict(is_reset) == "unknown"


def plain_counter_live() -> Machine:
    return attrs.evolve(plain_counter, rules=(*plain_counter.rules, is_reset))


def falsified(change: Callable[[Relation], Relation]) -> None:
    explore(counter, traced=change(relation(counter)))


def other_update(traced: Relation) -> Relation:
    first, *rest = traced.commands
    count, ghost = first.updates
    return attrs.evolve(traced, commands=(attrs.evolve(first, updates=(ghost, count)), *rest))


def other_guard(traced: Relation) -> Relation:
    *rest, last = traced.commands
    return attrs.evolve(traced, commands=(*rest, attrs.evolve(last, guard=traced.commands[0].guard)))


def narrower_guard(traced: Relation) -> Relation:
    *rest, last = traced.commands
    return attrs.evolve(traced, commands=(*rest, attrs.evolve(last, guard=ir.FALSE)))


def other_claim(traced: Relation) -> Relation:
    return attrs.evolve(traced, claims={**traced.claims, "N1": traced.claims["N3"]})


def other_step(traced: Relation) -> Relation:
    return attrs.evolve(traced, steps={**traced.steps, "N2": traced.steps["N2"][::-1]})


@pytest.mark.parametrize("change", [other_update, other_guard, narrower_guard, other_claim, other_step])
def test_explorer_finds_a_relation_that_differs_from_the_functions(change: Callable[[Relation], Relation]) -> None:
    """Translation validation: a wrong update, guard or rule is found on the states that are visited."""
    with pytest.raises(InternalError, match=r"counter: the traced (relation|rule)"):
        falsified(change)
