"""The explorer against TLC: a small recovery protocol, written in both languages, has the same states, steps and depth.

The model and its four wrong protocols are ``bench/recovery.py``, which says how the counts of the two compare.
"""

from __future__ import annotations

from itertools import permutations, product
from typing import cast

import pytest

from bench.recovery import R5, R5_SYMMETRIC, R6, R7, VARIANTS, Ghost, State, observe, one
from deadreckon.models.explorer import explore
from deadreckon.models.layout import Flat
from deadreckon.models.symmetry import Symmetry
from deadreckon.spec import Machine
from tests.nocover.peers import ENGINES, explored


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("machine", "distinct", "generated", "depth"),
    [
        pytest.param(R5, 93_150, 264_670, 22, id="R5"),
        pytest.param(R6, 1_513_060, 4_556_181, 34, id="R6"),
        pytest.param(R7, 10_658_487, 33_977_566, 42, id="R7", marks=pytest.mark.slow),
    ],
)
def test_recovery_has_tlc_counts(machine: Machine, engine: str, distinct: int, generated: int, depth: int) -> None:
    """TLC's counts for the same model: its distinct states, its generated states, its depth, and nothing violated."""
    found = explored(machine, engine, distinct)
    assert found.complete
    assert (found.states, found.edges + 1, found.depth + 1) == (distinct, generated, depth)
    assert not found.violated
    assert found.deadlock is None
    assert set(found.reached) == {"Seals"}


def test_recovery_reduced_by_symmetry_covers_the_same_states() -> None:
    """Slots and incidents are interchangeable, and the orbits of the representatives hold TLC's 93,150 states."""
    found = explore(R5_SYMMETRIC, compare_every=16, keep_graph=True)
    assert found.complete
    assert not found.violated
    assert found.graph is not None
    symmetry = Symmetry(R5_SYMMETRIC, found.relation.layout)
    assert all(symmetry.canonical(state) == state for state in found.graph.index)
    assert sum(len(orbit(symmetry, state)) for state in found.graph.index) == 93_150


def orbit(symmetry: Symmetry, state: Flat) -> set[Flat]:
    """Every state that differs from *state* by a permutation of slots and incidents."""
    choices = [tuple(permutations(range(len(columns)))) for columns in symmetry.groups]
    found = set()
    for orders in product(*choices):
        leaves = list(state)
        for columns, order in zip(symmetry.groups, orders, strict=True):
            source = tuple(leaves)
            for place, other in enumerate(order):
                for target, index in zip(columns[place], columns[other], strict=True):
                    leaves[target] = source[index]
        found.add(tuple(leaves))
    return found


def test_recovery_of_one_incident_holds() -> None:
    """The sound protocol holds where its wrong variants are refuted."""
    found = explore(one)
    assert found.complete
    assert not found.violated
    assert set(found.reached) == {"Seals"}


@pytest.mark.parametrize(("variant", "steps"), [("single", 6), ("late", 5), ("nosync", 4), ("each", 6)])
def test_recovery_wrong_protocol_is_refuted(variant: str, steps: int) -> None:
    """Each of the four wrong protocols breaks the rule it is said to break, as soon as in TLC, in a run that happens."""
    machine = one.variant(variant)
    rule = next(each.rule for each in VARIANTS if each.name == variant)
    found = explore(machine, only=rule)
    trace = found.violated[rule]
    assert len(trace) == steps
    state, ghost = cast("tuple[State, Ghost]", found.relation.layout.rebuild(trace.steps[0].state))
    for step in trace.steps[1:]:
        assert step.instance is not None
        before = state
        state = cast("State", machine.step(one.scopes[0].policy, before, step.instance.action, step.instance.inputs))
        ghost = observe(before, state, ghost)
        assert found.relation.layout.flatten((state, ghost)) == step.state
    assert not one.rule(rule).holds(state, ghost)
