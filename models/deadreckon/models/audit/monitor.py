"""The states that a log still allows: a set of flat states for each part of an entity, moved on by each line.

Before a line, the set is closed under the hidden moves; then each move that can have written the line is tried from each
state, and what comes out is the next set. A set that becomes empty is a line that no run of the machine explains.

Sets are made once (*nodes*), and what a line makes of a node is remembered in it: lazily, this builds the deterministic
automaton of the observer, so that the thousandth entity with the same story costs a dictionary look-up a line.

Time
    The clock of the machine moves by its action ``tick``, which refuses to pass an armed timer; on the way to a line it
    therefore stops at each instant that a state knows of, where hidden moves may have dealt with it. Lines from which no
    instant is computed are not dated exactly: only where they lie between the instants that matter is taken over, so
    that stories which differ in milliseconds are still the same story.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from ..layout import Flat
from .code import Code
from .moves import Do, Key, Move, Part, Put, See, Vocabulary, do

STATES = 20_000
"""So many states at once are not followed any further."""

NODES = 20_000
"""So many sets are remembered; then remembering starts anew."""

Try = Callable[[Flat], Flat | None]


class TooMany(Exception):
    """More states fit than are followed."""


class Node:
    """A set of states, and where the lines that were seen so far lead from it.

    Attributes:
        states: the set.
        judged: whether something was taken over from the log on the way, so that rules must be judged.
        now_ms: the machine's time in them.
        turns: instants, from now on, at which a comparison may turn.
        rests: whether nothing more need happen.
        next: where a line leads.
        closed: the set with what hidden moves lead to; None until it is asked for.
    """

    __slots__ = ("closed", "judged", "next", "now_ms", "rests", "states", "turns")

    def __init__(self, states: frozenset[Flat], judged: bool, now_ms: int, turns: tuple[int, ...], rests: bool) -> None:
        self.states = states
        self.judged = judged
        self.now_ms = now_ms
        self.turns = turns
        self.rests = rests
        self.next: dict[Key, Node] = {}
        self.closed: frozenset[Flat] | None = None


class Monitor:
    """The observer of one machine under one policy.

    Args:
        words: what lines stand for.
        code: the machine's actions.
        absent: types of lines that the log has none of.
    """

    def __init__(self, words: Vocabulary, code: Code, absent: frozenset[str]) -> None:
        self.words = words
        self.code = code
        self._exact = words.exact
        self._hidden = tuple(words.hidden(absent))
        self._lanes = (_Lane(self, False), _Lane(self, True))
        self._nodes: dict[tuple[frozenset[Flat], bool], Node] = {}
        self._now = code.index.get("now_ms") if words.clock else None
        self._instants = tuple((code.index[path], _offset(code, field)) for path, field in words.instants)
        self.start = self._node(frozenset((code.initial,)), False)

    def step(self, node: Node, key: Key, at_ms: int) -> Node | None:
        """Where a line with this key leads, at *at_ms* of the entity's own time; None if nowhere.

        Raises:
            Malformed: the line is not what the vocabulary says.
            TooMany: more states fit than are followed.
        """
        at_ms = self.time_of(node, key, at_ms)
        key_at: Key = key if self._now is None else (key, at_ms)
        known = node.next.get(key_at)
        if known is not None:
            return known
        judged, lane = node.judged, self._lanes[node.judged]
        states = self.before(node, at_ms)
        after = _moved(states, lane.tries(key))
        if lane.deviates:
            judged = True
            after = _moved(states, self._lanes[judged].tries(key))
            lane.deviates = False
        if not after:
            return None
        found = self._node(after, judged)
        if not self._is_exact(key):
            node.next[key_at] = found
        return found

    def _is_exact(self, key: Key) -> bool:
        return self._exact is None or key[0] in self._exact

    def time_of(self, node: Node, key: Key, at_ms: int) -> int:
        """The machine's time to which a line at *at_ms* brings *node*; without a clock, that of *node*."""
        if self._now is None:
            return node.now_ms
        return max(at_ms, node.now_ms) if self._is_exact(key) else self._between(node, at_ms)

    def before(self, node: Node, at_ms: int) -> frozenset[Flat]:
        """The states in which a line at *at_ms* may find the machine."""
        lane = self._lanes[node.judged]
        if self._now is not None and at_ms > node.now_ms:
            return self._at(lane, node.states, at_ms)
        if node.closed is None:
            node.closed = _closure(node.states, lane.hidden)
        return node.closed

    # The same step by step, for who wants to know by which moves a state was reached.

    def is_there(self, node: Node, state: Flat, at_ms: int) -> bool:
        """Whether a line at *at_ms* may find the machine in *state*, which it came to from one of *node*."""
        return self._now is None or at_ms <= node.now_ms or state[self._now] >= at_ms

    def unseen(self, node: Node, state: Flat, at_ms: int) -> Iterator[tuple[Move, Flat]]:
        """The hidden moves from *state*, on the way from *node* to *at_ms*, and where they lead; time passes too."""
        lane = self._lanes[node.judged]
        for move, tries in zip(self._hidden, lane.hidden, strict=True):
            after = _through(tries, state)
            if after is not None:
                yield move, after
        if not self.is_there(node, state, at_ms):
            elapsed_ms = self._until(state, at_ms)
            after = lane.tick(state, elapsed_ms)
            if after is not None:
                yield (do("tick", elapsed_ms=elapsed_ms),), after

    def told(self, after: Node, state: Flat, key: Key) -> Iterator[tuple[Move, Flat]]:
        """The moves from *state* that may have written a line with this key, and led to one of the states of *after*."""
        for move, tries in zip(self.words.moves(key), self._lanes[after.judged].tries(key), strict=True):
            found = _through(tries, state)
            if found is not None and found in after.states:
                yield move, found

    def resting(self, states: frozenset[Flat]) -> frozenset[Flat]:
        """Those of *states* that no hidden move leaves for good: where the machine may stay if nothing follows."""
        hidden = self._lanes[False].hidden
        found = frozenset(state for state in states if not (_moved((state,), hidden) - {state}))
        return found or states

    def _between(self, node: Node, at_ms: int) -> int:
        """The first instant that is to *node* what *at_ms* is: at the same turn of a comparison, or just past it."""
        passed = [turn for turn in node.turns if turn <= at_ms]
        if not passed or at_ms <= node.now_ms:
            return node.now_ms
        return at_ms if passed[-1] == at_ms else max(passed[-1] + 1, node.now_ms)

    def _node(self, states: frozenset[Flat], judged: bool) -> Node:
        node = self._nodes.get((states, judged))
        if node is None:
            now_ms, turns = self._turns(states)
            rest = self.code.rest
            node = Node(states, judged, now_ms, turns, rest is not None and all(map(rest, states)))
            if len(self._nodes) >= NODES:
                self._nodes.clear()
            self._nodes[states, judged] = node
        return node

    def _turns(self, states: frozenset[Flat]) -> tuple[int, tuple[int, ...]]:
        if self._now is None:
            return 0, ()
        now_ms = max(state[self._now] for state in states)
        turns = {state[at] + offset for state in states for at, offset in self._instants}
        return now_ms, tuple(sorted(turn for turn in turns if turn >= now_ms))

    def _at(self, lane: _Lane, states: Iterable[Flat], at_ms: int) -> frozenset[Flat]:
        """The states once the clock has come to *at_ms*, stopping at each instant on the way."""
        assert self._now is not None
        now, arrived = self._now, set()
        todo = _closure(states, lane.hidden)
        while todo:
            later = set()
            for state in todo:
                if state[now] >= at_ms:
                    arrived.add(state)
                    continue
                after = lane.tick(state, self._until(state, at_ms))
                if after is not None:
                    later.add(after)
            todo = _closure(later, lane.hidden)
        return frozenset(arrived)

    def _until(self, state: Flat, at_ms: int) -> int:
        """How long the clock may run on the way to *at_ms*: to the next instant that *state* knows of."""
        assert self._now is not None
        now_ms = state[self._now]
        ahead = (turn for at, offset in self._instants if now_ms < (turn := state[at] + offset) < at_ms)
        return min(ahead, default=at_ms) - now_ms


