"""Small machines at random, as Python text: whatever the language has, put together without sense.

Numbers may fall below zero or grow beyond 32 bits, choices nest, guards exclude each other, rules are broken in the initial
state. A machine whose slots may be exchanged is only made of what treats them alike.
"""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import attrs
from hypothesis import strategies as st

from deadreckon.cli.references import resolve
from deadreckon.spec import Machine

HEAD = '''"""A machine at random."""

from __future__ import annotations

from enum import Enum

import attrs

from deadreckon.spec import UNLIMITED, Among, Machine, action, always, require, scope, sometimes


class Mode(Enum):
    """A word."""

    IDLE = "idle"
    BUSY = "busy"
    OVER = "over"


@attrs.frozen
class Slot:
    """One of those that repeat."""

    level: int
    mode: Mode


@attrs.frozen
class Policy:
    """A limit."""

    limit: int


@attrs.frozen
class State:
    """Numbers, truth values, a word, and slots."""

    n0: int
    n1: int
    b0: bool
    b1: bool
    mode: Mode
    slots: tuple[Slot, ...]


@attrs.frozen
class Ghost:
    """What happened."""

    seen: int = 0


def put(slots: tuple[Slot, ...], at: int, level: int, mode: Mode) -> tuple[Slot, ...]:
    """Another slot in the place of one."""
    return (*slots[:at], Slot(level, mode), *slots[at + 1 :])


def busy(slots: tuple[Slot, ...]) -> int:
    """How many slots are busy."""
    return sum(1 for one in slots if one.mode == Mode.BUSY)
'''

MODES = ("Mode.IDLE", "Mode.BUSY", "Mode.OVER")
FAR = (2**31, 2**33, -(2**40))
AMOUNTS = ((1,), (0, 2), (-1, 1), (2**32, 1))
_names = itertools.count()


@attrs.frozen
class Scene:
    """What an expression may speak of: names of states, of a slot that is an input, how many slots there are."""

    states: tuple[str, ...] = ("state",)
    slot: bool = False
    amount: bool = False
    ghost: bool = False
    slots: int = 2
    alike: bool = False

    def numbers(self) -> list[str]:
        """Leaves that are numbers."""
        found = ["policy.limit"]
        for state in self.states:
            found += [f"{state}.n0", f"{state}.n1", f"busy({state}.slots)", f"sum(one.level for one in {state}.slots)"]
            found += [f"{state}.slots[slot].level"] if self.slot else []
            found += [] if self.alike else [f"{state}.slots[{at}].level" for at in range(self.slots)]
        return [*found, *(["amount"] if self.amount else []), *(["ghost.seen"] if self.ghost else [])]

    def truths(self) -> list[str]:
        """Leaves that are true or false."""
        return [f"{state}.{name}" for state in self.states for name in ("b0", "b1")]

    def words(self) -> list[str]:
        """Leaves that are words."""
        found = [*MODES, *(f"{state}.mode" for state in self.states)]
        return found + [f"{state}.slots[slot].mode" for state in self.states if self.slot]


@cache
def numbers(scene: Scene, depth: int) -> st.SearchStrategy[str]:
    """Expressions that are numbers."""
    leaf = st.one_of(st.integers(-3, 4).map(str), st.sampled_from(scene.numbers()), st.sampled_from(FAR).map(str))
    near = st.one_of(st.integers(-2, 3).map(str), st.sampled_from(scene.numbers()))
    if depth == 0:
        return st.one_of(near, near, near, leaf)
    inner = numbers(scene, depth - 1)
    return st.one_of(
        near,
        st.builds("({} {} {})".format, inner, st.sampled_from("+-"), inner),
        st.builds("({} * {})".format, st.integers(-2, 3), inner),
        st.builds("{}({}, {})".format, st.sampled_from(("min", "max")), inner, inner),
        st.builds("({} if {} else {})".format, inner, truths(scene, depth - 1), inner),
    )


@cache
def truths(scene: Scene, depth: int) -> st.SearchStrategy[str]:
    """Expressions that are true or false."""
    compared = st.sampled_from(("<", "<=", "==", "!=", ">", ">="))
    one_slot = st.builds("one.level {} {}".format, compared, st.integers(-1, 3)) | st.builds(
        "one.mode {} {}".format, st.sampled_from(("==", "!=")), st.sampled_from(MODES)
    )
    leaf = st.one_of(
        st.sampled_from(scene.truths()),
        st.builds("{} {} {}".format, st.sampled_from(scene.numbers()), compared, st.sampled_from(scene.numbers())),
        st.builds("{} {} {}".format, st.sampled_from(scene.numbers()), compared, st.integers(-2, 4)),
        st.builds("{} {} {}".format, st.sampled_from(scene.words()), st.sampled_from(("==", "!=")), words(scene, 0)),
        st.builds(
            "{}({} for one in {}.slots)".format,
            st.sampled_from(("any", "all")),
            one_slot,
            st.sampled_from(scene.states),
        ),
    )
    if depth == 0:
        return leaf
    inner = truths(scene, depth - 1)
    return st.one_of(
        leaf,
        st.builds("(not ({}))".format, inner),
        st.builds("(({}) {} ({}))".format, inner, st.sampled_from(("and", "or")), inner),
        st.builds("({} {} {})".format, numbers(scene, depth - 1), compared, numbers(scene, depth - 1)),
    )


@cache
def words(scene: Scene, depth: int) -> st.SearchStrategy[str]:
    """Expressions that are words."""
    leaf = st.sampled_from(scene.words())
    if depth == 0:
        return leaf
    inner = words(scene, depth - 1)
    return leaf | st.builds("({} if {} else {})".format, inner, truths(scene, depth - 1), inner)


