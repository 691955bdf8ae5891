"""The journal of events in a file: what is on disk, what a failure leaves, and which typed error says so."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from deadreckon.impl.journal import EventJournal
from deadreckon.impl.journal_reader import EventReader
from deadreckon.impl.journal_sqlite import MIGRATIONS, SqliteEvents
from deadreckon.impl.journal_store import Kept, Look, Sight, Writes, sound_sight
from deadreckon.impl.journal_subject import Subject
from deadreckon.impl.journal_subject_steps import Reducer
from deadreckon.impl.sqlite_file import SETTINGS, pragma
from deadreckon.impl.store import (
    StoreClosed,
    StoreCorrupt,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreNewer,
    StoreReadOnly,
    StoreUnavailable,
)
from deadreckon.spec.errors import CallerError, EnvironmentFault
from deadreckon.spec.journal_state import Fold, Progress


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with three durable events, one of them keyed, and a subject."""
    found = tmp_path / "events.db"

    async def fill(journal: EventJournal) -> None:
        await journal.append("note", {"n": 1}, key="k")
        await journal.connected("ada")
        await journal.append_all([("note", 2), ("note", 3)])
        async with Subject(journal, "count", Reducer(1, 0, lambda total, event: total + 1)) as subject:
            await subject.step()

    run(found, fill)
    return found


def run(path: Path, live: Callable[[EventJournal], Coroutine[object, object, None]], busy_timeout_ms: int = 50) -> None:
    """One life of the journal in this file."""

    async def main() -> None:
        async with SqliteEvents(path, busy_timeout_ms=busy_timeout_ms) as store, EventJournal(store) as journal:
            await live(journal)

    asyncio.run(main())


def dump(path: Path) -> list[str]:
    """All that is in the file."""
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def altered(path: Path, *statements: str) -> None:
    """Let somebody else write to the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


def test_the_file_is_synced_at_each_commit(path: Path) -> None:
    """Every connection is in WAL mode with full syncs, and these are read back."""

    async def main() -> None:
        async with SqliteEvents(path) as store:
            found = await store._file.call(lambda connection: [pragma(connection, name) for name, _ in SETTINGS])
            assert found == ["wal", 2, 1]

    asyncio.run(main())


def test_a_row_says_what_was_appended(path: Path) -> None:
    """Rows have offset, type, body, key and index; the mark is ahead of them; no row is ephemeral."""
    text = "\n".join(dump(path))
    assert "INSERT INTO \"events\" VALUES(1,'note','{\"n\":1}','k',0," in text
    assert "INSERT INTO \"events\" VALUES(4,'note','3','',2," in text
    assert text.count('INSERT INTO "events"') == 3
    assert 'INSERT INTO "life" VALUES(1,1,1025);' in text
    assert "INSERT INTO \"subjects\" VALUES('count',3,1,3,3," in text


def test_nothing_is_half_written(path: Path) -> None:
    """A transaction that fails on its way leaves nothing, not even its first rows."""
    before = dump(path)

    async def live(journal: EventJournal) -> None:
        def change(sight: Sight) -> Writes:
            row = sight.rows[0]
            return Writes(sight.high + 9, rows=(row, row))

        with pytest.raises(StoreUnavailable, match="UNIQUE"):
            await journal.store.transact(journal.incarnation, Look(key="k"), change)

    run(path, live)
    assert [line for line in dump(path) if "life" not in line] == [line for line in before if "life" not in line]


def test_a_locked_file_is_told_and_costs_nothing(path: Path) -> None:
    """While another process holds the file an append raises StoreLocked; afterwards it is done as ever."""

    async def live(journal: EventJournal) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreLocked):
                await journal.append("note", 4)
            other.execute("ROLLBACK")
        finally:
            other.close()
        event = await journal.append("note", 4)
        assert event.index == 3
        assert event.offset == 1_026

    run(path, live)


def test_a_full_disk_is_told(path: Path) -> None:
    """A file that may not grow raises StoreFull, and what was there stays."""

    async def live(journal: EventJournal) -> None:
        store = journal.store
        assert isinstance(store, SqliteEvents)
        await store._file.call(lambda connection: connection.execute("PRAGMA max_page_count = 12").fetchone())
        with pytest.raises(StoreFull):
            await journal.append("note", "x" * 100_000)
        await store._file.call(lambda connection: connection.execute("PRAGMA max_page_count = 4294967294").fetchone())
        await journal.append("note", "x" * 100_000)
        assert [event.index for event in await journal.listed()] == [0, 1, 2, 3]

    run(path, live)


def test_a_file_that_can_t_be_written_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only file raises StoreReadOnly."""
    plain = sqlite3.connect

    def connect(path: str, timeout: float, isolation_level: None) -> sqlite3.Connection:
        return plain(f"file:{path}?mode=ro", timeout=timeout, isolation_level=isolation_level, uri=True)

    monkeypatch.setattr("deadreckon.impl.sqlite_file.sqlite3.connect", connect)
    with pytest.raises(StoreReadOnly):
        run(path, quiet)


