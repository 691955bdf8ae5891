"""The reference implementation of the incident does, step by step, what the machine says: in memory and in a file."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from deadreckon.impl.driver import FileDisk, IncidentDriver, MemoryDisk
from deadreckon.impl.memory import MemoryStore
from deadreckon.models.coverage import Reachable
from deadreckon.models.driver import Divergence
from deadreckon.models.simulate import Simulation, simulate
from deadreckon.models.stateful import stateful
from deadreckon.spec import CallerError, Refused
from deadreckon.spec.incident_state import Outcome, RecoveryPolicy
from deadreckon.spec.machines import incident

SCOPES = {scope.name: scope for scope in incident.scopes}

EXAMPLES = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=25,
    stateful_step_count=25,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
"""The same examples everywhere."""


class Cut(Exception):
    """The incarnation dies here."""


class CutDisk(MemoryDisk):
    """A store in memory that can be told to let its incarnation die inside its next write."""

    def __init__(self) -> None:
        super().__init__(self._hooked)
        self.at = ""

    def _hooked(self) -> MemoryStore:
        async def hook(point: str) -> None:
            if point == self.at:
                raise Cut(point)

        return MemoryStore(hook)


class DiesAtWork(IncidentDriver):
    """Each crash comes while an action is under way: before its write, or after it but before anybody knows."""

    WRITES = (
        ("replay", {"slot": 0, "keep_going": True}),
        ("deliver", {"slot": 0, "again": True, "keep_going": True}),
        ("finish", {"slot": 0, "outcome": Outcome.DONE}),
        ("end_original", {"outcome": Outcome.YIELDED}),
        ("park", {}),
        ("unpark", {}),
        ("deliver_terminal", {"slot": 0}),
        ("seal", {"slot": 0}),
    )
    """Actions whose write is not durable before it is synced, so that a crash loses it."""

    def __init__(self) -> None:
        self.cut = CutDisk()
        self.cuts = 0
        self._chance = random.Random(1)
        super().__init__(self.cut)

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action; a crash cuts another one off first."""
        if action == "crash" and self.observe().alive:
            self._cut_off()
        super().do(action, **inputs)

    def _cut_off(self) -> None:
        self.cut.at = self._chance.choice(("transact.before", "transact.after"))
        action, inputs = self._chance.choice(self.WRITES)
        try:
            super().do(action, **inputs)
        except Cut:
            self.cuts += 1
        except Refused:
            pass  # nothing was under way after all
        finally:
            self.cut.at = ""


def walked(make: Callable[[], IncidentDriver], graph: Reachable, runs: int) -> Simulation:
    """Seeded walks, which must not fail."""
    done = simulate(incident, make, runs=runs, steps=60, seed=1, reachable=graph)
    if done.failure is not None:
        raise done.failure
    return done


@pytest.fixture
def in_file(tmp_path: Path) -> Callable[[], IncidentDriver]:
    """What makes drivers of a store in a file."""
    return lambda: IncidentDriver(FileDisk(tmp_path))


@pytest.mark.parametrize(("scope", "states"), [("overlap", 600), ("budgets", 600), ("parking", 600)])
def test_in_memory(scope: str, states: int) -> None:
    """C1 to C13: in memory, with syncs and crashes at any point, each step does and refuses what the machine does."""
    done = walked(IncidentDriver, Reachable(incident, SCOPES[scope]), 120)
    assert done.coverage.states_seen > states


def test_a_small_scope_in_memory_is_walked_to_a_large_part() -> None:
    """C8: of the scope in which a person is waited for, walks of the implementation cover more than half."""
    done = walked(IncidentDriver, Reachable(incident, SCOPES["parking"]), 600)
    assert (done.coverage.of_states or 0) > 0.5


@pytest.mark.parametrize("scope", ["overlap", "budgets", "parking"])
def test_in_a_file(scope: str, in_file: Callable[[], IncidentDriver]) -> None:
    """C1 to C13: in an SQLite file, which syncs every write and is opened anew after a crash, the same holds."""
    graph = Reachable(incident, SCOPES[scope], at_once=("sync",))
    done = walked(in_file, graph, 25)
    assert done.coverage.states_seen > 100


def test_crashes_inside_a_write() -> None:
    """C1: a crash while an action is under way leaves the record as it was before, or as if the action had been."""
    made: list[DiesAtWork] = []

    def make() -> DiesAtWork:
        made.append(DiesAtWork())
        return made[-1]

    walked(make, Reachable(incident, SCOPES["overlap"]), 150)
    assert made[0].cuts > 20


def test_by_hypothesis_in_memory() -> None:
    """Hypothesis, which begins anywhere in the graph, finds no difference in memory."""
    graph = Reachable(incident, SCOPES["parking"])
    run_state_machine_as_test(stateful(incident, IncidentDriver, reachable=graph), settings=EXAMPLES)


def test_by_hypothesis_in_a_file(in_file: Callable[[], IncidentDriver]) -> None:
    """Hypothesis finds no difference in a file."""
    run_state_machine_as_test(
        stateful(incident, in_file, scope=SCOPES["overlap"]), settings=settings(EXAMPLES, max_examples=5)
    )


def test_a_lost_sync_is_found() -> None:
    """A disk that says it synced and did not is told from the machine by the durable record."""

    class Lies(IncidentDriver):
        def do(self, action: str, /, **inputs: object) -> None:
            if action != "sync":
                super().do(action, **inputs)

    done = simulate(incident, Lies, runs=50, steps=60, seed=1)
    assert isinstance(done.failure, Divergence)
    assert done.failure.action == "sync"
    assert len(done.walk) <= 6


def test_misuse_is_told() -> None:
    """A driver that was not reset, an unknown action and a policy of another kind are refused with what to do."""
    driver = IncidentDriver()
    try:
        with pytest.raises(CallerError, match="reset"):
            driver.observe()
        with pytest.raises(CallerError, match="give a RecoveryPolicy"):
            driver.reset(None)
        driver.reset(RecoveryPolicy())
        for name in ("explode", "settle", "_alone", "state"):
            with pytest.raises(CallerError, match="has no action"):
                driver.do(name)
    finally:
        driver.close()
