"""What a journal's rows mean: written and read in one place, and refused as damage where no version wrote them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import attrs

from deadreckon.spec.hold_state import Caller, Evidence, Fact, Release

from .hold_journal import Entry, Held, Json, Key, Recorded, admit_key, blank, durable
from .store import LARGEST, StoreCorrupt

FIELDS: Final = (
    "hold_id, finished, fact, deadline_at_ms, decided_at_ms, evidence, approved, releases, caller, requests, asked_by,"
    " lease_until_ms, decided_by, reason, at_offset"
)
_NAMES: Final = tuple(name.strip() for name in FIELDS.split(","))
_PUT: Final = (
    f"INSERT INTO holds ({FIELDS}) VALUES (?{', ?' * (len(_NAMES) - 1)})"
    f" ON CONFLICT (hold_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _NAMES[1:])}"
)

T = TypeVar("T")


def life(connection: sqlite3.Connection) -> tuple[int, int]:
    """The door that claimed the file last (0 if none has), and the last time."""
    row = connection.execute("SELECT door, at_ms FROM life").fetchone()
    if row is None or not all(isinstance(one, int) and 0 <= one < LARGEST for one in row):
        raise StoreCorrupt(f"the row that names the living door, and the time, is {row}")
    door, at_ms = row
    return door, at_ms


def newest(connection: sqlite3.Connection) -> int:
    """The offset of the last fact; 0 if there is none."""
    (offset,) = connection.execute("SELECT max(at_offset) FROM facts").fetchone()
    return 0 if offset is None else int(offset)


def used(connection: sqlite3.Connection, key: str, body: str) -> Held | None:
    """The hold that *key* was used for, if it was."""
    row = connection.execute("SELECT hold_id, body FROM used_keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    hold_id, known = row
    admit_key(key, body, known)
    held = read(connection, hold_id)
    if held is None:
        raise StoreCorrupt(f"the hold {hold_id!r}, which a key was used for, is missing")
    return held


def keys(connection: sqlite3.Connection) -> tuple[Key, ...]:
    """The active signing keys."""
    return tuple(Key(*row) for row in connection.execute("SELECT key_id, public_key FROM signing_keys ORDER BY key_id"))


def put_key(connection: sqlite3.Connection, key: Key, *, active: bool) -> None:
    """Add a signing key, or take it away."""
    connection.execute("DELETE FROM signing_keys WHERE key_id = ?", (key.key_id,))
    if active:
        connection.execute("INSERT INTO signing_keys VALUES (?, ?)", (key.key_id, key.public_key))


def revoked(connection: sqlite3.Connection, key_id: str) -> bool:
    """Whether a key of this id was ever revoked."""
    rows = connection.execute("SELECT body FROM facts WHERE hold_id = '' AND type = 'key.revoked'")
    return any(_mapping(body).get("key") == key_id for (body,) in rows)


def record(connection: sqlite3.Connection, now_ms: int, hold_id: str, entries: Sequence[Entry]) -> int | None:
    """Append facts; the offset of the last one, if there is any."""
    offset = None
    for entry in entries:
        values = (now_ms, entry.type, hold_id, json.dumps(entry.body, sort_keys=True))
        cursor = connection.execute("INSERT INTO facts (at_ms, type, hold_id, body) VALUES (?, ?, ?, ?)", values)
        offset = cursor.lastrowid
    return offset


def recorded(row: Sequence[str | int]) -> Recorded:
    """A fact, from its columns."""
    offset, at_ms, type_, hold_id, body = row
    return Recorded(int(offset), int(at_ms), str(type_), str(hold_id), _mapping(body))


def read(connection: sqlite3.Connection, hold_id: str) -> Held | None:
    """A hold, if it is known."""
    row = connection.execute(f"SELECT {FIELDS} FROM holds WHERE hold_id = ?", (hold_id,)).fetchone()
    return None if row is None else held_of(row)


def put(connection: sqlite3.Connection, held: Held, offset: int | None) -> Held:
    """Keep a hold, whose last fact is at *offset* if there is a new one; as it is kept."""
    kept = attrs.evolve(held, hold=durable(held.hold), offset=held.offset if offset is None else offset)
    connection.execute(_PUT, _columns(kept))
    return kept


def _columns(held: Held) -> tuple[str | int, ...]:
    """The values of :data:`FIELDS`."""
    hold = held.hold
    return (
        held.hold_id,
        int(held.finished),
        hold.fact.value,
        hold.deadline_at_ms,
        hold.decided_at_ms,
        hold.evidence.value,
        json.dumps(hold.approved),
        json.dumps([release.value for release in hold.releases]),
        hold.caller.value,
        json.dumps(held.requests),
        held.caller,
        held.lease_until_ms,
        held.by,
        held.reason,
        held.offset,
    )


def held_of(row: Sequence[str | int]) -> Held:
    """A hold, from the columns of :data:`FIELDS`.

    Raises:
        StoreCorrupt: no version of this library writes such a row.
    """
    hold_id, _, fact, deadline, decided, evidence, approved, releases, caller, requests, asked_by, lease, *rest = row
    asked, verdicts, outcomes = _list(requests, str), _list(approved, bool), _list(releases, str)
    if not len(asked) == len(verdicts) == len(outcomes) >= 1:
        raise StoreCorrupt(
            f"hold {hold_id!r} has {len(asked)} requests, {len(verdicts)} verdicts, {len(outcomes)} ends"
        )
    try:
        hold = attrs.evolve(
            blank(len(asked)),
            fact=Fact(fact),
            deadline_at_ms=int(deadline),
            decided_at_ms=int(decided),
            evidence=Evidence(evidence),
            approved=verdicts,
            releases=tuple(Release(one) for one in outcomes),
            caller=Caller(caller),
        )
        by, reason, offset = rest
        return Held(str(hold_id), hold, asked, str(asked_by), int(lease), str(by), str(reason), int(offset))
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {error}") from error


def _loaded(text: object) -> object:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {error}") from error


def _mapping(text: object) -> Mapping[str, Json]:
    body = _loaded(text)
    if not isinstance(body, dict):
        raise StoreCorrupt(f"the body of a fact is {body!r:.60}")
    return body


def _list(text: object, kind: type[T]) -> tuple[T, ...]:
    values = _loaded(text)
    if not isinstance(values, list) or any(type(one) is not kind for one in values):
        raise StoreCorrupt(f"a row holds {values!r:.60}, not a list of {kind.__name__}")
    return tuple(values)
