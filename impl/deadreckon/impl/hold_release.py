"""One release, from the durable start over the effect to the durable outcome.

The order is the promise: started durably, then called, then settled durably, then told (H4, H5). It runs in a task of
the door's, so that a caller whose task is cancelled can't tear it: an effect that was begun is settled. If the effect
itself is cancelled, or ends in another way that is no answer, its release is in doubt: settled ``unknown`` at once, or
owed again if it is idempotent (H15).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar, cast

from deadreckon.spec.errors import Refused
from deadreckon.spec.hold_state import Call, Release, State, Told
from deadreckon.spec.hold_words import outcome

from .hold_journal import Held
from .hold_memory import ONLY
from .hold_parked import Pace, Parked
from .hold_steps import Steps
from .hold_words import HoldAbandoned, HoldEnd, HoldExpired, HoldLapsed, HoldRefused, HoldSettled, InDoubt
from .store import StoreFault
from .waiting import to_the_end

T = TypeVar("T")

Effect = Callable[[str], Awaitable[T]]
"""``await effect(release_id)``: the upstream call. A release that is run again has the same id."""


async def released(parked: Parked, request: int, effect: Effect[T], pace: Pace, patience_ms: int) -> T:
    """Start, call, settle, tell; the result of the effect."""
    steps = parked.steps
    await pace.insist(lambda: _start(steps, request), _horizon_ms(steps, pace))
    if not parked.wanted:
        raise HoldLapsed("its caller left before the effect", steps.hold_id, request)
    await _call(steps, request)
    try:
        answer = effect(f"{steps.hold_id}/{request}")
        awaitable = inspect.isawaitable(answer)
        result = await answer if awaitable else cast("T", None)
    except Exception as error:
        await _settle(steps, request, False, pace, patience_ms, error)
        raise
    except BaseException:  # cancelled, mostly: nobody knows whether it happened
        await to_the_end(_lost(steps, request))
        raise
    if not awaitable:  # whatever it did is done, or goes on unseen
        await to_the_end(_lost(steps, request))
        raise InDoubt(f"the effect returned {answer!r:.60}: give an async function", steps.hold_id, request)
    await _settle(steps, request, True, pace, patience_ms, None)
    return result


def _horizon_ms(steps: Steps, pace: Pace) -> int:
    """Until when a journal that is away is worth trying."""
    return steps.hold.deadline_at_ms + pace.policy.release_grace_ms


async def _start(steps: Steps, request: int) -> None:
    """Make it durable that the release starts; or take up, under the same id, one that an earlier door left."""
    try:
        await steps.start_release(request)
    except Refused as refusal:
        failure = await _given_up(steps, request, refusal)
        if steps.hold.calls[request] is not Call.OWED:
            raise failure from None


async def _call(steps: Steps, request: int) -> None:
    """The last word before the effect: whether it is in time (H2), and its caller still there (H12)."""
    try:
        await steps.call(request)
    except Refused as refusal:
        failure = _why_not(steps, request, refusal)
        with suppress(StoreFault):
            failure = await _given_up(steps, request, refusal)
        raise failure from None


async def _given_up(steps: Steps, request: int, refusal: Refused) -> Exception:
    """Settle a release that can't be made, if that is due; why it can't. In doubt and resumable, it is owed again."""
    failure = _why_not(steps, request, refusal)
    with suppress(Refused):
        await steps.lapse(request)
        failure = HoldLapsed("it was not called in time, or its caller was gone", steps.hold_id, request)
    with suppress(Refused):
        await steps.settle_unknown(request)
    return failure


async def _lost(steps: Steps, request: int) -> None:
    """The effect was cancelled: nobody knows whether it happened (H15). A journal that is away is told later."""
    await steps.lose_track(request)
    with suppress(StoreFault, Refused):
        await steps.settle_unknown(request)


async def _settle(
    steps: Steps, request: int, succeeds: bool, pace: Pace, patience_ms: int, error: Exception | None
) -> None:
    """Make the outcome durable, or say that it is not (H5)."""
    await steps.answer(request, succeeds)
    try:
        await pace.insist(lambda: steps.settle(request), pace.journal.now_ms() + patience_ms)
    except Exception as failure:  # whatever it was, the effect may have happened: that comes first
        doubt = InDoubt("the effect was called, and its outcome could not be recorded", steps.hold_id, request)
        raise doubt from (error or failure)
    with suppress(StoreFault, Refused):
        await steps.tell(request)


def _why_not(steps: Steps, request: int, refusal: Refused) -> Exception:
    """The typed form of the refusal to release."""
    if not isinstance(refusal.state, State):
        return refusal
    hold = refusal.state.holds[ONLY]
    told = outcome(hold, request)
    if told is Told.NOTHING and hold.releases[request] is Release.STARTED:
        return InDoubt("its release was started, and has no outcome yet", steps.hold_id, request)
    if told is Told.NOTHING:
        return refusal
    return ended(told, steps.hold_id, request, steps.held)


def ended(told: Told, hold_id: str, request: int | None, held: Held | None = None) -> HoldEnd:
    """The typed form of an outcome."""
    match told:
        case Told.EXPIRED:
            return HoldExpired("nobody decided in time", hold_id, request)
        case Told.ABANDONED:
            return HoldAbandoned("its caller did not come back", hold_id, request)
        case Told.LAPSED:
            return HoldLapsed("it was not started in time, or its caller was gone", hold_id, request)
        case Told.IN_DOUBT:
            return InDoubt("a door died during its release", hold_id, request)
        case Told.REFUSED:
            return HoldRefused(hold_id, held.by if held else "an approver", held.reason if held else "", request)
        case _:
            return HoldSettled(told, hold_id, request or 0)
