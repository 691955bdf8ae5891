"""Audited histories for other tools: a run of the machine that explains the lines, each step of it a real one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result
from itf_py import Trace, trace_from_json

from deadreckon.cli.commands import command
from deadreckon.cli.exporting import as_itf
from deadreckon.cli.histories import ASSUMED, NO_ACTION, TAKEN_OVER, run_story, run_title
from deadreckon.models.audit import Audit, Filters, Report
from deadreckon.models.audit.run import Run
from deadreckon.models.audit.words import KEPT, KEPT_IF_NAMED, Line
from deadreckon.models.layout import Field, Layout, assembled, parts, position
from deadreckon.spec import UNLIMITED, Machine, SpecError
from tests.cover.test_audit_incident import AT_THE_LIMIT, DEAD, SEALED, dies, lines, run, story

LOGS = Path(__file__).parent / "logs"
NOUNS = ("incident", "hold", "host", "journal", "request")
POLICY = {"type": "policy", "machine": "incident", "max_interrupted_attempts": 3}


def audited(log: Iterator[tuple[int, Line]], *names: str) -> Report:
    """An audit that reports a run."""
    work = Audit(Filters(entities=frozenset(names)), run=True)
    work.read(log, "log")
    return work.end()


def of_file(path: Path) -> Run:
    """The run of the first violation in a log, or of its first entity."""
    log = [(number, json.loads(text)) for number, text in enumerate(path.read_bytes().splitlines(), 1)]
    name = next(str(line[noun]) for _, line in log for noun in NOUNS if noun in line)
    found = audited(iter(log)).run or audited(iter(log), name).run
    assert found is not None
    return found


def read_back(run: Run) -> Trace:
    """The run as another package reads it."""
    return trace_from_json(json.loads(as_itf(run_story(run), run_title(run))))


def leaf(values: Mapping[str, object], field: Field) -> int:
    """A leaf of a state that was read back, as a flat state has it."""
    found: Any = values  # whatever itf-py makes of records and tuples
    for name, index in re.findall(r"(\w+)|\[(\d+)\]", field.path):
        if index:
            found = tuple(found)[int(index)]
        elif isinstance(found, Mapping):
            found = found[name]
        else:
            found = getattr(found, name)
    return position(field.type[found]) if issubclass(field.type, Enum) else int(found)


def state_of(layout: Layout, values: Mapping[str, object]) -> tuple[object, object]:
    """State and ghost that were read back."""
    return cast("tuple[object, object]", layout.rebuild([leaf(values, field) for field in layout.fields]))


def given(domain: object, word: str) -> object:
    """An input that was read back."""
    if isinstance(domain, type) and issubclass(domain, Enum):
        return domain[word.upper().replace(" ", "_")]
    if domain is bool:
        return word == "true"
    return UNLIMITED if word == "unlimited" else int(word)


def really(machine: Machine, policy: object, action: str, before: tuple[object, object]) -> tuple[object, object]:
    """What the machine's own functions make of a step that was read back."""
    name, _, told = action.removesuffix(")").partition(" (")
    domains = machine.action(name).domains
    words = dict(one.split(" ", 1) for one in told.split(", ") if one)
    inputs = {key: given(domains[key], word) for key, word in words.items() if key in domains}
    if free := {key: given(int, word) for key, word in words.items() if key not in domains}:
        fields = {name: getattr(policy, name) for name in parts(policy) or ()}
        policy = assembled(type(policy), {**fields, **free})
    after = machine.step(policy, before[0], name, inputs)
    ghost = before[1]
    if machine.observe is not None:
        ghost = machine.observe(*machine.signature(machine.observe).arguments(policy, (before[0], after), ghost))
    return after, ghost


