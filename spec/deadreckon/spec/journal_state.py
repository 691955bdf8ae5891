"""Words, policy and state of the journal. The transitions over them are in ``journal.py``."""

from __future__ import annotations

from enum import Enum

import attrs

from .errors import PolicyError
from .language import UNLIMITED, check_policy, require

REVIVAL_ROWS = 1
"""Durable rows that one revival may add, at most."""

IDENTITY_READS = 1
"""Reads of a wake before it folds anything: one, of the head and the subject's progress together."""


class Phase(Enum):
    """Where the journal and its subject are; lost with the incarnation."""

    DOWN = "down"
    OPEN = "open"
    FOLDING = "folding"
    LIVE = "live"


@attrs.frozen
class JournalPolicy:
    """Limits of a journal; each may be :data:`UNLIMITED`.

    Attributes:
        buffer_max_bytes: what the buffered ephemeral events may take together; at least 1.
        checkpoint_every_events: acknowledged events after which the fold is kept; at least 1.
        checkpoint_every_ms: time since the last checkpoint after which an acknowledgement keeps the fold; at least 1.

    Raises:
        PolicyError: when a value is not an integer in its range.
    """

    buffer_max_bytes: int = 10_485_760
    checkpoint_every_events: int = 64
    checkpoint_every_ms: int = 1_000

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(JournalPolicy):
            value = getattr(self, field.name)
            if type(value) is not int or value > UNLIMITED:
                raise PolicyError(f"{field.name} is {value!r}: give an integer, or UNLIMITED")
        check_policy(self, policy_is_valid)


def policy_is_valid(policy: JournalPolicy) -> bool:
    """The constraint under which everything is proved; each refusal names the field."""
    require(policy.buffer_max_bytes >= 1, "buffer_max_bytes", "give at least 1")
    require(policy.checkpoint_every_events >= 1, "checkpoint_every_events", "give at least 1")
    require(policy.checkpoint_every_ms >= 1, "checkpoint_every_ms", "give at least 1")
    return True


@attrs.frozen
class Event:
    """A committed event: a durable row, or a buffered ephemeral one. Offset 0: a free slot.

    Attributes:
        offset: its place in the one sequence of all events; at least 1.
        key: what makes a repetition known; 0 for none.
        body: what it says, as an opaque number (a digest).
        ephemeral: the flag as it was stored.
        index: its place among the durable rows, from 0; no meaning in an ephemeral event.
        size: what it takes in the buffer, in bytes.
    """

    offset: int
    key: int
    body: int
    ephemeral: bool
    index: int
    size: int


@attrs.frozen
class Log:
    """What is durable of the journal.

    Attributes:
        high: no offset above this one has been given to anybody.
        head: the offset of the last durable row; 0 for none.
        count: the number of durable rows, as the journal keeps it, and so the next index.
        untracked: the durable rows that have no slot in ``rows``.
        rows: some of the durable rows, in the order of their slots; among them every one with a key that matters.
    """

    high: int
    head: int
    count: int
    untracked: int
    rows: tuple[Event, ...]


@attrs.frozen
class Fold:
    """What a subject's reducer has made of the rows.

    Attributes:
        version: the version of the reducer that made it.
        position: the rows that went into it: those of index below this.
        events: the durable events that the reducer has counted.
    """

    version: int
    position: int
    events: int


@attrs.frozen
class Progress:
    """What is durable of the subject: the rows whose effects are done, and a fold that may be somewhat older.

    Attributes:
        acknowledged: the rows whose effects are done: those of index below this.
        checkpoint: the fold as it was kept last.
        checkpoint_at_ms: when.
    """

    acknowledged: int
    checkpoint: Fold
    checkpoint_at_ms: int


@attrs.frozen
class Wait:
    """What a caller waits for: that the subject is past this offset, and so past so many rows. Offset 0: nobody waits."""

    offset: int
    rows: int


@attrs.frozen
class Told:
    """What the last caller was told: its event is at this offset, for the key and body that it came with.

    Key 0: it came without one, and is told nothing here. Offset 0 with a key: it was left without an answer (J7).
    """

    offset: int
    key: int
    body: int


@attrs.frozen
class Seen:
    """What the last reader saw: the event at this offset, with this flag. Offset 0: nothing."""

    offset: int
    ephemeral: bool


@attrs.frozen
class State:
    """One journal, one subject that folds it, and the incarnation that hosts both.

    Durable: ``log``, ``progress``. Of the deployed code: ``version``, ``declared``. Outside: ``effects``, ``now_ms``.
    All else is memory: it is lost with the incarnation.

    Attributes:
        log: what is durable of the journal.
        progress: what is durable of the subject.
        version: that of the code which runs, or ran last; 0 before the first.
        declared: whether this code's definition says that the event's type is ephemeral.
        phase: where journal and subject are.
        max_offset: the last offset that was given to an event.
        buffer: the ephemeral events that are still known, the oldest first; free slots last.
        revival_rows: the rows by which this incarnation told of its revival.
        fold: the subject's fold in memory.
        reads: what the last wake has read so far: identity and pages.
        replayed: the acknowledged rows that the last wake has folded again.
        waiting: what somebody waits for.
        told: the answer to the last append, if that had a key.
        seen: what the last reader saw.
        effects: effects of the subject, ever.
        now_ms: the time.
    """

    log: Log
    progress: Progress
    version: int
    declared: bool
    phase: Phase
    max_offset: int
    buffer: tuple[Event, ...]
    revival_rows: int
    fold: Fold
    reads: int
    replayed: int
    waiting: Wait
    told: Told
    seen: Seen
    effects: int
    now_ms: int


FREE = Event(0, 0, 0, False, 0, 0)
NO_FOLD = Fold(0, 0, 0)
NOBODY_WAITS = Wait(0, 0)
NOTHING_TOLD = Told(0, 0, 0)
NOTHING_SEEN = Seen(0, False)
