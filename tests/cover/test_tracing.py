"""Tracing is exact: on every input the traced expressions say what the function itself returns or refuses."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadreckon.models import expr as ir
from deadreckon.models.layout import Layout, parts
from deadreckon.models.symbolic import Symbolic, Traced, symbol
from deadreckon.models.tracing import Tracer
from deadreckon.spec import Refused, require
from deadreckon.spec.faithful import check_function
from deadreckon.spec.language import plain


class Phase(Enum):
    """Where something is."""

    IDLE = "idle"
    BUSY = "busy"
    DONE = "done"


@attrs.frozen
class Slot:
    """One of several."""

    owner: int
    armed: bool


@attrs.frozen
class State:
    """A bit of everything."""

    a: int
    b: int
    p: bool
    q: bool
    phase: Phase
    owners: tuple[int, ...]
    slots: tuple[Slot, ...]


LIMITS = (1, 2, 3)


def if_elif(s: State) -> int:
    if s.a > 2:
        return s.b
    elif s.a + 1 == s.b and s.b != 0:  # noqa: RET505  # the form under test
        result = 1
    elif not s.p:
        result = 2 * s.a - s.b * 3
    else:
        result = -s.a
    return result


def and_or_not(s: State) -> bool:
    return ((s.p or s.a < 1) and not (s.q and s.b >= s.a)) or 0 < s.a <= s.b < 3


def value_of_or(s: State) -> int:
    return s.a or s.b or 7


def value_of_and(s: State) -> int:
    return s.a and s.b


def for_over_range(s: State) -> int:
    total = 0
    for index in range(3):
        if s.owners[index] > s.a:
            total += s.owners[index]
        elif s.p:
            total -= 1
    return total


def generators(s: State) -> tuple[bool, bool, int, int, int]:
    return (
        any(owner == s.a for owner in s.owners),
        all(owner != 0 and slot.armed for owner, slot in zip(s.owners[1:], s.slots, strict=True)),
        sum(owner for owner in s.owners if owner > 0),
        min(owner + s.b for owner in s.owners),
        max(index * owner for index, owner in enumerate(s.owners)),
    )


def extremes(s: State) -> tuple[int, ...]:
    return (min(s.a, s.b), max(s.a, s.b, 1), min(s.owners), abs(s.a), abs(s.a - s.b) + abs(-2), max(s.owners) - 1)


def matched(s: State) -> int:
    match s.phase:
        case Phase.IDLE:
            return s.a
        case Phase.BUSY | Phase.DONE:
            match s.b:
                case 0:
                    return 10
                case 1 | 2:
                    return 20
    return 30


def matched_rest(s: State) -> bool:
    match s.phase:
        case Phase.DONE:
            return s.p
        case _:
            return not s.q


def early_return(s: State) -> State:
    if s.p:
        return s
    if s.phase == Phase.DONE:
        return attrs.evolve(s, phase=Phase.IDLE, a=0)
    return State(s.b, s.a, s.q, s.p, s.phase, s.owners[1:] + s.owners[:1], s.slots)


def conditional_expression(s: State) -> Phase:
    return Phase.BUSY if s.p else Phase.DONE if s.a > s.b else s.phase


def tuple_slices(s: State) -> tuple[int, ...]:
    first, second, third = s.owners
    return (*s.owners[:1], s.a, *s.owners[2:], *(second, third) * 2, *reversed((first, s.b)))


def bool_as_int(s: State) -> tuple[int, ...]:
    return (
        s.a + s.p,
        s.p + s.q,
        s.p * 3 - s.q,
        sum(flag for flag in (s.p, s.q, s.a > 0)),
        (1 if s.p == 1 else 0) + (1 if s.q != s.a else 0) + (1 if s.p == 2 else 0),
        (1 if s.p < s.q else 0) + (1 if s.p >= s.a else 0),
        -s.p,
        max(s.p, s.q) + min(s.a, 2),
    )


def bools_compared(s: State) -> tuple[bool, ...]:
    return (s.p == s.q, s.p != s.q, s.p == (s.a > 0), s.p == True, bool(s.a))  # noqa: E712  # the form under test


def enum_compared(s: State) -> tuple[bool, ...]:
    mirrored = Phase.DONE == s.phase  # noqa: SIM300  # the form under test
    return (s.phase == Phase.BUSY, s.phase != Phase.IDLE, mirrored, s.phase in (Phase.IDLE, Phase.DONE))


def membership(s: State) -> int:
    seen = 0
    for index, owner in enumerate(s.owners):
        if owner not in s.owners[:index] and owner in (s.a, s.b, 0):
            seen += 1
    return seen


def values_compared(s: State) -> tuple[bool, ...]:
    swapped = attrs.evolve(s, a=s.b, b=s.a)
    return (swapped == s, s.owners == (s.a, s.b, 0), s.slots[0] != s.slots[1], s.owners[:2] == s.owners[1:])


def grown(owner: int, by: int = 1) -> int:
    return owner + by if owner < 3 else owner


def armed(slot: Slot, deaths: int) -> Slot:
    if slot.owner == deaths:
        return Slot(grown(slot.owner), True)
    return attrs.evolve(slot, armed=slot.armed and deaths > 0)


def nested_helpers(s: State) -> State:
    slots = tuple(armed(slot, grown(s.a, by=2)) for slot in s.slots)
    return attrs.evolve(s, slots=slots, a=grown(grown(s.a)), b=LIMITS[1] + grown(s.b, 0))


def checked(s: State) -> int:
    require(s.a != 1, "H1", "one")
    if s.p:
        require(s.b > 0, "H2", "not positive")
        return s.b
    return s.a


def refuses_in_caller(s: State) -> State:
    require(s.phase == Phase.IDLE or s.p, "C1", "not idle")
    if s.a > s.b:
        require(not s.q, "C2", "q")
    require(s.a < 3, "C3", "too many")
    return attrs.evolve(s, a=s.a + 1)


def refuses_in_helpers(s: State) -> State:
    require(s.b != 2, "C4", "two")
    value = checked(s) + checked(attrs.evolve(s, a=s.b, b=s.a))
    require(value < 4, "C5", "too much")
    return attrs.evolve(s, a=value)


def refuses_in_any(s: State) -> bool:
    return any(checked(attrs.evolve(s, a=owner)) > 2 for owner in s.owners)


def stops_at_the_end(s: State) -> tuple[bool, bool]:
    return (
        any(index == 2 or s.owners[index + 1] == s.a for index in range(4)),
        all(index != 2 and s.owners[index + 1] > s.a for index in range(4)),
    )


def refuses_in_all(s: State) -> State:
    short = all(slot.armed or checked(attrs.evolve(s, b=slot.owner)) == 2 for slot in s.slots)
    return attrs.evolve(s, p=short, q=all(checked(s) > owner for owner in (1, s.a)))


def hopeless(s: State) -> int:
    if s.p:
        if s.q:
            require(False, "N1", "both")
        require(False, "N2", "one")
    require(False, "N3", "none")
    return 0


def refuses_always_in_a_helper(s: State) -> int:
    return hopeless(s) + s.b if s.a == 2 else s.b


def refuses_always(s: State) -> int:
    require(s.a > 0 and s.a < 0, "N4", "impossible")
    return s.a


FORMS: tuple[Callable[[State], object], ...] = (
    if_elif,
    and_or_not,
    value_of_or,
    value_of_and,
    for_over_range,
    generators,
    extremes,
    matched,
    matched_rest,
    early_return,
    conditional_expression,
    tuple_slices,
    bool_as_int,
    bools_compared,
    enum_compared,
    membership,
    values_compared,
    nested_helpers,
    refuses_in_caller,
    refuses_in_helpers,
    stops_at_the_end,
    refuses_in_any,
    refuses_in_all,
    refuses_always_in_a_helper,
    refuses_always,
)
SMALL = st.integers(-2, 4)
STATES = st.builds(
    State,
    SMALL,
    SMALL,
    st.booleans(),
    st.booleans(),
    st.sampled_from(Phase),
    st.tuples(SMALL, SMALL, SMALL),
    st.tuples(st.builds(Slot, SMALL, st.booleans()), st.builds(Slot, SMALL, st.booleans())),
)
SHAPE = Layout(State(0, 0, False, False, Phase.IDLE, (0, 0, 0), (Slot(0, False), Slot(0, False))))
LEAVES = tuple(ir.var(field.path, field.sort) for field in SHAPE.fields)
SYMBOLIC = SHAPE.rebuild(symbol(leaf, field.type) for leaf, field in zip(LEAVES, SHAPE.fields, strict=True))


def meaning(value: Any, state: State) -> object:
    """A traced value under the leaves of *state*: what it says the function returns."""
    flat = zip(LEAVES, SHAPE.flatten(state), SHAPE.fields, strict=True)
    bindings = {leaf: ir.const(bool(one) if field.type is bool else one) for leaf, one, field in flat}

    def walk(part: Any) -> object:
        if isinstance(part, ir.Expr):
            (folded,) = ir.substitute((part,), bindings)
            return folded.value
        if isinstance(part, Symbolic):
            (folded,) = ir.substitute((part.expr,), bindings)
            return symbol(folded, part.cls) if hasattr(part, "cls") else folded.value
        if isinstance(part, tuple):
            return tuple(map(walk, part))
        names = parts(part)
        return part if names is None else type(part)(*(walk(getattr(part, name)) for name in names))

    return walk(value)


def outcome(form: Callable[[State], object], state: State) -> tuple[object, list[tuple[str, str]]]:
    """What the function itself returns, or rule and reason of its refusal."""
    try:
        return form(state), []
    except Refused as refusal:
        return None, [(refusal.rule, refusal.why)]


@cache
def trace_of(form: Callable[[State], object]) -> Traced:
    return Tracer().trace(plain(form), (SYMBOLIC,))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@settings(max_examples=200)
@given(state=STATES)
def test_tracing_is_exact(form: Callable[[State], object], state: State) -> None:
    """The expressions of every allowed form say what the function returns, or why it refuses, for the same reason."""
    traced = trace_of(form)
    refusals = [(rule, why) for when, rule, why in traced.refusals if meaning(when, state)]
    expected, refused = outcome(form, state)
    assert meaning(traced.allowed, state) is not bool(refused)
    assert refusals == refused
    assert refused or meaning(traced.value, state) == expected


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_tracing_covers_what_the_static_check_allows(form: Callable[[State], object]) -> None:
    """Every form that is traced here is one that a machine may use."""
    check_function(plain(form), {})


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_tracing_concrete_arguments_folds_all(form: Callable[[State], object]) -> None:
    """On concrete arguments a trace is an ordinary call: one path, and nothing symbolic in the result."""
    state = State(1, 2, True, False, Phase.IDLE, (1, 0, 2), (Slot(1, True), Slot(0, False)))
    traced = Tracer().trace(plain(form), (state,))
    expected, refused = outcome(form, state)
    assert traced.allowed is ir.const(not refused)
    assert traced.value == expected
    assert traced.refusals == tuple((ir.TRUE, rule, why) for rule, why in refused)


CALLS: list[object] = []


def counting(value: int) -> int:
    CALLS.append(value)
    return value + 1 if value > 0 else value


def counting_caller(s: State) -> int:
    return counting(s.a) + counting(s.a) + counting(s.b) + counting(1) + counting(True)


def test_tracing_summarises_a_helper_once_for_equal_arguments() -> None:
    """A helper is traced once for each list of arguments, on its own paths, and its caller does not fork for it."""
    CALLS.clear()
    traced = Tracer().trace(plain(counting_caller), (SYMBOLIC,))
    assert len(CALLS) == 2 + 2 + 1 + 1
    assert traced.allowed is ir.TRUE


def same(left: object, right: object, condition: bool) -> object:
    return left if condition else right


def test_tracing_keeps_enums_apart_in_summaries() -> None:
    """Equal expressions that stand for members of different enums are different arguments."""

    class Other(Enum):
        ON = "on"
        OFF = "off"
        AWAY = "away"

    leaf = ir.var("leaf", ir.Sort.INT)
    tracer = Tracer()
    for cls in (Phase, Other):
        argument = symbol(leaf, cls)
        summarised = tracer._summarised(plain(same))(argument, argument, True)
        assert getattr(summarised, "cls", None) is cls


def test_tracing_leaves_the_function_as_it_is() -> None:
    """The machine's own function is not touched: builtins and helpers stay its own."""
    before = dict(plain(generators).__globals__)
    Tracer().trace(plain(generators), (SYMBOLIC,))
    assert dict(plain(generators).__globals__) == before
