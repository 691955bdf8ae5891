"""A machine as a page: text or Markdown from its declaration, a diagram from its explored states."""

from __future__ import annotations

import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum

import attrs

from deadreckon.models.exports.model import model, scope_named
from deadreckon.models.exports.promela import promela
from deadreckon.models.exports.tla import tla, tla_config
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import UNLIMITED, Among, Between, CallerError, Domain, Machine, Rule, Scope

from .diagram import mermaid
from .traces import first_line, policy_words

TEXT, MARKDOWN, MERMAID = "text", "markdown", "mermaid"
FOR_CHECKERS: Mapping[str, Callable[[Relation, Scope], str]] = {
    "promela": lambda traced, scope: promela(model(traced, scope)).text,
    "tla": tla,
    "tla-cfg": tla_config,
}
"""The formats that other model checkers read: one scope each."""

FORMATS = (TEXT, MARKDOWN, MERMAID, *FOR_CHECKERS)
COLUMNS = 120
"""Width of the text form where nobody says how wide the output is."""

LEAST_COLUMNS = 24
HEADED = ("Rules", "Known-bad variants")
"""Tables whose second cell is a word, which stands beside the name."""

SHORT_ROW = 72
"""Characters that every row of a table in the text form has at most beside its name, if rows are to be lines."""


@attrs.frozen
class Section:
    """A part of the page: prose, or a table (a header and rows)."""

    title: str
    prose: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def shown(machine: Machine, form: str, field: str | None, scope: str | None = None, width: int = COLUMNS) -> str:
    """*machine* in *form*; *field* is what a diagram is about, *scope* what another checker is to search.

    Text is laid out for *width* columns; the other forms have lines of their own.

    Raises:
        CallerError: when there is no such scope, or the form has none.
    """
    if scope is not None and form not in FOR_CHECKERS:
        raise CallerError(f"a scope is chosen for {' or '.join(FOR_CHECKERS)} alone; {form} has them all, or the first")
    chosen = scope_named(machine, scope)
    traced = relation(machine)
    if form in FOR_CHECKERS:
        return FOR_CHECKERS[form](traced, chosen)
    if form == MERMAID:
        return mermaid(traced, field)
    title, parts = f"{machine.name}: {machine.title}", sections(traced)
    return "\n".join(_markdown(title, parts) if form == MARKDOWN else _text(title, parts, width)) + "\n"


def sections(traced: Relation) -> list[Section]:
    """The parts of the page."""
    machine = traced.machine
    found = [
        Section("Outline", plain_words(inspect.cleandoc(machine.outline))),
        _fields("State", machine.state, ("field", "type")),
        _fields("Policy", machine.policy, ("parameter", "type", "default")),
        _fields("Ghost: what really happened, seen by rules alone", machine.ghost, ("field", "type", "default")),
        Section(
            "Actions, with what they refuse",
            "",
            ("action", "inputs", "does", "refused, by rule"),
            tuple(_actions(traced)),
        ),
        Section(
            "Rules",
            "",
            ("rule", "kind", "sentence", "source"),
            tuple((rule.id, _kind_words(rule), rule.sentence, rule.source) for rule in machine.rules),
        ),
        Section(
            "Scopes of exhaustive exploration",
            "",
            ("scope", "bounds", "at most", "policy"),
            tuple(
                (one.name, one.why, _horizons(one), policy_words(traced.policy_layout, one.policy))
                for one in machine.scopes
            ),
        ),
        Section(
            "Known-bad variants",
            "",
            ("variant", "broken rule", "what it changes", "seen"),
            tuple((one.name, one.rule, one.sentence, one.seen) for one in machine.variants),
        ),
    ]
    return [section for section in found if section.prose or section.rows]


def _kind_words(rule: Rule) -> str:
    return f"{rule.kind.value}{' (lemma)' if rule.lemma else ''}"


def _horizons(scope: Scope) -> str:
    return ", ".join(f"{path} {most}" for path, most in scope.at_most.items())


def plain_words(text: str) -> str:
    """*text* without the roles that docstrings refer to code by."""
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", text)


def _fields(title: str, cls: type | None, header: tuple[str, ...]) -> Section:
    rows = () if cls is None else tuple(row[: len(header)] for row in _leaves(cls, ""))
    return Section(title, "" if cls is None else plain_words(first_line(cls)), header, rows)


