"""What the recovery tells its caller: incidents as operators see them, kinds of attempts, and refusals.

The refusals, and what to do now::

    Refused                     (of the specification) nothing was changed
    └── IncidentRefused         the base: an incident refused; ``turn_id``, ``rule`` and ``why`` say which and why
        ├── Sealed              given up for good
        ├── GivenUp             given up; the seal waits for another attempt that is still at work
        ├── Closed              the turn has its result
        └── NoIncident          there is nothing to recover
    CallerError
    └── NotEntered              the ``Recovery`` was used outside its ``async with``
"""

from __future__ import annotations

from enum import StrEnum

import attrs

from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.incident_state import Reason, Record, Status, Turn

from .store import Stored


class Kind(StrEnum):
    """What makes an attempt.

    Attributes:
        TURN: somebody wants the turn done. The first attempt ever is the original turn, any later one a replay.
        REPLAY: a turn that an earlier incarnation, or an earlier attempt, left unfinished is taken up.
        CALLBACK: a queued retry or continuation was delivered. The queue is the caller's, and may deliver again.
    """

    TURN = "turn"
    REPLAY = "replay"
    CALLBACK = "callback"


class IncidentRefused(Refused):
    """The incident refused; nothing was changed and no work was done.

    Attributes:
        turn_id: the turn.
        rule: id of the rule that the refusal keeps.
        why: the reason in words.
        reason: why the incident was given up; ``Reason.NONE`` if it was not.
        count: deaths counted so far.
    """

    def __init__(self, turn_id: str, rule: str, why: str, record: Record, *, event: str = "") -> None:
        super().__init__(rule, why, event=event)
        self.turn_id = turn_id
        self.reason = record.reason
        self.count = record.interrupted

    def __str__(self) -> str:
        given_up = "" if self.reason is Reason.NONE else f" ({self.reason.value}, {self.count} deaths)"
        return f"turn {self.turn_id!r}: {super().__str__()}{given_up}"


class Sealed(IncidentRefused):
    """The incident is sealed: no attempt of this turn will ever run again (C7).

    Its terminal fact has been delivered. Drop what is queued for it; a person has to look at ``reason`` and ``count``.
    """


class GivenUp(IncidentRefused):
    """The incident is given up, and another attempt in this incarnation is still at work (C7).

    Do nothing: the attempt that ends last takes the incident to its seal, or finishes the turn after all.
    """


class Closed(IncidentRefused):
    """The turn is finished: its result exists. Drop what is queued for it."""


class NoIncident(IncidentRefused):
    """There is nothing to recover: the turn was never begun, or it still runs as its original (C10).

    Drop the callback; to begin the turn use ``attempt(turn_id)``.
    """


class NotEntered(CallerError):
    """The recovery has no incarnation. Use it as ``async with Recovery(store) as recovery``."""


def explained(turn_id: str, refusal: Refused, record: Record) -> IncidentRefused:
    """The typed form of *refusal*, which met *record*. It names what was decided, and decides nothing."""
    if record.status is Status.SEALED:
        named: type[IncidentRefused] = Sealed
    elif record.status is Status.CLOSED or record.turn is Turn.FINISHED:
        named = Closed
    elif record.reason is not Reason.NONE:
        named = GivenUp
    else:
        named = NoIncident if refusal.rule == "C10" else IncidentRefused
    return named(turn_id, refusal.rule, refusal.why, record, event=refusal.event)


@attrs.frozen
class Incident:
    """A turn and its incident, for people and dashboards.

    Attributes:
        turn_id: the turn.
        turn: whether it is new, running (owed) or finished.
        status: absent (no incident), open, sealed or closed.
        count: deaths counted so far; those of the entries below are counted by the next admission.
        limit: deaths at which the incident is given up.
        entries: incarnations that left an entry, one for each attempt that has not ended.
        reason: why it is given up; ``Reason.NONE`` while it is not.
        parked: whether a person is waited for.
        terminal_delivered: whether ``on_terminal`` has returned for it.
        attempt: admissions without progress, debounced.
        transient_retries: attempts that ended in a transient failure.
        produced: units of progress that the turn has made.
        last_progress_at_ms, last_attempt_at_ms: milliseconds since the epoch; 0 if never.
    """

    turn_id: str
    turn: Turn
    status: Status
    count: int
    limit: int
    entries: tuple[int, ...]
    reason: Reason
    parked: bool
    terminal_delivered: bool
    attempt: int
    transient_retries: int
    produced: int
    last_progress_at_ms: int
    last_attempt_at_ms: int

    @classmethod
    def of(cls, turn_id: str, stored: Stored, limit: int) -> Incident:
        """The view of what a store holds of *turn_id*, under a policy with *limit*."""
        record = stored.buffered
        return cls(
            turn_id=turn_id,
            turn=record.turn,
            status=record.status,
            count=record.interrupted,
            limit=limit,
            entries=tuple(filter(None, record.attempts)),
            reason=record.reason,
            parked=record.parked,
            terminal_delivered=record.terminal_delivered,
            attempt=record.attempt,
            transient_retries=record.transient_retries,
            produced=stored.produced,
            last_progress_at_ms=record.last_progress_at_ms,
            last_attempt_at_ms=record.last_attempt_at_ms,
        )
