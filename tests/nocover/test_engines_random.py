"""The compiled engines against the plain one on machines that nobody would write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numba
import pytest
from hypothesis import HealthCheck, event, given, note, reject, settings

from deadreckon.models.explorer import Bounds, Unsuitable, explore
from deadreckon.models.relation import relation
from deadreckon.spec import SpecError
from tests.cover.engines import told
from tests.nocover.random_machines import loaded, texts

MOST = 600
EXAMPLES = int(os.environ.get("DEADRECKON_MACHINES", "0"))
"""So many machines, if it is set; else as many as a test run has time for."""


def judged(text: str, folder: Path, engine: str) -> None:
    """*engine* finds in the machine of this text what the plain one finds, and raises what it raises."""
    note(text)
    try:
        found = relation(loaded(text, folder))
    except SpecError as refusal:
        event(f"refused: {str(refusal)[:24]}")
        reject()

    def by(engine: str) -> object:
        bounds = Bounds(max_states=MOST)
        try:
            return told(explore(found.machine, traced=found, bounds=bounds, engine=engine, keep_graph=True))
        except SpecError as fault:
            return str(fault)

    plain = by("plain")
    try:
        assert by(engine) == plain
    except Unsuitable as fault:
        event(f"unsuitable: {str(fault)[:30]}")


def compared(engine: str, examples: int) -> Callable[[Path], None]:
    """A property, as a function of the folder for its modules."""

    @settings(
        max_examples=EXAMPLES or examples,
        deadline=None,
        derandomize=not EXAMPLES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(text=texts())
    def run(text: str, folder: Path) -> None:
        judged(text, folder, engine)

    return lambda folder: run(folder=folder)


@pytest.mark.timeout(0 if EXAMPLES else 300)
@pytest.mark.parametrize(("engine", "examples"), [("numpy", 150), ("numba", 60)])
def test_engines_agree_on_machines_at_random(
    engine: str, examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same states, numbers, steps, verdicts, counterexamples, deadlocks and graphs; or the same refusal."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kernels"))  # nobody wants them again
    compared(engine, examples)(tmp_path)
