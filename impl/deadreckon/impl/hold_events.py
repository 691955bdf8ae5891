"""The events of a door: the facts of its journal, whoever appended them, and what the door does in between.

A journal's facts are told in its order, each once; what is no fact (a wait, an effect, an outage) is told at once, or as
soon as the facts before it are, if the journal is away just then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from .events import Emitter, Sink
from .hold_journal import Journal, Json, Recorded
from .store import StoreFault

logger = logging.getLogger("deadreckon.events")

FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "hold.requested": ("deadline_at", "requests"),
    "hold.decided": ("verdicts", "by"),
    "hold.expired": (),
    "hold.abandoned": (),
    "release.started": ("index",),
    "release.settled": ("index", "outcome"),
    "caller.told": ("index", "outcome"),
    "caller.gone": (),
    "door.booted": ("door",),
}
"""The facts that are told, with their fields beside the hold. Those of keys are not in the vocabulary."""


def fields_of(fact: Recorded) -> dict[str, Json]:
    """The fields of the event that tells *fact*: of requests their number, not their texts."""
    fields: dict[str, Json] = {"hold": fact.hold_id} if fact.hold_id else {}
    for name in FIELDS[fact.type]:
        value = fact.body[name]
        fields[name] = len(value) if name == "requests" and isinstance(value, list | tuple) else value
    return fields


class DoorEvents:
    """What one door tells.

    Args:
        journal: whose facts are told.
        sink: whom they are told; without one, or without a journal, nothing is read and nothing told.
    """

    def __init__(self, journal: Journal | None = None, sink: Sink | None = None) -> None:
        self._journal = journal
        self._emit = Emitter(sink, lambda: 0 if journal is None else journal.now_ms())
        self._told = 0
        self._any_door = False
        self._later: list[tuple[int, int, str, Mapping[str, Json]]] = []
        self._one_at_a_time = asyncio.Lock()

    async def begin(self) -> None:
        """Before the door claims the journal: find where to go on.

        Raises:
            StoreFault: the journal failed.
        """
        if self._journal is None or self._emit.sink is None:
            return
        newest = await self._journal.newest()
        self._told = getattr(self._emit.sink, "offset", 0)
        self._any_door = self._told > 0
        if self._told > newest:
            logger.warning("the event log has offset %s of another journal, this one has %s", self._told, newest)
            self._any_door = False
        self._told = newest if not self._any_door else self._told

    def tell(self, type_: str, after_offset: int, **fields: Json) -> None:
        """Tell what is no fact, and came after the fact at *after_offset*."""
        if self._journal is None or self._emit.sink is None:
            return
        if after_offset <= self._told and not self._later:
            self._emit(type_, fields)
        else:
            self._later.append((after_offset, self._journal.now_ms(), type_, fields))

    async def catch_up(self) -> None:
        """Tell the facts that were not told yet; a journal that fails is read the next time."""
        if self._journal is None or self._emit.sink is None:
            return
        async with self._one_at_a_time:
            try:
                while facts := await self._journal.facts(self._told):
                    for fact in facts:
                        self._tell_later_ones(before=fact.offset)
                        self._told = fact.offset
                        self._tell_fact(fact)
            except StoreFault:
                return
            self._tell_later_ones(before=self._told + 1)

    def _tell_fact(self, fact: Recorded) -> None:
        if fact.type not in FIELDS:
            return
        if fact.type == "door.booted":
            if self._any_door:
                self._emit("door.died", {"door": int(str(fact.body["door"])) - 1}, fact.at_ms)
            self._any_door = True
        self._emit(fact.type, {**fields_of(fact), "offset": fact.offset}, fact.at_ms)

    def _tell_later_ones(self, before: int) -> None:
        while self._later and self._later[0][0] < before:
            _, at_ms, type_, fields = self._later.pop(0)
            self._emit(type_, fields, at_ms)
