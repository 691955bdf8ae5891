"""Find the invariants of the built-in machines anew and store them: ``python -m deadreckon.proofs``."""

from __future__ import annotations

from pathlib import Path

from deadreckon.models.relation import relation
from deadreckon.spec.machines import MACHINES

from . import prove
from .prove import stored_invariants


def main() -> None:
    """Prove every machine without what is stored, and store what every solver accepts."""
    folder = stored_invariants()
    for machine in MACHINES.values():
        proofs = prove(relation(machine), invariants=Path("none-is-stored"), save=folder)
        open_ = [id for id, proof in proofs.items() if proof.verdict != "proved"]
        print(f"{machine.name}: {len(proofs) - len(open_)} of {len(proofs)} rules proved {open_ or ''}")


if __name__ == "__main__":
    main()
