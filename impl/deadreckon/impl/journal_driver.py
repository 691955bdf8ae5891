"""The reference implementation as models drive it: one journal with one subject, an action at a time.

The driver plays what is not of the implementation: the crash and the clock. All else is asked of
:class:`~.journal_steps.Steps` and :class:`~.journal_subject_steps.SubjectSteps` over a real store. It has the methods that
``deadreckon.models.driver.Driver`` asks for, and knows nothing of models.

The machine tracks two rows; the driver tracks the rows that got a slot, and hands these in. The machine's keys and
bodies are numbers; the driver's events say them in their texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from deadreckon.spec import journal as spec
from deadreckon.spec.errors import CallerError
from deadreckon.spec.journal_state import FREE, NOBODY_WAITS, Event, JournalPolicy, Phase, State

from .driving import InFiles, InMemory, StepsDriver
from .journal_memory import MemoryEvents
from .journal_sqlite import SqliteEvents
from .journal_steps import Buffer, Slots, Steps
from .journal_store import EventStore, Look
from .journal_subject_steps import Reducer, SubjectSteps, begin_wait, end_wait, waiting_state
from .journal_words import Draft, JournalEvent

SUBJECT: Final = "subject"
SLOTS: Final = len(spec.initial().log.rows)

ACTIONS: Final = frozenset(
    {
        "boot", "crash", "tick", "reserve", "append", "append_others", "connect", "disconnect", "revive", "evict",
        "read_row", "read_buffered", "begin_wait", "end_wait", "wake", "fold_page", "process", "checkpoint",
    }
)  # fmt: skip


class StreamMemoryDisk(InMemory[MemoryEvents]):
    """What outlives an incarnation: a :class:`~.journal_memory.MemoryEvents`."""

    def __init__(self, make: Callable[[], MemoryEvents] = MemoryEvents) -> None:
        super().__init__(make)


class StreamFileDisk(InFiles[SqliteEvents]):
    """What outlives an incarnation: SQLite files in *directory*, one for each run."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, "events", SqliteEvents)


def drafted(body: int, size: int, key: int = 0, *, asked: bool = False, declared: bool = False) -> Draft:
    """An event that says these numbers."""
    return Draft("event", json.dumps([body, size]), str(key) if key else "", asked, declared)


class Tracked(Slots):
    """The rows that the machine tracks: those that got one of its slots."""

    def __init__(self) -> None:
        self.offsets: tuple[int, ...] = ()

    def event(self, event: JournalEvent) -> Event:
        """The numbers that the event says."""
        body, size = json.loads(event.text)
        return Event(event.offset, int(event.key or 0), body, event.ephemeral, event.index or 0, size)

    def look(self, key: str = "") -> Look:
        """The tracked rows, among them any with a key."""
        return Look(key=key, offsets=self.offsets)

    def rows(self, found: Sequence[JournalEvent]) -> tuple[Event, ...]:
        """Each in its slot."""
        return padded([self.event(row) for row in found if row.offset in self.offsets])

    def buffer(self, buffer: Buffer) -> tuple[Event, ...]:
        """Each in its slot."""
        return padded([self.event(event) for event in buffer.events])

    def committed(self, after: State) -> None:
        """A row that has a slot from now on is tracked."""
        self.offsets = tuple(row.offset for row in after.log.rows if row.offset)


def padded(events: Sequence[Event]) -> tuple[Event, ...]:
    """So many slots, the last of them free."""
    return (*events, *[FREE] * (SLOTS - len(events)))


def counted(total: int, event: JournalEvent) -> int:
    """The fold: how many events there were."""
    return total + 1


