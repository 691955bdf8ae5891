"""How much of the reachable graph walks have covered, and which way what they have not lies.

States count up to permutation of interchangeable elements; a step is (state before, action, state after).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import attrs

from deadreckon.spec import Machine, Scope, SpecError

from .driver import Ground
from .explorer import Bounds, Graph, explore
from .layout import Flat


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
        bounds: Bounds | None = None,
    ) -> None:
        self.ground = Ground(machine, scope)
        self.at_once = tuple(at_once)
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
        starts = dict.fromkeys(graph.index[self.ground.symmetry.canonical(start)] for start in self.ground.code.initial)
        number = {old: new for new, old in enumerate(starts)}
        order = list(starts)
        self.parents = [-1] * len(order)
        for at, old in enumerate(order):
            found = {
                (actions[graph.labels[edge]], graph.targets[edge])
                for edge in range(graph.offsets[old], graph.offsets[old + 1])
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
        return self.index.get(self.ground.symmetry.canonical(at))

    def edge(self, before: int, action: str, after: int) -> int:
        """The number of a step."""
        return (before * len(self._actions) + self._actions[action]) * len(self.steps) + after

    def has(self, edge: int) -> bool:
        """Whether there is a step of this number."""
        rest, after = divmod(edge, len(self.steps))
        before, action = divmod(rest, len(self._actions))
        return (action, after) in self.steps[before]

    def way(self, goal: int) -> list[int]:
        """The states on a shortest way from an initial state to *goal*, both included."""
        way = [goal]
        while self.parents[way[-1]] >= 0:
            way.append(self.parents[way[-1]])
        return way[::-1]

    def edges_of(self, state: int) -> Iterator[int]:
        """The numbers of the steps that leave *state*."""
        size, count = len(self._actions), len(self.steps)
        return ((state * size + action) * count + after for action, after in self.steps[state])


class Recorder:
    """Counts what walks cover. Without *reachable* it counts alike, but has no totals.

    One recorder may be given to several simulations and stateful tests of one machine and scope.
    """

    def __init__(self, ground: Ground, reachable: Reachable | None = None) -> None:
        if reachable is not None and (reachable.ground.machine, reachable.ground.scope) != (ground.machine, ground.scope):
            raise SpecError("a recorder of another machine or scope", instead="Recorder(reachable.ground, reachable)")
        self.ground = ground
        self.reachable = reachable
        self._states: set[Flat] = set()
        self._edges: set[object] = set()
        self._distances: list[int] = []
        self._distances_from = -1

    def visit(self, at: Flat) -> None:
        """A walk is in this state."""
        self._states.add(self.ground.symmetry.canonical(at))

    def step(self, before: Flat, action: str, after: Flat) -> None:
        """A walk has taken this step."""
        self._edges.add(self._edge(before, action, after))
        self.visit(after)

    def is_new(self, before: Flat, action: str, after: Flat) -> bool:
        """Whether no walk has taken this step yet."""
        return self._edge(before, action, after) not in self._edges

    def _edge(self, before: Flat, action: str, after: Flat) -> object:
        """The step's number in the graph, if it is known there."""
        source, target = self.ground.symmetry.canonical(before), self.ground.symmetry.canonical(after)
        if self.reachable is not None and source in self.reachable.index and target in self.reachable.index:
            return self.reachable.edge(self.reachable.index[source], action, self.reachable.index[target])
        return source, action, target

    def distance(self, at: Flat) -> int | None:
        """How many steps away the nearest step lies that no walk has taken; None if unknown, or there is none.

        Worked out anew only once a fiftieth more is covered: between times it may name a step just taken.
        """
        if self.reachable is None:
            return None
        if len(self._edges) > self._distances_from * 1.02:
            self._distances = self._measured(self.reachable)
            self._distances_from = len(self._edges)
        number = self.reachable.number(at)
        found = -1 if number is None else self._distances[number]
        return None if found < 0 else found

    def _measured(self, reachable: Reachable) -> list[int]:
        """Backwards, breadth first, from the states that a new step leaves."""
        before: list[list[int]] = [[] for _ in reachable.steps]
        for state, steps in enumerate(reachable.steps):
            for _, after in steps:
                before[after].append(state)
        new = [at for at in range(len(before)) if any(edge not in self._edges for edge in reachable.edges_of(at))]
        distances = [-1] * len(before)
        for at in new:
            distances[at] = 0
        waiting = deque(new)
        while waiting:
            at = waiting.popleft()
            for earlier in before[at]:
                if distances[earlier] < 0:
                    distances[earlier] = distances[at] + 1
                    waiting.append(earlier)
        return distances

    @property
    def coverage(self) -> Coverage:
        """What is covered so far."""
        if self.reachable is None:
            return Coverage(len(self._states), None, len(self._edges), None)
        states = sum(1 for state in self._states if state in self.reachable.index)
        edges = sum(1 for edge in self._edges if isinstance(edge, int) and self.reachable.has(edge))
        return Coverage(states, len(self.reachable.steps), edges, self.reachable.edges)
