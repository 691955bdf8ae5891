"""A relation under one policy: every action under every choice of inputs that exploration tries, as expressions.

This is the form that exploration lowers further: :mod:`compiled` to Python, ``fast`` to machine code and NumPy,
``exports`` to Promela and TLA+.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import attrs

from . import expr as ir
from .expr import Expr
from .layout import Field, Flat
from .relation import Command, Input, Relation


@attrs.frozen(eq=False)
class Instance:
    """A command under one choice of all its inputs: what exploration tries.

    Where ``guard`` holds of a state, ``updates`` are the leaves of the state after it.
    """

    index: int
    action: str
    inputs: Mapping[str, int]
    fields: Mapping[str, Field]
    command: Command
    guard: Expr
    updates: tuple[Expr, ...]

    @property
    def name(self) -> str:
        """The action with its inputs, as a person writes it."""
        inputs = ", ".join(f"{name}={self.words(name)}" for name in self.inputs)
        return f"{self.action}({inputs})"

    def words(self, name: str) -> str:
        """The value of an input in words."""
        field = self.fields.get(name)
        return field.words(self.inputs[name]) if field else str(self.inputs[name])


@attrs.frozen(eq=False)
class Grounded:
    """A relation whose policy and inputs are constants; all expressions are over ``relation.state`` alone.

    ``claims[id]`` judges a state, ``steps[id][instance]`` a step from the state before it; ``triggers`` are the other
    conditions on a state: ``terminal``, ``within:SCOPE``, and by rule what an *eventually* rule starts from.
    """

    relation: Relation
    instances: tuple[Instance, ...]
    initial: tuple[Flat, ...]
    claims: Mapping[str, Expr]
    steps: Mapping[str, tuple[Expr, ...]]
    triggers: Mapping[str, Expr]

    def after(self, condition: Expr, instance: Instance) -> Expr:
        """*condition*, which is over a state, of the state after *instance*: an expression over the state before."""
        return ir.substitute((condition,), dict(zip(self.relation.state, instance.updates, strict=True)))[0]


def ground(relation: Relation, policy: object) -> Grounded:
    """Put *policy* and every choice of inputs into *relation*."""
    values = relation.policy_layout.flatten(policy) if policy is not None else ()
    bindings = {
        leaf: _constant(field, value)
        for leaf, value, field in zip(relation.policy, values, relation.policy_layout.fields, strict=True)
    }
    by_command = {id(command): at for at, command in enumerate(relation.commands)}
    instances = tuple(_instances(relation, bindings))
    chosen = [{**bindings, **_chosen(one.command.inputs, one.inputs)} for one in instances]

    def of_states(conditions: Mapping[str, Expr]) -> dict[str, Expr]:
        return {id: ir.substitute((condition,), bindings)[0] for id, condition in conditions.items()}

    return Grounded(
        relation,
        instances,
        tuple(tuple(int(leaf.value) for leaf in ir.substitute(leaves, bindings)) for leaves in relation.initial),
        of_states(relation.claims),
        {
            rule: tuple(
                ir.substitute((claims[by_command[id(one.command)]],), values)[0]
                for one, values in zip(instances, chosen, strict=True)
            )
            for rule, claims in relation.steps.items()
        },
        of_states(relation.triggers),
    )


def _instances(relation: Relation, bindings: Mapping[Expr, Expr]) -> Iterator[Instance]:
    index = 0
    for command in relation.commands:
        names = [one.name for one in command.inputs]
        for values in product(*(one.explore for one in command.inputs)):
            chosen = dict(zip(names, values, strict=True))
            guard, *updates = ir.substitute(
                (command.guard, *command.updates), {**bindings, **_chosen(command.inputs, chosen)}
            )
            fields = {one.name: one.field for one in command.inputs}
            yield Instance(index, command.action, {**command.fixed, **chosen}, fields, command, guard, tuple(updates))
            index += 1


def _chosen(inputs: tuple[Input, ...], values: Mapping[str, int]) -> dict[Expr, Expr]:
    return {one.variable: _constant(one.field, values[one.name]) for one in inputs}


def _constant(field: Field, value: int) -> Expr:
    return ir.const(bool(value)) if field.type is bool else ir.const(value)
