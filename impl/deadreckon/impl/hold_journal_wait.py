"""How a task waits for a fact: told at once of what its own journal appends, and looking for what others do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil

from .hold_journal_clock import SteadyClock
from .timer import Timer

LOOK_FIRST_MS = 5
LOOK_MAX_MS = 100
"""Between two looks for what other processes append: from the first to the second, doubling."""


class Listeners:
    """Tasks that wait for facts. Tied to no event loop: each future belongs to the one that waits."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._waiting: dict[asyncio.Future[None], str | None] = {}

    def tell(self, hold_id: str | None = None) -> None:
        """Wake who waits for facts of *hold_id*, or of any hold; everybody if it is None. Thread of the loop only."""
        for future, wanted in list(self._waiting.items()):
            if not future.done() and (hold_id is None or wanted is None or wanted == hold_id):
                future.set_result(None)

    async def wait(
        self, look: Callable[[], Awaitable[int | None]], timeout_ms: int, hold_id: str | None, *, others: bool
    ) -> int | None:
        """The first result of *look* that is not None; None if there is none in *timeout_ms*.

        With *others*, it looks again and again, else only when it is told.
        """
        clock = SteadyClock(self._timer)
        ends_at_ms = clock.elapsed_ms() + timeout_ms
        pause_ms = LOOK_FIRST_MS
        while True:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[future] = hold_id
            try:
                found = await look()
                left_ms = ceil(ends_at_ms - clock.elapsed_ms())
                if found is not None or left_ms <= 0:
                    return found
                await self._timer.pause(min(left_ms, pause_ms) if others else left_ms, future)
            finally:
                del self._waiting[future]
            pause_ms = min(2 * pause_ms, LOOK_MAX_MS)
