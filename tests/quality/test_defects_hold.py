"""The checker finds every known-bad design of the hold, and no guard, rule or variant is there for nothing."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import cast

import attrs
import pytest

from deadreckon.models.compiled import Reference
from deadreckon.models.explorer import Bounds, Exploration, explore
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import Kind, Machine, Refused, Scope, Variant, swap
from deadreckon.spec import hold as hold_actions
from deadreckon.spec.hold_variants import owed_or_new
from deadreckon.spec.hold_words import owed
from deadreckon.spec.machines import hold

PINNED = json.loads((Path(__file__).parents[2] / "models" / "manifest.json").read_text(encoding="utf-8"))["hold"]

PROTOCOL = {
    "rearm-on-timeout-only": ("H9", 3),
    "cursor-moves-on-failed-judgement": ("H8", 4),
    "rearm-from-head": ("H8", 6),
    "unclipped-backoff": ("H2", 6),
    "no-sweep": ("H16", 4),
    "release-without-horizon": ("H2", 7),
    "check-then-write": ("H2", 5),
    "expiry-only-swept": ("H2", 5),
    "transport-loss-denies": ("H9", 2),
    "settle-best-effort": ("H5", 7),
    "effect-before-mark": ("H4", 3),
    "replay-effect-on-resume": ("H3", 8),
    "release-for-the-dead": ("H12", 6),
    "ignored-decision-burns-key": ("H16", 2),
    "append-after-expiry-wins": ("H6", 4),
    "unkeyed-request": ("H12", 2),
    "no-reconcile": ("H15", 7),
    "no-wait-epoch": ("H7", 4),
    "hot-loop": ("H10", 3),
    "sibling-blast": ("H14", 6),
    "deadline-recomputed-on-resume": ("H13", 5),
}
"""The protocol's table of known-bad variants: a rule that refutes each, and the steps of the shortest run."""

OURS = {"unchecked-decision": ("H11", 2), "signed-by-nobody": ("H11", 2), "second-decision": ("H6", 3)}
"""Guards that the twenty-one leave alone."""


def scope_named(name: str) -> Scope:
    """The scope of this name."""
    return next(scope for scope in hold.scopes if scope.name == name)


@cache
def refuted(name: str) -> Exploration:
    """The exploration that refutes a variant, in the scope where its run is shortest, and no deeper than that."""
    rule, steps = (PROTOCOL | OURS)[name]
    bad = hold.variant(name)
    bounds = Bounds() if bad.rule(rule).kind is Kind.EVENTUALLY else Bounds(max_depth=steps)
    return explore(bad, scope_named(PINNED["variants"][name]["scope"]), only=rule, bounds=bounds, compare_every=0)


def test_the_variants_are_those_of_the_protocol_and_ours() -> None:
    """Every known-bad design of the protocol is declared with the rule that it names, and no other design is."""
    declared = {variant.name: variant.rule for variant in hold.variants}
    assert declared == {name: rule for name, (rule, _) in (PROTOCOL | OURS).items()}
    assert len(PROTOCOL) == 21


@pytest.mark.parametrize("name", PROTOCOL | OURS)
def test_variant_is_refuted_by_its_rule(name: str) -> None:
    """A known-bad design is refuted by the rule it names, in exactly the pinned number of steps."""
    rule, steps = (PROTOCOL | OURS)[name]
    pinned = PINNED["variants"][name]
    assert (pinned["rule"], pinned["steps"]) == (rule, steps)
    trace = refuted(name).violated[rule]
    assert len(trace) == steps
    assert (trace.loop is not None) == (hold.rule(rule).kind is Kind.EVENTUALLY)


@pytest.mark.parametrize("name", PROTOCOL | OURS)
def test_no_run_of_the_variant_is_shorter(name: str) -> None:
    """In no scope is the rule broken by fewer steps than pinned."""
    rule, steps = (PROTOCOL | OURS)[name]
    if hold.rule(rule).kind is Kind.EVENTUALLY:
        pytest.skip("it is looked for in the whole of a scope, not up to a depth")
    traced = refuted(name).relation
    for scope in hold.scopes:
        found = explore(
            traced.machine, scope, traced=traced, only=rule, bounds=Bounds(max_depth=steps - 2), compare_every=0
        )
        assert rule not in found.violated


def test_an_effect_before_its_mark_happens_twice() -> None:
    """Where the protocol names two rules for the variant, it breaks both."""
    bounds = Bounds(max_depth=9)
    found = explore(
        hold.variant("effect-before-mark"), scope_named("failing"), only="H3", bounds=bounds, compare_every=0
    )
    assert "H3" in found.violated


def test_an_orphan_is_taken_up_by_the_reconciliation() -> None:
    """The other rule of an unkeyed request, that it never ends, is kept even so: who reconciles ends orphans too."""
    found = explore(hold.variant("unkeyed-request"), scope_named("failing"), only="H15", compare_every=0)
    assert found.verdict(hold.rule("H15")) == "holds"


@pytest.mark.parametrize("name", PROTOCOL | OURS)
def test_the_sound_machine_refuses_the_run_of_the_variant(name: str) -> None:
    """Step by step through the sound machine, the run that refutes a variant is refused or differs."""
    rule, steps = (PROTOCOL | OURS)[name]
    if hold.rule(rule).kind is Kind.EVENTUALLY:
        pytest.skip("a run without end has no last step")
    found = refuted(name)
    sound = Reference(attrs.evolve(found.relation, machine=hold), found.scope.policy)
    pair = sound.layout.rebuild(found.violated[rule].steps[0].state)
    for step in found.violated[rule].steps[1:]:
        assert step.instance is not None
        after = sound.step(step.instance, pair)  # type: ignore[arg-type]  # a state and a ghost
        if after != step.state:
            return
        pair = sound.layout.rebuild(after)
    pytest.fail(f"the sound machine takes the same {steps} steps")


