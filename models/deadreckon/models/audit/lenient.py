"""Take a move although the machine refuses it, and say what that took and which rule it breaks.

Guards are noted and passed over; where the state does not come to what the line shows, it is made to. The machine's own
functions run here, with another ``require``, and its own rules judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import cast

import attrs

from deadreckon.spec import Function, Kind, Machine, Refused, Rule
from deadreckon.spec.language import require
from deadreckon.spec.rebind import Rebinder

from ..layout import Flat
from .code import Code
from .moves import Do, Move, Part, Put


@attrs.frozen
class Reading:
    """One way to read a line.

    Attributes:
        actions: what was taken, in words.
        guards: the rules and reasons by which guards refused it.
        differs: where the machine came to something else than the line shows.
        broken: the first rule that is broken, in the order of the machine; None if none is.
        later: whether it is broken only by what the line lets happen.
        suspected: whether it is broken as it was suspected to be: then what was passed over is no force.
    """

    actions: str
    guards: tuple[tuple[str, str], ...]
    differs: tuple[str, ...]
    broken: str | None
    later: bool
    suspected: bool = False

    @property
    def force(self) -> int:
        """How much it took."""
        return 0 if self.suspected else len(self.guards) + len(self.differs)

    def told(self) -> str:
        """The reading as a person is told it."""
        reasons = [f"{rule}: {why}" for rule, why in self.guards] or list(self.differs)
        reasons = reasons or [f"it would break {number_of(self.broken)}" if self.broken else "it leads nowhere"]
        return f"{self.actions or 'nothing'}: {'; '.join(reasons)}"


def number_of(rule: str) -> str:
    """The protocol's number of a rule: a letter after it marks a further clause."""
    found = re.match(r"[A-Z]+[0-9]+", rule)
    return found[0] if found else rule


class Elsewhere(Exception):
    """The move does not begin in this state."""


@attrs.define
class _Taken:
    """Where a lenient run stands."""

    state: object
    ghost: object
    guards: list[tuple[str, str]]
    differs: list[str]
    actions: list[str]