class _Lane:
    """Compiled moves, with the rules judged after each action and each value that is put, or without."""

    def __init__(self, monitor: Monitor, judged: bool) -> None:
        self._words = monitor.words
        self._code = monitor.code
        self._hidden = monitor._hidden
        self.judged = judged
        self.deviates = False
        self._moves: dict[Key, tuple[tuple[Try, ...], ...]] = {}
        self._calls: dict[tuple[Part, bool], Try] = {}

    @functools.cached_property
    def hidden(self) -> tuple[tuple[Try, ...], ...]:
        """The hidden moves."""
        return tuple(map(self._compiled, self._hidden))

    @functools.cached_property
    def tick(self) -> Callable[[Flat, int], Flat | None]:
        """Time passes."""
        tick = self._code.timed("tick", self.judged)
        if not self.judged:
            return tick
        broken = self._code.broken

        def judged(state: Flat, elapsed_ms: int) -> Flat | None:
            after = tick(state, elapsed_ms)
            return None if after is None or broken(after) else after

        return judged

    def tries(self, key: Key) -> tuple[tuple[Try, ...], ...]:
        """The moves that may have written a line with this key."""
        known = self._moves.get(key)
        if known is None:
            known = tuple(map(self._compiled, self._words.moves(key)))
            if len(self._moves) >= NODES:
                self._moves.clear()
            self._moves[key] = known
        return known

    def _compiled(self, move: Move) -> tuple[Try, ...]:
        """The parts of a move; of several values that are put together only the last makes a whole state."""
        whole = (*(not isinstance(part, Put) for part in move[1:]), True)
        return tuple(self._call(part, ends) for part, ends in zip(move, whole, strict=False))

    def _call(self, part: Part, whole: bool) -> Try:
        known = self._calls.get((part, whole))
        if known is None:
            known = self._made(part)
            if self.judged and whole and not isinstance(part, See):
                known = _judged(known, self._code.broken)
            if len(self._calls) >= NODES:
                self._calls.clear()
            self._calls[part, whole] = known
        return known

    def _made(self, part: Part) -> Try:
        match part:
            case Do(action, inputs):
                return self._code.call(action, dict(inputs), self.judged)
            case See(path):
                return _seen(self._code.index[path], part)
            case Put(path, value):
                return self._put(self._code.index[path], value)

    def _put(self, at: int, value: int) -> Try:
        def put(state: Flat) -> Flat | None:
            if state[at] == value:
                return state
            self.deviates = not self.judged
            return (*state[:at], value, *state[at + 1 :])

        return put


