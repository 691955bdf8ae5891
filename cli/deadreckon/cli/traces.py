"""A trace in words: numbered steps, what each changed, and what really happened (the ghosts) apart from it.

The one place where a trace is put into words; ``check``, ``defects`` and the JUnit file print what is made here. A
:class:`Story` is plain text in plain tuples, so that a worker process can send it home.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import cast

import attrs

from deadreckon.models.explorer import Trace
from deadreckon.models.grounding import Instance
from deadreckon.models.layout import Field, Layout, parts
from deadreckon.models.relation import Relation
from deadreckon.spec import UNLIMITED, Machine, Scope

GHOST = "ghost."


@attrs.frozen
class Change:
    """One field that a step changed; ``ghost`` when it is what really happened, not what the machine knows."""

    field: str
    old: str
    new: str
    ghost: bool

    def __str__(self) -> str:
        return f"{self.field}: {self.old} -> {self.new}"


@attrs.frozen
class Row:
    """One step: its number, the action with its inputs, what the action means, what it changed, and what was said of it."""

    number: int
    action: str
    meaning: str
    changes: tuple[Change, ...]
    said: str = ""

    def told(self, ghost: bool) -> tuple[str, ...]:
        """The changes of the machine, or those of the ghost."""
        return tuple(str(change) for change in self.changes if change.ghost is ghost)


@attrs.frozen
class Story:
    """A whole trace: where it happened, its steps, and how it goes on if it never ends.

    ``states`` are those before the first step and after each, as plain dictionaries, tuples, integers, bools and names
    of enum members; the ghost is one more field. ``loop`` is the position that the trace returns to for ever. ``about``
    is what else one has to know to read it; the ``speaker`` is who said what its rows say.
    """

    scope: str
    policy: str
    rows: tuple[Row, ...]
    ending: str = ""
    states: tuple[dict[str, object], ...] = ()
    loop: int | None = None
    about: str = ""
    speaker: str = ""

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        return len(self.rows)

    @property
    def last(self) -> str:
        """The last step, as a failing line names it."""
        if not self.rows:
            return "at the start"
        return f"at step {self.rows[-1].number}, {self.rows[-1].action}"

    def lines(self) -> Iterator[str]:
        """The story as plain lines."""
        yield f"scope {self.scope}" + (f" ({self.policy})" if self.policy else "")
        for row in self.rows:
            yield f"{row.number:3}. {row.action}" + (f": {row.meaning}" if row.meaning else "")
            for change in row.told(ghost=False):
                yield f"       {change}"
            for change in row.told(ghost=True):
                yield f"       really: {change}"
        if self.ending:
            yield f"     {self.ending}"


def story(relation: Relation, trace: Trace, scope: Scope) -> Story:
    """*trace* of *relation* within *scope*, in words."""
    rows = []
    for number, (before, after) in enumerate(zip(trace.steps, trace.steps[1:], strict=False), 1):
        assert after.instance is not None
        rows.append(
            Row(
                number,
                called(after.instance),
                meaning(relation.machine, after.instance.action),
                tuple(changes(relation.layout, before.state, after.state)),
            )
        )
    return Story(
        scope.name,
        policy_words(relation.policy_layout, scope.policy),
        tuple(rows),
        _ending(trace),
        tuple(plain_state(relation.layout, step.state) for step in trace.steps),
        trace.loop,
    )


def plain_state(layout: Layout, flat: tuple[int, ...]) -> dict[str, object]:
    """A state and its ghost, in plain Python."""
    state, ghost = cast("tuple[object, object]", layout.rebuild(flat))
    plain = cast("dict[str, object]", _plain(state))
    return plain if ghost is None else {**plain, GHOST.rstrip("."): _plain(ghost)}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if (names := parts(value)) is not None:
        return {name: _plain(getattr(value, name)) for name in names}
    return value.name if isinstance(value, Enum) else value


def _ending(trace: Trace) -> str:
    if trace.loop is None:
        return ""
    if trace.loop >= len(trace):
        return "and rests here for ever"
    return f"from here it repeats from step {trace.loop + 1} for ever"


def changes(layout: Layout, before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[Change]:
    """The fields that differ."""
    for field, old, new in zip(layout.fields, before, after, strict=True):
        if old != new:
            ghost = field.path.startswith(GHOST)
            yield Change(field.path.removeprefix(GHOST), words(field, old), words(field, new), ghost)


def called(instance: Instance) -> str:
    """The action with its inputs: ``replay (slot 0, keep_going false)``."""
    inputs = ", ".join(f"{name} {_input_words(instance, name)}" for name in instance.inputs)
    return f"{instance.action} ({inputs})" if inputs else instance.action


def _input_words(instance: Instance, name: str) -> str:
    field = instance.fields.get(name)
    return words(field, instance.inputs[name]) if field else str(instance.inputs[name])


def words(field: Field, value: int) -> str:
    """*value* of *field* as a person writes it."""
    return "unlimited" if field.type is int and value == UNLIMITED else field.words(value)


def meaning(machine: Machine, action: str) -> str:
    """The first sentence that the transition says of itself."""
    return first_line(machine.action(action).function)


def printable(text: str) -> str:
    """A stranger's *text* with everything that is no ordinary character spelt out: control, direction and line-end ones."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_line(documented: object) -> str:
    """The first line of a docstring, or nothing."""
    text = inspect.getdoc(documented) or ""
    return text.partition("\n")[0].strip()


def policy_words(layout: Layout, policy: object) -> str:
    """The parameters of a scope: ``max_attempts 2, debounce_ms 0``."""
    if policy is None:
        return ""
    values = layout.flatten(policy)
    return ", ".join(
        f"{field.path.removeprefix('policy.')} {words(field, value)}"
        for field, value in zip(layout.fields, values, strict=True)
    )
