"""The journals of ``deadreckon.impl``: order, keys, fencing, waiting, and what a failure of the file is called."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from deadreckon.impl import (
    Ballot,
    Entry,
    Fenced,
    Held,
    Journal,
    JournalUnavailable,
    Key,
    KeyConflict,
    KeyRefused,
    Moment,
    SqliteJournal,
    SqliteStore,
    StoreClosed,
    StoreCorrupt,
    StoreForeign,
    StoreNewer,
    StoreReadOnly,
    StoreUnavailable,
    Verifier,
    Written,
    add_key,
    hold_journal_rows,
    hold_journal_sqlite,
    key_ballot,
    revoke_key,
)
from deadreckon.impl.hold_journal import blank, durable
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.virtual import VirtualTimer, run_virtual
from deadreckon.spec.errors import CallerError, EnvironmentFault
from deadreckon.spec.hold_state import Call, Caller, Evidence, Fact, Release, Told, Wait

FULL = Held(
    "h",
    attrs.evolve(
        blank(3),
        fact=Fact.DECIDED,
        deadline_at_ms=2**60,
        decided_at_ms=7,
        evidence=Evidence.SIGNED,
        approved=(True, False, True),
        releases=(Release.OK, Release.NONE, Release.STARTED),
        caller=Caller.DETACHED,
    ),
    ("a", "b", "ü"),
    "run",
    123,
    "ada",
    "because",
)


def put(held: Held, *types: str) -> Written:
    return Written(held, tuple(Entry(type_, {"n": 1}) for type_ in types))


def written(held: Held, moment: Moment) -> Written:
    """*held*, whatever was there."""
    return put(held, "x")


def touch(moment: Moment) -> Written:
    """One more fact."""
    return put(moment.held or FULL, "x")


def signature_of(key_id: str, ballot: Ballot) -> str:
    """Stands for a signature by the key of that id."""
    return f"{key_id} signs {ballot.hold_id} {ballot.requests} {ballot.verdicts}"


def good(ballot: Ballot, signature: str, key: Key) -> bool:
    """Whether it is one."""
    return signature == signature_of(key.key_id, ballot)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "j.db"


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, path: Path) -> Iterator[Journal]:
    journal: Journal = MemoryJournal(verifier=good) if request.param == "memory" else SqliteJournal(path, verifier=good)
    yield journal
    asyncio.run(journal.close())


async def use(path: Path, busy_timeout_ms: int = 50) -> None:
    async with SqliteJournal(path, busy_timeout_ms=busy_timeout_ms) as journal:
        await journal.append("h", touch)


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_hold_comes_back_as_it_was(journal: Journal) -> None:
    """What is kept is what was written, but for a door's memory and what callers were told."""

    async def run() -> None:
        remembered = attrs.evolve(
            FULL.hold, wait=Wait.WAITING, until_ms=9, judged=True, calls=(Call.CALLED,) * 3, told=(Told.OK,) * 3
        )
        receipt = await journal.append("h", lambda moment: put(attrs.evolve(FULL, hold=remembered), "a", "b"))
        assert receipt.fresh
        assert receipt.held == attrs.evolve(FULL, offset=2) == (await journal.read("h")).held
        assert receipt.held.hold == durable(remembered)
        assert (await journal.read("other")).held is None

    asyncio.run(run())


def test_facts_are_in_order_and_of_one_hold(journal: Journal) -> None:
    """The journal is an ordered log: facts past an offset, of all holds or of one."""

    async def run() -> None:
        door = await journal.claim()
        for hold_id in ("h", "g", "h"):
            await journal.append(hold_id, touch, door=door)
        found = [(fact.offset, fact.hold_id) for fact in await journal.facts()]
        assert found == [(1, ""), (2, "h"), (3, "g"), (4, "h")]
        assert [fact.offset for fact in await journal.facts(2, "h")] == [4]
        assert [fact.offset for fact in await journal.facts(limit=2)] == [1, 2]

    asyncio.run(run())


def test_a_change_that_raises_changes_nothing(journal: Journal) -> None:
    """A conditional append that is refused appends nothing and leaves its key free (H11, H16)."""

    def refuse(moment: Moment) -> Written:
        raise ZeroDivisionError

    async def run() -> None:
        await journal.append("h", touch)
        with pytest.raises(ZeroDivisionError):
            await journal.append("h", refuse, key="k", body="1")
        assert len(await journal.facts()) == 1
        assert (await journal.append("h", touch, key="k", body="2")).fresh

    asyncio.run(run())


