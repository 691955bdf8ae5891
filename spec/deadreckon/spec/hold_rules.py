"""What must hold of holds: rules H1 to H16 and what keeps them from being vacuous.

The ghost counts effects. Rules over steps look at one hold at a time; holds share nothing but door, journal and clock.
"""

from __future__ import annotations

import attrs

from .hold_state import Call, Caller, Evidence, Fact, Hold, HoldPolicy, Release, State, Told, Wait
from .language import always, eventually

PROTOCOL = "protocols/hold.md"


@attrs.frozen
class Ghost:
    """How often the effect of each request happened."""

    effects: tuple[tuple[int, ...], ...] = ((0, 0), (0, 0))


def called(before: Hold, after: Hold, request: int) -> bool:
    """Whether the upstream is called for a request in this step."""
    return before.calls[request] != Call.CALLED and after.calls[request] == Call.CALLED


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    """Count the effects."""
    return Ghost(
        tuple(
            tuple(effects + (1 if called(old, new, request) else 0) for request, effects in enumerate(counts))
            for old, new, counts in zip(before.holds, after.holds, ghost.effects, strict=True)
        )
    )


def terminal(hold: Hold) -> bool:
    """Whether every request of a hold has its terminal fact."""
    settled = all(
        not approved or release not in (Release.NONE, Release.STARTED)
        for approved, release in zip(hold.approved, hold.releases, strict=True)
    )
    return hold.fact == Fact.EXPIRED or hold.fact == Fact.ABANDONED or (hold.fact == Fact.DECIDED and settled)


def licensed(hold: Hold, request: int) -> bool:
    """Whether an effect of this request, if there was one, was approved in time."""
    call = hold.calls[request]
    approved = hold.fact == Fact.DECIDED and hold.approved[request]
    return call == Call.NONE or call == Call.OWED or (approved and hold.decided_at_ms <= hold.deadline_at_ms)


@always(
    "H1",
    "no effect without an accepted approval of that index, created at or before the deadline on the journal's clock",
    source=f"{PROTOCOL} H1",
)
def h1(state: State) -> bool:
    return all(licensed(hold, request) for hold in state.holds for request in range(2))


def starts(old: Hold, new: Hold, request: int) -> bool:
    """Whether a release is started in this step."""
    return old.releases[request] != Release.STARTED and new.releases[request] == Release.STARTED


def bounded(hold: Hold) -> bool:
    """Whether neither wait nor decision passes the deadline."""
    waits = hold.wait == Wait.IDLE or hold.until_ms <= hold.deadline_at_ms
    return waits and (hold.fact != Fact.DECIDED or hold.decided_at_ms <= hold.deadline_at_ms)


def in_its_time(policy: HoldPolicy, old: Hold, new: Hold, now_ms: int) -> bool:
    """Whether a step keeps within deadline and grace."""
    late = now_ms > old.deadline_at_ms + policy.release_grace_ms
    acts = any(starts(old, new, request) or called(old, new, request) for request in range(2))
    released = not (late and acts)
    overdue = old.wait == Wait.IDLE and new.wait != Wait.IDLE and now_ms >= new.deadline_at_ms
    return bounded(new) and released and not overdue


@always(
    "H2",
    "no hold outlives its deadline: no wait, sleep or retry of a live door extends past it, no decision is accepted after "
    "it, a door that comes back after it takes up no undecided hold, and no release starts later than the grace after it",
    source=f"{PROTOCOL} H2",
)
def h2(policy: HoldPolicy, before: State, after: State) -> bool:
    return all(in_its_time(policy, old, new, before.now_ms) for old, new in zip(before.holds, after.holds, strict=True))


@always(
    "H3",
    "the effect of (hold, index) happens at most once, crashes, retries and lost acknowledgements included, unless the "
    "release is declared idempotent",
    source=f"{PROTOCOL} H3",
)
def h3(policy: HoldPolicy, ghost: Ghost) -> bool:
    return policy.idempotent or all(effects <= 1 for counts in ghost.effects for effects in counts)


def called_unmarked(old: Hold, new: Hold, request: int) -> bool:
    """Whether the upstream is called without a durable mark."""
    return called(old, new, request) and old.releases[request] != Release.STARTED


@always("H4", "release_started is durable before the effect", source=f"{PROTOCOL} H4")
def h4(before: State, after: State) -> bool:
    return not any(
        called_unmarked(old, new, request)
        for old, new in zip(before.holds, after.holds, strict=True)
        for request in range(2)
    )


