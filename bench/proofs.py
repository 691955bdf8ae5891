"""How long each engine takes for each rule-set, as ratios to one exploration in the same run.

python bench/proofs.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from deadreckon.models.explorer import explore
from deadreckon.models.relation import relation
from deadreckon.proofs import bounded, prove
from deadreckon.spec import Machine
from deadreckon.spec.machines import MACHINES

NOWHERE = Path("no-stored-invariants")


def seconds(work: Callable[[], object]) -> float:
    """Wall time of *work*, in seconds."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def measure(machine: Machine) -> None:
    """Print the table of one machine."""
    traced = relation(machine)
    scope = machine.scopes[0]
    reference = seconds(lambda: explore(machine, scope, traced=traced, compare_every=0))
    print(f"{machine.name}: exploring scope {scope.name} without comparison takes {reference:.2f} s = 1.0")
    tasks: dict[str, Callable[[], object]] = {
        "trace": lambda: relation(machine),
        "explore, every edge compared": lambda: explore(machine, scope, traced=traced),
        **{f"bounded check to depth {d}": partial(bounded, traced, scope, depth=d) for d in (4, 6, 8)},
        "prove, invariant found anew": lambda: prove(traced, invariants=NOWHERE),
        "prove, stored invariant checked": lambda: prove(traced),
    }
    for name, work in tasks.items():
        print(f"  {name:34} {seconds(work) / reference:6.2f}")


if __name__ == "__main__":
    for built_in in MACHINES.values():
        measure(built_in)
