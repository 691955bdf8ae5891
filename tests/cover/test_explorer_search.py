"""The explorer finds what a plain search finds: the same states and steps, and no shorter counterexample."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import cast

import attrs
import pytest

from deadreckon.models import expr as ir
from deadreckon.models.compiled import straight_line
from deadreckon.models.explorer import explore
from deadreckon.models.layout import Layout
from deadreckon.models.symmetry import Symmetry
from deadreckon.spec import (
    Among,
    Machine,
    Refused,
    SpecError,
    action,
    always,
    require,
    scope,
    sometimes,
)
from tests.cover.replay import replayed

# A token ring of three: who holds the token may work, whoever wants.


class Node(Enum):
    IDLE = "idle"
    WANTS = "wants"
    WORKS = "works"


@attrs.frozen
class Ring:
    token: int
    nodes: tuple[Node, ...]


def quiet() -> Ring:
    return Ring(0, (Node.IDLE, Node.IDLE, Node.IDLE))


def at(state: Ring, node: int, phase: Node) -> Ring:
    return attrs.evolve(state, nodes=(*state.nodes[:node], phase, *state.nodes[node + 1 :]))


def want(state: Ring, node: int) -> Ring:
    require(state.nodes[node] == Node.IDLE, "T1", "it wants already")
    return at(state, node, Node.WANTS)


def work(state: Ring, node: int) -> Ring:
    require(state.nodes[node] == Node.WANTS and state.token == node, "T1", "it has no token")
    return at(state, node, Node.WORKS)


def stop(state: Ring, node: int) -> Ring:
    require(state.nodes[node] == Node.WORKS, "T1", "it does not work")
    return at(state, node, Node.IDLE)


def hand_on(state: Ring) -> Ring:
    require(all(node != Node.WORKS for node in state.nodes), "T1", "the token is in use")
    return attrs.evolve(state, token=0 if state.token == 2 else state.token + 1)


def whole_ring(state: Ring) -> bool:
    return True


@always("T1", "at most one works", source="here")
def one_works(state: Ring) -> bool:
    return sum(1 for node in state.nodes if node == Node.WORKS) <= 1


@always("T2", "the last never works while the others want", source="here")
def last_waits(state: Ring) -> bool:
    return state.nodes != (Node.WANTS, Node.WANTS, Node.WORKS)


@sometimes("TS", "the second works", source="here", beside=("T1", "T2"))
def second_works(state: Ring) -> bool:
    return state.nodes[1] == Node.WORKS


NODE = Among((0, 1, 2))
ring = Machine(
    name="ring",
    title="A token ring.",
    state=Ring,
    initial=(quiet,),
    actions=(action(want, node=NODE), action(work, node=NODE), action(stop, node=NODE), action(hand_on)),
    rules=(one_works, last_waits, second_works),
    scopes=(scope("all", why="it is small", within=whole_ring),),
)


# Three philosophers, who take the fork on their left first.


class Meal(Enum):
    THINKS = "thinks"
    HAS_LEFT = "has left"
    EATS = "eats"


@attrs.frozen
class Table:
    meals: tuple[Meal, ...]


def laid() -> Table:
    return Table((Meal.THINKS, Meal.THINKS, Meal.THINKS))


def now(state: Table, seat: int, meal: Meal) -> Table:
    return Table((*state.meals[:seat], meal, *state.meals[seat + 1 :]))


def take_left(state: Table, seat: int) -> Table:
    before = state.meals[seat - 1] if seat > 0 else state.meals[2]
    require(state.meals[seat] == Meal.THINKS and before != Meal.EATS, "P1", "the fork is taken")
    return now(state, seat, Meal.HAS_LEFT)


def take_right(state: Table, seat: int) -> Table:
    after = state.meals[seat + 1] if seat < 2 else state.meals[0]
    require(state.meals[seat] == Meal.HAS_LEFT and after == Meal.THINKS, "P1", "the fork is taken")
    return now(state, seat, Meal.EATS)


def put_down(state: Table, seat: int) -> Table:
    require(state.meals[seat] == Meal.EATS, "P1", "nothing to put down")
    return now(state, seat, Meal.THINKS)


def whole_table(state: Table) -> bool:
    return True


def starved(state: Table) -> bool:
    return all(meal == Meal.HAS_LEFT for meal in state.meals)


table = Machine(
    name="table",
    title="Philosophers.",
    state=Table,
    initial=(laid,),
    actions=(action(take_left, seat=NODE), action(take_right, seat=NODE), action(put_down, seat=NODE)),
    rules=(),
    scopes=(scope("all", why="it is small", within=whole_table),),
)


# Three slots that are alike, each with an owner and a number of tries; a door that is not theirs.


@attrs.frozen
class Slots:
    door: bool
    owned: tuple[bool, ...]
    tries: tuple[int, ...]


@attrs.frozen
class Tries:
    most: int = 0


def empty() -> Slots:
    return Slots(False, (False, False, False), (0, 0, 0))


def counted(before: Slots, after: Slots, ghost: Tries) -> Tries:
    return Tries(max(ghost.most, max(after.tries)))


def swing(state: Slots, door: bool) -> Slots:
    require(state.door != door, "D1", "it is so already")
    return attrs.evolve(state, door=door)


def take(state: Slots, slot: int) -> Slots:
    require(not state.owned[slot], "D1", "it is taken")
    return attrs.evolve(state, owned=(*state.owned[:slot], True, *state.owned[slot + 1 :]))


def attempt(state: Slots, slot: int) -> Slots:
    require(state.owned[slot] and state.tries[slot] < 2, "D1", "it is not taken, or worn out")
    return attrs.evolve(state, tries=(*state.tries[:slot], state.tries[slot] + 1, *state.tries[slot + 1 :]))


def attempt_twice(state: Slots, slot: int) -> Slots:
    require(state.owned[slot] and state.tries[slot] < 2, "D1", "it is not taken, or worn out")
    more = 2 if slot == 1 else 1
    return attrs.evolve(state, tries=(*state.tries[:slot], state.tries[slot] + more, *state.tries[slot + 1 :]))


def all_slots(state: Slots) -> bool:
    return True


def first_is_first(state: Slots) -> bool:
    return state.owned[0] or not state.owned[1]


def worn_out(state: Slots) -> bool:
    return all(tries >= 2 for tries in state.tries)


@always("D1", "only what is taken is tried", source="here")
def taken_first(state: Slots) -> bool:
    return all(owned or tries == 0 for owned, tries in zip(state.owned, state.tries, strict=True))


@always("D2", "the door is shut when there were five tries", source="here")
def never_all(state: Slots) -> bool:
    return not state.door or sum(state.tries) < 5


@always("D3", "the door is never shut on a slot that is worn out", source="here")
def never_shut(before: Slots, after: Slots) -> bool:
    return not before.door or after.door or all(tries < 2 for tries in before.tries)


@sometimes("DS", "a free slot stands beside two worn out", source="here", beside=("D1", "D2", "D3"))
def beside_two(state: Slots, ghost: Tries) -> bool:
    return ghost.most == 2 and sum(state.tries) == 4 and sum(state.owned) == 2


@always("D4", "the first is not tried before the last", source="here")
def in_order(state: Slots) -> bool:
    return state.tries[0] <= state.tries[2]


@always("D5", "the first is never tried", source="here")
def not_the_first(before: Slots, after: Slots) -> bool:
    return before.tries[0] == after.tries[0]


@sometimes("DT", "nothing is worn out", source="here", beside=("D4", "D5"))
def fresh(state: Slots) -> bool:
    return not worn_out(state)


ALIKE = (("owned", "tries"),)
slots = Machine(
    name="slots",
    title="Slots.",
    state=Slots,
    ghost=Tries,
    observe=counted,
    initial=(empty,),
    actions=(action(take, slot=NODE), action(swing), action(attempt, slot=NODE)),
    rules=(taken_first, never_all, never_shut, beside_two),
    scopes=(scope("all", why="it is small", within=all_slots),),
    terminal=worn_out,
)
alike = attrs.evolve(slots, interchangeable=ALIKE)


def by_hand(machine: Machine, bad: Callable[[object, object], bool]) -> tuple[int, int, int, int | None]:
    """States, steps, depth and the least number of steps to a bad state, by the machine's plain functions alone."""
    policy, within = machine.scopes[0].policy, machine.scopes[0].within
    assert within is not None
    starts = [(start(), machine.ghost() if machine.ghost else None) for start in machine.initial]
    depth: dict[tuple[object, object], int] = dict.fromkeys(starts, 0)
    order, edges = list(depth), 0
    for state, ghost in order:
        for act in machine.actions:
            for inputs in act.instances():
                try:
                    after = machine.step(policy, state, act.name, inputs)
                except Refused:
                    continue
                if not within(after):
                    continue
                seen = counted(cast("Slots", state), cast("Slots", after), cast("Tries", ghost)) if ghost else None
                edges += 1
                if (after, seen) not in depth:
                    depth[after, seen] = depth[state, ghost] + 1
                    order.append((after, seen))
    worst = [depth[pair] for pair in order if bad(*pair)]
    return len(order), edges, max(depth.values()), min(worst, default=None)


