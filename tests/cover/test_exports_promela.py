"""What a Promela model says, and what is read from SPIN's answer; whether SPIN agrees is for ``nocover/test_spin.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs
import pytest
from click.testing import CliRunner

from deadreckon.cli.commands import command
from deadreckon.models import expr as ir
from deadreckon.models.explorer import Graph, explore
from deadreckon.models.exports import promela as module
from deadreckon.models.exports.model import HIGHEST, Model, model, scope_named
from deadreckon.models.exports.promela import Promela, promela
from deadreckon.models.exports.ranges import ranges
from deadreckon.models.exports.spin import Count, counted, read
from deadreckon.models.relation import relation
from deadreckon.spec import (
    UNLIMITED,
    CallerError,
    EnvironmentFault,
    InternalError,
    Kind,
    Machine,
    action,
    always,
    scope,
    sometimes,
)
from deadreckon.spec.machines import MACHINES
from tests.cover.knots import machine as knots

ALL = {**MACHINES, "knots": knots}


@pytest.fixture(scope="module", params=list(ALL))
def built(request: pytest.FixtureRequest) -> Model:
    """Each machine, in its first scope."""
    machine = ALL[request.param]
    return model(relation(machine), machine.scopes[0])


@pytest.fixture(scope="module")
def knotted() -> str:
    """The Promela of the awkward machine."""
    return promela(model(relation(knots), knots.scopes[0])).text


def outside(built: Model, graph: Graph) -> list[str]:
    """The fields of which a state has a value outside of their interval."""
    intervals = zip(built.relation.layout.fields, ranges(built), zip(*graph.index, strict=True), strict=True)
    return [
        field.path
        for field, interval, values in intervals
        if interval is not None and not interval[0] <= min(values) <= max(values) <= interval[1]
    ]


def prose(text: str) -> str:
    """All comments, without the breaks of their lines."""
    return " ".join(
        re.sub(r"\n\s*\*", "", one).replace("  ", " ") for one in re.findall(r"/\*(.*?)\*/", text, re.DOTALL)
    )


def declared(text: str) -> Iterator[tuple[str, str]]:
    """The type and the name of every variable of the state."""
    yield from re.findall(r"^(bool|byte|short|int) (\w+)", text, re.MULTILINE)


def test_every_rule_stands_in_a_comment(built: Model) -> None:
    """Comments carry the sentence of every rule, also of those that SPIN doesn't judge."""
    written = promela(built)
    said = prose(written.text)
    assert [rule.id for rule in built.machine.rules if rule.sentence not in said] == []
    eventual = {rule.id for rule in built.machine.rules if rule.kind is Kind.EVENTUALLY}
    assert set(written.flags.values()) == {rule.id for rule in built.machine.rules} - eventual
    assert ("Not judged here" in said) is bool(eventual)


def test_every_action_stands_there_with_its_inputs(built: Model) -> None:
    """Each instance is one d_step under its name, and each action has what its docstring says first."""
    text = promela(built).text
    plain = prose(text)
    for one in built.grounded.instances:
        possible = one.guard is not ir.FALSE
        assert text.count(f":: d_step {{  /* {one.name} */") == possible
    for act in built.machine.actions:
        doc = act.function.__doc__ or ""
        assert doc.splitlines()[0].replace("*/", "* /") in plain


def test_the_bounds_stand_there(built: Model) -> None:
    """The header has the scope with its reason, and every value of the policy."""
    said = prose(promela(built).text)
    assert built.scope.why in said
    policy = built.relation.policy_layout.flatten(built.scope.policy)
    for field, value in zip(built.relation.policy_layout.fields, policy, strict=True):
        words = "unlimited" if value == UNLIMITED else field.words(value)
        assert f"{field.path.removeprefix('policy.')} = {words}" in said


