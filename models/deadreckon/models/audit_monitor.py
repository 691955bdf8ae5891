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

from collections.abc import Callable, Iterable

from .audit_moves import Do, Key, Move, Put, See, Vocabulary
from .audit_relation import Code
from .layout import Flat

STATES = 20_000
"""So many states at once are not followed any further."""

NODES = 20_000
"""So many sets are remembered; then remembering starts anew."""

Try = Callable[[Flat], Flat | None]


class TooMany(Exception):
    """More states fit than are followed."""


class Node:
    """A set of states, and where the lines that were seen so far lead from it."""

    __slots__ = ("closed", "commit", "next", "now_ms", "rests", "states", "turns")

    def __init__(self, states: frozenset[Flat], now_ms: int, turns: tuple[int, ...], rests: bool) -> None:
        self.states = states
        self.now_ms = now_ms
        self.turns = turns
        self.rests = rests
        self.commit = len(states) == 1
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
        self._broken = code.broken
        self._exact = words.exact
        self._moves: dict[Key, tuple[tuple[Try, ...], ...]] = {}
        self._calls: dict[object, Try] = {}
        self._hidden = tuple(self._compiled(move) for move in words.hidden(absent))
        self._nodes: dict[frozenset[Flat], Node] = {}
        self._now = code.index.get("now_ms") if words.clock else None
        self._tick = code.timed("tick") if words.clock else None
        self._instants = tuple((code.index[path], _offset(code, field)) for path, field in words.instants)
        self.start = self._node(frozenset((code.initial,)))

    def step(self, node: Node, key: Key, at_ms: int) -> Node | None:
        """Where a line with this key leads, at *at_ms* of the entity's own time; None if nowhere.

        Raises:
            Malformed: the line is not what the vocabulary says.
            TooMany: more states fit than are followed.
        """
        exact = self._exact is None or key[0] in self._exact
        if self._now is not None:
            at_ms = max(at_ms, node.now_ms) if exact else self._between(node, at_ms)
            key_at: Key = (key, at_ms)
        else:
            key_at = key
        known = node.next.get(key_at)
        if known is not None:
            return known
        after = self._moved(self.before(node, at_ms), self._tries(key))
        if not after:
            return None
        found = self._node(after)
        if not exact:
            node.next[key_at] = found
        return found

    def before(self, node: Node, at_ms: int) -> frozenset[Flat]:
        """The states in which a line at *at_ms* may find the machine."""
        if self._now is not None and at_ms > node.now_ms:
            return self._at(node.states, at_ms)
        if node.closed is None:
            node.closed = self._closure(node.states)
        return node.closed

    def tried(self, states: Iterable[Flat], move: Move) -> frozenset[Flat]:
        """The states to which one move leads."""
        return self._moved(states, (self._compiled(move),))

    def resting(self, states: frozenset[Flat]) -> frozenset[Flat]:
        """Those of *states* that no hidden move leaves for good: where the machine may stay if nothing follows."""
        found = frozenset(state for state in states if not (self._moved((state,), self._hidden) - {state}))
        return found or states

    def _between(self, node: Node, at_ms: int) -> int:
        """The first instant that is to *node* what *at_ms* is: at the same turn of a comparison, or just past it."""
        passed = [turn for turn in node.turns if turn <= at_ms]
        if not passed or at_ms <= node.now_ms:
            return node.now_ms
        return at_ms if passed[-1] == at_ms else max(passed[-1] + 1, node.now_ms)

    def _node(self, states: frozenset[Flat]) -> Node:
        node = self._nodes.get(states)
        if node is None:
            now_ms, turns = self._turns(states)
            rest = self.code.rest
            node = Node(states, now_ms, turns, rest is not None and all(map(rest, states)))
            if len(self._nodes) >= NODES:
                self._nodes.clear()
            self._nodes[states] = node
        return node

    def _turns(self, states: frozenset[Flat]) -> tuple[int, tuple[int, ...]]:
        if self._now is None:
            return 0, ()
        now_ms = max(state[self._now] for state in states)
        turns = {state[at] + offset for state in states for at, offset in self._instants}
        return now_ms, tuple(sorted(turn for turn in turns if turn >= now_ms))

    def _closure(self, states: Iterable[Flat]) -> frozenset[Flat]:
        found = set(states)
        todo = list(found)
        while todo:
            state = todo.pop()
            for tries in self._hidden:
                after = _through(tries, state)
                if after is not None and after not in found:
                    found.add(after)
                    todo.append(after)
            if len(found) > STATES:
                raise TooMany
        return frozenset(found)

    def _at(self, states: Iterable[Flat], at_ms: int) -> frozenset[Flat]:
        """The states once the clock has come to *at_ms*, stopping at each instant on the way."""
        assert self._now is not None
        assert self._tick is not None
        now, tick, arrived = self._now, self._tick, set()
        todo = self._closure(states)
        while todo:
            later = set()
            for state in todo:
                now_ms = state[now]
                if now_ms >= at_ms:
                    arrived.add(state)
                    continue
                ahead = [turn for at, offset in self._instants if now_ms < (turn := state[at] + offset) < at_ms]
                after = tick(state, min(ahead, default=at_ms) - now_ms)
                if after is not None and not (self._broken is not None and self._broken(after)):
                    later.add(after)
            todo = self._closure(later)
        return frozenset(arrived)

    @staticmethod
    def _moved(states: Iterable[Flat], moves: Iterable[tuple[Try, ...]]) -> frozenset[Flat]:
        found = set()
        for tries in moves:
            for state in states:
                after = _through(tries, state)
                if after is not None:
                    found.add(after)
        return frozenset(found)

    def _tries(self, key: Key) -> tuple[tuple[Try, ...], ...]:
        known = self._moves.get(key)
        if known is None:
            known = tuple(self._compiled(move) for move in self.words.moves(key))
            if len(self._moves) >= NODES:
                self._moves.clear()
            self._moves[key] = known
        return known

    def _compiled(self, move: Move) -> tuple[Try, ...]:
        """The parts of a move; rules are judged after each action, and after the last of the values that are put."""
        goes_on = (*map(_is_put, move[1:]), False)
        return tuple(self._call(part, not more) for part, more in zip(move, goes_on, strict=False))

    def _call(self, part: Do | See | Put, judged: bool) -> Try:
        known = self._calls.get((part, judged))
        if known is None:
            known = self._made(part)
            if self._broken is not None and judged and not isinstance(part, See):
                known = _judged(known, self._broken)
            if len(self._calls) >= NODES:
                self._calls.clear()
            self._calls[part, judged] = known
        return known

    def _made(self, part: Do | See | Put) -> Try:
        match part:
            case Do(action, inputs):
                return self.code.call(action, dict(inputs))
            case See(path):
                return _seen(self.code.index[path], part)
            case Put(path, value):
                return _put(self.code.index[path], value)


def _is_put(part: Do | See | Put) -> bool:
    return isinstance(part, Put)


def _put(at: int, value: int) -> Try:
    return lambda state: (*state[:at], value, *state[at + 1 :])


def _through(tries: tuple[Try, ...], state: Flat) -> Flat | None:
    for one in tries:
        after = one(state)
        if after is None:
            return None
        state = after
    return state


def _seen(at: int, part: See) -> Try:
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