def test_a_key_stands_for_one_body(journal: Journal) -> None:
    """Same key and same body: the same hold, nothing appended; another body: a typed conflict."""

    async def run() -> None:
        first = await journal.append("h", touch, key="k", body="1")
        again = await journal.append("g", touch, key="k", body="1")
        assert (first.fresh, again.fresh) == (True, False)
        assert again.held == first.held
        with pytest.raises(KeyConflict):
            await journal.append("g", touch, key="k", body="2")
        assert [fact.hold_id for fact in await journal.facts()] == ["h"]

    asyncio.run(run())


def test_an_earlier_door_is_fenced(journal: Journal) -> None:
    """An earlier door's appends are refused; an approver is no door."""

    async def run() -> None:
        old, new = await journal.claim(), await journal.claim()
        assert old < new
        with pytest.raises(Fenced) as fenced:
            await journal.append("h", touch, door=old)
        assert (fenced.value.caller, fenced.value.living) == (old, new)
        with pytest.raises(Fenced):
            await journal.renew(old, ["h"], 5)
        await journal.append("h", touch, door=new)
        await journal.append("h", touch)
        await journal.renew(new, ["h"], 5)
        moment = await journal.read("h")
        assert moment.held is not None
        assert moment.held.lease_until_ms == 5

    asyncio.run(run())


def test_unfinished_holds_are_listed(journal: Journal) -> None:
    """A hold is unfinished while any of its requests lacks its terminal fact (H15)."""

    async def run() -> None:
        done = attrs.evolve(FULL, hold_id="g", hold=attrs.evolve(FULL.hold, releases=(Release.OK,) * 3))
        expired = attrs.evolve(FULL, hold_id="e", hold=attrs.evolve(FULL.hold, fact=Fact.EXPIRED))
        for held in (FULL, done, expired):
            await journal.append(held.hold_id, functools.partial(written, held))
        assert [held.hold_id for held in await journal.unfinished()] == ["h"]

    asyncio.run(run())


def test_keys_are_those_of_the_moment(journal: Journal) -> None:
    """Adding and revoking a signing key are facts, and a change is given the active ones."""

    async def run() -> None:
        await add_key(journal, "k", "p", by="root")
        await add_key(journal, "k", "p", by="root")  # sent again
        assert (await journal.read("h")).keys == (Key("k", "p"),)
        signed = signature_of("k", key_ballot(Key("k", ""), active=False))
        await revoke_key(journal, "k", by="root", signature=signed, signed_by="k")
        await revoke_key(journal, "k", by="root", signature=signed, signed_by="k")
        assert (await journal.read("h")).keys == ()
        facts = [(fact.type, *sorted(fact.body.items())) for fact in await journal.facts()]
        assert facts == [
            ("key.added", ("by", "root"), ("key", "k"), ("public_key", "p")),
            ("key.revoked", ("by", "root"), ("key", "k"), ("signature", signed), ("signed_by", "k")),
        ]

    asyncio.run(run())


def test_keys_change_by_signed_facts(journal: Journal) -> None:
    """While a key is active, whoever has none can neither add keys nor revoke one; an old signature is no use."""

    async def run() -> None:
        await add_key(journal, "k", "p", by="root")
        added = key_ballot(Key("new", "q"), active=True)
        for signature, signed_by in (
            ("", ""),
            ("forged", "k"),
            (signature_of("new", added), "new"),
            (signature_of("k", key_ballot(Key("new", "q"), active=False)), "k"),
            (signature_of("k", key_ballot(Key("new", "other"), active=True)), "k"),
            (signature_of("k", added), "breaks"),
        ):
            with pytest.raises(KeyRefused, match="signature"):
                await add_key(journal, "new", "q", by="mallory", signature=signature, signed_by=signed_by)
            with pytest.raises(KeyRefused, match="signature"):
                await revoke_key(journal, "k", by="mallory", signature=signature, signed_by=signed_by)
        with pytest.raises(KeyRefused, match="taken"):
            await add_key(journal, "k", "mallory's", by="mallory")
        await add_key(journal, "new", "q", by="root", signature=signature_of("k", added), signed_by="k")
        goodbye = signature_of("k", key_ballot(Key("new", ""), active=False))
        await revoke_key(journal, "new", by="root", signature=goodbye, signed_by="k")
        with pytest.raises(KeyRefused, match="taken"):
            await add_key(journal, "new", "q", by="mallory", signature=signature_of("k", added), signed_by="k")
        with pytest.raises(CallerError, match="empty"):
            await add_key(journal, "", "q", by="root")
        await revoke_key(journal, "unknown", by="root")
        assert (await journal.read("h")).keys == (Key("k", "p"),)
        assert len(await journal.facts()) == 3

    asyncio.run(run())


