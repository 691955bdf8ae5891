"""The few words that transitions and rules are written in, beside ordinary Python.

A transition is a pure, typed, module-level function ``(policy, state, inputs...) -> state`` over frozen attrs
classes. It may refuse, with :func:`require`; it may call other module-level functions (*helpers*), which the tracer
follows apart and merges. A rule is such a function that returns ``bool``; the decorators :func:`always`,
:func:`sometimes` and :func:`eventually` give it its id, sentence and source.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import CodeType, FunctionType
from typing import Any, Final, Protocol, TypeVar, cast

import attrs

from .errors import PolicyError, Refused, SpecError

UNLIMITED: Final = 2**63 - 1
"""A limit that is never reached, as an explicit value (the largest integer that every store keeps)."""

F = TypeVar("F", bound=Callable[..., object])


class Function(Protocol):
    """A function defined with ``def``, of any signature."""

    __name__: str
    __qualname__: str
    __module__: str
    __code__: CodeType
    __kwdefaults__: dict[str, Any] | None  # Any: as the standard library declares it
    __defaults__: tuple[Any, ...] | None  # ditto
    __annotations__: dict[str, Any]  # ditto

    def __hash__(self) -> int: ...

    @property
    def __globals__(self) -> dict[str, Any]: ...  # ditto

    def __call__(self, *arguments: Any, **named: Any) -> object: ...  # Any: this is how "any signature" is written


def require(condition: bool, rule: str, why: str) -> None:
    """Refuse the event unless *condition* holds.

    Args:
        condition: the guard.
        rule: id of the rule that this guard keeps.
        why: the reason of the refusal, in words for whoever sent the event.

    Raises:
        Refused: when *condition* is false. Nothing was changed.
    """
    if not condition:
        raise Refused(rule, why)


def check_policy(policy: object, valid: Callable[..., bool]) -> None:
    """Refuse *policy* unless it keeps its constraint, whose refusals name the field.

    Raises:
        PolicyError: with the field, its value, and what to give.
    """
    try:
        valid(policy)
    except Refused as refusal:
        raise PolicyError(f"{refusal.rule} is {getattr(policy, refusal.rule)}: {refusal.why}") from None


@attrs.frozen
class Among:
    """A finite input: each value is tried, and may be used as an index.

    ``size`` names the size of the machine that the values are the indices below; see :func:`each`.
    """

    values: tuple[int, ...]
    size: str = ""


def each(size: str) -> Among:
    """An input that is an index below the size called *size*; the machine fills the values in."""
    return Among((), size)


@attrs.frozen
class Between:
    """An integer input in ``[low, high]`` (no upper end when *high* is None): symbolic in proofs, sampled elsewhere.

    ``explore`` are the values that exhaustive exploration tries.
    """

    low: int
    high: int | None
    explore: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        inside = all(self.low <= value and (self.high is None or value <= self.high) for value in self.explore)
        if not inside or (self.high is not None and self.low > self.high):
            raise SpecError(f"{self} is empty, or explores a value outside of it", instead="low <= explore <= high")


Domain = Among | Between | type[bool] | type[Enum]


class Kind(Enum):
    """What a rule claims."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    EVENTUALLY = "eventually"


@attrs.frozen(eq=False)
class Rule:
    """A claim about a machine, with its id, its sentence and its source.

    ``holds`` takes the machine's policy, one state (or two: before and after a step) and the ghost, told apart by
    their annotations, in this order; policy and ghost may be left out. A rule over steps may be confined to the
    actions named in ``on``. ``beside`` (of a *sometimes*) names the *always* rules that it keeps from being vacuous.
    An *eventually* rule says: whenever ``when`` holds, ``holds`` follows, provided that each action in ``fair`` is
    taken if it stays possible (weak fairness).
    A ``lemma`` is an *always* rule that exists to make others inductive.
    """

    id: str
    kind: Kind
    sentence: str
    source: str
    holds: Function
    on: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    when: Function | None = None
    fair: tuple[str, ...] = ()
    lemma: bool = False

    def __attrs_post_init__(self) -> None:
        where = location(self.holds)
        for name in ("id", "sentence", "source"):
            if not getattr(self, name).strip():
                raise SpecError(
                    f"rule {self.id or self.holds.__name__!r} has no {name}",
                    where=where,
                    instead=f"give {name}= as a non-empty string",
                )
        if self.kind is Kind.SOMETIMES and not self.beside:
            raise SpecError(
                f"'sometimes' rule {self.id} stands beside no rule",
                where=where,
                instead="name the always-rules that it keeps from being vacuous, beside=('C1',)",
            )
        if self.kind is Kind.EVENTUALLY and not self.fair:
            raise SpecError(
                f"'eventually' rule {self.id} states no fairness",
                where=where,
                instead="name the actions that are taken if they stay possible, fair=('boot', 'sync')",
            )


RuleMaker = Callable[[Callable[..., bool]], Rule]


def always(id: str, sentence: str, *, source: str, on: tuple[str, ...] = (), lemma: bool = False) -> RuleMaker:
    """Declare a rule that holds in every reachable state (or step, if the function takes two states)."""
    return lambda holds: Rule(id, Kind.ALWAYS, sentence, source, plain(holds), on=on, lemma=lemma)


def sometimes(id: str, sentence: str, *, source: str, beside: tuple[str, ...], on: tuple[str, ...] = ()) -> RuleMaker:
    """Declare that a state (or step) is reachable, so that the rules in *beside* are not vacuous."""
    return lambda holds: Rule(id, Kind.SOMETIMES, sentence, source, plain(holds), on=on, beside=beside)


def eventually(id: str, sentence: str, *, source: str, when: Callable[..., bool], fair: tuple[str, ...]) -> RuleMaker:
    """Declare that *when* leads to the decorated condition, given weak fairness of the actions in *fair*."""
    return lambda holds: Rule(id, Kind.EVENTUALLY, sentence, source, plain(holds), when=plain(when), fair=fair)


@attrs.frozen(eq=False)
class Swap:
    """In a variant, every call of ``old`` becomes a call of ``new``."""

    old: Function
    new: Function


def swap(old: F, new: F) -> Swap:
    """Replace *old* by *new* in a known-bad variant; both have the same type, which mypy holds."""
    return Swap(plain(old), plain(new))


def plain(function: Callable[..., object]) -> Function:
    """The argument itself, if it is a plain module-level function.

    Raises:
        SpecError: for lambdas, methods, nested functions, partials and other callables.
    """
    if not isinstance(function, FunctionType) or "<" in function.__qualname__ or "." in function.__qualname__:
        raise SpecError(
            f"{function!r} is not a module-level function",
            where=location(cast("Function", function)) if isinstance(function, FunctionType) else "",
            instead="write it as a function of its own with def, at the top level of the module",
        )
    return cast("Function", function)


def location(function: Function, line: int | None = None) -> str:
    """``file:line`` of *function*, or of a given line in its file."""
    code = function.__code__
    return f"{code.co_filename}:{line or code.co_firstlineno}"
