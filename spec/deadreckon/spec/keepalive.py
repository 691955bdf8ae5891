"""The keepalive: a host that dies is revived, ever more slowly while it keeps dying, until the count is cleared.

Rules of this file
    Everything below is a pure function over frozen values. The explorer, the solvers and the reference
    implementation call these very functions; nothing here knows about them. Rule ids (K1 to K12) are those of the
    protocol, and stand in ``keepalive_rules.py``; the known-bad designs are in ``keepalive_variants.py``.

Words
    *Host*: what runs the work, and can die at any time. *Work*: what is in flight in the host; it may stand for an
    *obligation*, which the journal keeps until the work settles well. *Revival*: one counted attempt to bring the host
    back; its *pass* records, arms, acts. *Ladder*: the distances between revivals. *Plateau*: the last rung, for ever.
    *Quiet clean*: nothing is in flight, nothing is owed, a settle was clean and none failed since the last revival.
    *Evidence*: the fact that tells people about a crash loop. *Put down*: what a wedged host is; its work is given up.

Theory of operation
    The dying can't write, so the next look at the host is armed before work begins, and counted before a revival acts.
    An alarm that is due finds the host in one of four conditions: busy, so it looks again later; wedged, so it is put
    down; quiet and clean, so it disarms and clears the count; anything else is a death, and starts a revival.
    A revival writes count, instant and next alarm into the record, then the platform's alarm, then acts. Whatever
    happens next, the next rung is armed already. The order is always: record, alarm, act.

Which wins where K2, K6 and K10 meet
    K10 wants an alarm soon after new work; K2 wants the automatic revival to wait for its rung. K2 wins while the count
    is above zero: new work runs as it is delivered, but pulls no alarm in. K6 lets a person bring the next revival
    forward, and wins over K2, since it clears the count first: K2 speaks of the time between two clears. A deploy
    does the same. Nothing else brings an alarm forward, and nothing moves one later but a look that is due.

Decided conflicts
    * A revival that returned keeps the alarm of its rung as a safety net. The early look, one lead later, is a timer in
      memory (*confirm*), which can only disarm.
    * The recovery turn that a revival delivers is work: only its settle is clean evidence, not that the pass returned.
    * A clear takes the minimum of what was armed and one lead from now, so it never delays.
    * Evidence is written when the count reaches the threshold. From there on no revival acts before it is durable,
      and none reaches the plateau: a journal that is away holds the revival up, since both are written to it.
    * A host that was asked to stop and ended has settled what it owed. Its count stays: stopping is not a reset.
    * A due look that finds the host busy, or a revival under way, comes again after one lead: the rung has passed.
    * A wedge is time since the oldest settle owed. A wedged host is put down before it is revived; a pass that hangs as
      long is put down too, and the next look starts another.
    * An alarm that is early (the platform's alarm is shared) changes nothing. One may be late: no rule needs it punctual.
    * The record of another lifetime is read as an empty one, of a new epoch.

Not modelled
    Stream contents, what the work does. That a redundant write of the alarm is left out for a while (a floor of
    2.5 s in the field) is the implementation's affair, and equals a lost one. Other slices of a shared alarm.
"""

from __future__ import annotations

import attrs

from .keepalive_state import NEVER, SLOTS, Cleared, KeepalivePolicy, Pass, Record, State
from .keepalive_words import (
    alarm_is_set,
    allowed_jitter,
    already_reported,
    armed,
    awake,
    belongs,
    by_hand,
    died,
    disarmed,
    ends_clean,
    forgotten,
    is_due,
    looked,
    looked_early,
    owed_at,
    own,
    probed,
    quiet_clean,
    recorded,
    recovering,
    returned,
    set_at,
    still_owed,
    told,
    tracked_at,
    wanted_at,
)
from .language import require


