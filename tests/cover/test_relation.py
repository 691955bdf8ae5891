"""The traced relation is the machine: it says what the machine's own functions say, also where nothing ever gets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import cast

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadreckon.models import expr as ir
from deadreckon.models.compiled import Compiled, Reference, compile_relation
from deadreckon.models.expr import Expr
from deadreckon.models.layout import Field
from deadreckon.models.relation import Command, Relation, relation
from deadreckon.spec import (
    Among,
    Between,
    Machine,
    Refused,
    Rule,
    SpecError,
    action,
    always,
    eventually,
    require,
    scope,
    sometimes,
)
from deadreckon.spec.incident_state import RecoveryPolicy
from deadreckon.spec.machines import incident

Pair = tuple[object, object]


@cache
def traced() -> Relation:
    return relation(incident)


@cache
def compiled(at: int) -> tuple[Compiled, Reference]:
    policy = incident.scopes[at].policy
    return compile_relation(traced(), policy), Reference(traced(), policy)


def leaf(field: Field) -> st.SearchStrategy[int]:
    if issubclass(field.type, Enum):
        return st.integers(0, len(field.type) - 1)
    return st.integers(0, 1) if field.type is bool else st.one_of(st.integers(-1, 4), st.integers())


STATES = st.deferred(lambda: st.tuples(*map(leaf, traced().layout.fields)))
POLICIES = st.builds(
    RecoveryPolicy,
    *(st.one_of(st.integers(low, 3), st.integers(low, 10**6)) for low in (1, 1, 0, 0, 0, 1)),
)


@settings(max_examples=150, deadline=None)
@given(STATES, st.integers(0, 2))
def test_relation_compiled_steps_equal_the_functions(state: tuple[int, ...], at: int) -> None:
    """On drawn states, reachable or not, every instance of every action does what the function does, ghost included."""
    code, reference = compiled(at)
    pair = cast("Pair", traced().layout.rebuild(state))
    steps = dict(code.successors(state))
    for instance in code.instances:
        assert steps.get(instance.index) == reference.step(instance, pair), instance.name


@settings(max_examples=100, deadline=None)
@given(STATES, st.integers(0, 2))
def test_relation_compiled_rules_equal_the_functions(state: tuple[int, ...], at: int) -> None:
    """On drawn states and their steps, every rule says what its function says."""
    code, reference = compiled(at)
    before, ghost = cast("Pair", traced().layout.rebuild(state))
    for rule in incident.rules:
        if rule.id in code.claims:
            assert bool(code.claims[rule.id](state)) == reference.claim(rule, (before,), ghost), rule.id
    for label, flat in code.successors(state):
        after, _ = cast("Pair", traced().layout.rebuild(flat))
        for id, functions in code.steps.items():
            rule = incident.rule(id)
            if not rule.on or code.instances[label].action in rule.on:
                assert bool(functions[label](state)) == reference.claim(rule, (before, after), ghost), id


def value_of(expr: Expr, bindings: Mapping[Expr, Expr]) -> int:
    (folded,) = ir.substitute((expr,), bindings)
    assert ir.is_const(folded)
    return int(folded.value)


@settings(max_examples=300, deadline=None)
@given(STATES, POLICIES, st.data())
def test_relation_commands_equal_the_functions_for_every_policy_and_input(
    state: tuple[int, ...], policy: RecoveryPolicy, data: st.DataObject
) -> None:
    """Guard, updates and refusals of a command are the function's on drawn states, policies and inputs."""
    command: Command = data.draw(st.sampled_from(traced().commands))
    drawn = {one.name: data.draw(st.integers(one.low, 9 if one.high is None else one.high)) for one in command.inputs}
    leaves = (*traced().policy, *traced().state, *(one.variable for one in command.inputs))
    values = (*traced().policy_layout.flatten(policy), *state, *drawn.values())
    typed = (ir.const(bool(at) if leaf.sort is ir.Sort.BOOL else at) for leaf, at in zip(leaves, values, strict=True))
    bindings = dict(zip(leaves, typed, strict=True))
    assert all(value_of(one.within(), bindings) for one in command.inputs)
    inputs = {**command.fixed, **{one.name: one.field.value(drawn[one.name]) for one in command.inputs}}
    before, ghost = cast("Pair", traced().layout.rebuild(state))
    refusals = [(rule, why) for when, rule, why in command.refusals if value_of(when, bindings)]
    try:
        after = incident.step(policy, before, command.action, inputs)
    except Refused as refusal:
        expected, refused = None, [(refusal.rule, refusal.why)]
    else:
        assert incident.observe is not None
        seen = incident.observe(*incident.signature(incident.observe).arguments(policy, (before, after), ghost))
        expected, refused = traced().layout.flatten((after, seen)), []
    assert bool(value_of(command.guard, bindings)) == (expected is not None)
    assert refusals == refused
    assert expected is None or tuple(value_of(one, bindings) for one in command.updates) == expected


IMPORT = "from deadreckon.models.relation import relation; from deadreckon.spec.machines import incident"


