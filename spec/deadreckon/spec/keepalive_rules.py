"""What must hold of the keepalive: rules K1 to K12. The number is the protocol's; a letter marks a further clause.

The ghost that they read is in ``keepalive_ghost.py``.
"""

from __future__ import annotations

import attrs

from .keepalive_ghost import Ghost, acts, begins, same_count
from .keepalive_state import NEVER, Cleared, KeepalivePolicy, Pass, Record, State, rungs_of
from .keepalive_words import belongs, distance, in_flight, is_due, own
from .language import always, eventually

PROTOCOL = "protocols/keepalive.md"
FIELD = "facts/keepalive.md"

KEEP_WHAT_IS_OWED = (
    *("act", "arm", "ask_to_stop", "boot", "confirm", "deploy", "die", "fail", "fire", "lose_alarm", "probe", "report"),
    *("reset", "settle_failed", "stand_down", "stray_fire", "succeed", "tick", "track"),
)
"""The actions that release nobody from anything: all but ``settle``, ``end`` and ``recreate``."""


@always(
    "K1",
    "a revival acts only after the record says so: the count raised, the next retry armed, both durable",
    source=f"{PROTOCOL} K1; {FIELD} S1",
)
def k1(before: State, after: State, ghost: Ghost) -> bool:
    record = before.record
    says_so = record.revivals == ghost.revivals and record.revivals >= 1 and record.armed_at_ms != NEVER
    durable = before.alarm_at_ms == record.armed_at_ms or ghost.alarm_lost
    return not acts(before, after) or (says_so and durable)


@always(
    "K1a",
    "count and total are raised by exactly one for each revival, and the distance of its rung is armed in the same write",
    source=f"{PROTOCOL} K1; {FIELD} S2, S9",
)
def k1a(policy: KeepalivePolicy, before: State, after: State) -> bool:
    kept = same_count(before.record, after.record)
    count = before.record.revivals if kept else 0
    total = after.record.lifetime_total - before.record.lifetime_total
    if not begins(before, after):
        return after.record.revivals <= count and total == 0
    span = after.record.armed_at_ms - after.now_ms
    least = distance(policy, after.record.revivals)
    raised = after.record.revivals == count + 1 and total == 1
    return raised and span >= least and span <= least + policy.jitter_ms


@always(
    "K2",
    "between two clears, revival n+1 starts no earlier than ladder(n) after revival n, whatever happened in between",
    source=f"{PROTOCOL} K2; {FIELD} G1, G7",
)
def k2(policy: KeepalivePolicy, before: State, after: State, ghost: Ghost) -> bool:
    counted = ghost.revivals if same_count(before.record, after.record) else 0
    waited = after.now_ms - ghost.started_at_ms
    return not begins(before, after) or counted == 0 or waited >= distance(policy, counted)


@always(
    "K3",
    "the count is cleared only by quiet clean, deploy or hand, each with its reason recorded",
    source=f"{PROTOCOL} K3; {FIELD} S3, S4",
)
def k3(before: State, after: State, ghost: Ghost) -> bool:
    old, new = before.record, after.record
    falls = new.revivals < old.revivals or (old.revivals > 0 and not same_count(old, new))
    if old.lifetime != new.lifetime or not falls:
        return True
    clean = not in_flight(before) and ghost.settled_clean and not before.failed_seen and not any(before.owed)
    lawful = (
        (new.cleared_by == Cleared.QUIET_CLEAN and clean)
        or (new.cleared_by == Cleared.DEPLOY and old.version != before.version)
        or new.cleared_by == Cleared.HAND
    )
    return new.epoch > old.epoch and lawful


@always(
    "K3a",
    "the count is never cleared by a probe, by a revival that returned, by a settle, or by new work",
    source=f"{PROTOCOL} K3; {FIELD} G6",
    on=("probe", "succeed", "fail", "settle", "settle_failed", "track", "arm", "act", "tick"),
)
def k3a(before: State, after: State) -> bool:
    return not belongs(before.record, before.lifetime) or after.record.revivals == before.record.revivals


@always(
    "K3b",
    "nobody but a person clears the count by hand",
    source=f"{PROTOCOL} K3",
    on=("boot", "fire", "stray_fire", "confirm", "end", "die", "deploy"),
)
def k3b(before: State, after: State) -> bool:
    return before.record.epoch == after.record.epoch or after.record.cleared_by != Cleared.HAND


@always(
    "K3c",
    "the early look after a revival can only disarm",
    source=f"{PROTOCOL} decided conflicts",
    on=("confirm",),
)
def k3c(before: State, after: State) -> bool:
    at_rest = after.record.armed_at_ms == NEVER and after.record.revivals == 0
    return after.reviving == before.reviving and (after.record == before.record or at_rest)


