"""The journal of events, run by the reference implementation: offsets, keys, presence, definitions, pages, waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from deadreckon.impl.events import Event, EventLog
from deadreckon.impl.journal import RESERVED, EventJournal
from deadreckon.impl.journal_memory import MemoryEvents
from deadreckon.impl.journal_reader import EventReader
from deadreckon.impl.journal_sqlite import SqliteEvents
from deadreckon.impl.journal_steps import Steps
from deadreckon.impl.journal_store import EventStore, Look
from deadreckon.impl.journal_words import (
    Draft,
    EphemeralKeyed,
    EventMalformed,
    EventTooLarge,
    EventType,
    JournalEvent,
    JournalNotOpen,
    KeyConflict,
)
from deadreckon.impl.store import Fenced, StoreFault, StoreUnavailable
from deadreckon.impl.testing import CrashAt, Died
from deadreckon.impl.virtual import START_MS, VirtualTimer, run_virtual
from deadreckon.spec import CallerError
from deadreckon.spec.journal_state import JournalPolicy

SMALL = JournalPolicy(buffer_max_bytes=100)


class World:
    """What outlives incarnations: the store, the clock, and what the sink was told."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.timer = VirtualTimer()
        self.events: list[Event] = []

    def journal(self, *types: EventType, policy: JournalPolicy | None = None) -> EventJournal:
        """A new incarnation, not open yet."""
        return EventJournal(self.store, policy, self.timer, types=types, name="s", sink=self.events.append)

    def run(self, main: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run in virtual time."""

        async def closing() -> None:
            try:
                await main()
            finally:
                await self.store.close()

        run_virtual(closing(), self.timer)


@pytest.fixture
def world() -> World:
    """A store in memory."""
    return World(MemoryEvents())


@pytest.fixture(params=["memory", "file"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store in memory, and one in a file."""
    return World(MemoryEvents() if request.param == "memory" else SqliteEvents(tmp_path / "events.db"))


async def seen(journal: EventReader, after_offset: int = 0) -> list[int]:
    """The offsets of all durable events."""
    return [event.offset for event in (await journal.read(after_offset)).events]


# Offsets (J1) and the dense index (J5).


def test_j1_one_sequence_for_both(either: World) -> None:
    """Durable and ephemeral events share one sequence of offsets, which strictly increases."""

    async def main() -> None:
        async with either.journal() as journal:
            made = [await journal.append("note", {"n": n}, ephemeral=n % 2 == 1) for n in range(6)]
            assert [event.offset for event in made] == [1, 2, 3, 4, 5, 6]
            assert [event.index for event in made] == [0, None, 1, None, 2, None]
            assert await seen(journal) == [1, 3, 5]
            both = await journal.read(ephemeral=True)
            assert both.events == tuple(made)
            assert [event.body for event in both.events] == [{"n": n} for n in range(6)]

    either.run(main)


def test_j1_no_offset_comes_again_after_a_restart(either: World) -> None:
    """An incarnation goes on behind whatever may have been given to anybody."""

    async def main() -> None:
        given: list[int] = []
        for _ in range(4):
            async with either.journal() as journal:
                given.append((await journal.append("note")).offset)
                given += [(await journal.connected("ada")).offset for _ in range(3)]
        assert given == sorted(set(given))
        assert len(given) == 16
        assert all(after - before <= RESERVED + 1 for before, after in pairwise(given))

    either.run(main)


def test_j1_the_mark_is_durable_before_an_offset_is_told(world: World) -> None:
    """An ephemeral event whose offset could not be reserved was never appended."""

    async def main() -> None:
        async with world.journal() as journal:
            assert isinstance(world.store, MemoryEvents)
            world.store.hook = failing("transact.written")
            with pytest.raises(StoreUnavailable):
                await journal.connected("ada")
            world.store.hook = None
            assert (await journal.connected("ada")).offset == 1
            assert (await world.store.look(Look())).high == RESERVED

    world.run(main)


@pytest.mark.parametrize("point", ["transact.before", "transact.written", "transact.after"])
def test_j1_the_fate_of_a_write_is_found_out(world: World, point: str) -> None:
    """A store that fails at a write leaves its fate open; the next event doesn't get an offset that was given."""

    async def main() -> None:
        async with world.journal() as journal:
            await journal.connected("ada")
            assert isinstance(world.store, MemoryEvents)
            world.store.hook = failing(point)
            with pytest.raises(StoreUnavailable):
                await journal.append("note", 1, key="k")
            world.store.hook = None
            written = point == "transact.after"
            assert (await journal.connected("ada")).offset == (3 if written else 2)
            assert (await journal.append("note", 1, key="k")).offset == (2 if written else 3)
            assert await seen(journal) == [2 if written else 3]

    world.run(main)


@pytest.mark.parametrize("first", ["read", "wait"])
def test_j1_a_read_finds_what_failed_to_be_told(world: World, first: str) -> None:
    """An event whose append failed after it was durable is read, and waited for, at once."""

    async def main() -> None:
        async with world.journal() as journal:
            assert isinstance(world.store, MemoryEvents)
            world.store.hook = failing("transact.after")
            with pytest.raises(StoreUnavailable):
                await journal.append("note")
            world.store.hook = None
            if first == "read":
                assert await seen(journal) == [1]
            assert await journal.wait(0, 0) == 1
            assert await seen(journal) == [1]

    world.run(main)


def test_j1_each_step_is_sure_by_itself(world: World) -> None:
    """Whoever takes the steps directly is kept from giving an offset again, too."""

    async def main() -> None:
        steps = Steps(world.store, SMALL, world.timer)
        await steps.boot()
        await steps.reserve(5)
        assert isinstance(world.store, MemoryEvents)
        world.store.hook = failing("transact.after")
        with pytest.raises(StoreUnavailable):
            await steps.append(Draft("note", "1"))
        world.store.hook = None
        assert (await steps.append(Draft("note", "2", asked=True))).offset == 2

    world.run(main)


def test_who_is_fenced_while_it_enters_is_told_so(world: World) -> None:
    """A journal that another incarnation overtakes on its way in is not entered, and may be entered again."""

    async def main() -> None:
        assert isinstance(world.store, MemoryEvents)
        store = world.store

        async def overtaken(at: str) -> None:
            if at == "look.before":
                store.hook = None
                await store.claim()

        store.hook = overtaken
        journal = world.journal()
        with pytest.raises(Fenced):
            await journal.__aenter__()
        async with journal:
            assert journal.incarnation == 3

    world.run(main)


def test_j1_the_fenced_give_no_offsets_of_the_living(either: World) -> None:
    """An incarnation that was superseded appends no row, and its ephemerals get no offset of the newer one."""

    async def main() -> None:
        async with either.journal() as old:
            first = await old.connected("ada")
            old_is_fenced = False
            async with either.journal() as new:
                late = await old.connected("bob")
                theirs = await new.connected("cyd")
                assert first.offset < late.offset < theirs.offset
                with pytest.raises(Fenced):
                    await old.append("note")
                with pytest.raises(Fenced):
                    await old.wait(0, 0)
                while not old_is_fenced:
                    try:
                        await old.connected("eve")
                    except Fenced:
                        old_is_fenced = True
                assert old.max_offset == RESERVED
                await new.append("note")

    either.run(main)


def test_j1_the_last_reserved_offset_may_go_to_a_row(world: World) -> None:
    """If the row whose fate was unknown took the last offset that was reserved, more are reserved first."""

    async def main() -> None:
        async with world.journal() as journal:
            assert isinstance(world.store, MemoryEvents)
            for _ in range(RESERVED - 1):
                await journal.connected("ada")
            world.store.hook = failing("transact.after")
            with pytest.raises(StoreUnavailable):
                await journal.append("note")
            world.store.hook = None
            assert (await journal.connected("ada")).offset == RESERVED + 1
            assert (await world.store.look(Look())).high == 2 * RESERVED

    world.run(main)


def test_j1_who_is_fenced_while_unsure_gives_no_offsets(world: World) -> None:
    """An incarnation that looks for its write, and finds that another one lives, goes no further."""

    async def main() -> None:
        async with world.journal() as old:
            await old.connected("ada")
            assert isinstance(world.store, MemoryEvents)
            world.store.hook = failing("transact.written")
            with pytest.raises(StoreUnavailable):
                await old.append("note")
            world.store.hook = None
            async with world.journal() as new:
                await new.append("note")
                for _ in range(2):
                    with pytest.raises(Fenced):
                        await old.connected("ada")

    world.run(main)


def test_who_is_fenced_within_a_write_is_told_so(world: World) -> None:
    """A write that another incarnation comes before the sync of is lost, and nobody is told otherwise."""

    async def main() -> None:
        async with world.journal() as old:
            assert isinstance(world.store, MemoryEvents)
            store = world.store

            async def superseded(at: str) -> None:
                if at == "transact.written":
                    store.hook = None
                    await store.claim()

            store.hook = superseded
            with pytest.raises(Fenced):
                await old.append("note")
            assert await old.count() == 0

    world.run(main)


def test_j5_the_index_has_no_gaps(either: World) -> None:
    """The dense index counts durable events, though their offsets have gaps."""

    async def main() -> None:
        async with either.journal() as journal:
            for n in range(5):
                await journal.connected("ada")
                await journal.append("note", n)
            assert [event.index for event in await journal.listed()] == [0, 1, 2, 3, 4]
            assert [event.body for event in await journal.listed(3, limit=1)] == [3]
            assert [event.offset for event in await journal.listed()] == [2, 4, 6, 8, 10]
            assert await journal.count() == 5

    either.run(main)


def test_several_at_once_are_all_or_none(either: World) -> None:
    """Events that are appended together get neighbouring offsets, in one transaction."""

    async def main() -> None:
        async with either.journal(EventType("chunk", ephemeral=True)) as journal:
            await journal.connected("ada")
            made = await journal.append_all([("note", n) for n in range(1_200)])
            assert [event.offset for event in made] == list(range(2, 1_202))
            assert [event.index for event in made] == list(range(1_200))
            assert await journal.append_all([]) == ()
            with pytest.raises(EventMalformed, match="chunk is ephemeral"):
                await journal.append_all([("note", 1), ("chunk", 1)])
            with pytest.raises(EventMalformed, match="no JSON"):
                await journal.append_all([("note", 1), ("note", object())])  # type: ignore[list-item]  # that is the test
            assert await journal.count() == 1_200

    either.run(main)


# Presence (J2).


def test_j2_presence_adds_no_row(either: World) -> None:
    """Connecting and disconnecting add no durable row, however often; a revival adds one, however often it is told."""

    async def main() -> None:
        for life in range(1, 4):
            async with either.journal() as journal:
                for _ in range(50):
                    await journal.connected("ada", {"from": "here"})
                    await journal.disconnected("ada")
                await journal.revived()
                await journal.revived()
                rows = (await journal.read()).events
                assert [row.type for row in rows] == ["journal.revived"] * life
                assert rows[-1].body == {"incarnation": life}

    either.run(main)


def test_j2_a_revival_whose_row_was_not_acknowledged_is_told_once(world: World) -> None:
    """A row that became durable though its append failed is not added again."""

    async def main() -> None:
        async with world.journal() as journal:
            assert isinstance(world.store, MemoryEvents)
            world.store.hook = failing("transact.after")
            with pytest.raises(StoreUnavailable):
                await journal.revived()
            world.store.hook = None
            await journal.revived()
            assert await journal.count() == 1

    world.run(main)


# The buffer (B1, B2).


def test_b1_the_buffer_is_bounded_and_forgets_the_oldest(world: World) -> None:
    """Ephemeral events take no more bytes than their budget; the oldest are forgotten first."""

    async def main() -> None:
        async with world.journal(policy=SMALL) as journal:
            made = [await journal.append("e", "x" * 10, ephemeral=True) for _ in range(30)]
            assert {event.size for event in made} == {13}
            known = (await journal.read(ephemeral=True)).events
            assert known == tuple(made[-7:])

    world.run(main)


def test_b1_what_never_fits_uses_no_offset(world: World) -> None:
    """An event that is larger than the budget is refused before any offset is used, and forgets nobody."""

    async def main() -> None:
        async with world.journal(policy=SMALL) as journal:
            await journal.append("e", 1, ephemeral=True)
            with pytest.raises(EventTooLarge, match="101 bytes, more than the whole buffer of 100"):
                await journal.append("e", "x" * 98, ephemeral=True)
            assert (await journal.append("e", "x" * 97, ephemeral=True)).offset == 2
            assert [event.offset for event in (await journal.read(ephemeral=True)).events] == [2]
            assert (await journal.append("e", "x" * 98)).offset == 3

    world.run(main)


# Keys (J3, J7).


def test_j3_no_event_is_ephemeral_and_keyed(either: World) -> None:
    """An ephemeral event with a key is refused at input, whoever makes it ephemeral."""

    async def main() -> None:
        async with either.journal(EventType("chunk", ephemeral=True)) as journal:
            for type_, ephemeral in (("note", True), ("chunk", False)):
                with pytest.raises(EphemeralKeyed):
                    await journal.append(type_, key="k", ephemeral=ephemeral)
            assert journal.max_offset == 0

    either.run(main)


def test_j7_a_repetition_is_told_the_old_event(either: World) -> None:
    """The same key and body return the old event, in later lives too; another body or type is a conflict."""

    async def main() -> None:
        async with either.journal() as journal:
            first = await journal.append("note", {"a": 1, "b": [2]}, key="k")
            assert await journal.append("note", {"b": [2], "a": 1}, key="k") == first
        async with either.journal() as journal:
            assert await journal.append("note", {"a": 1, "b": [2]}, key="k") == first
            with pytest.raises(KeyConflict):
                await journal.append("note", {"a": 2}, key="k")
            with pytest.raises(KeyConflict):
                await journal.append("other", {"a": 1, "b": [2]}, key="k")
            assert (await journal.append("note", {"a": 2}, key="another")).index == 1
            assert await journal.count() == 2

    either.run(main)


def test_j7_before_j3(either: World) -> None:
    """A repetition is answered from the journal, though its type is declared ephemeral by now."""

    async def main() -> None:
        async with either.journal() as journal:
            old = await journal.append("note", 1, key="k")
        async with either.journal(EventType("note", ephemeral=True)) as journal:
            assert await journal.append("note", 1, key="k") == old
            with pytest.raises(EphemeralKeyed):
                await journal.append("note", 1, key="new")

    either.run(main)


# Definitions (J4).


def test_j4_only_input_takes_the_choice_of_the_definition(either: World) -> None:
    """A type that is declared ephemeral adds no row any more; the rows of before stay rows."""

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append("opened", 1)
        async with either.journal(EventType("opened", ephemeral=True)) as journal:
            new = await journal.append("opened", 2)
            assert new.ephemeral
            assert [(event.body, event.ephemeral) for event in (await journal.read()).events] == [(1, False)]
            assert [event.ephemeral for event in (await journal.read(ephemeral=True)).events] == [False, True]
        async with either.journal() as journal:
            assert not (await journal.append("opened", 3)).ephemeral
            assert [event.body for event in (await journal.read()).events] == [1, 3]

    either.run(main)


def test_j4_only_input_is_parsed(either: World) -> None:
    """``parse`` tidies or refuses what comes in; what is committed is read as it was stored."""

    def whole(body: object) -> int:
        return int(str(body))

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append("count", "many")
        async with either.journal(EventType("count", parse=whole)) as journal:
            assert (await journal.append("count", "7")).body == 7
            with pytest.raises(EventMalformed, match="no count") as refused:
                await journal.append("count", "many")
            assert isinstance(refused.value.__cause__, ValueError)
            assert [event.body for event in (await journal.read()).events] == ["many", 7]

    either.run(main)


def test_a_body_can_t_be_changed_by_who_reads_it(world: World) -> None:
    """Every reader has a body of its own, and so has the sender."""

    async def main() -> None:
        async with world.journal() as journal:
            mine = {"tags": ["a"]}
            event = await journal.append("note", mine, ephemeral=True)
            mine["tags"].append("b")
            body = event.body
            assert isinstance(body, dict)
            body["tags"] = []
            assert (await journal.read(ephemeral=True)).events[0].body == {"tags": ["a"]}

    world.run(main)


@pytest.mark.parametrize(
    ("type_", "body", "key", "why"),
    [
        ("", 1, None, "a type"),
        (7, 1, None, "a type"),
        ("x" * 1_001, 1, None, "a type"),
        ("\ud800", 1, None, "no Unicode"),
        ("note", float("nan"), None, "no JSON"),
        ("note", object(), None, "no JSON"),
        ("note", 1, "\ud800", "no Unicode"),
        ("note", 1, 7, "a key"),
        ("note", 1, 0, "a key"),
        ("note", 1, False, "a key"),
        ("note", 1, b"", "a key"),
        ("note", 1, "", "a key"),
        ("note", 1, "x" * 1_001, "a key"),
        ("journal.revived", 1, None, "revived"),
    ],
)
def test_j7_malformed_input_is_refused(either: World, type_: str, body: int, key: str | None, why: str) -> None:
    """What is no event is refused by name, and nothing is appended; what is no key never passes for none."""
    world = either

    async def main() -> None:
        async with world.journal() as journal:
            with pytest.raises(EventMalformed, match=why):
                await journal.append(type_, body, key=key)
            with pytest.raises(EventMalformed, match="ephemeral is"):
                await journal.append("note", ephemeral="yes")  # type: ignore[arg-type]  # that is the test
            with pytest.raises(EventMalformed, match="a client"):
                await journal.connected("")
            for about in ([1], 5, []):
                with pytest.raises(EventMalformed, match="about is"):
                    await journal.disconnected("ada", about)  # type: ignore[arg-type]  # that is the test
            for events in (5, [5], ["ab"], [("note",)]):
                with pytest.raises(EventMalformed, match="give"):
                    await journal.append_all(events)  # type: ignore[arg-type]  # that is the test
            assert journal.max_offset == 0

    world.run(main)


def test_definitions_are_checked() -> None:
    """A type is defined once, and not by a name of the journal's own."""
    with pytest.raises(CallerError, match="defined already"):
        EventJournal(MemoryEvents(), types=[EventType("a"), EventType("a", ephemeral=True)])
    with pytest.raises(CallerError, match="defined already"):
        EventJournal(MemoryEvents(), types=[EventType("presence.connected")])
    for types in (5, ["a"], [EventType(5)]):  # type: ignore[arg-type]  # that is the test
        with pytest.raises(CallerError, match=r"types|a type"):
            EventJournal(MemoryEvents(), types=types)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(CallerError, match="give a JournalPolicy"):
        EventJournal(MemoryEvents(), 5)  # type: ignore[arg-type]  # that is the test


# Pages and cursors.


@pytest.mark.parametrize("ephemeral", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 500])
def test_a_cursor_misses_nothing_that_is_appended_meanwhile(either: World, limit: int, ephemeral: bool) -> None:
    """Whoever reads while others append sees every event once, in order."""

    async def main() -> None:
        async with either.journal() as journal:
            made: list[JournalEvent] = []

            async def appending(first: int) -> None:
                for n in range(first, first + 40):
                    made.append(await journal.append("note", n, ephemeral=n % 2 == 0))

            found: list[JournalEvent] = []
            cursor = 0
            tasks = [asyncio.create_task(appending(first)) for first in (0, 101, 200)]
            while not all(task.done() for task in tasks) or cursor < journal.max_offset:
                page = await journal.read(cursor, limit=limit, ephemeral=ephemeral)
                found += page.events
                cursor = page.cursor
                await asyncio.sleep(0)
            wanted = sorted(made, key=lambda event: event.offset)
            assert found == [event for event in wanted if ephemeral or not event.ephemeral]

    either.run(main)


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
def test_cursors_pass_gaps(either: World, limit: int) -> None:
    """Page by page, every event past the cursor is seen once, whatever lies between."""

    async def main() -> None:
        async with either.journal() as journal:
            made = [await journal.append("note", n, ephemeral=n % 3 != 0) for n in range(20)]
            for ephemeral in (False, True):
                found: list[JournalEvent] = []
                cursor, full = 0, True
                while full:
                    page = await journal.read(cursor, limit=limit, ephemeral=ephemeral)
                    found += page.events
                    cursor, full = page.cursor, page.full
                assert found == [event for event in made if ephemeral or not event.ephemeral]
                assert cursor == 20
            assert (await journal.read(cursor)).cursor == cursor

    either.run(main)


