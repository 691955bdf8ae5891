"""How the tests against other checkers explore: by every engine that is there, each where it is quick enough."""

from __future__ import annotations

import pytest

from deadreckon.models.explorer import Exploration, explore
from deadreckon.spec import Machine

ENGINES = ("plain", "numpy", "numba")

LARGE = 200_000
"""States from which on the plain engine takes too long for a test."""


def explored(machine: Machine, engine: str, states: int) -> Exploration:
    """What *engine* finds of a machine with so many *states*; the test is skipped where it is missing or too slow."""
    if engine == "plain" and states > LARGE:
        pytest.skip("the plain engine takes long")
    if engine != "plain":
        pytest.importorskip(engine)
    return explore(machine, compare_every=16 if engine == "plain" else None, engine=engine)
