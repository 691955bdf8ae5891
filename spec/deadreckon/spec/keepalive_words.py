"""The words of the keepalive: the pure helpers that its actions in ``keepalive.py`` are made of.

A known-bad variant replaces some of them, so each decision of the protocol is one function here.
"""

from __future__ import annotations

import attrs

from .keepalive_state import NEVER, Cleared, KeepalivePolicy, Pass, Record, State, rungs_of
from .language import require


def plateau(policy: KeepalivePolicy, beyond: int) -> int:
    """The distance *beyond* revivals after the ladder has ended: always the same (K4)."""
    return policy.plateau_ms


def distance(policy: KeepalivePolicy, revivals: int) -> int:
    """How long after its last revival a host is left alone; one lead while the count is zero."""
    span = policy.lead_ms
    for at, rung in enumerate(policy.ladder_ms):
        span = rung if revivals == at + 1 else span
    rungs = rungs_of(policy)
    return plateau(policy, revivals - rungs) if revivals > rungs else span


def belongs(record: Record, lifetime: int) -> bool:
    """Whether the record is of this life of the stream (K5)."""
    return record.lifetime == lifetime


def own(state: State) -> Record:
    """The record of this lifetime; that of another is read as an empty one, of a new epoch."""
    record = state.record
    if belongs(record, state.lifetime):
        return record
    return attrs.evolve(
        record,
        revivals=0,
        version=state.version,
        armed_at_ms=NEVER,
        lifetime=state.lifetime,
        epoch=record.epoch + 1,
        cleared_by=Cleared.NOBODY,
    )


def sooner(armed_at_ms: int, wanted_at_ms: int) -> int:
    """The earlier of what is armed, if anything is, and what is wanted."""
    return wanted_at_ms if armed_at_ms == NEVER else min(armed_at_ms, wanted_at_ms)


def zeroed(record: Record, by: Cleared) -> Record:
    """The record with its count cleared, and by whom (K3); the epoch grows, so that evidence is given anew (K9)."""
    if record.revivals == 0:
        return record
    return attrs.evolve(record, revivals=0, epoch=record.epoch + 1, cleared_by=by)


def cleared_at(policy: KeepalivePolicy, armed_at_ms: int, now_ms: int) -> int:
    """When the next revival comes after a clear: never later than it would have (K6)."""
    return sooner(armed_at_ms, now_ms + policy.lead_ms)


def rushed(policy: KeepalivePolicy, state: State, record: Record, by: Cleared) -> Record:
    """The record after a deploy or a person cleared it: if a revival was to come (K11), it comes soon."""
    armed = record.armed_at_ms != NEVER
    soon = cleared_at(policy, record.armed_at_ms, state.now_ms) if armed else NEVER
    return attrs.evolve(zeroed(record, by), armed_at_ms=soon)


def deployed(policy: KeepalivePolicy, state: State, record: Record) -> Record:
    """The record as a new version takes it over: the count is cleared, and that is recorded (K3)."""
    return attrs.evolve(rushed(policy, state, record, Cleared.DEPLOY), version=state.version)


def rearmed(alarm_at_ms: int, armed_at_ms: int) -> int:
    """The platform's alarm after a boot: what the record says, whatever was lost (K11)."""
    return armed_at_ms


def awake(policy: KeepalivePolicy, state: State) -> State:
    """The host lives; if it did not, it has read its record and re-armed what that says."""
    if state.alive:
        return state
    record = own(state)
    if record.version != state.version:
        record = deployed(policy, state, record)
    return attrs.evolve(state, alive=True, record=record, alarm_at_ms=rearmed(state.alarm_at_ms, record.armed_at_ms))


def forgotten(state: State) -> State:
    """The state without anything that the host had in flight."""
    return attrs.evolve(state, running_since_ms=tuple(NEVER for _ in state.running_since_ms), confirm_at_ms=NEVER)


def surviving(record: Record) -> Record:
    """What a death leaves of the record: all of it (K5)."""
    return record


