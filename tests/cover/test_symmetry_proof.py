"""Declared symmetries are proved for every state and policy, not only where exploration looks."""

from __future__ import annotations

import attrs
import pytest
import z3

from deadreckon.models.relation import relation
from deadreckon.proofs.symmetry import check_symmetries
from deadreckon.spec import Among, Machine, SpecError, action, always, require, scope, sometimes
from deadreckon.spec.machines import incident

SEAT = Among((0, 1))


@attrs.frozen
class Table:
    """Two seats."""

    cups: tuple[int, int]
    poured: int


def laid() -> Table:
    return Table((0, 0), 0)


def laid_unequally() -> Table:
    return Table((0, 1), 0)


def pour(state: Table, seat: int) -> Table:
    cups = tuple(cup + 1 if at == seat else cup for at, cup in enumerate(state.cups))
    return Table((cups[0], cups[1]), state.poured + 1)


def pour_first(state: Table, seat: int) -> Table:
    require(seat == 0 or state.poured < 1_000_000, "R1", "late in the evening only the first seat is served")
    cups = tuple(cup + 1 if at == seat else cup for at, cup in enumerate(state.cups))
    return Table((cups[0], cups[1]), state.poured + 1)


def pour_unequally(state: Table, seat: int) -> Table:
    cups = tuple(cup + 1 + at if at == seat else cup for at, cup in enumerate(state.cups))
    return Table((cups[0], cups[1]), state.poured + 1)


@always("R1", "no cup is negative", source="here")
def r1(state: Table) -> bool:
    return state.cups[0] >= 0 and state.cups[1] >= 0


@always("R1", "the first cup is not negative", source="here")
def r1_of_one(state: Table) -> bool:
    return state.cups[0] >= 0


@always("R1", "no step fills the first cup twice", source="here")
def r1_of_one_over_steps(before: Table, after: Table) -> bool:
    return after.cups[0] <= 1


@sometimes("S1", "a cup is poured", source="here", beside=("R1",))
def s1(state: Table) -> bool:
    return state.poured > 0


def early(state: Table) -> bool:
    return state.poured <= 3


def first_is_fuller(state: Table) -> bool:
    return state.poured <= 3 and state.cups[0] >= state.cups[1]


table = Machine(
    name="table",
    title="Two seats are served alike.",
    state=Table,
    initial=(laid,),
    actions=(action(pour, seat=SEAT),),
    rules=(r1, s1),
    scopes=(scope("early", why="three cups", within=early),),
    interchangeable=(("cups",),),
)


def test_the_slots_of_the_incident_are_interchangeable() -> None:
    """Exchanging two slots turns each action into one of the same name, and leaves every rule and bound as it is."""
    check_symmetries(relation(incident))


def test_seats_that_are_served_alike_are_interchangeable() -> None:
    """A true symmetry is accepted in silence."""
    check_symmetries(relation(table))


@pytest.mark.parametrize(
    ("machine", "culprit"),
    [
        (attrs.evolve(table, actions=(action(pour_first, seat=SEAT),)), "pour_first"),
        (attrs.evolve(table, actions=(action(pour_unequally, seat=SEAT),)), "pour_unequally"),
        (attrs.evolve(table, actions=(action(pour, seat=Among((0,))),)), "pour"),
        (attrs.evolve(table, rules=(r1_of_one, s1)), "R1"),
        (attrs.evolve(table, rules=(r1_of_one_over_steps, s1)), "pour"),
        (attrs.evolve(table, scopes=(scope("fuller", why="no", within=first_is_fuller),)), "within:fuller"),
        (attrs.evolve(table, initial=(laid_unequally,)), "an initial state"),
    ],
    ids=["guard", "update", "missing input", "rule", "rule over steps", "bound", "start"],
)
def test_a_false_symmetry_is_refused(machine: Machine, culprit: str) -> None:
    """Whatever tells two elements apart is named: a guard that differs only after a million cups too."""
    with pytest.raises(SpecError, match=rf"elements 0 and 1 of cups are not interchangeable: {culprit}"):
        check_symmetries(relation(machine))


def test_a_solver_that_gives_up_does_not_prove_a_symmetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A symmetry that was not shown is refused."""
    monkeypatch.setattr(z3.Solver, "check", lambda self, *assumptions: z3.unknown)
    with pytest.raises(SpecError, match="not interchangeable"):
        check_symmetries(relation(table))
