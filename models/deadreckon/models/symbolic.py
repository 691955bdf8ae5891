"""Symbolic scalars, and the oracle that decides what they are when Python code asks.

Arithmetic and comparison build expressions. Asking for a truth value (``if``, ``and``, ``not``, ...) forks: the
function is run again for the other outcome, depth first, and the results are merged into conditional expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from typing import NoReturn, TypeVar

import attrs

from deadreckon.spec import Refused, SpecError

from . import expr as ir
from .expr import Expr, Sort
from .layout import assembled, parts, position

R = TypeVar("R")


class Symbolic:
    """A scalar whose value is an expression; base of the three kinds."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __eq__(self, other: object) -> bool:
        return SymBool(self._equals(other))  # type: ignore[return-value]  # stands in for a bool

    def __ne__(self, other: object) -> bool:
        return SymBool(ir.not_(self._equals(other)))  # type: ignore[return-value]  # ditto

    def _equals(self, other: object) -> Expr:
        if lift(other).sort is Sort.BOOL and self.expr.sort is Sort.BOOL:
            return ir.eq(self.expr, lift(other))
        return ir.eq(number(self), number(other))

    def _cannot(self, *_: object) -> NoReturn:
        raise SpecError(
            f"a state value is used where only a concrete one can be followed ({self.expr!r})",
            instead="compare it, or use it in + - *; as an index use an input declared with Among",
        )

    def __hash__(self) -> int:
        self._cannot()

    __index__ = __int__ = __float__ = __len__ = __iter__ = _cannot
    __floordiv__ = __mod__ = __truediv__ = __pow__ = _cannot


class SymInt(Symbolic):
    """Stands in for an ``int``."""

    __slots__ = ()

    def __add__(self, other: object) -> SymInt:
        return SymInt(ir.add(number(self), number(other)))

    def __sub__(self, other: object) -> SymInt:
        return SymInt(ir.add(number(self), ir.neg(number(other))))

    def __rsub__(self, other: object) -> SymInt:
        return SymInt(ir.add(number(other), ir.neg(number(self))))

    def __mul__(self, other: object) -> SymInt:
        left, right = number(self), number(other)
        if not (ir.is_const(left) or ir.is_const(right)):
            raise SpecError("a product of two state values is not linear", instead="multiply by a constant")
        return SymInt(ir.mul(left, right))

    def __neg__(self) -> SymInt:
        return SymInt(ir.neg(number(self)))

    def __lt__(self, other: object) -> SymBool:
        return SymBool(ir.lt(number(self), number(other)))

    def __le__(self, other: object) -> SymBool:
        return SymBool(ir.le(number(self), number(other)))

    def __gt__(self, other: object) -> SymBool:
        return SymBool(ir.lt(number(other), number(self)))

    def __ge__(self, other: object) -> SymBool:
        return SymBool(ir.le(number(other), number(self)))

    def __bool__(self) -> bool:
        return decide(ir.not_(ir.eq(self.expr, ir.const(0))))

    __radd__ = __add__
    __rmul__ = __mul__


