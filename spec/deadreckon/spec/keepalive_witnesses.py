"""What must be reachable in the keepalive, so that no rule holds for want of anything to hold of."""

from __future__ import annotations

from .keepalive_ghost import Ghost, acts, begins
from .keepalive_rules import PROTOCOL
from .keepalive_state import NEVER, Cleared, KeepalivePolicy, Pass, State, rungs_of
from .keepalive_words import belongs, in_flight, is_due
from .language import sometimes


@sometimes("S1", "a revival acts", source=PROTOCOL, beside=("K1", "K1a"))
def s1(before: State, after: State) -> bool:
    return acts(before, after)


@sometimes("S2", "a revival returns, the host dies, and is revived again", source=PROTOCOL, beside=("K2",))
def s2(before: State, after: State, ghost: Ghost) -> bool:
    return begins(before, after) and ghost.revivals == 1 and not before.alive and any(before.owed)


@sometimes("S3", "a quiet clean run clears a count above zero", source=PROTOCOL, beside=("K3",))
def s3(before: State, after: State) -> bool:
    cleared = after.record.cleared_by == Cleared.QUIET_CLEAN
    return before.record.revivals > 0 and after.record.revivals == 0 and cleared


@sometimes("S4", "a deploy clears a count above zero", source=PROTOCOL, beside=("K3",))
def s4(before: State, after: State) -> bool:
    return before.record.revivals > 0 and after.record.revivals == 0 and after.record.cleared_by == Cleared.DEPLOY


@sometimes("S5", "a probe passes while the count is up", source=PROTOCOL, beside=("K3a",), on=("probe",))
def s5(before: State, after: State) -> bool:
    return before.record.revivals > 0 and after.alive


@sometimes("S6", "a revival begins at the plateau", source=PROTOCOL, beside=("K4", "K9b"))
def s6(policy: KeepalivePolicy, before: State, after: State) -> bool:
    return begins(before, after) and after.record.revivals > rungs_of(policy)


@sometimes("S7", "a host dies while its count is up", source=PROTOCOL, beside=("K5",))
def s7(before: State, after: State) -> bool:
    return before.alive and not after.alive and before.record.revivals > 0


@sometimes("S8", "the stream is recreated while a revival waits to act", source=PROTOCOL, beside=("K5a",))
def s8(state: State) -> bool:
    return state.reviving == Pass.ARMED and not belongs(state.record, state.lifetime)


@sometimes(
    "S9", "a person resets what would have come sooner than the lead", source=PROTOCOL, beside=("K6",), on=("reset",)
)
def s9(policy: KeepalivePolicy, before: State, after: State) -> bool:
    early = before.record.armed_at_ms != NEVER and before.record.armed_at_ms < before.now_ms + policy.lead_ms
    return early and before.record.revivals > 0 and any(before.owed) and after.record.revivals == 0


@sometimes("S10", "a host with work owed ends with exit code 0, unasked", source=PROTOCOL, beside=("K7",), on=("end",))
def s10(before: State, after: State) -> bool:
    return not before.stopping and any(before.owed) and not after.alive


@sometimes(
    "S11", "an alarm that is not due reaches a host at work", source=PROTOCOL, beside=("K8",), on=("stray_fire",)
)
def s11(before: State, after: State) -> bool:
    return in_flight(before) and not is_due(before.record, before.now_ms) and after.alive


@sometimes("S12", "an alarm is due while a revival acts", source=PROTOCOL, beside=("K8a",), on=("fire", "stray_fire"))
def s12(before: State, after: State) -> bool:
    return before.reviving == Pass.ACTING and is_due(before.record, before.now_ms) and after.reviving == Pass.ACTING


@sometimes("S13", "a second crash loop is reported", source=PROTOCOL, beside=("K9", "K9a"))
def s13(before: State, after: State) -> bool:
    return before.reported_epoch != NEVER and after.reported_epoch > before.reported_epoch


@sometimes("S14", "new work runs while the count is up", source=PROTOCOL, beside=("K10", "K10a"), on=("track",))
def s14(before: State, after: State) -> bool:
    idle = before.reviving == Pass.IDLE and not in_flight(before)
    return idle and before.record.revivals > 0 and in_flight(after)


@sometimes(
    "S15", "a host that owes work is dead, and the platform has lost its alarm", source=PROTOCOL, beside=("K11a",)
)
def s15(state: State, ghost: Ghost) -> bool:
    return not state.alive and any(state.owed) and ghost.alarm_lost


@sometimes("S16", "a wedged host is put down and revived", source=PROTOCOL, beside=("K2", "K8a", "K11b"))
def s16(before: State, after: State) -> bool:
    return begins(before, after) and in_flight(before)


@sometimes("S17", "a revival that hangs is put down", source=PROTOCOL, beside=("K11b",), on=("fire", "stray_fire"))
def s17(before: State, after: State) -> bool:
    return before.reviving == Pass.ACTING and after.reviving == Pass.IDLE


@sometimes("S18", "work that was owed settles well", source=PROTOCOL, beside=("K11c", "K11d"), on=("settle",))
def s18(before: State, after: State) -> bool:
    return any(before.owed) and not any(after.owed)


@sometimes("S19", "a revival takes up what is owed", source=PROTOCOL, beside=("K11e",), on=("act",))
def s19(before: State, after: State) -> bool:
    return any(before.owed) and not in_flight(before) and in_flight(after)


@sometimes("S20", "an early look finds the host at work", source=PROTOCOL, beside=("K3b", "K3c"), on=("confirm",))
def s20(before: State, after: State) -> bool:
    return in_flight(before) and after.record.revivals > 0
