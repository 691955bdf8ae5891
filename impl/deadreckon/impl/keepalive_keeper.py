"""Who keeps hosts alive: one task that looks at them when they are due, and a task for each revival and its turn.

Nothing is decided here but in which order the actions of the machine are asked for. What a revival does, and how a host
is put down, is for :class:`.keepalive_kept.Hooks`: a keepalive calls a function of the service, a supervisor starts a child.
"""

from __future__ import annotations

import asyncio
import functools
import random
import signal
from typing import Final

from deadreckon.spec.errors import Refused
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, Pass, State

from .events import Emitter
from .keepalive_kept import AGAIN_FIRST_MS, SLEEP_MAX_MS, Hooks, Kept, OnEvidence, Work, logger
from .keepalive_revival import Reviver
from .keepalive_steps import Life, Steps, enter
from .keepalive_store import KeepaliveStore
from .keepalive_words import KeepaliveClosed, PutDown, WorkInFlight
from .store import Fenced, StoreFault
from .timer import Timer

LOOK_MAX_MS: Final = 5_000
"""The longest time between two looks for what other processes have written. It is half of the lead if that is less: what
a person resets is due one lead later (K6), and is seen before."""


class Keeper:
    """Keeps the hosts of one store alive, as one incarnation.

    Args:
        store: where they are kept.
        policy: the limits.
        timer: source of the time.
        version: the name of the version that runs; another than the last is a deploy.
        hooks: what is done to hosts.
        on_evidence: told of crash loops.
        chance: source of the jitter.
        emit: told what happens.
    """

    def __init__(
        self,
        store: KeepaliveStore,
        policy: KeepalivePolicy,
        timer: Timer,
        *,
        version: str,
        hooks: Hooks,
        on_evidence: OnEvidence | None,
        chance: random.Random,
        emit: Emitter,
    ) -> None:
        self.store = store
        self.policy = policy
        self.timer = timer
        self.hosts: dict[str, Kept] = {}
        self._version = version
        self._hooks = hooks
        self._reviver = Reviver(policy, timer, hooks, on_evidence)
        self._chance = chance
        self._emit = emit
        self._life: Life | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._woken: asyncio.Future[None] | None = None
        self._fenced: Fenced | None = None
        self._waiting: list[asyncio.Future[signal.Signals]] = []
        self._changes = 0
        self._adopting = asyncio.Lock()
        self._ending: list[asyncio.Task[None]] = []

    # Its life.

    async def enter(self) -> None:
        """Begin: earlier incarnations are dead from now on."""
        self._life = await enter(self.store, self._version, self.policy)
        self._reviver.incarnation = self._life.claim.incarnation
        self.hosts, self._fenced = {}, None
        self._changes = await self.store.changes()
        self._keeping = asyncio.create_task(self._keep())

    async def leave(self) -> None:
        """End. What is owed stays owed, for the next incarnation."""
        tasks = self._stop(KeepaliveClosed("hosts are kept alive here no more; what is owed goes on at the next"))
        self._life = self._keeping = None
        if tasks:
            await asyncio.wait(tasks)

    @property
    def life(self) -> Life:
        """This incarnation.

        Raises:
            KeepaliveClosed: there is none.
            Fenced: a newer one lives.
        """
        if self._fenced is not None:
            raise self._fenced
        if self._life is None:
            raise KeepaliveClosed("hosts are not kept alive here: use 'async with'")
        return self._life

    def end_when_fenced(self, waiting: asyncio.Future[signal.Signals]) -> None:
        """Let *waiting* fail with :class:`Fenced` as soon as a newer incarnation is known to live."""
        if self._fenced is None:
            self._waiting.append(waiting)
        else:
            waiting.set_exception(self._fenced)

    async def adopt(self, host: str, *, boots: bool) -> Kept:
        """Keep a host alive from now on; *boots*: it lives from now on, since it lives here."""
        life = self.life
        async with self._adopting:
            if host not in self.hosts:
                steps = Steps(self.store, life, host, self.policy, self.timer, self._emit)
                await steps.bring_back()
                filed = steps.filed
                if life.claim.incarnation > 1 and filed.armed_at_ms != NEVER:
                    self._emit("host.died", {"host": host, "asked": False})
                if boots:
                    await steps.boot()
                kept = self.hosts[host] = Kept(steps)
                steps.on_step = functools.partial(self._stepped, kept)
                self.wake()
            return self.hosts[host]

    def let_go(self, kept: Kept) -> list[asyncio.Task[None]]:
        """Keep a host alive no more: nothing looks at it, and nothing of it is waited for; the tasks that still end."""
        self.hosts.pop(kept.host, None)
        ending = [task for task in (kept.passing, kept.turn) if task is not None]
        kept.give_up(KeepaliveClosed(f"host {kept.host} is kept alive here no more"))
        for task in ending:
            task.cancel()
        return ending

    # Work.

    async def begin(self, kept: Kept, work_id: str, obliges: bool, task: asyncio.Task[object] | None) -> Work:
        """Work begins: when this returns it is on record, and an alarm is armed.

        Raises:
            WorkInFlight: work of this id is in flight.
        """
        self.life  # noqa: B018  # raises if it is over
        taken_up = next((work for work in kept.works.values() if work_id and work.work_id == work_id), None)
        if taken_up is not None and taken_up.recovered:
            work = kept.works[taken_up.slot] = Work(taken_up.slot, work_id, task)
            return work
        try:
            slot = await kept.steps.begin(work_id, obliges)
        except Refused as refusal:
            if refusal.rule != "K10":
                raise
            raise WorkInFlight(f"work {work_id!r} of host {kept.host} is in flight already") from refusal
        except Fenced as fenced:
            self._stop_fenced(fenced)
            raise
        finally:
            self.wake()
        work = kept.works[slot] = Work(slot, work_id, task)
        return work

    async def finish(self, kept: Kept, work: Work, ok: bool) -> bool:
        """Work has ended; whether it was still in flight. See :meth:`.keepalive_revival.Reviver.finish`."""
        try:
            return await self._reviver.finish(kept, work, ok)
        except Fenced as fenced:
            self._stop_fenced(fenced)
            raise
        finally:
            self.wake()

    # The looks.

    def wake(self) -> None:
        """Look again what is due next."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def _keep(self) -> None:
        while True:
            self._woken = asyncio.get_running_loop().create_future()
            try:
                pause_ms = await self._round()
            except Fenced as fenced:
                self._stop_fenced(fenced)
                return
            except Exception:  # whatever it is, hosts must go on being looked at
                logger.warning("the hosts could not be looked at: again soon", exc_info=True)
                pause_ms = AGAIN_FIRST_MS
            await self.timer.pause(pause_ms, self._woken)

    async def _round(self) -> int:
        """Look at every host that is due; how long until the next is."""
        pause_ms = SLEEP_MAX_MS
        if self.store.others:
            await self._look_for_others()
            pause_ms = max(1, min(LOOK_MAX_MS, self.policy.lead_ms // 2))
        for kept in list(self.hosts.values()):
            await self._look_at(kept)
            pause_ms = min(pause_ms, kept.due_ms(self.timer.now_ms()))
        return max(1, pause_ms)

    async def _look_for_others(self) -> None:
        """Notice what other processes have written, and make up for an alarm that they were killed before writing."""
        changes = await self.store.changes()
        if changes == self._changes:
            return
        living = await self.store.living()
        if living.incarnation != self.life.claim.incarnation:
            raise Fenced(self.life.claim.incarnation, living.incarnation)
        for kept in list(self.hosts.values()):
            filed = await kept.steps.refresh()
            if filed.alarm_at_ms != filed.armed_at_ms and kept.steps.memory.reviving is not Pass.RECORDED:
                await kept.steps.reassert()
                await kept.steps.refresh()
        self._changes = changes

    async def _look_at(self, kept: Kept) -> None:
        try:
            if kept.steps.is_ahead:
                logger.warning("host %s: the wall clock was set back; what was armed is brought back too", kept.host)
                await kept.steps.bring_back()
            if kept.due_ms(self.timer.now_ms()) <= 0:
                await self._look(kept)
        except Fenced:
            raise
        except StoreFault:
            logger.warning("host %s could not be looked at: again soon", kept.host, exc_info=True)
            kept.not_before_ms = self.timer.now_ms() + AGAIN_FIRST_MS

    async def _look(self, kept: Kept) -> None:
        """The early look, and the alarm: whichever is due."""
        steps, now_ms = kept.steps, self.timer.now_ms()
        confirm_at_ms = steps.recalled().confirm_at_ms
        if confirm_at_ms != NEVER and now_ms >= confirm_at_ms:
            await steps.confirm()
        filed = steps.filed
        if steps.seems_hung:  # by a clock that was set: an alarm may be late (K8)
            kept.not_before_ms = now_ms + min(self.policy.lead_ms, SLEEP_MAX_MS)
            return
        try:
            if filed.alarm_at_ms != NEVER and now_ms >= filed.alarm_at_ms:
                await steps.fire(self._chance.randint(0, self.policy.jitter_ms))
            elif filed.armed_at_ms != NEVER and now_ms >= filed.armed_at_ms:
                # The platform has lost the alarm: a living host is looked at all the same, a dead one boots.
                await (steps.stray_fire() if steps.memory.alive else steps.boot())
        except Refused as refusal:
            if refusal.rule != "K9":
                await steps.refresh()  # the platform has lost the alarm, or somebody else has moved it
                return
            await self._reviver.tell(kept)  # the plateau waits until people are told; then it is looked at again

    def _stepped(self, kept: Kept, action: str, before: State, after: State) -> None:
        """A look has begun a revival, or put one down that hung: nothing of what was in flight runs on."""
        begun = before.reviving is Pass.IDLE and after.reviving is Pass.RECORDED
        hung = before.reviving is not Pass.IDLE and after.reviving is Pass.IDLE
        if action not in ("fire", "stray_fire") or not (begun or hung) or self.hosts.get(kept.host) is not kept:
            return
        why = f"host {kept.host} is wedged or died: what was in flight is given up, and taken up by a revival"
        kept.give_up(PutDown(why))
        if kept.passing is not None:
            kept.passing.cancel()
        kept.passing = asyncio.create_task(self._passing(kept, hung))

    async def _passing(self, kept: Kept, hung: bool) -> None:
        try:
            await (self._hooks.put_down(kept.host) if hung else self._reviver.revive(kept))
        except Fenced as fenced:
            self._stop_fenced(fenced)
        except Exception:
            logger.warning("a revival of host %s ended badly", kept.host, exc_info=True)
        finally:
            if kept.passing is asyncio.current_task():
                kept.passing = None
            self.wake()

    # The end.

    def _stop_fenced(self, fenced: Fenced) -> None:
        """A newer incarnation keeps the hosts: nothing goes on here."""
        if self._fenced is None:
            logger.warning("hosts are kept alive here no more: %s", fenced)
            self._fenced = fenced
            self._stop(fenced)
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(fenced)
            self._ending = [asyncio.create_task(self._hooks.put_down(host)) for host in self.hosts]

    def _stop(self, why: BaseException) -> list[asyncio.Task[None]]:
        tasks = [self._keeping]
        for kept in self.hosts.values():
            tasks += [kept.passing, kept.turn]
            kept.give_up(why)
        current = asyncio.current_task()
        ending = [task for task in tasks if task is not None and task is not current]
        for task in ending:
            task.cancel()
        return ending
