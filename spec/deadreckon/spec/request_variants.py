"""Known-bad designs of the request: each replaces a few helpers, and each is refuted by the rule it names.

The first five are the protocol's, met in the field; the rest remove a guard that those leave alone.
"""

from __future__ import annotations

import attrs

from .language import swap
from .machine import Variant
from .request import (
    accepts,
    after_failure,
    attempts_left,
    deadline,
    dialled,
    due,
    free,
    idle,
    is_open,
    is_past,
    longer,
    may_act,
    may_succeed,
    opened,
    opened_again,
    out_of_time,
    oversleeps,
    rested,
    rings,
    settled,
    settled_late,
    survives,
    tellable,
    timed_out,
    timer_for,
    used_up,
    why_expired,
    worth_dialling,
)
from .request_state import Reason, Request, RequestPolicy, State, Status


def whatever_is_left(policy: RequestPolicy, request: Request, now_ms: int) -> bool:
    """Any time will do: the deadline is max(1, what is left)."""
    return now_ms < request.expires_at_ms


def no_timer(expires_at_ms: int) -> int:
    """The horizon is compared with the time when somebody looks."""
    return 0


def settled_again(request: Request, succeeded: bool) -> Request:
    """The answer is written unconditionally."""
    return attrs.evolve(request, status=Status.SUCCEEDED if succeeded else Status.FAILED, reason=Reason.NONE)


def idle_or_not(state: State) -> bool:
    """Nobody asks whether an attempt is under way."""
    return True


def triggered_by_failure(policy: RequestPolicy, request: Request, now_ms: int) -> Request:
    """The failure is the next trigger, so the retry gets a horizon of its own."""
    expires_at_ms = now_ms + policy.horizon_ms
    kept = after_failure(policy, request, now_ms)
    return attrs.evolve(kept, expires_at_ms=expires_at_ms, timer_at_ms=timer_for(expires_at_ms))


def accepts_anybody(state: State, caller: int) -> bool:
    """The store takes writes of incarnations that are no more."""
    return True


def in_memory_only(request: Request) -> Request:
    """The timer was the incarnation's own, and died with it."""
    return attrs.evolve(request, timer_at_ms=0)


def never_oversleeps(state: State, now_ms: int) -> bool:
    """The timer is a row that somebody may look at."""
    return False


def due_whenever(request: Request, now_ms: int) -> bool:
    """A wake for another reason is taken for the horizon."""
    return True


def rings_for_the_last(policy: RequestPolicy, state: State) -> bool:
    """The last attempt has a watchdog beside the timer."""
    return due(state.request, state.now_ms) or used_up(policy, state.request)


def failed_if_last(policy: RequestPolicy, state: State) -> Request:
    """What was tried as often as it may be has failed."""
    if used_up(policy, state.request):
        return settled(state.request, Status.FAILED, Reason.ATTEMPTS)
    return settled(state.request, Status.EXPIRED, why_expired(state))


def anew(policy: RequestPolicy, request: Request, triggered_at_ms: int) -> Request:
    """Asking again schedules again: the horizon counts from now."""
    return opened(policy, triggered_at_ms) if request.status == Status.OPEN else request


def any_trigger(triggered_at_ms: int, now_ms: int) -> bool:
    """The caller's clock is believed."""
    return True


def a_share(policy: RequestPolicy, request: Request, now_ms: int) -> int:
    """Each attempt gets a little more than the floor, whatever is left."""
    return now_ms + policy.floor_ms + 1


def out_of_time_at_once(policy: RequestPolicy, request: Request, now_ms: int) -> bool:
    """Whoever finds it idle expires it."""
    return True


def no_reason(state: State) -> Reason:
    """Expired is expired."""
    return Reason.NONE


def worth_telling(request: Request) -> bool:
    """An expiry is no answer, so nobody is told."""
    return request.status == Status.SUCCEEDED or request.status == Status.FAILED


def tell_anything(request: Request) -> bool:
    """The caller is told what is likely."""
    return True


def at_once(request: Request, now_ms: int) -> bool:
    """A retry waits for nothing."""
    return True


def doubled_for_ever(policy: RequestPolicy, backoff_ms: int) -> int:
    """The distance is doubled without an end."""
    return backoff_ms + backoff_ms


def as_retries(policy: RequestPolicy, request: Request) -> bool:
    """The limit is read as one of retries, so there is one attempt more."""
    return request.attempts <= policy.max_attempts


def not_counted(request: Request, incarnation: int) -> Request:
    """An attempt counts when it fails, so one that dies with its incarnation never does."""
    return attrs.evolve(request, owner=incarnation)


def counted_on_failure(policy: RequestPolicy, request: Request, now_ms: int) -> Request:
    """The attempt is counted after the fact."""
    return attrs.evolve(after_failure(policy, request, now_ms), attempts=request.attempts + 1)


