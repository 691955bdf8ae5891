"""The port to durable storage of events, and of what subjects have made of them.

A store decides nothing: it reads, hands what it read (:class:`Sight`) to a *change*, and keeps what comes back
(:class:`Writes`), all as one durable step that nothing can come between. Ephemeral events never reach it. What it must
hold of its own: a row never changes; and fencing, by which a call of an incarnation that is not the living one changes
nothing. Its failures are those of :mod:`deadreckon.impl.store`.

Every method that reads is *one* read, however much the store holds (J8): it takes its answer from the ends of indices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Protocol

import attrs

from deadreckon.spec.journal import initial
from deadreckon.spec.journal_state import Log, Progress

from .journal_words import JournalEvent
from .store import StoreCorrupt

PAGE: Final = 500
"""Events that are read at once, at most; facts/keepalive.md 2.5."""


@attrs.frozen
class Kept:
    """What is durable of a subject.

    Attributes:
        progress: the record of the specification.
        fold: the fold of ``progress.checkpoint``, as JSON; None if it was not asked for. In a write, None leaves it.
    """

    progress: Progress
    fold: str | None = None


UNKEPT: Final = Kept(initial().progress)
"""What a store returns of a subject that it has never seen."""


@attrs.frozen
class Look:
    """What is to be seen beside the ends of the journal.

    Attributes:
        key: the event with this key.
        offsets: the durable events at these offsets.
        subject: the progress of this subject.
        fold: its fold too.
    """

    key: str = ""
    offsets: tuple[int, ...] = ()
    subject: str = ""
    fold: bool = False


@attrs.frozen
class Sight:
    """What a store holds, at one instant.

    Attributes:
        incarnation: that which claimed it last; 0 if nobody has.
        high, head, count: see :class:`~deadreckon.spec.journal_state.Log`.
        rows: the durable events that were looked for and are there, in the order of their offsets.
        kept: the progress of the subject that was looked for.
    """

    incarnation: int
    high: int
    head: int
    count: int
    rows: tuple[JournalEvent, ...] = ()
    kept: Kept = UNKEPT

    @property
    def log(self) -> Log:
        """The journal as the specification sees it, no row tracked."""
        return Log(self.high, self.head, self.count, self.count, ())


@attrs.frozen
class Writes:
    """What a change asks to be kept.

    Attributes:
        high: the high-water mark.
        rows: new durable events, in the order of their offsets.
        kept: the progress of the subject that was looked for; None leaves it.
    """

    high: int
    rows: tuple[JournalEvent, ...] = ()
    kept: Kept | None = None


Change = Callable[[Sight], Writes]
"""A pure function; it may raise, and then nothing is changed. It may be called in another thread."""


class EventStore(Protocol):
    """Durable storage for events. Every method raises ``StoreFault`` when the surroundings fail."""

    @property
    def others(self) -> bool:
        """Whether other processes may write too, so that what they write has to be looked for."""
        ...

    async def claim(self) -> int:
        """Begin a new incarnation and return its identity, durable, never used before; all earlier ones are fenced."""
        ...

    async def transact(self, incarnation: int, look: Look, change: Change) -> None:
        """Keep ``change(sight)``: one atomic read-modify-write, durable when this returns.

        A cancelled call is either done or not, never in part; and nothing of it is under way once it has raised.

        Raises:
            Fenced: *incarnation* is not the living one.
        """
        ...

    async def look(self, look: Look) -> Sight:
        """What is there, all at one instant. Not fenced: anybody may look."""
        ...

    async def rows(self, after_offset: int, through_offset: int, limit: int) -> Sequence[JournalEvent]:
        """The first *limit* durable events past one offset and not past the other, in order."""
        ...

    async def listed(self, first_index: int, limit: int) -> Sequence[JournalEvent]:
        """The *limit* durable events from this index on, in order."""
        ...

    async def close(self) -> None:
        """Let go of files and threads. Closing again does nothing; any other call raises ``StoreClosed``."""
        ...


def sound_sight(sight: Sight) -> Sight:
    """*sight*, if some version of this library could have left it so.

    Raises:
        StoreCorrupt: none could.
    """
    progress = sight.kept.progress
    position = progress.checkpoint.position
    wrong = [
        why
        for why, holds in (
            ("the high-water mark is behind a row", sight.high >= sight.head),
            ("there are more rows than offsets", 0 <= sight.count <= sight.head),
            ("there is an offset without a row", (sight.head == 0) == (sight.count == 0)),
            ("rows are acknowledged that are not there", progress.acknowledged <= sight.count),
            ("a fold is ahead of the acknowledgement (J8d)", 0 <= position <= progress.acknowledged),
        )
        if not holds
    ]
    if wrong:
        raise StoreCorrupt(f"the journal holds what no version of this library leaves: {wrong[0]}")
    return sight


def sound_rows(rows: Sequence[JournalEvent]) -> Sequence[JournalEvent]:
    """*rows*, neighbours in the order of their offsets, if none is missing among them and each can be read.

    Raises:
        StoreCorrupt: it isn't so.
    """
    for before, after in pairwise(rows):
        if before.index is None or after.index != before.index + 1 or after.offset <= before.offset:
            raise StoreCorrupt(f"between the events at {before.offset} and {after.offset} the index has a gap (J5)")
    for row in rows:
        try:
            json.loads(row.text)
        except (ValueError, RecursionError) as error:
            raise StoreCorrupt(f"the body of the event at {row.offset} is no JSON: {error}") from error
    return rows
