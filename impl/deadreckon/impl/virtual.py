"""Virtual time for tests: whenever everybody sleeps, the clock is moved to the next one's waking.

Example::

    timer = VirtualTimer()
    journal = MemoryJournal(timer)
    run_virtual(ten_minutes_of_holds(journal), timer)       # takes milliseconds

Work in threads (a database) is waited for in real time, during which the virtual time stands still.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from deadreckon.spec.errors import CallerError

from .clock import VirtualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_MS = 1_000_000
"""Where virtual time starts: not at 0, so that an instant is never mistaken for a span."""


class VirtualTimer(VirtualClock):
    """A :class:`~deadreckon.impl.Timer` whose time moves when all sleep, in :func:`run_virtual`, or by ``advance``."""

    def __init__(self, now_ms: int = START_MS) -> None:
        super().__init__(now_ms)

    async def pause(self, ms: int, until: asyncio.Future[None] | None = None) -> None:
        """See :meth:`deadreckon.impl.Timer.pause`."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop) or loop.timer is not self:
            raise CallerError("virtual time stands still in this event loop: use run_virtual(coroutine, timer)")
        if until is None:
            await asyncio.sleep(ms / 1_000)
        else:
            await asyncio.wait((until,), timeout=ms / 1_000)


class _Skipping(selectors.SelectSelector):
    """A selector that moves the clock instead of waiting for it."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None or self.loop.busy:
            return super().select(None)
        now_s = self.loop.timer.now_ms() / 1_000
        self.loop.timer.advance(max(1, math.ceil((now_s + timeout) * 1_000 - 1e-3) - self.loop.timer.now_ms()))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in the time of *timer*.

    Attributes:
        busy: calls under way in threads.
    """

    def __init__(self, timer: VirtualTimer) -> None:
        self.timer = timer
        self.busy = 0
        selector = _Skipping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self.timer.now_ms() / 1_000

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As ever, but counted."""
        future = super().run_in_executor(executor, func, *args)
        self.busy += 1
        future.add_done_callback(self._idle)
        return future

    def _idle(self, future: asyncio.Future[Any]) -> None:  # Any: of whatever was run
        self.busy -= 1


def run_virtual(main: Coroutine[object, object, T], timer: VirtualTimer) -> T:
    """``asyncio.run`` in the time of *timer*."""

    async def awaited() -> T:
        return await main

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(timer)) as runner:
        return runner.run(awaited())
