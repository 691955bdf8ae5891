"""What a log says of a host that is kept alive.

Time is counted from the host's first line, to the millisecond: everything here is a distance between instants.

What a log does not show, and what is assumed
    A host may die and boot unseen. A pass acts unseen, and a revival that fails takes its turn with it. All work is
    owed until it settles well. Alarms need no line of their own: one that is late is an alarm all the same.

What is taken over from the log
    The instant of ``alarm.armed``, whatever the machine would have armed: an alarm that is too early or too late is no
    harm by itself. It is when it leads to a revival too soon (K2), leaves work without a look (K10), or where a rule
    speaks of the alarm itself: at the plateau (K4), and after a reset by hand (K6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, cast

import attrs

from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, rungs_of
from deadreckon.spec.machines import keepalive

from . import keepalive_moves as by
from .code import Use
from .keepalive_moves import DUE, SLOTS
from .monitor import Node
from .moves import Blame, Key, Malformed, Move
from .words import Entity, Line, Reader, Words, instant_of, text_of, whole_number


@attrs.define
class Names:
    """What is remembered of a host.

    Attributes:
        version: the number of the last version.
        in_flight: works that were tracked and not settled, as far as lines say.
        owed: works that were tracked and did not settle well, at most.
        recovering: whether a revival began, and no work was tracked since.
        last: what the last line was about, if the next alarm belongs to it: a revival, one that has ended without an
            alarm, or a reset by hand.
    """

    version: int = 1
    in_flight: int = 0
    owed: int = 0
    recovering: bool = False
    last: str = ""


class KeepaliveWords(Words):
    """The vocabulary of the keepalive."""

    machine = keepalive
    noun = "host"
    use = Use(
        actions=(
            *("boot", "track", "settle", "settle_failed", "fire", "stray_fire", "arm", "report", "act", "stand_down"),
            *("succeed", "fail", "confirm", "probe", "reset", "ask_to_stop", "end", "die", "deploy", "tick"),
        ),
        observed=(
            *DUE,
            *(
                "record.revivals",
                "record.last_revival_at_ms",
                "reviving",
                "alive",
                "clean_seen",
                "failed_seen",
                "now_ms",
            ),
            *("running_since_ms[0]", "running_since_ms[1]"),
        ),
        judged=True,
    )
    optional = frozenset({"plateau.reported"})
    clock = True
    exact = None
    last_resort = "K12"
    after_the_last = frozenset({"K12"})
    unseen: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "K2": ("revival.started",),
        "K4": ("alarm.armed",),
        "K5": ("host.died",),
        "K6": ("alarm.armed",),
        "K7": (),
        "K9": ("plateau.reported",),
        "K10": ("alarm.armed",),
    }

    def vocabulary(self) -> dict[str, Reader]:
        """The reader of each type of line."""
        return {
            "work.tracked": self._tracked,
            "work.settled": self._settled,
            "alarm.armed": self._armed,
            "alarm.fired": self._fired,
            "revival.started": self._revived,
            "revival.succeeded": lambda line: self._ended(line, ("succeeded",)),
            "revival.failed": lambda line: self._ended(line, ("failed",)),
            "host.died": self._died,
            "count.cleared": self._cleared,
            "plateau.reported": self._reported,
        }

    def names(self) -> Names:
        """Fresh tables."""
        return Names()

    # Lines.

    def _tracked(self, line: Line) -> None:
        entity = self.known(line) or self.opened(text_of(line, "host"))
        names = _names(entity)
        self._step(entity, line, ("tracked", names.recovering))
        names.in_flight += 1
        names.owed += 1
        names.recovering = False

    def _settled(self, line: Line) -> None:
        well = truth(line, "ok")
        entity = self.known(line)
        if entity is None:
            return
        names = _names(entity)
        more = names.in_flight > len(SLOTS)
        names.in_flight = max(0, names.in_flight - 1)
        all_at_once = names.recovering and names.owed > len(SLOTS)
        names.owed -= well and names.owed > 0
        if not more:
            self._step(entity, line, ("settled" if well else "settled badly", names.recovering, all_at_once))

    def _armed(self, line: Line) -> None:
        due_at_ms = instant_of(line, "due_at")
        entity = self.known(line)
        if entity is not None:
            policy = cast("KeepalivePolicy", self.policy)
            limits = (rungs_of(policy), policy.jitter_ms)
            self._step(entity, line, (f"armed{_names(entity).last}", due_at_ms - entity.base_ms, *limits))

    def _fired(self, line: Line) -> None:
        entity = self.known(line)
        if entity is not None:
            self._step(entity, line, ("fired",))

    def _revived(self, line: Line) -> None:
        number = whole_number(line, "n")
        if number < 0:
            raise Malformed(f"n is {number}: give 0 or more")
        entity = self.known(line) or self._adopted(line, number - 1)
        _names(entity).recovering = True
        self._step(entity, line, ("revived", number, self.place.at_ms - entity.base_ms), " for a revival")

    def _died(self, line: Line) -> None:
        asked = truth(line, "asked")
        entity = self.known(line)
        if entity is not None:
            self._step(entity, line, ("died", asked))
            _names(entity).in_flight = 0

    def _cleared(self, line: Line) -> None:
        by = text_of(line, "by")
        entity = self.known(line) or self._adopted(line, 1)
        names = _names(entity)
        if by == "deploy":
            names.version += 1
            names.in_flight = 0
            self._step(entity, line, ("cleared by deploy", names.version))
        elif by == "hand":
            self._step(entity, line, ("cleared by hand",), " after a reset")
        else:
            self._step(entity, line, ("cleared by a clean run" if by == "quiet-clean" else "cleared by another",))

    def _ended(self, line: Line, key: Key) -> None:
        entity = self.known(line)
        if entity is not None:
            last = _names(entity).last
            self._step(entity, line, key, " too late" if last == " for a revival" else "")

    def _reported(self, line: Line) -> None:
        entity = self.known(line)
        if entity is not None:
            self._step(entity, line, ("reported",), _names(entity).last)

    def _step(self, entity: Entity, line: Line, key: Key, last: str = "") -> None:
        _names(entity).last = last
        self.step(entity, line, key)

    def _adopted(self, line: Line, revivals: int) -> Entity:
        """A host whose beginning is not in the log, with this count, and work under way."""
        entity = self.opened(text_of(line, "host"))
        self.assume(entity, ("adopted", revivals, cast("KeepalivePolicy", self.policy).evidence_at))
        _names(entity).in_flight = 1
        return entity

    # Moves.

    def moves(self, key: Key) -> Iterable[Move]:
        """The moves that may have written a line with this key."""
        return by.moves(key)

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """What a host does without a line."""
        return by.hidden(absent)

    def blames(self, key: Key) -> Iterable[Blame]:
        """Earlier lines that did wrong."""
        return by.blames(key)

    def suspects(self, key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
        """What did wrong, where another rule would be named."""
        return by.suspects(key)

    def owed_in(self, entity: Entity, node: Node, ended: bool) -> list[str]:
        """Who was revived, owes work, and lets the next look pass by, may have died unseen: then nobody revives it (K11)."""
        owed = super().owed_in(entity, node, ended)
        if ended and owed:
            at_ms = self.judged_at(entity, ended)
            dead = entity.monitor.step(node, ("overlooked", at_ms), at_ms)
            more = [] if dead is None else super().owed_in(entity, dead, ended)
            owed = [id for id in entity.monitor.code.owed if id in owed or id in more]
        return owed

    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next."""
        names = _names(entity)
        now_ms = entity.now_ms
        yield "work.tracked", ("tracked", False)
        yield "work.settled (ok)", ("settled", names.recovering, False)
        yield "work.settled (not ok)", ("settled badly", names.recovering, False)
        yield "alarm.fired", ("fired",)
        highest = max(state[entity.monitor.code.index["record.revivals"]] for state in entity.nodes[part].states)
        yield from ((f"revival.started ({n})", ("revived", n, now_ms)) for n in range(1, highest + 2))
        yield "revival.succeeded", ("succeeded",)
        yield "revival.failed", ("failed",)
        yield "host.died", ("died", False)
        yield "count.cleared (by quiet-clean)", ("cleared by a clean run",)
        yield "count.cleared (by deploy)", ("cleared by deploy", names.version + 1)
        yield "count.cleared (by hand)", ("cleared by hand",)
        yield "plateau.reported", ("reported",)
        if str(entity.history[-1][2][0]).startswith("armed"):
            at = entity.monitor.code.index["record.armed_at_ms"]
            for due_ms in sorted({state[at] for state in entity.nodes[part].states if state[at] != NEVER}):
                yield (
                    f"alarm.armed (due_at {due_ms + entity.base_ms})",
                    (*entity.history[-1][2][:1], due_ms, *entity.history[-1][2][2:]),
                )


def truth(line: Line, field: str) -> bool:
    """The truth value in *field*.

    Raises:
        Malformed: it is none.
    """
    value = line[field]
    if type(value) is not bool:
        raise Malformed(f"{field} is {value!r}: give true or false")
    return value


def _names(entity: Entity) -> Names:
    return cast("Names", entity.names)
