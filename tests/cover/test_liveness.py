"""Liveness: a rule is violated exactly by the runs that are fair and never arrive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, pairwise
from typing import cast

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from deadreckon.models.compiled import Reference
from deadreckon.models.explorer import Exploration, Trace, explore
from deadreckon.models.layout import Flat
from deadreckon.models.liveness import Lasso, fair_violation
from deadreckon.spec import (
    Among,
    Machine,
    Refused,
    Rule,
    action,
    eventually,
    require,
    scope,
)

# Against an oracle, on drawn graphs: every set of states that a run may stay in for ever is tried.


@attrs.frozen
class Drawn:
    """A graph whose states are numbers, what owes and what arrives there."""

    edges: tuple[tuple[tuple[str, int], ...], ...]
    owes: frozenset[int]
    arrives: frozenset[int]
    fair: tuple[str, ...]

    def lasso(self) -> Lasso | None:
        offsets, targets, actions = [0], [], []
        for steps in self.edges:
            targets += [target for _, target in steps]
            actions += [action for action, _ in steps]
            offsets.append(len(targets))
        states: list[Flat] = [(number,) for number in range(len(self.edges))]
        rule = attrs.evolve(rests, fair=self.fair)
        return fair_violation(
            rule, states, offsets, targets, actions, lambda s: s[0] in self.owes, lambda s: s[0] in self.arrives
        )

    def possible(self, node: int, action: str) -> bool:
        return any(taken == action for taken, _ in self.edges[node])

    def pending(self) -> set[int]:
        found = self.owes - self.arrives
        while True:
            more = {target for node in found for _, target in self.edges[node]} - self.arrives - found
            if not more:
                return set(found)
            found |= more

    def violated(self) -> bool:
        """Whether a run may stay in some set of pending states for ever, going round in all of it, and be fair."""
        pending = sorted(self.pending())
        sets = chain.from_iterable(combinations(pending, size) for size in range(1, len(pending) + 1))
        return any(self.connected(set(nodes)) and self.fair_in(set(nodes)) for nodes in sets)

    def connected(self, nodes: set[int]) -> bool:
        return all(self.reached(node, nodes) == nodes for node in nodes)

    def reached(self, start: int, nodes: set[int]) -> set[int]:
        found = {start}
        for _ in nodes:
            found |= {target for node in found for _, target in self.edges[node] if target in nodes}
        return found

    def fair_in(self, nodes: set[int]) -> bool:
        inside = {action for node in nodes for action, target in self.edges[node] if target in nodes}
        return all(action in inside or any(not self.possible(node, action) for node in nodes) for action in self.fair)


def graphs(size: int) -> st.SearchStrategy[Drawn]:
    step = st.tuples(st.sampled_from("abc"), st.integers(0, size - 1))
    steps = st.lists(step, max_size=3, unique=True).map(tuple)
    some = st.frozensets(st.integers(0, size - 1), max_size=3)
    fair = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(tuple)
    return st.builds(Drawn, st.tuples(*[steps] * size), st.just(frozenset({0})) | some, some, fair)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 6).flatmap(graphs))
def test_liveness_finds_a_fair_run_exactly_if_there_is_one(graph: Drawn) -> None:
    """A rule is violated if and only if some set of states can be run through for ever, fairly, without arriving."""
    assert (graph.lasso() is not None) == graph.violated()


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 6).flatmap(graphs))
def test_liveness_lasso_is_a_fair_run(graph: Drawn) -> None:
    """The lasso owes at its entry, follows steps, never arrives, comes round, and treats every fair action justly."""
    lasso = graph.lasso()
    if lasso is None:
        return
    start = (lasso.entry, *lasso.way)[-1]
    run = (lasso.entry, *lasso.way, *lasso.loop)
    assert lasso.entry in graph.owes
    assert not graph.arrives & set(run)
    for before, after in pairwise(run):
        assert any(target == after for _, target in graph.edges[before])
    assert not lasso.loop or lasso.loop[-1] == start
    steps = list(zip((start, *lasso.loop), lasso.actions, lasso.loop, strict=False))
    assert len(steps) == len(lasso.loop) == len(lasso.actions)
    assert all((action, after) in graph.edges[before] for before, action, after in steps)
    for fair in graph.fair:
        assert fair in lasso.actions or any(not graph.possible(node, fair) for node in (start, *lasso.loop))


# Machines: a lamp with a switch, a guard who may look away, and a lamp that may break.


@attrs.frozen
class Lamp:
    lit: bool
    broken: bool
    watched: bool
    tubes: tuple[int, ...]


def dark() -> Lamp:
    return Lamp(False, False, False, (0, 0))


def light(state: Lamp) -> Lamp:
    require(not state.lit and not state.broken, "L", "it burns, or is broken")
    return attrs.evolve(state, lit=True)


def put_out(state: Lamp) -> Lamp:
    require(state.lit, "L", "it is dark")
    return attrs.evolve(state, lit=False)


def crack(state: Lamp) -> Lamp:
    require(not state.broken and not state.lit, "L", "it is broken already")
    return attrs.evolve(state, broken=True)


def look(state: Lamp) -> Lamp:
    require(not state.lit, "L", "it burns")
    return attrs.evolve(state, watched=not state.watched)


def glance(state: Lamp) -> Lamp:
    """The same step as :func:`look`, under another name."""
    require(not state.lit, "L", "it burns")
    return attrs.evolve(state, watched=not state.watched)


def fill(state: Lamp, tube: int) -> Lamp:
    """A tube is filled, one of the two."""
    require(sum(state.tubes) == 0, "L", "one is filled")
    return attrs.evolve(state, tubes=(*state.tubes[:tube], 1, *state.tubes[tube + 1 :]))


def pour(state: Lamp) -> Lamp:
    """What is in one tube is poured into the other."""
    require(sum(state.tubes) == 1, "L", "none is filled")
    return attrs.evolve(state, tubes=(state.tubes[1], state.tubes[0]))


def anything(state: Lamp) -> bool:
    return True


def is_dark(state: Lamp) -> bool:
    return not state.lit


def is_watched(state: Lamp) -> bool:
    return state.watched


@eventually("L", "it burns", source="here", when=is_dark, fair=("light",))
def burns(state: Lamp) -> bool:
    return state.lit


@eventually("R", "it rests", source="here", when=anything, fair=("light",))
def rests(state: Lamp) -> bool:
    return False


def lamp(rule: Rule, *names: str, alike: tuple[tuple[str, ...], ...] = ()) -> Machine:
    actions = {
        "light": action(light),
        "put_out": action(put_out),
        "crack": action(crack),
        "look": action(look),
        "glance": action(glance),
        "fill": action(fill, tube=Among((0, 1))),
        "pour": action(pour),
    }
    return Machine(
        name="lamp",
        title="A lamp.",
        state=Lamp,
        initial=(dark,),
        actions=tuple(actions[name] for name in names),
        rules=(rule,),
        scopes=(scope("all", why="it is small", within=anything),),
        interchangeable=alike,
    )


def justly(found: Exploration, rule: Rule) -> Trace:
    """The lasso, after its states and its fairness have been checked on the machine's own functions."""
    machine, trace = found.relation.machine, found.violated[rule.id]
    assert trace.loop is not None
    states = list(walked(found, trace))
    assert states[trace.loop] == states[-1]
    assert rule.when is not None
    owed = next(at for at, state in enumerate(states) if rule.when(state))
    assert not any(rule.holds(state) for state in states[owed:])
    taken = {step.instance.action for step in trace.steps[trace.loop + 1 :] if step.instance is not None}
    for name in rule.fair:
        assert name in taken or any(not possible(machine, state, name) for state in states[trace.loop :])
    return trace


