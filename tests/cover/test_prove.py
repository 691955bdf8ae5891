"""Proofs end to end: what is found is checked, kept, used again, and never said without being shown."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import attrs
import pytest
import z3

from deadreckon.models.relation import relation
from deadreckon.proofs import Proof, prove
from deadreckon.proofs.certificate import Certificate
from deadreckon.proofs.solvers import Answer, ask_z3
from deadreckon.spec import Kind, Machine, SpecError
from deadreckon.spec.machines import MACHINES, incident

ROOT = Path(__file__).parents[2]
lease: Machine = runpy.run_path(str(ROOT / "examples" / "lease.py"))["machine"]
sound = relation(lease)


def how(proofs: dict[str, Proof]) -> set[str]:
    """Where the invariant came from."""
    return {proof.detail.partition(";")[0] for proof in proofs.values()}


def test_the_lease_is_proved_and_both_solvers_have_checked_it(tmp_path: Path) -> None:
    """F1 by an invariant that Spacer found, F2 by induction; for every policy, unbounded in steps."""
    proofs = prove(sound, invariants=tmp_path)
    assert {id: (proof.verdict, proof.method) for id, proof in proofs.items()} == {
        "F1": ("proved", "spacer"),
        "F2": ("proved", "1-induction"),
    }
    assert {proof.solvers for proof in proofs.values()} == {("z3", "cvc5")}
    assert all("for every policy that is valid, unbounded in steps" in proof.detail for proof in proofs.values())


def test_what_was_found_is_saved_and_used_by_the_next_run(tmp_path: Path) -> None:
    """The first run writes the invariant where it is told to; the second checks it and searches nothing."""
    first = prove(sound, invariants=tmp_path, save=tmp_path)
    kept = Certificate.load(tmp_path / "lease.smt2")
    assert kept is not None
    assert (kept.fingerprint, set(kept.methods)) == (sound.fingerprint(), {"F1", "F2"})
    heard: list[str] = []
    second = prove(sound, invariants=tmp_path, on_rule=heard.append)
    assert (how(first), how(second)) == ({"invariant found in this run"}, {"stored invariant, checked anew"})
    assert {id: proof.method for id, proof in second.items()} == {id: proof.method for id, proof in first.items()}
    assert heard == ["certificate"]


def test_what_a_solver_doubts_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invariant is stored only if every solver accepts it."""
    doubting = {"z3": ask_z3, "cvc5": lambda script, seconds: Answer.UNKNOWN}
    monkeypatch.setattr(import_module("deadreckon.proofs.certificate"), "SOLVERS", doubting)
    proofs = prove(sound, invariants=tmp_path, save=tmp_path)
    assert {proof.verdict for proof in proofs.values()} == {"unknown"}
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_unless_asked(tmp_path: Path) -> None:
    """Without ``save`` the directory of invariants stays as it is."""
    prove(sound, invariants=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_stored_invariant_is_not_written_again(tmp_path: Path) -> None:
    """A file that was used is left alone, though ``save`` is given."""
    prove(sound, invariants=tmp_path, save=tmp_path)
    before = (tmp_path / "lease.smt2").stat().st_mtime_ns
    prove(sound, invariants=tmp_path, save=tmp_path)
    assert (tmp_path / "lease.smt2").stat().st_mtime_ns == before


def test_each_rule_is_told_before_it_is_worked_on(tmp_path: Path) -> None:
    """A caller hears of induction, of each rule that needs a search, and of the check."""
    heard: list[str] = []
    prove(sound, invariants=tmp_path, on_rule=heard.append)
    assert heard == ["induction", "F1", "certificate"]


def test_a_false_rule_is_refuted_and_the_others_are_proved(tmp_path: Path) -> None:
    """Without fencing F2 is refuted; F1 holds all the same."""
    proofs = prove(relation(lease.variant("no-fencing")), invariants=tmp_path)
    assert (proofs["F2"].verdict, proofs["F2"].solvers, proofs["F2"].method) == ("refuted", (), "")
    assert proofs["F1"].verdict == "proved"


def test_a_rule_that_nobody_can_prove_is_unknown_with_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When Spacer gives up, the verdict is unknown, and the step that induction stumbles over is labelled."""
    monkeypatch.setattr(z3.Fixedpoint, "query", lambda self, *query: z3.unknown)
    proofs = prove(sound, invariants=tmp_path)
    assert proofs["F1"].verdict == "unknown"
    assert proofs["F1"].detail.startswith("unreachable in scope small, so a lemma is missing: acquire(client=")
    assert proofs["F2"].verdict == "proved"


def test_solvers_that_give_up_prove_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When Z3 answers nothing, every rule is unknown."""
    monkeypatch.setattr(import_module("deadreckon.proofs.prove"), "check_symmetries", lambda relation: None)
    monkeypatch.setattr(z3.Fixedpoint, "query", lambda self, *query: z3.unknown)
    monkeypatch.setattr(z3.Solver, "check", lambda self, *assumptions: z3.unknown)
    proofs = prove(sound, invariants=tmp_path)
    assert {proof.verdict for proof in proofs.values()} == {"unknown"}


def test_out_of_time_is_unknown(tmp_path: Path) -> None:
    """What needs a search and gets no time for it is unknown."""
    proofs = prove(sound, invariants=tmp_path, seconds=0.0)
    assert (proofs["F1"].verdict, proofs["F1"].solvers) == ("unknown", ())


def test_elements_that_are_not_interchangeable_are_refused() -> None:
    """A machine that declares a false symmetry is not proved at all."""
    crooked = attrs.evolve(lease, interchangeable=(("tokens",),))
    with pytest.raises(SpecError, match="not interchangeable"):
        prove(relation(crooked))


def test_the_incident_is_proved_from_its_stored_invariant() -> None:
    """Every always rule of the incident, lemmas included, is proved for every policy, without a search."""
    proofs = prove(relation(incident))
    assert set(proofs) == {rule.id for rule in incident.rules if rule.kind is Kind.ALWAYS}
    assert {(proof.verdict, proof.solvers) for proof in proofs.values()} == {("proved", ("z3", "cvc5"))}
    assert how(proofs) == {"stored invariant, checked anew"}


def test_every_built_in_machine_has_a_stored_invariant() -> None:
    """So that a check takes seconds, and shows the same on every computer."""
    assert {path.stem for path in (ROOT / "proofs" / "invariants").iterdir()} == set(MACHINES)


@pytest.mark.parametrize("missing", ["z3", "cvc5"])
@pytest.mark.parametrize(
    "module", ["", ".prove", ".bounded", ".spacer", ".induction", ".symmetry", ".counterexample", ".certificate"]
)
def test_a_missing_solver_is_a_fault_of_the_surroundings(missing: str, module: str) -> None:
    """Without a solver the import says what to install, whichever module is imported first."""
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from deadreckon.spec import EnvironmentFault\n"
        f"try:\n    import deadreckon.proofs{module}\n"
        "except EnvironmentFault as fault:\n    print(fault)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == f"proofs need the solvers ({missing} is not installed): pip install 'deadreckon[check]'\n"
