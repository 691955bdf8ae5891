"""The incident machine in the scopes in which the released ``agents`` is walked, beside those that it has.

deadreckon conform examples/cloudflare-agents/released.py:idle -- node examples/cloudflare-agents/driver.mjs --serial
"""

from __future__ import annotations

import attrs

from deadreckon.spec import UNLIMITED, scope
from deadreckon.spec.incident_state import Phase, RecoveryPolicy, State
from deadreckon.spec.machines import incident


def quiet(state: State) -> bool:
    """Bounds of the scope *idle*."""
    one = sum(1 for phase in state.phases if phase != Phase.IDLE) <= 1
    still = state.produced == 0 and state.buffered.transient_retries == 0 and not state.buffered.parked
    return one and still and state.incarnation <= 3 and state.now_ms <= 2


def unused(state: State) -> bool:
    """Bounds of the scope *unused*."""
    free = all(owner == 0 for owner in (*state.buffered.attempts, *state.durable.attempts))
    return quiet(state) and (free or state.now_ms == 0)


POLICY = RecoveryPolicy(
    max_interrupted_attempts=2,
    max_attempts=UNLIMITED,
    no_progress_timeout_ms=UNLIMITED,
    debounce_ms=1,
    record_ttl_ms=1,
)

IDLE = scope(
    "idle",
    why="one attempt at a time, three incarnations, nobody waited for; two ticks of an hour, past the age of a sweep",
    policy=POLICY,
    within=quiet,
    liveness=False,
)

idle = attrs.evolve(incident, scopes=(IDLE,))

UNUSED = scope(
    "unused",
    why="as idle, but once time has passed nobody is admitted any more, so that nothing but sweeps comes between",
    policy=POLICY,
    within=unused,
    liveness=False,
)

swept = attrs.evolve(
    incident.variant("sweep-erases-count"),
    scopes=(UNUSED,),
    rules=tuple(rule for rule in incident.rules if rule.id in ("C10", "S10")),
)
"""The machine with the released sweep, so that walks go on after it; of the rules only the one that is looked for."""
