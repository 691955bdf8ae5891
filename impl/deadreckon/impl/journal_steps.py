"""One method for each action of the journal's machine that is about events, run against a real store.

Each puts the state together, calls the function of the same name in ``deadreckon.spec.journal``, and keeps what that
returns. Nothing is decided here. The machine has a few slots, and says that an implementation hands in the rows that
matter; these are handed in (:class:`Slots`; a model's driver hands in others):

    ========  ==============================================================================================
    log       the store, read in the transaction that writes it: the ends of the journal, the row that has
              the key of an append, and a free slot
    buffer    three slots: the oldest event, all others as one with the bytes of all, a free one
    the rest  memory of this incarnation (:attr:`Steps.memory`); lost with it, as it must be
    ========  ==============================================================================================

Memory moves only after the commit. If the fate of a write is unknown, because the store failed, memory is not sure of
the last offset: the next action first looks whether the write is there. Until then no offset is given (J1).

One action at a time: whoever shares the steps among tasks holds a lock.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import attrs

from deadreckon.spec import journal as spec
from deadreckon.spec import journal_words as words
from deadreckon.spec.errors import Refused
from deadreckon.spec.journal_state import FREE, Event, JournalPolicy, Log, State

from .clock import Clock
from .events import Emitter
from .hold_journal import Json
from .journal_store import EventStore, Look, Sight, Writes
from .journal_words import Draft, JournalEvent
from .store import admit_caller
from .waiting import to_the_end

Move = Callable[[State], State]

NEW: Final = 0
"""The offset of an event that has none yet."""


class Buffer:
    """The ephemeral events that are still known, the oldest first."""

    def __init__(self) -> None:
        self.events: deque[JournalEvent] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.events)

    @property
    def size(self) -> int:
        """The bytes of all."""
        return self._bytes

    def add(self, event: JournalEvent) -> None:
        """Remember one more."""
        self.events.append(event)
        self._bytes += event.size

    def forget(self) -> None:
        """Forget the oldest."""
        self._bytes -= self.events.popleft().size

    def past(self, after_offset: int, limit: int) -> list[JournalEvent]:
        """The first *limit* events past an offset."""
        start = bisect_right(self.events, after_offset, key=lambda event: event.offset)
        return list(islice(self.events, start, start + limit))


class Slots:
    """Which rows, and which buffered events, the machine is shown; and how."""

    def event(self, event: JournalEvent) -> Event:
        """An event as the specification sees it. Keys and bodies are digests; without a key, nobody compares bodies."""
        key = _number(event.key) if event.key else 0
        body = _number(f"{event.type}\n{event.text}") if event.key else 0
        return Event(event.offset, key, body, event.ephemeral, event.index or 0, event.size)

    def look(self, key: str) -> Look:
        """What has to be seen for an append with this key."""
        return Look(key=key)

    def rows(self, found: Sequence[JournalEvent]) -> tuple[Event, ...]:
        """The slots of the log, if these rows were found."""
        return (*map(self.event, found), FREE)

    def buffer(self, buffer: Buffer) -> tuple[Event, ...]:
        """The slots of the buffer."""
        if not buffer.events:
            return (FREE,)
        oldest = self.event(buffer.events[0])
        others = buffer.size - buffer.events[0].size
        rest = attrs.evolve(self.event(buffer.events[-1]), size=others) if len(buffer) > 1 else FREE
        return (oldest, rest, FREE)

    def committed(self, after: State) -> None:
        """A row was committed; *after* has it in a slot, if there was one."""


class Steps:
    """The actions of one incarnation of a journal.

    Every action raises :class:`~deadreckon.spec.errors.Refused` (with ``event`` and ``state``) when the specification
    refuses it, and :class:`~deadreckon.impl.Fenced` when a newer incarnation lives; in both cases nothing was changed.
    A :class:`~deadreckon.impl.StoreFault` leaves open whether it was. A cancellation waits for the end of the action.
    """

    def __init__(
        self,
        store: EventStore,
        policy: JournalPolicy,
        clock: Clock,
        emit: Emitter | None = None,
        *,
        name: str = "journal",
        slots: Slots | None = None,
    ) -> None:
        self.incarnation = 0
        self.memory: State = attrs.evolve(spec.initial(), log=Log(0, 0, 0, 0, ()), buffer=())
        self.buffer = Buffer()
        self.policy = policy
        self._store = store
        self._clock = clock
        self._emit = Emitter(None, clock.now_ms) if emit is None else emit
        self._name = name
        self._slots = Slots() if slots is None else slots
        self._unsure: State | None = None

    async def state(self, look: Look | None = None) -> State:
        """The state as the specification sees it now, with these rows."""
        return self._seen(await self._store.look(Look() if look is None else look))

    @property
    def is_unsure(self) -> bool:
        """Whether the fate of a write is unknown."""
        return self._unsure is not None

    @property
    def needs_reserve(self) -> bool:
        """Whether the mark must be moved before an ephemeral event may be appended (J1)."""
        offset = words.next_offset(self.memory.log, self.memory.max_offset, ())
        return not words.covered(self.memory.log, offset)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes fit the buffer now (B1)."""
        return words.fits(self.policy, self._slots.buffer(self.buffer), size)

    def ever_fits(self, size: int) -> bool:
        """Whether so many bytes fit an empty buffer (B1)."""
        return words.fits(self.policy, (FREE,), size)

    async def boot(self, version: int = 1, declared: bool = False) -> None:
        """A new incarnation: all earlier ones are fenced, and it goes on behind the mark."""
        moved("boot", self.memory, lambda state: spec.boot(state, version, declared))
        self.incarnation = await to_the_end(self._store.claim())
        sight = await self._store.look(Look())
        admit_caller(self.incarnation, sight.incarnation)
        self._keep(moved("boot", self._seen(sight), lambda state: spec.boot(state, version, declared)))
        if self.incarnation > 1:
            self._emit("journal.restarted", {"journal": self._name})

    async def sure(self) -> None:
        """Find out the fate of a write, if it is unknown.

        Raises:
            Fenced: a newer incarnation lives.
        """
        if self._unsure is None:
            return
        sight = await self._store.look(Look())
        admit_caller(self.incarnation, sight.incarnation)
        log = self._unsure.log
        if (sight.high, sight.head, sight.count) == (log.high, log.head, log.count):
            self._keep(self._unsure)
        self._unsure = None

    async def reserve(self, ahead: int) -> None:
        """The mark is moved, so that as many ephemeral events may follow."""
        await self._commit("reserve", Look(), (), lambda state: spec.reserve(state, ahead))

    async def append(self, draft: Draft) -> JournalEvent:
        """One event; if its key is known, the old one."""
        one = self._slots.event(draft.committed(NEW, None, 0))

        def move(state: State) -> State:
            return spec.append(self.policy, state, one.key, one.body, draft.asked, one.size)

        if draft.key or not words.input_flag(draft.declared, draft.asked):
            (event,) = await self._commit("append", self._slots.look(draft.key), (draft,), move)
            return event
        return await self._remember("append", draft, move)

    async def append_others(self, drafts: Sequence[Draft]) -> Sequence[JournalEvent]:
        """Durable events without keys, in one transaction."""
        rows = len(drafts)
        look = self._slots.look("")
        return await self._commit("append_others", look, drafts, lambda state: spec.append_others(state, rows))

    async def connect(self, draft: Draft) -> JournalEvent:
        """A client connects."""
        size = self._slots.event(draft.committed(NEW, None, 0)).size
        return await self._remember("connect", draft, lambda state: spec.connect(self.policy, state, size))

    async def disconnect(self, draft: Draft) -> JournalEvent:
        """A client disconnects."""
        size = self._slots.event(draft.committed(NEW, None, 0)).size
        return await self._remember("disconnect", draft, lambda state: spec.disconnect(self.policy, state, size))

    async def revive(self, draft: Draft) -> JournalEvent:
        """The incarnation says in a row that a revival started it."""
        (event,) = await self._commit("revive", self._slots.look(""), (draft,), spec.revive)
        return event

    def evict(self) -> None:
        """The buffer forgets its oldest event."""
        self._keep(moved("evict", self._cached(), spec.evict))
        self.buffer.forget()

    async def read_row(self, offset: int, declared: bool = False) -> None:
        """A reader sees the durable event at this offset."""
        sight = await self._store.look(Look(offsets=(offset,)))
        shown = tuple(self._slots.event(row) for row in sight.rows)
        before = self._with_log(attrs.evolve(sight.log, rows=shown or (FREE,)), declared)
        self._keep(moved("read_row", before, lambda state: spec.read_row(state, 0)))

    def read_buffered(self, offset: int, declared: bool = False) -> None:
        """A reader sees the ephemeral event at this offset."""
        known = tuple(self._slots.event(event) for event in self.buffer.events if event.offset == offset)
        before = attrs.evolve(self._cached(declared), buffer=known or (FREE,))
        self._keep(moved("read_buffered", before, lambda state: spec.read_buffered(state, 0)))

    async def _commit(self, event: str, look: Look, drafts: Sequence[Draft], move: Move) -> Sequence[JournalEvent]:
        return await to_the_end(self._committed(event, look, drafts, move))

    async def _committed(self, event: str, look: Look, drafts: Sequence[Draft], move: Move) -> Sequence[JournalEvent]:
        """Commit ``move(state)``, then remember its volatile part; the events that it made, or the one with the key."""
        reached: list[State] = []
        made: list[JournalEvent] = []
        known: list[JournalEvent] = []

        def change(sight: Sight) -> Writes:
            before = self._seen(sight, any(draft.declared for draft in drafts))
            after = moved(event, before, move)
            made.extend(_rows(before.log, after.log, drafts, self._clock.now_ms()))
            known.extend(row for row in sight.rows if row.offset == after.told.offset)
            reached.append(after)
            return Writes(after.log.high, tuple(made))

        await self.sure()
        try:
            await self._store.transact(self.incarnation, look, change)
        except BaseException:
            self._unsure = reached[-1] if reached else None
            raise
        self._keep(reached[-1])
        if made:
            self._slots.committed(reached[-1])
        for row in made:
            self._tell(row)
        return made or known

    async def _remember(self, event: str, draft: Draft, move: Move) -> JournalEvent:
        """Take an action that commits an ephemeral event; the disk is not touched."""
        await self.sure()
        after = moved(event, self._cached(draft.declared), move)
        made = draft.committed(after.max_offset, None, self._clock.now_ms())
        self.buffer.add(made)
        self._keep(after)
        self._tell(made)
        return made

    def _seen(self, sight: Sight, declared: bool = False) -> State:
        """The state, if the store holds this."""
        rows = self._slots.rows(sight.rows)
        tracked = sum(1 for row in rows if row.offset)
        return self._with_log(Log(sight.high, sight.head, sight.count, sight.count - tracked, rows), declared)

    def _cached(self, declared: bool = False) -> State:
        """The state, the store not asked: nobody else can have written."""
        return self._with_log(attrs.evolve(self.memory.log, rows=(FREE,)), declared)

    def _with_log(self, log: Log, declared: bool) -> State:
        buffer = self._slots.buffer(self.buffer)
        return attrs.evolve(self.memory, log=log, buffer=buffer, declared=declared, now_ms=self._clock.now_ms())

    def _keep(self, after: State) -> None:
        """Remember a state, but for what is looked at anew each time."""
        log = attrs.evolve(after.log, untracked=after.log.count, rows=())
        self.memory = attrs.evolve(after, log=log, buffer=())

    def _tell(self, event: JournalEvent) -> None:
        key: dict[str, Json] = {"key": event.key} if event.key else {}
        fields: dict[str, Json] = {"journal": self._name, "offset": event.offset, "ephemeral": event.ephemeral, **key}
        self._emit("journal.appended", fields, event.at_ms)


def moved(event: str, before: State, move: Move) -> State:
    """``move(before)``; a refusal is given the event and the state."""
    try:
        return move(before)
    except Refused as refusal:
        refusal.event = event
        refusal.state = before
        raise


def _rows(before: Log, after: Log, drafts: Sequence[Draft], at_ms: int) -> list[JournalEvent]:
    """The rows that a step has added to the log."""
    added = after.count - before.count
    first = after.head - added + 1
    index = words.next_index(before, first)
    return [draft.committed(first + at, index + at, at_ms) for at, draft in enumerate(drafts[:added])]


def _number(text: str) -> int:
    """A text as an opaque number, never 0."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()) + 1
