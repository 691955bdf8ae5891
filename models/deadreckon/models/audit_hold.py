"""What a log says of a hold.

A hold is followed once for each of its requests: they share nothing but the decision, so many small sets of states do, where
one for all of them together would have their product. Time is counted from the parking, and the deadline is the line's own.

What a log does not show, and what is assumed
    Slices of a wait may be of any length, so the journal may have answered at any time; a door may judge, give up waiting,
    lose track of a call, unseen. Nothing is signed. Whether anybody asks for a release that was approved is in no line, so
    a door that does not wait may be one that has died and is not back yet. If no line tells of failed waits, the journal
    may be away unseen; if none tells of the start of a release, it may start unseen (H4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, cast

import attrs

from deadreckon.spec import UNLIMITED
from deadreckon.spec.hold_state import HOLD_MAX_MS, Caller, Evidence, Fact, HoldPolicy, Release, Told, Wait
from deadreckon.spec.machines import hold

from .audit_moves import Blame, Key, Malformed, Move, do, given, given_not, see
from .audit_relation import Use
from .audit_words import Entity, Line, Reader, Words, among, instant_of, text_of, whole_number

VERDICTS: Final = {"approve": True, "reject": False}
OUTCOMES: Final = {"ok": Release.OK, "error": Release.ERROR, "unknown": Release.UNKNOWN, "lapsed": Release.LAPSED}
TOLD: Final = {told.value.replace(" ", "-"): told for told in Told if told not in (Told.NOTHING, Told.FAILED)}
ERRORS: Final = dict.fromkeys(("availability", "other"))
DOOR: Final = "door"
"""By whom a decision is that the door has made up."""

REQUESTS: Final = 1_000
"""Requests of one hold, at most."""

WHOLE: Final = UNLIMITED
"""A slice that lasts to the deadline."""


@attrs.define
class Names:
    """What is remembered of a hold.

    Attributes:
        requests: how many it has.
        cursor: where its wait was armed last; None if it wasn't.
        startable_ms: until when a release may start, in its own time.
        started: the requests of which a start was logged.
        error: by what its wait failed last; None if it didn't.
        failed: whether it has failed since, the journal being away.
        armed: how often its wait was armed since the last failure.
        since_ms: its own time at the first of these, or else at that failure.
        answered: whether something else shows that the journal may have answered since, or nothing has failed yet.
    """

    requests: int = 1
    cursor: int | None = None
    startable_ms: int = 0
    started: tuple[int, ...] = ()
    error: str | None = None
    failed: bool = False
    armed: int = 0
    since_ms: int = 0
    answered: bool = True


def one(name: str) -> str:
    """A leaf of the one hold that is followed."""
    return f"holds[0].{name}"


FAILURES: Final = tuple(
    move
    for action in ("wait_fails", "judgement_fails")
    for move in ((given("up", False), do(action)), (given("up", True), do("journal_fails"), do(action)))
)
"""The moves of a wait that fails because the journal is away."""

LEAVES: Final = (do("detach"), do("leave"))
"""The caller goes away for good."""


class HoldWords(Words):
    """The vocabulary of the hold."""

    machine = hold
    noun = "hold"
    use = Use(
        actions=(
            *("ask", "slice_ends", "wait_fails", "judgement_fails", "wake", "judge", "stop_waiting", "adopt", "expire"),
            *("abandon", "start_release", "call", "answer", "lose_track", "settle", "settle_unknown", "lapse", "tell"),
            *("decide", "detach", "leave", "crash", "boot", "journal_fails", "journal_returns", "tick"),
        ),
        fixed={"index": 0, "request": 0, "source": 0, "second": 0, "acknowledged": 1},
        observed=(
            *map(one, ("fact", "deadline_at_ms", "evidence", "approved[0]", "releases[0]", "wait", "until_ms")),
            *map(one, ("cursor_past", "backoff_ms", "calls[0]", "caller", "told[0]")),
            *("alive", "up", "now_ms", "ghost.effects[0][0]"),
        ),
        free=("hold_ms", "slice_ms"),
    )
    clock = True
    instants = ((one("until_ms"), ""), (one("deadline_at_ms"), ""), (one("deadline_at_ms"), "release_grace_ms"))
    exact = frozenset({"failed", "failed again"})
    optional = frozenset(
        {"effect.called", "release.started", "wait.armed", "wait.failed", "caller.gone", "door.booted"}
    )
    last_resort = "H15"
    unseen: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "H4": ("release.started",),
        "H7": (),
        "H8": ("wait.armed",),
        "H10": ("wait.failed",),
        "H12": ("caller.gone",),
        "H16": (),
    }

    def vocabulary(self) -> dict[str, Reader]:
        """The reader of each type of line."""
        return {
            "hold.requested": self._requested,
            "hold.decided": self._decided,
            "hold.expired": lambda line: self._of_hold(line, ("expired",)),
            "hold.abandoned": self._abandoned,
            "release.started": self._started,
            "effect.called": self._called,
            "release.settled": lambda line: self._of_request(line, ("settled", among(line, "outcome", OUTCOMES))),
            "caller.told": self._told,
            "caller.gone": lambda line: self._of_hold(line, ("gone",)),
            "wait.armed": self._armed,
            "wait.failed": self._failed,
            "door.died": lambda line: self._of_all(line, ("door died",)),
            "door.booted": lambda line: self._of_all(line, ("door booted",)),
        }

    def names(self) -> Names:
        """Fresh tables."""
        return Names()

    # Lines.

    def _requested(self, line: Line) -> None:
        name = text_of(line, "hold")
        deadline_at_ms, requests = instant_of(line, "deadline_at"), whole_number(line, "requests")
        if not 1 <= requests <= REQUESTS:
            raise Malformed(f"requests is {requests}: give 1 to {REQUESTS}")
        entity = self.entity(name)
        if entity is None:
            hold_ms = deadline_at_ms - self.place.at_ms
            if hold_ms > HOLD_MAX_MS:
                raise Malformed(f"deadline_at is {hold_ms} ms after at: give at most {HOLD_MAX_MS}")
            entity = self.opened(name, requests)
            names, policy = _names(entity), cast("HoldPolicy", entity.monitor.code.policy)
            names.requests, names.startable_ms = requests, deadline_at_ms - entity.base_ms + policy.release_grace_ms
            self._every(entity, line, ("requested", deadline_at_ms - entity.base_ms))
        else:
            self._every(entity, line, ("requested again", deadline_at_ms - entity.base_ms))

    def _decided(self, line: Line) -> None:
        verdicts = line["verdicts"]
        if not isinstance(verdicts, list) or any(type(verdict) not in (str, bool) for verdict in verdicts):
            raise Malformed(f"verdicts is {verdicts!r}: give a list of {' and '.join(VERDICTS)}")
        entity = self.known(line)
        if entity is None:
            return
        if line.get("accepted") is False:
            _names(entity).answered = True
            return  # What was refused changes nothing; why it was is not in the log.
        answers = [VERDICTS.get(verdict, verdict) for verdict in verdicts]
        if any(type(answer) is not bool for answer in answers):
            raise Malformed(f"verdicts is {verdicts!r}: give {' or '.join(VERDICTS)}")
        if _names(entity).failed and line.get("by") == DOOR:
            self._every(entity, line, ("decided by the door",))
            return
        fits = len(answers) == _names(entity).requests
        for part in range(len(entity.nodes)):
            answer = answers[part] if fits else False
            self.step(entity, line, ("decided", answer, fits), part)

    def _armed(self, line: Line) -> None:
        entity = self.known(line)
        if entity is None:
            return
        names = _names(entity)
        cursor = whole_number(line, "cursor")
        last, names.cursor = names.cursor, cursor
        astray = last is not None and (cursor < last or (names.failed and cursor != last))
        names.failed = False
        names.armed += 1
        if names.armed == 1:
            names.since_ms = self.place.at_ms - entity.base_ms
        self._every(entity, line, ("armed astray",) if astray else ("armed",))

    def _failed(self, line: Line) -> None:
        error = among(line, "error", ERRORS)
        entity = self.known(line)
        if entity is None:
            return
        names = _names(entity)
        names.error = error
        if error == "other":
            names.answered = True
            return
        policy = cast("HoldPolicy", entity.monitor.code.policy)
        at_ms = self.place.at_ms - entity.base_ms
        again = not self._may_have_answered(names, at_ms, policy) and policy.backoff_first_ms < policy.backoff_max_ms
        names.failed, names.answered, names.armed, names.since_ms = True, False, 0, at_ms
        self._every(entity, line, ("failed again", policy.backoff_first_ms) if again else ("failed",))

    def _may_have_answered(self, names: Names, at_ms: int, policy: HoldPolicy) -> bool:
        """Whether the journal may have answered a wait since the last failure.

        A slice that ends is a wait that is armed again. One that ends in no line, in a log that has such lines, has lasted.
        """
        lasted = at_ms - names.since_ms >= policy.slice_ms
        return names.answered or names.armed > 1 or lasted or "wait.armed" in self.absent

    def _of_hold(self, line: Line, key: Key) -> None:
        entity = self.known(line)
        if entity is not None:
            self._every(entity, line, key)

    def _abandoned(self, line: Line) -> None:
        entity = self.known(line)
        if entity is not None:
            unseen = not self.absent.isdisjoint({"caller.gone", "door.booted"})
            why = "a failure" if _names(entity).error == "other" else "unseen" if unseen else "gone"
            self._every(entity, line, ("abandoned", why))

    def _started(self, line: Line) -> None:
        entity, index = self._request(line)
        if entity is not None:
            _names(entity).started += (index,)
            self.step(entity, line, ("started",), index)

    def _called(self, line: Line) -> None:
        """The grace bounds the start; a call may be told when it is over, so of one that was started it is no bound."""
        entity, index = self._request(line)
        if entity is None:
            return
        names, now_ms = _names(entity), self.place.at_ms - entity.base_ms
        if now_ms <= names.startable_ms or index not in names.started:
            self.step(entity, line, ("called",), index)
            return
        now_ms, entity.now_ms = max(entity.now_ms, now_ms), names.startable_ms
        self.step(entity, line, ("called",), index, late=True)
        entity.now_ms = now_ms

    def _told(self, line: Line) -> None:
        outcome = among(line, "outcome", TOLD)
        entity, index = self._request(line)
        if entity is not None:
            failed = outcome == "error" and _names(entity).error == "other"
            self.step(entity, line, ("told a failure",) if failed else ("told", outcome), index)

    def _of_request(self, line: Line, key: Key) -> None:
        entity, index = self._request(line)
        if entity is not None:
            self.step(entity, line, key, index)

    def _request(self, line: Line) -> tuple[Entity | None, int]:
        """The hold of a line, if it is known, and the index of its request."""
        entity, index = self.known(line), whole_number(line, "index")
        if entity is not None and not 0 <= index < len(entity.nodes):
            raise Malformed(f"index is {index}: the hold has {len(entity.nodes)} requests")
        return entity, index

    def _of_all(self, line: Line, key: Key) -> None:
        for entity in list(self.entities.values()):
            _names(entity).answered = True
            self._every(entity, line, key)

    def _every(self, entity: Entity, line: Line, key: Key) -> None:
        for part in range(len(entity.nodes)):
            self.step(entity, line, key, part)

    # Moves.

    def moves(self, key: Key) -> Iterable[Move]:
        """The moves that may have written a line with this key."""
        match key:
            case ("requested", int(hold_ms)):
                if hold_ms >= 1:  # else no policy allows it
                    yield (do("ask", hold_ms=hold_ms, slice_ms=WHOLE),)
            case ("requested again", int(hold_ms)):
                yield (see(one("deadline_at_ms"), hold_ms),)
            case ("decided", bool(verdict), True):
                yield (do("decide", first=verdict, evidence=Evidence.UNSIGNED),)
            case ("decided", _, False):
                decided = (see(one("fact"), Fact.DECIDED), see(one("evidence"), Evidence.MALFORMED))
                yield (do("decide", first=False, evidence=Evidence.MALFORMED), *decided)
            case ("expired",):
                yield (do("expire"),)
            case ("abandoned", str(why)):
                yield (do("abandon"),)
                if why == "unseen":  # nobody abandons for a journal that is away
                    yield (given_not(one("wait"), Wait.BACKING_OFF), *LEAVES, do("abandon"))
                elif why == "a failure":
                    yield (*LEAVES, do("abandon"))
            case ("started",):
                yield (do("start_release"),)
            case ("called",):
                yield (do("call"),)
            case ("settled", str(outcome)):
                action = {"unknown": "settle_unknown", "lapsed": "lapse"}.get(outcome, "settle")
                yield (do(action), see(one("releases[0]"), OUTCOMES[outcome]))
            case ("told", str(outcome)):
                yield (do("tell"), see(one("told[0]"), TOLD[outcome]))
                yield (given(one("told[0]"), TOLD[outcome]), given(one("caller"), Caller.ATTACHED))
                if outcome == "abandoned":  # who is told so came back too late
                    yield given(one("fact"), Fact.ABANDONED), given(one("caller"), Caller.GONE)
            case ("told a failure",):
                yield from self.moves(("told", "error"))
                yield (given(one("releases[0]"), Release.NONE), *LEAVES)
            case ("gone",):
                yield LEAVES
                yield (given(one("caller"), Caller.GONE),)
            case ("armed",):
                yield (given(one("wait"), Wait.WAITING),)
                yield (do("wake", slice_ms=WHOLE),)
                yield (do("wake", slice_ms=0),)
                yield (do("adopt", slice_ms=WHOLE), see(one("wait"), Wait.WAITING))
            case ("armed astray",):
                yield (do("wake", slice_ms=WHOLE), see(one("cursor_past"), True))
                yield (do("slice_ends", slice_ms=WHOLE), see(one("cursor_past"), True))
            case ("failed",):
                yield from FAILURES
            case ("failed again", int(first_ms)):  # not in a wait whose backoff an answer has made fresh
                yield from ((given_not(one("backoff_ms"), first_ms), *move) for move in FAILURES)
            case ("door died",):
                yield (do("crash"),)
                yield (given("alive", False),)
            case ("door booted",):
                for died in ((), (given("alive", True), do("crash"))):
                    yield (*died, do("boot"))
                    yield (*died, do("boot"), *LEAVES)  # its caller died with the door before it

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """What a door does without a fact, and what happens to it."""
        yield (do("judge"),)
        yield (do("adopt", slice_ms=WHOLE),)
        yield (do("stop_waiting"),)
        yield (do("wake", slice_ms=WHOLE),)
        yield (do("wake", slice_ms=0),)
        yield (do("slice_ends", slice_ms=WHOLE),)
        yield from ((do("answer", succeeds=succeeds),) for succeeds in (True, False))
        yield (do("lose_track"),)
        yield (do("journal_returns"),)
        if "wait.failed" in absent:
            yield (do("journal_fails"),)
        yield (given(one("wait"), Wait.IDLE), do("crash"))  # nobody asks for the release, say
        yield (do("boot"),)
        if "release.started" in absent:
            yield (do("start_release"),)
        if "effect.called" in absent:
            yield (do("call"),)

    def blames(self, key: Key) -> Iterable[Blame]:
        """What the door decides by itself, or tells as an error, after a wait failed, is that failure taken for an end."""
        if key == ("decided by the door",):
            yield Blame(("failed", "failed again"), (see(one("fact"), Fact.DECIDED),), ("H9",))
        if key == ("told", "error"):
            yield Blame(("failed", "failed again"), (see(one("told[0]"), Told.ERROR),), ("H9",), last=True)

    def suspects(self, key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
        """A hold that is parked no sooner than its deadline."""
        match key:
            case ("requested", int(hold_ms)):
                yield (do("ask", hold_ms=hold_ms, slice_ms=WHOLE),), ("H2",)

    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next."""
        index = f"index {part}"
        for word, verdict in VERDICTS.items():
            yield f"hold.decided ({word} for {index})", ("decided", verdict, True)
        yield "hold.expired", ("expired",)
        yield "hold.abandoned", ("abandoned", "gone")
        yield f"release.started ({index})", ("started",)
        yield f"effect.called ({index})", ("called",)
        yield from ((f"release.settled ({index}, {word})", ("settled", word)) for word in OUTCOMES)
        yield from ((f"caller.told ({index}, {word})", ("told", word)) for word in TOLD)
        yield "caller.gone", ("gone",)
        yield "wait.armed", ("armed",)
        yield "wait.failed", ("failed",)
        yield "door.died", ("door died",)
        yield "door.booted", ("door booted",)


def _names(entity: Entity) -> Names:
    return cast("Names", entity.names)
