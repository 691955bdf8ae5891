"""The limits of an incident: what moves the soft meters, and which bound gives it up first.

Soft meters may start anew when there is progress; the count never does (C5). Reasons in order of precedence:
interrupted, work, no progress, predicate, attempts.
"""

from __future__ import annotations

import attrs

from .incident_state import Reason, Record, RecoveryPolicy


def within_limit(policy: RecoveryPolicy, record: Record) -> bool:
    """Whether heavy work may start as far as deaths go (C4), or a person is being waited for (C8)."""
    return record.interrupted < policy.max_interrupted_attempts or record.parked


def waits_for_person(record: Record) -> bool:
    """Whether no verdict may fall (C8)."""
    return record.parked


def credited(policy: RecoveryPolicy, record: Record, produced: int, now_ms: int) -> Record:
    """Move the soft meters. Progress and debounce touch these alone, never the count (C5)."""
    progressed = produced > record.progress
    debounced = record.attempt != 0 and now_ms - record.last_attempt_at_ms < policy.debounce_ms
    return attrs.evolve(
        record,
        attempt=1 if progressed else record.attempt if debounced else record.attempt + 1,
        progress=max(record.progress, produced),
        last_progress_at_ms=now_ms if progressed or record.parked else record.last_progress_at_ms,
        last_attempt_at_ms=now_ms,
    )


def verdict(
    policy: RecoveryPolicy, record: Record, now_ms: int, kind_is_callback: bool, first: bool, keep_going: bool
) -> Reason:
    """The first bound that is exceeded, in order of precedence; a recorded verdict stays.

    *keep_going* is the answer of the predicate ``should_keep_recovering``; on *first* detection it is not asked.
    The kind is not looked at: no class of work is exempt (C4).
    """
    if record.reason != Reason.NONE or waits_for_person(record):
        return record.reason
    if not within_limit(policy, record):
        return Reason.INTERRUPTED
    if record.progress - record.work_baseline > policy.max_recovery_work:
        return Reason.WORK
    if now_ms - record.last_progress_at_ms > policy.no_progress_timeout_ms:
        return Reason.NO_PROGRESS
    if not first and not keep_going:
        return Reason.PREDICATE
    if record.attempt > policy.max_attempts or record.transient_retries > policy.max_attempts:
        return Reason.ATTEMPTS
    return Reason.NONE