def test_a_reader_elsewhere_sees_durable_events(tmp_path: Path) -> None:
    """Another process reads the same file; it never passes what may still come."""

    async def main() -> None:
        async with (
            SqliteEvents(tmp_path / "events.db") as mine,
            SqliteEvents(tmp_path / "events.db") as theirs,
            EventJournal(mine) as journal,
        ):
            reader = EventReader(theirs)
            assert await reader.wait(0, 1) is None
            await journal.append("note", 1)
            await journal.connected("ada")
            page = await reader.read()
            assert ([event.body for event in page.events], page.cursor) == ([1], 1)
            waiting = asyncio.create_task(reader.wait(page.cursor, 10_000))
            await asyncio.sleep(0.02)
            last = await journal.append("note", 2)
            assert await asyncio.wait_for(waiting, 5) == last.offset
            assert await reader.count() == 2
            assert [event.index for event in await reader.listed(1)] == [1]
            for n in range(5):
                assert await reader.head() == (await journal.append("note", n)).offset - 1
                assert await reader.head() == last.offset + n + 1

    asyncio.run(main())


def test_limits_are_checked(world: World) -> None:
    """Pages have at most 500 events, and lists begin at 0."""

    async def main() -> None:
        async with world.journal() as journal:
            limits: tuple[Any, ...] = (0, 501, True, 1.5, "x", None)  # Any: wrong on purpose
            for limit in limits:
                with pytest.raises(CallerError, match="limit"):
                    await journal.read(limit=limit)
                with pytest.raises(CallerError, match="limit"):
                    await journal.listed(limit=limit)
            places: tuple[Any, ...] = (-1, 2**63, True, 1.5, "x", None)  # Any: wrong on purpose
            for place in places:
                with pytest.raises(CallerError, match="first_index"):
                    await journal.listed(place)
                with pytest.raises(CallerError, match="after_offset"):
                    await journal.read(place)
                with pytest.raises(CallerError, match="after_offset"):
                    await journal.wait(place, 1)
                with pytest.raises(CallerError, match="timeout_ms"):
                    await journal.wait(0, place)
                with pytest.raises(CallerError, match="timeout_ms"):
                    await journal.caught_up("s", place)
            names: tuple[Any, ...] = ("", 5, "\udc00")  # Any: wrong on purpose
            for name in names:
                with pytest.raises(CallerError, match="the subject's name"):
                    await journal.caught_up(name, 1)
                with pytest.raises(CallerError, match="the subject's name"):
                    journal.claim_subject(name)

    world.run(main)


