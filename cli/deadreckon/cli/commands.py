"""The verbs of the command, and how each ends: 0 all holds, 1 something is violated, 2 something is not known."""

from __future__ import annotations

import errno
import os
import random
import sys
from collections.abc import Sequence

import attrs
import click

from deadreckon.models.bounding import Settings
from deadreckon.models.explorer import AUTO
from deadreckon.models.explorer import ENGINES as EXPLORERS
from deadreckon.spec import CallerError, DeadreckonError, Machine

from .auditing import audit
from .bounds import bound_option, check_bounds
from .checking import BOUNDED_SECONDS, ENGINES, PROVE_SECONDS, Plan, Task, defect_tasks, tasks, under
from .conforming import conform
from .display import Display, Pulse, console, defects_table, failure_line, rules_table, story_table
from .exporting import Exports, itf_option, mermaid_option
from .holds import holds
from .hosts import hosts
from .pool import Outcome, run
from .references import absolute, built_in_names, resolve
from .reports import Target, as_json, as_junit, version
from .requests import requests
from .showing import COLUMNS, FORMATS, shown
from .simulating import STEPS, STORES, Request, failed, implemented, walks
from .traces import Story, counted
from .verdicts import VIOLATED, MachineReport, exit_code, grouped, report

LIMITS = "Exit codes: 0 all holds; 1 a rule is violated or a variant survives; 2 wrong usage, or not known."


