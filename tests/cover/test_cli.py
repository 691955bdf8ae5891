"""The command: what it prints and writes, and how it ends, on machines of two actions."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from rich.console import Console

from deadreckon import cli
from deadreckon.cli import checking, commands, display, pool, reports, traces, verdicts
from deadreckon.cli.checking import Bound, Defect, Explored, Failed, Finding, Plan, Proved, Proven, Searched, Task
from deadreckon.cli.references import resolve
from deadreckon.models.explorer import Progress
from deadreckon.spec import CallerError, Kind, Machine

LAMPS = '''\
"""Lamps, most of them with something wrong."""

from __future__ import annotations

import multiprocessing
import os
import time
from enum import Enum

import attrs

from deadreckon.spec import Machine, Variant, action, always, eventually, require, scope, sometimes, swap


class Light(Enum):
    OFF = 0
    BURNS_DOWN = 1


@attrs.frozen
class Policy:
    most: int = 3


@attrs.frozen
class State:
    light: Light
    presses: int
    watched: bool = False


@attrs.frozen
class Ghost:
    burnt: int = 0


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    return Ghost(burnt=min(ghost.burnt + 1, 2) if after.light != Light.OFF else ghost.burnt)


def initial() -> State:
    return State(Light.OFF, 0)


def more(presses: int) -> int:
    return presses + 1


def press(state: State) -> State:
    """The switch is pressed."""
    require(state.light == Light.OFF, "A1", "it burns already")
    return State(Light.BURNS_DOWN, more(state.presses))


def release(state: State) -> State:
    """The light goes out."""
    require(state.light == Light.BURNS_DOWN, "A1", "it is out already")
    return State(Light.OFF, state.presses)


def restart(state: State, watched: bool) -> State:
    """Everything begins anew, watched or not."""
    require(state.presses == 3, "A2", "the lamp is young")
    return State(Light.OFF, 0, watched)


def idle(state: State) -> State:
    """Never."""
    require(state.presses > 9, "A1", "not yet")
    return state


@always("A1", "a light that burns was pressed", source="here")
def a1(state: State) -> bool:
    return state.light == Light.OFF or state.presses > 0


@always("A2", "presses are no debt", source="here", lemma=True)
def a2(state: State) -> bool:
    return state.presses >= 0


@always("A3", "it never burns twice", source="here")
def a3(state: State, ghost: Ghost) -> bool:
    return ghost.burnt < 2


@sometimes("S1", "the light burns", source="here", beside=("A1",))
def s1(state: State) -> bool:
    return state.light == Light.BURNS_DOWN


@sometimes("S3", "the light burns once", source="here", beside=("A3",))
def s3(ghost: Ghost) -> bool:
    return ghost.burnt == 1


@sometimes("S2", "it is pressed nine times", source="here", beside=("A1",))
def s2(state: State) -> bool:
    return state.presses == 9


def burns(state: State) -> bool:
    return state.light == Light.BURNS_DOWN


@eventually("E1", "a light that burns goes out", source="here", when=burns, fair=("release",))
def e1(state: State) -> bool:
    return state.light == Light.OFF


@eventually("E2", "a light that burns goes out by itself", source="here", when=burns, fair=("press",))
def e2(state: State) -> bool:
    return state.light == Light.OFF


def few(policy: Policy, state: State) -> bool:
    return state.presses <= policy.most


def unchanged(presses: int) -> int:
    return presses


def twice(presses: int) -> int:
    return presses + 2


def thrice(presses: int) -> int:
    return presses + 3


uncounted = Variant("uncounted", "A1", "a press is not counted", (swap(more, unchanged),), "in a hall")
harmless = Variant("harmless", "A1", "a press counts twice", (swap(more, twice),))
lamp = Machine(
    name="lamp",
    title="A lamp that counts.",
    outline="One lamp.",
    state=State,
    policy=Policy,
    ghost=Ghost,
    observe=observe,
    initial=(initial,),
    actions=(action(press), action(release), action(restart)),
    rules=(a1, a2, s1, e1),
    scopes=(scope("few", why="three presses", within=few, policy=Policy(3)),),
    variants=(uncounted,),
)


def once(policy: Policy, state: State) -> bool:
    return state.presses <= 1


def ended(state: State) -> bool:
    return state.presses == 9


breaks = attrs.evolve(lamp, name="breaks", rules=(a1, a3, s1, s3), variants=())
survivor = attrs.evolve(lamp, name="survivor", variants=(harmless,))
vacuous = attrs.evolve(lamp, name="vacuous", rules=(a1, s1, s2), variants=())
stays = attrs.evolve(lamp, name="stays", rules=(a1, s1, e2), variants=())
lazy = attrs.evolve(lamp, name="lazy", actions=(action(press), action(release), action(restart), action(idle)))
stuck = attrs.evolve(lamp, name="stuck", actions=(action(press),), rules=(a1, s1), variants=(), terminal=ended)
unjudged = attrs.evolve(
    lamp,
    name="unjudged",
    scopes=(scope("still", why="no time", within=few, policy=Policy(3), liveness=False),),
    variants=(),
)
number = 3


def fails(state: State) -> bool:
    return state.presses.nothing > 0


if multiprocessing.parent_process() is not None and os.environ.get("LAMPS_KILL") == "1":
    os._exit(9)
'''

SpecWrong = """\
import attrs
from deadreckon.spec import Machine, action, scope

