"""What the recovery engine of the released npm package ``agents`` 0.32.0 does beside the incident machine.

    (cd examples/cloudflare-agents && npm ci --ignore-scripts) && python -m pytest tests/nocover/test_cloudflare_agents.py

Each finding is a program that Hypothesis found and shrank; ``examples/cloudflare-agents/FINDINGS.md`` reads them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deadreckon.cli.references import resolve
from deadreckon.models.conform import examine
from deadreckon.models.conformance import Conformance
from deadreckon.models.driver import Divergence
from deadreckon.models.foreign import CommandDriver
from deadreckon.spec import Machine
from deadreckon.spec.machines import incident

FOLDER = Path(__file__).parents[2] / "examples" / "cloudflare-agents"
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (FOLDER / "node_modules" / "agents").is_dir(),
        reason="run 'npm ci --ignore-scripts' in examples/cloudflare-agents first",
    ),
]

ENDS = "deliver_terminal,seal,stand_down"
"""The way to the seal."""

ATTENDED = f"deploy,crash,progress,park,unpark,replay,start_work,finish,report,report_original,{ENDS}"
"""What needs nobody to come back: left with the clock, the sweep and callbacks."""

TIMES = "tick,progress,park,unpark,sweep"


def walked(
    machine: Machine, *flags: str, scope: str, without: str = "", runs: int, seed: int, steer: bool = False
) -> Conformance:
    """What walks of the released engine find."""
    command = [str(NODE), str(FOLDER / "driver.mjs"), *flags, *(["--without", without] if without else [])]
    driver = CommandDriver(command, timeout_s=60)
    return examine(machine, driver, examples=runs, scope=scope, seed=seed, steer=steer)


def actions(found: Conformance) -> list[str]:
    """The names of the actions of the failing walk."""
    assert isinstance(found.failure, Divergence), found.failure
    assert found.repeatable
    return [step.action.partition("(")[0] for step in found.story[1:]]


def test_it_is_the_released_package() -> None:
    """What is driven is 0.32.0, as it is on npm."""
    package = json.loads((FOLDER / "node_modules" / "agents" / "package.json").read_text(encoding="utf-8"))
    assert package["version"] == "0.32.0"


@pytest.mark.parametrize("scope", ["overlap", "parking"])
def test_it_conforms_where_reads_and_writes_take_no_time(scope: str) -> None:
    """C1 to C4, C7, C8: with crashes and syncs at any point it does as the machine, if admissions don't overlap."""
    found = walked(incident, "--serial", scope=scope, without="report", runs=150, seed=1)
    assert found.failure is None
    assert {"durable.interrupted", "durable.attempts[0]", "phases[0]"} <= set(found.compared)


def test_c6_overlapping_admissions_lose_an_entry() -> None:
    """C6: two admissions in one incarnation lose nothing to each other. They do: read, wait, write."""
    found = walked(incident, scope="overlap", runs=400, seed=1)
    assert actions(found) == ["boot", "begin", "crash", "boot", "replay", "replay", "sync"]
    assert [rule.id for rule in found.story[-1].breaks] == ["C6"]


def test_c1_and_then_a_death_is_not_counted() -> None:
    """C1: every earlier incarnation that died holding an entry is counted. One is not: its entry was lost."""
    only = f"report,end_original,report_original,deploy,deliver,{TIMES},{ENDS}"
    hidden = "durable.attempts,durable.status,buffered"
    found = walked(incident, "--hide", hidden, scope="overlap", without=only, runs=1500, seed=2)
    taken = actions(found)
    assert taken.count("crash") == 2
    assert taken[-1] == "replay"
    last = found.story[-1]
    (slot,) = last.differing
    assert (last.machine[slot], last.found[slot]) == ("giving up", "admitted")
    assert last.found["durable.interrupted"] == "1"


def test_c5_a_sweep_erases_the_count() -> None:
    """C5: nothing lowers the count while the incident lives. Two hours without an attempt do: it begins at 1 again."""
    only = f"deploy,progress,park,unpark,deliver,end_original,report,report_original,sweep,{ENDS}"
    idle = resolve(f"{FOLDER}/released.py:idle")
    found = walked(idle, "--serial", scope="idle", without=only, runs=300, seed=1, steer=True)
    assert actions(found).count("tick") == 2
    last = found.story[-1]
    assert (last.machine["buffered.interrupted"], last.found["buffered.interrupted"]) == ("2", "1")


def test_c5_a_sweep_takes_a_live_record() -> None:
    """C5: not a sweep either. The sweep of another incident takes an open record that nobody has touched for an hour."""
    idle = resolve(f"{FOLDER}/released.py:idle")
    found = walked(idle, "--serial", scope="idle", without=ATTENDED, runs=200, seed=1, steer=True)
    assert actions(found)[-1] == "sweep"
    assert isinstance(found.failure, Divergence)
    assert found.failure.rule == "C5"


def test_c10_a_callback_without_a_record_runs_uncounted() -> None:
    """C10: heavy work for an incident without a record is impossible. After a sweep, a callback does it."""
    swept = resolve(f"{FOLDER}/released.py:swept")
    found = walked(swept, "--serial", scope="unused", without=ATTENDED, runs=300, seed=1, steer=True)
    assert actions(found)[-2:] == ["sweep", "deliver"]
    assert isinstance(found.failure, Divergence)
    assert found.failure.rule == "C10"


def test_c2_an_end_is_reported_before_it_is_durable() -> None:
    """C2: no death is counted twice, and nothing that did not die: a finished attempt is reported before it is durable."""
    only = f"end_original,report_original,deploy,deliver,{TIMES},{ENDS}"
    found = walked(incident, "--serial", scope="overlap", without=only, runs=600, seed=1)
    assert actions(found)[-2:] == ["finish", "report"]
    assert isinstance(found.failure, Divergence)
    assert found.failure.rule == "C2"


def test_a_declining_predicate_is_not_asked_of_callbacks() -> None:
    """Soft budgets judge replays alone: a callback runs though the predicate has declined."""
    found = walked(incident, "--serial", "--predicate", scope="overlap", without="report", runs=300, seed=1)
    assert actions(found)[-1] == "deliver"
    assert "keep_going=false" in found.story[-1].action