# Waits (J6).


def test_j6_a_wait_is_for_durable_events(either: World) -> None:
    """Ephemeral events wake nobody who waits for durable ones, and a wait in vain ends in time."""

    async def main() -> None:
        async with either.journal() as journal:
            waiting = asyncio.create_task(journal.wait(0, 60_000))
            await either.timer.pause(10)
            await journal.connected("ada")
            await either.timer.pause(2_000)
            assert not waiting.done()
            note = await journal.append("note")
            assert await waiting == note.offset == 2
            began_ms = either.timer.now_ms()
            assert await journal.wait(note.offset, 5_000) is None
            assert 5_000 <= either.timer.now_ms() - began_ms <= 5_200

    either.run(main)


def test_j6_who_waits_here_is_told_at_once(world: World) -> None:
    """An append wakes who waits in the same process, and not before the event can be read."""

    async def main() -> None:
        async with world.journal() as journal:
            assert isinstance(world.store, MemoryEvents)
            waiting = asyncio.create_task(journal.wait(0, 60_000))
            await world.timer.pause(1)

            async def slow(at: str) -> None:
                if at == "transact.after":
                    assert await journal.wait(0, 0) is None
                    assert (await journal.read()).events == ()

            world.store.hook = slow
            note = await journal.append("note")
            began_ms = world.timer.now_ms()
            assert await waiting == note.offset
            assert world.timer.now_ms() <= began_ms + 1

    world.run(main)


