"""The journal's offsets: one sequence for all events, durable or not, that presence must not fill.

Rules of this file
    Everything below is a pure function over frozen values. The explorer, the solvers and the reference
    implementation call these very functions; nothing here knows about them. Rule ids (J1 to J8) are those of the
    protocol, and stand in ``journal_rules.py``. The actions are made of the helpers in ``journal_words.py``; the
    known-bad designs, which replace some of them, are in ``journal_variants.py``.

Words
    *Event*: what is appended; *committed* once it has an offset. *Ephemeral*: committed, but kept in memory only, in
    the *buffer*; all others are *durable*: rows. *Offset*: an event's place in the one sequence of all events.
    *Index*: a row's place among the rows, from 0. *Head*: the offset of the last row. *High-water mark*: a durable
    offset above which none has been given to anybody. *Presence*: that a client connects or disconnects.
    *Definition*: what the code that runs says of a type of events: ephemeral, or as the sender says. *Subject*:
    whoever folds the rows with a *reducer* and runs effects for them. *Acknowledgement*: the rows whose effects are
    done. *Checkpoint*: the subject's fold, made durable. *Tail*: the acknowledged rows that are not in the
    checkpoint. *Wake*: a subject begins in a new incarnation. *Refold*: to fold acknowledged rows again.

Theory of operation
    Offsets of ephemeral events die with the memory that holds them, and must not be given again: a reader that has
    passed one would miss the event that gets it next. So the mark is durable before an offset is told to anybody. A
    row moves it in the transaction that writes it; for ephemerals it is *reserved* ahead, by as much as one likes,
    so that not each of them costs a write. A boot goes on behind the mark. Offsets have gaps for ever after;
    whoever wants positions without gaps uses the index, which only rows have.

    The subject's progress is two things. The acknowledgement is small, and written with each batch. The fold may be
    large, and is kept every so many events or so much time, whichever comes first, always by an acknowledgement. So
    the fold that is kept is never ahead of the acknowledgement, and never far behind. A wake reads the head and the
    progress at once, then folds the tail, without effects. A fold is good for one version of the reducer: another
    version starts from nothing and folds all acknowledged rows, without effects again, keeping its fold as often as
    it likes meanwhile, so that a crash doesn't cost it all. It goes live only when its fold is kept.

Storage
    ``log`` and ``progress`` are durable; an append is one transaction (rows, index, key and mark), an acknowledgement
    with its checkpoint another. A crash comes between any two actions, and takes everything else.

What the machine tracks
    A journal has any number of rows; the machine has two slots, and counts the others. A row without a slot
    stands for one whose key nobody uses again. Any row may be among the tracked, so what holds of them, each and in
    pairs, holds of all. An implementation hands in the rows that matter (for an append: that of the key, if there is
    one, and a free slot); every function takes any number of slots. Positions of the subject are numbers of rows, not
    offsets: "64 events" are 64 rows, however many ephemerals lie between.

Decided conflicts
    * A repetition of a keyed append is answered from the journal, whatever the definition says by now: it is the old
      event, not a new one that would be both ephemeral and keyed (J7 before J3). Only a new event is judged.
    * A definition may change with any restart, of the same version too: nothing depends on which.
    * The mark may be too high, never too low: a crash leaves a gap as long as what was reserved. Gaps cost nothing.
    * Presence may be told twice or not at all: it carries no key, so nothing tells a repetition.
    * The cadence is looked at with each acknowledgement, not by a timer: an idle subject has a tail for as long as it
      idles, but a bounded one. Whoever goes idle may keep its fold at any moment.
    * The bound of the tail is that of a version which has acknowledged something. The refold after a version change is
      as long as the journal; its intermediate checkpoints only make it shorter.

Not modelled
    Bodies, but for being the same or not. An effect that happens and whose acknowledgement is lost: effects are at
    least once, which is the hold's business. Several subjects: each has its own progress. Deleting rows. Readers of
    more than one event. Compare-and-set on the last offset.
"""

from __future__ import annotations

import attrs

