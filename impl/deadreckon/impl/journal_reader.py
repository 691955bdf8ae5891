"""Reading a journal of events, in any process: pages, the dense list, and waits.

Theory of operation
    A cursor is an offset: all up to it was seen. It passes gaps, for what is between two durable events was ephemeral,
    or never was. A place in a list is an index instead, which has no gaps (J5).

    Waiting is done on the offset of the last durable event, never on an ephemeral one (J6): that may be forgotten
    before anybody sees it. A wait goes by slices of a second, each of which begins with a look, so that a call that was
    missed costs a second and no more. What this process appends is told at once; what others append is found by
    looking after 5 ms, 10 ms, up to every 100 ms, in looks that all waits share.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs

from deadreckon.spec.errors import CallerError, Refused

from .hold_journal_clock import SteadyClock
from .hold_journal_wait import LOOK_FIRST_MS, Listeners
from .journal_store import PAGE, EventStore, Look
from .journal_subject_steps import begin_wait, end_wait, waiting_state
from .journal_words import JournalEvent, check_name
from .timer import SystemTimer, Timer

SLICE_MS: Final = 1_000
"""How long a wait goes by what it is told, before it looks for itself."""

LAST: Final = 2**63 - 1
"""Past every offset."""


@attrs.frozen
class EventPage:
    """Some events, and where to go on.

    Attributes:
        events: in the order of their offsets.
        cursor: all up to this offset was seen: go on after it.
        full: whether the page is full, so that more may be there already.
    """

    events: tuple[JournalEvent, ...]
    cursor: int
    full: bool


class EventReader:
    """Reads the journal in *store*; appends nothing, and fences nobody.

    Args:
        store: where the events are; it stays the caller's, to be closed by it.
        timer: the clock of waits.
    """

    def __init__(self, store: EventStore, timer: Timer | None = None) -> None:
        self.store = store
        self.timer: Timer = SystemTimer() if timer is None else timer
        self.listeners = Listeners(self.timer)
        self._steady = SteadyClock(self.timer)
        self._head = 0
        self._looked_at_ms = -LOOK_FIRST_MS

    async def count(self) -> int:
        """The number of durable events, and so the next index."""
        return (await self.store.look(Look())).count

    async def head(self) -> int:
        """The offset of the last durable event; 0 if there is none."""
        return await self._newest(again=False)

    async def read(self, after_offset: int = 0, *, limit: int = PAGE) -> EventPage:
        """The durable events past this offset: one read.

        Raises:
            CallerError: *limit* is not from 1 to 500, or *after_offset* is no offset.
        """
        check_range("after_offset", after_offset, limit)
        return page(await self.store.rows(after_offset, LAST, limit), limit, after_offset)

    async def listed(self, first_index: int = 0, *, limit: int = PAGE) -> Sequence[JournalEvent]:
        """The durable events from this index on: one read.

        Raises:
            CallerError: *limit* is not from 1 to 500, or *first_index* is no index.
        """
        check_range("first_index", first_index, limit)
        return await self.store.listed(first_index, limit)

    async def wait(self, after_offset: int, timeout_ms: int) -> int | None:
        """The offset of the last durable event, once it is past *after_offset*; None if it isn't in *timeout_ms*.

        Raises:
            CallerError: one of the two is no such number.
        """
        check_number("after_offset", after_offset)
        first = True

        async def look() -> int | None:
            nonlocal first
            head = await self._newest(again=not first)
            first = False
            return head if head > after_offset else None

        return await self._wait(look, timeout_ms)

    async def caught_up(self, subject: str, timeout_ms: int) -> bool:
        """Wait until *subject* has acknowledged all durable events of now; whether it has, in *timeout_ms*.

        Raises:
            CallerError: the name or the number is none.
        """
        check_name("the subject's name", subject)
        check_number("timeout_ms", timeout_ms)
        if not (await self.store.look(Look())).head:
            return True
        waiting = await begin_wait(self.store, subject, waiting_state())

        async def look() -> int | None:
            try:
                await end_wait(self.store, subject, waiting_state(waiting))
            except Refused:
                return None
            return waiting.offset

        return await self._wait(look, timeout_ms) is not None

    async def _wait(self, look: Callable[[], Awaitable[int | None]], timeout_ms: int) -> int | None:
        check_number("timeout_ms", timeout_ms)
        ends_at_ms = self._elapsed_ms() + timeout_ms
        while True:
            left_ms = max(0, ends_at_ms - self._elapsed_ms())
            found = await self.listeners.wait(look, min(left_ms, SLICE_MS), None, others=self.store.others)
            if found is not None or left_ms <= SLICE_MS:
                return found

    async def _newest(self, *, again: bool) -> int:
        """The offset of the last durable event; if it is looked for *again*, what another wait has just seen will do."""
        now_ms = self._elapsed_ms()
        if not again or not 0 <= now_ms - self._looked_at_ms < LOOK_FIRST_MS:
            self._looked_at_ms = now_ms
            await self._look()
        return self._known_head()

    def _elapsed_ms(self) -> int:
        return int(self._steady.elapsed_ms())

    async def _look(self) -> None:
        """Look for the last durable event."""
        self._head = max(self._head, (await self.store.look(Look())).head)

    def _known_head(self) -> int:
        """The offset of the last durable event that is known here."""
        return self._head


def page(events: Sequence[JournalEvent], limit: int, scanned: int) -> EventPage:
    """The first *limit* of these events; if they are fewer, all up to *scanned* was seen."""
    shown = tuple(events[:limit])
    full = len(events) >= limit
    cursor = shown[-1].offset if full else max(scanned, shown[-1].offset if shown else 0)
    return EventPage(shown, cursor, full)


def check_range(name: str, first: int, limit: int) -> None:
    """Refuse places that no event has, and pages that are too large."""
    check_number(name, first)
    if type(limit) is not int or not 1 <= limit <= PAGE:
        raise CallerError(f"limit is {limit!r:.60}: give 1 to {PAGE}, and read page by page")


def check_number(name: str, value: int) -> None:
    """Refuse what no offset, index or span can be.

    Raises:
        CallerError: it is no integer, or out of the range of a store.
    """
    if type(value) is not int or not 0 <= value <= LAST:
        raise CallerError(f"{name} is {value!r:.60}: give an integer, 0 or more")
