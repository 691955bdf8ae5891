"""What a log says of a request with a horizon.

Time is counted from the opening, and the horizon is the line's own.

What a log does not show, and what is assumed
    That an attempt failed and was not the last: the next dial keeps its distance from the moment of the one before, at
    least. The timer fires at its instant, and its line may come a few seconds later. The outcome is told as it is settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, cast

import attrs

from deadreckon.spec.machines import request
from deadreckon.spec.request_state import RequestPolicy, Status

from .code import Use
from .lives import BORN, DIED, Life, LivingWords
from .moves import Key, Move, Put, do, given, see
from .words import Entity, Line, Reader, among, instant_of, text_of

OUTCOMES: Final = {"succeeded": Status.SUCCEEDED, "failed": Status.FAILED, "expired": Status.EXPIRED}
LEAD_MS: Final = 1
"""The machine's instants are never 0, which means none."""

LATE_MS: Final = 5_000
"""How much later than the horizon a living incarnation's timer may be written to fire."""


@attrs.define
class Names(Life):
    """Who runs a request, and whether its outcome was written."""

    settled: bool = False
    expires_at_ms: int = 0


class RequestWords(LivingWords):
    """The vocabulary of the request."""

    machine = request
    noun = "request"
    use = Use(
        actions=(
            *("boot", "open_request", "dial", "succeed", "fail", "give_up", "expire", "fire", "tell", "crash", "tick"),
            *("answer_late", "answer_from_the_dead"),
        ),
        observed=(
            *("request.status", "request.told", "request.expires_at_ms", "request.retry_at_ms", "request.attempts"),
            *(
                "running",
                "alive",
                "deadline_at_ms",
                "now_ms",
                "ghost.horizon_at_ms",
                "ghost.settlements",
                "ghost.dials",
            ),
            *("ghost.failed_at_ms", "ghost.wait_ms"),
        ),
    )
    clock = True
    instants = (
        ("request.expires_at_ms", ""),
        ("request.expires_at_ms", "-floor_ms"),
        ("request.retry_at_ms", ""),
    )
    exact = frozenset({"dialled"})
    last_resort = "Q2"
    unseen: ClassVar[Mapping[str, tuple[str, ...]]] = {"Q3": (), "Q7": ("log.ended",)}

    def vocabulary(self) -> dict[str, Reader]:
        """The reader of each type of line."""
        return {
            "request.opened": self._opened,
            "request.dialled": self._dialled,
            "request.settled": self._settled,
            "incarnation.died": self.died,
        }

    def names(self) -> Names:
        """Fresh tables."""
        return Names()

    # Lines.

    def _opened(self, line: Line) -> None:
        name = text_of(line, "request")
        expires_at_ms = instant_of(line, "expires_at")
        entity = self.entity(name)
        if entity is None:
            entity = self.opened(name, lead_ms=LEAD_MS)
            self.somebody_lives(entity, line)
            cast("Names", entity.names).expires_at_ms = expires_at_ms
            horizon_ms = cast("RequestPolicy", self.policy).horizon_ms
            self.step(entity, line, ("opened", expires_at_ms - entity.base_ms - horizon_ms))
        else:
            self.step(entity, line, ("opened again", expires_at_ms - entity.base_ms))

    def _dialled(self, line: Line) -> None:
        entity = self.known(line)
        if entity is not None and self.lives(entity, line):
            self.step(entity, line, ("dialled",))

    def _settled(self, line: Line) -> None:
        outcome = among(line, "outcome", OUTCOMES)
        entity = self.known(line)
        if entity is not None:
            names = cast("Names", entity.names)
            if names.alive and outcome == "expired" and 0 < self.place.at_ms - names.expires_at_ms <= LATE_MS:
                self.place.at_ms = names.expires_at_ms
            self.somebody_lives(entity, line)
            self.step(entity, line, ("settled again" if names.settled else "settled", outcome))
            names.settled = True

    # Moves.

    def moves(self, key: Key) -> Iterable[Move]:
        """The moves that may have written a line with this key."""
        match key:
            case ("opened", int(triggered_at_ms)):
                yield (do("open_request", triggered_at_ms=triggered_at_ms),)
            case ("opened again", int(expires_at_ms)):
                yield (see("request.expires_at_ms", expires_at_ms),)
            case ("dialled",):
                yield (do("dial"),)
            case ("settled", "succeeded"):
                yield (do("succeed"), do("tell"))
            case ("settled", "failed"):
                for action in ("fail", "give_up"):
                    yield (do(action), see("request.status", Status.FAILED), do("tell"))
                yield (given("running", True), *self._used_up(), do("fail"), do("tell"))
            case ("settled", "expired"):
                yield from ((do(action), do("tell")) for action in ("expire", "fire"))
            case ("settled again", str(outcome)):
                yield (do("answer_late", succeeded=outcome == "succeeded"), see("ghost.settlements", 2))
            case ("from the dead", _):
                yield (do("answer_from_the_dead", succeeded=True), see("request.status", Status.SUCCEEDED))
            case _:
                yield from self.life_moves(key)

    def audited(self, policy: object) -> object:
        """Retries keep no distance: the protocol asks for none, and a log does not show which is meant."""
        return attrs.evolve(cast("RequestPolicy", policy), retry_backoff_ms=1, retry_backoff_max_ms=1)

    def _used_up(self) -> tuple[Put, Put]:
        """An error that no retry mends ends the last attempt, whichever it was."""
        most = cast("RequestPolicy", self.policy).max_attempts
        return Put("request.attempts", most), Put("ghost.dials", most)

    def suspects(self, key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
        """A dial too late, or of what is settled; an expiry beside a live attempt, or before the floor."""
        match key:
            case ("dialled",):
                yield (do("dial"),), ("Q1", "Q2")
            case ("settled", "expired"):
                yield (given("running", True), do("expire")), ("Q5b", "Q3")
                yield (do("fire"),), ("Q5b", "Q3")

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """An attempt fails that was not the last."""
        yield (do("fail"), see("request.status", Status.OPEN))

    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next."""
        if not cast("Names", entity.names).alive:
            yield "a new incarnation", BORN
            return
        yield "request.dialled", ("dialled",)
        yield from ((f"request.settled ({outcome})", ("settled", outcome)) for outcome in OUTCOMES)
        yield "incarnation.died", DIED
