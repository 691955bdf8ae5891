"""What drivers of the reference implementation share: what outlives an incarnation, and how an action is asked for.

A driver takes the actions that are named in :attr:`StepsDriver.played` itself, by the methods of these names after an
underscore, and asks the machine's steps for those in :attr:`StepsDriver.asked`. It has the methods that
``deadreckon.models.driver.Driver`` asks for, and knows nothing of models.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Generic, Protocol, TypeVar

from deadreckon.spec.errors import CallerError, Refused

from .clock import VirtualClock
from .store import Fenced

NOT_RESET = "the driver has not been reset yet: call reset(policy) first"

P = TypeVar("P")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")
X = TypeVar("X")


class Closable(Protocol):
    """A store of any machine."""

    async def close(self) -> None:
        """Let go of files and threads."""
        ...


class Mortal(Closable, Protocol):
    """A store in memory that models crashes."""

    def crash(self) -> None:
        """The living incarnation dies, and what was not synced is lost."""
        ...


M = TypeVar("M", bound=Mortal)
F = TypeVar("F", bound=Closable)


class Lasting(Protocol[S_co]):
    """What outlives an incarnation."""

    async def fresh(self) -> S_co:
        """An empty store; earlier ones are let go of."""
        ...

    async def crashed(self) -> S_co:
        """What the next incarnation finds after a crash."""
        ...

    async def close(self) -> None:
        """Let go of every store."""
        ...


class InMemory(Generic[M]):
    """What outlives an incarnation: a store in memory, which loses what was not synced."""

    def __init__(self, make: Callable[[], M]) -> None:
        self._make = make
        self._store = make()

    async def fresh(self) -> M:
        """An empty store."""
        self._store = self._make()
        return self._store

    async def crashed(self) -> M:
        """The same store, without what was not synced."""
        self._store.crash()
        return self._store

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


class InFiles(Generic[F]):
    """What outlives an incarnation: SQLite files in *directory*, called *name* and a number, one for each run.

    After a crash the file is opened anew beside its open store: a crash tidies nothing up.
    """

    def __init__(self, directory: str | os.PathLike[str], name: str, make: Callable[[str], F]) -> None:
        self._paths = (os.path.join(os.fspath(directory), f"{name}-{number}.db") for number in count(1))
        self._path = ""
        self._make = make
        self._opened: list[F] = []

    async def fresh(self) -> F:
        """A store in a file of its own; earlier ones are closed."""
        await self.close()
        self._path = self._unused()
        return await self.crashed()

    def _unused(self) -> str:
        return next(path for path in self._paths if not os.path.exists(path))

    async def crashed(self) -> F:
        """The file, opened anew."""
        self._opened.append(self._make(self._path))
        return self._opened[-1]

    async def close(self) -> None:
        """Close every store that was opened."""
        while self._opened:
            await self._opened.pop().close()


class StepsDriver(ABC, Generic[P, S, T, X]):
    """Drives the steps of one entity of a machine: its policy, its store, its steps, and the state that they show.

    Attributes:
        machine: its name.
        played: the actions that are not asked of the implementation, or not always in the same way.
        asked: those that are methods of its steps.
        disk: what outlives an incarnation.
    """

    machine: str
    played: frozenset[str]
    asked: frozenset[str] = frozenset()

    def __init__(self, disk: Lasting[S], policy: P) -> None:
        self.disk = disk
        self._runner = asyncio.Runner()
        self._policy = policy
        self._clock = VirtualClock()
        self._store: S | None = None
        self._steps: T | None = None

    def reset(self, policy: object) -> None:
        """Begin anew: an empty store, nobody lives, time 0."""
        kind = type(self._policy)
        if not isinstance(policy, kind):
            raise CallerError(f"the policy is {policy!r}: give a {kind.__name__}")
        self._policy = policy
        self._clock = VirtualClock()
        self._runner.run(self._begin())

    def do(self, action: str, /, **inputs: object) -> None:
        """Take an action of the machine.

        Raises:
            Refused: the implementation refuses; a store that fences the caller names no rule.
            CallerError: there is no such action.
        """
        if action in self.played:
            self._runner.run(self._taken(getattr(self, f"_{action}"), inputs))
        elif action in self.asked:
            self._runner.run(self._ask(action, inputs))
        else:
            known = ", ".join(sorted(self.played | self.asked))
            raise CallerError(f"the {self.machine} has no action {action!r}: one of {known}")

    def observe(self) -> X:
        """The state as the specification sees it: what the store has, and the memory of the incarnation."""
        return self._runner.run(self._state())

    def close(self) -> None:
        """Close the stores, and end the event loop."""
        try:
            self._runner.run(self.disk.close())
        finally:
            self._runner.close()

    @property
    def _now(self) -> T:
        """The steps of whoever lives, or of nobody."""
        if self._steps is None:
            raise CallerError(NOT_RESET)
        return self._steps

    @property
    def _there(self) -> S:
        """The store."""
        if self._store is None:
            raise CallerError(NOT_RESET)
        return self._store

    async def _begin(self) -> None:
        self._store = await self.disk.fresh()
        self._nobody()

    @abstractmethod
    def _nobody(self) -> None:
        """Nobody lives, and memory is empty."""

    @abstractmethod
    async def _state(self) -> X:
        """The machine's state, as the store and memory show it."""

    async def _ask(self, action: str, inputs: dict[str, object]) -> None:
        await self._taken(getattr(self._now, action), inputs)

    async def _taken(self, own: Callable[..., Awaitable[object]], inputs: dict[str, object]) -> None:
        try:
            await own(**inputs)
        except Fenced as fenced:
            raise Refused("", str(fenced)) from fenced