def _closure(states: Iterable[Flat], hidden: tuple[tuple[Try, ...], ...]) -> frozenset[Flat]:
    found = set(states)
    todo = list(found)
    while todo:
        state = todo.pop()
        for tries in hidden:
            after = _through(tries, state)
            if after is not None and after not in found:
                found.add(after)
                todo.append(after)
        if len(found) > STATES:
            raise TooMany
    return frozenset(found)


def _moved(states: Iterable[Flat], moves: Iterable[tuple[Try, ...]]) -> frozenset[Flat]:
    found = set()
    for tries in moves:
        for state in states:
            after = _through(tries, state)
            if after is not None:
                found.add(after)
    return frozenset(found)


def _through(tries: tuple[Try, ...], state: Flat) -> Flat | None:
    for one in tries:
        after = one(state)
        if after is None:
            return None
        state = after
    return state


def _seen(at: int, part: See) -> Try:
    low, high = part.low, part.high
    if low == high and low is not None:
        if part.other:
            return lambda state: state if state[at] != low else None
        return lambda state: state if state[at] == low else None
    holds = part.holds
    return lambda state: state if holds(state[at]) else None


def _judged(function: Try, broken: Callable[[Flat], bool]) -> Try:
    def judged(state: Flat) -> Flat | None:
        after = function(state)
        return None if after is None or broken(after) else after

    return judged


def _offset(code: Code, field: str) -> int:
    """What is added to an instant: a field of the policy, perhaps negative, or nothing."""
    name = field.removeprefix("-")
    value = int(getattr(code.policy, name)) if name else 0
    return -value if field.startswith("-") else value
