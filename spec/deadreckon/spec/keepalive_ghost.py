"""What really happened to a host: the ghost that the rules of the keepalive read, and the words for its steps.

It is moved on by :func:`observe` after each step, and no transition sees it.
"""

from __future__ import annotations

import attrs

from .keepalive_state import NEVER, Cleared, Pass, Record, State
from .keepalive_words import is_due


@attrs.frozen
class Ghost:
    """What really happened.

    Attributes:
        revivals: passes begun since the count was last cleared.
        started_at_ms: when the last of them began.
        looked_at_ms: when a due alarm was last looked at, or the count cleared.
        settled_clean: whether work settled well since the last revival, in this life of the host.
        reports: facts of evidence for this version and epoch.
        alarm_lost: whether the platform has lost the alarm, and nobody has set it since.
        losses: how many alarms the platform has lost.
        troubled_late: whether anything happened from outside (a death, a failure, new work, a reset, a deploy) after the
            first millisecond; it bounds the scope that judges whether the host comes to rest.
    """

    revivals: int = 0
    started_at_ms: int = 0
    looked_at_ms: int = 0
    settled_clean: bool = False
    reports: int = 0
    alarm_lost: bool = False
    losses: int = 0
    troubled_late: bool = False


def begins(before: State, after: State) -> bool:
    """Whether a revival begins in this step."""
    return before.reviving != Pass.RECORDED and after.reviving == Pass.RECORDED


def acts(before: State, after: State) -> bool:
    """Whether a revival acts in this step."""
    return before.reviving != Pass.ACTING and after.reviving == Pass.ACTING


def same_count(before: Record, after: Record) -> bool:
    """Whether nobody cleared the count in this step."""
    return before.epoch == after.epoch and before.lifetime == after.lifetime and before.version == after.version


def pushed(before: State, after: State) -> bool:
    """Whether a due alarm was looked at in this step, or the count cleared."""
    looked = before.record != after.record and is_due(before.record, before.now_ms)
    return looked or not same_count(before.record, after.record)


def settles_well(before: State, after: State) -> bool:
    """Whether work ends well in this step."""
    ended = any(
        old != NEVER and new == NEVER for old, new in zip(before.running_since_ms, after.running_since_ms, strict=True)
    )
    return ended and after.alive and after.clean_seen and before.failed_seen == after.failed_seen


def loses_alarm(before: State, after: State) -> bool:
    """Whether the platform forgets the alarm in this step."""
    forgotten = before.alarm_at_ms != NEVER and after.alarm_at_ms == NEVER
    return forgotten and before.record == after.record and before.alive == after.alive


def troubled(before: State, after: State) -> bool:
    """Whether something happens from outside in this step, which the host then has to recover from."""
    fails = (before.alive and not after.alive) or (after.failed_seen and not before.failed_seen)
    world = before.version != after.version or before.lifetime != after.lifetime or loses_alarm(before, after)
    working = any(
        old == NEVER and new != NEVER for old, new in zip(before.running_since_ms, after.running_since_ms, strict=True)
    )
    by_hand = after.record.cleared_by == Cleared.HAND and not same_count(before.record, after.record)
    return fails or world or by_hand or (working and not acts(before, after))


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    """Move the ghost on."""
    kept = same_count(before.record, after.record)
    first = begins(before, after)
    lives_on = after.alive and not first and kept
    return Ghost(
        revivals=(ghost.revivals if kept else 0) + (1 if first else 0),
        started_at_ms=after.now_ms if first else ghost.started_at_ms,
        looked_at_ms=after.now_ms if pushed(before, after) else ghost.looked_at_ms,
        settled_clean=lives_on and (ghost.settled_clean or settles_well(before, after)),
        reports=(ghost.reports if kept else 0) + after.reported_facts - before.reported_facts,
        alarm_lost=after.alarm_at_ms != after.record.armed_at_ms and (ghost.alarm_lost or loses_alarm(before, after)),
        losses=ghost.losses + (1 if loses_alarm(before, after) else 0),
        troubled_late=ghost.troubled_late or (after.now_ms > 1 and troubled(before, after)),
    )
