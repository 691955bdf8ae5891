"""What a keepalive tells its callers: revivals, views, ends and refusals, and what to do now.

CallerError
├── PutDown                     the work was given up, since its settle was owed for too long; it is still owed
├── WorkInFlight                work of this id is in flight already
└── KeepaliveClosed             the keepalive was used outside its ``async with``
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import attrs

from deadreckon.spec.errors import CallerError
from deadreckon.spec.keepalive_state import NEVER, RESET_VERB, Cleared, KeepalivePolicy, Record, rungs_of

from .keepalive_store import Evidence, Filed


class PutDown(CallerError):
    """The work was given up: its settle was owed for longer than ``wedge_ms``, so the host counts as wedged.

    What it owed is still owed, and the revival that has begun takes it up. Don't settle it elsewhere. Work that takes
    longer than ``wedge_ms`` has to be cut into pieces, or needs a policy with a larger one.
    """


class WorkInFlight(CallerError):
    """Work of this id is in flight on this host. Wait for it, or give this piece an id of its own."""


class KeepaliveClosed(CallerError):
    """The keepalive is not running here. Use ``async with Keepalive(...)``; what is owed goes on at the next."""


@attrs.frozen
class Revival:
    """One counted attempt to bring a host back, as the function that makes it sees it.

    Attributes:
        host: the host.
        number: revivals since the count was last cleared, this one included.
        owed: ids of the work that is owed, for it to take up; may be empty.
        incarnation: the one that makes it.
    """

    host: str
    number: int
    owed: tuple[str, ...]
    incarnation: int


@attrs.frozen
class Reset:
    """What a person's reset has changed.

    Attributes:
        host: the host.
        revivals: the count before; it is 0 now.
        armed_before_ms: when the next look at the host was due, or :data:`NEVER`.
        armed_at_ms: when it is due now: never later than before (K6).
    """

    host: str
    revivals: int
    armed_before_ms: int
    armed_at_ms: int


@attrs.frozen
class HostView:
    """A host, for callers, people and dashboards.

    Attributes:
        host: the host.
        revivals: counted revivals since the count was last cleared.
        rung: where on the ladder that is: ``clear``, ``rung k of n``, or ``plateau``.
        next_at_ms: when the next look at it is due, or :data:`NEVER`; ``alarm_at_ms`` is what the platform has.
        alarm_at_ms: the platform's alarm; another instant than ``next_at_ms`` heals at the next boot.
        last_revival_at_ms: when the last revival began; 0 if there was none.
        lifetime_total: counted revivals ever.
        owed: ids of the work that is owed.
        version: the version of the host at the last write.
        cleared_by: who cleared the count last; ``reset_by`` and ``reset_at_ms`` say more, if it was a person.
        reset_by: the person who last reset it; empty if nobody has.
        reset_at_ms: when; 0 if nobody has.
        evidence: what people were told of its crash loops, the oldest first.
    """

    host: str
    revivals: int
    rung: str
    next_at_ms: int
    alarm_at_ms: int
    last_revival_at_ms: int
    lifetime_total: int
    owed: tuple[str, ...]
    version: str
    cleared_by: Cleared
    reset_by: str
    reset_at_ms: int
    evidence: tuple[Evidence, ...]

    @property
    def on_plateau(self) -> bool:
        """Whether the host has climbed the whole ladder."""
        return self.rung == PLATEAU

    @classmethod
    def of(cls, host: str, filed: Filed, policy: KeepalivePolicy, versions: Mapping[int, str]) -> HostView:
        """The view of what is filed, by the limits of whoever owns the store."""
        record = filed.record
        return cls(
            host=host,
            revivals=record.revivals,
            rung=rung_word(policy, record),
            next_at_ms=filed.armed_at_ms,
            alarm_at_ms=filed.alarm_at_ms,
            last_revival_at_ms=record.last_revival_at_ms,
            lifetime_total=record.lifetime_total,
            owed=tuple(one for one in filed.owed if one),
            version=versions.get(record.version, ""),
            cleared_by=record.cleared_by,
            reset_by=filed.reset_by,
            reset_at_ms=filed.reset_at_ms,
            evidence=filed.evidence,
        )


PLATEAU = "plateau"


def rung_word(policy: KeepalivePolicy, record: Record) -> str:
    """Where on the ladder a host is."""
    if record.revivals == 0:
        return "clear"
    rungs = rungs_of(policy)
    return f"rung {record.revivals} of {rungs}" if record.revivals <= rungs else PLATEAU


def reset_command(host: str, db: str = "FILE") -> str:
    """What a person types to reset *host*; the verb is the specification's (K6)."""
    return f"{RESET_VERB} --db {db if db == 'FILE' else shlex.quote(db)} {shlex.quote(host)}"


def span_word(span_ms: int) -> str:
    """A span in the largest unit of which it is a whole number."""
    units = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
    return next(f"{span_ms // unit_ms} {unit}" for unit_ms, unit in units if span_ms % unit_ms == 0)


def evidence_text(policy: KeepalivePolicy, host: str, record: Record, version: str, db: str = "FILE") -> str:
    """What people are told of a crash loop: what, how often, what happens by itself, and what they can do (K9)."""
    rungs = rungs_of(policy)
    return (
        f"host {host} keeps dying: revival {record.revivals} since the count was last cleared, version {version}. "
        f"After revival {rungs + 1} it is tried every {span_word(policy.plateau_ms)} only. "
        f"Once the cause is mended, deploy, or run: {reset_command(host, db)}"
    )


def next_word(at_ms: int, now_ms: int) -> str:
    """How long until an instant, for people."""
    if at_ms == NEVER:
        return "nothing armed"
    left_s = max(0, at_ms - now_ms) // 1_000
    return f"in {left_s // 3_600}:{left_s // 60 % 60:02}:{left_s % 60:02}" if at_ms > now_ms else "due"