def check(run: Run) -> list[str]:
    """Each step that was read back is a real one; the actions that were taken."""
    trace = read_back(run)
    states = [state_of(run.relation.layout, one.values) for one in trace.states]
    start = run.machine.initial[0]
    if run.whole:
        assert states[0][0] == start(*run.machine.signature(start).arguments(run.policy, ()))
    actions = [one.values["action_taken"] for one in trace.states][1:]
    for action, before, after in zip(actions, states, states[1:], strict=False):
        if action == NO_ACTION:
            assert before == after
        elif action not in (TAKEN_OVER, ASSUMED):
            assert really(run.machine, run.policy, action, before) == after, action
    assert all(one.values["states_fitting"] >= 1 for one in trace.states)
    return actions


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_each_step_is_a_real_one(path: Path) -> None:
    """Read back, each action of a run leads the machine's own functions from each state to the next; hidden ones too."""
    run = of_file(path)
    assert len(check(run)) >= len({step.line for step in run.steps} - {0})


def judged(text: str, *names: str) -> Report:
    """An audit of a log in short, with a limit of 3."""
    return audited(iter([(0, POLICY), *lines(text)]), *names)


def found(text: str, *names: str) -> Run:
    """Its run."""
    report = judged(text, *names)
    assert report.run is not None
    return report.run


def test_the_lines_and_how_many_states_fitted() -> None:
    """Each line stands at its first step, and after its last one how many states the monitor held."""
    trace = read_back(found(story(run("a", "k1", 1), dies("k1")), "i"))
    told = [
        (one.values["log_line"], one.values["action_taken"], one.values["states_fitting"])
        for one in trace.states
        if one.values["log_line"]
    ]
    assert told == [
        (1, "boot", 1),
        (1, "begin", 1),
        (2, "crash", 1),  # no line says that the original turn had ended
        (3, "boot", 1),
        (3, "replay (slot 0, keep_going true)", 1),
        (4, "start_work (slot 0)", 1),
        (5, "crash", 1),
    ]
    says = [one.values["log_says"] for one in trace.states if one.values["log_says"]]
    assert says[0] == "turn.started (incident i, incarnation k0)"
    assert len(says) == 5


def test_hidden_steps_are_in_the_run() -> None:
    """What no line tells but must have happened is a step of its own: here that the admission became durable."""
    hidden = [step.action for step in found(story(run("a", "k1", 1)), "i").steps if not step.line and step.action]
    assert hidden == ["sync"]


def test_a_run_ends_before_the_line_that_fits_nowhere() -> None:
    """A violation's run explains the shortest history that is rejected, up to the line; that is named at the end."""
    run_ = found("\n".join((AT_THE_LIMIT, run("c", "k3", 3))))
    assert (run_.rule, run_.number) == ("C4", 9)
    assert max(step.line for step in run_.steps) == 9  # the incarnation is born in that line, and may be
    assert run_.steps[-1].action == "boot"
    ending = run_story(run_).ending
    assert ending.startswith("line 9: attempt.admitted (incident i, attempt c, incarnation k3, kind replay, count 3)")


def test_a_conforming_history_is_a_run_if_it_is_named() -> None:
    """An entity that is named has a run though nothing is wrong with it; one that is not named has none."""
    text = "\n".join((AT_THE_LIMIT, "attempt.refused incarnation=k3 count=3", SEALED, "log.ended"))
    assert judged(text).run is None
    run_ = found(text, "i")
    check(run_)
    assert (run_.rule, run_.whole) == ("", True)
    assert [step.line for step in run_.steps if step.told is not None] == list(range(1, 12))
    last = read_back(run_).states[-1].values
    assert (last["durable"].status, last["phases"][0]) == ("SEALED", "GIVING_UP")


def test_an_obligation_that_is_left_has_a_run() -> None:
    """C9: a log that ended before the seal explains every line, and says what is missing."""
    run_ = found("\n".join((AT_THE_LIMIT, "attempt.refused incarnation=k3 count=3", "log.ended")))
    check(run_)
    assert (run_.rule, run_.happened) == ("C9", "the log ended, and nothing more came")


def test_a_violation_comes_before_what_is_named() -> None:
    """Of several entities that are named, the one that violates has the run."""
    text = "\n".join((AT_THE_LIMIT, run("c", "k3", 3)))
    others = [(number, {**line, "incident": "h"}) for number, line in lines(DEAD)]
    report = audited(iter([(0, POLICY), *others, *lines(text)]), "h", "i")
    assert report.run is not None
    assert (report.run.entity, report.run.rule) == ("i", "C4")


