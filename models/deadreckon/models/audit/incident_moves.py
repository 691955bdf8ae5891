"""The moves of an incident that need more than a line: what several of them share, and what a log does not show."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from deadreckon.spec.incident_state import Outcome, Phase, Reason, Status

from .moves import Do, Key, Move, do, given, given_not, see

KINDS: Final = {"replay": "replay", "callback": "deliver"}
"""The action by which an attempt of each kind is admitted."""

INTERRUPTED: Final = Reason.INTERRUPTED.value
VERDICTS: Final = ((False, Reason.PREDICATE), (True, Reason.INTERRUPTED))
"""Whether the predicate lets an attempt go on, and why it is refused then."""


def entered(slot: int, kind: str) -> Move:
    """An attempt is admitted."""
    return do(KINDS[kind], slot=slot, keep_going=True), see(f"phases[{slot}]", Phase.ADMITTED)


def gives_up(slot: int) -> Move:
    """Where an attempt is on its way to the seal."""
    return (given(f"phases[{slot}]", Phase.GIVING_UP),)


def told_at_once() -> Iterator[Move]:
    """An attempt is refused, which writes no line, and tells the end."""
    for action, (keep_going, reason) in itertools.product(KINDS.values(), VERDICTS):
        refused = (see("phases[0]", Phase.GIVING_UP), see("buffered.reason", reason))
        yield (do(action, slot=0, keep_going=keep_going), *refused, do("sync"), do("deliver_terminal", slot=0))


def refusals(slot: int, count: int) -> Iterator[Move]:
    """An attempt is refused: the verdict falls with it, or has fallen, or there is nothing to admit to."""
    seen = see("buffered.interrupted", count)
    for action in KINDS.values():
        for keep_going, reason in VERDICTS:
            taken = Do(action, (("slot", slot), ("keep_going", int(keep_going))))
            yield (taken, see(f"phases[{slot}]", Phase.GIVING_UP), seen, see("buffered.reason", reason))
    yield (given_not("buffered.reason", Reason.NONE), seen)
    yield from ((given("buffered.status", status), seen) for status in (Status.SEALED, Status.CLOSED, Status.ABSENT))


def ends(slot: int) -> Iterator[Move]:
    """An attempt ends in a living incarnation."""
    for outcome in (Outcome.DONE, Outcome.YIELDED):
        yield (do("finish", slot=slot, outcome=outcome), do("sync"), do("report", slot=slot))


def original_ends() -> Iterator[Move]:
    """The original turn ends in a living incarnation."""
    for outcome in (Outcome.DONE, Outcome.YIELDED):
        yield (do("end_original", outcome=outcome), do("sync"), do("report_original"))


def somewhere(key: Key) -> Iterator[Move]:
    """Lines of a log that names no incarnations: one attempt at a time, after whatever happened unseen."""
    ended = (do("finish", slot=0, outcome=Outcome.YIELDED), do("sync"), do("report", slot=0))
    anew = (do("crash"), do("boot"))
    for before in ((), ended, anew, (*ended, *anew)):
        match key:
            case ("admitted somewhere", str(kind), int(count)):
                counted = () if count < 0 else (see("buffered.interrupted", count),)
                yield (*before, do(KINDS[kind], slot=0, keep_going=True), see("buffered.reason", Reason.NONE), *counted)
            case ("closed somewhere",):
                yield (*before, do("finish", slot=0, outcome=Outcome.DONE), see("buffered.status", Status.CLOSED))
                callback = (do("deliver", slot=1, keep_going=True), do("finish", slot=1, outcome=Outcome.DONE))
                yield (*before, *callback, see("buffered.status", Status.CLOSED))
            case ("sealed somewhere", str(reason), _):
                soft = reason != INTERRUPTED
                word = Reason.PREDICATE if soft else Reason.INTERRUPTED
                refused = (do("replay", slot=0, keep_going=not soft), do("sync"), do("deliver_terminal", slot=0))
                sealed = (do("sync"), do("seal", slot=0), see("buffered.reason", word), do("sync"))
                yield (*before, *refused, *sealed)
