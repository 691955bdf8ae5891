"""Z3's Spacer: searches an inductive invariant for a rule that induction alone does not prove."""

from __future__ import annotations

import attrs
import z3

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Sort

from .lowering import integers, lower
from .system import System


@attrs.frozen
class Search:
    """What Spacer says: ``proved`` (with the body of an invariant), ``refuted``, or ``unknown`` (with its reason)."""

    verdict: str
    body: str = ""
    detail: str = ""


def search(system: System, rule: str, known: tuple[Expr, ...], seconds: float) -> Search:
    """Search an invariant for *rule*, given that the claims *known* are inductive already."""
    algebra = integers()
    relation = system.relation
    leaves = (*relation.policy, *relation.state)
    variables = lower(leaves, algebra)
    reached = z3.Function("reached", *(_sort(leaf) for leaf in leaves), z3.BoolSort())
    broken = z3.Function("broken", z3.BoolSort())
    engine = z3.Fixedpoint()
    engine.set(engine="spacer", timeout=max(1, int(seconds * 1000)))
    engine.register_relation(reached, broken)
    engine.declare_var(*lower(system.variables(), algebra))
    policy = variables[: len(relation.policy)]
    now = reached(*variables)
    assumed = lower(known, algebra)
    valid = lower((relation.policy_valid,), algebra)
    for start in relation.initial:
        engine.rule(reached(*policy, *lower(start, algebra)), valid)
    for command in relation.commands:
        enabled, *updates = lower((system.enabled(command), *command.updates), algebra)
        engine.rule(reached(*policy, *updates), [now, *assumed, enabled])
        if rule in system.steps:
            claim = system.steps[rule][relation.commands.index(command)]
            if claim is not ir.TRUE:
                engine.rule(broken(), [now, *assumed, enabled, *lower((ir.not_(claim),), algebra)])
    if rule in system.claims:
        engine.rule(broken(), [now, *assumed, *lower((ir.not_(system.claims[rule]),), algebra)])
    return _answer(engine, broken, reached, variables)


def _answer(
    engine: z3.Fixedpoint, broken: z3.FuncDeclRef, reached: z3.FuncDeclRef, variables: list[z3.ExprRef]
) -> Search:
    try:
        answer = engine.query(broken())
    except z3.Z3Exception as failure:
        return Search("unknown", detail=str(failure))
    if answer == z3.sat:
        return Search("refuted", detail="Spacer found a derivation of a violation")
    if answer != z3.unsat:
        return Search("unknown", detail=engine.reason_unknown())
    invariant = z3.substitute_vars(engine.get_cover_delta(-1, reached), *variables)
    return Search("proved", body=_printed(invariant))


def _printed(formula: z3.ExprRef) -> str:
    """The formula as SMT-LIB 2 on few lines, whatever its size."""
    z3.set_option(max_depth=10_000, max_args=100_000, max_lines=1_000_000)
    return str(formula.sexpr())


def _sort(leaf: Expr) -> z3.SortRef:
    return z3.BoolSort() if leaf.sort is Sort.BOOL else z3.IntSort()
