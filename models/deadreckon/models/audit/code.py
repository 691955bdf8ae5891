"""A machine as an audit runs it: only the actions that a log speaks of, over only the leaves that matter, as functions.

A log of one hold never moves a second one, and nobody reads how many doors there were. So leaves that no chosen action
changes become constants, and leaves that nothing depends on are left out. What is left is compiled, an action at a time,
to a function from a flat state to the next one, or None where the action is refused.

Inputs that are integers stay open until a call. So do parameters of the policy that a log leaves open or gives anew for
each entity (the deadline of a hold): they are inputs like any other, named by the vocabulary.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import cast

import attrs

from deadreckon.spec import Kind, Machine, SpecError

from .. import expr as ir
from ..compiled import straight_line
from ..expr import Expr, Sort
from ..layout import Field, Flat, assembled, member
from ..relation import Command, Relation, relation

Function = Callable[..., Flat | None]
Claim = Callable[[Flat], bool]
Inputs = tuple[tuple[str, int], ...]


def narrowed(machine: Machine, actions: Iterable[str], judged: bool) -> Machine:
    """*machine* with these actions alone; of its rules the eventual ones, and if *judged* all that are no lemmas."""
    wanted = frozenset(actions)
    less = copy.copy(machine)
    kinds = (Kind.EVENTUALLY, Kind.ALWAYS) if judged else (Kind.EVENTUALLY,)
    parts = {
        "actions": tuple(one for one in machine.actions if one.name in wanted),
        "rules": tuple(rule for rule in machine.rules if rule.kind in kinds and not rule.lemma),
        "scopes": machine.scopes[:1],
        "variants": (),
    }
    for name, value in parts.items():
        object.__setattr__(less, name, value)
    return less


@attrs.frozen
class Use:
    """What a vocabulary uses of a machine.

    Attributes:
        actions: the actions that its moves take.
        fixed: inputs that have one value wherever they occur.
        assumed: leaves of the initial state that the log says nothing of, with the most permissive value.
        observed: leaves that its moves look at or set.
        free: parameters of the policy that are inputs here.
        judged: whether logged values are ever taken over, so that rules must be judged from there on. States to which
            actions alone lead break none: that is proved.
    """

    actions: tuple[str, ...]
    fixed: Mapping[str, int] = attrs.field(factory=dict)
    assumed: Mapping[str, int] = attrs.field(factory=dict)
    observed: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    judged: bool = False


@attrs.frozen(eq=False)
class _Bound:
    """A command under the policy and the fixed inputs."""

    command: Command
    static: Mapping[str, int]
    fixed: Mapping[Expr, Expr]
    inputs: tuple[tuple[str, Expr], ...]
    guard: Expr
    updates: tuple[Expr, ...]


class Traced:
    """The relation of a narrowed machine; made once, compiled for each policy. Rules are traced when they are needed."""

    def __init__(self, machine: Machine, use: Use) -> None:
        self.machine = machine
        self.use = use
        self.relation: Relation = relation(narrowed(machine, use.actions, judged=False))

    @functools.cached_property
    def ruled(self) -> Relation:
        """The same relation with all rules."""
        return relation(narrowed(self.machine, self.use.actions, judged=True))

    def code(self, policy: object) -> Code:
        """The functions under *policy*."""
        return Code(self, policy)


class Code:
    """Functions over the leaves that are kept.

    Attributes:
        use: what is used of the machine.
        policy: the policy.
        fields: the kept leaves.
        initial: the initial state.
        rest: whether nothing more need happen in a state.
        owed, met: of each eventual rule, whether a state owes something, and whether it has it.
    """

    def __init__(self, traced: Traced, policy: object) -> None:
        self._traced = traced
        self._relation = traced.relation
        self.use = traced.use
        self.policy = policy
        layout = self._relation.layout
        self._at = {field.path: at for at, field in enumerate(layout.fields)}
        self._values = list(_initial(traced, policy))
        for path, value in traced.use.assumed.items():
            self._values[self._at[path]] = value
        self._bindings = _parameters(traced, policy)
        self._bound = tuple(self._bind(command) for command in self._relation.commands)
        self._constants = self._constant_leaves()
        self._kept = self._relevant()
        self.fields: tuple[Field, ...] = tuple(layout.fields[at] for at in self._kept)
        self.index = {field.path: at for at, field in enumerate(self.fields)}
        self._state = tuple(self._relation.state[at] for at in self._kept)
        self._known = {self._relation.state[at]: self._constant(at) for at in self._constants}
        self.initial: Flat = tuple(self._values[at] for at in self._kept)
        self._functions: dict[tuple[str, Inputs, bool], Function] = {}
        triggers, claims = self._relation.triggers, self._relation.claims
        self.rest: Claim | None = self._claim(triggers["terminal"]) if "terminal" in triggers else None
        eventual = [rule.id for rule in self._relation.machine.rules if rule.kind is Kind.EVENTUALLY]
        self.owed = {id: self._claim(triggers[id]) for id in eventual}
        self.met = {id: self._claim(claims[id]) for id in eventual}

    def whole(self, state: Flat) -> Flat:
        """A state of the machine itself, for its own functions; what was left out has its initial value."""
        leaves = list(self._values)
        for at, value in zip(self._kept, state, strict=True):
            leaves[at] = value
        return tuple(leaves)

    def rebuild(self, whole: Flat) -> tuple[object, object]:
        """State and ghost as the machine's own functions take them."""
        return cast("tuple[object, object]", self._relation.layout.rebuild(whole))

    def flatten(self, state: object, ghost: object) -> Flat:
        """All leaves of a state and its ghost."""
        return self._relation.layout.flatten((state, ghost))

    @property
    def start(self) -> Flat:
        """All leaves of the machine's own initial state, with nothing assumed."""
        return _initial(self._traced, self.policy)

    @property
    def relation(self) -> Relation:
        """The relation of what is used of the machine."""
        return self._relation

    def kept(self, whole: Flat) -> Flat:
        """The leaves that are kept of a state of the machine itself."""
        return tuple(whole[at] for at in self._kept)

    def given(self, action: str, inputs: Mapping[str, int]) -> tuple[object, dict[str, object]]:
        """The policy, with what is open of it, and the inputs, as the machine's own functions take them."""
        machine, values = self._traced.machine, {**self.use.fixed, **inputs}
        domains = machine.action(action).domains
        free = {name: value for name, value in inputs.items() if name in self.use.free}
        policy = self.policy
        if free:
            fields = {field.name: getattr(policy, field.name) for field in attrs.fields(type(policy))}  # type: ignore[arg-type]  # an attrs class
            policy = assembled(type(policy), {**fields, **free})
        return policy, {name: _value(domain, values[name]) for name, domain in domains.items()}

    def leaf(self, path: str) -> int:
        """Where a leaf stands among all leaves."""
        return self._at[path]

    def layout_field(self, at: int) -> Field:
        """The leaf that stands there."""
        return self._relation.layout.fields[at]

    @functools.cached_property
    def broken(self) -> Claim:
        """Whether a state breaks a rule."""
        ruled = self._traced.ruled
        rules = [rule.id for rule in ruled.machine.rules if rule.kind is Kind.ALWAYS and rule.id in ruled.claims]
        return self._claim(ir.not_(ir.and_(*(ruled.claims[id] for id in rules))))

    def call(self, action: str, inputs: Mapping[str, int], judged: bool = False) -> Callable[[Flat], Flat | None]:
        """The action under *inputs*, as a function of the state alone; if *judged*, None too if the step breaks a rule."""
        bound = self._command(action, inputs)
        dynamic = tuple(inputs[name] for name, _ in bound.inputs if not self._is_closed(bound, name))
        function = self._function(action, bound, inputs, judged)
        if not dynamic:
            return function
        return lambda state: function(state, *dynamic)

    def timed(self, action: str, judged: bool = False) -> Function:
        """The action as a function of the state and of its one open input."""
        return self._function(action, self._command(action, {}), {}, judged)

    def _command(self, action: str, inputs: Mapping[str, int]) -> _Bound:
        given = {**self.use.fixed, **inputs}
        for one in self._bound:
            if one.command.action == action and all(given.get(name) == value for name, value in one.static.items()):
                return one
        raise SpecError(f"no action {action} with {dict(inputs)}", instead="an action and inputs of the machine")

    def _function(self, action: str, bound: _Bound, inputs: Mapping[str, int], judged: bool) -> Function:
        closed = tuple((name, value) for name, value in inputs.items() if self._is_closed(bound, name))
        key = (action, closed, judged)
        if key not in self._functions:
            self._functions[key] = self._compiled(bound, dict(closed), judged)
        return self._functions[key]

    def _is_closed(self, bound: _Bound, name: str) -> bool:
        """Whether an input is compiled in: all but integers, which are given with each call."""
        kinds = {one.name: one.field.type for one in bound.command.inputs}
        return name in bound.static or (name in kinds and kinds[name] is not int)

    def _compiled(self, bound: _Bound, closed: Mapping[str, int], judged: bool) -> Function:
        chosen = dict(self._known)
        opened = []
        for name, variable in bound.inputs:
            if name in closed:
                chosen[variable] = _literal(variable, closed[name])
            else:
                opened.append(variable)
        claims = self._step_claims(bound) if judged else ()
        guard, *rest = ir.substitute((bound.guard, *bound.updates, *claims), chosen)
        updates, claims = rest[: len(bound.updates)], tuple(rest[len(bound.updates) :])
        kept = tuple(updates[at] for at in self._kept)
        return straight_line(self._state, tuple(opened), ir.and_(guard, *claims), kept)

    def _step_claims(self, bound: _Bound) -> tuple[Expr, ...]:
        """What the rules say of a step of this command."""
        ruled = self._traced.ruled
        at = self._relation.commands.index(bound.command)
        return ir.substitute(tuple(claims[at] for claims in ruled.steps.values()), {**self._bindings, **bound.fixed})

    def _bind(self, command: Command) -> _Bound:
        """*command* with policy and fixed inputs put in; free parameters of the policy are inputs."""
        fixed = {
            one.variable: _literal(one.variable, self.use.fixed[one.name])
            for one in command.inputs
            if one.name in self.use.fixed
        }
        guard, *updates = ir.substitute((command.guard, *command.updates), {**self._bindings, **fixed})
        read = ir.variables((guard, *updates))
        inputs = [(one.name, one.variable) for one in command.inputs if one.name not in self.use.fixed]
        inputs += [(name, leaf) for name, leaf in self._free() if leaf in read]
        return _Bound(command, dict(command.fixed), fixed, tuple(inputs), guard, tuple(updates))

    def _free(self) -> list[tuple[str, Expr]]:
        layout = self._relation.policy_layout
        named = [field.path.removeprefix("policy.") for field in layout.fields]
        return [(name, leaf) for name, leaf in zip(named, self._relation.policy, strict=True) if name in self.use.free]

    def _usable(self) -> list[_Bound]:
        return [
            one
            for one in self._bound
            if all(self.use.fixed.get(name, value) == value for name, value in one.static.items())
        ]

    def _constant(self, at: int) -> Expr:
        return _literal(self._relation.state[at], self._values[at])

    def _constant_leaves(self) -> frozenset[int]:
        """The leaves that keep their initial value whatever is done: the greatest such set."""
        free = {self._at[path] for path in self.use.observed if path in self._at}
        found = set(range(len(self._values)))
        while True:
            known = {self._relation.state[at]: self._constant(at) for at in found}
            moved = set()
            for one in self._usable():
                guard, *updates = ir.substitute((one.guard, *one.updates), known)
                if guard is not ir.FALSE:
                    moved |= {at for at in found if updates[at] is not self._constant(at)}
            if not moved:
                return frozenset(found - free)
            found -= moved

    def _relevant(self) -> tuple[int, ...]:
        """The leaves that a guard, an eventual rule or an observation depends on, directly or not; if judged, all."""
        if self.use.judged:
            return tuple(at for at in range(len(self._values)) if at not in self._constants)
        known = {self._relation.state[at]: self._constant(at) for at in self._constants}
        position = {leaf: at for at, leaf in enumerate(self._relation.state)}
        usable = self._usable()
        roots = [one.guard for one in usable]
        triggers = self._relation.triggers.items()
        roots += [*self._relation.claims.values(), *(one for name, one in triggers if not name.startswith("within:"))]
        wanted = {self._at[path] for path in self.use.observed}
        wanted |= self._read(ir.substitute(tuple(roots), {**self._bindings, **known}), position)
        updates = [ir.substitute(one.updates, known) for one in usable]
        todo = list(wanted)
        while todo:
            at = todo.pop()
            more = self._read(tuple(one[at] for one in updates), position) - wanted
            wanted |= more
            todo += more
        return tuple(at for at in sorted(wanted) if at not in self._constants)

    @staticmethod
    def _read(roots: tuple[Expr, ...], position: Mapping[Expr, int]) -> set[int]:
        return {position[leaf] for leaf in ir.variables(roots) if leaf in position}

    def _claim(self, claim: Expr) -> Claim:
        (bound,) = ir.substitute((claim,), {**self._bindings, **self._known})
        return cast("Claim", straight_line(self._state, (), bound, None))


def _value(domain: object, value: int) -> object:
    """An input as the function takes it."""
    if domain is bool:
        return bool(value)
    return member(domain, value) if isinstance(domain, type) and issubclass(domain, Enum) else value


def _literal(variable: Expr, value: int) -> Expr:
    return ir.const(bool(value)) if variable.sort is Sort.BOOL else ir.const(int(value))


def _initial(traced: Traced, policy: object) -> Flat:
    machine = traced.machine
    start = machine.initial[0]
    state = start(*machine.signature(start).arguments(policy, ()))
    return traced.relation.layout.flatten((state, machine.ghost() if machine.ghost else None))


def _parameters(traced: Traced, policy: object) -> dict[Expr, Expr]:
    relation_ = traced.relation
    if policy is None:
        return {}
    values = relation_.policy_layout.flatten(policy)
    return {
        leaf: _literal(leaf, value)
        for leaf, value, field in zip(relation_.policy, values, relation_.policy_layout.fields, strict=True)
        if field.path.removeprefix("policy.") not in traced.use.free
    }