KNOWN: dict[str, tuple[Machine, int, int, int]] = {
    "ring": (ring, 36, 96, 6),
    "table": (table, 14, 27, 3),
    "slots": (slots, 128, 416, 10),
}


@pytest.mark.parametrize("case", KNOWN)
def test_explorer_counts_are_those_of_a_plain_search(case: str) -> None:
    """States, steps and depth are pinned, and equal those of a search over the machine's plain functions."""
    machine, states, edges, depth = KNOWN[case]
    found = explore(machine)
    assert found.complete
    assert (found.states, found.edges, found.depth) == (states, edges, depth)
    assert by_hand(machine, lambda state, ghost: False)[:3] == (states, edges, depth)
    assert found.compared >= edges
    assert found.ran == {act.name for act in machine.actions}


BAD: dict[str, tuple[Machine, str, Callable[[object, object], bool], int]] = {
    "ring": (ring, "T2", lambda state, ghost: not last_waits.holds(state), 6),
    "slots": (slots, "D2", lambda state, ghost: not never_all.holds(state), 9),
}


@pytest.mark.parametrize("case", BAD)
def test_explorer_counterexample_is_shortest_and_real(case: str) -> None:
    """A violated rule comes with a shortest trace, which the machine's own functions can walk."""
    machine, rule, bad, steps = BAD[case]
    found = explore(machine)
    trace = found.violated[rule]
    assert len(trace) == steps == by_hand(machine, bad)[3]
    assert bad(replayed(found, trace)[-1], None)
    assert found.verdict(machine.rule(rule)) == "violated"


