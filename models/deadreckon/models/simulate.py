"""Walk a machine and an implementation side by side: :class:`Walk`, and seeded random walks of it.

A simulation prefers what no walk has done yet, and refusals for reasons that were tried least. With the reachable graph
at hand it heads for the nearest step that is left, so that a small graph is covered whole.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import attrs

from deadreckon.spec import EnvironmentFault, Kind, Machine, Refused, Scope

from .coverage import Coverage, Reachable, Recorder
from .driver import Difference, Divergence, Driver, DriverMaker, Ground, RuleBroken, Taken, alike, at_once, program
from .layout import Flat


class Walk:
    """A machine and an implementation, side by side. After every step both are compared, and the rules are judged.

    Args:
        ground: the machine.
        driver: the implementation; it is reset. Whoever made it closes it.
        recorder: counts what is covered.
        made_by: what made the driver, for the program that repeats a failure.

    Raises:
        Divergence: the implementation does not begin in an initial state of the machine.
    """

    def __init__(
        self, ground: Ground, driver: Driver, *, recorder: Recorder | None = None, made_by: DriverMaker | None = None
    ) -> None:
        self.ground = ground
        self.driver = driver
        self.recorder = recorder
        self.taken: list[Taken] = []
        self._made_by = made_by
        self._own = frozenset(at_once(driver))
        self._claims = [
            (rule, ground.code.claims.get(rule.id), ground.code.steps.get(rule.id))
            for rule in ground.machine.rules
            if rule.kind is Kind.ALWAYS
        ]
        self.at = ground.code.initial[0]
        self._open: dict[int, Flat] = {}
        self.reset()

    def reset(self) -> None:
        """Begin the walk anew, on both sides.

        Raises:
            Divergence: the implementation does not begin in an initial state of the machine.
        """
        self.taken.clear()
        self.driver.reset(self.ground.scope.policy)
        seen = self.driver.observe()
        starts = {start: self.ground.differences(start, seen) for start in self.ground.code.initial}
        self.at = min(starts, key=lambda start: len(starts[start]))
        if starts[self.at]:
            what = f"at the start, {'; '.join(map(str, starts[self.at]))}"
            raise self._divergence(what, None, differences=starts[self.at])
        self._arrive(self.at)
        self._open = self.ground.offered(self.at, self._own)

    def open(self) -> Mapping[int, Flat]:
        """What may be taken next: label, and the state after it. Nothing in it leaves the scope."""
        return self._open

    def closed(self) -> list[int]:
        """What the machine refuses here, as labels."""
        return [label for label in self.ground.closed(self.at) if self.ground.instances[label].action not in self._own]

    def take(self, label: int) -> None:
        """Take an instance on both sides.

        Raises:
            Divergence: the implementation refuses it, or its state differs afterwards.
            RuleBroken: the machine breaks a rule.
        """
        instance, inputs = self.ground.instances[label], self.ground.inputs(label)
        self.taken.append(Taken(label))
        try:
            self._do(instance.action, inputs)
        except Refused as refusal:
            rule = f" by {refusal.rule}" if refusal.rule else ""
            what = f"{instance.name} is refused{rule} ({refusal.why}), the machine allows it"
            raise self._divergence(what, label, rule=refusal.rule) from refusal
        for own, after in self.ground.chain(label, self._open[label], self._own):
            self._move(own, after)
        self._compare(f"after {instance.name}", label)
        self._open = self.ground.offered(self.at, self._own)

    def probe(self, label: int) -> None:
        """Ask the implementation for what the machine refuses: it must refuse too, by the same rule, unchanged.

        Raises:
            Divergence: it does not.
        """
        instance, inputs = self.ground.instances[label], self.ground.inputs(label)
        expected = self.ground.refusal(self.at, label)
        self.taken.append(Taken(label, expected.rule))
        found: Refused | None = None
        try:
            self._do(instance.action, inputs)
        except Refused as refusal:
            found = refusal
        if found is None or found.rule not in ("", expected.rule):
            done = "is allowed" if found is None else f"is refused by {found.rule} ({found.why})"
            what = f"{instance.name} {done}, the machine refuses it by {expected.rule} ({expected.why})"
            raise self._divergence(what, label, rule=expected.rule)
        self._compare(f"after {instance.name} was refused by {expected.rule}", label)

    def program(self, differences: Sequence[Difference] = ()) -> str:
        """Python that repeats this walk and shows how it failed."""
        return program(self.ground, self.taken, self._made_by, differences)

    def _do(self, action: str, inputs: Mapping[str, object]) -> None:
        try:
            self.driver.do(action, **inputs)
        except (Refused, EnvironmentFault):
            raise
        except Exception as error:
            error.add_note(f"{action} failed. To repeat it:\n\n{self.program()}")
            raise

    def _compare(self, when: str, label: int) -> None:
        differences = self.ground.differences(self.at, self.driver.observe())
        if differences:
            raise self._divergence(f"{when}, {'; '.join(map(str, differences))}", label, differences=differences)

    def _divergence(
        self, what: str, label: int | None, *, rule: str = "", differences: tuple[Difference, ...] = ()
    ) -> Divergence:
        instance = None if label is None else self.ground.instances[label]
        return Divergence(
            what,
            step="reset()" if instance is None else instance.name,
            action="" if instance is None else instance.action,
            inputs={} if label is None else self.ground.inputs(label),
            rule=rule,
            differences=differences,
            program=self.program(differences),
        )

    def _move(self, label: int, after: Flat) -> None:
        before, self.at = self.at, after
        instance = self.ground.instances[label]
        for rule, _, steps in self._claims:
            if steps is not None and not steps[label](before):
                raise RuleBroken(rule, step=instance.name, program=self.program())
        if self.recorder is not None:
            self.recorder.step(before, instance.action, after)
        self._arrive(after, instance.name)

    def _arrive(self, at: Flat, step: str = "the initial state") -> None:
        for rule, holds, _ in self._claims:
            if holds is not None and not holds(at):
                raise RuleBroken(rule, step=step, program=self.program())
        if self.recorder is not None:
            self.recorder.visit(at)


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
