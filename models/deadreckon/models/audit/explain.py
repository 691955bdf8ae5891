"""Why a line fits nowhere: which rule it breaks, what refused it, what would have been allowed.

This is the slow path, taken for a line that is rejected. Each move that might have written the line is taken once more,
from each of the last states, by the machine's own functions, but *leniently*: guards that refuse are noted and passed
over, and the state is then made to show what the line says. What comes out is a step that the sound machine never takes,
so the machine's rules tell what is wrong with it. The reading that needs the least force and breaks a rule is the verdict;
if the step itself breaks none, the next step that it is there for may (an admission that should not have been shows at
the work that it admits). If no reading breaks a rule, the guard that refused names it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import attrs

from ..layout import Flat
from .lenient import Elsewhere, Lenient, Reading, number_of
from .monitor import Monitor, Node, TooMany
from .moves import Blame, Key, Move, See
from .words import Rejected, Step, Words

STATES = 24
"""Last states from which readings are tried, at most."""

SHOWN = 3
"""Last states that are shown."""

REFUSALS = 6
"""Refusals that are shown."""

SHORT = 24
"""Of a history of so many lines every run is tried to be left out; of a longer one, halves, quarters and so on."""

SHRINK_SECONDS = 0.5
"""How long a history is made shorter."""


@attrs.frozen
class Explanation:
    """Why a line fits nowhere.

    Attributes:
        rule: the rule that it breaks, by the protocol's number.
        sentence: that rule in words.
        allowed: what might have come instead.
        refusals: what refused each move that might have written it.
        states: some of the last states that fitted.
        lines: numbers of the lines that suffice for the rejection.
    """

    rule: str
    sentence: str
    allowed: tuple[str, ...]
    refusals: tuple[str, ...]
    states: tuple[str, ...]
    lines: tuple[int, ...]


def explain(words: Words, rejected: Rejected, shrink: bool = True) -> Explanation:
    """Why the last step of an entity fits nowhere; *shrink*: say which of its lines suffice."""
    return _Explainer(words, rejected).explanation(shrink)


class _Explainer:
    def __init__(self, words: Words, rejected: Rejected) -> None:
        self.words = words
        self.entity = rejected.entity
        self.part = rejected.part
        self.node = rejected.node
        self.monitor: Monitor = rejected.entity.monitor
        self.steps = [step for step in rejected.entity.history if step[1] == rejected.part]
        self.number, _, self.key, self.at_ms, _ = self.steps[-1]
        origin = rejected.entity.origin
        self.origin = self.monitor.start if origin is None else origin[rejected.part]
        self.lenient = Lenient(words.machine, self.monitor.code)

    def explanation(self, shrink: bool) -> Explanation:
        states = self._last_states(self.node)
        readings = list(self._readings(states, self.steps))
        id = self._verdict(readings)
        rule = number_of(id)
        sentence = next((one.sentence for one in self.words.machine.rules if one.id in (id, rule)), "")
        refusals = dict.fromkeys(reading.told() for reading in sorted(readings, key=lambda one: one.force))
        return Explanation(
            rule,
            sentence,
            tuple(self._allowed()),
            tuple(itertools.islice(refusals, REFUSALS)),
            tuple(self.lenient.words(states[:SHOWN])),
            tuple(self._shortest(rule)) if shrink else (),
        )

    def _last_states(self, node: Node) -> list[Flat]:
        """The states in which the line found the machine; if time could not come to it, those in which time stopped."""
        found = self._before(node, self.at_ms) or self._before(node, node.now_ms)
        return sorted(found)[:STATES]

    def _before(self, node: Node, at_ms: int) -> frozenset[Flat]:
        try:
            return self.monitor.before(node, at_ms)
        except TooMany:
            return node.states

    def _readings(self, states: Iterable[Flat], steps: Sequence[Step]) -> Iterator[Reading]:
        for move, rules in self.words.suspects(self.key):
            for reading in self._read(states, move, (), self.at_ms, rules):
                yield self._suspected(reading, rules)
        for blame in self.words.blames(self.key):
            yield from self._blamed(blame, steps)
        leads = tuple(self.words.leads(self.key))
        for move in self.words.moves(self.key):
            yield from self._read(states, move, leads, self.at_ms)

    def _suspected(self, reading: Reading, rules: tuple[str, ...]) -> Reading:
        """A guard of a suspected rule is as good as the rule, and what else was passed over is no force."""
        refused = next((id for id, _ in reading.guards if id in rules), None)
        broken = reading.broken or refused
        return reading if broken is None else attrs.evolve(reading, broken=broken, suspected=True)

    def _read(
        self, states: Iterable[Flat], move: Move, leads: Iterable[Move], at_ms: int, only: tuple[str, ...] = ()
    ) -> Iterator[Reading]:
        for state in states:
            with suppress(Elsewhere):
                yield self.lenient.read(state, move, leads, at_ms if self.words.clock else None, only)

    def _blamed(self, blame: Blame, steps: Sequence[Step]) -> Iterator[Reading]:
        """The last earlier step of the kind that is blamed, as if it had come to what the line shows."""
        last = len(steps) - 2
        for at in range(last, last - 1 if blame.last else -1, -1):
            _, _, key, at_ms, _ = steps[at]
            if key[0] in blame.kinds:
                node = self._run(self.origin, steps[:at])
                for move in () if node is None else self.words.moves(key):
                    assert node is not None
                    states = sorted(self._before(node, at_ms))[:STATES]
                    yield from self._read(states, _forced(move, blame.sees), (), at_ms, blame.rules)
                return
            if key[0] in blame.since:
                return

    def _verdict(self, readings: list[Reading]) -> str:
        """The id of the rule that is broken, or of the guard that refused."""
        breaking = [one for one in readings if one.broken]
        if breaking:
            return min(breaking, key=lambda one: (one.later, self._is_ours(one.broken or ""), one.force)).broken or ""
        refused = [one for one in readings if one.guards]
        if refused:
            guards = [id for id, _ in min(refused, key=lambda one: one.force).guards]
            return next((id for id in guards if not self._is_ours(id)), guards[0])
        return self.words.last_resort

    def _is_ours(self, rule: str) -> bool:
        """Whether a rule is of a family of its own: budgets, retries. The protocol's are named first."""
        return rule[:1] != self.words.last_resort[:1]

    def _allowed(self) -> Iterator[str]:
        for text, key in self.words.options(self.entity, self.part):
            if self._step(self.node, key, self.at_ms) is not None:
                yield text

    def _step(self, node: Node, key: Key, at_ms: int) -> Node | None:
        try:
            return self.monitor.step(node, key, at_ms)
        except TooMany:
            return None

    def _run(self, node: Node, steps: Iterable[Step]) -> Node | None:
        for _, _, key, at_ms, _ in steps:
            after = self._step(node, key, at_ms)
            if after is None:
                return None
            node = after
        return node

    def _shortest(self, rule: str) -> list[int]:
        """Lines that suffice: ever shorter runs of them are left out, as long as that rule still rejects the last one."""
        until = time.monotonic() + SHRINK_SECONDS
        first, last = self.steps[0][0], self.number
        lines = list(dict.fromkeys(step[0] for step in self.steps if step[0] not in (first, last)))
        size = len(lines)
        while size > 0 and time.monotonic() < until:
            short = len(lines) <= SHORT
            for start in range(len(lines) - size, -1, -1 if short else -size):
                fewer = [*lines[:start], *lines[start + size :]]
                if time.monotonic() < until and self._rejects([first, *fewer, last], rule):
                    lines = fewer
            size = min(size - 1, len(lines)) if short else size // 2
        return [number for number in dict.fromkeys((first, *lines, last)) if number != 0]

    def _rejects(self, lines: list[int], rule: str) -> bool:
        steps = [step for step in self.steps if step[0] in lines]
        node = self._run(self.origin, steps[:-1])
        if node is None or self._run(node, steps[-1:]) is not None:
            return False
        return number_of(self._verdict(list(self._readings(self._last_states(node), steps)))) == rule


def _forced(move: Move, sees: Move) -> Move:
    """*move*, come to something else: seen where the move itself shows what it came to, or else at its end."""
    shown = [at for at, part in enumerate(move, 1) if isinstance(part, See) and not part.given]
    at = shown[-1] if shown else len(move)
    return (*move[:at], *sees, *move[at:])
