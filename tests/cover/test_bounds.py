"""Bounds of exploration: horizons hold in every engine, sizes change the machine, and both may be set from outside."""

from __future__ import annotations

import attrs
import pytest

from deadreckon.models.explorer import explore
from deadreckon.models.relation import relation
from deadreckon.spec import Between, Machine, Scope, action, scope
from deadreckon.spec.bounds import Horizons
from deadreckon.spec.machines import MACHINES, incident, keepalive


@attrs.frozen
class State:
    """A number, and another that follows it."""

    first: int
    second: int


@attrs.frozen
class Ghost:
    """How often the second caught up."""

    caught: int = 0


def initial() -> State:
    return State(0, 0)


def lead(state: State, by: int) -> State:
    return attrs.evolve(state, first=state.first + by)


def follow(state: State) -> State:
    return attrs.evolve(state, second=state.first)


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    return Ghost(ghost.caught + (1 if before.second < after.second else 0))


def even(state: State) -> bool:
    return state.first != 3


def distance(state: State, ghost: Ghost) -> int:
    return state.first - state.second + ghost.caught


def pair(*scopes: Scope) -> Machine:
    """Two numbers within *scopes*."""
    return Machine(
        name="pair",
        title="Two numbers.",
        state=State,
        initial=(initial,),
        actions=(action(lead, by=Between(1, None, (1, 2))), action(follow)),
        rules=(),
        scopes=scopes,
        ghost=Ghost,
        observe=observe,
    )


def seen(bounds: Scope) -> set[tuple[int, ...]]:
    """The states within *bounds*."""
    found = explore(pair(bounds), keep_graph=True)
    assert found.graph is not None
    assert found.complete
    return set(found.graph.index)


def test_horizon_is_the_greatest_value() -> None:
    """A step that would pass a horizon of a field, of the ghost or of a function is not taken; those up to it are."""
    found = seen(scope("s", why="w", at_most={"first": 4, "ghost.caught": 1, distance: 3}))
    assert {first for first, _, _ in found} == {0, 1, 2, 3, 4}
    assert max(caught for _, _, caught in found) == 1
    assert max(first - second + caught for first, second, caught in found) == 3


def test_horizons_and_within_hold_together() -> None:
    """What is within a scope keeps all of its horizons and its function too."""
    wide = seen(scope("s", why="w", at_most={"first": 4, "ghost.caught": 2}))
    assert seen(scope("s", why="w", at_most={"first": 4, "ghost.caught": 2}, within=even)) < wide
    assert any(first == 3 for first, _, _ in wide)


def test_no_horizon_is_part_of_what_is_proved() -> None:
    """Proofs know no horizon: the fingerprint of a relation, by which invariants are stored, is without them."""
    near, far = (relation(pair(scope("s", why="w", at_most={"first": most}))) for most in (1, 9))
    assert near.fingerprint() == far.fingerprint()
    assert near.triggers != far.triggers


@pytest.mark.parametrize(("machine", "slots"), [(incident, 2), (incident, 4), (keepalive, 1), (keepalive, 3)])
def test_machine_of_another_size_is_explored(machine: Machine, slots: int) -> None:
    """The incident and the keepalive have as many slots as they are sized to; exploration compares every edge there."""
    sized = machine.sized(slots=slots)
    few = scope("few", why="one life", at_most=FEW[machine.name], policy=machine.scopes[0].policy, liveness=False)
    found = explore(attrs.evolve(sized, scopes=(few,)))
    assert found.complete
    assert not found.violated
    assert any(field.path.endswith(f"[{slots - 1}]") for field in found.relation.layout.fields)
    assert relation(sized).fingerprint() != relation(machine).fingerprint()


FEW: dict[str, Horizons] = {
    "incident": {"incarnation": 1, "produced": 0, "now_ms": 0, "buffered.transient_retries": 0},
    "keepalive": {"record.epoch": 0, "record.revivals": 1, "now_ms": 1, "version": 1, "lifetime": 1, "ghost.losses": 0},
}


@pytest.mark.parametrize("name", MACHINES)
def test_every_upper_bound_of_a_built_in_scope_is_a_horizon(name: str) -> None:
    """Each scope of a built-in machine may be widened, since what ends it is data."""
    assert all(one.at_most for one in MACHINES[name].scopes)
