"""What must be reachable in holds, so that no rule holds for want of anything to hold of."""

from __future__ import annotations

from .hold_rules import PROTOCOL, Ghost, starts
from .hold_state import Caller, Evidence, Fact, HoldPolicy, Release, State, Told, Wait
from .language import sometimes


@sometimes("S1", "an effect happens, is settled, and its caller is told", source=PROTOCOL, beside=("H1", "H4", "H5"))
def s1(state: State) -> bool:
    return any(told == Told.OK for told in state.holds[0].told)


@sometimes("S2", "a decision is made at the deadline's very millisecond", source=PROTOCOL, beside=("H2", "H6", "H16"))
def s2(state: State) -> bool:
    hold = state.holds[0]
    return hold.fact == Fact.DECIDED and hold.decided_at_ms == hold.deadline_at_ms


@sometimes("S3", "a release starts after the deadline, within the grace", source=PROTOCOL, beside=("H2",))
def s3(before: State, after: State) -> bool:
    started = any(starts(before.holds[0], after.holds[0], request) for request in range(2))
    return started and before.now_ms > before.holds[0].deadline_at_ms


@sometimes("S4", "a release is in doubt and settled unknown", source=PROTOCOL, beside=("H3", "H14"))
def s4(state: State) -> bool:
    return any(release == Release.UNKNOWN for release in state.holds[0].releases)


@sometimes("S4a", "an idempotent release in doubt is run again", source=PROTOCOL, beside=("H3",))
def s4a(ghost: Ghost) -> bool:
    return any(effects == 2 for effects in ghost.effects[0])


@sometimes("S5", "one request is approved and the other refused", source=PROTOCOL, beside=("H5", "H14"))
def s5(state: State) -> bool:
    return state.holds[0].fact == Fact.DECIDED and state.holds[0].approved[0] != state.holds[0].approved[1]


@sometimes("S6", "a hold expires", source=PROTOCOL, beside=("H2", "H6", "H9"))
def s6(state: State) -> bool:
    return state.holds[0].fact == Fact.EXPIRED


@sometimes("S7", "a second door takes up an open hold", source=PROTOCOL, beside=("H13", "H8"))
def s7(state: State) -> bool:
    return state.door == 2 and state.holds[0].wait == Wait.WAITING and state.now_ms > 0


@sometimes("S8", "two holds wait at once", source=PROTOCOL, beside=("H7",))
def s8(state: State) -> bool:
    return all(hold.wait == Wait.WAITING for hold in state.holds)


@sometimes("S9", "a door backs off twice in a row", source=PROTOCOL, beside=("H10", "H10a"))
def s9(policy: HoldPolicy, state: State) -> bool:
    hold = state.holds[0]
    return hold.wait == Wait.BACKING_OFF and hold.backoff_ms > policy.backoff_first_ms + policy.backoff_first_ms


@sometimes("S10", "a signed approval is accepted while a key is active", source=PROTOCOL, beside=("H11",))
def s10(state: State) -> bool:
    hold = state.holds[0]
    return state.key_active and hold.fact == Fact.DECIDED and hold.evidence == Evidence.SIGNED


@sometimes("S11", "the caller of an approved request is gone, and it lapses", source=PROTOCOL, beside=("H12",))
def s11(state: State) -> bool:
    hold = state.holds[0]
    return hold.caller == Caller.GONE and any(release == Release.LAPSED for release in hold.releases)


@sometimes("S12", "the acknowledgement of a request is lost", source=PROTOCOL, beside=("H12",))
def s12(state: State) -> bool:
    return state.holds[0].wait == Wait.ASKING
