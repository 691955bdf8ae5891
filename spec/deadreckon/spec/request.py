"""A request with a horizon: whoever finds it open tries it while that makes sense, and it is settled exactly once.

Rules of this file
    Everything below is a pure function over frozen values. The explorer, the solvers and the reference
    implementation call these very functions. Rule ids Q1 to Q7 are those of the protocol, R1 to R6 say what it takes
    for granted; both stand in ``request_rules.py``, the known-bad designs in ``request_variants.py``.

Words
    *Request*: something asked of an upstream that may take minutes (a model, say), wanted only for a while. *Trigger*:
    the moment at which it became wanted. *Horizon*: the instant at which nobody wants it any more; fixed when the
    request is opened, a fixed span after its trigger. *Incarnation*: one life of whatever runs requests. *Attempt*:
    one try, from its *dial* to its answer or its deadline; it lives and dies with its incarnation. *Adoption*: a dial
    by another incarnation than the one that opened the request or tried it last. *Floor*: the least time that makes
    an attempt worth while. *Settlement*: the one durable outcome.

Theory of operation
    Opening writes the record and arms the timer at the horizon, in one write. Any living incarnation that finds the
    request open, and does not run it already, may dial: first start, retry and adoption are one code path. The dial
    is recorded before it is made, so a death can't hide it. An attempt's deadline is the horizon, however often the
    request was tried before. An answer settles it; a failure keeps its distance, or settles it if attempts are used
    up. If no more than the floor is left and nothing runs, it may be settled expired at once; at the horizon the
    timer settles it expired whatever runs. Whoever comes later loses. Then the outcome is told.

Storage
    Each action writes once, atomically and durably. Nothing is buffered: the only volatile part is which attempt is
    under way here. The timer is a fact of the same record, so no crash parts the two; a living incarnation acts at
    its instant, a dead one's fires when the next one boots.

Decided conflicts
    * At exactly the floor the request is expired, not tried: a dial needs more than the floor.
    * A retry is a dial like any other: the floor holds for it too. What an incarnation that *already runs* the request
      is spared (Q1) is being stopped: a live attempt is never cut short for want of time (Q3), only at the horizon.
    * An attempt that dies with its incarnation is used up, although it may never have reached the upstream: what was
      perhaps paid for is not repeated for ever. If it was the last, the next incarnation settles the request failed.
    * Success and horizon in the same millisecond: whichever is written first. The other loses (Q2).
    * A retry keeps the horizon. In the field a failure was the next trigger, so that three attempts took half an hour,
      and nobody knew when the answer would come.
    * Opening again is not opening anew: the first horizon stands, since the acknowledgement may have been lost.
    * Want of time is an outcome of its own: *expired* says that nobody tried in time, *failed* that the tries failed.
    * A request that is opened so long after its trigger that it can't be tried is recorded all the same, and expired.

Not modelled
    What is asked, and what is answered. An attempt that hangs: it is one to which nothing happens before the horizon; a
    shorter watchdog is the attempt's own, and looks like a failure. Several requests: they share nothing but the
    incarnation. A pause: nothing here looks at one, so none can strand a request.
"""

from __future__ import annotations

import attrs

from .language import require
from .request_state import Reason, Request, RequestPolicy, State, Status


def initial() -> State:
    """Nothing is asked for, nobody lives."""
    request = Request(Status.ABSENT, Reason.NONE, 0, 0, 0, 0, 0, 0, Status.ABSENT)
    return State(request, 0, False, False, 0, 0)


# Helpers: the words of the protocol. A variant replaces some of them.


def is_open(request: Request) -> bool:
    """Whether the request waits for its outcome."""
    return request.status == Status.OPEN


def is_settled(request: Request) -> bool:
    """Whether the request has its outcome."""
    return request.status != Status.ABSENT and request.status != Status.OPEN


def horizon(policy: RequestPolicy, triggered_at_ms: int) -> int:
    """When the request expires: counted from its trigger, never from now."""
    return triggered_at_ms + policy.horizon_ms


def is_past(triggered_at_ms: int, now_ms: int) -> bool:
    """Whether a trigger can have happened: one in the future would lengthen the horizon (Q4)."""
    return triggered_at_ms <= now_ms


def timer_for(expires_at_ms: int) -> int:
    """The durable timer of an open request (Q5)."""
    return expires_at_ms


def opened(policy: RequestPolicy, triggered_at_ms: int) -> Request:
    """A fresh record, with its timer."""
    expires_at_ms = horizon(policy, triggered_at_ms)
    timer_at_ms = timer_for(expires_at_ms)
    backoff_ms = policy.retry_backoff_ms
    return Request(Status.OPEN, Reason.NONE, expires_at_ms, timer_at_ms, 0, 0, 0, backoff_ms, Status.ABSENT)


def opened_again(policy: RequestPolicy, request: Request, triggered_at_ms: int) -> Request:
    """What asking for the same request once more leads to: nothing (Q4)."""
    return request


