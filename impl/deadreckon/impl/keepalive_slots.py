"""Actions on their way to a store, and the slots of work, of which there are as many as are needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from deadreckon.spec.errors import Refused
from deadreckon.spec.keepalive_state import NEVER, State

from .keepalive_store import Filed

Move = Callable[[State], State]
More = Callable[[Filed, Filed], Filed]
T = TypeVar("T")


@attrs.define(eq=False)
class Action:
    """One action, on its way.

    Attributes:
        event: its name in the machine.
        move: the function of the machine, with its inputs.
        more: what else is filed with it, for people.
        work_id: the id of the work that it makes owed.
        remembered: whether its first write is durable, and memory has moved.
    """

    event: str
    move: Callable[[State, Sequence[str]], State]
    more: More | None = None
    work_id: str = ""
    remembered: bool = False

    @property
    def insists(self) -> bool:
        """Whether it has not happened before its alarm is set: a revival must not act without (K1)."""
        return self.event == "arm"

    @property
    def asserts(self) -> bool:
        """Whether it writes an alarm again that says the right thing already: new work does, once in a while."""
        return self.event == "track"


def moved(action: Action, before: State, owed: Sequence[str]) -> State:
    """The state after *action*; a refusal is given the event and the state."""
    try:
        return action.move(before, owed)
    except Refused as refusal:
        refusal.event = action.event
        refusal.state = before
        raise


def slot_for(state: State, owed: Sequence[str], work_id: str) -> int:
    """The slot in which *work_id* is owed, or else the first that is free; one past the last if all are taken."""
    if work_id and work_id in owed:
        return owed.index(work_id)
    slots = enumerate(zip(state.running_since_ms, state.owed, strict=True))
    return next((slot for slot, (since, kept) in slots if since == NEVER and not kept), len(state.owed))


def padded(values: tuple[T, ...], slots: int, value: T) -> tuple[T, ...]:
    """*values*, with *value* for each slot that they lack."""
    return values + (value,) * (slots - len(values))


def widened(state: State, slots: int) -> State:
    """The state with free slots added, up to *slots*."""
    running = padded(state.running_since_ms, slots, NEVER)
    return attrs.evolve(state, running_since_ms=running, owed=padded(state.owed, slots, False))


def owed_ids(ids: tuple[str, ...], owed: tuple[bool, ...], work_id: str) -> tuple[str, ...]:
    """The ids of what is owed: those that were, but for what no longer is, and *work_id* where it newly is."""
    kept = [(one or work_id) if still else "" for one, still in zip(padded(ids, len(owed), ""), owed, strict=True)]
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)
