"""The command where its surroundings are odd: nobody reads, one file for two reports, no number."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "deadreckon.cli", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_reader_that_has_gone_is_no_violation() -> None:
    """Exit code 1 says that a rule is violated; a closed pipe says nothing of rules, so it is 2, without a traceback."""
    read, write = os.pipe()
    os.close(read)
    done = run("show", "incident", stdout=write)
    os.close(write)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_two_reports_in_one_file_are_refused(tmp_path: Path) -> None:
    """One report would overwrite the other: refused before any work, however the file is spelt."""
    done = run("check", "incident", "--json", f"{tmp_path}/a", "--junitxml", f"{tmp_path}/./a")
    assert done.returncode == 2
    assert "name two files" in done.stderr
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_a_time_limit_is_a_number_of_seconds(seconds: str) -> None:
    """What is no positive, finite number of seconds is refused as wrong usage."""
    done = run("check", "incident", f"--seconds={seconds}")
    assert done.returncode == 2
    assert "Invalid value for '--seconds'" in done.stderr