def test_j6_a_wait_ends_with_the_journal(world: World) -> None:
    """Who waits at a journal that is left is told so."""

    async def main() -> None:
        async with world.journal() as journal:
            waiting = asyncio.create_task(journal.wait(0, 60_000))
            await world.timer.pause(1)
        with pytest.raises(JournalNotOpen):
            await waiting
        assert world.timer.now_ms() <= START_MS + 2

    world.run(main)


# Lives and events of the sink.


def test_the_sink_is_told(either: World) -> None:
    """Each event is one line, in the order of the offsets; a restart is one."""

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append("note", 1, key="k")
            await journal.append("note", 1, key="k")
            await journal.connected("ada")
        async with either.journal() as journal:
            await journal.append("note", 2)

    either.run(main)
    told = [{key: value for key, value in event.items() if key != "at"} for event in either.events]
    assert told == [
        {"type": "journal.appended", "journal": "s", "offset": 1, "ephemeral": False, "key": "k"},
        {"type": "journal.appended", "journal": "s", "offset": 2, "ephemeral": True},
        {"type": "journal.restarted", "journal": "s"},
        {"type": "journal.appended", "journal": "s", "offset": 1 + RESERVED + 1, "ephemeral": False},
    ]
    assert {event["at"] for event in either.events} == {START_MS}


