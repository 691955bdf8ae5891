"""Trace the functions of a machine: helpers apart (summarised), builtins without a fork.

The functions that run here are the machine's own, rebound so that each helper is traced by itself, its paths merged
into conditional values, before its caller goes on. Without this the paths multiply (608 for one admission); with it a
transition has a handful.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from deadreckon.spec import Function, Refused
from deadreckon.spec.rebind import Rebinder

from . import expr as ir
from .expr import Expr
from .layout import parts
from .symbolic import Symbolic, SymBool, SymEnum, SymInt, Traced, decide, lift, merge_values, number, trace


class Tracer:
    """Traces functions of one machine; summaries are kept for equal arguments."""

    def __init__(self) -> None:
        self._rebinder = Rebinder(names=_BUILTINS, wrap=self._summarised)
        self._summaries: dict[tuple[object, ...], Traced] = {}

    def trace(self, function: Function, arguments: tuple[object, ...]) -> Traced:
        """What *function* does on *arguments*, symbolic or not."""
        rebound = self._rebinder.rebound(function)
        return trace(lambda: rebound(*arguments), function.__name__)

    def _summarised(self, helper: Function) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            key = (helper, *map(_key, arguments), *((name, _key(value)) for name, value in named.items()))
            summary = self._summaries.get(key)
            if summary is None:
                summary = trace(lambda: helper(*arguments, **named), helper.__name__)
                self._summaries[key] = summary
            for at, (when, rule, why) in enumerate(summary.refusals, 1):
                # What never returns refuses for its last reason if for no other: a path without a value is none.
                if (summary.allowed is ir.FALSE and at == len(summary.refusals)) or decide(when):
                    raise Refused(rule, why)
            return summary.value

        return functools.wraps(helper)(call)


def _key(value: object) -> object:
    """A hashable stand-in: equal expressions are the same object, concrete values keep their type."""
    if isinstance(value, SymEnum):
        return (value.cls, value.expr)
    if isinstance(value, Symbolic):
        return (type(value), value.expr)
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if (names := parts(value)) is not None:
        return (type(value), *(_key(getattr(value, name)) for name in names))
    return (type(value), value)


def _symbolic_any(values: Iterable[object]) -> object:
    return _fold(_joined(values, ir.or_, ir.TRUE))


def _symbolic_all(values: Iterable[object]) -> object:
    return _fold(_joined(values, ir.and_, ir.FALSE))


def _joined(values: Iterable[object], join: Callable[..., Expr], end: Expr) -> Expr:
    """What *values* come to; the builtins stop at the first that is *end*, and what comes after it refuses nothing."""
    found: list[Expr] = []
    try:
        for value in values:
            found.append(truth(value))
            if found[-1] is end:
                break
    except Refused:
        if decide(join(*found)) != end.value:
            raise
        return end
    return join(*found)


def truth(value: object) -> Expr:
    """The condition under which *value* counts as true."""
    lifted = lift(value)
    return lifted if lifted.sort is ir.Sort.BOOL else ir.not_(ir.eq(lifted, ir.const(0)))


def _fold(condition: Expr) -> object:
    return bool(condition.value) if ir.is_const(condition) else SymBool(condition)


def _symbolic_min(*values: object) -> object:
    return _extreme(values, lambda left, right: ir.le(left, right))


def _symbolic_max(*values: object) -> object:
    return _extreme(values, lambda left, right: ir.le(right, left))


def _extreme(values: tuple[object, ...], wins: Callable[[Expr, Expr], Expr]) -> object:
    candidates = values[0] if len(values) == 1 and isinstance(values[0], Iterable) else values
    first, *rest = candidates
    best: object = first
    for value in rest:
        best = merge_values(wins(number(best), number(value)), best, value)
    return best


def _symbolic_abs(value: object) -> object:
    lifted = number(value)
    return merge_values(ir.lt(lifted, ir.const(0)), -SymInt(lifted), SymInt(lifted))


_BUILTINS: dict[str, object] = {
    "any": _symbolic_any,
    "all": _symbolic_all,
    "min": _symbolic_min,
    "max": _symbolic_max,
    "abs": _symbolic_abs,
}