def used_up_at_once(policy: RequestPolicy, request: Request) -> bool:
    """What is not running has failed."""
    return True


def open_or_not(request: Request) -> bool:
    """Nobody looks for an outcome."""
    return request.status != Status.ABSENT


def success_of_anybody(state: State) -> bool:
    """Whoever says so."""
    return state.alive and state.request.status == Status.OPEN


def dead_or_alive(state: State) -> bool:
    """Nobody asks whether an incarnation lives."""
    return True


VARIANTS = (
    Variant(
        "floorless",
        "Q1",
        "the deadline is max(1, what is left), so an adopter dials a doomed attempt",
        (swap(worth_dialling, whatever_is_left),),
        "adopted at 590.9 s of 600 s, deadline 9.07 s, failed 1 of 3",
    ),
    Variant(
        "no-timer",
        "Q5",
        "a request is expired when somebody looks, and only then",
        (swap(timer_for, no_timer),),
        "two of 245 sessions held an open request for four days",
    ),
    Variant(
        "settle-twice",
        "Q2",
        "an answer is written whatever is written already",
        (swap(settled_late, settled_again),),
    ),
    Variant(
        "expire-a-live-one",
        "Q3",
        "the floor is applied to an attempt that is under way",
        (swap(idle, idle_or_not),),
        "a 15-minute backstop settled requests still being worked on",
    ),
    Variant(
        "fresh-horizon-on-retry",
        "Q4",
        "a failure is the next trigger, so each retry has a whole horizon",
        (swap(after_failure, triggered_by_failure),),
        "three attempts of ten minutes each",
    ),
    Variant("no-fence", "Q2a", "the store takes answers of dead incarnations", (swap(accepts, accepts_anybody),)),
    Variant("early-timer", "Q3", "a wake for another reason stops a live attempt", (swap(due, due_whenever),)),
    Variant(
        "last-one-cut-short",
        "Q3c",
        "a watchdog settles the request failed while its last attempt is under way",
        (swap(rings, rings_for_the_last), swap(timed_out, failed_if_last)),
    ),
    Variant("share-of-the-horizon", "Q3a", "each attempt gets a share of what is left", (swap(deadline, a_share),)),
    Variant(
        "reopened-afresh",
        "Q4a",
        "asking again counts the horizon from now",
        (swap(opened_again, anew),),
        "the rule in the field: never now, repeated scheduling must produce the same body",
    ),
    Variant("trusted-trigger", "Q4b", "a trigger in the future lengthens the horizon", (swap(is_past, any_trigger),)),
    Variant(
        "timer-in-memory",
        "Q5a",
        "the timer dies with the incarnation",
        (swap(survives, in_memory_only),),
        "a deadline alarm was sketched, the watchdog in memory was built",
    ),
    Variant("overslept", "Q5b", "a living incarnation lets the horizon pass", (swap(oversleeps, never_oversleeps),)),
    Variant("expired-unrun", "Q6", "whoever finds it idle expires it", (swap(out_of_time, out_of_time_at_once),)),
    Variant(
        "silent-expiry",
        "Q7",
        "an expiry is recorded and told to nobody",
        (swap(tellable, worth_telling),),
        "expired without feedback, found in review",
    ),
    Variant("bare-expiry", "Q7a", "an expiry has no reason", (swap(why_expired, no_reason),)),
    Variant("told-too-early", "Q7b", "the caller is told before there is an outcome", (swap(tellable, tell_anything),)),
    Variant("no-distance", "R1", "a retry follows at once", (swap(rested, at_once),)),
    Variant("endless-distance", "R1a", "the distance doubles without an end", (swap(longer, doubled_for_ever),)),
    Variant("one-too-many", "R2", "the limit is read as one of retries", (swap(attempts_left, as_retries),)),
    Variant(
        "count-after-attempt",
        "R2",
        "an attempt counts when it fails, so those that die never do",
        (swap(dialled, not_counted), swap(after_failure, counted_on_failure)),
    ),
    Variant("failed-untried", "R3", "what is not running has failed", (swap(used_up, used_up_at_once),)),
    Variant("adopted-while-running", "R4", "a running request is adopted", (swap(free, idle_or_not),)),
    Variant("adopted-when-settled", "R4", "a settled request is adopted", (swap(is_open, open_or_not),)),
    Variant(
        "given-up-alive", "Q3b", "whoever looks settles the request over its live attempt", (swap(idle, idle_or_not),)
    ),
    Variant("the-dead-act", "R6", "what was scheduled runs on after the death", (swap(may_act, dead_or_alive),)),
    Variant("success-from-nowhere", "R5", "anybody may report success", (swap(may_succeed, success_of_anybody),)),
)
