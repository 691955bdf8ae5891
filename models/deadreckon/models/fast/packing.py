"""How a state is packed into one or two words of 64 bits, exactly: a value that does not fit is never cut off."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from ..exploration import Unsuitable
from ..layout import Field, Flat
from ..symmetry import Symmetry

Words = npt.NDArray[np.uint64]

WORD_BITS = (63, 64)
"""Bits for use in each word: the highest bit of the first is set in every packed state, so that none is 0."""

MARK = 1 << 63


@attrs.frozen
class Range:
    """The values that a leaf is expected to take."""

    low: int
    high: int

    @property
    def width(self) -> int:
        """Bits that it takes."""
        return (self.high - self.low).bit_length()

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    def with_room(self, times: int) -> Range:
        """The range *times* as far on either side of 0."""
        return Range(min(self.low, self.low * times), max(self.high, self.high * times))

    def with_room_for(self, value: int) -> Range:
        """The range widened to hold *value*, and as many values again on that side."""
        room = max(abs(value - self.low), abs(value - self.high)) + 1
        return self | Range(value - room, value) if value < self.low else self | Range(value, value + room)


@attrs.frozen
class Place:
    """Where a leaf is: ``width`` bits of word ``word`` from bit ``shift`` up hold its value less ``low``."""

    word: int
    shift: int
    width: int
    low: int

    @property
    def mask(self) -> int:
        """The bits of its word that are its own."""
        return ((1 << self.width) - 1) << self.shift

    def holds_place(self, other: Place) -> bool:
        """Whether *other* lies inside."""
        return other.word == self.word and not other.mask & ~self.mask and other.width > 0

    def holds(self, value: int) -> bool:
        """Whether *value* fits."""
        return 0 <= value - self.low < 1 << self.width


def ranges(fields: Sequence[Field], states: Iterable[Flat]) -> tuple[Range, ...]:
    """What the fields are expected to hold: enums and booleans all they can, numbers what they hold in *states*."""
    columns = zip(*states, strict=True)
    return tuple(
        Range(0, field.size - 1) if field.size else Range(0, 1) if field.type is bool else Range(min(seen), max(seen))
        for field, seen in zip(fields, columns, strict=True)
    )


@attrs.frozen
class Packing:
    """The places of all leaves. ``elements`` are, for each interchangeable group, the places of whole elements.

    An element's leaves lie side by side, the first the most significant, so that elements compare as their tuples do.
    """

    fields: tuple[Field, ...]
    places: tuple[Place, ...]
    elements: tuple[tuple[Place, ...], ...]

    @property
    def words(self) -> int:
        """How many words a state takes."""
        return 1 + max((place.word for place in self.places), default=0)

    @property
    def bits(self) -> int:
        """How many bits are in use."""
        return sum(place.width for place in self.places)

    def pack(self, state: Flat) -> tuple[int, ...]:
        """The words of *state*.

        Raises:
            OverflowError: a value does not fit.
        """
        words = [MARK, 0]
        for field, place, value in zip(self.fields, self.places, state, strict=True):
            if not place.holds(value):
                raise OverflowError(f"{field.path}={value}")
            words[place.word] |= (value - place.low) << place.shift
        return tuple(words[: self.words])

    def unpack(self, packed: Words) -> list[Flat]:
        """The states of many rows of words."""
        if not len(packed):
            return []
        columns = [
            ((packed[:, place.word] >> np.uint64(place.shift)) & np.uint64((1 << place.width) - 1)).astype(np.int64)
            + place.low
            for place in self.places
        ]
        return list(zip(*(column.tolist() for column in columns), strict=True))


def packing(fields: tuple[Field, ...], expected: Sequence[Range], symmetry: Symmetry) -> Packing:
    """Places for leaves that take the *expected* values.

    Raises:
        Unsuitable: they take more than two words, or groups of interchangeable elements share a leaf.
    """
    alike, blocks = _blocks(expected, symmetry)
    starts = _starts([sum(alike[leaf].width for leaf in block) for block in blocks])
    if starts is None:
        raise Unsuitable(
            f"a state takes {sum(one.width for one in alike)} bits, and two words have {sum(WORD_BITS)}; "
            f"the widest fields are {_widest(fields, alike)}: explore it with the plain engine, or within narrower bounds"
        )
    places: dict[int, Place] = {}
    whole: dict[tuple[int, ...], Place] = {}
    for block, (word, shift) in zip(blocks, starts, strict=True):
        at = shift + sum(alike[leaf].width for leaf in block)
        whole[block] = Place(word, shift, at - shift, 0)
        for leaf in block:
            at -= alike[leaf].width
            places[leaf] = Place(word, at, alike[leaf].width, alike[leaf].low)
    return Packing(
        fields,
        tuple(places[index] for index in range(len(fields))),
        tuple(tuple(whole[element] for element in group) for group in symmetry.groups),
    )


def words(expected: Sequence[Range], symmetry: Symmetry) -> int | None:
    """How many words such leaves take; None if they don't fit into two."""
    alike, blocks = _blocks(expected, symmetry)
    starts = _starts([sum(alike[leaf].width for leaf in block) for block in blocks])
    return None if starts is None else 1 + max((word for word, _ in starts), default=0)


def _blocks(expected: Sequence[Range], symmetry: Symmetry) -> tuple[list[Range], list[tuple[int, ...]]]:
    """The ranges, the same for what may be exchanged; and the leaves that have to lie side by side."""
    grouped = [index for group in symmetry.groups for element in group for index in element]
    if len(set(grouped)) < len(grouped):
        raise Unsuitable("two groups of interchangeable elements share a field: explore it with the plain engine")
    alike = list(expected)
    for group in symmetry.groups:
        for leaves in zip(*group, strict=True):
            column = alike[leaves[0]]
            for leaf in leaves:
                column |= alike[leaf]
            for leaf in leaves:
                alike[leaf] = column
    blocks = [element for group in symmetry.groups for element in group]
    return alike, [*blocks, *((index,) for index in range(len(expected)) if index not in set(grouped))]


def _starts(widths: Sequence[int]) -> list[tuple[int, int]] | None:
    """Word and first bit of each block, the widest placed first; one word if that is enough."""
    used = [0, 0]
    starts = [(0, 0)] * len(widths)
    for index in sorted((at for at in range(len(widths)) if widths[at]), key=lambda at: -widths[at]):
        word = next((word for word, bits in enumerate(WORD_BITS) if used[word] + widths[index] <= bits), None)
        if word is None:
            return None
        starts[index] = (word, used[word])
        used[word] += widths[index]
    return starts


def _widest(fields: Sequence[Field], expected: Sequence[Range]) -> str:
    widest = sorted(zip(fields, expected, strict=True), key=lambda one: -one[1].width)[:3]
    return ", ".join(f"{field.path} ({one.low} to {one.high})" for field, one in widest)
