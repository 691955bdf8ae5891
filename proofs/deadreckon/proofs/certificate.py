"""An inductive invariant as SMT-LIB 2 text, and the obligations that make it one: any solver can check them.

The invariant is a predicate ``inv`` over policy and state. It is a certificate for a rule when

initiation
    it holds in every initial state;
consecution
    every command leads from a state with it to a state with it;
sufficiency
    it implies the rule (a rule about steps: for every command).

All under the policy's constraint, with policies and inputs symbolic, and therefore for any number of steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

import attrs

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr
from deadreckon.models.relation import Command

from .lowering import symbol, text
from .solvers import SOLVERS, Answer
from .system import TYPES, System


@attrs.frozen
class Certificate:
    """An invariant and what it proves.

    Attributes:
        machine: the machine's name.
        fingerprint: of the relation that it was found for.
        methods: how each rule was proved; the rules are its keys.
        invariant: ``(define-fun inv (...) Bool ...)``.
    """

    machine: str
    fingerprint: str
    methods: dict[str, str]
    invariant: str

    def dump(self) -> str:
        """The text of an invariant file."""
        head = [f"; An inductive invariant of the machine {self.machine}, checked anew on every run by every solver."]
        head.append(f"; fingerprint: {self.fingerprint}")
        head += [f"; proves: {id} by {method}" for id, method in self.methods.items()]
        return "\n".join([*head, self.invariant, ""])

    @classmethod
    def load(cls, path: Path) -> Certificate | None:
        """The certificate in a file; None when there is none, or it is none of ours."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return None
        marked = [line[2:].partition(": ") for line in lines if line.startswith("; ") and ": " in line]
        fingerprint = next((value for key, _, value in marked if key == "fingerprint"), None)
        proofs = [value.partition(" by ") for key, _, value in marked if key == "proves"]
        body = "\n".join(line for line in lines if not line.startswith(";"))
        if fingerprint is None or not proofs or not _defines_inv_alone(body.strip()):
            return None
        return cls(path.stem, fingerprint, {id: method for id, _, method in proofs}, body.strip())


def _defines_inv_alone(body: str) -> bool:
    """Whether *body* is one definition and nothing beside it: a stray ``(assert false)`` would prove everything."""
    bare = re.sub(r"\|[^|]*\|", "x", body)
    depths = list(accumulate((char == "(") - (char == ")") for char in bare))
    once = bool(depths) and depths[-1] == 0 and all(depth > 0 for depth in depths[:-1])
    return once and body.startswith("(define-fun inv (") and "|" not in bare and not set(body) & set('";\\')


def define(system: System, body: str) -> str:
    """The definition of ``inv`` with this body."""
    relation = system.relation
    leaves = (*relation.policy, *relation.state)
    arguments = " ".join(f"({symbol(str(leaf.value))} {leaf.sort.value})" for leaf in leaves)
    return f"(define-fun inv ({arguments}) Bool\n  {body})"


def conjunction(claims: Iterable[Expr]) -> str:
    """The body of an invariant that is a conjunction of claims."""
    return text(ir.and_(*claims))


@attrs.frozen
class Obligation:
    """One thing to show: that ``script`` is unsatisfiable. ``rule`` is empty where every rule depends on it."""

    name: str
    rule: str
    script: str


def obligations(system: System, certificate: Certificate) -> Iterator[Obligation]:
    """All that must be shown of *certificate*."""
    relation = system.relation
    valid = text(relation.policy_valid)
    for number, start in enumerate(relation.initial):
        yield _obligation(system, certificate, f"initiation {number}", "", [valid, f"(not {_inv(system, start)})"])
    now = _inv(system, relation.state)
    for command in relation.commands:
        then = _inv(system, command.updates)
        facts = [now, text(system.enabled(command)), f"(not {then})"]
        yield _obligation(system, certificate, f"consecution of {command.name}", "", facts)
    for id in certificate.methods:
        if id in system.claims:
            facts = [valid, now, text(ir.not_(system.claims[id]))]
        else:
            facts = [now, text(_broken(system, system.steps[id]))]
        yield _obligation(system, certificate, f"sufficiency for {id}", id, facts)


def _broken(system: System, claims: tuple[Expr, ...]) -> Expr:
    """Some command takes a step that breaks its claim."""

    def breaks(command: Command, claim: Expr) -> Expr:
        return ir.FALSE if claim is ir.TRUE else ir.and_(system.enabled(command), ir.not_(claim))

    return ir.or_(*map(breaks, system.relation.commands, claims))


def _inv(system: System, state: tuple[Expr, ...]) -> str:
    arguments = " ".join(text(leaf) for leaf in (*system.relation.policy, *state))
    return f"(inv {arguments})"


def _obligation(system: System, certificate: Certificate, name: str, rule: str, facts: list[str]) -> Obligation:
    declared = [f"(declare-const {symbol(str(one.value))} {one.sort.value})" for one in system.variables()]
    lines = [certificate.invariant, *declared, *(f"(assert {fact})" for fact in facts)]
    return Obligation(name, rule, "\n".join(lines) + "\n")


@attrs.frozen
class Recheck:
    """What the solvers say of a certificate: for each rule, the obligations that are not shown, by solver."""

    failed: dict[str, list[str]]

    def shown(self, rule: str) -> bool:
        """Whether *rule* is proved by every solver."""
        return not self.failed.get(rule) and not self.failed.get("")


def recheck(system: System, certificate: Certificate, seconds: float) -> Recheck:
    """Check every obligation with every solver; *seconds* is the limit of one query."""
    failed: dict[str, list[str]] = {}
    for obligation in obligations(system, certificate):
        for name, ask in SOLVERS.items():
            answer = ask(obligation.script, seconds)
            if answer is not Answer.UNSAT:
                failed.setdefault(obligation.rule, []).append(f"{name} says {answer.value} of {obligation.name}")
    return Recheck(failed)


__all__ = ["TYPES", "Certificate", "Obligation", "Recheck", "conjunction", "define", "obligations", "recheck"]