def test_a_verifier_that_fails_verifies_nothing(path: Path) -> None:
    """A verifier that raises, or says anything but True, is no reason to accept a signature, nor to raise."""

    async def run(verifier: Verifier) -> None:
        async with SqliteJournal(path, verifier=verifier) as journal:
            await add_key(journal, "k", "p", by="root")
            with pytest.raises(KeyRefused):
                await revoke_key(journal, "k", by="root", signature="s", signed_by="k")

    def fails(ballot: Ballot, signature: str, key: Key) -> bool:
        raise ZeroDivisionError

    def vague(ballot: Ballot, signature: str, key: Key) -> bool:
        return "yes"  # type: ignore[return-value]  # of the wrong kind

    for verifier in (fails, vague):
        asyncio.run(run(verifier))


def test_wait_ends_with_a_fact_of_the_hold(journal: Journal) -> None:
    """A wait returns at once if a fact past its cursor is there, soon if one comes, and with None if none does."""

    async def run() -> None:
        await journal.append("h", touch)
        assert await journal.wait(0, 10_000, "h") == 1
        assert await journal.wait(0, 10_000) == 1
        began = time.monotonic()
        assert await journal.wait(1, 50, "h") is None
        assert time.monotonic() - began >= 0.04
        waits = [asyncio.create_task(journal.wait(1, 10_000, hold_id)) for hold_id in ("h", "h", None)]
        await asyncio.sleep(0.02)
        await journal.append("g", touch)
        await asyncio.wait(waits[2:])
        assert not waits[0].done()
        await journal.append("h", touch)
        assert await asyncio.gather(*waits) == [3, 3, 2]

    asyncio.run(run())


def test_a_cancelled_wait_leaves_nothing(journal: Journal) -> None:
    """A wait that is cancelled is gone."""

    async def run() -> None:
        task = asyncio.create_task(journal.wait(0, 10_000))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_closed(journal: Journal) -> None:
    """A journal that was closed does nothing more; closing again does nothing."""

    async def run() -> None:
        await journal.close()
        await journal.close()
        with pytest.raises(StoreClosed):
            await journal.read("h")

    asyncio.run(run())


def test_time_never_goes_back(path: Path) -> None:
    """The journal has one clock, which never goes back, whoever writes."""
    late, early = VirtualTimer(9_000), VirtualTimer(5_000)

    async def run() -> None:
        async with SqliteJournal(path, late) as ahead, SqliteJournal(path, early) as behind:
            await ahead.append("h", touch)
            await behind.append("h", touch)
            assert behind.now_ms() == (await behind.read("h")).now_ms == 9_000
            assert [fact.at_ms for fact in await behind.facts()] == [9_000, 9_000]

    asyncio.run(run())


def test_memory_tells_who_waits_that_it_is_away() -> None:
    """Availability errors are typed, and reach a wait at once."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def run() -> None:
        task = asyncio.create_task(journal.wait(0, 25_000))
        await timer.pause(10)
        journal.down()
        with pytest.raises(JournalUnavailable):
            await task
        assert timer.now_ms() == VirtualTimer().now_ms() + 10
        assert not journal.is_up
        journal.up()
        assert await journal.facts() == []

    run_virtual(run(), timer)


def test_memory_loses_acknowledgements() -> None:
    """A lost acknowledgement is an availability error of an append that was kept."""
    journal = MemoryJournal()

    async def run() -> None:
        journal.unacknowledged = 1
        with pytest.raises(JournalUnavailable):
            await journal.append("h", touch, key="k")
        assert not (await journal.append("h", touch, key="k")).fresh
        assert len(await journal.facts()) == 1

    asyncio.run(run())


def test_virtual_time_stands_still_elsewhere() -> None:
    """A pause in virtual time, in an event loop that doesn't move it, is an error and not an endless wait."""
    with pytest.raises(CallerError, match="run_virtual"):
        asyncio.run(VirtualTimer().pause(1))


