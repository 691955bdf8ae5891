"""The engine in NumPy, for where numba is not installed: a run of states at a time, each operation over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import attrs
import numpy as np
import numpy.typing as npt

from .. import expr as ir
from ..expr import Op
from .dataflow import Program, Values
from .engine import Advance, Look, Misfit, Numbers
from .packing import Words

Array = npt.NDArray[np.generic]
Places = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

RUN = 16_384
"""States at once: enough that Python costs little, few enough for the cache."""

FULL = 0.5
"""How much of the table may be in use."""


class VectorOps:
    """Operations on arrays with one element a state, or on scalars that stand for all."""

    def number(self, value: int) -> Array:
        """A constant number."""
        return np.asarray(value, dtype=np.int64)

    def truth(self, value: bool) -> Array:
        """A constant truth."""
        return np.asarray(value, dtype=np.bool_)

    def word(self, value: int) -> Array:
        """A constant word."""
        return np.asarray(value, dtype=np.uint64)

    def apply(self, op: Op, args: Sequence[Array]) -> Array:
        """An operator of the intermediate form."""
        match op:
            case Op.AND:
                return reduce(np.logical_and, args)
            case Op.OR:
                return reduce(np.logical_or, args)
            case _:
                return np.asarray(_OPERATORS[op](*args))

    def both(self, left: Array, right: Array) -> Array:
        """Bitwise and."""
        return np.asarray(np.bitwise_and(left, right))

    def either(self, left: Array, right: Array) -> Array:
        """Bitwise or."""
        return np.asarray(np.bitwise_or(left, right))

    def up(self, word: Array, bits: int) -> Array:
        """A shift to the left."""
        return np.asarray(np.left_shift(word, np.uint64(bits)))

    def down(self, word: Array, bits: int) -> Array:
        """A shift to the right."""
        return np.asarray(np.right_shift(word, np.uint64(bits)))

    def as_number(self, word: Array, low: int) -> Array:
        """*low* + *word*."""
        return np.asarray(word.astype(np.int64) + low)

    def as_truth(self, word: Array) -> Array:
        """Whether *word* is not 0."""
        return np.asarray(word != 0)

    def number_as_word(self, number: Array, low: int) -> Array:
        """*number* - *low*."""
        return np.subtract(number, low, dtype=np.int64).astype(np.uint64)

    def truth_as_word(self, truth: Array) -> Array:
        """1 or 0."""
        return truth.astype(np.uint64)

    def at_most(self, word: Array, greatest: int) -> Array:
        """What was below 0 is too large."""
        return np.asarray(word <= np.uint64(greatest))

    def ordered(self, left: Array, right: Array) -> tuple[Array, Array]:
        """The lesser and the greater."""
        return np.minimum(left, right), np.maximum(left, right)


_OPERATORS: dict[Op, Callable[..., object]] = {
    Op.ADD: np.add,
    Op.MUL: np.multiply,
    Op.NEG: np.negative,
    Op.NOT: np.logical_not,
    Op.EQ: np.equal,
    Op.LT: np.less,
    Op.LE: np.less_equal,
    Op.ITE: np.where,
}


@attrs.frozen
class Steps:
    """The steps of a run of states, in the order of a plain search: origin, instance, events, and the state after."""

    parents: Places
    labels: Places
    events: Words
    within: Truths
    fits: Truths
    words: Words

    def taken(self) -> Steps:
        """Those that are not cut."""
        return Steps(*(getattr(self, field.name)[self.within] for field in attrs.fields(Steps)))


class VectorEngine:
    """Runs *program* over arrays."""

    name = "numpy"
    run = RUN

    def __init__(self, program: Program) -> None:
        self.program = program
        self._width = program.packing.words
        self._order: Words = np.empty((RUN, self._width), dtype=np.uint64)
        self._parent: Numbers = np.empty(RUN, dtype=np.int32)
        self._length = 0
        self._table: Words = np.zeros((4 * RUN, self._width), dtype=np.uint64)
        self._claims: Places = np.zeros(4 * RUN, dtype=np.int64)

    def __len__(self) -> int:
        return self._length

    def start(self, states: Sequence[tuple[int, ...]]) -> None:
        """Begin with these packed states."""
        words = np.array(list(dict.fromkeys(states)), dtype=np.uint64).reshape(-1, self._width)
        self._add(words[self._insert(words)], np.full(len(words), -1, dtype=np.int64))

    def advance(self, first: int, last: int, pending: tuple[int, int]) -> Advance:
        """Take all steps, and number what is new."""
        steps = self._steps(self._order[first:last], first)
        bad = np.flatnonzero(steps.within & ~steps.fits)
        if len(bad):
            raise Misfit(int(steps.parents[bad[0]]), int(steps.labels[bad[0]]))
        taken = steps.taken()
        fresh = self._insert(taken.words)
        base = self._length
        self._add(taken.words[fresh], taken.parents[fresh])
        met = _earliest(self._judged(self._order[base : self._length]), pending[0])
        on_the_way = _earliest(steps.events, pending[1])
        return Advance(
            *_counts(steps),
            {bit: base + at for bit, at in met.items()},
            {bit: (int(steps.parents[at]), int(steps.labels[at])) for bit, at in on_the_way.items()},
            self._deadlock(first, last, steps),
        )

    def recount(self, first: int, last: int) -> tuple[int, int, frozenset[int]]:
        """Take all steps again, and count."""
        return _counts(self._steps(self._order[first:last]))

    def words(self, numbers: slice) -> Words:
        """The packed states, a row each."""
        return self._order[: self._length][numbers]

    def parents(self, numbers: slice) -> Numbers:
        """From which state each was first reached."""
        return self._parent[: self._length][numbers]

    def look(self, numbers: Sequence[int]) -> list[Look]:
        """The events of states, and their steps."""
        at = np.asarray(numbers, dtype=np.int64)
        steps = self._steps(self._order[at])
        looks: list[Look] = [(int(events), []) for events in self._judged(self._order[at])]
        for row in range(len(steps.parents)):
            words = tuple(steps.words[row].tolist()) if steps.within[row] else ()
            if words or steps.events[row]:
                looks[steps.parents[row]][1].append((int(steps.labels[row]), int(steps.events[row]), words))
        return looks

    def graph(self, last: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Take all steps again, and look up where they lead."""
        by_words = np.lexsort(self._order[: self._length].T[::-1])
        ordered = _comparable(self._order[: self._length][by_words])
        offsets = np.zeros(last + 1, dtype=np.int64)
        targets, labels = [], []
        for first in range(0, last, RUN):
            taken = self._steps(self._order[first : min(first + RUN, last)], first).taken()
            offsets[1:] += np.bincount(taken.parents, minlength=last)
            targets += by_words[np.searchsorted(ordered, _comparable(taken.words))].tolist()
            labels += taken.labels.tolist()
        return np.cumsum(offsets).tolist(), targets, labels

    def close(self) -> None:
        """Nothing is held."""

    def _values(self, words: Words) -> Values[Array]:
        return Values(self.program, VectorOps(), tuple(words.T))

    def _judged(self, words: Words) -> Words:
        """The events of states."""
        found = self._values(words).events([one for _, one in self.program.judged.of_state])
        return np.broadcast_to(found.astype(np.uint64), (len(words),))

    def _deadlock(self, first: int, last: int, steps: Steps) -> int | None:
        stuck = np.flatnonzero(np.bincount(steps.parents - first, minlength=last - first) == 0)
        if not len(stuck):
            return None
        terminal = self.program.grounded.triggers.get("terminal", ir.FALSE)
        rests = np.broadcast_to(self._values(self._order[first:last][stuck]).of(terminal), (len(stuck),))
        return next((first + int(at) for at in stuck[~rests.astype(np.bool_)]), None)

    def _steps(self, words: Words, first: int = 0) -> Steps:
        """All steps from rows of states that are numbered from *first* on."""
        values = self._values(words)
        parts = []
        for instance in self.program.grounded.instances:
            enabled = np.flatnonzero(np.broadcast_to(values.of(instance.guard), (len(words),)))
            if len(enabled):
                after = self._values(words[enabled]).after(instance)
                columns = (np.full(len(enabled), instance.index), after.events, after.within, after.fits, *after.words)
                parts.append((first + enabled, *(np.broadcast_to(one, (len(enabled),)) for one in columns)))
        if not parts:
            none = np.empty(0, dtype=np.int64)
            return Steps(none, none, none.astype(np.uint64), none > 0, none > 0, words[:0])
        parents, labels, events, within, fits, *after_words = (np.concatenate(one) for one in zip(*parts, strict=True))
        order = np.lexsort((labels, parents))
        found = np.stack(after_words, axis=1)
        return Steps(
            parents[order],
            labels[order],
            events.astype(np.uint64)[order],
            within.astype(np.bool_)[order],
            fits.astype(np.bool_)[order],
            found.astype(np.uint64)[order],
        )

    def _add(self, words: Words, parents: Places) -> None:
        end = self._length + len(words)
        if end > len(self._order):
            size = max(end, len(self._order) * 3 // 2)
            order, parent = np.empty((size, self._width), dtype=np.uint64), np.empty(size, dtype=np.int32)
            order[: self._length], parent[: self._length] = self._order[: self._length], self._parent[: self._length]
            self._order, self._parent = order, parent
        self._order[self._length : end] = words
        self._parent[self._length : end] = parents
        self._length = end

    def _insert(self, words: Words) -> Truths:
        """Put rows into the table: which of them were not there, the first of equal rows counting as such."""
        if self._length + len(words) > FULL * len(self._table):
            size = len(self._table)
            while self._length + len(words) > FULL * size:
                size *= 2
            self._table, self._claims = np.zeros((size, self._width), dtype=np.uint64), np.zeros(size, dtype=np.int64)
            for first in range(0, self._length, RUN):
                self._place(self._order[first : min(first + RUN, self._length)])
        return self._place(words)

    def _place(self, words: Words) -> Truths:
        """All rows probe in step: equal rows meet at one slot in one round, where the first of them wins."""
        fresh = np.zeros(len(words), dtype=np.bool_)
        slots = (_mixed(words) & np.uint64(len(self._table) - 1)).astype(np.int64)
        waiting = np.arange(len(words))
        while len(waiting):
            at = slots[waiting]
            held = self._table[at]
            free = held[:, 0] == 0
            same = (held == words[waiting]).all(axis=1)
            claimants = waiting[free]
            self._claims[slots[claimants][::-1]] = claimants[::-1]  # Of several, the last that is written stays.
            won = np.zeros(len(waiting), dtype=np.bool_)
            won[free] = self._claims[slots[claimants]] == claimants
            winners = waiting[won]
            self._table[slots[winners]] = words[winners]
            fresh[winners] = True
            others = waiting[~free & ~same]
            slots[others] = (slots[others] + 1) & (len(self._table) - 1)
            waiting = waiting[~same & ~won]
        return fresh


def _mixed(words: Words) -> Words:
    found = words[:, 0].copy()
    for word in words.T[1:]:
        found ^= word * np.uint64(0x9E3779B97F4A7C15)
    for _ in range(2):
        found ^= found >> np.uint64(32)
        found *= np.uint64(0xD6E8FEB86659FD93)
    return found ^ (found >> np.uint64(32))


def _comparable(words: Words) -> npt.NDArray[np.void]:
    """Rows as single values that compare as the rows do."""
    return np.ascontiguousarray(words.astype(">u8")).view(f"V{8 * words.shape[1]}").ravel()


def _counts(steps: Steps) -> tuple[int, int, frozenset[int]]:
    taken = int(steps.within.sum())
    return taken, len(steps.within) - taken, frozenset(np.unique(steps.labels[steps.within]).tolist())


def _earliest(events: Words, pending: int) -> dict[int, int]:
    """By bit, where it is first set."""
    found = {}
    seen = np.flatnonzero(events & np.uint64(pending))
    for at, word in zip(seen.tolist(), events[seen].tolist(), strict=True):
        new = word & pending
        while new:
            bit = (new & -new).bit_length() - 1
            found[bit] = at
            pending &= ~(1 << bit)
            new &= new - 1
    return found
