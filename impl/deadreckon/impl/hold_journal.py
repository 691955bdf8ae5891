"""The port to the journal: the durable, ordered log of holds, with one clock, and what can go wrong with it.

A journal keeps *facts* in order, and for each hold what they amount to (:class:`Held`). It decides nothing about
holds: it reads, hands what it read and its own time to a *change*, and keeps the facts that come back, all as one step
that nothing can come between. So a decision, an expiry and an abandonment are conditional appends, and the first in
the journal is the one that counts (H6). What it must hold of its own: offsets grow and are never used twice; time
never goes back; a key stands for one body; and an earlier door appends nothing.

    EnvironmentFault
    └── StoreFault                  see ``store.py``; a journal raises these too
        ├── JournalUnavailable      busy, locked, restarting: try again
        └── Fenced                  a newer door owns the journal
    CallerError
    ├── KeyConflict                 the key stands for another body
    ├── KeyRefused                  signing keys were not changed
    └── NoSuchHold                  nothing is known of this hold
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs

from deadreckon.spec.errors import CallerError
from deadreckon.spec.hold import boot, crash, initial, no_hold
from deadreckon.spec.hold_rules import terminal
from deadreckon.spec.hold_state import Call, Hold, Release, Told
from deadreckon.spec.hold_words import forgotten

from .store import Fenced, StoreFault
from .timer import Timer

Json: TypeAlias = "str | int | bool | Sequence[Json] | Mapping[str, Json] | None"
"""What the body of a fact is made of."""

RETRY_AFTER_MS = 200


class JournalUnavailable(StoreFault):
    """The journal can't answer now (busy, locked, full, restarting). It is no decision, and ends no hold (H9).

    Try again after ``retry_after_ms``. What was being appended may be durable or not: a keyed call that is repeated
    finds out. ``hold_id`` names the hold, if there is one: ask for its outcome with ``attach``.
    """

    def __init__(self, why: str, *, retry_after_ms: int = RETRY_AFTER_MS, hold_id: str = "") -> None:
        self.retry_after_ms = retry_after_ms
        self.hold_id = hold_id
        super().__init__(why)


class KeyConflict(CallerError):
    """The key was used before, with another body. Nothing was appended. Take a new key, or the body of then."""


class KeyRefused(CallerError):
    """Keys were not changed. While a key is active, sign the change with it; a new key needs a new id."""


class NoSuchHold(CallerError):
    """The journal knows no hold of this id. Check the id and the journal's path; ask for a new hold."""


@attrs.frozen
class Key:
    """A key that decisions may be signed with.

    Attributes:
        key_id: its name.
        public_key: as the verifier reads it.
    """

    key_id: str
    public_key: str


@attrs.frozen
class KeyChange:
    """A change of the keys that decisions may be signed with; see ``hold_journal_keys.py``.

    Attributes:
        key: the key; to revoke one its id is enough.
        active: whether it is added, or revoked.
        by: who says so.
        signature, signed_by: over :func:`~deadreckon.impl.key_ballot`, by the active key of this id; both or neither.
    """

    key: Key
    active: bool
    by: str
    signature: str = ""
    signed_by: str = ""


@attrs.frozen
class Ballot:
    """What a signature vouches for: these verdicts, on these requests, of this hold, and of no other (H7)."""

    hold_id: str
    requests: tuple[str, ...]
    verdicts: tuple[bool, ...]


Verifier = Callable[[Ballot, str, Key], bool]
"""``verify(ballot, signature, key)``: whether *signature* is *key*'s, over *ballot*. Malformed ones are false."""


@attrs.frozen
class Held:
    """What a journal has of one hold.

    Attributes:
        hold_id: its identity.
        hold: its facts, as the specification sees them; what a door remembers is blank.
        requests: what is asked for, one text each (a digest, or canonical JSON), without secrets.
        caller: who asked.
        lease_until_ms: until when a caller that is not there may come back.
        by: who decided; empty while nobody has.
        reason: why, in the words of whoever decided.
        offset: that of its last fact.
    """

    hold_id: str
    hold: Hold
    requests: tuple[str, ...]
    caller: str
    lease_until_ms: int
    by: str = ""
    reason: str = ""
    offset: int = 0

    @property
    def finished(self) -> bool:
        """Whether every request has its terminal fact (H15)."""
        return terminal(self.hold)


@attrs.frozen
class Moment:
    """What a change is given: a hold as it is (None if unknown), the keys active, and the time, all at once."""

    held: Held | None
    keys: tuple[Key, ...]
    now_ms: int


@attrs.frozen
class Entry:
    """A fact to be appended: its type, as in the vocabulary of logs, and its body beside the hold's id."""

    type: str
    body: Mapping[str, Json] = attrs.field(factory=dict)