@attrs.frozen
class State:
    count: int

def initial() -> State:
    return State(0)

def step(state: State) -> State:
    while state.count < 3:
        state = State(state.count + 1)
    return state

def few(state: State) -> bool:
    return state.count < 3

wrong = Machine(name="wrong", title="t", state=State, initial=(initial,), actions=(action(step),), rules=(),
                scopes=(scope("few", why="w", within=few),))
"""

LAMP_TASK = Task("x.py:lamp", "lamp", "explore", "few")


@attrs.frozen
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def lamps(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the file of lamps."""
    path = tmp_path_factory.mktemp("machines") / "lamps.py"
    path.write_text(LAMPS)
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process; its workers are processes of their own."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def ran(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            commands.command(list(arguments), prog_name="deadreckon")
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, captured.out, captured.err)

    return ran


def check(run: Run, machine: str, *options: str) -> Ended:
    return run("check", machine, "--engine", "explore", "--jobs", "1", *options)


# Exit codes of check.


def test_exit_0_when_all_holds(run: Run, lamps: str) -> None:
    """A machine whose rules hold and whose variants are refuted ends with 0, and the last line says so."""
    ended = check(run, f"{lamps}:lamp")
    assert ended.code == 0, ended
    assert ended.err == ""
    assert "all holds (exit 0)" in ended.out.splitlines()[-1]


def test_every_engine_judges(run: Run, lamps: str, tmp_path: Path) -> None:
    """Without --engine every always-rule is explored, bounded and proved."""
    file = tmp_path / "out.json"
    ended = run("check", f"{lamps}:lamp", "--no-defects", "--depth", "4", "--json", str(file))
    rules = json.loads(file.read_text())["machines"]["lamp"]["rules"]
    assert rules["A1"]["explored"] == "holds"
    assert rules["A1"]["bounded"]["verdict"] == "holds"
    assert rules["A1"]["proved"]["verdict"] == "proved"
    assert rules["A1"]["proved"]["solvers"] == ["z3", "cvc5"]
    assert ended.code == 0


@pytest.mark.parametrize("explorer", ["plain", "numpy", "numba"])
def test_explorer_is_chosen_and_told(run: Run, lamps: str, explorer: str, tmp_path: Path) -> None:
    """Whatever explores, the verdicts and the counts are the same, and the table says what it was."""
    files = {one: tmp_path / f"{one}.json" for one in ("auto", explorer)}
    for one, file in files.items():
        ended = check(run, f"{lamps}:lamp", "--explorer", one, "--json", str(file))
        assert ended.code == 0
        assert f"explored by {'plain' if one == 'auto' else one}" in " ".join(ended.out.split())
    told = [json.loads(file.read_text())["machines"]["lamp"] for file in files.values()]
    for part in ("states", "edges", "complete", "rules", "defects"):
        assert told[0][part] == told[1][part]


def test_memory_that_is_too_little_is_no_success(run: Run, lamps: str) -> None:
    """What was not decided within the memory is unknown, with exit code 2, and the reason is told."""
    ended = check(run, f"{lamps}:lamp", "--explorer", "numpy", "--memory", "1", "--no-defects")
    assert ended.code == 2
    assert "more than 1 MB of memory (--memory gives it more); replay: " in ended.err
    replays = [line.partition("replay: ")[2] for line in ended.err.splitlines() if "replay: " in line]
    assert replays
    assert all("--explorer numpy --memory 1" in replay for replay in replays)


