"""Find the invariants of the built-in machines anew and store them: ``python -m deadreckon.proofs [MACHINE ...]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from deadreckon.models.relation import relation
from deadreckon.spec.machines import MACHINES

from . import prove
from .prove import stored_invariants


def main() -> None:
    """Prove the machines named (all, by default) without what is stored, and store what every solver accepts."""
    parser = argparse.ArgumentParser(prog="python -m deadreckon.proofs", description=main.__doc__)
    parser.add_argument("machine", nargs="*", help=f"one of {', '.join(MACHINES)}")
    wanted = parser.parse_args().machine or list(MACHINES)
    for name in set(wanted) - set(MACHINES):
        parser.error(f"there is no machine {name}: give {', '.join(MACHINES)}")
    folder = stored_invariants()
    for machine in map(MACHINES.__getitem__, wanted):
        proofs = prove(relation(machine), invariants=Path("none-is-stored"), save=folder)
        open_ = [id for id, proof in proofs.items() if proof.verdict != "proved"]
        print(f"{machine.name}: {len(proofs) - len(open_)} of {len(proofs)} rules proved {open_ or ''}")


if __name__ == "__main__":
    main()
