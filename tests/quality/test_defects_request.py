"""The checker finds every known-bad design of the request, and no guard, rule or variant is there for nothing."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

import attrs
import pytest

from deadreckon.models.compiled import Reference
from deadreckon.models.explorer import Bounds, Exploration, explore
from deadreckon.models.relation import relation
from deadreckon.spec import Kind, Refused
from deadreckon.spec import request as request_actions
from deadreckon.spec.machines import request

PINNED = json.loads((Path(__file__).parents[2] / "models" / "manifest.json").read_text(encoding="utf-8"))["request"]

PROTOCOL = {
    "floorless": ("Q1", 10),
    "no-timer": ("Q5", 12),
    "settle-twice": ("Q2", 5),
    "expire-a-live-one": ("Q3", 11),
    "fresh-horizon-on-retry": ("Q4", 8),
}
"""The protocol's known-bad variants: the rule that refutes each, and the steps of the shortest run."""

OURS = {
    "no-fence": ("Q2a", 4),
    "early-timer": ("Q3", 4),
    "share-of-the-horizon": ("Q3a", 3),
    "reopened-afresh": ("Q4a", 4),
    "trusted-trigger": ("Q4b", 2),
    "timer-in-memory": ("Q5a", 3),
    "overslept": ("Q5b", 11),
    "expired-unrun": ("Q6", 3),
    "silent-expiry": ("Q7", 10),
    "bare-expiry": ("Q7a", 10),
    "told-too-early": ("Q7b", 3),
    "no-distance": ("R1", 5),
    "endless-distance": ("R1a", 8),
    "one-too-many": ("R2", 13),
    "count-after-attempt": ("R2", 13),
    "failed-untried": ("R3", 3),
    "adopted-while-running": ("R4", 4),
    "adopted-when-settled": ("R4", 5),
    "success-from-nowhere": ("R5", 3),
}
"""Guards that the five leave alone; a rule each, so that every rule is the refutation of something."""

(SCOPE,) = request.scopes


@cache
def refuted(name: str) -> Exploration:
    """The exploration that refutes a variant, no deeper than its shortest run."""
    rule, steps = (PROTOCOL | OURS)[name]
    bad = request.variant(name)
    bounds = Bounds() if bad.rule(rule).kind is Kind.EVENTUALLY else Bounds(max_depth=steps)
    return explore(bad, SCOPE, only=rule, bounds=bounds, compare_every=0)


def test_the_variants_are_those_of_the_protocol_and_ours() -> None:
    """Every known-bad design of the protocol is declared with the rule that it names, and no other unnoticed."""
    declared = {variant.name: variant.rule for variant in request.variants}
    assert declared == {name: rule for name, (rule, _) in (PROTOCOL | OURS).items()}
    assert len(PROTOCOL) == 5


def test_every_rule_refutes_something() -> None:
    """No rule of the protocol, or of ours, is one that no design could break."""
    rules = {rule.id for rule in request.rules if rule.kind is not Kind.SOMETIMES and not rule.lemma}
    assert rules == {rule for rule, _ in (PROTOCOL | OURS).values()}


@pytest.mark.parametrize("name", PROTOCOL | OURS)
def test_variant_is_refuted_by_its_rule(name: str) -> None:
    """A known-bad design is refuted by the rule it names, in exactly the pinned number of steps."""
    rule, steps = (PROTOCOL | OURS)[name]
    pinned = PINNED["variants"][name]
    assert (pinned["rule"], pinned["steps"]) == (rule, steps)
    trace = refuted(name).violated[rule]
    assert len(trace) == steps
    assert (trace.loop is not None) == (request.rule(rule).kind is Kind.EVENTUALLY)


@pytest.mark.parametrize("name", PROTOCOL | OURS)
def test_the_sound_machine_refuses_the_run_of_the_variant(name: str) -> None:
    """Step by step through the sound machine, the run that refutes a variant is refused or differs."""
    rule, steps = (PROTOCOL | OURS)[name]
    if request.rule(rule).kind is Kind.EVENTUALLY:
        pytest.skip("a run without end has no last step")
    found = refuted(name)
    sound = Reference(attrs.evolve(found.relation, machine=request), SCOPE.policy)
    pair = cast("tuple[object, object]", sound.layout.rebuild(found.violated[rule].steps[0].state))
    for step in found.violated[rule].steps[1:]:
        assert step.instance is not None
        after = sound.step(step.instance, pair)
        if after != step.state:
            return
        pair = cast("tuple[object, object]", sound.layout.rebuild(after))
    pytest.fail(f"the sound machine takes the same {steps} steps")


@cache
def explored() -> Exploration:
    """The whole scope, with its states."""
    return explore(request, SCOPE, compare_every=0, keep_graph=True)


def test_every_sometimes_is_reached() -> None:
    """Whatever stands beside a rule so that it is not vacuous can happen."""
    assert set(explored().reached) == {rule.id for rule in request.rules if rule.kind is Kind.SOMETIMES}


def test_every_action_runs() -> None:
    """No action of the machine is only there to be refused."""
    assert set(explored().ran) == {action.name for action in request.actions}


Guard = tuple[str, str, str]


def guards() -> Iterator[Guard]:
    """Each ``require`` of the machine's file: the function it stands in, the rule, and why."""
    for function in ast.parse(inspect.getsource(request_actions)).body:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require":
                assert isinstance(function, ast.FunctionDef)
                rule, why = (ast.literal_eval(argument) for argument in node.args[1:])
                yield function.name, rule, why


def test_every_guard_refuses_somewhere() -> None:
    """For each guard there is a run that it stops, and no earlier guard of the same action does: none is dead."""
    missing = set(guards())
    assert len(missing) > 25
    found = explored()
    assert found.graph is not None
    for flat in list(found.graph.index)[::5]:
        state, _ = cast("tuple[object, object]", found.relation.layout.rebuild(flat))
        for action in {request.action(guard[0]) for guard in missing}:
            for inputs in action.instances():
                try:
                    request.step(SCOPE.policy, state, action.name, inputs)
                except Refused as refusal:
                    missing.discard((action.name, refusal.rule, refusal.why))
        if not missing:
            break
    assert sorted(missing) == []


def test_every_guard_names_a_rule() -> None:
    """A refusal names a rule of the machine, so that whoever is refused can read what it keeps."""
    assert {rule for _, rule, _ in guards()} <= {rule.id for rule in request.rules}


def test_the_traced_relation_has_every_guard() -> None:
    """Tracing keeps each refusal with its rule and reason."""
    traced = {(one.action, rule, why) for one in relation(request).commands for _, rule, why in one.refusals}
    assert traced == set(guards())
