"""TLC against the explorer: as many distinct states and steps, the same depth, and no rule violated.

DEADRECKON_TLC names a tla2tools.jar; without one there is nothing to run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deadreckon.models.explorer import explore
from deadreckon.models.exports.tla import tla, tla_config
from deadreckon.models.relation import relation
from deadreckon.spec import Kind, Machine, Scope
from deadreckon.spec.machines import MACHINES
from tests.nocover import manifest

JAR = os.environ.get("DEADRECKON_TLC", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not JAR or shutil.which("java") is None, reason="DEADRECKON_TLC names no jar, or there is no java"
    ),
]

ALL = manifest.machines()
SCOPES = [(name, scope.name) for name, machine in ALL.items() for scope in machine.scopes]
VARIANTS = [(name, variant.name) for name, machine in MACHINES.items() for variant in machine.variants]


def told(machine: Machine, scope: Scope, folder: Path) -> str:
    """What TLC says. Older ones don't know CHECK_DEADLOCK, newer ones take the option as well."""
    traced = relation(machine)
    text = tla(traced, scope)
    name = re.findall(r"MODULE (\w+)", text)[0]
    (folder / f"{name}.tla").write_text(text)
    config = re.sub(r"^CHECK_DEADLOCK FALSE$", "", tla_config(traced, scope), flags=re.MULTILINE)
    (folder / f"{name}.cfg").write_text(config)
    tlc = ("java", "-XX:+UseParallelGC", "-cp", str(Path(JAR).resolve()), "tlc2.TLC", "-deadlock", f"{name}.tla")
    return subprocess.run(tlc, cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("name", "scope"), SCOPES)
def test_tlc_finds_the_same_states(name: str, scope: str, tmp_path: Path) -> None:
    """TLC counts the initial state as generated too, and states along a path where we count steps."""
    machine = ALL[name]
    one = next(each for each in machine.scopes if each.name == scope)
    found = explore(machine, one, compare_every=0)
    said = told(machine, one, tmp_path)
    counts = re.search(r"(\d+) states generated, (\d+) distinct states found, 0 states left", said)
    depth = re.search(r"depth of the complete state graph search is (\d+)", said)
    assert counts is not None, said
    assert depth is not None, said
    starts = len(machine.initial)
    assert (int(counts[2]), int(counts[1]), int(depth[1])) == (found.states, found.edges + starts, found.depth + 1)
    assert "No error has been found" in said


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_tlc_refutes_the_known_bad_designs(name: str, variant: str, tmp_path: Path) -> None:
    """Of every variant TLC finds an invariant violated, in the scope where ours is refuted soonest."""
    bad = MACHINES[name].variant(variant)
    rule = next(one.rule for one in MACHINES[name].variants if one.name == variant)
    if bad.rule(rule).kind is Kind.EVENTUALLY:
        pytest.skip("what comes eventually is not judged by way of representatives")
    pinned = json.loads(manifest.MANIFEST.read_text(encoding="utf-8"))[name]["variants"][variant]["scope"]
    said = told(bad, next(each for each in bad.scopes if each.name == pinned), tmp_path)
    assert re.search(r"Invariant \w+ is violated", said), said
