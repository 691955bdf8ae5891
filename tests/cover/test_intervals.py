"""Intervals contain every value, narrowing changes no meaning, and the width that follows is exact."""

from __future__ import annotations

import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.models import expr as ir
from deadreckon.models.expr import FALSE, TRUE, Expr, Sort
from deadreckon.models.intervals import Interval, hull
from deadreckon.proofs.intervals import Narrowing
from deadreckon.proofs.lowering import bits, lower
from deadreckon.spec import UNLIMITED
from tests.cover.expressions import SMALL, expressions

X, Y, Z = (ir.var(name, Sort.INT) for name in "xyz")
P = ir.var("p", Sort.BOOL)
ints, bools = expressions((X, Y, Z), (P,))


@st.composite
def places(draw: st.DrawFn) -> tuple[dict[Expr, Interval], dict[Expr, Expr]]:
    """Ranges of the variables, and a value for each within its range."""
    ranges: dict[Expr, Interval] = {}
    values = {P: ir.const(draw(st.booleans()))}
    for variable in (X, Y, Z):
        low, high = sorted((draw(SMALL), draw(SMALL)))
        ranges[variable] = (low, high)
        values[variable] = ir.const(draw(st.integers(low, high)))
    return ranges, values


def value(root: Expr, values: dict[Expr, Expr]) -> int | bool:
    """What *root* is under these values."""
    (folded,) = ir.substitute((root,), values)
    assert ir.is_const(folded)
    return bool(folded.value) if folded.sort is Sort.BOOL else int(folded.value)


@given(ints, places())
def test_interval_contains_every_value(root: Expr, place: tuple[dict[Expr, Interval], dict[Expr, Expr]]) -> None:
    """Whatever values the variables take in their ranges, the expression stays in its interval."""
    ranges, values = place
    low, high = Narrowing(ranges).interval(root)
    assert low <= value(root, values) <= high


@given(st.one_of(ints, bools), places())
def test_narrowing_keeps_the_meaning(root: Expr, place: tuple[dict[Expr, Interval], dict[Expr, Expr]]) -> None:
    """Inside the ranges a narrowed expression has the value of the expression itself."""
    ranges, values = place
    (narrowed,) = Narrowing(ranges)((root,))
    assert value(narrowed, values) == value(root, values)


@given(st.lists(st.one_of(ints, bools), min_size=1, max_size=3), places())
def test_largest_bounds_every_number_in_what_is_left(
    roots: list[Expr], place: tuple[dict[Expr, Interval], dict[Expr, Expr]]
) -> None:
    """No integer below a narrowed expression exceeds the largest number that narrowing reports."""
    ranges, values = place
    narrowing = Narrowing(ranges)
    narrowed = narrowing(roots)
    for node in ir.postorder(narrowed):
        if node.sort is Sort.INT:
            assert abs(value(node, values)) <= narrowing.largest


@given(st.one_of(ints, bools), places())
def test_width_is_exact(root: Expr, place: tuple[dict[Expr, Interval], dict[Expr, Expr]]) -> None:
    """Bit-vectors of the width that follows from the largest number compute what unbounded integers do."""
    ranges, values = place
    narrowing = Narrowing(ranges)
    (narrowed,) = narrowing((root,))
    algebra = bits(narrowing.largest.bit_length() + 1)
    ground = {leaf: algebra.constant(bool(one.value) if leaf is P else int(one.value)) for leaf, one in values.items()}
    result = z3.simplify(lower((narrowed,), algebra, ground)[0])
    found = z3.is_true(result) if z3.is_bool(result) else result.as_signed_long()
    assert found == value(root, values)


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        (ir.lt(X, Y), None),
        (ir.lt(X, Z), TRUE),
        (ir.lt(Z, X), FALSE),
        (ir.lt(Y, Z), None),
        (ir.le(Y, Z), TRUE),
        (ir.lt(Z, Y), FALSE),
        (ir.le(Z, Y), None),
        (ir.eq(X, Z), FALSE),
        (ir.eq(Y, Z), None),
        (ir.lt(X, ir.const(UNLIMITED)), TRUE),
        (ir.le(ir.const(-1), X), TRUE),
    ],
)
def test_comparisons_are_decided_only_where_the_ranges_decide_them(comparison: Expr, expected: Expr | None) -> None:
    """With x in 0..3, y in 2..5 and z in 5..9, touching ranges decide <= and leave < or = open as they must."""
    (narrowed,) = Narrowing({X: (0, 3), Y: (2, 5), Z: (5, 9)})((comparison,))
    assert narrowed is (comparison if expected is None else expected)


def test_a_limit_that_is_never_reached_costs_no_width() -> None:
    """A comparison with UNLIMITED is decided away, so that it does not make numbers 64 bits wide."""
    narrowing = Narrowing({X: (0, 3)})
    narrowing((ir.and_(ir.lt(X, ir.const(UNLIMITED)), ir.lt(X, ir.const(2))),))
    assert narrowing.largest == 3


@given(SMALL, SMALL, SMALL, SMALL)
def test_hull_is_the_smallest_interval_around_both(a: int, b: int, c: int, d: int) -> None:
    """The hull begins where the first of the two begins, and ends where the last ends."""
    left, right = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    assert hull(left, right) == (min(a, b, c, d), max(a, b, c, d))