def worth_dialling(policy: RequestPolicy, request: Request, now_ms: int) -> bool:
    """Whether more than the floor is left (Q1)."""
    return now_ms + policy.floor_ms < request.expires_at_ms


def attempts_left(policy: RequestPolicy, request: Request) -> bool:
    """Whether the request may be tried once more (R2)."""
    return request.attempts < policy.max_attempts


def rested(request: Request, now_ms: int) -> bool:
    """Whether the distance to the last failure is kept (R1)."""
    return now_ms >= request.retry_at_ms


def free(state: State) -> bool:
    """Whether this incarnation does not run the request already (R4)."""
    return not state.running


def idle(state: State) -> bool:
    """Whether no attempt is under way here that would be stopped (Q3)."""
    return not state.running


def deadline(policy: RequestPolicy, request: Request, now_ms: int) -> int:
    """The end of an attempt that begins now: the horizon (Q3, Q4)."""
    return request.expires_at_ms


def dialled(request: Request, incarnation: int) -> Request:
    """The record with one more attempt; it is written before the dial is made (R2)."""
    return attrs.evolve(request, attempts=request.attempts + 1, owner=incarnation)


def longer(policy: RequestPolicy, backoff_ms: int) -> int:
    """The distance that the failure after next keeps (R1)."""
    return min(backoff_ms + backoff_ms, policy.retry_backoff_max_ms)


def after_failure(policy: RequestPolicy, request: Request, now_ms: int) -> Request:
    """The record after an attempt failed that was not the last: the next one keeps its distance, and the horizon."""
    return attrs.evolve(request, retry_at_ms=now_ms + request.backoff_ms, backoff_ms=longer(policy, request.backoff_ms))


def settled(request: Request, status: Status, reason: Reason) -> Request:
    """The record with its outcome, and why; its timer is gone (Q2, Q7)."""
    return attrs.evolve(request, status=status, reason=reason, timer_at_ms=0)


def settled_late(request: Request, succeeded: bool) -> Request:
    """What an answer after the settlement leads to: nothing, since the write is conditional (Q2)."""
    return request


def may_act(state: State) -> bool:
    """Whether an incarnation lives that could do anything (R6)."""
    return state.alive


def accepts(state: State, caller: int) -> bool:
    """Whether the store takes a write of *caller* (fencing, Q2)."""
    return state.alive and caller == state.incarnation


def why_expired(state: State) -> Reason:
    """The reason that is told with an expiry (Q7)."""
    return Reason.HORIZON if state.now_ms >= state.request.expires_at_ms else Reason.NO_TIME


def tellable(request: Request) -> bool:
    """Whether there is an outcome to tell (Q7)."""
    return is_settled(request)


def survives(request: Request) -> Request:
    """What a death leaves of the record: all of it, its timer too (Q5)."""
    return request


def oversleeps(state: State, now_ms: int) -> bool:
    """Whether a living incarnation would miss an armed timer, at *now_ms* (Q5)."""
    return state.alive and state.request.timer_at_ms != 0 and state.request.timer_at_ms < now_ms


def at_rest(state: State, request: Request) -> State:
    """The state with *request* written and no attempt under way."""
    return attrs.evolve(state, request=request, running=False, deadline_at_ms=0)


# Actions.


def boot(state: State) -> State:
    """A new incarnation begins, under an identity never used before."""
    require(not state.alive, "R6", "an incarnation lives already")
    return attrs.evolve(state, alive=True, incarnation=state.incarnation + 1)


def open_request(policy: RequestPolicy, state: State, triggered_at_ms: int) -> State:
    """The request is recorded and its timer armed, in one write; asking again changes nothing."""
    require(may_act(state), "R6", "no incarnation lives")
    require(is_past(triggered_at_ms, state.now_ms), "Q4", "the trigger lies in the future")
    if state.request.status == Status.ABSENT:
        return attrs.evolve(state, request=opened(policy, triggered_at_ms))
    return attrs.evolve(state, request=opened_again(policy, state.request, triggered_at_ms))


def dial(policy: RequestPolicy, state: State) -> State:
    """An attempt begins: the first, a retry, or the adoption of what a dead incarnation left."""
    require(may_act(state), "R6", "no incarnation lives")
    require(is_open(state.request), "Q2", "the request is not open")
    require(free(state), "R4", "an attempt is under way here")
    require(attempts_left(policy, state.request), "R2", "the attempts are used up")
    require(rested(state.request, state.now_ms), "R1", "the last failure is too recent")
    require(worth_dialling(policy, state.request, state.now_ms), "Q1", "no more than the floor is left")
    deadline_at_ms = deadline(policy, state.request, state.now_ms)
    request = dialled(state.request, state.incarnation)
    return attrs.evolve(state, request=request, running=True, deadline_at_ms=deadline_at_ms)


def may_succeed(state: State) -> bool:
    """Whether an answer is that of an attempt under way here (R5)."""
    return state.running