async def quiet(journal: EventJournal) -> None:
    """Do nothing."""


async def read_all(journal: EventJournal) -> None:
    """Read everything."""
    await journal.read()
    await journal.append("note", {"n": 1}, key="k")
    async with Subject(journal, "count", Reducer(1, 0, lambda total, event: total + 1)):
        pass


DAMAGES = {
    "the mark is behind a row": "UPDATE life SET high = 2",
    "nobody's incarnation": "DELETE FROM life",
    "a negative incarnation": "UPDATE life SET incarnation = -1",
    "a row is missing": "DELETE FROM events WHERE at_offset = 3",
    "an index is off": "UPDATE events SET dense = 7 WHERE at_offset = 4",
    "two rows are exchanged": "UPDATE events SET dense = 2 - dense + 10; UPDATE events SET dense = dense - 10",
    "an offset without a row": "UPDATE events SET dense = dense - 3",
    "the mark is impossible": f"UPDATE life SET high = {2**63 - 1}",
    "a body is no JSON": "UPDATE events SET body = '{' WHERE at_offset = 1",
    "acknowledged past the end": "UPDATE subjects SET acknowledged = 4",
    "a fold ahead of the acknowledgement": "UPDATE subjects SET acknowledged = 2",
    "a fold that is no JSON": "UPDATE subjects SET fold = '{'",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told(path: Path, damage: str) -> None:
    """A file that no version of the library leaves so raises StoreCorrupt, whoever comes upon it."""
    altered(path, *DAMAGES[damage].split(";"))
    with pytest.raises(StoreCorrupt):
        run(path, read_all)


@pytest.mark.parametrize("offset", [1, 3])
def test_a_refold_over_a_missing_row_is_damage(path: Path, offset: int) -> None:
    """J8: a reducer never folds fewer rows than are acknowledged, wherever one is missing."""
    altered(path, f"DELETE FROM events WHERE at_offset = {offset}")

    async def live(journal: EventJournal) -> None:
        with pytest.raises(StoreCorrupt):
            await Subject(journal, "count", Reducer(2, 0, lambda total, event: total + 1)).__aenter__()

    run(path, live)


def test_a_torn_file_is_told(path: Path) -> None:
    """A file whose pages are overwritten raises StoreCorrupt where a read comes upon them."""
    altered(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(os.urandom(size - 4_096))
    with pytest.raises(StoreCorrupt):
        run(path, read_all)


def test_files_of_others_are_not_touched(tmp_path: Path, path: Path) -> None:
    """No database, another application's, and one of a later version are refused and left as they are."""
    text = tmp_path / "text"
    text.write_bytes(b"no database at all, " * 300)
    other = tmp_path / "other.db"
    altered(other, "CREATE TABLE mine (x)")
    altered(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    for file, error in ((text, StoreCorrupt), (other, StoreForeign), (path, StoreNewer)):
        before = file.read_bytes()
        with pytest.raises(error):
            run(file, quiet)
        assert file.read_bytes() == before
    with pytest.raises(StoreUnavailable):
        run(tmp_path / "no" / "such.db", quiet)


def test_faults_are_the_environment_s_and_misuse_is_the_caller_s(path: Path) -> None:
    """A closed store is the caller's error; a fault of the disk is not."""
    assert issubclass(StoreCorrupt, EnvironmentFault)
    store = SqliteEvents(path)

    async def main() -> None:
        await store.close()
        await store.close()
        with pytest.raises(StoreClosed):
            await EventReader(store).read()

    asyncio.run(main())
    assert issubclass(StoreClosed, CallerError)


@pytest.mark.parametrize(
    ("sight", "why"),
    [
        (Sight(1, 5, 4, 0), "an offset without a row"),
        (Sight(1, 5, 4, 5), "more rows than offsets"),
        (Sight(1, 5, 4, 2, kept=Kept(Progress(3, Fold(1, 3, 3), 0))), "acknowledged that are not there"),
    ],
)
def test_j5_numbers_that_contradict_each_other_are_damage(sight: Sight, why: str) -> None:
    """Rows, offsets and acknowledgements fit each other, or the file is damaged."""
    with pytest.raises(StoreCorrupt, match=why):
        sound_sight(sight)
