"""What walks of a machine and an implementation have found: figures, and the story of a failure on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import cast

import attrs

from deadreckon.spec import Kind, Machine, Refused, Rule, Scope

from .compiled import Reference
from .coverage import Coverage
from .driver import Driver, Failure, Ground, Lack, Taken, Unable, at_once, leaves, words
from .grounding import Instance
from .layout import Flat, position

RUNS = 200
STEPS = 40
SEEDS = 2**31

State = Mapping[str, str]
"""What is known of a state, in words, under dotted paths."""


@attrs.frozen
class Step:
    """One step on both sides.

    Attributes:
        action: the action with its inputs.
        expected, answered: "ok", or that it is refused and by which rule: by the machine, by the implementation.
        machine, found: the state after it: the machine's, and as much of it as the implementation shows.
        changed: the fields that the step changed on either side.
        differing: the fields whose values differ.
        breaks: the rules that the step would break, if the machine did it as the implementation shows it.
        at: the machine's state after it, all leaves of it.
        taken: the machine's own steps, each with the state after it: the action, and what follows at once; none if it is
            refused.
    """

    action: str
    expected: str
    answered: str
    machine: State
    found: State
    changed: tuple[str, ...]
    differing: tuple[str, ...]
    breaks: tuple[Rule, ...] = ()
    at: Flat = ()
    taken: tuple[tuple[Instance, Flat], ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether both sides did the same, as far as it can be seen."""
        return not self.differing and (self.expected == OK) == (self.answered == OK)


OK = "ok"
START = "at the start"


@attrs.frozen
class Conformance:
    """What walks side by side have found.

    Attributes:
        runs, steps, seconds: how much was walked, and for how long; making a failure shorter included.
        seed: repeats the walks.
        coverage: states and steps that were met.
        compared, unseen: the fields of the state that the implementation showed at least once, and the others.
        at_once, cannot, never_refuses: what the implementation says of itself.
        unable: actions that it could not be brought to take at times: how often, and how often it did take them.
        failure: what failed, on the shortest walk that was found; None if nothing did.
        story: that walk, step by step; the first entry is the start.
        repeatable: whether the failure comes again when the same steps are taken again.
    """

    machine: Machine
    scope: Scope
    runs: int
    steps: int
    seconds: float
    seed: int
    coverage: Coverage
    compared: tuple[str, ...]
    unseen: tuple[str, ...]
    at_once: tuple[str, ...] = ()
    cannot: tuple[Lack, ...] = ()
    never_refuses: tuple[str, ...] = ()
    unable: Mapping[str, tuple[int, int]] = MappingProxyType({})
    failure: Failure | None = None
    story: tuple[Step, ...] = ()
    repeatable: bool = True

    def lines(self) -> Iterator[str]:
        """The failure in words."""
        if self.failure is None:
            return
        yield self.failure.what
        yield f"machine {self.machine.name}, scope {self.scope.name}, seed {self.seed}:"
        for number, step in enumerate(self.story):
            told = "" if step.answered == OK == step.expected else f": {step.answered}; the machine: {step.expected}"
            yield f"{'!' if not step.agrees else ' '}{number:4}. {step.action}{told}"
            previous = self.story[max(0, number - 1)]
            for path in dict.fromkeys((*step.changed, *step.differing)):
                mark = "!" if path in step.differing else " "
                yield f"{mark}        {path}: {sides(previous, step, path)}"
            yield from (f"!        {broken_words(step, rule)}" for rule in step.breaks)
        if not self.repeatable:
            yield "It does not fail again when the same steps are taken: it depends on more than these."


def sides(before: Step, after: Step, path: str) -> str:
    """How a field went on both sides: one story if it is the same."""
    machine = moved(before.machine[path], after.machine[path])
    if path not in after.found:
        return f"{machine} (not shown by the implementation)"
    found = moved(before.found.get(path, after.found[path]), after.found[path])
    return found if path not in after.differing else f"{found} in the implementation, {machine} in the machine"


