"""The hold: a parked request survives every transient failure, is released at most once, and never outlives its deadline.

Rules of this file
    Pure functions over frozen values. Rule ids (H1 to H16) are the protocol's; the rules are in ``hold_rules.py``, the
    known-bad designs in ``hold_variants.py``.

Words
    *Hold*: one batch of parked requests with one deadline. *Door*: what parks, waits and releases. *Journal*: the durable
    ordered log, with one clock. *Approver*: whoever appends a decision. *Effect*: the upstream call. *Slice*: one bounded
    wait. *Release*: the step from approved to effect. *In doubt*: a release was started, and its outcome is not in the
    journal.

Theory of operation
    The journal judges at append: a decision is a conditional append (hold open, deadline not passed, well formed, signed
    while a key is active), and so are expiry and abandonment. Therefore the first decision in the journal is the one that
    counts, and the four ends exclude each other. The door waits in slices and re-arms from the same cursor, whatever
    fails; an unavailable journal costs distance, never the hold. A release is started durably before its effect, so that
    a door that boots knows which effects may have happened: those are settled unknown, or run again under the same
    release id if the policy says that they are idempotent. What a caller is told is what the journal says.

Decided conflicts
    * A decision at the deadline's very millisecond counts, if it is in the journal before the expiry.
    * The deadline bounds the decision; the grace bounds the start of the effect; the call takes as long as it takes.
    * A caller whose connection broke is *detached*: its hold stays, its release may run, and it may come back. Once its
      lease has lapsed it is *gone*: the hold is abandoned, or what was approved lapses.
    * Whoever can append can veto: a refusal of every request needs no signature.
    * After the deadline the door stops waiting even if the journal is unavailable; the expiry is then appended by the
      reconciliation, which runs at boot and on a cadence.

Not modelled
    Bodies, rule matching, coalescing (it comes before the request, :func:`coalesced_until_ms`). Signatures are an input.
    One hold has two requests here; the functions take any number.
"""

from __future__ import annotations

import attrs

from .hold_state import Call, Caller, Evidence, Fact, Hold, HoldPolicy, Release, State, Told, Wait
from .hold_words import (
    acceptable,
    after_refusal,
    asked_again,
    backed_off,
    belongs,
    clipped,
    cursor_after_failure,
    deadline_on_parking,
    deadline_on_resume,
    detached,
    failed,
    forgotten,
    in_time,
    marked,
    may_look,
    outcome,
    overslept,
    owed,
    put,
    rearmed,
    reconciles,
    release_missed,
    resumes,
    undecided,
    waiting,
    wanted,
    with_hold,
    within_horizon,
)
from .language import require


def no_hold() -> Hold:
    """A place for a hold that has not been asked for."""
    return Hold(
        fact=Fact.ABSENT,
        deadline_at_ms=0,
        decided_at_ms=0,
        evidence=Evidence.UNSIGNED,
        approved=(False, False),
        releases=(Release.NONE, Release.NONE),
        key_burnt=False,
        wait=Wait.IDLE,
        until_ms=0,
        backoff_ms=0,
        cursor_past=False,
        judged=False,
        calls=(Call.NONE, Call.NONE),
        caller=Caller.ABSENT,
        told=(Told.NOTHING, Told.NOTHING),
    )


def initial() -> State:
    """A door lives, the journal is up, nothing has been asked."""
    return State((no_hold(), no_hold()), door=1, alive=True, journal=1, up=True, key_active=False, now_ms=0)


def serves(state: State) -> None:
    """A live door with a journal that answers."""
    require(state.alive, "H15", "no door lives")
    require(state.up, "H9", "the journal is unavailable: try again")


# Actions of the caller and the door.


def ask(policy: HoldPolicy, state: State, index: int, acknowledged: bool) -> State:
    """A caller's requests are parked; the append commits, its acknowledgement may be lost."""
    serves(state)
    hold = state.holds[index]
    require(hold.fact == Fact.ABSENT, "H13", "the hold has been parked already")
    deadline = deadline_on_parking(policy, state.now_ms)
    parked = attrs.evolve(hold, fact=Fact.OPEN, deadline_at_ms=deadline, caller=Caller.ATTACHED)
    asking = attrs.evolve(parked, wait=Wait.ASKING, until_ms=deadline)
    return with_hold(state, index, waiting(policy, parked, state.now_ms) if acknowledged else asking)


def ask_again(policy: HoldPolicy, state: State, index: int) -> State:
    """The request is sent once more, under the same key."""
    serves(state)
    hold = state.holds[index]
    require(hold.wait == Wait.ASKING, "H12", "no acknowledgement is missing")
    require(state.now_ms < hold.deadline_at_ms, "H2", "the deadline has come: nothing is waited for")
    return with_hold(state, index, asked_again(policy, hold, state.now_ms))


