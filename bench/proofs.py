"""How long each engine of the proofs takes, as ratios to one exploration of the same machine in the same run.

    python bench/proofs.py [--seconds SECONDS] [MACHINE ...]

MACHINE is what ``deadreckon check`` takes; without one, the built-in machines and the two of this directory. The bounded
check is one run that goes as deep as it comes in the time; k-induction uses the lemmas, Spacer is given none and searches
an invariant for each rule by itself; what is stored is checked by each solver apart. CPU time is measured, so that a busy
neighbour matters little; limits are of wall time. A table in Markdown.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from deadreckon.cli.references import built_in_names, resolve
from deadreckon.models.explorer import Bounds, explore
from deadreckon.models.relation import Relation, relation
from deadreckon.proofs import SOLVERS, bounded, prove
from deadreckon.proofs.certificate import Certificate, obligations
from deadreckon.proofs.induction import Inductor
from deadreckon.proofs.prove import stored_invariants
from deadreckon.proofs.spacer import search
from deadreckon.proofs.system import System
from deadreckon.spec import Kind

HERE = Path(__file__).parent
NOWHERE = Path("no-stored-invariants")
DEEPEST = 24
"""Steps of the bounded check; the time is shown at every fourth."""

Task = tuple[str, Callable[[], str]]
"""What is measured: its name, and the work, which says how it went."""


@attrs.define
class Table:
    """A table in Markdown, whose rows are printed as they come; *unit* is what the ratios refer to, in seconds."""

    unit: float = 0.0

    def row(self, task: str, seconds: float, outcome: str) -> None:
        """Print one row; the first is the unit of all."""
        if not self.unit:
            self.unit = seconds
            print("| task | seconds | ratio | outcome |\n| --- | ---: | ---: | --- |")
        print(f"| {task} | {seconds:.2f} | {seconds / self.unit:.2f} | {outcome} |", flush=True)

    def measure(self, task: str, work: Callable[[], str]) -> None:
        """Do the work, and print how long it took."""
        begun = time.process_time()
        outcome = work()
        self.row(task, time.process_time() - begun, outcome)


def explored(traced: Relation, every: int) -> str:
    """Explore the first scope by the plain engine; *every* n-th state is compared with the machine's own functions."""
    bounds = Bounds(max_states=2_000_000)
    found = explore(traced.machine, traced=traced, compare_every=every, bounds=bounds, engine="plain")
    return f"{found.states:,} states" + (f"; stopped: {found.stopped}" if found.stopped else "")


def unrolled(traced: Relation, table: Table, seconds: float) -> str:
    """Look for violations, deeper and deeper."""
    begun = time.process_time()

    def on_depth(depth: int) -> None:
        if depth % 4 == 0 and 0 < depth < DEEPEST:
            table.row(f"bounded check, {depth} steps", time.process_time() - begun, "")

    found = bounded(traced, traced.machine.scopes[0], depth=DEEPEST, seconds=seconds, on_depth=on_depth)
    least = min(one.depth for one in found.values())
    return counts(Counter(one.verdict for one in found.values())) + (f", to depth {least}" if least < DEEPEST else "")


def counts(verdicts: Counter[str]) -> str:
    """``5 proved, 1 unknown``."""
    return ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())


def inducted(traced: Relation, seconds: float) -> str:
    """k-induction over all rules and lemmas at once."""
    rules = [rule.id for rule in traced.machine.rules if rule.kind is Kind.ALWAYS]
    found = Inductor(System(traced), time.monotonic() + seconds).run(rules)
    by_depth = Counter(f"by {k}-induction" for id, k in found.proved.items() if id in rules)
    open_ = [id for id in rules if id not in found.proved]
    return counts(by_depth) + (f", {len(open_)} not" if open_ else "")


def searched(traced: Relation, seconds: float) -> str:
    """Spacer for each rule that is no lemma, given nothing."""
    system = System(traced)
    rules = [rule.id for rule in traced.machine.rules if rule.kind is Kind.ALWAYS and not rule.lemma]
    return counts(Counter(search(system, id, (), seconds).verdict for id in rules))


def rechecked(traced: Relation, certificate: Certificate, solver: str) -> str:
    """Every obligation of an invariant, by one solver."""
    asked = [SOLVERS[solver](one.script, 30.0).value for one in obligations(System(traced), certificate)]
    return counts(Counter(asked))


def stored(traced: Relation) -> Certificate | None:
    """The invariant that is stored for a machine; one that is found now, where none is."""
    name = f"{traced.machine.name}.smt2"
    certificate = Certificate.load(stored_invariants() / name)
    if certificate is None or certificate.fingerprint != traced.fingerprint():
        with tempfile.TemporaryDirectory() as folder:
            prove(traced, invariants=NOWHERE, save=Path(folder))
            certificate = Certificate.load(Path(folder) / name)
    return certificate


def tasks(traced: Relation, table: Table, seconds: float) -> Iterator[Task]:
    """All that is measured of one machine."""
    yield "explore, nothing compared", partial(explored, traced, 0)
    yield "explore, every edge compared", partial(explored, traced, 1)
    yield "trace", lambda: f"{len(relation(traced.machine).commands)} commands"
    yield f"bounded check, {DEEPEST} steps", partial(unrolled, traced, table, seconds)
    yield "k-induction, with lemmas", partial(inducted, traced, seconds)
    yield "Spacer for each rule, without", partial(searched, traced, seconds)
    certificate = stored(traced)
    if certificate is not None:
        for solver in SOLVERS:
            yield f"invariant re-checked by {solver}", partial(rechecked, traced, certificate, solver)


def measure(reference: str, seconds: float) -> None:
    """Print the table of one machine."""
    traced = relation(resolve(reference))
    table = Table()
    print(f"\n### {traced.machine.name}\n")
    for name, work in tasks(traced, table, seconds):
        table.measure(name, work)


def main() -> None:
    """Measure the machines that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machine", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0, help="the limit of one query or search")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores; a limit of {given.seconds:g} s")
    for reference in given.machine or [*built_in_names(), f"{HERE / 'holds.py'}:S5", f"{HERE / 'recovery.py'}:R5"]:
        measure(reference, given.seconds)


if __name__ == "__main__":
    main()