def died(state: State) -> State:
    """A death: memory is lost, the record is not."""
    return attrs.evolve(
        forgotten(state),
        record=surviving(state.record),
        alive=False,
        clean_seen=False,
        failed_seen=False,
        reviving=Pass.IDLE,
        pass_count=0,
        stopping=False,
    )


def in_flight(state: State) -> bool:
    """Whether any work runs in the host."""
    return any(since != NEVER for since in state.running_since_ms)


def passing(state: State) -> bool:
    """Whether a revival is under way: there is never a second one (K8)."""
    return state.reviving != Pass.IDLE


def nothing_owed(state: State) -> bool:
    """Whether the owed work itself is done, not only some other (K3)."""
    return not any(state.owed)


def quiet_clean(state: State) -> bool:
    """Whether the run was clean, and is over. No revival is under way where this is asked."""
    return not in_flight(state) and state.clean_seen and not state.failed_seen and nothing_owed(state)


def is_due(record: Record, now_ms: int) -> bool:
    """Whether an alarm means this host (K8)."""
    return record.armed_at_ms != NEVER and now_ms >= record.armed_at_ms


def wedged(policy: KeepalivePolicy, state: State) -> bool:
    """Whether a settle has been owed for too long: measured from the oldest, whatever else settled."""
    latest = state.now_ms - policy.wedge_ms
    return any(since != NEVER and since <= latest for since in state.running_since_ms)


def armed(state: State, record: Record, at_ms: int) -> State:
    """Record, then alarm: both say *at_ms*."""
    return attrs.evolve(state, record=attrs.evolve(record, armed_at_ms=at_ms), alarm_at_ms=at_ms)


def clean_record(record: Record) -> Record:
    """The record after a quiet clean run: nothing armed, count cleared (K12)."""
    return attrs.evolve(zeroed(record, Cleared.QUIET_CLEAN), armed_at_ms=NEVER)


def disarmed(state: State, record: Record) -> State:
    """The end of a quiet clean run."""
    clean = attrs.evolve(state, record=clean_record(record), alarm_at_ms=NEVER)
    return attrs.evolve(clean, clean_seen=False, confirm_at_ms=NEVER)


def counted(policy: KeepalivePolicy, record: Record, now_ms: int, jitter_ms: int) -> Record:
    """The record before a revival acts: one more, with the next one armed (K1)."""
    revivals = record.revivals + 1
    return attrs.evolve(
        record,
        revivals=revivals,
        last_revival_at_ms=now_ms,
        armed_at_ms=now_ms + distance(policy, revivals) + jitter_ms,
        lifetime_total=record.lifetime_total + 1,
    )


def already_reported(state: State, record: Record) -> bool:
    """Whether the evidence of this version and epoch is durable (K9)."""
    return state.reported_version == record.version and state.reported_epoch == record.epoch


def told(policy: KeepalivePolicy, state: State, record: Record) -> bool:
    """Whether people have been told what they must be told at this count (K9)."""
    return record.revivals < policy.evidence_at or already_reported(state, record)


def plateau_may_begin(policy: KeepalivePolicy, state: State, record: Record) -> bool:
    """Whether the next revival is still on the ladder, or people know (K9)."""
    return record.revivals < rungs_of(policy) or already_reported(state, record)


def revived(policy: KeepalivePolicy, state: State, record: Record, jitter_ms: int) -> State:
    """A revival begins: it is counted, and nothing is done yet."""
    may_begin = plateau_may_begin(policy, state, record)
    require(may_begin, "K9", "the plateau would begin before people are told: report first")
    return attrs.evolve(
        forgotten(state),
        record=counted(policy, record, state.now_ms, jitter_ms),
        clean_seen=False,
        failed_seen=False,
        reviving=Pass.RECORDED,
        pass_count=record.revivals + 1,
    )


def hung(policy: KeepalivePolicy, state: State, record: Record) -> bool:
    """Whether a revival under way has hung for too long."""
    return state.now_ms - record.last_revival_at_ms >= policy.wedge_ms


