"""The checker finds every known-bad design, and no guard, rule or variant of a machine is there for nothing."""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import cast

import attrs
import pytest

from deadreckon import spec
from deadreckon.models.compiled import Reference
from deadreckon.models.explorer import Bounds, Exploration, explore
from deadreckon.models.relation import relation
from deadreckon.spec import Action, Kind, Machine, Refused, Scope
from deadreckon.spec.machines import MACHINES
from tests.quality.defects import TABLES, Guard

PINNED = json.loads((Path(__file__).parents[2] / "models" / "manifest.json").read_text(encoding="utf-8"))
SAMPLE, RARE = 4_000, 120
"""How many states of a scope are tried for a guard that should refuse; and for one that should not."""


def groups(*cases: tuple[str, ...]) -> list[object]:
    """Cases that begin with the name of a machine; those of one machine share its graphs, so one process takes them."""
    return [pytest.param(*case, marks=pytest.mark.xdist_group(case[0]), id="-".join(case)) for case in cases]


def each_machine() -> list[object]:
    """Every machine that has a table: all, says the first test."""
    return groups(*((name,) for name in TABLES))


def each_variant() -> list[object]:
    """Every known-bad design of every table."""
    return groups(*((name, variant) for name, table in TABLES.items() for variant in table.all))


def scope_named(machine: Machine, name: str) -> Scope:
    """The scope of this name."""
    return next(scope for scope in machine.scopes if scope.name == name)


@cache
def refuted(name: str, variant: str) -> Exploration:
    """The exploration that refutes a variant, in the scope where its run is shortest, and no deeper than that."""
    rule, steps = TABLES[name].all[variant]
    bad = MACHINES[name].variant(variant)
    bounds = Bounds() if bad.rule(rule).kind is Kind.EVENTUALLY else Bounds(max_depth=steps)
    scope = scope_named(bad, PINNED[name]["variants"][variant]["scope"])
    return explore(bad, scope, only=rule, bounds=bounds, compare_every=0)


def test_every_machine_has_its_table() -> None:
    """Whoever adds a machine says here which designs it is to refute."""
    assert set(TABLES) == set(MACHINES)


@pytest.mark.parametrize("name", each_machine())
def test_the_variants_are_those_of_the_protocol_and_ours(name: str) -> None:
    """Every known-bad design of the protocol is declared with the rule that it names, and no other unnoticed."""
    declared = {variant.name: variant.rule for variant in MACHINES[name].variants}
    assert declared == {variant: rule for variant, (rule, _) in TABLES[name].all.items()}


@pytest.mark.parametrize(
    ("name", "designs"), [("incident", 17), ("hold", 21), ("keepalive", 16), ("journal", 7), ("request", 5)]
)
def test_no_design_of_a_protocol_is_left_out(name: str, designs: int) -> None:
    """The tables have as many designs as the pages that they were read from."""
    assert len(TABLES[name].protocol) == designs


@pytest.mark.parametrize("name", each_machine())
def test_every_rule_refutes_something(name: str) -> None:
    """No rule is one that no design could break, but for those that are listed."""
    rules = {rule.id for rule in MACHINES[name].rules if rule.kind is not Kind.SOMETIMES and not rule.lemma}
    assert rules - {rule for rule, _ in TABLES[name].all.values()} == TABLES[name].unrefuted


@pytest.mark.parametrize(("name", "variant"), each_variant())
def test_variant_is_refuted_by_its_rule(name: str, variant: str) -> None:
    """A known-bad design is refuted by the rule it names, in exactly the pinned number of steps."""
    rule, steps = TABLES[name].all[variant]
    pinned = PINNED[name]["variants"][variant]
    assert (pinned["rule"], pinned["steps"]) == (rule, steps)
    trace = refuted(name, variant).violated[rule]
    assert len(trace) == steps
    assert (trace.loop is not None) == (MACHINES[name].rule(rule).kind is Kind.EVENTUALLY)


def with_last_step() -> list[object]:
    """The variants whose refutation has an end: a run without end shows in whole graphs alone."""
    return groups(
        *(
            (name, variant)
            for name, table in TABLES.items()
            for variant, (rule, _) in table.all.items()
            if MACHINES[name].rule(rule).kind is not Kind.EVENTUALLY
        )
    )


