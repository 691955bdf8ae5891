"""That declared symmetries are symmetries: shown for every state and policy, not only for those explored.

Exchanging two neighbouring elements must turn each command into another of the same action, and leave every claim, bound
and initial state as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import z3

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr
from deadreckon.models.relation import Command, Relation
from deadreckon.models.symmetry import Symmetry
from deadreckon.spec import SpecError

from .lowering import integers, lower

QUERY_SECONDS = 20.0


def check_symmetries(relation: Relation) -> None:
    """Prove that what a machine declares interchangeable is.

    Raises:
        SpecError: naming the action, rule or bound that tells two elements apart.
    """
    symmetry = Symmetry(relation.machine, relation.layout)
    for group, elements in enumerate(symmetry.groups):
        for first in range(len(elements) - 1):
            order = symmetry.swapped(tuple(range(len(relation.state))), group, first)
            exchanged = tuple(relation.state[at] for at in order)
            told_apart = next(_told_apart(relation, exchanged, order), None)
            if told_apart is not None:
                raise SpecError(
                    f"elements {first} and {first + 1} of {', '.join(relation.machine.interchangeable[group])} are not "
                    f"interchangeable: {told_apart} tells them apart",
                    instead="leave the group out of interchangeable=, or treat its elements alike",
                )


def _told_apart(relation: Relation, exchanged: tuple[Expr, ...], order: tuple[int, ...]) -> Iterator[str]:
    swap = dict(zip(relation.state, exchanged, strict=True))
    for name, claim in (*relation.claims.items(), *relation.triggers.items()):
        if not _equal(claim, ir.substitute((claim,), swap)[0]):
            yield name
    for start in relation.initial:
        if any(start[at] is not start[to] for at, to in enumerate(order)):
            yield "an initial state"
    for command in relation.commands:
        candidates = (
            (other, inputs)
            for other in relation.commands
            if other.action == command.action
            for inputs in _exchanges(command)
        )
        if not any(_mirrors(relation, command, other, swap | inputs, order) for other, inputs in candidates):
            yield command.name


def _exchanges(command: Command) -> Iterator[dict[Expr, Expr]]:
    """The ways to exchange inputs of one domain: an exchange of elements may exchange what is said of them."""
    variables = [one.variable for one in command.inputs]
    domains = [(one.field.type, one.low, one.high) for one in command.inputs]
    for order in permutations(range(len(variables))):
        if all(domains[at] == domains[to] for at, to in enumerate(order)):
            yield {variables[at]: variables[to] for at, to in enumerate(order)}


def _mirrors(
    relation: Relation, command: Command, other: Command, swap: dict[Expr, Expr], order: tuple[int, ...]
) -> bool:
    """Whether *command* after the exchange is *other* before it."""
    at, to = (relation.commands.index(one) for one in (command, other))
    guard, *updates = ir.substitute((command.guard, *command.updates), swap)
    claims = ir.substitute(tuple(steps[at] for steps in relation.steps.values()), swap)
    mirrored = [other.updates[position] for position in order]
    differs = (
        ir.not_(ir.eq(left, right))
        for left, right in (
            *zip(updates, mirrored, strict=True),
            *zip(claims, (steps[to] for steps in relation.steps.values()), strict=True),
        )
    )
    return _equal(guard, other.guard) and _impossible(ir.and_(other.guard, ir.or_(*differs)))


def _equal(left: Expr, right: Expr) -> bool:
    return _impossible(ir.not_(ir.eq(left, right)))


def _impossible(condition: Expr) -> bool:
    if condition is ir.FALSE:
        return True
    solver = z3.Solver()
    solver.set("timeout", int(QUERY_SECONDS * 1000))
    solver.add(*lower((condition,), integers()))
    return bool(solver.check() == z3.unsat)
