"""Hosts in one SQLite file, with their alarms.

Every write is one transaction that nobody can write within, durable when its call returns; see ``sqlite_file.py``. Each
first reads which incarnation lives, so that another process that claims the file fences this one (K5). The alarms are a
table of their own, written in transactions of their own: whoever wants another platform to wake the service, reads them.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from deadreckon.spec.errors import PolicyError
from deadreckon.spec.keepalive_state import NEVER, Cleared, KeepalivePolicy, Record

from .keepalive_store import UNFILED, Change, Claim, Evidence, Filed, admit, sound, successor
from .sqlite_file import FileStore, SqliteFile, living, pragma, writing
from .store import StoreCorrupt

logger = logging.getLogger("deadreckon.keepalive")

APPLICATION_ID: Final = 0x4452_4B4B
"""``DRKK``, in the header of every file of hosts."""

MIGRATIONS: Final = (
    (
        """CREATE TABLE life (
            only INTEGER PRIMARY KEY CHECK (only = 1),
            incarnation INTEGER NOT NULL,
            version INTEGER NOT NULL,
            policy TEXT NOT NULL
        ) STRICT""",
        "INSERT INTO life VALUES (1, 0, 1, '{}')",
        "CREATE TABLE versions (number INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL) STRICT",
        """CREATE TABLE hosts (
            host TEXT PRIMARY KEY NOT NULL,
            revivals INTEGER NOT NULL,
            last_revival_at_ms INTEGER NOT NULL,
            version INTEGER NOT NULL,
            armed_at_ms INTEGER NOT NULL,
            record_lifetime INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            lifetime_total INTEGER NOT NULL,
            cleared_by TEXT NOT NULL,
            lifetime INTEGER NOT NULL,
            owed TEXT NOT NULL,
            reset_by TEXT NOT NULL,
            reset_at_ms INTEGER NOT NULL,
            child TEXT NOT NULL
        ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE alarms (host TEXT PRIMARY KEY NOT NULL, at_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        """CREATE TABLE evidence (
            host TEXT NOT NULL,
            version INTEGER NOT NULL,
            epoch INTEGER NOT NULL,
            revivals INTEGER NOT NULL,
            at_ms INTEGER NOT NULL,
            text TEXT NOT NULL,
            PRIMARY KEY (host, version, epoch)
        ) STRICT, WITHOUT ROWID""",
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
)
"""Statements that lead from each version of the schema to the next, beginning with no schema at all."""

_EVIDENCE: Final = tuple(field.name for field in attrs.fields(Evidence))
_PUT: Final = f"INSERT OR REPLACE INTO hosts VALUES ({', '.join('?' * 14)})"
_TELL: Final = f"INSERT INTO evidence (host, {', '.join(_EVIDENCE)}) VALUES ({', '.join('?' * 6)})"
_GET: Final = (
    "SELECT hosts.*, coalesce(alarms.at_ms, -1) FROM hosts LEFT JOIN alarms USING (host)"
    " WHERE host = coalesce(?, host) ORDER BY host"
)
_TOLD: Final = f"SELECT {', '.join(_EVIDENCE)} FROM evidence WHERE host = ? ORDER BY epoch"
_SET: Final = "INSERT OR REPLACE INTO alarms VALUES (?, ?)"
_CLEAR: Final = "DELETE FROM alarms WHERE host = ?"


class SqliteKeepalive(FileStore):
    """A :class:`~deadreckon.impl.KeepaliveStore` in the SQLite file at *path*, which is made if it doesn't exist.

    ``async with SqliteKeepalive(path) as store`` opens the file at once and closes it at the end; otherwise it is opened
    by the first call. Each file has one owner at a time: whoever claims it last.

    Args:
        path: the file; its directory must exist, on a local disk.
        busy_timeout_ms: how long a call waits for another process that holds the file, in milliseconds.
    """

    others = True

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout_ms: int = 5_000) -> None:
        super().__init__(SqliteFile(path, APPLICATION_ID, lambda: MIGRATIONS, busy_timeout_ms))
        self._damaged: set[str] = set()

    async def claim(self, version: str, policy: KeepalivePolicy) -> Claim:
        """See :meth:`deadreckon.impl.KeepaliveStore.claim`."""

        def work(connection: sqlite3.Connection) -> Claim:
            with writing(connection):
                incarnation = successor(_living(connection).incarnation)
                connection.execute("INSERT OR IGNORE INTO versions (name) VALUES (?)", (version,))
                (number,) = connection.execute("SELECT number FROM versions WHERE name = ?", (version,)).fetchone()
                words = (incarnation, number, json.dumps(attrs.asdict(policy)))
                connection.execute("UPDATE life SET incarnation = ?, version = ?, policy = ?", words)
            return Claim(incarnation, number, policy)

        return await self._call(work)

    async def transact(self, incarnation: int, host: str, change: Change) -> Filed:
        """See :meth:`deadreckon.impl.KeepaliveStore.transact`. *change* is called in the store's thread."""

        def work(connection: sqlite3.Connection) -> Filed:
            with writing(connection):
                admit(incarnation, _living(connection).incarnation)
                before = _read(connection, host)
                after = attrs.evolve(change(before), alarm_at_ms=before.alarm_at_ms)
                if after != before:
                    connection.execute(_PUT, (host, *_columns(after)))
                for evidence in after.evidence[len(before.evidence) :]:
                    connection.execute(_TELL, (host, *attrs.astuple(evidence)))
            return after

        return await self._call(work)

    async def arm(self, incarnation: int, host: str, at_ms: int) -> bool:
        """See :meth:`deadreckon.impl.KeepaliveStore.arm`."""
        return await self._set(incarnation, host, at_ms, lambda filed: filed.armed_at_ms == at_ms)

    async def use_up(self, incarnation: int, host: str, at_ms: int) -> bool:
        """See :meth:`deadreckon.impl.KeepaliveStore.use_up`."""
        return await self._set(incarnation, host, NEVER, lambda filed: filed.alarm_at_ms == at_ms)

    async def _set(self, incarnation: int, host: str, at_ms: int, may: Callable[[Filed], bool]) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            with writing(connection):
                admit(incarnation, _living(connection).incarnation)
                if not may(_read(connection, host)):
                    return False
                if at_ms == NEVER:
                    connection.execute(_CLEAR, (host,))
                else:
                    connection.execute(_SET, (host, at_ms))
            return True

        return await self._call(work)

    async def read(self, host: str) -> Filed:
        """See :meth:`deadreckon.impl.KeepaliveStore.read`."""
        return await self._call(lambda connection: _read(connection, host))

    async def hosts(self) -> Sequence[tuple[str, Filed]]:
        """See :meth:`deadreckon.impl.KeepaliveStore.hosts`. A damaged row is logged, and stops no other host."""
        return await self._call(self._sound)

    def _sound(self, connection: sqlite3.Connection) -> Sequence[tuple[str, Filed]]:
        """The hosts of all rows that are sound."""
        versions = _versions(connection)
        found = []
        for host, *row in connection.execute(_GET, (None,)).fetchall():
            try:
                found.append((host, _filed(row, connection.execute(_TOLD, (host,)), versions)))
            except StoreCorrupt as damage:
                if host not in self._damaged:
                    self._damaged.add(host)
                    logger.error("host %.60r is left alone, since its row is damaged: %s", host, damage)
        return found

    async def living(self) -> Claim:
        """See :meth:`deadreckon.impl.KeepaliveStore.living`."""
        return await self._call(_living)

    async def versions(self) -> Mapping[int, str]:
        """See :meth:`deadreckon.impl.KeepaliveStore.versions`."""
        return await self._call(_versions)

    async def changes(self) -> int:
        """See :meth:`deadreckon.impl.KeepaliveStore.changes`."""
        return await self._call(lambda connection: pragma(connection, "data_version"))