def test_explorer_reports_a_deadlock_unless_terminal() -> None:
    """A state without a step is a deadlock, with the shortest trace to it, unless the machine may rest there."""
    found = explore(table)
    assert found.deadlock is not None
    assert len(found.deadlock) == 3
    assert starved(cast("Table", replayed(found, found.deadlock)[-1]))
    assert explore(attrs.evolve(table, terminal=starved)).deadlock is None


def test_explorer_reduced_by_symmetry_covers_the_same_states() -> None:
    """Of three alike slots in four conditions each, one state stands for all that differ by a permutation."""
    whole, reduced = explore(slots, keep_graph=True), explore(alike, keep_graph=True)
    assert whole.graph is not None
    assert reduced.graph is not None
    symmetry = Symmetry(alike, reduced.relation.layout)
    assert {symmetry.canonical(state) for state in whole.graph.index} == set(reduced.graph.index)
    assert (whole.states, reduced.states) == (2 * 4**3, 2 * 20)
    assert whole.depth == reduced.depth
    assert whole.deadlock is reduced.deadlock is None


def test_explorer_sorts_expressions_as_it_sorts_states() -> None:
    """The representative as an expression is the representative as a state, for every order of the slots."""
    found = explore(slots, keep_graph=True)
    assert found.graph is not None
    symmetry = Symmetry(alike, found.relation.layout)
    state = found.relation.state
    sort = straight_line(state, (), ir.TRUE, symmetry.sorted_leaves(state))
    assert {one: sort(one) for one in found.graph.index} == {one: symmetry.canonical(one) for one in found.graph.index}


@pytest.mark.parametrize("rule", ["D2", "D3"])
def test_explorer_counterexample_under_symmetry_is_shortest_and_real(rule: str) -> None:
    """A trace found on representatives is given with the slots in their real places, and is no longer than another."""
    whole, reduced = explore(slots), explore(alike)
    assert len(reduced.violated[rule]) == len(whole.violated[rule])
    states = replayed(reduced, reduced.violated[rule])
    holds = slots.rule(rule).holds
    assert not (holds(*states[-2:]) if rule == "D3" else holds(states[-1]))
    assert len(reduced.reached["DS"]) == len(whole.reached["DS"]) == 6
    replayed(reduced, reduced.reached["DS"])


FALSE: dict[str, Machine] = {
    "an action": attrs.evolve(alike, actions=(*alike.actions[:2], action(attempt_twice, slot=NODE))),
    "an input": attrs.evolve(alike, actions=(*alike.actions[:2], action(attempt, slot=Among((0, 2))))),
    "a rule": attrs.evolve(alike, rules=(in_order, not_the_first, fresh)),
    "a rule over steps": attrs.evolve(alike, rules=(not_the_first, attrs.evolve(fresh, beside=("D5",)))),
    "the scope": attrs.evolve(alike, scopes=(scope("some", why="one only", within=first_is_first),)),
    "half of a slot": attrs.evolve(alike, interchangeable=(("owned",),)),
}


@pytest.mark.parametrize("case", FALSE)
def test_explorer_refuses_a_symmetry_that_does_not_hold(case: str) -> None:
    """Elements that an action, a rule or the scope tells apart are not interchangeable, and nothing is concluded."""
    with pytest.raises(SpecError, match=r"not interchangeable: elements . and . of .* are told apart") as refusal:
        explore(FALSE[case])
    assert "leave the group out" in refusal.value.instead


def test_explorer_refuses_groups_that_are_none() -> None:
    """A group names tuples of the state, of one length."""
    with pytest.raises(SpecError, match="door is no tuple of the state"):
        explore(attrs.evolve(slots, interchangeable=(("owned", "door"),)))
    uneven = attrs.evolve(slots, interchangeable=(("owned", "tries"),))
    with pytest.raises(SpecError, match="tuples owned, tries differ in length"):
        Symmetry(uneven, Layout(Slots(False, (False, False), (0, 0, 0))))
