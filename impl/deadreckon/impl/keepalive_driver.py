"""The reference implementation as models drive it: one host, an action at a time.

The driver plays what is not of the implementation: the clock, the platform that loses alarms, the roll-out of another
version. All else is asked of :class:`~.keepalive_steps.Steps` over a real store. A host dies in one of two ways, which
take turns: with the process in it that keeps its record (the store is crashed, and claimed anew by whoever acts next),
or as the child of one that lives on. A person's reset comes from this process and from another one, in turn.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import attrs

from deadreckon.spec import keepalive as spec
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.keepalive_state import KeepalivePolicy, State

from .clock import VirtualClock
from .keepalive_memory import MemoryKeepalive
from .keepalive_sqlite import SqliteKeepalive
from .keepalive_steps import Life, Steps, enter, reset_by_hand
from .keepalive_store import OPERATOR, UNCLAIMED, KeepaliveStore
from .store import Fenced

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


class KeepaliveMemoryDisk:
    """What outlives an incarnation: a :class:`~.keepalive_memory.MemoryKeepalive`."""

    def __init__(self, make: Callable[[], MemoryKeepalive] = MemoryKeepalive) -> None:
        self._make = make
        self._store = make()

    async def fresh(self) -> KeepaliveStore:
        """An empty store."""
        self._store = self._make()
        return self._store

    async def crashed(self) -> KeepaliveStore:
        """The same store; nothing in it was unsynced."""
        self._store.crash()
        return self._store

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


class KeepaliveFileDisk:
    """What outlives an incarnation: SQLite files in *directory*, one for each run.

    After a crash the file is opened anew beside its open store: a crash tidies nothing up.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._paths = (os.path.join(os.fspath(directory), f"hosts-{number}.db") for number in count(1))
        self._path = ""
        self._opened: list[SqliteKeepalive] = []

    async def fresh(self) -> KeepaliveStore:
        """A store in a file of its own; earlier ones are closed."""
        await self.close()
        self._path = self._unused()
        return await self.crashed()

    def _unused(self) -> str:
        return next(path for path in self._paths if not os.path.exists(path))

    async def crashed(self) -> KeepaliveStore:
        """The file, opened anew."""
        self._opened.append(SqliteKeepalive(self._path))
        return self._opened[-1]

    async def close(self) -> None:
        """Close every store that was opened."""
        while self._opened:
            await self._opened.pop().close()


class KeepaliveDriver:
    """Drives the reference implementation of the keepalive.

    Args:
        disk: what outlives an incarnation; memory by default.
    """

    def __init__(self, disk: KeepaliveMemoryDisk | KeepaliveFileDisk | None = None) -> None:
        self.disk = disk or KeepaliveMemoryDisk()
        self._runner = asyncio.Runner()
        self._policy = KeepalivePolicy()
        self._clock = VirtualClock()
        self._store: KeepaliveStore | None = None
        self._steps: Steps | None = None
        self._version = spec.initial().version
        self._entered = False
        self._turn = count()

    def reset(self, policy: object) -> None:
        """Begin anew: an empty store, nobody lives, time 0."""
        if not isinstance(policy, KeepalivePolicy):
            raise CallerError(f"the policy is {policy!r}: give a KeepalivePolicy")
        self._policy = policy
        self._clock = VirtualClock()
        self._version = spec.initial().version
        self._runner.run(self._begin())

    def do(self, action: str, /, **inputs: object) -> None:
        """Take an action of the machine.

        Raises:
            Refused: the implementation refuses; a store that fences the caller names no rule.
            CallerError: there is no such action.
        """
        if action in PLAYED:
            self._runner.run(self._taken(getattr(self, f"_{action}"), inputs))
        elif action in ASKED:
            self._runner.run(self._asked(action, inputs))
        else:
            raise CallerError(f"the keepalive has no action {action!r}: one of {', '.join(sorted(PLAYED | ASKED))}")

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

    @property
    def _there(self) -> KeepaliveStore:
        if self._store is None:
            raise CallerError("the driver has not been reset yet: call reset(policy) first")
        return self._store

    async def _begin(self) -> None:
        self._store = await self.disk.fresh()
        for number in range(1, self._version + 1):
            await enter(self._store, str(number), self._policy)
        await self._gone()

    async def _asked(self, action: str, inputs: dict[str, object]) -> None:
        await self._living()
        await self._taken(getattr(self._now, action), inputs)

    async def _taken(self, own: Callable[..., Awaitable[object]], inputs: dict[str, object]) -> None:
        try:
            await own(**inputs)
        except Fenced as fenced:
            raise Refused("", str(fenced)) from fenced

    async def _living(self) -> None:
        """Somebody keeps the record: if the last one died, another claims the store, and remembers nothing."""
        if not self._entered:
            life = await enter(self._there, str(self._version), self._policy)
            self._steps = Steps(self._there, life, HOST, self._policy, self._clock)
            self._entered = True

    async def _gone(self) -> None:
        """Whoever keeps the record dies."""
        self._store = await self.disk.crashed()
        life = Life(attrs.evolve(UNCLAIMED, version=self._version, policy=self._policy))
        self._steps = Steps(self._store, life, HOST, self._policy, self._clock)
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
