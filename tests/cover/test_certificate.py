"""A stored invariant is never believed: every solver checks every obligation, on every run."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from deadreckon.models.relation import Relation, relation
from deadreckon.proofs import certificate, prove
from deadreckon.proofs.certificate import Certificate, conjunction, define, obligations, recheck
from deadreckon.proofs.solvers import SOLVERS, Answer, ask_cvc5, ask_z3
from deadreckon.proofs.system import System
from deadreckon.spec import Kind, Machine
from deadreckon.spec.machines import incident

ROOT = Path(__file__).parents[2]
lease: Machine = runpy.run_path(str(ROOT / "examples" / "lease.py"))["machine"]
sound = relation(lease)
broken = relation(lease.variant("no-fencing"))
SYSTEM = System(sound)
RULES = {"F2": "1-induction", "F1": "spacer"}
GOOD = """(and (<= |tokens[0]| granted) (<= |tokens[1]| granted) (>= granted 0)
  (or (not (= |tokens[0]| |tokens[1]|)) (= |tokens[0]| 0)))"""
HEAD = define(SYSTEM, "")


def holding(body: str, traced: Relation = sound) -> Certificate:
    """The certificate of the lease with this body."""
    return Certificate("lease", traced.fingerprint(), RULES, HEAD.rstrip(")") + body + ")")


def failures(body: str) -> set[str]:
    """What each solver does not find shown."""
    failed = recheck(SYSTEM, holding(body), 10.0).failed
    return {said for all_of_one in failed.values() for said in all_of_one}


def stored(directory: Path, text: str) -> Path:
    """A directory with this invariant file of the lease."""
    (directory / "lease.smt2").write_text(text, encoding="utf-8")
    return directory


def test_an_invariant_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Machine, fingerprint, the methods of all rules, and the definition survive the file."""
    written = holding(GOOD)
    assert Certificate.load(stored(tmp_path, written.dump()) / "lease.smt2") == written


def test_a_good_invariant_meets_every_obligation() -> None:
    """Initiation, consecution of each command, and sufficiency for each rule are shown by both solvers."""
    assert recheck(SYSTEM, holding(GOOD), 10.0).failed == {}
    names = [one.name for one in obligations(SYSTEM, holding(GOOD))]
    commands = [f"consecution of {command.name}" for command in sound.commands]
    assert names == ["initiation 0", *commands, "sufficiency for F2", "sufficiency for F1"]


def test_the_rules_of_a_machine_are_their_own_certificate_when_inductive() -> None:
    """The conjunction of inductive claims is an invariant."""
    body = conjunction([SYSTEM.claims["types"]])
    certificate = Certificate("lease", "", {"F2": "1-induction"}, define(SYSTEM, body))
    assert recheck(SYSTEM, certificate, 10.0).failed == {}


def test_initiation_that_fails_alone_is_noticed() -> None:
    """Nothing is an invariant that the initial state lacks, though it is kept and implies everything."""
    assert failures("false") == {"z3 says sat of initiation 0", "cvc5 says sat of initiation 0"}


def test_consecution_that_fails_alone_is_noticed() -> None:
    """What holds at the start and implies the rules, but is not kept, is no invariant; the command is named."""
    acquired = {f"{name} says sat of consecution of acquire(client={client})" for name in SOLVERS for client in (0, 1)}
    assert failures("(and (= granted 0) (= |tokens[0]| 0) (= |tokens[1]| 0))") == acquired


def test_sufficiency_that_fails_alone_is_noticed() -> None:
    """What is kept but too weak proves nothing: only the rule that it does not imply is left open."""
    assert failures("true") == {f"{name} says sat of sufficiency for F1" for name in SOLVERS}
    result = recheck(SYSTEM, holding("true"), 10.0)
    assert (result.shown("F1"), result.shown("F2")) == (False, True)


def test_what_every_rule_depends_on_leaves_none_shown() -> None:
    """When initiation or consecution fails, no rule is shown."""
    result = recheck(SYSTEM, holding("false"), 10.0)
    assert not any(map(result.shown, RULES))


def test_a_rule_over_steps_that_is_broken_is_noticed() -> None:
    """Without fencing the same invariant is one, but does not suffice for F2."""
    result = recheck(System(broken), holding(GOOD, broken), 10.0)
    assert set(result.failed) == {"F2"}


