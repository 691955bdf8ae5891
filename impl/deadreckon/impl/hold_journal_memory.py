"""A journal in memory that models what journals do to their users: being away, and losing acknowledgements.

For tests. Every await point calls the *hook* first, so that a test may kill the door between any two of them. What was
appended is durable at once. The journal is tied to no event loop: one ``asyncio.run`` for each life is a faithful
process.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence

import attrs

from .hold_journal import (
    Change,
    Entry,
    Held,
    JournalUnavailable,
    Key,
    KeyChange,
    Moment,
    Receipt,
    Recorded,
    Verifier,
    admit_door,
    admit_key,
    durable,
    successor_door,
)
from .hold_journal_keys import judged
from .hold_journal_wait import Listeners
from .store import StoreClosed
from .timer import SystemTimer, Timer


class MemoryJournal:
    """An in-memory :class:`~deadreckon.impl.Journal`.

    Args:
        timer: its clock.
        verifier: what tells good signatures.

    Attributes:
        hook: awaited at every await point, with its name: that of the method, followed by ``.before`` or ``.after``.
            What it raises, the call raises.
        unacknowledged: so many appends to come are kept, and then raise ``JournalUnavailable``.
    """

    def __init__(self, timer: Timer | None = None, verifier: Verifier | None = None) -> None:
        self.hook: Callable[[str], Awaitable[None]] | None = None
        self.unacknowledged = 0
        self._timer = SystemTimer() if timer is None else timer
        self._verifier = verifier
        self._listeners = Listeners(self._timer)
        self._held: dict[str, Held] = {}
        self._facts: list[Recorded] = []
        self._used: dict[str, tuple[str, str]] = {}
        self._keys: dict[str, Key] = {}
        self._door = 0
        self._last_ms = 0
        self._up = True
        self._closed = False

    @property
    def timer(self) -> Timer:
        """See :class:`deadreckon.impl.Journal`."""
        return self._timer

    @property
    def verifier(self) -> Verifier | None:
        """See :class:`deadreckon.impl.Journal`."""
        return self._verifier

    @property
    def is_up(self) -> bool:
        """Whether the journal answers."""
        return self._up

    def down(self) -> None:
        """Become unavailable; every wait fails at once."""
        self._up = False
        self._listeners.tell()

    def up(self) -> None:
        """Be available again, with all facts."""
        self._up = True

    def now_ms(self) -> int:
        """See :meth:`deadreckon.impl.Journal.now_ms`."""
        self._last_ms = max(self._last_ms, self._timer.now_ms())
        return self._last_ms

    def held(self, hold_id: str) -> Held:
        """What is kept of a hold, without an await point."""
        return self._held[hold_id]

    async def claim(self) -> int:
        """See :meth:`deadreckon.impl.Journal.claim`."""
        await self._point("claim.before")
        self._door = successor_door(self._door)
        self._record("", Entry("door.booted", {"door": self._door}))
        await self._point("claim.after")
        return self._door

    async def append(
        self, hold_id: str, change: Change, *, door: int | None = None, key: str = "", body: str = ""
    ) -> Receipt:
        """See :meth:`deadreckon.impl.Journal.append`."""
        await self._point("append.before")
        admit_door(door, self._door)
        receipt = self._repeated(key, body) or self._changed(hold_id, change)
        if key and receipt.fresh:
            self._used[key] = (hold_id, body)
        await self._point("append.after")
        if self.unacknowledged:
            self.unacknowledged -= 1
            raise JournalUnavailable("the acknowledgement was lost", hold_id=hold_id)
        return receipt

    async def renew(self, door: int, hold_ids: Collection[str], until_ms: int) -> None:
        """See :meth:`deadreckon.impl.Journal.renew`."""
        await self._point("renew.before")
        admit_door(door, self._door)
        for hold_id in hold_ids:
            self._held[hold_id] = attrs.evolve(self._held[hold_id], lease_until_ms=until_ms)
        await self._point("renew.after")

    async def read(self, hold_id: str) -> Moment:
        """See :meth:`deadreckon.impl.Journal.read`."""
        await self._point("read.before")
        moment = self._moment(hold_id)
        await self._point("read.after")
        return moment

    async def unfinished(self) -> Sequence[Held]:
        """See :meth:`deadreckon.impl.Journal.unfinished`."""
        await self._point("unfinished.before")
        found = [held for held in self._held.values() if not held.finished]
        await self._point("unfinished.after")
        return found

    async def facts(self, after_offset: int = 0, hold_id: str | None = None, limit: int = 1_000) -> Sequence[Recorded]:
        """See :meth:`deadreckon.impl.Journal.facts`."""
        await self._point("facts.before")
        return self._past(after_offset, hold_id)[:limit]

    async def newest(self) -> int:
        """See :meth:`deadreckon.impl.Journal.newest`."""
        await self._point("newest.before")
        return len(self._facts)

    async def wait(self, after_offset: int, timeout_ms: int, hold_id: str | None = None) -> int | None:
        """See :meth:`deadreckon.impl.Journal.wait`."""

        async def look() -> int | None:
            await self._point("wait.before")
            found = self._past(after_offset, hold_id)
            return found[-1].offset if found else None

        return await self._listeners.wait(look, timeout_ms, hold_id, others=False)

    async def change_key(self, change: KeyChange) -> None:
        """See :meth:`deadreckon.impl.Journal.change_key`."""
        await self._point("change_key.before")
        key_id = change.key.key_id
        revoked = any(fact.type == "key.revoked" and fact.body["key"] == key_id for fact in self._facts)
        entry = judged(change, tuple(self._keys.values()), revoked, self._verifier)
        if entry is not None:
            self._keys.pop(key_id, None)
            if change.active:
                self._keys[key_id] = change.key
            self._record("", entry)

    async def close(self) -> None:
        """See :meth:`deadreckon.impl.Journal.close`."""
        self._closed = True

    def _moment(self, hold_id: str) -> Moment:
        return Moment(self._held.get(hold_id), tuple(self._keys.values()), self.now_ms())

    def _repeated(self, key: str, body: str) -> Receipt | None:
        if not key or key not in self._used:
            return None
        hold_id, known = self._used[key]
        admit_key(key, body, known)
        return Receipt(self._held[hold_id], fresh=False)

    def _changed(self, hold_id: str, change: Change) -> Receipt:
        written = change(self._moment(hold_id))
        for entry in written.entries:
            self._record(hold_id, entry)
        offset = self._facts[-1].offset if written.entries else written.held.offset
        self._held[hold_id] = attrs.evolve(written.held, hold=durable(written.held.hold), offset=offset)
        return Receipt(self._held[hold_id], fresh=True)

    def _record(self, hold_id: str, entry: Entry) -> None:
        body = json.loads(json.dumps(entry.body))
        self._facts.append(Recorded(len(self._facts) + 1, self.now_ms(), entry.type, hold_id, body))
        self._listeners.tell(hold_id)

    def _past(self, after_offset: int, hold_id: str | None) -> list[Recorded]:
        return [fact for fact in self._facts[after_offset:] if hold_id is None or fact.hold_id == hold_id]

    async def _point(self, name: str) -> None:
        if self._closed:
            raise StoreClosed("the journal was closed")
        if self.hook is not None:
            await self.hook(name)
        if not self._up:
            raise JournalUnavailable("the journal is down")
