"""What must hold of requests: rules Q1 to Q7 of the protocol, and R1 to R6, which it takes for granted.

The ghost is what really happened. It is moved on by :func:`observe` after each step, and no transition sees it.
"""

from __future__ import annotations

import attrs

from .language import always, eventually
from .request_state import Reason, Request, RequestPolicy, State, Status

PROTOCOL = "protocols/keepalive.md 3c"
FACTS = "facts/keepalive.md"

NO_END_OF_AN_ATTEMPT = (
    "boot",
    "open_request",
    "dial",
    "give_up",
    "expire",
    "fire",
    "tell",
    "answer_late",
    "answer_from_the_dead",
    "tick",
)
"""All actions but those by which an attempt answers (``succeed``, ``fail``) or dies (``crash``)."""


@attrs.frozen
class Ghost:
    """What really happened.

    Attributes:
        horizon_at_ms: the horizon that was promised when the request was opened.
        settlements: how often an outcome was written.
        dials: attempts that were begun.
        failed_at_ms: when an attempt last failed that was not the last; 0 if none did.
        wait_ms: the distance that this failure asks for.
    """

    horizon_at_ms: int = 0
    settlements: int = 0
    dials: int = 0
    failed_at_ms: int = 0
    wait_ms: int = 0


def opens(before: State, after: State) -> bool:
    """Whether the request is opened in this step."""
    return before.request.status == Status.ABSENT and after.request.status != Status.ABSENT


def has_outcome(request: Request) -> bool:
    """Whether the request is settled."""
    return request.status in (Status.SUCCEEDED, Status.FAILED, Status.EXPIRED)


def settles(before: State, after: State) -> bool:
    """Whether an outcome is written in this step, the first or another one."""
    same = before.request.status == after.request.status and before.request.reason == after.request.reason
    return has_outcome(after.request) and not same


def dials(before: State, after: State) -> bool:
    """Whether an attempt begins in this step."""
    return after.running and (not before.running or before.request.attempts != after.request.attempts)


def fails(before: State, after: State) -> bool:
    """Whether an attempt of a living incarnation fails that is not the last."""
    return before.running and not after.running and after.alive and after.request.status == Status.OPEN


def next_wait(policy: RequestPolicy, wait_ms: int) -> int:
    """The distance after the next failure: the first, then doubled up to the longest."""
    return policy.retry_backoff_ms if wait_ms == 0 else min(wait_ms + wait_ms, policy.retry_backoff_max_ms)


def observe(policy: RequestPolicy, before: State, after: State, ghost: Ghost) -> Ghost:
    """Move the ghost on."""
    failed = fails(before, after)
    return Ghost(
        horizon_at_ms=after.request.expires_at_ms if opens(before, after) else ghost.horizon_at_ms,
        settlements=ghost.settlements + (1 if settles(before, after) else 0),
        dials=ghost.dials + (1 if dials(before, after) else 0),
        failed_at_ms=before.now_ms if failed else ghost.failed_at_ms,
        wait_ms=next_wait(policy, ghost.wait_ms) if failed else ghost.wait_ms,
    )


def enough(policy: RequestPolicy, state: State, ghost: Ghost) -> bool:
    """Whether more than the floor is left of the horizon that was promised."""
    return state.now_ms + policy.floor_ms < ghost.horizon_at_ms


# Rules. The number is the protocol's; a letter after it marks a further clause of the same rule.


@always(
    "Q1",
    "no dial with no more than the floor left, unless this incarnation was already running the request",
    source=f"{PROTOCOL} Q1; {FACTS} S20, F3",
)
def q1(policy: RequestPolicy, before: State, after: State, ghost: Ghost) -> bool:
    return not dials(before, after) or before.running or enough(policy, before, ghost)


@always(
    "Q2",
    "a request has exactly one settlement; late ones lose",
    source=f"{PROTOCOL} Q2; {FACTS} S19",
)
def q2(state: State, ghost: Ghost) -> bool:
    return ghost.settlements == (1 if has_outcome(state.request) else 0)


