"""Interchangeable elements: one representative for all states that differ by a permutation of them."""

from __future__ import annotations

from itertools import pairwise

from deadreckon.spec import Machine, SpecError

from . import expr as ir
from .expr import Expr, Sort
from .layout import Flat, Layout


class Symmetry:
    """Permutes the elements of the tuples that a machine declares interchangeable.

    Raises:
        SpecError: when the tuples of a group differ in length, or a path names none.
    """

    def __init__(self, machine: Machine, layout: Layout) -> None:
        self.groups = tuple(self._columns(layout, group) for group in machine.interchangeable)

    @staticmethod
    def _columns(layout: Layout, group: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        """For each element, the leaves that belong to it, in the order of the group."""
        tuples = []
        for path in group:
            elements: dict[str, list[int]] = {}
            for index, field in enumerate(layout.fields):
                if field.path.startswith(f"{path}["):
                    elements.setdefault(field.path[len(path) :].partition("]")[0], []).append(index)
            if not elements:
                raise SpecError(f"{path} is no tuple of the state", instead="name tuple fields in interchangeable=")
            tuples.append(list(elements.values()))
        if len({len(one) for one in tuples}) > 1:
            raise SpecError(f"tuples {', '.join(group)} differ in length", instead="permute tuples of one length")
        return tuple(tuple(index for one in element for index in one) for element in zip(*tuples, strict=True))

    def canonical(self, state: Flat) -> Flat:
        """The representative of *state*."""
        for columns in self.groups:
            elements = [tuple(state[index] for index in column) for column in columns]
            ordered = sorted(elements)
            if ordered != elements:
                leaves = list(state)
                for column, element in zip(columns, ordered, strict=True):
                    for index, value in zip(column, element, strict=True):
                        leaves[index] = value
                state = tuple(leaves)
        return state

    def sorted_leaves(self, leaves: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """:meth:`canonical` of expressions: a network that compares neighbours and exchanges them."""
        found = list(leaves)
        for columns in self.groups:
            for end in range(len(columns) - 1, 0, -1):
                for left, right in pairwise(columns[: end + 1]):
                    before, after = (tuple(found[index] for index in column) for column in (left, right))
                    exchange = _precedes(after, before)
                    for at, index in enumerate(left):
                        found[index] = ir.ite(exchange, after[at], before[at])
                    for at, index in enumerate(right):
                        found[index] = ir.ite(exchange, before[at], after[at])
        return tuple(found)

    def swapped(self, state: Flat, group: int, first: int) -> Flat:
        """*state* with two neighbouring elements of a group exchanged; these generate every permutation."""
        leaves = list(state)
        left, right = self.groups[group][first], self.groups[group][first + 1]
        for a, b in zip(left, right, strict=True):
            leaves[a], leaves[b] = leaves[b], leaves[a]
        return tuple(leaves)


def _precedes(left: tuple[Expr, ...], right: tuple[Expr, ...]) -> Expr:
    """``left < right``, as Python compares tuples; False is before True."""
    found = ir.FALSE
    for a, b in zip(reversed(left), reversed(right), strict=True):
        less = ir.lt(a, b) if a.sort is Sort.INT else ir.and_(ir.not_(a), b)
        found = ir.or_(less, ir.and_(ir.eq(a, b), found))
    return found
