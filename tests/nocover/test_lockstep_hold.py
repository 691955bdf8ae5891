"""The reference implementation of the hold does, step by step, what the machine says: in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import attrs
import pytest

from deadreckon.impl.hold_driver import HoldDriver, in_files
from deadreckon.impl.hold_journal import Change, KeyChange, Moment, Receipt, Written
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.models.coverage import Coverage, Recorder
from deadreckon.models.driver import Divergence, Ground
from deadreckon.models.simulate import Simulation, simulate
from deadreckon.spec import Refused
from deadreckon.spec.hold_state import HoldPolicy, Release, Wait
from deadreckon.spec.machines import hold
from tests.nocover.lockstep import covered, refuses_misuse

SCOPES = {scope.name: scope for scope in hold.scopes}


@cache
def ground(scope: str) -> Ground:
    """The machine, compiled under a scope once."""
    return Ground(hold, SCOPES[scope])


def simulated(make: Callable[[], HoldDriver], scope: str, runs: int) -> Simulation:
    """Seeded walks of a driver."""
    return simulate(hold, make, runs=runs, steps=50, seed=1, recorder=Recorder(ground(scope)))


def walked(make: Callable[[], HoldDriver], scope: str, runs: int) -> Coverage:
    """Seeded walks, which must not fail; what they covered."""
    return covered(simulated(make, scope, runs))


@pytest.mark.parametrize(
    ("scope", "runs", "states"),
    [("failing", 150, 1_200), ("signing", 40, 300), ("sharing", 60, 600), ("resuming", 100, 300)],
)
def test_in_memory(scope: str, runs: int, states: int) -> None:
    """H1 to H16: in memory, with outages and doors that die, each step does and refuses what the machine does."""
    assert walked(HoldDriver, scope, runs).states_seen > states


@pytest.mark.parametrize("scope", sorted(SCOPES))
def test_in_a_file(scope: str, tmp_path: Path) -> None:
    """H1 to H16: in an SQLite file the same holds."""
    assert walked(lambda: HoldDriver(in_files(tmp_path)), scope, 8).states_seen > 50


class LosesMarks(MemoryJournal):
    """A journal that does not keep the start of a release."""

    async def append(
        self, hold_id: str, change: Change, *, door: int | None = None, key: str = "", body: str = ""
    ) -> Receipt:
        """Without the mark."""

        def lossy(moment: Moment) -> Written:
            written = change(moment)
            kept = tuple(Release.NONE if one is Release.STARTED else one for one in written.held.hold.releases)
            held = attrs.evolve(written.held, hold=attrs.evolve(written.held.hold, releases=kept))
            return attrs.evolve(written, held=held)

        return await super().append(hold_id, lossy, door=door, key=key, body=body)


class TakesLateDecisions(MemoryJournal):
    """A journal that judges a decision as if it had come by the deadline."""

    async def append(
        self, hold_id: str, change: Change, *, door: int | None = None, key: str = "", body: str = ""
    ) -> Receipt:
        """In time, always."""

        def lenient(moment: Moment) -> Written:
            if moment.held is None or door is not None:
                return change(moment)
            return change(attrs.evolve(moment, now_ms=min(moment.now_ms, moment.held.hold.deadline_at_ms)))

        return await super().append(hold_id, lenient, door=door, key=key, body=body)


class KeepsRevokedKeys(MemoryJournal):
    """A journal in which keys come and never go."""

    async def change_key(self, change: KeyChange) -> None:
        """Only the adding."""
        if change.active:
            await super().change_key(change)


class SkipsPastTheOutage(HoldDriver):
    """A door whose wait ends in an outage."""

    def do(self, action: str, /, **inputs: object) -> None:
        """An outage ends the wait."""
        super().do(action, **inputs)
        if action == "wait_fails":
            steps = self._places[int(str(inputs["index"]))].steps
            steps.memory = attrs.evolve(steps.memory, wait=Wait.IDLE)


def found(make: Callable[[], HoldDriver], scope: str) -> Divergence:
    """The divergence that walks find, after at most a few steps."""
    done = simulated(make, scope, 150)
    assert isinstance(done.failure, Divergence)
    assert done.repeatable
    assert len(done.walk) <= 8
    return done.failure


def test_a_lost_mark_is_found() -> None:
    """A release whose start is not durable is told from the machine (H4)."""
    failure = found(lambda: HoldDriver(LosesMarks), "sharing")
    assert failure.action == "start_release"


def test_a_late_decision_is_found() -> None:
    """A decision that is accepted after the deadline is told from the machine (H2)."""
    failure = found(lambda: HoldDriver(TakesLateDecisions), "failing")
    assert (failure.action, failure.rule) == ("decide", "H2")


def test_a_key_that_is_not_revoked_is_found() -> None:
    """A key that stays active is told from the machine (H11)."""
    assert found(lambda: HoldDriver(KeepsRevokedKeys), "signing").action in {"change_keys", "decide"}


def test_a_wait_that_an_outage_ends_is_found() -> None:
    """A hold that an outage takes the wait from is told from the machine (H9)."""
    assert found(SkipsPastTheOutage, "failing").action == "wait_fails"


def test_misuse_is_told() -> None:
    """A driver that was not reset, an unknown action and a policy of another kind are refused with what to do."""
    refuses_misuse(HoldDriver(), HoldPolicy(), "take_up", "read")


def test_what_is_played_refuses_without_a_change() -> None:
    """A door that died already, a hold that nobody asked for, and a journal that is away refuse, and nothing changes."""
    driver = HoldDriver()
    try:
        driver.reset(HoldPolicy())
        driver.do("journal_fails")
        before = driver.observe()
        for action, inputs in (
            ("boot", {}),
            ("journal_fails", {}),
            ("ask", {"index": 0, "acknowledged": True}),
            ("ask", {"index": 0, "acknowledged": False}),
            ("detach", {"index": 1}),
            ("lose_track", {"index": 1, "request": 0}),
            ("judge", {"index": 0, "source": 1}),
        ):
            with pytest.raises(Refused):
                driver.do(action, **inputs)
            assert driver.observe() == before
    finally:
        driver.close()
