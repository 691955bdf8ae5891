"""One SQLite file of ours: how it is opened, checked, migrated, written to, and what its failures are called.

Theory of operation
    Every write is one transaction, begun with ``BEGIN IMMEDIATE``, so that nobody can write between its read and its
    write. The file is in WAL mode with ``synchronous=FULL``: a commit returns when it is on disk. Both settings are
    read back. ``user_version`` is the version of the schema: a new file runs all migrations, an old one the missing
    ones, in one transaction. Files of a later version are refused untouched, and so are other applications' files.

    All work is done in one thread: the event loop never waits for the disk, and no two transactions of one connection
    overlap.

    A file that has one owner at a time has a table ``life`` of one row, whose ``incarnation`` claimed it last. Every
    transaction of its store reads that first, so that another process that claims the file fences this one.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

from deadreckon.spec.errors import CallerError

from .store import (
    LARGEST,
    StoreClosed,
    StoreCorrupt,
    StoreFault,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreNewer,
    StoreReadOnly,
    StoreUnavailable,
)
from .waiting import to_the_end

T = TypeVar("T")

Migrations = Sequence[Sequence[str]]
"""Statements that lead from each version of a schema to the next, beginning with no schema at all."""

SETTINGS: Final = (("journal_mode", "wal"), ("synchronous", 2), ("fullfsync", 1))
"""Set on each connection and read back; 2 is FULL. ``fullfsync`` matters on macOS alone."""

_FAULTS: Final[dict[int, type[StoreFault]]] = {
    sqlite3.SQLITE_ERROR: StoreCorrupt,  # our statements are sound: the file lacks a table or a column of its version
    sqlite3.SQLITE_BUSY: StoreLocked,
    sqlite3.SQLITE_LOCKED: StoreLocked,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_PERM: StoreReadOnly,
    sqlite3.SQLITE_FULL: StoreFull,
}


class SqliteFile:
    """The file at *path*, opened by the first call, in a thread of its own.

    Args:
        path: the file; its directory must exist, on a local disk.
        application_id: in the header of every file of this kind.
        migrations: asked for when the file is opened.
        busy_timeout_ms: how long a call waits for another process that holds the file, in milliseconds.
        check_all: whether all of the file is checked when it is opened, in time that grows with it. If not, damage is
            told when a read comes upon it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        application_id: int,
        migrations: Callable[[], Migrations],
        busy_timeout_ms: int,
        *,
        check_all: bool = True,
    ) -> None:
        if type(busy_timeout_ms) is not int or busy_timeout_ms < 0:
            raise CallerError(f"busy_timeout_ms is {busy_timeout_ms!r}: give 0 or more")
        if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path):
            raise CallerError(f"path is {path!r:.60}: give the path of a file")
        self.path = os.fspath(path)
        self._application_id = application_id
        self._migrations = migrations
        self._busy_timeout_ms = busy_timeout_ms
        self._check_all = check_all
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="deadreckon-store")
        self._closed = False

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do *work* in the thread; a cancellation waits for its end, so that no transaction is torn."""
        if self._closed:
            raise StoreClosed(f"{self.path} was closed")
        return await to_the_end(asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work))

    async def close(self) -> None:
        """Close the file and end the thread, after the work under way. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            await to_the_end(asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect))
            self._thread.shutdown()

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._connected()
            return work(self._connection)
        except sqlite3.Error as error:
            raise fault(error, self.path) from error
        except OverflowError as error:
            raise StoreUnavailable(f"{self.path}: a number is too large to be kept: {error}") from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        """A connection to a sound file of ours, with the schema of this version."""
        connection = sqlite3.connect(self.path, timeout=self._busy_timeout_ms / 1_000, isolation_level=None)
        try:
            self._refuse_unsuitable(connection)
            for name, value in SETTINGS:
                connection.execute(f"PRAGMA {name} = {value}")
                if (found := pragma(connection, name)) != value:
                    raise StoreUnavailable(f"{self.path}: {name} is {found}, and can't be set to {value}")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_unsuitable(self, connection: sqlite3.Connection) -> None:
        """Refuse what must not be written to, before anything is."""
        if self._check_all:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise StoreCorrupt(f"{self.path}: {found}")
        version, newest = pragma(connection, "user_version"), len(self._migrations())
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if pragma(connection, "application_id") != self._application_id and (tables or version):
            raise StoreForeign(f"{self.path} belongs to another application")
        if version > newest:
            raise StoreNewer(f"{self.path} has schema version {version}; this library knows {newest}")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Run the migrations that the file lacks."""
        with writing(connection):
            for steps in self._migrations()[pragma(connection, "user_version") :]:
                for statement in steps:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(self._migrations())}")


class FileStore:
    """What every store in a file has: ``async with`` opens the file at once, and closes it at the end.

    Without it the file is opened by the first call.

    Attributes:
        path: the file.
    """

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.path = file.path

    async def __aenter__(self) -> Self:
        await self._call(lambda connection: None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the file and end the thread, after the work under way. Closing again does nothing."""
        await self._file.close()

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._file.call(work)


def living(connection: sqlite3.Connection) -> int:
    """The incarnation that claimed the file last; 0 if nobody has.

    Raises:
        StoreCorrupt: the row that says it is missing, or says what no incarnation is called.
    """
    row = connection.execute("SELECT incarnation FROM life").fetchone()
    if row is None or not 0 <= row[0] < LARGEST:
        raise StoreCorrupt(f"the row that names the living incarnation is {row}")
    return int(row[0])


def claimed(connection: sqlite3.Connection, successor: Callable[[int], int]) -> int:
    """Begin a new incarnation, in a transaction of its own; its identity."""
    with writing(connection):
        identity = successor(living(connection))
        connection.execute("UPDATE life SET incarnation = ?", (identity,))
    return identity


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """The value of a setting; an integer, but for ``journal_mode``."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return value  # type: ignore[no-any-return]  # the driver's rows are untyped


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction that nobody can write within; nothing of it stays when it fails, commit included."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def fault(error: sqlite3.Error, path: str) -> StoreFault:
    """The typed error for a failure of the database, told by its code, never by its text."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:  # the driver's own: of these, only text that is no UTF-8 is an operational error
        kind: type[StoreFault] = StoreCorrupt if isinstance(error, sqlite3.OperationalError) else StoreUnavailable
    else:
        kind = _FAULTS.get(code & 0xFF, StoreUnavailable)  # the higher bits are details: sqlite.org/rescode.html
    return kind(f"{path}: {error}")
