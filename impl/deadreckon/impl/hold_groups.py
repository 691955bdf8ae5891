"""Requests of one caller that come at about the same time become one hold, so that one person decides once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence

import attrs

from deadreckon.spec.hold_words import coalesced_until_ms

from .hold_checks import REQUESTS_MAX
from .hold_parked import Parked
from .timer import Timer

Park = Callable[[tuple[str, ...], int], Awaitable[Parked]]
"""``park(requests, callers)``: park them as one hold that so many wait for."""

Seat = tuple[Parked, range]
"""A hold, and which of its requests are a caller's."""


@attrs.define(eq=False)
class _Group:
    opened_at_ms: int
    until_ms: int
    members: list[tuple[tuple[str, ...], asyncio.Future[Seat]]] = attrs.field(factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def size(self) -> int:
        """How many requests are in it."""
        return sum(len(requests) for requests, _ in self.members)


class Groups:
    """The groups that are open at one door."""

    def __init__(self, timer: Timer, debounce_ms: int) -> None:
        self._timer = timer
        self._debounce_ms = debounce_ms
        self._open: dict[Hashable, _Group] = {}
        self._tasks: dict[asyncio.Task[None], _Group] = {}

    def join(self, name: Hashable, requests: tuple[str, ...], park: Park) -> asyncio.Future[Seat]:
        """Add *requests* to the group of that name; each arrival extends it, to three times the debounce at most.

        A caller that cancels the future before the group is parked takes its requests away.
        """
        now_ms = self._timer.now_ms()
        group = self._open.get(name)
        if group is None or group.size + len(requests) > REQUESTS_MAX:  # one that is full is sent in its time
            group = self._open[name] = _Group(now_ms, now_ms)
            group.task = asyncio.create_task(self._send(name, group, park))
            self._tasks[group.task] = group
            group.task.add_done_callback(self._tasks.pop)
        group.until_ms = coalesced_until_ms(self._debounce_ms, group.opened_at_ms, now_ms)
        seat: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()
        group.members.append((requests, seat))
        return seat

    async def close(self, error: Exception) -> None:
        """Whoever waits for a group is given *error*."""
        tasks = list(self._tasks)
        for group in self._tasks.values():
            for _, seat in group.members:
                if not seat.done():
                    seat.set_exception(error)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, name: Hashable, group: _Group, park: Park) -> None:
        while (left_ms := group.until_ms - self._timer.now_ms()) > 0:
            await self._timer.pause(left_ms)
        if self._open.get(name) is group:
            del self._open[name]
        members = [(requests, seat) for requests, seat in group.members if not seat.done()]
        if members:
            await self._park(members, park)

    async def _park(self, members: Sequence[tuple[tuple[str, ...], asyncio.Future[Seat]]], park: Park) -> None:
        try:
            parked = await park(tuple(request for requests, _ in members for request in requests), len(members))
        except BaseException as error:
            for _, seat in members:
                if not seat.done():
                    seat.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        first = 0
        for requests, seat in members:
            if seat.done():
                parked.waiting -= 1
            else:
                seat.set_result((parked, range(first, first + len(requests))))
            first += len(requests)
