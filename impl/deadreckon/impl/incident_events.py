"""The events of an incarnation: what it commits is told in that order, once it is durable.

A commit queues its events; a sync tells those that were queued when it began, and so are durable when it ends. What is
no record (heavy work that starts, an attempt that is refused) is told at once; but work that starts while a parking is
not durable yet is told after that parking, for it may be what allows it (C8). If that is lost in a crash, so are both lines.

Which events a commit has is read off the states before and after it, so that no transition has to say so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import attrs

from deadreckon.spec.incident_state import Phase, State, Status

from .events import Emitter, Sink
from .hold_journal import Json

Line = tuple[str, dict[str, Json]]
"""Type and fields of an event."""


@attrs.define(eq=False)
class IncidentEvents:
    """What one incarnation tells. Without a sink, nothing is kept.

    Attributes:
        sink: who is told.
        now_ms: the time.
        attempts: how many attempts have a name.
    """

    sink: Sink | None = None
    now_ms: Callable[[], int] = lambda: 0
    attempts: int = 0
    _emit: Emitter = attrs.field(init=False)
    _queued: deque[tuple[int, int, Line]] = attrs.field(init=False, factory=deque)
    _count: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._emit = Emitter(self.sink, self.now_ms)

    def tell(self, type_: str, **fields: Json) -> None:
        """Tell what is no record."""
        self._emit(type_, fields)

    def after_all(self, type_: str, **fields: Json) -> None:
        """Tell what is no record, but after all that was committed so far."""
        if self._emit.sink is not None:
            self._queued.append((self._count, self.now_ms(), (type_, fields)))

    def committed(self, line: Line) -> None:
        """Keep the event of a commit until it is durable."""
        if self._emit.sink is not None:
            self._count += 1
            self._queued.append((self._count, self.now_ms(), line))

    def mark(self) -> int:
        """What :meth:`durable` is given after a sync that begins now."""
        return self._count

    def durable(self, mark: int) -> None:
        """A sync has ended: all that was committed before *mark* was taken is durable."""
        while self._queued and self._queued[0][0] <= mark:
            _, at_ms, (type_, fields) = self._queued.popleft()
            self._emit(type_, fields, at_ms)


ORIGINAL = "original"
"""What the original turn is called in the line of its end."""


class TurnEvents:
    """What is told of one turn.

    Args:
        turn_id: the turn.
        events: of the incarnation.
    """

    def __init__(self, turn_id: str, events: IncidentEvents) -> None:
        self._turn_id = turn_id
        self._events = events
        self._names: dict[int, str] = {}

    def refused(self, state: State) -> None:
        """An attempt was refused in *state*."""
        self._events.tell("attempt.refused", **self._whose(state), count=state.buffered.interrupted)

    def committed(self, action: str, before: State, after: State) -> None:
        """An action was committed; what it did is told once it is durable, the start of work once what allows it is."""
        for slot, (old, new) in enumerate(zip(before.phases, after.phases, strict=True)):
            if (old, new) == (Phase.ADMITTED, Phase.HEAVY):
                allowed_later = after.buffered.parked and not after.durable.parked
                tell = self._events.after_all if allowed_later else self._events.tell
                tell("work.started", **self._attempt(after, slot))
        for line in self._lines(action, before, after):
            self._events.committed(line)

    def _lines(self, action: str, before: State, after: State) -> Iterator[Line]:
        old, new = before.buffered, after.buffered
        if before.original is Phase.IDLE and after.original is not Phase.IDLE:
            yield "turn.started", self._whose(after)
        if before.original is Phase.HEAVY and after.original is Phase.FINISHING:
            yield "attempt.finished", {**self._incident, "attempt": ORIGINAL, "incarnation": after.incarnation}
        for slot, phases in enumerate(zip(before.phases, after.phases, strict=True)):
            match phases:
                case (Phase.IDLE, Phase.ADMITTED):
                    self._events.attempts += 1
                    self._names[slot] = f"{after.incarnation}/{self._events.attempts}"
                    kind = "callback" if action == "deliver" else "replay"
                    yield "attempt.admitted", {**self._attempt(after, slot), "kind": kind, "count": new.interrupted}
                case (Phase.IDLE, Phase.GIVING_UP):
                    yield "attempt.refused", {**self._whose(after), "count": new.interrupted}
                case (Phase.ADMITTED | Phase.HEAVY, Phase.FINISHING):
                    yield "attempt.finished", self._attempt(after, slot)
        if new.terminal_delivered and not old.terminal_delivered:
            yield "terminal.delivered", self._incident
        if new.status is not old.status and new.status is Status.SEALED:
            yield "incident.sealed", {**self._incident, "reason": new.reason.value, "count": new.interrupted}
        if new.status is not old.status and new.status is Status.CLOSED:
            yield "incident.closed", self._incident
        if action in ("park", "unpark"):
            yield f"incident.{action}ed", self._incident
        if action == "sweep":
            yield "record.swept", self._incident

    @property
    def _incident(self) -> dict[str, Json]:
        return {"incident": self._turn_id}

    def _whose(self, state: State) -> dict[str, Json]:
        return {**self._incident, "incarnation": state.incarnation}

    def _attempt(self, state: State, slot: int) -> dict[str, Json]:
        return {**self._incident, "attempt": self._names.get(slot, ""), "incarnation": state.incarnation}
