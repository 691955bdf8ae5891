"""The model of TLC's ``Holds.tla`` in Deadreckon's language, state for state: the yardstick for explorers.

N human-approval holds are parked on one event stream. Each waits for a resolution on the stream, a grant or a denial,
until a deadline D ticks after it was parked. The stream may fail, F times at most: every wait in flight is then
rejected. A sound door backs off (1, 2, 4, ... ticks, capped at level B) and re-arms; the known-bad one lets the
rejection kill the hold, so that a later grant strands it. Expiry is the safe direction. Time is discrete and urgent: a
tick may not pass a deadline or a re-arm that is due, and it is one step however many holds are parked.

The sizes are machines, so the command takes them; S5 to S7 are the sizes that other checkers were measured with, and
``small`` is quick. Any other size is made of ``machine``, whose bounds are ``holds``, ``deadline`` and ``failures``.

    deadreckon check bench/holds.py:S5
    deadreckon check bench/holds.py:machine --bound holds=4 --bound deadline=2
    deadreckon defects bench/holds.py:small broken-door

=====  ===========  =========  ==========  =====  ============================
size   N, D, F, B      states       edges  depth  one state for permuted holds
=====  ===========  =========  ==========  =====  ============================
small  2, 2, 1, 1       1,980       5,841     10
S5     3, 3, 1, 1     100,953     403,947     15
S6     4, 2, 1, 1   1,066,608   5,638,653     17  56,778 (``S6_SYMMETRIC``)
S7     4, 3, 2, 1   9,706,230  50,613,012     21  474,804 (``S7_SYMMETRIC``)
=====  ===========  =========  ==========  =====  ============================

TLC's *generated* counts the initial state too, so it is our edges + 1. TLC's *depth* counts the states of the longest
shortest path and ours its steps, so it is our depth + 1.
"""

from __future__ import annotations

from enum import Enum

import attrs

from deadreckon.spec import Machine, Variant, action, always, each, require, scope, sometimes, swap

SOURCE = "Holds.tla, the model of the same protocol for TLC"


class Phase(Enum):
    """Where a hold is."""

    IDLE = "idle"
    ARMED = "armed"
    WAIT = "wait"
    RELEASED = "released"
    DENIED = "denied"
    EXPIRED = "expired"
    DEAD = "dead"


class Verdict(Enum):
    """The resolution of a hold, as it stands on the stream."""

    NONE = "none"
    GRANT = "grant"
    DENY = "deny"


@attrs.frozen
class Policy:
    """Ticks from parking to the deadline; how often the stream may fail; ticks of each level of backoff."""

    deadline: int
    failures: int
    delays: tuple[int, ...]


@attrs.frozen
class Hold:
    """One hold: its phase, its resolution, ticks left to the deadline, its level of backoff, ticks to its re-arm."""

    phase: Phase
    verdict: Verdict
    left: int
    level: int
    timer: int


@attrs.frozen
class State:
    """The stream, and the holds on it."""

    up: bool
    fails: int
    holds: tuple[Hold, ...]


def policy_is_valid(policy: Policy) -> bool:
    ascend = all(low <= high for low, high in zip(policy.delays, policy.delays[1:], strict=False))
    return policy.deadline >= 0 and policy.failures >= 0 and policy.delays[0] >= 1 and ascend


def idle() -> Hold:
    """A hold that nobody has asked for yet."""
    return Hold(Phase.IDLE, Verdict.NONE, 0, 0, 0)


def initial(holds: int = 3) -> State:
    """The stream is up, and nobody has asked for anything."""
    return State(True, 0, tuple(idle() for _ in range(holds)))


# Helpers, some of which the variants replace.


def put(state: State, at: int, hold: Hold) -> State:
    return attrs.evolve(state, holds=(*state.holds[:at], hold, *state.holds[at + 1 :]))


def parked(hold: Hold) -> bool:
    return hold.phase == Phase.ARMED or hold.phase == Phase.WAIT


def top(policy: Policy) -> int:
    """The highest level of backoff, B."""
    return sum(1 for _ in policy.delays[1:])


def delay(policy: Policy, level: int) -> int:
    """Ticks of backoff at *level*."""
    ticks = policy.delays[0]
    for at, one in enumerate(policy.delays[1:], 1):
        ticks = one if level == at else ticks
    return ticks


def backed_off(policy: Policy, hold: Hold) -> Hold:
    """A hold that waits before it arms again, and would wait longer the next time."""
    level = hold.level + 1 if hold.level < top(policy) else top(policy)
    return attrs.evolve(hold, phase=Phase.WAIT, level=level, timer=delay(policy, hold.level))


