"""Requests with a horizon for asyncio services: tried while that makes sense, settled once, by the horizon at the latest.

Theory of operation
    ``open`` records a request with its horizon; ``run`` tries it until it has an outcome, and ``adopt`` does so for all
    that earlier incarnations left open. All that is decided is decided by ``deadreckon.spec.request``, in the
    transactions of the store; what is decided here is only in which order its actions are asked for. A request has one
    task that drives it: dial, make the attempt, record what came of it, keep the distance, dial again. Beside them one
    task keeps the timers: it sleeps until the next horizon, settles what is due, cancels its attempt, and sees to it
    that every outcome is told. An incarnation that enters settles at once what passed its horizon while nobody lived.

Decided conflicts
    * A cancelled waiter cancels no attempt: the request is durable, and others may wait for it.
    * Leaving ``async with Requests(...)`` is a death to its attempts: they are cancelled, and are used up. Open
      requests stay open, for the next incarnation.
    * An attempt that does not end when it is cancelled is left alone; what it answers is lost (Q2). So is a call of
      ``on_outcome`` when the requests are left: its outcome is told again by the next incarnation.
    * The wall clock is set back while an attempt is under way: the horizon moves away with it, as it must (Q5), but the
      attempt gets no longer than it was promised, and is a failure then. One that is set ahead ends it early.
    * The store fails when an outcome is to be written: it is written again and again, until the horizon settles it.
    * ``on_outcome`` is told at least once: again if the incarnation dies, or if it raises, before that is recorded.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final

from deadreckon.spec import request as spec
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.language import UNLIMITED
from deadreckon.spec.request_state import RequestPolicy, Status

from .events import Emitter, Sink
from .request_checks import check_attempt, check_id, check_text, check_trigger
from .request_drive import Attempter, Driven
from .request_steps import Life, Steps, boot
from .request_store import Filed, RequestStore, admit
from .request_words import (
    REASONS,
    NoSuchRequest,
    RequestsClosed,
    RequestView,
    ended,
)
from .store import Fenced
from .timer import SystemTimer, Timer

logger = logging.getLogger("deadreckon.request")

LOOK_EVERY_MS: Final = 60_000
"""The longest sleep of whoever keeps the timers: what a clock that jumps may cost."""
LOOK_AGAIN_MS: Final = 1_000
"""Its sleep after the store failed."""
LEAVE_MAX_MS: Final = 10_000
"""How long leaving waits for what was cancelled, and doesn't end. More than a store takes for a write."""

OnOutcome = Callable[[RequestView], Awaitable[None] | None]
"""``on_outcome(view)``: tell whoever asked what became of the request, and why. At least once."""