def walked(found: Exploration, trace: Trace) -> Iterator[object]:
    machine = found.relation.machine
    state: object = dark()
    for step in trace.steps:
        if step.instance is not None:
            state = machine.step(None, state, step.instance.action, Reference.inputs(step.instance))
        assert found.relation.layout.flatten((state, None)) == step.state
        yield state


def possible(machine: Machine, state: object, name: str) -> bool:
    for inputs in machine.action(name).instances():
        try:
            machine.step(None, state, name, inputs)
        except Refused:
            continue
        return True
    return False


def names_of(trace: Trace) -> Sequence[str]:
    return [step.instance.action for step in trace.steps if step.instance is not None]


def test_liveness_fair_action_must_be_taken() -> None:
    """A rule holds if every round that never arrives could leave by a fair action all along (weak fairness)."""
    found = explore(lamp(burns, "light", "put_out", "look"))
    assert found.verdict(burns) == "holds"


def test_liveness_unfair_action_may_be_put_off_for_ever() -> None:
    """An action that is not fair need not be taken: the run rests, or goes round without it."""
    lazy = attrs.evolve(burns, fair=("look",))
    found = explore(lamp(lazy, "light", "put_out", "look"))
    trace = justly(found, lazy)
    assert names_of(trace) == ["look", "look"]
    assert trace.loop == 0


