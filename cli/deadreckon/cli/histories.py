"""What audits and comparisons find, as stories to export: the machine's side, with what the other side said."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from deadreckon.models.audit import told
from deadreckon.models.audit.run import Run, Taken
from deadreckon.models.conformance import OK, Conformance, Step
from deadreckon.models.driver import words
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import UNLIMITED

from .traces import Row, Story, called, changes, meaning, plain_state, policy_words, printable

LINE, SAYS, FITTING = "log_line", "log_says", "states_fitting"
"""Variables beside the machine's: the number of a step's line (0: it is in none), the line, and how many states fit."""

LOG, IMPLEMENTATION = "the log", "implementation"

NO_ACTION = "no action: the state shows it"
TAKEN_OVER = "no action: taken over from the log"
ASSUMED = "no action: assumed"


def run_title(run: Run) -> str:
    """What a run is of."""
    broken = f" violates {run.rule}, {run.source}:{run.number}" if run.rule else f", as {run.source} has it"
    return printable(f"{run.machine.name} {run.entity}{broken}")


def run_story(run: Run) -> Story:
    """The run that explains an audited history, with the lines that it explains and how many states fitted after each."""
    layout = run.relation.layout
    states = [run.start, *(step.state for step in run.steps)]
    rows = tuple(
        Row(number, _action(step), _meaning(run, step), tuple(changes(layout, before, step.state)), _said(step))
        for number, (before, step) in enumerate(zip(states, run.steps, strict=False), 1)
    )
    marks = [{LINE: 0, SAYS: "", FITTING: run.fitting}]
    marks += [{LINE: step.line, SAYS: _line(step), FITTING: step.fitting} for step in run.steps]
    return Story(
        "",
        policy_words(run.relation.policy_layout, run.policy),
        rows,
        printable(f"line {run.number}: {run.happened}: no run of the machine explains this") if run.rule else "",
        tuple({**mark, **plain_state(layout, state)} for mark, state in zip(marks, states, strict=True)),
        about=_about(run),
        speaker=LOG,
    )


def _about(run: Run) -> str:
    parts = [
        "a run of the machine that explains these lines with the fewest steps",
        f"{FITTING} counts the states that the log allowed after each line, of which this run goes through one",
        "limits that a log can't show are unlimited",
    ]
    if not run.whole:
        parts.append("earlier lines are not kept, so it begins in a state that they left")
    if run.parts > 1:
        parts.append(f"part {run.part + 1} of {run.parts} of the {run.machine.name}, which are followed apart")
    return "; ".join(parts)


def _action(step: Taken) -> str:
    if not step.action:
        return NO_ACTION if not step.put else TAKEN_OVER if step.line else ASSUMED
    inputs = ", ".join(f"{name} {'unlimited' if one == UNLIMITED else words(one)}" for name, one in step.inputs.items())
    return f"{step.action} ({inputs})" if inputs else step.action


def _meaning(run: Run, step: Taken) -> str:
    return meaning(run.machine, step.action) if step.action else ""


def _line(step: Taken) -> str:
    return printable(told(step.told)) if step.told is not None else ""


def _said(step: Taken) -> str:
    return f"line {step.line}: {_line(step)}" if step.told is not None else ""


def walk_title(found: Conformance) -> str:
    """What a failing walk is of."""
    assert found.failure is not None
    return printable(f"{found.machine.name}: {found.failure.what}")


def walk_story(found: Conformance) -> Story:
    """The machine's side of the shortest failing walk, with what the implementation did else."""
    assert found.failure is not None
    traced = relation(found.machine)
    first, *steps = found.story
    rows: list[Row] = []
    states = [first.at]
    for step in steps:
        for row, state in _rows(traced, step, states[-1]):
            rows.append(attrs.evolve(row, number=len(rows) + 1))
            states.append(state)
    return Story(
        found.scope.name,
        policy_words(traced.policy_layout, found.scope.policy),
        tuple(rows),
        printable(found.failure.what),
        tuple(plain_state(traced.layout, state) for state in states),
        about="the machine's side of the shortest failing walk that was found",
        speaker=IMPLEMENTATION,
    )


def _rows(traced: Relation, step: Step, at: tuple[int, ...]) -> Iterator[tuple[Row, tuple[int, ...]]]:
    """A step as the machine takes it: with what follows it at once; or one that it refuses, and that changes nothing."""
    said = _difference(step)
    if not step.taken:
        yield Row(0, f"no action: {step.expected}: {step.action}", "", (), said), at
    for number, (instance, after) in enumerate(step.taken, 1):
        row = Row(
            0, called(instance), meaning(traced.machine, instance.action), tuple(changes(traced.layout, at, after))
        )
        yield (attrs.evolve(row, said=said) if number == len(step.taken) else row), after
        at = after


def _difference(step: Step) -> str:
    """What the implementation did else than the machine."""
    if step.agrees:
        return ""
    if (step.expected == OK) != (step.answered == OK):
        return printable(f"{step.action}: {step.answered}")
    return ", ".join(f"{path} is {step.found[path]}" for path in step.differing)
