"""The time of a journal: never back, and never at a standstill, whatever is done to the wall clock.

If the wall clock was set ahead for a while, and then back, the journal's time would stand still until the wall has
caught up: nothing would expire, and late decisions would count (H2). So the time goes on by what a steady clock
measures, from the latest time that was ever seen.
"""

from __future__ import annotations

import threading

from .timer import Timer


class SteadyClock:
    """The time of one process's journal. It may be read in any thread.

    Args:
        timer: the wall clock; and the steady one, if it has a method ``elapsed_ms``.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()
        self._last_ms = 0.0
        self._read_at_ms = self.elapsed_ms()

    def elapsed_ms(self) -> float:
        """Milliseconds since some instant, steadily; parts of one too, or the sum of roundings would lead the wall."""
        elapsed = getattr(self._timer, "elapsed_ms", self._timer.now_ms)
        return float(elapsed())

    def now_ms(self, floor_ms: int = 0) -> int:
        """The time: at least *floor_ms*, and later than at the last reading by what has passed since."""
        with self._lock:
            wall_ms = self._timer.now_ms()
            elapsed_ms = self.elapsed_ms()  # after the wall's, so that it can't come to lead it
            steady_ms = self._last_ms + max(0, elapsed_ms - self._read_at_ms)
            self._read_at_ms = elapsed_ms
            self._last_ms = max(wall_ms, steady_ms, floor_ms)
            return int(self._last_ms)