def test_liveness_rest_is_a_run() -> None:
    """Where no fair action is possible a run may rest, which violates the rule as a round does."""
    found = explore(lamp(burns, "light", "put_out", "crack"))
    trace = justly(found, burns)
    assert names_of(trace) == ["crack"]
    assert trace.loop == len(trace) == 1


def test_liveness_rest_where_a_fair_action_is_possible_is_none() -> None:
    """No run rests where a fair action stays possible."""
    found = explore(lamp(burns, "light"))
    assert found.verdict(burns) == "holds"


def test_liveness_action_that_is_not_always_possible_need_not_be_taken() -> None:
    """An action that is impossible again and again may be put off for ever, weak fairness says no more."""
    sighted = eventually("W", "it is watched", source="here", when=anything, fair=("look",))(is_watched)
    found = explore(lamp(sighted, "light", "put_out", "look"))
    trace = justly(found, sighted)
    assert trace.loop is not None
    assert {"light", "put_out"} == set(names_of(trace)[trace.loop :]) or trace.loop == len(trace)


def test_liveness_trigger_that_is_never_met_owes_nothing() -> None:
    """A rule whose trigger no state meets holds, whatever the runs do."""
    idle = attrs.evolve(rests, when=burns.holds, fair=("look",))
    assert explore(lamp(idle, "look", "pour", "fill")).verdict(idle) == "holds"
    assert explore(lamp(idle, "look", "light")).verdict(idle) == "violated"


def test_liveness_goal_at_the_trigger_is_an_arrival() -> None:
    """A state that owes and arrives at once owes nothing."""
    kept = attrs.evolve(burns, when=burns.holds)
    assert explore(lamp(kept, "light", "put_out")).verdict(kept) == "holds"


def test_liveness_lasso_goes_by_the_fair_action() -> None:
    """Where two actions lead to the same state, the lasso takes the fair one, so that its reader sees it is fair."""
    rule = attrs.evolve(burns, fair=("look",))
    found = explore(lamp(rule, "glance", "look", "light"))
    assert "look" in names_of(justly(found, rule))


def test_liveness_lasso_under_symmetry_comes_round() -> None:
    """With interchangeable elements the lasso is one of real states, which come again only after several rounds."""
    rule = attrs.evolve(rests, fair=("fill", "pour"))
    found = explore(lamp(rule, "fill", "pour", alike=(("tubes",),)))
    assert found.states == 2
    trace = justly(found, rule)
    assert names_of(trace) == ["fill", "pour", "pour"]
    assert trace.loop == 1


def test_liveness_lasso_starts_where_the_run_starts() -> None:
    """The states on a lasso's loop come after the trigger, and the stem leads to them from the start."""
    found = explore(lamp(burns, "light", "put_out", "crack", "look"))
    trace = justly(found, burns)
    assert cast("int", trace.loop) >= 1
    assert "crack" in names_of(trace)
