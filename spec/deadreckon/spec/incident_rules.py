"""What must hold of the recovery incident: rules C1 to C13, what keeps them from being vacuous, and lemmas.

The ghost is what really happened. It is moved on by :func:`observe` after each step, and no transition sees it.

Why equal totals mean "exactly once": an incarnation that dies holding an entry had its own admission made durable, and
at that admission all earlier deaths were counted (C1, C2: the count equals the deaths). So between two durable
admissions of different incarnations at most one death happens, and the count moves by exactly that one.
"""

from __future__ import annotations

import attrs

from .incident_state import Phase, Reason, Record, RecoveryPolicy, State, Status, Turn
from .language import always, eventually

PROTOCOL = "protocols/incident.md"
COUNTING = "facts/recovery.md 2.1"


@attrs.frozen
class Ghost:
    """What really happened.

    Attributes:
        deaths: incarnations that died holding a durable entry of the incident, or running its original turn.
        heavy_deaths: incarnations that died while heavy work ran.
        ever_parked: whether the incident was ever parked.
    """

    deaths: int = 0
    heavy_deaths: int = 0
    ever_parked: bool = False


def held(state: State, slot: int) -> bool:
    """Whether a death now is a death of the attempt in *slot*."""
    durable = state.durable.attempts[slot] == state.incarnation
    phase = state.phases[slot]
    return phase == Phase.HEAVY or ((phase == Phase.ADMITTED or phase == Phase.FINISHING) and durable)


def original_held(state: State) -> bool:
    """Whether a death now is a death of the original turn."""
    untold = state.durable.turn == Turn.RUNNING and state.durable.status == Status.ABSENT
    return state.original != Phase.IDLE and untold


def works(state: State) -> bool:
    """Whether heavy work runs."""
    return state.original == Phase.HEAVY or any(phase == Phase.HEAVY for phase in state.phases)


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    """Move the ghost on: a death is seen as a life that ended."""
    dies = before.alive and not after.alive
    holding = original_held(before) or any(held(before, slot) for slot, _ in enumerate(before.phases))
    return Ghost(
        deaths=ghost.deaths + (1 if dies and holding else 0),
        heavy_deaths=ghost.heavy_deaths + (1 if dies and works(before) else 0),
        ever_parked=ghost.ever_parked or after.buffered.parked,
    )


def own_entry(state: State, slot: int) -> bool:
    """Whether the admission of the attempt in *slot* is durable and the attempt still runs."""
    phase = state.phases[slot]
    running = phase == Phase.ADMITTED or phase == Phase.HEAVY
    return running and state.durable.attempts[slot] == state.incarnation


def over(record: Record) -> bool:
    """Whether the incident has ended."""
    return record.status == Status.CLOSED or record.status == Status.SEALED


# Rules. The number is the protocol's; a letter after it marks a further clause of the same rule.


@always(
    "C1",
    "after an admission is durable, every earlier incarnation that died holding a durable entry of the incident, or "
    "running its original turn, has been counted",
    source=f"{PROTOCOL} C1; {COUNTING} R1, R4",
)
def c1(state: State, ghost: Ghost) -> bool:
    durable = any(own_entry(state, slot) for slot, _ in enumerate(state.phases))
    return not durable or state.durable.interrupted >= ghost.deaths


@always(
    "C2",
    "no death is counted twice, and nothing that did not die is counted: not a live attempt, not one whose end was "
    "reported, not a queued callback",
    source=f"{PROTOCOL} C2; {COUNTING} R2, R3, R9",
)
def c2(state: State, ghost: Ghost) -> bool:
    return state.buffered.interrupted <= ghost.deaths


@always(
    "C3",
    "no heavy work starts before the attempt's own entry is durable",
    source=f"{PROTOCOL} C3; facts/recovery.md 1.8",
)
def c3(before: State, after: State) -> bool:
    return all(
        before.phases[slot] == Phase.HEAVY
        or after.phases[slot] != Phase.HEAVY
        or before.durable.attempts[slot] == before.incarnation
        for slot, _ in enumerate(before.phases)
    )


