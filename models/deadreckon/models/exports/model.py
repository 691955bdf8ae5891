"""What the exports have in common: one machine under the policy and the bounds of one scope, in 32 bits."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Mapping

import attrs

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op
from deadreckon.models.grounding import Grounded, Instance, ground
from deadreckon.models.layout import Flat
from deadreckon.models.relation import Relation
from deadreckon.models.symmetry import Symmetry
from deadreckon.spec import CallerError, Machine, Rule, Scope

HIGHEST = 2**31 - 1
"""TLC and SPIN count in 32 bits."""

_ARITHMETIC = (Op.ADD, Op.NEG, Op.MUL)


@attrs.frozen(eq=False)
class Model:
    """What an export writes down.

    ``initial`` are representatives; ``within`` says which states a step may lead to, judged before the representative
    is taken; ``may_rest`` where no step need be possible. ``steps_of`` gives the instances of each action.
    """

    relation: Relation
    scope: Scope
    grounded: Grounded
    symmetry: Symmetry
    initial: tuple[Flat, ...]
    within: Expr
    may_rest: Expr

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.relation.machine

    @property
    def steps_of(self) -> Mapping[str, tuple[Instance, ...]]:
        """Every action that can run, in the order of the table, with its choices of inputs."""
        found: dict[str, tuple[Instance, ...]] = {}
        for one in self.grounded.instances:
            if one.guard is not ir.FALSE:
                found[one.action] = (*found.get(one.action, ()), one)
        return found


def scope_named(machine: Machine, name: str | None) -> Scope:
    """The scope *name* of *machine*; its first, if None.

    Raises:
        CallerError: when it has no scope of that name.
    """
    for scope in machine.scopes:
        if name in (None, scope.name):
            return scope
    raise CallerError(f"no scope {name} in {machine.name}: {', '.join(one.name for one in machine.scopes)}")


def model(relation: Relation, scope: Scope) -> Model:
    """*relation* under the policy and the bounds of *scope*.

    Raises:
        CallerError: when it computes with numbers that 32 bits don't hold.
    """
    grounded = _narrow(ground(relation, scope.policy), f"{relation.machine.name}, scope {scope.name}")
    symmetry = Symmetry(relation.machine, relation.layout)
    return Model(
        relation,
        scope,
        grounded,
        symmetry,
        tuple(dict.fromkeys(symmetry.canonical(tuple(map(_narrowed, start))) for start in grounded.initial)),
        grounded.triggers[f"within:{scope.name}"],
        grounded.triggers.get("terminal", ir.FALSE),
    )


def comment(text: str, mark: str, width: int = 100) -> list[str]:
    """*text* as comment lines that begin with *mark*; what is not ASCII becomes a question mark."""
    plain = text.encode("ascii", "replace").decode()
    found = [part for line in inspect.cleandoc(plain).splitlines() for part in textwrap.wrap(line, width) or [""]]
    return [f"{mark} {line}".rstrip() for line in found]


def about(rule: Rule) -> str:
    """The rule in one line: id, kind, sentence and source."""
    return f"{rule.id} ({rule.kind.value}{', lemma' if rule.lemma else ''}): {rule.sentence} [{rule.source}]"


def _narrow(grounded: Grounded, where: str) -> Grounded:
    """Numbers beyond 32 bits stand for *no limit*: the highest number does too, where it is only compared with."""
    tables = (grounded.claims, grounded.triggers)
    roots = [one for table in tables for one in table.values()]
    roots += [one for claims in grounded.steps.values() for one in claims]
    roots += [one for instance in grounded.instances for one in (instance.guard, *instance.updates)]
    large = [one for one in ir.postorder(tuple(roots)) if ir.is_const(one) and abs(int(one.value)) > HIGHEST]
    if not large:
        return grounded
    _refuse_arithmetic(roots, set(large), where)
    bindings = {one: ir.const(_narrowed(int(one.value))) for one in large}

    def narrowed(expressions: Iterable[Expr]) -> tuple[Expr, ...]:
        return ir.substitute(tuple(expressions), bindings)

    def table(conditions: Mapping[str, Expr]) -> dict[str, Expr]:
        return dict(zip(conditions, narrowed(conditions.values()), strict=True))

    return attrs.evolve(
        grounded,
        instances=tuple(
            attrs.evolve(one, guard=narrowed([one.guard])[0], updates=narrowed(one.updates))
            for one in grounded.instances
        ),
        claims=table(grounded.claims),
        steps={rule: narrowed(claims) for rule, claims in grounded.steps.items()},
        triggers=table(grounded.triggers),
    )


def _narrowed(value: int) -> int:
    return max(-HIGHEST, min(value, HIGHEST))


def _refuse_arithmetic(roots: Iterable[Expr], large: set[Expr], where: str) -> None:
    """A sum with such a number would wrap or be refused, and mean something else."""
    tainted = set(large)
    for node in ir.postorder(tuple(roots)):
        if node.args and node.sort is ir.Sort.INT and any(arg in tainted for arg in node.args):
            if node.op in _ARITHMETIC:
                raise CallerError(f"{where}: {node!r} does not fit into 32 bits, which is what TLC and SPIN count in")
            tainted.add(node)