class Requests:
    """The requests in one store, as one incarnation: ``async with Requests(store) as requests``.

    Whoever served the store before is dead from then on, and its calls raise :class:`~deadreckon.impl.Fenced`. The
    store is not closed at the end.

    Args:
        store: where requests are kept.
        policy: the limits.
        timer: source of the time; the wall clock, which survives restarts as horizons must.
        on_outcome: told every outcome, sync or async, at least once, with its reason. Without it an expiry and a failure
            are logged as warnings.
        sink: told what happens, as events.
    """

    def __init__(
        self,
        store: RequestStore,
        policy: RequestPolicy | None = None,
        timer: Timer | None = None,
        *,
        on_outcome: OnOutcome | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.policy = RequestPolicy() if policy is None else policy
        if not isinstance(self.policy, RequestPolicy):
            raise CallerError(f"policy is {policy!r}: give a RequestPolicy")
        self._store = store
        self._timer: Timer = SystemTimer() if timer is None else timer
        self._on_outcome = on_outcome
        self._emit = Emitter(sink, self._timer.now_ms)
        self._entered = False
        self._life: Life | None = None
        self._known: dict[str, Driven] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._woken: asyncio.Future[None] | None = None
        self._next_at_ms = 0
        self._fenced: Fenced | None = None

    async def __aenter__(self) -> Requests:
        if self._entered:
            raise CallerError("the requests are served here already: enter them once")
        self._entered = True
        try:
            self._life = life = await boot(self._store)
            self._known, self._fenced = {}, None
            if life.incarnation > 1:
                self._emit("incarnation.died", {"incarnation": Life(life.incarnation - 1).name})
            await self._tidy()
        except BaseException:
            await self._end(RequestsClosed("the requests were never served"))
            raise
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Attempts under way are cancelled; open requests stay, for the next incarnation."""
        self._living()
        await self._end(RequestsClosed("the requests are served here no more; an open one goes on at the next"))

    @property
    def incarnation(self) -> int:
        """The identity of this incarnation."""
        return self._living().incarnation

    async def open(self, request_id: str, body: str = "", *, triggered_at_ms: int | None = None) -> RequestView:
        """Record a request, with its timer; durable when this returns. It is tried by :meth:`run` or :meth:`adopt`.

        Opening it again changes nothing: the first horizon stands.

        Args:
            request_id: yours; the same request has the same id, however often it is opened.
            body: what is asked, for whoever adopts it. No secrets.
            triggered_at_ms: when it became wanted, from which its horizon counts; now without it.

        Raises:
            CallerError: an argument is not what it must be.
            RequestConflict: it was opened with another body.
            Refused: the trigger lies in the future (Q4).
            StoreFault: the store failed; it may be recorded nevertheless, so open it again.
        """
        check_text("body", body)
        check_trigger(triggered_at_ms)
        with self._using(request_id) as driven:
            state = await driven.steps.open_request(triggered_at_ms, body)
        if state.request.expires_at_ms < self._next_at_ms:
            self._wake()
        return await self.inspect(request_id)

    async def run(self, request_id: str, attempt: Attempter) -> str:
        """Try a request until it has its outcome, and return its answer. If it is tried here already, wait for that.

        Args:
            request_id: an open request, or a settled one, whose outcome is told again.
            attempt: ``await attempt(RequestAttempt)`` returns the answer as text, or raises. It is cancelled at its
                deadline, the horizon. What it raises is a failure, after which it is called again, up to the limit.

        Raises:
            RequestExpired, RequestFailed: the request is settled without an answer.
            NoSuchRequest: it was not opened.
            AttemptMalformed: *attempt* returned no text. The request stays open while attempts are left.
            RequestsClosed: this incarnation ended first.
            Fenced: a newer incarnation serves the store.
        """
        check_attempt(attempt)
        with self._using(request_id) as driven:
            filed = await driven.steps.filed()
            if filed.request.status is Status.OPEN:
                self._drive(driven, filed, attempt)
            return await self._answer(driven, filed)

    async def adopt(self, attempt: Attempter) -> list[str]:
        """Start :meth:`run` for every open request that is not tried here; their ids. See :meth:`answer`."""
        check_attempt(attempt)
        adopted = []
        for request_id, filed in await self._store.unfinished():
            with self._using(request_id) as driven:
                if filed.request.status is Status.OPEN and self._drive(driven, filed, attempt):
                    adopted.append(request_id)
        return adopted

    async def answer(self, request_id: str) -> str:
        """Wait for the outcome of a request, whoever tries it. Raises what :meth:`run` does."""
        with self._using(request_id) as driven:
            return await self._answer(driven, await driven.steps.filed())

    async def unfinished(self) -> list[RequestView]:
        """Requests that are open, or whose outcome is not told yet; those that expire first come first."""
        living = self.incarnation
        return [RequestView.of(request_id, filed, living) for request_id, filed in await self._store.unfinished()]

    async def inspect(self, request_id: str) -> RequestView:
        """One request; with status ``absent`` if there is none."""
        check_id(request_id)
        return RequestView.of(request_id, await self._store.read(request_id), self.incarnation)

    def _living(self) -> Life:
        if self._life is None:
            raise RequestsClosed("the requests are not served here: use 'async with Requests(store) as requests'")
        return self._life

    @contextmanager
    def _using(self, request_id: str) -> Iterator[Driven]:
        """What is remembered of a request, shared by all who use it at a time, and kept while anything goes on."""
        life = self._living()
        if self._fenced is not None:
            raise self._fenced
        check_id(request_id)
        if request_id not in self._known:
            steps = Steps(self._store, life, request_id, self.policy, self._timer, self._emit)
            self._known[request_id] = Driven(steps, self._timer)
        driven = self._known[request_id]
        driven.users += 1
        try:
            yield driven
        finally:
            driven.users -= 1
            self._let_go(driven)

    def _let_go(self, driven: Driven) -> None:
        """Forget a request that nothing goes on with."""
        if driven.idle and self._known.get(driven.steps.request_id) is driven:
            del self._known[driven.steps.request_id]

    async def _answer(self, driven: Driven, filed: Filed) -> str:
        """Wait for the outcome of a request that was found as *filed*, and give its answer."""
        request_id = driven.steps.request_id
        if filed.request.status is Status.ABSENT:
            raise NoSuchRequest(f"there is no request {request_id!r}: open it first")
        if filed.request.status is Status.OPEN:
            await asyncio.wait((driven.over,))
            if driven.failure is not None:
                raise driven.failure
            filed = await driven.steps.filed()
        return ended(request_id, filed)

    def _drive(self, driven: Driven, filed: Filed, attempt: Attempter) -> bool:
        """Begin to drive an open request; whether that was new."""
        if driven.driving is not None or driven.over.done():
            return False

        async def drive() -> None:
            try:
                await driven.drive(self.policy, filed.request.expires_at_ms, attempt)
                self._tell(driven)
            except Fenced as fenced:
                self._stop_fenced(fenced)
            except Exception as failure:  # for whoever waits; the timer settles the request all the same
                logger.warning("request %r is no longer tried here", driven.steps.request_id, exc_info=True)
                driven.end(failure)
            except BaseException as end:  # this incarnation ends: whoever waits must not outlive it
                driven.end(end)
                raise
            finally:
                driven.driving = None
                self._let_go(driven)

        driven.driving = asyncio.create_task(drive())
        return True

    # The timers.

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _keep(self) -> None:
        """Settle what is due and tell what is settled, until the end, or until a newer incarnation lives."""
        while True:
            self._woken = asyncio.get_running_loop().create_future()
            self._next_at_ms = UNLIMITED  # what is opened while we look is looked at again
            try:
                pause_ms = await self._tidy()
            except Fenced as fenced:
                self._stop_fenced(fenced)
                return
            except Exception:  # whatever it is, horizons must go on being kept
                logger.warning("the timers could not be kept: they are looked at again soon", exc_info=True)
                pause_ms = LOOK_AGAIN_MS
            except BaseException as end:
                self._stop(end)
                raise
            self._next_at_ms = self._timer.now_ms() + pause_ms
            await self._timer.pause(pause_ms, self._woken)

    async def _tidy(self) -> int:
        """Settle every request that is past its horizon, tell every outcome; how long until there is more to do."""
        pause_ms = LOOK_EVERY_MS
        admit(self.incarnation, await self._store.living())  # or who waits here would never hear of it
        for request_id, filed in await self._store.unfinished():
            with self._using(request_id) as driven:
                request = filed.request
                if request.status is Status.OPEN and spec.due(request, self._timer.now_ms()):
                    with suppress(Refused):  # settled by its attempt meanwhile
                        request = (await driven.steps.fire()).request
                if request.status is Status.OPEN:
                    pause_ms = min(pause_ms, max(1, request.expires_at_ms - self._timer.now_ms()))
                else:
                    driven.end()
                    self._tell(driven)
        return pause_ms

    def _tell(self, driven: Driven) -> None:
        if driven.telling is None:
            driven.telling = asyncio.create_task(self._told(driven))

    async def _told(self, driven: Driven) -> None:
        """Tell one outcome, then record that it was told."""
        request_id = driven.steps.request_id
        try:
            view = RequestView.of(request_id, await driven.steps.filed(), self.incarnation)
            if view.told:
                return
            if self._on_outcome is not None:
                answer = self._on_outcome(view)
                if inspect.isawaitable(answer):
                    await answer
            elif view.status is not Status.SUCCEEDED:
                logger.warning("request %r %s: %s", request_id, view.status.value, REASONS[view.reason])
            await driven.steps.tell()
        except Fenced as fenced:
            self._stop_fenced(fenced)
        except Exception:
            logger.warning(
                "the outcome of %r was not told, or that not recorded: again later", request_id, exc_info=True
            )
        finally:
            driven.telling = None
            self._let_go(driven)

    # The end.

    def _stop_fenced(self, fenced: Fenced) -> None:
        """A newer incarnation serves the store: nothing goes on here, and whoever asks is told so."""
        if self._fenced is None:
            logger.warning("the requests are served here no more: %s", fenced)
        self._fenced = fenced
        self._stop(fenced)

    def _stop(self, why: BaseException) -> list[asyncio.Task[None]]:
        """End everything, telling *why* to who waits; the tasks that were told to end."""
        if self._life is not None:
            self._life.alive = False
        tasks = [task for driven in self._known.values() for task in driven.stop(why)]
        tasks += [self._keeping] if self._keeping is not None else []
        current = asyncio.current_task()
        ending = [task for task in tasks if task is not current]
        for task in ending:
            task.cancel()
        return ending

    async def _end(self, why: BaseException) -> None:
        tasks = self._stop(why)
        self._life = self._keeping = None
        try:
            left = (await asyncio.wait(tasks, timeout=LEAVE_MAX_MS / 1_000))[1] if tasks else ()
            if left:
                logger.warning("%s calls of on_outcome go on, though they were cancelled", len(left))
        finally:
            self._entered = False
