"""What is kept alive: a host with its work in flight, and what is done to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

import attrs

from deadreckon.spec.keepalive_state import NEVER

from .keepalive_clocks import elapsed_ms
from .keepalive_steps import Steps
from .keepalive_words import Revival
from .store import Fenced, StoreFault
from .timer import Timer

logger = logging.getLogger("deadreckon.keepalive")
T = TypeVar("T")

SLEEP_MAX_MS: Final = 60_000
"""The longest sleep of all: what a clock that jumps may cost."""
AGAIN_FIRST_MS: Final = 100
AGAIN_MAX_MS: Final = 5_000
"""Distances between tries to write what the store did not take."""

Turn = Callable[[], Awaitable[None]]
OnEvidence = Callable[[str, str], Awaitable[None] | None]
"""``on_evidence(host, text)``: tell people of a crash loop. The fact is durable already, and the text names the reset."""


class DiedEarly(Exception):
    """The host has died before its revival was over. That is no fault of anybody here, so it needs no traceback."""


class Hooks(Protocol):
    """What is done to hosts."""

    async def deliver(self, revival: Revival) -> Turn:
        """Bring the host back. Returns what then takes up what is owed: its end is the end of that work.

        What it raises is the failure of the revival.
        """
        ...

    async def put_down(self, host: str) -> None:
        """See to it that nothing of the host runs on. It may not run at all."""
        ...


@attrs.define(eq=False)
class Work:
    """A piece of work in flight.

    Attributes:
        slot: its slot in the machine.
        work_id: its id, if it has one.
        task: what runs it, to be cancelled when it is put down; None if that is done otherwise.
        ended: why it was ended from here; None while it was not.
        recovered: whether a revival has taken it up, and nobody else has.
    """

    slot: int
    work_id: str
    task: asyncio.Task[object] | None
    ended: BaseException | None = None
    recovered: bool = False

    def end(self, why: BaseException) -> None:
        """Give it up."""
        self.ended = why
        if self.task is not None:
            self.task.cancel()


@attrs.define(eq=False)
class Kept:
    """One host that is kept alive here.

    Attributes:
        steps: its actions.
        works: what is in flight, by slot.
        passing: the task of the revival under way, or of the putting down of one that hung.
        turn: the task of the turn that a revival has brought.
        not_before_ms: when it is looked at again after the store failed.
    """

    steps: Steps
    works: dict[int, Work] = attrs.field(factory=dict)
    passing: asyncio.Task[None] | None = None
    turn: asyncio.Task[None] | None = None
    not_before_ms: int = 0

    @property
    def host(self) -> str:
        """Its name."""
        return self.steps.host

    def due_ms(self, now_ms: int) -> int:
        """How long until it has to be looked at."""
        filed = self.steps.filed
        instants = (self.steps.recalled().confirm_at_ms, filed.armed_at_ms, filed.alarm_at_ms)
        first = min((at_ms for at_ms in instants if at_ms != NEVER), default=now_ms + SLEEP_MAX_MS)
        return max(first, min(self.not_before_ms, now_ms + SLEEP_MAX_MS)) - now_ms

    def give_up(self, why: BaseException) -> None:
        """What is in flight is waited for no more."""
        works, self.works = self.works, {}
        for work in works.values():
            work.end(why)
        if self.turn is not None:
            self.turn.cancel()
            self.turn = None


async def insist(timer: Timer, action: Callable[[], Awaitable[T]], for_ms: int | None = None) -> T:
    """Take *action*, again while the store fails, for *for_ms*; for ever without.

    Raises:
        Fenced: a newer incarnation lives.
        StoreFault: the store still fails.
    """
    until_ms = None if for_ms is None else elapsed_ms(timer) + for_ms
    again_ms = AGAIN_FIRST_MS
    while True:
        try:
            return await action()
        except StoreFault as fault:
            if isinstance(fault, Fenced) or (until_ms is not None and elapsed_ms(timer) >= until_ms):
                raise
            logger.warning("the store failed: trying again in %s ms", again_ms, exc_info=True)
        await timer.pause(again_ms)
        again_ms = min(again_ms + again_ms, AGAIN_MAX_MS)
