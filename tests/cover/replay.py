"""A trace, run again by the machine's own functions."""

from __future__ import annotations

from typing import cast

from deadreckon.models.compiled import Reference
from deadreckon.models.explorer import Exploration, Trace


def replayed(found: Exploration, trace: Trace) -> list[object]:
    """The states that the machine's own functions give along a trace, from a real initial state."""
    machine = found.relation.machine
    state, _ = cast("tuple[object, object]", found.relation.layout.rebuild(trace.steps[0].state))
    assert state in [start() for start in machine.initial]
    states = [state]
    for step in trace.steps[1:]:
        assert step.instance is not None
        state = machine.step(found.scope.policy, state, step.instance.action, Reference.inputs(step.instance))
        rebuilt, _ = cast("tuple[object, object]", found.relation.layout.rebuild(step.state))
        assert state == rebuilt
        states.append(state)
    return states
