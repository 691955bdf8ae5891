"""The words of the hold: the helpers in which its transitions are written. A known-bad variant replaces some of them."""

from __future__ import annotations

from typing import TypeVar

import attrs

from .hold_state import Call, Caller, Evidence, Fact, Hold, HoldPolicy, Release, State, Told, Wait

T = TypeVar("T")


def coalesced_until_ms(debounce_ms: int, opened_at_ms: int, arrived_at_ms: int) -> int:
    """When a batch is sent: each arrival extends it, to at most three times the debounce from its opening."""
    return min(arrived_at_ms + debounce_ms, opened_at_ms + debounce_ms + debounce_ms + debounce_ms)


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    """*values* with one of them replaced."""
    return (*values[:index], value, *values[index + 1 :])


def with_hold(state: State, index: int, hold: Hold) -> State:
    """*state* with one hold replaced."""
    return attrs.evolve(state, holds=put(state.holds, index, hold))


def deadline_on_parking(policy: HoldPolicy, now_ms: int) -> int:
    """The deadline, fixed when the hold is parked (H13)."""
    return now_ms + policy.hold_ms


def deadline_on_resume(policy: HoldPolicy, hold: Hold, now_ms: int) -> int:
    """The deadline of a hold that a door takes up again: as advertised (H13)."""
    return hold.deadline_at_ms


def clipped(hold: Hold, until_ms: int) -> int:
    """The end of a wait or a sleep: never past the deadline (H2)."""
    return min(until_ms, hold.deadline_at_ms)


def waiting(policy: HoldPolicy, hold: Hold, now_ms: int) -> Hold:
    """The door waits, one slice; the journal has answered, so the backoff starts anew (H10)."""
    until = clipped(hold, now_ms + policy.slice_ms)
    return attrs.evolve(hold, wait=Wait.WAITING, until_ms=until, backoff_ms=policy.backoff_first_ms)


def asked_again(policy: HoldPolicy, hold: Hold, now_ms: int) -> Hold:
    """A request whose acknowledgement was lost is sent again: it has a key, so it is the same hold (H12)."""
    return waiting(policy, hold, now_ms)


def backed_off(policy: HoldPolicy, hold: Hold, now_ms: int) -> Hold:
    """An availability error: keep the distance, then wait again; the hold stays (H9, H10)."""
    return attrs.evolve(
        hold,
        wait=Wait.BACKING_OFF,
        until_ms=clipped(hold, now_ms + hold.backoff_ms),
        backoff_ms=min(hold.backoff_ms + hold.backoff_ms, policy.backoff_max_ms),
    )


def rearmed(hold: Hold) -> bool:
    """The cursor of a wait that is armed again: where it was (H8)."""
    return hold.cursor_past


def cursor_after_failure(hold: Hold) -> bool:
    """The cursor after a decision could not be judged: where it was (H8)."""
    return hold.cursor_past


def belongs(source: int, index: int) -> bool:
    """Whether a decision is of the hold that is waited for (H7)."""
    return source == index


def in_time(hold: Hold, now_ms: int) -> bool:
    """Whether a decision appended now counts: judged by the journal, at the append (H2)."""
    return now_ms <= hold.deadline_at_ms


def undecided(hold: Hold) -> bool:
    """Whether an end may still be appended (H6)."""
    return hold.fact == Fact.OPEN


def acceptable(state: State, evidence: Evidence, approves: bool) -> bool:
    """Whether a decision is valid (H11): signed by a key that is active now; or unsigned, if none is or it only refuses."""
    if evidence == Evidence.SIGNED:
        return state.key_active
    return evidence == Evidence.UNSIGNED and not (state.key_active and approves)


def after_refusal(hold: Hold) -> Hold:
    """What a refused decision leaves behind: nothing (H11)."""
    return hold


def within_horizon(policy: HoldPolicy, hold: Hold, now_ms: int) -> bool:
    """Whether a release may still start (H2)."""
    return now_ms <= hold.deadline_at_ms + policy.release_grace_ms


def wanted(hold: Hold) -> bool:
    """Whether somebody may still receive the effect (H12)."""
    return hold.caller == Caller.ATTACHED or hold.caller == Caller.DETACHED


def may_look(hold: Hold, now_ms: int) -> bool:
    """Whether the door reads the journal for a decision: also at the deadline and after, for one made in time (H16)."""
    return True


def marked(hold: Hold, index: int) -> bool:
    """Whether the start of the release is durable (H4)."""
    return hold.releases[index] == Release.STARTED


def owed(call: Call) -> bool:
    """Whether this door itself started the release, and has not called yet (H3)."""
    return call == Call.OWED


def resumes(policy: HoldPolicy) -> bool:
    """Whether a release in doubt is run again (H3)."""
    return policy.idempotent


def failed(calls: tuple[Call, ...], index: int) -> tuple[Call, ...]:
    """The calls after one of them failed: the others are untouched (H14)."""
    return put(calls, index, Call.FAILED)


def reconciles(state: State) -> bool:
    """Whether this door takes up what an earlier one left (H15)."""
    return True


def detached(hold: Hold) -> Hold:
    """A lost connection is no decision: the hold stays (H9)."""
    return attrs.evolve(hold, caller=Caller.DETACHED)


def outcome(hold: Hold, index: int) -> Told:
    """What the journal says of one request; nothing while it is undecided (H5)."""
    if hold.fact == Fact.EXPIRED:
        return Told.EXPIRED
    if hold.fact == Fact.ABANDONED:
        return Told.ABANDONED
    if hold.fact != Fact.DECIDED:
        return Told.NOTHING
    if not hold.approved[index]:
        return Told.REFUSED
    match hold.releases[index]:
        case Release.OK:
            return Told.OK
        case Release.ERROR:
            return Told.ERROR
        case Release.UNKNOWN:
            return Told.IN_DOUBT
        case Release.LAPSED:
            return Told.LAPSED
        case _:
            return Told.NOTHING


def overslept(state: State, hold: Hold, now_ms: int) -> bool:
    """Whether the door would miss a timer that it has armed, at *now_ms*."""
    return state.alive and hold.wait != Wait.IDLE and hold.until_ms < now_ms


def startable(state: State, hold: Hold, index: int) -> bool:
    """Whether the door could start a release, or the effect of one that it has started."""
    reads = state.up and may_look(hold, state.now_ms) and reconciles(state)
    starts = hold.fact == Fact.DECIDED and hold.approved[index] and hold.releases[index] == Release.NONE and reads
    return wanted(hold) and (starts or hold.calls[index] == Call.OWED)


def release_missed(policy: HoldPolicy, state: State, hold: Hold, now_ms: int) -> bool:
    """Whether the grace would end although the door could start a release or its effect."""
    able = state.alive and any(startable(state, hold, index) for index, _ in enumerate(hold.calls))
    return able and within_horizon(policy, hold, state.now_ms) and not within_horizon(policy, hold, now_ms)


def forgotten(hold: Hold) -> Hold:
    """A hold without the door's memory of it."""
    return attrs.evolve(
        hold,
        wait=Wait.IDLE,
        until_ms=0,
        backoff_ms=0,
        cursor_past=False,
        judged=False,
        calls=tuple(Call.NONE for _ in hold.calls),
    )
