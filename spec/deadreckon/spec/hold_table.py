"""The table of the hold: its actions, rules, scopes and variants, put together."""

from __future__ import annotations

from . import hold as hold_actions
from . import hold_lemmas as lemmas
from . import hold_rules as rules
from . import hold_witnesses as witnesses
from .hold import initial
from .hold_rules import terminal
from .hold_state import Call, Caller, Evidence, Fact, Hold, HoldPolicy, State, Told, Wait, policy_is_valid
from .hold_variants import VARIANTS
from .language import Among, Between, Rule
from .machine import Machine, action, scope

HOLD = Among((0, 1))
REQUEST = Among((0, 1))


def first_alone(state: State) -> bool:
    """One hold, asked for at the start."""
    asked = state.holds[0].fact != Fact.ABSENT or state.now_ms == 0
    return asked and state.holds[1].fact == Fact.ABSENT


def two_doors(state: State) -> bool:
    """Two doors in turn, the second lives on."""
    return state.door <= 2 and (state.alive or state.door < 2)


def failing(state: State) -> bool:
    """Bounds of the scope *failing*."""
    journal = state.journal <= 2 and (state.up or state.journal < 2)
    unsigned = not state.key_active and state.holds[0].evidence == Evidence.UNSIGNED
    seen = all(told != Told.REFUSED for told in state.holds[0].told)
    return first_alone(state) and two_doors(state) and journal and unsigned and seen and state.now_ms <= 4


def signing(state: State) -> bool:
    """Bounds of the scope *signing*."""
    return first_alone(state) and state.door == 1 and state.alive and state.up and state.now_ms <= 1


def calm(hold: Hold) -> bool:
    """A hold to which nothing but its own course happens."""
    untold = all(told == Told.NOTHING for told in hold.told) and all(call != Call.FAILED for call in hold.calls)
    steady = hold.caller != Caller.DETACHED and hold.wait != Wait.ASKING
    return untold and steady and hold.evidence == Evidence.UNSIGNED


def sharing(state: State) -> bool:
    """Bounds of the scope *sharing*."""
    steady = state.up and not state.key_active and state.now_ms == 0
    return two_doors(state) and steady and all(calm(hold) for hold in state.holds)


def resuming(state: State, ghost: rules.Ghost) -> bool:
    """Bounds of the scope *resuming*; an effect that is lost track of might be run again for ever."""
    steady = state.up and not state.key_active and state.now_ms <= 3
    twice = all(effects <= 2 for effects in ghost.effects[0])
    return first_alone(state) and two_doors(state) and steady and twice and calm(state.holds[0])


def may_rest(state: State) -> bool:
    """Nobody has to ask for a hold."""
    return all(hold.fact == Fact.ABSENT or terminal(hold) for hold in state.holds)


hold = Machine(
    name="hold",
    title="A parked request survives every transient failure, is released at most once, and never outlives its deadline.",
    outline=hold_actions.__doc__ or "",
    state=State,
    policy=HoldPolicy,
    policy_valid=policy_is_valid,
    ghost=rules.Ghost,
    observe=rules.observe,
    initial=(initial,),
    actions=(
        action(hold_actions.ask, index=HOLD),
        action(hold_actions.ask_again, index=HOLD),
        action(hold_actions.slice_ends, index=HOLD),
        action(hold_actions.wait_fails, index=HOLD),
        action(hold_actions.judgement_fails, index=HOLD),
        action(hold_actions.wake, index=HOLD),
        action(hold_actions.judge, index=HOLD, source=HOLD),
        action(hold_actions.stop_waiting, index=HOLD),
        action(hold_actions.adopt, index=HOLD),
        action(hold_actions.expire, index=HOLD),
        action(hold_actions.abandon, index=HOLD),
        action(hold_actions.start_release, index=HOLD, request=REQUEST),
        action(hold_actions.call, index=HOLD, request=REQUEST),
        action(hold_actions.answer, index=HOLD, request=REQUEST),
        action(hold_actions.lose_track, index=HOLD, request=REQUEST),
        action(hold_actions.settle, index=HOLD, request=REQUEST),
        action(hold_actions.settle_unknown, index=HOLD, request=REQUEST),
        action(hold_actions.lapse, index=HOLD, request=REQUEST),
        action(hold_actions.tell, index=HOLD, request=REQUEST),
        action(hold_actions.decide, index=HOLD),
        action(hold_actions.detach, index=HOLD),
        action(hold_actions.attach, index=HOLD),
        action(hold_actions.leave, index=HOLD),
        action(hold_actions.crash),
        action(hold_actions.boot),
        action(hold_actions.journal_fails),
        action(hold_actions.journal_returns),
        action(hold_actions.change_keys),
        action(hold_actions.tick, elapsed_ms=Between(1, None, explore=(1,))),
    ),
    rules=tuple(
        value for file in (rules, witnesses, lemmas) for value in vars(file).values() if isinstance(value, Rule)
    ),
    scopes=(
        scope(
            "failing",
            why="one hold of two requests, two doors, the journal away once; deadline at 2 ms, grace of 1 ms",
            policy=HoldPolicy(hold_ms=2, slice_ms=1, backoff_first_ms=1, backoff_max_ms=4, release_grace_ms=1),
            within=failing,
        ),
        scope(
            "signing",
            why="one hold of two requests, keys come and go; nothing fails",
            policy=HoldPolicy(hold_ms=1, slice_ms=1, backoff_first_ms=1, backoff_max_ms=2, release_grace_ms=0),
            within=signing,
            liveness=False,
        ),
        scope(
            "sharing",
            why="two holds of two requests at one moment, two doors; nothing but the door fails, and nobody is told",
            policy=HoldPolicy(hold_ms=1, slice_ms=1, backoff_first_ms=1, backoff_max_ms=2, release_grace_ms=0),
            within=sharing,
            liveness=False,
        ),
        scope(
            "resuming",
            why="one hold of two idempotent requests, two doors, each effect twice at most; nobody is told",
            policy=HoldPolicy(
                hold_ms=1, slice_ms=1, backoff_first_ms=1, backoff_max_ms=2, release_grace_ms=1, idempotent=True
            ),
            within=resuming,
            liveness=False,
        ),
    ),
    interchangeable=tuple(
        (
            f"holds[{at}].approved",
            f"holds[{at}].releases",
            f"holds[{at}].calls",
            f"holds[{at}].told",
            f"ghost.effects[{at}]",
        )
        for at in range(2)
    ),
    terminal=may_rest,
    variants=VARIANTS,
)
