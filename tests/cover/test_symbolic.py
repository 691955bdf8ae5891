"""Symbolic scalars build expressions, fork where Python asks, and refuse what they can't follow."""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import Enum, IntEnum
from itertools import product

import attrs
import pytest

from deadreckon.models import expr as ir
from deadreckon.models import symbolic
from deadreckon.models.expr import Expr, Sort
from deadreckon.models.symbolic import (
    SymBool,
    SymEnum,
    SymInt,
    Traced,
    decide,
    lift,
    merge_values,
    number,
    symbol,
    trace,
)
from deadreckon.spec import Refused, SpecError


class Phase(Enum):
    """An enum."""

    IDLE = "idle"
    BUSY = "busy"
    DONE = "done"


class Level(IntEnum):
    """Whose values are not their positions."""

    LOW = 10
    HIGH = 20


@attrs.frozen
class Pair:
    """Two scalars."""

    left: object
    right: object


X, Y = ir.var("x", Sort.INT), ir.var("y", Sort.INT)
P, Q = ir.var("p", Sort.BOOL), ir.var("q", Sort.BOOL)
x, y, p, q = SymInt(X), SymInt(Y), SymBool(P), SymBool(Q)
phase, level = SymEnum(ir.var("phase", Sort.INT), Phase), SymEnum(ir.var("level", Sort.INT), Level)

VALUES: dict[Expr, tuple[int, ...]] = {X: (-1, 0, 1, 2), Y: (0, 1, 3), P: (False, True), Q: (False, True)}


def under(value: object, bindings: dict[Expr, int]) -> object:
    (folded,) = ir.substitute((lift(value),), {leaf: ir.const(one) for leaf, one in bindings.items()})
    return folded.value