DAY_SECONDS = 86_400


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What an output has that takes no more."""


def no_nan(value: float | None) -> float | None:
    """*value*, unless it is not a number: that is in every range, since it is compared with nothing."""
    if value is not None and value != value:
        raise click.BadParameter("nan is not a number of seconds")
    return value


class Verbs(click.Group):
    """The command; an error that is nobody's surprise ends it with one line and exit code 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # here, where it can still be said that it failed
        except DeadreckonError as fault:
            click.echo(f"deadreckon: {fault}", err=True)
        except KeyboardInterrupt:
            click.echo("deadreckon: interrupted", err=True)
        except RecursionError:
            click.echo("deadreckon: the machine nests too deeply to be followed", err=True)
        except OSError as fault:
            # A pipe is broken: whoever read has gone, nothing is known, and nobody is left to be told.
            if not isinstance(fault, BrokenPipeError):
                if fault.errno not in NO_ROOM:
                    raise
                click.echo(f"deadreckon: can't write what was found: {fault.strerror}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ctx.exit(2)


@click.group(cls=Verbs, epilog=LIMITS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version(), prog_name="deadreckon")
def command() -> None:
    """Check durable-service protocols that are written down as state machines."""


command.add_command(conform)
command.add_command(audit)
command.add_command(holds)
command.add_command(hosts)
command.add_command(requests)


@attrs.frozen(eq=False)
class Asked:
    """A machine, by the name that the user gave it and by the name that works in any process."""

    given: str
    reference: str
    machine: Machine


def asked(references: Sequence[str], plan: Plan | None = None) -> list[Asked]:
    """The machines of *references*, under the bounds of *plan*; all built-in ones, if there are none."""
    found: dict[str, Asked] = {}
    for given in dict.fromkeys(references or built_in_names()):
        reference = absolute(given)
        machine = resolve(reference)
        other = found.setdefault(machine.name, Asked(given, reference, machine))
        if other.reference != reference:
            raise CallerError(f"{other.given} and {given} are both called {machine.name}: check them apart")
    if plan is None:
        return list(found.values())
    check_bounds((one.machine for one in found.values()), plan.bounds)
    return [attrs.evolve(one, machine=under(one.machine, plan)) for one in found.values()]


def cores() -> int:
    """How many processes may run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), default=cores, show_default="the number of cores", help="Worker processes."
)
explorer_option = click.option(
    "--explorer",
    type=click.Choice(EXPLORERS),
    default=AUTO,
    show_default=True,
    help="What explores: plain Python, NumPy, or machine code by numba; auto is plain for small spaces.",
)
memory_option = click.option(
    "--memory",
    "megabytes",
    type=click.IntRange(min=1),
    default=Plan().megabytes,
    show_default=True,
    help="MB at which an exploration stops, and what it did not decide is unknown.",
)
json_option = click.option("--json", "json_file", metavar="FILE", help="Write the results as JSON.")


@command.command(epilog=LIMITS)
@click.argument("machines", nargs=-1, metavar="[MACHINE]...")
@json_option
@click.option("--junitxml", "junit_file", metavar="FILE", help="Write the results as JUnit XML.")
@click.option(
    "--depth", type=click.IntRange(min=1), default=Plan().depth, show_default=True, help="Steps of the bounded check."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, max=DAY_SECONDS, min_open=True),
    callback=lambda _context, _option, value: no_nan(value),
    help="Time for each solver, before the answer is unknown.  "
    f"[default: {BOUNDED_SECONDS:g} of the bounded check, {PROVE_SECONDS:g} of a proof]",
)
@jobs_option
@click.option("--no-defects", is_flag=True, help="Leave the known-bad variants out.")
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Use this one; repeatable.  [default: all]"
)
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Check this rule alone; repeatable.")
@bound_option
@explorer_option
@memory_option
@itf_option
@mermaid_option
def check(
    machines: tuple[str, ...],
    json_file: str | None,
    junit_file: str | None,
    depth: int,
    seconds: float | None,
    jobs: int,
    no_defects: bool,
    engines: tuple[str, ...],
    rules: tuple[str, ...],
    bounds: Settings,
    explorer: str,
    megabytes: int,
    itf_file: str | None,
    mermaid_file: str | None,
) -> None:
    """Check every rule of every MACHINE by every engine, and refute every known-bad variant.

    MACHINE is a built-in name, module:object, or path/to/file.py:object; without one, every built-in machine is
    checked. Variants are refuted by exploration, so without that engine they are left out. With --rule, only variants
    of that rule are refuted, and deadlocks and idle actions are not looked for.
    """
    asked_rules = tuple(dict.fromkeys(rules))
    plan = Plan(engines or ENGINES, depth, seconds, asked_rules, not no_defects, bounds, explorer, megabytes)
    found = asked(machines, plan)
    known = [rule.id for one in found for rule in one.machine.rules]
    for rule in plan.rules:
        if rule not in known:
            raise CallerError(f"no rule {rule} in {', '.join(one.machine.name for one in found)}: {', '.join(known)}")
    targets = [Target.at(file) if file else None for file in (json_file, junit_file)]
    if json_file and junit_file and os.path.abspath(json_file) == os.path.abspath(junit_file):
        raise CallerError(f"--json and --junitxml both name {json_file}: one would overwrite the other, name two files")
    exports = Exports.at(itf_file, mermaid_file)
    outcome = worked([task for one in found for task in tasks(one.reference, one.machine, plan)], jobs)
    reports = [report(one.given, one.machine, plan, outcome.findings) for one in found]
    if not outcome.stopped:
        print_reports(reports)
        for target, form in zip(targets, (as_json, as_junit), strict=True):
            if target is not None:
                target.write(form(reports))
        failures = [
            (f"{one.machine.name}: {failure.subject}", failure.story) for one in reports for failure in one.failures
        ]
        export(exports, failures)
    conclude(reports, outcome)


@command.command(epilog=LIMITS)
@click.argument("machine", required=False)
@click.argument("name", required=False)
@json_option
@bound_option
@explorer_option
@memory_option
@itf_option
@mermaid_option
@jobs_option
def defects(
    machine: str | None,
    name: str | None,
    json_file: str | None,
    bounds: Settings,
    explorer: str,
    megabytes: int,
    itf_file: str | None,
    mermaid_file: str | None,
    jobs: int,
) -> None:
    """Refute every known-bad variant of every machine, or of MACHINE, or the one called NAME.

    With NAME the shortest counterexample is printed, step by step.
    """
    plan = Plan(engines=(), bounds=bounds, explorer=explorer, megabytes=megabytes)
    found = asked([machine] if machine else [], plan)
    if name is not None:
        found[0].machine.variant(name)  # refuses an unknown name
    target = Target.at(json_file) if json_file else None
    exports = Exports.at(itf_file, mermaid_file)
    work = [task for one in found for task in defect_tasks(one.reference, one.machine, plan, name)]
    outcome = worked(work, jobs)
    reports = [report(one.given, one.machine, plan, outcome.findings) for one in found]
    if not outcome.stopped:
        for one in reports:
            print_defect(one) if name is not None else console().print(defects_table(one))
        if target is not None:
            target.write(as_json(reports))
        export(
            exports, [(f"{one.machine.name}, {defect.name}", defect.story) for one in reports for defect in one.defects]
        )
    conclude(reports, outcome)


@command.command()
@click.argument("machine")
@click.option("--format", "form", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True)
@click.option("--field", help="The field that the diagram is about.  [default: the most telling one]")
@click.option("--scope", metavar="NAME", help="The bounds of a model for another checker.  [default: the first]")
@bound_option
def show(machine: str, form: str, field: str | None, scope: str | None, bounds: Settings) -> None:
    """Print MACHINE: its outline, state, policy, actions with their guards, rules with their sources, variants.

    The mermaid format is drawn from the explored states of the first scope, told apart by one field. The promela format
    is a model for SPIN, tla and tla-cfg are a module and its configuration for TLC, within the bounds of one scope.
    """
    (one,) = asked([machine], Plan(bounds=bounds))
    click.echo(shown(one.machine, form, field, scope, min(console().width, COLUMNS)), nl=False)


@command.command(epilog=LIMITS)
@click.argument("machine")
@click.option("--runs", type=click.IntRange(min=1), default=200, show_default=True, help="Walks in each scope.")
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, show_default=True, help="Steps of each walk.")
@click.option("--seed", type=click.IntRange(min=0), help="Repeats the walks of an earlier run.  [default: a new one]")
@click.option("--store", type=click.Choice(STORES), help="Where records are kept.  [default: memory]")
@click.option(
    "--scope", "scopes", multiple=True, metavar="NAME", help="Walk in this scope; repeatable.  [default: all]"
)
@click.option("--steer", is_flag=True, help="Explore the graph of every scope first, to cover more in as many walks.")
def simulate(
    machine: str,
    runs: int,
    steps: int,
    seed: int | None,
    store: str | None,
    scopes: tuple[str, ...],
    steer: bool,
) -> None:
    """Walk the reference implementation and MACHINE side by side, at random, with crashes.

    After every step both states are compared and every rule is judged. A machine that nobody has implemented is walked
    by its own functions. How walks choose their way is said of each scope.
    """
    (one,) = asked([machine])
    chosen = random.randrange(2**31) if seed is None else seed
    request = Request(one.given, one.machine, runs, steps, chosen, store, scopes, steer)
    out = console()
    own = "its own functions (it has no implementation)"
    walked = f"its reference implementation (store: {store or STORES[0]})" if implemented(one.machine) else own
    out.print(f"{one.machine.name} beside {walked}; seed {request.seed}", soft_wrap=True)
    failure = None
    pulse = Pulse(out)
    for scope, found in walks(request, pulse.scope, pulse):
        out.print(f"scope {scope}: {found.runs} walks, {found.steps:,} steps; covered {found.coverage}", soft_wrap=True)
        failure = found.failure
    if failure is not None:
        console(stderr=True).print(f"{failed(failure)}\n\nreplay: {request.replay}", soft_wrap=True)
        click.get_current_context().exit(1)


def export(exports: Exports, stories: Sequence[tuple[str, Story | None]]) -> None:
    """Write the first trace that there is, if it was asked for."""
    if told := exports.write([(title, story) for title, story in stories if story is not None]):
        console().print(told, soft_wrap=True)


def worked(work: list[Task], jobs: int) -> Outcome:
    """Do *work*, and show what goes on."""
    # The longest tasks of every machine first.
    order = {engine: number for number, engine in enumerate(("prove", "bounded", "explore", "defect"))}
    with Display(console(), len(work)) as display:
        return run(sorted(work, key=lambda task: order[task.engine]), jobs, display)


def print_reports(reports: Sequence[MachineReport]) -> None:
    """The tables, and a story for each thing that failed and has one."""
    out = console()
    for one in reports:
        out.print(rules_table(one, out.width))
        if one.defects:
            out.print(defects_table(one))
        for failure in one.failures:
            if failure.story is not None:
                out.print(story_table(failure.story, f"{one.machine.name}: {failure.subject} ({failure.engine})"))


def print_defect(one: MachineReport) -> None:
    """One variant: what it changes, what refutes it, and how."""
    out = console()
    for defect in one.defects:
        variant = next(variant for variant in one.machine.variants if variant.name == defect.name)
        rule = one.machine.rule(defect.rule)
        out.print(f"{one.machine.name}, variant {variant.name}: {variant.sentence}")
        if variant.seen:
            out.print(f"seen: {variant.seen}")
        out.print(f"rule {rule.id} ({rule.kind.value}): {rule.sentence}")
        if defect.story is not None:
            # Of the ways never to arrive one is shown; it need not be the shortest.
            way = "a way to break" if defect.story.ending else "the shortest way to break"
            out.print(story_table(defect.story, f"{way} rule {rule.id}: {counted(defect.steps, 'step')}"))


def conclude(reports: Sequence[MachineReport], outcome: Outcome) -> None:
    """Say what failed and what it all means, and end with the exit code."""
    failures = [failure for one in reports for failure in one.failures]
    if outcome.stopped:
        # What is unknown may be so only because the run ended early.
        failures = [failure for failure in failures if failure.verdict == VIOLATED]
    err = console(stderr=True)
    for failure in grouped(failures):
        err.print(failure_line(failure), soft_wrap=True)
    code = exit_code(failures)
    if outcome.stopped:
        done = ", ".join(task.title for task in outcome.findings) or "nothing"
        err.print(f"{outcome.stopped}: {done} finished; no file was written", soft_wrap=True)
        code = code or 2
    else:
        style = {0: "bold green", 1: "bold red"}.get(code, "bold yellow")
        console().print(summary(reports, code), style=style, soft_wrap=True)
    click.get_current_context().exit(code)


def summary(reports: Sequence[MachineReport], code: int) -> str:
    """The last line: how much was checked, and what the exit code means."""
    rules = sum(len(one.rules) for one in reports if one.plan.engines)
    variants = sum(len(one.defects) for one in reports)
    refuted = sum(defect.verdict == "refuted" for one in reports for defect in one.defects)
    size = f"{counted(rules, 'rule')}, " if rules else ""
    meaning = {
        0: "all holds",
        1: "a rule is violated, a variant survives, or something can never happen",
        2: "something is not known, which is not the same as holding",
    }[code]
    tried = f"{refuted} of {variants} variants refuted" if variants else "no variants tried"
    return f"{counted(len(reports), 'machine')}, {size}{tried}: {meaning} (exit {code})"
