"""The page about the hold: its diagram is the generated one, its snippets run, and what it names is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from deadreckon import impl
from deadreckon.cli.commands import command
from deadreckon.spec import Kind
from deadreckon.spec.machines import hold

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hold.md").read_text(encoding="utf-8")


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
    shown = CliRunner().invoke(command, ["show", "hold", "--format", "mermaid"])
    assert shown.exit_code == 0
    assert block("## States", "mermaid") == shown.stdout


def test_the_service_snippet_runs(tmp_path: Path) -> None:
    """The snippet parks, is approved and releases, as it stands."""
    (tmp_path / "service.py").write_text(block("<!-- use -->", "python"), encoding="utf-8")
    assert re.fullmatch(r"paid, as \w+/0\n", run(tmp_path, "service.py"))


def test_the_stateful_snippet_runs(tmp_path: Path) -> None:
    """The snippet that tests an implementation is a test that passes."""
    (tmp_path / "test_mine.py").write_text(block("<!-- test-your-own -->", "python"), encoding="utf-8")
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")


def test_every_rule_of_the_protocol_is_on_the_page() -> None:
    """The page names every rule of the protocol, and none that the machine doesn't have."""
    ids = {rule.id for rule in hold.rules if rule.kind is not Kind.SOMETIMES and not rule.lemma}
    named = set(re.findall(r"\bH\d+\b", PAGE))
    assert named <= ids
    assert {id for id in ids if id[-1].isdigit()} <= named


def test_every_action_on_the_page_is_the_machine_s() -> None:
    """The table for testers names actions of the machine."""
    table = PAGE[PAGE.index("| your implementation has") :]
    named = set(re.findall(r"`([a-z_]+)`", table))
    assert named - {"tests"} <= {action.name for action in hold.actions}


def test_every_fact_on_the_page_is_appended_by_the_implementation() -> None:
    """The table of facts has those types that the implementation appends, and no others."""
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(next(iter(impl.__path__))).glob("*.py"))
    appended = set(re.findall(r'Entry\(\s*"([a-z.]+)"', sources)) | set(re.findall(r'"(key\.[a-z]+)"', sources))
    assert set(re.findall(r"`((?:hold|caller|release|door|key)\.[a-z]+)`", PAGE)) == appended
