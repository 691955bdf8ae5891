"""A run of the machine that explains what a log says of an entity: hidden steps and all, so that other tools can read it.

The states that fitted after each line are those that the monitor held. Where there are several, the log doesn't say in
which the system was; a run goes through one of them after each line, and is the one that takes the fewest steps. It is
taken again by the machine's own functions, over all of the state, and must come to the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from deadreckon.spec import Machine, SpecError

from ..layout import Flat
from ..relation import Relation
from .code import Code
from .monitor import Monitor, Node, TooMany
from .moves import Do, Move, Put, See
from .words import Entity, Line, Rejected, Step, Words


@attrs.frozen
class Taken:
    """One step of a run.

    Attributes:
        action: the action that is taken; empty where none is: something is ``put`` into the state, or it stays.
        inputs: of the action, as its function takes them, and the parameters of the policy that are open.
        put: whether leaves are taken over from the log, or assumed for want of one.
        line: number of the line that this is a step of; 0 for what is in no line.
        told: that line, at the first of its steps.
        fitting: how many states fitted after the last line so far.
        state: all leaves after it, those of the ghost included.
    """

    action: str
    inputs: Mapping[str, object]
    put: bool
    line: int
    told: Line | None
    fitting: int
    state: Flat


@attrs.frozen
class Run:
    """A run that explains lines of a log.

    Attributes:
        machine, relation, policy: what ran.
        entity, source: whose run it is, and the log.
        rule, number, happened: the rule that is broken, and the line that no run explains any more; empty if there is none.
        part, parts: which of the entity's parts it is, from 0, of how many: they are followed apart.
        whole: whether it begins where the machine does; else what came before is not kept, but for the states it left.
        start, fitting: the state in which it begins, and how many there were.
        steps: its steps.
    """

    machine: Machine
    relation: Relation
    policy: object
    entity: str
    source: str
    part: int
    parts: int
    whole: bool
    start: Flat
    fitting: int
    steps: tuple[Taken, ...]
    rule: str = ""
    number: int = 0
    happened: str = ""


def rejected_run(words: Words, rejected: Rejected, lines: Collection[int], source: str) -> Run:
    """The run that explains an entity's lines before the one that is rejected; *lines* suffice for that."""
    entity, part = rejected.entity, rejected.part
    steps = _steps(entity, part)
    first = steps[0][0]
    fewer = [step for step in steps if step[0] in lines or step[0] == first]
    path = _Path(entity, part, fewer[:-1])
    if not path.rejects(fewer[-1]):
        path = _Path(entity, part, steps[:-1])
    return _run(words, entity, part, path.moves(path.last.states), path, source)


def accepted_run(words: Words, entity: Entity, source: str, *, ended: bool, part: int | None = None) -> Run:
    """The run that explains all lines of an entity, and if it can one that owes nothing at their end.

    *ended*: the log ended after them. *part*: the one that is asked for; by default that with the longest story.
    """
    if part is None:
        part = max(range(len(entity.nodes)), key=lambda at: len(_steps(entity, at)))
    path = _Path(entity, part, _steps(entity, part))
    code, monitor = entity.monitor.code, entity.monitor
    at_ms = words.judged_at(entity, ended)
    ends = path.after(at_ms) if ended else path.last.states
    even = [
        state for state in ends if not any(owes(state) and not code.met[id](state) for id, owes in code.owed.items())
    ]
    return _run(words, entity, part, path.moves(even or monitor.resting(frozenset(ends)), at_ms), path, source)


def _steps(entity: Entity, part: int) -> list[Step]:
    return [step for step in entity.history if step[1] == part]


class _Path:
    """The sets of states that the monitor held after each line, and how each state in them is come to at least cost."""

    def __init__(self, entity: Entity, part: int, steps: Sequence[Step]) -> None:
        self.monitor: Monitor = entity.monitor
        self.steps = steps
        self.begin = self.last = entity.monitor.start if entity.origin is None else entity.origin[part]
        self.nodes = [self.begin]
        for _, _, key, at_ms, _ in steps:
            node = self.monitor.step(self.last, key, at_ms)
            if node is None:
                raise SpecError(f"a line of {entity.name} that was explained is not any more", instead="report this")
            self.nodes.append(node)
            self.last = node

    def rejects(self, step: Step) -> bool:
        """Whether the next line would fit nowhere."""
        try:
            return self.monitor.step(self.last, step[2], step[3]) is None
        except TooMany:
            return False

    def after(self, at_ms: int) -> frozenset[Flat]:
        """The states in which the machine may be at *at_ms*, after the last line."""
        return self.monitor.before(self.last, at_ms) or self.monitor.before(self.last, self.last.now_ms)

    def moves(self, ends: Iterable[Flat], at_ms: int = 0) -> tuple[Flat, list[list[tuple[int, Move, Flat]]]]:
        """The state in which the cheapest run to one of *ends* begins, and its moves up to each line, and after the last.

        Each move has the position of its line (-1: hidden), and leads to the state beside it.
        """
        costs = dict.fromkeys(self.begin.states, 0)
        stages = []
        for before, after, (_, _, key, line_at_ms, _) in zip(self.nodes, self.nodes[1:], self.steps, strict=False):
            stage = _Stage(self.monitor, before, costs, self.monitor.time_of(before, key, line_at_ms))
            costs = stage.enter(after, key)
            if costs.keys() != after.states:
                raise SpecError("the states of a run are not those of the monitor", instead="report this")
            stages.append(stage)
        rest = _Stage(self.monitor, self.last, costs, max(at_ms, self.last.now_ms))
        state = min(ends, key=lambda end: (rest.costs[end], end))
        state, tail = rest.back(state)
        taken = [[(-1, *one) for one in tail]]
        for at in range(len(stages) - 1, -1, -1):
            found, move = stages[at].entered[state]
            last = (at, move, state)
            state, hidden = stages[at].back(found)
            taken.append([*((-1, *one) for one in hidden), last])
        return state, taken[::-1]


