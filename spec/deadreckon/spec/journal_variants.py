"""Known-bad designs of the journal: each replaces a few helpers, and each is refuted by the rule it names.

The first seven are the protocol's, met in the field or in review; the rest remove a guard that those leave alone.
"""

from __future__ import annotations

import attrs

from .journal_state import FREE, NOBODY_WAITS, Event, Fold, JournalPolicy, Log, Phase, Progress, State, Wait
from .journal_words import (
    barrier,
    committed,
    committed_flag,
    counted,
    covered,
    due,
    fits,
    found,
    has_free,
    identity_reads,
    input_flag,
    kept_key,
    known_offset,
    may_have_key,
    may_refold,
    may_tell_revival,
    next_index,
    next_offset,
    passed,
    phase_of,
    placed,
    presence_flag,
    recovered_offset,
    refolded,
    remembers,
    repeats,
    resumed,
    still_waiting,
    stored,
    tail_is_bounded,
    there,
    without_oldest,
)
from .language import swap
from .machine import Variant


def presence_is_durable(declared: bool) -> bool:
    """Each connection is a row."""
    return False


def head_alone(log: Log) -> int:
    """A boot goes on behind the last row."""
    return log.head


def any_may_have_key(ephemeral: bool) -> bool:
    """Nobody looks at key and flag together."""
    return True


def durable_keys_only(key: int, ephemeral: bool) -> int:
    """What can't be kept is left out."""
    return 0 if ephemeral else key


def unanswered(row: Event) -> int:
    """A repetition changes nothing, so there is nothing to tell."""
    return 0


def woken_alone(waiting: Wait) -> Wait:
    """Whoever waits is in the memory of the subject, which begins anew."""
    return NOBODY_WAITS


def flag_by_definition(stored: bool, declared: bool) -> bool:
    """Committed events are parsed like input."""
    return stored or declared


def index_from_offset(log: Log, offset: int) -> int:
    """Position and offset are the same, but for one."""
    return offset - 1


def last_offset(log: Log, max_offset: int) -> int:
    """Whoever waits does so for the last offset that was given."""
    return max_offset


def from_zero(checkpoint: Fold, version: int) -> Fold:
    """A wake folds the journal."""
    return Fold(version, 0, 0)


def never_looked_at(log: Log, offset: int) -> bool:
    """Ephemerals are given offsets past the mark."""
    return True


def past_what_is_known(log: Log, max_offset: int, buffer: tuple[Event, ...]) -> int:
    """The next offset is past the events that are still known."""
    return max(log.head, max(event.offset for event in buffer)) + 1


def always_told(revival_rows: int) -> bool:
    """Each session that comes back tells of the revival."""
    return True


def as_asked(declared: bool, asked: bool) -> bool:
    """The sender's flag stands."""
    return asked


def counted_by_definition(rows: int, declared: bool) -> int:
    """The reducer asks the definition which rows are durable."""
    return 0 if declared else rows


def never_past(log: Log, progress: Progress, waiting: Wait) -> bool:
    """The wait returns at once."""
    return True


def never_found(rows: tuple[Event, ...], key: int) -> Event:
    """Keys are not looked up."""
    return FREE


def any_repeats(row: Event, body: int) -> bool:
    """The key alone says that it is a repetition."""
    return True


def forgets_keys(rows: tuple[Event, ...], key: int) -> bool:
    """Keys are remembered as long as there is room."""
    return True


def scanned(log: Log) -> int:
    """The head is found by reading all rows."""
    return log.count + 1


def refolded_with_effects(state: State, rows: int) -> State:
    """What is folded again is processed again."""
    return attrs.evolve(refolded(state, rows), effects=state.effects + rows)


def refolded_and_acknowledged(state: State, rows: int) -> State:
    """The acknowledgement follows the fold wherever it goes."""
    after = refolded(state, rows)
    return attrs.evolve(after, progress=attrs.evolve(after.progress, acknowledged=after.fold.position))


def due_by_time(policy: JournalPolicy, tail: int, since_ms: int) -> bool:
    """The clock alone says when the fold is kept."""
    return since_ms >= policy.checkpoint_every_ms


def due_by_events(policy: JournalPolicy, tail: int, since_ms: int) -> bool:
    """The number of events alone says when the fold is kept."""
    return tail >= policy.checkpoint_every_events


def bounded_or_not(policy: JournalPolicy, progress: Progress, version: int) -> bool:
    """A subject goes live on a fold that is in memory only."""
    return True


def always_live(position: int, acknowledged: int) -> Phase:
    """A subject is live as soon as it has woken."""
    return Phase.LIVE


def all_rows(fold: Fold, progress: Progress, rows: int) -> bool:
    """A refold goes on to the head."""
    return True


def not_counted(log: Log, rows: int) -> bool:
    """Nobody looks whether the rows are there."""
    return True


def of_any_version(checkpoint: Fold, version: int) -> Fold:
    """What was kept is gone on with, whichever version made it."""
    return checkpoint


def any_size(policy: JournalPolicy, buffer: tuple[Event, ...], size: int) -> bool:
    """The buffer grows."""
    return has_free(buffer)


def without_newest(buffer: tuple[Event, ...]) -> tuple[Event, ...]:
    """What came last goes first."""
    last = max(event.offset for event in buffer)
    return tuple(FREE if event.offset == last else event for event in buffer)


