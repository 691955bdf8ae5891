"""What must hold of the journal: rules J1 to J8, and those of its buffer (B1, B2).

The ghost is what really happened. It is moved on by :func:`observe` after each step, and no transition sees it. Whether
an offset is given twice is judged by the events themselves: one that is seen for the first time must have an offset
past all that were ever seen.
"""

from __future__ import annotations

import attrs

from .journal_state import IDENTITY_READS, NOBODY_WAITS, REVIVAL_ROWS, Event, JournalPolicy, Phase, State
from .language import always, eventually

PROTOCOL = "protocols/keepalive.md, machine 3b"
FACTS = "facts/keepalive.md"


@attrs.frozen
class Ghost:
    """What really happened.

    Attributes:
        issued: the highest offset that any event ever had.
        reissued: whether an event ever got an offset that was not past all others.
        settled: the version that acknowledged last, as long as no other has woken since; 0 for none.
        replayable: the rows that the last wake may fold again: the tail if its version is the settled one, else all.
        acknowledged_at_ms: when something was acknowledged last.
    """

    issued: int = 0
    reissued: bool = False
    settled: int = 0
    replayable: int = 0
    acknowledged_at_ms: int = 0


def events(state: State) -> tuple[Event, ...]:
    """The events that are tracked, durable and buffered, and free slots."""
    return (*state.log.rows, *state.buffer)


def first_seen(before: State, event: Event) -> bool:
    """Whether an event has been committed in this step."""
    return event.offset != 0 and all(event.offset != other.offset for other in events(before))


def awake(state: State) -> bool:
    """Whether the subject has woken."""
    return state.phase == Phase.FOLDING or state.phase == Phase.LIVE


def tail(state: State) -> int:
    """The acknowledged rows that are not in the checkpoint."""
    return state.progress.acknowledged - state.progress.checkpoint.position


def issued_again(before: State, after: State, issued: int) -> bool:
    """Whether this step has committed an event with an offset that is not past *issued*."""
    head_again = after.log.head != before.log.head and after.log.head <= issued
    return head_again or any(first_seen(before, event) and event.offset <= issued for event in events(after))


def highest(state: State) -> int:
    """The highest offset in sight."""
    return max(state.log.head, max(event.offset for event in events(state)))


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    """Move the ghost on."""
    wakes = before.phase == Phase.OPEN and awake(after)
    same = after.version == ghost.settled
    done = after.progress.acknowledged > before.progress.acknowledged
    lost = wakes and not same
    return Ghost(
        issued=max(ghost.issued, highest(after)),
        reissued=ghost.reissued or issued_again(before, after, ghost.issued),
        settled=after.version if done else 0 if lost else ghost.settled,
        replayable=(tail(after) if same else after.progress.acknowledged) if wakes else ghost.replayable,
        acknowledged_at_ms=after.now_ms if done else ghost.acknowledged_at_ms,
    )


def distinct(slots: tuple[Event, ...]) -> bool:
    """No two events have one offset."""
    return all(
        event.offset == 0 or all(event.offset != other.offset for other in slots[:at]) for at, event in enumerate(slots)
    )


# Rules. The number is the protocol's; a letter after it marks a further clause of the same rule.


@always(
    "J1",
    "offsets strictly increase and are never issued again, across restarts and evictions, whether or not anybody still "
    "knows the event",
    source=f"{PROTOCOL} J1; {FACTS} S14, 2.2",
)
def j1(state: State, ghost: Ghost) -> bool:
    return not ghost.reissued and distinct(events(state))


@always("J1a", "a row never changes and never goes", source=f"{FACTS} 2.3: offset reuse is a visible fault")
def j1a(before: State, after: State) -> bool:
    kept = all(old.offset == 0 or new == old for old, new in zip(before.log.rows, after.log.rows, strict=True))
    return kept and after.log.count >= before.log.count and after.log.untracked >= before.log.untracked


@always(
    "J2",
    "connecting and disconnecting add no durable row, however often",
    source=f"{PROTOCOL} J2; {FACTS} S13, F2",
    on=("connect", "disconnect"),
)
def j2(before: State, after: State) -> bool:
    return after.log == before.log