# The SQLite file.


def test_durability_settings_are_really_set(path: Path) -> None:
    """A commit returns when it is on disk: WAL with `synchronous=FULL`, on the connection that writes."""

    async def run() -> None:
        async with SqliteJournal(path) as journal:
            read = await journal._call(
                lambda connection: [
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("journal_mode", "synchronous", "fullfsync", "application_id", "user_version")
                ]
            )
        assert read == ["wal", 2, 1, hold_journal_sqlite.APPLICATION_ID, len(hold_journal_sqlite.MIGRATIONS)]

    asyncio.run(run())


def test_offsets_are_never_reused(path: Path) -> None:
    """An offset stands for one fact, even if the newest facts were deleted from the file."""
    asyncio.run(use(path))
    edit(path, "DELETE FROM facts")
    asyncio.run(use(path))

    async def run() -> None:
        async with SqliteJournal(path) as journal:
            assert [fact.offset for fact in await journal.facts()] == [2]

    asyncio.run(run())


def test_wait_sees_another_connection(path: Path) -> None:
    """A wait also ends with what another process appends, within the longest distance between two looks."""

    async def run() -> None:
        async with SqliteJournal(path) as journal, SqliteJournal(path) as other:
            await journal.append("h", touch)
            for pause in (0.0, 0.3):
                offset = (await journal.facts())[-1].offset
                task = asyncio.create_task(journal.wait(offset, 10_000, "h"))
                await asyncio.sleep(pause)
                began = time.monotonic()
                await other.append("h", touch)
                assert await task == offset + 1
                assert time.monotonic() - began < 1

    asyncio.run(run())


def test_wait_looks_seldom(path: Path) -> None:
    """Waiting does not poll faster than a bounded backoff, however many wait."""
    looks = 0
    look = hold_journal_rows.newest

    def counted(connection: sqlite3.Connection) -> int:
        nonlocal looks
        looks += 1
        return look(connection)

    timer = VirtualTimer()

    async def run() -> None:
        async with SqliteJournal(path, timer) as journal:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(hold_journal_rows, "newest", counted)
                await asyncio.gather(*(journal.wait(0, 5_000, f"h{at}") for at in range(20)))

    run_virtual(run(), timer)
    assert 50 <= looks <= 60 + 20 * 2


def test_concurrent_appends_are_not_lost(path: Path) -> None:
    """Appends of several connections are one after the other: no offset twice, no change lost."""

    async def run() -> None:
        async with (
            SqliteJournal(path, busy_timeout_ms=10_000) as one,
            SqliteJournal(path, busy_timeout_ms=10_000) as two,
        ):

            def longer(moment: Moment) -> Written:
                held = moment.held or FULL
                return put(attrs.evolve(held, reason=held.reason + "."), "x")

            await asyncio.gather(*(journal.append("h", longer) for journal in (one, two) for _ in range(20)))
            held = (await one.read("h")).held
            assert held is not None
            assert held.reason == FULL.reason + "." * 40
            assert [fact.offset for fact in await two.facts()] == list(range(1, 41))

    asyncio.run(run())