def placed_in_a_ring(slots: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    """Where there is no room, what was there first makes room."""
    return placed(slots, event) if has_free(slots) else (*slots[1:], event)


def committed_to_disk(state: State, event: Event) -> State:
    """Every event is a row, whatever its flag says."""
    return attrs.evolve(state, log=stored(state.log, event), max_offset=event.offset)


def passed_by_one(log: Log, progress: Progress, waiting: Wait) -> bool:
    """The wait ends with the next row after what was waited for."""
    return progress.acknowledged > waiting.rows


VARIANTS = (
    Variant(
        "durable-presence",
        "J2",
        "connecting and disconnecting are rows",
        (swap(presence_flag, presence_is_durable),),
        "1,500 rows a revival, storage bursts, a death spiral",
    ),
    Variant(
        "reused-offset",
        "J1",
        "a boot goes on behind the last row, without a mark",
        (swap(recovered_offset, head_alone),),
        "the scenario journal-offset-reused",
    ),
    Variant(
        "keyed-ephemeral",
        "J3",
        "ephemeral events may have keys",
        (swap(may_have_key, any_may_have_key),),
        "a departure appended with a key after the flip: lost",
    ),
    Variant(
        "parse-rewrites-history",
        "J4",
        "committed events are parsed like input: the definition of now decides",
        (swap(committed_flag, flag_by_definition),),
        "first version of the fix; a frozen replay saw the count drift",
    ),
    Variant(
        "offset-as-index",
        "J5",
        "the index of a row is its offset less one",
        (swap(next_index, index_from_offset),),
        "all rows after a gap vanished from the list",
    ),
    Variant(
        "wait-on-ephemeral",
        "J6",
        "a wait is for the last offset, which may be an ephemeral one",
        (swap(barrier, last_offset),),
        "waiting on a trailing ephemeral hangs",
    ),
    Variant(
        "replay-from-zero",
        "J8",
        "every wake folds the journal",
        (swap(resumed, from_zero),),
    ),
    Variant("unmarked-ephemeral", "J1", "ephemerals get offsets past the mark", (swap(covered, never_looked_at),)),
    Variant(
        "offset-past-what-is-known",
        "J1",
        "the next offset is past what rows and buffer still have",
        (swap(next_offset, past_what_is_known),),
    ),
    Variant("rows-in-a-ring", "J1a", "the oldest row makes room for the newest", (swap(placed, placed_in_a_ring),)),
    Variant("revival-per-session", "J2a", "each session tells of the revival", (swap(may_tell_revival, always_told),)),
    Variant(
        "fold-by-definition",
        "J4a",
        "the reducer counts what the definition of now says is durable",
        (swap(counted, counted_by_definition),),
    ),
    Variant("sender-decides", "J4b", "the sender's flag stands against the definition", (swap(input_flag, as_asked),)),
    Variant("ephemerals-on-disk", "J4c", "ephemeral events are rows too", (swap(committed, committed_to_disk),)),
    Variant(
        "key-dropped",
        "J3a",
        "an ephemeral event with a key is taken, without the key",
        (swap(may_have_key, any_may_have_key), swap(kept_key, durable_keys_only)),
    ),
    Variant("wake-forgets-waits", "J6c", "a wake begins with nobody waiting", (swap(still_waiting, woken_alone),)),
    Variant("repetition-untold", "J7b", "a repetition is told nothing", (swap(known_offset, unanswered),)),
    Variant("wait-for-one-more", "J6b", "a wait ends with the row after", (swap(passed, passed_by_one),)),
    Variant("wait-returns-early", "J6a", "a wait returns at once", (swap(passed, never_past),)),
    Variant("keys-ignored", "J7a", "a repetition is a new row", (swap(found, never_found),)),
    Variant(
        "conflict-answers-old",
        "J7",
        "another body under a known key is told the old event",
        (swap(repeats, any_repeats),),
    ),
    Variant("keys-forgotten", "J7", "keys are remembered while there is room", (swap(remembers, forgets_keys),)),
    Variant("wake-scans", "J8", "a wake reads all rows to find the head", (swap(identity_reads, scanned),)),
    Variant("refold-runs-effects", "J8a", "a refold runs the effects again", (swap(refolded, refolded_with_effects),)),
    Variant(
        "refold-acknowledges",
        "J8a",
        "a refold moves the acknowledgement to where it is",
        (swap(refolded, refolded_and_acknowledged),),
    ),
    Variant("cadence-by-time", "J8b", "however many events, the fold is kept by time", (swap(due, due_by_time),)),
    Variant("cadence-by-events", "J8b", "however long ago, the fold is kept by events", (swap(due, due_by_events),)),
    Variant(
        "live-before-kept",
        "J8b",
        "effects are run on a refold that is not kept yet",
        (swap(tail_is_bounded, bounded_or_not),),
    ),
    Variant("effects-before-fold", "J8c", "a woken subject is live", (swap(phase_of, always_live),)),
    Variant("refold-past-acknowledgement", "J8d", "a refold goes on to the head", (swap(may_refold, all_rows),)),
    Variant("acknowledged-unseen", "J8d", "rows are acknowledged that are not there", (swap(there, not_counted),)),
    Variant("fold-of-another", "J8e", "the kept fold is gone on with by any version", (swap(resumed, of_any_version),)),
    Variant("endless-buffer", "B1", "the buffer has no budget", (swap(fits, any_size),)),
    Variant(
        "newest-forgotten", "B2", "the buffer forgets the newest event first", (swap(without_oldest, without_newest),)
    ),
)
