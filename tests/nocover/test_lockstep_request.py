"""The reference implementation of the request does, step by step, what the machine says: in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import attrs
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from deadreckon.impl.request_driver import RequestDriver, RequestFileDisk, RequestMemoryDisk
from deadreckon.impl.request_store import Change, Filed, MemoryRequests
from deadreckon.models.coverage import Coverage, Reachable
from deadreckon.models.driver import Divergence
from deadreckon.models.simulate import Simulation, simulate
from deadreckon.models.stateful import stateful
from deadreckon.spec.machines import request
from deadreckon.spec.request_state import RequestPolicy, Status
from tests.nocover.lockstep import EXAMPLES, Blade, Call, covered, refuses_misuse


@cache
def graph() -> Reachable:
    """The reachable graph of the scope."""
    return Reachable(request, request.scopes[0])


def simulated(make: Callable[[], RequestDriver], runs: int) -> Simulation:
    """Seeded walks of a driver, which head for what is new."""
    return simulate(request, make, runs=runs, steps=60, seed=1, reachable=graph())


def walked(make: Callable[[], RequestDriver], runs: int) -> Coverage:
    """Seeded walks, which must not fail; what they covered."""
    return covered(simulated(make, runs))


@pytest.fixture
def in_file(tmp_path: Path) -> Callable[[], RequestDriver]:
    """What makes drivers of a store in a file."""
    return lambda: RequestDriver(RequestFileDisk(tmp_path))


def test_in_memory() -> None:
    """Q1 to Q7: in memory, with crashes at any point, each step does and refuses what the machine does."""
    assert walked(RequestDriver, 400).states_seen > 2_000


def test_in_a_file(in_file: Callable[[], RequestDriver]) -> None:
    """Q1 to Q7: in an SQLite file, opened anew after each crash, the same holds."""
    assert walked(in_file, 25).states_seen > 200


def test_by_hypothesis_in_memory() -> None:
    """Hypothesis, which begins anywhere in the graph, finds no difference in memory."""
    run_state_machine_as_test(stateful(request, RequestDriver, reachable=graph()), settings=EXAMPLES)


def test_by_hypothesis_in_a_file(in_file: Callable[[], RequestDriver]) -> None:
    """Hypothesis finds no difference in a file."""
    run_state_machine_as_test(stateful(request, in_file), settings=settings(EXAMPLES, max_examples=8))


class DiesAtWork(RequestDriver):
    """Each crash comes while an action is under way, just before its write: it never happened."""

    ACTIONS: tuple[Call, ...] = (
        ("dial", {}),
        ("succeed", {}),
        ("fail", {}),
        ("expire", {}),
        ("fire", {}),
        ("tell", {}),
    )

    def __init__(self) -> None:
        self.blade = Blade()
        super().__init__(RequestMemoryDisk(lambda: MemoryRequests(self.blade.hook)))

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action; a crash cuts another one off first."""
        if action == "crash" and self.observe().alive:
            self.blade.cut_off(super().do, self.ACTIONS, ("transact.before",))
        super().do(action, **inputs)


def test_crashes_before_a_write() -> None:
    """A crash while an action is under way leaves the record as it was."""
    made: list[DiesAtWork] = []

    def make() -> DiesAtWork:
        made.append(DiesAtWork())
        return made[-1]

    walked(make, 80)
    assert made[0].blade.cuts > 20


class LosesTimers(MemoryRequests):
    """A store that does not keep the timer with the record."""

    async def transact(self, incarnation: int, request_id: str, change: Change) -> None:
        """Without the timer."""

        def lossy(filed: Filed) -> Filed:
            after = change(filed)
            return attrs.evolve(after, request=attrs.evolve(after.request, timer_at_ms=0))

        await super().transact(incarnation, request_id, lossy)


class FencesNobody(MemoryRequests):
    """A store that takes the writes of the dead."""

    async def transact(self, incarnation: int, request_id: str, change: Change) -> None:
        """As if the living had sent it."""
        await super().transact(self.incarnation, request_id, change)


class SettlesTwice(MemoryRequests):
    """A store that keeps the answer of an attempt whose request has expired."""

    async def transact(self, incarnation: int, request_id: str, change: Change) -> None:
        """Whatever was written becomes a success once it is asked again."""

        def twice(filed: Filed) -> Filed:
            after = change(filed)
            if filed.request.status is Status.EXPIRED and after == filed:
                return attrs.evolve(after, request=attrs.evolve(after.request, status=Status.SUCCEEDED))
            return after

        await super().transact(incarnation, request_id, twice)


@pytest.mark.parametrize(
    ("store", "actions"),
    [
        (LosesTimers, {"open_request"}),
        (FencesNobody, {"answer_from_the_dead"}),
        (SettlesTwice, {"answer_late", "open_request"}),  # whichever comes first: both change nothing
    ],
)
def test_a_bad_store_is_found(store: Callable[[], MemoryRequests], actions: set[str]) -> None:
    """A store that loses timers, fences nobody, or settles twice is told from the machine by the record."""
    done = simulated(lambda: RequestDriver(RequestMemoryDisk(store)), 200)
    assert isinstance(done.failure, Divergence)
    assert done.failure.action in actions


def test_misuse_is_told() -> None:
    """A driver that was not reset, an unknown action and a policy of another kind are refused with what to do."""
    refuses_misuse(RequestDriver(), RequestPolicy(), "state", "filed")