def slice_ends(policy: HoldPolicy, state: State, index: int) -> State:
    """A slice of the wait ends without a fact: wait on."""
    serves(state)
    hold = state.holds[index]
    require(hold.wait == Wait.WAITING, "H8", "the door does not wait")
    require(hold.until_ms <= state.now_ms and state.now_ms < hold.deadline_at_ms, "H2", "the slice has not ended")
    return with_hold(state, index, waiting(policy, hold, state.now_ms))


def wait_fails(policy: HoldPolicy, state: State, index: int) -> State:
    """The wait fails because the journal is unavailable."""
    hold = state.holds[index]
    require(hold.wait == Wait.WAITING, "H8", "the door does not wait")
    require(not state.up, "H9", "the journal is available")
    return with_hold(state, index, backed_off(policy, hold, state.now_ms))


def judgement_fails(policy: HoldPolicy, state: State, index: int) -> State:
    """The wait returned the decision, and the journal became unavailable before it was taken up."""
    hold = state.holds[index]
    require(hold.wait == Wait.WAITING, "H8", "the door does not wait")
    require(not state.up, "H9", "the journal is available")
    require(hold.fact == Fact.DECIDED and not hold.cursor_past, "H8", "there is no fact past the cursor")
    again = attrs.evolve(backed_off(policy, hold, state.now_ms), cursor_past=cursor_after_failure(hold))
    return with_hold(state, index, again)


def wake(policy: HoldPolicy, state: State, index: int) -> State:
    """The backoff has ended: wait again, from the same cursor."""
    hold = state.holds[index]
    require(hold.wait == Wait.BACKING_OFF, "H10", "the door does not back off")
    require(hold.until_ms <= state.now_ms and state.now_ms < hold.deadline_at_ms, "H10", "the backoff has not ended")
    until = clipped(hold, state.now_ms + policy.slice_ms)
    again = attrs.evolve(hold, wait=Wait.WAITING, until_ms=until, cursor_past=rearmed(hold))
    return with_hold(state, index, again)


def judge(state: State, index: int, source: int) -> State:
    """The wait, or the last look at the deadline, finds the decision, and the door takes it up."""
    serves(state)
    hold = state.holds[index]
    last_look = hold.wait != Wait.IDLE and hold.deadline_at_ms <= state.now_ms
    require(hold.wait == Wait.WAITING or last_look, "H8", "the door does not wait")
    require(state.holds[source].fact == Fact.DECIDED and not hold.cursor_past, "H8", "there is no fact past the cursor")
    require(belongs(source, index), "H7", "the decision is of another hold")
    require(may_look(hold, state.now_ms), "H16", "the door no longer looks")
    return with_hold(state, index, attrs.evolve(hold, wait=Wait.IDLE, cursor_past=True, judged=True))


def stop_waiting(state: State, index: int) -> State:
    """The deadline has come: nothing is waited for any more."""
    hold = state.holds[index]
    require(hold.wait != Wait.IDLE, "H2", "the door does not wait")
    require(hold.deadline_at_ms <= state.now_ms, "H2", "the deadline has not come")
    unread = hold.fact == Fact.DECIDED and may_look(hold, state.now_ms) and not hold.cursor_past
    require(not unread or not state.up, "H16", "a decision is still to be read")
    return with_hold(state, index, attrs.evolve(hold, wait=Wait.IDLE))


def adopt(policy: HoldPolicy, state: State, index: int) -> State:
    """A door takes up a hold that nobody works on: it waits, or releases what was decided meanwhile."""
    serves(state)
    hold = state.holds[index]
    require(reconciles(state), "H15", "this door leaves alone what it did not park")
    require(hold.wait == Wait.IDLE and not hold.judged, "H8", "the door works on this hold")
    require(wanted(hold), "H12", "the caller is gone")
    adopted = attrs.evolve(hold, deadline_at_ms=deadline_on_resume(policy, hold, state.now_ms))
    if hold.fact == Fact.DECIDED:
        require(may_look(hold, state.now_ms), "H16", "the door no longer looks")
        return with_hold(state, index, attrs.evolve(adopted, cursor_past=True, judged=True))
    require(undecided(hold), "H15", "the hold has ended")
    require(state.now_ms < hold.deadline_at_ms, "H2", "the deadline has come: the hold is expired, not adopted")
    return with_hold(state, index, waiting(policy, adopted, state.now_ms))


def expirable(hold: Hold) -> bool:
    """Whether the expiry may be appended: only where nothing was decided (H6)."""
    return undecided(hold)


