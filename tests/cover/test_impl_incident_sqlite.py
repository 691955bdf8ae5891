"""The SQLite store: what is on disk, what a failure leaves, and which typed error says so."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from deadreckon.impl import (
    UNKNOWN,
    Fenced,
    Recovery,
    SqliteStore,
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
    incident_sqlite,
)
from deadreckon.impl.journal_sqlite import SqliteEvents
from deadreckon.impl.request_sqlite import SqliteRequests
from deadreckon.impl.testing import Died
from deadreckon.spec.errors import CallerError, EnvironmentFault
from deadreckon.spec.incident_state import Reason, Record, Status, Turn

FULL = Record(
    turn=Turn.RUNNING,
    status=Status.OPEN,
    interrupted=3,
    attempts=(0, 7, 0, 7),
    reason=Reason.WORK,
    parked=False,
    terminal_delivered=True,
    attempt=4,
    progress=5,
    work_baseline=2,
    last_progress_at_ms=2**62,
    last_attempt_at_ms=9,
    transient_retries=6,
)


def put(record: Record, produced: int = 0) -> Callable[[Stored], Stored]:
    return lambda stored: attrs.evolve(stored, buffered=record, produced=produced)


def one_more(stored: Stored) -> Stored:
    return attrs.evolve(stored, produced=stored.produced + 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turns.db"


def connect_with(monkeypatch: pytest.MonkeyPatch, *, uri: str = "", pragma: str = "") -> None:
    """Let the store open its file in another way, to bring about a failure of the disk."""
    plain = sqlite3.connect

    def connect(path: str, timeout: float, isolation_level: None) -> sqlite3.Connection:
        where = f"file:{path}{uri}" if uri else path
        connection = plain(where, timeout=timeout, isolation_level=isolation_level, uri=bool(uri))
        if pragma:
            connection.execute(f"PRAGMA {pragma}")
        return connection

    monkeypatch.setattr("deadreckon.impl.incident_sqlite.sqlite3.connect", connect)


async def filled(path: Path, turns: int = 1) -> int:
    """A file with *turns* rows, closed; the incarnation that wrote it."""
    async with SqliteStore(path) as store:
        incarnation = await store.claim()
        for turn in range(turns):
            await store.transact(incarnation, f"t{turn}", put(FULL, turn))
    return incarnation


async def use(path: Path) -> None:
    async with SqliteStore(path, busy_timeout_ms=50) as store:
        incarnation = await store.claim()
        await store.transact(incarnation, "t0", put(FULL))


def rows(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT turn_id, interrupted, produced FROM turns ORDER BY turn_id").fetchall()
    finally:
        connection.close()


def test_durability_settings_are_really_set(path: Path) -> None:
    """A commit returns when it is on disk: WAL with `synchronous=FULL`, on the connection that writes."""

    async def run() -> None:
        async with SqliteStore(path) as store:
            read = await store._call(
                lambda connection: [
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("journal_mode", "synchronous", "fullfsync", "application_id", "user_version")
                ]
            )
        assert read == ["wal", 2, 1, incident_sqlite.APPLICATION_ID, len(incident_sqlite.MIGRATIONS)]

    asyncio.run(run())


def test_durability_settings_that_do_not_stick() -> None:
    """A setting that can't be set is an error, not a weaker store: a database in memory has no WAL."""
    with pytest.raises(StoreUnavailable, match="journal_mode is memory"):
        asyncio.run(use(Path(":memory:")))


def test_storage_a_row_comes_back_as_it_was(path: Path) -> None:
    """What is durable is what was written, field by field."""

    async def run() -> None:
        await filled(path)
        async with SqliteStore(path) as store:
            assert await store.read("t0") == Stored(FULL, FULL, 0)
            assert await store.read("t1") == UNKNOWN

    asyncio.run(run())


def test_storage_rows_are_listed_by_turn_and_status(path: Path) -> None:
    """Rows are listed by turn and status, in order of their ids."""

    async def run() -> None:
        async with SqliteStore(path) as store:
            incarnation = await store.claim()
            await store.transact(incarnation, "b", put(FULL))
            await store.transact(incarnation, "a", put(attrs.evolve(FULL, status=Status.SEALED)))
            assert [turn_id for turn_id, _ in await store.select()] == ["a", "b"]
            assert [turn_id for turn_id, _ in await store.select(turn=Turn.RUNNING)] == ["a", "b"]
            assert [turn_id for turn_id, _ in await store.select(status=Status.OPEN)] == ["b"]
            assert await store.select(turn=Turn.NEW, status=Status.OPEN) == []

    asyncio.run(run())