def test_a_log_may_have_both_kinds_of_journals(tmp_path: Path, world: World) -> None:
    """The offset that a log reports to a door is that of the hold's journal."""

    async def main() -> None:
        with EventLog(tmp_path / "log", policy=SMALL) as log:
            log({"at": 1, "type": "hold.requested", "hold": "h", "offset": 3})
            async with EventJournal(world.store, SMALL, world.timer, sink=log) as journal:
                await journal.append_all([("note", n) for n in range(9)])
            assert log.offset == 3

    world.run(main)


def test_misuse_is_told(world: World) -> None:
    """A journal is used inside ``async with``, and entered once."""

    async def main() -> None:
        journal = world.journal()
        with pytest.raises(JournalNotOpen):
            await journal.append("note")
        with pytest.raises(JournalNotOpen):
            await journal.read()
        async with journal:
            with pytest.raises(CallerError, match="enter it once"):
                await journal.__aenter__()
        with pytest.raises(JournalNotOpen):
            await journal.connected("ada")
        async with journal:
            assert journal.incarnation == 2

    world.run(main)


def test_who_failed_to_enter_may_enter_again() -> None:
    """A journal whose first entry failed is not open, and can be entered once the store is back."""
    world = World(MemoryEvents(failing("claim.before")))

    async def main() -> None:
        journal = world.journal()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await journal.__aenter__()
        assert isinstance(world.store, MemoryEvents)
        world.store.hook = None
        async with journal:
            assert journal.max_offset == 0

    world.run(main)