from .journal_state import (
    FREE,
    NO_FOLD,
    NOBODY_WAITS,
    NOTHING_SEEN,
    NOTHING_TOLD,
    JournalPolicy,
    Log,
    Phase,
    Progress,
    Seen,
    State,
    Told,
    Wait,
)
from .journal_words import (
    acknowledged,
    barrier,
    committed,
    committed_flag,
    covered,
    died,
    fits,
    folded,
    found,
    identity_reads,
    input_flag,
    is_awake,
    is_open,
    kept_key,
    known_offset,
    may_have_key,
    may_refold,
    may_tell_revival,
    new_event,
    next_offset,
    passed,
    phase_of,
    presence_flag,
    recovered_offset,
    refolded,
    remembers,
    repeats,
    resumed,
    still_waiting,
    tail_is_bounded,
    there,
    without_oldest,
)
from .language import require


def initial() -> State:
    """An empty journal that has never been opened."""
    return State(
        log=Log(0, 0, 0, 0, (FREE, FREE)),
        progress=Progress(0, NO_FOLD, 0),
        version=0,
        declared=False,
        phase=Phase.DOWN,
        max_offset=0,
        buffer=(FREE, FREE),
        revival_rows=0,
        fold=NO_FOLD,
        reads=0,
        replayed=0,
        waiting=NOBODY_WAITS,
        told=NOTHING_TOLD,
        seen=NOTHING_SEEN,
        effects=0,
        now_ms=0,
    )


# Actions.


def boot(state: State, version: int, declared: bool) -> State:
    """An incarnation opens the journal, with code of some version and with that code's definition."""
    require(not is_open(state.phase), "J1", "the journal is open already")
    return attrs.evolve(
        state, phase=Phase.OPEN, version=version, declared=declared, max_offset=recovered_offset(state.log)
    )


def crash(state: State) -> State:
    """The incarnation dies, of a fault or a deploy, at any point."""
    require(is_open(state.phase), "J1", "no incarnation lives")
    return died(state)


def reserve(state: State, ahead: int) -> State:
    """The mark is moved ahead, so that ephemerals may be given offsets up to it."""
    require(is_open(state.phase), "J1", "the journal isn't open")
    return attrs.evolve(state, log=attrs.evolve(state.log, high=max(state.log.high, state.max_offset + ahead)))


def append(policy: JournalPolicy, state: State, key: int, body: int, asked: bool, size: int) -> State:
    """Somebody appends an event of the type that the definition is about; *asked* is the sender's ephemeral flag."""
    require(is_open(state.phase), "J1", "the journal isn't open")
    row = found(state.log.rows, key)
    require(row.offset == 0 or repeats(row, body), "J7", "the key stands for another body")
    if row.offset != 0:
        return attrs.evolve(state, told=Told(known_offset(row), key, body))
    ephemeral = input_flag(state.declared, asked)
    require(key == 0 or may_have_key(ephemeral), "J3", "an ephemeral event has no key")
    event = new_event(state, kept_key(key, ephemeral), body, ephemeral, size)
    require(not event.ephemeral or covered(state.log, event.offset), "J1", "reserve the offset first")
    require(not event.ephemeral or fits(policy, state.buffer, size), "B1", "forget the oldest first, or it is too big")
    require(event.ephemeral or remembers(state.log.rows, key), "J7", "a row with a key needs a slot")
    told = NOTHING_TOLD if key == 0 else Told(event.offset, key, body)
    return attrs.evolve(committed(state, event), told=told)


def append_others(state: State, rows: int) -> State:
    """So many durable events are appended that nobody looks at here: no keys, or keys that nobody uses again."""
    require(is_open(state.phase), "J1", "the journal isn't open")
    last = next_offset(state.log, state.max_offset, state.buffer) + rows - 1
    log = attrs.evolve(
        state.log,
        high=max(state.log.high, last),
        head=last,
        count=state.log.count + rows,
        untracked=state.log.untracked + rows,
    )
    return attrs.evolve(state, log=log, max_offset=last)


def connect(policy: JournalPolicy, state: State, size: int) -> State:
    """A client connects; what tells others so is ephemeral and has no key."""
    require(is_open(state.phase), "J1", "the journal isn't open")
    event = new_event(state, 0, 0, presence_flag(state.declared), size)
    require(covered(state.log, event.offset), "J1", "reserve the offset first")
    require(fits(policy, state.buffer, size), "B1", "forget the oldest first, or it is too big")
    return committed(state, event)


def disconnect(policy: JournalPolicy, state: State, size: int) -> State:
    """A client disconnects, perhaps one that is not known to be connected."""
    require(is_open(state.phase), "J1", "the journal isn't open")
    event = new_event(state, 0, 0, presence_flag(state.declared), size)
    require(covered(state.log, event.offset), "J1", "reserve the offset first")
    require(fits(policy, state.buffer, size), "B1", "forget the oldest first, or it is too big")
    return committed(state, event)


