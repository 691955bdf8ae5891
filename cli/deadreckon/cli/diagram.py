"""A diagram of a machine, drawn from what exploration visits: states told apart by one field, actions merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from enum import Enum

import attrs

from deadreckon.models.compiled import compile_relation
from deadreckon.models.explorer import explore
from deadreckon.models.layout import Field, Flat
from deadreckon.models.relation import Relation
from deadreckon.spec import CallerError

from .traces import GHOST

TELLING = ("status", "phase", "state", "mode")
"""Names that a field about the whole machine usually has, the likeliest first."""


@attrs.frozen
class Projection:
    """The explored graph seen through one field; values are positions, as in a flat state."""

    field: Field
    states: int
    starts: frozenset[int]
    changes: dict[tuple[int, int], tuple[str, ...]]
    values: tuple[int, ...]
    resting: frozenset[int]


def mermaid(traced: Relation, path: str | None) -> str:
    """A Mermaid state diagram of the first scope, by the field *path* or the most telling one."""
    fields = traced.layout.fields
    index = telling(fields) if path is None else _named(fields, path)
    seen = project(traced, index)
    return "\n".join(_lines(traced, seen)) + "\n"


def _named(fields: tuple[Field, ...], path: str) -> int:
    for index, field in enumerate(fields):
        if field.path == path:
            return index
    known = ", ".join(field.path for field in fields if field.type is not int)
    raise CallerError(f"no field {path}: one of {known}")


def telling(fields: tuple[Field, ...]) -> int:
    """The field that tells most of the machine as a whole: a status, as the live process sees it, or the first enum.

    Raises:
        CallerError: when the state holds nothing but integers.
    """
    enums = [index for index, field in enumerate(fields) if issubclass(field.type, Enum)]
    bools = [index for index, field in enumerate(fields) if field.type is bool]
    own = [index for index in (*enums, *bools) if not fields[index].path.startswith(GHOST)]
    if not own:
        raise CallerError("no enum or bool in the state to draw a diagram of: name an integer with --field")

    def rank(index: int) -> tuple[int, bool, int]:
        *above, name = fields[index].path.split(".")
        return (
            TELLING.index(name) if name in TELLING else len(TELLING),
            "durable" in above,  # what was written last comes later than what is known
            own.index(index),
        )

    return min(own, key=rank)


def project(traced: Relation, index: int) -> Projection:
    """Explore the first scope, and note how the field at *index* moves.

    Raises:
        CallerError: when the scope is too large to be explored whole.
    """
    scope = traced.machine.scopes[0]
    found = explore(traced.machine, scope, traced=traced, compare_every=0, keep_graph=True)
    if found.graph is None or not found.complete:
        raise CallerError(f"scope {scope.name} of {traced.machine.name} is too large to draw: {found.stopped}")
    code = compile_relation(traced, scope.policy)
    terminal = code.triggers.get("terminal", _never)
    graph = found.graph
    states = list(graph.index)
    changes: dict[tuple[int, int], set[str]] = defaultdict(set)
    for source, state in enumerate(states):
        for edge in range(graph.offsets[source], graph.offsets[source + 1]):
            after = states[graph.targets[edge]]
            if after[index] != state[index]:
                changes[state[index], after[index]].add(code.instances[graph.labels[edge]].action)
    values = {state[index] for state in states}
    return Projection(
        traced.layout.fields[index],
        len(states),
        frozenset(start[index] for start in code.initial),
        {pair: tuple(sorted(actions)) for pair, actions in sorted(changes.items())},
        tuple(sorted(values)),
        frozenset(values - {state[index] for state in states if not terminal(state)}),
    )


def _never(state: Flat) -> bool:
    return False


def _lines(traced: Relation, seen: Projection) -> Iterator[str]:
    scope = traced.machine.scopes[0].name
    yield "stateDiagram-v2"
    yield f"    %% {traced.machine.name}: {seen.field.path} over {seen.states} states of scope {scope}"
    yield "    %% steps that leave the field as it is are not drawn"
    for value in seen.values:
        yield f'    state "{seen.field.words(value)}" as {_name(value)}'
    for value in sorted(seen.starts):
        yield f"    [*] --> {_name(value)}"
    for (before, after), actions in seen.changes.items():
        yield f"    {_name(before)} --> {_name(after)}: {', '.join(actions)}"
    for value in sorted(seen.resting):
        yield f"    {_name(value)} --> [*]"


def _name(value: int) -> str:
    return f"v{value}".replace("-", "_")
