"""The page about the journal: its diagram is the generated one, its snippets run, and what it names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from deadreckon.cli.commands import command
from deadreckon.spec import Kind
from deadreckon.spec.machines import journal

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "journal.md").read_text(encoding="utf-8")
WORLD = {"tick", "boot", "crash"}
"""Actions that nobody takes on purpose, or that the diagram alone has."""


def block(before: str, language: str) -> str:
    """The first code block of this language after *before*."""
    found = re.search(rf"{re.escape(before)}.*?```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def table(begins: str) -> str:
    """The table whose header begins like this."""
    return PAGE[PAGE.index(begins) :].partition("\n\n")[0]


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
    shown = CliRunner().invoke(command, ["show", "journal", "--format", "mermaid"])
    assert shown.exit_code == 0
    assert block("## States", "mermaid") == shown.stdout


def test_the_snippet_prints_what_the_page_says(tmp_path: Path) -> None:
    """The offset of a forgotten event is not given again, and a repetition is told the old one."""
    (tmp_path / "see_it.py").write_text(block("<!-- see-it -->", "python"), encoding="utf-8")
    printed = run(tmp_path, "see_it.py").splitlines()
    assert printed == ["3 [0, 1]", "1"]
    assert all(f"`{line}`" in PAGE for line in printed)


def test_the_stateful_snippet_runs(tmp_path: Path) -> None:
    """The snippet that tests an implementation is a test that passes."""
    (tmp_path / "test_mine.py").write_text(block("<!-- test-your-own -->", "python"), encoding="utf-8")
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")


def test_every_rule_is_on_the_page() -> None:
    """The page names every rule, and none that the machine doesn't have."""
    ids = {rule.id for rule in journal.rules if rule.kind is not Kind.SOMETIMES and not rule.lemma}
    named = set(re.findall(r"\b[JB]\d+\b", PAGE))
    assert named <= ids
    assert {id for id in ids if id[-1].isdigit()} <= named


def test_every_step_on_the_page_is_the_machine_s() -> None:
    """The table of steps names all actions of the machine that are not the world's own, and no others."""
    rows = table("| step | what it keeps").splitlines()
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert named == {action.name for action in journal.actions} - WORLD


def test_the_table_for_testers_has_every_action() -> None:
    """Whoever drives all that the table names drives the whole machine, but for a revival's own row."""
    named = set(re.findall(r"`([a-z_]+)`", table("| your implementation has")))
    assert named == {action.name for action in journal.actions} - {"revive"}