def succeed(state: State) -> State:
    """The attempt under way has the answer: the request is settled."""
    require(may_succeed(state), "R5", "no attempt is under way here")
    return at_rest(state, settled(state.request, Status.SUCCEEDED, Reason.NONE))


def fail(policy: RequestPolicy, state: State) -> State:
    """The attempt under way fails: the request is tried again later, or it is settled if that was the last time."""
    require(state.running, "R4", "no attempt is under way here")
    if attempts_left(policy, state.request):
        return at_rest(state, after_failure(policy, state.request, state.now_ms))
    return at_rest(state, settled(state.request, Status.FAILED, Reason.ATTEMPTS))


def used_up(policy: RequestPolicy, request: Request) -> bool:
    """Whether a request is failed without a further attempt (R3)."""
    return not attempts_left(policy, request)


def give_up(policy: RequestPolicy, state: State) -> State:
    """The last attempt died with its incarnation: the request is settled failed."""
    require(may_act(state), "R6", "no incarnation lives")
    require(is_open(state.request), "Q2", "the request is not open")
    require(idle(state), "Q3b", "an attempt is under way here: it may still answer")
    require(used_up(policy, state.request), "R3", "attempts are left")
    return at_rest(state, settled(state.request, Status.FAILED, Reason.ATTEMPTS))


def out_of_time(policy: RequestPolicy, request: Request, now_ms: int) -> bool:
    """Whether no attempt can begin any more (Q6)."""
    return not worth_dialling(policy, request, now_ms)


def expire(policy: RequestPolicy, state: State) -> State:
    """Whoever looks finds the request open, not running, and with no more than the floor left."""
    require(may_act(state), "R6", "no incarnation lives")
    require(is_open(state.request), "Q2", "the request is not open")
    require(idle(state), "Q3", "an attempt is under way here: it keeps its full horizon")
    require(out_of_time(policy, state.request, state.now_ms), "Q6", "an attempt could still be begun")
    return at_rest(state, settled(state.request, Status.EXPIRED, why_expired(state)))


def due(request: Request, now_ms: int) -> bool:
    """Whether the timer's instant has come (Q3)."""
    return now_ms >= request.timer_at_ms


def rings(policy: RequestPolicy, state: State) -> bool:
    """Whether the timer may settle the request: at its instant, however many attempts there were (Q3)."""
    return due(state.request, state.now_ms)


def timed_out(policy: RequestPolicy, state: State) -> Request:
    """What the timer makes of the request: it is expired, however many attempts there were (Q7)."""
    return settled(state.request, Status.EXPIRED, why_expired(state))


def fire(policy: RequestPolicy, state: State) -> State:
    """The timer fires at the horizon: the request is settled expired, and an attempt under way is stopped."""
    require(may_act(state), "R6", "no incarnation lives")
    require(state.request.timer_at_ms != 0, "Q5", "no timer is armed")
    require(rings(policy, state), "Q3", "the horizon is not reached yet")
    return at_rest(state, timed_out(policy, state))


def tell(state: State) -> State:
    """Whoever asked is told the outcome, with its reason; after a crash perhaps again."""
    require(may_act(state), "R6", "no incarnation lives")
    require(tellable(state.request), "Q7", "the request has no outcome yet")
    require(state.request.told == Status.ABSENT, "Q7", "the outcome is told already")
    return attrs.evolve(state, request=attrs.evolve(state.request, told=state.request.status))


def crash(state: State) -> State:
    """The incarnation dies, of a fault or a deploy, at any point; its attempt dies with it."""
    require(may_act(state), "R6", "no incarnation lives")
    return attrs.evolve(at_rest(state, survives(state.request)), alive=False)


def answer_late(state: State, succeeded: bool) -> State:
    """An attempt of this incarnation answers although its request was settled meanwhile; it loses."""
    require(may_act(state), "R6", "no incarnation lives")
    require(is_settled(state.request), "Q2", "the request is not settled")
    require(state.request.owner == state.incarnation, "Q2", "no attempt was begun here")
    return attrs.evolve(state, request=settled_late(state.request, succeeded))


def answer_from_the_dead(state: State, succeeded: bool) -> State:
    """The last incarnation that died, still running somewhere, has an answer; the store rejects it."""
    caller = state.incarnation - 1 if state.alive else state.incarnation
    require(caller >= 1, "Q2a", "no incarnation has died yet")
    require(is_open(state.request), "Q2", "the request is not open")
    if not accepts(state, caller):
        return state
    if succeeded:
        return at_rest(state, settled(state.request, Status.SUCCEEDED, Reason.NONE))
    return at_rest(state, settled(state.request, Status.FAILED, Reason.ATTEMPTS))


def tick(state: State, elapsed_ms: int) -> State:
    """Time passes, but not past an armed timer of a living incarnation."""
    require(not oversleeps(state, state.now_ms + elapsed_ms), "Q5b", "the timer fires first")
    return attrs.evolve(state, now_ms=state.now_ms + elapsed_ms)