@cache
def traced_hold() -> Relation:
    """The sound machine, traced once."""
    return relation(hold)


@cache
def explored(name: str) -> Exploration:
    """The whole of one scope, with its states."""
    return explore(hold, scope_named(name), traced=traced_hold(), compare_every=0, keep_graph=True)


def test_every_sometimes_is_reached() -> None:
    """Whatever stands beside a rule so that it is not vacuous can happen, in one scope at least."""
    wanted = {rule.id for rule in hold.rules if rule.kind is Kind.SOMETIMES}
    reached = {id for scope in hold.scopes for id in explored(scope.name).reached}
    assert reached == wanted


def test_every_action_runs() -> None:
    """No action of the machine is only there to be refused."""
    ran = {name for scope in hold.scopes for name in explored(scope.name).ran}
    assert ran == {action.name for action in hold.actions}


Guard = tuple[str, str, str]
HELPERS = {"serves", "decide_all"}
"""Functions that hold guards of the actions which call them."""


def functions() -> dict[str, ast.FunctionDef]:
    """The functions of the machine's file, as they are written."""
    body = ast.parse(inspect.getsource(hold_actions)).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def required(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Rule and reason of each ``require`` of a function, and of the guarding helper that it calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "require":
                rule, why = (ast.literal_eval(argument) for argument in node.args[1:])
                yield rule, why
            elif node.func.id in HELPERS:
                yield from required(functions()[node.func.id])


def guards() -> set[Guard]:
    """Each guard of each action: the action, the rule, and why."""
    known = {action.name for action in hold.actions}
    return {(name, *guard) for name, one in functions().items() if name in known for guard in required(one)}


def test_no_guard_stands_outside_of_the_actions() -> None:
    """Every ``require`` of the file is in an action, or in a helper that actions call."""
    known = {action.name for action in hold.actions} | HELPERS
    assert {name for name, one in functions().items() if any(required(one))} <= known


def test_every_guard_names_a_rule() -> None:
    """A refusal names a rule of the machine, so that whoever is refused can read what it keeps."""
    assert {rule for _, rule, _ in guards()} <= {rule.id for rule in hold.rules}


def refusing(found: Exploration, machine: Machine, wanted: Iterable[Guard], every: int) -> set[Guard]:
    """Those of *wanted* that refuse somewhere among every n-th state of an exploration: the function itself does."""
    assert found.graph is not None
    missing = set(wanted)
    for flat in list(found.graph.index)[::every]:
        state, _ = cast("tuple[object, object]", found.relation.layout.rebuild(flat))
        for action in {machine.action(guard[0]) for guard in missing}:
            for inputs in action.instances():
                try:
                    machine.step(found.scope.policy, state, action.name, inputs)
                except Refused as refusal:
                    missing.discard((action.name, refusal.rule, refusal.why))
        if not missing:
            break
    return set(wanted) - missing


BACKSTOPS = {
    ("judge", "H16", "the door no longer looks"): "no-sweep",
    ("adopt", "H16", "the door no longer looks"): "no-sweep",
    ("adopt", "H15", "this door leaves alone what it did not park"): "no-reconcile",
    ("expire", "H15", "this door leaves alone what it did not park"): "no-reconcile",
    ("abandon", "H15", "this door leaves alone what it did not park"): "no-reconcile",
    ("settle_unknown", "H15", "this door leaves alone what it did not park"): "no-reconcile",
    ("lapse", "H15", "this door leaves alone what it did not park"): "no-reconcile",
    ("decide", "H16", "the decision's key is taken"): "ignored-decision-burns-key",
    ("call", "H1", "the request was not approved"): "called-unowed",
    ("call", "H4", "the start of the release is not durable"): "called-unowed",
}
"""Guards that only a worse design needs: where everything else is sound they never refuse. That design, for each."""

UNOWED = Variant("called-unowed", "H3", "whoever finds an approval calls", (swap(owed, owed_or_new),))


def test_every_guard_refuses_somewhere() -> None:
    """For each guard there is a run that it stops, and no earlier guard of the same action does: none is dead."""
    wanted = guards() - set(BACKSTOPS)
    assert len(wanted) > 70
    for name in ("failing", "signing", "sharing"):
        wanted -= refusing(explored(name), hold, wanted, every=29)
    assert sorted(wanted) == []


@pytest.mark.parametrize("design", sorted(set(BACKSTOPS.values())))
def test_every_backstop_refuses_in_the_design_that_needs_it(design: str) -> None:
    """A guard that nothing reaches in the sound machine stops a run of the machine without another guard."""
    worse = attrs.evolve(hold, variants=(*hold.variants, UNOWED)).variant(design)
    wanted = {guard for guard, needs in BACKSTOPS.items() if needs == design}
    assert wanted <= guards()
    found = explore(worse, scope_named("failing"), bounds=Bounds(max_depth=7), compare_every=0, keep_graph=True)
    assert wanted - refusing(found, worse, wanted, every=1) == set()


def test_the_backstops_never_refuse_in_the_sound_machine() -> None:
    """What is listed as a backstop is one: it refuses in none of the sampled states of the sound machine."""
    for name in ("failing", "signing"):
        assert refusing(explored(name), hold, BACKSTOPS, every=997) == set()


def test_the_traced_relation_has_every_guard() -> None:
    """Tracing keeps each refusal that can happen, with its rule and reason."""
    traced = {(one.action, rule, why) for one in traced_hold().commands for _, rule, why in one.refusals}
    by_inputs_alone = {("judge", "H7", "the decision is of another hold")}
    assert traced <= guards()
    assert guards() - traced <= set(BACKSTOPS) | by_inputs_alone