def test_c13_a_second_store_fences_the_first(path: Path) -> None:
    """A call from a dead incarnation changes nothing: opening the file elsewhere and claiming it fences the first."""

    async def run() -> None:
        async with SqliteStore(path) as first, SqliteStore(path) as second:
            old = await first.claim()
            await first.transact(old, "t", one_more)
            new = await second.claim()
            assert new > old
            with pytest.raises(Fenced):
                await first.transact(old, "t", one_more)
            with pytest.raises(Fenced):
                await first.sync(old)
            await second.transact(new, "t", one_more)
            await second.sync(new)
            assert (await first.read("t")).produced == 2

    asyncio.run(run())


def test_c13_identities_are_never_used_again(path: Path) -> None:
    """A new incarnation has a new identity, always; the file remembers the last one."""

    async def run() -> list[int]:
        identities = []
        for _ in range(3):
            async with SqliteStore(path) as store:
                identities += [await store.claim(), await store.claim()]
        return identities

    identities = asyncio.run(run())
    assert len(set(identities)) == 6
    assert identities == sorted(identities)


def test_c6_stores_do_not_lose_updates(path: Path) -> None:
    """Admission is one transaction: concurrent writes, from two connections, lose nothing to each other."""

    async def run() -> None:
        async with SqliteStore(path) as one, SqliteStore(path) as other:
            incarnation = await one.claim()
            await asyncio.gather(
                *(store.transact(incarnation, "t", one_more) for store in (one, other) for _ in range(25))
            )
            assert (await one.read("t")).produced == 50

    asyncio.run(run())


def test_storage_a_change_that_raises_changes_nothing(path: Path) -> None:
    """A refused event changes nothing, and the store goes on."""

    async def run() -> None:
        async with SqliteStore(path) as store:
            incarnation = await store.claim()

            def refuse(stored: Stored) -> Stored:
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await store.transact(incarnation, "t", refuse)
            assert await store.read("t") == UNKNOWN
            await store.transact(incarnation, "t", one_more)

    asyncio.run(run())


