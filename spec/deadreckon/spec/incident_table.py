"""The table of the recovery incident: its actions, rules, scopes and variants, put together."""

from __future__ import annotations

from . import incident as incident_actions
from . import incident_lemmas as lemmas
from . import incident_rules as rules
from . import incident_witnesses as witnesses
from .bounds import Horizons, scope
from .incident import initial
from .incident_state import Phase, RecoveryPolicy, State, Status, policy_is_valid
from .incident_variants import VARIANTS
from .language import UNLIMITED, Between, Rule, each
from .machine import Machine, action

SLOT = each("slots")
STILL: Horizons = {"produced": 0, "now_ms": 0, "buffered.transient_retries": 0}


def alone(state: State) -> bool:
    """One attempt at a time."""
    return sum(1 for phase in state.phases if phase != Phase.IDLE) <= 1


def lives(state: State) -> int:
    """Incarnations that have been, and the one that follows a death: the last lives on."""
    return state.incarnation + (0 if state.alive else 1)


def credited_early(state: State) -> bool:
    """One attempt at a time, which nobody waits for; progress is credited before time passes."""
    credited = state.now_ms == 0 or state.produced == state.durable.progress
    return alone(state) and credited and not state.buffered.parked


def at_rest(state: State) -> bool:
    """The incident is over."""
    return state.durable.status == Status.CLOSED or state.durable.status == Status.SEALED


incident = Machine(
    name="incident",
    title="Every dead attempt is counted exactly once, before the next does heavy work; at the limit it is sealed.",
    outline=incident_actions.__doc__ or "",
    state=State,
    policy=RecoveryPolicy,
    policy_valid=policy_is_valid,
    ghost=rules.Ghost,
    observe=rules.observe,
    initial=(initial,),
    actions=(
        action(incident_actions.boot),
        action(incident_actions.begin),
        action(incident_actions.end_original),
        action(incident_actions.report_original),
        action(incident_actions.replay, slot=SLOT),
        action(incident_actions.deliver, slot=SLOT),
        action(incident_actions.sync),
        action(incident_actions.start_work, slot=SLOT),
        action(incident_actions.progress, units=Between(1, None, explore=(1,))),
        action(incident_actions.finish, slot=SLOT),
        action(incident_actions.report, slot=SLOT),
        action(incident_actions.deliver_terminal, slot=SLOT),
        action(incident_actions.seal, slot=SLOT),
        action(incident_actions.stand_down, slot=SLOT),
        action(incident_actions.park),
        action(incident_actions.unpark),
        action(incident_actions.sweep),
        action(incident_actions.crash),
        action(incident_actions.deploy),
        action(incident_actions.call_from_the_dead, slot=SLOT),
        action(incident_actions.tick, elapsed_ms=Between(1, None, explore=(1,))),
    ),
    rules=tuple(
        value for file in (rules, witnesses, lemmas) for value in vars(file).values() if isinstance(value, Rule)
    ),
    scopes=(
        scope(
            "overlap",
            why="attempts overlap, limit 2; no time and no progress, so the soft meters rest",
            policy=RecoveryPolicy(max_interrupted_attempts=2, max_attempts=UNLIMITED),
            at_most={"incarnation": 3, **STILL},
            liveness=False,
        ),
        scope(
            "budgets",
            why="one attempt at a time, nobody waited for, the last incarnation lives on; early progress, all spans pass",
            policy=RecoveryPolicy(
                max_interrupted_attempts=2,
                max_attempts=1,
                no_progress_timeout_ms=0,
                max_recovery_work=0,
                debounce_ms=1,
                record_ttl_ms=1,
            ),
            at_most={
                lives: 3,
                "now_ms": 2,
                "produced": 1,
                "buffered.transient_retries": 2,
                "buffered.last_progress_at_ms": 0,
            },
            within=credited_early,
        ),
        scope(
            "parking",
            why="limit 1, so that deaths while parked pass it; one attempt at a time, no time and no progress",
            policy=RecoveryPolicy(max_interrupted_attempts=1, max_attempts=UNLIMITED),
            at_most={lives: 3, **STILL},
            within=alone,
            liveness=False,
        ),
    ),
    interchangeable=(("durable.attempts", "buffered.attempts", "phases"),),
    terminal=at_rest,
    variants=VARIANTS,
)
