"""What the search asks of an engine that runs a program: whole runs of states at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

from .packing import Words

Numbers = npt.NDArray[np.int32]
Look = tuple[int, list[tuple[int, int, tuple[int, ...]]]]


class Misfit(Exception):
    """A step leads to a state that does not fit its packing; ``number`` and ``label`` are its origin and instance."""

    def __init__(self, number: int, label: int) -> None:
        self.number = number
        self.label = label
        super().__init__(number, label)


@attrs.frozen
class Advance:
    """What a run of states led to: steps taken, steps cut, the instances that ran, and what was met first.

    ``of_state`` gives, for each bit of a state's events, the first state that has it; ``of_step`` for each bit of a step's
    events the state before and the instance. ``deadlock`` is the first state without a step that may not rest.
    """

    edges: int
    cut: int
    ran: frozenset[int]
    of_state: Mapping[int, int]
    of_step: Mapping[int, tuple[int, int]]
    deadlock: int | None


class Engine(Protocol):
    """The states found so far are numbered in breadth-first order, as the plain search numbers them."""

    name: str
    run: int
    """How many states it likes to take at once."""

    def __len__(self) -> int:
        """How many states there are."""

    def start(self, states: Sequence[tuple[int, ...]]) -> None:
        """Begin with these packed states."""

    def advance(self, first: int, last: int, pending: tuple[int, int]) -> Advance:
        """Take every step from the states *first* to *last* - 1, and number the states that are new.

        *pending* are the events of states and of steps that are still of interest.

        Raises:
            Misfit: a state does not fit.
        """

    def recount(self, first: int, last: int) -> tuple[int, int, frozenset[int]]:
        """Steps, cut steps and instances of a run of states, and nothing new."""

    def words(self, numbers: slice) -> Words:
        """The packed states with these numbers, a row each."""

    def parents(self, numbers: slice) -> Numbers:
        """From which state each of these was first reached; -1 for those in the beginning."""

    def look(self, numbers: Sequence[int]) -> list[Look]:
        """The events of each state, and of each step from it instance, events and the packed state after.

        A step that is cut has no state after, and is left out if it has no events.
        """

    def graph(self, last: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Offsets, targets and instances of all steps from the states before *last*."""

    def close(self) -> None:
        """Let go of threads."""