@pytest.mark.parametrize("doubting", SOLVERS)
@pytest.mark.parametrize("answer", [Answer.SAT, Answer.UNKNOWN])
def test_one_solver_that_doubts_is_enough(monkeypatch: pytest.MonkeyPatch, doubting: str, answer: Answer) -> None:
    """A rule is shown only when each solver says unsat; sat and unknown of one of them leave it open."""
    solvers = {**SOLVERS, doubting: lambda script, seconds: answer}
    monkeypatch.setattr(certificate, "SOLVERS", solvers)
    result = recheck(SYSTEM, holding(GOOD), 10.0)
    assert not any(map(result.shown, RULES))
    assert f"{doubting} says {answer.value} of sufficiency for F1" in result.failed["F1"]


@pytest.mark.parametrize("doubting", SOLVERS)
def test_unknown_is_never_shown_as_proved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, doubting: str) -> None:
    """With a solver that gives up every rule is unknown, be the invariant stored or found anew; the report says who."""
    monkeypatch.setattr(certificate, "SOLVERS", {**SOLVERS, doubting: lambda script, seconds: Answer.UNKNOWN})
    for directory in (stored(tmp_path, holding(GOOD).dump()), tmp_path / "none"):
        proofs = prove(sound, invariants=directory)
        assert {proof.verdict for proof in proofs.values()} == {"unknown"}
        assert all(f"{doubting} says unknown of initiation 0" in proof.detail for proof in proofs.values())
        assert all(proof.solvers == () for proof in proofs.values())


