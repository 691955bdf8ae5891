"""Lemmas of the hold: what makes its rules inductive. Each is explored and proved with the others, never assumed."""

from __future__ import annotations

from .hold_rules import Ghost, bounded, never_made
from .hold_state import Call, Caller, Fact, Hold, HoldPolicy, Release, State, Told, Wait
from .language import always

SOURCE = "strengthens the induction; follows from hold.py"


def untouched_yet(hold: Hold, effects: tuple[int, ...]) -> bool:
    """Whether nothing has happened to a hold that was not asked for."""
    quiet = hold.wait == Wait.IDLE and hold.caller == Caller.ABSENT and not hold.judged
    idle = all(call == Call.NONE for call in hold.calls) and all(told == Told.NOTHING for told in hold.told)
    return hold.fact != Fact.ABSENT or (quiet and idle and all(effect == 0 for effect in effects))


@always("L1", "a hold that was not asked for is untouched", source=SOURCE, lemma=True)
def l1(state: State, ghost: Ghost) -> bool:
    return all(untouched_yet(hold, effects) for hold, effects in zip(state.holds, ghost.effects, strict=True))


def follows(hold: Hold, request: int) -> bool:
    """Whether call, release and decision of a request follow from each other."""
    release, call = hold.releases[request], hold.calls[request]
    decided = release == Release.NONE or (hold.fact == Fact.DECIDED and hold.approved[request])
    started = call == Call.NONE or (release != Release.NONE and release != Release.LAPSED)
    return decided and started and (call != Call.OWED or release == Release.STARTED)


@always("L2", "a call follows a release, and a release an approval", source=SOURCE, lemma=True)
def l2(state: State) -> bool:
    return all(follows(hold, request) for hold in state.holds for request in range(2))


def effect_accounted(policy: HoldPolicy, hold: Hold, request: int, effects: int) -> bool:
    """Whether an effect that has not been called for has not happened."""
    pending = hold.calls[request] == Call.OWED and not policy.idempotent
    unstarted = hold.releases[request] == Release.NONE
    return effects >= 0 and (effects == 0 or not (pending or unstarted))


@always("L3", "a request whose call is still owed has had no effect", source=SOURCE, lemma=True)
def l3(policy: HoldPolicy, state: State, ghost: Ghost) -> bool:
    return all(
        effect_accounted(policy, hold, request, effects[request])
        for hold, effects in zip(state.holds, ghost.effects, strict=True)
        for request in range(2)
    )


@always("L4", "the dead remember nothing", source=SOURCE, lemma=True)
def l4(state: State) -> bool:
    return state.alive or all(forgets(hold) for hold in state.holds)


def forgets(hold: Hold) -> bool:
    """Whether the door's memory of a hold is empty."""
    return hold.wait == Wait.IDLE and not hold.judged and all(call == Call.NONE for call in hold.calls)


@always("L5", "no wait and no decision passes the deadline", source=SOURCE, lemma=True)
def l5(state: State) -> bool:
    return all(bounded(hold) for hold in state.holds)


@always("L6", "a request that was said to have failed has no facts", source=SOURCE, lemma=True)
def l6(state: State) -> bool:
    return all(never_made(hold) for hold in state.holds)


@always("L7", "no key of a decision is burnt", source=SOURCE, lemma=True)
def l7(state: State) -> bool:
    return all(not hold.key_burnt for hold in state.holds)
