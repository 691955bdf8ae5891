"""Known-bad designs of the hold: each replaces a few helpers, and each is refuted by the rule it names."""

from __future__ import annotations

import attrs

from .hold import expirable
from .hold_state import Call, Caller, Evidence, Fact, Hold, HoldPolicy, State, Told, Wait
from .hold_words import (
    acceptable,
    after_refusal,
    asked_again,
    backed_off,
    belongs,
    clipped,
    cursor_after_failure,
    deadline_on_resume,
    detached,
    failed,
    in_time,
    marked,
    may_look,
    outcome,
    owed,
    rearmed,
    reconciles,
    resumes,
    undecided,
    wanted,
    within_horizon,
)
from .language import swap
from .machine import Variant


def failed_for_good(policy: HoldPolicy, hold: Hold, now_ms: int) -> Hold:
    """An availability error fails the hold."""
    return attrs.evolve(hold, wait=Wait.IDLE, told=tuple(Told.FAILED for _ in hold.told))


def moved_on(hold: Hold) -> bool:
    """The cursor moves although the decision could not be judged."""
    return True


def at_the_head(hold: Hold) -> bool:
    """The wait is armed again from the newest fact."""
    return hold.fact != Fact.OPEN


def not_clipped(hold: Hold, until_ms: int) -> int:
    """Waits and sleeps run their length, whatever the deadline."""
    return until_ms


def looks_until_the_deadline(hold: Hold, now_ms: int) -> bool:
    """Once the deadline has come nobody reads the journal again."""
    return now_ms < hold.deadline_at_ms


def without_horizon(policy: HoldPolicy, hold: Hold, now_ms: int) -> bool:
    """What was approved once may be released at any time."""
    return True


def in_time_when_read(hold: Hold, now_ms: int) -> bool:
    """The deadline is read, then something is awaited, then the decision is written."""
    return now_ms - 1 <= hold.deadline_at_ms


def by_status_alone(hold: Hold, now_ms: int) -> bool:
    """A decision looks at the status, which only a sweep would change."""
    return True


def denied(hold: Hold) -> Hold:
    """A lost connection is taken for a refusal."""
    lost = attrs.evolve(hold, caller=Caller.DETACHED)
    return attrs.evolve(lost, fact=Fact.DECIDED) if hold.fact == Fact.OPEN else lost


def outcome_at_once(hold: Hold, index: int) -> Told:
    """The caller is told of the answer, whether or not it could be settled."""
    return Told.OK if hold.calls[index] == Call.ANSWERED else outcome(hold, index)


def never_mind_the_mark(hold: Hold, index: int) -> bool:
    """The mark may follow the effect."""
    return True


def owed_or_new(call: Call) -> bool:
    """Whoever finds an approval calls."""
    return call == Call.OWED or call == Call.NONE


def resumes_always(policy: HoldPolicy) -> bool:
    """Every release in doubt is run again."""
    return True


def wanted_by_anybody(hold: Hold) -> bool:
    """Nobody asks whether the caller is still there."""
    return hold.caller != Caller.ABSENT


def burnt(hold: Hold) -> Hold:
    """The ignored decision stays in the journal under the key that a valid one would need."""
    return attrs.evolve(hold, key_burnt=True)


def open_or_decided(hold: Hold) -> bool:
    """The expiry is appended without a look at what came in since the last read."""
    return hold.fact == Fact.OPEN or hold.fact == Fact.DECIDED


def orphaned(policy: HoldPolicy, hold: Hold, now_ms: int) -> Hold:
    """Without a key the request can't be sent again: the caller is told that it failed, though it is in the journal."""
    return attrs.evolve(hold, wait=Wait.IDLE, told=tuple(Told.FAILED for _ in hold.told))


def first_door_only(state: State) -> bool:
    """Nobody takes up what a dead door left."""
    return state.door == 1


def of_anybody(source: int, index: int) -> bool:
    """Any decision wakes any wait."""
    return True


def at_once(policy: HoldPolicy, hold: Hold, now_ms: int) -> Hold:
    """The wait is armed again without a distance."""
    return attrs.evolve(hold, until_ms=clipped(hold, now_ms + policy.slice_ms))


def all_failed(calls: tuple[Call, ...], index: int) -> tuple[Call, ...]:
    """One failure fails the batch."""
    return tuple(Call.FAILED for _ in calls)


def deadline_from_now(policy: HoldPolicy, hold: Hold, now_ms: int) -> int:
    """A door that resumes a hold gives it its full time again."""
    return now_ms + policy.hold_ms


