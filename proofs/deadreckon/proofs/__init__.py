"""Engines that prove: bounded check, induction, Spacer, and certificates that two solvers check."""

from __future__ import annotations

from .solvers import SOLVERS  # first of all, since it says what to install when a solver is missing

# isort: split
from .bounded import Bounded, bounded
from .prove import Proof, prove

__all__ = ["SOLVERS", "Bounded", "Proof", "bounded", "prove"]
