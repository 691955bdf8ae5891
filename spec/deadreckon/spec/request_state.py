"""Words, policy and state of a request with a horizon. The transitions over them are in ``request.py``."""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

from .errors import PolicyError
from .language import UNLIMITED, check_policy, require

HORIZON_MAX_MS: Final = 7 * 86_400_000
"""A week: what is wanted for longer is no request, and every instant stays an integer that stores keep."""


class Status(Enum):
    """Where the request is, durably; the last three are its outcomes."""

    ABSENT = "absent"
    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"


class Reason(Enum):
    """Why a request ended without success; in the same write as its outcome."""

    NONE = "none"
    ATTEMPTS = "attempts_used_up"
    NO_TIME = "no_time_for_an_attempt"
    HORIZON = "horizon_passed"


@attrs.frozen
class RequestPolicy:
    """Limits of a request; spans are in milliseconds.

    Attributes:
        horizon_ms: from the trigger to the instant at which the request is settled whatever happens; at most a week.
        floor_ms: an attempt with no more than this left is not begun: it would be doomed. Less than the horizon.
        max_attempts: how often it is tried, attempts that died with their incarnation included; at least 1.
        retry_backoff_ms: distance from the first failure to the next attempt; it doubles. At least 1.
        retry_backoff_max_ms: the longest such distance.

    Raises:
        PolicyError: when a value is out of its range.
    """

    horizon_ms: int = 600_000
    floor_ms: int = 30_000
    max_attempts: int = 3
    retry_backoff_ms: int = 10_000
    retry_backoff_max_ms: int = 60_000

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(RequestPolicy):
            value = getattr(self, field.name)
            if type(value) is not int or value > UNLIMITED:
                raise PolicyError(f"{field.name} is {value!r}: give an integer")
        check_policy(self, policy_is_valid)


def policy_is_valid(policy: RequestPolicy) -> bool:
    """The constraint under which everything is proved; each refusal names the field."""
    require(policy.floor_ms >= 0, "floor_ms", "give 0 or more")
    require(
        policy.horizon_ms > policy.floor_ms,
        "horizon_ms",
        "give more than floor_ms, or no request could ever be tried (Q6)",
    )
    require(policy.horizon_ms <= HORIZON_MAX_MS, "horizon_ms", "give at most a week")
    require(policy.max_attempts >= 1, "max_attempts", "give at least 1")
    require(policy.retry_backoff_ms >= 1, "retry_backoff_ms", "give at least 1")
    require(
        policy.retry_backoff_max_ms >= policy.retry_backoff_ms,
        "retry_backoff_max_ms",
        "give at least retry_backoff_ms",
    )
    require(policy.retry_backoff_max_ms <= HORIZON_MAX_MS, "retry_backoff_max_ms", "give at most a week")
    return True


@attrs.frozen
class Request:
    """What is stored of one request; every write of it is durable before anything is done upon it.

    Attributes:
        status: open, or its one outcome.
        reason: why it ended without success.
        expires_at_ms: the horizon, fixed when it is opened.
        timer_at_ms: when the durable timer fires; 0: none is armed.
        attempts: how many were begun.
        owner: the incarnation that began the last one; 0: none was.
        retry_at_ms: no attempt is begun before this instant.
        backoff_ms: the distance that the next failure will keep.
        told: the outcome that whoever asked was told; ABSENT: none yet.
    """

    status: Status
    reason: Reason
    expires_at_ms: int
    timer_at_ms: int
    attempts: int
    owner: int
    retry_at_ms: int
    backoff_ms: int
    told: Status


@attrs.frozen
class State:
    """One request, and the incarnation that may run it.

    The memory of the incarnation, lost with it: ``running`` (an attempt is under way) and its ``deadline_at_ms``.
    """

    request: Request
    incarnation: int
    alive: bool
    running: bool
    deadline_at_ms: int
    now_ms: int
