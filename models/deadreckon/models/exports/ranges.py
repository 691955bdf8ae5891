"""Which values a number can take within the bounds of a scope, so that an export can give it a type that holds it."""

from __future__ import annotations

from deadreckon.models.intervals import Interval, reachable, spans

from .model import HIGHEST, Model


def ranges(model: Model) -> tuple[Interval | None, ...]:
    """The interval of every leaf of the state, over all states within the scope; None where intervals show no end."""
    found = reachable(model.grounded, model.within, model.symmetry, model.initial)
    return tuple(None if end is None or max(map(abs, end)) >= HIGHEST else end for end in found)


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
        values = spans(roots, {leaf: one or (-most, most) for leaf, one in known.items()})
        if all(max(map(abs, one)) <= HIGHEST for one in values.values()):
            return most
    return 0
