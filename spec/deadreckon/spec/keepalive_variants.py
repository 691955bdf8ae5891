"""Known-bad designs of the keepalive: each replaces a few helpers, and each is refuted by the rule it names.

The first sixteen are the protocol's, met in the field or in review; the rest remove a guard that those leave alone.
"""

from __future__ import annotations

import attrs

from .keepalive_state import NEVER, Cleared, KeepalivePolicy, Pass, Record, State
from .keepalive_words import (
    alarm_is_set,
    allowed_jitter,
    already_reported,
    armed,
    belongs,
    by_hand,
    clean_record,
    cleared_at,
    counted,
    deployed,
    distance,
    ends_clean,
    hangs,
    hung,
    in_flight,
    is_due,
    looked_early,
    nothing_owed,
    owed_at,
    own,
    passing,
    plateau,
    plateau_may_begin,
    probed,
    quiet_clean,
    rearmed,
    recorded,
    recovering,
    returned,
    revived,
    rushed,
    set_at,
    still_owed,
    surviving,
    told,
    tracked_at,
    wanted_at,
    wedged,
    zeroed,
)
from .language import swap
from .machine import Variant


def returned_and_armed(policy: KeepalivePolicy, state: State) -> State:
    """The early look replaces the alarm of the rung."""
    return armed(state, own(state), state.now_ms + policy.lead_ms)


def probed_and_cleared(state: State) -> State:
    """A host that says it is well is believed."""
    return attrs.evolve(state, record=zeroed(state.record, Cleared.QUIET_CLEAN))


def returned_and_cleared(policy: KeepalivePolicy, state: State) -> State:
    """A revival that returned is taken for a run that was clean."""
    return attrs.evolve(state, record=zeroed(state.record, Cleared.QUIET_CLEAN))


def nobody_asks(state: State) -> bool:
    """Any work that settles will do."""
    return True


def counted_later(policy: KeepalivePolicy, record: Record, now_ms: int, jitter_ms: int) -> Record:
    """The record waits for how the attempt ends."""
    return attrs.evolve(record, armed_at_ms=NEVER)


def returned_and_counted(policy: KeepalivePolicy, state: State) -> State:
    """The attempt is counted now that it has ended."""
    record = own(state)
    ended = attrs.evolve(record, revivals=record.revivals + 1, lifetime_total=record.lifetime_total + 1)
    return armed(state, ended, state.now_ms + distance(policy, ended.revivals))


def recorded_later(state: State) -> bool:
    """The attempt asks for no record of itself."""
    return belongs(state.record, state.lifetime) and state.record.revivals == state.pass_count - 1


def goes_ahead(state: State) -> bool:
    """The attempt does not look whether the count was cleared meanwhile."""
    return belongs(state.record, state.lifetime)


def lost_with_host(record: Record) -> Record:
    """The count is a variable of the host."""
    return attrs.evolve(record, revivals=0)


def never_zeroed(record: Record) -> Record:
    """A clean run disarms, and leaves the count."""
    return attrs.evolve(record, armed_at_ms=NEVER)


def for_life(record: Record, by: Cleared) -> Record:
    """There is one count, of all the deaths ever."""
    return attrs.evolve(record, cleared_by=by)


def growing(policy: KeepalivePolicy, beyond: int) -> int:
    """The distance goes on growing."""
    return policy.plateau_ms + beyond


def postponed(policy: KeepalivePolicy, armed_at_ms: int, now_ms: int) -> int:
    """The next revival comes one lead after the reset, even if it was nearer."""
    return now_ms + policy.lead_ms


def not_by_hand(policy: KeepalivePolicy, state: State, record: Record) -> Record:
    """Nobody has built the door."""
    return record


def reported_this_version(state: State, record: Record) -> bool:
    """The key of the evidence has no epoch."""
    return state.reported_version == record.version


def shortened(policy: KeepalivePolicy, record: Record, now_ms: int) -> int:
    """New work pulls the alarm in, plateau or not."""
    return now_ms + policy.lead_ms


def zero_is_clean(state: State, code_zero: bool) -> bool:
    """Exit code 0 is taken for a clean stop."""
    return code_zero or state.stopping


def moved_later(armed_at_ms: int, wanted_at_ms: int) -> int:
    """Each piece of work arms its own look, and the last one wins."""
    return wanted_at_ms


def left_alone(alarm_at_ms: int, armed_at_ms: int) -> int:
    """A boot trusts that the alarm is still set."""
    return alarm_at_ms