class JournalDriver(StepsDriver[JournalPolicy, EventStore, Steps, State]):
    """Drives the reference implementation of the journal.

    Args:
        disk: what outlives an incarnation; memory by default.
    """

    machine = "journal"
    played = ACTIONS

    def __init__(self, disk: StreamMemoryDisk | StreamFileDisk | None = None) -> None:
        super().__init__(disk or StreamMemoryDisk(), JournalPolicy())
        self._tracked = Tracked()
        self._version, self._declared, self._effects = 0, False, 0
        self._waiting = NOBODY_WAITS

    async def _begin(self) -> None:
        self._tracked = Tracked()
        self._version, self._declared, self._effects = 0, False, 0
        await super()._begin()

    def _live(self, phase: Phase) -> None:
        """A subject that is asleep, in an incarnation or none."""
        reducer = Reducer(max(1, self._version), 0, counted)
        self._subject = SubjectSteps(
            self._there, self._now.incarnation, SUBJECT, reducer, self._policy, self._clock, phase
        )

    def _nobody(self) -> None:
        """Nobody lives, and memory is empty."""
        self._steps = Steps(self._there, self._policy, self._clock, slots=self._tracked)
        self._waiting = NOBODY_WAITS
        self._live(Phase.DOWN)

    async def _state(self) -> State:
        journal = await self._now.state(self._tracked.look())
        subject = await self._subject.look()
        return attrs.evolve(
            journal,
            progress=subject.progress,
            version=self._version,
            declared=self._declared,
            phase=subject.phase,
            fold=subject.fold,
            reads=subject.reads,
            replayed=subject.replayed,
            waiting=self._waiting,
            effects=self._effects,
        )

    # What is not of the implementation. Whether it can happen, the specification says.

    async def _crash(self) -> None:
        spec.crash(await self._state())
        self._store = await self.disk.crashed()
        self._nobody()

    async def _tick(self, elapsed_ms: int) -> None:
        spec.tick(await self._state(), elapsed_ms)
        self._clock.advance(elapsed_ms)

    # What is.

    async def _boot(self, version: int, declared: bool) -> None:
        await self._now.boot(version, declared)
        self._version, self._declared = version, declared
        self._live(Phase.OPEN)

    async def _reserve(self, ahead: int) -> None:
        await self._now.reserve(ahead)

    async def _append(self, key: int, body: int, asked: bool, size: int) -> None:
        await self._now.append(drafted(body, size, key, asked=asked, declared=self._declared))

    async def _append_others(self, rows: int) -> None:
        await self._now.append_others([drafted(0, 0)] * rows)

    async def _connect(self, size: int) -> None:
        await self._now.connect(drafted(0, size))

    async def _disconnect(self, size: int) -> None:
        await self._now.disconnect(drafted(0, size))

    async def _revive(self) -> None:
        await self._now.revive(drafted(0, 0))

    async def _evict(self) -> None:
        self._now.evict()

    async def _read_row(self, slot: int) -> None:
        rows = (await self._now.state(self._tracked.look())).log.rows
        await self._now.read_row(rows[slot].offset, self._declared)

    async def _read_buffered(self, slot: int) -> None:
        offset = [*(event.offset for event in self._now.buffer.events), 0, 0][slot]
        self._now.read_buffered(offset, self._declared)

    async def _begin_wait(self) -> None:
        self._waiting = await begin_wait(self._there, SUBJECT, waiting_state(self._waiting, self._subject.memory.phase))

    async def _end_wait(self) -> None:
        await end_wait(self._there, SUBJECT, waiting_state(self._waiting, self._subject.memory.phase))
        self._waiting = NOBODY_WAITS

    async def _wake(self) -> None:
        await self._subject.wake()

    async def _fold_page(self, rows: int) -> None:
        await self._subject.fold_page(rows)

    async def _process(self, rows: int) -> None:
        ran: list[int] = []

        async def effect(event: JournalEvent, fold: int) -> None:
            if event.index is None or fold != event.index + 1:
                raise CallerError(f"the effect of {event} was run on a fold of {fold} events")
            ran.append(event.index)

        await self._subject.process(rows, effect)
        self._effects += len(ran)

    async def _checkpoint(self) -> None:
        await self._subject.checkpoint()