def expire(state: State, index: int) -> State:
    """The deadline has come, and nothing was decided."""
    serves(state)
    hold = state.holds[index]
    require(expirable(hold), "H6", "the hold is not open")
    require(hold.deadline_at_ms <= state.now_ms, "H9", "the deadline has not come")
    require(reconciles(state) or hold.wait != Wait.IDLE, "H15", "this door leaves alone what it did not park")
    return with_hold(state, index, attrs.evolve(hold, fact=Fact.EXPIRED, wait=Wait.IDLE))


def abandon(state: State, index: int) -> State:
    """The caller is gone, and nothing was decided."""
    serves(state)
    hold = state.holds[index]
    require(undecided(hold), "H6", "the hold is not open")
    require(hold.caller == Caller.GONE, "H9", "the caller may come back")
    require(reconciles(state) or hold.wait != Wait.IDLE, "H15", "this door leaves alone what it did not park")
    return with_hold(state, index, attrs.evolve(hold, fact=Fact.ABANDONED, wait=Wait.IDLE))


def start_release(policy: HoldPolicy, state: State, index: int, request: int) -> State:
    """The start of an approved request's release is made durable."""
    serves(state)
    hold = state.holds[index]
    require(hold.judged and hold.fact == Fact.DECIDED, "H1", "nothing was decided")
    require(hold.approved[request], "H1", "the request was not approved")
    require(hold.releases[request] == Release.NONE, "H3", "the release was started before")
    require(within_horizon(policy, hold, state.now_ms), "H2", "the grace has ended: the release lapses")
    require(wanted(hold), "H12", "the caller is gone")
    started = attrs.evolve(hold, releases=put(hold.releases, request, Release.STARTED))
    return with_hold(state, index, attrs.evolve(started, calls=put(hold.calls, request, Call.OWED)))


def call(policy: HoldPolicy, state: State, index: int, request: int) -> State:
    """The effect: the upstream is called."""
    require(state.alive, "H15", "no door lives")
    hold = state.holds[index]
    require(owed(hold.calls[request]), "H3", "this door did not start the release, or has called already")
    require(hold.approved[request], "H1", "the request was not approved")
    require(marked(hold, request), "H4", "the start of the release is not durable")
    require(within_horizon(policy, hold, state.now_ms), "H2", "the grace has ended: the release lapses")
    require(wanted(hold), "H12", "the caller is gone")
    return with_hold(state, index, attrs.evolve(hold, calls=put(hold.calls, request, Call.CALLED)))


def answer(state: State, index: int, request: int, succeeds: bool) -> State:
    """The upstream answers, or fails."""
    hold = state.holds[index]
    require(hold.calls[request] == Call.CALLED, "H3", "the upstream was not called")
    calls = put(hold.calls, request, Call.ANSWERED) if succeeds else failed(hold.calls, request)
    return with_hold(state, index, attrs.evolve(hold, calls=calls))


def lose_track(state: State, index: int, request: int) -> State:
    """The door stops waiting for an answer (its task is cancelled, say): from now on the release is in doubt."""
    hold = state.holds[index]
    require(hold.calls[request] == Call.CALLED, "H3", "no answer is waited for")
    return with_hold(state, index, attrs.evolve(hold, calls=put(hold.calls, request, Call.NONE)))


def settle(state: State, index: int, request: int) -> State:
    """The outcome of a call is made durable."""
    serves(state)
    hold = state.holds[index]
    answered = hold.calls[request] == Call.ANSWERED
    require(answered or hold.calls[request] == Call.FAILED, "H5", "the upstream has not answered")
    require(marked(hold, request), "H3", "the release is settled, or was never started")
    settled = put(hold.releases, request, Release.OK if answered else Release.ERROR)
    return with_hold(state, index, attrs.evolve(hold, releases=settled))


def settle_unknown(policy: HoldPolicy, state: State, index: int, request: int) -> State:
    """A release in doubt: run again under its release id, if that is declared and still in time; else settled unknown."""
    serves(state)
    hold = state.holds[index]
    require(reconciles(state), "H15", "this door leaves alone what it did not park")
    timely = wanted(hold) and within_horizon(policy, hold, state.now_ms)
    again = policy.idempotent and hold.calls[request] == Call.OWED and not timely
    require(marked(hold, request), "H3", "the release is settled, or was never started")
    require(hold.calls[request] == Call.NONE or again, "H3", "the release is not in doubt")
    if resumes(policy) and timely:
        return with_hold(state, index, attrs.evolve(hold, calls=put(hold.calls, request, Call.OWED)))
    unknown = attrs.evolve(hold, releases=put(hold.releases, request, Release.UNKNOWN))
    return with_hold(state, index, attrs.evolve(unknown, calls=put(hold.calls, request, Call.NONE)))