def test_only_fields_are_in_the_state(built: Model) -> None:
    """Whatever is declared without ``hidden`` is a field, and the choice of an initial state if there are several."""
    names = [name for _, name in declared(promela(built).text)]
    extra = ["started"] if len(built.initial) > 1 else []
    assert len(names) == len(built.relation.state) + len(extra)
    assert names[len(built.relation.state) :] == extra


def test_names_are_told_apart(knotted: str) -> None:
    """Words of Promela and C, and names that the model uses itself, are not taken by fields; members have their names."""
    names = [name for _, name in declared(knotted)]
    assert names[:4] == ["tmp0_2", "run_2", "cells_0_len", "cells_0_end"]
    assert "#define Hue_INT 0\n#define Hue_END 1\n" in knotted
    assert "cells_0_end = Hue_INT;" in knotted


def test_no_comment_ends_early(knotted: str) -> None:
    """What would end a comment is taken apart."""
    assert "* / whatever a comment says." in knotted


def test_values_change_places(knotted: str) -> None:
    """What a later assignment reads is kept before it is overwritten."""
    step = knotted.partition("/* exchange() */")[2].partition(":: d_step")[0]
    kept, read_first, written = (step.index(one) for one in ("tmp0 = tmp0_2;", "tmp0_2 = run_2;", "run_2 = tmp0;"))
    assert kept < read_first < written


@pytest.mark.parametrize("machine", [knots, MACHINES["request"]], ids=lambda machine: str(machine.name))
def test_numbers_have_types_that_hold_them(machine: Machine) -> None:
    """Every value that exploration meets is within the interval that its type was chosen by."""
    built = model(relation(machine), machine.scopes[0])
    found = explore(machine, built.scope, traced=built.relation, compare_every=0, keep_graph=True)
    assert found.graph is not None
    assert outside(built, found.graph) == []


def test_a_number_without_bounds_is_asked_about(knotted: str) -> None:
    """Where intervals show no end, the number is an int, and an assertion holds it within 32 bits."""
    assert ("int", "debt") in list(declared(knotted))
    assert "assert(0 - LIMIT <= debt && debt <= LIMIT);" in knotted
    assert ("byte", "cells_0_len") not in list(declared(knotted))


@attrs.frozen
class Large:
    """One number."""

    number: int


def million() -> Large:
    """A start that leaves room for few steps."""
    return Large(HIGHEST - 4)


def add(state: Large) -> Large:
    """One more."""
    return Large(state.number + 1)


@always("A1", "it is there", source="a test")
def there(state: Large) -> bool:
    return state.number > 0


@sometimes("S1", "it is more", source="a test", beside=("A1",))
def more(state: Large) -> bool:
    return state.number > 5


def in_reach(state: Large) -> bool:
    """One step beyond what 32 bits hold."""
    return state.number <= HIGHEST + 1


def test_numbers_beyond_32_bits_are_refused() -> None:
    """SPIN would wrap them, so there is no model."""
    machine = Machine(
        name="large",
        title="Large.",
        state=Large,
        initial=(million,),
        actions=(action(add),),
        rules=(there, more),
        scopes=(scope("all", why="a test", within=in_reach),),
    )
    with pytest.raises(CallerError, match="32 bits"):
        promela(model(relation(machine), machine.scopes[0]))


def test_a_guard_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promela can't share what a guard has twice, so a guard that would be too long is named."""
    monkeypatch.setattr(module, "LARGEST", 4)
    with pytest.raises(CallerError, match=r"the guard of grow\(cell=0\) has \d+ operators in Promela, over 4"):
        promela(model(relation(knots), knots.scopes[0]))


SAID = """
State-vector 28 byte, depth reached 12, errors: 2
      443 states, stored
     1326 states, matched
     1769 transitions (= stored+matched)
        0 atomic steps
  219.748\ttotal actual memory usage
"""
WRITTEN = Promela("", {"holds_C1": "C1", "reached_S1": "S1"}, frozenset({"reached_S1"}), 1)


