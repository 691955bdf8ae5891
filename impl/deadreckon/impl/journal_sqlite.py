"""Events in one SQLite file, shared by any number of processes: one journal that appends, and whoever reads.

Every write is one transaction that nobody can write within, durable when its call returns; see ``sqlite_file.py``. Each
first reads which incarnation lives, so that another process that claims the file fences this one. A row is a durable
event by being one: the file has no flag that could say otherwise (J4). The number of rows is the last index plus one,
so it can't contradict them (J5); only the high-water mark is a figure of its own (J1).

The file is not checked as a whole when it is opened, for that would read all of it at every wake (J8): damage is told
when a read comes upon it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from deadreckon.spec.journal_state import Fold, Progress

from .journal_store import UNKEPT, Change, Kept, Look, Sight, Writes, sound_rows, sound_sight
from .journal_words import JournalEvent
from .sqlite_file import FileStore, SqliteFile, claimed, living, writing
from .store import LARGEST, StoreCorrupt, admit_caller, successor

APPLICATION_ID: Final = 0x4452_4B45
"""``DRKE``, in the header of every file of events."""

MIGRATIONS: Final = (
    (
        """CREATE TABLE life (
            only INTEGER PRIMARY KEY CHECK (only = 1),
            incarnation INTEGER NOT NULL,
            high INTEGER NOT NULL
        ) STRICT""",
        "INSERT INTO life VALUES (1, 0, 0)",
        """CREATE TABLE events (
            at_offset INTEGER PRIMARY KEY,
            type TEXT NOT NULL,
            body TEXT NOT NULL,
            key TEXT NOT NULL,
            dense INTEGER UNIQUE NOT NULL,
            at_ms INTEGER NOT NULL
        ) STRICT""",
        "CREATE UNIQUE INDEX events_by_key ON events (key) WHERE key <> ''",
        """CREATE TABLE subjects (
            subject TEXT PRIMARY KEY NOT NULL,
            acknowledged INTEGER NOT NULL,
            version INTEGER NOT NULL,
            position INTEGER NOT NULL,
            events INTEGER NOT NULL,
            at_ms INTEGER NOT NULL,
            fold TEXT NOT NULL
        ) STRICT""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
)
"""Statements that lead from each version of the schema to the next, beginning with no schema at all."""

_FIELDS: Final = "at_offset, type, body, key, dense, at_ms"
_PAST: Final = f"SELECT {_FIELDS} FROM events WHERE at_offset > ? AND at_offset <= ? ORDER BY at_offset LIMIT ?"
_LISTED: Final = f"SELECT {_FIELDS} FROM events WHERE dense >= ? ORDER BY dense LIMIT ?"
_KEYED: Final = f"SELECT {_FIELDS} FROM events WHERE key = ? AND key <> ''"
_AT: Final = f"SELECT {_FIELDS} FROM events WHERE at_offset = ?"
_PUT: Final = f"INSERT INTO events ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?)"
_PROGRESS: Final = "SELECT acknowledged, version, position, events, at_ms FROM subjects WHERE subject = ?"
_KEEP: Final = (
    "INSERT INTO subjects VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (subject) DO UPDATE SET"
    " acknowledged = excluded.acknowledged, version = excluded.version, position = excluded.position,"
    " events = excluded.events, at_ms = excluded.at_ms, fold = excluded.fold"
)