def broken_words(step: Step, rule: Rule) -> str:
    """That a step breaks a rule, as far as can be said."""
    partial = len(step.found) < len(step.machine)
    return f"this breaks {rule.id}{', if what is not shown is as in the machine' if partial else ''}: {rule.sentence}"


def moved(before: str, after: str) -> str:
    """``1 -> 2``, or ``2`` if nothing changed."""
    return after if before == after else f"{before} -> {after}"


def story_of(ground: Ground, driver: Driver, walk: tuple[Taken, ...]) -> tuple[Step, ...]:
    """Take the steps of a walk once more, and write down both sides."""
    driver.reset(ground.scope.policy)
    found = _words(driver.observe())
    starts = {start: _words(ground.state(start)) for start in ground.code.initial}
    at = min(starts, key=lambda start: len(_differing(starts[start], found)))
    story = [Step(START, OK, OK, starts[at], found, (), _differing(starts[at], found), at=at)]
    own = frozenset(at_once(driver))
    for one in walk:
        instance = ground.instances[one.label]
        possible = dict(ground.successors(at)).get(one.label)
        expected = OK if possible is not None else _refusal(ground.refusal(at, one.label))
        answered = OK
        try:
            driver.do(instance.action, **ground.inputs(one.label))
        except Refused as refusal:
            answered = _refusal(refusal)
        except Unable:
            continue
        chain = [] if possible is None else list(ground.chain(one.label, possible, own))
        before, after = ([at, at, *(state for _, state in chain)])[-2:]
        at, seen = after, driver.observe()
        previous, machine, found = story[-1], _words(ground.state(at)), _words(seen)
        differing = _differing(machine, found)
        breaks = broken(ground, before, at, instance.action, seen) if differing or expected != OK == answered else ()
        changed = _changed(previous, machine, found)
        taken = tuple((ground.instances[label], state) for label, state in chain)
        story.append(Step(instance.name, expected, answered, machine, found, changed, differing, breaks, at, taken))
    return tuple(story)


def broken(ground: Ground, before: Flat, after: Flat, action: str, seen: object) -> tuple[Rule, ...]:
    """The rules that a step breaks which leads not to *after*, but to what is *seen* there; what isn't seen is as there."""
    machine, layout, policy = ground.machine, ground.relation.layout, ground.scope.policy
    shown = seen if isinstance(seen, Mapping) else dict(leaves(seen))
    flat = [
        _position(shown[field.path]) if field.path in shown else leaf
        for field, leaf in zip(layout.fields, after, strict=True)
    ]
    state, ghost = cast("tuple[object, object]", layout.rebuild(before))
    other, _ = cast("tuple[object, object]", layout.rebuild(flat))
    ghost_after = ghost
    if machine.observe is not None:
        arguments = machine.signature(machine.observe).arguments(policy, (state, other), ghost)
        ghost_after = machine.observe(*arguments)
    judge = Reference(ground.relation, policy)

    def holds(rule: Rule) -> bool:
        if machine.signature(rule.holds).parts.count(machine.state) < 2:
            return judge.claim(rule, (other,), ghost_after)
        return bool(rule.on and action not in rule.on) or judge.claim(rule, (state, other), ghost)

    return tuple(rule for rule in machine.rules if rule.kind is Kind.ALWAYS and not rule.lemma and not holds(rule))


def _position(leaf: object) -> int:
    return position(leaf) if isinstance(leaf, Enum) else cast("int", leaf)


def _changed(previous: Step, machine: State, found: State) -> tuple[str, ...]:
    return tuple(
        path
        for path in machine
        if machine[path] != previous.machine[path]
        or (path in previous.found and path in found and found[path] != previous.found[path])
    )


def _words(state: object) -> dict[str, str]:
    return {path: words(value) for path, value in (state.items() if isinstance(state, Mapping) else leaves(state))}


def _differing(machine: State, found: State) -> tuple[str, ...]:
    return tuple(path for path, value in machine.items() if found.get(path, value) != value)


def _refusal(refusal: Refused) -> str:
    return f"refused{f' by {refusal.rule}' if refusal.rule else ''}{f' ({refusal.why})' if refusal.why else ''}"
