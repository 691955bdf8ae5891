"""Subjects of the journal: folds, effects, acknowledgements, wakes and refolds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from deadreckon.impl.journal import EventJournal
from deadreckon.impl.journal_memory import MemoryEvents
from deadreckon.impl.journal_reader import EventReader
from deadreckon.impl.journal_sqlite import SqliteEvents
from deadreckon.impl.journal_store import Change, EventStore, Kept, Look, Sight, Writes
from deadreckon.impl.journal_subject import KEPT_EVERY, Subject
from deadreckon.impl.journal_subject_steps import Reducer, SubjectEffect, SubjectSteps
from deadreckon.impl.journal_words import EventType, FoldMalformed, JournalEvent, SubjectTaken
from deadreckon.impl.store import StoreCorrupt, StoreUnavailable
from deadreckon.impl.testing import CrashAt, Died
from deadreckon.impl.virtual import VirtualTimer, run_virtual
from deadreckon.spec import CallerError, Refused
from deadreckon.spec.journal_state import Fold, JournalPolicy, Progress

PAGE_READ = 500


def summed(total: int, event: JournalEvent) -> int:
    """Adds up bodies."""
    assert isinstance(event.body, int)
    return total + event.body


def sum_of(version: int = 1) -> Reducer[int]:
    """A reducer that adds up bodies."""
    return Reducer(version, 0, summed)


class Counting:
    """A store that counts what is read, written and kept.

    Attributes:
        reads: the methods that read, in order.
        writes: what transactions kept of subjects.
    """

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.reads: list[str] = []
        self.writes: list[Kept] = []

    @property
    def others(self) -> bool:
        """As the store says."""
        return self.store.others

    async def claim(self) -> int:
        """As the store does."""
        return await self.store.claim()

    async def transact(self, incarnation: int, look: Look, change: Change) -> None:
        """Counted."""

        def counted(sight: Sight) -> Writes:
            writes = change(sight)
            if writes.kept is not None:
                self.writes.append(writes.kept)
            return writes

        await self.store.transact(incarnation, look, counted)

    async def look(self, look: Look) -> Sight:
        """Counted."""
        self.reads.append("look")
        return await self.store.look(look)

    async def rows(self, after_offset: int, through_offset: int, limit: int) -> Sequence[JournalEvent]:
        """Counted."""
        self.reads.append("rows")
        return await self.store.rows(after_offset, through_offset, limit)

    async def listed(self, first_index: int, limit: int) -> Sequence[JournalEvent]:
        """Counted."""
        self.reads.append("listed")
        return await self.store.listed(first_index, limit)

    async def close(self) -> None:
        """As the store does."""
        await self.store.close()

    def forget(self) -> None:
        """Count from here."""
        self.reads.clear()
        self.writes.clear()

    @property
    def checkpoints(self) -> list[int]:
        """The positions of the folds that were kept."""
        return [kept.progress.checkpoint.position for kept in self.writes if kept.fold is not None]


class World:
    """What outlives incarnations: the store, the clock, and the effects."""

    def __init__(self, store: EventStore) -> None:
        self.store = Counting(store)
        self.timer = VirtualTimer()
        self.effects: list[tuple[object, int]] = []

    def journal(self, *types: EventType) -> EventJournal:
        """A new incarnation, not open yet."""
        return EventJournal(self.store, timer=self.timer, types=types)

    async def effect(self, event: JournalEvent, fold: int) -> None:
        """An effect that is noted."""
        self.effects.append((event.body, fold))

    def subject(
        self, journal: EventJournal, version: int = 1, effect: SubjectEffect[int] | None = None, batch: int = 64
    ) -> Subject[int]:
        """The subject, asleep."""
        return Subject(journal, "sum", sum_of(version), effect or self.effect, batch=batch)

    def run(self, main: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run in virtual time."""

        async def closing() -> None:
            try:
                await main()
            finally:
                await self.store.close()

        run_virtual(closing(), self.timer)

    async def drained(self, subject: Subject[int]) -> int:
        """Process all there is; how many events there were."""
        total = 0
        while done := await subject.step():
            total += done
        return total


