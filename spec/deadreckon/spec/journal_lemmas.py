"""Lemmas of the journal: what makes its rules inductive, so that proofs need no search.

Each is a rule in its own right: explored, bounded and proved with the others, and never assumed.
"""

from __future__ import annotations

from .journal_rules import Ghost, awake, events
from .journal_state import (
    FREE,
    NO_FOLD,
    NOBODY_WAITS,
    NOTHING_SEEN,
    NOTHING_TOLD,
    REVIVAL_ROWS,
    Event,
    Phase,
    State,
)
from .language import always

SOURCE = "strengthens the induction; follows from journal.py"


def nothing_kept(state: State) -> bool:
    """No offset, no ephemeral event and no row about a revival is known."""
    return state.max_offset == 0 and state.revival_rows == 0 and all(event == FREE for event in state.buffer)


def asleep(state: State) -> bool:
    """Nothing is in memory of the subject."""
    return state.reads == 0 and state.replayed == 0 and state.fold == NO_FOLD


def nobody_there(state: State) -> bool:
    """Nobody waits, was told anything, or has read."""
    return state.waiting == NOBODY_WAITS and state.told == NOTHING_TOLD and state.seen == NOTHING_SEEN


@always("L1", "without an incarnation nothing is in memory", source=SOURCE, lemma=True)
def l1(state: State) -> bool:
    empty = state.phase != Phase.DOWN or (nothing_kept(state) and nobody_there(state))
    return empty and (awake(state) or asleep(state))


@always(
    "L2", "the mark is past every offset that was issued, and the living know where to go on", source=SOURCE, lemma=True
)
def l2(state: State, ghost: Ghost) -> bool:
    log = state.log
    durable = log.head >= 0 and log.head <= ghost.issued and ghost.issued <= log.high
    return durable and (
        state.phase == Phase.DOWN or (ghost.issued <= state.max_offset and state.max_offset <= log.high)
    )


def well_formed(event: Event) -> bool:
    """A free slot is blank, a taken one has an offset and a size."""
    return event.offset >= 0 and event.size >= 0 and (event.offset != 0 or event == FREE)


@always(
    "L3",
    "slots are well-formed; no event is past the last that was issued, no row past the head",
    source=SOURCE,
    lemma=True,
)
def l3(state: State, ghost: Ghost) -> bool:
    known = all(well_formed(event) and event.offset <= ghost.issued for event in events(state))
    return known and all(row.offset <= state.log.head for row in state.log.rows)


@always("L4", "the buffer is in the order of its offsets, free slots last", source=SOURCE, lemma=True)
def l4(state: State) -> bool:
    older, newer = state.buffer[:-1], state.buffer[1:]
    return all(
        new.offset == 0 or (old.offset != 0 and old.offset < new.offset) for old, new in zip(older, newer, strict=True)
    )


@always("L5", "no ephemeral event has the head's offset", source=SOURCE, lemma=True)
def l5(state: State) -> bool:
    return all(event.offset == 0 or event.offset != state.log.head for event in state.buffer)


@always("L6", "every index is below the number of rows, which counts what is not tracked", source=SOURCE, lemma=True)
def l6(state: State) -> bool:
    return state.log.untracked >= 0 and state.waiting.rows <= state.log.count


@always(
    "L7",
    "folds go forward, and a kept fold of the same version is no further than the one in memory",
    source=SOURCE,
    lemma=True,
)
def l7(state: State) -> bool:
    kept, fold = state.progress.checkpoint, state.fold
    same = not awake(state) or kept.version != state.version or kept.position <= fold.position
    return kept.position >= 0 and fold.position >= 0 and same


@always("L8", "the subject is live exactly when its fold has all that is acknowledged", source=SOURCE, lemma=True)
def l8(state: State) -> bool:
    done = state.fold.position == state.progress.acknowledged
    return not awake(state) or (
        state.fold.position <= state.progress.acknowledged and (state.phase == Phase.LIVE) == done
    )


@always("L9", "what is still to be folded again is in what the wake may fold again", source=SOURCE, lemma=True)
def l9(state: State, ghost: Ghost) -> bool:
    left = state.progress.acknowledged - state.fold.position
    return (
        ghost.replayable >= 0
        and state.replayed >= 0
        and (not awake(state) or state.replayed + left <= ghost.replayable)
    )


@always(
    "L10", "times are past, versions known, and no other than the settled version is awake", source=SOURCE, lemma=True
)
def l10(state: State, ghost: Ghost) -> bool:
    past = ghost.acknowledged_at_ms <= state.now_ms and state.progress.checkpoint_at_ms <= state.now_ms
    known = (state.phase == Phase.DOWN or state.version >= 1) and ghost.settled >= 0
    return past and known and (not awake(state) or ghost.settled == 0 or ghost.settled == state.version)


@always("L11", "what was seen or is waited for has been issued; few rows tell of a revival", source=SOURCE, lemma=True)
def l11(state: State, ghost: Ghost) -> bool:
    issued = state.seen.offset >= 0 and state.seen.offset <= ghost.issued and state.waiting.offset >= 0
    return issued and state.revival_rows >= 0 and state.revival_rows <= REVIVAL_ROWS
