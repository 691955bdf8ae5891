"""What must be reachable in requests, so that no rule holds for want of anything to hold of."""

from __future__ import annotations

from .language import sometimes
from .request_rules import PROTOCOL, Ghost, dials, opens, settles
from .request_state import Reason, RequestPolicy, State, Status


@sometimes("S1", "a request is dialled at the last moment above the floor", source=PROTOCOL, beside=("Q1", "Q4"))
def s1(policy: RequestPolicy, before: State, after: State) -> bool:
    return dials(before, after) and before.now_ms + policy.floor_ms + 1 == before.request.expires_at_ms


@sometimes("S2", "a request is expired at exactly the floor", source=PROTOCOL, beside=("Q1", "Q7a"))
def s2(policy: RequestPolicy, before: State, after: State) -> bool:
    at_floor = before.now_ms + policy.floor_ms == before.request.expires_at_ms
    return at_floor and settles(before, after) and after.request.reason == Reason.NO_TIME


@sometimes("S3", "a request succeeds, and it is told", source=PROTOCOL, beside=("Q2", "Q7b", "R5"))
def s3(state: State) -> bool:
    return state.request.told == Status.SUCCEEDED


@sometimes("S4", "an attempt answers after its request expired", source=PROTOCOL, beside=("Q2",), on=("answer_late",))
def s4(before: State, after: State) -> bool:
    return before.request.reason == Reason.HORIZON


@sometimes(
    "S5",
    "a dead incarnation answers while its successor runs the request",
    source=PROTOCOL,
    beside=("Q2a",),
    on=("answer_from_the_dead",),
)
def s5(before: State, after: State) -> bool:
    return before.running and before.request.attempts > 1


@sometimes("S6", "an attempt runs with less than the floor left", source=PROTOCOL, beside=("Q3", "Q3a"))
def s6(policy: RequestPolicy, state: State) -> bool:
    return state.running and state.now_ms + policy.floor_ms > state.request.expires_at_ms


@sometimes("S7", "an attempt succeeds at the horizon's very millisecond", source=PROTOCOL, beside=("Q3a", "Q5b"))
def s7(before: State, after: State) -> bool:
    at_horizon = before.now_ms == before.request.expires_at_ms
    return at_horizon and settles(before, after) and after.request.status == Status.SUCCEEDED


@sometimes("S8", "the horizon passes while an attempt hangs", source=PROTOCOL, beside=("Q5a", "Q5b"))
def s8(before: State, after: State) -> bool:
    return before.running and settles(before, after) and after.request.reason == Reason.HORIZON


@sometimes("S9", "the horizon passes while nobody lives", source=PROTOCOL, beside=("Q5a", "R6"))
def s9(state: State) -> bool:
    return not state.alive and state.request.status == Status.OPEN and state.now_ms > state.request.expires_at_ms


@sometimes("S10", "a request is retried, with the horizon it had", source=PROTOCOL, beside=("Q4", "Q4a", "R1"))
def s10(before: State, after: State, ghost: Ghost) -> bool:
    return dials(before, after) and ghost.wait_ms > 0


@sometimes("S11", "a request is opened later than its trigger", source=PROTOCOL, beside=("Q4b",))
def s11(policy: RequestPolicy, before: State, after: State) -> bool:
    return opens(before, after) and after.request.expires_at_ms < before.now_ms + policy.horizon_ms


@sometimes("S12", "a request is tried at the moment of its trigger", source=PROTOCOL, beside=("Q6",))
def s12(policy: RequestPolicy, before: State, after: State) -> bool:
    return dials(before, after) and before.request.expires_at_ms == before.now_ms + policy.horizon_ms


@sometimes("S13", "an expiry is told", source=PROTOCOL, beside=("Q7a", "Q7b"))
def s13(state: State) -> bool:
    return state.request.told == Status.EXPIRED


@sometimes("S14", "the distance between attempts has reached its longest", source=PROTOCOL, beside=("R1", "R1a"))
def s14(policy: RequestPolicy, ghost: Ghost) -> bool:
    return ghost.wait_ms == policy.retry_backoff_max_ms and ghost.wait_ms > policy.retry_backoff_ms


@sometimes("S15", "every attempt fails", source=PROTOCOL, beside=("R2", "R3"))
def s15(policy: RequestPolicy, state: State, ghost: Ghost) -> bool:
    return state.request.status == Status.FAILED and ghost.wait_ms > 0


@sometimes(
    "S16", "the last attempt dies with its incarnation", source=PROTOCOL, beside=("R2", "R3", "Q3b"), on=("give_up",)
)
def s16(policy: RequestPolicy, before: State, after: State) -> bool:
    return before.request.owner < before.incarnation


@sometimes("S17", "an incarnation adopts what another one tried", source=PROTOCOL, beside=("R4", "Q1"))
def s17(before: State, after: State) -> bool:
    return dials(before, after) and before.request.owner > 0 and before.request.owner < before.incarnation


@sometimes(
    "S18", "the last attempt runs on with less than the floor left", source=PROTOCOL, beside=("Q3c",), on=("tick",)
)
def s18(policy: RequestPolicy, before: State, after: State) -> bool:
    last = after.running and after.request.attempts == policy.max_attempts
    return last and after.now_ms + policy.floor_ms > after.request.expires_at_ms