@always(
    "K4",
    "at the plateau the distance is the plateau, neither shorter nor growing (jitter only adds)",
    source=f"{PROTOCOL} K4; {FIELD} 1.2",
)
def k4(policy: KeepalivePolicy, before: State, after: State) -> bool:
    span = after.record.armed_at_ms - after.now_ms
    level = after.record.revivals > rungs_of(policy) and begins(before, after)
    return not level or (span >= policy.plateau_ms and span <= policy.plateau_ms + policy.jitter_ms)


@always("K5", "the count outlives the host", source=f"{PROTOCOL} K5")
def k5(before: State, after: State) -> bool:
    dies = before.alive and not after.alive
    mine = belongs(before.record, before.lifetime)
    return not dies or not mine or after.record.revivals == before.record.revivals


@always(
    "K5a",
    "a record of another lifetime is never acted on, and nothing of it but the total is taken over",
    source=f"{PROTOCOL} K5; {FIELD} S12",
)
def k5a(before: State, after: State) -> bool:
    mine = belongs(before.record, before.lifetime)
    taken_over = before.record.lifetime != after.record.lifetime
    fresh = after.record.revivals == 0 and after.record.cleared_by == Cleared.NOBODY
    return (mine or not (acts(before, after) or begins(before, after))) and (fresh or not taken_over)


@always(
    "K6",
    "the hand reset works at every rung; with work owed the next revival comes no later than the earlier of what was "
    "armed and one lead from now: a reset never delays",
    source=f"{PROTOCOL} K6; {FIELD} G4, L4",
    on=("reset",),
)
def k6(policy: KeepalivePolicy, before: State, after: State) -> bool:
    at_ms = after.record.armed_at_ms
    old = own(before)
    soon = at_ms != NEVER and at_ms <= before.now_ms + policy.lead_ms
    if old.armed_at_ms != NEVER:
        soon = soon and at_ms <= old.armed_at_ms
    elif not any(before.owed):
        soon = at_ms == NEVER
    said = old.revivals == 0 or (after.record.cleared_by == Cleared.HAND and after.record.epoch > old.epoch)
    return after.record.revivals == 0 and soon and said and after.alarm_at_ms == at_ms


@always(
    "K7",
    "an end that was not asked for disarms nothing and settles nothing; exit code 0 proves nothing",
    source=f"{PROTOCOL} K7",
)
def k7(before: State, after: State) -> bool:
    dies = before.alive and not after.alive and not before.stopping
    return not dies or (before.record.armed_at_ms == after.record.armed_at_ms and before.owed == after.owed)


@always(
    "K8",
    "an alarm that is not due changes nothing",
    source=f"{PROTOCOL} K8; {FIELD} S5",
    on=("fire", "stray_fire"),
)
def k8(before: State, after: State) -> bool:
    due = belongs(before.record, before.lifetime) and is_due(before.record, before.now_ms)
    same = attrs.evolve(after, alarm_at_ms=before.alarm_at_ms) == before
    booted = not begins(before, after) and not in_flight(after) and after.owed == before.owed
    return due or (same if before.alive else booted)


@always("K8a", "at most one revival pass runs per host", source=f"{PROTOCOL} K8; {FIELD} S6")
def k8a(before: State, after: State) -> bool:
    return not begins(before, after) or before.reviving == Pass.IDLE


def evident(state: State, record: Record) -> bool:
    """Whether the evidence of this version and epoch is durable."""
    return state.reported_version == record.version and state.reported_epoch == record.epoch


@always(
    "K9",
    "from the threshold on, no revival acts before the evidence of this version and epoch is durable",
    source=f"{PROTOCOL} K9; {FIELD} G3",
)
def k9(policy: KeepalivePolicy, before: State, after: State) -> bool:
    due = acts(before, after) and before.record.revivals >= policy.evidence_at
    return not due or evident(before, before.record)


@always("K9a", "evidence is written once per host, version and epoch", source=f"{PROTOCOL} K9; {FIELD} S11")
def k9a(ghost: Ghost) -> bool:
    return ghost.reports <= 1


@always("K9b", "evidence is durable before the plateau begins", source=f"{PROTOCOL} K9")
def k9b(policy: KeepalivePolicy, state: State) -> bool:
    return state.record.revivals <= rungs_of(policy) or evident(state, state.record)


def rung_ends(policy: KeepalivePolicy, record: Record) -> int:
    """The latest instant at which the current rung may end."""
    return record.last_revival_at_ms + distance(policy, record.revivals) + policy.jitter_ms


