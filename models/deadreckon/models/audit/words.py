"""What a vocabulary of logs says of a machine: which lines its actions may have written. No rule is written here.

A vocabulary turns a line into *keys*, one for each part of an entity that it concerns: small tuples, in which names have
become numbers (``("admitted", 0, "replay", 2)``), so that equal stories of different entities have equal keys. For each
key it then lists the *moves* by which the machine can have come to write such a line. A move is a sequence of three things:
``do`` an action, ``see`` a value in the state, and ``put`` a value there that the log knows better than the machine. Steps
that write no line are *hidden* moves.

What follows from all this is left to the machine: :mod:`monitor` keeps the states that the lines allow.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final, TypeAlias

import attrs

from deadreckon.spec import UNLIMITED, Machine, PolicyError

from .code import Traced, Use
from .monitor import Monitor, Node
from .moves import Blame, Key, Malformed, Move

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)

Line: TypeAlias = Mapping[str, object]
"""One line of a log."""


KEPT = 256
"""Steps of an entity that are kept for explanations; then its past is dropped, but for the states it left."""

KEPT_IF_NAMED = 10_000
"""The same, of an entity that was asked for by name and is to be exported."""

RESTING = 2_000
"""Entities at rest that keep their past, for a line that comes after the end."""

REMEMBERED = 100_000
"""Entities at rest that are known at all."""


class Entity:
    """Something that a log speaks of: an incident, a hold, a host.

    Attributes:
        name: as the log has it.
        monitor: who observes it.
        nodes: where each of its parts may be.
        names: the vocabulary's tables of it.
        base_ms: the time of its first line; its own time is counted from there.
        now_ms: its own time at its last line.
        origin: where its parts were before the steps in ``history``.
        history: the steps that are kept.
        ended: nothing more is said of it: it violates, or there is more of it than the machine follows.
    """

    __slots__ = ("base_ms", "ended", "history", "monitor", "name", "names", "nodes", "now_ms", "origin")

    def __init__(self, name: str, monitor: Monitor, names: object, parts: int, at_ms: int) -> None:
        self.name = name
        self.monitor = monitor
        self.nodes: list[Node] = [monitor.start] * parts
        self.names = names
        self.base_ms = at_ms
        self.now_ms = 0
        self.origin: list[Node] | None = None
        self.history: list[Step] = []
        self.ended = False

    def forget(self) -> None:
        """Drop the past: the states that are left say all that a verdict needs."""
        self.origin = list(self.nodes)
        self.history = []


Step: TypeAlias = tuple[int, int, Key, int, Line]
"""Number of the line (0: assumed), part, key, time, line."""


@attrs.frozen
class Rejected:
    """A line that no state allowed: the entity's last step in its history. ``node`` is where the part was before."""

    words: Words
    entity: Entity
    part: int
    node: Node


@attrs.define
class Place:
    """Where a log is read: the number of the line, and its time."""

    number: int = 0
    at_ms: int = 0


Reader: TypeAlias = Callable[[Line], None]


