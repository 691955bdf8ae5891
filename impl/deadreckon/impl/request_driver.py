"""The reference implementation as models drive it: one request, an action at a time.

The driver plays what is not of the implementation: the crash, the next boot, the clock, and a dead incarnation that
still answers. All else is asked of :class:`~.request_steps.Steps` over a real store. It has the methods that
``deadreckon.models.driver.Driver`` asks for, and knows nothing of models.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import attrs

from deadreckon.spec import request as spec
from deadreckon.spec.request_state import RequestPolicy, State

from .driving import InFiles, InMemory, StepsDriver
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


class RequestMemoryDisk(InMemory[MemoryRequests]):
    """What outlives an incarnation: a :class:`~.request_store.MemoryRequests`; nothing in it is unsynced."""

    def __init__(self, make: Callable[[], MemoryRequests] = MemoryRequests) -> None:
        super().__init__(make)


class RequestFileDisk(InFiles[SqliteRequests]):
    """What outlives an incarnation: SQLite files in *directory*, one for each run."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory, "requests", SqliteRequests)


class RequestDriver(StepsDriver[RequestPolicy, RequestStore, Steps, State]):
    """Drives the reference implementation of the request.

    Args:
        disk: what outlives an incarnation; memory by default.
    """

    machine = "request"
    played = PLAYED
    asked = ASKED

    def __init__(self, disk: RequestMemoryDisk | RequestFileDisk | None = None) -> None:
        super().__init__(disk or RequestMemoryDisk(), RequestPolicy())
        self._life = Life(0, alive=False)

    def _nobody(self) -> None:
        self._live(Life(0, alive=False))

    async def _state(self) -> State:
        return await self._now.state()

    def _live(self, life: Life) -> None:
        """Go on as *life*, with empty memory."""
        self._life = life
        self._steps = Steps(self._there, life, REQUEST_ID, self._policy, self._clock)

    # What is not of the implementation. Whether it can happen, the specification says.

    async def _boot(self) -> None:
        spec.boot(await self._now.state())
        self._live(await boot(self._there))

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

        def change(filed: Filed) -> Filed:
            state = attrs.evolve(self._now.seen(filed), running=True)
            settled = spec.succeed(state) if succeeded else spec.fail(self._policy, state)
            return attrs.evolve(filed, request=settled.request)

        try:
            if self._life.incarnation >= 2:
                await self._there.transact(self._life.incarnation - 1, REQUEST_ID, change)
        except Fenced:
            pass  # as it must be: the answer changes nothing, and is not refused by the machine