def test_relation_fingerprint_is_stable_across_processes() -> None:
    """The fingerprint of a machine is the same in another process with other hashes."""
    command = [sys.executable, "-c", f"{IMPORT}; print(relation(incident).fingerprint())"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == traced().fingerprint()


def test_relation_fingerprint_tells_variants_apart() -> None:
    """A changed helper changes the fingerprint of the actions alone: the incident and its variants have one each."""
    machines = [incident, *(incident.variant(one.name) for one in incident.variants)]
    prints = {relation(attrs.evolve(one, rules=(), variants=())).fingerprint() for one in machines}
    assert len(prints) == len(machines)


# A lamp, to change one thing at a time.


@attrs.frozen
class Limits:
    most: int = 3


class Lamp(Enum):
    OFF = "off"
    ON = "on"


@attrs.frozen
class State:
    count: int
    lamp: Lamp
    flags: tuple[bool, ...]


@attrs.frozen
class Ghost:
    ever_on: bool = False


def initial() -> State:
    return State(0, Lamp.OFF, (False, False))


def initial_on() -> State:
    return State(1, Lamp.ON, (False, False))


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    return Ghost(ghost.ever_on or after.lamp == Lamp.ON)


def valid(policy: Limits) -> bool:
    require(policy.most > 0, "most", "give at least 1")
    return policy.most < 100


def valid_twice(policy: Limits) -> bool:
    return policy.most > 0


def press(policy: Limits, state: State, by: int, lamp: Lamp) -> State:
    require(state.count + by <= policy.most, "A1", "too many")
    return attrs.evolve(state, count=state.count + by, lamp=lamp)


def mark(state: State, at: int, flag: bool) -> State:
    require(at == 0 or state.flags[0], "A1", "the first comes first")
    require(at < 2, "A1", "there are two")
    return attrs.evolve(state, flags=(*state.flags[:at], flag, *state.flags[at + 1 :]))


def never(state: State) -> State:
    require(state.lamp == Lamp.ON and state.lamp != Lamp.ON, "A1", "never")
    return state


def flag_as_count(state: State) -> State:
    return attrs.evolve(state, count=state.lamp == Lamp.ON)


def longer(state: State) -> State:
    return State(state.count, state.lamp, (False, False, False))


def few(policy: Limits, state: State) -> bool:
    return state.count <= policy.most


def lit(state: State) -> bool:
    return state.lamp == Lamp.ON


@always("A1", "the count is within the limit", source="here")
def a1(policy: Limits, state: State) -> bool:
    require(state.count <= policy.most, "A1", "too many")
    return True


@always("A2", "the count never falls", source="here", on=("press",))
def a2(before: State, after: State) -> bool:
    return before.count <= after.count


@sometimes("S1", "it is lit by a press", source="here", beside=("A1", "A2"), on=("press",))
def s1(ghost: Ghost, before: State, after: State) -> bool:
    return not ghost.ever_on and after.lamp == Lamp.ON


@eventually("E1", "a light goes out", source="here", when=lit, fair=("press",))
def e1(state: State) -> bool:
    return state.lamp == Lamp.OFF


PRESS = action(press, by=Between(0, 2, explore=(1, 2)))
MARK = action(mark, at=Among((0, 1, 2)))
small = Machine(
    name="small",
    title="A lamp.",
    state=State,
    policy=Limits,
    policy_valid=valid,
    ghost=Ghost,
    observe=observe,
    initial=(initial,),
    actions=(PRESS, MARK),
    rules=(a1, a2, s1, e1),
    scopes=(scope("few", why="bounded by the policy", within=few, policy=Limits()),),
)


def test_relation_has_a_command_for_each_choice_of_finite_inputs() -> None:
    """An Among input is fixed in a command of its own unless that never runs; other inputs are variables."""
    found = relation(small)
    assert [command.name for command in found.commands] == ["press", "mark(at=0)", "mark(at=1)"]
    by, lamp = found.commands[0].inputs
    assert (by.low, by.high, by.explore, str(by.variable)) == (0, 2, (1, 2), "press.by")
    assert (lamp.low, lamp.high, lamp.explore) == (0, 1, (0, 1))
    assert found.commands[1].inputs[0].within() is ir.TRUE
    names = [instance.name for instance in compile_relation(found, Limits()).instances]
    assert names[:4] == [f"press(by={by}, lamp={lamp})" for by in (1, 2) for lamp in ("off", "on")]
    assert names[4:] == [f"mark(at={at}, flag={flag})" for at in (0, 1) for flag in ("false", "true")]


def test_relation_steps_are_judged_only_on_their_actions() -> None:
    """A rule confined to some actions holds on every other, and is not reached by it."""
    found = relation(small)
    assert found.steps["A2"][1:] == (ir.TRUE, ir.TRUE)
    assert found.steps["S1"][1:] == (ir.FALSE, ir.FALSE)
    assert set(found.triggers) == {"E1", "within:few"}


def test_relation_refusal_in_a_rule_is_a_no() -> None:
    """A rule or a policy constraint that refuses does not hold, traced or not."""
    found = relation(small)
    code, reference = compile_relation(found, Limits(1)), Reference(found, Limits(1))
    too_many = State(2, Lamp.OFF, (False, False))
    assert not code.claims["A1"](found.layout.flatten((too_many, Ghost())))
    assert not reference.claim(small.rule("A1"), (too_many,), Ghost())
    (most,) = found.policy
    assert found.policy_valid is ir.and_(ir.lt(ir.const(0), most), ir.lt(most, ir.const(100)))


def test_relation_action_whose_guards_exclude_each_other_is_refused() -> None:
    """An action that can never run is a mistake, and is refused with its name."""
    with pytest.raises(SpecError, match="action never of machine small can never run") as refusal:
        relation(attrs.evolve(small, actions=(PRESS, action(never))))
    assert refusal.value.instead == "mend the guards, or remove the action"


def test_relation_state_of_another_shape_is_refused() -> None:
    """An action that changes the length of a tuple is refused."""
    with pytest.raises(SpecError, match="returns a state of another shape") as refusal:
        relation(attrs.evolve(small, actions=(PRESS, action(longer))))
    assert "a free slot is a value" in refusal.value.instead


def test_relation_bool_in_an_integer_field_is_a_number() -> None:
    """A bool that is stored as an integer is 0 or 1, so that every leaf has the sort of its field."""
    found = relation(attrs.evolve(small, actions=(PRESS, action(flag_as_count))))
    for command in found.commands:
        assert [one.sort for one in command.updates] == [field.sort for field in found.layout.fields]


@attrs.frozen
class Named:
    """A state whose fields are called like an input of an action, and like a policy's."""

    put: Limits
    policy: Limits


def named() -> Named:
    return Named(Limits(0), Limits(0))


def put(state: Named, most: int) -> Named:
    return attrs.evolve(state, put=Limits(state.put.most + most))


def anything(state: Named) -> bool:
    return True


two_names = Machine(
    name="named",
    title="t",
    state=Named,
    initial=(named,),
    actions=(action(put, most=Between(0, None, explore=(1,))),),
    rules=(),
    scopes=(scope("any", why="none", within=anything),),
)


def test_relation_input_and_field_of_one_name_are_refused() -> None:
    """Two different things never share a variable: an input whose name is a state field's is refused."""
    with pytest.raises(SpecError, match=r"input most of action put and the field put\.most have one name") as refusal:
        relation(two_names)
    assert refusal.value.where.startswith(f"{__file__}:")


def test_relation_state_and_policy_fields_of_one_name_are_refused() -> None:
    """A state field whose path is a policy's is refused."""
    scopes = (scope("any", why="none", within=anything, policy=Limits()),)
    with pytest.raises(SpecError, match=r"two of field policy\.most"):
        relation(attrs.evolve(two_names, policy=Limits, scopes=scopes))


CHANGES: dict[str, Machine] = {
    "a further action": attrs.evolve(small, actions=(PRESS, MARK, action(flag_as_count))),
    "the values of an input": attrs.evolve(small, actions=(PRESS, action(mark, at=Among((0,))))),
    "the range of an input": attrs.evolve(small, actions=(action(press, by=Between(0, 3, explore=(1, 2))), MARK)),
    "an open range": attrs.evolve(small, actions=(action(press, by=Between(0, None, explore=(1, 2))), MARK)),
    "the start": attrs.evolve(small, initial=(initial_on,)),
    "a second start": attrs.evolve(small, initial=(initial, initial_on)),
    "the constraint of the policy": attrs.evolve(small, policy_valid=valid_twice),
    "no constraint": attrs.evolve(small, policy_valid=None),
    "a rule less": attrs.evolve(small, rules=(a1, s1, attrs.evolve(a2, on=()))),
    "the actions of a rule": attrs.evolve(small, rules=(a1, attrs.evolve(a2, on=("mark",)), s1, e1)),
    "the order of actions": attrs.evolve(small, actions=(MARK, PRESS)),
}


def test_relation_fingerprint_changes_with_everything_that_a_proof_uses() -> None:
    """Guards, inputs and their ranges, starts, the policy's constraint and rules are all in the fingerprint."""
    prints = {case: relation(machine).fingerprint() for case, machine in CHANGES.items()}
    prints["none"] = relation(small).fingerprint()
    assert len(set(prints.values())) == len(prints), prints


def test_relation_fingerprint_leaves_out_what_no_proof_uses() -> None:
    """Names, sentences, scopes and the values that are explored do not change the fingerprint."""
    other: Rule = attrs.evolve(a1, sentence="in other words", source="there")
    renamed = attrs.evolve(
        small,
        name="other",
        rules=(other, a2, s1, e1),
        scopes=(scope("fewer", why="smaller", within=few, policy=Limits(2)),),
        actions=(action(press, by=Between(0, 2, explore=(0,))), MARK),
    )
    assert relation(renamed).fingerprint() == relation(small).fingerprint()
