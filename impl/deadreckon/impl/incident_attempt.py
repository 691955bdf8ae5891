"""One attempt, as its body sees it, and how it ends."""

from __future__ import annotations

import logging

from deadreckon.spec.errors import CallerError
from deadreckon.spec.incident_state import Outcome
from deadreckon.spec.language import UNLIMITED

from .incident_steps import Entered, Steps
from .waiting import to_the_end

logger = logging.getLogger("deadreckon.incident")


class Attempt:
    """One attempt at a turn, while its body runs.

    Attributes:
        turn_id: the turn.
        incarnation: the one that this attempt belongs to.
        count: deaths counted when it was admitted.
        outcome: what leaving the body normally means: ``Outcome.DONE`` (the turn is finished), unless it is changed.
    """

    def __init__(self, steps: Steps, entered: Entered) -> None:
        self.turn_id = steps.turn_id
        self.incarnation = entered.state.incarnation
        self.count = entered.state.buffered.interrupted
        self._outcome = Outcome.DONE
        self._steps = steps
        self._slot = entered.slot

    @property
    def outcome(self) -> Outcome:
        """What leaving the body normally means.

        Raises:
            CallerError: when it is set to something that is no :class:`~deadreckon.spec.incident_state.Outcome`.
        """
        return self._outcome

    @outcome.setter
    def outcome(self, outcome: Outcome) -> None:
        if not isinstance(outcome, Outcome):
            raise CallerError(f"outcome is {outcome!r}: give a member of Outcome")
        self._outcome = outcome

    @property
    def original(self) -> bool:
        """Whether this is the first attempt ever."""
        return self._slot is None

    def yield_(self) -> None:
        """Leaving the body will hand the turn over to a later attempt; it stays owed."""
        self.outcome = Outcome.YIELDED

    async def progress(self, units: int = 1) -> None:
        """Record that heavy work produced *units* of something new; durable when this returns.

        Progress moves the soft budgets, never the count of deaths (C5). Each call is a write: credit in batches.

        Raises:
            CallerError: *units* is below 1.
            StoreFault: it was not recorded.
        """
        if type(units) is not int or not 1 <= units < UNLIMITED:
            raise CallerError(f"units is {units!r}: give a whole number of at least 1, progress only grows")
        await self._steps.progress(units)


async def end(attempt: Attempt) -> None:
    """Removal of the entry, sync, report; a cancellation waits until all three are done.

    If one of them fails, the attempt is over all the same: its entry stays and will be counted, one death too many.
    """
    try:
        await to_the_end(_end(attempt._steps, attempt._slot, attempt.outcome))
    except Exception:
        attempt._steps.forget(attempt._slot)
        raise


async def end_after(error: BaseException, attempt: Attempt) -> None:
    """:func:`end` after *error*; if that fails, *error* is still what the caller has to know first."""
    try:
        await end(attempt)
    except Exception as failure:
        error.add_note(f"the attempt's entry was left and will be counted: {failure}")
        logger.warning("turn %r: the entry was left and will be counted", attempt.turn_id, exc_info=True)


async def _end(steps: Steps, slot: int | None, outcome: Outcome) -> None:
    if slot is None:
        await steps.end_original(outcome)
        await steps.settle()
        await steps.report_original()
    else:
        await steps.finish(slot, outcome)
        await steps.settle()
        await steps.report(slot)