@pytest.mark.parametrize(
    ("machine", "failing", "replay"),
    [
        ("breaks", "rule A3 violated (explore): at step 3, press, in scope few", "--engine explore --rule A3"),
        ("vacuous", "rule S2 violated (explore): never reached in any scope", "--engine explore --rule S2"),
        ("stays", "rule E2 violated (explore)", "--engine explore --rule E2"),
        ("lazy", "action idle violated (explore): runs in no scope", "--engine explore"),
        ("stuck", "deadlock violated (explore): at step 1, press", "--engine explore"),
        ("survivor", "variant harmless violated (defect): survives", "harmless"),
    ],
)
def test_exit_1_names_what_failed(run: Run, lamps: str, machine: str, failing: str, replay: str) -> None:
    """Whatever is violated ends with 1; its line names it, the step, and the command that replays it."""
    ended = check(run, f"{lamps}:{machine}")
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    assert line.startswith(f"{machine}: {failing}")
    verb = "defects" if machine == "survivor" else "check"
    assert line.endswith(f"replay: deadreckon {verb} {lamps}:{machine} {replay}")


def test_violation_is_told_step_by_step(run: Run, lamps: str) -> None:
    """A violated rule comes with its shortest counterexample: actions in words, changed fields, ghosts apart."""
    out = check(run, f"{lamps}:breaks").out
    assert "The switch is pressed." in out
    assert "light: off -> burns down" in out
    assert "what really happened" in out
    assert "burnt: 1 -> 2" in out


def test_exit_2_when_unknown(run: Run, lamps: str) -> None:
    """What no scope judges is unknown, and unknown is never 0."""
    ended = check(run, f"{lamps}:unjudged")
    assert ended.code == 2
    assert "rule E1 unknown (explore): no scope judges liveness" in ended.err


def test_exit_1_wins_over_2() -> None:
    """A violation beside something unknown ends with 1."""

    def failure(verdict: str) -> verdicts.Failure:
        return verdicts.Failure("m", "rule A1", "explore", verdict, "text", "replay")

    assert verdicts.exit_code([failure("unknown"), failure("violated")]) == 1
    assert verdicts.exit_code([failure("unknown")]) == 2
    assert verdicts.exit_code([]) == 0


# Wrong usage.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "nothing"), "unknown machine 'nothing': name a built-in machine (incident"),
        (("check", "no.such.module:thing"), "can't import module no.such.module: ModuleNotFoundError"),
        (("check", "no such:thing"), "'no such' is no module"),
        (("check", "/no/such/file.py:thing"), "there is no file /no/such/file.py"),
        (("check", "LAMPS"), "which object of LAMPS? write LAMPS:OBJECT"),
        (("check", "LAMPS:nothing"), "LAMPS has no object nothing"),
        (("check", "LAMPS:number"), "LAMPS:number is an int, not a deadreckon.spec.Machine"),
        (("check", "LAMPS:lamp", "--rule", "Z9"), "no rule Z9 in lamp: A1, A2, S1, E1"),
        (("check", "LAMPS:lamp", "--json", "/no/such/directory/out.json"), "can't write /no/such/directory/out.json"),
        (("check", "LAMPS:lamp", "--junitxml", "/"), "can't write /: it is a directory"),
        (("check", "LAMPS:lamp", "--rule", "S1", "--engine", "prove"), "no engine that was asked judges a 'sometimes'"),
        (("check", "--engine", "guess"), "Invalid value for '--engine'"),
        (("defects", "LAMPS:lamp", "nothing"), "machine lamp has no variant nothing. Instead: one of: uncounted."),
        (("show", "LAMPS:lamp", "--format", "mermaid", "--field", "no"), "no field no: one of light, watched"),
        (("simulate", "LAMPS:lamp", "--store", "sqlite"), "machine lamp has no reference implementation"),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_exit_2_on_wrong_usage(run: Run, lamps: str, arguments: tuple[str, ...], message: str) -> None:
    """Wrong usage ends with 2 and one clear line, before any work starts."""
    ended = run(*(part.replace("LAMPS", lamps) for part in arguments))
    assert ended.code == 2
    assert message.replace("LAMPS", lamps) in ended.err
    assert "started" not in ended.out


