"""A step that induction stumbles over is told in words, with the question that matters answered: can it happen?"""

from __future__ import annotations

import runpy
import time
from pathlib import Path

import attrs
import pytest

from deadreckon.models.explorer import Exploration
from deadreckon.models.relation import Relation, relation
from deadreckon.proofs import counterexample
from deadreckon.proofs.counterexample import describe
from deadreckon.proofs.induction import Inductor
from deadreckon.proofs.system import System
from deadreckon.spec import Kind, Machine, Scope, action, always, require, scope, sometimes
from deadreckon.spec.machines import incident

lease: Machine = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lease.py"))["machine"]


@attrs.frozen
class Stairs:
    """A step of a staircase."""

    step: int


def bottom() -> Stairs:
    return Stairs(0)


def climb(state: Stairs) -> Stairs:
    require(state.step < 9, "R1", "the stairs end")
    return Stairs(state.step + 1)


@always("R1", "nobody gets past the fifth step", source="here")
def r1(state: Stairs) -> bool:
    return state.step <= 5


@always("R2", "nobody climbs from the fifth step", source="here")
def r2(before: Stairs, after: Stairs) -> bool:
    return before.step != 5


@always("R3", "the step is not 8", source="here")
def r3(state: Stairs) -> bool:
    return state.step != 8


@sometimes("S1", "somebody climbs", source="here", beside=("R1", "R2", "R3"))
def s1(state: Stairs) -> bool:
    return state.step > 0


def all_of_them(state: Stairs) -> bool:
    return state.step >= 0


def lowest(state: Stairs) -> bool:
    return state.step <= 1


stairs = Machine(
    name="stairs",
    title="Nine steps.",
    state=Stairs,
    initial=(bottom,),
    actions=(action(climb),),
    rules=(r1, r2, r3, s1),
    scopes=(scope("all", why="nine steps", within=all_of_them),),
)


def label(machine: Machine, rule: str) -> str:
    """What is said of the step that breaks *rule*, given the rules of *machine* that are inductive."""
    system = System(relation(machine))
    result = Inductor(system, time.monotonic() + 60.0).run([rule])
    broken = result.broken[rule]
    assert broken is not None
    assert rule not in result.proved
    known = tuple(system.claims[id] for id, k in result.proved.items() if k == 1 and id in system.claims)
    return describe(system, broken, known)


def claiming(machine: Machine, *ids: str) -> Machine:
    """*machine* with the always rules *ids* alone."""
    goals = (attrs.evolve(rule, beside=ids) for rule in machine.rules if rule.kind is Kind.SOMETIMES)
    kept = (rule for rule in machine.rules if rule.id in ids)
    return attrs.evolve(machine, rules=(*kept, *goals), variants=())


@pytest.mark.parametrize("rule", ["R1", "R2"])
def test_a_false_rule_is_labelled_reachable(rule: str) -> None:
    """When exploration reaches the state, the rule is false; state and step are printed."""
    said = label(claiming(stairs, rule), rule)
    assert said == f"reachable in scope all, so the rule is false: climb breaks {rule} from step=5"


def test_a_rule_that_lacks_a_lemma_is_labelled_unreachable() -> None:
    """Without a lemma F1 fails from a token that was never granted: exploration of the scope shows no such state."""
    said = label(lease, "F1")
    assert said.startswith("unreachable in scope small, so a lemma is missing: acquire(client=")
    assert " breaks F1 from granted=" in said
    for field in ("expires_at_ms=", "now_ms=", "written=", "tokens[0]=", "tokens[1]="):
        assert field in said


def test_a_rule_of_the_incident_that_lacks_its_lemma_is_labelled_unreachable() -> None:
    """C2 alone fails from a state whose count does not balance; in words, and found in no scope."""
    rules = tuple(rule for rule in incident.rules if rule.id != "L4")
    small = tuple(one for one in incident.scopes if one.name == "parking")
    said = label(attrs.evolve(incident, rules=rules, scopes=small, variants=()), "C2")
    assert said.startswith("unreachable in scope parking, so a lemma is missing: ")
    assert " breaks C2 from durable.turn=running, durable.status=" in said
    assert "ghost.deaths=" in said


def test_a_step_outside_every_scope_is_left_unlabelled() -> None:
    """Where no scope contains such a state nothing is claimed of it."""
    narrow = (scope("low", why="two steps", within=lowest),)
    said = label(attrs.evolve(claiming(stairs, "R3"), scopes=narrow), "R3")
    assert said == "unlabelled, no scope contains such a state: climb breaks R3 from step=7"


def test_a_scope_too_large_to_look_through_is_not_called_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """When exploration stops early, the label says how far it came, and not that the state can't be reached."""

    def stopped(machine: Machine, scope: Scope, *, traced: Relation, **named: object) -> Exploration:
        return Exploration(traced, scope, states=10, stopped="more than 10 states")

    monkeypatch.setattr(counterexample, "explore", stopped)
    assert "not among the 10 states explored of scope small" in label(lease, "F1")
