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

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final, Protocol

import attrs

from deadreckon.spec import incident as spec
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.incident_state import RecoveryPolicy, State

from .clock import VirtualClock
from .incident_steps import Life, Steps, boot
from .memory import MemoryStore
from .sqlite import SqliteStore
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


class Disk(Protocol):
    """What outlives an incarnation.

    Attributes:
        at_once: actions of the machine that the store takes by itself wherever they are possible.
        notices_death: whether the store fences an incarnation from its death on, not only from the next claim on.
    """

    at_once: tuple[str, ...]
    notices_death: bool

    async def fresh(self) -> Store:
        """A store that is empty; earlier ones are let go of."""
        ...

    async def crashed(self, store: Store) -> Store:
        """What the next incarnation finds after a crash of the one that used *store*."""
        ...

    async def replaced(self, store: Store) -> Store:
        """What the next incarnation finds after the one that used *store* was shut down."""
        ...

    async def close(self) -> None:
        """Let go of every store."""
        ...


class MemoryDisk:
    """A :class:`~.memory.MemoryStore`, whose writes wait for a sync and which loses them in a crash."""

    def __init__(self, store: Callable[[], MemoryStore] = MemoryStore) -> None:
        self.at_once: tuple[str, ...] = ()
        self.notices_death = True
        self._make = store
        self._store = store()

    async def fresh(self) -> Store:
        """An empty store."""
        self._store = self._make()
        return self._store

    async def crashed(self, store: Store) -> Store:
        """The same store, without what was not synced."""
        self._store.crash()
        return store

    replaced = crashed

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


class FileDisk:
    """SQLite files in *directory*, one for each run. After a crash the file is opened anew, beside its open store."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.at_once: tuple[str, ...] = ("sync",)
        self.notices_death = False
        self._paths = (os.path.join(os.fspath(directory), f"run-{number}.db") for number in count(1))
        self._path = ""
        self._opened: list[SqliteStore] = []

    async def fresh(self) -> Store:
        """A store in a file of its own."""
        await self.close()
        self._path = self._unused()
        return self._open()

    async def crashed(self, store: Store) -> Store:
        """The file, opened anew. The old store is not closed: a crash tidies nothing up."""
        return self._open()

    async def replaced(self, store: Store) -> Store:
        """The file, opened anew after it was closed."""
        await store.close()
        return self._open()

    async def close(self) -> None:
        """Close every store that was opened."""
        while self._opened:
            await self._opened.pop().close()

    def _unused(self) -> str:
        return next(path for path in self._paths if not os.path.exists(path))

    def _open(self) -> SqliteStore:
        store = SqliteStore(self._path)
        self._opened.append(store)
        return store


class IncidentDriver:
    """Drives the reference implementation of the incident.

    Args:
        disk: what outlives an incarnation; memory by default.
    """

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk: Disk = disk or MemoryDisk()
        self._runner = asyncio.Runner()
        self._policy = RecoveryPolicy()
        self._clock = VirtualClock()
        self._life = Life(0, alive=False)
        self._store: Store | None = None
        self._steps: Steps | None = None

    @property
    def at_once(self) -> tuple[str, ...]:
        """Actions of the machine that the store takes by itself."""
        return self.disk.at_once

    def reset(self, policy: object) -> None:
        """Begin anew: an empty store, nobody lives, time 0."""
        if not isinstance(policy, RecoveryPolicy):
            raise CallerError(f"the policy is {policy!r}: give a RecoveryPolicy")
        self._policy = policy
        self._clock = VirtualClock()
        self._store = self._runner.run(self.disk.fresh())
        self._live(Life(0, alive=False), queued=False)

    def do(self, action: str, /, **inputs: object) -> None:
        """Take an action of the machine.

        Raises:
            Refused: the implementation refuses; a store that fences the caller names no rule.
            CallerError: there is no such action.
        """
        if action in PLAYED:
            self._runner.run(self._taken(getattr(self, f"_{action}"), inputs))
        elif action in ASKED:
            self._runner.run(self._taken(getattr(self._now, action), inputs))
        else:
            raise CallerError(f"the incident has no action {action!r}: one of {', '.join(sorted(PLAYED | ASKED))}")

    def observe(self) -> State:
        """The state as the specification sees it: the store's record, and the memory of the incarnation."""
        return self._runner.run(self._now.state())

    def close(self) -> None:
        """Close the stores, and end the event loop."""
        try:
            self._runner.run(self.disk.close())
        finally:
            self._runner.close()

    @property
    def _now(self) -> Steps:
        if self._steps is None:
            raise CallerError("the driver has not been reset yet: call reset(policy) first")
        return self._steps

    async def _taken(self, own: Callable[..., Awaitable[object]], inputs: dict[str, object]) -> None:
        try:
            await own(**inputs)
        except Fenced as fenced:
            raise Refused("", str(fenced)) from fenced

    def _live(self, life: Life, *, queued: bool) -> None:
        """Go on as *life*, with empty memory. The queue of callbacks is outside: what was in it still is."""
        assert self._store is not None
        self._life = life
        self._steps = Steps(self._store, life, TURN_ID, self._policy, self._clock)
        self._steps.memory = attrs.evolve(self._steps.memory, callback=queued)

    # What is not of the implementation. Whether it can happen, the specification says.

    async def _boot(self) -> None:
        spec.boot(await self._now.state())
        assert self._store is not None
        self._live(await boot(self._store), queued=self._now.memory.callback)

    async def _crash(self) -> None:
        spec.crash(await self._now.state())
        await self._end(self.disk.crashed)

    async def _deploy(self) -> None:
        spec.deploy(await self._now.state())
        await self._end(self.disk.replaced)

    async def _end(self, left: Callable[[Store], Awaitable[Store]]) -> None:
        assert self._store is not None
        self._store = await left(self._store)
        self._live(Life(self._life.incarnation, alive=False), queued=self._now.memory.callback)

    async def _tick(self, elapsed_ms: int) -> None:
        self._clock.advance(elapsed_ms)

    async def _call_from_the_dead(self, slot: int) -> None:
        """A dead incarnation tries to leave an entry. A process that is gone calls no more; one before it may."""
        spec.call_from_the_dead(await self._now.state(), slot)
        assert self._store is not None
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
                await self._store.transact(caller, TURN_ID, change)
        except Fenced:
            pass  # as it must be: the call changes nothing, and is not refused by the machine