@always(
    "J2a",
    "a revival adds at most a constant number of durable rows",
    source=f"{PROTOCOL} J2; {FACTS} 2.2",
)
def j2a(before: State, after: State) -> bool:
    tells = after.revival_rows > before.revival_rows
    return after.revival_rows <= REVIVAL_ROWS and (not tells or after.log.count <= before.log.count + REVIVAL_ROWS)


@always(
    "J3",
    "no event is both ephemeral and keyed: refused at input",
    source=f"{PROTOCOL} J3; {FACTS} S15, F11",
)
def j3(state: State) -> bool:
    return all(event.key == 0 or not event.ephemeral for event in events(state))


@always(
    "J3a",
    "whoever appends with a key adds no ephemeral event: the key is refused, never dropped in silence",
    source=f"{PROTOCOL} J3; {FACTS} S15, F11",
    on=("append",),
)
def j3a(before: State, after: State) -> bool:
    return after.told.key == 0 or after.buffer == before.buffer


@always(
    "J4",
    "reading a committed event keeps the stored flag",
    source=f"{PROTOCOL} J4; {FACTS} S16, F12",
)
def j4(state: State) -> bool:
    return state.seen.offset == 0 or all(
        event.offset != state.seen.offset or event.ephemeral == state.seen.ephemeral for event in events(state)
    )


@always(
    "J4a",
    "history folds to the same whatever the definition says by now: each row counts, once",
    source=f"{PROTOCOL} J4; {FACTS} 2.2: a frozen replay test saw the count drift",
)
def j4a(state: State) -> bool:
    kept = state.progress.checkpoint
    return state.fold.events == state.fold.position and kept.events == kept.position


@always(
    "J4b",
    "input takes the definition's choice: no row of a type that is declared ephemeral is appended, whatever the sender "
    "asks",
    source=f"{PROTOCOL} J4; {FACTS} 2.2",
    on=("append",),
)
def j4b(before: State, after: State) -> bool:
    return not before.declared or after.log == before.log


@always(
    "J4c",
    "what is stored is durable, what is buffered is ephemeral",
    source=f"{PROTOCOL} J4; {FACTS} 2.2",
)
def j4c(state: State) -> bool:
    return all(not row.ephemeral for row in state.log.rows) and all(
        event.offset == 0 or event.ephemeral for event in state.buffer
    )


@always(
    "J5",
    "the index has no gaps, though offsets do: so many rows have so many indices, each below their number, in the "
    "order of the offsets",
    source=f"{PROTOCOL} J5; {FACTS} 2.3, F13",
)
def j5(state: State) -> bool:
    rows = state.log.rows
    number = state.log.untracked + sum(1 for row in rows if row.offset != 0)
    dense = all(row.offset == 0 or (row.index >= 0 and row.index < number) for row in rows)
    ordered = all(
        one.offset == 0 or other.offset == 0 or at == before or (one.offset < other.offset) == (one.index < other.index)
        for at, one in enumerate(rows)
        for before, other in enumerate(rows)
    )
    return dense and ordered and state.log.count == number


@always(
    "J6",
    "waiting is done on the offset of a durable event, never on an ephemeral one",
    source=f"{PROTOCOL} J6; {FACTS} 2.2",
)
def j6(state: State) -> bool:
    waiting = state.waiting.offset
    durable = all(event.offset != waiting for event in state.buffer)
    return waiting == 0 or (waiting <= state.log.head and durable)


@always(
    "J6a",
    "a wait ends only when the subject has acknowledged all that was there when it began, or with its incarnation",
    source=f"{PROTOCOL} J6",
    on=("end_wait",),
)
def j6a(before: State) -> bool:
    return before.progress.acknowledged >= before.waiting.rows


def waits(state: State) -> bool:
    """Somebody waits."""
    return state.waiting.offset != 0


@eventually(
    "J6b",
    "every wait ends, given that the subject goes on",
    source=f"{PROTOCOL} J6; {FACTS} 2.2: waiting on a trailing ephemeral would hang",
    when=waits,
    fair=("wake", "fold_page", "checkpoint", "process", "end_wait"),
)
def j6b(state: State) -> bool:
    return state.waiting.offset == 0


