"""Interval analysis: how large numbers can get in a bounded run, so that bit-vectors of a known width are exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op, Sort
from deadreckon.models.intervals import Interval, of_node

Ranges = Mapping[Expr, Interval]


@attrs.define
class Narrowing:
    """Rewrites expressions with comparisons decided where intervals decide them, and tracks the largest number left."""

    ranges: Ranges
    largest: int = 0
    _done: dict[Expr, Expr] = attrs.field(factory=dict)
    _known: dict[Expr, Interval] = attrs.field(factory=dict)

    def __call__(self, roots: Iterable[Expr]) -> tuple[Expr, ...]:
        """*roots*, narrowed."""
        roots = tuple(roots)
        for node in ir.postorder(roots):
            if node not in self._done:
                self._done[node] = self._narrowed(node)
        narrowed = tuple(self._done[root] for root in roots)
        for node in ir.postorder(narrowed):
            if node.sort is Sort.INT:
                self.largest = max(self.largest, *map(abs, self.interval(node)))
        return narrowed

    def _narrowed(self, node: Expr) -> Expr:
        if not node.args:
            return node
        new = ir.rebuild(node, tuple(self._done[arg] for arg in node.args))
        if new.op in (Op.LT, Op.LE, Op.EQ) and new.args[0].sort is Sort.INT:
            (low, high), (other_low, other_high) = map(self.interval, new.args)
            if new.op is Op.EQ:
                return ir.FALSE if high < other_low or other_high < low else new
            strict = new.op is Op.LT
            if high < other_low or (high == other_low and not strict):
                return ir.TRUE
            if low > other_high or (low == other_high and strict):
                return ir.FALSE
        return new

    def interval(self, node: Expr) -> Interval:
        """The interval of an integer expression."""
        for one in ir.postorder((node,)):
            if one.sort is Sort.INT and one not in self._known:
                self._known[one] = self.ranges[one] if one.op is Op.VAR else of_node(one, self._known)
        return self._known[node]
