"""``deadreckon conform``: an implementation in another process, in whatever language, held against a machine."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Sequence

import attrs
import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deadreckon.models.conformance import OK, RUNS, SEEDS, STEPS, Conformance, Step, broken_words, moved
from deadreckon.models.driver import Lack, words
from deadreckon.models.foreign import TIMEOUT_MAX_S, TIMEOUT_S, CommandDriver
from deadreckon.models.simulate import Advance
from deadreckon.spec import Machine

from .display import Pulse, console
from .exporting import Exports
from .histories import walk_story, walk_title
from .references import absolute, resolve
from .reports import Target, version
from .traces import meaning

EXITS = "Exit codes: 0 it conforms; 1 it does not; 2 wrong usage, or the driver program failed: then nothing is known."


@attrs.frozen(eq=False)
class Asked:
    """What to do, as it was given on the command line."""

    reference: str
    runs: int
    steps: int
    seed: int
    program: CommandDriver
    steer: bool

    def replay(self, scope: str) -> str:
        """The command that does the same again in one scope."""
        timeout = f" --timeout {self.program.timeout_s:g}" if self.program.timeout_s != TIMEOUT_S else ""
        steer = " --steer" if self.steer else ""
        return (
            f"deadreckon conform {shlex.quote(self.reference)} --scope {shlex.quote(scope)} --runs {self.runs} "
            f"--steps {self.steps} --seed {self.seed}{timeout}{steer} "
            f"-- {shlex.join(self.program.command)}"
        )


@click.command(epilog=EXITS)
@click.argument("machine")
@click.argument("cmd", nargs=-1, required=True, metavar="-- CMD [ARG]...")
@click.option("--scope", "scopes", multiple=True, metavar="NAME", help="Walk in this one; repeatable.  [default: all]")
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=RUNS,
    show_default=True,
    help="Walks in each scope, not counting those that are given up on the way.",
)
@click.option(
    "--steps", type=click.IntRange(min=1), default=STEPS, show_default=True, help="Steps of each walk, at most."
)
@click.option("--seed", type=click.IntRange(min=0), help="Repeats the walks of an earlier run.  [default: a new one]")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, max=TIMEOUT_MAX_S, min_open=True),
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds for each answer.",
)
@click.option(
    "--steer", is_flag=True, help="Explore the graph of every scope first, so that walks begin anywhere in it."
)
@click.option("--json", "json_file", metavar="FILE", help="Write the results as JSON.")
@click.option("--itf", "itf_file", metavar="FILE", help="Write the machine's side of a failure as ITF.")
@click.option("--mermaid", "mermaid_file", metavar="FILE", help="Write the same as a Mermaid sequence diagram.")
def conform(
    machine: str,
    cmd: tuple[str, ...],
    scopes: tuple[str, ...],
    runs: int,
    steps: int,
    seed: int | None,
    timeout: float,
    steer: bool,
    json_file: str | None,
    itf_file: str | None,
    mermaid_file: str | None,
) -> None:
    """Hold a program of yours, in any language, against MACHINE.

    CMD speaks JSON lines on stdin and stdout; docs/conform.md has the protocol. Hypothesis chooses walks, crashes
    included, compares both states after every step, and makes a failure as short as it can. Its stderr is passed
    through.
    """
    one = resolve(absolute(machine))
    target = Target.at(json_file) if json_file else None
    exports = Exports.at(itf_file, mermaid_file)
    chosen = random.randrange(SEEDS) if seed is None else seed
    asked = Asked(machine, runs, steps, chosen, CommandDriver(cmd, timeout, loud=True), steer)
    out = console()
    out.print(f"{one.name} beside {shlex.join(cmd)}; seed {asked.seed}", soft_wrap=True)
    found = []
    for scope in dict.fromkeys(scopes or [scope.name for scope in one.scopes]):
        found.append(_walked(one, asked, scope))
        for line in told(found[-1]):
            out.print(line, soft_wrap=not isinstance(line, Table))
        if found[-1].failure is not None:
            break
    if target is not None:
        target.write(as_json(one, found))
    stories = [(walk_title(walk), walk_story(walk)) for walk in found if exports.targets and walk.story]
    if written := exports.write(stories, "failure"):
        out.print(written, soft_wrap=True)
    if found[-1].failure is not None:
        err = console(stderr=True)
        err.print(Text(f"{one.name}: {found[-1].failure.what}", style="bold red"), soft_wrap=True)
        err.print(f"replay: {asked.replay(found[-1].scope.name)}", soft_wrap=True)
        click.get_current_context().exit(1)


def _walked(machine: Machine, asked: Asked, scope: str) -> Conformance:
    from deadreckon.models.conform import examine  # with Hypothesis, which no other verb needs

    pulse = Pulse(console())

    def told(advance: Advance) -> None:
        pulse(scope, advance)

    return examine(
        machine,
        asked.program,
        examples=asked.runs,
        steps=asked.steps,
        scope=scope,
        seed=asked.seed,
        steer=asked.steer,
        on_progress=told,
    )


def told(found: Conformance) -> list[RenderableType]:
    """What was found in one scope."""
    walked = f"{found.runs:,} walks, {found.steps:,} steps in {found.seconds:.1f} s; covered {found.coverage}"
    lines: list[RenderableType] = [f"scope {found.scope.name}: {walked}"]
    if found.unseen:
        lines.append(f"never shown, so not compared: {', '.join(found.unseen)}")
    if found.cannot:
        lines.append(f"never asked, since the implementation lacks it: {', '.join(map(_lack, found.cannot))}")
    if found.never_refuses:
        lines.append(f"not tried whether it refuses: {', '.join(found.never_refuses)}")
    if found.unable:
        told = ", ".join(f"{action} {count} of {count + done}" for action, (count, done) in found.unable.items())
        lines.append(f"asked, but it could not be brought to: {told}")
    if found.failure is None:
        return [*lines, Text("it conforms", style="bold green")]
    if not found.repeatable:
        lines.append("It does not fail again when the same steps are taken: it depends on more than these.")
    return [*lines, steps_table(found)] if found.story else lines


def _lack(lack: Lack) -> str:
    if isinstance(lack, str):
        return lack
    name, inputs = lack
    return f"{name}({', '.join(f'{key}={words(value)}' for key, value in inputs.items())})"


def steps_table(found: Conformance) -> Table:
    """The failing walk: what each step changed on both sides; ``!`` marks what differs."""
    table = Table(title=f"{found.machine.name}: the shortest failing walk that was found", title_justify="left")
    table.show_lines = True
    table.add_column("step", justify="right")
    table.add_column("action", ratio=2)
    table.add_column("machine", ratio=3)
    table.add_column("implementation", ratio=3)
    for number, step in enumerate(found.story):
        action = Text(step.action, style="bold")
        if number > 0:
            action += Text(f"\n{meaning(found.machine, step.action.partition('(')[0])}", style="dim")
        table.add_row(f"{'' if step.agrees else '! '}{number}", action, *columns(found.story[max(0, number - 1)], step))
    return table


def columns(before: Step, after: Step) -> tuple[Text, Text]:
    """A step on both sides, line beside line."""
    machine, found = Text(overflow="fold"), Text(overflow="fold")
    refusal = (after.expected == OK) != (after.answered == OK)
    if after.expected != OK or after.answered != OK:
        machine.append(f"{after.expected}\n", style="bold red" if refusal else "dim")
        found.append(f"{'! ' if refusal else ''}{after.answered}\n", style="bold red" if refusal else "dim")
    for path in dict.fromkeys((*after.changed, *after.differing)):
        differs = path in after.differing
        machine.append(f"{path}: {moved(before.machine[path], after.machine[path])}\n")
        shown = "(not shown)"
        if path in after.found:
            shown = f"{path}: {moved(before.found.get(path, after.found[path]), after.found[path])}"
        found.append(f"{'! ' if differs else ''}{shown}\n", style="bold red" if differs else "")
    for rule in after.breaks:
        found.append(f"! {broken_words(after, rule)}\n", style="bold red")
    machine.rstrip()
    found.rstrip()
    return machine, found


def as_json(machine: Machine, found: Sequence[Conformance]) -> str:
    """The results in the form that ``conform --json`` promises."""
    scopes = [
        {
            "name": one.scope.name,
            "verdict": "conforms" if one.failure is None else "violated",
            "runs": one.runs,
            "steps": one.steps,
            "seconds": round(one.seconds, 3),
            "seed": one.seed,
            "compared": list(one.compared),
            "not_compared": list(one.unseen),
            "at_once": list(one.at_once),
            "cannot": list(map(_lack, one.cannot)),
            "never_refuses": list(one.never_refuses),
            "unable": {action: {"unable": count, "done": done} for action, (count, done) in one.unable.items()},
            "failure": _failure(one),
        }
        for one in found
    ]
    return json.dumps({"deadreckon": version(), "machine": machine.name, "scopes": scopes}, indent=2) + "\n"


def _failure(found: Conformance) -> dict[str, object] | None:
    if found.failure is None:
        return None
    return {
        "what": found.failure.what,
        "rule": getattr(found.failure, "rule", ""),
        "repeatable": found.repeatable,
        "steps": [
            {
                "number": number,
                "action": step.action,
                "machine": {"answer": step.expected, "state": dict(step.machine)},
                "implementation": {"answer": step.answered, "state": dict(step.found)},
                "changed": list(step.changed),
                "differing": list(step.differing),
                "breaks": [rule.id for rule in step.breaks],
            }
            for number, step in enumerate(found.story)
        ],
    }
