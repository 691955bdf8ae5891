"""Words, policy and state of the hold. The transitions over them are in ``hold.py``."""

from __future__ import annotations

from enum import Enum

import attrs

from .errors import PolicyError
from .language import check_policy, require

HOLD_MAX_MS = 3_600_000
DEBOUNCE_MAX_MS = 60_000


class Fact(Enum):
    """What the journal says of a hold: four ends, never confused (H6)."""

    ABSENT = "absent"
    OPEN = "open"
    DECIDED = "decided"
    EXPIRED = "expired"
    ABANDONED = "abandoned"


class Evidence(Enum):
    """What came with a decision."""

    UNSIGNED = "unsigned"
    SIGNED = "signed"
    BAD_SIGNATURE = "bad signature"
    MALFORMED = "malformed"


class Release(Enum):
    """What the journal says of one request's release."""

    NONE = "none"
    STARTED = "started"
    OK = "ok"
    ERROR = "error"
    UNKNOWN = "unknown"
    LAPSED = "lapsed"


class Wait(Enum):
    """Where the door's wait for a decision is."""

    IDLE = "idle"
    ASKING = "asking"
    WAITING = "waiting"
    BACKING_OFF = "backing off"


class Call(Enum):
    """Where this door's upstream call for one request is."""

    NONE = "none"
    OWED = "owed"
    CALLED = "called"
    ANSWERED = "answered"
    FAILED = "failed"


class Caller(Enum):
    """What the door knows of the caller: detached is not yet gone, until its lease lapses."""

    ABSENT = "absent"
    ATTACHED = "attached"
    DETACHED = "detached"
    GONE = "gone"


class Told(Enum):
    """What the caller was told of one request; ``FAILED``: that the request was never made."""

    NOTHING = "nothing"
    OK = "ok"
    REFUSED = "refused"
    EXPIRED = "expired"
    ABANDONED = "abandoned"
    LAPSED = "lapsed"
    ERROR = "error"
    IN_DOUBT = "in doubt"
    FAILED = "failed"


@attrs.frozen
class HoldPolicy:
    """Limits of a hold, in milliseconds.

    Attributes:
        hold_ms: from parking to the deadline; at most an hour. Parking without a deadline is refused.
        slice_ms: the longest single wait on the journal.
        backoff_first_ms: distance before the first retry on an unavailable journal; it doubles.
        backoff_max_ms: the longest distance between retries.
        release_grace_ms: how long after the deadline an approved request may still be started.
        idempotent: whether a release in doubt may be run again, under the same release id.

    Raises:
        PolicyError: when a value is out of its range.
    """

    hold_ms: int = 600_000
    slice_ms: int = 25_000
    backoff_first_ms: int = 200
    backoff_max_ms: int = 5_000
    release_grace_ms: int = 30_000
    idempotent: bool = False

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(HoldPolicy):
            value = getattr(self, field.name)
            wanted = bool if field.name == "idempotent" else int
            if type(value) is not wanted:
                raise PolicyError(f"{field.name} is {value!r}: give {'a bool' if wanted is bool else 'an integer'}")
        check_policy(self, policy_is_valid)


def policy_is_valid(policy: HoldPolicy) -> bool:
    """The constraint under which everything is proved; each refusal names the field."""
    require(policy.hold_ms >= 1, "hold_ms", "give at least 1: parking without a deadline is refused")
    require(policy.hold_ms <= HOLD_MAX_MS, "hold_ms", "give at most an hour")
    require(policy.slice_ms >= 1, "slice_ms", "give at least 1")
    require(policy.backoff_first_ms >= 1, "backoff_first_ms", "give at least 1")
    require(policy.backoff_max_ms >= policy.backoff_first_ms, "backoff_max_ms", "give at least backoff_first_ms")
    require(policy.release_grace_ms >= 0, "release_grace_ms", "give 0 or more")
    return True


@attrs.frozen
class Hold:
    """One hold of two requests: what the journal has of it, what the door remembers, and its caller.

    Durable: ``fact`` to ``key_burnt``. The door's memory: ``wait`` to ``calls``. Outside: ``caller``, ``told``.
    ``cursor_past`` says that the door's cursor has passed the decision, ``judged`` that it has taken it up.
    """

    fact: Fact
    deadline_at_ms: int
    decided_at_ms: int
    evidence: Evidence
    approved: tuple[bool, ...]
    releases: tuple[Release, ...]
    key_burnt: bool
    wait: Wait
    until_ms: int
    backoff_ms: int
    cursor_past: bool
    judged: bool
    calls: tuple[Call, ...]
    caller: Caller
    told: tuple[Told, ...]


@attrs.frozen
class State:
    """Two holds, one door after another, and one journal, whose clock is the only clock."""

    holds: tuple[Hold, ...]
    door: int
    alive: bool
    journal: int
    up: bool
    key_active: bool
    now_ms: int
