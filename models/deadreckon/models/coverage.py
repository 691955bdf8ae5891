"""How much of the reachable graph walks have covered, and which way what they have not lies.

States count up to permutation of interchangeable elements; a step is (state before, action, state after).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs

from deadreckon.spec import Machine, Scope, SpecError

from .driver import Ground, Lack
from .explorer import Bounds, Graph, explore
from .layout import Flat

NEVER = 2**62
"""A distance that is none."""


@attrs.frozen
class Coverage:
    """How many of the reachable states and steps were covered; the totals are None where they are not known."""

    states_seen: int
    states: int | None
    edges_seen: int
    edges: int | None

    @property
    def of_states(self) -> float | None:
        """The fraction of states."""
        return self.states_seen / self.states if self.states else None

    @property
    def of_edges(self) -> float | None:
        """The fraction of steps."""
        return self.edges_seen / self.edges if self.edges else None

    def __str__(self) -> str:
        return f"{_share(self.states_seen, self.states)} states, {_share(self.edges_seen, self.edges)} steps"


def _share(seen: int, all_: int | None) -> str:
    return f"{seen:,} of {all_:,} ({seen / all_:.1%})" if all_ else f"{seen:,}"


class Reachable:
    """Every state and step of a machine within one scope.

    Args:
        machine: the machine.
        scope: its bounds; the machine's first scope by default.
        at_once: actions that the walked implementation takes by itself (see :class:`~.driver.Driver`): states in which
            one of them is possible are left by it alone.
        cannot: what the walked implementation doesn't have; what only this leads to is not reached.
        bounds: when to give up.

    Raises:
        SpecError: the scope is larger than *bounds*: a fraction of what is not known would mean nothing.
    """

    def __init__(
        self,
        machine: Machine,
        scope: Scope | None = None,
        *,
        at_once: Sequence[str] = (),
        cannot: Sequence[Lack] = (),
        bounds: Bounds | None = None,
    ) -> None:
        self.ground = Ground(machine, scope)
        self.at_once = tuple(at_once)
        self._lacking = self.ground.lacking(cannot)
        self._actions = {action.name: number for number, action in enumerate(machine.actions)}
        found = explore(
            machine, self.ground.scope, traced=self.ground.relation, compare_every=0, keep_graph=True, bounds=bounds
        )
        if not found.complete or found.graph is None:
            raise SpecError(
                f"scope {self.ground.scope.name} of machine {machine.name} has {found.stopped}",
                instead="a smaller scope, or larger bounds",
            )
        self.index: dict[Flat, int] = {}
        self.steps: list[tuple[tuple[int, int], ...]] = []
        self.parents: list[int] = []
        self._take_over(found.graph)
        self.states = tuple(self.index)
        self.edges = sum(map(len, self.steps))

    def _take_over(self, graph: Graph) -> None:
        """Breadth first from the initial states, along what the implementation can do."""
        actions = [self._actions[instance.action] for instance in self.ground.instances]
        urgent = {self._actions[name] for name in self.at_once}
        states = list(graph.index)
        starts = dict.fromkeys(graph.index[self.ground.canonical(start)] for start in self.ground.code.initial)
        number = {old: new for new, old in enumerate(starts)}
        order = list(starts)
        self.parents = [-1] * len(order)
        for at, old in enumerate(order):
            found = {
                (actions[graph.labels[edge]], graph.targets[edge])
                for edge in range(graph.offsets[old], graph.offsets[old + 1])
                if graph.labels[edge] not in self._lacking
            }
            taken = sorted({step for step in found if step[0] in urgent} or found)
            for _, target in taken:
                if target not in number:
                    number[target] = len(order)
                    order.append(target)
                    self.parents.append(at)
            self.steps.append(tuple((action, number[target]) for action, target in taken))
        self.index = {states[old]: new for new, old in enumerate(order)}

    def number(self, at: Flat) -> int | None:
        """The number of a state, 0 being the first initial one; None if it is not reachable within the scope."""
        return self.index.get(self.ground.canonical(at))

    def edge(self, before: Flat, action: str, after: Flat) -> int | None:
        """The number of a step between canonical states; None if it is none of the graph."""
        source, target, number = self.index.get(before), self.index.get(after), self._actions[action]
        if source is None or target is None or (number, target) not in self.steps[source]:
            return None
        return (source * len(self._actions) + number) * len(self.steps) + target

    def source(self, edge: int) -> int:
        """The state that a step leaves."""
        return edge // (len(self._actions) * len(self.steps))

    def way(self, goal: int) -> list[int]:
        """The states on a shortest way from an initial state to *goal*, both included."""
        way = [goal]
        while self.parents[way[-1]] >= 0:
            way.append(self.parents[way[-1]])
        return way[::-1]


class Recorder:
    """Counts what walks cover. Without *reachable* it counts alike, but has no totals.

    One recorder may be given to several simulations and stateful tests of one machine and scope.
    """

    def __init__(self, ground: Ground, reachable: Reachable | None = None) -> None:
        if reachable is not None and reachable.ground is not ground:
            raise SpecError("the graph stands on another ground", instead="Recorder(reachable.ground, reachable)")
        self.ground = ground
        self.reachable = reachable
        self.ahead = None if reachable is None else Ahead(reachable)
        self._states: set[Flat] = set()
        self._edges: set[object] = set()

    def visit(self, at: Flat) -> None:
        """A walk is in this state."""
        self._states.add(self.ground.canonical(at))

    def step(self, before: Flat, action: str, after: Flat) -> None:
        """A walk has taken this step."""
        edge = self._edge(before, action, after)
        if edge not in self._edges:
            self._edges.add(edge)
            if self.ahead is not None and isinstance(edge, int):
                self.ahead.covered(edge)
        self.visit(after)

    def is_new(self, before: Flat, action: str, after: Flat) -> bool:
        """Whether no walk has taken this step yet."""
        return self._edge(before, action, after) not in self._edges

    def _edge(self, before: Flat, action: str, after: Flat) -> object:
        """The step's number in the graph, if it is one of its steps."""
        source, target = self.ground.canonical(before), self.ground.canonical(after)
        number = None if self.reachable is None else self.reachable.edge(source, action, target)
        return (source, action, target) if number is None else number

    @property
    def coverage(self) -> Coverage:
        """What is covered so far."""
        if self.reachable is None:
            return Coverage(len(self._states), None, len(self._edges), None)
        states = sum(1 for state in self._states if state in self.reachable.index)
        edges = sum(1 for edge in self._edges if isinstance(edge, int))
        return Coverage(states, len(self.reachable.steps), edges, self.reachable.edges)


