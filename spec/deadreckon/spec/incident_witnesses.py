"""What must be reachable in the recovery incident, so that no rule holds for want of anything to hold of."""

from __future__ import annotations

from .incident_rules import PROTOCOL, Ghost, held, works
from .incident_state import Phase, Reason, RecoveryPolicy, State, Status, Turn
from .language import sometimes


@sometimes("S1", "two attempts overlap at heavy work", source=PROTOCOL, beside=("C6", "C3"))
def s1(state: State) -> bool:
    return sum(1 for phase in state.phases if phase == Phase.HEAVY) == 2


@sometimes("S2", "an incarnation dies with two entries", source=PROTOCOL, beside=("C1", "C2"), on=("crash", "deploy"))
def s2(before: State, after: State) -> bool:
    return sum(1 for slot, _ in enumerate(before.phases) if held(before, slot)) == 2 and not after.alive


@sometimes("S3", "an incident is sealed", source=PROTOCOL, beside=("C7", "C7a", "C9a"))
def s3(state: State) -> bool:
    return state.durable.status == Status.SEALED


@sometimes(
    "S4",
    "an incident is sealed after exactly limit heavy runs died",
    source=PROTOCOL,
    beside=("C4a", "C4b"),
)
def s4(policy: RecoveryPolicy, state: State, ghost: Ghost) -> bool:
    return state.durable.status == Status.SEALED and ghost.heavy_deaths == policy.max_interrupted_attempts


@sometimes("S5", "a seal is avoided by finishing at limit - 1 deaths", source=PROTOCOL, beside=("C4", "C11"))
def s5(policy: RecoveryPolicy, state: State, ghost: Ghost) -> bool:
    return state.durable.status == Status.CLOSED and ghost.deaths == policy.max_interrupted_attempts - 1


@sometimes("S6", "a parked incident works above the limit", source=PROTOCOL, beside=("C8",))
def s6(policy: RecoveryPolicy, state: State) -> bool:
    return works(state) and state.buffered.interrupted > policy.max_interrupted_attempts


@sometimes("S7", "a finish is lost in a crash", source=PROTOCOL, beside=("C2",), on=("crash",))
def s7(before: State, after: State) -> bool:
    return any(
        before.phases[slot] == Phase.FINISHING
        and before.buffered.attempts[slot] == 0
        and after.buffered.attempts[slot] == before.incarnation
        for slot, _ in enumerate(before.phases)
    )


@sometimes("S8", "a count above zero is kept by a step that credits progress", source=PROTOCOL, beside=("C5",))
def s8(before: State, after: State) -> bool:
    return after.buffered.progress > before.buffered.progress and before.buffered.interrupted > 0


@sometimes(
    "S9",
    "a dead incarnation calls while a record is open",
    source=PROTOCOL,
    beside=("C13",),
    on=("call_from_the_dead",),
)
def s9(before: State, after: State) -> bool:
    return before.alive and before.buffered.status == Status.OPEN


@sometimes("S10", "a callback is queued for a swept record", source=PROTOCOL, beside=("C10",))
def s10(state: State) -> bool:
    return state.callback and state.durable.status == Status.ABSENT and state.durable.turn == Turn.FINISHED


@sometimes("S11", "an incident is given up for each soft budget: work", source=PROTOCOL, beside=("B1",))
def s11(state: State) -> bool:
    return state.durable.reason == Reason.WORK


@sometimes("S12", "an incident is given up for each soft budget: no progress", source=PROTOCOL, beside=("B1",))
def s12(state: State) -> bool:
    return state.durable.reason == Reason.NO_PROGRESS


@sometimes("S13", "an incident is given up for each soft budget: attempts", source=PROTOCOL, beside=("B1",))
def s13(state: State) -> bool:
    return state.durable.reason == Reason.ATTEMPTS


@sometimes("S14", "the predicate declines to go on", source=PROTOCOL, beside=("B2",))
def s14(state: State) -> bool:
    return state.durable.reason == Reason.PREDICATE