def told_truly(hold: Hold, request: int) -> bool:
    """Whether what the caller was told is in the journal."""
    match hold.told[request]:
        case Told.OK:
            return hold.releases[request] == Release.OK
        case Told.ERROR:
            return hold.releases[request] == Release.ERROR
        case Told.REFUSED:
            return hold.fact == Fact.DECIDED and not hold.approved[request]
        case Told.EXPIRED:
            return hold.fact == Fact.EXPIRED
        case Told.ABANDONED:
            return hold.fact == Fact.ABANDONED
        case Told.LAPSED:
            return hold.releases[request] == Release.LAPSED
        case Told.IN_DOUBT:
            return hold.releases[request] == Release.UNKNOWN
        case _:
            return True


@always(
    "H5",
    "a caller is told success only if settled(ok) is durable; told refused, expired or abandoned only if that fact is",
    source=f"{PROTOCOL} H5",
)
def h5(state: State) -> bool:
    return all(told_truly(hold, request) for hold in state.holds for request in range(2))


def final(old: Hold, new: Hold) -> bool:
    """Whether an end, once there, stays as it is."""
    same = new.fact == old.fact and new.approved == old.approved and new.decided_at_ms == old.decided_at_ms
    return old.fact == Fact.ABSENT or old.fact == Fact.OPEN or same


@always(
    "H6",
    "at most one accepted decision per hold; expired, refused, abandoned and approved are four different facts, and a "
    "late or second decision changes nothing",
    source=f"{PROTOCOL} H6",
)
def h6(before: State, after: State) -> bool:
    return all(final(old, new) for old, new in zip(before.holds, after.holds, strict=True))


def judged_by_its_own(hold: Hold) -> bool:
    """Whether a decision that was taken up is this hold's."""
    return not hold.judged or hold.fact == Fact.DECIDED


@always(
    "H7",
    "a decision belongs to one hold: it can't wake or decide a later one of the same caller",
    source=f"{PROTOCOL} H7",
)
def h7(state: State) -> bool:
    return all(judged_by_its_own(hold) for hold in state.holds)


@always(
    "H8",
    "a wait that is re-armed continues from the same cursor: no fact is skipped, none judged twice",
    source=f"{PROTOCOL} H8",
)
def h8(state: State) -> bool:
    return all(hold.cursor_past == hold.judged for hold in state.holds)


def survives(old: Hold, new: Hold) -> bool:
    """Whether a hold goes on as it was."""
    waits = (old.wait == Wait.IDLE) == (new.wait == Wait.IDLE)
    return waits and new.fact == old.fact and new.told == old.told and new.approved == old.approved


@always(
    "H9",
    "an availability error never ends a hold before its deadline, and is never a decision; nor is a lost connection",
    source=f"{PROTOCOL} H9",
    on=("wait_fails", "judgement_fails", "journal_fails", "journal_returns", "detach"),
)
def h9(before: State, after: State) -> bool:
    return all(survives(old, new) for old, new in zip(before.holds, after.holds, strict=True))


def backs_off(policy: HoldPolicy, old: Hold, new: Hold, now_ms: int) -> bool:
    """Whether a failed wait is followed by its backoff, and the next one is longer."""
    long = new.until_ms >= now_ms + old.backoff_ms or new.until_ms >= old.deadline_at_ms
    doubled = new.backoff_ms == old.backoff_ms + old.backoff_ms or new.backoff_ms == policy.backoff_max_ms
    return old.wait == Wait.WAITING and new.wait == Wait.BACKING_OFF and long and doubled


@always(
    "H10",
    "retries on an unavailable journal keep their distance: at least the current backoff, or until the deadline",
    source=f"{PROTOCOL} H10",
    on=("wait_fails", "judgement_fails"),
)
def h10(policy: HoldPolicy, before: State, after: State) -> bool:
    return any(backs_off(policy, old, new, before.now_ms) for old, new in zip(before.holds, after.holds, strict=True))


def waits_again_duly(policy: HoldPolicy, old: Hold, new: Hold, now_ms: int) -> bool:
    """Whether a wait begins after the backoff, or with a fresh one."""
    if old.wait == new.wait or new.wait != Wait.WAITING:
        return True
    if old.wait == Wait.BACKING_OFF:
        return old.until_ms <= now_ms
    return new.backoff_ms == policy.backoff_first_ms


@always(
    "H10a",
    "a backoff lasts until its end, and starts anew after any healthy answer",
    source=f"{PROTOCOL} H10",
)
def h10a(policy: HoldPolicy, before: State, after: State) -> bool:
    return all(
        waits_again_duly(policy, old, new, before.now_ms) for old, new in zip(before.holds, after.holds, strict=True)
    )


def decided_validly(old: Hold, new: Hold, key_active: bool) -> bool:
    """Whether a hold that this step decides, is decided by a valid decision."""
    if new.fact != Fact.DECIDED or old.fact == Fact.DECIDED:
        return True
    free = new.evidence == Evidence.UNSIGNED and not (key_active and any(new.approved))
    return (new.evidence == Evidence.SIGNED and key_active) or free


