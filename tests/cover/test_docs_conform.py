"""The page on conformance shows what the machines have, and its example runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deadreckon.models.conform import conform
from deadreckon.models.conformance import Conformance
from deadreckon.models.driver import Divergence
from deadreckon.models.foreign import CommandDriver
from deadreckon.models.observable import observable
from deadreckon.spec import Machine
from deadreckon.spec.machines import MACHINES
from examples.lease import machine as lease

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conform.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_the_page_lists_what_can_be_reported(machine: Machine) -> None:
    """Each machine's table is the generated one (``python -m deadreckon.models.observable`` prints them)."""
    _, _, rest = PAGE.partition(f"### {machine.name}\n\n")
    assert rest.partition("\n\n")[0].strip() == "\n".join(observable(machine))


def lease_driver() -> str:
    """The example of the page."""
    found = re.search(r"<!-- lease-driver -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_conforms() -> None:
    """The example is a whole driver in about thirty lines, of a lease that conforms."""
    source = lease_driver()
    assert len(source.splitlines()) <= 35
    assert walked(source).failure is None


def test_the_example_without_its_guard_does_not() -> None:
    """F2: without the comparison of tokens, a write takes effect after one with a higher token, in five steps."""
    broken = lease_driver().replace(">= written", "")
    with pytest.raises(Divergence, match=r"(?s)write\(client=.\) is allowed, the machine refuses it by F2"):
        walked(broken)


def walked(source: str) -> Conformance:
    """What walks of the example find."""
    return conform(lease, CommandDriver([sys.executable, "-c", source]), examples=100, seed=1)


def test_the_reference_implementation_is_served(tmp_path: Path) -> None:
    """The command of the page for the reference implementation works, and an unknown machine is refused."""
    program = [sys.executable, str(ROOT / "examples" / "conform_impl.py")]
    verb = [sys.executable, "-m", "deadreckon.cli", "conform", "incident", "--runs", "5", "--scope", "parking"]
    done = subprocess.run(
        [*verb, "--", *program, "incident"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    refused = subprocess.run([*program, "wombat"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "usage" in refused.stderr