def replaced_unrecorded(policy: KeepalivePolicy, state: State, record: Record) -> Record:
    """Another version starts with a fresh record, and nobody hears of it."""
    soon = rushed(policy, state, attrs.evolve(record, revivals=0), Cleared.DEPLOY)
    return attrs.evolve(soon, version=state.version)


def acts_unarmed(state: State) -> bool:
    """The alarm is set after the attempt."""
    return state.reviving == Pass.RECORDED or state.reviving == Pass.ARMED


def of_anybody(record: Record, lifetime: int) -> bool:
    """A record is a record."""
    return True


def due_by_any_alarm(record: Record, now_ms: int) -> bool:
    """Whoever rings is let in."""
    return record.armed_at_ms != NEVER


def never_passing(state: State) -> bool:
    """Nobody remembers that a revival is under way."""
    return False


def hangs_and_again(policy: KeepalivePolicy, state: State, record: Record) -> State:
    """A revival that hangs is revived on top."""
    return revived(policy, state, record, 0)


def nobody_told(policy: KeepalivePolicy, state: State, record: Record) -> bool:
    """Evidence is best effort."""
    return True


def never_reported(state: State, record: Record) -> bool:
    """The evidence has no key."""
    return False


def clean_despite_failure(state: State) -> bool:
    """One success masks every failure."""
    return not in_flight(state) and state.clean_seen and nothing_owed(state)


def clean_though_busy(state: State) -> bool:
    """Nobody looks whether anything still runs."""
    return state.clean_seen and not state.failed_seen and nothing_owed(state)


def unwatched(policy: KeepalivePolicy, state: State) -> bool:
    """Busy is busy, however long."""
    return False


def patient(policy: KeepalivePolicy, state: State, record: Record) -> bool:
    """A revival may take as long as it likes."""
    return False


def begins_in_silence(policy: KeepalivePolicy, state: State, record: Record) -> bool:
    """The plateau asks nobody."""
    return True


def any_jitter(policy: KeepalivePolicy, jitter_ms: int) -> bool:
    """Jitter is what the dice say."""
    return True


def counted_afresh(policy: KeepalivePolicy, record: Record, now_ms: int, jitter_ms: int) -> Record:
    """Each revival is the first of an epoch of its own."""
    first = attrs.evolve(record, revivals=0, epoch=record.epoch + (0 if record.revivals == 0 else 1))
    return counted(policy, first, now_ms, jitter_ms)


def forgiven(owed: tuple[bool, ...], slot: int) -> tuple[bool, ...]:
    """Work that failed is owed no more."""
    return owed_at(owed, slot, False)


def looked_and_armed(policy: KeepalivePolicy, state: State) -> State:
    """The early look decides when the next one comes."""
    return armed(attrs.evolve(state, confirm_at_ms=NEVER), own(state), state.now_ms + policy.lead_ms)


def deployed_by_hand(policy: KeepalivePolicy, state: State, record: Record) -> Record:
    """Whoever deploys is a person, too."""
    return attrs.evolve(rushed(policy, state, record, Cleared.HAND), version=state.version)


def all_released(owed: tuple[bool, ...], slot: int, value: bool) -> tuple[bool, ...]:
    """One good settle stands for all."""
    return owed_at(owed, slot, True) if value else tuple(False for _ in owed)


def empty_turn(state: State, slot: int) -> tuple[int, ...]:
    """The revival asks whether the host is well, and leaves what is owed to whoever comes next."""
    return set_at(state.running_since_ms, slot, state.now_ms)