@pytest.fixture
def world() -> World:
    """A store in memory."""
    return World(MemoryEvents())


@pytest.fixture(params=["memory", "file"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store in memory, and one in a file."""
    return World(MemoryEvents() if request.param == "memory" else SqliteEvents(tmp_path / "events.db"))


def test_j8c_each_effect_is_run_on_the_fold_of_its_event(either: World) -> None:
    """A subject folds each durable event, runs its effect on that fold, and acknowledges; ephemerals never reach it."""

    async def main() -> None:
        async with either.journal() as journal, either.subject(journal) as subject:
            for n in range(1, 6):
                await journal.append("add", n)
                await journal.append("add", 100, ephemeral=True)
            assert await either.drained(subject) == 5
            assert (subject.fold, subject.acknowledged) == (15, 5)
            assert either.effects == [(1, 1), (2, 3), (3, 6), (4, 10), (5, 15)]

    either.run(main)


@pytest.mark.parametrize("events", [10, 3_000])
def test_j8_a_wake_of_the_same_version_is_one_read(either: World, events: int) -> None:
    """A wake whose fold was kept is one read of the head and the progress; with a tail it is one more."""

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append_all([("add", 1)] * events)
            async with either.subject(journal) as subject:
                await either.drained(subject)
        async with either.journal() as journal:
            either.store.forget()
            async with either.subject(journal) as subject:
                assert subject.fold == events
                assert either.store.reads == ["look"]
                assert either.store.writes == []
                await journal.append_all([("add", 1)] * 63)
                await either.drained(subject)
                raise Died

    async def again() -> None:
        with pytest.raises(Died):
            await main()
        async with either.journal() as journal:
            either.store.forget()
            either.effects.clear()
            async with either.subject(journal) as subject:
                assert subject.fold == events + 63
                assert either.store.reads == ["look", "listed"]
                assert await subject.step() == 0
        assert either.effects == []

    either.run(again)


def test_j8a_a_new_version_folds_again_without_effects(either: World) -> None:
    """After a version change all acknowledged events are folded, no effect is run, and the acknowledgement stays."""

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append_all([("add", 1)] * 1_200)
            async with either.subject(journal) as subject:
                await either.drained(subject)
            await journal.append("add", 5)
            either.effects.clear()
            either.store.forget()
            async with Subject(
                journal, "sum", Reducer(2, 0, lambda total, event: total + 10), either.effect
            ) as subject:
                assert either.effects == []
                assert (subject.fold, subject.acknowledged) == (12_000, 1_200)
                assert either.store.reads == ["look", "listed", "listed", "listed"]
                assert [kept.progress.acknowledged for kept in either.store.writes] == [1_200]
                assert await either.drained(subject) == 1
                assert either.effects == [(5, 12_010)]

    either.run(main)


def test_j8a_a_refold_that_dies_goes_on_where_it_was_kept(either: World) -> None:
    """The fold is kept every few pages of a refold; the next life goes on there."""
    events = KEPT_EVERY * PAGE_READ + 700
    folded: list[int | None] = []

    def dying(total: int, event: JournalEvent) -> int:
        folded.append(event.index)
        if len(folded) == KEPT_EVERY * PAGE_READ + 600:
            raise Died
        return total + 1

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append_all([("add", 1)] * events)
            async with either.subject(journal, batch=500) as subject:
                await either.drained(subject)
        either.effects.clear()
        async with either.journal() as journal:
            either.store.forget()
            with pytest.raises(Died):
                await Subject(journal, "sum", Reducer(2, 0, dying), either.effect).__aenter__()
            assert either.store.checkpoints == [KEPT_EVERY * PAGE_READ]
        async with either.journal() as journal:
            either.store.forget()
            async with Subject(journal, "sum", Reducer(2, 0, lambda total, event: total + 1)) as subject:
                assert (subject.fold, subject.acknowledged) == (events, events)
                assert either.store.reads == ["look", "listed", "listed"]
        assert either.effects == []

    either.run(main)


def test_j8e_an_older_version_folds_again_too(either: World) -> None:
    """A fold is of one version: after going back, the old version starts from nothing."""

    async def main() -> None:
        async with either.journal() as journal:
            await journal.append_all([("add", 1)] * 10)
            for version in (1, 2, 1):
                async with either.subject(journal, version) as subject:
                    await either.drained(subject)
                    assert subject.fold == 10
        assert len(either.effects) == 10

    either.run(main)


def test_j8b_the_fold_is_kept_every_64_events(world: World) -> None:
    """Whatever the size of a batch, no more than 63 acknowledged events are missing from the kept fold."""

    async def main() -> None:
        async with world.journal() as journal, world.subject(journal, batch=10) as subject:
            world.store.forget()
            await journal.append_all([("add", 1)] * 200)
            await world.drained(subject)
            assert world.store.checkpoints == [70, 140]

    world.run(main)


def test_j8b_the_fold_is_kept_every_second(world: World) -> None:
    """An acknowledgement a second or more after the last checkpoint keeps the fold."""

    async def main() -> None:
        async with world.journal() as journal, world.subject(journal) as subject:
            world.store.forget()
            for n in range(6):
                await journal.append("add", n)
                await subject.step()
                await world.timer.pause(400)
            assert world.store.checkpoints == [4]

    world.run(main)


def test_j8b_an_idle_subject_keeps_its_fold(either: World) -> None:
    """A subject that follows, and has nothing to do for a second, leaves no tail."""

    async def main() -> None:
        async with either.journal() as journal, either.subject(journal) as subject:
            following = asyncio.create_task(subject.run())
            await journal.append_all([("add", 1)] * 5)
            assert await journal.caught_up("sum", 5_000)
            assert subject.fold == 5
            await either.timer.pause(2_500)
            assert either.store.checkpoints[-1] == 5
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    either.run(main)


def test_j6_to_be_caught_up_is_to_be_past_the_durable_events(either: World) -> None:
    """Who waits for a subject waits for the durable events of then, whatever ephemerals lie behind them."""

    async def main() -> None:
        async with either.journal() as journal, either.subject(journal) as subject:
            assert await journal.caught_up("sum", 0)
            await journal.append("add", 1)
            await journal.connected("ada")
            assert not await journal.caught_up("sum", 1_500)
            waiting = asyncio.create_task(journal.caught_up("sum", 60_000))
            await either.timer.pause(5)
            await subject.step()
            began_ms = either.timer.now_ms()
            assert await waiting
            assert either.timer.now_ms() <= began_ms + 1

    either.run(main)


def test_j6_another_process_waits_too(tmp_path: Path) -> None:
    """Who reads the file from elsewhere is told by looking."""

    async def main() -> None:
        path = tmp_path / "events.db"
        async with (
            SqliteEvents(path) as mine,
            SqliteEvents(path) as theirs,
            EventJournal(mine) as journal,
            Subject(journal, "sum", sum_of()) as subject,
        ):
            await journal.append("add", 1)
            waiting = asyncio.create_task(EventReader(theirs).caught_up("sum", 10_000))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await subject.step()
            assert await asyncio.wait_for(waiting, 5)

    asyncio.run(main())


def test_what_an_effect_raises_acknowledges_what_came_before(either: World) -> None:
    """Calling again begins with the event whose effect failed; its reducer runs on the fold of before."""
    fails = [3]

    async def effect(event: JournalEvent, fold: int) -> None:
        if event.body in fails:
            raise ConnectionError("not now")
        await either.effect(event, fold)

    async def main() -> None:
        async with either.journal() as journal, either.subject(journal, effect=effect) as subject:
            await journal.append_all([("add", n) for n in range(1, 6)])
            for _ in range(2):
                with pytest.raises(ConnectionError):
                    await subject.step()
                assert (subject.acknowledged, subject.fold) == (2, 3)
            fails.clear()
            assert await subject.step() == 3
            assert either.effects == [(1, 1), (2, 3), (3, 6), (4, 10), (5, 15)]

    either.run(main)


def test_j8c_nothing_is_done_by_a_subject_that_may_not(world: World) -> None:
    """A subject that is asleep, or still folds again, is refused before any effect is run."""

    async def main() -> None:
        async with world.journal() as journal:
            await journal.append_all([("add", 1)] * 3)
            async with world.subject(journal) as subject:
                await subject.step()
            await journal.append("add", 1)
            world.effects.clear()
            steps = SubjectSteps(world.store, journal.incarnation, "sum", sum_of(2), JournalPolicy(), world.timer)
            for wake in (False, True):
                if wake:
                    await steps.wake()
                with pytest.raises(Refused) as refused:
                    await steps.process(1, world.effect)
                assert refused.value.rule == "J8c"
            await steps.fold_page(3)
            with pytest.raises(Refused) as refused:
                await steps.process(1, world.effect)
            assert refused.value.rule == "J8b"
            assert world.effects == []
            await steps.checkpoint()
            await steps.process(1, world.effect)
            assert world.effects == [(1, 4)]

    world.run(main)


def test_appends_and_acknowledgements_at_once(world: World) -> None:
    """Who appends and who acknowledges write one after the other, though each takes its time."""

    async def slow(at: str) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def main() -> None:
        memory = world.store.store
        assert isinstance(memory, MemoryEvents)
        memory.hook = slow
        async with world.journal() as journal, world.subject(journal, batch=1) as subject:

            async def appending() -> None:
                for _ in range(20):
                    await journal.append("add", 1)

            tasks = [asyncio.create_task(appending()) for _ in range(2)]
            while subject.acknowledged < 40:
                await subject.step()
                sight = memory.now(Look())
                assert sight.high >= sight.head
            await asyncio.gather(*tasks)
            assert [event.offset for event in await journal.listed()] == list(range(1, 41))
            assert subject.fold == 40

    world.run(main)


def test_what_a_reducer_raises_runs_no_effect(world: World) -> None:
    """An event that can't be folded has no effect, and is not acknowledged."""

    async def main() -> None:
        async with world.journal() as journal, world.subject(journal) as subject:
            await journal.append_all([("add", 1), ("add", "x")])
            with pytest.raises(AssertionError):
                await subject.step()
            assert (subject.acknowledged, world.effects) == (1, [(1, 1)])

    world.run(main)


def test_a_death_at_any_point_repeats_an_effect_but_skips_none() -> None:
    """Effects are at least once and in order, wherever the incarnation dies; the fold counts each event once."""
    for at in range(1, 60):
        store = MemoryEvents()
        store.hook = CrashAt(store, at, keep=at % 2)
        effects: list[object] = []

        async def effect(event: JournalEvent, fold: int, effects: list[object] = effects) -> None:
            effects.append(event.body)

        async def live(store: MemoryEvents = store, effect: SubjectEffect[int] = effect) -> int:
            async with EventJournal(store) as journal, Subject(journal, "sum", sum_of(), effect, batch=2) as subject:
                for n in range(1, 6):
                    await journal.append("add", n, key=str(n))
                    await subject.step()
                while await subject.step():
                    pass
                return subject.fold

        try:
            asyncio.run(live())
        except* Died:
            pass
        store.hook = None
        assert asyncio.run(live()) == 15
        assert sorted({int(str(one)) for one in effects}) == [1, 2, 3, 4, 5]
        assert len(effects) <= 7  # the batch under way, at most
        firsts = list(dict.fromkeys(effects))
        assert firsts == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("point", ["transact.written", "transact.after"])
def test_after_a_fault_the_subject_wakes_again(world: World, point: str) -> None:
    """If it is unknown what is acknowledged, the next step looks, and goes on there."""

    async def main() -> None:
        async with world.journal() as journal, world.subject(journal) as subject:
            await journal.append_all([("add", 1)] * 3)
            memory = world.store.store
            assert isinstance(memory, MemoryEvents)

            async def fail(at: str) -> None:
                if at == point:
                    raise StoreUnavailable(at)

            memory.hook = fail
            with pytest.raises(StoreUnavailable):
                await subject.step()
            memory.hook = None
            await world.drained(subject)
            assert (subject.fold, subject.acknowledged) == (3, 3)
            assert len(world.effects) == (3 if point == "transact.after" else 6)

    world.run(main)


def test_a_fold_that_can_t_be_read_is_damage(world: World) -> None:
    """A kept fold that no version of the library writes is told as damage of the store."""

    async def main() -> None:
        async with world.journal() as journal:
            await journal.append_all([("add", 1)] * 3)
            await world.store.transact(
                journal.incarnation, Look(subject="sum"), lambda sight: Writes(sight.high, kept=Kept(BROKEN, "{"))
            )
            with pytest.raises(StoreCorrupt, match="no JSON"):
                await world.subject(journal).__aenter__()
            async with world.subject(journal, 2) as subject:
                assert subject.fold == 3

    world.run(main)


BROKEN = Progress(3, Fold(1, 3, 3), 0)
"""Progress whose fold is no JSON."""


def test_misuse_is_told(world: World) -> None:
    """Two subjects of a name, folds that JSON can't keep, and values out of range are refused with what to do."""

    async def main() -> None:
        async with world.journal() as journal:
            async with world.subject(journal):
                with pytest.raises(SubjectTaken):
                    await world.subject(journal).__aenter__()
            async with world.subject(journal) as subject:
                assert subject.fold == 0
            with pytest.raises(CallerError, match="asleep"):
                await subject.step()
            await journal.append("add", 1)
            bad: Reducer[object] = Reducer(1, 0, lambda fold, event: object())
            async with Subject(journal, "bad", bad, batch=1) as unkept:
                await unkept.step()
                with pytest.raises(FoldMalformed, match="can't be kept as JSON"):
                    await unkept.keep()
                raise Died

    with pytest.raises(Died):
        world.run(main)
    for version in (0, -1, True, "1", 2**53):
        with pytest.raises(CallerError, match="version"):
            Reducer(version, 0, summed)  # type: ignore[arg-type]  # that is the test
    batches: tuple[Any, ...] = (0, 501, "x", True)  # Any: wrong on purpose
    for batch in batches:
        with pytest.raises(CallerError, match="batch"):
            Subject(EventJournal(MemoryEvents()), "sum", sum_of(), batch=batch)
    for name in ("", 5, "\udc00"):
        with pytest.raises(CallerError, match="the subject's name"):
            Subject(EventJournal(MemoryEvents()), name, sum_of())  # type: ignore[arg-type]  # that is the test


@pytest.mark.parametrize("odd", [float("nan"), (1,), {1: 2}, [{"a": ()}]], ids=["nan", "tuple", "key", "deep"])
def test_j8_a_fold_that_json_changes_is_refused(world: World, odd: object) -> None:
    """A fold comes back after a restart as it was kept; what JSON would make another is refused when it is kept."""
    reducer: Reducer[object] = Reducer(1, 0, lambda fold, event: odd)

    async def main() -> None:
        async with world.journal() as journal:
            await journal.append("add", 1)
            subject = Subject(journal, "odd", reducer)
            await subject.__aenter__()
            await subject.step()
            with pytest.raises(FoldMalformed):
                await subject.keep()

    world.run(main)


def test_j8_nothing_is_acknowledged_where_nothing_was_done() -> None:
    """A batch whose first effect fails writes nothing."""
    points: list[str] = []

    async def note(point: str) -> None:
        points.append(point)

    async def fails(event: JournalEvent, fold: int) -> None:
        raise Died

    world = World(MemoryEvents(note))

    async def main() -> None:
        async with world.journal() as journal:
            await journal.append("add", 1)
            async with Subject(journal, "sum", sum_of(), fails) as subject:
                points.clear()
                with pytest.raises(Died):
                    await subject.step()
                assert "transact.before" not in points
                assert subject.acknowledged == 0

    world.run(main)
