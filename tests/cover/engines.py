"""What two explorations have to agree in, whatever engine made them."""

from __future__ import annotations

from collections.abc import Mapping

from deadreckon.models.explorer import Exploration, Trace

Steps = tuple[list[tuple[str | None, tuple[int, ...]]], int | None]


def steps(trace: Trace) -> Steps:
    """A trace as plain values."""
    return [(one.instance.name if one.instance else None, one.state) for one in trace.steps], trace.loop


def told(found: Exploration) -> Mapping[str, object]:
    """All that an exploration found, but for how long it took and by what."""
    return {
        "judged": found.judged,
        "states": found.states,
        "edges": found.edges,
        "depth": found.depth,
        "cut": found.cut,
        "stopped": found.stopped,
        "ran": found.ran,
        "violated": {id: steps(trace) for id, trace in found.violated.items()},
        "reached": {id: steps(trace) for id, trace in found.reached.items()},
        "deadlock": None if found.deadlock is None else steps(found.deadlock),
        "graph": None
        if found.graph is None
        else tuple(map(list, (found.graph.index, found.graph.offsets, found.graph.targets, found.graph.labels))),
    }