@always(
    "J6c",
    "whoever waits is not forgotten: a wait ends in a step of its own or with its incarnation, and never moves",
    source=f"{PROTOCOL} J6",
)
def j6c(before: State, after: State) -> bool:
    kept = before.waiting.offset == 0 or after.waiting == before.waiting
    return kept or after.phase == Phase.DOWN or after == attrs.evolve(before, waiting=NOBODY_WAITS)


@always(
    "J7",
    "an append with a known key and the same body is told the old event; with another body it is refused",
    source=f"{PROTOCOL} J7; {FACTS} 2.1",
)
def j7(state: State) -> bool:
    told = state.told
    return told.offset == 0 or any(
        row.offset == told.offset and row.key == told.key and row.body == told.body for row in state.log.rows
    )


@always("J7a", "a key has one row", source=f"{PROTOCOL} J7; {FACTS} 2.1")
def j7a(state: State) -> bool:
    rows = state.log.rows
    return all(row.key == 0 or all(row.key != other.key for other in rows[:at]) for at, row in enumerate(rows))


@always(
    "J7b",
    "an append with a key is told an event; one that commits nothing is a repetition, and told the old one",
    source=f"{PROTOCOL} J7; {FACTS} 2.1",
    on=("append",),
)
def j7b(before: State, after: State) -> bool:
    commits = after.max_offset > before.max_offset
    return after.told.offset != 0 or (commits and after.told.key == 0)


@always(
    "J8",
    "a wake of the version that acknowledged last reads the identity once and folds no more than the tail, however "
    "long the journal is",
    source=f"{PROTOCOL} J8; {FACTS} L3, 2.5",
)
def j8(state: State, ghost: Ghost) -> bool:
    return state.replayed <= ghost.replayable and state.reads <= IDENTITY_READS + state.replayed


@always(
    "J8a",
    "a refold runs no effects and moves no acknowledgement: each effect is one for a row that is acknowledged with it",
    source=f"{PROTOCOL} J8; {FACTS} S17",
)
def j8a(state: State) -> bool:
    return state.effects == state.progress.acknowledged


@always(
    "J8b",
    "the tail after a checkpoint is bounded: fewer events than the cadence says, the last of them acknowledged sooner "
    "after the checkpoint than it says",
    source=f"{PROTOCOL} J8; {FACTS} 2.4",
)
def j8b(policy: JournalPolicy, state: State, ghost: Ghost) -> bool:
    kept = state.progress.checkpoint
    few = tail(state) < policy.checkpoint_every_events
    fresh = tail(state) == 0 or ghost.acknowledged_at_ms - state.progress.checkpoint_at_ms < policy.checkpoint_every_ms
    return ghost.settled == 0 or (kept.version == ghost.settled and few and fresh)


@always(
    "J8c",
    "an effect is run on the fold of all rows before its own",
    source=f"{FACTS} 2.5: fold behind acknowledgement is extended first",
    on=("process",),
)
def j8c(before: State, after: State) -> bool:
    return before.fold.position == before.progress.acknowledged


@always(
    "J8d",
    "no fold that is kept is ahead of the acknowledgement, and nothing is acknowledged that is not there",
    source=f"{FACTS} S18",
)
def j8d(state: State) -> bool:
    progress = state.progress
    return progress.checkpoint.position <= progress.acknowledged and progress.acknowledged <= state.log.count


@always(
    "J8e",
    "a fold is of one version: what another version's reducer has made is not gone on with",
    source=f"{PROTOCOL} J8; {FACTS} 2.5",
)
def j8e(state: State) -> bool:
    return not awake(state) or state.fold.version == state.version


@always(
    "B1",
    "buffered ephemeral events take no more bytes than their budget",
    source=f"{FACTS} 2.2: a buffer of 10 MiB in each incarnation",
)
def b1(policy: JournalPolicy, state: State) -> bool:
    return sum(event.size for event in state.buffer) <= policy.buffer_max_bytes


@always("B2", "the buffer forgets the oldest event first", source=f"{FACTS} 2.2", on=("evict",))
def b2(before: State, after: State) -> bool:
    return all(
        old.offset == 0
        or any(new.offset == old.offset for new in after.buffer)
        or all(new.offset == 0 or old.offset < new.offset for new in after.buffer)
        for old in before.buffer
    )