def _leaves(cls: type, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Path, type and default of every field, those of nested classes under theirs."""
    hints = typing.get_type_hints(cls)
    for field in attrs.fields(cls):
        hint = hints[field.name]
        yield prefix + field.name, _type_words(hint), _default_words(field.default)
        inner = next((one for one in (hint, *typing.get_args(hint)) if isinstance(one, type) and attrs.has(one)), None)
        if inner is not None:
            yield from _leaves(inner, f"{prefix}{field.name}{'[]' if inner is not hint else ''}.")


def _default_words(default: object) -> str:
    if default is attrs.NOTHING:
        return ""
    return "unlimited" if default == UNLIMITED else str(default).lower() if isinstance(default, bool) else str(default)


def _type_words(hint: object) -> str:
    if typing.get_origin(hint) is tuple:
        parts = [one for one in typing.get_args(hint) if one is not ...]
        names = list(dict.fromkeys(map(_type_words, parts)))
        return f"tuple of {', '.join(names)}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"{hint.__name__}: {_members(hint)}"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _members(cls: type[Enum]) -> str:
    return ", ".join(one.name.lower().replace("_", " ") for one in cls)


def _actions(traced: Relation) -> Iterator[tuple[str, ...]]:
    for action in traced.machine.actions:
        commands = [command for command in traced.commands if command.action == action.name]
        refusals = dict.fromkeys((rule, why) for command in commands for _, rule, why in command.refusals)
        inputs = "\n".join(f"{name} {_domain(domain)}" for name, domain in action.domains.items())
        refused = "\n".join(f"{rule}: {why}" for rule, why in refusals)
        yield action.name, inputs, plain_words(first_line(action.function)), refused


def _domain(domain: Domain) -> str:
    match domain:
        case Among(values):
            return f"in {', '.join(map(str, values))}"
        case Between(low, high):
            return f"from {low}" + ("" if high is None else f" to {high}")
        case _ if domain is bool:
            return "true or false"
        case _:
            assert issubclass(domain, Enum)
            return f"one of {_members(domain)}"


def _markdown(title: str, parts: Iterable[Section]) -> Iterator[str]:
    yield f"# {title}"
    for part in parts:
        yield from ("", f"## {part.title}")
        if part.prose:
            # An outline is laid out with indents, which Markdown would take for something else.
            fence = ["```text"] if "\n" in part.prose else []
            yield from ("", *fence, part.prose, *(["```"] if fence else []))
        if part.rows:
            yield from ("", _row(part.header), _row(["---"] * len(part.header)), *map(_row, part.rows))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), '<br>') for cell in cells)} |"


def _text(title: str, parts: Iterable[Section], width: int) -> Iterator[str]:
    yield from _hung("", title, width)
    for part in parts:
        yield from ("", part.title.upper())
        yield from _laid_out(part.prose, width)
        names = max((len(row[0]) for row in part.rows), default=0)
        short = len(part.header) < 4 or all(
            len("".join(row[1:])) < SHORT_ROW and "\n" not in "".join(row) for row in part.rows
        )
        for row in part.rows:
            if short:
                yield from _hung(f"  {row[0]:{names}}  ", "  ".join(filter(None, row[1:])), width)
                continue
            head, cells = (f"{row[0]}  {row[1]}", row[2:]) if part.title in HEADED else (row[0], row[1:])
            yield f"  {head}"
            for line in (line for cell in cells for line in cell.splitlines()):
                yield from _hung("      ", line, width)


def _hung(before: str, text: str, width: int) -> list[str]:
    """*text* after *before*, and under itself where *width* makes it go on."""
    wrapped = textwrap.wrap(text, max(width - len(before), LEAST_COLUMNS), break_on_hyphens=False)
    first, *rest = wrapped or [""]
    return [f"{before}{first}".rstrip(), *(" " * len(before) + line for line in rest)]


def _laid_out(prose: str, width: int) -> Iterator[str]:
    """*prose*, whose paragraphs and items are told by their indents, for *width*; as it stands where there is room."""
    lines = [f"  {line}".rstrip() for line in prose.splitlines()]
    if max(map(len, lines), default=0) > width:
        lines = list(_reflowed(lines, width))
    yield from lines


def _reflowed(lines: Iterable[str], width: int) -> Iterator[str]:
    paragraph: tuple[str, list[str]] = ("", [])
    for line in lines:
        before = " " * (len(line) - len(line.lstrip()))
        mark = "* " if line.lstrip().startswith("* ") else ""
        if paragraph[1] and (mark or before != " " * len(paragraph[0])):
            yield from _hung(paragraph[0], " ".join(paragraph[1]), width)
            paragraph = ("", [])
        if not line:
            yield line
        elif paragraph[1]:
            paragraph[1].append(line.strip())
        else:
            paragraph = (before + mark, [line.strip().removeprefix(mark)])
    yield from _hung(paragraph[0], " ".join(paragraph[1]), width)
