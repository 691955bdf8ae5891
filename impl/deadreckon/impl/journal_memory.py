"""Events in memory, with what disks do to a journal: a write that waits for its sync, and a crash in between.

For tests. Every await point calls the *hook* first. The store is tied to no event loop: one ``asyncio.run`` for each
life is a faithful process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import attrs

from deadreckon.spec import incident

from .journal_store import UNKEPT, Change, Kept, Look, Sight, Writes
from .journal_words import JournalEvent
from .store import StoreClosed, admit_caller, successor

Hook = Callable[[str], Awaitable[None]]


class MemoryEvents:
    """An in-memory :class:`~deadreckon.impl.EventStore` with an unsynced write and crashes.

    Attributes:
        hook: awaited at every await point, with its name: that of the method, followed by ``.before`` or ``.after``;
            ``transact.written`` lies between a write and its sync. What it raises, the call raises: so a write is made
            or not, and its caller may not know which.
        reads: how often it was read, transactions not counted.
    """

    others = False

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook
        self.reads = 0
        self._incarnation = 0
        self._alive = False
        self._high = 0
        self._rows: list[JournalEvent] = []
        self._keys: dict[str, JournalEvent] = {}
        self._kept: dict[str, Kept] = {}
        self._unsynced: list[tuple[str, Writes]] = []
        self._closed = False

    @property
    def incarnation(self) -> int:
        """The incarnation that claimed the store last; 0 if nobody has."""
        return self._incarnation

    @property
    def alive(self) -> bool:
        """Whether the incarnation that claimed the store last has not crashed."""
        return self._alive

    @property
    def unsynced(self) -> int:
        """How many writes a crash would lose if it kept none."""
        return len(self._unsynced)

    def crash(self, keep: int = 0) -> None:
        """The living incarnation dies; of the unsynced writes the first *keep* reached the disk.

        Raises:
            Refused: nobody lives.
        """
        self._alive = incident.crash(
            attrs.evolve(incident.initial(), incarnation=self._incarnation, alive=self._alive)
        ).alive
        self._sync(keep)
        self._unsynced.clear()

    async def claim(self) -> int:
        """Begin a new incarnation; one that lives dies of it, as in a deploy."""
        await self._point("claim.before")
        if self._alive:
            self.crash()
        self._incarnation, self._alive = successor(self._incarnation), True
        identity = self._incarnation
        await self._point("claim.after")
        return identity

    async def transact(self, incarnation: int, look: Look, change: Change) -> None:
        """See :meth:`deadreckon.impl.EventStore.transact`."""
        await self._point("transact.before")
        while self._unsynced:  # noqa: ASYNC110  # nobody writes within a transaction; an Event belongs to one loop
            await asyncio.sleep(0)
        admit_caller(incarnation, self._incarnation, alive=self._alive)
        self._unsynced.append((look.subject, change(self.now(look))))
        try:
            await self._point("transact.written")
            admit_caller(incarnation, self._incarnation, alive=self._alive)
        except BaseException:
            if self._incarnation == incarnation:
                self._unsynced.clear()  # rolled back
            raise
        self._sync(len(self._unsynced))
        await self._point("transact.after")

    def now(self, look: Look) -> Sight:
        """What is there, without an await point."""
        wanted = {*look.offsets, *((self._keys[look.key].offset,) if look.key in self._keys else ())}
        kept = self._kept.get(look.subject, UNKEPT)
        last = self._rows[-1] if self._rows else None
        return Sight(
            self._incarnation,
            self._high,
            last.offset if last else 0,
            len(self._rows),
            tuple(row for row in self._rows if row.offset in wanted) if wanted else (),
            kept if look.fold else attrs.evolve(kept, fold=None),
        )

    async def look(self, look: Look) -> Sight:
        """See :meth:`deadreckon.impl.EventStore.look`."""
        await self._point("look.before")
        self.reads += 1
        sight = self.now(look)
        await self._point("look.after")
        return sight

    async def rows(self, after_offset: int, through_offset: int, limit: int) -> Sequence[JournalEvent]:
        """See :meth:`deadreckon.impl.EventStore.rows`."""
        await self._point("rows.before")
        self.reads += 1
        found = [row for row in self._rows if after_offset < row.offset <= through_offset][:limit]
        await self._point("rows.after")
        return found

    async def listed(self, first_index: int, limit: int) -> Sequence[JournalEvent]:
        """See :meth:`deadreckon.impl.EventStore.listed`."""
        await self._point("listed.before")
        self.reads += 1
        found = self._rows[first_index : first_index + limit]
        await self._point("listed.after")
        return found

    async def close(self) -> None:
        """See :meth:`deadreckon.impl.EventStore.close`."""
        self._closed = True

    def _sync(self, count: int) -> None:
        """The oldest *count* unsynced writes reach the disk, in order, each as a whole."""
        for subject, writes in self._unsynced[:count]:
            self._high = writes.high
            self._rows.extend(writes.rows)
            self._keys.update((row.key, row) for row in writes.rows if row.key)
            if writes.kept is not None:
                fold = self._kept.get(subject, UNKEPT).fold if writes.kept.fold is None else writes.kept.fold
                self._kept[subject] = attrs.evolve(writes.kept, fold=fold)
        del self._unsynced[:count]

    async def _point(self, name: str) -> None:
        if self._closed:
            raise StoreClosed("the store was closed")
        if self.hook is not None:
            await self.hook(name)
