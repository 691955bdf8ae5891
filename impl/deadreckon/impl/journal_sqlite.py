"""A journal in one SQLite file, shared by any number of processes: one door, its approvers, whoever looks on.

Theory of operation
    An append is one transaction that nobody can write within (see ``sqlite_file.py``): it reads the living door, the
    key, the hold, the active signing keys and the time, calls the change, and writes facts, hold and key. Offsets are
    an ``AUTOINCREMENT``, so none is used twice. The time is the wall clock of the machine, kept from
    going back by the last time in the file, which all processes share, and from standing still by a steady clock.

    A wait is told at once of what this journal object appends; what others append it finds by looking, after 5 ms, 10
    ms, up to every 100 ms. All waits of one journal share their looks, so that a thousand cost no more than a few.

    A file that is busy or full for a while is *unavailable* (H9): try again. A file that is damaged, foreign, newer or
    can't be written is a fault, for people to mend.

Not covered
    A file that is lost or replaced. Network file systems. Processes on several machines. A wall clock that is set back
    while no process has the file open: what passed meanwhile is not counted.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Final, TypeVar

import attrs

from deadreckon.spec.hold_state import Caller, Evidence, Fact, Release

from .journal import (
    Change,
    Entry,
    Held,
    JournalUnavailable,
    Key,
    Moment,
    Receipt,
    Recorded,
    Verifier,
    admit_door,
    admit_key,
    blank,
    durable,
    successor_door,
)
from .journal_clock import SteadyClock
from .journal_wait import LOOK_FIRST_MS, Listeners
from .sqlite_file import SqliteFile, writing
from .store import StoreCorrupt, StoreFull, StoreLocked
from .timer import SystemTimer, Timer

APPLICATION_ID: Final = 0x4452_4B4A
"""``DRKJ``, in the header of every file of ours."""

MIGRATIONS: Final = (
    (
        """CREATE TABLE life (
            only INTEGER PRIMARY KEY CHECK (only = 1),
            door INTEGER NOT NULL,
            at_ms INTEGER NOT NULL
        ) STRICT""",
        "INSERT INTO life VALUES (1, 0, 0)",
        """CREATE TABLE facts (
            at_offset INTEGER PRIMARY KEY AUTOINCREMENT,
            at_ms INTEGER NOT NULL,
            type TEXT NOT NULL,
            hold_id TEXT NOT NULL,
            body TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX facts_by_hold ON facts (hold_id, at_offset)",
        """CREATE TABLE holds (
            hold_id TEXT UNIQUE NOT NULL,
            finished INTEGER NOT NULL,
            fact TEXT NOT NULL,
            deadline_at_ms INTEGER NOT NULL,
            decided_at_ms INTEGER NOT NULL,
            evidence TEXT NOT NULL,
            approved TEXT NOT NULL,
            releases TEXT NOT NULL,
            caller TEXT NOT NULL,
            requests TEXT NOT NULL,
            asked_by TEXT NOT NULL,
            lease_until_ms INTEGER NOT NULL,
            decided_by TEXT NOT NULL,
            reason TEXT NOT NULL,
            at_offset INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX holds_unfinished ON holds (finished) WHERE finished = 0",
        """CREATE TABLE used_keys (
            key TEXT PRIMARY KEY,
            hold_id TEXT NOT NULL,
            body TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE signing_keys (key_id TEXT PRIMARY KEY, public_key TEXT NOT NULL) STRICT, WITHOUT ROWID",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
)
"""Statements that lead from each version of the schema to the next, beginning with no schema at all."""

_FIELDS: Final = (
    "hold_id, finished, fact, deadline_at_ms, decided_at_ms, evidence, approved, releases, caller, requests, asked_by,"
    " lease_until_ms, decided_by, reason, at_offset"
)
_NAMES: Final = tuple(name.strip() for name in _FIELDS.split(","))
_PUT: Final = (
    f"INSERT INTO holds ({_FIELDS}) VALUES (?{', ?' * (len(_NAMES) - 1)})"
    f" ON CONFLICT (hold_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _NAMES[1:])}"
)

T = TypeVar("T")


class SqliteJournal:
    """A :class:`~deadreckon.impl.Journal` in the SQLite file at *path*, which is made if it doesn't exist.

    ``async with SqliteJournal(path) as journal`` opens the file at once and closes it at the end.

    Args:
        path: the file; its directory must exist, on a local disk.
        timer: its clock; the same for all who use the file.
        verifier: what tells good signatures; the same for all who use the file.
        busy_timeout_ms: how long a call waits for another process that holds the file, in milliseconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        timer: Timer | None = None,
        verifier: Verifier | None = None,
        *,
        busy_timeout_ms: int = 250,
    ) -> None:
        self._file = SqliteFile(path, APPLICATION_ID, lambda: MIGRATIONS, busy_timeout_ms)
        self.path = self._file.path
        self._timer = SystemTimer() if timer is None else timer
        self._verifier = verifier
        self._listeners = Listeners(self._timer)
        self._clock = SteadyClock(self._timer)
        self._newest = 0
        self._looked_at_ms = -LOOK_FIRST_MS

    @property
    def timer(self) -> Timer:
        """See :class:`deadreckon.impl.Journal`."""
        return self._timer

    @property
    def verifier(self) -> Verifier | None:
        """See :class:`deadreckon.impl.Journal`."""
        return self._verifier

    async def __aenter__(self) -> SqliteJournal:
        await self._call(lambda connection: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def now_ms(self) -> int:
        """See :meth:`deadreckon.impl.Journal.now_ms`."""
        return self._clock.now_ms()

    async def claim(self) -> int:
        """See :meth:`deadreckon.impl.Journal.claim`."""

        def work(connection: sqlite3.Connection) -> int:
            with writing(connection):
                door = successor_door(_living(connection))
                connection.execute("UPDATE life SET door = ?", (door,))
                _record(connection, self._time(connection), "", (Entry("door.booted", {"door": door}),))
            return door

        return await self._call(work)

    async def append(
        self, hold_id: str, change: Change, *, door: int | None = None, key: str = "", body: str = ""
    ) -> Receipt:
        """See :meth:`deadreckon.impl.Journal.append`. *change* is called in the journal's thread."""

        def work(connection: sqlite3.Connection) -> Receipt:
            with writing(connection):
                admit_door(door, _living(connection))
                if known := _used(connection, key, body):
                    return Receipt(known, fresh=False)
                moment = Moment(_read(connection, hold_id), _keys(connection), self._time(connection))
                written = change(moment)
                offset = _record(connection, moment.now_ms, hold_id, written.entries) or written.held.offset
                held = attrs.evolve(written.held, hold=durable(written.held.hold), offset=offset)
                connection.execute(_PUT, _columns(held))
                if key:
                    connection.execute("INSERT INTO used_keys VALUES (?, ?, ?)", (key, hold_id, body))
            return Receipt(held, fresh=True)

        receipt = await self._call(work)
        self._newest = max(self._newest, receipt.held.offset)
        self._listeners.tell(receipt.held.hold_id)
        return receipt

    async def renew(self, door: int, hold_ids: Collection[str], until_ms: int) -> None:
        """See :meth:`deadreckon.impl.Journal.renew`."""

        def work(connection: sqlite3.Connection) -> None:
            with writing(connection):
                admit_door(door, _living(connection))
                connection.executemany(
                    "UPDATE holds SET lease_until_ms = ? WHERE hold_id = ?", [(until_ms, one) for one in hold_ids]
                )

        await self._call(work)

    async def read(self, hold_id: str) -> Moment:
        """See :meth:`deadreckon.impl.Journal.read`."""
        return await self._call(
            lambda connection: Moment(_read(connection, hold_id), _keys(connection), self._time(connection, keep=False))
        )

    async def unfinished(self) -> Sequence[Held]:
        """See :meth:`deadreckon.impl.Journal.unfinished`."""
        query = f"SELECT {_FIELDS} FROM holds WHERE finished = 0 ORDER BY rowid"
        return await self._call(lambda connection: [_held(row) for row in connection.execute(query)])

    async def facts(self, after_offset: int = 0, hold_id: str | None = None, limit: int = 1_000) -> Sequence[Recorded]:
        """See :meth:`deadreckon.impl.Journal.facts`."""
        query = (
            "SELECT at_offset, at_ms, type, hold_id, body FROM facts"
            " WHERE at_offset > ? AND (? IS NULL OR hold_id = ?) ORDER BY at_offset LIMIT ?"
        )
        wanted = (after_offset, hold_id, hold_id, limit)

        def work(connection: sqlite3.Connection) -> Sequence[Recorded]:
            rows = connection.execute(query, wanted)
            return [Recorded(offset, at_ms, type_, hold, json.loads(body)) for offset, at_ms, type_, hold, body in rows]

        return await self._call(work)

    async def newest(self) -> int:
        """See :meth:`deadreckon.impl.Journal.newest`."""
        return await self._call(_newest)

    async def wait(self, after_offset: int, timeout_ms: int, hold_id: str | None = None) -> int | None:
        """See :meth:`deadreckon.impl.Journal.wait`."""
        seen = after_offset
        first = True

        async def look() -> int | None:
            nonlocal seen, first
            newest = await self._look(again=not first)
            first = False
            if newest <= seen:
                return None
            seen = newest
            return newest if hold_id is None else await self._last_of(hold_id, after_offset)

        return await self._listeners.wait(look, timeout_ms, hold_id, others=True)

    async def change_key(self, key: Key, *, active: bool, by: str) -> None:
        """See :meth:`deadreckon.impl.Journal.change_key`."""
        entry = Entry("key.added" if active else "key.revoked", {"key": key.key_id, "by": by})

        def work(connection: sqlite3.Connection) -> None:
            with writing(connection):
                connection.execute("DELETE FROM signing_keys WHERE key_id = ?", (key.key_id,))
                if active:
                    connection.execute("INSERT INTO signing_keys VALUES (?, ?)", (key.key_id, key.public_key))
                _record(connection, self._time(connection), "", (entry,))

        await self._call(work)

    async def close(self) -> None:
        """See :meth:`deadreckon.impl.Journal.close`."""
        await self._file.close()

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._file.call(work)
        except (StoreLocked, StoreFull) as fault:
            raise JournalUnavailable(str(fault)) from fault

    async def _look(self, *, again: bool) -> int:
        """The newest offset; if it is looked for *again*, what another wait has seen, or is about to, will do."""
        now_ms = self._timer.now_ms()
        if not again or not 0 <= now_ms - self._looked_at_ms < LOOK_FIRST_MS:
            self._looked_at_ms = now_ms
            self._newest = max(self._newest, await self._call(_newest))
        return self._newest

    async def _last_of(self, hold_id: str, after_offset: int) -> int | None:
        query = "SELECT max(at_offset) FROM facts WHERE hold_id = ? AND at_offset > ?"

        def work(connection: sqlite3.Connection) -> int | None:
            (offset,) = connection.execute(query, (hold_id, after_offset)).fetchone()
            return None if offset is None else int(offset)

        return await self._call(work)

    def _time(self, connection: sqlite3.Connection, *, keep: bool = True) -> int:
        """The time of a transaction: not before any time in the file."""
        (last_ms,) = connection.execute("SELECT at_ms FROM life").fetchone()
        now_ms = self._clock.now_ms(int(last_ms))
        if keep:
            connection.execute("UPDATE life SET at_ms = ?", (now_ms,))
        return now_ms


def _living(connection: sqlite3.Connection) -> int:
    """The door that claimed the file last; 0 if none has."""
    row = connection.execute("SELECT door FROM life").fetchone()
    if row is None:
        raise StoreCorrupt("the row that names the living door is missing")
    return int(row[0])


def _newest(connection: sqlite3.Connection) -> int:
    (offset,) = connection.execute("SELECT max(at_offset) FROM facts").fetchone()
    return 0 if offset is None else int(offset)


def _used(connection: sqlite3.Connection, key: str, body: str) -> Held | None:
    """The hold that *key* was used for, if it was."""
    row = connection.execute("SELECT hold_id, body FROM used_keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    hold_id, known = row
    admit_key(key, body, known)
    return _read(connection, hold_id)


def _keys(connection: sqlite3.Connection) -> tuple[Key, ...]:
    return tuple(Key(*row) for row in connection.execute("SELECT key_id, public_key FROM signing_keys ORDER BY key_id"))


def _record(connection: sqlite3.Connection, now_ms: int, hold_id: str, entries: Sequence[Entry]) -> int:
    """Append facts; the offset of the last one, or 0."""
    offset = 0
    for entry in entries:
        values = (now_ms, entry.type, hold_id, json.dumps(entry.body, sort_keys=True))
        cursor = connection.execute("INSERT INTO facts (at_ms, type, hold_id, body) VALUES (?, ?, ?, ?)", values)
        offset = cursor.lastrowid or 0
    return offset


def _read(connection: sqlite3.Connection, hold_id: str) -> Held | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM holds WHERE hold_id = ?", (hold_id,)).fetchone()
    return None if row is None else _held(row)


def _columns(held: Held) -> tuple[str | int, ...]:
    """The values of :data:`_FIELDS`."""
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


def _held(row: Sequence[str | int]) -> Held:
    """What :func:`_columns` wrote."""
    hold_id, _, fact, deadline, decided, evidence, approved, releases, caller, requests, asked_by, lease, *rest = row
    try:
        asked = tuple(str(one) for one in json.loads(str(requests)))
        hold = attrs.evolve(
            blank(len(asked)),
            fact=Fact(fact),
            deadline_at_ms=int(deadline),
            decided_at_ms=int(decided),
            evidence=Evidence(evidence),
            approved=tuple(bool(one) for one in json.loads(str(approved))),
            releases=tuple(Release(one) for one in json.loads(str(releases))),
            caller=Caller(caller),
        )
        by, reason, offset = rest
        return Held(str(hold_id), hold, asked, str(asked_by), int(lease), str(by), str(reason), int(offset))
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {error}") from error
