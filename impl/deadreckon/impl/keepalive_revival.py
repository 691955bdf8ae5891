"""One revival of a host: arm, tell, act; then the turn that takes up what is owed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from deadreckon.spec.errors import Refused
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, State
from deadreckon.spec.keepalive_words import told

from .keepalive_kept import DiedEarly, Hooks, Kept, OnEvidence, Turn, Work, insist, logger
from .keepalive_words import Revival
from .store import Fenced, StoreFault
from .timer import Timer
from .waiting import is_own, raise_exit


class Reviver:
    """Revives hosts, as one incarnation.

    Args:
        policy: the limits.
        timer: source of the time.
        hooks: what is done to hosts.
        on_evidence: told of crash loops.
    """

    def __init__(self, policy: KeepalivePolicy, timer: Timer, hooks: Hooks, on_evidence: OnEvidence | None) -> None:
        self.incarnation = 0
        self._policy = policy
        self._timer = timer
        self._hooks = hooks
        self._on_evidence = on_evidence

    async def revive(self, kept: Kept) -> None:
        """Everything from the record of a revival to its return; the turn goes on in a task of its own."""
        await self._hooks.put_down(kept.host)
        steps = kept.steps
        try:
            await insist(self._timer, steps.arm)
            await insist(self._timer, lambda: self.tell(kept))
            state = await insist(self._timer, steps.act)
        except Refused:  # the count was cleared meanwhile
            with suppress(Refused):
                await insist(self._timer, steps.stand_down)
            return
        works = self._taken_up(kept, state)
        owed = tuple(work.work_id for work in works if work.work_id)
        try:
            turn = await self._hooks.deliver(Revival(kept.host, state.record.revivals, owed, self.incarnation))
        except BaseException as error:
            if not is_own(error):
                raise
            words = (state.record.revivals, kept.host, error if isinstance(error, DiedEarly) else type(error).__name__)
            traceback = not isinstance(error, DiedEarly)
            logger.warning("revival %s of host %s failed: %s", *words, exc_info=traceback)
            await self._failed(kept, works)
            raise_exit(error)
        else:
            await insist(self._timer, steps.succeed)
            kept.turn = asyncio.create_task(self._turned(kept, turn, works))

    def _taken_up(self, kept: Kept, state: State) -> list[Work]:
        """The work that the revival has set going."""
        ids = kept.steps.filed.owed
        slots = [slot for slot, since_ms in enumerate(state.running_since_ms) if since_ms != NEVER]
        works = [
            Work(slot, ids[slot] if slot < len(ids) else "", None, recovered=True)
            for slot in slots
            if slot not in kept.works
        ]
        kept.works.update({work.slot: work for work in works})
        return works

    async def _failed(self, kept: Kept, works: list[Work]) -> None:
        """A revival that failed has nothing in flight: so the next look finds no busy host."""
        for work in works:
            await self.finish(kept, work, False)
        with suppress(Refused):
            await insist(self._timer, kept.steps.fail)

    async def _turned(self, kept: Kept, turn: Turn, works: list[Work]) -> None:
        """How the turn ends is how all that was taken up ends, but for what is supervised by itself."""
        failure: BaseException | None = None
        try:
            await turn()
        except BaseException as error:
            if not is_own(error):
                raise
            failure = error
            logger.warning("the turn of a revival of host %s failed", kept.host, exc_info=True)
        for work in works:
            with suppress(StoreFault):
                await self.finish(kept, work, failure is None)
        if kept.turn is asyncio.current_task():
            kept.turn = None
        raise_exit(failure)

    async def finish(self, kept: Kept, work: Work, ok: bool) -> bool:
        """Work has ended; whether it was still in flight.

        Raises:
            StoreFault: a good end could not be written for one lead; what it owed is still owed.
        """
        if kept.works.get(work.slot) is not work:
            return False
        settle = kept.steps.settle if ok else kept.steps.settle_failed
        try:
            await insist(self._timer, lambda: settle(work.slot), self._policy.lead_ms if ok else 0)
        except Refused:  # it was put down while its end was on the way
            return False
        except StoreFault as fault:
            if kept.works.get(work.slot) is work and not isinstance(fault, Fenced):
                kept.steps.forget(work.slot)
            if ok:
                raise
        finally:
            if kept.works.get(work.slot) is work:
                del kept.works[work.slot]
        return True

    async def tell(self, kept: Kept) -> None:
        """People are told, if it is time and they were not; durable when this returns (K9)."""
        state = kept.steps.seen(kept.steps.filed)
        if told(self._policy, state, state.record):
            return
        await kept.steps.report()
        text = kept.steps.filed.evidence[-1].text
        logger.warning("%s", text)
        if self._on_evidence is None:
            return
        try:
            answer = self._on_evidence(kept.host, text)
            if answer is not None:
                await answer
        except BaseException as error:
            if not is_own(error):
                raise
            logger.warning("on_evidence failed; the fact is in the store, and stays", exc_info=True)
            raise_exit(error)
