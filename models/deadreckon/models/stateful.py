"""Hypothesis walks a machine and an implementation side by side.

    TestIncident = stateful(incident, MyDriver).TestCase

Hypothesis chooses among what is possible, finds a walk on which the two differ, and makes it as short and as plain as
it can. The error it ends with holds a program that repeats the walk.

How choices are made, so that failures shrink well. A choice names an instance (an action with its inputs), not a place
in the list of what happens to be possible: when an earlier step is left out, the later ones stay what they were. If
the named one is not possible, a possible one stands in. At a dead end the run begins anew. With the reachable graph at
hand it goes on, then and now and again, from a state that Hypothesis draws, which it reaches by a shortest way; a state
of a lower number is nearer to the start, so that shrinking finds the nearest one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deadreckon.spec import EnvironmentFault, Machine, Scope, SpecError

from .coverage import Reachable, Recorder
from .driver import Driver, DriverMaker, Failure, Ground
from .simulate import Tried, rarest, shortened
from .walk import Walk

try:
    from hypothesis import note, target
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
except ModuleNotFoundError as missing:
    raise EnvironmentFault("stateful tests need Hypothesis: pip install 'deadreckon[check]'") from missing

if TYPE_CHECKING:
    from .layout import Flat

STEPS_FOR_A_PROBE = 4
"""How many steps are drawn for each try of what the machine refuses."""

SCATTER = 7919
"""A prime: what stands in for an impossible instance is not always its neighbour."""


class Choice:
    """What a step does; a failing run prints it by its name."""

    def __init__(self, name: str, label: int | None = None, *, refused: bool = False, start: int | None = None) -> None:
        self.name = name
        self.label = label
        self.refused = refused
        self.start = start

    def __repr__(self) -> str:
        return f"{self.name}, which is refused" if self.refused else self.name


NOTHING = Choice("nothing, since nothing is refused")


def stateful(
    machine: Machine,
    driver: DriverMaker,
    *,
    scope: Scope | None = None,
    reachable: Reachable | None = None,
    recorder: Recorder | None = None,
    steer: bool = False,
) -> type[RuleBasedStateMachine]:
    """A Hypothesis state machine that compares an implementation with *machine* after every step.

    Its ``TestCase`` works under pytest and unittest.

    Args:
        machine: the machine.
        driver: makes a driver; called for every run.
        scope: bounds and policy of the walks; the machine's first scope by default.
        reachable: the graph of the same machine and scope: runs then begin anywhere in it.
        recorder: counts what is covered, over all runs.
        steer: lets ``hypothesis.target`` climb towards runs that meet many states and kinds of steps. Such runs are
            varied little, so that fewer states are met in all; leave it off unless a failure needs long runs.

    Raises:
        SpecError: *reachable* or *recorder* belong to another machine or scope.
        Divergence: (the test) the implementation does not do what the machine says.
        RuleBroken: (the test) the machine breaks one of its rules.
    """
    ground = reachable.ground if reachable else recorder.ground if recorder else Ground(machine, scope)
    if ground.machine is not machine or scope not in (None, ground.scope):
        raise SpecError("a graph or recorder of another machine or scope", instead="those of the same")
    starts = st.sampled_from(range(len(reachable.steps) if reachable else 1))
    choices = _choices(ground, starts, reachable is not None)

    class SideBySide(RuleBasedStateMachine):
        """Machine and implementation, side by side."""

        def __init__(self) -> None:
            super().__init__()
            self.driver: Driver | None = None
            self.walk: _Walk | None = None

        @initialize(start=starts)
        def begin(self, start: int) -> None:
            """Reset the implementation, and go to the state *start*."""
            self.driver = driver()
            self.walk = _Walk(ground, self.driver, recorder=recorder, made_by=driver)
            self.walk.follow(Choice("", start=start), reachable)

        @rule(choice=choices)
        def step(self, choice: Choice) -> None:
            """Take one step on both sides."""
            if self.walk is not None:
                self.walk.follow(choice, reachable)

        def teardown(self) -> None:
            """Close the implementation."""
            try:
                if steer and self.walk is not None:
                    target(float(len(self.walk.states)), label="states met in one run")
                    target(float(len(self.walk.edges)), label="steps of different kinds in one run")
            finally:
                if self.driver is not None:
                    self.driver.close()

    SideBySide.__name__ = SideBySide.__qualname__ = f"{machine.name.title().replace('-', '')}SideBySide"
    return SideBySide


class _Walk(Walk):
    """A walk that knows where it has been, and stands in for choices that are not possible."""

    def __init__(self, ground: Ground, driver: Driver, *, recorder: Recorder | None, made_by: DriverMaker) -> None:
        super().__init__(ground, driver, recorder=recorder, made_by=made_by)
        self.made_by = made_by
        self.tried = Tried()
        self.states: set[Flat] = {self.at}
        self.edges: set[tuple[Flat, int]] = set()

    def take(self, label: int) -> None:
        """Take an instance on both sides."""
        self.edges.add((self.at, label))
        super().take(label)
        self.states.add(self.at)

    def follow(self, choice: Choice, reachable: Reachable | None) -> None:
        """Do as chosen. A failure that is reported is made shorter still, across the steps of a way to a state."""
        try:
            if choice.label is not None:
                (self.probe if choice.refused else self.take)(choice.label)
            elif choice.start is not None:
                self.reset()
                self.go_to(choice.start, reachable)
        except Failure as failure:
            note(_Shorter(self, failure))  # Hypothesis looks at it only when it reports
            raise

    def go_to(self, goal: int, reachable: Reachable | None) -> None:
        """Take a shortest way to a state of the graph."""
        if reachable is None:
            return
        for number in reachable.way(goal)[1:]:
            label = next((one for one, after in self.open().items() if reachable.number(after) == number), None)
            if label is not None:
                self.take(label)

    def choice(self, wanted: int, refused: bool) -> Choice | None:
        """The instance *wanted*, or what stands in for it and changes something; None at a dead end."""
        if refused:
            rare = rarest(self, self.closed(), self.tried)
            label = self._nearest(wanted, list(rare))
            self.tried.update([rare[label]] if label is not None else [])
        else:
            moving = [one for one, after in self.open().items() if after != self.at]
            label = wanted if wanted in self.open() else self._nearest(wanted, moving)
        if label is None:
            return NOTHING if refused else None
        return Choice(self.ground.instances[label].name, label, refused=refused)

    def _nearest(self, wanted: int, among: list[int]) -> int | None:
        """*wanted* itself if it is there."""
        count = len(self.ground.instances)
        return min(among, key=lambda one: (one - wanted) * SCATTER % count, default=None)


class _Shorter:
    """Words on a failing walk, and its shortening, which is done when they are asked for."""

    def __init__(self, walk: _Walk, failure: Failure) -> None:
        self._walk = walk
        self._failure = failure

    def __repr__(self) -> str:
        walk, taken = self._walk, tuple(self._walk.taken)
        found, left, again = shortened(walk.ground, walk.made_by, self._failure, taken)
        if not again or not isinstance(found, Failure):
            return "This does not fail again from a new driver: it depends on more than what it is told."
        vars(self._failure).update(vars(found))
        return f"The error has a program of {len(left)} steps that repeats it (of {len(taken)} since the last reset)."


def _choices(ground: Ground, starts: st.SearchStrategy[int], jumps: bool) -> st.SearchStrategy[Choice]:
    """One draw: an instance to be taken, or one to be refused, or another place to go on from; plain ones first."""
    count = len(ground.instances)
    draws = st.sampled_from(range(count * (STEPS_FOR_A_PROBE + (2 if jumps else 1))))

    @st.composite
    def choice(draw: st.DrawFn) -> Choice:
        walk: _Walk | None = draw(st.runner()).walk
        times, wanted = divmod(draw(draws), count)
        if walk is None:
            return NOTHING
        found = None if times > STEPS_FOR_A_PROBE else walk.choice(wanted, times == STEPS_FOR_A_PROBE)
        return _again(draw(starts)) if found is None else found

    return choice()


def _again(start: int) -> Choice:
    return Choice(f"reset(), and on to state {start}" if start else "reset()", start=start)
