"""The moves of a hold: by which of them a line may have been written, which write none, and which would break a rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from deadreckon.spec import UNLIMITED
from deadreckon.spec.hold_state import Call, Caller, Evidence, Fact, Release, Told, Wait

from .moves import Blame, Key, Move, See, do, given, given_not, see

VERDICTS: Final = {"approve": True, "reject": False}
OUTCOMES: Final = {"ok": Release.OK, "error": Release.ERROR, "unknown": Release.UNKNOWN, "lapsed": Release.LAPSED}
TOLD: Final = {told.value.replace(" ", "-"): told for told in Told if told not in (Told.NOTHING, Told.FAILED)}

WHOLE: Final = UNLIMITED
"""A slice that lasts to the deadline."""

FAILURES: Final = tuple(
    move
    for action in ("wait_fails", "judgement_fails")
    for move in ((given("up", False), do(action)), (given("up", True), do("journal_fails"), do(action)))
)
"""The moves of a wait that fails because the journal is away."""

EFFECTS: Final = "ghost.effects[0][0]"
"""How often the request was called."""

LEAVES: Final = (do("detach"), do("leave"))
"""The caller goes away for good."""


def one(name: str) -> str:
    """A leaf of the one hold that is followed."""
    return f"holds[0].{name}"


def moves(key: Key) -> Iterable[Move]:
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
            yield from moves(("told", "error"))
            yield (given(one("releases[0]"), Release.NONE), *LEAVES)
        case ("gone",):
            yield LEAVES
            yield (given(one("caller"), Caller.GONE),)
        case ("armed",):
            yield (given(one("wait"), Wait.WAITING),)
            yield (do("adopt", slice_ms=WHOLE), see(one("wait"), Wait.WAITING))
            backs_off = given(one("wait"), Wait.BACKING_OFF)
            yield from ((backs_off, do("wake", slice_ms=slice_ms)) for slice_ms in (WHOLE, 0))
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


def hidden(absent: frozenset[str], idempotent: bool) -> Iterable[Move]:
    """What a door does without a fact, and what happens to it; *idempotent*: it may run a release in doubt again."""
    yield (do("judge"),)
    yield (do("adopt", slice_ms=WHOLE),)
    yield (do("stop_waiting"),)
    yield (do("wake", slice_ms=WHOLE),)
    yield (do("wake", slice_ms=0),)
    yield (do("slice_ends", slice_ms=WHOLE),)
    yield from ((do("answer", succeeds=succeeds),) for succeeds in (True, False))
    yield (do("lose_track"),)
    yield (do("journal_returns"),)
    if idempotent:
        yield (do("settle_unknown"), see(one("calls[0]"), Call.OWED))
    if "wait.failed" in absent:
        yield (do("journal_fails"),)
    yield (given(one("wait"), Wait.IDLE), do("crash"))  # nobody asks for the release, say
    yield (do("boot"),)
    if "release.started" in absent:
        yield (do("start_release"),)
    if "effect.called" in absent:  # once more is as good as ever so often
        yield (See(EFFECTS, None, 1, given=True), do("call"))


def blames(key: Key) -> Iterable[Blame]:
    """An error that the caller is told right after a wait failed is that failure, told as an end."""
    if key == ("told", "error"):
        yield Blame(("failed", "failed again"), (see(one("told[0]"), Told.ERROR),), ("H9",), last=True)


def suspects(key: Key, ahead: bool) -> Iterable[tuple[Move, tuple[str, ...]]]:
    """What another rule would be named for: a second end, a wait after it, a decision of the door, a release of another's.

    *ahead*: starts are in the log, so that a call shows whose release it is.
    """
    decided = given(one("fact"), Fact.DECIDED)
    match key:
        case ("requested", int(hold_ms)):
            yield (do("ask", hold_ms=hold_ms, slice_ms=WHOLE),), ("H2",)
        case ("decided by the door",):
            yield (do("detach"), see(one("fact"), Fact.DECIDED)), ("H9",)
        case ("decided", bool(verdict), True):
            yield (decided, do("decide", first=verdict, evidence=Evidence.UNSIGNED)), ("H6",)
        case ("expired",):
            yield (decided, do("expire")), ("H6",)
        case ("abandoned", _):
            yield (decided, do("abandon")), ("H6",)
        case ("armed",):
            yield (decided, given(one("wait"), Wait.IDLE), do("adopt", slice_ms=WHOLE)), ("H8",)
        case ("called",) if ahead:
            left = (given(one("releases[0]"), Release.STARTED), given(one("calls[0]"), Call.NONE))
            yield (*left, given(one("caller"), Caller.ATTACHED), do("call")), ("H3",)


def options(part: int) -> Iterator[tuple[str, Key]]:
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