def test_storage_cancellation_tears_nothing(path: Path) -> None:
    """A cancelled call is either done or not, and nothing of it is under way once it has raised."""

    async def run() -> None:
        async with SqliteStore(path) as store:
            incarnation = await store.claim()
            inside = threading.Event()
            ended = threading.Event()

            def slow(stored: Stored) -> Stored:
                inside.set()
                time.sleep(0.05)
                ended.set()
                return one_more(stored)

            task = asyncio.create_task(store.transact(incarnation, "t", slow))
            assert await asyncio.to_thread(inside.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert ended.is_set()
            assert (await store.read("t")).produced == 1

    asyncio.run(run())


def test_storage_the_loop_does_not_wait_for_the_disk(path: Path) -> None:
    """All blocking work is done in the store's own thread: the event loop goes on meanwhile."""

    async def run() -> None:
        async with SqliteStore(path) as store:
            incarnation = await store.claim()
            released = threading.Event()

            def wait(stored: Stored) -> Stored:
                assert released.wait(10)
                assert threading.current_thread() is not threading.main_thread()
                return stored

            task = asyncio.create_task(store.transact(incarnation, "t", wait))
            await asyncio.sleep(0.01)
            released.set()
            await task

    asyncio.run(run())


def test_storage_close_is_idempotent(path: Path) -> None:
    """Closing again does nothing, and any other call is refused."""

    async def run() -> None:
        store = SqliteStore(path)
        await store.close()
        async with SqliteStore(path) as store:
            await store.claim()
            await store.close()
        await store.close()
        with pytest.raises(StoreClosed):
            await store.claim()

    asyncio.run(run())
    assert not Path(f"{path}-wal").exists()


def test_fault_locked(path: Path) -> None:
    """A file that another process holds is StoreLocked, after the busy timeout and not much later."""
    asyncio.run(filled(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    with pytest.raises(StoreLocked):
        asyncio.run(use(path))
    assert time.monotonic() - begun < 5
    other.execute("ROLLBACK")
    other.close()
    asyncio.run(use(path))


def test_fault_read_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that can't be written is StoreReadOnly."""
    incarnation = asyncio.run(filled(path))
    with monkeypatch.context() as patched:
        connect_with(patched, uri="?mode=ro")
        with pytest.raises(StoreReadOnly):
            asyncio.run(use(path))
    assert asyncio.run(claimed(path)) == incarnation + 1


async def claimed(path: Path) -> int:
    async with SqliteStore(path) as store:
        return await store.claim()


def test_fault_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space left is StoreFull; the failed write leaves nothing, the earlier ones stay, and space mends it."""

    async def run() -> int:
        async with SqliteStore(path) as store:
            incarnation = await store.claim()
            for turn in range(10_000):
                try:
                    await store.transact(incarnation, f"t{turn:05}", put(FULL, turn))
                except StoreFull:
                    assert await store.read(f"t{turn:05}") == UNKNOWN
                    await store.sync(incarnation)
                    return turn
        raise AssertionError("the database was never full")

    with monkeypatch.context() as patched:
        connect_with(patched, pragma="max_page_count = 12")
        written = asyncio.run(run())
    assert written > 0
    assert rows(path) == [(f"t{turn:05}", 3, turn) for turn in range(written)]
    asyncio.run(filled(path, written + 10))


def test_fault_full_in_an_attempt(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An admission that can't be written lets no body run, and no death is counted for it."""
    connect_with(monkeypatch, pragma="max_page_count = 12")

    begun: list[str] = []

    async def begin_until_full(recovery: Recovery) -> None:
        for turn in range(10_000):
            async with recovery.attempt(f"{turn:0500}") as attempt:
                begun.append(attempt.turn_id)

    async def run() -> None:
        async with SqliteStore(path) as store, Recovery(store) as recovery:
            with pytest.raises(StoreFull):
                await begin_until_full(recovery)
            assert [turn_id for turn_id, _ in await store.select()] == begun

    asyncio.run(run())


@pytest.mark.parametrize(
    "damage",
    [
        lambda image: b"no database" + image[11:],
        lambda image: image[: len(image) // 2 // 4096 * 4096],
        lambda image: image[:4096] + bytes(byte ^ 0x5A for byte in image[4096:]),
        lambda image: image[:100] + b"\xff" * 300 + image[400:],
    ],
    ids=["header", "truncated", "pages", "schema"],
)
def test_fault_corrupt(path: Path, damage: Callable[[bytes], bytes]) -> None:
    """A damaged file is StoreCorrupt when it is opened, and it is not touched."""
    asyncio.run(filled(path, 200))
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    with pytest.raises(StoreCorrupt):
        asyncio.run(use(path))
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE turns SET status = 'asleep'",
        "UPDATE turns SET attempts = 'none'",
        "UPDATE turns SET attempts = '7'",
        "UPDATE turns SET reason = ''",
        "UPDATE turns SET interrupted = -100",
        "UPDATE turns SET attempts = '[-1]'",
        "UPDATE turns SET status = 'absent'",
        "UPDATE turns SET parked = 1",
    ],
)
def test_fault_corrupt_row(path: Path, statement: str) -> None:
    """A row that holds what no version writes is StoreCorrupt, and it is not overwritten."""
    asyncio.run(filled(path))
    edit(path, statement)
    before = rows(path)
    with pytest.raises(StoreCorrupt):
        asyncio.run(read(path))
    with pytest.raises(StoreCorrupt):
        asyncio.run(use(path))
    assert rows(path) == before


@pytest.mark.parametrize("store", [SqliteStore, SqliteRequests, SqliteEvents])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM life",
        f"UPDATE life SET incarnation = {2**63 - 1}",
        "UPDATE life SET incarnation = -5",
        "DROP TABLE life",
        "ALTER TABLE life RENAME incarnation TO theirs",
    ],
)
def test_fault_corrupt_life(
    path: Path, store: type[SqliteStore | SqliteRequests | SqliteEvents], statement: str
) -> None:
    """A file that has lost the identity of its last incarnation is StoreCorrupt: it could give one out twice."""

    async def run() -> None:
        async with store(path) as one:
            await one.claim()

    asyncio.run(run())
    edit(path, statement)
    with pytest.raises(StoreCorrupt):
        asyncio.run(run())


def test_fault_corrupt_text(path: Path) -> None:
    """A row whose text is no UTF-8 is StoreCorrupt."""
    asyncio.run(filled(path))
    edit(path, "UPDATE turns SET status = CAST(x'ff' AS TEXT)")
    with pytest.raises(StoreCorrupt):
        asyncio.run(read(path))


def test_fault_a_number_too_large(path: Path) -> None:
    """A number that no file keeps is a fault with a type, and changes nothing."""

    async def run() -> None:
        async with SqliteStore(path) as store:
            with pytest.raises(StoreUnavailable, match="too large to be kept"):
                await store.transact(await store.claim(), "t0", put(FULL, 2**63))

    asyncio.run(run())
    assert rows(path) == []


