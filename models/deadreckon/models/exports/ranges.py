"""Which values a number can take within the bounds of a scope, so that an export can give it a type that holds it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op, Sort

from .model import HIGHEST, Model

Interval = tuple[int, int]
ROUNDS = 20
"""Of growth; a number that still grows then is given up, since it may have no end that intervals show."""


def ranges(model: Model) -> tuple[Interval | None, ...]:
    """The interval of every leaf of the state, over all states within the scope; None where intervals show no end."""
    state = model.relation.state
    sizes = [field.size for field in model.relation.layout.fields]
    found: list[Interval | None] = [
        (0, size - 1) if size else (0, 1) if leaf.sort is Sort.BOOL else _hull([one[at] for one in model.initial])
        for at, (leaf, size) in enumerate(zip(state, sizes, strict=True))
    ]
    numbers = [at for at, leaf in enumerate(state) if leaf.sort is Sort.INT and not sizes[at]]
    ceilings = _bounds(model.within)
    for count in itertools.count():
        grown = list(found)
        for one in (one for steps in model.steps_of.values() for one in steps):
            guarded = _bounds(one.guard)
            known = {leaf: _met(interval, guarded.get(leaf)) for leaf, interval in zip(state, found, strict=True)}
            values = _intervals(tuple(one.updates[at] for at in numbers), known)
            for at in numbers:
                if one.updates[at] is not state[at]:
                    after = _met(values[one.updates[at]], ceilings.get(state[at]))
                    grown[at] = _joined(grown[at], after)
        _permuted(model, grown)
        if grown == found:
            break
        found = [None if count >= ROUNDS and a != b else b for a, b in zip(found, grown, strict=True)]
    return tuple(found)


def limit(model: Model, intervals: tuple[Interval | None, ...]) -> int:
    """The largest number that a field without an interval may hold, so that no sum over such fields needs more bits.

    It is a power of two, less one; 0 if there is none.
    """
    known = dict(zip(model.relation.state, intervals, strict=True))
    grounded = model.grounded
    roots = [one for instance in grounded.instances for one in (instance.guard, *instance.updates)]
    roots += [*grounded.claims.values(), *grounded.triggers.values()]
    roots += [one for claims in grounded.steps.values() for one in claims]
    roots += [grounded.after(model.within, instance) for instance in grounded.instances]
    unknown = [at for at, interval in enumerate(intervals) if interval is None]
    least = max((abs(start[at]) for start in model.initial for at in unknown), default=0)
    for bits in range(30, least.bit_length() - 1, -1):
        most = (1 << bits) - 1
        values = _intervals(tuple(roots), {leaf: one or (-most, most) for leaf, one in known.items()})
        if all(
            one is not None and max(map(abs, one)) <= HIGHEST for one in (*values.values(), *filter(None, intervals))
        ):
            return most
    return 0


def _hull(values: list[int]) -> Interval:
    return min(values), max(values)


def _joined(left: Interval | None, right: Interval | None) -> Interval | None:
    return None if left is None or right is None else (min(left[0], right[0]), max(left[1], right[1]))


def _met(one: Interval | None, bound: Interval | None) -> Interval | None:
    """*one* within *bound*; where they don't meet, nothing is reached, and any interval will do."""
    if bound is None:
        return one
    low, high = one or (-HIGHEST, HIGHEST)
    low, high = max(low, bound[0]), min(high, bound[1])
    return None if low <= -HIGHEST or high >= HIGHEST else (low, max(low, high))


def _bounds(condition: Expr) -> dict[Expr, Interval]:
    """What a conjunction says of single variables."""
    found: dict[Expr, Interval] = {}
    for part in condition.args if condition.op is Op.AND else (condition,):
        negated = part.op is Op.NOT
        inner = part.args[0] if negated else part
        if (
            inner.op not in (Op.LT, Op.LE, Op.EQ)
            or inner.args[0].sort is not Sort.INT
            or (negated and inner.op is Op.EQ)
        ):
            continue
        left, right = inner.args
        strict = (inner.op is Op.LT) is not negated
        if negated:
            left, right = right, left
        for variable, bound in _sides(left, right, inner.op, strict):
            low, high = found.get(variable, (-HIGHEST, HIGHEST))
            found[variable] = max(low, bound[0]), min(high, bound[1])
    return found


def _sides(left: Expr, right: Expr, op: Op, strict: bool) -> Iterator[tuple[Expr, Interval]]:
    """``left < right`` (``<=``, ``==``) as bounds of a variable by a constant."""
    if left.op is Op.VAR and ir.is_const(right):
        value = int(right.value)
        yield left, (value if op is Op.EQ else -HIGHEST, value - 1 if strict and op is not Op.EQ else value)
    if right.op is Op.VAR and ir.is_const(left):
        value = int(left.value)
        yield right, (value + 1 if strict and op is not Op.EQ else value, value if op is Op.EQ else HIGHEST)


def _intervals(roots: tuple[Expr, ...], known: Mapping[Expr, Interval | None]) -> dict[Expr, Interval | None]:
    """The interval of every number below *roots*."""
    found: dict[Expr, Interval | None] = {}
    for node in ir.postorder(roots):
        if node.sort is Sort.INT:
            found[node] = known[node] if node.op is Op.VAR else _of(node, found)
    return found


def _of(node: Expr, known: Mapping[Expr, Interval | None]) -> Interval | None:
    if node.op is Op.CONST:
        return int(node.value), int(node.value)
    args = [known[arg] for arg in node.args if arg.sort is Sort.INT]
    if any(one is None for one in args):
        return None
    first, *rest = [one for one in args if one is not None]
    if node.op is Op.NEG:
        return -first[1], -first[0]
    if node.op is Op.ADD:
        return first[0] + rest[0][0], first[1] + rest[0][1]
    if node.op is Op.MUL:
        return _hull([a * b for a in first for b in rest[0]])
    return _joined(first, rest[0])


def _permuted(model: Model, intervals: list[Interval | None]) -> None:
    """Elements that may be exchanged have what any of them has."""
    for columns in model.symmetry.groups:
        for leaves in zip(*columns, strict=True):
            joined = intervals[leaves[0]]
            for at in leaves[1:]:
                joined = _joined(joined, intervals[at])
            for at in leaves:
                intervals[at] = joined
