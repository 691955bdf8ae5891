"""The checker finds every known-bad design of the incident, and no guard, rule or variant is there for nothing."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import attrs
import pytest

from deadreckon.models.compiled import Reference, compile_relation
from deadreckon.models.explorer import Bounds, Exploration, explore
from deadreckon.models.relation import relation
from deadreckon.spec import Kind, Refused, Scope
from deadreckon.spec import incident as incident_actions
from deadreckon.spec.machines import incident

PINNED = json.loads((Path(__file__).parents[2] / "models" / "manifest.json").read_text(encoding="utf-8"))["incident"]

PROTOCOL = {
    "single-slot": ("C1", 13),
    "count-per-entry": ("C2", 9),
    "heavy-before-sync": ("C3", 5),
    "no-sync-on-finish": ("C2", 10),
    "count-on-failure-path": ("C1", 6),
    "reset-on-progress": ("C5", 9),
    "debounce-skips-count": ("C1", 9),
    "sealed-callback-runs": ("C7", 10),
    "process-identity": ("C1", 8),
    "lost-update": ("C6", 6),
    "untracked-when-missing": ("C10", 7),
    "sweep-erases-count": ("C5", 9),
    "rebuild-before-admission": ("C11", 7),
    "seal-before-terminal": ("C9", 10),
    "seal-while-parked": ("C8", 6),
    "exempt-class": ("C4", 10),
    "found-twice": ("C2", 9),
}
"""The protocol's table of known-bad variants: the rule that refutes each, and the steps of the shortest run."""

OURS = {"no-fence": ("C13", 4), "seal-over-work": ("C7a", 9)}
"""Guards that the seventeen leave alone."""


def scope_named(name: str) -> Scope:
    """The scope of this name."""
    return next(scope for scope in incident.scopes if scope.name == name)


def test_the_variants_are_those_of_the_protocol_and_ours() -> None:
    """Every known-bad design of the protocol is declared with the rule that it names, and no other unnoticed."""
    declared = {variant.name: variant.rule for variant in incident.variants}
    assert declared == {name: rule for name, (rule, _) in (PROTOCOL | OURS).items()}


@pytest.mark.parametrize("name", PROTOCOL | OURS)
def test_variant_is_refuted_by_its_rule(name: str) -> None:
    """A known-bad design is refuted by the rule it names, in exactly the pinned number of steps."""
    rule, steps = (PROTOCOL | OURS)[name]
    pinned = PINNED["variants"][name]
    assert (pinned["rule"], pinned["steps"]) == (rule, steps)
    bad = incident.variant(name)
    liveness = bad.rule(rule).kind is Kind.EVENTUALLY
    bounds = Bounds() if liveness else Bounds(max_depth=steps)
    found = explore(bad, scope_named(pinned["scope"]), only=rule, bounds=bounds, compare_every=0)
    assert len(found.violated[rule]) == steps
    assert (found.violated[rule].loop is not None) == liveness


@pytest.mark.parametrize("name", PROTOCOL | OURS)
def test_the_sound_machine_refuses_the_run_of_the_variant(name: str) -> None:
    """Step by step through the sound machine, the run that refutes a variant is refused, differs, or breaks nothing."""
    rule, steps = (PROTOCOL | OURS)[name]
    if incident.rule(rule).kind is Kind.EVENTUALLY:
        pytest.skip("a run without end has no last step")
    scope = scope_named(PINNED["variants"][name]["scope"])
    found = explore(incident.variant(name), scope, only=rule, bounds=Bounds(max_depth=steps), compare_every=0)
    trace = found.violated[rule]
    sound = Reference(attrs.evolve(found.relation, machine=incident), scope.policy)
    pair = cast("tuple[object, object]", sound.layout.rebuild(trace.steps[0].state))
    for step in trace.steps[1:]:
        assert step.instance is not None
        after = sound.step(step.instance, pair)
        if after != step.state:
            return
        pair = cast("tuple[object, object]", sound.layout.rebuild(after))
    pytest.fail(f"the sound machine takes the same {steps} steps")


@cache
def explored(name: str) -> Exploration:
    """The whole of one scope, with its states."""
    return explore(incident, scope_named(name), compare_every=0, keep_graph=True)


def test_every_sometimes_is_reached() -> None:
    """Whatever stands beside a rule so that it is not vacuous can happen, in one scope at least."""
    wanted = {rule.id for rule in incident.rules if rule.kind is Kind.SOMETIMES}
    reached = {id for scope in incident.scopes for id in explored(scope.name).reached}
    assert reached == wanted


def test_every_action_runs() -> None:
    """No action of the machine is only there to be refused."""
    ran = {name for scope in incident.scopes for name in explored(scope.name).ran}
    assert ran == {action.name for action in incident.actions}


Guard = tuple[str, str, str]


def guards() -> Iterator[Guard]:
    """Each ``require`` of the machine's file: the function it stands in, the rule, and why."""
    for function in ast.parse(inspect.getsource(incident_actions)).body:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require":
                assert isinstance(function, ast.FunctionDef)
                rule, why = (ast.literal_eval(argument) for argument in node.args[1:])
                yield function.name, rule, why


def refusing(name: str, wanted: set[Guard]) -> Mapping[Guard, object]:
    """For each guard of *wanted* that refuses somewhere in a scope: the state in which the function itself does."""
    found = explored(name)
    assert found.graph is not None
    code = compile_relation(found.relation, found.scope.policy)
    layout = found.relation.layout
    refused: dict[Guard, object] = {}
    for state in list(found.graph.index)[::7]:
        allowed = {label for label, _ in code.successors(state)}
        waiting = {guard[0] for guard in wanted - set(refused)}
        for instance in code.instances:
            if instance.index in allowed or instance.action not in waiting:
                continue
            concrete, _ = cast("tuple[object, object]", layout.rebuild(state))
            try:
                incident.step(found.scope.policy, concrete, instance.action, Reference.inputs(instance))
            except Refused as refusal:
                refused.setdefault((instance.action, refusal.rule, refusal.why), concrete)
        if wanted <= set(refused):
            break
    return refused


def test_every_guard_refuses_somewhere() -> None:
    """For each guard there is a run that it stops, and no earlier guard of the same action does: none is dead."""
    wanted = set(guards())
    assert len(wanted) > 40
    found: set[Guard] = set()
    for name in ("parking", "budgets", "overlap"):
        found |= set(refusing(name, wanted - found))
        if wanted <= found:
            break
    assert sorted(wanted - found) == []


def test_every_guard_names_a_rule() -> None:
    """A refusal names a rule of the machine, so that whoever is refused can read what it keeps."""
    assert {rule for _, rule, _ in guards()} <= {rule.id for rule in incident.rules}


def test_the_traced_relation_has_every_guard() -> None:
    """Tracing keeps each refusal with its rule and reason."""
    traced = {(one.action, rule, why) for one in relation(incident).commands for _, rule, why in one.refusals}
    assert traced == set(guards())
