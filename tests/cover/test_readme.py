"""The README's snippets run, and its diagram is the generated one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(marker: str, language: str) -> str:
    """The code block after ``<!-- marker -->``."""
    found = re.search(rf"<!-- {marker} -->\s*```{language}\n(.*?)```", README, re.DOTALL)
    assert found is not None, f"README has no {language} block after <!-- {marker} -->"
    return found[1]


def run(arguments: list[str], folder: Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def command(marker: str) -> list[str]:
    """A README command, with this interpreter's ``deadreckon`` in place of the fresh environment's."""
    words = block(marker, "sh").split()
    assert words[0] == ".venv/bin/deadreckon"
    return [sys.executable, "-m", "deadreckon.cli", *words[1:]]


def test_readme_service_snippet_runs(tmp_path: Path) -> None:
    """The snippet of the reference implementation runs as it stands."""
    (tmp_path / "service.py").write_text(block("use", "python"), encoding="utf-8")
    assert "heavy work" in run([sys.executable, "service.py"], tmp_path)
    assert (tmp_path / "turns.db").exists()


def test_readme_door_snippet_runs(tmp_path: Path) -> None:
    """The snippet of the door asks, is approved, and releases once, as it stands."""
    (tmp_path / "door.py").write_text(block("door", "python"), encoding="utf-8")
    assert run([sys.executable, "door.py"], tmp_path).count("paid once") == 1
    assert (tmp_path / "holds.db").exists()


def test_readme_stateful_snippet_runs(tmp_path: Path) -> None:
    """The snippet that tests an implementation is a test that passes."""
    (tmp_path / "test_mine.py").write_text(block("test-your-own", "python"), encoding="utf-8")
    printed = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"], tmp_path)
    assert "1 passed" in printed


def test_readme_holds_a_program_against_a_machine() -> None:
    """The reference implementation, served as a program in whatever language, conforms in every scope."""
    words = [sys.executable if word == ".venv/bin/python" else word for word in command("conform")]
    assert run(words, ROOT).count("it conforms") == 3


def test_readme_counterexample_is_the_printed_one() -> None:
    """The counterexample in the README is the one that the command finds."""
    printed = run(command("counterexample"), ROOT)
    for words in ("rule C6", "deliver (slot 0", "buffered.attempts[0]: 1 -> 0", "refuted in 6 steps"):
        assert words in printed


def test_readme_checks_a_users_machine() -> None:
    """A machine in a file of one's own is checked by the command."""
    assert "all holds" in run(command("own-machine"), ROOT)


@pytest.mark.parametrize("marker", ["check", "tests"])
def test_readme_commands_are_complete_on_a_bare_machine(marker: str) -> None:
    """The two main commands make their environment, install, and run, in one line; the CI runs the second as it stands."""
    line = block(marker, "sh")
    assert line.startswith("python3 -m venv .venv && .venv/bin/pip install")
    assert "&& .venv/bin/" in line


def test_readme_diagram_is_generated() -> None:
    """The diagram in the README is what ``show`` draws from the explored graph."""
    found = re.search(r"```mermaid\n(.*?)```", README, re.DOTALL)
    assert found is not None
    shown = [sys.executable, "-m", "deadreckon.cli", "show", "incident", "--format", "mermaid"]
    assert run(shown, ROOT) == found[1]
