"""The reference implementation as models drive it: one host, an action at a time.

The driver plays what is not of the implementation: the clock, the platform that loses alarms, the roll-out of another
version. All else is asked of :class:`~.keepalive_steps.Steps` over a real store. A host dies in one of two ways, which
take turns: with the process in it that keeps its record (the store is crashed, and claimed anew by whoever acts next),
or as the child of one that lives on. A person's reset comes from this process and from another one, in turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Final

import attrs

from deadreckon.spec import keepalive as spec
from deadreckon.spec.keepalive_state import KeepalivePolicy, State

from .driving import InFiles, InMemory, StepsDriver
from .keepalive_memory import MemoryKeepalive
from .keepalive_sqlite import SqliteKeepalive
from .keepalive_steps import Life, Steps, enter, reset_by_hand
from .keepalive_store import OPERATOR, UNCLAIMED, KeepaliveStore

HOST: Final = "host"

PLAYED: Final = frozenset({"die", "deploy", "lose_alarm", "reset", "tick"})
"""The actions that are not asked of the implementation, or not always in the same way."""

ASKED: Final = frozenset(
    {
        "boot", "track", "settle", "settle_failed", "fire", "stray_fire", "arm", "report", "act", "stand_down",
        "succeed", "fail", "confirm", "probe", "ask_to_stop", "end", "recreate",
    }
)  # fmt: skip
"""Those that are methods of :class:`~.keepalive_steps.Steps`."""


class KeepaliveMemoryDisk(InMemory[MemoryKeepalive]):
    """What outlives an incarnation: a :class:`~.keepalive_memory.MemoryKeepalive`; nothing in it is unsynced."""

    def __init__(self, make: Callable[[], MemoryKeepalive] = MemoryKeepalive) -> None:
        super().__init__(make)


class KeepaliveFileDisk(InFiles[SqliteKeepalive]):
    """What outlives an incarnation: SQLite files in *directory*, one for each run."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, "hosts", SqliteKeepalive)


class KeepaliveDriver(StepsDriver[KeepalivePolicy, KeepaliveStore, Steps, State]):
    """Drives the reference implementation of the keepalive.

    Args:
        disk: what outlives an incarnation; memory by default.
    """

    machine = "keepalive"
    played = PLAYED
    asked = ASKED

    def __init__(self, disk: KeepaliveMemoryDisk | KeepaliveFileDisk | None = None) -> None:
        super().__init__(disk or KeepaliveMemoryDisk(), KeepalivePolicy())
        self._version = spec.initial().version
        self._entered = False
        self._turn = count()

    async def _state(self) -> State:
        return await self._now.state()

    async def _begin(self) -> None:
        self._store = await self.disk.fresh()
        self._version = spec.initial().version
        for number in range(1, self._version + 1):
            await enter(self._store, str(number), self._policy)
        await self._gone()

    async def _ask(self, action: str, inputs: dict[str, object]) -> None:
        await self._living()
        await super()._ask(action, inputs)

    async def _living(self) -> None:
        """Somebody keeps the record: if the last one died, another claims the store, and remembers nothing."""
        if not self._entered:
            life = await enter(self._there, str(self._version), self._policy)
            self._steps = Steps(self._there, life, HOST, self._policy, self._clock)
            self._entered = True

    async def _gone(self) -> None:
        """Whoever keeps the record dies."""
        self._store = await self.disk.crashed()
        self._nobody()

    def _nobody(self) -> None:
        life = Life(attrs.evolve(UNCLAIMED, version=self._version, policy=self._policy))
        self._steps = Steps(self._there, life, HOST, self._policy, self._clock)
        self._entered = False

    # What is not of the implementation. Whether it can happen, the specification says.

    async def _die(self) -> None:
        if next(self._turn) % 2:
            await self._living()
            await self._now.die()
        else:
            spec.die(await self._now.state())
            await self._gone()

    async def _deploy(self, version: int) -> None:
        spec.deploy(await self._now.state(), version)
        for number in range(1, version + 1):
            await enter(self._there, str(number), self._policy)
        self._version = version
        await self._gone()

    async def _lose_alarm(self) -> None:
        state = await self._now.state()
        spec.lose_alarm(state)
        await self._there.use_up(OPERATOR, HOST, state.alarm_at_ms)

    async def _reset(self) -> None:
        await self._living()  # whose version and limits the other process finds in the store
        if next(self._turn) % 2:
            await self._now.reset("ada")
        else:
            await reset_by_hand(self._there, HOST, self._clock, "ada")

    async def _tick(self, elapsed_ms: int) -> None:
        spec.tick(await self._now.state(), elapsed_ms)
        self._clock.advance(elapsed_ms)
