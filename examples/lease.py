"""A lease with fencing tokens: two clients, one lock service, one store.

A client that holds the lease may pause, wake after its lease has expired and been given to the other, and still believe
that it holds it. Time does not help, since the store can't know it; a token that grows with each grant does.

    deadreckon check examples/lease.py:machine
    deadreckon defects examples/lease.py:machine no-fencing
"""

from __future__ import annotations

import attrs

from deadreckon.spec import Among, Between, Machine, Variant, action, always, require, scope, sometimes, swap

SOURCE = "the well-known argument for fencing tokens"


@attrs.frozen
class Policy:
    """How long a lease lasts, in milliseconds."""

    lease_ms: int = 2


@attrs.frozen
class State:
    """The lock service, the store, and the token that each client believes in (0: none)."""

    granted: int
    expires_at_ms: int
    now_ms: int
    written: int
    tokens: tuple[int, int]


def policy_is_valid(policy: Policy) -> bool:
    return policy.lease_ms >= 1


def initial() -> State:
    return State(granted=0, expires_at_ms=0, now_ms=0, written=0, tokens=(0, 0))


def fresh(token: int, written: int) -> bool:
    """Whether the store takes a write with *token*."""
    return token >= written


def acquire(policy: Policy, state: State, client: int) -> State:
    """A client takes the lease once it is free; each grant has a higher token."""
    require(state.now_ms >= state.expires_at_ms, "F1", "the lease is held")
    token = state.granted + 1
    tokens = (token, state.tokens[1]) if client == 0 else (state.tokens[0], token)
    return attrs.evolve(state, granted=token, expires_at_ms=state.now_ms + policy.lease_ms, tokens=tokens)


def write(state: State, client: int) -> State:
    """A client that believes to hold the lease writes, however late."""
    token = state.tokens[client]
    require(token > 0, "F1", "the client has never held the lease")
    require(fresh(token, state.written), "F2", "a write with a higher token has been seen")
    return attrs.evolve(state, written=token)


def tick(state: State, elapsed_ms: int) -> State:
    """Time passes; to the store it means nothing."""
    return attrs.evolve(state, now_ms=state.now_ms + elapsed_ms)


@always("F1", "no two clients hold the same token", source=SOURCE)
def f1(state: State) -> bool:
    return state.tokens[0] != state.tokens[1] or state.tokens[0] == 0


@always("F2", "no write takes effect after one with a higher token", source=SOURCE)
def f2(before: State, after: State) -> bool:
    return after.written >= before.written


@sometimes("S1", "a superseded client still believes to hold the lease", source=SOURCE, beside=("F1", "F2"))
def s1(state: State) -> bool:
    return state.tokens[0] > 0 and state.tokens[0] < state.tokens[1]


def always_fresh(token: int, written: int) -> bool:
    return True


CLIENT = Among((0, 1))
machine = Machine(
    name="lease",
    title="No write takes effect after one with a higher token, whatever the clocks do.",
    state=State,
    policy=Policy,
    policy_valid=policy_is_valid,
    initial=(initial,),
    actions=(
        action(acquire, client=CLIENT),
        action(write, client=CLIENT),
        action(tick, elapsed_ms=Between(1, None, explore=(1,))),
    ),
    rules=(f1, f2, s1),
    scopes=(
        scope(
            "small",
            why="three grants show both clients superseded",
            at_most={"granted": 3, "now_ms": 6},
            policy=Policy(),
        ),
    ),
    variants=(Variant("no-fencing", "F2", "the store trusts a late holder", (swap(fresh, always_fresh),)),),
)
