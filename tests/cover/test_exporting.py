"""Traces for other tools: ITF is read back by another package, sequence diagrams keep to Mermaid's grammar."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from itf_py import trace_from_json

from deadreckon.cli.commands import command
from deadreckon.cli.exporting import EXACT, Exports, as_itf, as_mermaid
from deadreckon.cli.traces import Change, Row, Story
from deadreckon.spec import CallerError
from examples.lease import machine as lease

LEASE = f"{Path(__file__).parents[2] / 'examples' / 'lease.py'}:machine"

LASSO = Story(
    "few",
    "most 3",
    (
        Row(1, "press", "", (Change("light", "off", "on", False), Change("lamp.hours[0]", "0", "1", False))),
        Row(2, "wait; then #2", "", (Change("burnt", "0", "1", True),)),
    ),
    "from here it repeats from step 2 for ever",
    (
        {"light": "OFF", "lamp": {"hours": (0, EXACT)}, "on": False},
        {"light": "ON", "lamp": {"hours": (1, EXACT)}, "on": True},
        {"light": "ON", "lamp": {"hours": (1, -EXACT)}, "on": True},
    ),
    loop=1,
)
"""A trace that never ends, with everything that a state may hold."""


def run(*arguments: str) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        command(list(arguments), prog_name="deadreckon")
    return int(str(ended.value.code))


def test_itf_is_read_back(tmp_path: Path) -> None:
    """Another package reads a counterexample back, and its states are those of the machine, step by step."""
    file = tmp_path / "trace.itf.json"
    assert run("defects", LEASE, "no-fencing", "--itf", str(file)) == 0
    trace = trace_from_json(json.loads(file.read_text(encoding="utf-8")))
    assert trace.vars == ["action_taken", "granted", "expires_at_ms", "now_ms", "written", "tokens"]
    assert trace.states[0].values["action_taken"] == ""
    assert tuple(trace.states[0].values["tokens"]) == (0, 0)
    variant, policy = lease.variant("no-fencing"), lease.scopes[0].policy
    state: object = lease.initial[0]()
    for one in trace.states[1:]:
        name, _, inputs = one.values["action_taken"].partition(" (")
        given = {key: int(value) for key, value in re.findall(r"(\w+) (-?\d+)", inputs)}
        state = variant.step(policy, state, name, given)
        assert tuple(one.values["tokens"]) == state.tokens  # type: ignore[attr-defined]  # a lease.State
        assert one.values["written"] == state.written  # type: ignore[attr-defined]  # a lease.State


def test_itf_holds_everything_that_a_state_may_hold() -> None:
    """Records, tuples, names of enum members, integers beyond what JSON readers keep, and where a lasso returns to."""
    text = as_itf(LASSO, "lamps: rule L1")
    trace = trace_from_json(json.loads(text))
    assert trace.loop == 1
    assert [one.values["action_taken"] for one in trace.states] == ["", "press", "wait; then #2"]
    last = trace.states[2].values
    assert (last["light"], last["on"], tuple(last["lamp"].hours)) == ("ON", True, (1, -EXACT))
    assert json.loads(text)["states"][0]["lamp"]["hours"] == {"#tup": [0, {"#bigint": str(EXACT)}]}
    assert "lamps: rule L1; scope few (most 3)" in trace.meta["description"]


def test_mermaid_shows_each_step_and_what_it_changes() -> None:
    """A participant for each part of the state, an arrow for each part that a step changes, the ghost apart."""
    assert as_mermaid(LASSO, "lamps: rule L1").splitlines() == [
        "sequenceDiagram",
        "    %% lamps: rule L1, scope few",
        "    participant s as steps",
        "    participant p0 as light",
        "    participant p1 as lamp",
        "    participant p2 as what really happened",
        "    Note over s: 1. press",
        "    s->>p0: light: off -> on",
        "    s->>p1: hours[0]: 0 -> 1",
        "    Note over s: 2. wait, then no. 2",
        "    s->>p2: burnt: 0 -> 1",
        "    Note over s: from here it repeats from step 2 for ever",
    ]


def test_the_first_of_many_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there are several counterexamples the first is written, and that there are more is said."""
    file = tmp_path / "trace.mmd"
    exports = Exports.at(None, str(file))
    assert exports.write([("one", LASSO), ("two", LASSO)]) == f"one: written to {file}; 1 more were not"
    assert file.read_text(encoding="utf-8").startswith("sequenceDiagram\n    %% one")
    assert Exports.at(None, None).write([("one", LASSO)]) == ""


def test_without_a_counterexample_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A check that holds has no trace, and says so."""
    file = tmp_path / "trace.itf.json"
    assert run("check", LEASE, "--engine", "explore", "--no-defects", "--itf", str(file)) == 0
    assert "there is no counterexample, so none was written" in capsys.readouterr().out
    assert not file.exists()


def test_two_files_for_two_forms(tmp_path: Path) -> None:
    """One file for both forms is refused, before anything is checked."""
    with pytest.raises(CallerError, match="one would overwrite the other"):
        Exports.at(str(tmp_path / "trace"), str(tmp_path / "trace"))
