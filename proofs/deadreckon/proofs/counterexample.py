"""A counterexample to induction in words, and the question that matters: can its state be reached?"""

from __future__ import annotations

from collections.abc import Iterator

import z3

from deadreckon.models import expr as ir
from deadreckon.models.explorer import Bounds, explore
from deadreckon.models.expr import Expr, Sort
from deadreckon.models.layout import Flat
from deadreckon.models.symmetry import Symmetry
from deadreckon.spec import Scope

from .induction import Counterexample
from .lowering import integers, lower
from .system import System
from .unroll import number

LOOKUP_STATES = 500_000
"""How much of a scope is explored to look a state up."""


def describe(system: System, broken: Counterexample, known: tuple[Expr, ...]) -> str:
    """Why induction fails: the state, the step, and whether exploration reaches such a state.

    Reachable: the rule is false. Unreachable: a lemma is missing that excludes the state.
    """
    for scope in system.relation.machine.scopes:
        inside = _inside(system, broken, known, scope)
        if inside is not None:
            return f"{_label(system, scope, inside)}: {_words(system, broken, inside)}"
    return f"unlabelled, no scope contains such a state: {_words(system, broken, broken.before)}"


def _label(system: System, scope: Scope, state: Flat) -> str:
    explored = explore(
        system.relation.machine,
        scope,
        traced=system.relation,
        bounds=Bounds(max_states=LOOKUP_STATES),
        compare_every=0,
        keep_graph=True,
    )
    graph = explored.graph
    canonical = Symmetry(system.relation.machine, system.relation.layout).canonical(state)
    if graph is not None and canonical in graph.index:
        return f"reachable in scope {scope.name}, so the rule is false"
    if not explored.complete:
        return f"not among the {explored.states} states explored of scope {scope.name}"
    return f"unreachable in scope {scope.name}, so a lemma is missing"


def _inside(system: System, broken: Counterexample, known: tuple[Expr, ...], scope: Scope) -> Flat | None:
    """A state within *scope*, under its policy, from which the same command breaks the same rule."""
    relation = system.relation
    policy = relation.policy_layout.flatten(scope.policy) if scope.policy is not None else ()
    fixed = (ir.eq(leaf, ir.const(_typed(leaf, value))) for leaf, value in zip(relation.policy, policy, strict=True))
    facts = [*fixed, *known, relation.triggers[f"within:{scope.name}"], system.enabled(broken.command)]
    if broken.rule in system.claims:
        claim = system.claims[broken.rule]
        facts += [claim, ir.not_(system.after(claim, broken.command))]
    else:
        facts.append(ir.not_(system.steps[broken.rule][relation.commands.index(broken.command)]))
    solver = z3.Solver()
    solver.set("timeout", 10_000)
    solver.add(*lower(facts, integers()))
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    return tuple(number(model, value) for value in lower(relation.state, integers()))


def _typed(leaf: Expr, value: int) -> int | bool:
    return bool(value) if leaf.sort is Sort.BOOL else value


def _words(system: System, broken: Counterexample, state: Flat) -> str:
    return f"{broken.command.name} breaks {broken.rule} from {', '.join(_fields(system, state))}"


def _fields(system: System, state: Flat) -> Iterator[str]:
    for field, value in zip(system.relation.layout.fields, state, strict=True):
        yield f"{field.path}={field.words(value)}"
