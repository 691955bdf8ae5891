"""Random walks of the reference implementation and its machine, side by side, over every scope."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator

import attrs

from deadreckon.models.coverage import Reachable
from deadreckon.models.driver import DriverMaker, Failure, MachineDriver, at_once
from deadreckon.models.simulate import Advance, Simulation, simulate
from deadreckon.spec import CallerError, Machine

from .references import explained

STEPS = 50
"""Steps of a walk, unless told: longer than the way from the start to any state of a built-in scope."""

MEMORY, SQLITE = "memory", "sqlite"
STORES = (MEMORY, SQLITE)


@attrs.frozen(eq=False)
class Request:
    """What to simulate. ``reference`` is how the machine is called on the command line."""

    reference: str
    machine: Machine
    runs: int
    steps: int
    seed: int
    store: str | None = None

    @property
    def replay(self) -> str:
        """The command that does the same again."""
        store = f" --store {self.store}" if self.store else ""
        return (
            f"deadreckon simulate {shlex.quote(self.reference)} --runs {self.runs} --steps {self.steps} "
            f"--seed {self.seed}{store}"
        )


def implemented(machine: Machine) -> bool:
    """Whether there is a reference implementation of *machine*."""
    from deadreckon.spec.machines import MACHINES

    return machine.name in _MAKERS and MACHINES.get(machine.name) is machine


def _incident(store: str, directory: str) -> DriverMaker:
    from deadreckon.impl.driver import FileDisk, IncidentDriver

    return lambda: IncidentDriver(FileDisk(directory) if store == SQLITE else None)


def _hold(store: str, directory: str) -> DriverMaker:
    from deadreckon.impl.hold_driver import HoldDriver, in_files, in_memory

    journal = in_files(directory) if store == SQLITE else in_memory
    return lambda: HoldDriver(journal)


_MAKERS: dict[str, Callable[[str, str], DriverMaker]] = {"incident": _incident, "hold": _hold}


def failed(failure: BaseException) -> str:
    """What failed, with the program that repeats it."""
    if isinstance(failure, Failure):
        return str(failure)
    return "\n".join((f"the driver failed: {explained(failure)}", *getattr(failure, "__notes__", ())))


def walks(request: Request, on_progress: Callable[[str, Advance], None]) -> Iterator[tuple[str, Simulation]]:
    """The name of each scope, and what the walks in it found; the first failure is the last.

    Raises:
        CallerError: a store is asked for, and there is no implementation to use it.
    """
    with tempfile.TemporaryDirectory(prefix="deadreckon-") as directory:
        yield from _walks(request, _maker(request, directory), on_progress)


def _maker(request: Request, directory: str) -> DriverMaker:
    if implemented(request.machine):
        return _MAKERS[request.machine.name](request.store or MEMORY, directory)
    if request.store is not None:
        raise CallerError(f"machine {request.machine.name} has no reference implementation that could use a store")
    return lambda: MachineDriver(request.machine)


def _walks(
    request: Request, maker: DriverMaker, on_progress: Callable[[str, Advance], None]
) -> Iterator[tuple[str, Simulation]]:
    driver = maker()
    own = at_once(driver)
    driver.close()
    for scope in request.machine.scopes:

        def told(advance: Advance, name: str = scope.name) -> None:
            on_progress(name, advance)

        found = simulate(
            request.machine,
            maker,
            runs=request.runs,
            steps=request.steps,
            seed=request.seed,
            reachable=Reachable(request.machine, scope, at_once=own),
            on_progress=told,
        )
        yield scope.name, found
        if found.failure is not None:
            return