async def read(path: Path) -> Stored:
    async with SqliteStore(path) as store:
        return await store.read("t0")


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_fault_newer(path: Path) -> None:
    """A file of a later version is StoreNewer, and it is not touched."""
    asyncio.run(filled(path))
    edit(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreNewer, match="99"):
        asyncio.run(use(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("statement", ["CREATE TABLE theirs (x)", "PRAGMA user_version = 1"])
def test_fault_foreign(path: Path, statement: str) -> None:
    """A database of another application is StoreForeign, and it is not touched."""
    edit(path, statement)
    before = path.read_bytes()
    with pytest.raises(StoreForeign):
        asyncio.run(use(path))
    assert path.read_bytes() == before


def test_fault_unavailable(path: Path) -> None:
    """Any other failure is StoreUnavailable, with its cause; all are faults of the environment."""
    with pytest.raises(StoreUnavailable) as failure:
        asyncio.run(use(path / "no" / "directory.db"))
    assert isinstance(failure.value.__cause__, sqlite3.OperationalError)
    assert issubclass(StoreFault, EnvironmentFault)


def test_fault_the_store_recovers(path: Path) -> None:
    """Mend the cause, then try again: the same store goes on after a failure to open."""

    async def run() -> None:
        store = SqliteStore(path / "turns.db")
        with pytest.raises(StoreUnavailable):
            await store.claim()
        await asyncio.to_thread(path.mkdir)
        assert await store.claim() == 1
        await store.close()

    asyncio.run(run())


def test_misuse_busy_timeout(path: Path) -> None:
    """A negative busy timeout is refused."""
    with pytest.raises(CallerError):
        SqliteStore(path, busy_timeout_ms=-1)


V1 = (
    "CREATE TABLE life (only INTEGER PRIMARY KEY CHECK (only = 1), incarnation INTEGER NOT NULL) STRICT",
    "INSERT INTO life VALUES (1, 4)",
    """CREATE TABLE turns (turn_id TEXT PRIMARY KEY NOT NULL, turn TEXT NOT NULL, status TEXT NOT NULL,
        interrupted INTEGER NOT NULL, attempts TEXT NOT NULL, reason TEXT NOT NULL, parked INTEGER NOT NULL,
        terminal_delivered INTEGER NOT NULL, attempt INTEGER NOT NULL, progress INTEGER NOT NULL,
        work_baseline INTEGER NOT NULL, last_progress_at_ms INTEGER NOT NULL, last_attempt_at_ms INTEGER NOT NULL,
        produced INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    "CREATE INDEX turns_by_state ON turns (turn, status)",
    "INSERT INTO turns VALUES ('t', 'running', 'open', 2, '[4, 0, 0]', 'none', 0, 0, 1, 0, 0, 10, 10, 7)",
    f"PRAGMA application_id = {incident_sqlite.APPLICATION_ID}",
    "PRAGMA user_version = 1",
)


def test_migration_from_version_1(path: Path) -> None:
    """A file of version 1 is migrated when it is opened: no count is lost, and its dead are counted."""
    edit(path, *V1)

    async def run() -> None:
        async with SqliteStore(path) as store:
            assert (await store.read("t")).buffered.transient_retries == 0
            async with Recovery(store) as recovery:
                assert recovery.incarnation == 5
                await recovery.park("t")
                async with recovery.replay("t") as attempt:
                    assert attempt.count == 3
                assert (await recovery.inspect("t")).produced == 7

    asyncio.run(run())
    asyncio.run(use(path))


def test_migration_is_all_or_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that fails half-way leaves the file at the version it had."""
    edit(path, *V1)
    monkeypatch.setattr(
        incident_sqlite, "MIGRATIONS", (*incident_sqlite.MIGRATIONS, ("CREATE TABLE x (y)", "nonsense"))
    )
    with pytest.raises(StoreFault):
        asyncio.run(use(path))
    monkeypatch.undo()
    connection = sqlite3.connect(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    columns = [row[1] for row in connection.execute("PRAGMA table_info(turns)")]
    connection.close()
    assert version == 1
    assert "transient_retries" not in columns
    asyncio.run(use(path))


def test_c1_a_death_is_found_in_the_file(path: Path) -> None:
    """After an admission is durable, every earlier incarnation that died is counted, from the file alone."""

    async def life() -> int:
        async with SqliteStore(path) as store, Recovery(store) as recovery, recovery.attempt("t") as attempt:
            counts.append(attempt.count)
            raise Died

    counts: list[int] = []
    for _ in range(4):
        with pytest.raises(Died):
            asyncio.run(life())
    assert counts == [0, 1, 2, 3]