def starts(before: State, after: State) -> bool:
    """Whether an attempt starts heavy work in this step."""
    return any(
        before.phases[slot] != Phase.HEAVY and after.phases[slot] == Phase.HEAVY for slot, _ in enumerate(before.phases)
    )


@always(
    "C4",
    "no heavy work starts when the count has reached the limit and the incident is not parked; no class of work is "
    "exempt",
    source=f"{PROTOCOL} C4; {COUNTING} R6",
)
def c4(policy: RecoveryPolicy, before: State, after: State) -> bool:
    record = before.buffered
    spent = record.interrupted >= policy.max_interrupted_attempts and not record.parked
    return not spent or not starts(before, after)


@always(
    "C4a",
    "a turn that dies every time runs at most limit times, the original included, unless it was parked",
    source=f"{PROTOCOL} C4; {COUNTING} 2.2",
)
def c4a(policy: RecoveryPolicy, ghost: Ghost) -> bool:
    return ghost.ever_parked or ghost.heavy_deaths <= policy.max_interrupted_attempts


@always(
    "C4b",
    "an incident is not given up for its deaths before as many happened as the limit says",
    source=f"{PROTOCOL} C4",
)
def c4b(policy: RecoveryPolicy, state: State, ghost: Ghost) -> bool:
    return state.buffered.reason != Reason.INTERRUPTED or ghost.deaths >= policy.max_interrupted_attempts


@always(
    "C5",
    "nothing lowers the count while the incident lives: not progress, debounce, a deploy, a reconnect, nor a sweep",
    source=f"{PROTOCOL} C5; {COUNTING} R7",
)
def c5(before: State, after: State) -> bool:
    durable = after.durable.interrupted >= before.durable.interrupted or before.durable.status == Status.CLOSED
    buffered = after.buffered.interrupted >= before.buffered.interrupted or before.buffered.status == Status.CLOSED
    return durable and (buffered or not after.alive)


@always(
    "C6",
    "entries of the live incarnation are kept by every other attempt's admission and finish; two admissions in one "
    "incarnation lose nothing to each other",
    source=f"{PROTOCOL} C6; facts/recovery.md 0",
)
def c6(state: State) -> bool:
    return all(
        (phase != Phase.ADMITTED and phase != Phase.HEAVY) or owner == state.incarnation
        for phase, owner in zip(state.phases, state.buffered.attempts, strict=True)
    )


@always(
    "C7",
    "a sealed incident changes no more",
    source=f"{PROTOCOL} C7; {COUNTING} R11",
)
def c7(before: State, after: State) -> bool:
    buffered = before.buffered.status != Status.SEALED or after.buffered == before.buffered or not after.alive
    return buffered and (before.durable.status != Status.SEALED or after.durable == before.durable)


@always("C7a", "a sealed incident does no work", source=f"{PROTOCOL} C7")
def c7a(state: State) -> bool:
    return state.buffered.status != Status.SEALED or all(
        phase != Phase.ADMITTED and phase != Phase.HEAVY for phase in state.phases
    )


@always(
    "C8",
    "no budget seals while a person is being waited for; deaths while parked are counted and take effect at the first "
    "admission after",
    source=f"{PROTOCOL} C8; facts/recovery.md S10",
)
def c8(state: State) -> bool:
    return not state.buffered.parked or state.buffered.reason == Reason.NONE


def given_up(state: State) -> bool:
    """The verdict, or the seal, is durable."""
    return state.durable.reason != Reason.NONE or state.durable.status == Status.SEALED


FAIR = (
    "boot",
    "replay",
    "sync",
    "start_work",
    "finish",
    "report",
    "end_original",
    "report_original",
    "deliver_terminal",
    "seal",
    "stand_down",
    "unpark",
    "tick",
)


