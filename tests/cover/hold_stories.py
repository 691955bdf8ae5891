"""What tests of a door in virtual time share: a journal, a door, and somebody who approves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from deadreckon.impl import Door, Grant, approve, open_holds
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.virtual import VirtualTimer, run_virtual
from deadreckon.spec.hold_state import Release

Story = Callable[[MemoryJournal, Door], Coroutine[object, object, None]]


def told(story: Story, **settings: Any) -> MemoryJournal:  # Any: the settings of a door
    """Run a story at a door, in virtual time; no task is left over."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def main() -> None:
        async with Door(journal, **{"debounce_ms": None, **settings}) as door:
            await story(journal, door)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main(), timer)
    return journal


async def asked(journal: MemoryJournal, door: Door, *requests: str) -> tuple[asyncio.Task[Grant], str]:
    """A caller that waits, and its hold."""
    task = asyncio.create_task(door.ask(requests))
    while not (found := await open_holds(journal)):
        await journal.timer.pause(1)
    return task, found[0].hold_id


async def granted(journal: MemoryJournal, door: Door, *requests: str) -> Grant:
    """A grant of everything."""
    task, hold_id = await asked(journal, door, *requests)
    await approve(journal, hold_id, by="ada")
    return await task


async def effect(release_id: str) -> str:
    """The upstream."""
    return release_id


async def release_of(journal: MemoryJournal, grant: Grant, index: int = 0) -> Release:
    """What the journal says of a request's release."""
    held = (await journal.read(grant.hold_id)).held
    assert held is not None
    return held.hold.releases[index]
