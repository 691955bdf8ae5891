"""Lemmas of requests: what makes their rules inductive, so that proofs need no search.

Each is a rule in its own right: explored, bounded and proved with the others, and never assumed.
"""

from __future__ import annotations

from .language import always
from .request_rules import Ghost, has_outcome
from .request_state import RequestPolicy, State, Status

SOURCE = "strengthens the induction; follows from request.py"


@always("L1", "only the living run anything, and they have an identity", source=SOURCE, lemma=True)
def l1(state: State) -> bool:
    known = state.request.owner >= 0 and state.request.owner <= state.incarnation and state.incarnation >= 0
    return known and (state.alive or not state.running) and (not state.alive or state.incarnation >= 1)


@always("L2", "an attempt under way was counted, and belongs to an open request", source=SOURCE, lemma=True)
def l2(state: State) -> bool:
    if not state.running:
        return state.deadline_at_ms == 0
    counted = state.request.status == Status.OPEN and state.request.attempts >= 1
    return counted and state.deadline_at_ms == state.request.expires_at_ms


@always("L3", "attempts are counted, and bounded", source=SOURCE, lemma=True)
def l3(policy: RequestPolicy, state: State, ghost: Ghost) -> bool:
    return (
        state.request.attempts == ghost.dials
        and ghost.dials >= 0
        and ghost.dials <= policy.max_attempts
        and (state.request.status != Status.ABSENT or ghost.dials == 0)
    )


@always("L4", "the clock has passed every trigger and every failure", source=SOURCE, lemma=True)
def l4(policy: RequestPolicy, state: State, ghost: Ghost) -> bool:
    past = state.now_ms >= 0 and ghost.failed_at_ms >= 0 and ghost.failed_at_ms <= state.now_ms
    triggered = ghost.horizon_at_ms <= state.now_ms + policy.horizon_ms
    return past and (state.request.status == Status.ABSENT or (triggered and ghost.horizon_at_ms >= policy.horizon_ms))


@always("L5", "a timer stands exactly while the request is open", source=SOURCE, lemma=True)
def l5(state: State) -> bool:
    if state.request.status == Status.OPEN:
        return state.request.timer_at_ms == state.request.expires_at_ms and state.request.timer_at_ms >= 1
    return state.request.timer_at_ms == 0


@always("L6", "the distance between attempts is that of the failures so far", source=SOURCE, lemma=True)
def l6(policy: RequestPolicy, state: State, ghost: Ghost) -> bool:
    request = state.request
    if request.status == Status.ABSENT:
        return ghost.wait_ms == 0 and ghost.failed_at_ms == 0 and request.retry_at_ms == 0
    if ghost.wait_ms == 0:
        return request.retry_at_ms == 0 and ghost.failed_at_ms == 0 and request.backoff_ms == policy.retry_backoff_ms
    doubled = min(ghost.wait_ms + ghost.wait_ms, policy.retry_backoff_max_ms)
    in_range = ghost.wait_ms >= policy.retry_backoff_ms and ghost.wait_ms <= policy.retry_backoff_max_ms
    return in_range and request.retry_at_ms == ghost.failed_at_ms + ghost.wait_ms and request.backoff_ms == doubled


@always("L7", "nothing is told of what has no outcome", source=SOURCE, lemma=True)
def l7(state: State, ghost: Ghost) -> bool:
    untold = state.request.told == Status.ABSENT
    return (untold or has_outcome(state.request)) and ghost.settlements >= 0


@always("L8", "of a request that was never opened nothing is known", source=SOURCE, lemma=True)
def l8(state: State) -> bool:
    request = state.request
    nothing = request.expires_at_ms == 0 and request.backoff_ms == 0 and request.owner == 0
    return request.status != Status.ABSENT or nothing
