"""The stores of hosts: what they keep, whom they fence, and what they refuse to believe."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from pathlib import Path

import attrs
import pytest

from deadreckon.impl.keepalive_memory import MemoryKeepalive
from deadreckon.impl.keepalive_sqlite import SqliteKeepalive
from deadreckon.impl.keepalive_store import OPERATOR, UNCLAIMED, UNFILED, Claim, Evidence, Filed, KeepaliveStore
from deadreckon.impl.store import Fenced, StoreCorrupt, StoreForeign, StoreNewer
from deadreckon.spec.keepalive_state import NEVER, Cleared, KeepalivePolicy, Record

POLICY = KeepalivePolicy(ladder_ms=(1, 2), plateau_ms=3, evidence_at=2)
EVIDENCE = Evidence(1, 1, 3, 500, "it keeps dying")
FILED = Filed(
    Record(3, 400, 1, 600, 1, 1, 7, Cleared.HAND),
    lifetime=1,
    owed=("a", "", "b"),
    evidence=(EVIDENCE,),
    reset_by="ada",
    reset_at_ms=100,
    child="17:9",
)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> KeepaliveStore:
    """A store in memory, and one in a file."""
    return MemoryKeepalive() if request.param == "memory" else SqliteKeepalive(tmp_path / "hosts.db")


def run(work: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run it."""
    asyncio.run(work())


def test_a_store_keeps_what_it_is_given(store: KeepaliveStore) -> None:
    """What is filed of a host is read again, evidence and all; of another one there is nothing."""

    async def work() -> None:
        claim = await store.claim("v1", POLICY)
        assert await store.transact(claim.incarnation, "h", lambda filed: FILED) == FILED
        assert await store.arm(claim.incarnation, "h", 600)
        assert await store.read("h") == attrs.evolve(FILED, alarm_at_ms=600)
        more = attrs.evolve(FILED, evidence=(EVIDENCE, Evidence(1, 1, 4, 1, ""))[:1])
        assert (await store.transact(claim.incarnation, "h", lambda filed: more)).alarm_at_ms == 600
        assert await store.read("other") == UNFILED
        assert await store.hosts() == [("h", attrs.evolve(FILED, alarm_at_ms=600))]
        await store.close()

    run(work)


def test_a_version_keeps_its_number(store: KeepaliveStore) -> None:
    """Versions are numbered in the order in which they first claimed the store; who claims it last owns it."""

    async def work() -> None:
        assert await store.living() == UNCLAIMED
        numbers = [(await store.claim(name, POLICY)).version for name in ("v1", "v2", "v1")]
        assert numbers == [1, 2, 1]
        assert await store.versions() == {1: "v1", 2: "v2"}
        assert await store.living() == Claim(3, 1, POLICY)
        await store.close()

    run(work)


def test_k5_the_dead_are_fenced(store: KeepaliveStore) -> None:
    """A call of an incarnation that is not the living one changes nothing; a person is no incarnation."""

    async def work() -> None:
        dead = (await store.claim("v1", POLICY)).incarnation
        await store.claim("v1", POLICY)
        for call in (
            store.transact(dead, "h", lambda filed: FILED),
            store.arm(dead, "h", NEVER),
            store.use_up(dead, "h", NEVER),
        ):
            with pytest.raises(Fenced):
                await call
        assert await store.read("h") == UNFILED
        await store.transact(OPERATOR, "h", lambda filed: FILED)
        assert await store.arm(OPERATOR, "h", 600)
        await store.close()

    run(work)


def test_k6_an_alarm_says_only_what_the_record_says(store: KeepaliveStore) -> None:
    """An alarm is set to what the record says by now, or not at all; it is used up only by the firing that was meant."""

    async def work() -> None:
        me = (await store.claim("v1", POLICY)).incarnation
        await store.transact(me, "h", lambda filed: FILED)
        assert not await store.arm(me, "h", 700)
        assert (await store.read("h")).alarm_at_ms == NEVER
        assert await store.arm(me, "h", 600)
        assert not await store.use_up(me, "h", 500)
        assert (await store.read("h")).alarm_at_ms == 600
        assert await store.use_up(me, "h", 600)
        assert (await store.read("h")).alarm_at_ms == NEVER
        await store.transact(me, "h", lambda filed: attrs.evolve(filed, lifetime=2, owed=()))
        assert not await store.arm(me, "h", 600)
        assert await store.arm(me, "h", NEVER)
        await store.close()

    run(work)


