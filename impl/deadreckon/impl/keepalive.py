"""Keepalive for asyncio services: work that is owed outlives the process, and is taken up again, ever more slowly.

Theory of operation
    ``supervise`` puts work on record and arms an alarm before it runs. If the process dies, the next one finds the
    record, waits for the alarm, and calls ``revive`` with what is owed: that is one counted revival, and the next one is
    armed before it acts. As long as the process keeps dying the distances grow, to a plateau; a quiet clean run, a new
    ``version`` or a person clears the count. All that is decided is decided by ``deadreckon.spec.keepalive``, in the
    transactions of the store. Here the host lives in this process: all hosts of a ``Keepalive`` die with it.

Decided conflicts
    * Work whose body raises has failed, and so has work that was cancelled: neither has done what it owed. Whoever
      means a cancellation to be a good end catches it inside.
    * Wedged work is put down by cancelling its task; the cancellation becomes :class:`~deadreckon.impl.PutDown` at the
      end of the ``async with``. Work that doesn't heed a cancellation runs on, and its end comes too late.
    * How ``revive`` ends is how all that it took up ends. What it supervises under its own id ends by itself.
    * Leaving ``async with Keepalive(...)`` is a death to its hosts, not a wish to stop: what is owed stays owed.
    * ``on_evidence`` is told at most once; the fact is in the store whether it was or not.
    * A store that fails when work begins lets it not begin. One that fails when work ends well is tried for one lead;
      then the work has failed, is still owed, and is done again: it has to bear that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final

from deadreckon.spec.errors import CallerError
from deadreckon.spec.keepalive_state import KeepalivePolicy

from .events import Emitter, Sink
from .keepalive_keeper import Keeper
from .keepalive_kept import OnEvidence, Turn
from .keepalive_store import KeepaliveStore
from .keepalive_words import HostView, PutDown, Reset, Revival
from .timer import SystemTimer, Timer

NAME_MAX_CHARS: Final = 1_000

Revive = Callable[[Revival], Awaitable[None]]
"""``await revive(revival)``: take up what is owed. It returns when that is done; if it raises, all of that has failed."""


class Keepalive:
    """The hosts in one store, as one incarnation: ``async with Keepalive(store, revive=...) as keepalive``.

    Whoever kept them before is dead from then on, and its calls raise :class:`~deadreckon.impl.Fenced`. The store is not
    closed at the end.

    Args:
        store: where they are kept.
        policy: the limits.
        timer: source of the time; the wall clock, which survives restarts as the ladder must.
        revive: called for each revival that acts.
        version: the name of what is deployed. Another one than the last is a deploy, and clears every count.
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
        revive: Revive,
        version: str = "1",
        on_evidence: OnEvidence | None = None,
        chance: random.Random | None = None,
        sink: Sink | None = None,
    ) -> None:
        check_name("version", version)
        for what, given in (("on_evidence", on_evidence), ("sink", sink)):
            check_callable(what, given)
        if not callable(revive):
            raise CallerError(f"revive is {revive!r:.60}: give an async function")
        clock: Timer = SystemTimer() if timer is None else timer
        self.policy = checked_policy(policy)
        self._keeper = Keeper(
            store,
            self.policy,
            clock,
            version=version,
            hooks=InProcess(revive),
            on_evidence=on_evidence,
            chance=random.Random() if chance is None else chance,
            emit=Emitter(sink, clock.now_ms),
        )

    async def __aenter__(self) -> Keepalive:
        """Boot every host in the store: what its record says is armed again, and a deploy is noticed."""
        await self._keeper.enter()
        try:
            for host, _ in await self._keeper.store.hosts():
                await self._keeper.adopt(host, boots=True)
        except BaseException:
            await self._keeper.leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Revivals and their turns are cancelled. What is owed stays owed, for the next incarnation."""
        await self._keeper.leave()

    @property
    def incarnation(self) -> int:
        """The identity of this incarnation."""
        return self._keeper.life.claim.incarnation

    @asynccontextmanager
    async def supervise(self, host: str, *, obliges: bool = False, work_id: str = "") -> AsyncIterator[None]:
        """Work on *host*: on record, with an alarm armed, before the body runs. The body's end is its settlement.

        Args:
            host: any name; the same host has the same name in every life.
            obliges: whether it is owed until it has ended well, so that a revival takes it up.
            work_id: what a revival calls it; must be given with *obliges*. Work that a revival has taken up, and that is
                supervised by its id within ``revive``, ends by itself.

        Raises:
            PutDown: it was given up as wedged.
            WorkInFlight: work of this id is in flight already.
            Fenced: a newer incarnation keeps the hosts.
            StoreFault: it could not be put on record, and has not begun; or its good end could not, and it is still owed.
        """
        check_name("host", host)
        if obliges or work_id:
            check_name("work_id", work_id)
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task is not None else 0
        kept = await self._keeper.adopt(host, boots=True)
        work = await self._keeper.begin(kept, work_id, obliges, task)
        try:
            yield
            ended = await self._keeper.finish(kept, work, True)
        except BaseException as error:
            await self._keeper.finish(kept, work, False)
            if work.ended is not None and task is not None:
                mine = task.uncancel() <= cancelled_before
                if mine and isinstance(error, asyncio.CancelledError):
                    raise work.ended from error
            raise
        if not ended:
            if work.ended is not None and task is not None:
                task.uncancel()
            raise work.ended or PutDown(f"work {work_id!r} of host {host} was given up before it ended")

    async def reset(self, host: str, *, by: str) -> Reset:
        """The person *by* clears the count, at any rung: the next revival comes within the lead, and never later.

        From another process use ``deadreckon hosts reset``, or :func:`reset_by_hand`.
        """
        kept = await self._keeper.adopt(check_name("host", host), boots=True)
        done = await kept.steps.reset(check_name("by", by))
        self._keeper.wake()
        return done

    async def recreate(self, host: str) -> None:
        """The stream of *host* begins another life: what was owed is void, and so is the record."""
        kept = await self._keeper.adopt(check_name("host", host), boots=True)
        await kept.steps.recreate()
        kept.give_up(PutDown(f"the stream of host {host} was recreated: what was owed is void"))
        self._keeper.wake()

    async def hosts(self) -> Sequence[HostView]:
        """All hosts, by name."""
        return await host_views(self._keeper.store)

    async def inspect(self, host: str) -> HostView:
        """One host; an empty view if there is none of this name."""
        store = self._keeper.store
        return HostView.of(host, await store.read(host), self.policy, await store.versions())


class InProcess:
    """Hosts that live in this process: a revival calls a function of the service."""

    def __init__(self, revive: Revive) -> None:
        self._revive = revive

    async def deliver(self, revival: Revival) -> Turn:
        async def turn() -> None:
            await self._revive(revival)

        return turn

    async def put_down(self, host: str) -> None:
        """The tasks were cancelled already, and there is nothing else."""


async def host_views(store: KeepaliveStore) -> Sequence[HostView]:
    """All hosts of a store, by name, by the limits of whoever owns it. Anybody may look."""
    policy, versions = (await store.living()).policy, await store.versions()
    return [HostView.of(host, filed, policy, versions) for host, filed in await store.hosts()]


def checked_policy(policy: KeepalivePolicy | None) -> KeepalivePolicy:
    """*policy*, or the default one."""
    if policy is not None and not isinstance(policy, KeepalivePolicy):
        raise CallerError(f"policy is {policy!r}: give a KeepalivePolicy")
    return KeepalivePolicy() if policy is None else policy


def check_callable(what: str, given: object) -> None:
    """Refuse what no one can call.

    Raises:
        CallerError: it is neither None nor a function.
    """
    if given is not None and not callable(given):
        raise CallerError(f"{what} is {given!r:.60}: give a function")


def check_name(what: str, name: str) -> str:
    """*name*, if a store can keep it.

    Raises:
        CallerError: it is empty, too long, or no text.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_MAX_CHARS:
        raise CallerError(f"{what} is {name!r:.60}: give 1 to {NAME_MAX_CHARS} characters of text")
    if any(0xD800 <= ord(char) <= 0xDFFF for char in name):
        raise CallerError(f"{what} is {name!r:.60}: give text without surrogates")
    return name
