"""A journal of events for one service: durable and ephemeral ones in one sequence of offsets (machine ``journal``).

The hold has a port of its own that is called ``Journal``: a log of facts about holds, which its own rules judge. This
one is for whatever a service wants to tell, so it is the ``EventJournal``; the files of the other begin
with ``hold_journal``.

Theory of operation
    Whoever enters the journal is its incarnation, and fences the one before. It alone appends, so it knows the last
    offset without looking, and an ephemeral event costs no write: it goes into a buffer in memory, bounded by bytes,
    which forgets the oldest first. Offsets are covered by a durable high-water mark before anybody is told one (J1):
    a durable event moves it in its own transaction; for ephemerals it is moved ahead by :data:`RESERVED` at a time. So a
    restart leaves a gap of so many offsets at most, and no offset is ever given twice.

    Connecting and disconnecting are ephemeral, always: clients come and go without end, and add no row (J2). That the
    service was revived is one row for each incarnation.

What the caller relies on
    When ``append`` returns a durable event, it is on disk. A call that is cancelled is either done or not; one that
    failed with a ``StoreFault`` may be either, so give it a key and call it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from heapq import merge
from types import TracebackType
from typing import Final

from deadreckon.spec import journal_words as words
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.journal_state import JournalPolicy

from .events import Emitter, Sink
from .hold_journal import Json
from .journal_reader import EventPage, EventReader, check_range, page
from .journal_steps import Steps
from .journal_store import PAGE, EventStore, Look
from .journal_words import (
    CONNECTED,
    DISCONNECTED,
    REVIVED,
    Definitions,
    Draft,
    EphemeralKeyed,
    EventMalformed,
    EventTooLarge,
    EventType,
    JournalEvent,
    JournalNotOpen,
    KeyConflict,
    SubjectTaken,
    canonical,
    check_name,
    listed,
    presence,
)
from .store import admit_caller
from .timer import Timer

RESERVED: Final = 1_024
"""Offsets that the high-water mark is moved ahead by for ephemeral events: one write for so many of them."""

_REFUSALS: Final[dict[str, type[CallerError]]] = {"J3": EphemeralKeyed, "J7": KeyConflict, "B1": EventTooLarge}


class EventJournal(EventReader):
    """The journal in *store*, for the service that appends to it: ``async with EventJournal(store) as journal``.

    Args:
        store: where events are kept; it stays the caller's, to be closed by it.
        policy: the limits. The buffer's counts JSON; small events take about three times as much in memory.
        timer: the clock.
        types: the definitions of types of events; those that it doesn't name are durable unless their sender says
            otherwise. They may change with every version of the service: what is committed stays as it was.
        name: what it is called in events of the sink.
        sink: told ``journal.appended`` and ``journal.restarted``.
    """

    def __init__(
        self,
        store: EventStore,
        policy: JournalPolicy | None = None,
        timer: Timer | None = None,
        *,
        types: Iterable[EventType] = (),
        name: str = "journal",
        sink: Sink | None = None,
    ) -> None:
        super().__init__(store, timer)
        self.policy = JournalPolicy() if policy is None else policy
        if not isinstance(self.policy, JournalPolicy):
            raise CallerError(f"policy is {policy!r}: give a JournalPolicy")
        self.name = name
        self._types = Definitions(types)
        self._emit = Emitter(sink, self.timer.now_ms)
        self._entered = False
        self._steps: Steps | None = None
        self._one_at_a_time = asyncio.Lock()
        self._subjects: set[str] = set()

    async def __aenter__(self) -> EventJournal:
        if self._entered:
            raise CallerError("the journal is open already: enter it once")
        self._entered = True
        self._one_at_a_time = asyncio.Lock()  # of this event loop
        steps = Steps(self.store, self.policy, self.timer, self._emit, name=self.name)
        try:
            await steps.boot()
        except BaseException:
            self._entered = False
            raise
        self._steps = steps
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._steps = None
        async with self._one_at_a_time:
            pass  # what is under way ends
        self.listeners.tell()
        self._entered = False

    @property
    def incarnation(self) -> int:
        """The identity of this life of the journal."""
        return self._open.incarnation

    @property
    def max_offset(self) -> int:
        """The last offset that was given to an event. It may be an ephemeral one: don't wait for it."""
        return self._open.memory.max_offset

    async def append(
        self, type_: str, body: Json = None, *, key: str | None = None, ephemeral: bool = False
    ) -> JournalEvent:
        """Append an event; if it is durable, it is on disk when this returns.

        Args:
            type_: its type; whether it is ephemeral, the type's definition may say.
            body: what it says; JSON. As JSON has it, tuples become lists, and numbers as names of fields text.
            key: makes a repetition known: the event that was appended with it before is returned (J7). Without it,
                none is.
            ephemeral: keep it in memory only, until the buffer is full or the service ends.

        Raises:
            KeyConflict: the key stands for another type or body.
            EphemeralKeyed: the event is ephemeral and has a key.
            EventTooLarge: it is ephemeral and larger than the buffer.
            EventMalformed: the type, key or body is not what it must be.
            Fenced: another incarnation has taken over.
        """
        draft = self._types.draft(type_, body, key, ephemeral=ephemeral)
        async with self._writing() as steps:
            if key is None and words.input_flag(draft.declared, draft.asked):
                await _make_room(steps, draft)
            return await steps.append(draft)

    async def append_all(self, events: Sequence[tuple[str, Json]]) -> Sequence[JournalEvent]:
        """Append durable events without keys, given as types and bodies, in one transaction: all of them, or none."""
        pairs = listed("events", events)
        if odd := [one for one in pairs if not isinstance(one, tuple | list) or len(one) != 2]:
            raise EventMalformed(f"an event is {odd[0]!r:.60}: give its type and its body")
        drafts = [self._types.draft(type_, body) for type_, body in pairs]
        if ephemeral := [draft.type for draft in drafts if words.input_flag(draft.declared, draft.asked)]:
            raise EventMalformed(f"{ephemeral[0]} is ephemeral: append it by itself")
        if not drafts:
            return ()
        async with self._writing() as steps:
            return await steps.append_others(drafts)

    async def connected(self, client: str, about: Mapping[str, Json] | None = None) -> JournalEvent:
        """Tell that *client* has connected: ephemeral, and without a key. Telling it twice does no harm."""
        draft = presence(CONNECTED, client, {} if about is None else about)
        async with self._writing() as steps:
            await _make_room(steps, draft)
            return await steps.connect(draft)

    async def disconnected(self, client: str, about: Mapping[str, Json] | None = None) -> JournalEvent:
        """Tell that *client* has gone: ephemeral, and without a key."""
        draft = presence(DISCONNECTED, client, {} if about is None else about)
        async with self._writing() as steps:
            await _make_room(steps, draft)
            return await steps.disconnect(draft)

    async def revived(self) -> None:
        """Tell that a revival started this service: one row for each incarnation, however often it is called (J2)."""
        async with self._writing() as steps:
            try:
                await steps.revive(Draft(REVIVED.name, canonical({"incarnation": steps.incarnation})))
            except Refused as refusal:
                if refusal.rule != "J2":
                    raise

    async def read(self, after_offset: int = 0, *, limit: int = PAGE, ephemeral: bool = False) -> EventPage:
        """The events past this offset: one read. With *ephemeral*, those that are still known too.

        The cursor passes ephemeral events, shown or not.
        """
        check_range("after_offset", after_offset, limit)
        await self._settled()
        # What is seen at one instant: all up to the last offset. Rows up to there are committed, and stay.
        steps, through = self._open, self.max_offset
        known = steps.buffer.past(after_offset, limit) if ephemeral else []
        rows = await self.store.rows(after_offset, through, limit)
        merged = list(merge(rows, known, key=lambda event: event.offset)) if known else list(rows)
        return page([event for event in merged if self._may_see(event, ephemeral)], limit, max(through, after_offset))

    def claim_subject(self, name: str) -> None:
        """Let a subject be awake here, once.

        Raises:
            SubjectTaken: it is.
        """
        check_name("the subject's name", name)
        if name in self._subjects:
            raise SubjectTaken(f"the subject {name!r} is awake in this journal already")
        self._subjects.add(name)

    def release_subject(self, name: str) -> None:
        """The subject is asleep."""
        self._subjects.discard(name)

    def _may_see(self, event: JournalEvent, ephemeral: bool) -> bool:
        """Whether a reader sees it: by the flag that is stored, whatever the definition says by now (J4)."""
        return ephemeral or not words.committed_flag(event.ephemeral, self._types.declared(event.type))

    @property
    def _open(self) -> Steps:
        if self._steps is None:
            raise JournalNotOpen("the journal is not open: use it inside 'async with EventJournal(...)'")
        return self._steps

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[Steps]:
        """One action at a time; refusals become the caller's errors, and who waits is told."""
        steps = self._open
        async with self._one_at_a_time:
            if steps is not self._open:
                raise JournalNotOpen("the journal was left meanwhile")
            try:
                yield steps
            except Refused as refusal:
                raise _REFUSALS.get(refusal.rule, CallerError)(refusal.why) from refusal
        self.listeners.tell()

    async def _settled(self) -> None:
        """Find out the fate of a write, if that is unknown."""
        if self._open.is_unsure:
            async with self._one_at_a_time:
                await self._open.sure()

    async def _look(self) -> None:
        """Nobody else appends while this incarnation lives: look whether it does."""
        await self._settled()
        admit_caller(self.incarnation, (await self.store.look(Look())).incarnation)

    def _known_head(self) -> int:
        return self._open.memory.log.head


async def _make_room(steps: Steps, draft: Draft) -> None:
    """See to it that an ephemeral event may be appended.

    Raises:
        EventTooLarge: it never may.
    """
    await steps.sure()
    size = draft.committed(0, None, 0).size
    if not steps.ever_fits(size):
        raise EventTooLarge(
            f"the event takes {size} bytes, more than the whole buffer of {steps.policy.buffer_max_bytes}"
        )
    if steps.needs_reserve:
        await steps.reserve(RESERVED)
    while not steps.has_room(size):
        steps.evict()