VARIANTS = (
    Variant(
        "success-rearms-lead",
        "K2",
        "a revival that returned is looked at again after the lead, in place of its rung",
        (swap(returned, returned_and_armed),),
        "10 s crash loop, about 8640 revivals a day",
    ),
    Variant(
        "probe-clears",
        "K3",
        "a passing probe clears the count",
        (swap(probed, probed_and_cleared),),
        "0, 1, 0, 1 for ever; the regression test stayed green without the fix",
    ),
    Variant(
        "any-settle-clears",
        "K3",
        "one unrelated settle cancels an owed revival",
        (swap(nothing_owed, nobody_asks),),
        "clean_disarmed without a revival",
    ),
    Variant(
        "count-after-attempt",
        "K1",
        "the revival is recorded when it has ended",
        (swap(counted, counted_later), swap(recorded, recorded_later), swap(returned, returned_and_counted)),
    ),
    Variant("count-in-host", "K5", "the count dies with the host", (swap(surviving, lost_with_host),)),
    Variant(
        "never-cleared",
        "K12",
        "a clean run disarms, but leaves the count",
        (swap(clean_record, never_zeroed),),
        "a crash a month, delays of an hour",
    ),
    Variant(
        "lifetime-count",
        "K12",
        "there is one count, of all the deaths ever",
        (swap(zeroed, for_life),),
        "a crash a month, delays of an hour",
    ),
    Variant("growing-past-plateau", "K4", "the distance goes on growing", (swap(plateau, growing),)),
    Variant(
        "reset-postpones",
        "K6",
        "a reset moves a near revival to one lead from now",
        (swap(cleared_at, postponed),),
        "repeated resets starve the retry",
    ),
    Variant(
        "no-hand-reset",
        "K6",
        "nobody can clear the count",
        (swap(by_hand, not_by_hand),),
        "silence for six hours",
    ),
    Variant(
        "evidence-key-without-epoch",
        "K9",
        "the evidence of a second crash loop collapses into the first",
        (swap(already_reported, reported_this_version),),
        "second crash loop unreported",
    ),
    Variant(
        "new-work-shortens",
        "K2",
        "new work pulls the alarm in, plateau or not",
        (swap(wanted_at, shortened),),
        "a peer that redelivers turns a plateau back into a crash loop",
    ),
    Variant(
        "exit-zero-is-clean",
        "K7",
        "exit code 0 is taken for a clean stop",
        (swap(ends_clean, zero_is_clean),),
        "memory kill read as a clean stop",
    ),
    Variant("track-moves-later", "K10", "each piece of work moves the alarm", (swap(tracked_at, moved_later),)),
    Variant(
        "boot-forgets-alarm",
        "K11",
        "a boot does not re-arm what the record says",
        (swap(rearmed, left_alone),),
        "2 min 16 s stranded",
    ),
    Variant(
        "flapping-version-clears-unrecorded",
        "K3",
        "another version starts afresh, and nobody hears of it",
        (swap(deployed, replaced_unrecorded),),
    ),
    Variant(
        "return-clears",
        "K3a",
        "a revival that merely returned clears the count",
        (swap(returned, returned_and_cleared),),
    ),
    Variant(
        "act-before-arm", "K1", "the revival acts before the next one is armed", (swap(alarm_is_set, acts_unarmed),)
    ),
    Variant("foreign-record", "K5a", "the record of another lifetime is acted on", (swap(belongs, of_anybody),)),
    Variant(
        "any-alarm-is-ours", "K8", "an alarm for somebody else starts a revival", (swap(is_due, due_by_any_alarm),)
    ),
    Variant("revive-again", "K8a", "a revival that hangs is revived on top", (swap(hangs, hangs_and_again),)),
    Variant("pass-forgotten", "K8a", "nobody remembers that a revival is under way", (swap(passing, never_passing),)),
    Variant("evidence-best-effort", "K9", "nobody waits for the evidence", (swap(told, nobody_told),)),
    Variant("evidence-unkeyed", "K9a", "each boot tells again", (swap(already_reported, never_reported),)),
    Variant("failure-masked", "K3", "one success masks the failures", (swap(quiet_clean, clean_despite_failure),)),
    Variant(
        "clean-though-busy", "K3", "a run is called clean while work goes on", (swap(quiet_clean, clean_though_busy),)
    ),
    Variant(
        "withdrawn-revival-acts",
        "K1",
        "a revival acts though the count was cleared under it",
        (swap(recorded, goes_ahead),),
    ),
    Variant(
        "plateau-unannounced", "K9b", "the plateau begins in silence", (swap(plateau_may_begin, begins_in_silence),)
    ),
    Variant("wedge-unseen", "K11b", "a host that hangs is busy for ever", (swap(wedged, unwatched),)),
    Variant("hang-unseen", "K11b", "a revival that hangs is waited for, for ever", (swap(hung, patient),)),
    Variant("jitter-unbounded", "K1a", "jitter stretches a distance at will", (swap(allowed_jitter, any_jitter),)),
    Variant("cleared-in-the-count", "K3", "each revival begins an epoch of its own", (swap(counted, counted_afresh),)),
    Variant("failure-forgives", "K11c", "work that failed is owed no more", (swap(still_owed, forgiven),)),
    Variant("early-look-rearms", "K3c", "the early look decides the next", (swap(looked_early, looked_and_armed),)),
    Variant("empty-recovery", "K11e", "a revival leaves what is owed alone", (swap(recovering, empty_turn),)),
    Variant("deploy-by-hand", "K3b", "a deploy is recorded as a reset by hand", (swap(deployed, deployed_by_hand),)),
    Variant("settle-forgives-all", "K11d", "one good settle stands for all", (swap(owed_at, all_released),)),
)
