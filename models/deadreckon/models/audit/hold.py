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

from deadreckon.spec.hold_state import HOLD_MAX_MS, HoldPolicy
from deadreckon.spec.machines import hold

from . import hold_moves as by
from .code import Use
from .hold_moves import OUTCOMES, TOLD, VERDICTS, one
from .moves import Blame, Key, Malformed, Move
from .words import Entity, Line, Reader, Words, among, instant_of, text_of, whole_number

ERRORS: Final = dict.fromkeys(("availability", "other"))
DOOR: Final = "door"
"""By whom a decision is that the door has made up."""

REQUESTS: Final = 1_000
"""Requests of one hold, at most."""


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
        gone: whether its caller is.
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
    gone: bool = False
    armed: int = 0
    since_ms: int = 0
    answered: bool = True


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
            *("alive", "up", "now_ms", by.EFFECTS),
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
            "caller.gone": self._gone,
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
        if line.get("by") == DOOR and (_names(entity).failed or _names(entity).gone):
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

    def _gone(self, line: Line) -> None:
        entity = self.known(line)
        if entity is not None:
            _names(entity).gone = True
            self._every(entity, line, ("gone",))

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
        return by.moves(key)

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """What a door does without a fact, and what happens to it."""
        return by.hidden(absent, cast("HoldPolicy", self.policy).idempotent)

    def blames(self, key: Key) -> Iterable[Blame]:
        """What the caller is told right after a wait failed may be that failure, told as an end."""
        return by.blames(key)

    def suspects(self, key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
        """Readings by which a line breaks a rule that is not the first of those it breaks."""
        return by.suspects(key, "release.started" not in self.absent)

    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next."""
        return by.options(part)


def _names(entity: Entity) -> Names:
    return cast("Names", entity.names)
