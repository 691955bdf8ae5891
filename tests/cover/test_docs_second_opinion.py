"""The page about second opinions: its commands run as they stand, and print what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from deadreckon.cli.commands import command
from deadreckon.models.exports.spin import missing

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "second-opinion.md").read_text(encoding="utf-8")


def block(marker: str) -> list[str]:
    """The lines of the code block after ``<!-- marker -->``."""
    found = re.search(rf"<!-- {marker} -->\s*```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def model_of(line: str) -> tuple[str, str]:
    """What a ``deadreckon show ... > FILE`` of the page prints, and the name of the file."""
    _, *words = shlex.split(line.replace("examples/", f"{ROOT}/examples/"))
    done = CliRunner().invoke(command, words[:-2])
    assert (done.exit_code, words[-2]) == (0, ">"), done.output
    return done.stdout, words[-1]


def test_the_model_says_how_to_check_it_as_the_page_does() -> None:
    """The commands of the page stand in the head of the model."""
    first, *rest = block("spin")
    text, _ = model_of(first)
    assert [line for line in rest[1:] if f" * {line}\n" not in text] == []


@pytest.mark.skipif(bool(missing()), reason=f"{missing()} is not installed")
def test_spin_says_what_the_page_says(tmp_path: Path) -> None:
    """The commands run, and the lines of the page are among what is printed."""
    first, *rest = block("spin")
    text, name = model_of(first)
    (tmp_path / name).write_text(text, encoding="ascii")
    done = subprocess.run(
        ["sh", "-ec", "\n".join(rest)], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in block("spun") if line not in done.stdout.splitlines()] == []


def test_what_the_page_points_to_is_there() -> None:
    """Files that the page names are in the repository."""
    files = re.findall(r"`?((?:tests|examples|docs|models|proofs)/[\w/.-]+\w/?)", PAGE)
    assert files
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_the_command_runs_from_a_shell(tmp_path: Path) -> None:
    """The model is printed and nothing else, so that it may be sent to a file."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = (sys.executable, "-m", "deadreckon.cli", *shlex.split(block("spin")[0])[1:-2])
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == model_of(block("spin")[0])[0]


def test_tlc_is_given_what_the_page_names() -> None:
    """The commands of the page write the module that the last of them has TLC read, and its configuration."""
    *shows, java = block("tlc")
    written = {name: text for text, name in map(model_of, shows)}
    assert java.split()[-1] in written
    assert {name.rpartition(".")[2] for name in written} == {"tla", "cfg"}
    assert "MODULE Lease" in written["Lease.tla"]
    assert "SPECIFICATION Spec" in written["Lease.cfg"]
