"""The reference implementation of the keepalive does, step by step, what the machine says: in memory and in a file."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from deadreckon.impl.keepalive_driver import KeepaliveDriver, KeepaliveFileDisk, KeepaliveMemoryDisk
from deadreckon.impl.keepalive_memory import MemoryKeepalive
from deadreckon.impl.keepalive_store import Change, Filed
from deadreckon.models.driver import Divergence, MachineDriver
from deadreckon.models.simulate import Simulation, simulate
from deadreckon.models.stateful import stateful
from deadreckon.spec import Refused
from deadreckon.spec.keepalive_state import KeepalivePolicy, State
from deadreckon.spec.machines import keepalive
from tests.nocover.lockstep import EXAMPLES, Blade, Call, Cut, covered, refuses_misuse

SCOPES = [scope.name for scope in keepalive.scopes]
LONGER = settings(EXAMPLES, stateful_step_count=40)


def simulated(make: Callable[[], KeepaliveDriver], scope: str, runs: int) -> Simulation:
    """Seeded walks of a driver, which prefer what is new."""
    (chosen,) = (one for one in keepalive.scopes if one.name == scope)
    return simulate(keepalive, make, runs=runs, steps=60, seed=1, scope=chosen)


def walked(make: Callable[[], KeepaliveDriver], scope: str, runs: int) -> int:
    """Seeded walks, which must not fail; how many states they have seen."""
    return covered(simulated(make, scope, runs)).states_seen


@pytest.fixture
def in_file(tmp_path: Path) -> Callable[[], KeepaliveDriver]:
    """What makes drivers of a store in a file."""
    return lambda: KeepaliveDriver(KeepaliveFileDisk(tmp_path))


@pytest.mark.parametrize("scope", SCOPES)
def test_in_memory(scope: str) -> None:
    """K1 to K12: in memory, with deaths at any point, each step does and refuses what the machine does."""
    assert walked(KeepaliveDriver, scope, 150) > 500


@pytest.mark.parametrize("scope", SCOPES)
def test_in_a_file(in_file: Callable[[], KeepaliveDriver], scope: str) -> None:
    """K1 to K12: in an SQLite file, opened anew after each death of its process, the same holds."""
    assert walked(in_file, scope, 6) > 50


def test_by_hypothesis_in_memory() -> None:
    """Hypothesis finds no difference in memory."""
    run_state_machine_as_test(stateful(keepalive, KeepaliveDriver), settings=LONGER)


def test_by_hypothesis_in_a_file(in_file: Callable[[], KeepaliveDriver]) -> None:
    """Hypothesis finds no difference in a file."""
    run_state_machine_as_test(stateful(keepalive, in_file), settings=settings(LONGER, max_examples=6))


ACTIONS: tuple[Call, ...] = (
    ("boot", {}),
    ("track", {"slot": 0, "obliges": True}),
    ("track", {"slot": 1, "obliges": False}),
    ("settle", {"slot": 0}),
    ("settle_failed", {"slot": 1}),
    ("fire", {"jitter_ms": 0}),
    ("stray_fire", {}),
    ("arm", {}),
    ("report", {}),
    ("act", {"slot": 0}),
    ("stand_down", {}),
    ("succeed", {}),
    ("fail", {}),
    ("confirm", {}),
    ("reset", {}),
    ("ask_to_stop", {}),
    ("end", {"code_zero": True}),
    ("recreate", {}),
    ("tick", {"elapsed_ms": 1}),
    ("tick", {"elapsed_ms": 2}),
)


REFUSABLE = [one for one in ACTIONS if one[0] in ("boot", "stand_down", "arm", "act", "settle", "succeed")]
"""What is also asked for when it can't be."""


class Killable(KeepaliveDriver):
    """A driver whose process can be killed at any time."""

    def kill(self) -> None:
        """SIGKILL."""
        self._runner.run(self._gone())