@always(
    "H11",
    "an invalid decision neither ends nor changes a hold, and does not block a valid one",
    source=f"{PROTOCOL} H11",
    on=("decide",),
)
def h11(before: State, after: State) -> bool:
    return all(decided_validly(old, new, before.key_active) for old, new in zip(before.holds, after.holds, strict=True))


def never_made(hold: Hold) -> bool:
    """Whether a request that was said to have failed has no facts."""
    return hold.fact == Fact.ABSENT or all(told != Told.FAILED for told in hold.told)


def for_somebody(old: Hold, new: Hold) -> bool:
    """Whether nothing is started for a caller that is not there any more."""
    acts = any(starts(old, new, request) or called(old, new, request) for request in range(2))
    return not acts or old.caller == Caller.ATTACHED or old.caller == Caller.DETACHED


@always(
    "H12",
    "no effect is started for a caller known to be gone; a request that was never durable (and one that its caller was "
    "told had failed) has no facts",
    source=f"{PROTOCOL} H12",
)
def h12(before: State, after: State) -> bool:
    return all(for_somebody(old, new) and never_made(new) for old, new in zip(before.holds, after.holds, strict=True))


def keeps_deadline(old: Hold, new: Hold) -> bool:
    """Whether the deadline stays."""
    return old.fact == Fact.ABSENT or new.deadline_at_ms == old.deadline_at_ms


@always(
    "H13",
    "the advertised deadline is the enforced one, fixed when parked, unchanged by restart or resume",
    source=f"{PROTOCOL} H13",
)
def h13(before: State, after: State) -> bool:
    return all(keeps_deadline(old, new) for old, new in zip(before.holds, after.holds, strict=True))


def untouched(old: Hold, new: Hold, request: int) -> bool:
    """Whether nothing of a request changed."""
    return (
        old.calls[request] == new.calls[request]
        and old.releases[request] == new.releases[request]
        and old.told[request] == new.told[request]
    )


def one_at_most(old: Hold, new: Hold) -> bool:
    """Whether at most one request is touched."""
    return untouched(old, new, 0) or untouched(old, new, 1)


@always(
    "H14",
    "the failure of one index changes no sibling's outcome",
    source=f"{PROTOCOL} H14",
    on=("answer", "lose_track", "settle", "settle_unknown", "lapse", "tell"),
)
def h14(before: State, after: State) -> bool:
    return all(one_at_most(old, new) for old, new in zip(before.holds, after.holds, strict=True))


FAIR = (
    "boot",
    "journal_returns",
    "ask_again",
    "slice_ends",
    "wait_fails",
    "wake",
    "judge",
    "stop_waiting",
    "adopt",
    "expire",
    "abandon",
    "start_release",
    "call",
    "answer",
    "settle",
    "settle_unknown",
    "lapse",
    "tick",
)


def requested(state: State) -> bool:
    """The first hold has been asked for."""
    return state.holds[0].fact != Fact.ABSENT


@eventually(
    "H15",
    "every requested hold gets a terminal fact for every index, if doors keep booting and the journal comes back",
    source=f"{PROTOCOL} H15",
    when=requested,
    fair=FAIR,
)
def h15(state: State) -> bool:
    return terminal(state.holds[0])


def approved_in_time(state: State) -> bool:
    """A request of the first hold was approved, and before the deadline ends somebody can act on it."""
    hold = state.holds[0]
    acts = state.alive and state.up and state.now_ms <= hold.deadline_at_ms
    return hold.fact == Fact.DECIDED and any(hold.approved) and acts


def honoured(hold: Hold, request: int) -> bool:
    """Whether a request that was approved is released."""
    release = hold.releases[request]
    return not hold.approved[request] or (release != Release.NONE and release != Release.LAPSED)


@eventually(
    "H16a",
    "an approval created by the deadline is honoured if a door and the journal are up before the deadline ends, and the "
    "caller is not gone",
    source=f"{PROTOCOL} H16",
    when=approved_in_time,
    fair=FAIR,
)
def h16a(state: State) -> bool:
    hold = state.holds[0]
    released = all(honoured(hold, request) for request in range(2))
    return released or hold.caller == Caller.GONE or not state.alive or not state.up


def heeds(old: Hold, new: Hold) -> bool:
    """Whether a wait ends with no decision unread, and no decision's key is taken by another."""
    unread = old.fact == Fact.DECIDED and old.wait != Wait.IDLE and new.wait == Wait.IDLE and not new.judged
    return not new.key_burnt and not unread


@always(
    "H16",
    "a valid decision created by the deadline is accepted, and no wait ends with it unread while the journal is available",
    source=f"{PROTOCOL} H16, H11",
)
def h16(before: State, after: State) -> bool:
    ends = not before.up or not after.alive
    return ends or all(heeds(old, new) for old, new in zip(before.holds, after.holds, strict=True))