@always(
    "Q2a",
    "an answer from a dead incarnation changes nothing",
    source=f"{PROTOCOL} Q2",
    on=("answer_from_the_dead",),
)
def q2a(before: State, after: State) -> bool:
    return before == after


@always(
    "Q3",
    "a live attempt is not stopped for want of time before the horizon",
    source=f"{PROTOCOL} Q3; {FACTS} S21, F16",
)
def q3(before: State, after: State, ghost: Ghost) -> bool:
    expires = settles(before, after) and after.request.status == Status.EXPIRED
    return not before.running or not expires or before.now_ms >= ghost.horizon_at_ms


@always("Q3a", "an attempt may use all that is left of the horizon", source=f"{PROTOCOL} Q3")
def q3a(state: State, ghost: Ghost) -> bool:
    return not state.running or state.deadline_at_ms >= ghost.horizon_at_ms


@always(
    "Q3b",
    "whoever looks at a request stops no live attempt of it, not the last one either",
    source=f"{PROTOCOL} Q3; {FACTS} S21",
    on=("give_up", "expire"),
)
def q3b(before: State, after: State) -> bool:
    return not before.running


@always(
    "Q3c",
    "before the horizon a live attempt is ended by its own answer or with its incarnation, and by nothing else; it is "
    "not settled over as failed either",
    source=f"{PROTOCOL} Q3; {FACTS} S21",
    on=NO_END_OF_AN_ATTEMPT,
)
def q3c(before: State, after: State, ghost: Ghost) -> bool:
    untouched = after.running and after.request.status == before.request.status
    return not before.running or untouched or before.now_ms >= ghost.horizon_at_ms


@always(
    "Q4",
    "no attempt's deadline exceeds the horizon, and none is below the floor",
    source=f"{PROTOCOL} Q4; {FACTS} 3.1",
)
def q4(policy: RequestPolicy, before: State, after: State, ghost: Ghost) -> bool:
    bounded = not after.running or after.deadline_at_ms <= ghost.horizon_at_ms
    return bounded and (not dials(before, after) or after.deadline_at_ms > before.now_ms + policy.floor_ms)


@always("Q4a", "the horizon is fixed when the request is opened", source=f"{PROTOCOL} Q4; {FACTS} 3.1")
def q4a(state: State, ghost: Ghost) -> bool:
    return state.request.status == Status.ABSENT or state.request.expires_at_ms == ghost.horizon_at_ms


@always("Q4b", "nobody is promised more than the horizon of the policy", source=f"{PROTOCOL} Q4")
def q4b(policy: RequestPolicy, before: State, after: State) -> bool:
    return not opens(before, after) or after.request.expires_at_ms <= before.now_ms + policy.horizon_ms


def is_asked(state: State) -> bool:
    """A request is open."""
    return state.request.status == Status.OPEN


@eventually(
    "Q5",
    "every open request is settled, given one incarnation that lives until the horizon and then to its timer; nobody "
    "needs to look, no attempt needs to end",
    source=f"{PROTOCOL} Q5; {FACTS} L5, F7",
    when=is_asked,
    fair=("boot", "fire", "tick"),
)
def q5(state: State) -> bool:
    return has_outcome(state.request)


@always("Q5a", "an open request has a durable timer at its horizon", source=f"{PROTOCOL} Q5; {FACTS} F7")
def q5a(state: State) -> bool:
    return state.request.status != Status.OPEN or state.request.timer_at_ms == state.request.expires_at_ms


@always("Q5b", "a living incarnation settles every request by its horizon", source=f"{PROTOCOL} Q5", on=("tick",))
def q5b(before: State, after: State, ghost: Ghost) -> bool:
    return not before.alive or before.request.status != Status.OPEN or after.now_ms <= ghost.horizon_at_ms


