"""The page about the request: its diagram is the generated one, its snippets run, and what it names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from deadreckon.cli.commands import command
from deadreckon.spec import Kind
from deadreckon.spec.machines import request

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "request.md").read_text(encoding="utf-8")


def block(before: str, language: str) -> str:
    """The first code block of this language after *before*."""
    found = re.search(rf"{re.escape(before)}.*?```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def run(folder: Path, *arguments: str) -> str:
    """What a program prints; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        (sys.executable, *arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_diagram_is_generated() -> None:
    """The diagram in the page is what ``show`` draws from the explored graph."""
    shown = CliRunner().invoke(command, ["show", "request", "--format", "mermaid"])
    assert shown.exit_code == 0
    assert block("## States", "mermaid") == shown.stdout


def test_the_service_snippet_runs(tmp_path: Path) -> None:
    """The snippet opens a request, tries it and is told the outcome, as it stands; the list then has nothing open."""
    (tmp_path / "service.py").write_text(block("<!-- use -->", "python"), encoding="utf-8")
    said = run(tmp_path, "service.py").splitlines()
    assert sorted(said) == ["answer 1 to why is the sky blue?", "turn-7 succeeded none"]
    listed = CliRunner().invoke(command, ["requests", "list", "--db", str(tmp_path / "requests.db")])
    assert listed.stdout == "no request is open\n"


def test_the_stateful_snippet_runs(tmp_path: Path) -> None:
    """The snippet that tests an implementation is a test that passes."""
    (tmp_path / "test_mine.py").write_text(block("<!-- test-your-own -->", "python"), encoding="utf-8")
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")


def test_every_rule_is_on_the_page() -> None:
    """The page names every rule, and none that the machine doesn't have."""
    ids = {rule.id for rule in request.rules if rule.kind is not Kind.SOMETIMES and not rule.lemma}
    named = set(re.findall(r"\b[QR]\d+\b", PAGE))
    assert named <= ids
    assert {id for id in ids if id[-1].isdigit()} <= named


def test_every_step_on_the_page_is_the_machine_s() -> None:
    """The table of steps names actions of the machine, and all that are not the world's own."""
    table = PAGE[PAGE.index("| step | taken by") : PAGE.index("## Conflicts")]
    named = {name for row in table.splitlines() for name in re.findall(r"`([a-z_]+)`", row.partition("|")[2])}
    world = {"boot", "crash", "tick", "answer_late", "answer_from_the_dead"}
    assert named == {action.name for action in request.actions} - world