def test_spec_error_names_file_and_line(run: Run, tmp_path: Path) -> None:
    """A machine that can't be followed faithfully is refused with file and line, and what to write instead."""
    path = tmp_path / "wrong.py"
    path.write_text(SpecWrong)
    ended = run("check", f"{path}:wrong")
    assert ended.code == 2
    (line,) = ended.err.splitlines()
    assert line.startswith(f"deadreckon: {path}:12: step ")
    assert "Instead: " in line


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 +", "SyntaxError: invalid syntax (PATH:1)"),
        ("1 / 0", "ZeroDivisionError: division by zero (PATH:1)"),
        ("raise SystemExit(3)", "ends the program when it is imported (3)"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_module_that_fails_on_import(run: Run, tmp_path: Path, source: str, message: str) -> None:
    """Whatever a user's module raises while it loads is told on one line."""
    path = tmp_path / "failing.py"
    path.write_text(source)
    ended = run("show", f"{path}:machine")
    assert ended.code == 2
    assert message.replace("PATH", str(path)) in ended.err
    assert len(ended.err.splitlines()) == 1


def test_machine_in_a_module_of_the_working_directory(
    run: Run, lamps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """module:object is found in the working directory, by the workers too."""
    (tmp_path / "my_lamps.py").write_text(LAMPS)
    monkeypatch.chdir(tmp_path)
    assert check(run, "my_lamps:lamp").code == 0
    sys.modules.pop("my_lamps")


def test_two_machines_of_one_name_are_refused(run: Run, lamps: str, tmp_path: Path) -> None:
    """Results are kept by the machine's name, so two of one name can't be checked together."""
    other = tmp_path / "others.py"
    other.write_text(LAMPS)
    ended = run("check", f"{lamps}:lamp", f"{other}:lamp")
    assert ended.code == 2
    assert "are both called lamp" in ended.err


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without click the command says in one line what to install, and ends with 2."""
    monkeypatch.setitem(sys.modules, "click", None)
    monkeypatch.delitem(sys.modules, "deadreckon.cli.commands")
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "deadreckon: the command needs the packages of deadreckon[check]: pip install 'deadreckon[check]'\n"
    )


def test_missing_solver_leaves_exploration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a solver proving is unknown, and says what to install; exploring needs none."""
    monkeypatch.setitem(sys.modules, "cvc5", None)
    for name in [name for name in sys.modules if name.startswith("deadreckon.proofs")]:
        monkeypatch.delitem(sys.modules, name)
    lamp = f"{_found[0]}:lamp"
    found = checking.perform(Task(lamp, "lamp", "prove"), lambda said: None)
    assert isinstance(found, Failed)
    assert "pip install 'deadreckon[check]'" in found.why
    assert isinstance(checking.perform(Task(lamp, "lamp", "explore", "few"), lambda said: None), Explored)


def test_worker_that_dies(run: Run, lamps: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that is killed ends the run with 2 and a message; nothing is written."""
    monkeypatch.setenv("LAMPS_KILL", "1")
    ended = check(run, f"{lamps}:lamp", "--json", str(tmp_path / "out.json"))
    assert ended.code == 2
    assert "a worker process died (killed, or out of memory)" in ended.err
    assert list(tmp_path.iterdir()) == []


# Results for other programs.


def test_json_has_the_promised_shape(run: Run, lamps: str, tmp_path: Path) -> None:
    """--json writes version, machines, sizes, rules and defects in the documented form."""
    file = tmp_path / "out.json"
    check(run, f"{lamps}:lamp", "--json", str(file))
    found = json.loads(file.read_text())
    assert set(found) == {"deadreckon", "machines"}
    assert found["deadreckon"] == reports.version()
    lamp = found["machines"]["lamp"]
    assert {"states", "edges", "complete", "rules", "defects"} <= set(lamp)
    assert lamp["states"] > 6
    assert lamp["states"] == sum(scope["states"] for scope in lamp["scopes"])
    assert lamp["complete"] is True
    assert lamp["rules"] == {
        "A1": {"kind": "always", "explored": "holds"},
        "A2": {"kind": "always", "lemma": True, "explored": "holds"},
        "S1": {"kind": "sometimes", "explored": "holds"},
        "E1": {"kind": "eventually", "explored": "holds"},
    }
    assert lamp["defects"] == {"uncounted": {"verdict": "refuted", "rule": "A1", "steps": 1}}
    assert list(tmp_path.iterdir()) == [file]


def test_json_keeps_solver_verdicts() -> None:
    """Bounded and proved stand beside always-rules alone, in the documented form."""
    rules = json.loads(reports.as_json([lamp_report(proof="proved")]))["machines"]["lamp"]["rules"]
    assert rules["A1"]["bounded"] == {"verdict": "holds", "depth": 8}
    assert rules["A1"]["proved"] == {
        "verdict": "proved",
        "method": "1-induction",
        "solvers": ["z3", "cvc5"],
        "seconds": 0.5,
    }
    assert rules["S1"] == {"kind": "sometimes", "explored": "holds"}


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    """A file that is there already keeps its old content until the new one is complete, also behind a link."""
    file, link = tmp_path / "out.json", tmp_path / "link.json"
    file.write_text("old")
    link.symlink_to(file)
    target = reports.Target.at(str(link))
    assert file.read_text() == "old"
    target.write("new")
    assert file.read_text() == "new"
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_json_to_a_device_is_written_in_place() -> None:
    """A target that is no regular file is never replaced."""
    reports.Target.at(os.devnull).write("anything")
    assert not Path(os.devnull).is_file()


def test_junit_has_a_case_for_each_rule_and_variant(run: Run, lamps: str, tmp_path: Path) -> None:
    """--junitxml holds a case for each rule, engine and variant, all passed when all holds."""
    file = tmp_path / "out.xml"
    check(run, f"{lamps}:lamp", "--junitxml", str(file))
    cases = ET.parse(file).getroot().findall("testsuite/testcase")
    assert [(case.get("classname"), case.get("name")) for case in cases] == [
        ("lamp.explore", "rule A1"),
        ("lamp.explore", "rule A2"),
        ("lamp.explore", "rule S1"),
        ("lamp.explore", "rule E1"),
        ("lamp.defect", "variant uncounted"),
    ]
    assert all(len(case) == 0 for case in cases)


def test_junit_failure_holds_the_counterexample(run: Run, lamps: str, tmp_path: Path) -> None:
    """A violated rule is a failure with the sentence, the replay command and every step."""
    file = tmp_path / "out.xml"
    check(run, f"{lamps}:breaks", "--junitxml", str(file))
    suite = ET.parse(file).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    (failure,) = suite.findall("testcase[@name='rule A3']/failure")
    assert failure.text is not None
    assert "rule: it never burns twice" in failure.text
    assert "replay: deadreckon check" in failure.text
    assert "  3. press: The switch is pressed." in failure.text
    assert "       really: burnt: 1 -> 2" in failure.text


def test_junit_keeps_what_is_no_rule(run: Run, lamps: str, tmp_path: Path) -> None:
    """Deadlocks and idle actions are cases of their own."""
    file = tmp_path / "out.xml"
    check(run, f"{lamps}:lazy", "--junitxml", str(file))
    assert ET.parse(file).getroot().findall("testsuite/testcase[@name='action idle']/failure")


# What the parts do with findings.


def lamp_report(
    proof: str = "proved", bound: str = "holds", explored: Finding | None = None, defect: str = "refuted"
) -> verdicts.MachineReport:
    """A report on the lamp from made-up findings."""
    machine = _machine()
    story = traces.Story("few", "", (traces.Row(1, "press", "", ()),))
    scope = Explored(
        "few",
        7,
        9,
        3,
        True,
        "",
        0.1,
        True,
        {rule.id: "holds" for rule in machine.rules},
        {},
        None,
        frozenset(action.name for action in machine.actions),
        "f",
        "plain",
    )
    always = [rule.id for rule in machine.rules if rule.kind is Kind.ALWAYS]
    solvers = ("z3", "cvc5")
    findings: dict[Task, Finding] = {
        Task("x.py:lamp", "lamp", "prove"): Proved(
            {id: Proven(proof, "1-induction", solvers, 0.5, "gave up") for id in always}
        ),
        Task("x.py:lamp", "lamp", "bounded"): Searched(
            {id: Bound(bound, 8, 0.2, "timeout", story if bound == "violated" else None) for id in always}
        ),
        LAMP_TASK: explored or scope,
        Task("x.py:lamp", "lamp", "defect", "uncounted"): Defect("uncounted", "A1", defect, story, 1, 0.1),
    }
    return verdicts.report("x.py:lamp", machine, Plan(), findings)


_found: list[str] = []


@pytest.fixture(autouse=True, scope="session")
def _lamps_known(lamps: str) -> None:
    _found.append(lamps)


def _machine() -> Machine:
    return resolve(f"{_found[0]}:lamp")


def test_refuted_proof_is_a_violation() -> None:
    """A rule that a solver refutes is violated, and the replay names the engine."""
    report = lamp_report(proof="refuted")
    assert verdicts.exit_code(report.failures) == 1
    assert str(report.failures[0]).endswith("replay: deadreckon check x.py:lamp --engine prove --rule A1")


def test_solver_that_gives_up_is_unknown() -> None:
    """A proof that was not found, or a depth that was not reached, is unknown: exit 2."""
    assert verdicts.exit_code(lamp_report(proof="unknown").failures) == 2
    assert verdicts.exit_code(lamp_report(bound="unknown").failures) == 2
    assert "gave up" in str(lamp_report(proof="unknown").failures[0])


def test_rules_that_are_unknown_for_one_reason_are_one_line() -> None:
    """A solver that runs out of time is told once, with all the rules, how long it had, and how to give it more."""
    failures = lamp_report(bound="unknown").failures
    rules = [failure.rule for failure in failures]
    assert len(rules) > 1
    (line,) = verdicts.grouped(failures)
    assert str(line) == (
        f"lamp: rules {', '.join(rules)} unknown (bounded): timeout (--seconds gives it more than 240); "
        "replay: deadreckon check x.py:lamp --engine bounded"
    )
    (alone,) = verdicts.grouped(failures[:1])
    assert alone is failures[0]


def test_violations_are_told_one_by_one() -> None:
    """Each rule that is violated has a line of its own, also where the words are the same."""
    failures = lamp_report(proof="refuted").failures
    assert len(failures) > 1
    assert list(verdicts.grouped(failures)) == list(failures)


def test_bounded_violation_against_a_proof_asks_for_a_report() -> None:
    """Engines that contradict each other are a defect of ours, and the line says so."""
    (line, _) = lamp_report(bound="violated").failures
    assert "at step 1, press; the proof says it holds, so please report this" in str(line)


def test_task_that_could_not_be_done_is_told_once() -> None:
    """An engine that fails is one line, not one for each rule; every verdict of it is unknown."""
    report = lamp_report(explored=Failed("EnvironmentFault: no disk"))
    assert [str(failure) for failure in report.failures if failure.verdict == "unknown"] == [
        "lamp: explore few unknown (explore): EnvironmentFault: no disk; "
        "replay: deadreckon check x.py:lamp --engine explore"
    ]
    assert {one.explored for one in report.rules} == {"unknown"}
    assert not report.complete
    errors = ET.fromstring(reports.as_junit([report])).findall("testsuite/testcase/error")
    assert {error.get("message") for error in errors} == {"EnvironmentFault: no disk"}


def test_combined_verdict_of_scopes() -> None:
    """Always: one violation is enough. Sometimes: one scope that reaches it is. Eventually: only where it is judged."""
    both = [("holds", True), ("violated", False)]
    assert checking.combined(Kind.ALWAYS, both) == "violated"
    assert checking.combined(Kind.SOMETIMES, both) == "holds"
    assert checking.combined(Kind.EVENTUALLY, both) == "holds"
    assert checking.combined(Kind.ALWAYS, [("holds", True), ("unknown", True)]) == "unknown"
    assert checking.combined(Kind.SOMETIMES, [("violated", True), ("unknown", True)]) == "unknown"
    assert checking.combined(Kind.EVENTUALLY, [("holds", False)]) == "unknown"


def test_whatever_a_task_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that raises, or has no memory left, comes back with one line."""

    def raising(error: BaseException) -> Finding:
        def work(task: Task, say: checking.Say) -> Finding:
            raise error

        monkeypatch.setattr(checking, "_WORK", {"explore": work})
        return checking.perform(LAMP_TASK, lambda said: None)

    assert raising(CallerError("mend it")) == Failed("CallerError: mend it")
    found = raising(ZeroDivisionError("by zero"))
    assert isinstance(found, Failed)
    assert found.why.startswith("ZeroDivisionError: by zero (")
    out_of_memory = raising(MemoryError())
    assert isinstance(out_of_memory, Failed)
    assert out_of_memory.why.startswith("out of memory")


def test_solvers_come_first(lamps: str) -> None:
    """The tasks that may take long are started first; a rule filter leaves other rules' variants out."""
    machine = _machine()
    assert [task.engine for task in checking.tasks("x", machine, Plan())] == ["prove", "bounded", "explore", "defect"]
    assert [task.engine for task in checking.tasks("x", machine, Plan(rules=("S1",)))] == ["explore"]
    assert [task.engine for task in checking.tasks("x", machine, Plan(engines=("prove",)))] == ["prove"]


def test_nothing_to_do() -> None:
    """No tasks need no workers."""
    with display.Display(display.console(), 0) as watcher:
        assert pool.run([], 2, watcher).findings == {}


# defects, show, simulate.


def test_defects_prints_the_shortest_counterexample(run: Run, lamps: str) -> None:
    """With a name: what the variant changes and where it was seen, the rule, and the steps in words."""
    ended = run("defects", f"{lamps}:lamp", "uncounted")
    assert ended.code == 0
    for text in (
        "a press is not counted",
        "seen: in a hall",
        "rule A1 (always): a light that burns was pressed",
        "scope few: most 3",
        "press",
        "light: off -> burns down",
    ):
        assert text in ended.out


def test_defects_writes_json(run: Run, lamps: str, tmp_path: Path) -> None:
    """Without a name every variant is refuted; --json holds the verdicts."""
    file = tmp_path / "out.json"
    assert run("defects", f"{lamps}:lamp", "--json", str(file)).code == 0
    assert json.loads(file.read_text())["machines"] == {
        "lamp": {"defects": {"uncounted": {"verdict": "refuted", "rule": "A1", "steps": 1}}}
    }


def test_defects_surviving_variant(run: Run, lamps: str) -> None:
    """A variant that survives ends with 1."""
    ended = run("defects", f"{lamps}:survivor", "harmless")
    assert ended.code == 1
    assert "variant harmless" in ended.err


def test_lasso_says_how_it_goes_on(run: Run, lamps: str) -> None:
    """A run that never arrives says from where it repeats, or that it rests."""
    assert "and rests here for ever" in check(run, f"{lamps}:stays").out
    round_trip = traces.Story("few", "", (), "from here it repeats from step 2 for ever")
    assert "     from here it repeats from step 2 for ever" in list(round_trip.lines())


def test_show_text(run: Run, lamps: str) -> None:
    """show prints outline, fields with types, actions with guards and inputs, rules with sources, variants."""
    out = run("show", f"{lamps}:lamp").out
    for text in (
        "One lamp.",
        "Light: off, burns down",
        "watched true or false",
        "A1: it burns already",
        "most  int  3",
        "a light that burns was pressed",
        "here",
        "a press is not counted",
        "in a hall",
        "burnt  int  0",
    ):
        assert text in out


@pytest.mark.parametrize("machine", ["incident", "hold"])
def test_show_text_keeps_to_the_width_of_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """In 80 columns, or 60, no line is longer, and every word is there in its order; paragraphs and items stay apart."""
    monkeypatch.setenv("COLUMNS", "120")
    wide = run("show", machine).out
    for columns in (80, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow = run("show", machine).out
        assert max(map(len, narrow.splitlines())) <= columns
        assert narrow.split() == wide.split()
        assert len(re.findall(r"^ +\* ", narrow, re.MULTILINE)) == len(re.findall(r"^ +\* ", wide, re.MULTILINE)) > 2
        assert narrow.count("\n\n") == wide.count("\n\n")
    assert ":func:" not in wide
    assert re.search(r"^  (C|H)1  always$", wide, re.MULTILINE)


def test_show_markdown(run: Run, lamps: str) -> None:
    """The Markdown form has a heading and a table for each part."""
    out = run("show", f"{lamps}:lamp", "--format", "markdown").out
    assert out.startswith("# lamp: A lamp that counts.\n")
    assert "| A1 | always | a light that burns was pressed | here |" in out


def test_show_mermaid_is_drawn_from_explored_states(run: Run, lamps: str) -> None:
    """The diagram has the values that were met and the actions that lead from one to another."""
    out = run("show", f"{lamps}:lamp", "--format", "mermaid").out
    assert out.startswith("stateDiagram-v2\n")
    assert "    v0 --> v1: press\n    v1 --> v0: release, restart\n" in out
    by_presses = run("show", f"{lamps}:lamp", "--format", "mermaid", "--field", "presses").out
    assert "v3 --> v0: restart" in by_presses


def test_simulate_walks_a_machine_by_its_own_functions(run: Run, lamps: str) -> None:
    """A machine without an implementation is walked by its own functions, and the output says so."""
    ended = run("simulate", f"{lamps}:lamp", "--runs", "20", "--seed", "1")
    assert ended.code == 0
    assert "its own functions (it has no implementation); seed 1" in ended.out
    assert "(100.0%) states" in ended.out
    assert " states: walks head for what is not covered" in ended.out


def test_simulate_walks_where_it_is_told(run: Run, lamps: str) -> None:
    """Of the scopes those are walked that are named, and the replay command names them; an unknown one ends with 2."""
    ended = run("simulate", f"{lamps}:breaks", "--runs", "20", "--seed", "1", "--scope", "few", "--steer")
    assert ended.err.rstrip().endswith("--seed 1 --scope few --steer")
    assert "scope few: exploring it first" in ended.out
    unknown = run("simulate", f"{lamps}:lamp", "--scope", "nowhere")
    assert unknown.code == 2
    assert "has no scope 'nowhere': one of few" in unknown.err


def test_simulate_failure_is_replayable(run: Run, lamps: str) -> None:
    """A walk that breaks a rule ends with 1 and the command that walks it again."""
    ended = run("simulate", f"{lamps}:breaks", "--runs", "20", "--seed", "1")
    assert ended.code == 1
    assert "A3 is broken by press()" in ended.err
    assert ended.err.rstrip().endswith(f"deadreckon simulate {lamps}:breaks --runs 20 --steps 50 --seed 1")


# How it looks.


def test_no_colour_where_no_terminal(lamps: str) -> None:
    """Output that goes to a file has no escape codes and says at once what is happening."""
    ran = subprocess.run(
        [sys.executable, "-m", "deadreckon.cli", "check", f"{lamps}:lamp", "--engine", "explore", "--no-defects"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert "\x1b" not in ran.stdout
    assert "started  lamp explore few" in ran.stdout.splitlines()[0]


def test_progress_has_one_line_a_task() -> None:
    """A narrow terminal cuts a line at its end, and never breaks it: what was drawn is drawn over."""
    out = Console(file=io.StringIO(), width=60, force_terminal=True)
    shown = display.Display(out, 3)
    shown.started(LAMP_TASK)
    shown.progress(LAMP_TASK, Progress(2_000_000, 30_000_000, 10_000, 70, 2.0, 640))
    with out.capture() as captured:
        out.print(shown._picture())
    title, *lines = captured.get().splitlines()
    assert "0 of 3 tasks done" in title
    assert len(lines) == 1
    assert "2,000,000 states, 1,000,000/s" in lines[0]


def test_a_narrow_table_has_its_notes_below() -> None:
    """In 80 columns sentences keep their room: what verdicts have in common stands once, below the table."""
    wide, narrow = (Console(file=io.StringIO(), width=width, color_system=None) for width in (display.LOG_COLUMNS, 80))
    for out in (wide, narrow):
        out.print(display.rules_table(lamp_report(), out.width))
    texts = [out.file.getvalue() for out in (wide, narrow) if isinstance(out.file, io.StringIO)]
    note = "holds to depth 8; proved (1-induction, z3 + cvc5)"
    assert [note in text for text in texts] == [False, True]
    assert [text.count("(1-induction, z3 + cvc5)") > 1 for text in texts] == [True, False]
    assert max(map(len, texts[1].splitlines())) <= 80
    assert display._to_depth(Bound("unknown", -1, 0.2, "timeout", None)) == ""


def test_progress_in_words() -> None:
    """Progress tells states, states a second, frontier and depth."""
    progress = Progress(2000, 3000, 10, 7, 2.0, 64)
    words = display.standing(progress)
    assert words == "2,000 states, 1,000/s, frontier 10, 64 MB, depth 7, 3,000 edges"
    assert display.standing("depth 3") == "depth 3"
    assert display.short("one two three", 11) == "one two..."
