"""Requests in one SQLite file, with their timers.

Every write is one transaction that nobody can write within, durable when its call returns; see ``sqlite_file.py``. Each
first reads which incarnation lives, so that another process that claims the file fences this one (Q2). Rows of settled
requests stay: they are what keeps a request from being asked again.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Sequence
from typing import Final

import attrs

from deadreckon.spec.errors import CallerError
from deadreckon.spec.request_state import Reason, Request, Status

from .request_checks import check_id
from .request_store import UNFILED, Change, Filed, admit, sound, successor
from .sqlite_file import FileStore, SqliteFile, claimed, living, writing
from .store import StoreCorrupt

logger = logging.getLogger("deadreckon.request")

APPLICATION_ID: Final = 0x4452_4B52
"""``DRKR``, in the header of every file of requests."""

MIGRATIONS: Final = (
    (
        "CREATE TABLE life (only INTEGER PRIMARY KEY CHECK (only = 1), incarnation INTEGER NOT NULL) STRICT",
        "INSERT INTO life VALUES (1, 0)",
        """CREATE TABLE requests (
            request_id TEXT PRIMARY KEY NOT NULL,
            status TEXT NOT NULL,
            reason TEXT NOT NULL,
            expires_at_ms INTEGER NOT NULL,
            timer_at_ms INTEGER NOT NULL,
            attempts INTEGER NOT NULL,
            owner INTEGER NOT NULL,
            retry_at_ms INTEGER NOT NULL,
            backoff_ms INTEGER NOT NULL,
            told TEXT NOT NULL,
            body TEXT NOT NULL,
            answer TEXT NOT NULL,
            error TEXT NOT NULL,
            opened_at_ms INTEGER NOT NULL,
            dialled_at_ms INTEGER NOT NULL,
            settled_at_ms INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX requests_unfinished ON requests (expires_at_ms) WHERE told <> status",
        "CREATE INDEX requests_by_age ON requests (opened_at_ms)",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
)
"""Statements that lead from each version of the schema to the next, beginning with no schema at all."""

_RECORD: Final = tuple(field.name for field in attrs.fields(Request))
_EXTRA: Final = tuple(field.name for field in attrs.fields(Filed))[1:]
_FIELDS: Final = (*_RECORD, *_EXTRA)
_PUT: Final = f"INSERT OR REPLACE INTO requests (request_id, {', '.join(_FIELDS)}) VALUES (?{', ?' * len(_FIELDS)})"
_GET: Final = f"SELECT {', '.join(_FIELDS)} FROM requests WHERE request_id = ?"
_UNFINISHED: Final = (
    f"SELECT request_id, {', '.join(_FIELDS)} FROM requests WHERE told <> status ORDER BY expires_at_ms, request_id"
)

_LATEST: Final = f"SELECT request_id, {', '.join(_FIELDS)} FROM requests ORDER BY opened_at_ms DESC, request_id LIMIT ?"


class SqliteRequests(FileStore):
    """A :class:`~deadreckon.impl.RequestStore` in the SQLite file at *path*, which is made if it doesn't exist.

    ``async with SqliteRequests(path) as store`` opens the file at once and closes it at the end; otherwise it is opened
    by the first call. Each file has one owner at a time: whoever claims it last.

    Args:
        path: the file; its directory must exist, on a local disk.
        busy_timeout_ms: how long a call waits for another process that holds the file, in milliseconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_ms: int = 5_000) -> None:
        super().__init__(SqliteFile(path, APPLICATION_ID, lambda: MIGRATIONS, busy_timeout_ms))
        self._damaged: set[str] = set()

    async def claim(self) -> int:
        """See :meth:`deadreckon.impl.RequestStore.claim`."""
        return await self._call(lambda connection: claimed(connection, successor))

    async def transact(self, incarnation: int, request_id: str, change: Change) -> None:
        """See :meth:`deadreckon.impl.RequestStore.transact`. *change* is called in the store's thread."""

        def work(connection: sqlite3.Connection) -> None:
            with writing(connection):
                admit(incarnation, living(connection))
                before = _read(connection, request_id)
                after = change(before)
                if after != before:
                    connection.execute(_PUT, (request_id, *_columns(after)))

        await self._call(work)

    async def read(self, request_id: str) -> Filed:
        """See :meth:`deadreckon.impl.RequestStore.read`."""
        return await self._call(lambda connection: _read(connection, request_id))

    async def unfinished(self) -> Sequence[tuple[str, Filed]]:
        """See :meth:`deadreckon.impl.RequestStore.unfinished`. A damaged row is logged, and stops no other request."""
        return await self._call(lambda connection: self._rows(connection, _UNFINISHED))

    async def latest(self, count: int) -> Sequence[tuple[str, Filed]]:
        """See :meth:`deadreckon.impl.RequestStore.latest`. Damaged rows are logged, and left out."""
        return await self._call(lambda connection: self._rows(connection, _LATEST, count))

    async def living(self) -> int:
        """See :meth:`deadreckon.impl.RequestStore.living`."""
        return await self._call(living)

    def _rows(self, connection: sqlite3.Connection, query: str, *arguments: int) -> Sequence[tuple[str, Filed]]:
        """The requests of all rows that are sound."""
        found = []
        for request_id, *row in connection.execute(query, arguments):
            try:
                check_id(request_id)
                found.append((request_id, _filed(row)))
            except (StoreCorrupt, CallerError) as damage:
                if request_id not in self._damaged:
                    self._damaged.add(request_id)
                    logger.error("request %.60r is left alone, since its row is damaged: %s", request_id, damage)
        return found


def _read(connection: sqlite3.Connection, request_id: str) -> Filed:
    row = connection.execute(_GET, (request_id,)).fetchone()
    return UNFILED if row is None else _filed(row)


def _columns(filed: Filed) -> tuple[str | int, ...]:
    """The values of :data:`_FIELDS`; words as their values."""
    record = (getattr(filed.request, name) for name in _RECORD)
    words = (one.value if isinstance(one, Status | Reason) else one for one in record)
    return (*words, *(getattr(filed, name) for name in _EXTRA))


def _filed(row: Sequence[str | int]) -> Filed:
    """What :func:`_columns` wrote."""
    status, reason, *numbers, told = row[: len(_RECORD)]
    body, answer, error, *instants = row[len(_RECORD) :]
    try:
        expires_at, timer_at, attempts, owner, retry_at, backoff = map(int, numbers)
        words = (Status(status), Reason(reason))
        request = Request(*words, expires_at, timer_at, attempts, owner, retry_at, backoff, Status(told))
        filed = Filed(request, str(body), str(answer), str(error), *map(int, instants))
    except (ValueError, TypeError) as fault:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {fault}") from fault
    return sound(filed)
