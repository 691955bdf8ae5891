"""A clock that can also be waited on, so that a test may let an hour pass in milliseconds."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from .clock import Clock, SystemClock


class Timer(Clock, Protocol):
    """A source of the time that sleeps too. Only ``now_ms`` may be called from any thread."""

    async def pause(self, ms: int, until: asyncio.Future[None] | None = None) -> None:
        """Let *ms* milliseconds pass, or fewer if *until* is done before; it is not cancelled."""
        ...


class SystemTimer(SystemClock):
    """The wall clock, and sleeps of the running event loop."""

    def elapsed_ms(self) -> float:
        """Milliseconds since some instant, and parts of one; nobody can set this clock."""
        return time.monotonic() * 1_000

    async def pause(self, ms: int, until: asyncio.Future[None] | None = None) -> None:
        """See :meth:`Timer.pause`."""
        if until is None:
            await asyncio.sleep(ms / 1_000)
        else:
            await asyncio.wait((until,), timeout=ms / 1_000)
