"""Random walks of the reference implementation and its machine, side by side, over every scope."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import attrs

from deadreckon.models.coverage import Reachable
from deadreckon.models.driver import DriverMaker, Failure, MachineDriver, at_once
from deadreckon.models.simulate import Advance, Simulation, simulate
from deadreckon.spec import Machine

from .references import explained

STEPS = 50
"""Steps of a walk, unless told: longer than the way from the start to any state of a built-in scope."""


@attrs.frozen(eq=False)
class Request:
    """What to simulate. ``reference`` is how the machine is called on the command line."""

    reference: str
    machine: Machine
    runs: int
    steps: int
    seed: int

    @property
    def replay(self) -> str:
        """The command that does the same again."""
        return (
            f"deadreckon simulate {shlex.quote(self.reference)} --runs {self.runs} --steps {self.steps} "
            f"--seed {self.seed}"
        )


def driver_of(machine: Machine) -> DriverMaker | None:
    """What makes the driver of the reference implementation of *machine*; None if it has none."""
    from deadreckon.spec.machines import MACHINES

    makers: dict[str, Callable[[], DriverMaker]] = {"incident": _incident}
    return makers[machine.name]() if MACHINES.get(machine.name) is machine and machine.name in makers else None


def _incident() -> DriverMaker:
    from deadreckon.impl.driver import IncidentDriver

    return IncidentDriver


def failed(failure: BaseException) -> str:
    """What failed, with the program that repeats it."""
    if isinstance(failure, Failure):
        return str(failure)
    return "\n".join((f"the driver failed: {explained(failure)}", *getattr(failure, "__notes__", ())))


def walks(request: Request, on_progress: Callable[[str, Advance], None]) -> Iterator[tuple[str, Simulation]]:
    """The name of each scope, and what the walks in it found; the first failure is the last."""
    machine = request.machine
    maker = driver_of(machine) or (lambda: MachineDriver(machine))
    probe = maker()
    own = at_once(probe)
    probe.close()
    for scope in machine.scopes:

        def told(advance: Advance, name: str = scope.name) -> None:
            on_progress(name, advance)

        found = simulate(
            machine,
            maker,
            runs=request.runs,
            steps=request.steps,
            seed=request.seed,
            reachable=Reachable(machine, scope, at_once=own),
            on_progress=told,
        )
        yield scope.name, found
        if found.failure is not None:
            return