def test_each_part_has_a_run_of_its_own() -> None:
    """The requests of a hold are followed apart: the one that violates is told, and which it is."""
    hold = {"at": 0, "type": "hold.requested", "hold": "h", "deadline_at": 60_000, "requests": 3}
    log = [hold, {"at": 5, "type": "release.started", "hold": "h", "index": 2}]
    report = audited(enumerate(log, 1))
    assert report.run is not None
    check(report.run)
    assert (report.run.part, report.run.parts) == (2, 3)
    assert "part 3 of 3 of the hold" in run_story(report.run).about


def test_what_was_dropped_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The past that is not kept is not in a run: it begins in a state that the past left, and says so."""
    monkeypatch.setattr("deadreckon.models.audit.words.KEPT", 4)
    many = [run(str(at), f"k{at}", at) + "\n" + dies(f"k{at}") for at in (1, 2)]
    run_ = found(story(*many, run("c", "k3", 3)))
    check(run_)
    assert not run_.whole
    assert "earlier lines are not kept" in run_story(run_).about


def test_nothing_more_is_kept_unless_it_is_asked_for() -> None:
    """Without the flags, or a name, an entity keeps as many steps as ever, and no run is made."""
    named = Filters(entities=frozenset({"i"}))
    assert [one._words[0].kept for one in (Audit(), Audit(named), Audit(run=True))] == [KEPT] * 3
    assert Audit(named, run=True)._words[0].kept == KEPT_IF_NAMED
    work = Audit(named)
    work.read(lines("\n".join((AT_THE_LIMIT, run("c", "k3", 9)))), "log")
    assert work.end().run is None


def test_a_run_that_the_machine_does_not_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known bad: if machine and monitor came to different states, no run would be shown."""
    monkeypatch.setattr("deadreckon.models.audit.code.Code.kept", lambda self, whole: ())
    with pytest.raises(SpecError, match="comes to another state than its monitor"):
        found(story(run("a", "k1", 1)), "i")


def command_line(*arguments: object) -> Result:
    """Run ``deadreckon audit``."""
    return CliRunner().invoke(command, ["audit", *map(str, arguments)], prog_name="deadreckon", env={"COLUMNS": "200"})


def test_the_command_writes_both(tmp_path: Path) -> None:
    """--itf and --mermaid write the first violation's history; that there are more is said."""
    log, itf, mermaid = (tmp_path / name for name in ("log.jsonl", "trace.itf.json", "trace.mmd"))
    text = (LOGS / "incident-sixth-run.jsonl").read_text(encoding="utf-8")
    log.write_text(
        text + text.partition("\n")[2].replace("turn-7", "turn-8").replace("life-", "other-"), encoding="utf-8"
    )
    ended = command_line(log, "--itf", itf, "--mermaid", mermaid)
    assert ended.exit_code == 1
    title = f"incident turn-7 violates C4, {log}:16"
    assert f"{title}: written to {itf}, {mermaid}; 1 more were not" in ended.stdout
    trace = trace_from_json(json.loads(itf.read_text(encoding="utf-8")))
    assert trace.vars[:4] == ["action_taken", "log_line", "log_says", "states_fitting"]
    assert title in trace.meta["description"]
    drawn = mermaid.read_text(encoding="utf-8").splitlines()
    assert drawn[0] == "sequenceDiagram"
    assert "    participant l as the log" in drawn
    assert "    l->>s: line 14: work.started (incident turn-7, attempt try-r4, incarnation life-4)" in drawn
    assert "no run of the machine explains this" in drawn[-1]


def test_the_command_says_that_nothing_was_written(tmp_path: Path) -> None:
    """Without a violation and without a name there is nothing to write; with a name there is."""
    log, itf = LOGS / "incident-five-deaths-then-seal.jsonl", tmp_path / "trace.itf.json"
    ended = command_line(log, "--itf", itf)
    assert (ended.exit_code, itf.exists()) == (0, False)
    assert "there is no violation, and no --entity that is followed to the end, so none was written" in ended.stdout
    ended = command_line(log, "--itf", itf, "--entity", "turn-7")
    assert f"incident turn-7, as {log} has it: written to {itf}" in ended.stdout
    assert itf.exists()
    assert command_line(log, "--itf", itf, "--mermaid", itf).exit_code == 2
