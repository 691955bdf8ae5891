"""What a door remembers of a hold, and how the specification's state is put together from it and the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from deadreckon.spec import hold as spec
from deadreckon.spec.errors import PolicyError, Refused
from deadreckon.spec.hold_state import Call, Caller, Evidence, Hold, HoldPolicy, State, Told, Wait
from deadreckon.spec.hold_words import with_hold

from .events import Sink
from .hold_events import DoorEvents
from .hold_journal import Entry, Journal, Json, Moment

Move = Callable[[State], State]
T = TypeVar("T")

ONLY = 0
"""The place of the hold in the states of this file, which have one hold each."""


@attrs.define(eq=False)
class Life:
    """One door, as it knows itself, and what it tells of itself."""

    door: int
    alive: bool = True
    events: DoorEvents = attrs.field(factory=DoorEvents)


async def boot(journal: Journal, sink: Sink | None = None) -> Life:
    """A door begins (spec ``boot``): all earlier ones are dead from now on. *sink* is told what happens."""
    events = DoorEvents(journal, sink)
    await events.begin()
    life = Life(await journal.claim(), events=events)
    await events.catch_up()
    return life


@attrs.frozen
class Memory:
    """What a door remembers of one hold; the fields are those of the specification's ``Hold``."""

    wait: Wait
    until_ms: int
    backoff_ms: int
    cursor_past: bool
    judged: bool
    calls: tuple[Call, ...]
    told: tuple[Told, ...]

    @classmethod
    def of(cls, hold: Hold) -> Memory:
        """The door's part of *hold*."""
        return cls(*(getattr(hold, field.name) for field in attrs.fields(cls)))

    def on(self, hold: Hold) -> Hold:
        """The journal's *hold*, with this memory."""
        return attrs.evolve(hold, **{field.name: getattr(self, field.name) for field in attrs.fields(Memory)})


@attrs.frozen
class Asked:
    """What a caller asks for.

    Attributes:
        requests: one text each; see :class:`~deadreckon.impl.Held`.
        caller: who asks.
        key: what makes a repetition known.
        policy: with the time that this hold may take.
        latest_at_ms: until when the caller itself can wait; None: as long as it takes.
    """

    requests: tuple[str, ...]
    caller: str
    key: str
    policy: HoldPolicy
    latest_at_ms: int | None = None

    def parked(self, state: State, acknowledged: bool) -> State:
        """The state once it is parked (spec ``ask``).

        Raises:
            PolicyError: the deadline would be later than the caller can wait.
        """
        after = spec.ask(self.policy, state, ONLY, acknowledged)
        deadline_ms = after.holds[ONLY].deadline_at_ms
        if self.latest_at_ms is not None and deadline_ms > self.latest_at_ms:
            late_ms = deadline_ms - self.latest_at_ms
            raise PolicyError(f"the hold would last {late_ms} ms longer than its caller waits: give less hold_ms")
        return after

    @property
    def body(self) -> str:
        """What a repetition must have in common."""
        return repr((self.requests, self.caller, self.policy.hold_ms))

    def facts(self, hold: Hold) -> tuple[Entry, ...]:
        """The fact that *hold* was asked for."""
        body: dict[str, Json] = {
            "deadline_at": hold.deadline_at_ms,
            "requests": self.requests,
            "caller": self.caller,
        }
        return (Entry("hold.requested", body),)


def decided(state: State, verdicts: Sequence[bool], evidence: Evidence) -> State:
    """The state after a decision on every request."""
    return spec.decide_all(state, ONLY, tuple(verdicts), evidence)


def moved(event: str, before: State, move: Move) -> State:
    """``move(before)``; a refusal is given the event and the state."""
    try:
        return move(before)
    except Refused as refusal:
        refusal.event = event
        refusal.state = before
        raise


def seen(moment: Moment, hold: Hold, door: int = 0, *, alive: bool = True, up: bool = True) -> State:
    """The state, if *hold* is as the journal and the door have it."""
    return State((hold,), door, alive, journal=1, up=up, key_active=bool(moment.keys), now_ms=moment.now_ms)


def changed(now: Memory, before: Memory, after: Memory) -> Memory:
    """*now*, with what an action changed from *before* to *after*, and nothing else."""
    return Memory(*(_changed(*values) for values in zip(*map(_values, (now, before, after)), strict=True)))


def _values(memory: Memory) -> tuple[Any, ...]:  # Any: the fields have different types
    return tuple(getattr(memory, field.name) for field in attrs.fields(Memory))


def _changed(now: T, before: T, after: T) -> T:
    if isinstance(now, tuple) and isinstance(before, tuple) and isinstance(after, tuple):
        return type(now)(_changed(*values) for values in zip(now, before, after, strict=True))
    return now if before == after else after


def unasked(state: State) -> State:
    """The state before the first asking: a door that is unsure may still find nothing in the journal."""
    hold = state.holds[ONLY]
    return with_hold(state, ONLY, attrs.evolve(hold, wait=Wait.IDLE, caller=Caller.ABSENT))
