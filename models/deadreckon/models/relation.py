"""The transition relation of a machine: guarded commands over one flat state, the form that every engine lowers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import product
from typing import cast

import attrs

from deadreckon.spec import Action, Among, Between, Domain, Function, Kind, Machine, Rule, Scope, SpecError
from deadreckon.spec.language import location
from deadreckon.spec.machine import NO_INPUTS

from . import expr as ir
from .expr import Expr, Sort
from .layout import Field, Layout, parts
from .symbolic import Traced, lift, number, scalar_class, symbol
from .tracing import Tracer, truth


@attrs.frozen(eq=False)
class Input:
    """A symbolic input of a command, with the values it may take (``high`` None: no upper end)."""

    name: str
    variable: Expr
    field: Field
    low: int
    high: int | None
    explore: tuple[int, ...]

    def within(self) -> Expr:
        """The condition that the input is in its domain."""
        if self.variable.sort is Sort.BOOL:
            return ir.TRUE
        below = ir.TRUE if self.high is None else ir.le(self.variable, ir.const(self.high))
        return ir.and_(ir.le(ir.const(self.low), self.variable), below)


@attrs.frozen(eq=False)
class Command:
    """One action under fixed finite inputs: where ``guard`` holds, every leaf takes its update at once."""

    action: str
    fixed: Mapping[str, int]
    inputs: tuple[Input, ...]
    guard: Expr
    updates: tuple[Expr, ...]
    refusals: tuple[tuple[Expr, str, str], ...]

    @property
    def name(self) -> str:
        """Action and fixed inputs, for reports."""
        fixed = ", ".join(f"{name}={value}" for name, value in self.fixed.items())
        return f"{self.action}({fixed})" if fixed else self.action


@attrs.frozen(eq=False)
class Relation:
    """A machine as expressions. ``policy`` and ``state`` are the variables; ghosts are the last leaves of the state."""

    machine: Machine
    policy_layout: Layout
    layout: Layout
    policy: tuple[Expr, ...]
    state: tuple[Expr, ...]
    policy_valid: Expr
    initial: tuple[tuple[Expr, ...], ...]
    commands: tuple[Command, ...]
    claims: Mapping[str, Expr]
    steps: Mapping[str, tuple[Expr, ...]]
    triggers: Mapping[str, Expr]

    def fingerprint(self) -> str:
        """A digest of all that proofs depend on; it changes when the machine does."""
        roots = (
            self.policy_valid,
            *(leaf for start in self.initial for leaf in start),
            *(one for command in self.commands for one in (command.guard, *command.updates)),
            *(bound.within() for command in self.commands for bound in command.inputs),
            *(self.claims[id] for id in sorted(self.claims)),
            *(step for id in sorted(self.steps) for step in self.steps[id]),
        )
        digest = ir.digest(roots)
        for field in (*self.policy_layout.fields, *self.layout.fields):
            digest.update(f"{field.path}:{field.size}".encode())
        return digest.hexdigest()[:32]


def relation(machine: Machine) -> Relation:
    """Trace *machine* into its transition relation.

    Raises:
        SpecError: when a function can't be followed, or an action can never run.
    """
    return _Builder(machine).build()


class _Builder:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.tracer = Tracer()
        policy = machine.scopes[0].policy
        start = machine.initial[0]
        example = start(*machine.signature(start).arguments(policy, ()))
        self.policy_layout = Layout(policy, "policy")
        self.layout = Layout((example, machine.ghost() if machine.ghost else None))
        self.layout.fields = tuple(attrs.evolve(field, path=_readable(field.path)) for field in self.layout.fields)
        if not self.layout.fields:
            raise SpecError(f"the state of machine {machine.name} has no field", instead="give it one that changes")
        self.policy_leaves = tuple(ir.var(field.path, field.sort) for field in self.policy_layout.fields)
        self.state_leaves = tuple(ir.var(field.path, field.sort) for field in self.layout.fields)
        names = [str(leaf) for leaf in (*self.policy_leaves, *self.state_leaves)]
        for name in names:
            if names.count(name) > 1:
                raise SpecError(f"machine {machine.name} has two of field {name}", instead="rename one of them")
        self._classes: list[tuple[str, type]] | None = None
        self.policy = self.policy_layout.rebuild(_symbols(self.policy_layout, self.policy_leaves))
        self.state, self.ghost = self._rebuilt(self.state_leaves)

    def build(self) -> Relation:
        machine = self.machine
        commands = tuple(
            command for action in machine.actions for command in self._commands(action) if command.guard is not ir.FALSE
        )
        for action in machine.actions:
            if all(command.action != action.name for command in commands):
                raise SpecError(
                    f"action {action.name} of machine {machine.name} can never run: its guards exclude each other",
                    instead="mend the guards, or remove the action",
                )
        valid = ir.TRUE
        if machine.policy_valid is not None:
            valid = self._claim(machine.policy_valid)
        state_rules = {rule.id: rule for rule in machine.rules if not self.is_step(rule)}
        claims = {id: self._claim(rule.holds) for id, rule in state_rules.items()}
        triggers = {rule.id: self._claim(rule.when) for rule in machine.rules if rule.when is not None}
        if machine.terminal is not None:
            triggers["terminal"] = self._claim(machine.terminal)
        triggers |= {f"within:{one.name}": self._within(one) for one in machine.scopes}
        return Relation(
            machine,
            self.policy_layout,
            self.layout,
            self.policy_leaves,
            self.state_leaves,
            valid,
            tuple(self._initial(start) for start in machine.initial),
            commands,
            claims,
            {
                rule.id: tuple(self._step_claim(rule, command) for command in commands)
                for rule in machine.rules
                if rule.id not in state_rules
            },
            triggers,
        )

    def is_step(self, rule: Rule) -> bool:
        """Whether *rule* speaks of a state before and a state after."""
        if rule.kind is Kind.EVENTUALLY:
            return False
        return bool(rule.on) or self.machine.signature(rule.holds).parts.count(self.machine.state) > 1

    def _initial(self, function: Function) -> tuple[Expr, ...]:
        value = _certain(function, self.tracer.trace(function, self._arguments(function, ())))
        return self._leaves(value, self.machine.ghost() if self.machine.ghost else None)

    def _arguments(
        self, function: Function, states: Iterable[object], inputs: Mapping[str, object] = NO_INPUTS
    ) -> tuple[object, ...]:
        return tuple(self.machine.signature(function).arguments(self.policy, states, self.ghost, inputs))

    def _rebuilt(self, leaves: tuple[Expr, ...]) -> tuple[object, object]:
        return cast("tuple[object, object]", self.layout.rebuild(_symbols(self.layout, leaves)))

    def _leaves(self, state: object, ghost: object) -> tuple[Expr, ...]:
        found = list(_scalars((state, ghost), ""))
        if [_readable(path) for path, _ in found] != [field.path for field in self.layout.fields]:
            raise SpecError(
                f"machine {self.machine.name} returns a state of another shape",
                instead="keep the length of every tuple; a free slot is a value",
            )
        for (_, value), field in zip(found, self.layout.fields, strict=True):
            self._check_kind(value, field)
        if self._classes is None:
            self._classes = list(_classes((state, ghost), ""))
        elif self._classes != list(_classes((state, ghost), "")):
            raise SpecError(
                f"machine {self.machine.name} puts an instance of another class into a field",
                instead="keep the class of every part of the state",
            )
        leaves = [lift(value) for _, value in found]
        return tuple(
            ir.ite(leaf, ir.const(1), ir.const(0)) if leaf.sort is Sort.BOOL and field.sort is Sort.INT else leaf
            for leaf, field in zip(leaves, self.layout.fields, strict=True)
        )

    def _check_kind(self, value: object, field: Field) -> None:
        """A number may hold a truth value; otherwise a field keeps its type."""
        kind = scalar_class(value)
        if kind is not field.type and not (field.type is int and kind is bool):
            raise SpecError(
                f"machine {self.machine.name} puts {value!r} into {field.path}, a field of type {field.type.__name__}",
                instead=f"a {field.type.__name__}",
            )

    def _commands(self, action: Action) -> Iterator[Command]:
        finite = {name: domain for name, domain in action.domains.items() if isinstance(domain, Among)}
        inputs = tuple(
            _input(action.name, name, domain) for name, domain in action.domains.items() if name not in finite
        )
        for one in inputs:
            if one.variable in (*self.policy_leaves, *self.state_leaves):
                raise SpecError(
                    f"input {one.name} of action {action.name} and the field {one.variable} have one name",
                    where=location(action.function),
                    instead="rename the input, the action or the field",
                )
        for values in product(*(domain.values for domain in finite.values())):
            fixed = dict(zip(finite, values, strict=True))
            given = {one.name: symbol(one.variable, one.field.type) for one in inputs} | fixed
            traced = self.tracer.trace(action.function, self._arguments(action.function, (self.state,), given))
            if traced.allowed is ir.FALSE:
                continue
            ghost = self._observed(traced.value)
            updates = self._leaves(traced.value, ghost)
            yield Command(action.name, fixed, inputs, traced.allowed, updates, traced.refusals)

    def _observed(self, after: object) -> object:
        observe = self.machine.observe
        if observe is None:
            return None
        return _certain(observe, self.tracer.trace(observe, self._arguments(observe, (self.state, after))))

    def _claim(self, function: Function) -> Expr:
        return _verdict(self.tracer.trace(function, self._arguments(function, (self.state,))))

    def _within(self, scope: Scope) -> Expr:
        horizons = [ir.le(self._measured(scope, name), ir.const(most)) for name, most in scope.at_most.items()]
        return ir.and_(*horizons, ir.TRUE if scope.within is None else self._claim(scope.within))

    def _measured(self, scope: Scope, name: str) -> Expr:
        """The number that a horizon is of: a field, or what a function comes to."""
        measure = scope.measures.get(name)
        if measure is None:
            return self.state_leaves[self.layout.index(name)]
        return number(_certain(measure, self.tracer.trace(measure, self._arguments(measure, (self.state,)))))

    def _step_claim(self, rule: Rule, command: Command) -> Expr:
        if rule.on and command.action not in rule.on:
            return ir.const(rule.kind is not Kind.SOMETIMES)
        after, _ = self._rebuilt(command.updates)
        return _verdict(self.tracer.trace(rule.holds, self._arguments(rule.holds, (self.state, after))))


def _certain(function: Function, traced: Traced) -> object:
    """The value of a function that must not refuse."""
    if traced.allowed is not ir.TRUE:
        raise SpecError(
            f"{function.__name__} refuses, but only actions may",
            where=location(function),
            instead="let it return a value in every case",
        )
    return traced.value


def _verdict(traced: Traced) -> Expr:
    return traced.allowed if traced.allowed is ir.FALSE else ir.and_(traced.allowed, truth(traced.value))


def _readable(path: str) -> str:
    """The layout is that of (state, ghost): leave the first part out, name the second."""
    return path.replace("[1].", "ghost.", 1) if path.startswith("[1]") else path.removeprefix("[0].")


def _symbols(layout: Layout, leaves: tuple[Expr, ...]) -> tuple[object, ...]:
    return tuple(symbol(leaf, field.type) for leaf, field in zip(leaves, layout.fields, strict=True))


def _scalars(value: object, path: str) -> Iterator[tuple[str, object]]:
    """The scalars in *value* with their paths, as in a layout."""
    if isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from _scalars(element, f"{path}[{index}]")
    elif (names := parts(value)) is not None:
        for name in names:
            yield from _scalars(getattr(value, name), f"{path}.{name}" if path else name)
    elif value is not None:
        yield path, value


def _classes(value: object, path: str) -> Iterator[tuple[str, type]]:
    """The attrs classes of which *value* is made, with their paths."""
    if isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from _classes(element, f"{path}[{index}]")
    elif (names := parts(value)) is not None:
        yield path, type(value)
        for name in names:
            yield from _classes(getattr(value, name), f"{path}.{name}")


def _input(action: str, name: str, domain: Domain) -> Input:
    match domain:
        case Between(low, high, explore):
            field = Field(name, int)
        case _ if domain is bool:
            field, low, high, explore = Field(name, bool), 0, 1, (0, 1)
        case _:
            assert isinstance(domain, type)
            assert issubclass(domain, Enum)
            field, low, high, explore = Field(name, domain), 0, len(domain) - 1, tuple(range(len(domain)))
    return Input(name, ir.var(f"{action}.{name}", field.sort), field, low, high, explore)
