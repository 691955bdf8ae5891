"""Lemmas of the keepalive: what the rules need so that one step of induction proves them."""

from __future__ import annotations

from .keepalive_ghost import Ghost
from .keepalive_rules import evident, in_time, rung_ends
from .keepalive_state import NEVER, KeepalivePolicy, Pass, State
from .keepalive_words import belongs, distance, in_flight, passing, recorded
from .language import always

SOURCE = "found by asking what one step of induction lacks"


@always("L1", "instants lie in the past, counts and epochs are not negative", source=SOURCE, lemma=True)
def l1(state: State, ghost: Ghost) -> bool:
    record = state.record
    counts = record.revivals >= 0 and record.epoch >= 0 and record.lifetime <= state.lifetime
    past = record.last_revival_at_ms <= state.now_ms and ghost.looked_at_ms <= state.now_ms
    started = all(since == NEVER or (since >= 0 and since <= state.now_ms) for since in state.running_since_ms)
    return counts and past and started and state.now_ms >= 0 and record.last_revival_at_ms >= 0


@always("L2", "what is armed while the count is up is no earlier than the rung", source=SOURCE, lemma=True)
def l2(policy: KeepalivePolicy, state: State) -> bool:
    record = state.record
    rung = record.last_revival_at_ms + distance(policy, record.revivals)
    return record.armed_at_ms == NEVER or (
        record.armed_at_ms >= 0 and (record.revivals == 0 or record.armed_at_ms >= rung)
    )


@always("L3", "the record counts what has begun since the last clear", source=SOURCE, lemma=True)
def l3(state: State, ghost: Ghost) -> bool:
    record = state.record
    return record.revivals == ghost.revivals and (
        record.revivals == 0 or record.last_revival_at_ms == ghost.started_at_ms
    )


@always(
    "L4", "a revival under way is the last one counted, or the count was cleared under it", source=SOURCE, lemma=True
)
def l4(state: State) -> bool:
    record = state.record
    mine = belongs(record, state.lifetime)
    if state.reviving == Pass.IDLE:
        return state.pass_count == 0
    armed = not recorded(state) or record.armed_at_ms != NEVER
    return state.pass_count >= 1 and armed and (not mine or record.revivals in (0, state.pass_count))


@always(
    "L5",
    "evidence of this epoch is of this version, and of a count that has reached the threshold",
    source=SOURCE,
    lemma=True,
)
def l5(policy: KeepalivePolicy, state: State, ghost: Ghost) -> bool:
    record = state.record
    if state.reported_epoch == record.epoch:
        return evident(state, record) and record.revivals >= policy.evidence_at and ghost.reports == 1
    return state.reported_epoch < record.epoch and ghost.reports == 0


@always("L6", "clean settles are remembered only since the last revival", source=SOURCE, lemma=True)
def l6(state: State, ghost: Ghost) -> bool:
    return not state.clean_seen or state.record.revivals == 0 or ghost.settled_clean


@always("L7", "a dead host has nothing in flight, and remembers nothing", source=SOURCE, lemma=True)
def l7(state: State) -> bool:
    return state.alive or not (
        in_flight(state) or passing(state) or state.clean_seen or state.failed_seen or state.stopping
    )


@always("L8", "what is in flight, during a revival too, has a look armed in time", source=SOURCE, lemma=True)
def l8(policy: KeepalivePolicy, state: State, ghost: Ghost) -> bool:
    record = state.record
    return all(
        since == NEVER or (belongs(record, state.lifetime) and in_time(policy, record, ghost, since))
        for since in state.running_since_ms
    )


@always("L8a", "the next retry of a revival under way comes no later than its rung", source=SOURCE, lemma=True)
def l8a(policy: KeepalivePolicy, state: State, ghost: Ghost) -> bool:
    record = state.record
    late = max(rung_ends(policy, record), ghost.looked_at_ms + policy.lead_ms)
    return not passing(state) or not recorded(state) or record.armed_at_ms <= late


@always(
    "L9", "the platform's alarm is what the living host's record says, unless it was lost", source=SOURCE, lemma=True
)
def l9(state: State, ghost: Ghost) -> bool:
    waits = state.reviving == Pass.RECORDED and recorded(state)
    mine = state.alive and belongs(state.record, state.lifetime) and not waits
    return not mine or state.alarm_at_ms == state.record.armed_at_ms or ghost.alarm_lost


@always(
    "L10",
    "a living host runs the version of its record",
    source=SOURCE,
    lemma=True,
)
def l10(state: State) -> bool:
    record = state.record
    return not state.alive or not belongs(record, state.lifetime) or record.version == state.version
