"""Hypothesis finds where an implementation and the machine part, and prints a program that repeats it."""

from __future__ import annotations

import importlib
import sys
import unittest

import attrs
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from deadreckon.models.coverage import Reachable, Recorder
from deadreckon.models.driver import Divergence, MachineDriver, RuleBroken, leaves, words
from deadreckon.models.stateful import stateful
from deadreckon.spec import EnvironmentFault, Refused, SpecError
from deadreckon.spec.incident_state import State
from deadreckon.spec.machines import incident

FEW = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=60,
    stateful_step_count=25,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
"""The same examples everywhere, and no more than a few seconds of them."""

MANY = settings(FEW, max_examples=400)
"""Until something is found."""

GRAPH = Reachable(incident, incident.scopes[2])
"""The smallest scope of the incident."""


class Sound(MachineDriver):
    """The incident, run by its own functions."""

    def __init__(self) -> None:
        super().__init__(incident)

    @property
    def now(self) -> State:
        """The state."""
        assert isinstance(self.state, State)
        return self.state


class LosesAnEntry(Sound):
    """A sync in which the entry in the first slot gets lost."""

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action, and lose an entry."""
        super().do(action, **inputs)
        if action == "sync":
            kept = attrs.evolve(self.now.durable, attempts=(0, *self.now.durable.attempts[1:]))
            self.state = attrs.evolve(self.now, durable=kept)


class CountsTwice(Sound):
    """An admission that counts one more than died, but not on opening the record."""

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action, and count again what was counted."""
        before = self.now.buffered.interrupted
        super().do(action, **inputs)
        if action in ("replay", "deliver") and self.now.buffered.interrupted > before > 0:
            more = attrs.evolve(self.now.buffered, interrupted=self.now.buffered.interrupted + 1)
            self.state = attrs.evolve(self.now, buffered=more)


class NeverWaits(Sound):
    """Heavy work that does not wait for its entry to be durable."""

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action, also where the entry is not durable."""
        try:
            super().do(action, **inputs)
        except Refused as refusal:
            if (action, refusal.rule) != ("start_work", "C3"):
                raise


class MisnamesTheRule(Sound):
    """A refusal of a needless sync by the wrong rule."""

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action; refuse by another rule."""
        try:
            super().do(action, **inputs)
        except Refused as refusal:
            if action == "sync":
                raise Refused("C2", "nothing was written") from refusal
            raise


class RefusesTooMuch(Sound):
    """An implementation that takes no callback."""

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action, unless it is a callback's."""
        if action == "deliver":
            raise Refused("C10", "callbacks are not taken")
        super().do(action, **inputs)


class BeginsLate(Sound):
    """An implementation that begins with somebody alive."""

    def reset(self, policy: object) -> None:
        """Begin, and boot."""
        super().reset(policy)
        super().do("boot")


def found_by(driver: type[Sound], *, steer: bool = False) -> Divergence:
    """What Hypothesis finds in *driver*, made as short as it can."""
    with pytest.raises(Divergence) as raised:
        run_state_machine_as_test(stateful(incident, driver, reachable=GRAPH, steer=steer), settings=MANY)
    return raised.value


def test_a_sound_implementation_passes() -> None:
    """An implementation that does what the machine says passes, and the recorder knows what was covered."""
    recorder = Recorder(GRAPH.ground, GRAPH)
    run_state_machine_as_test(stateful(incident, Sound, reachable=GRAPH, recorder=recorder), settings=FEW)
    assert recorder.coverage.states == len(GRAPH.states)
    assert (recorder.coverage.of_states or 0) > 0.1


def test_runs_without_a_graph_begin_at_the_start() -> None:
    """The graph is not needed: without it each run begins in the initial state."""
    recorder = Recorder(GRAPH.ground, GRAPH)
    run_state_machine_as_test(stateful(incident, Sound, recorder=recorder), settings=FEW)
    assert recorder.coverage.states_seen > 50


