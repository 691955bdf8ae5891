"""A machine of all that is awkward to write for another checker: names that are its words, several initial states,
values that change places, numbers below zero and such as have no end that intervals show, elements that may be
exchanged, a deadlock, a limit that is none, and bounds that cut."""

from __future__ import annotations

from enum import Enum

import attrs

from deadreckon.spec import UNLIMITED, Among, Machine, Variant, action, always, require, scope, sometimes, swap

SOURCE = "a knot"


class Hue(Enum):
    """What a cell looks like; C would take the names for its own."""

    INT = "int"
    END = "end"


@attrs.frozen
class Policy:
    """A limit, which may be none."""

    most: int


@attrs.frozen
class Cell:
    """One of those that may be exchanged."""

    len: int
    end: Hue


@attrs.frozen
class State:
    """Two numbers that change places, the cells, a debt, and whether it is over."""

    tmp0: int
    run: int
    cells: tuple[Cell, Cell]
    debt: int
    done: bool


@attrs.frozen
class Ghost:
    """How often something grew."""

    grown: int = 0


def first() -> State:
    """The plain start; its cells are not in order."""
    return State(0, 1, (Cell(1, Hue.INT), Cell(0, Hue.INT)), 0, False)


def second() -> State:
    """The other start."""
    return State(2, 0, (Cell(0, Hue.INT), Cell(0, Hue.END)), -1, False)


def hue(length: int) -> Hue:
    """What a cell of this length looks like."""
    return Hue.END if length >= 2 else Hue.INT


def always_int(length: int) -> Hue:
    """A known-bad design."""
    return Hue.INT


def exchange(state: State) -> State:
    """Two numbers change places at once."""
    require(not state.done, "A", "it is over")
    return attrs.evolve(state, tmp0=state.run, run=state.tmp0)


def grow(policy: Policy, state: State, cell: int) -> State:
    """A cell grows, and the debt with it */ whatever a comment says."""
    one = state.cells[cell]
    require(not state.done and one.len < policy.most, "A", "it is over, or the cell is full")
    grown = Cell(one.len + 1, hue(one.len + 1))
    cells = (grown, state.cells[1]) if cell == 0 else (state.cells[0], grown)
    return attrs.evolve(state, cells=cells, debt=state.debt - 2 * grown.len - state.run)


def finish(state: State) -> State:
    """It is over."""
    require(not state.done, "A", "it is over")
    return attrs.evolve(state, done=True)


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    """Count growth."""
    return Ghost(ghost.grown + 1) if after.debt < before.debt else ghost


def rests(state: State) -> bool:
    """It may be over in one of two positions; in the other it is stuck."""
    return state.done and state.tmp0 < state.run


def small(state: State) -> bool:
    """Three lengths in all."""
    return state.cells[0].len + state.cells[1].len <= 3


@always("L1", "a cell that is long shows it", source=SOURCE)
def l1(state: State) -> bool:
    return all(cell.len < 2 or cell.end == Hue.END for cell in state.cells)


@always("L2", "the debt never shrinks", source=SOURCE)
def l2(before: State, after: State) -> bool:
    return after.debt <= before.debt


@always("L3", "nothing grows thrice", source=SOURCE)
def l3(ghost: Ghost) -> bool:
    return ghost.grown < 3


@sometimes("S1", "a debt is large", source=SOURCE, beside=("L1", "L2", "L3"))
def s1(state: State) -> bool:
    return state.debt <= -6


@sometimes("S2", "a short cell ends, in one step", source=SOURCE, beside=("L1",))
def s2(before: State, after: State) -> bool:
    return any(old.len < new.len and old.end == new.end for old, new in zip(before.cells, after.cells, strict=True))


@sometimes("S3", "something never comes", source=SOURCE, beside=("L1",))
def s3(state: State) -> bool:
    return state.debt > 0


machine = Machine(
    name="knots",
    title="All that is awkward.",
    state=State,
    policy=Policy,
    initial=(first, second),
    actions=(action(exchange), action(grow, cell=Among((0, 1))), action(finish)),
    rules=(l1, l2, l3, s1, s2, s3),
    ghost=Ghost,
    observe=observe,
    interchangeable=(("cells",),),
    terminal=rests,
    scopes=(
        scope("small", why="three are enough", within=small, policy=Policy(UNLIMITED)),
        scope("tight", why="nothing grows past one", within=small, policy=Policy(1)),
    ),
    variants=(Variant("colourless", "L1", "a long cell shows nothing", (swap(hue, always_int),)),),
)
