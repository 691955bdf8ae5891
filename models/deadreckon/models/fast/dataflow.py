"""What a step computes, in terms that machine code and NumPy both have: no branches, only values.

A state is packed (:mod:`packing`); a *body* unpacks the leaves that it needs, computes the updates of one instance of an
action, sorts interchangeable elements and packs the state after. Backends differ in :class:`Ops` alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import attrs

from .. import expr as ir
from .. import intervals
from ..exploration import Unsuitable
from ..expr import Expr, Op, Sort
from ..grounding import Grounded, Instance
from ..intervals import Interval
from .packing import Packing, Place

V = TypeVar("V")

INT64 = 1 << 63
WORD_MASK = (1 << 64) - 1
MAX_RULES = 63
"""Rules of one kind that fit into a word, one bit each, with a bit to spare."""


class Ops(Protocol[V]):
    """The operations of a backend on its values: numbers (signed), truths, and words (unsigned)."""

    def number(self, value: int) -> V:
        """A constant number."""

    def truth(self, value: bool) -> V:
        """A constant truth."""

    def word(self, value: int) -> V:
        """A constant word."""

    def apply(self, op: Op, args: Sequence[V]) -> V:
        """An operator of the intermediate form."""

    def both(self, left: V, right: V) -> V:
        """Bitwise and, of words."""

    def either(self, left: V, right: V) -> V:
        """Bitwise or, of words."""

    def up(self, word: V, bits: int) -> V:
        """A word shifted towards its high bits."""

    def down(self, word: V, bits: int) -> V:
        """A word shifted towards its low bits."""

    def as_number(self, word: V, low: int) -> V:
        """The number *low* + *word*."""

    def as_truth(self, word: V) -> V:
        """Whether a word is not 0."""

    def number_as_word(self, number: V, low: int) -> V:
        """The word *number* - *low*, whatever its sign."""

    def truth_as_word(self, truth: V) -> V:
        """1 or 0."""

    def at_most(self, word: V, greatest: int) -> V:
        """Whether a word is that small."""

    def ordered(self, left: V, right: V) -> tuple[V, V]:
        """The lesser and the greater of two words."""


@attrs.frozen
class After(Generic[V]):
    """What a body computes: where the step is cut, which rules it meets, whether its state fits, and that state."""

    within: V
    events: V
    fits: V
    words: tuple[V, ...]


@attrs.frozen
class Judged:
    """The rules that a search judges, as expressions: violations of *always*, arrivals of *sometimes*.

    ``of_state[k]`` and ``of_step[k]`` are the k-th bits of a state's and a step's events.
    """

    of_state: tuple[tuple[str, Expr], ...]
    of_step: tuple[tuple[str, tuple[Expr, ...]], ...]

    def __attrs_post_init__(self) -> None:
        if max(len(self.of_state), len(self.of_step)) > MAX_RULES:
            raise Unsuitable(f"more than {MAX_RULES} rules of one kind: explore it with the plain engine")


@attrs.frozen
class Change:
    """A leaf that an instance changes: what to, where it is packed, and whether it may turn out not to fit there."""

    update: Expr
    place: Place
    may_not_fit: bool


@attrs.define(eq=False, slots=False)
class Program:
    """All that a search computes of one machine within one scope."""

    grounded: Grounded
    within: Expr
    judged: Judged
    packing: Packing

    @cached_property
    def within_after(self) -> tuple[Expr, ...]:
        """Whether the state after each instance is within the bounds."""
        return tuple(self.grounded.after(self.within, instance) for instance in self.grounded.instances)

    @cached_property
    def changes(self) -> tuple[tuple[Change, ...], ...]:
        """What each instance changes."""
        return tuple(tuple(self._changes(instance)) for instance in self.grounded.instances)

    def _changes(self, instance: Instance) -> Iterator[Change]:
        spans = self.spans(instance.updates)
        leaves = self.grounded.relation.state
        for leaf, update, place in zip(leaves, instance.updates, self.packing.places, strict=True):
            if update is not leaf:
                span = spans.get(update)
                yield Change(update, place, span is not None and not all(map(place.holds, span)))

    @cached_property
    def roots(self) -> tuple[Expr, ...]:
        """All that is computed."""
        return (
            self.grounded.triggers.get("terminal", ir.FALSE),
            *self.within_after,
            *(one for _, one in self.judged.of_state),
            *(one for _, steps in self.judged.of_step for one in steps),
            *(one for instance in self.grounded.instances for one in (instance.guard, *instance.updates)),
        )

    def check_arithmetic(self) -> None:
        """Refuse what 64 bits can't compute.

        Raises:
            Unsuitable: an expression may leave the range of 64 bits.
        """
        self.spans(self.roots)

    def digest(self) -> hashlib._Hash:
        """A hash of all that is computed, of what each part of it is for, and of where the leaves are; open for more."""
        found = ir.digest((*self.grounded.relation.state, *self.roots))
        parts = len(self.grounded.instances), len(self.judged.of_state), len(self.judged.of_step)
        found.update(repr((parts, self.packing.places, self.packing.elements)).encode())
        return found

    def spans(self, roots: tuple[Expr, ...]) -> dict[Expr, Interval]:
        """The least and the greatest value of every number below *roots*, given what the packed leaves can hold."""
        leaves = zip(self.grounded.relation.state, self.packing.places, strict=True)
        found = intervals.spans(
            roots, {leaf: (place.low, place.low + (1 << place.width) - 1) for leaf, place in leaves}
        )
        for node, (low, high) in found.items():
            if low < -INT64 or high >= INT64:
                raise Unsuitable(f"numbers may leave 64 bits in {node!r:.80}: explore it with the plain engine")
        return found


class Values(Generic[V]):
    """The values of expressions over one packed state, each computed once.

    :meth:`inner` makes a copy for code that does not always run: what it computes is not there for the rest.
    """

    def __init__(self, program: Program, ops: Ops[V], words: Sequence[V]) -> None:
        self.program = program
        self.ops = ops
        self.words = tuple(words)
        self._known: dict[Expr, V] = {}
        self._places = dict(zip(program.grounded.relation.state, program.packing.places, strict=True))

    def inner(self) -> Values[V]:
        """The same values, to which more can be added apart from these."""
        copy = Values(self.program, self.ops, self.words)
        copy._known = dict(self._known)
        return copy

    def of(self, root: Expr) -> V:
        """The value of *root*."""
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [arg for arg in node.args if arg not in self._known]
            if missing:
                stack += missing
                continue
            stack.pop()
            if node not in self._known:
                self._known[node] = self._value(node)
        return self._known[root]

    def _value(self, node: Expr) -> V:
        if node.op is Op.VAR:
            return self._leaf(self._places[node], node.sort)
        if node.op is Op.CONST:
            return self.ops.truth(node.value) if isinstance(node.value, bool) else self.ops.number(int(node.value))
        return self.ops.apply(node.op, [self._known[arg] for arg in node.args])

    def _leaf(self, place: Place, sort: Sort) -> V:
        if place.width == 0:
            return self.ops.number(place.low)
        bits = self.ops.both(self.words[place.word], self.ops.word(place.mask))
        if sort is Sort.BOOL:
            return self.ops.as_truth(bits)
        return self.ops.as_number(self.ops.down(bits, place.shift), place.low)

    def events(self, conditions: Sequence[Expr]) -> V:
        """A word with bit k set where the k-th condition holds."""
        found = self.ops.word(0)
        for at, condition in enumerate(conditions):
            if condition is not ir.FALSE:
                found = self.ops.either(found, self.ops.up(self.ops.truth_as_word(self.of(condition)), at))
        return found

    def after(self, instance: Instance) -> After[V]:
        """What *instance* does to the state, where its guard holds."""
        program, ops = self.program, self.ops
        within = self.of(program.within_after[instance.index])
        events = self.events([steps[instance.index] for _, steps in program.judged.of_step])
        words = list(self.words)
        changes = program.changes[instance.index]
        self._clear(words, (change.place for change in changes))
        fits: V | None = None
        for change in changes:
            bits = self._packed(change)
            if change.may_not_fit:
                fit = ops.at_most(bits, (1 << change.place.width) - 1)
                fits = fit if fits is None else ops.apply(Op.AND, (fits, fit))
            self._put(words, bits, change.place)
        for elements in program.packing.elements:
            if any(place.holds_place(change.place) for place in elements for change in changes):
                self._sort(words, elements)
        return After(within, events, ops.truth(True) if fits is None else fits, tuple(words))

    def _clear(self, words: list[V], places: Iterable[Place]) -> None:
        masks = [0] * len(words)
        for place in places:
            masks[place.word] |= place.mask
        for at, mask in enumerate(masks):
            if mask:
                words[at] = self.ops.both(words[at], self.ops.word(WORD_MASK & ~mask))

    def _put(self, words: list[V], bits: V, place: Place) -> None:
        if place.width:
            words[place.word] = self.ops.either(words[place.word], self.ops.up(bits, place.shift))

    def _packed(self, change: Change) -> V:
        value = self.of(change.update)
        if change.update.sort is Sort.BOOL:
            return self.ops.truth_as_word(value)
        return self.ops.number_as_word(value, change.place.low)

    def _sort(self, words: list[V], elements: Sequence[Place]) -> None:
        """Put elements in order: a network that compares neighbours and exchanges them."""
        ops = self.ops
        found = [ops.down(ops.both(words[one.word], ops.word(one.mask)), one.shift) for one in elements]
        for end in range(len(found) - 1, 0, -1):
            for at in range(end):
                found[at], found[at + 1] = ops.ordered(found[at], found[at + 1])
        self._clear(words, elements)
        for bits, one in zip(found, elements, strict=True):
            self._put(words, bits, one)
