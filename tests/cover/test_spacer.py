"""Spacer: invariants that nobody wrote, derivations of violations, and honest silence."""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path

import pytest
import z3

from deadreckon.models.relation import relation
from deadreckon.proofs.certificate import Certificate, define, recheck
from deadreckon.proofs.spacer import search
from deadreckon.proofs.system import System
from deadreckon.spec import Machine
from deadreckon.spec.machines import incident

lease: Machine = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lease.py"))["machine"]


@cache
def system(machine: Machine, variant: str = "") -> System:
    """The system of a machine, or of one of its variants."""
    return System(relation(machine.variant(variant) if variant else machine))


@pytest.mark.parametrize("rule", ["F1", "F2"])
def test_an_invariant_is_found_without_a_lemma(rule: str) -> None:
    """What Spacer finds for a rule of the lease, over states or over steps, is a certificate to both solvers."""
    found = search(system(lease), rule, (), 30.0)
    assert found.verdict == "proved"
    certificate = Certificate("lease", "", {rule: "spacer"}, define(system(lease), found.body))
    assert recheck(system(lease), certificate, 10.0).failed == {}


def test_a_violated_rule_is_refuted() -> None:
    """Without fencing a late write takes effect: Spacer derives it, for some policy, in any number of steps."""
    found = search(system(lease, "no-fencing"), "F2", (), 30.0)
    assert (found.verdict, found.body) == ("refuted", "")


def test_out_of_time_is_unknown() -> None:
    """A search that is cut short says unknown, and offers no invariant."""
    found = search(system(incident), "C1", (), 0.001)
    assert (found.verdict, found.body) == ("unknown", "")


def test_a_solver_that_gives_up_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the engine answers beside sat and unsat counts as unknown."""
    monkeypatch.setattr(z3.Fixedpoint, "query", lambda self, *query: z3.unknown)
    assert search(system(lease), "F1", (), 10.0).verdict == "unknown"


def test_a_solver_that_fails_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that raises has shown nothing; its message is kept."""

    def fails(self: z3.Fixedpoint, *query: z3.ExprRef) -> z3.CheckSatResult:
        raise z3.Z3Exception("canceled")

    monkeypatch.setattr(z3.Fixedpoint, "query", fails)
    found = search(system(lease), "F1", (), 10.0)
    assert (found.verdict, found.detail) == ("unknown", "canceled")
