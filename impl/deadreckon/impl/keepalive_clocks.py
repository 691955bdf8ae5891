"""What an incarnation remembers of a host, and what it does when the wall clock is set.

The ladder has to survive restarts, so the instants of the machine are those of the wall clock. That clock is set, ahead
and back, and it is ahead after a machine has slept. Two things keep such a step from doing harm:

*   What is remembered moves with it: work in flight has lasted as long as a steady clock says, and isn't wedged because
    the wall clock is ahead (:meth:`Memory.anchored`). A revival under way whose record alone is old is looked at later.
*   What is on record from a time to come is brought back to now and one distance (:func:`brought_back`): so a clock that
    was set back leaves no host dead until it is there again. From now on that is a whole rung, so nothing comes too
    early (K2), and never later than it was to come (K6).

A timer without a method ``elapsed_ms`` has one clock only, and nothing of this happens.
"""

from __future__ import annotations

from typing import Final

import attrs

from deadreckon.spec.keepalive import initial
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, Pass, State
from deadreckon.spec.keepalive_words import distance, hung

from .clock import Clock
from .keepalive_store import Filed

SLOTS: Final = len(initial().owed)
SET_MS: Final = 1_000
"""By how much the clocks have to part before that counts: less is a slow correction, or the time between two readings."""


def elapsed_ms(clock: Clock) -> int:
    """Milliseconds since some instant, by a clock that nobody sets, if *clock* has one."""
    return int(getattr(clock, "elapsed_ms", clock.now_ms)())


def apart_ms(clock: Clock) -> int:
    """How far the wall clock is ahead of the steady one."""
    return clock.now_ms() - elapsed_ms(clock)


@attrs.frozen
class Memory:
    """What an incarnation remembers of one host.

    Attributes:
        alive: this, to ``stopping``, is of the machine; see :class:`~deadreckon.spec.keepalive_state.State`.
        passing_since_ms: when the revival under way began, as this process has seen it.
        apart_ms: how far the clocks were apart when its instants were noted.
    """

    alive: bool = False
    running_since_ms: tuple[int, ...] = (NEVER,) * SLOTS
    clean_seen: bool = False
    failed_seen: bool = False
    reviving: Pass = Pass.IDLE
    pass_count: int = 0
    confirm_at_ms: int = NEVER
    stopping: bool = False
    passing_since_ms: int = NEVER
    apart_ms: int = 0

    def after(self, state: State) -> Memory:
        """What is remembered once *state* is reached, from this."""
        began = self.reviving is Pass.IDLE and state.reviving is not Pass.IDLE
        since_ms = state.record.last_revival_at_ms if began else self.passing_since_ms
        machine = {name: getattr(state, name) for name in OF_THE_MACHINE}
        return Memory(**machine, passing_since_ms=since_ms, apart_ms=self.apart_ms)

    def anchored(self, apart: int) -> Memory:
        """The same instants by the wall clock as it is now, if it was set meanwhile."""
        step_ms = apart - self.apart_ms
        if abs(step_ms) < SET_MS:
            return self
        return attrs.evolve(
            self,
            running_since_ms=tuple(moved(since_ms, step_ms) for since_ms in self.running_since_ms),
            confirm_at_ms=moved(self.confirm_at_ms, step_ms),
            passing_since_ms=moved(self.passing_since_ms, step_ms),
            apart_ms=apart,
        )

    def seems_hung(self, policy: KeepalivePolicy, state: State) -> bool:
        """Whether the revival under way has hung by what is on record, though it has not lasted for so long."""
        lasted_ms = state.now_ms - self.passing_since_ms
        return self.reviving is not Pass.IDLE and hung(policy, state, state.record) and lasted_ms < policy.wedge_ms


OF_THE_MACHINE: Final = tuple(field.name for field in attrs.fields(Memory))[:-2]
"""What the machine knows of, too."""


def moved(at_ms: int, step_ms: int) -> int:
    """An instant after the wall clock was set by *step_ms*."""
    return NEVER if at_ms == NEVER else max(0, at_ms + step_ms)


def brought_back(policy: KeepalivePolicy, filed: Filed, now_ms: int) -> Filed:
    """What is filed, without what only a clock that was ahead can have written; unchanged if it holds nothing such."""
    record = filed.record
    latest_ms = now_ms + max(policy.lead_ms, distance(policy, record.revivals)) + policy.jitter_ms
    armed_at_ms, last_ms = min(record.armed_at_ms, latest_ms), min(record.last_revival_at_ms, now_ms)
    return attrs.evolve(filed, record=attrs.evolve(record, armed_at_ms=armed_at_ms, last_revival_at_ms=last_ms))
