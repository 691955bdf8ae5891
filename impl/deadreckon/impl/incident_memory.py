"""A store in memory that models what disks do: buffering, sync, and a crash that keeps any prefix of the writes.

For tests. Every await point calls the *hook* first, so that a test may crash the store, or let another task run,
between any two of them. The store is tied to no event loop: one ``asyncio.run`` for each life is a faithful process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from deadreckon.spec.incident import boot, initial
from deadreckon.spec.incident import crash as crashed
from deadreckon.spec.incident_state import Record, State, Status, Turn

from .store import UNKNOWN, Change, StoreClosed, Stored, admit_caller

Hook = Callable[[str], Awaitable[None]]


class MemoryStore:
    """An in-memory :class:`~deadreckon.impl.Store` with unsynced writes and crashes.

    Attributes:
        hook: awaited at every await point, with its name: ``claim``, ``transact``, ``sync``, ``read`` or ``select``,
            followed by ``.before`` or ``.after``. What it raises, the call raises.
    """

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook
        self._life: State = initial()
        self._durable: dict[str, Record] = {}
        self._unsynced: list[tuple[str, Record]] = []
        self._produced: dict[str, int] = {}
        self._closed = False

    @property
    def incarnation(self) -> int:
        """The incarnation that claimed the store last; 0 if nobody has."""
        return self._life.incarnation

    @property
    def alive(self) -> bool:
        """Whether the incarnation that claimed the store last has not crashed."""
        return self._life.alive

    @property
    def unsynced(self) -> int:
        """How many writes a crash would lose if it kept none."""
        return len(self._unsynced)

    def crash(self, keep: int = 0) -> None:
        """The living incarnation dies; of the unsynced writes the first *keep* reached the disk.

        Raises:
            Refused: nobody lives (C13).
        """
        self._life = crashed(self._life)
        self._flush(keep)
        self._unsynced.clear()

    def now(self, turn_id: str) -> Stored:
        """What is stored of *turn_id*, without an await point."""
        durable = self._durable.get(turn_id, UNKNOWN.durable)
        writes = [record for written, record in self._unsynced if written == turn_id]
        return Stored(durable, [durable, *writes][-1], self._produced.get(turn_id, UNKNOWN.produced))

    async def claim(self) -> int:
        """Begin a new incarnation; one that lives dies of it, as in a deploy, and loses what was unsynced."""
        await self._point("claim.before")
        if self._life.alive:
            self.crash()
        self._life = boot(self._life)
        identity = self._life.incarnation
        await self._point("claim.after")
        return identity

    async def transact(self, incarnation: int, turn_id: str, change: Change) -> None:
        """See :meth:`deadreckon.impl.Store.transact`."""
        await self._point("transact.before")
        self._admit(incarnation)
        before = self.now(turn_id)
        after = change(before)
        if after.buffered != before.buffered:
            self._unsynced.append((turn_id, after.buffered))
        if after.durable != before.durable:
            self._flush(len(self._unsynced))
        self._produced[turn_id] = after.produced
        await self._point("transact.after")

    async def sync(self, incarnation: int) -> None:
        """See :meth:`deadreckon.impl.Store.sync`."""
        await self._point("sync.before")
        self._admit(incarnation)
        self._flush(len(self._unsynced))
        await self._point("sync.after")

    async def read(self, turn_id: str) -> Stored:
        """See :meth:`deadreckon.impl.Store.read`."""
        await self._point("read.before")
        stored = self.now(turn_id)
        await self._point("read.after")
        return stored

    async def select(self, *, turn: Turn | None = None, status: Status | None = None) -> Sequence[tuple[str, Stored]]:
        """See :meth:`deadreckon.impl.Store.select`."""
        await self._point("select.before")
        known = {*self._durable, *(written for written, _ in self._unsynced)}
        rows = [(turn_id, self.now(turn_id)) for turn_id in sorted(known)]
        found = [
            (turn_id, stored)
            for turn_id, stored in rows
            if turn in (None, stored.buffered.turn) and status in (None, stored.buffered.status)
        ]
        await self._point("select.after")
        return found

    async def close(self) -> None:
        """See :meth:`deadreckon.impl.Store.close`."""
        self._closed = True

    def _admit(self, caller: int) -> None:
        admit_caller(caller, self._life.incarnation, alive=self._life.alive)

    def _flush(self, count: int) -> None:
        """The oldest *count* unsynced writes reach the disk, in order."""
        for turn_id, record in self._unsynced[:count]:
            self._durable[turn_id] = record
        del self._unsynced[:count]

    async def _point(self, name: str) -> None:
        if self._closed:
            raise StoreClosed("the store was closed")
        if self.hook is not None:
            await self.hook(name)