def test_a_change_that_raises_changes_nothing(store: KeepaliveStore) -> None:
    """What a change raises is passed on, and nothing of it is kept."""

    def refuse(filed: Filed) -> Filed:
        raise ValueError("no")

    async def work() -> None:
        me = (await store.claim("v1", POLICY)).incarnation
        with pytest.raises(ValueError, match="no"):
            await store.transact(me, "h", refuse)
        assert await store.hosts() == []
        await store.close()

    run(work)


def test_others_are_noticed(tmp_path: Path) -> None:
    """The number of changes is another one after somebody else wrote, and not after one's own writes."""

    async def work() -> None:
        async with SqliteKeepalive(tmp_path / "hosts.db") as mine, SqliteKeepalive(tmp_path / "hosts.db") as other:
            me = (await mine.claim("v1", POLICY)).incarnation
            before = await mine.changes()
            await mine.transact(me, "h", lambda filed: FILED)
            assert await mine.changes() == before
            await other.transact(OPERATOR, "h", lambda filed: attrs.evolve(filed, reset_by="bob"))
            assert await mine.changes() != before

    run(work)


WRONG = [
    "UPDATE hosts SET revivals = -1",
    "UPDATE hosts SET last_revival_at_ms = -1",
    "UPDATE hosts SET lifetime_total = 2",
    "UPDATE hosts SET armed_at_ms = -2",
    "UPDATE alarms SET at_ms = -7",
    "UPDATE hosts SET lifetime = 0",
    "UPDATE hosts SET record_lifetime = 2",
    "UPDATE hosts SET version = 9",
    "UPDATE hosts SET epoch = 0",
    "UPDATE hosts SET cleared_by = 'nobody knows'",
    "UPDATE hosts SET owed = '[1]'",
    "UPDATE hosts SET owed = '{'",
    'UPDATE hosts SET owed = \'["a", "a"]\'',
    "UPDATE hosts SET owed = '[\"w\"]', armed_at_ms = -1",
    "UPDATE evidence SET version = 9",
    "UPDATE evidence SET epoch = 2",
    "UPDATE hosts SET reset_at_ms = -1",
    "DELETE FROM life",
    "UPDATE life SET incarnation = -5",
    f"UPDATE life SET incarnation = {2**63 - 1}",
    "UPDATE life SET policy = '[]'",
    "UPDATE life SET policy = '{\"ladder_ms\": [0]}'",
    "UPDATE life SET policy = '{\"more\": 1}'",
    "UPDATE life SET policy = ''",
]


@pytest.mark.parametrize("statement", WRONG)
def test_what_no_version_writes_is_corrupt(tmp_path: Path, statement: str) -> None:
    """A row that no version of the library could have written is told as such, not acted on."""
    path = tmp_path / "hosts.db"

    async def write() -> None:
        async with SqliteKeepalive(path) as store:
            me = (await store.claim("v1", POLICY)).incarnation
            await store.transact(me, "h", lambda filed: FILED)
            await store.arm(me, "h", 600)

    async def read() -> None:
        async with SqliteKeepalive(path) as store:
            with pytest.raises(StoreCorrupt):
                await store.transact(1, "h", lambda filed: filed)

    run(write)
    connection = sqlite3.connect(path, isolation_level=None)
    assert connection.execute(statement).rowcount == 1
    connection.close()
    run(read)


def test_one_damaged_row_stops_no_other_host(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other hosts are still kept and listed; what is damaged is told once."""
    path = tmp_path / "hosts.db"

    async def write() -> None:
        async with SqliteKeepalive(path) as store:
            me = (await store.claim("v1", POLICY)).incarnation
            for host in ("bad", "good"):
                await store.transact(me, host, lambda filed: FILED)
                await store.arm(me, host, 600)

    async def read() -> None:
        async with SqliteKeepalive(path) as store:
            for _ in range(2):
                assert [host for host, _ in await store.hosts()] == ["good"]
            with pytest.raises(StoreCorrupt):
                await store.read("bad")

    run(write)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE hosts SET owed = '{' WHERE host = 'bad'")
    connection.close()
    run(read)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "host 'bad' is left alone, since its row is damaged"
    ]


@pytest.mark.parametrize(
    ("statement", "error"),
    [("PRAGMA user_version = 99", StoreNewer), ("PRAGMA application_id = 5", StoreForeign)],
)
def test_other_files_are_left_alone(tmp_path: Path, statement: str, error: type[Exception]) -> None:
    """A file of a later version, or of another application, is refused."""
    path = tmp_path / "hosts.db"

    async def touch() -> None:
        async with SqliteKeepalive(path):
            pass

    run(touch)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()
    with pytest.raises(error):
        run(touch)