@st.composite
def actions(draw: st.DrawFn, name: str, slots: int, alike: bool) -> str:
    """An action, and how the table has it."""
    scene = Scene(slot=draw(st.booleans()), amount=draw(st.booleans()), slots=slots, alike=alike)
    inputs = [*(["slot"] if scene.slot else []), *(["amount"] if scene.amount else [])]
    guards = draw(st.lists(truths(scene, 1), max_size=1))
    updates = {}
    for field, kind in (("n0", numbers), ("n1", numbers), ("b0", truths), ("b1", truths), ("mode", words)):
        if draw(st.booleans()):
            updates[field] = draw(kind(scene, 2))
    if scene.slot and draw(st.booleans()):
        updates["slots"] = f"put(state.slots, slot, {draw(numbers(scene, 1))}, {draw(words(scene, 1))})"
    given = "".join(f", {one}: int" for one in inputs)
    lines = [f"def {name}(policy: Policy, state: State{given}) -> State:", f'    """{name}."""']
    lines += [f'    require({guard}, "A", "guarded")' for guard in guards]
    changed = "".join(f", {field}={value}" for field, value in updates.items())
    return "\n".join((*lines, f"    return attrs.evolve(state{changed})"))


@st.composite
def rules(draw: st.DrawFn, number: int, slots: int, alike: bool) -> tuple[str, str]:
    """A rule, and its id."""
    step, sometimes = draw(st.booleans()), draw(st.booleans())
    ghost = not step and draw(st.booleans())
    scene = Scene(("before", "after") if step else ("state",), ghost=ghost, slots=slots, alike=alike)
    given = "before: State, after: State" if step else "state: State"
    given += ", ghost: Ghost" if ghost else ""
    beside = ', beside=("A",)' if sometimes else ""
    kind = "sometimes" if sometimes else "always"
    text = f"""@{kind}("R{number}", "it is so", source="chance"{beside})
def r{number}(policy: Policy, {given}) -> bool:
    return {draw(truths(scene, 2))}"""
    return text, f"r{number}"


@st.composite
def texts(draw: st.DrawFn) -> str:
    """The text of a module that has a machine."""
    slots, alike = draw(st.integers(1, 3)), draw(st.booleans())
    made = [f"act{at}" for at in range(draw(st.integers(1, 4)))]
    bodies = [draw(actions(name, slots, alike)) for name in made]
    judged = [draw(rules(at, slots, alike)) for at in range(draw(st.integers(1, 4)))]
    kept = ["A", *(f"R{at}" for at, (text, _) in enumerate(judged) if text.startswith("@always"))]
    start = draw(st.lists(st.integers(-2, 3), min_size=2, max_size=2))
    levels = [draw(st.integers(-1, 2)) for _ in range(slots)]
    tuple_text = ", ".join(f"Slot({level}, Mode.IDLE)" for level in levels)
    bound = draw(st.sampled_from((3, 5, 2**34)))
    table = []
    for name, body in zip(made, bodies, strict=True):
        first = body.splitlines()[0]
        domains = [f"slot=Among({tuple(range(slots))})"] if "slot: int" in first else []
        domains += (
            [f"amount=Among({draw(st.sampled_from(((1,), (0, 2), (-1, 1), (2**32, 1))))})"]
            if "amount: int" in first
            else []
        )
        table.append(f"action({', '.join((name, *domains))})")
    observed = draw(truths(Scene(("before", "after"), slots=slots, alike=alike), 1))
    within = f"-{bound} <= state.n0 and state.n0 <= {bound} and -{bound} <= state.n1 and state.n1 <= {bound}"
    levels_within = f"all(-3 <= one.level and one.level <= 3 for one in state.slots) and {within}"
    terminal = draw(truths(Scene(slots=slots, alike=alike), 1))
    return f'''{HEAD}

def first(policy: Policy) -> State:
    """The start."""
    return State({start[0]}, {start[1]}, False, True, Mode.IDLE, ({tuple_text},))


def second(policy: Policy) -> State:
    """Another."""
    return State({start[1]}, policy.limit, True, True, Mode.BUSY, ({tuple_text},))


{chr(10).join(body + chr(10) * 2 for body in bodies)}
@always("A", "what guards protect", source="chance")
def a(state: State) -> bool:
    return state.n0 < {2**60}


@sometimes("S", "something changes", source="chance", beside={tuple(kept)})
def s(before: State, after: State) -> bool:
    return before.n0 != after.n0


{chr(10).join(text + chr(10) * 2 for text, _ in judged)}
def observe(policy: Policy, before: State, after: State, ghost: Ghost) -> Ghost:
    """Count up to three."""
    return Ghost(ghost.seen + 1) if ({observed}) and ghost.seen < 3 else ghost


def within(state: State) -> bool:
    """Not too far."""
    return {levels_within}


def rests(policy: Policy, state: State) -> bool:
    """It may end here."""
    return {terminal}


machine = Machine(
    name="chance",
    title="Whatever comes.",
    state=State,
    policy=Policy,
    initial=(first, second)[: {draw(st.integers(1, 2))}],
    actions=({", ".join(table)},),
    rules=(a, s, {", ".join(name for _, name in judged)}),
    ghost=Ghost,
    observe=observe,
    interchangeable={(("slots",),) if alike else ()},
    terminal=rests,
    scopes=(scope("all", why="it has to end", within=within, policy=Policy({draw(st.sampled_from((0, 1, 3)))})),),
)
'''


def loaded(text: str, folder: Path) -> Machine:
    """The machine of a module with this text, which is written to *folder*."""
    path = folder / f"chance_{next(_names)}.py"
    path.write_text(text, encoding="utf-8")
    return resolve(f"{path}:machine")
