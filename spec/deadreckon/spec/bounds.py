"""The bounds of exhaustive exploration: scopes, their horizons, and the sizes that a machine is built with.

Proofs know no horizon and no limit, but they are about one size: shapes are concrete.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import attrs

from .errors import SpecError
from .language import Among, Domain, Function, location, plain

Horizons = Mapping[str | Callable[..., int], int]
"""The greatest value of number fields, by path, and of functions of the state that give a number, by the function."""

MOST = 1_000
"""Of one size: each element has expressions of its own, and nothing explores or proves so many."""

NO_HORIZON: Mapping[str, int] = MappingProxyType({})
NO_MEASURE: Mapping[str, Function] = MappingProxyType({})


@attrs.frozen(eq=False)
class Scope:
    """What exhaustive exploration covers: one policy, and the states within its bounds.

    A transition that would leave the bounds is not taken. ``at_most`` has the horizons, each the greatest value of a
    number field, by its path (``now_ms``, ``record.epoch``, ``ghost.losses``), or of a function in ``measures``, by its
    name; ``within`` says the rest. ``why`` gives the reason of every bound. ``liveness`` is False where the bounds
    themselves keep things from happening (a clock that stands still, say).
    """

    name: str
    why: str
    within: Function | None = None
    policy: object = None
    liveness: bool = True
    at_most: Mapping[str, int] = NO_HORIZON
    measures: Mapping[str, Function] = NO_MEASURE


def scope(
    name: str,
    *,
    why: str,
    at_most: Horizons = MappingProxyType({}),
    within: Callable[..., bool] | None = None,
    policy: object = None,
    liveness: bool = True,
) -> Scope:
    """Declare bounds for exhaustive exploration; *liveness* says whether 'eventually' rules are judged in it."""
    horizons: dict[str, int] = {}
    measures: dict[str, Function] = {}
    for measured, most in at_most.items():
        if type(most) is not int:
            raise SpecError(f"scope {name} bounds {measured} by {most!r}", instead="give an integer")
        if isinstance(measured, str):
            horizons[measured] = most
        else:
            measure = plain(measured)
            horizons[measure.__name__] = most
            measures[measure.__name__] = measure
    function = None if within is None else plain(within)
    return Scope(name, why, function, policy, liveness, MappingProxyType(horizons), MappingProxyType(measures))


def check_horizon(one: Scope, state: object, ghost: object) -> None:
    """Refuse a horizon of *one* that is not of one number: *state* and *ghost* are examples.

    Raises:
        SpecError: with the numbers that there are.
    """
    known = (*_numbers(state, ""), *_numbers(ghost, "ghost"))
    for path in one.at_most:
        if path in one.measures and path in known:
            raise SpecError(f"scope {one.name} bounds {path}, a field and a function", instead="rename the function")
        if path not in one.measures and path not in known:
            raise SpecError(
                f"scope {one.name} bounds {path}, which is no number of the state",
                instead=f"one of {', '.join(known) or 'none'}",
            )


def _numbers(value: object, path: str) -> Iterator[str]:
    """The paths of the integers in *value*, as layouts name them."""
    cls = type(value)
    if isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from _numbers(element, f"{path}[{index}]")
    elif attrs.has(cls):
        for field in attrs.fields(cls):
            yield from _numbers(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
    elif cls is int:
        yield path


def sizes_of(function: Function) -> dict[str, int]:
    """The sizes that an initial state is built with: the parameters that have a default.

    Raises:
        SpecError: when a default is no number of things.
    """
    parameters = inspect.signature(function).parameters.values()
    sizes = {one.name: one.default for one in parameters if one.default is not one.empty}
    for name, number in sizes.items():
        check_size(name, number, function)
    return sizes


def check_size(name: str, number: object, function: Function | None = None) -> None:
    """Refuse *number* unless it is a number of things.

    Raises:
        SpecError: when it is not an integer, below 1, or above :data:`MOST`.
    """
    if type(number) is not int or not 1 <= number <= MOST:
        where = "" if function is None else location(function)
        raise SpecError(f"size {name} is {number!r}", where=where, instead=f"give an integer, from 1 to {MOST}")


def filled(domain: Domain, sizes: Mapping[str, int], where: str) -> Domain:
    """*domain* with the indices below its size, if it is of ``each``.

    Raises:
        SpecError: when there is no such size.
    """
    if not isinstance(domain, Among) or not domain.size:
        return domain
    if domain.size not in sizes:
        raise SpecError(
            f"an input is of the unknown size {domain.size}",
            where=where,
            instead=f"one of {', '.join(sizes)}" if sizes else f"def initial({domain.size}: int = 2) builds the state",
        )
    return Among(tuple(range(sizes[domain.size])), domain.size)
