"""Words, policy and state of the keepalive. The transitions over them are in ``keepalive.py``."""

from __future__ import annotations

from enum import Enum

import attrs

from .errors import PolicyError
from .language import check_policy, require

NEVER = -1
"""No instant: nothing is armed, nothing runs, nothing was written."""

SLOTS = 2
"""Pieces of work of one host in the checked model, unless it is ``sized``. The functions take any number."""

RESET_VERB = "deadreckon hosts reset"
"""What the evidence of a crash loop tells people to run (K6)."""


class Cleared(Enum):
    """Who cleared the count last, durably (K3)."""

    NOBODY = "nobody"
    QUIET_CLEAN = "quiet-clean"
    DEPLOY = "deploy"
    HAND = "hand"


class Pass(Enum):
    """Where a revival is in the live incarnation; lost with it."""

    IDLE = "idle"
    RECORDED = "recorded"
    ARMED = "armed"
    ACTING = "acting"


@attrs.frozen
class KeepalivePolicy:
    """How ever more slowly a dying host is revived. Spans are in milliseconds.

    Attributes:
        ladder_ms: the distance after revival 1, 2, ...; positive, and never falling.
        plateau_ms: the distance after every later revival, for ever; no shorter than the last rung.
        lead_ms: how far ahead of work the alarm is armed while nothing has died; at least 1.
        evidence_at: the count at which people are told of the crash loop; no later than the last rung.
        wedge_ms: how long a settle may be owed, or a revival hang, before the host is put down; at least 1.
        jitter_ms: the most that is added to a distance at random; none by default, and never taken away.

    Raises:
        PolicyError: when a value is out of its range.

    Source of the numbers: ``facts/keepalive.md`` 1.2.
    """

    ladder_ms: tuple[int, ...] = (10_000, 60_000, 300_000, 1_800_000)
    plateau_ms: int = 21_600_000
    lead_ms: int = 10_000
    evidence_at: int = 3
    wedge_ms: int = 900_000
    jitter_ms: int = 0

    def __attrs_post_init__(self) -> None:
        rungs = self.ladder_ms
        if type(rungs) is not tuple or not rungs or any(type(rung) is not int for rung in rungs):
            raise PolicyError(f"ladder_ms is {rungs!r}: give a tuple of integers, (10_000, 60_000), at least one")
        for field in attrs.fields(KeepalivePolicy):
            value = getattr(self, field.name)
            if field.name != "ladder_ms" and type(value) is not int:
                raise PolicyError(f"{field.name} is {value!r}: give an integer")
        check_policy(self, policy_is_valid)


def rungs_of(policy: KeepalivePolicy) -> int:
    """How many rungs the ladder has: the revival after the last of them begins the plateau."""
    return sum(1 for _ in policy.ladder_ms)


def policy_is_valid(policy: KeepalivePolicy) -> bool:
    """The constraint under which everything is proved; each refusal names the field."""
    ladder = policy.ladder_ms
    require(all(rung >= 1 for rung in ladder), "ladder_ms", "give rungs of at least 1")
    climbs = all(shorter <= longer for shorter, longer in zip(ladder[:-1], ladder[1:], strict=True))  # noqa: RUF007  # pairwise is not followed
    require(climbs, "ladder_ms", "give rungs that don't fall: a dying host is revived ever more slowly")
    require(policy.plateau_ms >= ladder[-1], "plateau_ms", "give at least the last rung")
    require(policy.lead_ms >= 1, "lead_ms", "give at least 1")
    require(policy.evidence_at >= 1, "evidence_at", "give at least 1")
    require(policy.evidence_at <= rungs_of(policy), "evidence_at", "give at most the number of rungs")
    require(policy.wedge_ms >= 1, "wedge_ms", "give at least 1")
    require(policy.jitter_ms >= 0, "jitter_ms", "give 0 or more: jitter only adds")
    return True


@attrs.frozen
class Record:
    """What is stored of one host, outside of what dies.

    Attributes:
        revivals: counted attempts to bring the host back since the count was last cleared.
        last_revival_at_ms: when the last of them began.
        version: the version of the host at the last write.
        armed_at_ms: when the next look at the host is due, or :data:`NEVER`.
        lifetime: the life of the stream that the record belongs to.
        epoch: grows with each clear, so that a second crash loop is told of again.
        lifetime_total: counted revivals ever; for people, never cleared, and nothing reads it.
        cleared_by: who cleared the count last.
    """

    revivals: int
    last_revival_at_ms: int
    version: int
    armed_at_ms: int
    lifetime: int
    epoch: int
    lifetime_total: int
    cleared_by: Cleared


@attrs.frozen
class State:
    """One host, the record of it, and the platform that wakes it.

    Durable: ``record``; ``alarm_at_ms``, the platform's alarm, in a store of its own; ``owed``, the obligations in the
    journal, one a slot; the key of the last evidence, and how many such facts there are.
    The world: the ``lifetime`` of the stream, the ``version`` deployed, the clock.
    The host's memory: ``alive`` to ``stopping``. ``running_since_ms`` says since when the work of a slot is in flight.
    """

    record: Record
    alarm_at_ms: int
    owed: tuple[bool, ...]
    reported_version: int
    reported_epoch: int
    reported_facts: int
    lifetime: int
    version: int
    alive: bool
    running_since_ms: tuple[int, ...]
    clean_seen: bool
    failed_seen: bool
    reviving: Pass
    pass_count: int
    confirm_at_ms: int
    stopping: bool
    now_ms: int
