"""The benches run, and their explorers find the same of one machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def said(*arguments: str) -> str:
    """What a bench prints."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("machine", ["holds.py:small", "recovery.py:one"])
def test_bench_explorers_agree(machine: str, tmp_path: Path) -> None:
    """Every explorer that is there finds the same states, edges and depth, or the bench fails; it draws what it found."""
    picture = tmp_path / "plot.png"
    jar = os.environ.get("DEADRECKON_TLC", "")
    given = ("--machine", f"{BENCH / machine}", "--rounds", "1", "--plot", str(picture), "--tlc", jar)
    told = said(f"{BENCH / 'explorer.py'}", *given)
    assert "| plain |" in told
    assert ("| tlc |" in told) is bool(jar)
    assert picture.stat().st_size > 0


def test_bench_proofs_has_every_engine() -> None:
    """Each engine of the proofs has its row, and both solvers check the whole invariant."""
    told = said(f"{BENCH / 'proofs.py'}", "--seconds", "20", f"{BENCH / 'holds.py'}:small")
    rows = {cells[0].strip(): cells[-1].strip() for line in told.splitlines() if (cells := line.strip("|").split("|"))}
    assert rows["bounded check, 24 steps"] == "4 holds"
    assert rows["k-induction, with lemmas"] == "4 by 1-induction"
    assert rows["Spacer for each rule, without"] == "3 proved"
    assert rows["invariant re-checked by z3"] == rows["invariant re-checked by cvc5"] == "18 unsat"
