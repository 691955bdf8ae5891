"""A machine: state, policy, actions, rules, scopes and known-bad variants, checked when it is declared."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from itertools import product
from types import MappingProxyType

import attrs

from .bounds import Scope, check_horizon, check_size, filled, sizes_of
from .errors import Refused, SpecError
from .faithful import check_function, check_state_class
from .language import Among, Between, Domain, Function, Kind, Rule, Swap, location, plain
from .rebind import Rebinder, with_defaults

Inputs = Mapping[str, object]
NO_INPUTS: Inputs = MappingProxyType({})


@attrs.frozen(eq=False)
class Action:
    """A transition and the domains of its inputs.

    ``function`` takes the policy (if the machine has one), the state, and the inputs by name; it returns the next
    state or refuses. ``domains`` covers every input: inputs annotated ``bool`` or with an enum have theirs already.
    """

    function: Function
    domains: Mapping[str, Domain]

    @property
    def name(self) -> str:
        """The name of the transition function."""
        return self.function.__name__

    def instances(self) -> Iterator[dict[str, object]]:
        """Every combination of inputs that exhaustive exploration tries."""
        yield from (
            dict(zip(self.domains, values, strict=True)) for values in product(*map(explored, self.domains.values()))
        )


def explored(domain: Domain) -> tuple[object, ...]:
    """The values of *domain* that exhaustive exploration tries."""
    match domain:
        case Among(values):
            return values
        case Between():
            return domain.explore
        case _ if domain is bool:
            return (False, True)
        case _:
            assert issubclass(domain, Enum)
            return tuple(domain)


def action(function: Callable[..., object], **domains: Domain) -> Action:
    """Declare *function* as an action; integer inputs need a domain, ``slot=Among(range(3))``."""
    function = plain(function)
    hints = hints_of(function)
    inputs = [name for name in inspect.signature(function).parameters if name in domains or _self_evident(hints[name])]
    unknown = set(domains) - set(inspect.signature(function).parameters)
    if unknown:
        raise SpecError(
            f"action {function.__name__} has no input {', '.join(sorted(unknown))}",
            where=location(function),
            instead=f"name one of its parameters: {', '.join(inspect.signature(function).parameters)}",
        )
    return Action(function, {name: domains.get(name, typing.cast("Domain", hints[name])) for name in inputs})


def _self_evident(hint: object) -> bool:
    return isinstance(hint, type) and (hint is bool or issubclass(hint, Enum))


@cache
def hints_of(function: Function) -> Mapping[str, object]:
    """The resolved annotations of *function*, which are looked up once.

    Raises:
        SpecError: when a parameter has none, or one that can't be resolved.
    """
    try:
        hints = typing.get_type_hints(function)
    except NameError as missing:
        raise SpecError(
            f"annotation of {function.__name__} can't be resolved ({missing})",
            where=location(function),
            instead="import the types at run time, not under TYPE_CHECKING",
        ) from missing
    for name in inspect.signature(function).parameters:
        if name not in hints:
            raise SpecError(
                f"parameter {name} of {function.__name__} has no annotation",
                where=location(function),
                instead="annotate every parameter; the engines tell policy, state and inputs apart by type",
            )
    return MappingProxyType(hints)


@attrs.frozen
class Signature:
    """Where a function of a machine wants policy, states, ghost and inputs; read off its annotations once.

    ``parts`` has one entry a parameter: the name of an input, or the type that tells the others apart.
    """

    parts: tuple[str | type, ...]
    policy: type | None
    ghost: type | None

    def arguments(
        self, policy: object, states: Iterable[object], ghost: object = None, inputs: Inputs = NO_INPUTS
    ) -> list[object]:
        """The arguments for a call; *states* are used up in their order (before, then after)."""
        rest = iter(states)
        return [
            inputs[part]
            if isinstance(part, str)
            else policy
            if part is self.policy
            else ghost
            if part is self.ghost
            else next(rest)
            for part in self.parts
        ]


@attrs.frozen(eq=False)
class Variant:
    """A known-bad design: the sound machine with a few helpers replaced, refuted by ``rule``.

    ``seen`` says where the design was met.
    """

    name: str
    rule: str
    sentence: str
    swaps: tuple[Swap, ...]
    seen: str = ""


@attrs.frozen(eq=False)
class Machine:
    """A state machine with its rules, ready for every engine.

    Args:
        name: short name, as in ``deadreckon check NAME``.
        title: one line of what the machine promises.
        state: the frozen attrs class of its states (integers, bools, enums, tuples and frozen attrs classes of these).
        initial: functions ``(policy) -> state``, one for each initial state.
        actions: its transitions.
        rules: its rules and lemmas.
        scopes: the bounds of exhaustive exploration.
        policy: the attrs class of its parameters, or None; ``policy_valid`` is their constraint.
        ghost: attrs class of what really happened, with defaults for the start; ``observe`` moves it on from
            ``(policy, before, after, ghost)``. No transition sees it.
        interchangeable: groups of tuple fields (dotted paths in the state) whose elements may be permuted together.
        terminal: states in which nothing more need happen; other states without a step are reported as deadlocks.
        variants: known-bad designs.

    Raises:
        SpecError: when anything in it can't be followed faithfully, is ambiguous, or can never run.
    """

    name: str
    title: str
    state: type
    initial: tuple[Function, ...]
    actions: tuple[Action, ...]
    rules: tuple[Rule, ...]
    scopes: tuple[Scope, ...]
    policy: type | None = None
    policy_valid: Function | None = None
    ghost: type | None = None
    observe: Function | None = None
    interchangeable: tuple[tuple[str, ...], ...] = ()
    terminal: Function | None = None
    variants: tuple[Variant, ...] = ()
    outline: str = ""

    def __attrs_post_init__(self) -> None:
        self._check_names()
        object.__setattr__(self, "actions", tuple(map(self._filled, self.actions)))
        for cls in (self.state, self.policy, self.ghost):
            if cls is not None:
                check_state_class(cls)
        if (self.ghost is None) != (self.observe is None):
            raise SpecError(
                f"machine {self.name} declares only one of ghost and observe",
                instead="declare both, or neither",
            )
        for act in self.actions:
            self._check_action(act)
        forbidden = {} if self.ghost is None else {self.ghost: "a ghost"}
        for function in (*self.initial, *(act.function for act in self.actions)):
            check_function(function, forbidden)
        for function in self._observers():
            check_function(function, {})
        self._check_parameters()
        self._check_horizons()
        for variant in self.variants:
            self._check_variant(variant)

    def _check_parameters(self) -> None:
        """States are told apart by their order alone, so each function takes as many as it is given."""
        at_most_one = (self.terminal, *(rule.when for rule in self.rules), *self._bounding())
        for function, least, most in (
            *((one, 0, 0) for one in (*self.initial, self.policy_valid)),
            *((one, 0, 1) for one in at_most_one),
            *((rule.holds, 0, 1 if rule.kind is Kind.EVENTUALLY else 2) for rule in self.rules),
            (self.observe, 2, 2),
        ):
            parts = () if function is None else self.signature(function).parts
            unknown = [part for part in parts if isinstance(part, str)]
            if function is not None and (unknown or not least <= parts.count(self.state) <= most):
                raise SpecError(
                    f"{function.__name__} takes {unknown[0] if unknown else 'another number of states'}",
                    where=location(function),
                    instead="policy and ghost where wanted; a rule of one state or (before, after), observe of both",
                )

    def _check_horizons(self) -> None:
        start = self.initial[0]
        for one in self.scopes:
            if one.at_most:
                state = start(*self.signature(start).arguments(one.policy, ()))
                check_horizon(one, state, self.ghost() if self.ghost else None)

    def _filled(self, act: Action) -> Action:
        where = location(act.function)
        return Action(act.function, {name: filled(one, self.sizes, where) for name, one in act.domains.items()})

    def _bounding(self) -> Iterator[Function | None]:
        yield from (function for one in self.scopes for function in (one.within, *one.measures.values()))

    def _observers(self) -> Iterator[Function]:
        optional = (self.policy_valid, self.observe, self.terminal, *(rule.when for rule in self.rules))
        yield from (function for function in (*optional, *self._bounding()) if function is not None)
        yield from (rule.holds for rule in self.rules)

    def _check_names(self) -> None:
        if not self.actions:
            raise SpecError(f"machine {self.name} has no action", instead="declare actions=(action(...), ...)")
        if not self.initial:
            raise SpecError(f"machine {self.name} has no initial state", instead="declare initial=(function,)")
        if not self.scopes:
            raise SpecError(f"machine {self.name} has no scope", instead="declare scopes=(scope(...),)")
        for what, names in (
            ("action", [act.name for act in self.actions]),
            ("rule", [rule.id for rule in self.rules]),
            ("variant", [variant.name for variant in self.variants]),
            ("scope", [scope.name for scope in self.scopes]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise SpecError(f"machine {self.name} has two of {what} {twice[0]}", instead="rename one of them")
        self._check_references()

    def _check_references(self) -> None:
        ids = {rule.id for rule in self.rules}
        actions = {act.name for act in self.actions}
        for rule in self.rules:
            for known, used, what in ((ids, rule.beside, "rule"), (actions, (*rule.on, *rule.fair), "action")):
                for missing in sorted(set(used) - known):
                    raise SpecError(
                        f"rule {rule.id} names the unknown {what} {missing}",
                        where=location(rule.holds),
                        instead=f"one of {', '.join(sorted(known))}",
                    )
        covered = {name for rule in self.rules for name in rule.beside}
        for rule in self.rules:
            if rule.kind is Kind.ALWAYS and not rule.lemma and rule.id not in covered:
                raise SpecError(
                    f"no 'sometimes' stands beside rule {rule.id}, which may be vacuous",
                    where=location(rule.holds),
                    instead=f"declare a sometimes rule with beside=({rule.id!r},)",
                )

    def _check_action(self, act: Action) -> None:
        for name, hint in hints_of(act.function).items():
            if name == "return" or name in act.domains:
                continue
            if hint is self.ghost and hint is not None:
                raise SpecError(
                    f"action {act.name} reads a ghost",
                    where=location(act.function),
                    instead="keep what a transition needs in the state; ghosts are for rules alone",
                )
            if hint not in (self.state, self.policy):
                raise SpecError(
                    f"input {name} of action {act.name} has no domain",
                    where=location(act.function),
                    instead=f"action({act.name}, {name}=Among(...)) or {name}=Between(...)",
                )
        if any(not explored(domain) for domain in act.domains.values()):
            raise SpecError(
                f"action {act.name} can never run: an input has no value",
                where=location(act.function),
                instead="give each domain at least one value",
            )

    def _check_variant(self, variant: Variant) -> None:
        if variant.rule not in {rule.id for rule in self.rules}:
            raise SpecError(f"variant {variant.name} names the unknown rule {variant.rule}", instead="use a rule's id")
        changed = self.variant(variant.name)
        for one in variant.swaps:
            if inspect.signature(one.old) != inspect.signature(one.new):
                raise SpecError(
                    f"variant {variant.name} replaces {one.old.__name__} by a function of another signature",
                    where=location(one.new),
                    instead=f"def {one.new.__name__}{inspect.signature(one.old)}",
                )
            check_function(one.new, {} if self.ghost is None else {self.ghost: "a ghost"})
        if all(new.function is old.function for new, old in zip(changed.actions, self.actions, strict=True)):
            raise SpecError(
                f"variant {variant.name} changes no action",
                instead="replace a helper that an action calls, directly or through others",
            )

    def variant(self, name: str) -> Machine:
        """The machine of the known-bad variant *name*; rules, ghosts and scopes stay those of the sound one."""
        variant = next((one for one in self.variants if one.name == name), None)
        if variant is None:
            known = ", ".join(one.name for one in self.variants) or "none"
            raise SpecError(f"machine {self.name} has no variant {name}", instead=f"one of: {known}")
        rebinder = Rebinder({one.old: one.new for one in variant.swaps})
        actions = tuple(attrs.evolve(act, function=rebinder.rebound(act.function)) for act in self.actions)
        changed: Machine = object.__new__(Machine)
        for field in attrs.fields(Machine):
            object.__setattr__(changed, field.name, getattr(self, field.name))
        object.__setattr__(changed, "actions", actions)
        object.__setattr__(changed, "variants", ())
        return changed

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many of each the machine is built with (slots, say): what its initial states have as defaults."""
        return {name: number for start in self.initial for name, number in sizes_of(start).items()}

    def sized(self, **sizes: int) -> Machine:
        """The same machine, variants too, built with other *sizes*.

        Raises:
            SpecError: when it has no such size, or can't be built with this one.
        """
        for name, number in sizes.items():
            check_size(name, number)
            if name not in self.sizes:
                known = ", ".join(self.sizes) or "none"
                raise SpecError(f"machine {self.name} has no size {name}", instead=f"one of: {known}")
        return attrs.evolve(self, initial=tuple(with_defaults(start, sizes) for start in self.initial))

    def rule(self, id: str) -> Rule:
        """The rule with this id."""
        return next(rule for rule in self.rules if rule.id == id)

    def action(self, name: str) -> Action:
        """The action of this name.

        Raises:
            SpecError: if there is none.
        """
        for act in self.actions:
            if act.name == name:
                return act
        raise SpecError(
            f"machine {self.name} has no action {name}",
            instead=f"one of: {', '.join(act.name for act in self.actions)}",
        )

    def signature(self, function: Function) -> Signature:
        """How *function*, one of this machine's, is called."""
        hints = hints_of(function)
        known = (self.state, self.policy, self.ghost)
        parts = tuple(
            hint if isinstance(hint, type) and hint in known else name
            for name, hint in hints.items()
            if name != "return" and not (function in self.initial and name in self.sizes)
        )
        return Signature(parts, self.policy, self.ghost)

    def step(self, policy: object, state: object, name: str, inputs: Inputs) -> object:
        """The state after action *name*.

        Raises:
            Refused: with event and state filled in; nothing was changed.
        """
        act = self.action(name)
        try:
            return act.function(*self.signature(act.function).arguments(policy, (state,), None, inputs))
        except Refused as refusal:
            refusal.event, refusal.state = name, state
            raise