def test_figures_and_verdicts_are_read() -> None:
    """States, transitions, memory, and each rule by the variable that SPIN names."""
    told = (
        "pan:1: assertion violated holds_C1 (at depth 4)\n"
        "pan:2: assertion violated  !(reached_S1) (at depth 0)\n"
        "pan:3: assertion violated may_rest (at depth 7)\n"
    )
    found = read(WRITTEN, told + SAID)
    assert (found.states, found.transitions, found.megabytes) == (Count(443), Count(1769), 219.748)
    assert found.violated == {"C1"}
    assert found.reached == {"S1"}
    assert found.deadlock
    quiet = read(attrs.evolve(WRITTEN, starts=2), SAID)
    assert quiet.states == Count(442)
    assert not quiet.violated | quiet.reached
    assert not quiet.deadlock
    assert quiet.complete
    assert not read(WRITTEN, "error: max search depth too small\n" + SAID, cut=True).complete


def test_a_large_count_is_rounded_and_says_so() -> None:
    """SPIN prints eight digits: a larger count is known to these, and is compared to no more."""
    said = "99999999 states, stored\n1e+08 states, matched\n1.092484e+09 transitions (= stored+matched)\n"
    assert counted(said, "states, stored") == Count(99_999_999)
    assert counted(said, "states, matched") == Count(100_000_000, 10)
    large = counted(said, "transitions")
    assert large == Count(1_092_484_000, 100)
    assert str(large) == "1,092,484,000 (rounded by SPIN to 100)"
    for exact in (1_092_483_950, 1_092_484_000, 1_092_484_050):
        assert f"{exact:.8g}" == "1.092484e+09"
        assert large.may_be(exact)
    assert not any(map(large.may_be, (1_092_483_949, 1_092_484_051)))
    assert [exact for exact in range(1766, 1773) if Count(1769).may_be(exact)] == [1769]
    assert not Count(1769).rounded
    found = read(WRITTEN, SAID.replace("     1769 trans", "1.0924837e+08 trans"))
    assert (found.states, found.transitions) == (Count(443), Count(109_248_370, 10))


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("error: max search depth too small\n" + SAID, EnvironmentFault),
        ("pan: reached -DMEMLIM bound\n" + SAID, EnvironmentFault),
        ("Warning: Search not completed\n" + SAID, EnvironmentFault),
        ("nothing that is known", EnvironmentFault),
        ("pan:1: assertion violated ((0-7)<=debt) (at depth 9)\n" + SAID, CallerError),
        ("pan:1: invalid end state (at depth 9)\n" + SAID, InternalError),
    ],
)
def test_an_answer_that_is_none_is_no_verdict(said: str, error: type[Exception]) -> None:
    """A search that ended early, or of which something else went wrong, is an error."""
    with pytest.raises(error):
        read(WRITTEN, said)


def test_a_scope_is_found_by_its_name() -> None:
    """The first scope is the default; an unknown name is refused with those that there are."""
    assert scope_named(knots, None) is knots.scopes[0]
    assert scope_named(knots, "tight") is knots.scopes[1]


def test_the_command_writes_the_model() -> None:
    """``show MACHINE --format promela --scope NAME`` prints the model of that scope."""
    for arguments, at in (([], 0), (["--scope", "signing"], 1)):
        done = CliRunner().invoke(command, ["show", "hold", "--format", "promela", *arguments])
        assert done.exit_code == 0
        hold = MACHINES["hold"]
        assert done.stdout == promela(model(relation(hold), hold.scopes[at])).text


def test_the_command_refuses_an_unknown_scope() -> None:
    """That is wrong usage, and the message has the scopes that there are."""
    done = CliRunner().invoke(command, ["show", "lease", "--format", "promela", "--scope", "none"])
    assert done.exit_code == 2
    done = CliRunner().invoke(command, ["show", "hold", "--format", "promela", "--scope", "none"])
    assert done.exit_code == 2
    assert "no scope none in hold: failing, signing" in done.stderr