class _Stage:
    """What may happen between two lines: each state at its least cost, and by which move it is come to."""

    def __init__(self, monitor: Monitor, node: Node, costs: Mapping[Flat, int], at_ms: int) -> None:
        self.monitor, self.node, self.at_ms = monitor, node, at_ms
        self.costs = dict(costs)
        self.entered: dict[Flat, tuple[Flat, Move]] = {}
        self._came: dict[Flat, tuple[Flat, Move]] = {}
        todo = sorted((cost, state) for state, cost in costs.items())
        while todo:
            cost, state = heapq.heappop(todo)
            if cost > self.costs[state]:
                continue
            for move, after in monitor.unseen(node, state, at_ms):
                more = cost + _cost(move)
                if more < self.costs.get(after, more + 1):
                    self.costs[after] = more
                    self._came[after] = (state, move)
                    heapq.heappush(todo, (more, after))

    def enter(self, after: Node, key: tuple[object, ...]) -> dict[Flat, int]:
        """Take the line: the states that come after it, with their costs."""
        found: dict[Flat, int] = {}
        for cost, state in sorted((cost, state) for state, cost in self.costs.items()):
            if self.monitor.is_there(self.node, state, self.at_ms):
                for move, end in self.monitor.told(after, state, key):
                    more = cost + _cost(move)
                    if more < found.get(end, more + 1):
                        found[end] = more
                        self.entered[end] = (state, move)
        return found

    def back(self, state: Flat) -> tuple[Flat, list[tuple[Move, Flat]]]:
        """Where the way to *state* began, and the hidden moves from there."""
        moves = []
        while state in self._came:
            before, move = self._came[state]
            moves.append((move, state))
            state = before
        return state, moves[::-1]


def _cost(move: Move) -> int:
    return sum(not isinstance(part, See) for part in move)


def _run(
    words: Words,
    entity: Entity,
    part: int,
    found: tuple[Flat, list[list[tuple[int, Move, Flat]]]],
    path: _Path,
    source: str,
) -> Run:
    code, whole = entity.monitor.code, entity.origin is None
    begin, stages = found
    again = _Again(words.machine, code, code.start if whole else code.whole(begin))
    start, fitting = again.state, len(path.begin.states)
    steps: list[Taken] = []
    if (assumed := code.whole(begin)) != start:
        again.state = assumed
        steps.append(Taken("", {}, True, 0, None, fitting, assumed))
    last: Line | None = None
    for stage in stages:
        for at, move, after in stage:
            number, line = (path.steps[at][0], path.steps[at][4]) if at >= 0 else (0, None)
            taken = list(again.take(move))
            told = line if line and line is not last else None
            last = told or last
            held = len(path.nodes[at + 1].states) if at >= 0 else fitting
            for index, (action, inputs, put, state) in enumerate(taken, 1):
                now = held if index == len(taken) else fitting
                steps.append(Taken(action, inputs, put, number, told if index == 1 else None, now, state))
            fitting = held
            again.must_be(after)
    parts = len(entity.nodes)
    return Run(
        words.machine, code.relation, code.policy, entity.name, source, part, parts, whole, start, fitting, tuple(steps)
    )


class _Again:
    """Takes moves once more, by the machine's own functions, over all leaves."""

    def __init__(self, machine: Machine, code: Code, state: Flat) -> None:
        self.machine, self.code, self.state = machine, code, state

    def take(self, move: Move) -> Iterator[tuple[str, Mapping[str, object], bool, Flat]]:
        """The steps of a move: actions, and what is taken over; one that does nothing, if there are none."""
        before = self.state
        found = False
        puts: dict[int, int] = {}
        for part in (*move, None):
            if isinstance(part, Put):
                puts[self.code.leaf(part.path)] = part.value
            elif not isinstance(part, See):
                if puts and (after := self._with(puts)) != self.state:
                    self.state, found = after, True
                    yield "", {}, True, after
                puts = {}
                if part is not None:
                    found = True
                    yield part.action, self._do(part), False, self.state
        if not found:
            yield "", {}, False, before

    def _with(self, puts: Mapping[int, int]) -> Flat:
        return tuple(puts.get(at, leaf) for at, leaf in enumerate(self.state))

    def _do(self, part: Do) -> Mapping[str, object]:
        policy, inputs = self.code.given(part.action, dict(part.inputs))
        state, ghost = self.code.rebuild(self.state)
        after = self.machine.step(policy, state, part.action, inputs)
        observe = self.machine.observe
        if observe is not None:
            ghost = observe(*self.machine.signature(observe).arguments(policy, (state, after), ghost))
        self.state = self.code.flatten(after, ghost)
        return {**inputs, **{name: value for name, value in part.inputs if name not in inputs}}

    def must_be(self, kept: Flat) -> None:
        """The machine's own functions came to what the monitor holds."""
        if self.code.kept(self.state) != kept:
            raise SpecError("a run of the machine comes to another state than its monitor", instead="report this")
