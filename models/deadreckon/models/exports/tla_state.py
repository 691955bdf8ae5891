"""The state of a machine in TLA+: how it starts, how it is assigned, and which of its permutations is explored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from deadreckon.models.layout import Field, Flat

from .model import Model, comment
from .tla_text import headed, literal

_RESERVED = frozenset(
    [
        "ASSUME",
        "ASSUMPTION",
        "AXIOM",
        "BY",
        "CASE",
        "CHOOSE",
        "CONSTANT",
        "CONSTANTS",
        "COROLLARY",
        "DEF",
        "DEFINE",
        "DEFS",
        "DOMAIN",
        "ELSE",
        "ENABLED",
        "EXCEPT",
        "EXTENDS",
        "HAVE",
        "HIDE",
        "IF",
        "IN",
        "INSTANCE",
        "LAMBDA",
        "LEMMA",
        "LET",
        "LOCAL",
        "MODULE",
        "NEW",
        "OBVIOUS",
        "OMITTED",
        "OTHER",
        "PICK",
        "PROOF",
        "PROPOSITION",
        "PROVE",
        "QED",
        "RECURSIVE",
        "SF_",
        "STATE",
        "SUBSET",
        "SUFFICES",
        "TAKE",
        "TEMPORAL",
        "THEN",
        "THEOREM",
        "UNCHANGED",
        "UNION",
        "USE",
        "VARIABLE",
        "VARIABLES",
        "WF_",
        "WITH",
        "WITNESS",
        "ACTION",
        "ONLY",
    ]
)


def plain(path: str) -> str:
    """*path* with names that TLA+ takes: no reserved words, no foreign letters."""
    return re.sub(r"[^.\[\]]+", lambda part: _name(part[0]), path)


def _name(part: str) -> str:
    name = re.sub(r"\W", "_", part, flags=re.ASCII)
    return f"{name}_" if name in _RESERVED or name.startswith(("WF_", "SF_")) else name


def record(entries: Iterable[tuple[str, str]]) -> list[str]:
    """A record, an entry on a line."""
    lines = [f"{name} |-> {text}," for name, text in entries]
    return headed("[", [*lines[:-1], f"{lines[-1][:-1]}]"])


def initial_state(fields: Sequence[Field], start: Flat) -> list[str]:
    """The conjunction that gives every variable its first value."""
    tree: dict[str, object] = {}
    for field, value in zip(fields, start, strict=True):
        *above, last = re.findall(r"[^.\[\]]+", plain(field.path))
        node = tree
        for name in above:
            inner = node.setdefault(name, {})
            assert isinstance(inner, dict)
            node = inner
        value_ = bool(value) if field.type is bool else value
        node[last] = literal(value_, field if field.size else None)
    return [f"/\\ {name} = {_value(value)}" for name, value in tree.items()]


def _value(tree: object) -> str:
    """A value: a record, a function from 0, or a scalar."""
    if not isinstance(tree, dict):
        return str(tree)
    if all(name.isdecimal() for name in tree):
        return f"({' @@ '.join(f'{name} :> {_value(inner)}' for name, inner in tree.items())})"
    return f"[{', '.join(f'{name} |-> {_value(inner)}' for name, inner in tree.items())}]"


def assigned(variables: Iterable[str], state: str) -> list[str]:
    """Every variable becomes what it is in *state*."""
    return [f"/\\ {name}' = {state}.{name}" for name in variables]


def ordering(written: Model, names: Callable[[str], str]) -> tuple[str, list[str]]:
    """The operator that takes the representative of a state, if elements are interchangeable; and its definitions."""
    groups = list(zip(written.machine.interchangeable, written.symmetry.groups, strict=True))
    if not groups:
        return "", []
    said = "Elements of these are interchangeable: of states that differ by a permutation, the ordered one is kept."
    fields = written.relation.layout.fields
    lines: list[str] = []
    ranks: dict[type, str] = {}
    for column in (columns[0] for _, columns in groups):
        for field in (fields[at] for at in column):
            if field.size and field.type not in ranks:
                name = ranks[field.type] = names(f"{field.type.__name__}_rank")
                members = (f"{literal(at, field)} :> {at}" for at in range(field.size))
                lines += [f"{name} == {' @@ '.join(members)}", ""]
    state, sorters = "after", []
    for at, (paths, columns) in enumerate(groups):
        suffix = str(at) if len(groups) > 1 else ""
        sorters.append(names(f"Sorted{suffix}"))
        precedes = names(f"Precedes{suffix}")
        lines += [*comment(f"{said} {', '.join(paths)}.", "\\*"), f"{precedes}(after, i, j) =="]
        lines += [f"  {line}" for line in _precedes([fields[leaf] for leaf in columns[0]], paths, ranks)]
        lines += ["", f"{sorters[-1]}(after) ==", *_sorter(paths, len(columns), precedes), ""]
        state = f"{sorters[-1]}({state})"
    if len(sorters) == 1:
        return sorters[0], lines
    ordered = names("Ordered")
    return ordered, [*lines, f"{ordered}(after) == {state}", ""]


def _precedes(leaves: Sequence[Field], paths: Sequence[str], ranks: Mapping[type, str]) -> list[str]:
    """The order of elements: by their leaves, as Python compares tuples."""
    found: list[str] = []
    for leaf in reversed(leaves):
        path = next(one for one in paths if leaf.path.startswith(f"{one}["))
        rest = leaf.path[len(path) :].partition("]")[2]
        left, right = (f"after.{plain(path)}[{place}]{plain(rest)}" for place in "ij")
        if leaf.type is bool:
            less = f"(~{left} /\\ {right})"
        else:
            less = "{} < {}".format(
                *((f"{ranks[leaf.type]}[{one}]" for one in (left, right)) if leaf.size else (left, right))
            )
        found = [f"\\/ {less}", *headed("\\/ ", [f"/\\ {left} = {right}", *headed("/\\ ", found)])] if found else [less]
    return found


def _sorter(paths: Sequence[str], size: int, precedes: str) -> list[str]:
    last = size - 1
    moved = [f"              !.{plain(path)} = [i \\in 0..{last} |-> after.{plain(path)}[p[i]]]" for path in paths]
    moved = [f"{line}{']' if line is moved[-1] else ','}" for line in moved]
    return [
        f"  IF \\A i \\in 0..{last - 1} : ~{precedes}(after, i + 1, i) THEN after",
        f"  ELSE LET p == CHOOSE q \\in Permutations(0..{last}) :",
        f"                   \\A i \\in 0..{last - 1} : ~{precedes}(after, q[i + 1], q[i])",
        "       IN  [after EXCEPT",
        *moved,
    ]
