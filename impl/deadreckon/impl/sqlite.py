"""A store in one SQLite file.

Theory of operation
    Every write is one transaction, begun with ``BEGIN IMMEDIATE``, so that nobody can write between its read and its
    write (C6). The file is in WAL mode with ``synchronous=FULL``: a commit returns when it is on disk, so what is
    buffered is durable at once and :meth:`SqliteStore.sync` has nothing to wait for. Both settings are read back.
    Every transaction first reads which incarnation lives, so that another process that claims the file fences this
    one, between any two of its writes (C13).

    All work is done in one thread of the store's own: the event loop never waits for the disk, and no two
    transactions of one store overlap.

Schema
    ``user_version`` is the version of the schema. A new file runs all of :data:`MIGRATIONS`, an old one the missing
    ones, in one transaction. Files of a later version are refused untouched, and so are other applications' files.
    ``turns`` is one row for each turn ever begun. Rows of swept incidents stay, as small as they are: they are what
    keeps a finished turn from being run again.

Not covered
    A file that is lost or replaced by an empty one is a new store: counts are forgotten. File systems that lie about
    ``fsync``, and network file systems, which WAL mode can't use.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Final, TypeVar

import attrs

from deadreckon.spec.errors import CallerError
from deadreckon.spec.incident_state import Reason, Record, Status, Turn

from .store import (
    UNKNOWN,
    Change,
    StoreClosed,
    StoreCorrupt,
    Stored,
    StoreFault,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreNewer,
    StoreReadOnly,
    StoreUnavailable,
    admit_caller,
    successor,
)
from .waiting import to_the_end

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

SETTINGS: Final = (("journal_mode", "wal"), ("synchronous", 2), ("fullfsync", 1))
"""Set on each connection and read back; 2 is FULL. ``fullfsync`` matters on macOS alone."""

_FIELDS: Final = (*(field.name for field in attrs.fields(Record)), "produced")
_PUT: Final = f"INSERT OR REPLACE INTO turns (turn_id, {', '.join(_FIELDS)}) VALUES (?{', ?' * len(_FIELDS)})"
_GET: Final = f"SELECT {', '.join(_FIELDS)} FROM turns WHERE turn_id = ?"
_SELECT: Final = (
    f"SELECT turn_id, {', '.join(_FIELDS)} FROM turns"
    " WHERE turn = coalesce(?, turn) AND status = coalesce(?, status) ORDER BY turn_id"
)

_FAULTS: Final[dict[int, type[StoreFault]]] = {
    sqlite3.SQLITE_BUSY: StoreLocked,
    sqlite3.SQLITE_LOCKED: StoreLocked,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_PERM: StoreReadOnly,
    sqlite3.SQLITE_FULL: StoreFull,
}

T = TypeVar("T")


class SqliteStore:
    """A :class:`~deadreckon.impl.Store` in the SQLite file at *path*, which is made if it doesn't exist.

    ``async with SqliteStore(path) as store`` opens the file at once and closes it at the end; otherwise it is opened
    by the first call. Each file has one owner at a time: whoever claims it last.

    Args:
        path: the file; its directory must exist, on a local disk.
        busy_timeout_ms: how long a call waits for another process that holds the file, in milliseconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_ms: int = 5_000) -> None:
        if busy_timeout_ms < 0:
            raise CallerError(f"busy_timeout_ms is {busy_timeout_ms}: give 0 or more")
        self.path = os.fspath(path)
        self._busy_timeout_ms = busy_timeout_ms
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="deadreckon-store")
        self._closed = False

    async def __aenter__(self) -> SqliteStore:
        await self._call(lambda connection: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def claim(self) -> int:
        """See :meth:`deadreckon.impl.Store.claim`."""

        def work(connection: sqlite3.Connection) -> int:
            with _writing(connection):
                identity = successor(_living(connection))
                connection.execute("UPDATE life SET incarnation = ?", (identity,))
            return identity

        return await self._call(work)

    async def transact(self, incarnation: int, turn_id: str, change: Change) -> None:
        """See :meth:`deadreckon.impl.Store.transact`. *change* is called in the store's thread."""

        def work(connection: sqlite3.Connection) -> None:
            with _writing(connection):
                admit_caller(incarnation, _living(connection))
                before = _read(connection, turn_id)
                after = change(before)
                if (after.buffered, after.produced) != (before.buffered, before.produced):
                    connection.execute(_PUT, (turn_id, *_columns(after)))

        await self._call(work)

    async def sync(self, incarnation: int) -> None:
        """See :meth:`deadreckon.impl.Store.sync`. Every write was durable when its call returned."""
        await self._call(lambda connection: admit_caller(incarnation, _living(connection)))

    async def read(self, turn_id: str) -> Stored:
        """See :meth:`deadreckon.impl.Store.read`."""
        return await self._call(lambda connection: _read(connection, turn_id))

    async def select(self, *, turn: Turn | None = None, status: Status | None = None) -> Sequence[tuple[str, Stored]]:
        """See :meth:`deadreckon.impl.Store.select`."""
        wanted = (turn and turn.value, status and status.value)

        def work(connection: sqlite3.Connection) -> Sequence[tuple[str, Stored]]:
            return [(turn_id, _stored(row)) for turn_id, *row in connection.execute(_SELECT, wanted)]

        return await self._call(work)

    async def close(self) -> None:
        """Close the file and end the thread, after the work under way. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            await to_the_end(asyncio.wrap_future(self._thread.submit(self._disconnect)))
            self._thread.shutdown()

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do *work* in the store's thread; a cancellation waits for its end, so that no transaction is torn."""
        if self._closed:
            raise StoreClosed(f"{self.path} was closed")
        return await to_the_end(asyncio.wrap_future(self._thread.submit(self._guarded, work)))

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = _connected(self.path, self._busy_timeout_ms)
            return work(self._connection)
        except sqlite3.Error as error:
            raise _fault(error, self.path) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _connected(path: str, busy_timeout_ms: int) -> sqlite3.Connection:
    """A connection to a sound file of ours, with the schema of this version."""
    connection = sqlite3.connect(path, timeout=busy_timeout_ms / 1_000, isolation_level=None)
    try:
        _refuse_unsuitable(connection, path)
        for name, value in SETTINGS:
            connection.execute(f"PRAGMA {name} = {value}")
            if (found := _pragma(connection, name)) != value:
                raise StoreUnavailable(f"{path}: {name} is {found}, and can't be set to {value}")
        with _writing(connection):
            _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_unsuitable(connection: sqlite3.Connection, path: str) -> None:
    """Refuse what must not be written to, before anything is."""
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreCorrupt(f"{path}: {found}")
    version = _pragma(connection, "user_version")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if _pragma(connection, "application_id") != APPLICATION_ID and (tables or version):
        raise StoreForeign(f"{path} belongs to another application")
    if version > len(MIGRATIONS):
        raise StoreNewer(f"{path} has schema version {version}; this library knows {len(MIGRATIONS)}")


def _migrate(connection: sqlite3.Connection) -> None:
    """Run the migrations that the file lacks; inside a transaction."""
    for steps in MIGRATIONS[_pragma(connection, "user_version") :]:
        for statement in steps:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    """The value of a setting; an integer, but for ``journal_mode``."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value  # type: ignore[no-any-return]  # the driver's rows are untyped


@contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that nobody can write within; nothing of it stays when it fails, commit included."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _living(connection: sqlite3.Connection) -> int:
    """The incarnation that claimed the file last; 0 if nobody has."""
    with closing(connection.execute("SELECT incarnation FROM life")) as rows:
        for (incarnation,) in rows:
            return int(incarnation)
    raise StoreCorrupt("the row that names the living incarnation is missing")


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
    """What :func:`_columns` wrote."""
    turn, status, interrupted, attempts, reason, parked, told, *meters, produced = row
    try:
        owners = tuple(int(owner) for owner in json.loads(str(attempts)))
        words = (Turn(turn), Status(status), int(interrupted), owners, Reason(reason))
        record = Record(*words, bool(parked), bool(told), *(int(meter) for meter in meters))
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {error}") from error
    return Stored(record, record, int(produced))


def _fault(error: sqlite3.Error, path: str) -> StoreFault:
    """The typed error for a failure of the database, told by its code, never by its text."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    primary = code & 0xFF  # the higher bits detail it: https://www.sqlite.org/rescode.html
    return _FAULTS.get(primary, StoreUnavailable)(f"{path}: {error}")
