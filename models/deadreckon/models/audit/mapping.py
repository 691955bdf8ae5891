"""Maps from the log of another system to the vocabulary: a TOML file that says where types, times and fields are.

    name = "somebody's"
    unwritten = ["count.cleared"]          # what the system does and never writes: hidden steps
    not_observable = ["K3"]                # rules that its log can't show
    records = ["resourceLogs", "logs"]     # lists that one line of the log holds, one in the other
    attributes = "attributes"              # a list of OpenTelemetry key-values, to be read as a mapping
    at = { field = "timestamp", unit = "ms" }
    type = { field = "type", prefix = "events.example.com/" }

    [[line]]
    type = "approval-requested"
    where = { "payload.kind" = "human", "payload.error" = { present = false }, "payload.key" = { starts = "a:" } }
    to = "hold.requested"
    all = "payload"                        # every field of it, under its own name
    [line.fields]
    hold = "offset"                        # a path; or one of
    deadline_at = { path = "payload.expiresAt", unit = "s" }
    requests = { path = "payload.requests", as = "length" }
    attempt = { template = "{payload.id}/{payload.try}" }
    by = { constant = "somebody" }
    outcome = { path = "payload.status", words = { done = "ok" }, otherwise = "error" }

The first entry that fits a record makes its line; a record that none fits is left out. Lines of type ``policy`` and
``log.ended`` are taken as they are.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

import attrs

from deadreckon.spec import CallerError

from .words import Line

SHIPPED: Final = Path(__file__).parent / "maps"
OWN: Final = frozenset({"policy", "log.ended"})
UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}
MISSING: Final = object()
"""What a path leads to where there is nothing."""

Record = Mapping[str, object]
Take = Callable[[Record], object]
Test = Callable[[Record], bool]


@attrs.frozen
class Entry:
    """One kind of record, and the line that it makes.

    Attributes:
        type: its type; a star at the end stands for anything.
        tests: what else must hold of it.
        to: the type of the line; empty: the record's own.
        all: a mapping whose fields are taken as they are; empty: none.
        fields: the fields of the line.
    """

    type: str
    tests: tuple[Test, ...]
    to: str
    all: str
    fields: tuple[tuple[str, Take], ...]

    def fits(self, type_: str, record: Record) -> bool:
        """Whether a record is of this kind."""
        same = type_.startswith(self.type[:-1]) if self.type.endswith("*") else type_ == self.type
        return same and all(test(record) for test in self.tests)


@attrs.frozen
class Map:
    """What makes lines of the records of another system."""

    name: str
    unwritten: frozenset[str]
    not_observable: tuple[str, ...]
    records: tuple[str, ...]
    attributes: str
    at: Take
    type: Take
    prefix: str
    entries: tuple[Entry, ...]

    def lines(self, found: dict[str, object]) -> Iterator[Line | None]:
        """The lines that one object of the log makes; None for a record that no entry fits.

        Raises:
            ValueError: a field is not what the map says.
        """
        if found.get("type") in OWN:
            yield found
            return
        for record in self._unfolded(found, self.records):
            if self.attributes:
                record = {**record, self.attributes: _key_values(record.get(self.attributes))}
            yield self._line(record)

    def _unfolded(self, found: Record, path: tuple[str, ...]) -> Iterator[Record]:
        """The records in it; where a list should be and is none, it is one itself, which fits nothing."""
        inner = found.get(path[0]) if path else None
        if not isinstance(inner, list):
            yield found
            return
        for one in inner:
            if isinstance(one, dict):
                yield from self._unfolded(one, path[1:])

    def _line(self, record: Record) -> Line | None:
        type_ = self.type(record)
        if not isinstance(type_, str) or not type_.startswith(self.prefix):
            return None
        type_ = type_.removeprefix(self.prefix)
        entry = next((one for one in self.entries if one.fits(type_, record)), None)
        if entry is None:
            return None
        line: dict[str, object] = {"at": self.at(record), "type": entry.to or type_}
        if entry.all:
            every = _at(record, entry.all)
            line.update(every if isinstance(every, dict) else {})
        for name, take in entry.fields:
            value = take(record)
            if value is not MISSING:
                line[name] = value
        return line


def read_map(name: str) -> Map:
    """The map in a file, or the shipped one of that name.

    Raises:
        CallerError: there is none, or it is not what a map is.
    """
    shipped = {path.stem: path for path in SHIPPED.glob("*.toml")}
    path = shipped.get(name, Path(name))
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as refusal:
        known = ", ".join(sorted(shipped))
        raise CallerError(f"can't read the map {name}: {refusal.strerror}; shipped ones: {known}") from refusal
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise CallerError(f"the map {name} is no TOML: {fault}") from fault
    return _map(found, name)


def _map(found: Mapping[str, object], name: str) -> Map:
    known = {"name", "unwritten", "not_observable", "records", "attributes", "at", "type", "line"}
    _only(found, known, name)
    at = {"field": "at", "unit": "ms", **_table(found, "at", name)}
    type_ = {"field": "type", "prefix": "", **_table(found, "type", name)}
    _only(at, {"field", "unit"}, f"{name}, at")
    _only(type_, {"field", "prefix"}, f"{name}, type")
    entries = found.get("line", [])
    if not isinstance(entries, list) or not entries:
        raise CallerError(f"the map {name} has no [[line]]")
    return Map(
        _text(found, "name", name, name),
        frozenset(_texts(found, "unwritten", name)),
        _texts(found, "not_observable", name),
        _texts(found, "records", name),
        _text(found, "attributes", name),
        _taken({"path": _text(at, "field", name), "unit": at["unit"]}, name),
        _taken(_text(type_, "field", name), name),
        _text(type_, "prefix", name),
        tuple(_entry(one, name) for one in entries),
    )


def _entry(found: object, name: str) -> Entry:
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise CallerError(f"a [[line]] of the map {name} has no type")
    _only(found, {"type", "where", "to", "all", "fields"}, f"{name}, line {found['type']}")
    return Entry(
        found["type"],
        tuple(_test(path, wanted, name) for path, wanted in _table(found, "where", name).items()),
        _text(found, "to", name),
        _text(found, "all", name),
        tuple((field, _taken(source, name)) for field, source in _table(found, "fields", name).items()),
    )


def _test(path: str, wanted: object, name: str) -> Test:
    """One condition on a record."""
    match wanted:
        case {"present": bool(present), **rest} if not rest:
            return lambda record: (_at(record, path) not in (MISSING, None)) is present
        case {"starts": str(start), **rest} if not rest:
            return lambda record: str(_at(record, path)).startswith(start)
        case dict():
            raise CallerError(
                f"a condition of the map {name} is {path} = {wanted!r}: "
                "give a value, { present = true }, { present = false } or { starts = TEXT }"
            )
    return lambda record: _at(record, path) == wanted


def _taken(source: object, name: str) -> Take:
    """How a field is taken from a record."""
    match source:
        case str():
            return lambda record: _at(record, source)
        case {"constant": constant, **rest} if not rest:
            return lambda record: constant
        case {"template": str(template), **rest} if not rest and re.fullmatch(r"(?:[^{}]|\{[^{}]+\})*", template):
            return lambda record: re.sub(r"\{([^}]+)\}", lambda found: str(_at(record, found[1])), template)
        case {"path": str(path), **rest}:
            return _converted(path, cast("Record", rest), name)
    raise CallerError(
        f"a field of the map {name} is {source!r}: give a path, or one of path, template ('a/{{path}}'), constant"
    )


def _converted(path: str, how: Record, name: str) -> Take:
    """What is at *path*, in another form."""
    match how:
        case {"as": "length", **rest} if not rest:
            return lambda record: (
                len(cast("list[object]", value)) if isinstance(value := _at(record, path), list) else value
            )
        case {"as": "text", **rest} if not rest:
            return lambda record: value if (value := _at(record, path)) is MISSING else str(value)
        case {"words": dict() as words, **rest} if not set(rest) - {"otherwise"}:
            return lambda record: words.get(str(value := _at(record, path)), how.get("otherwise", value))
        case {"unit": str(unit), **rest} if not rest and unit in (*UNITS, "iso"):
            return lambda record: _instant(_at(record, path), unit)
        case {}:
            if not how:
                return lambda record: _at(record, path)
    raise CallerError(
        f"the map {name} takes {path} with {dict(how)!r}: give one of as = length or text, "
        f"words = {{ theirs = ours }} and perhaps otherwise, unit = {', '.join(UNITS)} or iso"
    )


def _instant(value: object, unit: object) -> object:
    """A time in milliseconds, if *unit* says that it is one; a text may be a number, or a time of ISO 8601."""
    if unit is None or value is MISSING or unit == "iso":
        return value
    try:
        number = float(value) if isinstance(value, float) else int(cast("str", value))
    except (TypeError, ValueError):
        return value
    return int(number * UNITS[str(unit)]) // 1_000 if unit != "ns" else int(number) // 1_000_000


def _at(record: object, path: str) -> object:
    """What a dotted path leads to."""
    for name in path.split("."):
        if not isinstance(record, dict) or name not in record:
            return MISSING
        record = record[name]
    return record


def _key_values(found: object) -> dict[str, object]:
    """OpenTelemetry's attributes as a mapping."""
    pairs = found if isinstance(found, list) else []
    return {
        str(pair["key"]): _any_value(pair.get("value")) for pair in pairs if isinstance(pair, dict) and "key" in pair
    }


def _any_value(value: object) -> object:
    if not isinstance(value, dict):
        return value
    for kind, inner in value.items():
        if kind == "intValue":
            return int(inner)
        if kind == "arrayValue":
            return [_any_value(one) for one in inner.get("values", [])]
        if kind in ("stringValue", "boolValue", "doubleValue"):
            return inner
    return None


def _table(found: Mapping[str, object], field: str, name: str) -> dict[str, object]:
    table = found.get(field, {})
    if not isinstance(table, dict):
        raise CallerError(f"{field} of the map {name} is {table!r}: give a table")
    return table


def _texts(found: Mapping[str, object], field: str, name: str) -> tuple[str, ...]:
    texts = found.get(field, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise CallerError(f"{field} of the map {name} is {texts!r}: give a list of texts")
    return tuple(texts)


def _text(found: Mapping[str, object], field: str, name: str, default: str = "") -> str:
    text = found.get(field, default)
    if not isinstance(text, str):
        raise CallerError(f"{field} of the map {name} is {text!r}: give a text")
    return text


def _only(found: Mapping[str, object], known: set[str], name: str) -> None:
    if strange := sorted(set(found) - known):
        raise CallerError(f"the map {name} has no {strange[0]}: one of {', '.join(sorted(known))}")
