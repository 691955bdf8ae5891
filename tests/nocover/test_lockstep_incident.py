"""The reference implementation of the incident does, step by step, what the machine says: in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from deadreckon.impl.incident_driver import FileDisk, IncidentDriver, MemoryDisk
from deadreckon.impl.incident_memory import MemoryStore
from deadreckon.models.coverage import Coverage, Reachable
from deadreckon.models.driver import Divergence
from deadreckon.models.simulate import simulate
from deadreckon.models.stateful import stateful
from deadreckon.spec.incident_state import Outcome, RecoveryPolicy
from deadreckon.spec.machines import incident
from tests.nocover.lockstep import EXAMPLES, Blade, Call, covered, refuses_misuse

SCOPES = {scope.name: scope for scope in incident.scopes}
FEWER = settings(EXAMPLES, max_examples=25, stateful_step_count=25)


class DiesAtWork(IncidentDriver):
    """Each crash comes while an action is under way: before its write, or after it but before anybody knows."""

    WRITES: tuple[Call, ...] = (
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
        self.blade = Blade()
        super().__init__(MemoryDisk(lambda: MemoryStore(self.blade.hook)))

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action; a crash cuts another one off first."""
        if action == "crash" and self.observe().alive:
            self.blade.cut_off(super().do, self.WRITES, ("transact.before", "transact.after"))
        super().do(action, **inputs)


def walked(make: Callable[[], IncidentDriver], scope: str, runs: int, reachable: Reachable | None = None) -> Coverage:
    """Seeded walks, which must not fail; what they covered."""
    return covered(simulate(incident, make, runs=runs, steps=60, seed=1, scope=SCOPES[scope], reachable=reachable))


@pytest.fixture
def in_file(tmp_path: Path) -> Callable[[], IncidentDriver]:
    """What makes drivers of a store in a file."""
    return lambda: IncidentDriver(FileDisk(tmp_path))


@cache
def graph(scope: str, at_once: tuple[str, ...] = ()) -> Reachable:
    """The reachable graph of a scope."""
    return Reachable(incident, SCOPES[scope], at_once=at_once)


@pytest.mark.parametrize(("scope", "runs", "states"), [("overlap", 50, 250), ("parking", 200, 700)])
def test_in_memory(scope: str, runs: int, states: int) -> None:
    """C1 to C13: in memory, with syncs and crashes at any point, each step does and refuses what the machine does."""
    assert walked(IncidentDriver, scope, runs, graph(scope)).states_seen > states


def test_in_memory_with_time_and_progress() -> None:
    """B1, B2: the same holds of the soft budgets, under a policy that time and progress exhaust."""
    assert walked(IncidentDriver, "budgets", 80).states_seen > 150


@pytest.mark.parametrize("scope", ["overlap", "budgets"])
def test_in_a_file(scope: str, in_file: Callable[[], IncidentDriver]) -> None:
    """C1 to C13: in an SQLite file, which syncs every write and is opened anew after a crash, the same holds."""
    assert walked(in_file, scope, 12).states_seen > 40


def test_in_a_file_that_is_parked(in_file: Callable[[], IncidentDriver]) -> None:
    """C8: the same holds in a file while a person is waited for, on walks that head for what is new."""
    assert walked(in_file, "parking", 15, graph("parking", ("sync",))).states_seen > 80


def test_crashes_inside_a_write() -> None:
    """C1: a crash while an action is under way leaves the record as it was before, or as if the action had been."""
    made: list[DiesAtWork] = []

    def make() -> DiesAtWork:
        made.append(DiesAtWork())
        return made[-1]

    walked(make, "overlap", 80, graph("overlap"))
    assert made[0].blade.cuts > 10


def test_by_hypothesis_in_memory() -> None:
    """Hypothesis, which begins anywhere in the graph, finds no difference in memory."""
    run_state_machine_as_test(stateful(incident, IncidentDriver, reachable=graph("parking")), settings=FEWER)


def test_by_hypothesis_in_a_file(in_file: Callable[[], IncidentDriver]) -> None:
    """Hypothesis finds no difference in a file."""
    run_state_machine_as_test(
        stateful(incident, in_file, scope=SCOPES["overlap"]), settings=settings(FEWER, max_examples=5)
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
    refuses_misuse(IncidentDriver(), RecoveryPolicy(), "settle", "state")