ARITHMETIC = (operator.add, operator.sub, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


@pytest.mark.parametrize("function", ARITHMETIC, ids=lambda function: function.__name__)
def test_symbolic_operators_are_those_of_python(function: Callable[[object, object], object]) -> None:
    """Arithmetic and comparison of integers and bools, symbolic or not, on either side, mean what they do in Python."""
    operands: tuple[tuple[object, Callable[[dict[Expr, int]], int]], ...] = (
        (x, lambda at: at[X]),
        (y, lambda at: at[Y]),
        (p, lambda at: at[P]),
        (q, lambda at: at[Q]),
        (2, lambda at: 2),
        (1, lambda at: 1),
        (True, lambda at: True),
    )
    for values in product(*VALUES.values()):
        bindings = dict(zip(VALUES, values, strict=True))
        for (left, of_left), (right, of_right) in product(operands, repeat=2):
            expected = function(of_left(bindings), of_right(bindings))
            assert under(function(left, right), bindings) == expected


@pytest.mark.parametrize("value", range(-2, 3))
def test_symbolic_products_are_linear(value: int) -> None:
    """A factor may be constant on either side; the negative of an integer or a bool is a number."""
    for left, right in ((x, value), (value, x), (p, value), (value, p)):
        for one in (False, True):
            expected = int(one) * value
            assert under(left * right, {X: int(one), P: one}) == expected
    assert under(-x, {X: value}) == -value
    assert under(-p, {P: True}) == -1


def test_symbolic_product_of_two_state_values_is_refused() -> None:
    """A product of two symbolic values is not linear, and is refused with what to write instead."""
    for left, right in ((x, y), (x, x), (x, p), (p, q)):
        with pytest.raises(SpecError, match="not linear") as refusal:
            left * right
        assert refusal.value.instead == "multiply by a constant"


CONCRETE_ONLY: dict[str, Callable[[], object]] = {
    "hash": lambda: hash(x),
    "key": lambda: {1: 2}[x],  # type: ignore[index]  # refused
    "element of a set": lambda: p in {True},
    "index": lambda: (1, 2)[x],
    "index by a bool": lambda: (1, 2)[p],
    "slice": lambda: (1, 2)[:x],
    "range": lambda: range(x),
    "repetition": lambda: (1, 2) * operator.index(x),
    "int": lambda: int(x),
    "float": lambda: float(x),
    "length": lambda: len(x),
    "iteration": lambda: list(phase),
    "division": lambda: x / 2,
    "floor": lambda: x // 2,
    "remainder": lambda: x % 2,
    "power": lambda: x**2,
    "truth of a member": lambda: bool(phase),
}


@pytest.mark.parametrize("case", CONCRETE_ONLY)
def test_symbolic_value_where_a_concrete_one_is_needed_is_refused(case: str) -> None:
    """An index, a hash, a length, a division: what can't be followed is refused, never guessed."""
    with pytest.raises(SpecError, match="only a concrete one can be followed") as refusal:
        CONCRETE_ONLY[case]()
    assert "Among" in refusal.value.instead


def test_symbolic_members_compare_within_their_enum() -> None:
    """A member equals members of its enum by position, on either side."""
    for at, one in enumerate(Phase):
        bindings = {phase.expr: at}
        for other in Phase:
            assert under(phase == other, bindings) == (one is other)
            assert under(other == phase, bindings) == (one is other)
            assert under(phase != other, bindings) == (one is not other)
    assert under(phase == phase, {}) is True


MIXED: dict[str, Callable[[], object]] = {
    "a number with a member": lambda: x == Phase.BUSY,
    "a member with a number": lambda: Phase.BUSY == x,  # noqa: SIM300  # the other side
    "a member with a symbolic number": lambda: phase == x,
    "a symbolic number with a member": lambda: x == phase,
    "a constant with a member": lambda: phase == 1,
    "a bool with a member": lambda: p == Phase.BUSY,
    "two enums": lambda: phase == Level.HIGH,
    "two symbolic enums": lambda: phase == level,
    "a number with an integer enum": lambda: x == Level.HIGH,
    "an order with a member": lambda: x < Level.HIGH,
    "a sum with a member": lambda: x + Level.HIGH,
    "a sum with a symbolic member": lambda: x + level,
}


@pytest.mark.parametrize("case", MIXED)
def test_symbolic_member_is_no_number(case: str) -> None:
    """A member stands for its position, not for its value, so it is refused as a number, integer enum or not."""
    with pytest.raises(SpecError):
        MIXED[case]()


def test_symbolic_lift_refuses_what_is_no_scalar() -> None:
    """Only integers, bools and members are scalars."""
    for value in (None, "text", 0.5, (1,)):
        with pytest.raises(SpecError, match="no scalar"):
            lift(value)
    assert (lift(True), lift(3), lift(Phase.DONE)) == (ir.TRUE, ir.const(3), ir.const(2))
    assert number(True) is ir.const(1)


def test_symbolic_constant_stands_for_itself() -> None:
    """A symbol whose expression is constant is the value itself, so that it may be an index."""
    assert symbol(ir.const(2), int) == 2
    assert symbol(ir.TRUE, bool) is True
    assert symbol(ir.const(1), Phase) is Phase.BUSY
    assert type(symbol(X, int)) is SymInt
    assert type(symbol(P, bool)) is SymBool
    assert isinstance(symbol(X, Phase), SymEnum)


def test_symbolic_condition_outside_of_a_trace_is_refused() -> None:
    """A symbolic truth value that is asked where nobody explores both outcomes is refused; a constant one is known."""
    with pytest.raises(SpecError, match="outside of a trace"):
        bool(x == 1)
    assert decide(ir.TRUE)
    assert not decide(ir.FALSE)


def test_trace_merges_every_path() -> None:
    """The result is a choice over the conditions that were asked, asked once each, and both outcomes are run."""
    seen: list[tuple[bool, bool]] = []

    def function() -> object:
        seen.append((bool(p), bool(q)))
        return (1 if p and q else 2, bool(x), p)

    traced = trace(function, "function")
    assert sorted(seen) == [(False, False)] * 2 + [(False, True)] * 2 + [(True, False)] * 2 + [(True, True)] * 2
    assert isinstance(traced.value, tuple)
    assert lift(traced.value[0]) is ir.ite(P, ir.ite(Q, ir.const(1), ir.const(2)), ir.const(2))
    assert under(traced.value[1], {X: 0}) is False
    assert under(traced.value[1], {X: -1}) is True
    assert traced.value[2] is p


def test_trace_knows_the_negation_of_what_was_decided() -> None:
    """A condition and its negation are one question."""
    runs: list[bool] = []

    def function() -> bool:
        runs.append(bool(p == False))  # noqa: E712  # the form under test
        return bool(p)

    assert lift(trace(function, "function").value) is P
    assert runs == [False, True] or runs == [True, False]


def test_trace_keeps_refusals_with_their_conditions() -> None:
    """Each refusing path gives its condition, rule and reason; the value is that of the other paths."""

    def function() -> object:
        if p:
            raise Refused("R1", "p")
        if q:
            raise Refused("R2", "q")
        return x

    traced = trace(function, "function")
    assert traced == Traced(ir.and_(ir.not_(P), ir.not_(Q)), x, ((P, "R1", "p"), (ir.and_(ir.not_(P), Q), "R2", "q")))


def test_trace_restores_the_surrounding_run() -> None:
    """A trace inside a trace, of a helper, neither sees nor changes what the caller has decided."""

    def helper() -> object:
        return 1 if p else 2

    def function() -> object:
        inner = trace(helper, "helper").value if p else 0
        return (inner, 1 if p else 0)

    value = trace(function, "function").value
    assert isinstance(value, tuple)
    assert under(value[0], {P: True}) == 1
    assert under(value[0], {P: False}) == 0
    assert under(value[1], {P: True}) == 1


def test_trace_passes_other_exceptions_on() -> None:
    """An error is no refusal: it ends the trace, and the next trace starts afresh."""

    def function() -> object:
        return 1 / 0 if p else 1

    with pytest.raises(ZeroDivisionError):
        trace(function, "function")
    with pytest.raises(SpecError, match="outside of a trace"):
        bool(p)


def test_trace_of_a_function_that_asks_another_question_is_refused() -> None:
    """A function that depends on more than its arguments is refused when its second run asks something else."""
    runs: list[int] = []

    def function() -> object:
        runs.append(1)
        return (1 if p else 2) if len(runs) == 1 else (1 if q else 2)

    with pytest.raises(SpecError, match="another path when it was run again") as refusal:
        trace(function, "function")
    assert refusal.value.instead == "make it depend on its arguments alone"


def test_trace_of_a_function_that_asks_less_is_refused() -> None:
    """A function that depends on more than its arguments is refused when its second run asks less than its first."""
    runs: list[int] = []

    def function() -> object:
        runs.append(1)
        return (1 if p else 2) if len(runs) == 1 else 3

    with pytest.raises(SpecError, match="function took another path when it was run again") as refusal:
        trace(function, "function")
    assert refusal.value.instead == "make it depend on its arguments alone"


def test_trace_of_too_many_paths_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function with more paths than can be merged is refused, and told to use helpers."""
    flags = [SymBool(ir.var(f"flag{at}", Sort.BOOL)) for at in range(4)]

    def function() -> object:
        return sum(1 for flag in flags if flag)

    monkeypatch.setattr(symbolic, "MAX_PATHS", 16)
    assert trace(function, "function").allowed is ir.TRUE
    monkeypatch.setattr(symbolic, "MAX_PATHS", 15)
    with pytest.raises(SpecError, match="function has more than 15 paths") as refusal:
        trace(function, "function")
    assert "helpers" in refusal.value.instead


SHAPES: dict[str, tuple[object, object]] = {
    "tuples of different length": ((1, 2), (1, 2, 3)),
    "a tuple and a scalar": ((1,), 1),
    "two classes": (Pair(1, 2), Phase.IDLE),
    "two enums": (Phase.IDLE, Level.LOW),
    "an integer and a bool": (1, True),
    "an integer and an integer enum": (1, Level.LOW),
    "an integer and nothing": (1, None),
    "inside a class": (Pair(1, (1,)), Pair(1, (1, 2))),
    "texts": ("a", "b"),
}


@pytest.mark.parametrize("case", SHAPES)
def test_merge_of_different_shapes_is_refused(case: str) -> None:
    """Values of different shapes have no common expression, and are refused with what to write instead."""
    for then, other in (SHAPES[case], SHAPES[case][::-1]):
        with pytest.raises(SpecError, match="different shapes") as refusal:
            merge_values(P, then, other)
        assert "on every path" in refusal.value.instead


def test_merge_goes_into_the_parts() -> None:
    """Tuples and classes are merged part by part; equal parts need no choice."""
    same = object()
    merged = merge_values(P, Pair((1, same), Phase.IDLE), Pair((x, same), phase))
    assert isinstance(merged, Pair)
    assert isinstance(merged.left, tuple)
    assert lift(merged.left[0]) is ir.ite(P, ir.const(1), X)
    assert merged.left[1] is same
    assert isinstance(merged.right, SymEnum)
    assert merged.right.cls is Phase
    assert merge_values(P, Level.LOW, level).cls is Level  # type: ignore[attr-defined]  # a SymEnum
    assert merge_values(P, Level.HIGH, Level.HIGH) is Level.HIGH
    assert lift(merge_values(P, True, False)) is P
