"""One host that a supervisor runs, and the checks of what a supervisor is given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs

from deadreckon.spec.errors import CallerError
from deadreckon.spec.keepalive_state import KeepalivePolicy

from .keepalive_child import Child, Program, logger
from .keepalive_kept import Kept
from .waiting import is_own, raise_exit

Probe = Callable[[], Awaitable[bool]]
"""``await probe()``: whether the host is well. What it raises means no."""


@attrs.define(eq=False)
class Supervised:
    """One host that is supervised here.

    Attributes:
        kept: how it is kept.
        program: how it is run.
        probe: asks whether it is well.
        child: what runs it now.
        tasks: what watches the child, and what minds the host while it runs.
    """

    kept: Kept
    program: Program
    probe: Probe | None
    child: Child | None = None
    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)

    async def well(self) -> bool:
        """Whether the host says so, if it can be asked."""
        try:
            return self.probe is None or await self.probe()
        except BaseException as error:
            if not is_own(error):
                raise
            raise_exit(error)
            logger.warning("the probe of host %s failed", self.kept.host, exc_info=True)
            return False

    def let_go(self) -> list[asyncio.Task[None]]:
        """Nothing watches or minds it any more, but who asks this; the tasks that were told to end."""
        current = asyncio.current_task()
        ending = [task for task in self.tasks if task is not current]
        self.tasks = [task for task in self.tasks if task is current]
        for task in ending:
            task.cancel()
        return ending


def check_span(what: str, span_ms: int, least_ms: int) -> int:
    """*span_ms*, if it is a span.

    Raises:
        CallerError: it is no integer, or less than *least_ms*.
    """
    if type(span_ms) is not int or span_ms < least_ms:
        raise CallerError(f"{what} is {span_ms!r:.60}: give an integer of milliseconds, {least_ms} or more")
    return span_ms


def checked_span(policy: KeepalivePolicy, clean_after_ms: int | None, default_ms: int) -> int:
    """How long a child has to run before it counts as up.

    Raises:
        CallerError: it is not shorter than the wedge: every child would be put down before it was up.
    """
    span_ms = min(default_ms, policy.wedge_ms * 2 // 3) if clean_after_ms is None else clean_after_ms
    check_span("clean_after_ms", span_ms, 1)
    if span_ms >= policy.wedge_ms:
        raise CallerError(f"clean_after_ms is {span_ms}: give less than wedge_ms, {policy.wedge_ms}")
    return span_ms