@always(
    "Q6",
    "a policy leaves time to run what it is for: no request is expired at the moment of its trigger, nor while an "
    "attempt could be begun",
    source=f"{PROTOCOL} Q6; {FACTS} 3.3",
)
def q6(policy: RequestPolicy, before: State, after: State, ghost: Ghost) -> bool:
    expires = settles(before, after) and after.request.status == Status.EXPIRED
    triggered_now = before.now_ms + policy.horizon_ms <= ghost.horizon_at_ms
    return not expires or not (triggered_now or enough(policy, before, ghost))


def is_expired(state: State) -> bool:
    """A request is expired."""
    return state.request.status == Status.EXPIRED


@eventually(
    "Q7",
    "an expired request is told, given one incarnation that lives long enough; never silence",
    source=f"{PROTOCOL} Q7; {FACTS} F15",
    when=is_expired,
    fair=("boot", "tell"),
)
def q7(state: State) -> bool:
    return state.request.told == Status.EXPIRED


@always("Q7a", "an outcome that is no success carries its reason, in the same write", source=f"{PROTOCOL} Q7")
def q7a(state: State) -> bool:
    match state.request.status:
        case Status.EXPIRED:
            return state.request.reason == Reason.NO_TIME or state.request.reason == Reason.HORIZON
        case Status.FAILED:
            return state.request.reason == Reason.ATTEMPTS
        case _:
            return state.request.reason == Reason.NONE


@always("Q7b", "what is told is what was settled", source=f"{PROTOCOL} Q7")
def q7b(state: State) -> bool:
    told = state.request.told
    return told == Status.ABSENT or (told == state.request.status and has_outcome(state.request))


@always(
    "R1",
    "after a failure the next dial keeps its distance: the first one, doubled each time, up to the longest",
    source=f"{FACTS} 3.1, retry policy",
)
def r1(before: State, after: State, ghost: Ghost) -> bool:
    return not dials(before, after) or before.now_ms >= ghost.failed_at_ms + ghost.wait_ms


@always("R1a", "and is not kept waiting for longer than the longest distance", source=f"{FACTS} 3.1, retry policy")
def r1a(policy: RequestPolicy, state: State, ghost: Ghost) -> bool:
    return state.request.retry_at_ms <= ghost.failed_at_ms + policy.retry_backoff_max_ms


@always("R2", "no more attempts than allowed, whatever dies in between", source=f"{PROTOCOL}, up to 3 times")
def r2(policy: RequestPolicy, ghost: Ghost) -> bool:
    return ghost.dials <= policy.max_attempts


@always("R3", "a request is failed only once every attempt was begun", source=f"{PROTOCOL}, up to 3 times")
def r3(policy: RequestPolicy, state: State, ghost: Ghost) -> bool:
    return state.request.status != Status.FAILED or ghost.dials >= policy.max_attempts


@always(
    "R4",
    "one attempt at a time in one incarnation, and none once the request is settled",
    source=f"{PROTOCOL}, open and not running here; {FACTS} S19",
)
def r4(before: State, after: State) -> bool:
    overlaps = dials(before, after) and before.running
    return not overlaps and (not after.running or after.request.status == Status.OPEN)


@always("R5", "a request succeeds by an attempt under way, and by nothing else", source=f"{PROTOCOL}; {FACTS} 3.2")
def r5(before: State, after: State) -> bool:
    succeeds = settles(before, after) and after.request.status == Status.SUCCEEDED
    return not succeeds or before.running


@always(
    "R6",
    "the dead do nothing, and each incarnation has an identity never used before",
    source=f"{PROTOCOL}; {FACTS} 0, incarnation",
)
def r6(before: State, after: State) -> bool:
    if before.alive:
        return after.incarnation == before.incarnation
    untouched = after.request == before.request and not after.running
    return untouched and after.incarnation == before.incarnation + (1 if after.alive else 0)