@attrs.frozen
class Written:
    """What a change asks to be kept: the hold as it shall be, and the facts that made it so."""

    held: Held
    entries: tuple[Entry, ...] = ()


Change = Callable[[Moment], Written]
"""A pure function; it may raise, and then nothing is changed. It may be called in another thread."""


@attrs.frozen
class Receipt:
    """The answer to an append: the hold after it, and whether this call changed it, or an earlier one with its key."""

    held: Held
    fresh: bool


@attrs.frozen
class Recorded:
    """A fact in the journal."""

    offset: int
    at_ms: int
    type: str
    hold_id: str
    body: Mapping[str, Json]


class Journal(Protocol):
    """A durable ordered log. Every method raises :class:`StoreFault` when the surroundings fail."""

    @property
    def timer(self) -> Timer:
        """Its clock: the only one that deadlines are judged by."""
        ...

    @property
    def verifier(self) -> Verifier | None:
        """What tells good signatures; without one, none is good."""
        ...

    def now_ms(self) -> int:
        """The journal's time, which never goes back; an append sees this time or a later one."""
        ...

    async def claim(self) -> int:
        """A door begins: its identity, durable, never used before. All earlier doors are fenced."""
        ...

    async def append(
        self, hold_id: str, change: Change, *, door: int | None = None, key: str = "", body: str = ""
    ) -> Receipt:
        """Keep what *change* makes of a hold: one atomic read-modify-append, durable when this returns.

        With a *key*: if it was used before, nothing is changed, and the hold that it was used for is returned. A
        change that raises leaves its key free (H11, H16). A cancelled call is either done or not, never in part.

        Args:
            hold_id: the hold; a new one is made if it is unknown and *change* says so.
            change: called at most once.
            door: the door that appends; None for an approver.
            key: what makes a repetition known.
            body: what a repetition must have in common with the first use of the key.

        Raises:
            Fenced: *door* is not the last that claimed the journal.
            KeyConflict: *key* was used with another *body*.
            JournalUnavailable: it is not known whether the change was kept.
        """
        ...

    async def renew(self, door: int, hold_ids: Collection[str], until_ms: int) -> None:
        """Prolong the leases of these holds' callers; no fact."""
        ...

    async def read(self, hold_id: str) -> Moment:
        """A hold as it is now. Anybody may look."""
        ...

    async def unfinished(self) -> Sequence[Held]:
        """The holds that lack a terminal fact, the oldest first."""
        ...

    async def facts(self, after_offset: int = 0, hold_id: str | None = None, limit: int = 1_000) -> Sequence[Recorded]:
        """Facts past an offset, in order; of one hold, or of all."""
        ...

    async def newest(self) -> int:
        """The offset of the last fact; 0 if there is none."""
        ...

    async def wait(self, after_offset: int, timeout_ms: int, hold_id: str | None = None) -> int | None:
        """Return the offset of a fact past *after_offset* as soon as there is one; None after *timeout_ms*.

        Also for facts that another process appends. Any healthy end is one of the two; a failure is raised.
        """
        ...

    async def change_key(self, change: KeyChange) -> None:
        """Add a key, or revoke it: a fact. From then on decisions are judged by it. Done before, nothing is changed.

        Raises:
            KeyRefused: it is not signed by an active key while there is one, or the key's id is taken.
        """
        ...

    async def close(self) -> None:
        """Let go of files and threads. Closing again does nothing; any other call raises ``StoreClosed``."""
        ...


def successor_door(last: int) -> int:
    """The identity of the door that claims a journal after *last* did; 0 if nobody ever has."""
    return boot(crash(attrs.evolve(initial(), door=last))).door


def admit_door(caller: int | None, living: int) -> None:
    """Let an append pass if it comes from the living door, or from no door at all.

    Raises:
        Fenced: it doesn't.
    """
    if caller is not None and caller != living:
        raise Fenced(
            caller,
            living,
            f"door {living} was opened on this journal after door {caller}, which appends nothing any more: leave it,"
            " and attach at the newer one, where the holds go on",
        )


def admit_key(key: str, body: str, known: str) -> None:
    """Let a repetition pass if it has the *body* of the first use.

    Raises:
        KeyConflict: it hasn't.
    """
    if body != known:
        raise KeyConflict(f"the key {key!r} stands for another body")


def blank(requests: int) -> Hold:
    """The place of a hold of so many requests that has not been asked for."""
    return attrs.evolve(
        no_hold(),
        approved=(False,) * requests,
        releases=(Release.NONE,) * requests,
        calls=(Call.NONE,) * requests,
        told=(Told.NOTHING,) * requests,
    )


def durable(hold: Hold) -> Hold:
    """What a journal keeps of *hold*: all but a door's memory, and what callers were told."""
    return attrs.evolve(forgotten(hold), told=(Told.NOTHING,) * len(hold.told))
