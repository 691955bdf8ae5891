"""A state is a flat tuple of integers and back, whatever its shape."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.models.expr import Sort
from deadreckon.models.layout import Field, Layout, member, position
from deadreckon.spec import SpecError


class Phase(Enum):
    """An enum whose values say nothing about the order of its members."""

    IDLE = "idle"
    AT_WORK = 0
    DONE = (1, 2)


class Slow(IntEnum):
    """Equal, as integers, to members of :class:`Fast` in other positions."""

    WALK = 1
    STAND = 0


class Fast(IntEnum):
    """The other order."""

    STAND = 0
    WALK = 1


@attrs.frozen
class Pair:
    """Two parts of any shape."""

    left: Any
    right: Any


@attrs.frozen
class Policy:
    """A class that checks itself when it is made."""

    limit: int

    def __attrs_post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError("too low")


SCALARS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.sampled_from(Phase),
    st.sampled_from(Slow),
    st.sampled_from(Fast),
)
VALUES = st.recursive(
    st.one_of(SCALARS, st.none()),
    lambda below: st.one_of(st.lists(below, max_size=4).map(tuple), st.builds(Pair, below, below)),
    max_leaves=12,
)


def reshaped(value: object, draw: st.DataObject) -> object:
    """Another value of the same shape."""
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(reshaped(one, draw) for one in value)
    if isinstance(value, Pair):
        return Pair(reshaped(value.left, draw), reshaped(value.right, draw))
    if isinstance(value, Enum):
        return draw.draw(st.sampled_from(type(value)))
    return draw.draw(st.booleans() if isinstance(value, bool) else st.integers())


@given(VALUES, st.data())
def test_layout_rebuilds_what_it_flattened(example: object, data: st.DataObject) -> None:
    """Flat and back is the same value, types included, for every value of the shape of the example."""
    layout = Layout(example)
    value = reshaped(example, data)
    for one in (example, value):
        flat = layout.flatten(one)
        assert len(flat) == len(layout) == len(layout.fields)
        assert repr(layout.rebuild(flat)) == repr(one)
        assert all(type(leaf) is int for leaf in flat)


@given(VALUES, st.data())
def test_layout_tells_values_apart(example: object, data: st.DataObject) -> None:
    """Different values of one shape have different flat tuples, so a search never confuses two states."""
    layout = Layout(example)
    one, other = reshaped(example, data), reshaped(example, data)
    assert (layout.flatten(one) == layout.flatten(other)) == (one == other)


def test_layout_names_every_leaf() -> None:
    """Paths are dotted, with the index of an element in brackets, in the order of the flat tuple."""
    layout = Layout(Pair((True, Pair(1, Phase.DONE)), None), "root")
    assert [(field.path, field.type) for field in layout.fields] == [
        ("root.left[0]", bool),
        ("root.left[1].left", int),
        ("root.left[1].right", Phase),
    ]
    assert [field.sort for field in layout.fields] == [Sort.BOOL, Sort.INT, Sort.INT]
    assert layout.flatten(Pair((False, Pair(7, Phase.AT_WORK)), None)) == (0, 7, 1)
    assert [layout.index(field.path) for field in layout.fields] == [0, 1, 2]


def test_layout_unknown_path_is_refused() -> None:
    """A path that names no leaf is refused with those that do."""
    with pytest.raises(SpecError, match="no field right") as refusal:
        Layout(Pair(1, ())).index("right")
    assert refusal.value.instead == "one of left"


@pytest.mark.parametrize("value", ["text", 0.5, [1], {1: 2}, {1}, object(), b"", int])
def test_layout_refuses_what_is_no_state(value: object) -> None:
    """A leaf that is no integer, bool or enum member is refused, and named by its path."""
    with pytest.raises(SpecError, match=r"field left\[1\] holds") as refusal:
        Layout(Pair((1, value), 2))
    assert "frozen attrs class" in refusal.value.instead
    with pytest.raises(SpecError, match="field state holds"):
        Layout(value)


def test_layout_does_not_run_the_constructor() -> None:
    """A value is put together past ``__init__``, since a policy is not validated while it is symbolic."""
    layout = Layout(Policy(3))
    rebuilt = layout.rebuild((0,))
    assert isinstance(rebuilt, Policy)
    assert rebuilt.limit == 0


def test_layout_keeps_what_stands_in_for_a_scalar() -> None:
    """Leaves that are no integers, a tracer's, are put in as they are."""
    stand_ins = (object(), object(), object())
    rebuilt = Layout(Pair((1, True), Phase.IDLE)).rebuild(stand_ins)
    assert isinstance(rebuilt, Pair)
    assert (*rebuilt.left, rebuilt.right) == stand_ins


def test_layout_positions_are_those_of_the_class() -> None:
    """An enum member is its position in its own class, even when members of two integer enums are equal."""
    for cls in (Phase, Slow, Fast):
        assert [position(one) for one in cls] == list(range(len(cls)))
        assert [member(cls, at) for at in range(len(cls))] == list(cls)
    assert int(Slow.WALK) == int(Fast.WALK)


def test_layout_speaks_in_words() -> None:
    """A leaf is shown as a person writes it."""
    assert Field("x", Phase).words(1) == "at work"
    assert [Field("x", bool).words(leaf) for leaf in (0, 1)] == ["false", "true"]
    assert Field("x", int).words(-3) == "-3"


def test_layout_gives_a_leaf_its_type_back() -> None:
    """The value of a leaf is an integer, a bool or a member, not its position."""
    assert Field("x", Phase).value(2) is Phase.DONE
    assert Field("x", bool).value(1) is True
    assert Field("x", int).value(1) == 1
