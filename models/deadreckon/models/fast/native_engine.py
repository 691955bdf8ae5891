"""The engine in machine code: states are owned by a part of their hash, and each owner works in a thread of its own.

A run of states is taken in three rounds, each in all threads: expand a share of the states; put what each owner owns
into its table; number what is new, in the order in which one thread would have met it. No locks, no atomics.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import numpy.typing as npt

from ..exploration import Unsuitable
from . import kernels
from .dataflow import Program
from .engine import Advance, Look, Misfit, Numbers
from .native import CUT, MAX_INSTANCES, RECORD, compiled
from .packing import Words

SHARE = 4096
"""States that a thread expands at once, so that their records stay in its cache."""

RECORDS = 1 << 18
"""The most records of one thread at once."""

FEW = 256
"""With fewer states to expand, threads cost more than they save."""

FULL = 0.75
"""How much of a table may be in use."""

SMALLEST = 1024
"""How many places a table has at least."""

GROWTH = 8
"""Arrays grow by this part of themselves: it is cheap where the system moves pages, and little lies idle."""

STATES = (1 << 31) - 1
"""The most states that can be numbered."""

LABELS = (1 << 16) - 1
EVENTS = (1 << 63) - 1
ALL = np.uint64(EVENTS)


class NativeEngine:
    """Runs *program* in *threads* threads; machine code is kept under *digest*."""

    name = "numba"

    def __init__(self, program: Program, digest: str, threads: int | None = None) -> None:
        instances = len(program.grounded.instances)
        if instances >= MAX_INSTANCES:
            raise Unsuitable(f"{instances} actions with their inputs: explore it with the plain engine")
        self.threads = threads or min(8, _cores())
        self.callbacks = compiled(program, digest)
        self._addresses = np.array([self.callbacks.expand, self.callbacks.judge], dtype=np.int64)
        self._width = program.packing.words
        self._size = self._width + RECORD
        self._share = max(1, min(SHARE, RECORDS // max(1, instances)))
        self.run = self._share * self.threads
        most = self._share * max(1, instances)
        self._records = [np.empty(most * self._size, dtype=np.uint64) for _ in range(self.threads)]
        self._owned = [np.empty((self.threads, most), dtype=np.uint32) for _ in range(self.threads)]
        self._fresh = [np.empty(most, dtype=np.uint8) for _ in range(self.threads)]
        self._ran = np.zeros((self.threads, instances), dtype=np.uint8)
        self._tables = [np.empty(0, dtype=np.uint64) for _ in range(self.threads)]
        self._held = [0] * self.threads
        self._order: Words = np.empty(SMALLEST * self._width, dtype=np.uint64)
        self._parent: Numbers = np.empty(SMALLEST, dtype=np.int32)
        self._length = 0
        self._pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None

    def __len__(self) -> int:
        return self._length

    def start(self, states: Sequence[tuple[int, ...]]) -> None:
        """Begin with these packed states."""
        rows = np.array(list(dict.fromkeys(states)), dtype=np.uint64).reshape(-1)
        length = len(rows) // self._width
        self._hold(length)
        self._order[: len(rows)], self._parent[:length], self._length = rows, -1, length
        for owner in range(self.threads):
            self._held[owner] = length  # at most; which are whose, the table knows
            self._make_room(owner, 0)

    def advance(self, first: int, last: int, pending: tuple[int, int]) -> Advance:
        """Expand, insert, number; see :class:`~.engine.Engine`."""
        of_states, of_steps = (np.uint64(one) for one in pending)
        tallies, by_step = self._expand(first, last, of_steps)
        misfits = [(int(one[4]), int(one[5])) for one in tallies if one[4] >= 0]
        if misfits:
            raise Misfit(*min(misfits))
        made = self._insert(tallies)
        by_state = self._number(tallies, made, of_states)
        deadlocks = [int(one[3]) for one in tallies if one[3] >= 0]
        return Advance(
            *self._sums(tallies),
            {bit: number for bit, (number, _) in _earliest(by_state).items()},
            _earliest(by_step),
            min(deadlocks, default=None),
        )

    def recount(self, first: int, last: int) -> tuple[int, int, frozenset[int]]:
        """Expand again, and only count."""
        return self._sums(self._expand(first, last, np.uint64(0))[0])

    def words(self, numbers: slice) -> Words:
        """The packed states, a row each."""
        return self._order[: self._length * self._width].reshape(-1, self._width)[numbers].copy()

    def parents(self, numbers: slice) -> Numbers:
        """From which state each was first reached."""
        return self._parent[: self._length][numbers].copy()

    def look(self, numbers: Sequence[int]) -> list[Look]:
        """The events of states, and their steps."""
        return [self._look(number) for number in numbers]

    def graph(self, last: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Take every step once more, and look up where it leads."""
        size = 1 << max(10, (self._length * 2 - 1).bit_length())
        places, mask = np.full(size, -1, dtype=np.int32), np.uint64(size - 1)
        kernels.listed(self._order, self._length, places, mask, self._width)
        offsets = np.zeros(last + 1, dtype=np.int64)
        targets, labels = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int32)]
        for first in range(0, last, self._share):
            (tally, *_), _ = self._expand(first, min(first + self._share, last), np.uint64(0), alone=True)
            found, by = (np.empty(int(tally[1]), dtype=np.int32) for _ in range(2))
            kernels.targets(self._records[0], int(tally[0]), self._order, places, mask, self._width, offsets, found, by)
            targets.append(found)
            labels.append(by)
        return tuple(one.tolist() for one in (np.cumsum(offsets), np.concatenate(targets), np.concatenate(labels)))

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _look(self, number: int) -> Look:
        (tally, *_), _ = self._expand(number, number + 1, ALL, alone=True)
        rows = self._records[0][: int(tally[0]) * self._size].reshape(-1, self._size)
        steps = []
        for row in rows.tolist():
            mark, events = row[self._width], row[self._width + 1]
            steps.append((mark & LABELS, events, () if mark & CUT else tuple(row[: self._width])))
        return kernels.judged(self._addresses, self._order, number, self._width) & EVENTS, steps

    def _expand(
        self, first: int, last: int, pending: np.uint64, *, alone: bool = False
    ) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.int64]]]:
        """Tallies and first events by share; one thread takes all of few states."""
        self._ran[:] = 0
        parts = 1 if alone or last - first < min(FEW, self._share) else self.threads
        cuts = [first + (last - first) * part // parts for part in range(parts + 1)]
        tallies = [np.zeros(6 + self.threads, dtype=np.int64) for _ in range(parts)]
        events = [np.full((64, 2), -1, dtype=np.int64) for _ in range(parts)]

        def one(part: int) -> None:
            kernels.expand(
                self._addresses,
                self._order,
                self._width,
                (cuts[part], cuts[part + 1]),
                self._records[part],
                self._owned[part],
                self._fresh[part],
                self._ran[part],
                pending,
                events[part],
                tallies[part],
            )

        self._each(one, parts)
        return tallies, events

    def _insert(self, tallies: list[npt.NDArray[np.int64]]) -> list[list[int]]:
        """How many were new, by owner and share."""
        made = [[0] * len(tallies) for _ in range(self.threads)]

        def one(owner: int) -> None:
            self._make_room(owner, sum(int(tally[6 + owner]) for tally in tallies))
            table = self._tables[owner]
            mask = np.uint64(len(table) // self._width - 1)
            for part, tally in enumerate(tallies):
                made[owner][part] = kernels.insert(
                    self._records[part],
                    self._owned[part][owner],
                    int(tally[6 + owner]),
                    self._fresh[part],
                    table,
                    mask,
                    self._width,
                )
            self._held[owner] += sum(made[owner])

        self._each(one, self.threads, together=len(tallies) > 1)
        return made

    def _make_room(self, owner: int, more: int) -> None:
        """A larger table, if need be, filled from the states themselves: it never stands beside the one before."""
        held = len(self._tables[owner]) // self._width
        size = max(held, SMALLEST)
        while self._held[owner] + more > FULL * size:
            size *= 2
        if size == held:
            return
        self._tables[owner] = np.empty(0, dtype=np.uint64)
        table = self._tables[owner] = np.zeros(size * self._width, dtype=np.uint64)
        kernels.filled(self._order, self._length, owner, self.threads, table, np.uint64(size - 1), self._width)

    def _hold(self, length: int) -> None:
        """Have room for so many states, and some more; where the system moves pages, without a copy."""
        if length > len(self._parent):
            size = max(length, len(self._parent) + len(self._parent) // GROWTH)
            self._order.resize(size * self._width, refcheck=False)  # nobody has a view: words and parents are copies
            self._parent.resize(size, refcheck=False)

    def _number(
        self, tallies: list[npt.NDArray[np.int64]], made: list[list[int]], pending: np.uint64
    ) -> list[npt.NDArray[np.int64]]:
        bases = [self._length]
        for part in range(len(tallies)):
            bases.append(bases[-1] + sum(by_part[part] for by_part in made))
        if bases[-1] >= STATES:
            raise MemoryError(f"more than {STATES} states")
        self._hold(bases[-1])
        events = [np.full((64, 2), -1, dtype=np.int64) for _ in tallies]

        def one(part: int) -> None:
            kernels.number(
                self._addresses,
                self._records[part],
                int(tallies[part][0]),
                self._fresh[part],
                self._order,
                self._parent,
                bases[part],
                self._width,
                pending,
                events[part],
            )

        self._each(one, len(tallies))
        self._length = bases[-1]
        return events

    def _sums(self, tallies: list[npt.NDArray[np.int64]]) -> tuple[int, int, frozenset[int]]:
        ran = frozenset(np.flatnonzero(self._ran.any(axis=0)).tolist())
        return sum(int(one[1]) for one in tallies), sum(int(one[2]) for one in tallies), ran

    def _each(self, work: Callable[[int], None], parts: int, *, together: bool = True) -> None:
        if self._pool is None or not together or parts == 1:
            for part in range(parts):
                work(part)
            return
        others = [self._pool.submit(work, part) for part in range(1, parts)]
        try:
            work(0)
        finally:
            wait(others)  # whatever interrupts this one: nothing may change under those who look at what was found
        for other in others:
            other.result()


def _earliest(events: list[npt.NDArray[np.int64]]) -> dict[int, tuple[int, int]]:
    """By bit, what the first share that met it met."""
    found: dict[int, tuple[int, int]] = {}
    for part in reversed(events):
        found |= {int(bit): (int(part[bit, 0]), int(part[bit, 1])) for bit in np.flatnonzero(part[:, 0] >= 0)}
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