class Ahead:
    """How far from each state the nearest step lies that no walk has taken.

    The figures are lower bounds: what is covered only grows. Each is mended when a walk comes by (as in LRTA*), and
    all are worked out anew now and then, so rarely that it costs less than the walks.
    """

    def __init__(self, reachable: Reachable) -> None:
        self._reachable = reachable
        self._before: list[list[int]] = [[] for _ in reachable.steps]
        for state, steps in enumerate(reachable.steps):
            for _, after in steps:
                self._before[after].append(state)
        self._left = [len(steps) for steps in reachable.steps]
        self._distances = [0] * len(reachable.steps)
        self._passed = 0
        self._anew_after = max(500, reachable.edges // 50)

    def covered(self, edge: int) -> None:
        """A step is taken for the first time."""
        self._left[self._reachable.source(edge)] -= 1

    def __call__(self, at: Flat) -> int | None:
        """The distance from *at*; None if no new step can be reached."""
        number = self._reachable.number(at)
        return None if number is None or self._distances[number] >= NEVER else self._distances[number]

    def passing(self, at: Flat) -> None:
        """A walk is in this state: mend its distance."""
        number = self._reachable.number(at)
        self._passed += 1
        if self._passed % self._anew_after == 0:
            self._measure()
        if number is not None and not self._left[number]:
            ways = (self._distances[after] + 1 for _, after in self._reachable.steps[number] if after != number)
            self._distances[number] = max(self._distances[number], min(ways, default=NEVER))

    def _measure(self) -> None:
        """Backwards, breadth first, from the states that a new step leaves."""
        new = [at for at, left in enumerate(self._left) if left]
        distances = [NEVER] * len(self._left)
        for at in new:
            distances[at] = 0
        waiting = deque(new)
        while waiting:
            at = waiting.popleft()
            for earlier in self._before[at]:
                if distances[earlier] == NEVER:
                    distances[earlier] = distances[at] + 1
                    waiting.append(earlier)
        self._distances = distances
