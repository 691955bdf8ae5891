"""What the tests of a service that uses ``deadreckon.impl`` need: a clock that is told the time, and deaths.

Every point of a service's life at which it may die, one after the other::

    store = MemoryStore()
    for at in itertools.count(1):                       # die at the first await point, the second, ...
        store.hook = CrashAt(store, at)
        if live(my_service(store)):                     # lived to its end: every point was tried
            break
        store.hook = None
        live(my_service(store))                         # the next incarnation; then check what happened
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from .clock import VirtualClock
from .incident_memory import MemoryStore
from .journal_memory import MemoryEvents

__all__ = ["CrashAt", "Died", "MemoryEvents", "MemoryStore", "Mortal", "VirtualClock", "live"]


class Died(BaseException):
    """The incarnation was killed by the test. No ``except Exception`` holds it up, as nothing holds a death up."""


class Mortal(Protocol):
    """A store whose incarnation can die: a :class:`MemoryStore`, or another one in memory."""

    @property
    def alive(self) -> bool:
        """Whether its incarnation lives."""
        ...

    def crash(self, keep: int = 0) -> None:
        """Let it die."""
        ...


class CrashAt:
    """A hook of a :class:`Mortal` store that kills the living incarnation at one await point.

    Once dead it stays dead: every further await point of the same life raises :class:`Died` too.

    Args:
        store: the store.
        at: which await point, from 1 on.
        keep: how many unsynced writes reach the disk nevertheless, the oldest first.

    Attributes:
        passed: await points met so far.
        died: whether the death has happened.
    """

    def __init__(self, store: Mortal, at: int, keep: int = 0) -> None:
        self.passed = 0
        self.died = False
        self._store = store
        self._at = at
        self._keep = keep

    async def __call__(self, point: str) -> None:
        self.passed += 1
        if self.passed == self._at:
            self.die(point)
        if self.died:
            raise Died(point)

    def die(self, point: str) -> None:
        """Die now, if not dead already; raises :class:`Died`."""
        if not self.died:
            self.died = True
            if self._store.alive:
                self._store.crash(self._keep)
        raise Died(point)


def live(life: Coroutine[object, object, object]) -> bool:
    """Run one life in an event loop of its own; whether it lived to its end, rather than :class:`Died`."""
    lived = True
    try:
        asyncio.run(_awaited(life))
    except* Died:
        lived = False
    return lived


async def _awaited(life: Coroutine[object, object, object]) -> None:
    await life
