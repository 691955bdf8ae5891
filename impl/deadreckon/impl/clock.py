"""Where the time comes from: integer milliseconds since the epoch."""

from __future__ import annotations

import time
from typing import Protocol

from deadreckon.spec.errors import CallerError


class Clock(Protocol):
    """A source of the time. It may be read in any thread."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class SystemClock:
    """The wall clock. It survives restarts, as the soft budgets need; it may jump, which the count never sees."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


class VirtualClock:
    """A clock for tests, which moves only when it is told to."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as set."""
        return self._now_ms

    def advance(self, elapsed_ms: int) -> None:
        """Let *elapsed_ms* milliseconds pass; 0 or more."""
        if elapsed_ms < 0:
            raise CallerError(f"elapsed_ms is {elapsed_ms}: give 0 or more, time doesn't go back")
        self._now_ms += elapsed_ms