@pytest.mark.parametrize(
    ("driver", "action", "what", "steps"),
    [
        (LosesAnEntry, "sync", "durable.attempts[0] is 0, the machine says ", 9),
        (CountsTwice, "replay", "buffered.interrupted is 3, the machine says 2", 13),
        (NeverWaits, "start_work", "is allowed, the machine refuses it by C3", 8),
        (MisnamesTheRule, "sync", "is refused by C2 (nothing was written), the machine refuses it by C3", 1),
        (RefusesTooMuch, "deliver", "is refused by C10 (callbacks are not taken), the machine allows it", 8),
        (BeginsLate, "", "at the start, incarnation is 1, the machine says 0; alive is true", 0),
    ],
)
def test_a_wrong_implementation_is_found(driver: type[Sound], action: str, what: str, steps: int) -> None:
    """Each wrong implementation is found, in few steps, and the failure says in words where they part."""
    failure = found_by(driver)
    assert what in str(failure)
    assert failure.action == action or {failure.action, action} == {"replay", "deliver"}
    assert failure.program.count("driver.do(") <= steps


def test_climbing_finds_it_too() -> None:
    """With steer, Hypothesis climbs towards runs that meet many states, and finds the same."""
    assert found_by(CountsTwice, steer=True).action in ("replay", "deliver")


def test_the_program_repeats_the_failure() -> None:
    """The program that a failure prints runs as it stands, and ends in the state that it reports."""
    failure = found_by(LosesAnEntry)
    names: dict[str, object] = {"LosesAnEntry": LosesAnEntry}
    exec(failure.program, names)
    driver = names["driver"]
    assert isinstance(driver, LosesAnEntry)
    shown = {path: words(value) for path, value in leaves(driver.observe())}
    assert [shown[one.path] for one in failure.differences] == [one.found for one in failure.differences]


def test_the_program_repeats_a_missing_refusal() -> None:
    """The last line of a program for a missing refusal is what should have been refused, and by what rule."""
    failure = found_by(NeverWaits)
    last = next(line for line in reversed(failure.program.splitlines()) if "driver.do" in line)
    assert last.startswith("with suppress(Refused): driver.do('start_work', slot=")
    assert last.endswith("to be refused by C3")
    exec(failure.program, {"NeverWaits": NeverWaits})


def test_steps_are_printed_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    """What Hypothesis prints of a failing run names the machine's actions."""
    with pytest.raises(Divergence) as raised:
        run_state_machine_as_test(stateful(incident, RefusesTooMuch), settings=MANY)
    printed = capsys.readouterr().out + "\n".join(getattr(raised.value, "__notes__", ()))
    assert "state = IncidentSideBySide()" in printed
    assert "state.step(choice=deliver(slot=" in printed


def test_a_machine_that_breaks_its_own_rule_is_found() -> None:
    """The machine's own rules are judged after every step."""
    bad = incident.variant("no-fence")
    with pytest.raises(RuleBroken, match="C13 is broken by call_from_the_dead"):
        run_state_machine_as_test(stateful(bad, lambda: MachineDriver(bad)), settings=MANY)


def test_a_graph_of_another_machine_is_refused() -> None:
    """Machine, scope and graph belong together."""
    with pytest.raises(SpecError, match="another machine or scope"):
        stateful(incident, Sound, scope=incident.scopes[0], reachable=GRAPH)


def test_every_driver_is_closed() -> None:
    """Each run makes a driver and closes it, also when it fails."""
    open_now: list[int] = [0]

    class Counted(RefusesTooMuch):
        def __init__(self) -> None:
            super().__init__()
            open_now[0] += 1

        def close(self) -> None:
            open_now[0] -= 1

    with pytest.raises(Divergence):
        run_state_machine_as_test(stateful(incident, Counted), settings=MANY)
    assert open_now == [0]


def test_hypothesis_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Hypothesis one is told what to install."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "deadreckon.models.stateful")
    with pytest.raises(EnvironmentFault, match=r"pip install 'deadreckon\[check\]'"):
        importlib.import_module("deadreckon.models.stateful")


def run_by_unittest(driver: type[Sound]) -> unittest.TestResult:
    """The outcome of the TestCase under unittest."""
    case = stateful(incident, driver, reachable=GRAPH).TestCase
    case.settings = MANY if driver is not Sound else FEW
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result


def test_it_works_under_unittest() -> None:
    """Under unittest a sound implementation passes, and a divergence is a failure, not an error."""
    assert run_by_unittest(Sound).wasSuccessful()
    result = run_by_unittest(LosesAnEntry)
    assert (len(result.failures), len(result.errors)) == (1, 0)
    assert "driver.do('sync')" in result.failures[0][1]


TestUnderPytest = stateful(incident, Sound, reachable=GRAPH).TestCase
TestUnderPytest.settings = FEW
