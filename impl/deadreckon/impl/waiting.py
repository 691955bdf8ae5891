"""Work that a cancellation may delay the end of, but not tear."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def is_own(error: BaseException) -> bool:
    """Whether the current task fails with *error* by itself, rather than by a cancellation that was asked of it.

    Code of others may raise :class:`asyncio.CancelledError` though nobody cancels: it has awaited a task that was.
    """
    task = asyncio.current_task()
    asked = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    return not asked and not isinstance(error, GeneratorExit)


def raise_exit(error: BaseException | None) -> None:
    """Go on with what is to end the process, once nothing is left to be done about it; any other error is over."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error


async def to_the_end(work: Coroutine[object, object, T] | asyncio.Future[T]) -> T:
    """Wait for *work*, even if the waiting task is cancelled meanwhile; the cancellation is raised afterwards.

    So whoever is told of a cancellation knows that nothing of *work* is still under way. *work* has to be bounded in
    time by itself.

    Raises:
        asyncio.CancelledError: the task was cancelled meanwhile; if *work* failed, its error is the cause.
    """
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and not future.cancelled():
        raise cancelled from future.exception()
    return future.result()
