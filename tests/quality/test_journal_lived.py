"""What was published of journals that presence filled, lived through by the reference implementation.

The same failures on the machine are in ``test_journal_published.py``. Here they happen to a service with a file: each
story does what was done in the field, and shows what comes of it instead. Facts: facts/keepalive.md, F11 to F13 and S13
to S18.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import attrs
import pytest

from deadreckon.impl import (
    EphemeralKeyed,
    EventJournal,
    EventReader,
    EventType,
    JournalEvent,
    Reducer,
    SqliteEvents,
    Subject,
)
from deadreckon.impl.events import Event
from deadreckon.impl.journal_store import Change, Look, Sight, Writes
from deadreckon.impl.testing import CrashAt, Died, MemoryEvents
from deadreckon.spec.journal_state import Progress

OPENED, CLOSED = "stream/connection-opened", "stream/connection-closed"
DURABLE_BEFORE: tuple[EventType, ...] = ()
EPHEMERAL_NOW = (EventType(OPENED, ephemeral=True), EventType(CLOSED, ephemeral=True))
"""The definitions before and after the change that took presence out of the journal."""


@attrs.frozen
class Service:
    """A service with a file, and what its sink was told."""

    path: Path
    told: list[Event]

    @asynccontextmanager
    async def life(self, *types: EventType) -> AsyncIterator[EventJournal]:
        """One incarnation."""
        async with (
            SqliteEvents(self.path) as store,
            EventJournal(store, types=types, name="s", sink=self.told.append) as journal,
        ):
            yield journal


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A service that never ran."""
    return Service(tmp_path / "events.db", [])


def run(story: Callable[[], Coroutine[object, object, None]]) -> None:
    """Let it happen."""
    asyncio.run(story())


def counted(total: int, event: JournalEvent) -> int:
    """The fold that drifted: how many events there were."""
    return total + 1


def test_s14_the_offset_reused(service: Service) -> None:
    """A row at 8, an ephemeral at 9, a restart: the next row got 9 again. Here it gets one that nobody was told."""

    async def story() -> None:
        async with service.life() as journal:
            await journal.append_all([("note", n) for n in range(8)])
            assert (await journal.append("chunk", ephemeral=True)).offset == 9
        async with service.life() as journal:
            assert (await journal.append("note")).offset > 9

    run(story)
    *before, restarted, last = service.told
    assert [event["offset"] for event in before] == list(range(1, 10))
    assert (before[7]["ephemeral"], before[8]["ephemeral"]) == (False, True)
    assert restarted["type"] == "journal.restarted"
    assert last["offset"] not in {event["offset"] for event in before}
    appended = [int(str(event["offset"])) for event in service.told if event["type"] == "journal.appended"]
    assert all(one < other for one, other in pairwise(appended))


def test_f11_the_keyed_departure(service: Service) -> None:
    """The departure carried a key after presence had become ephemeral: a parse error lost it. It is refused, and told."""

    async def story() -> None:
        async with service.life(*EPHEMERAL_NOW) as journal:
            await journal.append(OPENED, {"client": "ada"})
            with pytest.raises(EphemeralKeyed):
                await journal.append(CLOSED, {"client": "ada"}, key="closed/ada")
            await journal.append(CLOSED, {"client": "ada"})
            await journal.append(CLOSED, {"client": "ada"})  # a duplicate does no harm
            page = await journal.read(ephemeral=True)
            assert [event.type for event in page.events] == [OPENED, CLOSED, CLOSED]
            assert await journal.count() == 0

    run(story)


def test_f12_the_frozen_replay(service: Service) -> None:
    """The fix defaulted the flag onto old rows, and a replay counted fewer: here rows stay what they were."""

    async def story() -> None:
        async with service.life(*DURABLE_BEFORE) as journal:
            for n in range(4):
                await journal.append(OPENED, n)
                await journal.append("note", n)
            frozen = (await journal.read()).events
            async with Subject(journal, "core", Reducer(30, 0, counted)) as core:
                await core.step()
                assert core.fold == 8
        async with service.life(*EPHEMERAL_NOW) as journal:
            assert (await journal.read()).events == frozen
            async with Subject(journal, "core", Reducer(31, 0, counted)) as core:
                assert core.fold == 8
                await journal.append(OPENED, 9)
                assert await core.step() == 0
                assert core.fold == 8

    run(story)


def test_f13_the_vanishing_rows(service: Service) -> None:
    """A list asked for positions 0 to count - 1 and took them for offsets: here the index has no gaps."""

    async def story() -> None:
        async with service.life(*EPHEMERAL_NOW) as journal:
            for n in range(10):
                await journal.append(OPENED, n)
                await journal.append("note", n)
                await journal.append("chunk", n, ephemeral=True)
        async with SqliteEvents(service.path) as store:
            view = EventReader(store)
            shown = [event for at in range(await view.count()) for event in await view.listed(at, limit=1)]
            assert [event.body for event in shown] == list(range(10))
            assert [event.offset - 1 for event in shown] != list(range(10))

    run(story)


def test_s13_the_death_spiral(service: Service) -> None:
    """Each revival brought rows for all who reconnected, a longer tail and the next death: here it brings one."""

    async def story() -> None:
        for _ in range(5):
            async with service.life() as journal:
                await journal.revived()
                for session in range(300):
                    await journal.connected(f"session-{session}")
                    await journal.disconnected(f"session-{session}")
        async with service.life() as journal:
            assert await journal.count() == 5

    run(story)


def test_the_wait_that_hung(service: Service) -> None:
    """Waiting on a trailing ephemeral offset hangs, since no subject is ever past it: here one waits for the last row."""

    async def story() -> None:
        async with service.life() as journal, Subject(journal, "core", Reducer(1, 0, counted)) as core:
            await journal.append("note")
            await journal.connected("ada")
            assert await core.step() == 1
            assert await asyncio.wait_for(journal.caught_up("core", 10_000), 5)

    run(story)


class Watched(MemoryEvents):
    """A store that notes all progress that was ever durable."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: list[Progress] = []

    async def transact(self, incarnation: int, look: Look, change: Change) -> None:
        """Noted."""

        def noted(sight: Sight) -> Writes:
            writes = change(sight)
            if writes.kept is not None:
                self.progress.append(writes.kept.progress)
            return writes

        await super().transact(incarnation, look, noted)


@pytest.mark.parametrize("version", [1, 2])
def test_s17_s18_no_refold_runs_effects_or_leads(version: int) -> None:
    """Whatever is durable at any moment of lives that die anywhere, the fold is not ahead of the acknowledgement."""
    for at in range(1, 40):
        store = Watched()
        effects: list[int] = []

        async def effect(event: JournalEvent, fold: int, effects: list[int] = effects) -> None:
            effects.append(event.index or 0)

        async def live(version: int, store: Watched = store, effect: object = effect) -> None:
            assert callable(effect)
            async with (
                EventJournal(store) as journal,
                Subject(journal, "core", Reducer(version, 0, counted), effect, batch=3) as core,
            ):
                await journal.append_all([("note", n) for n in range(4)])
                while await core.step():
                    pass

        asyncio.run(live(1))
        assert effects == [0, 1, 2, 3]
        store.hook = CrashAt(store, at)
        try:
            asyncio.run(live(version))
        except* Died:
            pass
        store.hook = None
        before = len(effects)
        asyncio.run(live(version))
        assert all(one.checkpoint.position <= one.acknowledged for one in store.progress)
        assert all(one.acknowledged <= other.acknowledged for one, other in pairwise(store.progress))
        assert min(effects[before:], default=4) >= 4
        assert set(effects) == set(range(len(set(effects))))
