"""The hold for asyncio services: park requests for a person's approval, and release each at most once, or not at all.

Theory of operation
    ``await door.ask(...)`` parks requests as one hold and waits for its end; ``await door.release(grant, index,
    effect)`` runs what was approved. All that is decided is decided by ``deadreckon.spec.hold``, in the transactions of
    the journal; what is decided here is only in which order its actions are asked for. The parts: one wait for each
    hold and what is due for it (``hold_parked.py``), all holds of a door (``hold_keeper.py``), one release
    (``hold_release.py``), grouping (``hold_groups.py``).

    A door that enters fences all earlier ones, and reconciles: overdue holds expire; open ones are taken up, and their
    callers have one lease to come back with :meth:`Door.attach`; releases in doubt are settled ``unknown``, or wait for
    their caller to run them again, if the policy declares them idempotent. It does so again on a cadence.

Who is there
    A caller is there while its ``ask`` or ``attach`` waits, and then for as long as anybody keeps its ``Grant``.
    When its task is cancelled, or the grant is dropped, it is detached: it has one lease to come back, then it is gone,
    and its hold is abandoned, or what was approved lapses. Leaving ``async with door.hold(...)`` says goodbye at once.

Decided conflicts
    * A cancelled caller does not cancel an effect that was begun: it runs on, and is settled. Leaving the door waits
      for such effects; cancel that too, and they are in doubt: settled ``unknown``, or run again if idempotent.
    * If the deadline comes while the journal is away, the caller is told ``JournalUnavailable``: what became of the
      hold is not known before the journal is back. ``attach`` tells.
    * A success that can't be settled within ``settle_patience_ms`` is told as ``InDoubt``; the door goes on trying.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TypeVar, cast

import attrs

from deadreckon.spec.errors import CallerError, PolicyError
from deadreckon.spec.hold_state import DEBOUNCE_MAX_MS, Caller, HoldPolicy

from .events import Sink
from .hold_checks import check_span, check_text, checked_requests
from .hold_groups import Groups, Seat
from .hold_journal import Journal, JournalUnavailable
from .hold_keeper import Keeper
from .hold_memory import Asked, boot
from .hold_parked import Parked
from .hold_release import Effect
from .hold_words import DoorClosed, Grant, InDoubt

T = TypeVar("T")


class Door:
    """The door of one journal: ``async with Door(journal) as door``. The journal is not closed at the end.

    Args:
        journal: where holds are kept; its clock is the only one.
        policy: the limits.
        debounce_ms: requests of one caller and rule that come closer than this become one hold; None: never.
        caller_lease_ms: how long a caller that was cut off may take to come back.
        reconcile_every_ms: how often the door looks for what is due.
        park_patience_ms: how long a request is sent again while the journal doesn't acknowledge it.
        settle_patience_ms: how long a caller waits for the outcome of its effect to become durable.
        sink: told what happens, the facts of the journal included; see ``events.py``.
    """

    def __init__(
        self,
        journal: Journal,
        policy: HoldPolicy | None = None,
        *,
        debounce_ms: int | None = 100,
        caller_lease_ms: int = 30_000,
        reconcile_every_ms: int = 5_000,
        park_patience_ms: int = 30_000,
        settle_patience_ms: int = 30_000,
        sink: Sink | None = None,
    ) -> None:
        if debounce_ms is not None:
            check_span("debounce_ms (None for never)", debounce_ms, 0, DEBOUNCE_MAX_MS)
        check_span("caller_lease_ms", caller_lease_ms, 1)
        check_span("reconcile_every_ms", reconcile_every_ms, 1)
        check_span("park_patience_ms", park_patience_ms, 0)
        check_span("settle_patience_ms", settle_patience_ms, 0)
        self.policy = HoldPolicy() if policy is None else policy
        if not isinstance(self.policy, HoldPolicy):
            raise PolicyError(f"policy is {policy!r:.60}: give a HoldPolicy")
        self._journal = journal
        self._lease_ms = caller_lease_ms
        self._every_ms = min(reconcile_every_ms, max(1, caller_lease_ms // 3))  # a lease survives two missed renewals
        self._park_patience_ms = park_patience_ms
        self._settle_patience_ms = settle_patience_ms
        self._debounce_ms = debounce_ms
        self._sink = sink
        self._groups: Groups | None = None
        self._keeper: Keeper | None = None

    async def __aenter__(self) -> Door:
        if self._keeper is not None:
            raise CallerError("the door is open already: make one for each 'async with'")
        life = await boot(self._journal, self._sink)
        keeper = Keeper(self._journal, life, self.policy, self._lease_ms, self._every_ms)
        try:
            with suppress(JournalUnavailable):
                await keeper.reconcile()
        except BaseException:
            await keeper.end(DoorClosed("the door never opened"))
            raise
        keeper.begin()
        self._keeper = keeper
        self._groups = None if self._debounce_ms is None else Groups(self._journal.timer, self._debounce_ms)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nobody is let in any more; effects under way end and are settled. Holds stay, for the next door."""
        closed = DoorClosed("the door was closed; the hold goes on: attach to it at the next door")
        keeper, self._keeper = self._living(), None
        if self._groups is not None:
            await self._groups.close(closed)
        await keeper.end(closed)

    @property
    def door(self) -> int:
        """The identity of this door."""
        return self._living().life.door

    async def ask(
        self,
        requests: Sequence[str],
        hold_ms: int | None = None,
        *,
        caller: str = "",
        rule: str = "",
        key: str | None = None,
        horizon_ms: int | None = None,
    ) -> Grant:
        """Park *requests* and wait for the decision.

        Args:
            requests: one text each, as approvers see it: a digest, or canonical JSON; no secrets.
            hold_ms: from now to the deadline; the policy's without it.
            caller, rule: requests of the same caller and rule become one hold; without a caller, or with a *key* or a
                *horizon_ms* of its own, they never do.
            key: makes a repetition known: the same key, requests, caller and hold_ms are the same hold, at any door.
            horizon_ms: how long the caller itself can wait, from now; a hold that would last longer is refused.

        Raises:
            HoldRefused, HoldExpired, HoldAbandoned, HoldLapsed, InDoubt: the end of the hold.
            KeyConflict: the key stands for other requests.
            JournalUnavailable: it is not known what became of it; repeat it with the same *key*, or attach.
        """
        keeper = self._living()
        policy = self.policy if hold_ms is None else attrs.evolve(self.policy, hold_ms=hold_ms)
        if horizon_ms is not None and (type(horizon_ms) is not int or policy.hold_ms > horizon_ms):
            raise PolicyError(f"hold_ms is {policy.hold_ms}, and the caller waits for {horizon_ms!r} only: give less")
        batch = checked_requests(requests)
        check_text(caller=caller, rule=rule, key="" if key is None else key)
        latest_at_ms = None if horizon_ms is None else self._journal.now_ms() + horizon_ms
        if self._groups is not None and caller and key is None and horizon_ms is None:
            parked, positions = await self._seated(keeper, self._groups, (caller, rule), batch, policy)
        else:
            asked = Asked(batch, caller, key or uuid.uuid4().hex, policy, latest_at_ms)
            parked = await keeper.park(asked, 1, self._park_patience_ms)
            positions = range(len(batch))
        return await keeper.answered(parked, positions)

    @asynccontextmanager
    async def hold(
        self,
        requests: Sequence[str],
        hold_ms: int | None = None,
        *,
        caller: str = "",
        rule: str = "",
        key: str | None = None,
        horizon_ms: int | None = None,
    ) -> AsyncIterator[Grant]:
        """:meth:`ask`, for the body of the ``async with``: what it did not release by its end lapses."""
        keeper = self._living()
        grant = await self.ask(requests, hold_ms, caller=caller, rule=rule, key=key, horizon_ms=horizon_ms)
        goodbye = True
        try:
            yield grant
        except asyncio.CancelledError:
            goodbye = False  # cut off, not gone
            raise
        finally:
            await keeper.dropped(grant, goodbye=goodbye)

    async def attach(self, hold_id: str) -> Grant:
        """Come back to a hold: wait for its decision, or get what was recorded meanwhile.

        Raises:
            NoSuchHold: the journal doesn't know it.
            HoldRefused, HoldExpired, HoldAbandoned, HoldLapsed, InDoubt: the end of the hold.
            JournalUnavailable: try again.
        """
        keeper = self._living()
        check_text(hold_id=hold_id)
        parked = await keeper.found(hold_id)
        parked.waiting += 1
        try:
            await keeper.rejoin(parked)
        except BaseException:
            parked.waiting -= 1
            raise
        return await keeper.answered(parked, range(len(parked.steps.hold.releases)))

    async def release(self, grant: Grant, index: int, effect: Effect[T]) -> T:
        """Run *effect* for an approved request: its start is durable before, its outcome before this returns.

        *effect* is an async function; one that returns no awaitable has been called, and is in doubt.

        A second call while the first one runs joins it. An effect that raises is settled as an error, and its
        exception is raised here; other requests of the hold are not touched.

        Raises:
            HoldRefused: the request was not approved.
            HoldLapsed: too late, or the caller was gone: no effect.
            HoldSettled: it was released before.
            InDoubt: it may have happened: look at the upstream.
            JournalUnavailable: the journal was away until the grace had ended: no effect.
        """
        keeper = self._living()
        if not isinstance(grant, Grant):
            raise CallerError(f"grant is {grant!r:.60}: give what 'ask', 'hold' or 'attach' returned")
        if type(index) is not int or not 0 <= index < len(grant.positions):
            raise CallerError(f"index is {index!r}: give 0 to {len(grant.positions) - 1}")
        if not callable(effect):
            raise CallerError(f"effect is {effect!r:.60}: give an async function of the release id")
        parked = await keeper.found(grant.hold_id)
        request = grant.positions[index]
        parked.grants.add(grant)
        there = parked.steps.hold.caller is Caller.ATTACHED and parked.steps.memory.judged
        if request not in parked.releases and not there:
            await keeper.rejoin(parked)
        task = cast("asyncio.Task[T] | None", parked.releases.get(request))  # the one who began it knows its type
        if task is not None and task is asyncio.current_task():
            raise CallerError("this is the effect of that very request: it can't wait for itself")
        if task is None:
            task = keeper.begin_release(parked, request, effect, self._settle_patience_ms)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is not None and me.cancelling():
                await keeper.dropped(grant, goodbye=False)
                raise
            raise InDoubt("the effect was cancelled, or never begun", grant.hold_id, index) from None

    async def reconcile(self) -> None:
        """Append what is due for every hold that lacks a terminal fact; done at boot and on a cadence.

        Raises:
            StoreFault: the journal failed; what is due stays due.
        """
        await self._living().reconcile()

    def _living(self) -> Keeper:
        if self._keeper is None:
            raise DoorClosed("the door is not open: use it as 'async with Door(journal) as door'")
        return self._keeper

    async def _seated(
        self, keeper: Keeper, groups: Groups, name: tuple[str, str], batch: tuple[str, ...], policy: HoldPolicy
    ) -> Seat:
        """Wait for the group of that caller and rule to be parked."""

        async def park(requests: tuple[str, ...], callers: int) -> Parked:
            asked = Asked(requests, name[0], uuid.uuid4().hex, policy)
            return await keeper.park(asked, callers, self._park_patience_ms)

        seat = groups.join((*name, policy.hold_ms), batch, park)
        try:
            return await seat
        except asyncio.CancelledError:
            if seat.done() and not seat.cancelled() and seat.exception() is None:
                await keeper.gone(seat.result()[0])
            raise
