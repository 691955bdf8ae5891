"""The reference implementation of the journal does, step by step, what the machine says: in memory and in a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from pathlib import Path

import attrs
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from deadreckon.impl.journal_driver import JournalDriver, StreamFileDisk, StreamMemoryDisk
from deadreckon.impl.journal_memory import MemoryEvents
from deadreckon.impl.journal_store import Change, Look, Sight, Writes
from deadreckon.models.coverage import Coverage, Reachable
from deadreckon.models.driver import Divergence
from deadreckon.models.simulate import Simulation, simulate
from deadreckon.models.stateful import stateful
from deadreckon.spec.journal_state import JournalPolicy
from deadreckon.spec.machines import journal
from tests.nocover.lockstep import EXAMPLES, Blade, Call, covered, refuses_misuse

SCOPES = tuple(scope.name for scope in journal.scopes)


@cache
def graph(scope: str) -> Reachable:
    """The reachable graph of a scope."""
    return Reachable(journal, next(one for one in journal.scopes if one.name == scope))


def simulated(make: Callable[[], JournalDriver], runs: int, scope: str) -> Simulation:
    """Seeded walks of a driver, which head for what is new."""
    reachable = graph(scope)
    return simulate(journal, make, runs=runs, steps=60, seed=1, scope=reachable.ground.scope, reachable=reachable)


def walked(make: Callable[[], JournalDriver], runs: int, scope: str) -> Coverage:
    """Seeded walks, which must not fail; what they covered."""
    return covered(simulated(make, runs, scope))


@pytest.fixture
def in_file(tmp_path: Path) -> Callable[[], JournalDriver]:
    """What makes drivers of a store in a file."""
    return lambda: JournalDriver(StreamFileDisk(tmp_path))


@pytest.mark.parametrize("scope", SCOPES)
def test_in_memory(scope: str) -> None:
    """J1 to J8: in memory, with crashes at any point, each step does and refuses what the machine does."""
    assert walked(JournalDriver, 300, scope).states_seen > 1_200


@pytest.mark.parametrize("scope", SCOPES)
def test_in_a_file(in_file: Callable[[], JournalDriver], scope: str) -> None:
    """J1 to J8: in an SQLite file, opened anew after each crash, the same holds."""
    assert walked(in_file, 20, scope).states_seen > 130


@pytest.mark.parametrize("scope", SCOPES)
def test_by_hypothesis_in_memory(scope: str) -> None:
    """Hypothesis, which begins anywhere in the graph, finds no difference in memory."""
    reachable = graph(scope)
    machine = stateful(journal, JournalDriver, scope=reachable.ground.scope, reachable=reachable)
    run_state_machine_as_test(machine, settings=EXAMPLES)


def test_by_hypothesis_in_a_file(in_file: Callable[[], JournalDriver]) -> None:
    """Hypothesis finds no difference in a file."""
    run_state_machine_as_test(stateful(journal, in_file), settings=settings(EXAMPLES, max_examples=6))


class DiesAtWork(JournalDriver):
    """Each crash comes while an action is under way, whose write is not synced: it never happened."""

    ACTIONS: tuple[Call, ...] = (
        ("reserve", {"ahead": 1}),
        ("append", {"key": 1, "body": 1, "asked": False, "size": 1}),
        ("append_others", {"rows": 1}),
        ("revive", {}),
        ("process", {"rows": 1}),
        ("checkpoint", {}),
    )

    def __init__(self) -> None:
        self.blade = Blade()
        super().__init__(StreamMemoryDisk(lambda: MemoryEvents(self.blade.hook)))

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action; a crash cuts another one off first."""
        if action == "crash":
            self.blade.cut_off(super().do, self.ACTIONS, ("transact.before", "transact.written"))
        super().do(action, **inputs)


@pytest.mark.parametrize("scope", SCOPES)
def test_crashes_before_a_sync(scope: str) -> None:
    """A crash while a write waits for its sync leaves the journal as it was."""
    made: list[DiesAtWork] = []

    def make() -> DiesAtWork:
        made.append(DiesAtWork())
        return made[-1]

    walked(make, 60, scope)
    assert made[0].blade.cuts > 10


class Altering(MemoryEvents, ABC):
    """A bad store, which keeps something else than what it was told."""

    @abstractmethod
    def altered(self, look: Look, sight: Sight, writes: Writes) -> Writes:
        """What it keeps."""

    async def transact(self, incarnation: int, look: Look, change: Change) -> None:
        """Keep what it likes."""
        await super().transact(incarnation, look, lambda sight: self.altered(look, sight, change(sight)))


class LosesTheMark(Altering):
    """It doesn't keep what was reserved."""

    def altered(self, look: Look, sight: Sight, writes: Writes) -> Writes:
        """Only rows move the mark."""
        return attrs.evolve(writes, high=max((sight.high, *(row.offset for row in writes.rows))))


class ForgetsKeys(Altering):
    """It doesn't find a key again."""

    def altered(self, look: Look, sight: Sight, writes: Writes) -> Writes:
        """Rows without their keys."""
        return attrs.evolve(writes, rows=tuple(attrs.evolve(row, key="") for row in writes.rows))


class NumbersByOffset(Altering):
    """It takes the offset for the index."""

    def altered(self, look: Look, sight: Sight, writes: Writes) -> Writes:
        """Rows with another index."""
        return attrs.evolve(writes, rows=tuple(attrs.evolve(row, index=row.offset - 1) for row in writes.rows))


class ForgetsAcknowledgements(Altering):
    """It keeps progress with the fold only."""

    def altered(self, look: Look, sight: Sight, writes: Writes) -> Writes:
        """Without a fold, nothing."""
        return writes if writes.kept is None or writes.kept.fold is not None else attrs.evolve(writes, kept=None)


@pytest.mark.parametrize(
    ("store", "scope", "actions"),
    [
        (LosesTheMark, "offsets", {"reserve"}),
        (ForgetsKeys, "keys", {"append"}),
        (NumbersByOffset, "offsets", {"append", "revive"}),
        (ForgetsAcknowledgements, "following", {"process"}),
    ],
)
def test_a_bad_store_is_found(store: Callable[[], MemoryEvents], scope: str, actions: set[str]) -> None:
    """A store that loses the mark, keys, indices or acknowledgements is told from the machine by what it has."""
    done = simulated(lambda: JournalDriver(StreamMemoryDisk(store)), 200, scope)
    assert isinstance(done.failure, Divergence)
    assert done.failure.action in actions


def test_misuse_is_told() -> None:
    """A driver that was not reset, an unknown action and a policy of another kind are refused with what to do."""
    refuses_misuse(JournalDriver(), JournalPolicy(), "_state", "state", "taken")
