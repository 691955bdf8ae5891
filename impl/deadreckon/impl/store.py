"""The port to durable storage, and what can go wrong with it.

A store keeps one :class:`~deadreckon.spec.incident_state.Record` for each turn. It decides nothing about incidents: it
reads, hands what it read to a *change*, and keeps what comes back, all as one step that nothing can come between.
The one thing it must hold of its own is fencing (C13): a call of an incarnation that is not the living one changes
nothing, and whether it is, :func:`admit_caller` decides.

    EnvironmentFault
    └── StoreFault              the base: what was durable before still is
        ├── StoreLocked         somebody else holds the file
        ├── StoreCorrupt        the file is damaged
        ├── StoreReadOnly       the file, its directory or its disk can't be written
        ├── StoreFull           no space is left
        ├── StoreNewer          the file was written by a later library
        ├── StoreForeign        the file belongs to another application
        ├── StoreUnavailable    any other failure of the disk or of the database
        └── Fenced              a newer incarnation owns the store
    CallerError
    └── StoreClosed             the store was closed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from deadreckon.spec.errors import CallerError, EnvironmentFault
from deadreckon.spec.incident import accepts, boot, initial
from deadreckon.spec.incident_state import Record, Status, Turn

LARGEST: Final = 2**53
"""No identity, count, instant or offset is as large as that, ever: a row that has it is damaged."""


class StoreFault(EnvironmentFault):
    """The store failed. What was durable before still is; mend the cause, then try again."""


class StoreLocked(StoreFault):
    """Another process or connection holds the file for longer than the busy timeout.

    Try again later. If it lasts, look for a long transaction elsewhere (a backup, an open database browser).
    """


class StoreCorrupt(StoreFault):
    """The file is damaged, or a row in it holds what no version of the library writes.

    Stop the service, keep a copy of the file with its ``-wal`` and ``-shm``, and restore a backup. Deleting the file
    forgets every count: turns that kill their incarnation would start over.
    """


class StoreReadOnly(StoreFault):
    """The file, its directory or its file system can't be written. Mend the permissions or the mount."""


class StoreFull(StoreFault):
    """No space is left on the disk or in the database. Free some; nothing was written by the failed call."""


class StoreNewer(StoreFault):
    """The file was written by a later version of the library. Upgrade this one; the file was not touched."""


class StoreForeign(StoreFault):
    """The file is a database of another application. Give another path; the file was not touched."""


class StoreUnavailable(StoreFault):
    """The disk or the database failed in another way (an I/O error, a path that can't be opened); see the cause."""


class Fenced(StoreFault):
    """The caller's incarnation is dead: another one claimed the store after it (C13). Nothing was changed.

    Throw away the result of the attempt and end the process, or enter a new ``Recovery``: the newer incarnation has
    counted this one, or will, and replays the turn. A door's holds go on at the newer door: attach to them there.

    Args:
        caller: who is fenced.
        living: who claimed the store last.
        words: the message, where the store is no store of incarnations.
    """

    def __init__(self, caller: int, living: int, words: str = "") -> None:
        self.caller = caller
        self.living = living
        super().__init__(
            words
            or f"incarnation {living} claimed the store last, so nothing that incarnation {caller} writes counts any"
            " more: throw away what it was doing, and end this process or claim the store anew"
        )


class StoreClosed(CallerError):
    """The store was closed. Open a new one."""


@attrs.frozen
class Stored:
    """What a store holds of one turn.

    Attributes:
        durable: what a crash would leave.
        buffered: what was written last, by the living incarnation; equal to ``durable`` once synced.
        produced: units of progress that the turn has made, durable as soon as they are written.
    """

    durable: Record
    buffered: Record
    produced: int


UNKNOWN = Stored(initial().durable, initial().buffered, initial().produced)
"""What a store returns of a turn that it has never seen."""

Change = Callable[[Stored], Stored]
"""A pure function from what is stored to what shall be; it may raise, and then nothing is changed."""


class Store(Protocol):
    """Durable storage for turns. Every method raises :class:`StoreFault` when the surroundings fail."""

    async def claim(self) -> int:
        """Begin a new incarnation and return its identity, durable, never used before; all earlier ones are fenced."""
        ...

    async def transact(self, incarnation: int, turn_id: str, change: Change) -> None:
        """Replace what is stored of *turn_id* by ``change(stored)``: one atomic read-modify-write.

        Nothing may be awaited, and nobody else may write, between the read and the write (C6). *change* may be called
        in another thread. Where it returns another ``durable`` than it got, that and every earlier write of this
        incarnation must be durable before the call returns; otherwise ``buffered`` may stay unsynced.

        A cancelled call is either done or not, never in part; and nothing of it is under way once it has raised.

        Raises:
            Fenced: *incarnation* is not the living one.
        """
        ...

    async def sync(self, incarnation: int) -> None:
        """Return when every write of *incarnation* so far is durable; at once if it is.

        Raises:
            Fenced: *incarnation* is not the living one: its unsynced writes may be lost.
        """
        ...

    async def read(self, turn_id: str) -> Stored:
        """What is stored of *turn_id*; :data:`UNKNOWN` if nothing is. Not fenced: anybody may look."""
        ...

    async def select(self, *, turn: Turn | None = None, status: Status | None = None) -> Sequence[tuple[str, Stored]]:
        """All turns, or those whose buffered record has *turn* and *status*, in order of their ids."""
        ...

    async def close(self) -> None:
        """Let go of files and threads. Closing again does nothing; any other call raises :class:`StoreClosed`."""
        ...


def successor(last: int) -> int:
    """The identity of the incarnation that claims a store after *last* did; 0 if nobody ever has."""
    return boot(attrs.evolve(initial(), incarnation=last)).incarnation


def admit_caller(caller: int, living: int, *, alive: bool = True) -> None:
    """Let a call of *caller* pass if it is the living incarnation (C13).

    Raises:
        Fenced: it is not.
    """
    if not accepts(attrs.evolve(initial(), incarnation=living, alive=alive), caller):
        raise Fenced(caller, living)