def hangs(policy: KeepalivePolicy, state: State, record: Record) -> State:
    """A due alarm during a pass: it goes on, unless it has hung so long that it is put down (K8)."""
    going = state
    if hung(policy, state, record):
        going = attrs.evolve(forgotten(state), reviving=Pass.IDLE, pass_count=0, failed_seen=True)
    return armed(going, record, state.now_ms + policy.lead_ms)


def looked(policy: KeepalivePolicy, state: State, jitter_ms: int) -> State:
    """An alarm reaches the living host."""
    record = own(state)
    if not is_due(record, state.now_ms):
        return state
    if passing(state):
        return hangs(policy, state, record)
    if in_flight(state) and not wedged(policy, state):
        return armed(state, record, state.now_ms + policy.lead_ms)
    if quiet_clean(state):
        return disarmed(state, record)
    return revived(policy, state, record, jitter_ms)


def wanted_at(policy: KeepalivePolicy, record: Record, now_ms: int) -> int:
    """When work that starts now wants a look: one lead ahead; never before the rung (K2)."""
    soon = now_ms + policy.lead_ms
    if record.revivals == 0:
        return soon
    return max(soon, record.last_revival_at_ms + distance(policy, record.revivals))


def tracked_at(armed_at_ms: int, wanted_at_ms: int) -> int:
    """What is armed once work is tracked: never later than before (K10)."""
    return sooner(armed_at_ms, wanted_at_ms)


def set_at(values: tuple[int, ...], slot: int, value: int) -> tuple[int, ...]:
    """The values with that of *slot* replaced."""
    return (*values[:slot], value, *values[slot + 1 :])


def owed_at(owed: tuple[bool, ...], slot: int, value: bool) -> tuple[bool, ...]:
    """The obligations with that of *slot* replaced."""
    return (*owed[:slot], value, *owed[slot + 1 :])


def recorded(state: State) -> bool:
    """Whether the record says that this very revival is under way (K1): it was not cleared, and is of this lifetime."""
    return belongs(state.record, state.lifetime) and state.record.revivals == state.pass_count


def allowed_jitter(policy: KeepalivePolicy, jitter_ms: int) -> bool:
    """Whether no more is added to a distance than the policy says (K4)."""
    return jitter_ms <= policy.jitter_ms


def alarm_is_set(state: State) -> bool:
    """Whether the next retry was armed before this revival acts (K1)."""
    return state.reviving == Pass.ARMED


def recovering(state: State, slot: int) -> tuple[int, ...]:
    """The work once a revival has acted: what is owed is taken up; if nothing is, an empty turn in *slot*."""
    started = tuple(
        state.now_ms if owed and since == NEVER else since
        for owed, since in zip(state.owed, state.running_since_ms, strict=True)
    )
    return set_at(started, slot, state.now_ms) if all(since == NEVER for since in started) else started


def still_owed(owed: tuple[bool, ...], slot: int) -> tuple[bool, ...]:
    """What is owed after the work of *slot* has failed: all that was (K11)."""
    return owed


def looked_early(policy: KeepalivePolicy, state: State) -> State:
    """An early look that finds no quiet clean run: it leaves the next one to the rung (K3)."""
    return attrs.evolve(state, confirm_at_ms=NEVER)


def returned(policy: KeepalivePolicy, state: State) -> State:
    """A revival has returned: that proves nothing, and the alarm of its rung stays (K2, K3)."""
    return state


def probed(state: State) -> State:
    """A health probe has passed: that proves nothing (K3)."""
    return state


def by_hand(policy: KeepalivePolicy, state: State, record: Record) -> Record:
    """The record after a person cleared the count, at whatever rung (K6)."""
    return rushed(policy, state, record, Cleared.HAND)


def ends_clean(state: State, code_zero: bool) -> bool:
    """Whether the end of the host was wished for; its exit code proves nothing (K7)."""
    return state.stopping
