"""The reference implementation as models drive it: one turn's incident, an action at a time.

The driver plays what is not of the implementation: the crash, the next boot, the clock, the queue of callbacks, and a
dead incarnation that still calls. All else is asked of :class:`~.incident_steps.Steps` over a real store. It has the
methods that ``deadreckon.models.driver.Driver`` asks for, and knows nothing of models.

What outlives an incarnation is a :class:`Disk`:

    ============  ===========================================  ====================================================
    Disk          sync                                         crash
    ============  ===========================================  ====================================================
    MemoryDisk    a step of its own                            unsynced writes are lost
    FileDisk      every write is synced: ``at_once``           the store is left as it is, and the file opened anew
    ============  ===========================================  ====================================================
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import attrs

from deadreckon.spec import incident as spec
from deadreckon.spec.incident_state import RecoveryPolicy, State

from .driving import InFiles, InMemory, Lasting, StepsDriver
from .incident_memory import MemoryStore
from .incident_sqlite import SqliteStore
from .incident_steps import Life, Steps, boot
from .store import Fenced, Store, Stored

TURN_ID: Final = "turn"


PLAYED: Final = frozenset({"boot", "crash", "deploy", "tick", "call_from_the_dead"})
"""The actions that are not asked of the implementation."""

ASKED: Final = frozenset(
    {
        "begin", "end_original", "report_original", "replay", "deliver", "sync", "start_work", "progress", "finish",
        "report", "deliver_terminal", "seal", "stand_down", "park", "unpark", "sweep",
    }
)  # fmt: skip
"""Those that are methods of :class:`~.incident_steps.Steps`."""


class Disk(Lasting[Store], Protocol):
    """What outlives an incarnation.

    Attributes:
        at_once: actions of the machine that the store takes by itself wherever they are possible.
        notices_death: whether the store fences an incarnation from its death on, not only from the next claim on.
    """

    at_once: tuple[str, ...]
    notices_death: bool

    async def replaced(self) -> Store:
        """What the next incarnation finds after the last was shut down."""
        ...


class MemoryDisk(InMemory[MemoryStore]):
    """A :class:`~.incident_memory.MemoryStore`, whose writes wait for a sync and which loses them in a crash."""

    def __init__(self, store: Callable[[], MemoryStore] = MemoryStore) -> None:
        super().__init__(store)
        self.at_once: tuple[str, ...] = ()
        self.notices_death = True

    async def replaced(self) -> MemoryStore:
        """As after a crash."""
        return await self.crashed()


class FileDisk(InFiles[SqliteStore]):
    """SQLite files in *directory*, one for each run. After a crash the file is opened anew, beside its open store."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, "run", SqliteStore)
        self.at_once: tuple[str, ...] = ("sync",)
        self.notices_death = False

    async def replaced(self) -> SqliteStore:
        """The file, opened anew after it was closed."""
        await self._opened[-1].close()
        return await self.crashed()


class IncidentDriver(StepsDriver[RecoveryPolicy, Store, Steps, State]):
    """Drives the reference implementation of the incident.

    Args:
        disk: what outlives an incarnation; memory by default.
    """

    machine = "incident"
    played = PLAYED
    asked = ASKED
    disk: Disk

    def __init__(self, disk: Disk | None = None) -> None:
        super().__init__(disk or MemoryDisk(), RecoveryPolicy())
        self._life = Life(0, alive=False)

    @property
    def at_once(self) -> tuple[str, ...]:
        """Actions of the machine that the store takes by itself."""
        return self.disk.at_once

    def _nobody(self) -> None:
        self._live(Life(0, alive=False), queued=False)

    async def _state(self) -> State:
        return await self._now.state()

    def _live(self, life: Life, *, queued: bool) -> None:
        """Go on as *life*, with empty memory. The queue of callbacks is outside: what was in it still is."""
        self._life = life
        self._steps = Steps(self._there, life, TURN_ID, self._policy, self._clock)
        self._steps.memory = attrs.evolve(self._steps.memory, callback=queued)

    # What is not of the implementation. Whether it can happen, the specification says.

    async def _boot(self) -> None:
        spec.boot(await self._now.state())
        self._live(await boot(self._there), queued=self._now.memory.callback)

    async def _crash(self) -> None:
        spec.crash(await self._now.state())
        await self._end(self.disk.crashed)

    async def _deploy(self) -> None:
        spec.deploy(await self._now.state())
        await self._end(self.disk.replaced)

    async def _end(self, left: Callable[[], Awaitable[Store]]) -> None:
        self._store = await left()
        self._live(Life(self._life.incarnation, alive=False), queued=self._now.memory.callback)

    async def _tick(self, elapsed_ms: int) -> None:
        self._clock.advance(elapsed_ms)

    async def _call_from_the_dead(self, slot: int) -> None:
        """A dead incarnation tries to leave an entry. A process that is gone calls no more; one before it may."""
        spec.call_from_the_dead(await self._now.state(), slot)
        caller = self._life.incarnation
        if self._life.alive or not self.disk.notices_death:
            caller -= 1

        def change(stored: Stored) -> Stored:
            record = stored.buffered
            return attrs.evolve(
                stored, buffered=attrs.evolve(record, attempts=spec.entered(record.attempts, slot, caller))
            )

        try:
            if caller >= 1:
                await self._there.transact(caller, TURN_ID, change)
        except Fenced:
            pass  # as it must be: the call changes nothing, and is not refused by the machine
