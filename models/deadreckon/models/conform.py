"""Hold an implementation against a machine: Hypothesis chooses the walks, a failure is made as short as it can be.

    def test_mine():
        conform(incident, CommandDriver(["node", "driver.mjs"]))

A driver in another process, or any :class:`~.driver.Driver`. The error that ends a failing test holds the steps in
numbers, with what each changed on both sides. A driver that fails by itself raises a
:class:`~.foreign.DriverFault`: then nothing is known of the implementation.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs

from deadreckon.spec import CallerError, EnvironmentFault, Machine, Scope, SpecError

from .conformance import RUNS, SEEDS, STEPS, Conformance, story_of
from .coverage import Reachable, Recorder
from .driver import Driver, DriverMaker, Failure, Ground, Lack, Unable, at_once, cannot, leaves, never_refuses
from .explorer import Bounds
from .foreign import CommandDriver, DriverFault
from .simulate import Advance, shortened
from .stateful import stateful

try:
    from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
    from hypothesis.errors import Flaky
    from hypothesis.stateful import run_state_machine_as_test
except ModuleNotFoundError as missing:
    raise EnvironmentFault("conform needs Hypothesis: pip install 'deadreckon[check]'") from missing

SMALL = 5_000
"""Graphs of so many states are explored before the walks, unless told: half a second."""

BEAT_S = 0.25
"""How often progress is told."""


def conform(
    machine: Machine,
    driver: Driver | DriverMaker | CommandDriver,
    *,
    examples: int = RUNS,
    steps: int = STEPS,
    scope: Scope | str | None = None,
    seed: int | None = None,
    steer: bool = False,
) -> Conformance:
    """Walk an implementation beside *machine*; for tests.

    Args:
        machine: the machine.
        driver: the implementation: a program, a driver, or what makes one. It is closed at the end.
        examples: how many walks.
        steps: how long each is at most.
        scope: bounds and policy of the walks, or the name of one of the machine's; its first scope by default.
        seed: repeats the walks of an earlier run; another one each time by default.
        steer: explore the machine's whole graph first, so that walks begin anywhere in it; small graphs are in any case.

    Raises:
        Divergence: the implementation does not do what the machine says.
        RuleBroken: the machine breaks one of its rules.
        DriverFault: the driver program failed, or shows nothing that could be compared.
        CallerError: there is no such scope.
    """
    found = examine(machine, driver, examples=examples, steps=steps, scope=scope, seed=seed, steer=steer)
    if found.failure is not None:
        found.failure.what = "\n".join(found.lines())
        raise found.failure
    return found


def examine(
    machine: Machine,
    driver: Driver | DriverMaker | CommandDriver,
    *,
    examples: int = RUNS,
    steps: int = STEPS,
    scope: Scope | str | None = None,
    seed: int | None = None,
    steer: bool = False,
    on_progress: Callable[[Advance], None] | None = None,
) -> Conformance:
    """As :func:`conform`, but a failure is returned, not raised. *on_progress* is called a few times a second."""
    kept = _Kept(_made(machine, driver), Ground(machine, _scope(machine, scope)), on_progress)
    try:
        reachable = _graph(kept, steer)
        return _examined(kept, reachable, examples, steps, random.randrange(SEEDS) if seed is None else seed)
    finally:
        kept.let_go()


def _scope(machine: Machine, scope: Scope | str | None) -> Scope | None:
    if not isinstance(scope, str):
        return scope
    for one in machine.scopes:
        if one.name == scope:
            return one
    known = ", ".join(one.name for one in machine.scopes)
    raise CallerError(f"machine {machine.name} has no scope {scope!r}: one of {known}")


def _graph(kept: _Kept, steer: bool) -> Reachable | None:
    """What can be reached with what the implementation has; None if it is large and wasn't asked for."""
    ground = kept.recorder.ground
    kept.driver.reset(ground.scope.policy)
    bounds = None if steer else Bounds(max_states=SMALL)
    own, lacks = at_once(kept.driver), cannot(kept.driver)
    try:
        reachable = Reachable(ground.machine, ground.scope, at_once=own, cannot=lacks, bounds=bounds)
    except SpecError:
        if steer:
            raise
        return None
    kept.recorder = Recorder(reachable.ground, reachable)
    return reachable


def _made(machine: Machine, driver: Driver | DriverMaker | CommandDriver) -> Driver:
    if isinstance(driver, CommandDriver):
        return driver.of(machine)
    return driver() if callable(driver) else driver


class _Ended(BaseException):
    """Carries a fault of the environment past Hypothesis, which would go on and try to shrink it."""

    def __init__(self, fault: EnvironmentFault) -> None:
        super().__init__()
        self.fault = fault


