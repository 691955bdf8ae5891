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

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from . import hold_journal_rows as rows
from .hold_journal import (
    Change,
    Entry,
    Held,
    JournalUnavailable,
    KeyChange,
    Moment,
    Receipt,
    Recorded,
    Verifier,
    admit_door,
    successor_door,
)
from .hold_journal_clock import SteadyClock
from .hold_journal_keys import judged
from .hold_journal_wait import LOOK_FIRST_MS, Listeners
from .sqlite_file import FileStore, SqliteFile, writing
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

T = TypeVar("T")

logger = logging.getLogger("deadreckon.hold")


class SqliteJournal(FileStore):
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
        super().__init__(SqliteFile(path, APPLICATION_ID, lambda: MIGRATIONS, busy_timeout_ms))
        self._timer = SystemTimer() if timer is None else timer
        self._verifier = verifier
        self._listeners = Listeners(self._timer)
        self._clock = SteadyClock(self._timer)
        self._newest = 0
        self._damaged: set[str | int] = set()
        self._looked_at_ms = -LOOK_FIRST_MS

    @property
    def timer(self) -> Timer:
        """See :class:`deadreckon.impl.Journal`."""
        return self._timer

    @property
    def verifier(self) -> Verifier | None:
        """See :class:`deadreckon.impl.Journal`."""
        return self._verifier

    def now_ms(self) -> int:
        """See :meth:`deadreckon.impl.Journal.now_ms`."""
        return self._clock.now_ms()

    async def claim(self) -> int:
        """See :meth:`deadreckon.impl.Journal.claim`."""

        def work(connection: sqlite3.Connection) -> int:
            with writing(connection):
                door = successor_door(rows.life(connection)[0])
                connection.execute("UPDATE life SET door = ?", (door,))
                rows.record(connection, self._time(connection), "", (Entry("door.booted", {"door": door}),))
            return door

        return await self._call(work)

    async def append(
        self, hold_id: str, change: Change, *, door: int | None = None, key: str = "", body: str = ""
    ) -> Receipt:
        """See :meth:`deadreckon.impl.Journal.append`. *change* is called in the journal's thread."""

        def work(connection: sqlite3.Connection) -> Receipt:
            with writing(connection):
                admit_door(door, rows.life(connection)[0])
                if known := rows.used(connection, key, body):
                    return Receipt(known, fresh=False)
                moment = Moment(rows.read(connection, hold_id), rows.keys(connection), self._time(connection))
                written = change(moment)
                offset = rows.record(connection, moment.now_ms, hold_id, written.entries)
                held = rows.put(connection, written.held, offset)
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
                admit_door(door, rows.life(connection)[0])
                connection.executemany(
                    "UPDATE holds SET lease_until_ms = ? WHERE hold_id = ?", [(until_ms, one) for one in hold_ids]
                )

        await self._call(work)

    async def read(self, hold_id: str) -> Moment:
        """See :meth:`deadreckon.impl.Journal.read`."""

        def work(connection: sqlite3.Connection) -> Moment:
            now_ms = self._time(connection, keep=False)
            return Moment(rows.read(connection, hold_id), rows.keys(connection), now_ms)

        return await self._call(work)

    async def unfinished(self) -> Sequence[Held]:
        """See :meth:`deadreckon.impl.Journal.unfinished`. A damaged row is logged, and stops no other hold."""
        query = f"SELECT {rows.FIELDS} FROM holds WHERE finished = 0 ORDER BY rowid"

        def work(connection: sqlite3.Connection) -> Sequence[Held]:
            return [held for row in connection.execute(query) if (held := self._sound(row)) is not None]

        return await self._call(work)

    async def facts(self, after_offset: int = 0, hold_id: str | None = None, limit: int = 1_000) -> Sequence[Recorded]:
        """See :meth:`deadreckon.impl.Journal.facts`."""
        query = (
            "SELECT at_offset, at_ms, type, hold_id, body FROM facts"
            " WHERE at_offset > ? AND (? IS NULL OR hold_id = ?) ORDER BY at_offset LIMIT ?"
        )
        wanted = (after_offset, hold_id, hold_id, limit)

        def work(connection: sqlite3.Connection) -> Sequence[Recorded]:
            return [rows.recorded(row) for row in connection.execute(query, wanted)]

        return await self._call(work)

    async def newest(self) -> int:
        """See :meth:`deadreckon.impl.Journal.newest`."""
        return await self._call(rows.newest)

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

    async def change_key(self, change: KeyChange) -> None:
        """See :meth:`deadreckon.impl.Journal.change_key`."""
        key = change.key

        def work(connection: sqlite3.Connection) -> None:
            with writing(connection):
                revoked = rows.revoked(connection, key.key_id)
                entry = judged(change, rows.keys(connection), revoked, self._verifier)
                if entry is not None:
                    rows.put_key(connection, key, active=change.active)
                    rows.record(connection, self._time(connection), "", (entry,))

        await self._call(work)

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await super()._call(work)
        except (StoreLocked, StoreFull) as fault:
            raise JournalUnavailable(str(fault)) from fault

    async def _look(self, *, again: bool) -> int:
        """The newest offset; if it is looked for *again*, what another wait has seen, or is about to, will do."""
        now_ms = self._timer.now_ms()
        if not again or not 0 <= now_ms - self._looked_at_ms < LOOK_FIRST_MS:
            self._looked_at_ms = now_ms
            self._newest = max(self._newest, await self._call(rows.newest))
        return self._newest

    async def _last_of(self, hold_id: str, after_offset: int) -> int | None:
        query = "SELECT max(at_offset) FROM facts WHERE hold_id = ? AND at_offset > ?"

        def work(connection: sqlite3.Connection) -> int | None:
            (offset,) = connection.execute(query, (hold_id, after_offset)).fetchone()
            return None if offset is None else int(offset)

        return await self._call(work)

    def _sound(self, row: Sequence[str | int]) -> Held | None:
        try:
            return rows.held_of(row)
        except StoreCorrupt as damage:
            if row[0] not in self._damaged:
                self._damaged.add(row[0])
                logger.error("a hold is left alone, since its row is damaged: %s", damage)
            return None

    def _time(self, connection: sqlite3.Connection, *, keep: bool = True) -> int:
        """The time of a transaction: not before any time in the file."""
        now_ms = self._clock.now_ms(rows.life(connection)[1])
        if keep:
            connection.execute("UPDATE life SET at_ms = ?", (now_ms,))
        return now_ms