@eventually(
    "C9",
    "every given-up incident's terminal fact is delivered, given one incarnation that lives long enough (or the turn "
    "finishes after all); duplicates are allowed, loss is not",
    source=f"{PROTOCOL} C9; facts/recovery.md S14",
    when=given_up,
    fair=FAIR,
)
def c9(state: State) -> bool:
    return state.durable.terminal_delivered or state.durable.status == Status.CLOSED


@always(
    "C9a",
    "a sealed incident's terminal fact is durable, and it is told only for a verdict that is",
    source=f"{PROTOCOL} C9, order of writes; facts/recovery.md S14",
)
def c9a(state: State) -> bool:
    sealed = state.buffered.status == Status.SEALED or state.durable.status == Status.SEALED
    told = state.buffered.terminal_delivered or state.durable.terminal_delivered
    return (not sealed or state.durable.terminal_delivered) and (not told or state.durable.reason != Reason.NONE)


@always(
    "C10",
    "heavy work for an incident without a record is impossible: the admission reopens a record that is already "
    "counted, or refuses",
    source=f"{PROTOCOL} C10; facts/recovery.md 0",
)
def c10(state: State) -> bool:
    return state.buffered.status != Status.ABSENT or all(phase != Phase.HEAVY for phase in state.phases)


@always(
    "C11",
    "the way to the seal does no heavy work: once as many incarnations died as the limit allows, counted yet or not, "
    "none starts",
    source=f"{PROTOCOL} C11; facts/recovery.md F10, F12",
)
def c11(policy: RecoveryPolicy, before: State, after: State, ghost: Ghost) -> bool:
    spent = ghost.deaths >= policy.max_interrupted_attempts and not before.buffered.parked
    given_up = before.buffered.reason != Reason.NONE
    return not starts(before, after) or not (spent or given_up)


def has_begun(state: State) -> bool:
    """An incident is durably open."""
    return state.durable.status == Status.OPEN


@eventually(
    "C12",
    "every incident ends (closed or sealed) after finitely many heavy runs, given that incarnations keep booting and "
    "a person who is waited for answers",
    source=f"{PROTOCOL} C12; facts/recovery.md L1",
    when=has_begun,
    fair=FAIR,
)
def c12(state: State) -> bool:
    return over(state.durable)


@always(
    "C13",
    "a call from a dead incarnation changes nothing",
    source=f"{PROTOCOL} C13; facts/recovery.md S16",
    on=("call_from_the_dead",),
)
def c13(before: State, after: State) -> bool:
    return before == after


@always(
    "B1",
    "the recorded reason is the first in precedence: interrupted, work, no progress, predicate, attempts",
    source="protocols/incident.md, policy; facts/recovery.md 1.6",
)
def b1(policy: RecoveryPolicy, before: State, after: State) -> bool:
    record = after.buffered
    reason = record.reason
    died_out = record.interrupted >= policy.max_interrupted_attempts
    overworked = record.progress - record.work_baseline > policy.max_recovery_work
    stuck = record.last_attempt_at_ms - record.last_progress_at_ms > policy.no_progress_timeout_ms
    if before.buffered.reason != Reason.NONE or not after.alive:
        return True
    if reason == Reason.INTERRUPTED:
        return died_out
    if reason == Reason.WORK:
        return overworked and not died_out
    if reason == Reason.NO_PROGRESS:
        return stuck and not died_out and not overworked
    return reason == Reason.NONE or not (died_out or overworked or stuck)


@always(
    "B2",
    "the predicate is not asked on first detection",
    source="protocols/incident.md, policy; facts/recovery.md S21",
)
def b2(before: State, after: State) -> bool:
    falls = before.buffered.reason == Reason.NONE and after.buffered.reason == Reason.PREDICATE
    return not falls or not after.alive or before.buffered.attempt != 0
