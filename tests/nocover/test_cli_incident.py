"""The installed command on the incident machine, as continuous integration runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deadreckon.spec import Kind
from deadreckon.spec.machines import incident

COMMAND = (sys.executable, "-m", "deadreckon.cli")


def deadreckon(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run((*COMMAND, *arguments), capture_output=True, text=True, check=False, timeout=240)


def heed_interrupts() -> None:
    """In the child: whoever ran the tests in the background had SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_check_incident_by_exploration(tmp_path: Path) -> None:
    """Every rule of the incident machine holds in its scopes, and every variant is refuted by the rule it names."""
    file = tmp_path / "incident.json"
    ended = deadreckon("check", "incident", "--engine", "explore", "--json", str(file))
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(file.read_text())["machines"]["incident"]
    assert found["complete"] is True
    assert {id: (rule["kind"], rule["explored"]) for id, rule in found["rules"].items()} == {
        rule.id: (rule.kind.value, "holds") for rule in incident.rules
    }
    assert all("bounded" not in rule and "proved" not in rule for rule in found["rules"].values())
    assert {name: (one["verdict"], one["rule"]) for name, one in found["defects"].items()} == {
        variant.name: ("refuted", variant.rule) for variant in incident.variants
    }
    assert all(one["steps"] >= 1 for one in found["defects"].values())


def test_defects_prints_a_lasso_of_incident() -> None:
    """The counterexample of a liveness rule says how it goes on for ever."""
    ended = deadreckon("defects", "incident", "seal-before-terminal")
    assert ended.returncode == 0, ended.stderr
    assert incident.rule("C9").kind is Kind.EVENTUALLY
    assert "for ever" in ended.stdout


def test_show_incident_draws_the_status() -> None:
    """The diagram of the incident is about its status as the live incarnation sees it."""
    ended = deadreckon("show", "incident", "--format", "mermaid")
    assert ended.returncode == 0, ended.stderr
    assert "incident: buffered.status" in ended.stdout
    assert 'state "sealed" as' in ended.stdout


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_simulate_incident(store: str) -> None:
    """The reference implementation walks beside the machine in every scope, and what was covered is told."""
    ended = deadreckon("simulate", "incident", "--runs", "20", "--seed", "1", "--store", store)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"its reference implementation (store: {store}); seed 1" in ended.stdout
    for scope in incident.scopes:
        assert f"scope {scope.name}: 20 walks" in ended.stdout


def test_simulate_hold_starts_soon() -> None:
    """A large scope is walked without exploring it first, which is said; with --steer the fraction covered is told."""
    at_once = ("simulate", "hold", "--scope", "sharing", "--runs", "5", "--seed", "1")
    plain, steered = deadreckon(*at_once), deadreckon(*at_once, "--steer")
    assert (plain.returncode, steered.returncode) == (0, 0)
    assert "scope sharing: more than 5,000 states: walks prefer steps that are new" in plain.stdout
    assert "of 20,706" not in plain.stdout
    assert "of 20,706" in steered.stdout


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("group", [True, False])
def test_interrupt_ends_cleanly(tmp_path: Path, number: signal.Signals, group: bool) -> None:
    """Ctrl-C and SIGTERM end with 2 and say what was finished; no worker and no half-written file is left."""
    if group and number == signal.SIGTERM:
        pytest.skip("workers that are killed from outside are another matter")
    command = subprocess.Popen(
        (*COMMAND, "check", "incident", "--engine", "explore", "--json", str(tmp_path / "out.json")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    assert command.stdout is not None
    line = command.stdout.readline()
    assert "started" in line
    (os.killpg if group else os.kill)(command.pid, number)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 2, err
    assert "interrupted" in err
    assert "no file was written" in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
    assert _gone(command.pid)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_workers_end_with_a_killed_parent() -> None:
    """When the command itself is killed, its workers notice and end."""
    command = subprocess.Popen(
        (*COMMAND, "check", "incident", "--engine", "explore"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert command.stdout is not None
    command.stdout.readline()
    command.kill()
    command.wait()
    command.stdout.close()
    assert _gone(command.pid)


def _gone(group: int) -> bool:
    """Whether no process of *group* is left, soon."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False