class Pair:
    """The machine and the implementation, side by side, over a store whose process can die within an action."""

    def __init__(self, policy: KeepalivePolicy) -> None:
        self.blade = Blade()
        self.own = Killable(KeepaliveMemoryDisk(lambda: MemoryKeepalive(self.blade.hook)))
        self.machine = MachineDriver(keepalive)
        self.scratch = MachineDriver(keepalive)
        for driver in (self.machine, self.own):
            driver.reset(policy)

    def take(self, action: str, inputs: Mapping[str, object]) -> bool:
        """Both take it, or refuse it; whether they took it."""
        taken = self.possible(self.machine, action, inputs)
        assert self.possible(self.own, action, inputs) == taken
        assert self.own.observe() == self.machine.state
        return taken

    def possible(self, driver: KeepaliveDriver | MachineDriver, action: str, inputs: Mapping[str, object]) -> bool:
        """One takes it, or refuses it."""
        try:
            driver.do(action, **inputs)
        except Refused:
            return False
        return True

    def open(self, action: str, inputs: Mapping[str, object]) -> bool:
        """Whether the machine would take it now."""
        self.scratch.policy, self.scratch.state = self.machine.policy, self.machine.state
        return self.possible(self.scratch, action, inputs)

    def dies_in(self, action: str, inputs: Mapping[str, object], at: str) -> bool:
        """The process dies at this point of an action, and another one boots; whether it came to that."""
        self.blade.at = at
        try:
            self.own.do(action, **inputs)
            return False
        except Refused:
            assert not at.endswith("after"), "a refused action writes nothing"
            return False
        except Cut:
            pass
        finally:
            self.blade.at = ""
        if at == "transact.after":  # the record is durable, so for the machine it has happened
            self.machine.do(action, **inputs)
        self.kill()
        return True

    def kill(self) -> None:
        """Death and the next boot."""
        self.own.kill()
        if isinstance(self.machine.state, State) and self.machine.state.alive:
            self.machine.do("die")
        for driver in (self.machine, self.own):
            driver.do("boot")
        assert self.own.observe() == self.machine.state


def weight(action: str) -> float:
    """How often an action is thought of: what ends everything is rare, so that walks get far."""
    return 0.1 if action in ("recreate", "end", "ask_to_stop", "reset") else 1


@pytest.mark.parametrize("at", ["transact.before", "transact.after"])
def test_death_between_the_two_writes(at: str) -> None:
    """K10, K11: who dies before the record, or between record and alarm, leaves what the next boot makes good."""
    chance = random.Random(1)
    policy = KeepalivePolicy(ladder_ms=(1, 2), plateau_ms=3, lead_ms=1, evidence_at=1, wedge_ms=3)
    deaths: set[str] = set()
    for _ in range(80):
        pair = Pair(policy)
        for _ in range(60):
            open_ones = [one for one in ACTIONS if chance.random() < weight(one[0]) and pair.open(*one)]
            action, inputs = chance.choice(open_ones)
            if action not in ("tick", "reset") and chance.random() < 0.1:
                deaths |= {action} if pair.dies_in(action, inputs, at) else set()
            else:
                assert pair.take(action, inputs)
            pair.take(*chance.choice(REFUSABLE))
        pair.own.close()
    assert deaths >= {"boot", "track", "settle", "fire", "report", "end", "arm", "act"}


class ForgetsTheCount(MemoryKeepalive):
    """A store that keeps no count."""

    async def transact(self, incarnation: int, host: str, change: Change) -> Filed:
        """Without the count."""

        def lossy(filed: Filed) -> Filed:
            after = change(filed)
            return attrs.evolve(after, record=attrs.evolve(after.record, revivals=0))

        return await super().transact(incarnation, host, lossy)


class NeverArms(MemoryKeepalive):
    """A platform that says it has set the alarm."""

    async def arm(self, incarnation: int, host: str, at_ms: int) -> bool:
        """Nothing."""
        return True


class FiresAgain(MemoryKeepalive):
    """A platform whose alarms are not used up."""

    async def use_up(self, incarnation: int, host: str, at_ms: int) -> bool:
        """Nothing."""
        return True


class ForgetsWhatIsOwed(MemoryKeepalive):
    """A store that keeps no obligations."""

    async def transact(self, incarnation: int, host: str, change: Change) -> Filed:
        """Without what is owed."""
        return await super().transact(incarnation, host, lambda filed: attrs.evolve(change(filed), owed=()))


class TellsAgain(MemoryKeepalive):
    """A store that loses the evidence."""

    async def transact(self, incarnation: int, host: str, change: Change) -> Filed:
        """Without evidence."""
        return await super().transact(incarnation, host, lambda filed: attrs.evolve(change(filed), evidence=()))


@pytest.mark.parametrize(
    ("store", "actions"),
    [
        (ForgetsTheCount, {"fire", "stray_fire"}),
        (NeverArms, {"track", "arm", "reset", "boot", "fire", "stray_fire"}),
        (FiresAgain, {"fire", "lose_alarm"}),
        (ForgetsWhatIsOwed, {"track"}),
        (TellsAgain, {"report"}),
    ],
)
def test_a_bad_store_is_found(store: Callable[[], MemoryKeepalive], actions: set[str]) -> None:
    """A store that forgets counts, obligations, evidence or alarms is told from the machine by what it shows."""
    done = simulated(lambda: KeepaliveDriver(KeepaliveMemoryDisk(store)), "climbing", 200)
    assert isinstance(done.failure, Divergence)
    assert done.failure.action in actions


def test_misuse_is_told() -> None:
    """A driver that was not reset, an unknown action and a policy of another kind are refused with what to do."""
    refuses_misuse(KeepaliveDriver(), KeepalivePolicy(), "state", "refresh")
