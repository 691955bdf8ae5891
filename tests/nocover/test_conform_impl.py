"""The reference implementation, served as a program in whatever language, conforms in every scope."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deadreckon.models.conform import conform
from deadreckon.models.foreign import CommandDriver
from deadreckon.spec.machines import MACHINES
from examples.conform_impl import DRIVERS

PROGRAM = Path(__file__).parents[2] / "examples" / "conform_impl.py"
SCOPES = [(name, scope.name) for name in DRIVERS for scope in MACHINES[name].scopes]


def test_every_machine_is_served() -> None:
    """The reference implementation of each machine can be driven as a program."""
    assert DRIVERS.keys() == MACHINES.keys()


@pytest.mark.parametrize(("name", "scope"), SCOPES)
def test_the_reference_implementation_conforms(name: str, scope: str) -> None:
    """Walks with crashes, over JSON lines: all of the state is shown, and nothing differs."""
    command = CommandDriver([sys.executable, str(PROGRAM), name], timeout_s=60)
    assert conform(MACHINES[name], command, examples=15, scope=scope, seed=1).unseen == ()
