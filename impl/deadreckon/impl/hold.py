"""The hold for asyncio services: park requests for a person's approval, and release each at most once, or not at all.

Theory of operation
    ``await door.ask(...)`` parks requests as one hold and waits for its end; ``await door.release(grant, index,
    effect)`` runs what was approved. All that is decided is decided by ``deadreckon.spec.hold``, in the transactions of
    the journal; what is decided here is only in which order its actions are asked for. The parts: one wait for each
    hold and what is due for it (``hold_parked.py``), one release (``hold_release.py``), grouping (``hold_groups.py``).

    A door that enters fences all earlier ones, and reconciles: overdue holds expire; open ones are taken up, and their
    callers have one lease to come back with :meth:`Door.attach`; releases in doubt are settled ``unknown``, or wait for
    their caller to run them again, if the policy declares them idempotent. It does so again on a cadence.

Who is there
    A caller is there while its ``ask`` or ``attach`` waits, and then for as long as anybody keeps its ``Grant``.
    When its task is cancelled, or the grant is dropped, it is detached: it has one lease to come back, then it is gone,
    and its hold is abandoned, or what was approved lapses. Leaving ``async with door.hold(...)`` says goodbye at once.

Decided conflicts
    * A cancelled caller does not cancel an effect that was begun: it runs on, and is settled. Leaving the door waits
      for such effects; cancel that too, and the next door finds them in doubt.
    * If the deadline comes while the journal is away, the caller is told ``JournalUnavailable``: what became of the
      hold is not known before the journal is back. ``attach`` tells.
    * A success that can't be settled within ``settle_patience_ms`` is told as ``InDoubt``; the door goes on trying.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import TypeVar, cast

import attrs

from deadreckon.spec import hold as spec
from deadreckon.spec.errors import CallerError, PolicyError, Refused
from deadreckon.spec.hold_state import DEBOUNCE_MAX_MS, Caller, Fact, HoldPolicy, Told, Wait

from .hold_groups import Groups, Seat
from .hold_memory import Asked, Life, boot
from .hold_parked import Pace, Parked, tidy, watch
from .hold_release import Effect, ended, released
from .hold_steps import Steps
from .hold_words import DoorClosed, Grant, InDoubt
from .journal import Held, Journal, JournalUnavailable, NoSuchHold
from .store import Fenced, StoreFault
from .waiting import to_the_end

T = TypeVar("T")

logger = logging.getLogger("deadreckon.hold")


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
    ) -> None:
        if debounce_ms is not None and not 0 <= debounce_ms <= DEBOUNCE_MAX_MS:
            raise PolicyError(f"debounce_ms is {debounce_ms}: give 0 to {DEBOUNCE_MAX_MS}, or None")
        for name, value in (("caller_lease_ms", caller_lease_ms), ("reconcile_every_ms", reconcile_every_ms)):
            if value < 1:
                raise PolicyError(f"{name} is {value}: give at least 1")
        self.policy = HoldPolicy() if policy is None else policy
        self._journal = journal
        self._pace = Pace(journal, self.policy)
        self._lease_ms = caller_lease_ms
        self._every_ms = min(reconcile_every_ms, max(1, caller_lease_ms // 3))  # a lease survives two missed renewals
        self._park_patience_ms = park_patience_ms
        self._settle_patience_ms = settle_patience_ms
        self._debounce_ms = debounce_ms
        self._life: Life | None = None
        self._groups: Groups | None = None
        self._holds: dict[str, Parked] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._tidying = asyncio.Lock()

    async def __aenter__(self) -> Door:
        self._life = await boot(self._journal)
        self._holds = {}
        self._groups = None if self._debounce_ms is None else Groups(self._journal.timer, self._debounce_ms)
        with suppress(JournalUnavailable):
            await self.reconcile()
        self._keeping = asyncio.create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nobody is let in any more; effects under way end and are settled. Holds stay, for the next door."""
        closed = DoorClosed("the door was closed; the hold goes on: attach to it at the next door")
        life, self._life = self._living(), None
        tasks = self._stop(closed)
        releases = [task for parked in self._holds.values() for task in parked.releases.values()]
        try:
            if self._groups is not None:
                await self._groups.close(closed)
            if releases:
                await asyncio.wait(releases)
        finally:
            for task in releases:
                task.cancel()
            await asyncio.gather(*tasks, *releases, return_exceptions=True)
            life.alive = False

    @property
    def door(self) -> int:
        """The identity of this door."""
        return self._living().door

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
            caller, rule: requests of the same caller and rule become one hold; without a caller, they never do.
            key: makes a repetition known: the same key and requests are the same hold, at any door.
            horizon_ms: how long the caller itself can wait; a longer hold is refused at once.

        Raises:
            HoldRefused, HoldExpired, HoldAbandoned, HoldLapsed, InDoubt: the end of the hold.
            KeyConflict: the key stands for other requests.
            JournalUnavailable: it is not known what became of it; repeat it with the same *key*, or attach.
        """
        self._living()
        policy = self.policy if hold_ms is None else attrs.evolve(self.policy, hold_ms=hold_ms)
        if horizon_ms is not None and policy.hold_ms > horizon_ms:
            raise PolicyError(f"hold_ms is {policy.hold_ms}, and the caller waits for {horizon_ms} only: give less")
        batch = tuple(requests)
        if not batch or not all(isinstance(request, str) for request in batch) or isinstance(requests, str):
            raise CallerError(f"requests are {requests!r}: give at least one text in a list")
        if self._groups is not None and caller and key is None:
            parked, positions = await self._seated(self._groups, batch, caller, rule, policy)
        else:
            parked = await self._park(Asked(batch, caller, key or uuid.uuid4().hex, policy), 1)
            positions = range(len(batch))
        return await self._answered(parked, positions)

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
        grant = await self.ask(requests, hold_ms, caller=caller, rule=rule, key=key, horizon_ms=horizon_ms)
        goodbye = True
        try:
            yield grant
        except asyncio.CancelledError:
            goodbye = False  # cut off, not gone
            raise
        finally:
            await self._dropped(grant, goodbye=goodbye)

    async def attach(self, hold_id: str) -> Grant:
        """Come back to a hold: wait for its decision, or get what was recorded meanwhile.

        Raises:
            NoSuchHold: the journal doesn't know it.
            HoldRefused, HoldExpired, HoldAbandoned, HoldLapsed, InDoubt: the end of the hold.
            JournalUnavailable: try again.
        """
        self._living()
        parked = await self._found(hold_id)
        parked.waiting += 1
        try:
            await self._rejoin(parked)
        except BaseException:
            parked.waiting -= 1
            raise
        return await self._answered(parked, range(len(parked.steps.hold.releases)))

    async def release(self, grant: Grant, index: int, effect: Effect[T]) -> T:
        """Run *effect* for an approved request: its start is durable before, its outcome before this returns.

        A second call while the first one runs joins it. An effect that raises is settled as an error, and its
        exception is raised here; other requests of the hold are not touched.

        Raises:
            HoldRefused: the request was not approved.
            HoldLapsed: too late, or the caller was gone: no effect.
            HoldSettled: it was released before.
            InDoubt: it may have happened: look at the upstream.
            JournalUnavailable: the journal was away until the grace had ended: no effect.
        """
        self._living()
        if not 0 <= index < len(grant.positions):
            raise CallerError(f"index is {index}: give 0 to {len(grant.positions) - 1}")
        parked = await self._found(grant.hold_id)
        request = grant.positions[index]
        parked.grants.add(grant)
        there = parked.steps.hold.caller is Caller.ATTACHED and parked.steps.memory.judged
        if request not in parked.releases and not there:
            await self._rejoin(parked)
        task = cast("asyncio.Task[T] | None", parked.releases.get(request))  # the one who began it knows its type
        if task is None:
            task = self._begun(parked, request, effect)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if me is not None and me.cancelling():
                await self._dropped(grant, goodbye=False)
                raise
            raise InDoubt("the door was closed during the effect", grant.hold_id, index) from None

    async def reconcile(self) -> None:
        """Append what is due for every hold that lacks a terminal fact; done at boot and on a cadence.

        Raises:
            StoreFault: the journal failed; what is due stays due.
        """
        async with self._tidying:
            unfinished = await self._journal.unfinished()
            for held in sorted(unfinished, key=lambda held: held.hold.deadline_at_ms):
                parked = self._holds.get(held.hold_id) or self._taken_in(held)
                if not parked.parking:
                    await self._tidied(parked)
            for hold_id in [hold_id for hold_id, parked in self._holds.items() if parked.idle]:
                del self._holds[hold_id]

    # What follows is not for callers.

    def _living(self) -> Life:
        if self._life is None:
            raise DoorClosed("the door is not open: use it as 'async with Door(journal) as door'")
        return self._life

    async def _seated(self, groups: Groups, batch: tuple[str, ...], caller: str, rule: str, policy: HoldPolicy) -> Seat:
        async def park(requests: tuple[str, ...], callers: int) -> Parked:
            return await self._park(Asked(requests, caller, uuid.uuid4().hex, policy), callers)

        seat = groups.join((caller, rule, policy.hold_ms), batch, park)
        try:
            return await seat
        except asyncio.CancelledError:
            if seat.done() and not seat.cancelled() and seat.exception() is None:
                await self._gone(seat.result()[0])
            raise

    async def _park(self, asked: Asked, callers: int) -> Parked:
        """Make the request durable, asking again under its key while the journal doesn't acknowledge it."""
        steps = Steps(self._journal, self._living(), uuid.uuid4().hex, self.policy, self._lease_ms)
        minted = steps.hold_id
        parked = self._holds[minted] = Parked(steps, parking=True, waiting=callers)
        try:
            until_ms = self._journal.now_ms() + self._park_patience_ms
            await self._pace.insist(lambda: steps.ask(asked), until_ms)
        except JournalUnavailable as failure:
            raise JournalUnavailable(str(failure), hold_id=minted) from failure
        finally:
            parked.parking = False
            del self._holds[minted]
        if steps.hold_id == minted:
            self._holds[minted] = parked
            self._watch(parked)
            return parked
        known = self._holds.get(steps.hold_id) or self._taken_in(cast("Held", steps.held))
        known.waiting += callers
        try:
            await self._rejoin(known)
        except BaseException:
            known.waiting -= callers
            raise
        return known

    async def _found(self, hold_id: str) -> Parked:
        """A hold that this door knows, or that the journal does."""
        if hold_id not in self._holds:
            held = (await self._journal.read(hold_id)).held
            if held is None:
                raise NoSuchHold(f"the journal has no hold {hold_id!r}")
            return self._holds.get(hold_id) or self._taken_in(held)
        return self._holds[hold_id]

    def _taken_in(self, held: Held) -> Parked:
        steps = Steps(self._journal, self._living(), held.hold_id, self.policy, self._lease_ms, held)
        parked = self._holds[held.hold_id] = Parked(steps)
        parked.over.set()
        return parked

    async def _rejoin(self, parked: Parked) -> None:
        """The caller is there again, and what is due for its hold is done."""
        with suppress(Refused):
            await parked.steps.attach()
        async with self._tidying:
            await self._tidied(parked)

    async def _tidied(self, parked: Parked) -> None:
        await tidy(parked, self.policy)
        if not parked.watched:
            parked.failure = None  # the journal has answered
            if parked.steps.memory.wait is not Wait.IDLE:
                self._watch(parked)

    def _watch(self, parked: Parked) -> None:
        parked.failure = None
        parked.over.clear()
        parked.watching = asyncio.create_task(self._watched(parked))

    async def _watched(self, parked: Parked) -> None:
        try:
            await watch(self._journal, parked.steps)
        except JournalUnavailable as failure:
            parked.failure = JournalUnavailable(str(failure), hold_id=parked.steps.hold_id)
        except BaseException as failure:
            parked.failure = parked.failure or failure
            if not isinstance(failure, StoreFault):
                raise
        finally:
            parked.over.set()

    async def _answered(self, parked: Parked, positions: range) -> Grant:
        """Wait for the end of the wait, and say what the journal says."""
        try:
            await parked.over.wait()
            if parked.failure is not None:
                raise parked.failure
            grant = await self._grant(parked, positions)
            parked.grants.add(grant)
            return grant
        finally:
            await self._gone(parked)

    async def _grant(self, parked: Parked, positions: range) -> Grant:
        """A grant if anything was approved and may be released, or was; else the end."""
        steps = parked.steps
        held = cast("Held", steps.held)
        if held.hold.fact is Fact.OPEN:
            raise JournalUnavailable("the hold has no end yet", hold_id=steps.hold_id)
        outcomes = tuple(spec.outcome(held.hold, at) for at in positions)
        for at in positions:
            with suppress(Refused, StoreFault):  # nothing to tell yet, or told before
                await steps.tell(at)
        approved = [told for told in outcomes if told is not Told.REFUSED]
        ends = {Told.EXPIRED, Told.ABANDONED, Told.LAPSED, Told.IN_DOUBT}
        if not approved:
            raise ended(Told.REFUSED, steps.hold_id, None, held)
        if len(set(approved)) == 1 and approved[0] in ends:
            raise ended(approved[0], steps.hold_id, None, held)
        return Grant(held, outcomes, positions)

    async def _gone(self, parked: Parked) -> None:
        """One caller less waits."""
        parked.waiting -= 1
        await to_the_end(self._detach(parked))

    async def _dropped(self, grant: Grant, *, goodbye: bool) -> None:
        parked = self._holds.get(grant.hold_id)
        if parked is not None:
            parked.grants.discard(grant)
            await to_the_end(self._detach(parked, goodbye=goodbye))

    async def _detach(self, parked: Parked, *, goodbye: bool = False) -> None:
        """Record that nobody is there, if so; what the journal can't take now, the reconciliation does later."""
        if self._life is None or parked.wanted or parked.steps.held is None or parked.steps.held.finished:
            return
        with suppress(Refused, StoreFault):
            await parked.steps.detach()
            if goodbye:
                await parked.steps.leave(goodbye=True)
                await tidy(parked, self.policy)

    def _begun(self, parked: Parked, request: int, effect: Effect[T]) -> asyncio.Task[T]:
        task = asyncio.create_task(released(parked, request, effect, self._pace, self._settle_patience_ms))
        parked.releases[request] = cast("asyncio.Task[object]", task)

        def end(task: asyncio.Task[T]) -> None:
            del parked.releases[request]
            if not task.cancelled():
                task.exception()  # seen: whoever waits for the task has it, and if nobody does, it is in the journal

        task.add_done_callback(end)
        return task

    async def _keep(self) -> None:
        """Renew leases and reconcile, until the door is left or fenced."""
        while True:
            await self._journal.timer.pause(self._every_ms)
            try:
                await self._renew()
                await self.reconcile()
            except JournalUnavailable:
                continue
            except Fenced as fenced:
                self._stop(fenced, but=asyncio.current_task())
                return
            except StoreFault:
                logger.warning("the door could not reconcile its holds", exc_info=True)

    async def _renew(self) -> None:
        there = [
            hold_id
            for hold_id, parked in self._holds.items()
            if parked.wanted and parked.steps.held is not None and parked.steps.hold.caller is Caller.ATTACHED
        ]
        if there:
            await self._journal.renew(self.door, there, self._journal.now_ms() + self._lease_ms)

    def _stop(self, why: Exception, but: asyncio.Task[None] | None = None) -> list[asyncio.Task[None]]:
        """End all waits, and tell who waits *why*; the tasks that were told to end."""
        tasks = [parked.watching for parked in self._holds.values() if parked.watched]
        for parked in self._holds.values():
            parked.failure = parked.failure or (why if not parked.over.is_set() else None)
            parked.over.set()
        ending = [task for task in (*tasks, self._keeping) if task is not None and task is not but]
        for task in ending:
            task.cancel()
        return ending