def initial(slots: int = SLOTS) -> State:
    """A host without a record, not yet running."""
    record = Record(0, 0, 1, NEVER, 1, 0, 0, Cleared.NOBODY)
    nothing = tuple(NEVER for _ in range(slots))
    return State(
        record,
        NEVER,
        tuple(False for _ in range(slots)),
        NEVER,
        NEVER,
        0,
        1,
        1,
        False,
        nothing,
        False,
        False,
        Pass.IDLE,
        0,
        NEVER,
        False,
        0,
    )


# Actions.


def boot(policy: KeepalivePolicy, state: State) -> State:
    """The host starts: it reads its record, notices a deploy, and re-arms what the record says."""
    require(not state.alive, "K5", "the host lives already")
    return awake(policy, state)


def track(policy: KeepalivePolicy, state: State, slot: int, obliges: bool) -> State:
    """Work begins: it runs at once, plateau or not, and an alarm is armed first; *obliges*: the journal keeps it."""
    require(state.alive, "K10", "the host doesn't live")
    require(state.running_since_ms[slot] == NEVER, "K10", "work is in flight in this slot")
    record = own(state)
    at_ms = tracked_at(record.armed_at_ms, wanted_at(policy, record, state.now_ms))
    running = set_at(state.running_since_ms, slot, state.now_ms)
    owed = owed_at(state.owed, slot, state.owed[slot] or obliges)
    return armed(attrs.evolve(state, running_since_ms=running, owed=owed), record, at_ms)


def settle(state: State, slot: int) -> State:
    """Work ends well: what it stood for is owed no more."""
    require(state.running_since_ms[slot] != NEVER, "K3", "no work is in flight in this slot")
    running = set_at(state.running_since_ms, slot, NEVER)
    return attrs.evolve(state, running_since_ms=running, owed=owed_at(state.owed, slot, False), clean_seen=True)


def settle_failed(state: State, slot: int) -> State:
    """Work fails: what it stood for is still owed."""
    require(state.running_since_ms[slot] != NEVER, "K3", "no work is in flight in this slot")
    running = set_at(state.running_since_ms, slot, NEVER)
    return attrs.evolve(state, running_since_ms=running, owed=still_owed(state.owed, slot), failed_seen=True)


def fire(policy: KeepalivePolicy, state: State, jitter_ms: int) -> State:
    """The platform's alarm fires, and is used up; it wakes the host if that is needed, and is set anew."""
    require(state.alarm_at_ms != NEVER and state.now_ms >= state.alarm_at_ms, "K8", "the alarm is not set, or not due")
    require(allowed_jitter(policy, jitter_ms), "K4", "more jitter than the policy allows")
    living = awake(policy, state)
    record = own(living)
    if not is_due(record, living.now_ms):
        return attrs.evolve(living, alarm_at_ms=record.armed_at_ms)
    return looked(policy, attrs.evolve(living, alarm_at_ms=NEVER), jitter_ms)


def stray_fire(policy: KeepalivePolicy, state: State) -> State:
    """An alarm meant for somebody else reaches the living host; if this one is due all the same, it is looked at."""
    require(state.alive, "K8", "the host doesn't live")
    return looked(policy, state, 0)


def arm(state: State) -> State:
    """The alarm of the next rung is set, before the revival acts."""
    require(state.reviving == Pass.RECORDED, "K1", "no revival has just been recorded")
    require(recorded(state), "K1", "the record doesn't say so: the count was cleared meanwhile")
    return attrs.evolve(state, alarm_at_ms=state.record.armed_at_ms, reviving=Pass.ARMED)


def report(policy: KeepalivePolicy, state: State) -> State:
    """People are told of the crash loop, once for each version and epoch; the text names the verb that resets."""
    record = state.record
    require(record.revivals >= policy.evidence_at, "K9", "the count hasn't reached the threshold")
    require(not already_reported(state, record), "K9", "this crash loop has been reported")
    facts = state.reported_facts + 1
    return attrs.evolve(state, reported_version=record.version, reported_epoch=record.epoch, reported_facts=facts)


