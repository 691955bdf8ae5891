"""The bounded check finds what exploration finds, as early, and believes nothing that the functions do not do."""

from __future__ import annotations

import runpy
from enum import Enum
from functools import cache
from pathlib import Path

import attrs
import pytest
import z3

from deadreckon.models.compiled import Reference
from deadreckon.models.explorer import Bounds, explore
from deadreckon.models.relation import Relation, relation
from deadreckon.proofs.bounded import bounded
from deadreckon.spec import Between, InternalError, Kind, Machine, action, always, require, scope, sometimes
from deadreckon.spec.machines import incident

lease: Machine = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lease.py"))["machine"]


@cache
def traced(machine: Machine, variant: str) -> Relation:
    """The relation of a known-bad variant, or of the sound machine."""
    return relation(machine.variant(variant) if variant else machine)


class Gear(Enum):
    """An input that is neither integer nor bool."""

    FORWARD = "forward"
    REVERSE = "reverse"


@attrs.frozen
class Road:
    """Where a car is."""

    at: int
    moves: int


def start() -> Road:
    return Road(0, 0)


def elsewhere() -> Road:
    return Road(-40, 0)


def drive(state: Road, by: int, gear: Gear, brake: bool) -> Road:
    require(not brake, "R1", "the brake is on")
    return Road(state.at + (by if gear == Gear.FORWARD else -by), state.moves + 1)


def wait(state: Road, by: int) -> Road:
    require(by > 0, "R1", "time does not run backwards")
    return Road(state.at, state.moves + 1)


@always("R1", "the car is never at 3", source="here")
def r1(state: Road) -> bool:
    return state.at != 3


@always("R2", "the car is never at -1200", source="here")
def r2(state: Road) -> bool:
    return state.at != -1200


@always("R3", "no third move is made", source="here")
def r3(before: Road, after: Road) -> bool:
    return after.moves < 3


@always("R4", "the car does not start far away", source="here")
def r4(state: Road) -> bool:
    return state.at >= -39 or state.moves > 0


@sometimes("S1", "the car moves", source="here", beside=("R1", "R2", "R3", "R4"))
def s1(state: Road) -> bool:
    return state.moves > 0


def near(state: Road) -> bool:
    return state.moves <= 3


driven = Machine(
    name="driven",
    title="A car moves by a number.",
    state=Road,
    initial=(start, elsewhere),
    actions=(action(drive, by=Between(-5, None, explore=(-2, 2))),),
    rules=(r1, r2, r3, r4, s1),
    scopes=(scope("near", why="a few moves", within=near),),
)
far = attrs.evolve(
    driven,
    name="far",
    initial=(start,),
    actions=(
        action(drive, by=Between(-400, None, explore=(-400, -399))),
        action(wait, by=Between(1, None, (1, 10**6))),
    ),
)


@pytest.mark.parametrize(
    ("machine", "variant", "steps"),
    [
        (lease, "no-fencing", 6),
        (incident, "no-fence", 4),
        (incident, "heavy-before-sync", 5),
        (incident, "lost-update", 6),
        (incident, "seal-while-parked", 6),
        (incident, "count-on-failure-path", 6),
        (incident, "untracked-when-missing", 7),
    ],
)
def test_seeded_violations_are_found_at_the_shortest_depth(machine: Machine, variant: str, steps: int) -> None:
    """A known-bad variant is refuted in exactly as many steps as the shortest path that exploration finds."""
    rule = next(one.rule for one in machine.variants if one.name == variant)
    bad = traced(machine, variant)
    shortest = explore(bad.machine, traced=bad, only=rule, bounds=Bounds(max_depth=steps), compare_every=0)
    found = bounded(bad, machine.scopes[0], [rule], depth=steps + 2)[rule]
    assert (found.verdict, found.depth) == ("violated", steps)
    assert found.trace is not None
    assert len(found.trace) == len(shortest.violated[rule]) == steps
    assert bounded(bad, machine.scopes[0], [rule], depth=steps - 1)[rule].verdict == "holds"


@pytest.mark.parametrize("machine", [lease, incident], ids=lambda machine: str(machine.name))
def test_rules_of_sound_machines_hold_to_the_depth(machine: Machine) -> None:
    """Every always rule of a sound machine holds, and the verdict says to what depth."""
    found = bounded(traced(machine, ""), machine.scopes[0], depth=4)
    assert set(found) == {rule.id for rule in machine.rules if rule.kind is Kind.ALWAYS}
    assert {(one.verdict, one.depth) for one in found.values()} == {("holds", 4)}


def test_trace_begins_at_an_initial_state_and_names_its_inputs() -> None:
    """A counterexample is a run: an initial state, then instances with the inputs that they took."""
    bad = traced(incident, "no-fence")
    found = bounded(bad, incident.scopes[0], ["C13"], depth=4)["C13"].trace
    assert found is not None
    assert found.steps[0].instance is None
    assert [step.instance.action for step in found.steps[1:] if step.instance][-1] == "call_from_the_dead"
    assert all(step.instance is not None for step in found.steps[1:])


