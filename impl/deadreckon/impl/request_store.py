"""The port to durable storage of requests, and one in memory for tests.

A store keeps one :class:`Filed` for each request. It decides nothing about requests: it reads, hands what it read to a
*change*, and keeps what comes back, all as one durable step that nothing can come between. The horizon's timer is a
column of the same row, so no crash parts a request from its timer. The one thing the store must hold of its own is
fencing (Q2): a call of an incarnation that is not the living one changes nothing.

Its failures are those of :mod:`deadreckon.impl.store`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import attrs

from deadreckon.spec.request import accepts, boot, initial
from deadreckon.spec.request import crash as crashed
from deadreckon.spec.request_lemmas import l5
from deadreckon.spec.request_rules import q7a, q7b
from deadreckon.spec.request_state import Request, State, Status

from .store import LARGEST, Fenced, StoreClosed, StoreCorrupt


@attrs.frozen
class Filed:
    """What a store holds of one request.

    Attributes:
        request: the record of the specification.
        body: what is asked, as its caller wrote it; whoever adopts the request has it from here.
        answer: what a success has brought; empty otherwise.
        error: what the last failure said, for people; empty if there was none.
        opened_at_ms, dialled_at_ms, settled_at_ms: when it was opened, last tried, and settled; 0 if never.
    """

    request: Request
    body: str = ""
    answer: str = ""
    error: str = ""
    opened_at_ms: int = 0
    dialled_at_ms: int = 0
    settled_at_ms: int = 0


UNFILED: Final = Filed(initial().request)
"""What a store returns of a request that it has never seen."""

Change = Callable[[Filed], Filed]
"""A pure function from what is filed to what shall be; it may raise, and then nothing is changed."""


class RequestStore(Protocol):
    """Durable storage for requests. Every method raises ``StoreFault`` when the surroundings fail."""

    async def claim(self) -> int:
        """Begin a new incarnation and return its identity, durable, never used before; all earlier ones are fenced."""
        ...

    async def transact(self, incarnation: int, request_id: str, change: Change) -> None:
        """Replace what is filed of *request_id* by ``change(filed)``: one atomic read-modify-write, durable on return.

        *change* may be called in another thread. A cancelled call is either done or not, never in part; and nothing
        of it is under way once it has raised.

        Raises:
            Fenced: *incarnation* is not the living one.
        """
        ...

    async def read(self, request_id: str) -> Filed:
        """What is filed of *request_id*; :data:`UNFILED` if nothing is. Not fenced: anybody may look."""
        ...

    async def unfinished(self) -> Sequence[tuple[str, Filed]]:
        """All requests that are open, or whose outcome is not told; those that expire first come first."""
        ...

    async def latest(self, count: int) -> Sequence[tuple[str, Filed]]:
        """The *count* requests that were opened last, settled or not; the youngest first."""
        ...

    async def living(self) -> int:
        """The incarnation that claimed the store last; 0 if nobody has. Whether it still runs, no store knows."""
        ...

    async def close(self) -> None:
        """Let go of files and threads. Closing again does nothing; any other call raises ``StoreClosed``."""
        ...


def successor(last: int) -> int:
    """The identity of the incarnation that claims a store after *last* did; 0 if nobody ever has."""
    return boot(attrs.evolve(initial(), incarnation=last)).incarnation


def admit(caller: int, living: int, *, alive: bool = True) -> None:
    """Let a call of *caller* pass if it is the living incarnation (Q2).

    Raises:
        Fenced: it is not.
    """
    if not accepts(attrs.evolve(initial(), incarnation=living, alive=alive), caller):
        raise Fenced(caller, living)


def is_unfinished(filed: Filed) -> bool:
    """Whether there is anything left to do: it is open, or nobody was told its outcome."""
    return filed.request.told is not filed.request.status


_SOUND: Final = (l5, q7a, q7b)
"""The rules about a record alone, of which q5a is a part of l5."""


def sound(filed: Filed) -> Filed:
    """*filed*, if some version of this library could have written it.

    Raises:
        StoreCorrupt: none could.
    """
    request = filed.request
    state = attrs.evolve(initial(), request=request, incarnation=request.owner)
    numbers = (*attrs.astuple(request, filter=_is_number), *attrs.astuple(filed, recurse=False, filter=_is_number))
    wrong = [f"it is not so that {rule.sentence} ({rule.id})" for rule in _SOUND if not rule.holds(state)]
    if request.status is Status.ABSENT:
        wrong.append("it was never opened")
    if not all(0 <= number < LARGEST for number in numbers) or request.backoff_ms < 1:
        wrong.append("a count or an instant is impossible")
    if wrong:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {wrong[0]}")
    return filed


def _is_number(field: attrs.Attribute[object], value: object) -> bool:
    return isinstance(value, int)


Hook = Callable[[str], Awaitable[None]]


class MemoryRequests:
    """An in-memory :class:`RequestStore` with crashes. Each write is durable when it is made, as in a file.

    The store is tied to no event loop: one ``asyncio.run`` for each life is a faithful process.

    Attributes:
        hook: awaited at every await point, with its name: that of the method, followed by ``.before`` or ``.after``.
            What it raises, the call raises: so a write is made or not, and its caller may not know which.
    """

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook
        self._life: State = initial()
        self._filed: dict[str, Filed] = {}
        self._closed = False

    @property
    def incarnation(self) -> int:
        """The incarnation that claimed the store last; 0 if nobody has."""
        return self._life.incarnation

    @property
    def alive(self) -> bool:
        """Whether the incarnation that claimed the store last has not crashed."""
        return self._life.alive

    def crash(self, keep: int = 0) -> None:
        """The living incarnation dies. Nothing is unsynced, so there is nothing to *keep*.

        Raises:
            Refused: nobody lives (Q2a).
        """
        self._life = crashed(self._life)

    def now(self, request_id: str) -> Filed:
        """What is filed of *request_id*, without an await point."""
        return self._filed.get(request_id, UNFILED)

    async def claim(self) -> int:
        """Begin a new incarnation; one that lives dies of it, as in a deploy."""
        await self._point("claim.before")
        if self._life.alive:
            self.crash()
        self._life = boot(self._life)
        identity = self._life.incarnation
        await self._point("claim.after")
        return identity

    async def transact(self, incarnation: int, request_id: str, change: Change) -> None:
        """See :meth:`RequestStore.transact`."""
        await self._point("transact.before")
        admit(incarnation, self._life.incarnation, alive=self._life.alive)
        self._filed[request_id] = change(self.now(request_id))
        await self._point("transact.after")

    async def read(self, request_id: str) -> Filed:
        """See :meth:`RequestStore.read`."""
        await self._point("read.before")
        filed = self.now(request_id)
        await self._point("read.after")
        return filed

    async def unfinished(self) -> Sequence[tuple[str, Filed]]:
        """See :meth:`RequestStore.unfinished`."""
        await self._point("unfinished.before")
        rows = [(request_id, filed) for request_id, filed in self._filed.items() if is_unfinished(filed)]
        await self._point("unfinished.after")
        return sorted(rows, key=lambda row: (row[1].request.expires_at_ms, row[0]))

    async def latest(self, count: int) -> Sequence[tuple[str, Filed]]:
        """See :meth:`RequestStore.latest`."""
        await self._point("latest.before")
        rows = sorted(self._filed.items(), key=lambda row: (-row[1].opened_at_ms, row[0]))
        await self._point("latest.after")
        return rows[:count]

    async def living(self) -> int:
        """See :meth:`RequestStore.living`."""
        return self._life.incarnation

    async def close(self) -> None:
        """See :meth:`RequestStore.close`."""
        self._closed = True

    async def _point(self, name: str) -> None:
        if self._closed:
            raise StoreClosed("the store was closed")
        if self.hook is not None:
            await self.hook(name)