def in_time(policy: KeepalivePolicy, record: Record, ghost: Ghost, since_ms: int) -> bool:
    """Whether work in flight since then has a look armed that is early enough."""
    at_ms = record.armed_at_ms
    early = at_ms <= max(since_ms, ghost.looked_at_ms) + policy.lead_ms
    return at_ms != NEVER and (early or (record.revivals > 0 and at_ms <= rung_ends(policy, record)))


@always(
    "K10",
    "work in flight outside a revival implies an armed look: no later than its start plus the lead while the count is "
    "zero, no later than the current rung otherwise; only a look that was due, or a clear, pushes it on",
    source=f"{PROTOCOL} K10; {FIELD} S8, S10",
)
def k10(policy: KeepalivePolicy, state: State, ghost: Ghost) -> bool:
    outside = state.alive and state.reviving == Pass.IDLE
    return not outside or all(
        since == NEVER or in_time(policy, state.record, ghost, since) for since in state.running_since_ms
    )


@always(
    "K10a",
    "what the record has armed for work in flight, the platform's alarm has too, unless the platform lost it",
    source=f"{PROTOCOL} K10; {FIELD} G9",
)
def k10a(state: State, ghost: Ghost) -> bool:
    outside = state.alive and state.reviving == Pass.IDLE and in_flight(state)
    return not outside or state.alarm_at_ms == state.record.armed_at_ms or ghost.alarm_lost


def stranded(state: State) -> bool:
    """The host died with work owed."""
    return not state.alive and any(state.owed)


FAIR = ("boot", "fire", "arm", "report", "act", "stand_down", "succeed", "settle", "confirm", "tick")


@eventually(
    "K11",
    "a host that died with work owed is revived again, given that it is booted some time: a lost alarm heals then",
    source=f"{PROTOCOL} K11; {FIELD} L1, L8",
    when=stranded,
    fair=FAIR,
)
def k11(state: State) -> bool:
    return state.reviving != Pass.IDLE or not any(state.owed)


@always(
    "K11a",
    "while work is owed the next revival is armed in the record, whatever died: so it comes again and again",
    source=f"{PROTOCOL} K11",
)
def k11a(state: State) -> bool:
    armed = belongs(state.record, state.lifetime) and state.record.armed_at_ms != NEVER
    return not any(state.owed) or armed


@always(
    "K11c",
    "what is owed is owed until it settles well, the host ends as it was asked to, or the stream is recreated",
    source=f"{PROTOCOL} K11, decided conflicts",
    on=KEEP_WHAT_IS_OWED,
)
def k11c(before: State, after: State) -> bool:
    return all(new or not old for old, new in zip(before.owed, after.owed, strict=True))


@always(
    "K11d",
    "a settle or an end releases only what it is of: the work that ran, the host that was asked to stop",
    source=f"{PROTOCOL} K11, K7",
    on=("settle", "end"),
)
def k11d(before: State, after: State) -> bool:
    return all(
        new or not old or (before.stopping and not after.alive) or (since != NEVER and later == NEVER and after.alive)
        for old, new, since, later in zip(
            before.owed, after.owed, before.running_since_ms, after.running_since_ms, strict=True
        )
    )


@always(
    "K11e",
    "a revival that acts takes up all that is owed",
    source=f"{PROTOCOL} actions; {FIELD} 1.3 T5",
    on=("act",),
)
def k11e(before: State, after: State) -> bool:
    return all(not owed or since != NEVER for owed, since in zip(before.owed, after.running_since_ms, strict=True))


@always(
    "K11b",
    "a due look at a host whose oldest settle, or whose revival, is overdue by the wedge puts it down: what it has in "
    "flight is waited for no more",
    source=f"{PROTOCOL} decided conflicts; {FIELD} F4, G8",
    on=("fire", "stray_fire"),
)
def k11b(policy: KeepalivePolicy, before: State, after: State) -> bool:
    latest = before.now_ms - policy.wedge_ms
    stuck = any(since != NEVER and since <= latest for since in before.running_since_ms)
    overdue = before.record.last_revival_at_ms <= latest if before.reviving != Pass.IDLE else stuck
    due = belongs(before.record, before.lifetime) and is_due(before.record, before.now_ms)
    return not (due and overdue) or (not in_flight(after) and after.reviving != Pass.ACTING)


def counting(state: State) -> bool:
    """The host is not at rest."""
    return state.record.revivals != 0 or state.record.armed_at_ms != NEVER


@eventually(
    "K12",
    "after the last fault the count returns to zero and nothing is armed",
    source=f"{PROTOCOL} K12",
    when=counting,
    fair=FAIR,
)
def k12(state: State) -> bool:
    return not counting(state)