def test_fault_locked_is_unavailable(path: Path) -> None:
    """A file that another process holds is unavailable: typed, with a time to retry after; reads go on."""
    asyncio.run(use(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")

        async def run() -> None:
            async with SqliteJournal(path, busy_timeout_ms=50) as journal:
                await journal.append("h", touch)

        with pytest.raises(JournalUnavailable) as away:
            asyncio.run(run())
        assert away.value.retry_after_ms > 0
        assert isinstance(away.value, EnvironmentFault)
        connection.execute("ROLLBACK")
    asyncio.run(use(path))


def test_fault_locked_for_a_moment(path: Path) -> None:
    """A file that is held for less than the busy timeout costs time alone."""
    asyncio.run(use(path))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            done.wait(0.2)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(5)
    begun = time.monotonic()
    asyncio.run(use(path, busy_timeout_ms=5_000))
    assert time.monotonic() - begun < 5
    thread.join()


def test_fault_corrupt(path: Path) -> None:
    """A damaged file is refused, and so is a row that no version writes."""
    asyncio.run(use(path))
    edit(path, "UPDATE holds SET fact = 'nonsense'")
    with pytest.raises(StoreCorrupt, match="no version"):
        asyncio.run(use(path))
    path.write_bytes(b"x" * 5_000)
    with pytest.raises(StoreCorrupt):
        asyncio.run(use(path))


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM life",
        f"UPDATE life SET door = {2**63 - 1}",
        f"UPDATE life SET at_ms = {2**63 - 1}",
        "UPDATE facts SET body = '{'",
        "UPDATE facts SET body = '[]'",
        "UPDATE holds SET approved = '[]'",
        "UPDATE holds SET approved = '[1, 0, 1]'",
        "UPDATE holds SET releases = '[]'",
        "UPDATE holds SET releases = '{}'",
        "UPDATE holds SET requests = '\"abc\"'",
        "UPDATE holds SET requests = '[1, 2, 3]'",
        "UPDATE holds SET requests = '[]', approved = '[]', releases = '[]'",
        "UPDATE holds SET caller = 'nobody'",
        f"UPDATE holds SET approved = '{'[' * 100_000}'",
        "DELETE FROM holds",
    ],
)
def test_fault_damaged_rows(path: Path, damage: str) -> None:
    """Whatever a row holds that no version of the library writes is damage, and is called so."""

    async def keyed() -> None:
        async with SqliteJournal(path) as journal:
            await journal.append("h", touch, key="k")

    async def look() -> None:
        async with SqliteJournal(path) as journal:
            await journal.read("h")
            await journal.facts()
            await journal.append("h", touch, key="k")

    asyncio.run(keyed())
    edit(path, damage)
    with pytest.raises(StoreCorrupt):
        asyncio.run(look())


def test_a_damaged_hold_stops_no_other(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of the unfinished holds a damaged one is logged, once, and left alone; the others are listed."""

    async def run() -> None:
        async with SqliteJournal(path) as journal:
            for name in ("h", "g"):
                await journal.append(name, functools.partial(named, name))
            edit(path, "UPDATE holds SET approved = '[]' WHERE hold_id = 'h'")
            for _ in range(2):
                assert [held.hold_id for held in await journal.unfinished()] == ["g"]

    asyncio.run(run())
    assert len([record for record in caplog.records if "damaged" in record.getMessage()]) == 1


def named(name: str, moment: Moment) -> Written:
    """An unfinished hold of that name."""
    return put(attrs.evolve(FULL, hold_id=name), "x")


def test_fault_foreign_and_newer(path: Path, tmp_path: Path) -> None:
    """Files of other applications (a store of turns among them) and of later versions are refused untouched."""

    async def turns() -> None:
        async with SqliteStore(tmp_path / "turns.db"):
            pass

    asyncio.run(turns())
    with pytest.raises(StoreForeign):
        asyncio.run(use(tmp_path / "turns.db"))
    asyncio.run(use(path))
    edit(path, "PRAGMA user_version = 99")
    with pytest.raises(StoreNewer):
        asyncio.run(use(path))


def test_fault_read_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that can't be written is a fault, and no availability error: people have to mend it."""
    asyncio.run(use(path))
    plain = sqlite3.connect

    def connect(path: str, timeout: float, isolation_level: None) -> sqlite3.Connection:
        connection = plain(path, timeout=timeout, isolation_level=isolation_level)
        connection.execute("PRAGMA query_only = 1")
        return connection

    monkeypatch.setattr("deadreckon.impl.sqlite_file.sqlite3.connect", connect)
    with pytest.raises(StoreReadOnly):
        asyncio.run(use(path))


def test_fault_no_such_directory(path: Path) -> None:
    """A path that can't be opened is a fault."""
    with pytest.raises(StoreUnavailable):
        asyncio.run(use(path / "no" / "such"))
    with pytest.raises(CallerError):
        SqliteJournal(path, busy_timeout_ms=-1)
