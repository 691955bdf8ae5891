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
from typing import ClassVar, Final, cast

import attrs

from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, Pass, rungs_of
from deadreckon.spec.machines import keepalive

from .code import Use
from .moves import Blame, Key, Malformed, Move, Put, See, do, given, given_not, see
from .words import Entity, Line, Reader, Words, instant_of, text_of, whole_number

SLOTS: Final = (0, 1)
LONG_AGO_MS: Final = -(10**12)
DUE: Final = ("record.armed_at_ms", "alarm_at_ms")


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
            self._step(entity, line, ("settled", well, names.recovering, all_at_once))

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
        """The moves that may have written a line with this key: a revival that was begun has its own line first."""
        if key[0] in ("revived", "died", "adopted", "reported"):
            yield from self._moves(key)
        else:
            yield from ((given_not("reviving", Pass.RECORDED), *move) for move in self._moves(key))

    def _moves(self, key: Key) -> Iterator[Move]:
        match key:
            case ("adopted", int(revivals), int(evidence_at)):
                yield _midway(revivals, evidence_at)
            case ("tracked", bool(recovering)):
                yield from ((do("track", slot=slot, obliges=True),) for slot in SLOTS)
                busy = (given_not(_running(slot), NEVER) for slot in SLOTS)
                yield tuple(busy)  # a third work at once: the others are looked after as it would be
                if recovering:
                    yield from ((given_not(_running(slot), NEVER),) for slot in SLOTS)
            case ("settled", bool(well), bool(recovering), bool(all_at_once)):
                action = "settle" if well else "settle_failed"
                yield from ((do(action, slot=slot),) for slot in SLOTS)
                if recovering:  # what a revival takes up may be less than is followed, or more
                    yield tuple(given(_running(slot), NEVER) for slot in SLOTS)
                if all_at_once:
                    yield tuple(do(action, slot=slot) for slot in SLOTS)
            case ("armed", int(due_ms), *_):
                yield _taken_over(due_ms)
                yield (do("stray_fire"), *_taken_over(due_ms))  # the look that armed it has no line of its own
            case ("armed for a revival", int(due_ms), int(rungs), int(jitter_ms)):
                yield (See("record.revivals", None, rungs, given=True), *_taken_over(due_ms))
                level = See("record.armed_at_ms", due_ms - jitter_ms, due_ms)
                yield (See("record.revivals", rungs + 1, None, given=True), level, *_taken_over(due_ms))
            case ("armed too late", int(due_ms), *_):  # that of the revival; any other is one like others
                yield (given_not("record.armed_at_ms", due_ms), *_taken_over(due_ms))
                yield (given("record.armed_at_ms", due_ms), do("arm"))
            case ("armed after a reset", int(due_ms), *_):
                yield (See("record.armed_at_ms", due_ms, None), *_taken_over(due_ms))
                yield (given("record.armed_at_ms", NEVER), *_taken_over(due_ms))
            case ("fired",):
                for ahead in _perhaps_dead():
                    yield (*ahead, do("fire", jitter_ms=0))
                yield (do("stray_fire"),)
                yield (given("alive", False), do("boot"))
            case ("revived", int(number), _):
                counted = (see("reviving", Pass.RECORDED), see("record.revivals", number))
                yield (given("reviving", Pass.RECORDED), see("record.revivals", number), do("arm"))
                for ahead in _perhaps_dead():
                    yield (*ahead, do("fire", jitter_ms=0), *counted, do("arm"))
                yield (do("stray_fire"), *counted, do("arm"))
            case ("succeeded",):
                yield (do("succeed"),)
                yield (do("act", slot=0), do("succeed"))
            case ("failed",):
                for ended in ((), (0,), (1,), SLOTS):
                    yield (do("fail"), *(do("settle_failed", slot=slot) for slot in ended))
                yield (given("reviving", Pass.IDLE), given("failed_seen", True))  # the look that found it hanging
            case ("died", True):
                yield (do("ask_to_stop"), do("end", code_zero=True))
                yield (do("die"),)
                yield (given("alive", False),)
            case ("died", False):
                yield (do("die"),)
                yield (given("alive", False),)
            case ("reported",):
                yield (do("report"),)
                for ahead in _perhaps_dead():  # before the line of the revival that brings the count there
                    yield (*ahead, do("fire", jitter_ms=0), see("reviving", Pass.RECORDED), do("report"))
            case _:
                yield from _clears(key)

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """What a host does without a line."""
        yield (do("boot"),)
        yield from ((do("act", slot=slot),) for slot in SLOTS)
        yield (do("stand_down"),)
        if "count.cleared" in absent:
            yield (given_not("record.revivals", 0), do("reset"))
        if "revival.failed" in absent:
            yield (do("fail"),)
        if "plateau.reported" in absent:
            yield (do("report"),)

    def blames(self, key: Key) -> Iterable[Blame]:
        """A revival whose number fell: the count was lost at the last death. An alarm: what armed it did."""
        match key:
            case ("revived", int(number), _):
                lowered = (See("record.revivals", number, None, given=True), see("record.revivals", number - 1))
                yield Blame(("died",), lowered, ("K5",))
                yield Blame(("succeeded", "failed", "settled", "tracked"), lowered, ("K3",))
            case ("armed for a revival", int(due_ms), *_):
                yield Blame(("revived",), tuple(see(path, due_ms) for path in DUE), ("K4",))

    def suspects(self, key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
        """What did wrong, where a guard or another rule would be named for what follows from it."""
        match key:
            case ("cleared by a clean run",):  # at no look, or while something is in flight, or owed
                counts = (given_not("record.revivals", 0), given_not("reviving", Pass.RECORDED))
                yield (*counts, do("confirm")), ("K3",)
                yield (given("clean_seen", True), do("confirm")), ("K3",)
                yield (do("probe"), see("record.revivals", 0), see("record.armed_at_ms", NEVER)), ("K3", "K10")
            case ("revived", int(number), int(at_ms)):
                ahead = given("record.revivals", number - 1)
                counted = (see("reviving", Pass.RECORDED), see("record.revivals", number))
                early = (*_taken_over(at_ms), do("fire", jitter_ms=0), *counted)  # as if it had been armed for now
                yield (ahead, *early), ("K2",)
                yield (ahead, given_not("reviving", Pass.IDLE), *early), ("K8a",)
                yield (ahead, given("alive", True), given("reviving", Pass.IDLE), do("stray_fire"), *counted), ("K8",)
            case ("succeeded" | "failed",):  # before people were told
                yield from (((do("act", slot=slot),), ("K9",)) for slot in SLOTS)
            case ("reported",):
                yield (do("report"),), ("K9",)
            case ("armed after a reset", int(due_ms), *_):  # as if it were reset now, to this
                yield (do("reset"), *(see(path, due_ms) for path in DUE)), ("K6",)

    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next."""
        names = _names(entity)
        now_ms = entity.now_ms
        yield "work.tracked", ("tracked", False)
        yield "work.settled (ok)", ("settled", True, names.recovering, False)
        yield "work.settled (not ok)", ("settled", False, names.recovering, False)
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


def _midway(revivals: int, evidence_at: int) -> Move:
    """A host that was revived so often before its log begins: work is under way, and a look is due."""
    leaves = {
        "record.revivals": revivals,
        "ghost.revivals": revivals,
        "record.last_revival_at_ms": LONG_AGO_MS,
        "ghost.started_at_ms": LONG_AGO_MS,
        "reported_version": 1 if revivals >= evidence_at else NEVER,
        "reported_epoch": 0 if revivals >= evidence_at else NEVER,
    }
    puts = (Put(path, value) for path, value in leaves.items())
    return (do("boot"), *puts, do("track", slot=0, obliges=True), *_taken_over(0))


def _clears(key: Key) -> Iterator[Move]:
    """The count is cleared."""
    cleared = see("record.revivals", 0)
    match key:
        case ("cleared by deploy", int(version)):
            yield (do("deploy", version=version), do("boot"), cleared)
        case ("cleared by hand",):
            yield (do("reset"), cleared)
        case ("cleared by a clean run",):
            disarmed = see("record.armed_at_ms", NEVER)
            yield (given("record.revivals", 0), given("record.armed_at_ms", NEVER))
            yield (do("confirm"), cleared, disarmed)
            yield (do("fire", jitter_ms=0), cleared, disarmed)
            yield (do("stray_fire"), cleared, disarmed)
        case ("cleared by another",):
            yield (do("probe"), cleared)


def _perhaps_dead() -> tuple[Move, ...]:
    """What an alarm may find: the host as it was, or dead unseen."""
    return (), (do("die"),)


def _taken_over(due_ms: int) -> Move:
    return tuple(Put(path, due_ms) for path in DUE)


def _running(slot: int) -> str:
    return f"running_since_ms[{slot}]"


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
