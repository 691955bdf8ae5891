"""A machine is checked when it is declared: what is ambiguous, vacuous or can never run is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from deadreckon.spec import (
    Among,
    Between,
    Kind,
    Machine,
    Refused,
    Rule,
    SpecError,
    Variant,
    action,
    always,
    each,
    eventually,
    explored,
    require,
    scope,
    sometimes,
    swap,
)
from deadreckon.spec.bounds import Horizons
from deadreckon.spec.language import location, plain

if TYPE_CHECKING:
    from decimal import Decimal


@attrs.frozen
class Policy:
    most: int = 3


class Side(Enum):
    LEFT = "left"
    RIGHT = "right"


@attrs.frozen
class State:
    count: int
    side: Side


@attrs.frozen
class Ghost:
    seen: int = 0


def initial() -> State:
    return State(0, Side.LEFT)


def initial_of_state(state: State) -> State:
    return state


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    return Ghost(ghost.seen + (1 if before.count != after.count else 0))


def observe_after(after: State, ghost: Ghost) -> Ghost:
    return Ghost(ghost.seen + after.count)


def grown(count: int, by: int) -> int:
    return count + by


def never_grown(count: int, by: int) -> int:
    return count


def grown_by_one(count: int) -> int:
    return count + 1


def untraceable(count: int, by: int) -> int:
    return count // by


def unused(count: int) -> int:
    return count


def add(policy: Policy, state: State, by: int) -> State:
    """The count grows."""
    require(state.count + by <= policy.most, "A1", "too many")
    return attrs.evolve(state, count=grown(state.count, by))


def turn(state: State, side: Side, again: bool) -> State:
    return attrs.evolve(state, side=side)


def peek(state: State, ghost: Ghost) -> State:
    return attrs.evolve(state, count=ghost.seen)


def haunt(state: State) -> State:
    return attrs.evolve(state, count=Ghost().seen)


def unannotated(state: State, by) -> State:  # type: ignore[no-untyped-def]  # refused
    return state


def unresolved(state: State, by: Decimal) -> State:
    return state


def slow(state: State) -> State:
    while state.count < 3:
        state = attrs.evolve(state, count=state.count + 1)
    return state


def small(policy: Policy, state: State) -> bool:
    return state.count <= policy.most


def both_small(before: State, after: State) -> bool:
    return before.count == after.count


def of_a_limit(state: State, limit: int) -> bool:
    return state.count < limit


def valid_state(policy: Policy, state: State) -> bool:
    return policy.most > state.count


def a1_holds(state: State) -> bool:
    return state.count >= 0


def three_states(before: State, between: State, after: State) -> bool:
    return before == after


A1 = always("A1", "the count is positive", source="here")(a1_holds)
S1 = sometimes("S1", "it is one", source="here", beside=("A1",))(a1_holds)
E1 = eventually("E1", "it grows", source="here", when=a1_holds, fair=("add",))(a1_holds)
ADD, TURN = action(add, by=Between(1, 2, explore=(1, 2))), action(turn)
SMALL = scope("small", why="bounded by the policy", within=small, policy=Policy())
SLOWED = Variant("slowed", "A1", "it does not grow", (swap(grown, never_grown),))
good = Machine(
    name="good",
    title="A count.",
    state=State,
    policy=Policy,
    initial=(initial,),
    ghost=Ghost,
    observe=observe,
    actions=(ADD, TURN),
    rules=(A1, S1, E1),
    scopes=(SMALL,),
    variants=(SLOWED,),
)


def mistyped(old: Callable[..., object], new: Callable[..., object]) -> Any:
    """A swap that mypy would refuse."""
    return swap(old, new)


def rule(kind: Kind = Kind.ALWAYS, **changes: object) -> Rule:
    given: dict[str, Any] = {"id": "X", "kind": kind, "sentence": "it is so", "source": "here"}
    return Rule(**{**given, "holds": plain(a1_holds), **changes})


@attrs.define
class Loose: ...


Case = tuple[Callable[[], object], str, str, Callable[..., object] | type | None]
REFUSED: dict[str, Case] = {
    "no action": (lambda: attrs.evolve(good, actions=()), "machine good has no action", "actions=(action", None),
    "no initial state": (lambda: attrs.evolve(good, initial=()), "has no initial state", "initial=(function,)", None),
    "no scope": (lambda: attrs.evolve(good, scopes=()), "has no scope", "scopes=(scope", None),
    "two actions": (lambda: attrs.evolve(good, actions=(ADD, TURN, ADD)), "two of action add", "rename", None),
    "two rules": (lambda: attrs.evolve(good, rules=(A1, S1, A1)), "two of rule A1", "rename", None),
    "two scopes": (lambda: attrs.evolve(good, scopes=(SMALL, SMALL)), "two of scope small", "rename", None),
    "two variants": (lambda: attrs.evolve(good, variants=(SLOWED, SLOWED)), "two of variant slowed", "rename", None),
    "rule without id": (lambda: rule(id=""), "rule 'a1_holds' has no id", "give id=", a1_holds),
    "rule without sentence": (lambda: rule(sentence=" "), "rule 'X' has no sentence", "give sentence=", a1_holds),
    "rule without source": (lambda: rule(source=""), "rule 'X' has no source", "give source=", a1_holds),
    "sometimes beside nothing": (lambda: rule(Kind.SOMETIMES), "X stands beside no rule", "beside=('C1',)", a1_holds),
    "eventually without fairness": (lambda: rule(Kind.EVENTUALLY), "X states no fairness", "fair=('boot'", a1_holds),
    "beside an unknown rule": (
        lambda: attrs.evolve(good, rules=(A1, S1, attrs.evolve(S1, id="S2", beside=("Z9",)))),
        "rule S2 names the unknown rule Z9", "one of A1, S1, S2", a1_holds),
    "always without a sometimes": (
        lambda: attrs.evolve(good, rules=(A1,), variants=()),
        "no 'sometimes' stands beside rule A1", "beside=('A1',)", a1_holds),
    "on an unknown action": (
        lambda: attrs.evolve(good, rules=(attrs.evolve(A1, on=("add", "sub")), S1)),
        "rule A1 names the unknown action sub", "one of add, turn", a1_holds),
    "fair to an unknown action": (
        lambda: attrs.evolve(good, rules=(A1, S1, attrs.evolve(E1, fair=("sub",)))),
        "rule E1 names the unknown action sub", "one of add, turn", a1_holds),
    "ghost without observe": (lambda: attrs.evolve(good, observe=None), "only one of ghost and observe", "both", None),
    "observe without ghost": (lambda: attrs.evolve(good, ghost=None), "only one of ghost and observe", "both", None),
    "observe of one state": (
        lambda: attrs.evolve(good, observe=observe_after),
        "observe_after takes another number of states", "observe of both", observe_after),
    "initial of a state": (
        lambda: attrs.evolve(good, initial=(initial_of_state,)),
        "initial_of_state takes another number of states", "(before, after)", initial_of_state),
    "rule of three states": (
        lambda: attrs.evolve(good, rules=(attrs.evolve(A1, holds=plain(three_states)), S1)),
        "three_states takes another number of states", "a rule of one state or (before, after)", three_states),
    "eventually over steps": (
        lambda: attrs.evolve(good, rules=(A1, S1, attrs.evolve(E1, holds=plain(both_small)))),
        "both_small takes another number of states", "(before, after)", both_small),
    "trigger over steps": (
        lambda: attrs.evolve(good, rules=(A1, S1, attrs.evolve(E1, when=plain(both_small)))),
        "both_small takes another number of states", "(before, after)", both_small),
    "scope over steps": (
        lambda: attrs.evolve(good, scopes=(attrs.evolve(SMALL, within=plain(both_small)),)),
        "both_small takes another number of states", "(before, after)", both_small),
    "terminal over steps": (
        lambda: attrs.evolve(good, terminal=both_small),
        "both_small takes another number of states", "(before, after)", both_small),
    "constraint over states": (
        lambda: attrs.evolve(good, policy_valid=valid_state),
        "valid_state takes another number of states", "(before, after)", valid_state),
    "rule of something else": (
        lambda: attrs.evolve(good, rules=(attrs.evolve(A1, holds=plain(of_a_limit)), S1)),
        "of_a_limit takes limit", "policy and ghost where wanted", of_a_limit),
    "action that reads a ghost": (
        lambda: attrs.evolve(good, actions=(ADD, action(peek)), rules=(A1, S1)),
        "action peek reads a ghost", "ghosts are for rules alone", peek),
    "action that makes a ghost": (
        lambda: attrs.evolve(good, actions=(ADD, action(haunt)), rules=(A1, S1)), "haunt reads a ghost",
        "ghosts are for rules alone", Ghost),
    "input without domain": (
        lambda: attrs.evolve(good, actions=(action(add),)), "input by of action add has no domain",
        "action(add, by=Among(...))", add),
    "empty domain": (
        lambda: attrs.evolve(good, actions=(action(add, by=Among(())),)), "action add can never run: an input has no",
        "at least one value", add),
    "domain of no input": (
        lambda: action(add, to=Among((1,))), "action add has no input to", "policy, state, by", add),
    "input without annotation": (lambda: action(unannotated), "parameter by of unannotated", "annotate", unannotated),
    "annotation out of reach": (lambda: action(unresolved), "can't be resolved", "not under TYPE_CHECKING", unresolved),
    "range without an end": (lambda: Between(2, 1, explore=()), "is empty", "low <= explore <= high", None),
    "value below the range": (lambda: Between(1, None, explore=(0, 1)), "a value outside", "low <= explore", None),
    "value above the range": (lambda: Between(1, 2, explore=(2, 3)), "a value outside", "low <= explore", None),
    "variant of another signature": (
        lambda: attrs.evolve(good, variants=(attrs.evolve(SLOWED, swaps=(mistyped(grown, grown_by_one),)),)),
        "replaces grown by a function of another signature", "def grown_by_one(count: 'int', by: 'int')", grown_by_one),
    "variant of an unknown rule": (
        lambda: attrs.evolve(good, variants=(attrs.evolve(SLOWED, rule="Z9"),)), "names the unknown rule Z9",
        "a rule's id", None),
    "variant that changes nothing": (
        lambda: attrs.evolve(good, variants=(attrs.evolve(SLOWED, swaps=(swap(unused, grown_by_one),)),)),
        "variant slowed changes no action", "a helper that an action calls", None),
    "unknown variant": (lambda: good.variant("fast"), "machine good has no variant fast", "one of: slowed", None),
    "no variant at all": (lambda: good.variant("slowed").variant("slowed"), "no variant slowed", "none", None),
    "unknown action": (lambda: good.action("sub"), "machine good has no action sub", "one of: add, turn", None),
    "state that is not frozen": (lambda: attrs.evolve(good, state=Loose), "not a frozen attrs class", "frozen", Loose),
    "policy that is not frozen": (lambda: attrs.evolve(good, policy=Loose), "not a frozen", "frozen", Loose),
    "ghost that is not frozen": (lambda: attrs.evolve(good, ghost=Loose), "not a frozen", "frozen", Loose),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_definition_is_refused(case: str) -> None:
    """What can't be checked is refused where it is declared, with the place, the reason and what to write instead."""
    declare, what, instead, place = REFUSED[case]
    with pytest.raises(SpecError, match=re.escape(what)) as refusal:
        declare()
    assert instead in refusal.value.instead
    message = str(refusal.value)
    assert message.endswith(f" Instead: {refusal.value.instead}.")
    if place is None:
        assert not refusal.value.where
    elif isinstance(place, type):
        assert message.startswith(f"{__file__}:")
    else:
        assert message.startswith(f"{location(plain(place))}: ")