def rejected(policy: Policy, hold: Hold) -> Hold:
    """An armed hold whose wait the stream rejects."""
    return backed_off(policy, hold)


def killed(policy: Policy, hold: Hold) -> Hold:
    """The rejection kills the hold."""
    return attrs.evolve(hold, phase=Phase.DEAD)


def outcome(verdict: Verdict) -> Phase:
    """How a hold with this resolution settles."""
    return Phase.RELEASED if verdict == Verdict.GRANT else Phase.DENIED


def released_anyway(verdict: Verdict) -> Phase:
    """Any resolution releases the hold."""
    return Phase.RELEASED


def expired(hold: Hold) -> Hold:
    return attrs.evolve(hold, phase=Phase.EXPIRED, level=0, timer=0)


def expired_with_its_timer(hold: Hold) -> Hold:
    """The timer of an expired hold is forgotten, and goes on."""
    return attrs.evolve(hold, phase=Phase.EXPIRED, level=0)


def aged(hold: Hold) -> Hold:
    """A hold one tick later."""
    left = hold.left - 1 if parked(hold) else hold.left
    timer = hold.timer - 1 if hold.phase == Phase.WAIT else hold.timer
    return attrs.evolve(hold, left=left, timer=timer)


def before_deadline(hold: Hold) -> bool:
    return hold.left > 0 or not parked(hold)


def before_rearm(hold: Hold) -> bool:
    return hold.timer > 0 or hold.phase != Phase.WAIT


# Actions.


def request(policy: Policy, state: State, hold: int) -> State:
    """The request is appended to the stream before the hold parks."""
    one = state.holds[hold]
    require(state.up, "Safe", "the stream is down")
    require(one.phase == Phase.IDLE, "Safe", "the hold was requested before")
    return put(state, hold, attrs.evolve(one, phase=Phase.ARMED, left=policy.deadline))


def resolve(state: State, hold: int, granted: bool) -> State:
    """A resolution may land at any time after the request, even too late."""
    one = state.holds[hold]
    require(state.up, "Safe", "the stream is down")
    require(one.phase != Phase.IDLE, "Safe", "nothing was requested")
    require(one.verdict == Verdict.NONE, "Safe", "the hold has a resolution")
    return put(state, hold, attrs.evolve(one, verdict=Verdict.GRANT if granted else Verdict.DENY))


def deliver(state: State, hold: int) -> State:
    """An armed wait yields the resolution: the hold settles."""
    one = state.holds[hold]
    require(state.up, "Safe", "the stream is down")
    require(one.phase == Phase.ARMED, "Safe", "the door is not armed")
    require(one.verdict != Verdict.NONE, "Safe", "there is no resolution")
    return put(state, hold, attrs.evolve(one, phase=outcome(one.verdict), left=0, level=0))


def stream_fail(policy: Policy, state: State) -> State:
    """Every wait in flight is rejected at once."""
    require(state.up, "NoZombie", "the stream is down")
    require(state.fails < policy.failures, "NoZombie", "it has failed often enough")
    holds = tuple(rejected(policy, one) if one.phase == Phase.ARMED else one for one in state.holds)
    return State(False, state.fails + 1, holds)


def stream_up(state: State) -> State:
    require(not state.up, "NoZombie", "the stream is up")
    return attrs.evolve(state, up=True)


def rearm(policy: Policy, state: State, hold: int) -> State:
    """The backoff is over: arm again, or back off further if the stream is down."""
    one = state.holds[hold]
    require(one.phase == Phase.WAIT, "Backoff", "the hold does not back off")
    require(one.timer == 0, "Backoff", "the backoff is not over")
    return put(state, hold, attrs.evolve(one, phase=Phase.ARMED) if state.up else backed_off(policy, one))


def expire(state: State, hold: int) -> State:
    one = state.holds[hold]
    require(parked(one), "Safe", "the hold is not parked")
    require(one.left == 0, "Safe", "the deadline has not come")
    return put(state, hold, expired(one))


def tick(state: State) -> State:
    """Time passes, but not past a deadline or a re-arm that is due."""
    require(any(parked(one) for one in state.holds), "Backoff", "nothing waits for time")
    require(all(before_deadline(one) for one in state.holds), "Safe", "a deadline is due")
    require(all(before_rearm(one) for one in state.holds), "Backoff", "a re-arm is due")
    return attrs.evolve(state, holds=tuple(aged(one) for one in state.holds))


# Rules. TLC's invariants are the first three and TypeOK. What they say of one hold is a helper: a helper's paths merge,
# so the traced rule is a conjunction over the holds, and not a tree of all their cases.


def as_resolved(hold: Hold) -> bool:
    if hold.phase == Phase.RELEASED:
        return hold.verdict == Verdict.GRANT
    return hold.verdict == Verdict.DENY or hold.phase != Phase.DENIED