def lapse(policy: HoldPolicy, state: State, index: int, request: int) -> State:
    """An approved request that was not called in time, or whose caller is gone, is settled without effect."""
    serves(state)
    hold = state.holds[index]
    require(reconciles(state) or hold.judged, "H15", "this door leaves alone what it did not park")
    require(hold.fact == Fact.DECIDED and hold.approved[request], "H1", "the request was not approved")
    unstarted = hold.releases[request] == Release.NONE
    uncalled = marked(hold, request) and hold.calls[request] == Call.OWED and not policy.idempotent
    over = hold.caller == Caller.GONE or not within_horizon(policy, hold, state.now_ms)
    require(over and (unstarted or uncalled), "H16", "the release may still be made")
    lapsed = attrs.evolve(hold, releases=put(hold.releases, request, Release.LAPSED))
    return with_hold(state, index, attrs.evolve(lapsed, calls=put(hold.calls, request, Call.NONE)))


def tell(state: State, index: int, request: int) -> State:
    """The caller is told what the journal says."""
    require(state.alive, "H15", "no door lives")
    hold = state.holds[index]
    require(hold.caller == Caller.ATTACHED, "H12", "the caller is not there")
    require(hold.told[request] == Told.NOTHING, "H6", "the caller has been told")
    told = outcome(hold, request)
    require(told != Told.NOTHING, "H5", "the journal says nothing yet")
    return with_hold(state, index, attrs.evolve(hold, told=put(hold.told, request, told)))


# Actions of the approver, and what happens to everybody.


def decide_all(state: State, index: int, verdicts: tuple[bool, ...], evidence: Evidence) -> State:
    """An approver appends a decision, one verdict for each request; the journal accepts it or refuses it by type."""
    require(state.up, "H9", "the journal is unavailable: try again")
    hold = state.holds[index]
    require(undecided(hold), "H6", "the hold is not open: it was decided, expired or abandoned before")
    require(in_time(hold, state.now_ms), "H2", "the deadline has passed")
    require(not hold.key_burnt, "H16", "the decision's key is taken")
    if not acceptable(state, evidence, any(verdicts)):
        spoilt = after_refusal(hold)
        require(spoilt != hold, "H11", "the decision is not valid: malformed, or not signed by an active key")
        return with_hold(state, index, spoilt)
    decided = attrs.evolve(hold, fact=Fact.DECIDED, decided_at_ms=state.now_ms, evidence=evidence, approved=verdicts)
    return with_hold(state, index, decided)


def decide(state: State, index: int, first: bool, second: bool, evidence: Evidence) -> State:
    """An approver decides on two requests."""
    return decide_all(state, index, (first, second), evidence)


def detach(state: State, index: int) -> State:
    """The caller's connection breaks; its lease runs on."""
    hold = state.holds[index]
    require(hold.caller == Caller.ATTACHED, "H12", "the caller is not there")
    return with_hold(state, index, detached(hold))


def attach(state: State, index: int) -> State:
    """The caller comes back within its lease."""
    hold = state.holds[index]
    require(hold.caller == Caller.DETACHED, "H12", "the caller is there, or gone for good")
    return with_hold(state, index, attrs.evolve(hold, caller=Caller.ATTACHED))


def leave(state: State, index: int) -> State:
    """The lease of a caller that did not come back lapses."""
    hold = state.holds[index]
    require(hold.caller == Caller.DETACHED, "H12", "the caller is there, or gone already")
    return with_hold(state, index, attrs.evolve(hold, caller=Caller.GONE))


def crash(state: State) -> State:
    """The door dies at any point, with all that it remembers."""
    require(state.alive, "H15", "no door lives")
    return attrs.evolve(state, alive=False, holds=tuple(forgotten(hold) for hold in state.holds))


def boot(state: State) -> State:
    """Another door begins."""
    require(not state.alive, "H15", "a door lives already")
    return attrs.evolve(state, alive=True, door=state.door + 1)


def journal_fails(state: State) -> State:
    """The journal becomes unavailable."""
    require(state.up, "H9", "the journal is unavailable already")
    return attrs.evolve(state, up=False)


def journal_returns(state: State) -> State:
    """The journal is available again, with all its facts."""
    require(not state.up, "H9", "the journal is available")
    return attrs.evolve(state, up=True, journal=state.journal + 1)


def change_keys(state: State) -> State:
    """The first signing key is added, or the last one revoked."""
    return attrs.evolve(state, key_active=not state.key_active)


def tick(policy: HoldPolicy, state: State, elapsed_ms: int) -> State:
    """Time passes, but not past a timer that a live door has armed."""
    now = state.now_ms + elapsed_ms
    require(not any(overslept(state, hold, now) for hold in state.holds), "H2", "an armed timer is due first")
    missed = any(release_missed(policy, state, hold, now) for hold in state.holds)
    require(not missed, "H16", "a release is due first")
    return attrs.evolve(state, now_ms=now)