class _Kept:
    """One driver for all walks: calling it makes no new one, closing it does nothing. Counts, and sees what is shown."""

    def __init__(self, driver: Driver, ground: Ground, on_progress: Callable[[Advance], None] | None) -> None:
        self.driver = driver
        self.recorder = Recorder(ground)
        self.runs = self.steps = 0
        self.shown: set[str] = set()
        self.done: Counter[str] = Counter()
        self.unable: Counter[str] = Counter()
        self.started = self._beaten = time.monotonic()
        self._on_progress = on_progress

    def __call__(self) -> _Kept:
        return self

    @property
    def at_once(self) -> tuple[str, ...]:
        """That of the driver."""
        return at_once(self.driver)

    @property
    def cannot(self) -> tuple[Lack, ...]:
        """That of the driver."""
        return cannot(self.driver)

    @property
    def never_refuses(self) -> tuple[str, ...]:
        """That of the driver."""
        return never_refuses(self.driver)

    def reset(self, policy: object) -> None:
        """Begin another walk."""
        self.runs += 1
        self._beat()
        try:
            self.driver.reset(policy)
        except EnvironmentFault as fault:
            raise _Ended(fault) from fault

    def do(self, action: str, /, **inputs: object) -> None:
        """Pass it on."""
        self.steps += 1
        try:
            self.driver.do(action, **inputs)
        except Unable:
            self.unable[action] += 1
            raise
        except EnvironmentFault as fault:
            raise _Ended(fault) from fault
        self.done[action] += 1

    def observe(self) -> object:
        """Pass it on, and remember which fields are shown."""
        try:
            seen = self.driver.observe()
        except EnvironmentFault as fault:
            raise _Ended(fault) from fault
        self.shown.update(seen if isinstance(seen, Mapping) else dict(leaves(seen)))
        return seen

    def close(self) -> None:
        """Nothing yet: another walk may follow."""

    def let_go(self) -> None:
        """Close the driver."""
        self.driver.close()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    def _beat(self) -> None:
        if self._on_progress is not None and time.monotonic() > self._beaten + BEAT_S:
            self._beaten = time.monotonic()
            self._on_progress(Advance(self.runs, self.steps, self.recorder.coverage, self.seconds))


def _examined(kept: _Kept, reachable: Reachable | None, examples: int, steps: int, chosen: int) -> Conformance:
    ground = kept.recorder.ground
    failure: Failure | None = None
    try:
        _walk(kept, reachable, examples, steps, chosen)
    except _Ended as ended:
        raise ended.fault from ended.fault.__cause__
    except Failure as broken:
        failure = broken
    except Flaky as flaky:
        # It failed, and when Hypothesis took the same steps again it did not.
        failure = next((one for one in getattr(flaky, "exceptions", ()) if isinstance(one, Failure)), None)
        if failure is None:
            raise
    found = Conformance(
        ground.machine,
        ground.scope,
        kept.runs,
        kept.steps,
        kept.seconds,
        chosen,
        kept.recorder.coverage,
        tuple(field.path for field in ground.fields if field.path in kept.shown),
        tuple(field.path for field in ground.fields if field.path not in kept.shown),
        kept.at_once,
        kept.cannot,
        kept.never_refuses,
        MappingProxyType({action: (count, kept.done[action]) for action, count in sorted(kept.unable.items())}),
    )
    if failure is None:
        if not found.compared:
            raise DriverFault("the driver shows no field of the state, so that nothing was compared")
        if not found.coverage.edges_seen:
            raise DriverFault(f"the driver took no step of {found.runs} walks, so that nothing was shown")
        return found
    return _explained(kept, found, failure)


def _walk(kept: _Kept, reachable: Reachable | None, examples: int, steps: int, chosen: int) -> None:
    """Let Hypothesis walk."""
    side_by_side = seed(chosen)(
        stateful(kept.recorder.ground.machine, kept, reachable=reachable, recorder=kept.recorder)
    )
    walks = settings(
        max_examples=examples,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        print_blob=False,
    )
    run_state_machine_as_test(side_by_side, settings=walks)


def _explained(kept: _Kept, found: Conformance, failure: Failure) -> Conformance:
    """The failure on a walk that is as short as can be, and the story of that walk."""
    try:
        shorter, walk, again = shortened(kept.recorder.ground, kept, failure, failure.walk)
        assert isinstance(shorter, Failure)
        shorter.walk = walk
        story = story_of(kept.recorder.ground, kept, walk)
    except _Ended as ended:
        raise ended.fault from ended.fault.__cause__
    return attrs.evolve(found, failure=shorter, story=story, repeatable=again)