def act(policy: KeepalivePolicy, state: State, slot: int) -> State:
    """The revival acts: the fact is delivered, and what is owed is taken up; if nothing is, an empty turn in *slot*."""
    require(alarm_is_set(state), "K1", "the next retry isn't armed yet")
    require(recorded(state), "K1", "the record doesn't say so: the count was cleared meanwhile")
    require(told(policy, state, state.record), "K9", "people haven't been told yet")
    return attrs.evolve(state, reviving=Pass.ACTING, running_since_ms=recovering(state, slot))


def stand_down(state: State) -> State:
    """A revival that has not acted ends, since the count was cleared, or the stream recreated, under it."""
    require(state.reviving == Pass.RECORDED or state.reviving == Pass.ARMED, "K1", "no revival waits to act")
    require(not recorded(state), "K1", "the record still says so: act")
    return attrs.evolve(state, reviving=Pass.IDLE, pass_count=0)


def succeed(policy: KeepalivePolicy, state: State) -> State:
    """The revival returns; an early look is kept in memory."""
    require(state.reviving == Pass.ACTING, "K1", "no revival acts")
    early = state.now_ms + policy.lead_ms
    return returned(policy, attrs.evolve(state, reviving=Pass.IDLE, pass_count=0, confirm_at_ms=early))


def fail(state: State) -> State:
    """The revival fails; the alarm of its rung stays."""
    require(state.reviving == Pass.ACTING, "K1", "no revival acts")
    return attrs.evolve(state, reviving=Pass.IDLE, pass_count=0, failed_seen=True)


def confirm(policy: KeepalivePolicy, state: State) -> State:
    """The early look after a revival: it can only disarm."""
    require(state.confirm_at_ms != NEVER and state.now_ms >= state.confirm_at_ms, "K3", "there is no early look due")
    if quiet_clean(state) and belongs(state.record, state.lifetime):
        return disarmed(state, state.record)
    return looked_early(policy, state)


def probe(state: State) -> State:
    """Somebody asks the host whether it is well, and it says so."""
    require(state.alive, "K3", "the host doesn't live")
    return probed(state)


def reset(policy: KeepalivePolicy, state: State) -> State:
    """A person clears the count, at any rung, whether the host lives or not."""
    record = by_hand(policy, state, own(state))
    return armed(state, record, record.armed_at_ms)


def ask_to_stop(state: State) -> State:
    """Somebody wishes the host to end."""
    require(state.alive, "K7", "the host doesn't live")
    require(not state.stopping, "K7", "the host is asked to stop already")
    return attrs.evolve(state, stopping=True)


def end(state: State, code_zero: bool) -> State:
    """The host ends by itself: a clean end if it was asked for, whatever its code; a death otherwise."""
    require(state.alive, "K7", "the host doesn't live")
    if not ends_clean(state, code_zero):
        return died(state)
    settled = attrs.evolve(died(state), owed=tuple(False for _ in state.owed))
    return armed(settled, own(state), NEVER)


def die(state: State) -> State:
    """The host is killed, at any point."""
    require(state.alive, "K5", "the host doesn't live")
    return died(state)


def deploy(state: State, version: int) -> State:
    """Another version is rolled out: the host dies of it, and finds out when it starts."""
    require(version != state.version, "K3", "this version runs already")
    return attrs.evolve(died(state), version=version)


def recreate(state: State) -> State:
    """The stream begins another life: what was owed is void, and so is the record."""
    void = attrs.evolve(forgotten(state), owed=tuple(False for _ in state.owed))
    return attrs.evolve(void, lifetime=state.lifetime + 1, clean_seen=False, failed_seen=False)


def lose_alarm(state: State) -> State:
    """The platform loses the alarm: a write that never landed, or one fired and never set anew."""
    require(state.alarm_at_ms != NEVER, "K11", "no alarm is set")
    return attrs.evolve(state, alarm_at_ms=NEVER)


def tick(state: State, elapsed_ms: int) -> State:
    """Time passes."""
    return attrs.evolve(state, now_ms=state.now_ms + elapsed_ms)
