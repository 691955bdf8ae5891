"""Failing walks for other tools: the machine's side of the shortest one, each step of it a real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from click.testing import CliRunner
from itf_py import trace_from_json

from deadreckon.cli.commands import command as command_line
from deadreckon.cli.exporting import as_itf, as_mermaid
from deadreckon.cli.histories import walk_story, walk_title
from deadreckon.models.conform import examine
from deadreckon.models.conformance import Conformance
from deadreckon.models.driver import MachineDriver
from deadreckon.models.relation import relation
from deadreckon.spec import Refused
from deadreckon.spec.machines import incident
from tests.cover.test_audit_run import really, state_of
from tests.cover.test_docs_conform import lease_driver
from tests.cover.test_exporting import LEASE


class Hurried(MachineDriver):
    """Syncs every write at once, and does not remember what a replay counted."""

    at_once = ("sync",)

    def do(self, action: str, /, **inputs: object) -> None:
        """Sync after it."""
        super().do(action, **inputs)
        try:
            super().do("sync")
        except Refused:
            return


def failing(name: str) -> Conformance:
    """What is found in a known-bad design."""
    return examine(incident, MachineDriver(incident.variant(name)), examples=100, seed=1)


def check(found: Conformance) -> list[str]:
    """The walk as another package reads it back: each action leads the machine from each state to the next."""
    trace = trace_from_json(json.loads(as_itf(walk_story(found), walk_title(found))))
    layout = relation(incident).layout
    states = [state_of(layout, one.values) for one in trace.states]
    actions = [one.values["action_taken"] for one in trace.states][1:]
    for action, before, after in zip(actions, states, states[1:], strict=False):
        if action.startswith("no action: "):
            assert before == after
        else:
            assert really(incident, found.scope.policy, action, before) == after
    return actions


def test_what_the_machine_refuses_changes_nothing() -> None:
    """C3: the step that the machine refuses is the last one, named as refused; the implementation's answer beside it."""
    found = failing("heavy-before-sync")
    actions = check(found)
    assert len(actions) == len(found.story) - 1
    assert actions[-1].startswith("no action: refused by C3 (the attempt's entry is not durable yet): start_work(slot=")
    drawn = as_mermaid(walk_story(found), walk_title(found)).splitlines()
    assert "    participant l as implementation" in drawn
    assert next(line for line in drawn if "l->>s: start_work(slot=" in line).endswith(": ok")
    assert "the machine refuses it by C3" in drawn[-1]


def test_where_states_differ_the_other_is_told() -> None:
    """C2: where the implementation comes to another state, what it shows stands beside the machine's step."""
    found = failing("found-twice")
    check(found)
    said = [row.said for row in walk_story(found).rows]
    assert said[:-1] == [""] * (len(said) - 1)
    assert "is" in said[-1]
    assert found.story[-1].differing[0] in said[-1]


def test_what_follows_at_once_is_a_step_of_its_own() -> None:
    """An implementation that syncs by itself: the machine's syncs are steps of the walk."""

    class Wrong(Hurried):
        def __init__(self) -> None:
            super().__init__(incident.variant("found-twice"))

    found = examine(incident, Wrong(), examples=100, seed=1)
    assert "sync" in check(found)
    assert not any(step.action.startswith("sync") for step in found.story)


def test_the_command_writes_both(tmp_path: Path) -> None:
    """--itf and --mermaid write the failure; if there is none, that is said, and nothing written."""
    itf, mermaid = tmp_path / "trace.itf.json", tmp_path / "trace.mmd"
    verb = ["conform", LEASE, "--seed", "1", "--runs", "60", "--itf", str(itf), "--mermaid", str(mermaid), "--"]
    program = [sys.executable, "-c"]
    ended = CliRunner().invoke(command_line, [*verb, *program, lease_driver()], env={"COLUMNS": "200"})
    assert (ended.exit_code, itf.exists()) == (0, False)
    assert "there is no failure, so none was written" in ended.stdout
    source = lease_driver().replace(">= written", "")
    ended = CliRunner().invoke(command_line, [*verb, *program, source], env={"COLUMNS": "200"})
    assert ended.exit_code == 1
    assert f"written to {itf}, {mermaid}" in ended.stdout
    trace = trace_from_json(json.loads(itf.read_text(encoding="utf-8")))
    assert trace.vars == ["action_taken", "granted", "expires_at_ms", "now_ms", "written", "tokens"]
    assert mermaid.read_text(encoding="utf-8").startswith("sequenceDiagram\n    %% ")


def test_one_file_for_both_is_refused(tmp_path: Path) -> None:
    """Before anything is driven."""
    file = str(tmp_path / "trace")
    ended = CliRunner().invoke(command_line, ["conform", "incident", "--itf", file, "--mermaid", file, "--", "false"])
    assert ended.exit_code == 2
    assert "one would overwrite the other" in ended.stderr