def test_every_solver_is_asked_every_obligation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both solvers get each script, once, with the limit of one query."""
    asked: list[tuple[str, str, float]] = []

    def listening(name: str, ask: Callable[[str, float], Answer]) -> Callable[[str, float], Answer]:
        def heard(script: str, seconds: float) -> Answer:
            asked.append((name, script, seconds))
            return ask(script, seconds)

        return heard

    monkeypatch.setattr(certificate, "SOLVERS", {name: listening(name, ask) for name, ask in SOLVERS.items()})
    recheck(SYSTEM, holding(GOOD), 7.0)
    scripts = [one.script for one in obligations(SYSTEM, holding(GOOD))]
    assert sorted(asked) == sorted((name, script, 7.0) for name in ("z3", "cvc5") for script in scripts)


@pytest.mark.parametrize("ask", [ask_z3, ask_cvc5])
def test_a_solver_answers_what_it_can_read_and_knows(ask: Callable[[str, float], Answer]) -> None:
    """unsat, sat, and unknown for a script that is none or that takes too long."""
    declared = "(declare-const x Int)\n(declare-const y Int)\n(declare-const z Int)\n"
    assert ask(f"{declared}(assert (< x x))\n", 10.0) is Answer.UNSAT
    assert ask(f"{declared}(assert (< x y))\n", 10.0) is Answer.SAT
    assert ask("(assert (< x y))\n", 10.0) is Answer.UNKNOWN
    assert ask("this is no SMT-LIB)\n", 10.0) is Answer.UNKNOWN
    cubes = "(= (+ (* x x x) (* y y y) (* z z z)) 114)"
    assert ask(f"{declared}(assert {cubes})\n", 0.05) is Answer.UNKNOWN


def text_of(body: str = GOOD, traced: Relation = sound) -> str:
    return holding(body, traced).dump()


FORGED: dict[str, Callable[[Relation], str]] = {
    "empty": lambda traced: "",
    "weakened": lambda traced: text_of("true", traced),
    "weakened by a disjunct": lambda traced: text_of(f"(or {GOOD} (< granted 0) (= written 9))", traced),
    "strengthened": lambda traced: text_of(f"(and {GOOD} (<= granted 2))", traced),
    "strengthened to nothing": lambda traced: text_of("false", traced),
    "a number changed": lambda traced: text_of(GOOD, traced).replace("granted 0", "granted 1"),
    "truncated": lambda traced: text_of(GOOD, traced)[:-40],
    "truncated in its head": lambda traced: text_of(GOOD, traced)[:200],
    "truncated and closed": lambda traced: text_of(GOOD, traced).replace("(>= granted 0)", "(>= granted"),
    "no SMT-LIB": lambda traced: text_of("so it is", traced),
    "an unknown symbol": lambda traced: text_of("(and believe me)", traced),
    "of another sort": lambda traced: text_of("granted", traced),
    "of fewer arguments": lambda traced: text_of(GOOD, traced).replace("(|policy.lease_ms| Int) ", ""),
    "two definitions": lambda traced: text_of(GOOD, traced) + "(define-fun inv () Bool true)\n",
    "a contradiction beside it": lambda traced: text_of("true", traced) + "(assert false)\n",
    "a contradiction before it": lambda traced: text_of("true", traced).replace("(def", "(assert false)\n(def"),
    "a contradiction in its place": lambda traced: text_of("true)\n(assert false)\n(assert true", traced),
    "a function that is not one": lambda traced: text_of(
        "true)(define-fun-rec f ((n Int)) Int (+ 1 (f n))) (assert (= (f 0) (f 0))", traced
    ),
    "a hidden contradiction": lambda traced: text_of("(= |)| 0) ) (assert false) (assert (= |(| 0)", traced),
    "a contradiction after a comment": lambda traced: text_of("true ; (\n) (assert false) (assert true ;)\n", traced),
    "an exit": lambda traced: text_of(GOOD, traced) + "(check-sat)\n(exit)\n",
    "rules that are none": lambda traced: text_of(GOOD, traced).replace("; proves: F1", "; proves: F9"),
    "a rule too many": lambda traced: text_of(GOOD, traced).replace("; proves: F1", "; proves: F9 by 1\n; proves: F1"),
    "a rule missing": lambda traced: text_of(GOOD, traced).replace("; proves: F1 by spacer\n", ""),
    "no rules": lambda traced: holding(GOOD, traced).invariant,
    "no fingerprint": lambda traced: text_of(GOOD, traced).replace("; fingerprint", "; footprint"),
    "another fingerprint": lambda traced: text_of(GOOD, traced).replace(traced.fingerprint(), "0" * 32),
    "another machine": lambda traced: (ROOT / "proofs" / "invariants" / "incident.smt2").read_text(encoding="utf-8"),
    "another machine, forged": lambda traced: (
        (ROOT / "proofs" / "invariants" / "incident.smt2")
        .read_text(encoding="utf-8")
        .replace(relation(incident).fingerprint(), traced.fingerprint())
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_file_that_is_not_a_proof_is_not_believed(forged: str, tmp_path: Path) -> None:
    """Whatever was done to the file, the invariant is found anew, and is then a proof."""
    proofs = prove(sound, invariants=stored(tmp_path, FORGED[forged](sound)))
    assert {proof.verdict for proof in proofs.values()} == {"proved"}
    assert {proof.detail.partition(";")[0] for proof in proofs.values()} == {"invariant found in this run"}


@pytest.mark.parametrize("forged", FORGED)
def test_no_file_proves_a_false_rule(forged: str, tmp_path: Path) -> None:
    """Whatever stands in the file, a rule that is false of the machine is refuted."""
    proofs = prove(broken, invariants=stored(tmp_path, FORGED[forged](broken)))
    assert (proofs["F2"].verdict, proofs["F2"].solvers) == ("refuted", ())


def test_a_stored_invariant_is_checked_and_used(tmp_path: Path) -> None:
    """A file that meets every obligation spares the search, and says so."""
    proofs = prove(sound, invariants=stored(tmp_path, text_of()))
    assert {proof.detail.partition(";")[0] for proof in proofs.values()} == {"stored invariant, checked anew"}
    assert {id: proof.method for id, proof in proofs.items()} == RULES


def test_a_file_that_can_not_be_read_is_no_certificate(tmp_path: Path) -> None:
    """A missing file, a directory, and bytes that are no text are all no certificate."""
    (tmp_path / "bytes.smt2").write_bytes(b"; fingerprint: \xff\xfe")
    assert Certificate.load(tmp_path / "bytes.smt2") is None
    assert Certificate.load(tmp_path / "missing.smt2") is None
    assert Certificate.load(tmp_path) is None


def test_the_stored_invariant_of_the_incident_is_of_the_machine_as_it_is() -> None:
    """Its fingerprint is that of the current relation, and it proves every always rule, lemmas included."""
    kept = Certificate.load(ROOT / "proofs" / "invariants" / "incident.smt2")
    assert kept is not None
    assert kept.fingerprint == relation(incident).fingerprint()
    assert set(kept.methods) == {rule.id for rule in incident.rules if rule.kind is Kind.ALWAYS}


def test_the_stored_invariant_of_the_incident_meets_every_obligation() -> None:
    """Both solvers find it initial, kept by every command, and sufficient for every rule."""
    kept = Certificate.load(ROOT / "proofs" / "invariants" / "incident.smt2")
    assert kept is not None
    assert recheck(System(relation(incident)), kept, 60.0).failed == {}


def test_the_stored_invariant_of_the_incident_is_none_of_a_variant() -> None:
    """Of a known-bad variant it fails, and where it fails is what the variant does."""
    kept = Certificate.load(ROOT / "proofs" / "invariants" / "incident.smt2")
    assert kept is not None
    system = System(relation(incident.variant("no-fence")))
    suspects = attrs.evolve(kept, methods={"C13": kept.methods["C13"]})
    failed = recheck(system, suspects, 60.0).failed
    assert set(failed) == {"", "C13"}
    assert all("call_from_the_dead" in said for said in failed[""])
