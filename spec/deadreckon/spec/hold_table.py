"""The table of the hold: its actions, rules, scopes and variants, put together."""

from __future__ import annotations

from . import hold as hold_actions
from . import hold_lemmas as lemmas
from . import hold_rules as rules
from . import hold_witnesses as witnesses
from .bounds import scope
from .hold import initial
from .hold_rules import terminal
from .hold_state import Call, Caller, Evidence, Fact, Hold, HoldPolicy, State, Told, Wait, policy_is_valid
from .hold_variants import VARIANTS
from .language import Among, Between, Rule
from .machine import Machine, action

HOLD = Among((0, 1))
REQUEST = Among((0, 1))


def first_alone(state: State) -> bool:
    """One hold, asked for at the start."""
    asked = state.holds[0].fact != Fact.ABSENT or state.now_ms == 0
    return asked and state.holds[1].fact == Fact.ABSENT


def doors(state: State) -> int:
    """Doors that have been, and the one that follows a death: the last lives on."""
    return state.door + (0 if state.alive else 1)


def journals(state: State) -> int:
    """How often the journal has been there, and will be again: it stays at last."""
    return state.journal + (0 if state.up else 1)


def failing(state: State) -> bool:
    """Beside the horizons of the scope *failing*."""
    unsigned = not state.key_active and state.holds[0].evidence == Evidence.UNSIGNED
    seen = all(told != Told.REFUSED for told in state.holds[0].told)
    return first_alone(state) and unsigned and seen


def calm(hold: Hold) -> bool:
    """A hold to which nothing but its own course happens."""
    untold = all(told == Told.NOTHING for told in hold.told) and all(call != Call.FAILED for call in hold.calls)
    steady = hold.caller != Caller.DETACHED and hold.wait != Wait.ASKING
    return untold and steady and hold.evidence == Evidence.UNSIGNED


def sharing(state: State) -> bool:
    """Beside the horizons of the scope *sharing*."""
    return not state.key_active and all(calm(hold) for hold in state.holds)


def effects(ghost: rules.Ghost) -> int:
    """How often one effect has happened: one that is lost track of might be run again for ever."""
    return max(max(counts) for counts in ghost.effects)


def resuming(state: State) -> bool:
    """Beside the horizons of the scope *resuming*."""
    return first_alone(state) and not state.key_active and calm(state.holds[0])


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
            why="one hold of two requests; doors die, the journal comes and goes; deadline at 2 ms, grace of 1 ms",
            policy=HoldPolicy(hold_ms=2, slice_ms=1, backoff_first_ms=1, backoff_max_ms=4, release_grace_ms=1),
            at_most={doors: 2, journals: 2, "now_ms": 4},
            within=failing,
        ),
        scope(
            "signing",
            why="one hold of two requests, keys come and go; nothing fails",
            policy=HoldPolicy(hold_ms=1, slice_ms=1, backoff_first_ms=1, backoff_max_ms=2, release_grace_ms=0),
            at_most={doors: 1, journals: 1, "now_ms": 1},
            within=first_alone,
            liveness=False,
        ),
        scope(
            "sharing",
            why="two holds of two requests at one moment; nothing but the door fails, and nobody is told",
            policy=HoldPolicy(hold_ms=1, slice_ms=1, backoff_first_ms=1, backoff_max_ms=2, release_grace_ms=0),
            at_most={doors: 2, journals: 1, "now_ms": 0},
            within=sharing,
            liveness=False,
        ),
        scope(
            "resuming",
            why="one hold of two idempotent requests, whose effects may come again; nobody is told",
            policy=HoldPolicy(
                hold_ms=1, slice_ms=1, backoff_first_ms=1, backoff_max_ms=2, release_grace_ms=1, idempotent=True
            ),
            at_most={doors: 2, journals: 1, "now_ms": 3, effects: 2},
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
