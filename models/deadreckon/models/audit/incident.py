"""What a log says of a recovery incident.

Names of incarnations become the machine's numbers in the order in which they are met, names of attempts become slots.

What a log does not show, and what is assumed
    The clock stands still and the soft budgets are unlimited: progress is in no line. A verdict for a soft reason is the
    predicate's, which may fall at any admission but the first. Callbacks may be queued at any time. Writes become durable
    unseen (``sync``), and so may the original turn end. A sweep may come at any time after the end.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, cast

import attrs

from deadreckon.spec import UNLIMITED, PolicyError
from deadreckon.spec.incident_state import SLOTS, Outcome, Phase, Reason, RecoveryPolicy, Status, Turn, recovery_policy
from deadreckon.spec.machines import incident

from . import incident_moves as by
from .code import Use
from .incident_moves import INTERRUPTED, KINDS
from .lives import BORN, DIED, Life, LivingWords
from .moves import Key, Malformed, Move, NotFollowed, do, given, given_not, see
from .words import Entity, Line, Reader, among, text_of, whole_number

STARTED: Final = ("started",)

FOLLOWED: Final = 10_000
"""Deaths that are assumed, at most, of an incident that began before its log."""


@attrs.define
class Names(Life):
    """What an incident's names stand for.

    Attributes:
        slots: the attempts of the current incarnation.
        refused: the slot of the attempt in it that was refused; -1 for none.
        original: whether the original turn may run in it.
        running: whether the original turn runs for all that lines say: they would say that it ended.
        beside: whether a callback was admitted while the original turn ran.
        somewhere: whether the log names no incarnations: each line may be of the last one, or of another.
    """

    slots: dict[str, int] = attrs.field(factory=dict)
    refused: int = -1
    original: bool = False
    running: bool = False
    beside: bool = False
    somewhere: bool = False

    def born(self, name: str | None) -> None:
        """Another incarnation, with nothing under way."""
        Life.born(self, name)
        self.slots, self.refused, self.original, self.running, self.beside = {}, -1, False, False, False

    def died(self) -> None:
        """Its attempts die with it."""
        Life.died(self)
        self.slots, self.refused, self.running, self.beside = {}, -1, False, False

    def free(self) -> int:
        """The lowest slot that no attempt has.

        Raises:
            NotFollowed: there is none.
        """
        for slot in range(SLOTS):
            if slot != self.refused and slot not in self.slots.values():
                return slot
        raise NotFollowed(f"more than {SLOTS} attempts of one incident overlap")


class IncidentWords(LivingWords):
    """The vocabulary of the incident."""

    machine = incident
    noun = "incident"
    use = Use(
        actions=(
            *("boot", "begin", "end_original", "report_original", "replay", "deliver", "sync", "start_work", "finish"),
            *("report", "deliver_terminal", "seal", "stand_down", "park", "unpark", "sweep", "crash", "tick"),
            "call_from_the_dead",
        ),
        fixed={"again": 1},
        assumed={"callback": 1},
        observed=(
            *(f"phases[{slot}]" for slot in range(SLOTS)),
            *(f"buffered.attempts[{slot}]" for slot in range(SLOTS)),
            *(f"buffered.{name}" for name in ("interrupted", "status", "reason", "turn", "terminal_delivered")),
            "original",
            "ghost.deaths",
        ),
    )
    optional = frozenset({"attempt.refused"})
    last_resort = "C1"
    after_the_last = frozenset({"C12"})
    unseen: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "C6": (),
        "C13": ("incarnation.died",),
        "C8": ("incident.parked",),
        "B1": (),
        "B2": ("attempt.refused",),
    }

    def vocabulary(self) -> dict[str, Reader]:
        """The reader of each type of line."""
        return {
            "turn.started": self._turn_started,
            "attempt.admitted": self._admitted,
            "attempt.refused": self._refused,
            "work.started": self._work_started,
            "attempt.finished": self._finished,
            "incident.parked": lambda line: self._of_incident(line, ("parked",)),
            "incident.unparked": lambda line: self._of_incident(line, ("unparked",)),
            "incident.closed": lambda line: self._of_incident(line, ("closed",)),
            "record.swept": lambda line: self._of_incident(line, ("swept",)),
            "terminal.delivered": lambda line: self._of_incident(line, ("delivered",)),
            "incident.sealed": self._sealed,
            "incarnation.died": self.died,
        }

    def names(self) -> Names:
        """Fresh tables."""
        return Names()

    def set_policy(self, given: Mapping[str, object]) -> None:
        """The same; the deprecated ``max_oom_retries`` is a name of the limit where that isn't given."""
        limit, retries = "max_interrupted_attempts", given.get("max_oom_retries")
        if retries is not None and limit not in given:
            try:
                with warnings.catch_warnings(action="ignore"):  # it is not the auditor's to change
                    policy = recovery_policy(max_oom_retries=cast("float", retries))
            except PolicyError as refusal:
                raise Malformed(str(refusal)) from None
            given = {**given, limit: policy.max_interrupted_attempts}
        super().set_policy(given)

    def audited(self, policy: object) -> object:
        """Soft budgets are unlimited: a log does not show what they measure."""
        return attrs.evolve(
            cast("RecoveryPolicy", policy),
            max_attempts=UNLIMITED,
            no_progress_timeout_ms=UNLIMITED,
            max_recovery_work=UNLIMITED,
            debounce_ms=0,
            record_ttl_ms=1,
        )

    # Lines.

    def _turn_started(self, line: Line) -> None:
        name, _ = text_of(line, "incident"), text_of(line, "incarnation")
        entity = self.entity(name) or self.opened(name)
        if self.lives(entity, line):
            _names(entity).original = _names(entity).running = True
            self.step(entity, line, STARTED)

    def _admitted(self, line: Line) -> None:
        kind = among(line, "kind", KINDS)
        if "incarnation" not in line:
            count = whole_number(line, "count") if "count" in line else -1
            self._somewhere(line, ("admitted somewhere", kind, count))
            return
        attempt, count = text_of(line, "attempt"), whole_number(line, "count")
        entity = self._followed(line, count)
        if self.lives(entity, line):
            names = _names(entity)
            names.beside = names.beside or (names.running and kind == "callback")
            names.running = False  # whoever follows it in its own incarnation was handed over to
            slot = names.slots.get(attempt, -1)
            if slot < 0:
                slot = names.slots[attempt] = names.free()
            self.step(entity, line, ("admitted", slot, kind, count, names.number))

    def _refused(self, line: Line) -> None:
        count = whole_number(line, "count")
        name = text_of(line, "incarnation")
        entity = self._followed(line, count)
        names = _names(entity)
        if name in names.past or (name == names.current and not names.alive) or not self.lives(entity, line):
            return  # A refusal changes nothing, whoever it is told.
        if names.refused < 0:
            names.refused = names.free()
        self.step(entity, line, ("refused", names.refused, count, names.number))

    def _work_started(self, line: Line) -> None:
        entity = self.known(line)
        if entity is not None and self.lives(entity, line):
            names = _names(entity)
            attempt = text_of(line, "attempt")
            if attempt in names.slots:
                self.step(entity, line, ("worked", names.slots[attempt]))
            elif names.original:
                names.original = False
                self.step(entity, line, ("original worked", names.free()))
            else:
                slot = names.slots[attempt] = names.free()
                self.step(entity, line, ("worked", slot))

    def _finished(self, line: Line) -> None:
        entity = self.known(line)
        if entity is not None and self.lives(entity, line):
            names = _names(entity)
            attempt = text_of(line, "attempt")
            if attempt in names.slots:
                self.step(entity, line, ("finished", names.slots.pop(attempt)))
            else:
                names.running = names.beside = False
                self.step(entity, line, ("original finished", names.free()))

    def _of_incident(self, line: Line, key: Key) -> None:
        entity = self.known(line)
        if entity is not None:
            self.somebody_lives(entity, line)
            _names(entity).running = False
            lost = _names(entity).somewhere and key[0] in ("closed", "sealed")
            self.step(entity, line, (f"{key[0]} somewhere", *key[1:]) if lost else key)

    def _sealed(self, line: Line) -> None:
        count = whole_number(line, "count") if "count" in line else -1
        hard = text_of(line, "reason") == INTERRUPTED
        self._of_incident(line, ("sealed", INTERRUPTED if hard else Reason.PREDICATE.value, count))

    def _somewhere(self, line: Line, key: Key) -> None:
        """An attempt of which nobody knows where it runs; the incident begins with it, if it is not known."""
        name = text_of(line, "incident")
        entity = self.entity(name)
        if entity is None:
            entity = self.opened(name)
            self.assume(entity, BORN, STARTED)
            _names(entity).born(None)
        _names(entity).somewhere = True
        self.step(entity, line, key)

    def _followed(self, line: Line, count: int) -> Entity:
        """The incident of an admission; if its beginning is not in the log, one that had as many deaths as it says."""
        name = text_of(line, "incident")
        entity = self.entity(name)
        if entity is not None:
            return entity
        text_of(line, "incarnation")
        entity = self.opened(name)
        names = _names(entity)
        count = min(count, cast("RecoveryPolicy", self.policy).max_interrupted_attempts, FOLLOWED)
        self.assume(entity, BORN, STARTED)
        for death in range(1, count):
            self.assume(entity, DIED, BORN, ("admitted", 0, "replay", death, death + 1))
        names.number, names.alive = max(count, 1), count < 1
        if count > 0:
            self.assume(entity, DIED)
        return entity

    # Moves.

    def moves(self, key: Key) -> Iterable[Move]:
        """The moves that may have written a line with this key."""
        match key:
            case ("started",):
                yield (do("begin"),)
            case ("admitted", int(slot), str(kind), int(count), int(owner)):
                entered = (see(f"phases[{slot}]", Phase.ADMITTED), see(f"buffered.attempts[{slot}]", owner))
                seen = (see("buffered.interrupted", count), see("buffered.reason", Reason.NONE))
                yield (do(KINDS[kind], slot=slot, keep_going=True), *entered, *seen)
                if kind == "callback":  # where nothing was recovered before, it is the first to recover
                    first = (given("buffered.status", Status.ABSENT), given_not("buffered.turn", Turn.FINISHED))
                    yield (*first, do("replay", slot=slot, keep_going=True), *entered, *seen)
            case ("refused", int(slot), int(count), _):
                yield from by.refusals(slot, count)
            case ("worked", int(slot)):
                yield (do("start_work", slot=slot),)
            case ("original worked", int(slot)):
                yield (given("original", Phase.HEAVY),)
                yield (do("start_work", slot=slot),)
            case ("finished", int(slot)):
                yield from by.ends(slot)
            case ("original finished", int(slot)):
                yield from by.original_ends()
                yield from ((*by.entered(slot, "replay"), *ended) for ended in by.ends(slot))  # beside a callback
                yield (do("finish", slot=slot, outcome=Outcome.DONE),)
            case ("closed",):
                yield (see("buffered.status", Status.CLOSED),)
                yield (given("buffered.turn", Turn.FINISHED), given("buffered.status", Status.ABSENT))
                for slot in range(SLOTS):
                    yield (do("finish", slot=slot, outcome=Outcome.DONE), see("buffered.status", Status.CLOSED))
            case ("delivered",):
                yield from ((do("deliver_terminal", slot=slot),) for slot in range(SLOTS))
                if "attempt.refused" in self.absent:
                    yield from by.told_at_once()
                yield (given("buffered.terminal_delivered", True),)
            case ("sealed", str(reason), int(count)):
                # Other words are free, and which of two reasons comes first is not the protocol's.
                word = (see("buffered.reason", Reason.INTERRUPTED),) if reason == INTERRUPTED else ()
                counted = () if count < 0 else (see("buffered.interrupted", count),)
                yield from ((do("seal", slot=slot), *word, *counted, do("sync")) for slot in range(SLOTS))
            case ("parked" | "unparked" as what,):
                yield (do("park" if what == "parked" else "unpark"), do("sync"))
                yield (given("buffered.status", Status.ABSENT),)  # the original turn asks: nothing is on record yet
                if what == "unparked":
                    yield (
                        given("buffered.status", Status.CLOSED),
                    )  # the turn has ended, and what it waited for with it
            case ("swept",):
                yield (do("tick", elapsed_ms=2), do("sweep"))
                yield (given("buffered.status", Status.ABSENT), given("buffered.turn", Turn.FINISHED))
            case ("died at work",):
                yield (given("original", Phase.HEAVY), do("crash"))
            case ("died beside", int(slot)):
                yield (do("crash"),)
                yield (*by.entered(slot, "replay"), do("sync"), do("crash"))
            case ("from the dead", int(caller)):
                yield (do("call_from_the_dead", slot=SLOTS - 1), see(f"buffered.attempts[{SLOTS - 1}]", caller))
            case (str(kind), *_) if kind.endswith("somewhere"):
                yield from by.somewhere(key)
            case _:
                yield from self.life_moves(key)

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """Writes become durable; the original turn ends; who gave up stands down."""
        yield (do("sync"),)
        yield from by.original_ends()
        yield from ((do("stand_down", slot=slot),) for slot in range(SLOTS))

    def death(self, entity: Entity) -> Key:
        """The original turn dies at work, if no line says that it ended or waits for a person.

        Beside a callback it may have ended unseen before, or go on as an attempt like others.
        """
        names = _names(entity)
        if names.beside:
            return ("died beside", names.free())
        return ("died at work",) if names.running else DIED

    def suspects(self, key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
        """An admission after the seal; a refusal that counts too few; an end told beside work."""
        match key:
            case ("admitted", int(slot), str(kind), _, _):
                yield (given("buffered.status", Status.SEALED), *by.entered(slot, kind)), ("C7",)
            case ("refused", int(slot), int(count), int(owner)):  # as an admission, it would have counted so many
                counted = (see(f"buffered.attempts[{slot}]", owner), see("buffered.interrupted", count))
                yield (*by.entered(slot, "replay"), *counted, do("sync")), ("C5",)
                yield (*by.entered(slot, "replay"), *counted, do("sync")), ("C1",)
            case ("delivered",):
                yield from (((*by.gives_up(slot), do("deliver_terminal", slot=slot)), ("C7",)) for slot in range(SLOTS))

    def leads(self, key: Key) -> Iterable[Move]:
        """An admission is for heavy work."""
        if key[0] == "admitted":
            yield (do("sync"), do("start_work", slot=cast("int", key[1])))

    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next."""
        names = _names(entity)
        limit = min(cast("RecoveryPolicy", entity.monitor.code.policy).max_interrupted_attempts, 50)
        if not names.alive:
            yield "a new incarnation", BORN
            return
        slots = dict(names.slots)
        fresh = next((slot for slot in range(SLOTS) if slot not in slots.values()), None)
        for count in range(limit + 2):
            if fresh is not None:
                for kind in KINDS:
                    yield f"attempt.admitted ({kind}, count {count})", ("admitted", fresh, kind, count, names.number)
                yield f"attempt.refused (count {count})", ("refused", fresh, count, names.number)
            for reason in (INTERRUPTED, Reason.PREDICATE.value):
                yield f"incident.sealed ({reason}, count {count})", ("sealed", reason, count)
        for attempt, slot in slots.items():
            yield f"work.started (attempt {attempt})", ("worked", slot)
            yield f"attempt.finished (attempt {attempt})", ("finished", slot)
        yield "terminal.delivered", ("delivered",)
        yield "incident.closed", ("closed",)
        yield "incident.parked", ("parked",)
        yield "incident.unparked", ("unparked",)
        yield "record.swept", ("swept",)
        yield "incarnation.died", DIED


def _names(entity: Entity) -> Names:
    return cast("Names", entity.names)
