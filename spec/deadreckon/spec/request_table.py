"""The table of the request: its actions, rules, scopes and variants, put together."""

from __future__ import annotations

from . import request as request_actions
from . import request_lemmas as lemmas
from . import request_rules as rules
from . import request_witnesses as witnesses
from .bounds import scope
from .language import Between, Rule
from .machine import Machine, action
from .request import initial
from .request_state import RequestPolicy, State, Status, policy_is_valid
from .request_variants import VARIANTS


def lives(state: State) -> int:
    """Incarnations that have been, and the one that follows a death: the last lives on."""
    return state.incarnation + (0 if state.alive else 1)


def unasked_ms(state: State) -> int:
    """How late it is while nothing has been asked for."""
    return state.now_ms if state.request.status == Status.ABSENT else 0


def at_rest(state: State) -> bool:
    """Nothing is asked for, or the outcome is told."""
    return state.request.status == Status.ABSENT or state.request.told != Status.ABSENT


request = Machine(
    name="request",
    title="A request is tried while that makes sense, settled exactly once by its horizon, and the outcome is told.",
    outline=request_actions.__doc__ or "",
    state=State,
    policy=RequestPolicy,
    policy_valid=policy_is_valid,
    ghost=rules.Ghost,
    observe=rules.observe,
    initial=(initial,),
    actions=(
        action(request_actions.boot),
        action(request_actions.open_request, triggered_at_ms=Between(0, None, explore=(0, 1, 2))),
        action(request_actions.dial),
        action(request_actions.succeed),
        action(request_actions.fail),
        action(request_actions.give_up),
        action(request_actions.expire),
        action(request_actions.fire),
        action(request_actions.tell),
        action(request_actions.crash),
        action(request_actions.answer_late),
        action(request_actions.answer_from_the_dead),
        action(request_actions.tick, elapsed_ms=Between(1, None, explore=(1,))),
    ),
    rules=tuple(
        value for file in (rules, witnesses, lemmas) for value in vars(file).values() if isinstance(value, Rule)
    ),
    scopes=(
        scope(
            "retrying",
            why="the last incarnation lives on; horizon 8 ms, floor 1 ms, three attempts 2 and 3 ms apart; asked for early",
            policy=RequestPolicy(horizon_ms=8, floor_ms=1, max_attempts=3, retry_backoff_ms=2, retry_backoff_max_ms=3),
            at_most={lives: 3, "now_ms": 10, unasked_ms: 1},
        ),
    ),
    terminal=at_rest,
    variants=VARIANTS,
)
