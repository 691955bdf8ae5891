"""Expressions of every kind, drawn over given variables."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr

SMALL = st.integers(-9, 9)


def expressions(
    numbers: Sequence[Expr], truths: Sequence[Expr]
) -> tuple[st.SearchStrategy[Expr], st.SearchStrategy[Expr]]:
    """Integers and truths that are built of these variables and small constants."""
    ints: st.SearchStrategy[Expr] = st.deferred(
        lambda: st.one_of(
            st.sampled_from(numbers),
            st.builds(ir.const, SMALL),
            st.builds(ir.add, ints, ints),
            st.builds(ir.neg, ints),
            st.builds(ir.mul, ints, st.builds(ir.const, SMALL)),
            st.builds(ir.ite, bools, ints, ints),
        )
    )
    bools: st.SearchStrategy[Expr] = st.deferred(
        lambda: st.one_of(
            st.sampled_from(truths),
            st.builds(ir.eq, ints, ints),
            st.builds(ir.eq, bools, bools),
            st.builds(ir.lt, ints, ints),
            st.builds(ir.le, ints, ints),
            st.builds(ir.not_, bools),
            st.builds(ir.and_, bools, bools, bools),
            st.builds(ir.or_, bools, bools, bools),
            st.builds(ir.ite, bools, bools, bools),
        )
    )
    return ints, bools
