"""TLC against the explorer: as many distinct states and steps, the same depth, and the same verdict on every rule.

DEADRECKON_TLC names a tla2tools.jar; without one there is nothing to run.
"""

from __future__ import annotations

import os

import pytest

from deadreckon.models.exploration import Exploration
from deadreckon.models.exports.tlc import Checked, missing, tlc
from deadreckon.models.relation import Relation
from deadreckon.spec import Kind, Machine, Rule, Scope
from deadreckon.spec.machines import MACHINES
from tests.nocover import manifest
from tests.nocover.test_spin import ALL, SCOPES, VARIANTS, explored, named

JAR = os.environ.get("DEADRECKON_TLC", "")
pytestmark = pytest.mark.skipif(bool(missing(JAR)), reason="DEADRECKON_TLC names no jar, or there is no java")


def checked(traced: Relation, scope: Scope, *rules: str) -> Checked:
    """What TLC finds of these rules."""
    return tlc(traced, scope, JAR, invariants=rules)


def judged(machine: Machine, kind: Kind, found: Exploration) -> tuple[list[str], list[str]]:
    """The rules of this kind that hold, or are not reached; and the others."""
    known = found.violated if kind is Kind.ALWAYS else found.reached
    rules = [rule.id for rule in machine.rules if rule.kind is kind]
    return [id for id in rules if id not in known], [id for id in rules if id in known]


def agree(machine: Machine, scope: Scope) -> Exploration:
    """Both find the same states, steps and depth; and what our explorer says to hold, TLC does not violate.

    TLC counts the initial states as generated too, and states along a path where we count steps.
    """
    built, found = explored(machine, scope)
    if found.complete:
        holding, _ = judged(machine, Kind.ALWAYS, found)
        quiet, _ = judged(machine, Kind.SOMETIMES, found)
        resting = [] if found.deadlock is not None else ["NoDeadlock"]
        said = checked(built.relation, scope, "TypeOK", *resting, *holding, *quiet)
        assert said.violated == ""
        ours = (found.states, found.edges + len(built.initial), found.depth + 1)
        assert (said.states, said.generated, said.depth) == ours
    return found


def refutes(machine: Machine, scope: Scope, rule: Rule) -> None:
    """TLC violates *rule*, by a run that is as short as ours: an invariant over a step tells it in the state before."""
    built, found = explored(machine, scope)
    said = checked(built.relation, scope, rule.id)
    assert said.violated == rule.id
    ours = found.violated[rule.id] if rule.kind is Kind.ALWAYS else found.reached[rule.id]
    assert said.trace == len(ours) + (rule.id not in built.grounded.steps)


def test_a_small_machine_comes_to_the_same() -> None:
    """The machine of ``docs/language.md``: what holds, what is reached, and its known-bad design."""
    lease = ALL["lease"]
    agree(lease, lease.scopes[0])
    refutes(lease, lease.scopes[0], lease.rule("S1"))
    refutes(lease.variant("no-fencing"), lease.scopes[0], lease.rule("F2"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "scope"), SCOPES)
def test_tlc_finds_the_same_states(name: str, scope: str) -> None:
    """In every scope: states, steps and depth, and nothing violated."""
    found = agree(ALL[name], named(ALL[name], scope))
    assert found.complete
    assert not found.violated


def pinned(name: str, variant: str) -> tuple[Machine, Scope, Rule]:
    """A known-bad design, the scope of its shortest counterexample, and the rule that this breaks."""
    machine, variants = MACHINES[name].variant(variant), manifest.read()[name]["variants"]
    assert isinstance(variants, dict)
    return machine, named(machine, variants[variant]["scope"]), machine.rule(variants[variant]["rule"])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_tlc_refutes_the_known_bad_designs(name: str, variant: str) -> None:
    """In the scope of its shortest counterexample the rule that a design breaks is refuted, as soon as ours."""
    machine, scope, rule = pinned(name, variant)
    if rule.kind is Kind.EVENTUALLY:
        pytest.skip("what comes eventually is not judged by way of representatives")
    refutes(machine, scope, rule)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_tlc_finds_the_same_states_of_known_bad_designs(name: str, variant: str) -> None:
    """States, steps, depth, and what holds nevertheless; of the few without an end nothing is compared."""
    machine, scope, _ = pinned(name, variant)
    agree(machine, scope)
