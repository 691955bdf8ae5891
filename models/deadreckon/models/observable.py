"""What an implementation can report of each machine's state: the tables of ``docs/conform.md``.

    python -m deadreckon.models.observable

Ghosts are left out, since nobody can observe them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from deadreckon.spec import Machine

from .layout import Field, Layout

INDEX = re.compile(r"\[(\d+)\]")


def observable(machine: Machine) -> Iterator[str]:
    """A Markdown table: paths, and what may stand there. Elements of tuples, and records of one class, share a row."""
    policy = machine.scopes[0].policy
    initial = machine.initial[0]
    layout = Layout(initial(*machine.signature(initial).arguments(policy, ())))
    yield "| path | value |"
    yield "| --- | --- |"
    for value, paths in _rows(layout.fields):
        yield f"| {', '.join(f'`{path}`' for path in paths)} | {value} |"


def _rows(fields: tuple[Field, ...]) -> Iterator[tuple[str, list[str]]]:
    """What may stand under which paths: ``x[0]`` and ``x[1]`` are ``x[0..1]``; ``a.x`` and ``b.x`` stand together."""
    ranges: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for field in fields:
        pattern = INDEX.sub("[*]", field.path)
        kinds[pattern] = values(field)
        ranges[pattern] = max(ranges.get(pattern, 0), *map(int, INDEX.findall(field.path)), 0)
    rows: dict[tuple[str, str], list[str]] = {}
    for pattern, value in kinds.items():
        path = pattern.replace("[*]", f"[0..{ranges[pattern]}]")
        rows.setdefault((path.partition(".")[2] or path, value), []).append(path)
    yield from ((value, paths) for (_, value), paths in rows.items())


def values(field: Field) -> str:
    """What may stand in a field."""
    if issubclass(field.type, Enum):
        return ", ".join(f'`"{name}"`' for name in field.type.__members__)
    return "true, false" if field.type is bool else "integer"


if __name__ == "__main__":
    from deadreckon.spec.machines import MACHINES

    for one in MACHINES.values():
        print(f"### {one.name}\n", *observable(one), "", sep="\n")
