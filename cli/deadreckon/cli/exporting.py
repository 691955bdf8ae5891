"""A trace for other tools: as ITF, the trace format of Apalache and Quint, and as a Mermaid sequence diagram."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import attrs
import click

from deadreckon.spec import CallerError

from .reports import Target, version
from .traces import Change, Row, Story

ACTION = "action_taken"
"""The variable of the action that led to a state; the first state has none."""

EXACT = 2**53
"""From here on JSON readers round, so that ITF writes such integers as text."""

itf_option = click.option("--itf", "itf_file", metavar="FILE", help="Write the first counterexample as ITF (JSON).")
mermaid_option = click.option(
    "--mermaid", "mermaid_file", metavar="FILE", help="Write the first counterexample as a Mermaid sequence diagram."
)


@attrs.frozen
class Exports:
    """The files that a trace is to be written to, which are known to be writable from the start."""

    targets: tuple[tuple[Target, Callable[[Story, str], str]], ...]

    @classmethod
    def at(cls, itf_file: str | None, mermaid_file: str | None) -> Exports:
        """Those that were asked for.

        Raises:
            CallerError: both are one file.
            EnvironmentFault: one can't be written.
        """
        asked = [(file, form) for file, form in ((itf_file, as_itf), (mermaid_file, as_mermaid)) if file]
        targets = tuple((Target.at(file), form) for file, form in asked)
        if len({target.path for target, _ in targets}) < len(targets):
            raise CallerError(f"--itf and --mermaid both name {itf_file}: one would overwrite the other")
        return cls(targets)

    def write(self, stories: Sequence[tuple[str, Story]], sort: str = "counterexample", *, more: int = 0) -> str:
        """Write the first of *stories*, each with its title. What was written, or that nothing was, in words.

        There were *more* than these, all of this *sort*.
        """
        if not self.targets:
            return ""
        if not stories:
            return f"there is no {sort}, so none was written"
        title, story = stories[0]
        for target, form in self.targets:
            target.write(form(story, title))
        files = ", ".join(str(target.path) for target, _ in self.targets)
        more += len(stories) - 1
        return f"{title}: written to {files}" + (f"; {more} more were not" if more else "")


def as_itf(story: Story, title: str) -> str:
    """*story* in the Informal Trace Format: a record for each field of the state that is a class, enums as text."""
    names = list(story.states[0])
    states = [
        {"#meta": {"index": index}, ACTION: _action(story, index), **{name: _value(state[name]) for name in names}}
        for index, state in enumerate(story.states)
    ]
    trace: dict[str, object] = {
        "#meta": {
            "format": "ITF",
            "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html",
            "description": _described(story, title),
            "source": f"deadreckon {version()}",
        },
        "params": [],
        "vars": [ACTION, *names],
        "states": states,
    }
    if story.loop is not None:
        trace["loop"] = min(story.loop, len(states) - 1)
    return json.dumps(trace, indent=2) + "\n"


def _described(story: Story, title: str) -> str:
    policy = story.policy and f" ({story.policy})"
    where = f"scope {story.scope}{policy}" if story.scope else f"policy{policy}" if policy else ""
    return "; ".join(filter(None, (title, where, story.about)))


def _action(story: Story, index: int) -> str:
    return story.rows[index - 1].action if index else ""


def _value(value: object) -> object:
    """A value as ITF writes it: tuples are marked, and integers that JSON readers would round."""
    if isinstance(value, dict):
        return {name: _value(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return {"#tup": [_value(one) for one in value]}
    if type(value) is int and abs(value) >= EXACT:
        return {"#bigint": str(value)}
    return value


STEPS, REALLY = "steps", "what really happened"


def as_mermaid(story: Story, title: str) -> str:
    """*story* as a sequence diagram: steps on the left, and an arrow to each part of the state that they change."""
    lanes = dict.fromkeys(_lane(change) for row in story.rows for change in row.changes)
    ids = {lane: f"p{number}" for number, lane in enumerate(lanes)}
    lines = [
        "sequenceDiagram",
        f"    %% {_plain(title)}" + (f", scope {_plain(story.scope)}" if story.scope else ""),
        *([f"    %% {_plain(story.about)}"] if story.about else []),
        *([f"    participant l as {story.speaker}"] if story.speaker else []),
        f"    participant s as {STEPS}",
        *(f"    participant {ids[lane]} as {lane}" for lane in lanes),
    ]
    for row in story.rows:
        if row.said:
            lines.append(f"    l->>s: {_plain(row.said)}")
        lines.append(f"    Note over s: {row.number}. {_plain(row.action)}")
        lines.extend(f"    s->>{ids[lane]}: {_plain(told)}" for lane, told in _arrows(row))
    if story.ending:
        lines.append(f"    Note over s: {_plain(story.ending)}")
    return "\n".join(lines) + "\n"


def _lane(change: Change) -> str:
    if change.ghost:
        return REALLY
    return change.field.partition(".")[0].partition("[")[0]


def _arrows(row: Row) -> Iterator[tuple[str, str]]:
    """Each part of the state that a step changes, with all of its changes."""
    for lane in dict.fromkeys(map(_lane, row.changes)):
        changes = [str(change).removeprefix(f"{lane}.") for change in row.changes if _lane(change) == lane]
        yield lane, ", ".join(changes)


def _plain(text: str) -> str:
    """Without what Mermaid would take for the end of a statement or for an entity."""
    return text.replace(";", ",").replace("#", "no. ")
