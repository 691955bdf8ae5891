"""What a machine may return: states of one shape, and no refusal where none is heard."""

from __future__ import annotations

from enum import Enum

import attrs
import pytest

from deadreckon.models.relation import relation
from deadreckon.spec import Machine, SpecError, action, require, scope


@attrs.frozen
class Couple:
    """Two tuples whose lengths add up to three."""

    left: tuple[int, ...]
    right: tuple[int, ...]


def pair() -> Couple:
    return Couple((0, 0), (0,))


def crossed(state: Couple) -> Couple:
    return Couple((0,), (0, 0))


def forbidden_start() -> Couple:
    require(False, "P1", "never")
    return Couple((0, 0), (0,))


def any_pair(state: Couple) -> bool:
    return True


def test_a_state_of_another_shape_is_refused() -> None:
    """A state keeps its shape: tuples that exchange their lengths are refused, though as many numbers come back."""
    with pytest.raises(SpecError, match="another shape"):
        relation(Machine("pair", "x", Couple, (pair,), (action(crossed),), (), (scope("s", why="w", within=any_pair),)))


def test_an_initial_state_that_refuses_is_refused() -> None:
    """Only actions may refuse; a start or an observer that does would be left out of the formula."""
    with pytest.raises(SpecError, match="forbidden_start refuses"):
        _ = relation_of_start()


def relation_of_start() -> object:
    """The relation of a machine that has a proper start, and one that refuses."""
    starts = (pair, forbidden_start)
    return relation(Machine("pair", "x", Couple, starts, (action(kept),), (), (scope("s", why="w", within=any_pair),)))


def kept(state: Couple) -> Couple:
    return attrs.evolve(state, left=state.left)


class Door(Enum):
    """Two positions."""

    SHUT = "shut"
    OPEN = "open"


class Lamp(Enum):
    """Not positions of a door."""

    OFF = "off"
    ON = "on"


@attrs.frozen
class Hall:
    """A door."""

    door: Door


def shut() -> Hall:
    return Hall(Door.SHUT)


def lit(state: Hall) -> Hall:
    return attrs.evolve(state, door=Lamp.ON)  # type: ignore[arg-type]  # the point of this test


def any_hall(state: Hall) -> bool:
    return True


def test_a_member_of_another_enum_is_refused() -> None:
    """A field keeps its type: a member of another enum would be taken for the one at the same position."""
    with pytest.raises(SpecError, match="door, a field of type Door"):
        relation(Machine("hall", "x", Hall, (shut,), (action(lit),), (), (scope("s", why="w", within=any_hall),)))


@attrs.frozen
class Left:
    """A part."""

    count: int


@attrs.frozen
class Right:
    """Another part, with the same field."""

    count: int


@attrs.frozen
class Whole:
    """A state with a part."""

    part: Left


def whole() -> Whole:
    return Whole(Left(0))


def exchanged(state: Whole) -> Whole:
    return attrs.evolve(state, part=Right(0))  # type: ignore[arg-type]  # the point of this test


def any_whole(state: Whole) -> bool:
    return True


def test_a_part_of_another_class_is_refused() -> None:
    """Two classes with the same fields are never equal, so one is not taken for the other."""
    with pytest.raises(SpecError, match="another class"):
        relation(
            Machine("whole", "x", Whole, (whole,), (action(exchanged),), (), (scope("s", why="w", within=any_whole),))
        )


def nothing_at_all() -> Couple:
    return Couple((), ())


def test_a_state_without_a_field_is_refused() -> None:
    """There would be one state, and nothing to say of it."""
    scopes = (scope("s", why="w", within=any_pair),)
    with pytest.raises(SpecError, match="the state of machine nothing has no field"):
        relation(Machine("nothing", "x", Couple, (nothing_at_all,), (action(kept),), (), scopes))
