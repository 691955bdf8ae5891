"""The reference implementation as models drive it: one request, an action at a time.

The driver plays what is not of the implementation: the crash, the next boot, the clock, and a dead incarnation that
still answers. All else is asked of :class:`~.request_steps.Steps` over a real store. It has the methods that
``deadreckon.models.driver.Driver`` asks for, and knows nothing of models.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import attrs

from deadreckon.spec import request as spec
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.request_state import RequestPolicy, State

from .clock import VirtualClock
from .request_sqlite import SqliteRequests
from .request_steps import Life, Steps, boot
from .request_store import Filed, MemoryRequests, RequestStore
from .store import Fenced

REQUEST_ID: Final = "request"

PLAYED: Final = frozenset({"boot", "crash", "tick", "answer_from_the_dead"})
"""The actions that are not asked of the implementation."""

ASKED: Final = frozenset(
    {"open_request", "dial", "succeed", "fail", "give_up", "expire", "fire", "tell", "answer_late"}
)
"""Those that are methods of :class:`~.request_steps.Steps`."""


class RequestMemoryDisk:
    """What outlives an incarnation: a :class:`~.request_store.MemoryRequests`."""

    def __init__(self, make: Callable[[], MemoryRequests] = MemoryRequests) -> None:
        self._make = make
        self._store = make()

    async def fresh(self) -> RequestStore:
        """An empty store."""
        self._store = self._make()
        return self._store

    async def crashed(self) -> RequestStore:
        """The same store; nothing in it was unsynced."""
        self._store.crash()
        return self._store

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


class RequestFileDisk:
    """What outlives an incarnation: SQLite files in *directory*, one for each run.

    After a crash the file is opened anew beside its open store: a crash tidies nothing up.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._paths = (os.path.join(os.fspath(directory), f"requests-{number}.db") for number in count(1))
        self._path = ""
        self._opened: list[SqliteRequests] = []

    async def fresh(self) -> RequestStore:
        """A store in a file of its own; earlier ones are closed."""
        await self.close()
        self._path = self._unused()
        return await self.crashed()

    def _unused(self) -> str:
        return next(path for path in self._paths if not os.path.exists(path))

    async def crashed(self) -> RequestStore:
        """The file, opened anew."""
        self._opened.append(SqliteRequests(self._path))
        return self._opened[-1]

    async def close(self) -> None:
        """Close every store that was opened."""
        while self._opened:
            await self._opened.pop().close()


class RequestDriver:
    """Drives the reference implementation of the request.

    Args:
        disk: what outlives an incarnation; memory by default.
    """

    def __init__(self, disk: RequestMemoryDisk | RequestFileDisk | None = None) -> None:
        self.disk = disk or RequestMemoryDisk()
        self._runner = asyncio.Runner()
        self._policy = RequestPolicy()
        self._clock = VirtualClock()
        self._life = Life(0, alive=False)
        self._store: RequestStore | None = None
        self._steps: Steps | None = None

    def reset(self, policy: object) -> None:
        """Begin anew: an empty store, nobody lives, time 0."""
        if not isinstance(policy, RequestPolicy):
            raise CallerError(f"the policy is {policy!r}: give a RequestPolicy")
        self._policy = policy
        self._clock = VirtualClock()
        self._store = self._runner.run(self.disk.fresh())
        self._live(Life(0, alive=False))

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
            raise CallerError(f"the request has no action {action!r}: one of {', '.join(sorted(PLAYED | ASKED))}")

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

    def _live(self, life: Life) -> None:
        """Go on as *life*, with empty memory."""
        assert self._store is not None
        self._life = life
        self._steps = Steps(self._store, life, REQUEST_ID, self._policy, self._clock)

    # What is not of the implementation. Whether it can happen, the specification says.

    async def _boot(self) -> None:
        spec.boot(await self._now.state())
        assert self._store is not None
        self._live(await boot(self._store))

    async def _crash(self) -> None:
        spec.crash(await self._now.state())
        self._store = await self.disk.crashed()
        self._live(Life(self._life.incarnation, alive=False))

    async def _tick(self, elapsed_ms: int) -> None:
        spec.tick(await self._now.state(), elapsed_ms)
        self._clock.advance(elapsed_ms)

    async def _answer_from_the_dead(self, succeeded: bool) -> None:
        """A dead incarnation has an answer. A process that is gone answers no more; one before it may."""
        spec.answer_from_the_dead(await self._now.state(), succeeded)
        assert self._store is not None

        def change(filed: Filed) -> Filed:
            state = attrs.evolve(self._now.seen(filed), running=True)
            settled = spec.succeed(state) if succeeded else spec.fail(self._policy, state)
            return attrs.evolve(filed, request=settled.request)

        try:
            if self._life.incarnation >= 2:
                await self._store.transact(self._life.incarnation - 1, REQUEST_ID, change)
        except Fenced:
            pass  # as it must be: the answer changes nothing, and is not refused by the machine
