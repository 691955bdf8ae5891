"""What an exploration is asked, and what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from deadreckon.spec import CallerError, Kind, Rule, Scope

from .grounding import Instance
from .layout import Flat
from .relation import Relation


class Unsuitable(CallerError):
    """A machine, or bounds, that an engine can't carry; the plain one can."""


@attrs.frozen
class Progress:
    """Where an exploration stands."""

    states: int
    edges: int
    frontier: int
    depth: int
    seconds: float
    megabytes: int


@attrs.frozen
class Bounds:
    """When an exploration gives up; it says so, and is then not complete."""

    max_states: int = 500_000_000
    max_megabytes: int = 8_000
    max_depth: int | None = None


@attrs.frozen
class Step:
    """One step of a trace: the instance that was taken, and the state after it. The first has no instance."""

    instance: Instance | None
    state: Flat


@attrs.frozen
class Trace:
    """How a state is reached, shortest; ``loop`` is the position it returns to for ever, if it is a lasso."""

    steps: tuple[Step, ...]
    loop: int | None = None

    def __len__(self) -> int:
        """The number of steps taken."""
        return len(self.steps) - 1


@attrs.frozen(eq=False)
class Graph:
    """The canonical states in the order of discovery, and the steps between them.

    Step ``at`` leads from the state whose ``offsets`` enclose it to ``targets[at]``, by the instance ``labels[at]``.
    """

    index: Mapping[Flat, int]
    offsets: Sequence[int]
    targets: Sequence[int]
    labels: Sequence[int]


@attrs.define
class Exploration:
    """What an exploration found. A rule in neither mapping held (or was not reached) as far as it went.

    ``engine`` is what explored; ``compared`` counts the edges on which the machine's own functions were run as well.
    """

    relation: Relation
    scope: Scope
    engine: str = "plain"
    judged: frozenset[str] = frozenset()
    states: int = 0
    edges: int = 0
    depth: int = 0
    cut: int = 0
    seconds: float = 0.0
    stopped: str = ""
    violated: dict[str, Trace] = attrs.field(factory=dict)
    reached: dict[str, Trace] = attrs.field(factory=dict)
    deadlock: Trace | None = None
    ran: set[str] = attrs.field(factory=set)
    compared: int = 0
    graph: Graph | None = None

    @property
    def complete(self) -> bool:
        """Whether every state within the scope was seen."""
        return not self.stopped

    def verdict(self, rule: Rule) -> str:
        """``holds``, ``violated`` or ``unknown`` for *rule* in this scope."""
        if rule.id not in self.judged:
            return "unknown"
        if rule.kind is Kind.SOMETIMES:
            return "holds" if rule.id in self.reached else "violated" if self.complete else "unknown"
        if rule.id in self.violated:
            return "violated"
        return "holds" if self.complete else "unknown"
