"""What every test of a reference implementation against its machine needs, whichever machine it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings

from deadreckon.models.coverage import Coverage
from deadreckon.models.driver import Driver
from deadreckon.models.simulate import Simulation
from deadreckon.spec import CallerError, Refused

EXAMPLES = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    stateful_step_count=30,
    phases=(Phase.generate, Phase.shrink),
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
"""The same examples everywhere."""

Call = tuple[str, Mapping[str, object]]
"""An action and its inputs."""


def covered(done: Simulation) -> Coverage:
    """What walks covered; they must not have failed."""
    if done.failure is not None:
        raise done.failure
    return done.coverage


class Cut(Exception):
    """The incarnation dies here."""


class Blade:
    """Cuts an action off at a point of its store's write, as a crash does.

    Attributes:
        at: the point, or nowhere: the ``hook`` of a store that models crashes is told of each.
        cuts: how often it has cut.
    """

    def __init__(self) -> None:
        self.at = ""
        self.cuts = 0
        self._chance = random.Random(1)

    async def hook(self, point: str) -> None:
        """Given to the store."""
        if point == self.at:
            raise Cut(point)

    def cut_off(self, take: Callable[..., None], calls: Sequence[Call], points: Sequence[str]) -> None:
        """Take one of *calls*, and die at one of *points* of it."""
        self.at = self._chance.choice(points)
        action, inputs = self._chance.choice(calls)
        try:
            take(action, **inputs)
        except Cut:
            self.cuts += 1
        except Refused:
            pass  # nothing was under way after all
        finally:
            self.at = ""


def refuses_misuse(driver: Driver, policy: object, *unknown: str) -> None:
    """A driver that was not reset, an *unknown* action and a policy of another kind are refused with what to do."""
    try:
        with pytest.raises(CallerError, match="reset"):
            driver.do("crash")
        with pytest.raises(CallerError, match="reset"):
            driver.observe()
        with pytest.raises(CallerError, match=f"give a {type(policy).__name__}"):
            driver.reset(None)
        driver.reset(policy)
        for name in ("explode", "_alone", *unknown):
            with pytest.raises(CallerError, match="has no action"):
                driver.do(name)
    finally:
        driver.close()