def _living(connection: sqlite3.Connection) -> Claim:
    incarnation = living(connection)
    version, policy = connection.execute("SELECT version, policy FROM life").fetchone()
    try:
        settings = json.loads(policy)
        if settings != {}:  # nobody has claimed the file yet
            settings = {**settings, "ladder_ms": tuple(settings["ladder_ms"])}
        return Claim(incarnation, int(version), KeepalivePolicy(**settings))
    except (ValueError, TypeError, KeyError, AttributeError, PolicyError) as error:
        raise StoreCorrupt(f"the policy is one that no version of this library writes: {error}") from error


def _versions(connection: sqlite3.Connection) -> Mapping[int, str]:
    return {int(number): str(name) for number, name in connection.execute("SELECT number, name FROM versions")}


def _read(connection: sqlite3.Connection, host: str) -> Filed:
    found = connection.execute(_GET, (host,)).fetchone()
    if found is None:
        return UNFILED
    return _filed(found[1:], connection.execute(_TOLD, (host,)), _versions(connection))


def _columns(filed: Filed) -> tuple[str | int, ...]:
    """The values of a row of ``hosts``, after its name."""
    *numbers, cleared_by = attrs.astuple(filed.record)
    owed = json.dumps(filed.owed)
    return (*numbers, cleared_by.value, filed.lifetime, owed, filed.reset_by, filed.reset_at_ms, filed.child)


def _filed(row: Sequence[str | int], told: sqlite3.Cursor, versions: Mapping[int, str]) -> Filed:
    """What :func:`_columns` wrote, with the alarm and the evidence."""
    *counts, cleared_by, lifetime, owed, reset_by, reset_at_ms, child, alarm_at_ms = row
    try:
        revivals, revived_at_ms, version, armed_at_ms, of_lifetime, epoch, total = (int(count) for count in counts)
        numbers = (revivals, revived_at_ms, version, armed_at_ms, of_lifetime, epoch, total)
        record = Record(*numbers, Cleared(cleared_by))
        ids = json.loads(str(owed))
        if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
            raise ValueError("what is owed is no list of ids")
        evidence = tuple(Evidence(*one) for one in told)
        marks = (str(reset_by), int(reset_at_ms), str(child))
        filed = Filed(record, int(alarm_at_ms), int(lifetime), tuple(ids), evidence, *marks)
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {error}") from error
    return sound(filed, versions)
