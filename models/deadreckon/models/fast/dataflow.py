"""What a step computes, in terms that machine code and NumPy both have: no branches, only values.

A state is packed (:mod:`packing`); a *body* unpacks the leaves that it needs, computes the updates of one instance of an
action, sorts interchangeable elements and packs the state after. Backends differ in :class:`Ops` alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import attrs

from .. import expr as ir
from ..exploration import Unsuitable
from ..expr import Expr, Op, Sort
from ..grounding import Grounded, Instance
from .packing import Packing, Place, Range

V = TypeVar("V")

INT64 = 1 << 63
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


@attrs.frozen(eq=False)
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
        """A hash of all that is computed, and of where the leaves are; open for more."""
        found = ir.digest(self.roots)
        found.update(repr((self.packing.places, self.packing.elements)).encode())
        return found

    def spans(self, roots: tuple[Expr, ...]) -> dict[Expr, Range]:
        """The least and the greatest value of every number below *roots*, given what the packed leaves can hold."""
        found = {
            leaf: Range(place.low, place.low + (1 << place.width) - 1)
            for leaf, place in zip(self.grounded.relation.state, self.packing.places, strict=True)
        }
        for node in ir.postorder(roots):
            if node.sort is Sort.INT and node not in found:
                found[node] = _span(node, found)
                if found[node].low < -INT64 or found[node].high >= INT64:
                    raise Unsuitable(f"numbers may leave 64 bits in {node!r:.80}: explore it with the plain engine")
        return found


def _span(node: Expr, found: Mapping[Expr, Range]) -> Range:
    args = [found[arg] for arg in node.args if arg.sort is Sort.INT]
    match node.op:
        case Op.CONST:
            return Range(int(node.value), int(node.value))
        case Op.ADD:
            return Range(args[0].low + args[1].low, args[0].high + args[1].high)
        case Op.NEG:
            return Range(-args[0].high, -args[0].low)
        case Op.MUL:
            ends = [a * b for a in (args[0].low, args[0].high) for b in (args[1].low, args[1].high)]
            return Range(min(ends), max(ends))
        case _:
            return args[0] | args[1]


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
        for node in ir.postorder((root,)):
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
        changed = [
            (leaf, update, place)
            for leaf, update, place in zip(
                program.grounded.relation.state, instance.updates, program.packing.places, strict=True
            )
            if update is not leaf
        ]
        spans = program.spans(tuple(update for _, update, _ in changed))
        words = list(self.words)
        for at, word in enumerate(words):
            mask = sum(place.mask for _, _, place in changed if place.word == at)
            words[at] = ops.both(word, ops.word(~mask & (2 * INT64 - 1))) if mask else word
        fits: V | None = None
        for _, update, place in changed:
            bits = self._packed(update, place)
            span = spans.get(update)
            if span is not None and not (place.holds(span.low) and place.holds(span.high)):
                fit = ops.at_most(bits, (1 << place.width) - 1)
                fits = fit if fits is None else ops.apply(Op.AND, (fits, fit))
            if place.width:
                words[place.word] = ops.either(words[place.word], ops.up(bits, place.shift))
        touched = {place for _, _, place in changed}
        self._sort(words, touched)
        return After(within, events, ops.truth(True) if fits is None else fits, tuple(words))

    def _packed(self, update: Expr, place: Place) -> V:
        value = self.of(update)
        if update.sort is Sort.BOOL:
            return self.ops.truth_as_word(value)
        return self.ops.number_as_word(value, place.low)

    def _sort(self, words: list[V], touched: set[Place]) -> None:
        """Put the elements of every group that was *touched* in order."""
        packing, ops = self.program.packing, self.ops
        for elements in packing.elements:
            inside = {
                place
                for place in packing.places
                for whole in elements
                if place.word == whole.word and whole.shift <= place.shift < whole.shift + whole.width
            }
            if not inside & touched:
                continue
            found = [ops.down(ops.both(words[one.word], ops.word(one.mask)), one.shift) for one in elements]
            for end in range(len(found) - 1, 0, -1):
                for at in range(end):
                    found[at], found[at + 1] = ops.ordered(found[at], found[at + 1])
            for at in range(len(words)):
                mask = sum(one.mask for one in elements if one.word == at)
                words[at] = ops.both(words[at], ops.word(~mask & (2 * INT64 - 1))) if mask else words[at]
            for bits, one in zip(found, elements, strict=True):
                words[one.word] = ops.either(words[one.word], ops.up(bits, one.shift))