class SymBool(SymInt):
    """Stands in for a ``bool``, which in arithmetic is 0 or 1."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return decide(self.expr)


class SymEnum(Symbolic):
    """Stands in for a member of ``cls``."""

    __slots__ = ("cls",)

    def __init__(self, expr: Expr, cls: type[Enum]) -> None:
        super().__init__(expr)
        self.cls = cls

    def _equals(self, other: object) -> Expr:
        cls = other.cls if isinstance(other, SymEnum) else type(other)
        if cls is not self.cls:
            raise SpecError(
                f"a {self.cls.__name__} is compared with {other!r}", instead=f"compare with a {self.cls.__name__}"
            )
        return ir.eq(self.expr, lift(other))


def lift(value: object) -> Expr:
    """The expression of a concrete or symbolic scalar."""
    if isinstance(value, Symbolic):
        return value.expr
    if isinstance(value, Enum):
        return ir.const(position(value))
    if isinstance(value, int):
        return ir.const(value)
    raise SpecError(f"{value!r} is no scalar of a state", instead="an integer, a bool or an enum member")


def number(value: object) -> Expr:
    """The expression of a scalar as an integer; a bool counts as 0 or 1."""
    if isinstance(value, SymEnum | Enum):
        raise SpecError(f"{value!r} is used as a number", instead="compare it with == to members of its enum")
    lifted = lift(value)
    return ir.ite(lifted, ir.const(1), ir.const(0)) if lifted.sort is Sort.BOOL else lifted


def symbol(expr: Expr, cls: type) -> object:
    """What stands in for a scalar of type *cls*; a constant stands for itself."""
    if issubclass(cls, Enum):
        return tuple(cls)[int(expr.value)] if ir.is_const(expr) else SymEnum(expr, cls)
    if ir.is_const(expr):
        return expr.value
    return SymBool(expr) if cls is bool else SymInt(expr)


@attrs.define
class _Run:
    """One execution: outcomes that are given (prefix) or found, and what they imply."""

    decisions: list[tuple[Expr, bool]]
    at: int = 0
    known: dict[Expr, bool] = attrs.field(factory=dict)


_run: ContextVar[_Run | None] = ContextVar("_run", default=None)


def decide(condition: Expr) -> bool:
    """The truth of *condition* on the path that is being run.

    Raises:
        SpecError: outside of a trace.
    """
    if ir.is_const(condition):
        return bool(condition.value)
    run = _run.get()
    if run is None:
        raise SpecError("a symbolic condition is asked outside of a trace", instead="trace the function")
    if condition in run.known:
        return run.known[condition]
    if run.at == len(run.decisions):
        run.decisions.append((condition, True))
    expected, outcome = run.decisions[run.at]
    if expected is not condition:
        raise SpecError(
            f"a function took another path when it was run again ({expected!r}, then {condition!r})",
            instead="make it depend on its arguments alone",
        )
    run.at += 1
    run.known[condition] = outcome
    run.known[ir.not_(condition)] = not outcome
    return outcome


@attrs.frozen
class Traced:
    """What a function does on symbolic arguments: ``value`` where ``allowed``, else a refusal.

    ``refusals`` are the guards in order: the condition under which each refuses, with its rule and reason.
    """

    allowed: Expr
    value: object
    refusals: tuple[tuple[Expr, str, str], ...] = ()


MAX_PATHS = 20_000
"""Paths of one function (helpers apart); more means that a helper should be split off."""


def trace(thunk: Callable[[], object], name: str) -> Traced:
    """Run *thunk* on every path and merge.

    Raises:
        SpecError: when it has more than :data:`MAX_PATHS` paths.
    """
    paths = 0

    def explore(prefix: list[tuple[Expr, bool]]) -> Traced:
        nonlocal paths
        paths += 1
        if paths > MAX_PATHS:
            raise SpecError(
                f"{name} has more than {MAX_PATHS} paths", instead="move parts of it into helpers, which merge"
            )
        run = _Run(list(prefix))
        token = _run.set(run)
        try:
            merged = Traced(ir.TRUE, thunk())
        except Refused as refusal:
            merged = Traced(ir.FALSE, None, ((ir.TRUE, refusal.rule, refusal.why),))
        finally:
            _run.reset(token)
        if run.at < len(prefix):
            raise SpecError(
                f"{name} took another path when it was run again ({prefix[run.at][0]!r} was not asked)",
                instead="make it depend on its arguments alone",
            )
        for at in range(len(run.decisions) - 1, len(prefix) - 1, -1):
            condition, outcome = run.decisions[at]
            other = explore([*run.decisions[:at], (condition, not outcome)])
            merged = _merge(condition, merged, other)
        return merged

    return explore([])


def _merge(condition: Expr, then: Traced, other: Traced) -> Traced:
    allowed = ir.ite(condition, then.allowed, other.allowed)
    refusals = (
        *((ir.and_(condition, when), rule, why) for when, rule, why in then.refusals),
        *((ir.and_(ir.not_(condition), when), rule, why) for when, rule, why in other.refusals),
    )
    if then.allowed is ir.FALSE:
        return Traced(allowed, other.value, refusals)
    if other.allowed is ir.FALSE:
        return Traced(allowed, then.value, refusals)
    return Traced(allowed, merge_values(condition, then.value, other.value), refusals)


def merge_values(condition: Expr, then: object, other: object) -> object:
    """``then if condition else other`` for values of one shape.

    Raises:
        SpecError: when the shapes differ.
    """
    if then is other:
        return then
    if isinstance(then, tuple) and isinstance(other, tuple) and len(then) == len(other):
        return tuple(merge_values(condition, a, b) for a, b in zip(then, other, strict=True))
    names = parts(then)
    if names is not None and type(then) is type(other):
        merged = {name: merge_values(condition, getattr(then, name), getattr(other, name)) for name in names}
        return assembled(type(then), merged)
    cls, other_cls = scalar_class(then), scalar_class(other)
    if cls is not None and cls is other_cls:
        return symbol(ir.ite(condition, lift(then), lift(other)), cls)
    raise SpecError(
        f"two paths return values of different shapes ({then!r}, {other!r})",
        instead="return the same class, or tuples of the same length, on every path",
    )


def scalar_class(value: object) -> type | None:
    """What a scalar is, or stands in for: int, bool or an enum; None for anything else."""
    if isinstance(value, SymEnum):
        return value.cls
    if isinstance(value, Enum):
        return type(value)
    if isinstance(value, SymBool | bool):
        return bool
    return int if isinstance(value, SymInt | int) else None