class Lenient:
    """Lenient runs of one machine under one policy."""

    def __init__(self, machine: Machine, code: Code) -> None:
        self.machine = machine
        self.code = code
        self.rules = [rule for rule in machine.rules if rule.kind is Kind.ALWAYS and not rule.lemma]
        self._noted: list[tuple[str, str]] = []

        def note(condition: bool, rule: str, why: str) -> None:
            if not condition:
                self._noted.append((rule, why))

        rebinder = Rebinder({cast("Function", require): cast("Function", note)})
        self._functions = {one.name: rebinder.rebound(one.function) for one in machine.actions}
        self._calls = {name: machine.signature(function) for name, function in self._functions.items()}
        self._observe = None if machine.observe is None else (machine.observe, machine.signature(machine.observe))
        self._signatures = {rule.id: machine.signature(rule.holds) for rule in self.rules}
        self._is_step = {
            rule.id: bool(rule.on) or self._signatures[rule.id].parts.count(machine.state) > 1 for rule in self.rules
        }

    def words(self, states: Sequence[Flat]) -> Iterator[str]:
        """States: the first as what differs from the initial one, others as what differs from the first."""
        for at, state in enumerate(states):
            fields = zip(self.code.fields, state, states[0] if at else self.code.initial, strict=True)
            told = ", ".join(f"{field.path} {field.words(value)}" for field, value, other in fields if value != other)
            yield f"the same, but {told}" if at else told or "nothing has happened"

    def read(
        self, state: Flat, move: Move, leads: Iterable[Move], at_ms: int | None, only: tuple[str, ...] = ()
    ) -> Reading:
        """Read a line as *move* from *state*.

        Args:
            state: where the machine was.
            move: what it did.
            leads: what it may do next, if the move itself breaks no rule.
            at_ms: when; None if lines have no time.
            only: the rules that may be broken; all, if there are none.

        Raises:
            Elsewhere: the move does not begin there.
        """
        taken = _Taken(*self._rebuilt(state), [], [], [])
        broken = None
        if at_ms is not None and (wait_ms := at_ms - state[self.code.index["now_ms"]]) > 0:
            broken = self._take(taken, (Do("tick", (("elapsed_ms", wait_ms),)),), only)
            taken.actions.clear()
        broken = broken or self._take(taken, move, only)
        reading = Reading(", ".join(taken.actions), tuple(taken.guards), tuple(taken.differs), broken, False)
        for lead in () if broken or taken.guards else leads:
            next_ = _Taken(taken.state, taken.ghost, [], [], [])
            if broken := self._take(next_, lead, only):
                return attrs.evolve(reading, broken=broken, later=True)
        return reading

    def _take(self, taken: _Taken, move: Move, only: tuple[str, ...]) -> str | None:
        """Take *move*; the first rule that is broken on the way."""
        first = next((at for at, part in enumerate(move) if isinstance(part, Do)), 0)
        for part in move[:first]:  # where it begins, as the log has it
            self._force(taken, part)
        groups: list[list[Part]] = []
        for part in move[first:]:
            if isinstance(part, Do) or not groups:
                groups.append([])
            groups[-1].append(part)
        for group in groups:
            before, ghost, action = taken.state, taken.ghost, ""
            for part in group:
                if isinstance(part, Do):
                    action = part.action
                    self._do(taken, part)
                else:
                    self._force(taken, part)
            taken.ghost = self._observed(before, taken.state, ghost)
            if (broken := self._broken(action, before, taken, ghost, only)) is not None:
                return broken
        return None

    def _do(self, taken: _Taken, part: Do) -> None:
        self._noted = []
        policy, inputs = self.code.given(part.action, dict(part.inputs))
        function = self._functions[part.action]
        try:
            taken.state = function(*self._calls[part.action].arguments(policy, (taken.state,), None, inputs))
        except Refused as refusal:  # a helper of another module that refuses by itself
            self._noted.append((refusal.rule, refusal.why))
        taken.guards += self._noted
        shown = ", ".join(f"{name} {_told(inputs[name])}" for name in inputs if name not in self.code.use.fixed)
        taken.actions.append(f"{part.action} ({shown})" if shown else part.action)

    def _force(self, taken: _Taken, part: Part) -> None:
        assert not isinstance(part, Do)
        leaves = list(self.code.flatten(taken.state, taken.ghost))
        at = self.code.leaf(part.path)
        if isinstance(part, Put):
            leaves[at] = part.value
        elif not part.holds(leaves[at]):
            if part.given:
                raise Elsewhere
            field = self.code.layout_field(at)
            wanted = part.low if part.low is not None else part.high
            assert wanted is not None
            said = f"{field.path} would be {field.words(leaves[at])}, and the line says {field.words(wanted)}"
            taken.differs.append(said)
            leaves[at] = wanted
        taken.state = self._rebuilt_whole(tuple(leaves))[0]

    def _rebuilt(self, state: Flat) -> tuple[object, object]:
        return self._rebuilt_whole(self.code.whole(state))

    def _rebuilt_whole(self, whole: Flat) -> tuple[object, object]:
        state, ghost = self.code.rebuild(whole)
        return state, ghost

    def _observed(self, before: object, after: object, ghost: object) -> object:
        if self._observe is None or before is after:
            return ghost
        observe, signature = self._observe
        return observe(*signature.arguments(self.code.policy, (before, after), ghost))

    def _broken(self, action: str, before: object, taken: _Taken, ghost: object, only: tuple[str, ...]) -> str | None:
        """The first rule that the step breaks; one that says as much of the state before it, which lines led to, is not."""
        for rule in self.rules:
            if (not only or rule.id in only) and not self._holds(rule, action, (before, ghost), taken):
                return rule.id
        return None

    def _holds(self, rule: Rule, action: str, before: tuple[object, object], taken: _Taken) -> bool:
        state, ghost = before
        if self._is_step[rule.id]:
            return bool(rule.on and action not in rule.on) or self._says(rule, (state, taken.state), ghost)
        return self._says(rule, (taken.state,), taken.ghost) or not self._says(rule, (state,), ghost)

    def _says(self, rule: Rule, states: tuple[object, ...], ghost: object) -> bool:
        try:
            return bool(rule.holds(*self._signatures[rule.id].arguments(self.code.policy, states, ghost)))
        except Refused:
            return False


def _told(value: object) -> str:
    return value.name.lower().replace("_", " ") if isinstance(value, Enum) else str(value).lower()
