"""How policies, inputs and states are written as JSON, and read back.

    ==============  ============================================================================
    in the machine  in JSON
    ==============  ============================================================================
    integer         integer; ``UNLIMITED`` is ``"unlimited"``
    bool            true, false
    enum member     its name: ``"YIELDED"``
    tuple           list
    attrs class     object; a state is written flat, under dotted paths: ``"durable.attempts[0]"``
    ==============  ============================================================================

What can't be read raises ``ValueError``, which says what was wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from deadreckon.spec import UNLIMITED, Machine
from deadreckon.spec.language import Among, Between, Domain

from .driver import leaves
from .layout import Field, Leaf, parts

Json = object
"""What ``json`` reads and writes."""

NO_LIMIT = "unlimited"


def written(value: object) -> Json:
    """A policy, an input, or a part of them."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, tuple):
        return [written(one) for one in value]
    if (names := parts(value)) is not None:
        return {name: written(getattr(value, name)) for name in names}
    return NO_LIMIT if type(value) is int and value == UNLIMITED else value


def written_state(state: object) -> dict[str, Json]:
    """A state, or what a driver observes of it, under dotted paths."""
    observed = state.items() if isinstance(state, Mapping) else leaves(state)
    return {path: written(value) for path, value in observed}


def read_leaf(json: Json, kind: Leaf) -> object:
    """An integer, a bool or an enum member."""
    if issubclass(kind, Enum):
        if not isinstance(json, str) or json not in kind.__members__:
            raise ValueError(f"{json!r} is none of {', '.join(kind.__members__)}")
        return kind.__members__[json]
    if kind is int and json == NO_LIMIT:
        return UNLIMITED
    if type(json) is not kind:
        raise ValueError(f"{json!r} is no {'integer' if kind is int else 'true or false'}")
    return json


def read_state(json: Json, fields: Iterable[Field]) -> dict[str, object]:
    """What was observed: as many of *fields* as were told, and no others."""
    kinds = {field.path: field.type for field in fields}
    observed = {}
    for path, value in members(json).items():
        if path not in kinds:
            raise ValueError(f"{path!r} is no field of the state: one of {', '.join(kinds)}")
        try:
            observed[path] = read_leaf(value, kinds[path])
        except ValueError as wrong:
            raise ValueError(f"{path}: {wrong}") from None
    return observed


def read_inputs(machine: Machine, action: str, json: Json) -> dict[str, object]:
    """Inputs of *action*: all of them, or as many as are told."""
    domains = machine.action(action).domains
    inputs = {}
    for name, value in members(json).items():
        if name not in domains:
            raise ValueError(f"{action} has no input {name!r}: {', '.join(domains) or 'it has none'}")
        inputs[name] = read_leaf(value, _kind(domains[name]))
    return inputs


def _kind(domain: Domain) -> Leaf:
    match domain:
        case Among(values):
            kind = type(values[0])
            assert issubclass(kind, int | Enum)
            return kind
        case Between():
            return int
        case _:
            return domain


def read_policy(machine: Machine, json: Json) -> object:
    """A policy of *machine*: fields that are left out keep their defaults. None for a machine without policy."""
    cls = machine.policy
    if cls is None:
        return None
    try:
        return cls(**{name: _read_part(value) for name, value in members(json).items()})
    except TypeError as wrong:
        raise ValueError(str(wrong)) from wrong


def _read_part(json: Json) -> object:
    if json == NO_LIMIT:
        return UNLIMITED
    return tuple(map(_read_part, json)) if isinstance(json, list) else json


def members(json: Json) -> dict[str, Json]:
    """The members of an object."""
    if not isinstance(json, dict):
        raise ValueError(f"{json!r} is no object")
    return json