def test_a_cursor_never_goes_back(either: World) -> None:
    """A reader that is ahead of the last offset stays where it is."""

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append("note")
            for ephemeral in (False, True):
                assert (await journal.read(100, ephemeral=ephemeral)).cursor == 100

    either.run(main)


def test_leaving_waits_for_what_is_under_way(either: World) -> None:
    """What was begun before the journal was left is done; what waited for its turn is refused."""

    async def main() -> None:
        async with either.journal() as journal:
            tasks = [asyncio.create_task(journal.append("note", n)) for n in range(5)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        left = await seen(EventReader(either.store))
        done = await asyncio.gather(*tasks, return_exceptions=True)
        kept = [one for one in done if not isinstance(one, BaseException)]
        assert len(kept) < len(done)
        assert all(isinstance(one, JournalNotOpen) for one in done if isinstance(one, BaseException))
        assert left == await seen(EventReader(either.store)) == [event.offset for event in kept]

    either.run(main)


def test_a_cancelled_append_is_done_or_not(either: World) -> None:
    """Whoever cancels an append finds nothing half-written, and the journal goes on."""

    async def main() -> None:
        async with either.journal() as journal:
            for pauses in range(6):
                task = asyncio.create_task(journal.append("note", pauses, key=f"k{pauses}"))
                for _ in range(pauses):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await journal.append("note", pauses, key=f"k{pauses}")
                await journal.connected("ada")
            assert [event.body for event in (await journal.read()).events] == list(range(6))
            assert [event.index for event in await journal.listed()] == list(range(6))

    either.run(main)


def deaths() -> Iterator[tuple[int, int]]:
    """Every await point, and how many unsynced writes survive."""
    yield from ((at, keep) for at in range(1, 40) for keep in (0, 1))


def test_a_death_at_any_point_loses_nothing_that_was_told() -> None:
    """J1, J7: wherever the incarnation dies, what it told is there, nothing is there twice, and no offset comes again."""
    for at, keep in deaths():
        store = MemoryEvents()
        store.hook = CrashAt(store, at, keep)
        told: list[tuple[int, str]] = []

        async def live(store: MemoryEvents = store, told: list[tuple[int, str]] = told) -> None:
            async with EventJournal(store) as journal:
                for n in range(4):
                    told.append(((await journal.append("note", n, key=f"k{n}")).offset, f"k{n}"))
                    told.append(((await journal.connected("ada")).offset, ""))

        try:
            asyncio.run(live())
        except* Died:
            pass
        store.hook = None
        before = list(told)
        asyncio.run(live())
        keyed = {key: offset for offset, key in before if key}
        assert all(offset == keyed.get(key, offset) for offset, key in told if key)
        ephemeral = [offset for offset, key in told if not key]
        assert ephemeral == sorted(set(ephemeral))
        rows = store.now(Look(offsets=tuple(range(1, 5_000)))).rows
        assert [row.key for row in rows] == ["k0", "k1", "k2", "k3"]
        assert not {row.offset for row in rows} & set(ephemeral)


def failing(point: str) -> Callable[[str], Coroutine[object, object, None]]:
    """A hook that fails at this point."""

    async def hook(at: str) -> None:
        if at == point:
            raise StoreUnavailable(at)

    return hook


def test_a_fault_of_the_store_is_the_environment_s(world: World) -> None:
    """A failing store raises its own typed error, whatever was asked."""

    async def main() -> None:
        async with world.journal() as journal:
            assert isinstance(world.store, MemoryEvents)
            for point, ask in (
                ("transact.before", lambda: journal.append("note")),
                ("rows.before", lambda: journal.read()),
                ("listed.before", lambda: journal.listed()),
                ("look.before", lambda: journal.wait(0, 0)),
            ):
                world.store.hook = failing(point)
                with pytest.raises(StoreFault):
                    await ask()
                world.store.hook = None

    world.run(main)
