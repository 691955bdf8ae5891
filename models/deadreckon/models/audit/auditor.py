"""Audit a log: hold each line against the machines, and report what no run of theirs explains.

    report = audit([("night.jsonl", lines("night.jsonl"))])

Each machine has a vocabulary (:mod:`.incident` and so on), which says what lines its actions write; all else is
derived. See :mod:`.words` for how, and ``docs/audit.md`` for what a log must have.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import attrs

from deadreckon.spec import CallerError, Kind

from .explain import Explanation, explain
from .hold import HoldWords
from .incident import IncidentWords
from .journal import JournalWords
from .keepalive import KeepaliveWords
from .lenient import number_of
from .monitor import TooMany
from .moves import Key, Malformed, NotFollowed
from .request import RequestWords
from .run import Run, accepted_run, rejected_run
from .words import KEPT_IF_NAMED, Entity, Line, Place, Reader, Rejected, Words

VOCABULARIES: tuple[type[Words], ...] = (IncidentWords, HoldWords, KeepaliveWords, JournalWords, RequestWords)

TOO_MANY = "more states fit than are followed"
LOOKAHEAD = 20_000
"""Lines of each log that are looked at first, to learn which types of lines its system writes."""

EXPLAINED = 200
"""Different violations whose history is made shorter; equal ones are explained once."""

CONFORMS, VIOLATES, PENDING = "conforms", "violates", "pending"


@attrs.frozen
class Violation:
    """An entity that no run of its machine explains.

    Attributes:
        machine: the machine.
        entity: its name.
        rule: the rule that is broken.
        line: number of the line at which the last state went.
        source: the log that has this line.
        happened: the line in words.
        history: the entity's own lines that suffice, with their numbers.
        why: more about it; None at the end of the log, where an obligation is left.
    """

    machine: str
    entity: str
    rule: str
    sentence: str
    line: int
    source: str
    happened: str
    history: tuple[tuple[int, Line], ...]
    why: Explanation | None

    @property
    def allowed(self) -> tuple[str, ...]:
        """What would have been allowed instead."""
        return self.why.allowed if self.why is not None else ()


@attrs.define
class Report:
    """What an audit found.

    Attributes:
        lines: lines that were read.
        left_out: records of which a map made no line.
        malformed: those that are no event, with the reason.
        unknown: types that no vocabulary has, and how often.
        entities, verdicts: how many there are, and what is said of them; nothing, where one was not followed to the end.
        pending: unfinished obligations: machine, rule, and how many entities have it.
        not_observable: rules that these logs can't show.
        not_followed: why entities were not followed any further, and how many.
        violations: what fits nowhere.
        run: if one was asked for, that of the first violation, up to the line that fits nowhere; without a violation
            that of the first entity that was asked for by name.
    """

    lines: int = 0
    left_out: int = 0
    malformed: list[tuple[str, int, str]] = attrs.field(factory=list)
    unknown: Counter[str] = attrs.field(factory=Counter)
    entities: int = 0
    verdicts: Counter[str] = attrs.field(factory=Counter)
    pending: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    not_observable: list[str] = attrs.field(factory=list)
    not_followed: Counter[str] = attrs.field(factory=Counter)
    violations: list[Violation] = attrs.field(factory=list)
    run: Run | None = None


@attrs.frozen
class Filters:
    """What of a log is of interest: these rules, these entities; all, if there are none."""

    rules: frozenset[str] = frozenset()
    entities: frozenset[str] = frozenset()


@attrs.frozen
class Known:
    """What is known of the system that wrote a log.

    Attributes:
        unwritten: types of lines that it never writes, whatever happens.
        not_observable: rules that its log can't show.
    """

    unwritten: frozenset[str] = frozenset()
    not_observable: tuple[str, ...] = ()


class Audit:
    """One audit of one or more logs. A log that begins with a policy is one of its own; others go on from the one before.

    Args:
        filters: what is of interest.
        known: what is known of the system.
        run: whether a run of the machine is reported too. Entities that are of interest by name are then kept longer.

    Raises:
        CallerError: no vocabulary has a type of line that is said to be unwritten.
    """

    def __init__(self, filters: Filters | None = None, known: Known | None = None, *, run: bool = False) -> None:
        self._run = run
        self._accepted: Run | None = None
        self.filters = filters or Filters()
        self.known = known or Known()
        self.report = Report()
        self.source = ""
        self._shown: set[str] = set()
        self._begin()

        if strange := sorted(self.known.unwritten - set(self._readers)):
            raise CallerError(f"there is no type {strange[0]}: one of {', '.join(self._readers)}")

    def _begin(self) -> None:
        """Nothing has been read of the log that begins now."""
        self._place = Place()
        self._words = [vocabulary(self._reject, self._place) for vocabulary in VOCABULARIES]
        for words in self._words if self._run and self.filters.entities else ():
            words.kept = KEPT_IF_NAMED
        self._named = {words.machine.name: words for words in self._words}
        self._seen: set[str] = set()
        self._readers: dict[str, Reader] = {"policy": self._policy, "log.ended": self._log_ended}
        for type_ in dict.fromkeys(type_ for words in self._words for type_ in words.readers):
            self._readers[type_] = self._reader(type_)
        self._ended: tuple[str, int] | None = None
        self._violating: set[tuple[str, str]] = set()
        self._explained: dict[tuple[int, Key], Explanation] = {}
        self._left: set[tuple[str, str]] = set()

    def read(self, lines: Iterable[tuple[int, Line]], source: str = "") -> None:
        """Take the lines of one log: their numbers, and what they say."""
        before, self.source = self.source, source
        lines = iter(lines)
        first = list(itertools.islice(lines, LOOKAHEAD))  # a line that is malformed is of this log already
        if self._seen and first and first[0][1].get("type") == "policy":
            self.source = before
            self._conclude()
            self._begin()
            self.source = source
        self._look_ahead(first)
        readers, report, place = self._readers, self.report, self._place
        for number, line in itertools.chain(first, lines):
            place.number = number
            try:
                place.at_ms = line.get("at", place.at_ms)  # type: ignore[assignment]  # a number: see where lines are read
                type_ = line["type"]
                reader = readers.get(type_) if type_.__class__ is str else None
                if reader is None:
                    self._unknown(type_)
                else:
                    reader(line)
            except Malformed as fault:
                self._malformed(number, str(fault))
            except KeyError as fault:
                if fault.args[0] in line:
                    raise
                self._malformed(number, f"it has no {fault.args[0]}")
            except (NotFollowed, TooMany) as fault:
                self._leave(line, str(fault) or TOO_MANY)
            report.lines += 1

    def unread(self, number: int, why: str) -> None:
        """A line of the log is none."""
        self.report.lines += 1
        self._malformed(number, why)

    def _malformed(self, number: int, why: str) -> None:
        self.report.malformed.append((self.source, number, why))

    def _unknown(self, type_: object) -> None:
        if not isinstance(type_, str):
            raise Malformed(f"type is {type_!r}: give a text")
        self.report.unknown[type_[:80]] += 1

    def _reader(self, type_: str) -> Reader:
        """Who reads lines of this type. The first one says that the system writes them; the others go there directly."""
        mine = [words for words in self._words if type_ in words.readers]
        readers = [words.readers[type_] for words in mine]
        direct = readers[0] if len(readers) == 1 else _to_all(readers)
        wanted = direct if not self.filters.entities else self._only(direct, mine)

        def first(line: Line) -> None:
            self._readers[type_] = wanted
            self._seen.add(type_)
            for words in mine:
                words.absent -= {type_}
            wanted(line)

        return first

    def _only(self, reader: Reader, words: list[Words]) -> Reader:
        nouns = [one.noun for one in words]

        def read(line: Line) -> None:
            named = [str(line[noun]) for noun in nouns if noun in line]
            if not named or not self.filters.entities.isdisjoint(named):
                reader(line)

        return read

    def _look_ahead(self, lines: list[tuple[int, Line]]) -> None:
        self._seen |= {type_ for _, line in lines if isinstance(type_ := line.get("type"), str)}
        for words in self._words:
            words.absent = (words.optional | self.known.unwritten) - self._seen

    def _policy(self, line: Line) -> None:
        words = self._named.get(str(line.get("machine")))
        if words is None:
            raise Malformed(f"policy of the unknown machine {line.get('machine')!r}: one of {', '.join(self._named)}")
        words.set_policy({name: value for name, value in line.items() if name not in ("type", "machine", "at")})

    def _log_ended(self, line: Line) -> None:
        self._ended = (self.source, self._place.number)

    def _leave(self, line: Line, why: str) -> None:
        self.report.not_followed[why] += 1
        for words in self._words:
            entity = words.entities.get(str(line.get(words.noun)))
            if entity is not None:
                self._left_out(words, entity)

    def _left_out(self, words: Words, entity: Entity) -> None:
        entity.ended = True
        self._left.add((words.machine.name, entity.name))

    # Verdicts.

    def _reject(self, rejected: Rejected) -> None:
        words, entity = rejected.words, rejected.entity
        if (words.machine.name, entity.name) in self._violating:
            return
        number, _, key, _, line = entity.history[-1]
        cached = (id(rejected.node), key)
        why = self._explained.get(cached)
        lines = why.lines if why is not None else ()
        own = {step[0]: step[4] for step in entity.history if step[0]}
        if why is None:
            why = explain(words, rejected, shrink=len(self._explained) < EXPLAINED)
            lines = why.lines
            self._explained[cached] = attrs.evolve(why, lines=())
        history = tuple((at, own[at]) for at in lines or own if at in own)
        happened = told(line) if number else f"{told(line)} (its beginning is not in the log)"
        if self._violated(words, entity, why.rule, why.sentence, number, happened, history, why) and self._first():
            run = rejected_run(words, rejected, {at for at, _ in history}, self.source)
            self.report.run = attrs.evolve(run, rule=why.rule, number=number, happened=happened)

    def _first(self) -> bool:
        """Whether the violation that was just found is the one whose run is reported."""
        return self._run and len(self.report.violations) == 1

    def _violated(
        self,
        words: Words,
        entity: Entity,
        rule: str,
        sentence: str,
        number: int,
        happened: str,
        history: tuple[tuple[int, Line], ...],
        why: Explanation | None,
    ) -> bool:
        """Report a violation; whether it is of interest."""
        entity.ended = True
        if self.filters.rules and rule not in self.filters.rules:
            self.report.not_followed[f"it violates {rule}, which was not asked for"] += 1
            self._left.add((words.machine.name, entity.name))
            return False
        self._violating.add((words.machine.name, entity.name))
        self.report.violations.append(
            Violation(words.machine.name, entity.name, rule, sentence, number, self.source, happened, history, why)
        )
        return True

    def end(self) -> Report:
        """Judge what is left, and say what was found."""
        self._conclude()
        report = self.report
        hidden = [rule for rule in report.not_observable if rule not in self._shown]
        report.not_observable = list(dict.fromkeys((*hidden, *self.known.not_observable)))
        if not report.violations:
            report.run = self._accepted
        return report

    def _conclude(self) -> None:
        """The log is over: judge what is left of it."""
        report = self.report
        ended = self._ended == (self.source, self._place.number)  # nothing followed
        pending = report.verdicts[PENDING]
        for words in self._words:
            report.entities += words.count
            for entity in list(words.entities.values()):
                if entity.ended:
                    continue
                try:
                    self._end(words, entity, ended)
                except TooMany:
                    self.report.not_followed[TOO_MANY] += 1
                    self._left_out(words, entity)
            for entity in (*words.resting.values(), *words.entities.values()):
                wanted = self._run and self._accepted is None and entity.name in self.filters.entities
                if wanted and not entity.ended:
                    self._accepted = accepted_run(words, entity, self.source, ended=ended)
            if words.count:
                hidden = words.not_observable(self._seen)
                report.not_observable += hidden
                self._shown |= set(words.unseen) - set(hidden)
        report.verdicts[VIOLATES] += len(self._violating)
        unjudged = len(self._violating | self._left) + report.verdicts[PENDING] - pending
        report.verdicts[CONFORMS] += sum(words.count for words in self._words) - unjudged

    def _end(self, words: Words, entity: Entity, ended: bool) -> None:
        owed = [id for id in words.owed(entity, ended) if ended or id not in words.after_the_last]
        if not owed:
            return
        if not ended:
            self.report.verdicts[PENDING] += 1
            self.report.pending.update((words.machine.name, number_of(id)) for id in owed)
            return
        rule = next(one for one in words.machine.rules if one.id == owed[0])
        assert rule.kind is Kind.EVENTUALLY
        history = tuple({step[0]: (step[0], step[4]) for step in entity.history if step[0]}.values())
        happened, number = "the log ended, and nothing more came", self._place.number
        if self._violated(words, entity, number_of(rule.id), rule.sentence, number, happened, history, None):
            if not self._first():
                return
            part = next(at for at, node in enumerate(entity.nodes) if owed[0] in words.owed_in(entity, node, ended))
            run = accepted_run(words, entity, self.source, ended=ended, part=part)
            self.report.run = attrs.evolve(run, rule=number_of(rule.id), number=number, happened=happened)


def audit(
    logs: Iterable[tuple[str, Iterable[tuple[int, Line]]]], filters: Filters | None = None, known: Known | None = None
) -> Report:
    """Audit logs, each a name and its numbered lines."""
    one = Audit(filters, known)
    for source, lines in logs:
        one.read(lines, source)
    return one.end()


def told(line: Line) -> str:
    """A line in words."""
    fields = ", ".join(f"{name} {_value(value)}" for name, value in line.items() if name not in ("type", "at"))
    return f"{line.get('type')} ({fields})" if fields else str(line.get("type"))


def _value(value: object) -> str:
    if isinstance(value, list):
        return "/".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _to_all(readers: list[Reader]) -> Reader:
    def read(line: Line) -> None:
        for reader in readers:
            reader(line)

    return read
