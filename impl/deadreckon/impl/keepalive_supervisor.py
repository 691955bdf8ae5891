"""A supervisor: hosts that are processes, or async functions, are kept running by the keepalive.

Theory of operation
    That a host is to run is its work, owed from ``start`` until ``stop``. The death of a child is the death of the host:
    its record is armed already, and when the alarm is due the revival starts another child. A revival has returned once
    its child has run for ``clean_after_ms`` and the probe, if there is one, says that it is well; one lead later the
    count is cleared. While a host runs, its work is settled and begun anew after each such stretch, so that the wedge
    of the policy is the longest time for which a probe may say no, or hang, before the child is killed.
    All that is decided is decided by ``deadreckon.spec.keepalive``. The record is in the store: a supervisor that is
    killed is followed by another one on the same store, which continues the ladder.

Decided conflicts
    * An end is clean only if it was asked for, by ``stop`` or by leaving the supervisor; exit code 0 proves nothing (K7).
    * A host that an earlier supervisor was killed with waits for its alarm, however it is started: that is a revival.
    * A child that can't be started at all is one that has died.
    * A host that runs though nobody remembers it is killed first, and the end of a child is the end of all that it has
      started: there is one child of a host, or none.
    * Leaving kills whatever does not end within ``grace_ms``, even if the store fails meanwhile; then the hosts are found
      owed by the next supervisor.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.keepalive_state import KeepalivePolicy

from .events import Emitter, Sink
from .keepalive import check_callable, check_name, checked_policy, host_views
from .keepalive_child import Child, Program, checked_program, ended, kill_orphans, killed, logger, new_token, started
from .keepalive_keeper import Keeper
from .keepalive_kept import DiedEarly, OnEvidence, Turn, Work, insist
from .keepalive_store import KeepaliveStore
from .keepalive_supervised import Probe, Supervised, check_span, checked_span
from .keepalive_words import HostView, PutDown, Reset, Revival
from .store import Fenced, StoreFault
from .timer import SystemTimer, Timer

RUN: Final = "run"
"""The id of the work that a supervised host owes: to run."""

CLEAN_AFTER_MS: Final = 600_000
"""How long a child has to run before it counts as up: as long as a kubelet waits before it forgets a container's
restarts (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy)."""
GRACE_MS: Final = 10_000
"""How long a child that is asked to end may take."""


class Supervisor:
    """Keeps hosts running: ``async with Supervisor(store) as supervisor``.

    Whoever supervised the hosts of the store before is dead from then on. The store is not closed at the end.

    Args:
        store: where the hosts are kept.
        policy: the limits.
        timer: source of the time; the wall clock, which survives restarts as the ladder must.
        version: the name of what is deployed. Another one than the last is a deploy, and clears every count.
        clean_after_ms: how long a child has to run before it counts as up; less than the policy's wedge. Ten minutes, or
            two thirds of the wedge if that is shorter, without it.
        grace_ms: how long a child that is asked to end may take before it is killed.
        on_evidence: ``on_evidence(host, text)``, sync or async, is told of a crash loop; the text names the reset.
        chance: source of the jitter, if the policy has any.
        sink: told what happens, as events.
    """

    def __init__(
        self,
        store: KeepaliveStore,
        policy: KeepalivePolicy | None = None,
        timer: Timer | None = None,
        *,
        version: str = "1",
        clean_after_ms: int | None = None,
        grace_ms: int = GRACE_MS,
        on_evidence: OnEvidence | None = None,
        chance: random.Random | None = None,
        sink: Sink | None = None,
    ) -> None:
        check_name("version", version)
        self._timer: Timer = SystemTimer() if timer is None else timer
        self.policy = checked_policy(policy)
        self._clean_after_ms = checked_span(self.policy, clean_after_ms, CLEAN_AFTER_MS)
        self._grace_ms = check_span("grace_ms", grace_ms, 0)
        check_callable("on_evidence", on_evidence)
        check_callable("sink", sink)
        self._hosts: dict[str, Supervised] = {}
        self._starting: set[str] = set()
        self._keeper = Keeper(
            store,
            self.policy,
            self._timer,
            version=version,
            hooks=self,
            on_evidence=on_evidence,
            chance=random.Random() if chance is None else chance,
            emit=Emitter(sink, self._timer.now_ms),
        )

    async def __aenter__(self) -> Supervisor:
        await self._keeper.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Every host is asked to stop."""
        try:
            await asyncio.gather(*(self._stopped(one) for one in list(self._hosts.values())))
        finally:
            await self._keeper.leave()

    async def start(self, host: str, program: Program, *, probe: Probe | None = None) -> None:
        """Keep *host* running from now on.

        It is started at once; but if an earlier supervisor was killed while it was to run, it waits for its alarm.

        Args:
            host: any name; the same host has the same name in every life.
            program: the command and its arguments, or an async function. When it ends, the host has died.
            probe: ``await probe()`` says whether it is well.

        Raises:
            CallerError: it is supervised here already.
        """
        program = checked_program(program)
        check_callable("probe", probe)
        if check_name("host", host) in self._hosts or host in self._starting:
            raise CallerError(f"host {host} is supervised here already: stop it first")
        self._starting.add(host)
        try:
            await self._bury(host)
            kept = await self._keeper.adopt(host, boots=True)
            one = self._hosts[host] = Supervised(kept, program, probe)
        finally:
            self._starting.discard(host)
        try:
            if RUN not in kept.steps.filed.owed:
                await self._first_run(one)
        except BaseException:
            await self._stopped(one)
            raise

    async def _bury(self, host: str) -> None:
        """Kill what an earlier supervisor has left running of a host."""
        mine, living = self._keeper.life.claim.incarnation, await self._keeper.store.living()
        if living.incarnation != mine:
            raise Fenced(mine, living.incarnation)
        token = (await self._keeper.store.read(host)).child
        orphans = await asyncio.get_running_loop().run_in_executor(None, kill_orphans, token)
        if orphans:
            logger.warning("host %s: %s processes of an earlier supervisor were killed", host, orphans)

    async def stop(self, host: str) -> None:
        """End *host*, and don't revive it: a clean end, since it is asked for. Its count stays: this is no reset.

        Raises:
            CallerError: it is not supervised here.
            StoreFault: it was ended, but that could not be recorded: it is still owed.
        """
        if host not in self._hosts:
            raise CallerError(f"host {host} is not supervised here")
        await self._stopped(self._hosts[host], quietly=False)

    async def until_signal(self) -> signal.Signals:
        """Wait for SIGTERM or SIGINT, and return it, so that leaving the supervisor ends its children first.

        Raises:
            Fenced: a newer supervisor has taken over, and the hosts run here no more.
        """
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[signal.Signals] = loop.create_future()
        numbers = (signal.SIGTERM, signal.SIGINT)

        def note(number: signal.Signals) -> None:
            if not asked.done():
                asked.set_result(number)

        self._keeper.end_when_fenced(asked)
        for number in numbers:
            loop.add_signal_handler(number, note, number)
        try:
            return await asked
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def reset(self, host: str, *, by: str) -> Reset:
        """The person *by* clears the count, at any rung: the next revival comes within the lead, and never later."""
        if host not in self._hosts:
            raise CallerError(f"host {host} is not supervised here: use 'deadreckon hosts reset'")
        done = await self._hosts[host].kept.steps.reset(check_name("by", by))
        self._keeper.wake()
        return done

    async def hosts(self) -> Sequence[HostView]:
        """All hosts in the store, by name."""
        return await host_views(self._keeper.store)

    async def inspect(self, host: str) -> HostView:
        """One host; an empty view if there is none of this name."""
        store = self._keeper.store
        return HostView.of(host, await store.read(host), self.policy, await store.versions())

    # Children.

    async def _first_run(self, one: Supervised) -> None:
        """The host runs because it was asked to; that is no revival."""
        work = await self._keeper.begin(one.kept, RUN, True, None)
        try:
            child = await self._child(one)
        except OSError as error:
            logger.warning("host %s can't be started: %s", one.kept.host, error)
            await self._died(one, code_zero=False)
        else:
            one.tasks.append(asyncio.create_task(self._mind(one, child, work)))

    async def _child(self, one: Supervised) -> Child:
        """Start a child, whose token is on record before it runs."""
        token = new_token()
        await insist(self._timer, lambda: one.kept.steps.note_child(token))
        one.child = child = await started(one.program, token)
        one.tasks.append(asyncio.create_task(self._watch(one, child)))
        return child

    async def _watch(self, one: Supervised, child: Child) -> None:
        """See a child to its end, which is the death of the host; who brings it about from here cancels this first."""
        await asyncio.wait((child.ended,))
        one.child = None
        logger.warning("host %s has died: %s", one.kept.host, child.how)
        await self._died(one, code_zero=child.code_zero)

    async def _died(self, one: Supervised, *, code_zero: bool) -> None:
        """The host has ended, and nobody had asked for it."""
        one.let_go()
        one.kept.give_up(PutDown(f"host {one.kept.host} has died"))
        try:
            with suppress(Refused):
                await insist(self._timer, lambda: one.kept.steps.end(code_zero))
        except Fenced:
            pass  # whoever supervises the host now finds out
        self._keeper.wake()

    async def _mind(self, one: Supervised, child: Child, work: Work | None) -> None:
        """Settle the work of a host that runs, and begin it anew, stretch by stretch; *work*: of the first stretch."""
        try:
            while not child.ended.done():
                if work is None:
                    await self._cleared(one, child)
                    work = await insist(self._timer, lambda: self._keeper.begin(one.kept, RUN, True, None))
                await self._timer.pause(self._clean_after_ms, child.ended)
                if not child.ended.done() and await one.well():
                    with suppress(StoreFault):
                        await self._keeper.finish(one.kept, work, True)
                    work = None
        except Fenced:
            pass  # the keeper has noticed, and puts the child down
        except Exception:  # it is put down as wedged then
            logger.warning("host %s is minded no more", one.kept.host, exc_info=True)

    async def _cleared(self, one: Supervised, child: Child) -> None:
        """While the count is up, and a stretch has just ended well: leave a lead's time to the look that clears it."""
        until_ms = self._timer.now_ms() + self.policy.lead_ms
        while one.kept.steps.filed.record.revivals and not child.ended.done() and self._timer.now_ms() <= until_ms:
            await self._timer.pause(
                max(1, min(one.kept.due_ms(self._timer.now_ms()), self.policy.lead_ms)), child.ended
            )

    # What a keeper does to hosts.

    async def deliver(self, revival: Revival) -> Turn:
        """Start a child, and see it run for long enough (see :class:`.keepalive_kept.Hooks`)."""
        one = self._hosts[revival.host]
        try:
            child = await self._child(one)
        except OSError as error:
            raise DiedEarly(f"host {revival.host} can't be started: {error}") from error
        while not child.ended.done():
            await self._timer.pause(self._clean_after_ms, child.ended)
            if not child.ended.done() and await one.well():
                break
        if child.ended.done():
            raise DiedEarly(f"host {revival.host} has died before it was up: {child.how}")

        async def turn() -> None:
            one.tasks.append(asyncio.create_task(self._mind(one, child, None)))

        return turn

    async def put_down(self, host: str) -> None:
        """Kill the child of a host, if there is one."""
        one = self._hosts.get(host)
        if one is None or one.child is None:
            return
        child, one.child = one.child, None
        one.let_go()
        await killed(child, self._timer)

    async def _stopped(self, one: Supervised, *, quietly: bool = True) -> None:
        """End a host that was asked to, and record that; *quietly*: a store that fails is logged."""
        self._hosts.pop(one.kept.host, None)
        child, one.child = one.child, None
        try:
            if tasks := self._keeper.let_go(one.kept) + one.let_go():
                await asyncio.wait(tasks)
            await self._ended(one, child)
        except StoreFault:
            if not quietly:
                raise
            logger.warning("that host %s was stopped is not on record: it is still owed", one.kept.host, exc_info=True)
        finally:
            if child is not None and not child.ended.done():
                child.kill()  # a second cancellation came: no more grace

    async def _ended(self, one: Supervised, child: Child | None) -> None:
        """Ask a host to end, see it end, and record that."""
        steps = one.kept.steps
        asked = await self._asked(one)
        if child is not None:
            await ended(child, self._timer, self._grace_ms)
        if asked is not None:
            raise asked
        await steps.end(child is None or child.code_zero)

    async def _asked(self, one: Supervised) -> StoreFault | None:
        """Record in memory that the host is asked to end; why that is not possible, if the store fails."""
        try:
            with suppress(Refused):  # it lives, or a look that was under way has just woken it
                await one.kept.steps.boot()
            await one.kept.steps.ask_to_stop()
        except StoreFault as fault:
            return fault
        return None
