"""One hold at a door: who is there for it, how its decision is waited for, and how it is kept in order.

Theory of operation
    :func:`watch` is the only wait there is, one task for each hold, whoever asks for the outcome and however often. It
    goes from slice to slice with the same cursor; if the journal is away it backs off, cut at the deadline; at the
    deadline it looks once more, then lets the hold expire. :func:`tidy` is what a door does at boot, and now and then,
    with every hold that lacks a terminal fact. It asks for one action after the other; the specification refuses those
    that are not due.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import attrs

from deadreckon.spec.errors import Refused
from deadreckon.spec.hold_state import Call, Caller, Fact, HoldPolicy, Release, Wait
from deadreckon.spec.hold_words import backed_off

from .hold_journal import Journal, JournalUnavailable, blank
from .hold_steps import Steps
from .hold_words import Grant

T = TypeVar("T")


@attrs.define(eq=False)
class Parked:
    """A hold that this door knows.

    Attributes:
        steps: its actions.
        parking: its request is on its way to the journal.
        waiting: callers that wait for the decision.
        grants: grants that somebody still has: as long as there is one, the caller is there.
        watching: the wait for the decision.
        over: set while nothing is waited for.
        failure: why the wait ended without a fact.
        releases: releases under way, by request.
    """

    steps: Steps
    parking: bool = False
    waiting: int = 0
    grants: weakref.WeakSet[Grant] = attrs.field(factory=weakref.WeakSet)
    watching: asyncio.Task[None] | None = None
    over: asyncio.Event = attrs.field(factory=asyncio.Event)
    failure: BaseException | None = None
    releases: dict[int, asyncio.Task[object]] = attrs.field(factory=dict)

    @property
    def wanted(self) -> bool:
        """Whether anybody is there for it."""
        return self.waiting > 0 or len(self.grants) > 0

    @property
    def watched(self) -> bool:
        """Whether its decision is being waited for."""
        return self.watching is not None and not self.watching.done()

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do for it."""
        finished = self.steps.held is not None and self.steps.held.finished
        return finished and not (self.parking or self.wanted or self.releases or self.watched)


@attrs.frozen
class Pace:
    """How a door keeps its distance from a journal that is away (H10)."""

    journal: Journal
    policy: HoldPolicy

    async def insist(self, action: Callable[[], Awaitable[T]], until_ms: int) -> T:
        """Do *action*, again and again while the journal is away, for the last time at *until_ms*.

        Raises:
            JournalUnavailable: it was away all the time.
        """
        paced = attrs.evolve(blank(0), backoff_ms=self.policy.backoff_first_ms, deadline_at_ms=until_ms)
        while True:
            try:
                return await action()
            except JournalUnavailable:
                now_ms = self.journal.now_ms()
                if now_ms >= until_ms:
                    raise
            paced = backed_off(self.policy, paced, now_ms)
            await self.journal.timer.pause(paced.until_ms - now_ms)


async def watch(journal: Journal, steps: Steps) -> None:
    """Wait until the decision is taken up, or the hold has ended.

    Raises:
        JournalUnavailable: the deadline came while the journal was away; what became of the hold is not known.
    """
    while True:
        hold = steps.hold
        if hold.wait is Wait.IDLE:
            return
        left_ms = hold.deadline_at_ms - journal.now_ms()
        if left_ms <= 0:
            await _last_look(steps)
        elif hold.wait is Wait.BACKING_OFF:
            await journal.timer.pause(max(0, hold.until_ms - journal.now_ms()))
            with suppress(Refused):  # the deadline has come meanwhile, or the hold was abandoned
                await steps.wake()
        else:
            await _one_slice(journal, steps, max(0, hold.until_ms - journal.now_ms()))


async def _one_slice(journal: Journal, steps: Steps, slice_ms: int) -> None:
    try:
        found = await journal.wait(steps.cursor, slice_ms, steps.hold_id)
        if found is not None:
            await steps.take_up()
        else:
            with suppress(Refused):  # the deadline has come meanwhile
                await steps.slice_ends()
    except JournalUnavailable as failure:
        with suppress(Refused):  # the hold was abandoned meanwhile
            await steps.wait_fails(failure)
    except Exception:
        steps.broken("other")
        raise


async def _last_look(steps: Steps) -> None:
    """A decision that was made in time still counts; otherwise the hold expires."""
    try:
        for action in (steps.judge, steps.expire, steps.stop_waiting):
            with suppress(Refused):
                await action()
                return
    except JournalUnavailable as failure:
        await steps.stop_waiting(failure)
        raise


async def tidy(parked: Parked) -> None:
    """Append what is due for one hold (H15); an overdue one expires before anything else (H2)."""
    steps = parked.steps
    hold = await steps.read()
    if hold.fact is Fact.OPEN and not parked.watched:
        await _try(steps.expire)
    if not parked.wanted:
        await _try(steps.detach)
        await _try(steps.leave)
    if steps.hold.fact is Fact.OPEN and steps.hold.caller is Caller.GONE:
        await _try(steps.abandon)
    if not parked.watched:
        await _try(steps.adopt)
    for request in range(len(hold.releases)):
        if request not in parked.releases:
            await _tidy_release(steps, request)


async def _tidy_release(steps: Steps, request: int) -> None:
    """Append what is due for one request; a release in doubt that may be run again is owed to its caller."""
    hold = steps.hold
    match hold.releases[request], hold.calls[request]:
        case Release.NONE, _ if hold.approved[request]:
            await _try(lambda: steps.lapse(request))
        case Release.STARTED, Call.NONE:
            await _try(lambda: steps.settle_unknown(request))
        case Release.STARTED, Call.OWED:
            await _try(lambda: steps.lapse(request))
            await _try(lambda: steps.settle_unknown(request))
        case Release.STARTED, Call.ANSWERED | Call.FAILED:
            await _try(lambda: steps.settle(request))
        case _:
            pass


async def _try(action: Callable[[], Awaitable[object]]) -> None:
    with suppress(Refused):
        await action()