class SqliteEvents(FileStore):
    """An :class:`~deadreckon.impl.EventStore` in the SQLite file at *path*, which is made if it doesn't exist.

    ``async with SqliteEvents(path) as store`` opens the file at once and closes it at the end; otherwise it is opened
    by the first call. Each file has one owner at a time, whoever claims it last; anybody may read.

    Args:
        path: the file; its directory must exist, on a local disk.
        busy_timeout_ms: how long a call waits for another process that holds the file, in milliseconds.
    """

    others = True

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_ms: int = 5_000) -> None:
        super().__init__(SqliteFile(path, APPLICATION_ID, lambda: MIGRATIONS, busy_timeout_ms, check_all=False))

    async def claim(self) -> int:
        """See :meth:`deadreckon.impl.EventStore.claim`."""
        return await self._call(lambda connection: claimed(connection, successor))

    async def transact(self, incarnation: int, look: Look, change: Change) -> None:
        """See :meth:`deadreckon.impl.EventStore.transact`. *change* is called in the store's thread."""

        def work(connection: sqlite3.Connection) -> None:
            with writing(connection):
                sight = _sight(connection, look)
                admit_caller(incarnation, sight.incarnation)
                _write(connection, look.subject, sight, change(sight))

        await self._call(work)

    async def look(self, look: Look) -> Sight:
        """See :meth:`deadreckon.impl.EventStore.look`."""

        def work(connection: sqlite3.Connection) -> Sight:
            with reading(connection):
                return _sight(connection, look)

        return await self._call(work)

    async def rows(self, after_offset: int, through_offset: int, limit: int) -> Sequence[JournalEvent]:
        """See :meth:`deadreckon.impl.EventStore.rows`."""
        return await self._page(_PAST, after_offset, through_offset, limit)

    async def listed(self, first_index: int, limit: int) -> Sequence[JournalEvent]:
        """See :meth:`deadreckon.impl.EventStore.listed`."""
        return await self._page(_LISTED, first_index, limit)

    async def _page(self, query: str, *wanted: int) -> Sequence[JournalEvent]:
        return await self._call(
            lambda connection: sound_rows([_event(row) for row in connection.execute(query, wanted)])
        )


@contextmanager
def reading(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that sees the file as it is at one instant."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _life(connection: sqlite3.Connection) -> tuple[int, int]:
    """The incarnation that claimed the file last, and the high-water mark."""
    incarnation = living(connection)
    (high,) = connection.execute("SELECT high FROM life").fetchone()
    if not 0 <= high < LARGEST:
        raise StoreCorrupt(f"the high-water mark is {high}")
    return incarnation, high


def _sight(connection: sqlite3.Connection, look: Look) -> Sight:
    incarnation, high = _life(connection)
    last = connection.execute("SELECT at_offset, dense FROM events ORDER BY at_offset DESC LIMIT 1").fetchone()
    head, index = last or (0, -1)
    found = [*connection.execute(_KEYED, (look.key,))] if look.key else []
    found += [row for offset in look.offsets for row in connection.execute(_AT, (offset,))]
    rows = {row.offset: row for row in map(_event, found)}
    for row in rows.values():
        sound_rows((row,))
    kept = _kept(connection, look) if look.subject else UNKEPT
    return sound_sight(Sight(incarnation, high, head, index + 1, tuple(rows[at] for at in sorted(rows)), kept))


def _kept(connection: sqlite3.Connection, look: Look) -> Kept:
    row = connection.execute(_PROGRESS, (look.subject,)).fetchone()
    if row is None:
        return UNKEPT
    acknowledged, version, position, events, at_ms = row
    progress = Progress(acknowledged, Fold(version, position, events), at_ms)
    return Kept(progress, _fold(connection, look.subject) if look.fold else None)


def _fold(connection: sqlite3.Connection, subject: str) -> str:
    (fold,) = connection.execute("SELECT fold FROM subjects WHERE subject = ?", (subject,)).fetchone()
    return str(fold)


def _write(connection: sqlite3.Connection, subject: str, sight: Sight, writes: Writes) -> None:
    """Keep what a change asks for."""
    if writes.high != sight.high:
        connection.execute("UPDATE life SET high = ?", (writes.high,))
    connection.executemany(
        _PUT, [(row.offset, row.type, row.text, row.key, row.index, row.at_ms) for row in writes.rows]
    )
    if writes.kept is None:
        return
    progress = writes.kept.progress
    if writes.kept.fold is None:
        connection.execute("UPDATE subjects SET acknowledged = ? WHERE subject = ?", (progress.acknowledged, subject))
    else:
        fold = progress.checkpoint
        numbers = (progress.acknowledged, fold.version, fold.position, fold.events, progress.checkpoint_at_ms)
        connection.execute(_KEEP, (subject, *numbers, writes.kept.fold))


def _event(row: Sequence[str | int]) -> JournalEvent:
    """A durable event, from its columns."""
    offset, type_, body, key, index, at_ms = row
    return JournalEvent(int(offset), str(type_), str(body), str(key), False, int(index), int(at_ms))
