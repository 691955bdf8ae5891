"""Interval analysis: how large the numbers of a machine can get, so that words and types of a known width hold them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from . import expr as ir
from .expr import Expr, Op, Sort
from .grounding import Grounded
from .layout import Flat
from .symmetry import Symmetry

Interval = tuple[int, int]
"""The least and the greatest value."""

HUGE = 1 << 80
"""Beyond every number that a machine computes with: no end."""

ROUNDS = 20
"""Of growth; a number that still grows then is given up, since it may have no end that intervals show."""


def around(values: Iterable[int]) -> Interval:
    """The smallest interval around *values*."""
    found = tuple(values)
    return min(found), max(found)


def hull(left: Interval, right: Interval) -> Interval:
    """The smallest interval around both."""
    return min(left[0], right[0]), max(left[1], right[1])


def of_node(node: Expr, known: Mapping[Expr, Interval]) -> Interval:
    """The interval of a number, given those of its arguments."""
    if node.op is Op.CONST:
        return int(node.value), int(node.value)
    args = [known[arg] for arg in node.args if arg.sort is Sort.INT]
    match node.op:
        case Op.ADD:
            return args[0][0] + args[1][0], args[0][1] + args[1][1]
        case Op.NEG:
            return -args[0][1], -args[0][0]
        case Op.MUL:
            return around(a * b for a in args[0] for b in args[1])
        case _:
            return hull(args[0], args[1])


def spans(roots: Iterable[Expr], known: Mapping[Expr, Interval]) -> dict[Expr, Interval]:
    """The interval of every number below *roots*; *known* are those of the variables."""
    found = dict(known)
    for node in ir.postorder(tuple(roots)):
        if node.sort is Sort.INT and node not in found:
            found[node] = of_node(node, found)
    return found


def reachable(
    grounded: Grounded, within: Expr, symmetry: Symmetry, initial: Sequence[Flat]
) -> tuple[Interval | None, ...]:
    """The interval of every leaf of the state, over all states *within* the bounds; None where intervals show no end."""
    state = grounded.relation.state
    sizes = [field.size for field in grounded.relation.layout.fields]
    found: list[Interval] = [
        (0, size - 1) if size else (0, 1) if leaf.sort is Sort.BOOL else around(one[at] for one in initial)
        for at, (leaf, size) in enumerate(zip(state, sizes, strict=True))
    ]
    numbers = [at for at, leaf in enumerate(state) if leaf.sort is Sort.INT and not sizes[at]]
    ceilings = _bounds(within)
    for count in itertools.count():
        grown = list(found)
        for one in grounded.instances:
            if one.guard is ir.FALSE:
                continue
            guarded = _bounds(one.guard)
            known = {leaf: _met(interval, guarded.get(leaf)) for leaf, interval in zip(state, found, strict=True)}
            values = spans((one.updates[at] for at in numbers), known)
            for at in numbers:
                if one.updates[at] is not state[at]:
                    grown[at] = _joined(grown[at], _met(values[one.updates[at]], ceilings.get(state[at])))
        _permute(symmetry, grown)
        if grown == found:
            break
        found = [_widened(old, new) if count >= ROUNDS else new for old, new in zip(found, grown, strict=True)]
    return tuple(None if low <= -HUGE or high >= HUGE else (low, high) for low, high in found)


def _joined(left: Interval, right: Interval) -> Interval:
    """Both, but for what is beyond every number."""
    low, high = hull(left, right)
    return max(-HUGE, low), min(HUGE, high)


def _widened(old: Interval, new: Interval) -> Interval:
    """No end on the side that grows, so that the rounds come to one."""
    return min(new[0], -HUGE if new[0] < old[0] else new[0]), max(new[1], HUGE if new[1] > old[1] else new[1])


def _met(one: Interval, bound: Interval | None) -> Interval:
    """*one* within *bound*; where they don't meet, nothing is reached, and any interval will do."""
    if bound is None:
        return one
    low, high = max(one[0], bound[0]), min(one[1], bound[1])
    return low, max(low, high)


def _bounds(condition: Expr) -> dict[Expr, Interval]:
    """What a conjunction says of single variables."""
    found: dict[Expr, Interval] = {}
    for part in condition.args if condition.op is Op.AND else (condition,):
        negated = part.op is Op.NOT
        inner = part.args[0] if negated else part
        if inner.op not in (Op.LT, Op.LE, Op.EQ) or inner.args[0].sort is not Sort.INT:
            continue
        if negated and inner.op is Op.EQ:
            continue
        left, right = inner.args
        strict = (inner.op is Op.LT) is not negated
        if negated:
            left, right = right, left
        for variable, bound in _sides(left, right, inner.op, strict):
            low, high = found.get(variable, (-HUGE, HUGE))
            found[variable] = max(low, bound[0]), min(high, bound[1])
    return found


def _sides(left: Expr, right: Expr, op: Op, strict: bool) -> Iterator[tuple[Expr, Interval]]:
    """``left < right`` (``<=``, ``==``) as bounds of a variable by a constant."""
    if left.op is Op.VAR and ir.is_const(right):
        value = int(right.value)
        yield left, (value if op is Op.EQ else -HUGE, value - 1 if strict and op is not Op.EQ else value)
    if right.op is Op.VAR and ir.is_const(left):
        value = int(left.value)
        yield right, (value + 1 if strict and op is not Op.EQ else value, value if op is Op.EQ else HUGE)


def _permute(symmetry: Symmetry, intervals: list[Interval]) -> None:
    """Elements that may be exchanged have what any of them has."""
    for columns in symmetry.groups:
        for leaves in zip(*columns, strict=True):
            joined = around(end for at in leaves for end in intervals[at])
            for at in leaves:
                intervals[at] = joined