def revive(state: State) -> State:
    """The incarnation was started by a revival, and says so in a row."""
    require(is_open(state.phase), "J1", "the journal isn't open")
    require(may_tell_revival(state.revival_rows), "J2", "this revival has added its rows")
    told = attrs.evolve(state, revival_rows=state.revival_rows + 1)
    return committed(told, new_event(state, 0, 0, False, 0))


def evict(state: State) -> State:
    """The buffer forgets its oldest event."""
    require(state.buffer[0].offset != 0, "B2", "the buffer is empty")
    return attrs.evolve(state, buffer=without_oldest(state.buffer))


def read_row(state: State, slot: int) -> State:
    """A reader sees a durable event."""
    require(is_open(state.phase), "J4", "the journal isn't open")
    row = state.log.rows[slot]
    require(row.offset != 0, "J4", "there is no such row")
    return attrs.evolve(state, seen=Seen(row.offset, committed_flag(row.ephemeral, state.declared)))


def read_buffered(state: State, slot: int) -> State:
    """A reader sees an ephemeral event that is still known."""
    event = state.buffer[slot]
    require(event.offset != 0, "J4", "the event is forgotten, or never was")
    return attrs.evolve(state, seen=Seen(event.offset, committed_flag(event.ephemeral, state.declared)))


def begin_wait(state: State) -> State:
    """Somebody wants to see what the subject makes of everything so far."""
    require(is_open(state.phase), "J6", "the journal isn't open")
    require(state.waiting.offset == 0, "J6", "somebody waits already")
    require(state.log.head != 0, "J6", "there is nothing to wait for")
    return attrs.evolve(state, waiting=Wait(barrier(state.log, state.max_offset), state.log.count))


def end_wait(state: State) -> State:
    """The subject is past what was waited for."""
    require(state.waiting.offset != 0, "J6", "nobody waits")
    require(passed(state.log, state.progress, state.waiting), "J6", "the subject is not there yet")
    return attrs.evolve(state, waiting=NOBODY_WAITS)


def wake(state: State) -> State:
    """The subject begins in this incarnation: one read of the head and its progress, and no row."""
    require(state.phase == Phase.OPEN, "J8", "the journal isn't open, or the subject is awake")
    fold = resumed(state.progress.checkpoint, state.version)
    return attrs.evolve(
        state,
        fold=fold,
        reads=identity_reads(state.log),
        replayed=0,
        waiting=still_waiting(state.waiting),
        phase=phase_of(fold.position, state.progress.acknowledged),
    )


def fold_page(state: State, rows: int) -> State:
    """So many acknowledged rows are folded again: one read."""
    require(state.phase == Phase.FOLDING, "J8", "nothing is to be folded again")
    require(may_refold(state.fold, state.progress, rows), "J8a", "what isn't acknowledged is not refolded")
    after = refolded(state, rows)
    return attrs.evolve(
        after,
        reads=state.reads + 1,
        replayed=state.replayed + rows,
        phase=phase_of(after.fold.position, after.progress.acknowledged),
    )


def process(policy: JournalPolicy, state: State, rows: int) -> State:
    """The subject folds so many new rows, runs their effects and acknowledges them; the fold is kept if it is due."""
    require(state.phase == Phase.LIVE, "J8c", "the subject has not folded all that is acknowledged")
    require(tail_is_bounded(policy, state.progress, state.version), "J8b", "keep the refold first")
    fold = folded(state.fold, rows, state.declared)
    require(there(state.log, fold.position), "J8d", "the journal has no such rows")
    return attrs.evolve(
        state,
        fold=fold,
        progress=acknowledged(policy, state.progress, fold, state.now_ms),
        effects=state.effects + rows,
    )


def checkpoint(state: State) -> State:
    """The fold is kept: while refolding, before going live, or when idle."""
    require(is_awake(state.phase), "J8e", "the subject is asleep")
    require(state.fold != state.progress.checkpoint, "J8b", "the fold is kept already")
    progress = attrs.evolve(state.progress, checkpoint=state.fold, checkpoint_at_ms=state.now_ms)
    return attrs.evolve(state, progress=progress)


def tick(state: State, elapsed_ms: int) -> State:
    """Time passes."""
    return attrs.evolve(state, now_ms=state.now_ms + elapsed_ms)
