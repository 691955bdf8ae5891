"""The holds that a door knows: how they come in, who is there for them, and what is due.

A door keeps one :class:`Keeper` from the moment that it enters. It renews leases, reconciles, starts the waits and the
releases as tasks, and ends them all with the door.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from typing import TypeVar, cast

from deadreckon.spec.errors import Refused
from deadreckon.spec.hold_state import Caller, Fact, HoldPolicy, Told, Wait
from deadreckon.spec.hold_words import outcome

from .hold_journal import Held, Journal, JournalUnavailable, NoSuchHold
from .hold_memory import Asked, Life
from .hold_parked import Pace, Parked, tidy, watch
from .hold_release import Effect, ended, released
from .hold_steps import Steps
from .hold_words import Grant
from .store import Fenced, StoreClosed, StoreFault
from .waiting import to_the_end

T = TypeVar("T")

logger = logging.getLogger("deadreckon.hold")

ENDS = {Told.EXPIRED, Told.ABANDONED, Told.LAPSED, Told.IN_DOUBT}
"""Outcomes after which there is nothing to release, and never was."""


class Keeper:
    """The holds of one door.

    Args:
        journal: where they are kept.
        life: the door.
        policy: the limits.
        lease_ms: how long a caller that was cut off may take to come back.
        every_ms: how often to look for what is due.
    """

    def __init__(self, journal: Journal, life: Life, policy: HoldPolicy, lease_ms: int, every_ms: int) -> None:
        self.life = life
        self._journal = journal
        self._policy = policy
        self._pace = Pace(journal, policy)
        self._lease_ms = lease_ms
        self._every_ms = every_ms
        self._holds: dict[str, Parked] = {}
        self._tidying = asyncio.Lock()
        self._keeping: asyncio.Task[None] | None = None
        self._closing: Exception | None = None

    def begin(self) -> None:
        """Renew leases and reconcile from now on."""
        self._keeping = asyncio.create_task(self._keep())

    async def end(self, why: Exception) -> None:
        """End all waits, telling *why*; releases under way end by themselves, or when this is cancelled."""
        self._closing = why
        tasks = self._stop(why)
        releases = [task for parked in self._holds.values() for task in parked.releases.values()]
        try:
            if releases:
                await asyncio.wait(releases)
        finally:
            for task in releases:
                task.cancel()
            await asyncio.gather(*tasks, *releases, return_exceptions=True)
            self.life.alive = False
            await self.life.events.catch_up()

    async def park(self, asked: Asked, callers: int, patience_ms: int) -> Parked:
        """Make a request durable that so many callers wait for, asking again while the journal doesn't acknowledge it."""
        steps = Steps(self._journal, self.life, uuid.uuid4().hex, self._policy, self._lease_ms)
        minted = steps.hold_id
        parked = self._holds[minted] = Parked(steps, parking=True, waiting=callers)
        try:
            until_ms = self._journal.now_ms() + patience_ms
            await self._pace.insist(lambda: steps.ask(asked), until_ms)
        except JournalUnavailable as failure:
            raise JournalUnavailable(str(failure), hold_id=minted) from failure
        except Refused:
            self._still_open()
            raise
        finally:
            parked.parking = False
            if self._holds.get(minted) is parked:
                del self._holds[minted]
        self._still_open()
        known = self._holds.get(steps.hold_id)
        if steps.hold_id == minted and known is None:
            self._holds[minted] = parked
            self._watch(parked)
            return parked
        if known is None or known.parking:  # whoever is still parking it may give up: it is no place to wait at
            known = self._taken_in(cast("Held", steps.held))
        known.waiting += callers
        try:
            await self.rejoin(known)
        except BaseException:
            known.waiting -= callers
            raise
        return known

    def _still_open(self) -> None:
        if self._closing is not None:
            raise self._closing

    async def found(self, hold_id: str) -> Parked:
        """A hold that this door knows, or that the journal does."""
        if hold_id not in self._holds:
            held = (await self._journal.read(hold_id)).held
            if held is None:
                raise NoSuchHold(f"the journal has no hold {hold_id!r}")
            return self._holds.get(hold_id) or self._taken_in(held)
        return self._holds[hold_id]

    async def rejoin(self, parked: Parked) -> None:
        """The caller is there again, and what is due for its hold is done."""
        with suppress(Refused):
            await parked.steps.attach()
        async with self._tidying:
            await self._tidied(parked)
        self._still_open()

    async def answered(self, parked: Parked, positions: range) -> Grant:
        """Wait for the end of the wait, and say what the journal says."""
        try:
            await parked.over.wait()
            if parked.failure is not None:
                raise parked.failure
            grant = await self._grant(parked, positions)
            parked.grants.add(grant)
            return grant
        finally:
            await self.gone(parked)

    async def gone(self, parked: Parked) -> None:
        """One caller less waits."""
        parked.waiting -= 1
        await self._detach(parked)

    async def dropped(self, grant: Grant, *, goodbye: bool) -> None:
        """A caller gives its grant back, or is cut off."""
        parked = self._holds.get(grant.hold_id)
        if parked is not None:
            parked.grants.discard(grant)
            await to_the_end(self._detach(parked, goodbye=goodbye))

    def begin_release(self, parked: Parked, request: int, effect: Effect[T], patience_ms: int) -> asyncio.Task[T]:
        """Release a request, in a task of the door's."""
        self._still_open()
        task = asyncio.create_task(released(parked, request, effect, self._pace, patience_ms))
        parked.releases[request] = cast("asyncio.Task[object]", task)

        def end(task: asyncio.Task[T]) -> None:
            del parked.releases[request]
            if not task.cancelled():
                task.exception()  # seen: whoever waits for the task has it, and if nobody does, it is in the journal

        task.add_done_callback(end)
        return task

    async def reconcile(self) -> None:
        """Append what is due for every hold that lacks a terminal fact; done at boot and on a cadence.

        Raises:
            StoreFault: the journal failed; what is due stays due.
        """
        await self.life.events.catch_up()
        async with self._tidying:
            unfinished = await self._journal.unfinished()
            for held in sorted(unfinished, key=lambda held: held.hold.deadline_at_ms):
                parked = self._holds.get(held.hold_id) or self._taken_in(held)
                if not parked.parking:
                    await self._tidied(parked)
            for hold_id in [hold_id for hold_id, parked in self._holds.items() if parked.idle]:
                del self._holds[hold_id]

    def _taken_in(self, held: Held) -> Parked:
        steps = Steps(self._journal, self.life, held.hold_id, self._policy, self._lease_ms, held)
        parked = self._holds[held.hold_id] = Parked(steps)
        parked.over.set()
        return parked

    async def _tidied(self, parked: Parked) -> None:
        await tidy(parked)
        if not parked.watched:
            parked.failure = None  # the journal has answered
            if parked.steps.memory.wait is not Wait.IDLE:
                self._watch(parked)

    def _watch(self, parked: Parked) -> None:
        if self._closing is not None:  # nobody would end this wait
            parked.failure = self._closing
            return
        parked.failure = None
        parked.over.clear()
        parked.watching = asyncio.create_task(self._watched(parked))

    async def _watched(self, parked: Parked) -> None:
        try:
            await watch(self._journal, parked.steps)
        except JournalUnavailable as failure:
            parked.failure = JournalUnavailable(str(failure), hold_id=parked.steps.hold_id)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as end:
            parked.failure = parked.failure or end
            raise
        except BaseException as failure:  # for whoever waits; the hold is taken up again by the reconciliation
            parked.failure = failure
        finally:
            parked.over.set()

    async def _grant(self, parked: Parked, positions: range) -> Grant:
        """A grant if anything was approved and may be released, or was; else the end."""
        steps = parked.steps
        held = cast("Held", steps.held)
        if held.hold.fact is Fact.OPEN:
            raise JournalUnavailable("the hold has no end yet", hold_id=steps.hold_id)
        outcomes = tuple(outcome(held.hold, at) for at in positions)
        with suppress(Refused, StoreFault):  # nothing to tell yet, or told before
            await steps.tell_all(positions)
        approved = [told for told in outcomes if told is not Told.REFUSED]
        if not approved:
            raise ended(Told.REFUSED, steps.hold_id, None, held)
        if len(set(approved)) == 1 and approved[0] in ENDS:
            raise ended(approved[0], steps.hold_id, None, held)
        return Grant(held, outcomes, positions)

    async def _detach(self, parked: Parked, *, goodbye: bool = False) -> None:
        """Record that nobody is there, if so; what the journal can't take now, the reconciliation does later."""
        if self._closing is not None or parked.wanted or parked.steps.held is None or parked.steps.held.finished:
            return
        with suppress(Refused, StoreFault):
            await parked.steps.detach()
            if goodbye:
                await parked.steps.leave(goodbye=True)
                await tidy(parked)

    async def _keep(self) -> None:
        """Renew leases and reconcile, until the door is left or fenced."""
        while True:
            await self._journal.timer.pause(self._every_ms)
            try:
                await self._renew()
                await self.reconcile()
            except JournalUnavailable:
                continue
            except (Fenced, StoreClosed) as end:  # neither ever passes
                self._stop(end, but=asyncio.current_task())
                return
            except Exception:  # whatever it is, leases must go on being renewed
                logger.warning("the door could not reconcile its holds", exc_info=True)

    async def _renew(self) -> None:
        there = [
            hold_id
            for hold_id, parked in self._holds.items()
            if parked.wanted and parked.steps.held is not None and parked.steps.hold.caller is Caller.ATTACHED
        ]
        if there:
            await self._journal.renew(self.life.door, there, self._journal.now_ms() + self._lease_ms)

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