NESTED: dict[str, Callable[[Any], object]] = {
    "a lambda": lambda use: use(lambda state: state),
    "a nested function": lambda use: use(nested()),
    "a method": lambda use: use(Holder.method),
    "a builtin": lambda use: use(len),
    "a class": lambda use: use(State),
}


class Holder:
    def method(self) -> None: ...


def nested() -> Callable[[State], State]:
    def inner(state: State) -> State:
        return state

    return inner


USES: dict[str, Callable[[Any], object]] = {
    "action": action,
    "always": always("X", "it is so", source="here"),
    "sometimes": sometimes("X", "it is so", source="here", beside=("Y",)),
    "eventually": lambda function: eventually("X", "s", source="here", when=function, fair=("add",))(a1_holds),
    "swap": lambda function: swap(grown, function),
    "swapped": lambda function: swap(function, grown),
    "scope": lambda function: scope("x", why="y", within=function),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("case", NESTED)
def test_definition_of_no_module_level_function_is_refused(case: str, use: str) -> None:
    """A lambda, a nested function, a method or a class is no function of a machine; its place is named."""
    with pytest.raises(SpecError, match="is not a module-level function") as refusal:
        NESTED[case](USES[use])
    assert refusal.value.instead == "write it as a function of its own with def, at the top level of the module"
    assert refusal.value.where.startswith(f"{__file__}:") == (case not in ("a builtin", "a class"))


UNTRACEABLE: dict[str, Callable[[], object]] = {
    "an action": lambda: attrs.evolve(good, actions=(action(slow),), rules=(A1, S1), variants=()),
    "an initial state": lambda: attrs.evolve(good, initial=(slow,)),
    "a constraint": lambda: attrs.evolve(good, policy_valid=plain(slow)),
    "an observer": lambda: attrs.evolve(good, observe=plain(slow)),
    "a terminal condition": lambda: attrs.evolve(good, terminal=plain(slow)),
    "a scope": lambda: attrs.evolve(good, scopes=(attrs.evolve(SMALL, within=plain(slow)),)),
    "a rule": lambda: attrs.evolve(good, rules=(attrs.evolve(A1, holds=plain(slow)), S1)),
    "a trigger": lambda: attrs.evolve(good, rules=(A1, S1, attrs.evolve(E1, when=plain(slow)))),
}


@pytest.mark.parametrize("case", UNTRACEABLE)
def test_definition_checks_the_form_of_every_function(case: str) -> None:
    """Every function that an engine would trace is checked for its form, whatever it is for."""
    with pytest.raises(SpecError, match="slow loops with while") as refusal:
        UNTRACEABLE[case]()
    assert refusal.value.where == f"{__file__}:{slow.__code__.co_firstlineno + 1}"


def test_definition_lemma_needs_nothing_beside_it() -> None:
    """A lemma exists to make others inductive, so no sometimes stands beside it."""
    lemma = attrs.evolve(A1, id="L1", lemma=True)
    assert attrs.evolve(good, rules=(A1, S1, E1, lemma)).rule("L1") is lemma


def test_definition_checks_the_form_of_replacements() -> None:
    """The replacements of a variant are checked like the helpers that they replace."""
    with pytest.raises(SpecError, match="untraceable divides with //"):
        attrs.evolve(good, variants=(attrs.evolve(SLOWED, swaps=(swap(grown, untraceable),)),))


def test_definition_knows_evident_domains() -> None:
    """A bool or an enum has its own domain; the instances of an action are all combinations, in order."""
    domains = {name: explored(domain) for name, domain in TURN.domains.items()}
    assert domains == {"side": tuple(Side), "again": (False, True)}
    pairs = [(side, again) for side in Side for again in (False, True)]
    assert [tuple(inputs.values()) for inputs in TURN.instances()] == pairs
    assert list(ADD.instances()) == [{"by": 1}, {"by": 2}]


def test_definition_of_a_variant_changes_its_actions_alone() -> None:
    """A variant has the rules and scopes of the sound machine, other actions, and no variants; the sound one stays."""
    slowed = good.variant("slowed")
    assert slowed.step(Policy(), initial(), "add", {"by": 1}) == initial()
    assert good.step(Policy(), initial(), "add", {"by": 1}) == State(1, Side.LEFT)
    assert slowed.action("turn").function is turn
    assert slowed.variants == ()
    assert (slowed.rules, slowed.scopes, slowed.name) == (good.rules, good.scopes, good.name)


def test_definition_tells_arguments_apart_by_type() -> None:
    """Policy, states and ghost are given by type, states in their order, and inputs by name."""
    before, after, ghost, policy = State(0, Side.LEFT), State(1, Side.LEFT), Ghost(), Policy()
    assert good.signature(plain(observe)).arguments(policy, (before, after), ghost) == [before, after, ghost]
    assert good.signature(plain(add)).arguments(policy, (before,), ghost, {"by": 2}) == [policy, before, 2]


def test_definition_step_says_what_was_refused() -> None:
    """A refused event names rule, reason, event and state."""
    with pytest.raises(Refused) as refusal:
        good.step(Policy(0), initial(), "add", {"by": 1})
    error = refusal.value
    assert (error.rule, error.why, error.event, error.state) == ("A1", "too many", "add", initial())
    assert str(refusal.value).startswith("add refused by A1: too many")


# Bounds: horizons and sizes.


@attrs.frozen
class Rooms:
    """A row of rooms, each with its guests."""

    guests: tuple[int, ...]
    hour: int
    open: bool


def rooms(rooms: int = 2) -> Rooms:
    return Rooms(tuple(0 for _ in range(rooms)), 0, True)


def of_ten(policy: Policy, rooms: int = 10, *, keys: int = 1) -> Rooms:
    return Rooms(tuple(0 for _ in range(rooms + keys)), 0, True)


def no_rooms(rooms: int = 0) -> Rooms:
    return Rooms((), rooms, True)


def enters(guests: int) -> int:
    return guests + 1


def leaves(guests: int) -> int:
    return guests


def enter(state: Rooms, room: int) -> Rooms:
    guests = (*state.guests[:room], enters(state.guests[room]), *state.guests[room + 1 :])
    return attrs.evolve(state, guests=guests)


def wait(state: Rooms, hours: int) -> Rooms:
    return attrs.evolve(state, hour=state.hour + hours)


def crowd(state: Rooms) -> int:
    return sum(state.guests)


def hour(state: Rooms) -> int:
    return state.hour


def crowd_after(before: Rooms, after: Rooms) -> int:
    return sum(after.guests) - sum(before.guests)


def crowd_divided(state: Rooms) -> int:
    return state.hour // 2


@always("A1", "nobody is owed", source="here")
def nobody_is_owed(state: Rooms) -> bool:
    return all(guests >= 0 for guests in state.guests)


@sometimes("S1", "somebody is there", source="here", beside=("A1",))
def somebody(state: Rooms) -> bool:
    return any(guests > 0 for guests in state.guests)


HOTEL = Machine(
    name="hotel",
    title="Rooms.",
    state=Rooms,
    initial=(plain(rooms),),
    actions=(action(enter, room=each("rooms")), action(wait, hours=Between(1, None, (1,)))),
    rules=(nobody_is_owed, somebody),
    scopes=(scope("evening", why="it is short", at_most={crowd: 3, "hour": 0, "guests[1]": 1}),),
    interchangeable=(("guests",),),
    variants=(Variant("empty", "S1", "nobody comes", (swap(enters, leaves),)),),
)


def test_horizon_of_a_field_and_of_a_function() -> None:
    """A horizon is the greatest value of a number field, by its path, or of a function, by its name."""
    (evening,) = HOTEL.scopes
    assert dict(evening.at_most) == {"crowd": 3, "hour": 0, "guests[1]": 1}
    assert dict(evening.measures) == {"crowd": crowd}
    assert evening.within is None


@pytest.mark.parametrize(
    ("at_most", "error"),
    {
        "no field": ({"minute": 1}, r"scope s bounds minute, .* guests\[0\], guests\[1\], hour"),
        "no number": ({"open": 1}, r"bounds open, which is no number of the state"),
        "a whole tuple": ({"guests": 1}, r"bounds guests, which is no number"),
        "a field and a function": ({hour: 1}, r"bounds hour, a field and a function"),
        "of a step": ({crowd_after: 1}, r"crowd_after takes another number of states"),
        "that can't be followed": ({crowd_divided: 1}, r"crowd_divided divides"),
    }.values(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_horizon_that_is_of_no_number_is_refused(at_most: Horizons, error: str) -> None:
    """A horizon that names no number field, or a function that gives none, is refused with what there is."""
    with pytest.raises(SpecError, match=error):
        attrs.evolve(HOTEL, scopes=(scope("s", why="w", at_most=at_most),))


def test_horizon_that_is_no_integer_is_refused() -> None:
    """A horizon is an integer."""
    with pytest.raises(SpecError, match="scope s bounds hour by True"):
        scope("s", why="w", at_most={"hour": True})


def test_horizon_of_a_ghost() -> None:
    """What really happened has horizons too."""
    bounded = attrs.evolve(good, scopes=(scope("s", why="w", at_most={"ghost.seen": 2}, policy=Policy()),))
    assert dict(bounded.scopes[0].at_most) == {"ghost.seen": 2}


def test_size_is_a_default_of_the_initial_state() -> None:
    """What an initial state has as defaults are the sizes; `each` of one is the indices below it."""
    assert dict(HOTEL.sizes) == {"rooms": 2}
    assert HOTEL.action("enter").domains["room"] == Among((0, 1), "rooms")


def test_sized_machine_has_other_states_and_inputs() -> None:
    """The same machine of another size: initial states and inputs follow, in variants too; the first is untouched."""
    larger = HOTEL.sized(rooms=4)
    assert larger.initial[0]() == Rooms((0, 0, 0, 0), 0, True)
    assert [explored(one.action("enter").domains["room"]) for one in (larger, larger.variant("empty"))] == [
        (0, 1, 2, 3)
    ] * 2
    assert larger.variant("empty").sized(rooms=3).sizes == {"rooms": 3}
    assert HOTEL.initial[0]() == Rooms((0, 0), 0, True)
    assert larger.sized(rooms=2).sizes == HOTEL.sizes


def test_sizes_stand_beside_a_policy_and_may_be_keywords() -> None:
    """An initial state may take the policy and several sizes; those that are not named stay."""
    spacious = attrs.evolve(
        HOTEL,
        policy=Policy,
        initial=(plain(of_ten),),
        scopes=tuple(attrs.evolve(one, policy=Policy()) for one in HOTEL.scopes),
    )
    assert dict(spacious.sizes) == {"rooms": 10, "keys": 1}
    grown = spacious.sized(keys=2)
    assert dict(grown.sizes) == {"rooms": 10, "keys": 2}
    assert len(grown.initial[0](Policy()).guests) == 12  # type: ignore[attr-defined]  # any function is one of objects


@pytest.mark.parametrize(
    ("build", "error"),
    {
        "of no such name": (lambda: HOTEL.sized(beds=2), r"machine hotel has no size beds. Instead: one of: rooms"),
        "of none": (lambda: HOTEL.sized(rooms=0), r"size rooms is 0. Instead: give an integer, from 1 to 1000"),
        "of no integer": (lambda: HOTEL.sized(rooms=True), r"size rooms is True"),
        "that bounds lose a field": (lambda: HOTEL.sized(rooms=1), r"scope evening bounds guests\[1\]"),
        "of none by default": (
            lambda: attrs.evolve(HOTEL, initial=(plain(no_rooms),)),
            r"py:\d+: size rooms is 0",
        ),
        "unknown to the initial state": (
            lambda: attrs.evolve(HOTEL, actions=(action(enter, room=each("beds")),)),
            r"test_machine_definition.*unknown size beds. Instead: one of rooms",
        ),
        "that nothing has": (
            lambda: attrs.evolve(good, actions=(action(add, by=each("slots")),)),
            r"unknown size slots",
        ),
    }.values(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_size_that_can_not_be_is_refused(build: Callable[[], object], error: str) -> None:
    """A size that is unknown or below 1, or that takes a bounded field away, is refused."""
    with pytest.raises(SpecError, match=error):
        build()
