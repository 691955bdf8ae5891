"""Unbounded proof: for any policy, any time, any number of steps and incarnations.

First the stored invariant is checked, if it is of this very relation; then k-induction over rules and lemmas; then
Spacer searches an invariant for what is left. Whatever was found is a certificate that two solvers check. A rule that is
not proved is ``unknown`` with the step that induction stumbles over, labelled reachable or not; only a search that
derives a violation says ``refuted``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import attrs

from deadreckon.models.relation import Relation
from deadreckon.spec import Kind

from .certificate import Certificate, conjunction, define, recheck
from .counterexample import describe
from .induction import Induction, Inductor
from .solvers import SOLVERS
from .spacer import search
from .symmetry import check_symmetries
from .system import System

QUERY_SECONDS = 30.0
"""The limit of one query when a certificate is checked."""


@attrs.frozen
class Proof:
    """The verdict on one rule: ``proved``, ``refuted`` or ``unknown``.

    Attributes:
        verdict: see above.
        method: ``k-induction`` with its k, or ``spacer``; empty when nothing was proved.
        solvers: those that checked the certificate.
        seconds: time that search and checks took, for all rules that were proved together.
        detail: the assumptions of a proof, or why there is none.
    """

    verdict: str
    method: str = ""
    solvers: tuple[str, ...] = ()
    seconds: float = 0.0
    detail: str = ""


def stored_invariants() -> Path:
    """Where the invariants of the built-in machines are: beside this file when installed, else in the repository."""
    installed = Path(__file__).parent / "invariants"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "invariants"


def prove(
    traced: Relation,
    *,
    seconds: float = 120.0,
    on_rule: Callable[[str], None] | None = None,
    invariants: Path | None = None,
    save: Path | None = None,
) -> dict[str, Proof]:
    """Prove every ``always`` rule of a machine, lemmas included.

    Args:
        traced: the machine.
        seconds: time limit of the whole call; what is not proved then is ``unknown``.
        on_rule: called with the id of each rule before it is worked on.
        invariants: a directory of stored invariants, ``NAME.smt2``; that of the built-in machines by default.
        save: a directory to which the invariant is written, if it had to be found anew and every solver accepts it.

    Raises:
        SpecError: when elements that the machine declares interchangeable are not.
    """
    return _Proving(traced, seconds, on_rule or (lambda id: None)).run(invariants or stored_invariants(), save)


class _Proving:
    def __init__(self, traced: Relation, seconds: float, on_rule: Callable[[str], None]) -> None:
        self.system = System(traced)
        self.started = time.monotonic()
        self.deadline = self.started + seconds
        self.on_rule = on_rule
        self.rules = [rule.id for rule in traced.machine.rules if rule.kind is Kind.ALWAYS]
        self.name = traced.machine.name
        self.failures: dict[str, Proof] = {}
        self.deeper: dict[str, Proof] = {}
        self.doubted = False

    def run(self, invariants: Path, save: Path | None) -> dict[str, Proof]:
        check_symmetries(self.system.relation)
        fingerprint = self.system.relation.fingerprint()
        stored = Certificate.load(invariants / f"{self.name}.smt2")
        if stored is not None and stored.fingerprint == fingerprint and set(stored.methods) <= set(self.rules):
            proofs = self._checked(stored, "stored invariant, checked anew")
            if all(id in proofs for id in self.rules):
                return proofs
        found = self._found(fingerprint)
        proofs = self._checked(found, "invariant found in this run")
        if save is not None and all(id in proofs for id in found.methods):
            (save / f"{self.name}.smt2").write_text(found.dump(), encoding="utf-8")
        if self.doubted:
            self.deeper = {}
        found_out = {**self.failures, **self.deeper, **proofs}
        return {id: found_out.get(id) or self._unknown("not proved") for id in self.rules}

    def _unknown(self, detail: str, verdict: str = "unknown") -> Proof:
        return Proof(verdict, seconds=time.monotonic() - self.started, detail=detail)

    def _checked(self, certificate: Certificate, how: str) -> dict[str, Proof]:
        """A proof for each rule that every solver finds shown by *certificate*."""
        self.on_rule("certificate")
        result = recheck(self.system, certificate, QUERY_SECONDS)
        self.doubted = bool(result.failed)
        took = time.monotonic() - self.started
        assumed = f"{how}; for every policy that is valid, unbounded in steps"
        for id in certificate.methods:
            if not result.shown(id):
                open_ = [*result.failed.get("", ()), *result.failed.get(id, ())]
                self.failures[id] = self._unknown("; ".join(open_))
        return {
            id: Proof("proved", method, tuple(SOLVERS), took, assumed)
            for id, method in certificate.methods.items()
            if result.shown(id) and id in self.rules
        }

    def _found(self, fingerprint: str) -> Certificate:
        """The certificate that induction and Spacer find."""
        self.on_rule("induction")
        induction = Inductor(self.system, self.deadline).run(self.rules)
        claims = self.system.claims
        took = time.monotonic() - self.started
        how = "from as many states in a row; for every policy that is valid, unbounded in steps"
        self.deeper = {
            id: Proof("proved", f"{k}-induction", tuple(SOLVERS), took, how)
            for id, k in induction.proved.items()
            if k > 1
        }
        parts = [conjunction(claims[id] for id, k in induction.proved.items() if k == 1 and id in claims)]
        methods = {id: "1-induction" for id, k in induction.proved.items() if k == 1 and id in self.rules}
        for id in self.rules:
            if id in methods or id in self.deeper:
                continue
            self.on_rule(id)
            body = self._searched(id, induction)
            if body:
                parts.append(body)
                methods[id] = "spacer"
        body = parts[0] if len(parts) == 1 else f"(and {' '.join(parts)})"
        return Certificate(self.name, fingerprint, methods, define(self.system, body))

    def _searched(self, id: str, induction: Induction) -> str:
        """The body of an invariant that Spacer finds for *id*; empty, with a failure noted, when it finds none."""
        claims = self.system.claims
        known = tuple(claims[one] for one, k in induction.proved.items() if k == 1 and one in claims)
        left = self.deadline - time.monotonic()
        if left > 0:
            found = search(self.system, id, known, left)
            if found.verdict == "proved":
                return found.body
            if found.verdict == "refuted":
                self.failures[id] = self._unknown(found.detail, "refuted")
                return ""
        broken = induction.broken.get(id)
        why = "no solver gave an answer in time" if broken is None else describe(self.system, broken, known)
        self.failures[id] = self._unknown(why)
        return ""
