"""Hosts in memory, for tests: a store that can crash between any two of its writes, and a platform that loses alarms.

Each write is durable when it is made, as in a file; record and alarm are two. Every await point calls the *hook* first,
so that a test may crash the store, or let another task run, there. The store is tied to no event loop: one
``asyncio.run`` for each life is a faithful process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs

from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy

from .keepalive_store import OPERATOR, UNCLAIMED, UNFILED, Change, Claim, Filed, admit, successor
from .store import StoreClosed

Hook = Callable[[str], Awaitable[None]]


class MemoryKeepalive:
    """An in-memory :class:`~deadreckon.impl.KeepaliveStore` with crashes.

    Attributes:
        hook: awaited at every await point, with its name: that of the method, followed by ``.before`` or ``.after``.
            What it raises, the call raises: so a write is made or not, and its caller may not know which.
        others: whether a test writes as somebody else, so that a keepalive has to look for it.
    """

    def __init__(self, hook: Hook | None = None, *, others: bool = False) -> None:
        self.hook = hook
        self.others = others
        self._claim = UNCLAIMED
        self._alive = False
        self._versions: dict[int, str] = {}
        self._filed: dict[str, Filed] = {}
        self._changes = 0
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether the incarnation that claimed the store last has not crashed."""
        return self._alive

    def crash(self, keep: int = 0) -> None:
        """The living incarnation dies. Nothing is unsynced, so there is nothing to *keep*."""
        self._alive = False

    def now(self, host: str) -> Filed:
        """What is filed of *host*, without an await point."""
        return self._filed.get(host, UNFILED)

    async def claim(self, version: str, policy: KeepalivePolicy) -> Claim:
        """See :meth:`deadreckon.impl.KeepaliveStore.claim`."""
        await self._point("claim.before")
        known = [number for number, name in self._versions.items() if name == version]
        number = known[0] if known else len(self._versions) + 1
        self._versions[number] = version
        self._claim = Claim(successor(self._claim.incarnation), number, policy)
        self._alive = True
        self._changes += 1
        claim = self._claim
        await self._point("claim.after")
        return claim

    async def transact(self, incarnation: int, host: str, change: Change) -> Filed:
        """See :meth:`deadreckon.impl.KeepaliveStore.transact`."""
        await self._point("transact.before")
        self._admit(incarnation)
        before = self.now(host)
        after = attrs.evolve(change(before), alarm_at_ms=before.alarm_at_ms)
        self._write(incarnation, host, after)
        await self._point("transact.after")
        return after

    async def arm(self, incarnation: int, host: str, at_ms: int) -> bool:
        """See :meth:`deadreckon.impl.KeepaliveStore.arm`."""
        await self._point("arm.before")
        self._admit(incarnation)
        filed = self.now(host)
        agreed = filed.armed_at_ms == at_ms
        if agreed:
            self._write(incarnation, host, attrs.evolve(filed, alarm_at_ms=at_ms))
        await self._point("arm.after")
        return agreed

    async def use_up(self, incarnation: int, host: str, at_ms: int) -> bool:
        """See :meth:`deadreckon.impl.KeepaliveStore.use_up`."""
        await self._point("use_up.before")
        self._admit(incarnation)
        filed = self.now(host)
        same = filed.alarm_at_ms == at_ms
        if same:
            self._write(incarnation, host, attrs.evolve(filed, alarm_at_ms=NEVER))
        await self._point("use_up.after")
        return same

    async def read(self, host: str) -> Filed:
        """See :meth:`deadreckon.impl.KeepaliveStore.read`."""
        await self._point("read.before")
        filed = self.now(host)
        await self._point("read.after")
        return filed

    async def hosts(self) -> Sequence[tuple[str, Filed]]:
        """See :meth:`deadreckon.impl.KeepaliveStore.hosts`."""
        await self._point("hosts.before")
        return sorted(self._filed.items())

    async def living(self) -> Claim:
        """See :meth:`deadreckon.impl.KeepaliveStore.living`."""
        await self._point("living.before")
        return self._claim

    async def versions(self) -> Mapping[int, str]:
        """See :meth:`deadreckon.impl.KeepaliveStore.versions`."""
        await self._point("versions.before")
        return dict(self._versions)

    async def changes(self) -> int:
        """See :meth:`deadreckon.impl.KeepaliveStore.changes`."""
        await self._point("changes.before")
        return self._changes

    async def close(self) -> None:
        """See :meth:`deadreckon.impl.KeepaliveStore.close`."""
        self._closed = True

    def _admit(self, caller: int) -> None:
        admit(caller, self._claim.incarnation, alive=self._alive)

    def _write(self, incarnation: int, host: str, filed: Filed) -> None:
        if filed != self.now(host):
            self._changes += incarnation == OPERATOR
            self._filed[host] = filed

    async def _point(self, name: str) -> None:
        if self._closed:
            raise StoreClosed("the store was closed")
        if self.hook is not None:
            await self.hook(name)