class Words(ABC):
    """A vocabulary: one for each machine and audit.

    Attributes:
        machine: the machine.
        noun: the field of a line that names its entity.
        use: what of the machine is used.
        clock: whether lines are dated: the machine's clock then moves with them.
        instants: leaves that are instants, each with what is added (a field of the policy, or nothing), at which a
            comparison with the clock may turn.
        exact: kinds of keys from which instants are computed. The time of others only matters as it lies between
            instants. None: all kinds.
        optional: types of lines that many systems do not write. If a log has none of one, its steps are hidden.
        last_resort: the rule that is named where none is found to be broken and no guard refused.
        after_the_last: eventual rules that speak of the time after the last fault: a log that goes on can't owe them,
            since it doesn't show that a fault was the last.
        unseen: rules that a log can't show, each with the types of lines of which it would need one; none: never.
        kept: how many steps of an entity are kept.
    """

    machine: ClassVar[Machine]
    noun: ClassVar[str]
    use: ClassVar[Use]
    clock: ClassVar[bool] = False
    instants: ClassVar[tuple[tuple[str, str], ...]] = ()
    exact: ClassVar[frozenset[str] | None] = frozenset()
    optional: ClassVar[frozenset[str]] = frozenset()
    last_resort: ClassVar[str]
    after_the_last: ClassVar[frozenset[str]] = frozenset()
    unseen: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __init__(self, reject: Callable[[Rejected], None], place: Place) -> None:
        self.entities: dict[str, Entity] = {}
        self.resting: dict[str, Entity] = {}
        self._recent: deque[Entity] = deque()
        self._unbegun: set[str] = set()
        self.count = 0
        self.kept = KEPT
        self.reject = reject
        self.absent: frozenset[str] = self.optional
        self.place = place
        self.policy: object = self.default_policy()
        self._monitors: dict[object, Monitor] = {}
        self.readers: dict[str, Reader] = self.vocabulary()

    # What each vocabulary says.

    @abstractmethod
    def vocabulary(self) -> dict[str, Reader]:
        """The reader of each type of line."""

    @abstractmethod
    def moves(self, key: Key) -> Iterable[Move]:
        """The moves that may have written a line with this key."""

    @abstractmethod
    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """The moves that write no line, if the log has no lines of the types *absent*."""

    @abstractmethod
    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next for *entity*, in words, with their keys: what is tried to say what is allowed."""

    def blames(self, key: Key) -> Iterable[Blame]:
        """Readings of a line that fits nowhere by which an earlier one is wrong."""
        return ()

    def suspects(self, key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
        """Moves that would explain a line that fits nowhere, each with the rules of which it is suspected."""
        return ()

    def leads(self, key: Key) -> Iterable[Move]:
        """What a line is for: the moves that it lets happen next. If it breaks no rule by itself, they may."""
        return ()

    def rests(self, entity: Entity) -> None:  # noqa: B027  # most vocabularies have nothing to do then
        """An entity has come to rest."""

    def names(self) -> object:
        """Fresh tables of names of one entity."""
        return None

    def default_policy(self) -> object:
        """The policy of a log that gives none."""
        assert self.machine.policy is not None
        return self.machine.policy()

    def audited(self, policy: object) -> object:
        """The policy under which lines are judged: what a log can't show is unlimited."""
        return policy

    # What they share.

    def set_policy(self, given: Mapping[str, object]) -> None:
        """Entities that begin from now on have this policy; what else the line says of it is no harm.

        Raises:
            Malformed: a value is out of its range.
        """
        assert self.machine.policy is not None
        fields = {field.name for field in attrs.fields(self.machine.policy)}
        values = {name: _parameter(value) for name, value in given.items() if name in fields}
        try:
            self.policy = attrs.evolve(self.policy, **values)  # type: ignore[misc]  # an attrs class of the machine
        except PolicyError as refusal:
            raise Malformed(str(refusal)) from None

    def monitor(self) -> Monitor:
        """The monitor of entities that begin now."""
        key = (self.policy, self.absent)
        if key not in self._monitors:
            code = traced(self).code(self.audited(self.policy))
            self._monitors[key] = Monitor(self, code, self.absent)
        return self._monitors[key]

    def entity(self, name: str) -> Entity | None:
        """The entity of this name, if it is known; one at rest goes on."""
        entity = self.entities.get(name)
        if entity is None and name in self.resting:
            entity = self.entities[name] = self.resting.pop(name)
        return entity

    def known(self, line: Line) -> Entity | None:
        """The entity of a line; None if its beginning is not in the log: then it is not followed."""
        name = text_of(line, self.noun)
        entity = self.entity(name)
        if entity is None and name not in self._unbegun:
            self._unbegun.add(name)
        return entity

    def opened(self, name: str, parts: int = 1, lead_ms: int = 0) -> Entity:
        """A new entity, whose own time begins *lead_ms* before its first line."""
        self.count += 1
        base_ms = self.place.at_ms - lead_ms if self.clock else 0
        entity = self.entities[name] = Entity(name, self.monitor(), self.names(), parts, base_ms)
        return entity

    def assume(self, entity: Entity, *keys: Key) -> None:
        """Steps of which the log has no line."""
        number, self.place.number = self.place.number, 0
        for key in keys:
            self.step(entity, {}, key)
        self.place.number = number

    def step(self, entity: Entity, line: Line, key: Key, part: int = 0, *, late: bool = False) -> None:
        """One part of *entity* takes a line; what is only told *late* may have happened right after its last line."""
        if entity.ended:
            return
        if self.clock and not late:
            entity.now_ms = max(entity.now_ms, self.place.at_ms - entity.base_ms)
        history = entity.history
        if len(history) >= self.kept:
            entity.forget()
            history = entity.history
        history.append((self.place.number, part, key, entity.now_ms, line))
        node = entity.nodes[part]
        after = node.next.get(key) or entity.monitor.step(node, key, entity.now_ms)
        if after is None:
            entity.ended = True
            self.reject(Rejected(self, entity, part, node))
            return
        entity.nodes[part] = after
        if after.rests and all(one.rests for one in entity.nodes):
            self._rest(entity)
        elif self.resting.get(entity.name) is entity:
            self.entity(entity.name)  # The step before brought it to rest, for the time of a line.

    def owed(self, entity: Entity, ended: bool) -> list[str]:
        """The eventual rules by which something is still to come, whatever happened unseen.

        If the log has *ended*, hidden moves that only have to be taken are taken first.
        """
        return list(dict.fromkeys(id for node in entity.nodes for id in self.owed_in(entity, node, ended)))

    def owed_in(self, entity: Entity, node: Node, ended: bool) -> list[str]:
        """The same of one part of it, which is at *node*."""
        code, monitor = entity.monitor.code, entity.monitor
        states = monitor.before(node, self.judged_at(entity, ended)) or monitor.before(node, node.now_ms)
        states = monitor.resting(states) if ended else states
        found: list[str] = []
        for id, owes in code.owed.items():
            due = all(map(owes, node.states)) or all(map(owes, states))
            if due and not any(map(code.met[id], (*node.states, *states))):
                found.append(id)
        return found

    def judged_at(self, entity: Entity, ended: bool) -> int:
        """The entity's own time at which it is judged: that of its last line, or of the log's if that has *ended*."""
        return max(entity.now_ms, self.place.at_ms - entity.base_ms) if ended and self.clock else entity.now_ms

    def not_observable(self, types: set[str]) -> list[str]:
        """The rules that a log with lines of these types can't show."""
        return [rule for rule, needed in self.unseen.items() if types.isdisjoint(needed)]

    def _rest(self, entity: Entity) -> None:
        """Nothing more need happen: it may be forgotten once many others came after it."""
        if self.entities.pop(entity.name, None) is None:
            return
        self.resting[entity.name] = entity
        self.rests(entity)
        self._recent.append(entity)
        if len(self._recent) > RESTING:
            self._recent.popleft().forget()
        if len(self.resting) > REMEMBERED:
            del self.resting[next(iter(self.resting))]


