"""k-induction: claims that hold up each other are proved, and what a solver can't say is not."""

from __future__ import annotations

import runpy
import time
from importlib import import_module
from pathlib import Path

import attrs
import pytest
import z3

from deadreckon.models.relation import Relation, relation
from deadreckon.proofs import induction, prove
from deadreckon.proofs.induction import Counterexample, Induction, Inductor
from deadreckon.proofs.solvers import Answer, ask_z3
from deadreckon.proofs.system import TYPES, System
from deadreckon.spec import Kind, Machine, action, always, require, scope, sometimes

lease: Machine = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lease.py"))["machine"]


@attrs.frozen
class Dial:
    """A dial that turns between 0 and 1; from 5, which it never shows, it would turn to 6."""

    shown: int


def zero() -> Dial:
    return Dial(0)


def turn(state: Dial) -> Dial:
    require(state.shown >= 0 and state.shown <= 5, "R1", "the dial is stuck")
    return Dial(1 if state.shown == 0 else 6 if state.shown == 5 else 0)


@always("R1", "the dial never shows 6", source="here")
def r1(state: Dial) -> bool:
    return state.shown != 6


@always("R2", "the dial never shows 1", source="here")
def r2(state: Dial) -> bool:
    return state.shown != 1


@always("R3", "the dial shows 0 or 1", source="here")
def r3(state: Dial) -> bool:
    return state.shown == 0 or state.shown == 1


@always("R4", "the dial never turns to 6", source="here")
def r4(before: Dial, after: Dial) -> bool:
    return after.shown != 6


@always("R5", "the dial does not show 0 at the start", source="here")
def r5(state: Dial) -> bool:
    return state.shown != 0


@sometimes("S1", "the dial turns", source="here", beside=("R1", "R2", "R3", "R4", "R5"))
def s1(state: Dial) -> bool:
    return state.shown == 1


def anywhere(state: Dial) -> bool:
    return True


dial = Machine(
    name="dial",
    title="A dial of two faces.",
    state=Dial,
    initial=(zero,),
    actions=(action(turn),),
    rules=(r1, r2, r3, r4, r5, s1),
    scopes=(scope("all", why="two states", within=anywhere),),
)


def claiming(machine: Machine, *ids: str) -> Relation:
    """The relation of a machine that claims only the rules *ids*."""
    kept = tuple(rule for rule in machine.rules if rule.id in ids or rule.kind is Kind.SOMETIMES)
    beside = tuple(one for one in ids if one in {rule.id for rule in kept})
    kept = tuple(attrs.evolve(rule, beside=beside) if rule.kind is Kind.SOMETIMES else rule for rule in kept)
    return relation(attrs.evolve(machine, rules=kept, variants=()))


def induced(machine: Machine, *ids: str, seconds: float = 30.0) -> Induction:
    """The outcome for a machine that claims only the rules *ids*."""
    return Inductor(System(claiming(machine, *ids)), time.monotonic() + seconds).run(ids)


def test_an_inductive_rule_is_proved_at_once() -> None:
    """A rule that every command keeps is proved with k = 1, and so is the claim on types."""
    assert induced(dial, "R3").proved == {TYPES: 1, "R3": 1}


def test_a_rule_that_needs_two_states_is_proved_with_two() -> None:
    """From 5 the dial turns to 6, but nothing turns to 5: only two states in a row show it."""
    result = induced(dial, "R1")
    assert result.proved["R1"] == 2


def test_rules_hold_up_each_other() -> None:
    """R1 alone needs k = 2; beside R3 it is proved with k = 1."""
    assert induced(dial, "R1", "R3").proved == {TYPES: 1, "R1": 1, "R3": 1}


def test_a_rule_over_steps_is_judged_by_what_was_proved() -> None:
    """R4 is proved from R3, and broken without it."""
    assert induced(dial, "R3", "R4").proved["R4"] == 1
    alone = induced(dial, "R4")
    assert "R4" not in alone.proved
    broken = alone.broken["R4"]
    assert broken is not None
    assert (broken.before, broken.after) == ((5,), (6,))


def test_a_false_rule_leaves_the_step_that_breaks_it() -> None:
    """What breaks a rule is kept: the command, and a state in which the rule held before it."""
    result = induced(dial, "R2")
    assert "R2" not in result.proved
    broken = result.broken["R2"]
    assert isinstance(broken, Counterexample)
    assert (broken.rule, broken.command.action, broken.before, broken.after) == ("R2", "turn", (0,), (1,))


def test_a_rule_that_is_false_at_the_start_is_not_proved() -> None:
    """Initiation is part of induction: a rule that no command breaks may be false from the start."""
    assert "R5" not in induced(dial, "R5").proved


def test_a_rule_that_only_holds_under_a_false_one_is_not_proved() -> None:
    """What falls out of the set no longer holds up the others: R2 is false, and R3 is proved without it."""
    result = induced(dial, "R2", "R3")
    assert result.proved == {TYPES: 1, "R3": 1}


def test_inductive_rules_of_the_lease() -> None:
    """F2 is inductive; F1 is not, for a client may hold a token that was never granted."""
    result = induced(lease, "F1", "F2")
    assert result.proved == {TYPES: 1, "F2": 1}
    broken = result.broken["F1"]
    assert broken is not None
    assert broken.command.action == "acquire"


def test_a_solver_that_gives_up_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown is not proved, whatever the rule, and leaves no counterexample either."""
    monkeypatch.setattr(z3.Solver, "check", lambda self, *assumptions: z3.unknown)
    result = induced(dial, "R1", "R3", "R4")
    assert result.proved == {}
    assert set(result.broken.values()) == {None}


def test_a_solver_that_gives_up_on_the_step_alone_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that holds at the start is no invariant when nobody can say that the steps keep it."""
    monkeypatch.setattr(Inductor, "_initially", lambda self, id: True)
    monkeypatch.setattr(z3.Solver, "check", lambda self, *assumptions: z3.unknown)
    assert induced(dial, "R1", "R3").proved == {}


@pytest.mark.parametrize("answer", [Answer.UNKNOWN, Answer.SAT])
def test_two_states_in_a_row_are_believed_only_when_both_solvers_are_sure(
    monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    """For k above 1 every solver is asked, and one that doubts is enough."""
    monkeypatch.setattr(induction, "SOLVERS", {"z3": ask_z3, "cvc5": lambda script, seconds: answer})
    assert "R1" not in induced(dial, "R1").proved


def test_what_stands_on_a_doubted_invariant_is_not_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule proved from two states in a row falls with the invariant that it was proved beside."""
    claimed = claiming(dial, "R1")
    assert prove(claimed, invariants=tmp_path)["R1"].method == "2-induction"
    doubting = {"z3": ask_z3, "cvc5": lambda script, seconds: Answer.UNKNOWN}
    monkeypatch.setattr(import_module("deadreckon.proofs.certificate"), "SOLVERS", doubting)
    assert prove(claimed, invariants=tmp_path)["R1"].verdict == "unknown"


def test_out_of_time_proves_nothing_more() -> None:
    """Past its deadline induction does not go on to k = 2."""
    assert "R1" not in induced(dial, "R1", seconds=-1.0).proved
