"""Work that a cancellation may delay the end of, but not tear."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


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
