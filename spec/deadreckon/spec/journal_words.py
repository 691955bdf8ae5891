"""The words of the journal, as functions: what its actions in ``journal.py`` are made of, and what variants replace."""

from __future__ import annotations

import attrs

from .journal_state import (
    FREE,
    IDENTITY_READS,
    NO_FOLD,
    NOBODY_WAITS,
    NOTHING_SEEN,
    NOTHING_TOLD,
    REVIVAL_ROWS,
    Event,
    Fold,
    JournalPolicy,
    Log,
    Phase,
    Progress,
    State,
    Wait,
)


def is_open(phase: Phase) -> bool:
    """Whether an incarnation has the journal open."""
    return phase != Phase.DOWN


def is_awake(phase: Phase) -> bool:
    """Whether the subject has woken in this incarnation."""
    return phase == Phase.FOLDING or phase == Phase.LIVE


def recovered_offset(log: Log) -> int:
    """Where a boot goes on: behind whatever may have been given to anybody (J1)."""
    return max(log.head, log.high)


def next_offset(log: Log, max_offset: int, buffer: tuple[Event, ...]) -> int:
    """The offset of the next event: past all others, whether they are still known or not (J1)."""
    return max_offset + 1


def covered(log: Log, offset: int) -> bool:
    """Whether the mark would keep a later incarnation from giving this offset again (J1)."""
    return offset <= log.high


def next_index(log: Log, offset: int) -> int:
    """The index of the next row: the number of rows before it (J5)."""
    return log.count


def input_flag(declared: bool, asked: bool) -> bool:
    """Whether an event is ephemeral when it comes in: the definition forces it, else the sender says (J4)."""
    return declared or asked


def committed_flag(stored: bool, declared: bool) -> bool:
    """Whether a committed event is ephemeral: as it was stored, whatever the definition says by now (J4)."""
    return stored


def presence_flag(declared: bool) -> bool:
    """Whether connecting and disconnecting are ephemeral: always, for clients come and go without end (J2)."""
    return True


def may_have_key(ephemeral: bool) -> bool:
    """Whether an event may have a key: what a crash forgets can't make a repetition known (J3)."""
    return not ephemeral


def kept_key(key: int, ephemeral: bool) -> int:
    """The key that a new event is kept with: the one it came with, since none is dropped in silence (J3)."""
    return key


def found(rows: tuple[Event, ...], key: int) -> Event:
    """The row with this key; a free slot if there is none (J7)."""
    result = FREE
    for row in rows:
        if key != 0 and row.key == key:
            result = row
    return result


def repeats(row: Event, body: int) -> bool:
    """Whether an append with the key of *row* is the one that made it, sent again (J7)."""
    return row.body == body


def known_offset(row: Event) -> int:
    """What a repetition of the append that made *row* is told: where that is (J7)."""
    return row.offset


def has_free(slots: tuple[Event, ...]) -> bool:
    """Whether one more event has a slot."""
    return any(slot.offset == 0 for slot in slots)


def remembers(rows: tuple[Event, ...], key: int) -> bool:
    """Whether the key of a new row will be found again (J7)."""
    return key == 0 or has_free(rows)


