"""Why a line fits nowhere: which rule it breaks, what refused it, what would have been allowed.

This is the slow path, taken for a line that is rejected. Each move that might have written the line is taken once more,
from each of the last states, by the machine's own functions, but *leniently*: guards that refuse are noted and passed
over, and the state is then made to show what the line says. What comes out is a step that the sound machine never takes,
so the machine's rules tell what is wrong with it. The reading that needs the least force and breaks a rule is the verdict;
if the step itself breaks none, the next step that it is there for may (an admission that should not have been shows at
the work that it admits). If no reading breaks a rule, the guard that refused names it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import attrs

from .audit_lenient import Elsewhere, Lenient, Reading
from .audit_monitor import Monitor, Node, TooMany
from .audit_moves import Blame, Key, Move
from .audit_words import Rejected, Words
from .layout import Flat

STATES = 24
"""Last states from which readings are tried, at most."""

SHOWN = 3
"""Last states that are shown."""

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


def number_of(rule: str) -> str:
    """The protocol's number of a rule: a letter after it marks a further clause."""
    found = re.match(r"[A-Z]+[0-9]+", rule)
    return found[0] if found else rule


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
        states = self._last_states()
        readings = list(self._readings(states))
        rule, best = self._verdict(readings)
        sentence = next((one.sentence for one in self.words.machine.rules if one.id in (best, rule)), "")
        return Explanation(
            rule,
            sentence,
            tuple(self._allowed()),
            tuple(dict.fromkeys(reading.told() for reading in sorted(readings, key=lambda one: one.force)[:40]))[:6],
            tuple(self.lenient.words(state) for state in states[:SHOWN]),
            tuple(self._shortest()) if shrink else (),
        )

    def _last_states(self) -> list[Flat]:
        """The states in which the line found the machine; if time could not come to it, those in which time stopped."""
        found = self._before(self.node, self.at_ms) or self._before(self.node, self.node.now_ms)
        return sorted(found)[:STATES]

    def _before(self, node: Node, at_ms: int) -> frozenset[Flat]:
        try:
            return self.monitor.before(node, at_ms)
        except TooMany:
            return node.states

    def _readings(self, states: Iterable[Flat]) -> Iterator[Reading]:
        at_ms = self.at_ms if self.words.clock else None
        leads = tuple(self.words.leads(self.key))
        for move in self.words.moves(self.key):
            for state in states:
                with suppress(Elsewhere):
                    yield self.lenient.read(state, move, leads, at_ms)
        for blame in self.words.blames(self.key):
            yield from self._blamed(blame)

    def _blamed(self, blame: Blame) -> Iterator[Reading]:
        """The last earlier step of the kind that is blamed, as if it had come to what the line shows."""
        for at in range(len(self.steps) - 2, -1, -1):
            key, at_ms = self.steps[at][2], self.steps[at][3]
            if key[0] in blame.kinds:
                node = self._run(self.origin, self.steps[:at])
                if node is None:
                    return
                for move in self.words.moves(key):
                    forced: Move = (*move, *blame.sees)
                    for state in sorted(self._before(node, at_ms))[:STATES]:
                        clock = at_ms if self.words.clock else None
                        with suppress(Elsewhere):
                            yield self.lenient.read(state, forced, (), clock, blame.rules)
                return

    def _verdict(self, readings: list[Reading]) -> tuple[str, str]:
        """The rule that is broken, and its full id."""
        breaking = [one for one in readings if one.broken]
        if breaking:
            best = min(breaking, key=lambda one: (one.later, one.force))
            assert best.broken is not None
            return number_of(best.broken), best.broken
        refused = [one for one in readings if one.guards]
        if refused:
            best = min(refused, key=lambda one: one.force)
            return number_of(best.guards[0][0]), best.guards[0][0]
        return self.words.last_resort, self.words.last_resort

    def _allowed(self) -> Iterator[str]:
        for text, key in self.words.options(self.entity, self.part):
            if self._step(self.node, key, self.at_ms) is not None:
                yield text

    def _step(self, node: Node, key: Key, at_ms: int) -> Node | None:
        try:
            return self.monitor.step(node, key, at_ms)
        except TooMany:
            return None

    def _run(self, node: Node, steps: Iterable[tuple[int, int, Key, int, object]]) -> Node | None:
        for _, _, key, at_ms, _ in steps:
            after = self._step(node, key, at_ms)
            if after is None:
                return None
            node = after
        return node

    def _shortest(self) -> list[int]:
        """Lines that suffice: one after the other is left out, as long as the last one is still the one that is rejected."""
        until = time.monotonic() + SHRINK_SECONDS
        lines = list(dict.fromkeys(step[0] for step in self.steps))
        for number in reversed(lines[:-1]):
            fewer = [one for one in lines if one != number]
            if number != 0 and time.monotonic() < until and self._rejects(fewer):
                lines = fewer
        return [number for number in lines if number != 0]

    def _rejects(self, lines: list[int]) -> bool:
        steps = [step for step in self.steps if step[0] in lines]
        node = self._run(self.origin, steps[:-1])
        return node is not None and bool(self._before(node, self.at_ms)) and self._run(node, steps[-1:]) is None
