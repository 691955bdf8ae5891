"""Words, policy and state of the recovery incident. The transitions over them are in ``incident.py``."""

from __future__ import annotations

import math
import warnings
from enum import Enum

import attrs

from .errors import PolicyError
from .language import UNLIMITED, check_policy, require

SLOTS = 3
"""Attempts of one incident that may overlap in the checked model, unless it is ``sized``. The functions take any number."""


class Turn(Enum):
    """Where the turn itself is, durably."""

    NEW = "new"
    RUNNING = "running"
    FINISHED = "finished"


class Status(Enum):
    """Where the incident is, durably."""

    ABSENT = "absent"
    OPEN = "open"
    SEALED = "sealed"
    CLOSED = "closed"


class Reason(Enum):
    """Why an incident is given up, in order of precedence."""

    NONE = "none"
    INTERRUPTED = "interrupted_attempts_exceeded"
    WORK = "work_budget_exceeded"
    NO_PROGRESS = "no_progress"
    PREDICATE = "predicate_declined"
    ATTEMPTS = "attempts_exceeded"


class Phase(Enum):
    """Where one attempt of the live incarnation is; lost with it."""

    IDLE = "idle"
    ADMITTED = "admitted"
    HEAVY = "heavy"
    FINISHING = "finishing"
    GIVING_UP = "giving up"


class Outcome(Enum):
    """How an attempt ends when its incarnation lives."""

    DONE = "done"
    YIELDED = "yielded"
    TRANSIENT = "transient"


@attrs.frozen
class RecoveryPolicy:
    """Limits of an incident. Spans are in milliseconds; every limit may be :data:`UNLIMITED`.

    Attributes:
        max_interrupted_attempts: deaths at which the incident is sealed, the original turn included; at least 1.
        max_attempts: admissions without progress, and transient retries, that are still allowed; at least 1.
        no_progress_timeout_ms: longest time without progress.
        max_recovery_work: most progress, counted from the opening of the record.
        debounce_ms: an admission this soon after the last one does not add to ``attempt`` (it still counts deaths).
        record_ttl_ms: idle time after which a closed record may be swept.

    Raises:
        PolicyError: when a value is not an integer in its range.
    """

    max_interrupted_attempts: int = 5
    max_attempts: int = 10
    no_progress_timeout_ms: int = 300_000
    max_recovery_work: int = 1_000
    debounce_ms: int = 30_000
    record_ttl_ms: int = 3_600_000

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(RecoveryPolicy):
            value = getattr(self, field.name)
            if type(value) is not int or value > UNLIMITED:
                raise PolicyError(f"{field.name} is {value!r}: give an integer, or UNLIMITED")
        check_policy(self, policy_is_valid)


def policy_is_valid(policy: RecoveryPolicy) -> bool:
    """The constraint under which everything is proved; each refusal names the field."""
    require(policy.max_interrupted_attempts >= 1, "max_interrupted_attempts", "give at least 1, or UNLIMITED")
    require(policy.max_attempts >= 1, "max_attempts", "give at least 1, or UNLIMITED")
    require(policy.no_progress_timeout_ms >= 0, "no_progress_timeout_ms", "give 0 or more")
    require(policy.max_recovery_work >= 0, "max_recovery_work", "give 0 or more")
    require(policy.debounce_ms >= 0, "debounce_ms", "give 0 or more")
    require(policy.record_ttl_ms >= 1, "record_ttl_ms", "give at least 1")
    return True


@attrs.frozen
class Record:
    """What is stored of one turn and its incident."""

    turn: Turn
    status: Status
    interrupted: int
    attempts: tuple[int, ...]
    reason: Reason
    parked: bool
    terminal_delivered: bool
    attempt: int
    progress: int
    work_baseline: int
    last_progress_at_ms: int
    last_attempt_at_ms: int
    transient_retries: int


@attrs.frozen
class State:
    """One turn, its incident, and the incarnation that works on it."""

    durable: Record
    buffered: Record
    incarnation: int
    alive: bool
    phases: tuple[Phase, ...]
    original: Phase
    callback: bool
    produced: int
    now_ms: int


def recovery_policy(
    *, max_interrupted_attempts: int | None = None, max_oom_retries: float | None = None, **limits: int
) -> RecoveryPolicy:
    """A policy from configuration in which the deprecated ``max_oom_retries`` may still stand.

    ``max_oom_retries=v`` means ``max_interrupted_attempts=floor(v) + 1`` (infinity: :data:`UNLIMITED`); an explicit
    ``max_interrupted_attempts`` wins. Source: released behaviour of ``agents`` 0.29.0.

    Raises:
        PolicyError: when a value is out of its range, or *limits* names no field of :class:`RecoveryPolicy`.
    """
    unknown = sorted(set(limits) - {field.name for field in attrs.fields(RecoveryPolicy)})
    if unknown:
        raise PolicyError(f"{unknown[0]} is no limit of a recovery policy: see RecoveryPolicy for the names")
    limit = max_interrupted_attempts
    if max_oom_retries is not None:
        warnings.warn(
            "max_oom_retries is deprecated: give max_interrupted_attempts, which counts the original turn too",
            DeprecationWarning,
            stacklevel=2,
        )
        limit = _limit_from_retries(max_oom_retries) if limit is None else limit
    return RecoveryPolicy(**limits) if limit is None else RecoveryPolicy(max_interrupted_attempts=limit, **limits)


def _limit_from_retries(retries: float) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int | float) or math.isnan(retries) or retries < 0:
        raise PolicyError(f"max_oom_retries is {retries!r}: give a number of 0 or more")
    return UNLIMITED if retries >= UNLIMITED - 1 else math.floor(retries) + 1
