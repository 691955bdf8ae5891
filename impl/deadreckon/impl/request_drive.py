"""One request in one incarnation: its attempts, one after another, and who waits for it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import ceil
from typing import Final, Protocol, TypeVar, cast

from deadreckon.spec import request as spec
from deadreckon.spec.errors import Refused
from deadreckon.spec.request_state import RequestPolicy, State

from .hold_journal_clock import SteadyClock
from .request_steps import ERROR_MAX_CHARS, Steps
from .request_words import AttemptMalformed, RequestAttempt
from .store import Fenced, StoreFault
from .timer import Timer

T = TypeVar("T")

logger = logging.getLogger("deadreckon.request")

AGAIN_FIRST_MS: Final = 100
AGAIN_MAX_MS: Final = 5_000
"""Distances between tries to write what the store did not take."""

Attempter = Callable[[RequestAttempt], Awaitable[str]]
"""``await attempt(RequestAttempt)``: the answer, as text. It is cancelled at its deadline."""


class Act(Protocol):
    """``await act(action)``: take *action*, again while the store fails."""

    async def __call__(self, action: Callable[[], Awaitable[T]]) -> T: ...


async def insist(timer: Timer, until_ms: int, action: Callable[[], Awaitable[T]]) -> T:
    """Take *action*, again while the store fails, until *until_ms*.

    Raises:
        Refused: the specification refuses it, perhaps because an earlier try was durable after all.
        Fenced: a newer incarnation lives.
        StoreFault: the store still fails.
    """
    again_ms = AGAIN_FIRST_MS
    while True:
        try:
            return await action()
        except StoreFault as fault:
            if isinstance(fault, Fenced) or timer.now_ms() >= until_ms:
                raise
            logger.warning("the store failed: trying again in %s ms", again_ms, exc_info=True)
        await timer.pause(again_ms)
        again_ms = min(again_ms + again_ms, AGAIN_MAX_MS)


class Driven:
    """A request that something goes on with here.

    Attributes:
        steps: its actions.
        over: done once it is settled, or not served here any more; ``failure`` then says why.
        users: calls that look at it.
        driving, telling: the tasks that try it, and tell its outcome.
    """

    def __init__(self, steps: Steps, timer: Timer) -> None:
        self.steps = steps
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure: BaseException | None = None
        self.users = 0
        self.driving: asyncio.Task[None] | None = None
        self.telling: asyncio.Task[None] | None = None
        self._timer = timer
        self._work: asyncio.Future[str] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing goes on with it."""
        return not self.users and self.driving is None and self.telling is None

    def end(self, failure: BaseException | None = None) -> None:
        """It is settled, or not served here any more: stop its attempt, and let who waits know."""
        if not self.over.done():
            self.failure = failure
            self.over.set_result(None)
        if self._work is not None:
            self._work.cancel()

    def stop(self, why: BaseException) -> list[asyncio.Task[None]]:
        """End it because of *why*; the tasks that are left to cancel."""
        self.end(why)
        return [task for task in (self.driving, self.telling) if task is not None]

    async def drive(self, policy: RequestPolicy, expires_at_ms: int, attempt: Attempter) -> None:
        """Try the request until it has its outcome.

        Raises:
            Fenced: a newer incarnation lives.
            StoreFault: the store failed until the horizon was past.
            AttemptMalformed: *attempt* returns no text; another try would be made for nothing.
        """

        async def act(action: Callable[[], Awaitable[T]]) -> T:
            return await insist(self._timer, expires_at_ms, action)

        while not self.over.done():
            try:
                state = await act(self.steps.dial)
            except Refused as refusal:
                await self._undialled(act, policy, cast("State", refusal.state))
            else:
                await self._attempt(act, attempt, state)

    async def _undialled(self, act: Act, policy: RequestPolicy, state: State) -> None:
        """No attempt may begin: settle the request if that is for good, else wait until one may, or none ever will."""
        request = state.request
        if spec.is_settled(request):
            self.end()
            return
        for action in (self.steps.give_up, self.steps.expire):
            with suppress(Refused):
                await act(action)
                self.end()
                return
        until_ms = request.retry_at_ms
        if not spec.worth_dialling(policy, request, until_ms):
            until_ms = request.expires_at_ms - policy.floor_ms  # nothing can begin after it: say so then, not later
        await self._timer.pause(max(1, until_ms - state.now_ms), self.over)

    async def _attempt(self, act: Act, attempt: Attempter, state: State) -> None:
        """Make one attempt, and record what comes of it; a refusal says that it was settled meanwhile, so it loses."""
        filed = await act(self.steps.filed)
        number, deadline_at_ms = state.request.attempts, state.deadline_at_ms
        told = RequestAttempt(self.steps.request_id, filed.body, number, deadline_at_ms, state.incarnation)
        steady = SteadyClock(self._timer)  # the wall clock may be set back meanwhile
        ends_at_ms = steady.elapsed_ms() + deadline_at_ms - self._timer.now_ms()
        self._work = work = asyncio.ensure_future(_made(attempt, told))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(work: asyncio.Future[str]) -> None:
            if not ended.done():
                ended.set_result(None)

        work.add_done_callback(end)
        try:
            while not work.done() and not self.over.done():
                left_ms = min(deadline_at_ms - self._timer.now_ms(), ceil(ends_at_ms - steady.elapsed_ms()))
                if left_ms <= 0:
                    break
                await self._timer.pause(left_ms, ended)
        finally:
            self._work = None
            if not work.done():  # at the deadline, or when this incarnation ends
                work.add_done_callback(_lost)
                work.cancel()
        with suppress(Refused):
            await self._record(act, work)

    async def _record(self, act: Act, work: asyncio.Future[str]) -> None:
        """Write what came of an attempt."""
        if not work.done():
            await self._overtime(act)
        elif work.cancelled():
            await act(lambda: self.steps.fail("the attempt was cancelled"))
        elif (error := work.exception()) is not None:
            if not isinstance(error, Exception):
                raise error
            failed = await act(lambda: self.steps.fail(said(error)))
            if isinstance(error, AttemptMalformed) and spec.is_open(failed.request):
                raise error
        else:
            await act(lambda: self.steps.succeed(work.result()))
            self.end()

    async def _overtime(self, act: Act) -> None:
        """An attempt has taken all its time: that is the horizon, unless the wall clock was set back meanwhile."""
        try:
            await act(self.steps.fire)
        except Refused:
            await act(lambda: self.steps.fail("the attempt took all its time, by a clock that nobody sets back"))
        else:
            self.end()


async def _made(attempt: Attempter, told: RequestAttempt) -> str:
    """The answer of one attempt."""
    made = attempt(told)
    if not inspect.isawaitable(made):
        raise AttemptMalformed(f"the attempt returned {type(made).__name__}, not an awaitable: give an async function")
    answer = await made
    if not isinstance(answer, str):
        raise AttemptMalformed(f"the attempt returned {type(answer).__name__}, not text")
    answer.encode()  # what has surrogates no store keeps
    return answer


def said(error: Exception) -> str:
    """What a failure says, as text that every store keeps, whatever the failure is."""
    try:
        text = str(error)
    except Exception as odd:  # the failure counts all the same
        text = f"it can't be told: {type(odd).__name__}"
    return f"{type(error).__name__}: {text}"[:ERROR_MAX_CHARS].encode(errors="backslashreplace").decode()


def _lost(work: asyncio.Future[str]) -> None:
    """An attempt ended that outlived its deadline: what it says is lost (Q2), and was seen."""
    if not work.cancelled():
        work.exception()
