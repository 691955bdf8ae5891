"""A store in one SQLite file.

Theory of operation
    Every write is one transaction that nobody can write within (C6), see ``sqlite_file.py``. A commit returns when it
    is on disk, so what is buffered is durable at once and :meth:`SqliteStore.sync` has nothing to wait for.
    Every transaction first reads which incarnation lives, so that another process that claims the file fences this
    one, between any two of its writes (C13).

Schema
    ``turns`` is one row for each turn ever begun. Rows of swept incidents stay, as small as they are: they are what
    keeps a finished turn from being run again.

Not covered
    A file that is lost or replaced by an empty one is a new store: counts are forgotten. File systems that lie about
    ``fsync``, and network file systems, which WAL mode can't use.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from typing import Final

import attrs

from deadreckon.spec.incident_lemmas import well_formed
from deadreckon.spec.incident_state import Reason, Record, Status, Turn

from .sqlite_file import FileStore, SqliteFile, claimed, living, writing
from .store import UNKNOWN, Change, StoreCorrupt, Stored, admit_caller, successor

APPLICATION_ID: Final = 0x4452_4B4E
"""``DRKN``, in the header of every file of ours."""

MIGRATIONS: Final = (
    (
        "CREATE TABLE life (only INTEGER PRIMARY KEY CHECK (only = 1), incarnation INTEGER NOT NULL) STRICT",
        "INSERT INTO life VALUES (1, 0)",
        """CREATE TABLE turns (
            turn_id TEXT PRIMARY KEY NOT NULL,
            turn TEXT NOT NULL,
            status TEXT NOT NULL,
            interrupted INTEGER NOT NULL,
            attempts TEXT NOT NULL,
            reason TEXT NOT NULL,
            parked INTEGER NOT NULL,
            terminal_delivered INTEGER NOT NULL,
            attempt INTEGER NOT NULL,
            progress INTEGER NOT NULL,
            work_baseline INTEGER NOT NULL,
            last_progress_at_ms INTEGER NOT NULL,
            last_attempt_at_ms INTEGER NOT NULL,
            produced INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX turns_by_state ON turns (turn, status)",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
    ("ALTER TABLE turns ADD COLUMN transient_retries INTEGER NOT NULL DEFAULT 0",),
)
"""Statements that lead from each version of the schema to the next, beginning with no schema at all."""

_FIELDS: Final = (*(field.name for field in attrs.fields(Record)), "produced")
_PUT: Final = f"INSERT OR REPLACE INTO turns (turn_id, {', '.join(_FIELDS)}) VALUES (?{', ?' * len(_FIELDS)})"
_GET: Final = f"SELECT {', '.join(_FIELDS)} FROM turns WHERE turn_id = ?"
_SELECT: Final = (
    f"SELECT turn_id, {', '.join(_FIELDS)} FROM turns"
    " WHERE turn = coalesce(?, turn) AND status = coalesce(?, status) ORDER BY turn_id"
)


class SqliteStore(FileStore):
    """A :class:`~deadreckon.impl.Store` in the SQLite file at *path*, which is made if it doesn't exist.

    ``async with SqliteStore(path) as store`` opens the file at once and closes it at the end; otherwise it is opened
    by the first call. Each file has one owner at a time: whoever claims it last.

    Args:
        path: the file; its directory must exist, on a local disk.
        busy_timeout_ms: how long a call waits for another process that holds the file, in milliseconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_ms: int = 5_000) -> None:
        super().__init__(SqliteFile(path, APPLICATION_ID, lambda: MIGRATIONS, busy_timeout_ms))

    async def claim(self) -> int:
        """See :meth:`deadreckon.impl.Store.claim`."""
        return await self._call(lambda connection: claimed(connection, successor))

    async def transact(self, incarnation: int, turn_id: str, change: Change) -> None:
        """See :meth:`deadreckon.impl.Store.transact`. *change* is called in the store's thread."""

        def work(connection: sqlite3.Connection) -> None:
            with writing(connection):
                admit_caller(incarnation, living(connection))
                before = _read(connection, turn_id)
                after = change(before)
                if (after.buffered, after.produced) != (before.buffered, before.produced):
                    connection.execute(_PUT, (turn_id, *_columns(after)))

        await self._call(work)

    async def sync(self, incarnation: int) -> None:
        """See :meth:`deadreckon.impl.Store.sync`. Every write was durable when its call returned."""
        await self._call(lambda connection: admit_caller(incarnation, living(connection)))

    async def read(self, turn_id: str) -> Stored:
        """See :meth:`deadreckon.impl.Store.read`."""
        return await self._call(lambda connection: _read(connection, turn_id))

    async def select(self, *, turn: Turn | None = None, status: Status | None = None) -> Sequence[tuple[str, Stored]]:
        """See :meth:`deadreckon.impl.Store.select`."""
        wanted = (turn and turn.value, status and status.value)

        def work(connection: sqlite3.Connection) -> Sequence[tuple[str, Stored]]:
            return [(turn_id, _stored(row)) for turn_id, *row in connection.execute(_SELECT, wanted)]

        return await self._call(work)


def _read(connection: sqlite3.Connection, turn_id: str) -> Stored:
    row = connection.execute(_GET, (turn_id,)).fetchone()
    return UNKNOWN if row is None else _stored(row)


def _columns(stored: Stored) -> tuple[str | int, ...]:
    """The values of :data:`_FIELDS`."""
    record = stored.buffered
    return (
        record.turn.value,
        record.status.value,
        record.interrupted,
        json.dumps(record.attempts),
        record.reason.value,
        int(record.parked),
        int(record.terminal_delivered),
        record.attempt,
        record.progress,
        record.work_baseline,
        record.last_progress_at_ms,
        record.last_attempt_at_ms,
        record.transient_retries,
        stored.produced,
    )


def _stored(row: Sequence[str | int]) -> Stored:
    """What :func:`_columns` wrote; a record that the machine can't reach, as its lemmas prove, is damage."""
    turn, status, interrupted, attempts, reason, parked, told, *meters, produced = row
    try:
        owners = tuple(int(owner) for owner in json.loads(str(attempts)))
        words = (Turn(turn), Status(status), int(interrupted), owners, Reason(reason))
        record = Record(*words, bool(parked), bool(told), *(int(meter) for meter in meters))
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {error}") from error
    if not well_formed(record) or any(owner < 0 for owner in owners):
        raise StoreCorrupt(f"a row holds what no version of this library writes: {record} is not reachable")
    return Stored(record, record, int(produced))
