"""Seeded walks of machine and implementation side by side find every known-bad design, and can be repeated."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from deadreckon.models.coverage import Coverage, Reachable
from deadreckon.models.driver import Divergence, MachineDriver, RuleBroken, leaves
from deadreckon.models.simulate import Advance, Simulation, simulate
from deadreckon.spec import EnvironmentFault, Refused, SpecError
from deadreckon.spec.incident_state import State
from deadreckon.spec.machines import incident

SCOPES = {scope.name: scope for scope in incident.scopes}
BUDGETS = ("reset-on-progress", "sweep-erases-count")
"""Variants that need time and progress to show."""


@pytest.fixture(scope="module")
def graphs() -> Mapping[str, Reachable]:
    """The reachable graph of each scope; of the smallest also as it is for a store that syncs every write."""
    found = {name: Reachable(incident, scope) for name, scope in SCOPES.items()}
    return {**found, "synced": Reachable(incident, SCOPES["parking"], at_once=("sync",))}


class Sound(MachineDriver):
    """The incident, run by its own functions."""

    def __init__(self) -> None:
        super().__init__(incident)


class SyncsAtOnce(Sound):
    """A store that syncs every write."""

    at_once = ("sync",)

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action, then sync."""
        super().do(action, **inputs)
        assert isinstance(self.state, State)
        if self.state.buffered != self.state.durable:
            super().do("sync")


class SaysLittle(Sound):
    """An implementation whose count alone can be seen."""

    def observe(self) -> object:
        """The count."""
        assert isinstance(self.state, State)
        return {"durable.interrupted": self.state.durable.interrupted, "alive": self.state.alive}


class KnowsNoRules(Sound):
    """An implementation that refuses without saying by which rule."""

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action, or refuse."""
        try:
            super().do(action, **inputs)
        except Refused as refusal:
            raise Refused("", "no") from refusal


class Counts(Sound):
    """Sound, but the field in the subclass."""

    def observe(self) -> object:
        """Everything, as a mapping, with the deaths of the store doubled."""
        shown = dict(leaves(self.state))
        shown["durable.interrupted"] = 2 * incident_count(self.state)
        return shown


def incident_count(state: object) -> int:
    """The durable count."""
    assert isinstance(state, State)
    return state.durable.interrupted


class Forgetful(Sound):
    """A reset that does not forget that somebody lived."""

    def reset(self, policy: object) -> None:
        """Forget all but that."""
        lived = isinstance(self.state, State) and self.state.alive
        super().reset(policy)
        if lived:
            super().do("boot")


class Breaks(Sound):
    """An implementation that raises what is no refusal."""

    def do(self, action: str, /, **inputs: object) -> None:
        """Fail at the first crash."""
        if action == "crash":
            raise ZeroDivisionError(action)
        super().do(action, **inputs)


class DiskFull(Sound):
    """An implementation whose surroundings fail."""

    def observe(self) -> object:
        """Fail."""
        raise EnvironmentFault("no space left")


@pytest.mark.parametrize("driver", [Sound, SaysLittle, KnowsNoRules])
def test_a_sound_implementation_passes(driver: type[Sound], graphs: Mapping[str, Reachable]) -> None:
    """An implementation that does what the machine says fails on no walk, whether it shows all or little."""
    done = simulate(incident, driver, runs=100, steps=60, seed=1, reachable=graphs["overlap"])
    assert done.failure is None
    assert done.runs == 100


@pytest.mark.parametrize("name", [variant.name for variant in incident.variants])
def test_every_known_bad_design_is_told_from_the_machine(name: str, graphs: Mapping[str, Reachable]) -> None:
    """Each known-bad variant, run as an implementation, diverges within 1,500 walks, and again from a new driver."""
    bad = incident.variant(name)
    graph = graphs["budgets" if name in BUDGETS else "overlap"]
    done = simulate(incident, lambda: MachineDriver(bad), runs=1_500, steps=60, seed=3, reachable=graph)
    assert isinstance(done.failure, Divergence)
    assert done.repeatable
    assert len(done.walk) <= 16


def test_the_same_seed_gives_the_same(graphs: Mapping[str, Reachable]) -> None:
    """Equal seeds take equal steps; other seeds take others."""

    def walked(seed: int) -> tuple[object, ...]:
        done = simulate(incident, Sound, runs=20, steps=40, seed=seed, reachable=graphs["parking"])
        return done.runs, done.steps, done.coverage

    assert walked(1) == walked(1) != walked(2)


def test_a_failure_is_shortened_and_names_the_fields() -> None:
    """A failing walk is left with the steps that it needs, and the failure names fields with both values."""
    done = simulate(incident, Counts, runs=500, steps=60, seed=3)
    assert isinstance(done.failure, Divergence)
    assert [str(one) for one in done.failure.differences] == ["durable.interrupted is 2, the machine says 1"]
    assert done.failure.action == "sync"
    assert len(done.walk) == 6  # boot, begin, a death, boot, replay, sync


def test_heading_for_the_new_covers_more(graphs: Mapping[str, Reachable]) -> None:
    """With the graph at hand walks cover more than twice the states that as many walks without it do."""
    steered = simulate(incident, Sound, runs=150, steps=60, seed=1, reachable=graphs["overlap"]).coverage
    plain = simulate(incident, Sound, runs=150, steps=60, seed=1).coverage
    assert steered.states_seen > 2 * plain.states_seen
    assert plain.states is None


def test_actions_that_are_taken_at_once(graphs: Mapping[str, Reachable]) -> None:
    """What an implementation takes by itself is taken on the machine's side alone, and never asked for."""
    done = simulate(incident, SyncsAtOnce, runs=20, steps=60, seed=1, reachable=graphs["synced"])
    assert done.failure is None
    assert done.coverage.states_seen > 100