@pytest.mark.parametrize(("name", "variant"), with_last_step())
def test_no_run_of_the_variant_is_shorter(name: str, variant: str) -> None:
    """In no scope is the rule broken by fewer steps than pinned."""
    rule, steps = TABLES[name].all[variant]
    found = refuted(name, variant)
    for scope in MACHINES[name].scopes:
        if scope is not found.scope:
            bounds = Bounds(max_depth=steps - 2)
            traced = found.relation
            shorter = explore(traced.machine, scope, traced=traced, only=rule, bounds=bounds, compare_every=0)
            assert rule not in shorter.violated


@pytest.mark.parametrize(("name", "variant"), with_last_step())
def test_the_sound_machine_refuses_the_run_of_the_variant(name: str, variant: str) -> None:
    """Step by step through the sound machine, the run that refutes a variant is refused or differs."""
    rule, steps = TABLES[name].all[variant]
    found = refuted(name, variant)
    sound = Reference(attrs.evolve(found.relation, machine=MACHINES[name]), found.scope.policy)
    pair = cast("tuple[object, object]", sound.layout.rebuild(found.violated[rule].steps[0].state))
    for step in found.violated[rule].steps[1:]:
        assert step.instance is not None
        after = sound.step(step.instance, pair)
        if after != step.state:
            return
        pair = cast("tuple[object, object]", sound.layout.rebuild(after))
    pytest.fail(f"the sound machine takes the same {steps} steps")


# Guards: every ``require`` that an action comes to, in its own body or in a helper of the machine's files.


def called(function: FunctionType) -> Iterator[FunctionType]:
    """The functions of the machines' files that *function* names."""
    for node in ast.walk(ast.parse(inspect.getsource(function))):
        found = function.__globals__.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(found, FunctionType) and found.__module__.startswith(f"{spec.__name__}."):
            yield found


def reached(function: FunctionType) -> set[FunctionType]:
    """A function, and all that it calls, directly or through others."""
    found, new = {function}, [function]
    while new:
        more = set(called(new.pop())) - found
        found |= more
        new += more
    return found