def test_out_of_time_is_unknown() -> None:
    """What is not decided when the time is up is unknown, never holds."""
    found = bounded(traced(incident, ""), incident.scopes[0], depth=12, seconds=1e-6)
    assert {one.verdict for one in found.values()} == {"unknown"}
    assert all("gave up at depth" in one.detail for one in found.values())


def test_what_was_found_before_the_solver_gave_up_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violation stays one when the solver gives up later; the rest is unknown, with the last depth that was done."""
    answers = iter([z3.Solver.check] * 3)
    monkeypatch.setattr(z3.Solver, "check", lambda solver: next(answers, lambda solver: z3.unknown)(solver))
    found = bounded(traced(driven, ""), driven.scopes[0], ["R4", "R2"], depth=5)
    assert (found["R4"].verdict, found["R4"].depth) == ("violated", 0)
    assert (found["R2"].verdict, found["R2"].depth) == ("unknown", 1)
    assert found["R2"].detail == "the solver gave up at depth 2"


def test_a_counterexample_that_the_functions_refuse_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the machine's own functions refuse a step of the solver's run, nothing is reported but the contradiction."""
    monkeypatch.setattr(Reference, "step", lambda self, instance, pair: None)
    with pytest.raises(InternalError, match=r"lease: the solver's counterexample is none: .* leads to None"):
        bounded(traced(lease, "no-fencing"), lease.scopes[0], ["F2"])


def test_a_counterexample_that_the_functions_do_not_follow_is_a_defect() -> None:
    """A relation that is not of the machine (here: of its variant) is found out by its first counterexample."""
    wrong = attrs.evolve(traced(lease, "no-fencing"), machine=lease)
    with pytest.raises(InternalError, match="counterexample is none"):
        bounded(wrong, lease.scopes[0], ["F2"])


def test_integer_inputs_take_values_between_those_explored() -> None:
    """An integer input is any number between the least and the greatest that exploration tries, negative ones too."""
    found = bounded(traced(driven, ""), driven.scopes[0], ["R1"], depth=3)["R1"]
    assert (found.verdict, found.depth) == ("violated", 2)
    assert found.trace is not None
    moves = [step.instance.inputs for step in found.trace.steps[1:] if step.instance is not None]
    assert all(-2 <= inputs["by"] <= 2 and inputs["brake"] == 0 for inputs in moves)
    assert "R1" not in explore(driven, traced=traced(driven, ""), only="R1").violated


def test_numbers_far_from_those_in_the_states_are_exact() -> None:
    """Negative and large numbers keep their value: -1200 is three moves of -400."""
    found = bounded(traced(far, ""), far.scopes[0], ["R2"], depth=3)["R2"]
    assert (found.verdict, found.depth) == ("violated", 3)


def test_an_input_that_nothing_looks_at_does_not_exclude_its_command() -> None:
    """A domain far wider than every other number does not overflow and thereby forbid the step."""
    lone = attrs.evolve(far, actions=(action(wait, by=Between(1, None, explore=(1, 1000))),))
    found = bounded(relation(lone), lone.scopes[0], ["R3"], depth=4)["R3"]
    assert (found.verdict, found.depth) == ("violated", 3)


def test_a_rule_broken_at_the_start_is_violated_at_depth_zero() -> None:
    """Every initial state is looked at, not only the first."""
    found = bounded(traced(driven, ""), driven.scopes[0], ["R4"], depth=2)["R4"]
    assert (found.verdict, found.depth) == ("violated", 0)
    assert found.trace is not None
    assert len(found.trace) == 0


def test_a_rule_over_steps_holds_where_no_step_has_been_taken() -> None:
    """A rule over two states is first judged at depth 1, and its depth counts the step that breaks it."""
    found = bounded(traced(driven, ""), driven.scopes[0], ["R3"], depth=5)["R3"]
    assert (found.verdict, found.depth) == ("violated", 3)


def test_each_finished_depth_is_told() -> None:
    """A caller hears of every depth once, in order."""
    depths: list[int] = []
    bounded(traced(lease, ""), lease.scopes[0], depth=3, on_depth=depths.append)
    assert depths == [0, 1, 2, 3]


def test_the_policy_is_that_of_the_scope() -> None:
    """With limit 1 a counterexample is shorter than with limit 2: the scope says which policy is meant."""
    bad = traced(incident, "exempt-class")
    parking = next(one for one in incident.scopes if one.name == "parking")
    found = bounded(bad, parking, ["C4"], depth=10)["C4"]
    assert (found.verdict, found.depth) == ("violated", 10)
    assert bounded(bad, incident.scopes[0], ["C4"], depth=10)["C4"].verdict == "holds"
