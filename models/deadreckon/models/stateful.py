"""Hypothesis walks a machine and an implementation side by side.

    TestIncident = stateful(incident, MyDriver).TestCase

Hypothesis chooses among what is possible, finds a walk on which the two differ, and makes it as short and as plain as
it can. The error it ends with holds a program that repeats the walk.

How choices are made, so that failures shrink well. A choice names an instance (an action with its inputs), not a place
in the list of what happens to be possible: when an earlier step is left out, the later ones stay what they were. If
the named one is not possible, a possible one stands in. Each run leaves out a few actions, so that some get far
without a crash. With the reachable graph at hand each run goes first to a state that Hypothesis draws, by a shortest
way; a state of a lower number is nearer to the start, so that shrinking finds the nearest one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import attrs

from deadreckon.spec import EnvironmentFault, Machine, Scope, SpecError

from .coverage import Reachable, Recorder
from .driver import Driver, DriverMaker, Ground
from .simulate import Walk

try:
    from hypothesis import strategies as st
    from hypothesis import target
    from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
except ModuleNotFoundError as missing:
    raise EnvironmentFault("stateful tests need Hypothesis: pip install 'deadreckon[check]'") from missing

if TYPE_CHECKING:
    from .layout import Flat

STEPS_FOR_A_PROBE = 4
"""How many steps are drawn for each try of what the machine refuses."""

SCATTER = 7919
"""A prime: what stands in for an impossible instance is not always its neighbour."""


@attrs.frozen
class Choice:
    """What a step does, as a failing run prints it."""

    name: str
    label: int | None
    refused: bool

    def __repr__(self) -> str:
        return f"{self.name}, which is refused" if self.refused else self.name


AGAIN = Choice("reset(), since nothing else is left to do", None, False)
REFUSES_NOTHING = Choice("nothing, since nothing is refused", None, True)


def stateful(
    machine: Machine,
    driver: DriverMaker,
    *,
    scope: Scope | None = None,
    reachable: Reachable | None = None,
    recorder: Recorder | None = None,
) -> type[RuleBasedStateMachine]:
    """A Hypothesis state machine that compares an implementation with *machine* after every step.

    Its ``TestCase`` works under pytest and unittest. ``hypothesis.target`` steers towards runs that meet many states
    and steps.

    Args:
        machine: the machine.
        driver: makes a driver; called for every run.
        scope: bounds and policy of the walks; the machine's first scope by default.
        reachable: the graph of the same machine and scope: runs then begin anywhere in it.
        recorder: counts what is covered, over all runs.

    Raises:
        SpecError: *reachable* or *recorder* belong to another machine or scope.
        Divergence: (the test) the implementation does not do what the machine says.
        RuleBroken: (the test) the machine breaks one of its rules.
    """
    ground = reachable.ground if reachable else recorder.ground if recorder else Ground(machine, scope)
    if ground.machine is not machine or scope not in (None, ground.scope):
        raise SpecError("a graph or recorder of another machine or scope", instead="those of the same")
    choices, starts = _choices(ground), st.sampled_from(range(len(reachable.steps) if reachable else 1))
    left_out = st.sets(st.sampled_from([action.name for action in machine.actions]), max_size=len(machine.actions) // 2)

    class SideBySide(RuleBasedStateMachine):
        """Machine and implementation, side by side."""

        def __init__(self) -> None:
            super().__init__()
            self.driver: Driver | None = None
            self.walk: _Walk | None = None

        @initialize(start=starts, without=left_out)
        def begin(self, start: int, without: set[str]) -> None:
            """Reset the implementation, and go to the state *start*."""
            self.driver = driver()
            self.walk = _Walk(ground, self.driver, recorder=recorder, made_by=driver, without=without)
            if reachable is not None:
                self.walk.go_to(start, reachable)

        @rule(choice=choices)
        def step(self, choice: Choice) -> None:
            """Take one step on both sides."""
            if self.walk is not None and choice.label is not None:
                (self.walk.probe if choice.refused else self.walk.take)(choice.label)
            elif self.walk is not None and choice is AGAIN:
                self.walk.reset()

        def teardown(self) -> None:
            """Close the implementation."""
            try:
                if self.walk is not None:
                    target(float(len(self.walk.states)), label="states met in one run")
                    target(float(len(self.walk.edges)), label="steps of different kinds in one run")
            finally:
                if self.driver is not None:
                    self.driver.close()

    SideBySide.__name__ = SideBySide.__qualname__ = f"{machine.name.title().replace('-', '')}SideBySide"
    return SideBySide


class _Walk(Walk):
    """A walk that knows where it has been, and stands in for choices that are not possible."""

    def __init__(
        self,
        ground: Ground,
        driver: Driver,
        *,
        recorder: Recorder | None,
        made_by: DriverMaker,
        without: Collection[str],
    ) -> None:
        super().__init__(ground, driver, recorder=recorder, made_by=made_by)
        self.without = without
        self.states: set[Flat] = {self.at}
        self.edges: set[tuple[Flat, int]] = set()

    def take(self, label: int) -> None:
        """Take an instance on both sides."""
        self.edges.add((self.at, label))
        super().take(label)
        self.states.add(self.at)

    def go_to(self, goal: int, reachable: Reachable) -> None:
        """Take a shortest way to a state of the graph."""
        for number in reachable.way(goal)[1:]:
            label = next((one for one, after in self.open().items() if reachable.number(after) == number), None)
            if label is not None:
                self.take(label)

    def choice(self, wanted: int, refused: bool) -> Choice:
        """The instance *wanted*, or what stands in for it: something new of what is possible, if there is."""
        among = self.closed() if refused else self._leading_on()
        if wanted not in among and not refused:
            among = [label for label in among if (self.at, label) not in self.edges] or among
        if not among:
            return REFUSES_NOTHING if refused else AGAIN
        count = len(self.ground.instances)
        label = min(among, key=lambda one: (one - wanted) * SCATTER % count)
        return Choice(self.ground.instances[label].name, label, refused)

    def _leading_on(self) -> list[int]:
        """What is possible and not left out, but for what was done here already and changes nothing."""
        useful = [label for label, after in self.open().items() if after != self.at or (self.at, label) not in self.edges]
        return [label for label in useful if self.ground.instances[label].action not in self.without] or useful


def _choices(ground: Ground) -> st.SearchStrategy[Choice]:
    """One draw: an instance, to be taken or (for one in a few) to be refused; the plain ones come first."""
    count = len(ground.instances)
    draws = st.sampled_from(range(count * (STEPS_FOR_A_PROBE + 1)))

    @st.composite
    def choice(draw: st.DrawFn) -> Choice:
        walk: _Walk | None = draw(st.runner()).walk
        times, wanted = divmod(draw(draws), count)
        return REFUSES_NOTHING if walk is None else walk.choice(wanted, times == STEPS_FOR_A_PROBE)

    return choice()
