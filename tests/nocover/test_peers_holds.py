"""The explorer against TLC: holds on one event stream, written in both languages, have the same states, steps and depth.

The model is ``bench/holds.py``, which says how the counts of the two compare.
"""

from __future__ import annotations

from typing import cast

import pytest

from bench.holds import S5, S6, S6_SYMMETRIC, S7, S7_SYMMETRIC, VARIANTS, State, small
from deadreckon.models.explorer import Exploration, explore
from deadreckon.spec import Machine
from tests.nocover.peers import ENGINES, explored

WITNESSES = {"Settles", "Survives", "Capped"}


def holds_throughout(found: Exploration) -> bool:
    """Whether everything was seen, nothing violated, and each witness found."""
    return found.complete and not found.violated and found.deadlock is None and set(found.reached) == WITNESSES


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("machine", "distinct", "generated", "depth"),
    [
        pytest.param(S5, 100_953, 403_948, 16, id="S5"),
        pytest.param(S6, 1_066_608, 5_638_654, 18, id="S6"),
        pytest.param(S7, 9_706_230, 50_613_013, 22, id="S7", marks=pytest.mark.slow),
    ],
)
def test_holds_has_tlc_counts(machine: Machine, engine: str, distinct: int, generated: int, depth: int) -> None:
    """TLC's counts for the same model: its distinct states, its generated states, its depth, and nothing violated."""
    found = explored(machine, engine, distinct)
    assert (found.states, found.edges + 1, found.depth + 1) == (distinct, generated, depth)
    assert holds_throughout(found)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("machine", "distinct", "depth"),
    [
        pytest.param(S6_SYMMETRIC, 56_778, 18, id="S6"),
        pytest.param(S7_SYMMETRIC, 474_804, 22, id="S7"),
    ],
)
def test_holds_reduced_by_symmetry_has_tlc_counts(machine: Machine, engine: str, distinct: int, depth: int) -> None:
    """TLC under permutations of the holds has as many distinct states, as deep."""
    found = explored(machine, engine, distinct)
    assert (found.states, found.depth + 1) == (distinct, depth)
    assert holds_throughout(found)


@pytest.mark.parametrize(("variant", "steps"), [("broken-door", 2), ("deaf-door", 3), ("stray-timer", 5)])
def test_holds_wrong_door_is_refuted(variant: str, steps: int) -> None:
    """Each wrong door breaks the rule it is said to break, in a shortest run that really happens."""
    machine = small.variant(variant)
    rule = next(each.rule for each in VARIANTS if each.name == variant)
    found = explore(machine, only=rule)
    trace = found.violated[rule]
    assert len(trace) == steps
    state, _ = cast("tuple[State, None]", found.relation.layout.rebuild(trace.steps[0].state))
    policy = small.scopes[0].policy
    for step in trace.steps[1:]:
        assert step.instance is not None
        inputs = {
            name: step.instance.fields[name].value(value) if name in step.instance.fields else value
            for name, value in step.instance.inputs.items()
        }
        state = cast("State", machine.step(policy, state, step.instance.action, inputs))
        assert found.relation.layout.flatten((state, None)) == step.state
    judged = small.rule(rule).holds
    assert not judged(*small.signature(judged).arguments(policy, (state,)))