_traced: dict[str, Traced] = {}


def traced(words: Words) -> Traced:
    """The machine of a vocabulary, traced once a process."""
    name = words.machine.name
    if name not in _traced:
        _traced[name] = Traced(words.machine, words.use)
    return _traced[name]


def text_of(line: Line, field: str) -> str:
    """The text, or number, in *field*, as a name.

    Raises:
        Malformed: it is neither.
    """
    value = line[field]
    if isinstance(value, str):
        return value
    if type(value) is int:
        return str(value)
    raise Malformed(f"{field} is {value!r}: give a text or a number")


def whole_number(line: Line, field: str) -> int:
    """The integer in *field*.

    Raises:
        Malformed: it is none.
    """
    value = line[field]
    if type(value) is not int:
        raise Malformed(f"{field} is {value!r}: give an integer")
    return value


def instant_of(line: Line, field: str) -> int:
    """The instant in *field*, in milliseconds.

    Raises:
        Malformed: it is none.
    """
    value = line[field]
    if type(value) is int:
        return value
    if isinstance(value, str):
        try:
            return instant(value)
        except ValueError:
            pass
    raise Malformed(f"{field} is {value!r}: give milliseconds, or a time like 2026-01-31T12:00:00.000Z")


def instant(text: str) -> int:
    """An ISO-8601 time in milliseconds; one without a zone is UTC.

    Raises:
        ValueError: it is none.
    """
    time = datetime.fromisoformat(text)
    return ((time if time.tzinfo is not None else time.replace(tzinfo=UTC)) - EPOCH) // MILLISECOND


def among(line: Line, field: str, words: Mapping[str, object]) -> str:
    """The word in *field*, one of *words*.

    Raises:
        Malformed: another.
    """
    value = line[field]
    if not isinstance(value, str) or value not in words:
        raise Malformed(f"{field} is {value!r}: give one of {', '.join(words)}")
    return value


def _parameter(value: object) -> object:
    """A value of a policy as a line has it: null, infinity and the word are no limit."""
    if value is None or value == math.inf or (isinstance(value, str) and value.lower() == "unlimited"):
        return UNLIMITED
    return tuple(value) if isinstance(value, list) else value