def required(function: FunctionType) -> Iterator[tuple[str, str]]:
    """Rule and reason of each ``require`` that stands in *function*."""
    for node in ast.walk(ast.parse(inspect.getsource(function))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "require":
            rule, why = (ast.literal_eval(argument) for argument in node.args[1:])
            yield rule, why


def reached_by(action: Action) -> set[FunctionType]:
    """The function of an action, and its helpers."""
    return reached(cast("FunctionType", action.function))


@cache
def guards(name: str) -> frozenset[Guard]:
    """Each guard of each action of a machine."""
    return frozenset(
        (action.name, *guard)
        for action in MACHINES[name].actions
        for function in reached_by(action)
        for guard in required(function)
    )


def functions(name: str) -> Iterator[FunctionType]:
    """All functions of a machine's files."""
    for file in pkgutil.iter_modules(spec.__path__, f"{spec.__name__}."):
        if file.name.rpartition(".")[2].split("_")[0] == name:
            for value in vars(import_module(file.name)).values():
                if isinstance(value, FunctionType) and value.__module__ == file.name:
                    yield value


@pytest.mark.parametrize("name", each_machine())
def test_no_guard_stands_outside_of_the_actions(name: str) -> None:
    """Every ``require`` of a machine's files is one that an action comes to, or says what a valid policy is."""
    machine = MACHINES[name]
    known = {cast("FunctionType", machine.policy_valid)}.union(*(reached_by(action) for action in machine.actions))
    assert {one.__name__ for one in functions(name) if any(required(one))} <= {one.__name__ for one in known}
    assert len(guards(name)) > TABLES[name].guards


@pytest.mark.parametrize("name", each_machine())
def test_every_guard_names_a_rule(name: str) -> None:
    """A refusal names a rule of the machine, so that whoever is refused can read what it keeps."""
    assert {rule for _, rule, _ in guards(name)} <= {rule.id for rule in MACHINES[name].rules}


@pytest.mark.parametrize("name", each_machine())
def test_the_traced_relation_has_every_guard(name: str) -> None:
    """Tracing keeps each refusal that can happen, with its rule and reason."""
    commands = relation(MACHINES[name]).commands
    traced = {(one.action, rule, why) for one in commands for _, rule, why in one.refusals}
    assert traced <= guards(name)
    assert guards(name) - traced <= TABLES[name].backstops.keys() | TABLES[name].by_inputs


# What happens in the sound machine: one walk over each scope answers all of it, and no graph is kept.


def refusing(found: Exploration, machine: Machine, wanted: Iterable[Guard], sample: int) -> set[Guard]:
    """Those of *wanted* that refuse somewhere among so many states of an exploration: the function itself does."""
    assert found.graph is not None
    missing = set(wanted)
    calls = [(action, machine.signature(action.function), list(action.instances())) for action in machine.actions]
    for flat in list(found.graph.index)[:: 1 + found.states // sample]:
        state, _ = cast("tuple[object, object]", found.relation.layout.rebuild(flat))
        waiting = {guard[0] for guard in missing}
        for action, signature, instances in calls:
            for inputs in instances if action.name in waiting else ():
                try:
                    action.function(*signature.arguments(found.scope.policy, (state,), None, inputs))
                except Refused as refusal:
                    missing.discard((action.name, refusal.rule, refusal.why))
        if not missing:
            break
    return set(wanted) - missing


@attrs.define
class Happened:
    """What happens in some scope of a machine: what is reached, what runs, what refuses, and which backstops do."""

    reached: set[str] = attrs.field(factory=set)
    ran: set[str] = attrs.field(factory=set)
    refused: set[Guard] = attrs.field(factory=set)
    stopped: set[Guard] = attrs.field(factory=set)


@cache
def happened(name: str) -> Happened:
    """All scopes of a machine, the small ones first: most guards refuse there already."""
    machine, table, seen = MACHINES[name], TABLES[name], Happened()
    traced = relation(machine)
    for scope in sorted(machine.scopes, key=lambda one: int(PINNED[name]["scopes"][one.name]["states"])):
        found = explore(machine, scope, traced=traced, compare_every=0, keep_graph=True)
        seen.reached |= set(found.reached)
        seen.ran |= found.ran
        seen.refused |= refusing(found, machine, guards(name) - table.backstops.keys() - seen.refused, SAMPLE)
        seen.stopped |= refusing(found, machine, table.backstops, RARE)
    return seen


@pytest.mark.parametrize("name", each_machine())
def test_every_sometimes_is_reached(name: str) -> None:
    """Whatever stands beside a rule so that it is not vacuous can happen, in one scope at least."""
    assert happened(name).reached == {rule.id for rule in MACHINES[name].rules if rule.kind is Kind.SOMETIMES}


@pytest.mark.parametrize("name", each_machine())
def test_every_action_runs(name: str) -> None:
    """No action of the machine is only there to be refused."""
    assert happened(name).ran == {action.name for action in MACHINES[name].actions}


@pytest.mark.parametrize("name", each_machine())
def test_every_guard_refuses_somewhere(name: str) -> None:
    """For each guard there is a run that it stops, and no earlier guard of the same action does: none is dead."""
    assert sorted(guards(name) - TABLES[name].backstops.keys() - happened(name).refused) == []


@pytest.mark.parametrize("name", each_machine())
def test_the_backstops_never_refuse_in_the_sound_machine(name: str) -> None:
    """What is listed as a backstop is one: it refuses in none of the sampled states of the sound machine."""
    assert happened(name).stopped == set()


def each_backstop() -> list[object]:
    """The designs that need a backstop."""
    return groups(*((name, one) for name, table in TABLES.items() for one in sorted(set(table.backstops.values()))))


@pytest.mark.parametrize(("name", "design"), each_backstop())
def test_every_backstop_refuses_in_the_design_that_needs_it(name: str, design: str) -> None:
    """A guard that nothing reaches in the sound machine stops a run of the machine without another guard."""
    machine, table = MACHINES[name], TABLES[name]
    worse = attrs.evolve(machine, variants=(*machine.variants, *table.worse)).variant(design)
    wanted = {guard for guard, needs in table.backstops.items() if needs == design}
    assert wanted <= guards(name)
    found = explore(worse, bounds=Bounds(max_depth=7), compare_every=0, keep_graph=True)
    assert wanted - refusing(found, worse, wanted, sample=found.states) == set()
