"""Exhaustive exploration of a machine within one scope, by the engine that suits it.

The plain engine is the reference. With the extra ``fast``, spaces that turn out large are explored in machine code
(numba) or, without numba, in NumPy: the same states, numbers, counterexamples and counts, sooner.
"""

from __future__ import annotations

from importlib.util import find_spec

import attrs

from deadreckon.spec import EnvironmentFault, Machine, Scope

from .exploration import Bounds, Exploration, Graph, Progress, Step, Trace, Unsuitable
from .relation import Relation, relation
from .search import INTERRUPTED, OnProgress, PlainSearch, Subject, too_many

__all__ = [
    "AUTO",
    "ENGINES",
    "Bounds",
    "Exploration",
    "Graph",
    "Progress",
    "Step",
    "Trace",
    "Unsuitable",
    "explore",
]

AUTO, PLAIN, NUMPY, NUMBA = "auto", "plain", "numpy", "numba"
ENGINES = (AUTO, PLAIN, NUMPY, NUMBA)

SMALL, SMALL_COMPARED = 30_000, 4_000
"""States up to which the plain engine is as quick as another with its compilation; the latter if it compares edges."""

PROBED = 1_000
"""States that a compiled engine sees plainly first, to learn what its fields hold."""


def explore(
    machine: Machine,
    scope: Scope | None = None,
    *,
    traced: Relation | None = None,
    only: str | None = None,
    bounds: Bounds | None = None,
    compare_every: int | None = None,
    keep_graph: bool = False,
    on_progress: OnProgress = None,
    engine: str = AUTO,
) -> Exploration:
    """Visit every state of *machine* within *scope* (its first, by default).

    Args:
        machine: what to explore.
        scope: the bounds of the state space.
        traced: its relation, if it is there already.
        only: judge this rule alone, and stop at its first violation.
        bounds: when to give up.
        compare_every: the machine's own functions are run on every edge of every n-th state and compared with the
            traced relation (translation validation), of a sample of these states on every refusal and rule too; 0 never.
            By default the plain engine compares every state, a compiled one some thousands spread over all.
        keep_graph: whether the result keeps all states and steps.
        on_progress: called a few times a second.
        engine: ``plain``, ``numpy``, ``numba``; ``auto`` is plain for small spaces, then the quickest that is installed
            and can carry the machine. :attr:`Exploration.engine` says which it was.

    Raises:
        InternalError: when the traced relation, the functions and the engines differ.
        SpecError: when elements that are declared interchangeable are told apart.
        EnvironmentFault: when *engine* is not installed.
        Unsuitable: when *engine* can't carry the machine within these bounds.
    """
    if engine not in ENGINES:
        raise ValueError(f"there is no engine {engine}; there are {', '.join(ENGINES)}")
    bounds = bounds or Bounds()
    subject = Subject(traced or relation(machine), scope or machine.scopes[0], only)
    wanted = _installed() if engine == AUTO else (engine,)
    if wanted[0] == PLAIN:
        return PlainSearch(subject, bounds, compare_every).run(on_progress, keep_graph=keep_graph)
    small = PROBED if engine != AUTO else SMALL if compare_every == 0 else SMALL_COMPARED
    probed = min(bounds.max_states, small)
    probe = PlainSearch(subject, attrs.evolve(bounds, max_states=probed), compare_every)
    found = probe.run(on_progress, keep_graph=keep_graph)
    if engine == AUTO and (probed == bounds.max_states or found.stopped != too_many(probed)):
        return found
    if found.stopped == INTERRUPTED:
        return found
    for name in (one for one in wanted if one != PLAIN):
        try:
            return _compiled(probe, name, bounds, on_progress, keep_graph)
        except Unsuitable:
            if engine != AUTO:
                raise
            break
        except EnvironmentFault:  # it is there, and something that it needs is not
            if engine != AUTO:
                raise
    return PlainSearch(subject, bounds, compare_every).run(on_progress, keep_graph=keep_graph)


def _compiled(
    probe: PlainSearch, engine: str, bounds: Bounds, on_progress: OnProgress, keep_graph: bool
) -> Exploration:
    try:
        from .fast.search import explore_compiled  # here, since the extra is optional
    except ImportError as missing:
        raise EnvironmentFault(f"engine {engine} needs {missing.name}: pip install 'deadreckon[fast]'") from missing
    return explore_compiled(probe, engine, bounds, on_progress, keep_graph=keep_graph)


def _installed() -> tuple[str, ...]:
    """What may explore, the quickest first."""
    return *(name for name in (NUMBA, NUMPY) if find_spec(name) is not None), PLAIN