def test_a_small_graph_is_covered_whole(graphs: Mapping[str, Reachable]) -> None:
    """Walks go on until nothing is left: a scope of over a thousand states is covered to the last step."""
    done = simulate(incident, SyncsAtOnce, runs=1_200, steps=80, seed=1, reachable=graphs["synced"])
    assert done.coverage == Coverage(states_seen=1_375, states=1_375, edges_seen=3_382, edges=3_382)


def test_a_reset_that_does_not_forget_is_found() -> None:
    """A failure that a new driver does not show is reported as such."""
    done = simulate(incident, Forgetful, runs=50, steps=5, seed=1)
    assert isinstance(done.failure, Divergence)
    assert not done.repeatable
    assert str(done.failure).startswith("at the start, ")


def test_any_other_error_of_the_implementation_is_a_failure() -> None:
    """What is no refusal ends the simulation with that very error, and a program that repeats it."""
    done = simulate(incident, Breaks, runs=500, steps=60, seed=1)
    assert isinstance(done.failure, ZeroDivisionError)
    assert "driver.do('crash')" in done.failure.__notes__[0]
    assert len(done.walk) == 2


def test_a_fault_of_the_surroundings_is_passed_on() -> None:
    """A full disk is nobody's divergence."""
    with pytest.raises(EnvironmentFault, match="no space"):
        simulate(incident, DiskFull, runs=1, steps=1, seed=1)


def test_a_machine_that_breaks_its_own_rule_is_found() -> None:
    """The machine's rules are judged after every step, so that a wrong machine is found as well as a wrong driver."""
    bad = incident.variant("no-fence")
    done = simulate(bad, lambda: MachineDriver(bad), runs=500, steps=60, seed=1)
    assert isinstance(done.failure, RuleBroken)
    assert done.failure.rule == "C13"


def test_an_observation_of_an_unknown_field_is_refused() -> None:
    """A driver that shows a field which the machine does not have is told the names."""

    class Misspells(Sound):
        def observe(self) -> object:
            return {"durable.interupted": 0}

    done = simulate(incident, Misspells, runs=1, steps=1, seed=1)
    assert isinstance(done.failure, SpecError)
    assert "durable.interrupted" in done.failure.instead


def test_progress_is_told() -> None:
    """Whoever waits is told how far it is."""
    told: list[Advance] = []
    done: Simulation = simulate(incident, Sound, runs=3, steps=5, seed=1, on_progress=told.append)
    assert told[0].runs == 1
    assert done.seed == 1


class ReplaysInOneSlot(MachineDriver):
    """Replays in one slot, and no parking; asked for more, it fails."""

    cannot = ("park", ("replay", {"slot": 1}), ("replay", {"slot": 2}))

    def __init__(self) -> None:
        super().__init__(incident)

    def do(self, action: str, /, **inputs: object) -> None:
        """Take the action, if it exists."""
        assert action != "park"
        assert action != "replay" or inputs["slot"] == 0
        super().do(action, **inputs)


def test_what_an_implementation_lacks_is_never_asked() -> None:
    """Walks neither take nor try what the implementation says it doesn't have, with all inputs or with some."""
    found = simulate(incident, ReplaysInOneSlot, runs=40, steps=40, seed=3)
    assert found.failure is None
    assert found.steps > 1000