def placed(slots: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    """The slots with *event* in the first free one."""
    return tuple(
        event if slot.offset == 0 and not has_free(slots[:index]) else slot for index, slot in enumerate(slots)
    )


def fits(policy: JournalPolicy, buffer: tuple[Event, ...], size: int) -> bool:
    """Whether so many bytes more fit the buffer (B1); if they don't fit an empty one, they never will."""
    return has_free(buffer) and sum(event.size for event in buffer) + size <= policy.buffer_max_bytes


def without_oldest(buffer: tuple[Event, ...]) -> tuple[Event, ...]:
    """The buffer after it has forgotten the oldest event (B2)."""
    return (*buffer[1:], FREE)


def new_event(state: State, key: int, body: int, ephemeral: bool, size: int) -> Event:
    """An event that is about to be committed."""
    offset = next_offset(state.log, state.max_offset, state.buffer)
    return Event(offset, key, body, ephemeral, 0 if ephemeral else next_index(state.log, offset), size)


def stored(log: Log, event: Event) -> Log:
    """The log with one more row; mark and index move in the same transaction."""
    return Log(
        high=max(log.high, event.offset),
        head=event.offset,
        count=log.count + 1,
        untracked=log.untracked + (0 if has_free(log.rows) else 1),
        rows=placed(log.rows, event),
    )


def committed(state: State, event: Event) -> State:
    """The state with one more event: a row, or one in the buffer."""
    if event.ephemeral:
        return attrs.evolve(state, buffer=placed(state.buffer, event), max_offset=event.offset)
    return attrs.evolve(state, log=stored(state.log, event), max_offset=event.offset)


def may_tell_revival(revival_rows: int) -> bool:
    """Whether this incarnation may still add a row about its revival (J2)."""
    return revival_rows < REVIVAL_ROWS


def barrier(log: Log, max_offset: int) -> int:
    """The offset that one may wait for: that of the last row, since ephemerals reach no subject (J6)."""
    return log.head


def passed(log: Log, progress: Progress, waiting: Wait) -> bool:
    """Whether the subject is past what is waited for (J6)."""
    return progress.acknowledged >= waiting.rows and log.head >= waiting.offset


def still_waiting(waiting: Wait) -> Wait:
    """Who waits for a subject that wakes only now: whoever did before (J6)."""
    return waiting


def identity_reads(log: Log) -> int:
    """What a wake reads before it folds: the head and the progress, however long the journal is (J8)."""
    return IDENTITY_READS


def resumed(checkpoint: Fold, version: int) -> Fold:
    """The fold that a wake begins with: the kept one if its version made it, else none (J8)."""
    return checkpoint if checkpoint.version == version else Fold(version, 0, 0)


def phase_of(position: int, acknowledged: int) -> Phase:
    """Where a subject is that has folded so many rows: live once it has folded all that is acknowledged (J8)."""
    return Phase.FOLDING if position < acknowledged else Phase.LIVE


def counted(rows: int, declared: bool) -> int:
    """How many of so many rows, each stored as durable, the reducer counts (J4)."""
    return 0 if committed_flag(False, declared) else rows


def folded(fold: Fold, rows: int, declared: bool) -> Fold:
    """The fold after so many rows more."""
    return Fold(fold.version, fold.position + rows, fold.events + counted(rows, declared))


def may_refold(fold: Fold, progress: Progress, rows: int) -> bool:
    """Whether a refold may take so many rows: only what is acknowledged, for the rest has effects (J8)."""
    return fold.position + rows <= progress.acknowledged


def refolded(state: State, rows: int) -> State:
    """The state after a page of acknowledged rows: the reducer alone has run (J8)."""
    return attrs.evolve(state, fold=folded(state.fold, rows, state.declared))


def tail_is_bounded(policy: JournalPolicy, progress: Progress, version: int) -> bool:
    """Whether a wake of this version would have little to fold (J8)."""
    tail = progress.acknowledged - progress.checkpoint.position
    return progress.checkpoint.version == version and tail < policy.checkpoint_every_events


def due(policy: JournalPolicy, tail: int, since_ms: int) -> bool:
    """Whether the fold must be kept now: a tail of so many rows, so long after the last checkpoint (J8)."""
    return tail >= policy.checkpoint_every_events or since_ms >= policy.checkpoint_every_ms


def there(log: Log, rows: int) -> bool:
    """Whether the journal has so many rows."""
    return rows <= log.count


def acknowledged(policy: JournalPolicy, progress: Progress, fold: Fold, now_ms: int) -> Progress:
    """The progress after the effects of all that *fold* has; with the fold itself, if that is due."""
    done = attrs.evolve(progress, acknowledged=fold.position)
    tail = fold.position - progress.checkpoint.position
    if due(policy, tail, now_ms - progress.checkpoint_at_ms):
        return attrs.evolve(done, checkpoint=fold, checkpoint_at_ms=now_ms)
    return done


def died(state: State) -> State:
    """The state without all that memory held."""
    return attrs.evolve(
        state,
        phase=Phase.DOWN,
        max_offset=0,
        buffer=tuple(FREE for _ in state.buffer),
        revival_rows=0,
        fold=NO_FOLD,
        reads=0,
        replayed=0,
        waiting=NOBODY_WAITS,
        told=NOTHING_TOLD,
        seen=NOTHING_SEEN,
    )
