"""What a line may stand for: moves, made of actions taken, values seen, and values taken over from the log."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Protocol, TypeAlias

import attrs

from deadreckon.spec import DeadreckonError

from ..layout import position

Key: TypeAlias = tuple[object, ...]
"""What a line comes to for one part of one entity: a kind, and numbers in place of names."""


class Malformed(DeadreckonError):
    """A line is not what the vocabulary says; it is reported with its number and left out."""


class NotFollowed(DeadreckonError):
    """There is more of an entity than the machine has; from here on it is not judged."""


@attrs.frozen
class Do:
    """An action is taken, with these inputs (enum members as positions, truth values as 0 and 1)."""

    action: str
    inputs: tuple[tuple[str, int], ...]


@attrs.frozen
class See:
    """The leaf at *path* lies between *low* and *high*, ends included; None is no end. *other* turns it round.

    What is *given* only says where the move may begin: it is no part of what the line shows.
    """

    path: str
    low: int | None
    high: int | None
    other: bool = False
    given: bool = False

    def holds(self, value: int) -> bool:
        """Whether *value* is what is seen."""
        within = (self.low is None or self.low <= value) and (self.high is None or value <= self.high)
        return within is not self.other


@attrs.frozen
class Put:
    """The leaf at *path* is what the log says."""

    path: str
    value: int


Part: TypeAlias = Do | See | Put
Move: TypeAlias = tuple[Part, ...]


@attrs.frozen
class Blame:
    """Another reading of a line that fits nowhere: an earlier line, of one of these kinds of key, did wrong already.

    ``sees`` is what that earlier step then came to; ``rules`` are those that it may have broken (all, if there are none).
    *last*: it can only be the step right before; *since*: it comes after the last one of these kinds.
    """

    kinds: tuple[str, ...]
    sees: tuple[See, ...]
    rules: tuple[str, ...] = ()
    last: bool = False
    since: tuple[str, ...] = ()


def number(value: int | Enum) -> int:
    """A value as a flat state has it."""
    return position(value) if isinstance(value, Enum) else int(value)


def do(action: str, **inputs: int | Enum) -> Do:
    """An action with its inputs."""
    return Do(action, tuple((name, number(value)) for name, value in inputs.items()))


def see(path: str, value: int | Enum) -> See:
    """The leaf has this value."""
    return See(path, number(value), number(value))


def given(path: str, value: int | Enum) -> See:
    """The move may begin where the leaf has this value."""
    return See(path, number(value), number(value), given=True)


def given_not(path: str, value: int | Enum) -> See:
    """The move may begin where the leaf has another value."""
    return See(path, number(value), number(value), other=True, given=True)


def see_from(path: str, low: int) -> See:
    """The leaf is no less than *low*."""
    return See(path, low, None)


def see_upto(path: str, high: int) -> See:
    """The leaf is no more than *high*."""
    return See(path, None, high)


class Vocabulary(Protocol):
    """What a monitor asks of a vocabulary."""

    clock: ClassVar[bool]
    instants: ClassVar[tuple[tuple[str, str], ...]]
    exact: ClassVar[frozenset[str] | None]

    def moves(self, key: Key) -> Iterable[Move]:
        """The moves that may have written a line with this key."""

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """The moves that write no line, if the log has no lines of the types *absent*."""
