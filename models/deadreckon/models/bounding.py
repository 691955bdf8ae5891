"""Other bounds for the scopes of a machine: its sizes, the limits of a policy, the horizons of a scope.

A bound is set by its name: a size (``slots``), a number or bool of the policy (``max_attempts``, ``ladder_ms[0]``), or a
horizon (``incarnation``). It holds in every scope that has it; ``SCOPE.NAME`` sets it in one scope alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from deadreckon.spec import CallerError, DeadreckonError, Machine, PolicyError, Refused, Scope

from .layout import Layout

Settings = tuple[tuple[str, int], ...]
"""Names and values (a bool for a bool), in their order: of two for the same thing the last one counts."""


def names(machine: Machine) -> tuple[str, ...]:
    """The bounds of *machine*: sizes, limits, horizons."""
    limits = (path for one in machine.scopes for path in _limits(one))
    horizons = (path for one in machine.scopes for path in one.at_most)
    return tuple(dict.fromkeys((*machine.sizes, *limits, *horizons)))


def own(machine: Machine, bounds: Settings) -> Settings:
    """Those of *bounds* that *machine* has."""
    return tuple((name, value) for name, value in bounds if name in machine.sizes or any(_placed(machine, name)))


def with_bounds(machine: Machine, bounds: Settings) -> Machine:
    """*machine* with other bounds; proofs are untouched, unless a size is another.

    Raises:
        CallerError: when there is no such bound, or the value is none for it.
        SpecError: when the machine can't be built with a size.
        PolicyError: when a policy is not valid.
    """
    for name, _ in bounds:
        if not own(machine, ((name, 0),)):
            raise CallerError(unknown(name, machine))
    sizes = {name: value for name, value in bounds if name in machine.sizes}
    sized = machine.sized(**sizes) if sizes else machine
    changes: dict[str, dict[str, int]] = {one.name: {} for one in machine.scopes}
    for name, value in bounds:
        for scope, field in _placed(machine, name):
            changes[scope.name][field] = value
    if not any(changes.values()):
        return sized
    return attrs.evolve(sized, scopes=tuple(_changed(sized, one, changes[one.name]) for one in sized.scopes))


def unknown(name: str, *machines: Machine) -> str:
    """That none of *machines* has a bound of this name, and which there are."""
    there = "; ".join(f"{one.name} has {', '.join(names(one)) or 'none'}" for one in machines)
    return f"no bound {name}: {there}; SCOPE.NAME sets one in one scope alone"


def _placed(machine: Machine, name: str) -> Iterator[tuple[Scope, str]]:
    """The scopes that *name* is about, and the limit or horizon that it is there."""
    everywhere = name in names(machine)
    for one in machine.scopes:
        field = name if everywhere else name.removeprefix(f"{one.name}.")
        if (everywhere or field != name) and (field in one.at_most or field in _limits(one)):
            yield one, field


def limits_of(scope: Scope) -> dict[str, int]:
    """The limits that the policy of *scope* sets, by name; a bool for a bool."""
    if scope.policy is None:
        return {}
    layout = Layout(scope.policy)
    values = zip(layout.fields, layout.flatten(scope.policy), strict=True)
    return {field.path: bool(value) if field.type is bool else value for field, value in values if field.size == 0}


def _limits(scope: Scope) -> tuple[str, ...]:
    return tuple(limits_of(scope))


def _changed(machine: Machine, scope: Scope, values: Mapping[str, int]) -> Scope:
    horizons = {path: value for path, value in values.items() if path in scope.at_most}
    limits = {path: value for path, value in values.items() if path in _limits(scope)}
    for path, value in horizons.items():
        if type(value) is not int:
            raise CallerError(f"horizon {path} is {value!r}: give an integer")
    policy = _limited(machine, scope.policy, limits) if limits else scope.policy
    return attrs.evolve(scope, policy=policy, at_most={**scope.at_most, **horizons})


def _limited(machine: Machine, policy: object, limits: Mapping[str, int]) -> object:
    """*policy* with other limits, as valid as one that was written."""
    layout = Layout(policy)
    leaves = list(layout.flatten(policy))
    for path, value in limits.items():
        at = layout.index(path)
        if layout.fields[at].type is not type(value):
            wanted = "true or false" if layout.fields[at].type is bool else "an integer"
            raise PolicyError(f"{path} is {value!r}: give {wanted}")
        leaves[at] = int(value)
    said = ", ".join(f"{path} {value}" for path, value in limits.items())
    try:
        built: object = attrs.evolve(layout.rebuild(leaves))  # type: ignore[misc]  # through __init__, which rebuild is not
        valid = machine.policy_valid
        if valid is None or valid(*machine.signature(valid).arguments(built, ())):
            return built
    except Refused as refusal:
        raise PolicyError(f"the policy with {said} is not valid: {refusal.rule}: {refusal.why}") from None
    except DeadreckonError:
        raise
    except (TypeError, ValueError) as wrong:
        raise PolicyError(f"the policy with {said} is not valid: {wrong}") from wrong
    raise PolicyError(f"the policy with {said} is not valid: {valid.__name__} says no")
