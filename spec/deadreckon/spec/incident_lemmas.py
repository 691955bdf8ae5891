"""Lemmas of the recovery incident: what makes its rules inductive, so that proofs need no search.

Each is a rule in its own right: explored, bounded and proved with the others, and never assumed.
"""

from __future__ import annotations

from .incident import dead_owners
from .incident_rules import Ghost, works
from .incident_state import Phase, Reason, Record, RecoveryPolicy, State, Status, Turn
from .language import always

SOURCE = "strengthens the induction; follows from incident.py"


def works_in(phase: Phase) -> bool:
    """Whether an attempt in this phase has been admitted and has not ended."""
    return phase == Phase.ADMITTED or phase == Phase.HEAVY


@always("L1", "the dead hold nothing in memory and have no unsynced writes", source=SOURCE, lemma=True)
def l1(state: State) -> bool:
    nothing = all(phase == Phase.IDLE for phase in state.phases) and state.original == Phase.IDLE
    return (state.alive and state.incarnation >= 1) or (
        state.incarnation >= 0 and nothing and state.buffered == state.durable
    )


def owners_are_known(state: State, record: Record) -> bool:
    """Every entry is free or belongs to an incarnation that has been."""
    return all(owner >= 0 and owner <= state.incarnation for owner in record.attempts)


@always("L2", "every entry belongs to an incarnation that has been", source=SOURCE, lemma=True)
def l2(state: State) -> bool:
    return owners_are_known(state, state.durable) and owners_are_known(state, state.buffered)


def well_formed(record: Record) -> bool:
    """The fields of one record fit each other."""
    untouched = (
        record.interrupted == 0
        and record.attempt == 0
        and record.reason == Reason.NONE
        and not record.parked
        and not record.terminal_delivered
        and all(owner == 0 for owner in record.attempts)
    )
    live = record.status == Status.OPEN or record.status == Status.SEALED
    return (
        record.interrupted >= 0
        and record.attempt >= 0
        and (record.status != Status.ABSENT or untouched)
        and (not live or record.turn == Turn.RUNNING)
        and (record.status != Status.CLOSED or record.turn == Turn.FINISHED)
        and (record.status != Status.SEALED or record.terminal_delivered)
        and (not record.parked or record.reason == Reason.NONE)
        and (not record.terminal_delivered or record.reason != Reason.NONE)
    )


@always("L3", "the fields of a record fit each other", source=SOURCE, lemma=True)
def l3(state: State) -> bool:
    return well_formed(state.durable) and well_formed(state.buffered)


def balances(state: State, record: Record, ghost: Ghost) -> bool:
    """Deaths are counted in the record, or their entries still stand in it."""
    living = state.incarnation if state.alive else 0
    if record.status != Status.ABSENT:
        return ghost.deaths == record.interrupted + dead_owners(record.attempts, living)
    if record.turn == Turn.RUNNING:
        return ghost.deaths == (1 if state.original == Phase.IDLE else 0)
    return ghost.deaths >= 0 and (record.turn == Turn.FINISHED or ghost.deaths == 0)


@always("L4", "every death is in the count, or its entry is in the record", source=SOURCE, lemma=True)
def l4(state: State, ghost: Ghost) -> bool:
    return balances(state, state.durable, ghost) and balances(state, state.buffered, ghost)


def entry_of_living(phase: Phase, durable: int, buffered: int, incarnation: int) -> bool:
    """Whether what one slot says of its attempt fits where that attempt is."""
    return (
        (durable != incarnation or works_in(phase) or phase == Phase.FINISHING)
        and (buffered != incarnation or works_in(phase))
        and (phase != Phase.HEAVY or durable == incarnation)
    )


@always("L5", "an entry of the living belongs to an attempt that has not been reported", source=SOURCE, lemma=True)
def l5(state: State) -> bool:
    return not state.alive or all(
        entry_of_living(phase, durable, buffered, state.incarnation)
        for phase, durable, buffered in zip(state.phases, state.durable.attempts, state.buffered.attempts, strict=True)
    )


def purged(state: State, record: Record) -> bool:
    """No entry of the dead is left."""
    return all(owner == 0 or owner == state.incarnation for owner in record.attempts)


@always("L6", "an admission leaves no entry of the dead", source=SOURCE, lemma=True)
def l6(state: State) -> bool:
    admitted = any(phase != Phase.IDLE for phase in state.phases)
    written = any(owner == state.incarnation for owner in state.durable.attempts)
    return not state.alive or (
        (not admitted or purged(state, state.buffered)) and (not written or purged(state, state.durable))
    )


def advances(durable: Record, buffered: Record) -> bool:
    """What was written since the last sync only leads on."""
    same = (
        (durable.reason == Reason.NONE or buffered.reason == durable.reason)
        and (not durable.terminal_delivered or buffered.terminal_delivered)
        and durable.interrupted <= buffered.interrupted
    )
    if durable.status == Status.SEALED:
        return buffered == durable
    if durable.status == Status.CLOSED:
        no_more = all(new == 0 or new == old for old, new in zip(durable.attempts, buffered.attempts, strict=True))
        return (buffered.status == Status.CLOSED and same and no_more) or buffered.status == Status.ABSENT
    if durable.status == Status.OPEN:
        return buffered.status != Status.ABSENT and same
    return buffered.status != Status.SEALED


@always("L7", "what is not yet durable only leads on from what is", source=SOURCE, lemma=True)
def l7(state: State) -> bool:
    finished = state.durable.turn != Turn.FINISHED or state.buffered.turn == Turn.FINISHED
    begun = (state.durable.turn == Turn.NEW) == (state.buffered.turn == Turn.NEW)
    return finished and begun and advances(state.durable, state.buffered)


@always("L8", "a verdict for deaths stands on the count", source=SOURCE, lemma=True)
def l8(policy: RecoveryPolicy, state: State) -> bool:
    return all(
        record.reason != Reason.INTERRUPTED or record.interrupted >= policy.max_interrupted_attempts
        for record in (state.durable, state.buffered)
    )


@always("L9", "while the original turn runs, or none has begun, there is no incident", source=SOURCE, lemma=True)
def l9(state: State) -> bool:
    idle = all(phase == Phase.IDLE for phase in state.phases)
    missing = state.durable.status == Status.ABSENT and state.buffered.status == Status.ABSENT
    running = state.durable.turn == Turn.RUNNING and state.buffered.turn == Turn.RUNNING
    if state.buffered.turn == Turn.NEW:
        return idle and missing and state.original == Phase.IDLE
    if state.original == Phase.HEAVY:
        return idle and missing and running
    return state.original == Phase.IDLE or state.original == Phase.FINISHING


@always("L10", "once the terminal fact is told nobody works", source=SOURCE, lemma=True)
def l10(state: State) -> bool:
    return all(
        not record.terminal_delivered or record.status == Status.CLOSED or all(owner == 0 for owner in record.attempts)
        for record in (state.durable, state.buffered)
    )


@always("L11", "heavy work runs below the limit, unless the incident was parked", source=SOURCE, lemma=True)
def l11(policy: RecoveryPolicy, state: State, ghost: Ghost) -> bool:
    fewer = ghost.heavy_deaths <= ghost.deaths
    parked = ghost.ever_parked or not (state.durable.parked or state.buffered.parked)
    below = not works(state) or ghost.deaths < policy.max_interrupted_attempts
    return fewer and parked and (ghost.ever_parked or below)
