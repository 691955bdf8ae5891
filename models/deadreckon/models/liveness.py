"""Judge ``eventually`` rules: look for a fair way never to arrive.

A run violates *when* leads to *goal* if it meets *when*, and from then on never *goal*, while it treats no fair action
unjustly: each is, again and again, either taken or impossible (weak fairness). Such a run ends in a strongly connected
part of the graph without *goal* (or rests in one state); the part as a whole is fair, or none of it is.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import attrs

from deadreckon.spec import Rule

from .layout import Flat


@attrs.frozen
class Lasso:
    """A fair run that never arrives: the state in which it owes, the way on from there, and the round it then makes.

    ``actions`` are those of the round: by which of two actions it goes from a state to the next may matter to fairness.
    """

    entry: int
    way: tuple[int, ...]
    loop: tuple[int, ...]
    actions: tuple[str, ...]


def fair_violation(
    rule: Rule,
    states: Sequence[Flat],
    offsets: Sequence[int],
    targets: Sequence[int],
    actions: Sequence[str],
    when: Callable[[Flat], bool],
    goal: Callable[[Flat], bool],
) -> Lasso | None:
    """A fair run from a state with *when* on which *goal* never comes; None if there is none.

    Edge ``at`` leads from the state whose offsets enclose it to ``targets[at]`` by ``actions[at]``; states are numbered
    in breadth-first order. Of all such runs it is one that is the shortest until it begins to repeat.
    """
    pending = _pending(states, offsets, targets, when, goal)
    best: tuple[int, _Part] | None = None
    for nodes in _components(set(pending), offsets, targets):
        part = _Part(frozenset(nodes), offsets, targets, actions)
        start = min(nodes, key=lambda node: pending[node][0])
        nearer = best is None or pending[start][0] < pending[best[0]][0]
        if nearer and all(part.just(action) for action in rule.fair):
            best = start, part
    if best is None:
        return None
    start, part = best
    way = [start]
    while pending[way[-1]][1] >= 0:
        way.append(pending[way[-1]][1])
    walk = part.round(start, rule.fair)
    loop, taken = tuple(node for _, node in walk), tuple(action for action, _ in walk)
    return Lasso(way.pop(), tuple(reversed(way)), loop, taken)


@attrs.frozen
class _Part:
    """A strongly connected part of the graph."""

    nodes: frozenset[int]
    offsets: Sequence[int]
    targets: Sequence[int]
    actions: Sequence[str]

    def edges(self, node: int) -> Iterator[tuple[str, int]]:
        """Action and target of the edges that stay inside."""
        for at in range(self.offsets[node], self.offsets[node + 1]):
            if self.targets[at] in self.nodes:
                yield self.actions[at], self.targets[at]

    def possible(self, node: int, action: str) -> bool:
        return action in self.actions[self.offsets[node] : self.offsets[node + 1]]

    def just(self, action: str) -> bool:
        """Whether a run that stays here for ever can treat *action* fairly: take it, or find it impossible."""
        return any(
            not self.possible(node, action) or any(taken == action for taken, _ in self.edges(node))
            for node in self.nodes
        )

    def round(self, start: int, fair: tuple[str, ...]) -> list[tuple[str, int]]:
        """A walk from *start* back to it that treats every fair action justly; empty if resting does."""
        walk: list[tuple[str, int]] = []
        for action in fair:
            passed = [start, *(node for _, node in walk)]
            if all(self.possible(node, action) for node in passed):
                walk += self._walk(passed[-1], self._treats(action))
        if walk and walk[-1][1] != start:
            walk += self._walk(walk[-1][1], lambda node, taken: node == start)
        return walk

    def _treats(self, action: str) -> Callable[[int, str], bool]:
        return lambda node, taken: taken == action or not self.possible(node, action)

    def _walk(self, start: int, arrived: Callable[[int, str], bool]) -> list[tuple[str, int]]:
        """A shortest walk, of at least one step, whose last action or state is wanted."""
        parent: dict[int, tuple[str, int]] = {}
        queue = deque([start])
        while True:
            node = queue.popleft()
            for taken, target in self.edges(node):
                if arrived(target, taken):
                    walk = [(taken, target)]
                    while node != start:
                        taken, before = parent[node]
                        walk.append((taken, node))
                        node = before
                    return walk[::-1]
                if target not in parent and target != start:
                    parent[target] = taken, node
                    queue.append(target)


def _depths(offsets: Sequence[int], targets: Sequence[int]) -> list[int]:
    """How many steps each state is away from a start; the numbers are in breadth-first order."""
    depths = [-1] * (len(offsets) - 1)
    for source in range(len(depths)):
        depths[source] = max(depths[source], 0)
        for at in range(offsets[source], offsets[source + 1]):
            if depths[targets[at]] < 0:
                depths[targets[at]] = depths[source] + 1
    return depths


def _pending(
    states: Sequence[Flat],
    offsets: Sequence[int],
    targets: Sequence[int],
    when: Callable[[Flat], bool],
    goal: Callable[[Flat], bool],
) -> dict[int, tuple[int, int]]:
    """States that a run may be in after *when* and before *goal*: how many steps it takes, and the last one's source.

    The source is -1 where *when* holds: from there on the run owes.
    """
    depths = _depths(offsets, targets)
    open_ = {number for number, state in enumerate(states) if not goal(state)}
    queue = [(depths[number], number, -1) for number in open_ if when(states[number])]
    heapq.heapify(queue)
    pending: dict[int, tuple[int, int]] = {}
    while queue:
        steps, node, source = heapq.heappop(queue)
        if node in pending:
            continue
        pending[node] = steps, source
        for at in range(offsets[node], offsets[node + 1]):
            if targets[at] in open_ and targets[at] not in pending:
                heapq.heappush(queue, (steps + 1, targets[at], node))
    return pending


def _components(nodes: set[int], offsets: Sequence[int], targets: Sequence[int]) -> Iterator[list[int]]:
    """Strongly connected parts of the graph on *nodes* (Tarjan, without recursion)."""
    low: dict[int, int] = {}
    number: dict[int, int] = {}
    on_path: set[int] = set()
    path: list[int] = []
    for root in sorted(nodes):
        if root in number:
            continue
        work = [(root, iter(_neighbours(root, nodes, offsets, targets)))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in number:
                    number[target] = low[target] = len(number)
                    path.append(target)
                    on_path.add(target)
                    work.append((target, iter(_neighbours(target, nodes, offsets, targets))))
                    break
                if target in on_path:
                    low[node] = min(low[node], number[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(path.pop())
                        on_path.discard(part[-1])
                    yield part


def _neighbours(node: int, nodes: set[int], offsets: Sequence[int], targets: Sequence[int]) -> list[int]:
    return [targets[at] for at in range(offsets[node], offsets[node + 1]) if targets[at] in nodes]
