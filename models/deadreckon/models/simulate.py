"""Seeded random walks of a machine and an implementation, side by side.

A simulation prefers what no walk has done yet, and refusals for reasons that were tried least. With the reachable graph
at hand it heads for the nearest step that is left, so that a small graph is covered whole.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import attrs

from deadreckon.spec import EnvironmentFault, Machine, Scope

from .coverage import Coverage, Reachable, Recorder
from .driver import Driver, DriverMaker, Ground, Taken, alike
from .walk import Walk

Tried = Counter[tuple[str, str, str]]
"""How often each reason of a refusal was tried: action, rule and why."""


@attrs.frozen
class Advance:
    """Where a simulation stands."""

    runs: int
    steps: int
    coverage: Coverage
    seconds: float


@attrs.frozen
class Simulation:
    """What a simulation found. The same arguments and seed give the same.

    Attributes:
        runs: walks that were begun.
        steps: steps that were taken, refusals that were tried included.
        failure: what failed, on the shortest walk that was found; None if nothing did.
        walk: that walk.
        repeatable: whether the failure comes again from a new driver. If not, a reset does not forget everything, or
            the implementation depends on more than what it is told.
    """

    runs: int
    steps: int
    seed: int
    coverage: Coverage
    seconds: float
    failure: Exception | None = None
    walk: tuple[Taken, ...] = ()
    repeatable: bool = True


PROBES_ONE_IN = 8
"""One step in so many asks for what the machine refuses."""

STRAYS_ONE_IN = 4
"""One step in so many is drawn without regard to what is covered, so that a walk is not held on one way for ever."""

LAST_RESORT = 2**31
"""How far off a new step counts as that leads nowhere else, such as a last death: everything else comes first."""

REPLAYS_MAX = 500
"""How often a failing walk is run again, at most, to shorten it."""


def simulate(
    machine: Machine,
    driver_factory: DriverMaker,
    *,
    runs: int,
    steps: int,
    seed: int,
    scope: Scope | None = None,
    reachable: Reachable | None = None,
    recorder: Recorder | None = None,
    on_progress: Callable[[Advance], None] | None = None,
) -> Simulation:
    """Walk *machine* and an implementation side by side, at random, until something fails.

    Args:
        machine: the machine.
        driver_factory: makes the driver; one serves all runs, further ones shorten a failure.
        runs: how many walks.
        steps: how long each is at most; it ends early where nothing is possible within the scope.
        seed: decides every choice.
        scope: bounds and policy; the machine's first scope by default.
        reachable: the graph, of the same machine and scope: walks then head for what is not covered, and fractions are
            known.
        recorder: goes on from what was covered before; then *reachable* is the recorder's.
        on_progress: called a few times a second.

    Raises:
        EnvironmentFault: of the driver.
    """
    if recorder is None:
        recorder = Recorder(reachable.ground if reachable else Ground(machine, scope), reachable)
    return _Simulator(recorder, driver_factory, random.Random(seed)).run(runs, steps, seed, on_progress)


class _Simulator:
    def __init__(self, recorder: Recorder, factory: DriverMaker, chance: random.Random) -> None:
        self.recorder = recorder
        self.ground = recorder.ground
        self.factory = factory
        self.chance = chance
        self.started = time.monotonic()
        self.next_report = 0.0
        self.steps = 0
        self.tried = Tried()

    def run(self, runs: int, steps: int, seed: int, on_progress: Callable[[Advance], None] | None) -> Simulation:
        done, failure = 0, None
        walk: tuple[Taken, ...] = ()
        driver = self.factory()
        try:
            while done < runs and failure is None:
                done += 1
                failure, walk = self._one(driver, steps)
                self._report(done, on_progress)
        finally:
            driver.close()
        repeatable = True
        if failure is not None:
            failure, walk, repeatable = shortened(self.ground, self.factory, failure, walk)
        return Simulation(
            done, self.steps, seed, self.recorder.coverage, time.monotonic() - self.started, failure, walk, repeatable
        )

    def _report(self, done: int, on_progress: Callable[[Advance], None] | None) -> None:
        now = time.monotonic()
        if on_progress is not None and now > self.next_report:
            self.next_report = now + 0.25
            on_progress(Advance(done, self.steps, self.recorder.coverage, now - self.started))

    def _one(self, driver: Driver, steps: int) -> tuple[Exception | None, tuple[Taken, ...]]:
        walk: Walk | None = None
        try:
            walk = Walk(self.ground, driver, recorder=self.recorder, made_by=self.factory)
            for _ in range(steps):
                if not self._step(walk):
                    break
        except EnvironmentFault:
            raise
        except Exception as failure:
            return failure, tuple(walk.taken) if walk else ()
        finally:
            self.steps += len(walk.taken) if walk else 0
        return None, ()

    def _step(self, walk: Walk) -> bool:
        """One step, and sometimes a refusal before it; false where nothing is possible."""
        if self.chance.randrange(PROBES_ONE_IN) == 0 and (rare := rarest(walk, walk.closed(), self.tried)):
            label = self.chance.choice(list(rare))
            self.tried[rare[label]] += 1
            walk.probe(label)
        wanted = self._preferred(walk)
        if wanted is not None:
            walk.take(wanted)
        return wanted is not None

    def _preferred(self, walk: Walk) -> int | None:
        """What leads to a new step soonest; None if nothing does, or nothing is possible."""
        possible, ahead = walk.open(), self.recorder.ahead
        if ahead is None:
            new = [one for one in possible if self._is_new(walk, one)]
            return self.chance.choice(new or list(possible)) if possible else None
        ahead.passing(walk.at)
        steps = {label: self._ahead(walk, label, ahead(after)) for label, after in possible.items()}
        hopeful = {label: count for label, count in steps.items() if count is not None}
        if not hopeful:
            return None
        if self.chance.randrange(STRAYS_ONE_IN) == 0:
            return self.chance.choice(list(hopeful))
        nearest = min(hopeful.values())
        return self.chance.choice([label for label, count in hopeful.items() if count == nearest])

    def _ahead(self, walk: Walk, label: int, distance: int | None) -> int | None:
        """How far off a new step is if *label* is taken; one that leads on to further ones is best."""
        if self._is_new(walk, label):
            return LAST_RESORT if distance is None else min(distance, 1)
        return None if distance is None else distance + 2

    def _is_new(self, walk: Walk, label: int) -> bool:
        return self.recorder.is_new(walk.at, self.ground.instances[label].action, walk.open()[label])


def rarest(walk: Walk, closed: Sequence[int], tried: Tried) -> dict[int, tuple[str, str, str]]:
    """What is refused for the reasons that were tried least, so that guards which seldom decide get their turn."""
    refusals = {label: walk.ground.refusal(walk.at, label) for label in closed}
    reasons = {label: (one.event, one.rule, one.why) for label, one in refusals.items()}
    least = min((tried[reason] for reason in reasons.values()), default=0)
    return {label: reason for label, reason in reasons.items() if tried[reason] == least}


def shortened(
    ground: Ground, factory: DriverMaker, failure: Exception, walk: tuple[Taken, ...]
) -> tuple[Exception, tuple[Taken, ...], bool]:
    """Leave out as many steps as can be, ever smaller pieces at a time, while it still fails in the same way.

    The last part of the result is whether it fails again at all, from a new driver.
    """
    again = _replayed(ground, factory, walk)
    if again is None or not alike(again[0], failure):
        return failure, walk, False
    failure, walk = again
    tries, size = REPLAYS_MAX, max(1, len(walk) // 2)
    while tries > 0:
        before = len(walk)
        for start in range(len(walk) - size, -1, -size):
            tries -= 1
            shorter = _replayed(ground, factory, (*walk[:start], *walk[start + size :]))
            if shorter is not None and len(shorter[1]) < len(walk) and alike(shorter[0], failure):
                failure, walk = shorter
        if size == 1 and len(walk) == before:
            break
        size = max(1, size // 2)
    return failure, walk, True


def _replayed(
    ground: Ground, factory: DriverMaker, steps: Sequence[Taken]
) -> tuple[Exception, tuple[Taken, ...]] | None:
    """How a new driver fails on *steps*, those left out that the machine sees otherwise by now; None if not."""
    driver = factory()
    walk: Walk | None = None
    try:
        walk = Walk(ground, driver, made_by=factory)
        for one in steps:
            if one.label in walk.open() and one.refused_by is None:
                walk.take(one.label)
            elif one.refused_by is not None and one.label in walk.closed():
                walk.probe(one.label)
    except EnvironmentFault:
        raise
    except Exception as failure:
        return failure, tuple(walk.taken) if walk else ()
    finally:
        driver.close()
    return None