def unchecked(state: State, evidence: Evidence, approves: bool) -> bool:
    """The journal takes every decision."""
    return True


def any_signature(state: State, evidence: Evidence, approves: bool) -> bool:
    """A signature counts, whether or not a key is active to tell that it is good."""
    return evidence == Evidence.SIGNED or (evidence == Evidence.UNSIGNED and not (state.key_active and approves))


def never_closed(hold: Hold) -> bool:
    """A second decision replaces the first."""
    return hold.fact != Fact.ABSENT


VARIANTS = (
    Variant(
        "rearm-on-timeout-only",
        "H9",
        "an availability error fails the hold",
        (swap(backed_off, failed_for_good),),
        "3 of 12 and 4 of 12 holds stranded",
    ),
    Variant(
        "cursor-moves-on-failed-judgement",
        "H8",
        "a decision that could not be judged is skipped",
        (swap(cursor_after_failure, moved_on),),
        "a real grant dropped",
    ),
    Variant("rearm-from-head", "H8", "the wait is armed again from the newest fact", (swap(rearmed, at_the_head),)),
    Variant("unclipped-backoff", "H2", "sleeps are not cut at the deadline", (swap(clipped, not_clipped),)),
    Variant(
        "no-sweep",
        "H16",
        "a decision just before the deadline is ignored after the last slice",
        (swap(may_look, looks_until_the_deadline),),
    ),
    Variant(
        "release-without-horizon",
        "H2",
        "a door that returns an hour later still releases",
        (swap(within_horizon, without_horizon),),
    ),
    Variant(
        "check-then-write",
        "H2",
        "the deadline is read, then written past",
        (swap(in_time, in_time_when_read),),
        "approved at 15:01 of a 15:00 window",
    ),
    Variant(
        "expiry-only-swept",
        "H2",
        "approval looks at the status, not at the clock",
        (swap(in_time, by_status_alone),),
        "expired holds still executable",
    ),
    Variant(
        "transport-loss-denies",
        "H9",
        "a lost connection is taken for a refusal",
        (swap(detached, denied),),
        "a lost socket became a denial after 20 s",
    ),
    Variant(
        "settle-best-effort",
        "H5",
        "success is told whether or not it was settled",
        (swap(outcome, outcome_at_once),),
        "200 returned, fact lost",
    ),
    Variant(
        "effect-before-mark",
        "H4",
        "the effect comes before its mark",
        (swap(owed, owed_or_new), swap(marked, never_mind_the_mark)),
        "crash between effect and tick mark",
    ),
    Variant(
        "replay-effect-on-resume",
        "H3",
        "a release in doubt is run again",
        (swap(resumes, resumes_always),),
        "one grant, three runs of the effect",
    ),
    Variant(
        "release-for-the-dead",
        "H12",
        "nobody asks whether the caller is still there",
        (swap(wanted, wanted_by_anybody),),
        "eight effects after the run had failed",
    ),
    Variant(
        "ignored-decision-burns-key", "H16", "an ignored decision blocks a valid one", (swap(after_refusal, burnt),)
    ),
    Variant(
        "append-after-expiry-wins",
        "H6",
        "the expiry is appended over a decision",
        (swap(expirable, open_or_decided),),
    ),
    Variant(
        "unkeyed-request",
        "H12",
        "a request whose acknowledgement was lost can't be sent again",
        (swap(asked_again, orphaned),),
        "orphan requests",
    ),
    Variant(
        "no-reconcile",
        "H15",
        "nobody takes up what a dead door left",
        (swap(reconciles, first_door_only),),
        "zombies until and past expiry",
    ),
    Variant(
        "no-wait-epoch",
        "H7",
        "any decision wakes any wait",
        (swap(belongs, of_anybody),),
        "an old decision wakes a newer wait",
    ),
    Variant("hot-loop", "H10", "the wait is armed again without a distance", (swap(backed_off, at_once),)),
    Variant("sibling-blast", "H14", "one failure fails the batch", (swap(failed, all_failed),)),
    Variant(
        "deadline-recomputed-on-resume",
        "H13",
        "a door that resumes a hold gives it its full time again",
        (swap(deadline_on_resume, deadline_from_now),),
        "resume clears the deadline",
    ),
    Variant("unchecked-decision", "H11", "the journal takes every decision", (swap(acceptable, unchecked),)),
    Variant(
        "signed-by-nobody", "H11", "a signature counts though no key is active", (swap(acceptable, any_signature),)
    ),
    Variant("second-decision", "H6", "a second decision replaces the first", (swap(undecided, never_closed),)),
)
