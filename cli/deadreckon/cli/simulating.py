"""Random walks of the reference implementation and its machine, side by side, over every scope."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator

import attrs

from deadreckon.models.coverage import Reachable
from deadreckon.models.driver import DriverMaker, Failure, MachineDriver, at_once
from deadreckon.models.explorer import Bounds
from deadreckon.models.simulate import Advance, Simulation, simulate
from deadreckon.spec import CallerError, Machine, Scope, SpecError

from .references import explained

STEPS = 50
"""Steps of a walk, unless told: longer than the way from the start to any state of a built-in scope."""

STEERED_STATES = 5_000
"""Graphs up to this size are explored before the walks, unless told: half a second."""

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
    scopes: tuple[str, ...] = ()
    steer: bool = False

    @property
    def replay(self) -> str:
        """The command that does the same again."""
        store = f" --store {self.store}" if self.store else ""
        scopes = "".join(f" --scope {name}" for name in self.scopes)
        return (
            f"deadreckon simulate {shlex.quote(self.reference)} --runs {self.runs} --steps {self.steps} "
            f"--seed {self.seed}{store}{scopes}{' --steer' if self.steer else ''}"
        )

    def chosen(self) -> tuple[Scope, ...]:
        """The scopes to walk in.

        Raises:
            CallerError: there is no scope of a name that was given.
        """
        known = {scope.name: scope for scope in self.machine.scopes}
        if strange := [name for name in self.scopes if name not in known]:
            raise CallerError(f"machine {self.machine.name} has no scope {strange[0]!r}: one of {', '.join(known)}")
        return tuple(scope for scope in self.machine.scopes if not self.scopes or scope.name in self.scopes)


def implemented(machine: Machine) -> bool:
    """Whether there is a reference implementation of *machine*."""
    from deadreckon.spec.machines import MACHINES

    return machine.name in _MAKERS and MACHINES.get(machine.name) is machine


def _incident(store: str, directory: str) -> DriverMaker:
    from deadreckon.impl.incident_driver import FileDisk, IncidentDriver

    return lambda: IncidentDriver(FileDisk(directory) if store == SQLITE else None)


def _hold(store: str, directory: str) -> DriverMaker:
    from deadreckon.impl.hold_driver import HoldDriver, in_files, in_memory

    journal = in_files(directory) if store == SQLITE else in_memory
    return lambda: HoldDriver(journal)


def _request(store: str, directory: str) -> DriverMaker:
    from deadreckon.impl.request_driver import RequestDriver, RequestFileDisk

    return lambda: RequestDriver(RequestFileDisk(directory) if store == SQLITE else None)


def _keepalive(store: str, directory: str) -> DriverMaker:
    from deadreckon.impl.keepalive_driver import KeepaliveDriver, KeepaliveFileDisk

    return lambda: KeepaliveDriver(KeepaliveFileDisk(directory) if store == SQLITE else None)


def _journal(store: str, directory: str) -> DriverMaker:
    from deadreckon.impl.journal_driver import JournalDriver, StreamFileDisk

    return lambda: JournalDriver(StreamFileDisk(directory) if store == SQLITE else None)


_MAKERS: dict[str, Callable[[str, str], DriverMaker]] = {
    "incident": _incident,
    "hold": _hold,
    "request": _request,
    "keepalive": _keepalive,
    "journal": _journal,
}


def failed(failure: BaseException) -> str:
    """What failed, with the program that repeats it."""
    if isinstance(failure, Failure):
        return str(failure)
    return "\n".join((f"the driver failed: {explained(failure)}", *getattr(failure, "__notes__", ())))


def walks(
    request: Request, on_scope: Callable[[str, str], None], on_progress: Callable[[str, Advance], None]
) -> Iterator[tuple[str, Simulation]]:
    """The name of each scope, and what the walks in it found; the first failure is the last.

    Args:
        request: what to do.
        on_scope: told, of each scope, how it is walked.
        on_progress: told how far it is.

    Raises:
        CallerError: a store is asked for, and there is no implementation to use it; or an unknown scope.
    """
    with tempfile.TemporaryDirectory(prefix="deadreckon-") as directory:
        yield from _walks(request, _maker(request, directory), on_scope, on_progress)


def _maker(request: Request, directory: str) -> DriverMaker:
    if implemented(request.machine):
        return _MAKERS[request.machine.name](request.store or MEMORY, directory)
    if request.store is not None:
        raise CallerError(f"machine {request.machine.name} has no reference implementation that could use a store")
    return lambda: MachineDriver(request.machine)


def _graph(request: Request, scope: Scope, own: frozenset[str]) -> Reachable | None:
    """The graph to steer by; None if it is large and wasn't asked for, since exploring it takes longer than walking."""
    bounds = None if request.steer else Bounds(max_states=STEERED_STATES)
    try:
        return Reachable(request.machine, scope, at_once=sorted(own), bounds=bounds)
    except SpecError:
        if request.steer:
            raise
        return None


def _walks(
    request: Request,
    maker: DriverMaker,
    on_scope: Callable[[str, str], None],
    on_progress: Callable[[str, Advance], None],
) -> Iterator[tuple[str, Simulation]]:
    driver = maker()
    own = frozenset(at_once(driver))
    driver.close()
    for scope in request.chosen():
        if request.steer:
            on_scope(scope.name, "exploring it first, so that walks head for what is not covered")
        graph = _graph(request, scope, own)
        if graph is None:
            large = f"more than {STEERED_STATES:,} states"
            on_scope(
                scope.name, f"{large}: walks prefer steps that are new; --steer explores it first, to head for them"
            )
        elif not request.steer:
            on_scope(scope.name, f"{len(graph.states):,} states: walks head for what is not covered")

        def told(advance: Advance, name: str = scope.name) -> None:
            on_progress(name, advance)

        found = simulate(
            request.machine,
            maker,
            runs=request.runs,
            steps=request.steps,
            seed=request.seed,
            scope=scope,
            reachable=graph,
            on_progress=told,
        )
        yield scope.name, found
        if found.failure is not None:
            return