def backs_off(policy: Policy, hold: Hold) -> bool:
    return hold.timer <= 0 or (hold.phase == Phase.WAIT and hold.timer <= policy.delays[-1])


def in_range(policy: Policy, hold: Hold) -> bool:
    times = 0 <= hold.left <= policy.deadline and 0 <= hold.timer <= policy.delays[-1]
    return times and 0 <= hold.level <= top(policy)


def waits_longest(policy: Policy, hold: Hold) -> bool:
    return hold.phase == Phase.WAIT and hold.timer == policy.delays[-1]


@always("Safe", "a hold settles only the way its resolution says", source=SOURCE)
def safe(state: State) -> bool:
    return all(as_resolved(one) for one in state.holds)


@always("NoZombie", "no failure of the stream kills a hold", source=SOURCE)
def no_zombie(state: State) -> bool:
    return all(one.phase != Phase.DEAD for one in state.holds)


@always("Backoff", "the backoff is bounded, and only a hold that backs off has a timer", source=SOURCE)
def backoff(policy: Policy, state: State) -> bool:
    return all(backs_off(policy, one) for one in state.holds)


@always("TypeOK", "every field stays within its range", source=SOURCE, lemma=True)
def type_ok(policy: Policy, state: State) -> bool:
    return 0 <= state.fails <= policy.failures and all(in_range(policy, one) for one in state.holds)


@sometimes("Settles", "one hold is released and another is denied", source=SOURCE, beside=("Safe",))
def settles(state: State) -> bool:
    return any(one.phase == Phase.RELEASED for one in state.holds) and any(
        one.phase == Phase.DENIED for one in state.holds
    )


@sometimes("Survives", "a hold is released although the stream has failed", source=SOURCE, beside=("NoZombie",))
def survives(state: State) -> bool:
    return state.fails > 0 and any(one.phase == Phase.RELEASED for one in state.holds)


@sometimes("Capped", "a hold waits as long as the backoff may last", source=SOURCE, beside=("Backoff",))
def capped(policy: Policy, state: State) -> bool:
    return any(waits_longest(policy, one) for one in state.holds)


def unsettled(hold: Hold) -> bool:
    return hold.phase == Phase.IDLE or parked(hold)


def at_rest(state: State) -> bool:
    """Every hold has settled, one way or the other."""
    return not any(unsettled(one) for one in state.holds)


VARIANTS = (
    Variant("broken-door", "NoZombie", "a failure of the stream kills what waits on it", (swap(rejected, killed),)),
    Variant("deaf-door", "Safe", "a door releases at any resolution", (swap(outcome, released_anyway),)),
    Variant("stray-timer", "Backoff", "expiry leaves the timer", (swap(expired, expired_with_its_timer),)),
)


EACH = each("holds")

machine = Machine(
    name="holds",
    title="A hold survives every failure of the stream, and settles as its resolution says.",
    state=State,
    policy=Policy,
    policy_valid=policy_is_valid,
    initial=(initial,),
    actions=(
        action(request, hold=EACH),
        action(resolve, hold=EACH),
        action(deliver, hold=EACH),
        action(rearm, hold=EACH),
        action(expire, hold=EACH),
        action(stream_fail),
        action(stream_up),
        action(tick),
    ),
    rules=(safe, no_zombie, backoff, type_ok, settles, survives, capped),
    scopes=(scope("size", why="deadline and failures bound it", policy=Policy(3, 1, (1, 2))),),
    terminal=at_rest,
    variants=VARIANTS,
)


def sized(n: int, deadline: int, failures: int, level: int, *, symmetric: bool = False) -> Machine:
    """The machine of one size.

    Args:
        n: how many holds.
        deadline: D, in ticks.
        failures: F, how often the stream may fail.
        level: B, the highest level of backoff.
        symmetric: whether the explorer keeps one state for all permutations of the holds.
    """
    policy = Policy(deadline, failures, tuple(2**at for at in range(level + 1)))
    return attrs.evolve(
        machine.sized(holds=n),
        name=f"holds-{n}-{deadline}-{failures}-{level}{'-symmetric' if symmetric else ''}",
        scopes=(scope("size", why="deadline and failures bound it", policy=policy),),
        interchangeable=(("holds",),) if symmetric else (),
    )


small = sized(2, 2, 1, 1)
S5 = sized(3, 3, 1, 1)
S6 = sized(4, 2, 1, 1)
S7 = sized(4, 3, 2, 1)
S6_SYMMETRIC = sized(4, 2, 1, 1, symmetric=True)
S7_SYMMETRIC = sized(4, 3, 2, 1, symmetric=True)
