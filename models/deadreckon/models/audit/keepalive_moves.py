"""The moves of a host: by which of them a line may have been written, which write none, and which would break a rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from deadreckon.spec.keepalive_state import NEVER, Pass

from .moves import Blame, Key, Move, Put, See, do, given, given_not, see

SLOTS: Final = (0, 1)
LONG_AGO_MS: Final = -(10**12)
DUE: Final = ("record.armed_at_ms", "alarm_at_ms")


def moves(key: Key) -> Iterable[Move]:
    """The moves that may have written a line with this key: a revival that was begun has its own line first."""
    if key[0] in ("revived", "died", "adopted", "reported"):
        yield from _moves(key)
    else:
        yield from ((given_not("reviving", Pass.RECORDED), *move) for move in _moves(key))
    match key:
        case ("armed" | "armed too late", int(due_ms), int(rungs), int(jitter_ms)):
            yield from _armed_first(due_ms, rungs, jitter_ms)


def _moves(key: Key) -> Iterator[Move]:
    match key:
        case ("adopted", int(revivals), int(evidence_at)):
            yield _midway(revivals, evidence_at)
        case ("tracked", bool(recovering)):
            yield from ((do("track", slot=slot, obliges=True),) for slot in SLOTS)
            busy = (given_not(_running(slot), NEVER) for slot in SLOTS)
            yield tuple(busy)  # a third work at once: the others are looked after as it would be
            if recovering:
                yield from ((given_not(_running(slot), NEVER),) for slot in SLOTS)
        case ("settled" | "settled badly" as how, bool(recovering), bool(all_at_once)):
            action = "settle" if how == "settled" else "settle_failed"
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
        case ("overlooked", int(at_ms)):  # no line: a look was due by then, and nobody was there
            due = See("record.armed_at_ms", NEVER + 1, at_ms, given=True)
            yield (See("record.revivals", 1, None, given=True), due, do("die"))
        case ("reported",):
            yield (do("report"),)
            for ahead in _perhaps_dead():  # before the line of the revival that brings the count there
                yield (*ahead, do("fire", jitter_ms=0), see("reviving", Pass.RECORDED), do("report"))
        case _:
            yield from _clears(key)


def hidden(absent: frozenset[str]) -> Iterable[Move]:
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


def blames(key: Key) -> Iterable[Blame]:
    """A number that fell: something cleared the count since the revival before. An alarm: what armed it did."""
    match key:
        case ("revived", int(number), _) if number > 0:
            lowered = (See("record.revivals", number, None, given=True), see("record.revivals", number - 1))
            for kinds, rule in (
                (("succeeded", "settled"), "K3"),  # what looks like a reason to clear it
                (("died",), "K5"),
                (("failed", "settled badly", "tracked"), "K3"),
            ):
                yield Blame(kinds, lowered, (rule,), since=("revived",))
        case ("armed for a revival", int(due_ms), *_):
            yield Blame(("revived",), tuple(see(path, due_ms) for path in DUE), ("K4",))
        case ("armed", int(due_ms), *_):
            yield Blame(("fired",), tuple(see(path, due_ms) for path in DUE), ("K4",), last=True)


def suspects(key: Key) -> Iterable[tuple[Move, tuple[str, ...]]]:
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


def _armed_first(due_ms: int, rungs: int, jitter_ms: int) -> Iterator[Move]:
    """The alarm of a revival whose own line comes after that of the alarm; what found the host dead may have no line."""
    put = Put("record.armed_at_ms", due_ms)
    armed = See("record.armed_at_ms", due_ms - jitter_ms, due_ms, given=True)
    for ahead in ((), (do("die"), do("fire", jitter_ms=0))):
        recorded = (*ahead, given("reviving", Pass.RECORDED))
        yield (*recorded, See("record.revivals", None, rungs, given=True), put)
        yield (*recorded, See("record.revivals", rungs + 1, None, given=True), armed, put)


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
