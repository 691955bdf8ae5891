"""``deadreckon audit``: hold the logs of any implementation against the machines."""

from __future__ import annotations

import gc
import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from deadreckon.models.audit import CONFORMS, PENDING, VIOLATES, Audit, Filters, Known, Report, Violation, told
from deadreckon.models.audit.lenient import number_of
from deadreckon.models.audit.log import Change, Source
from deadreckon.models.audit.mapping import read_map
from deadreckon.spec import CallerError, EnvironmentFault
from deadreckon.spec.machines import MACHINES

from .display import console
from .exporting import Exports
from .histories import run_story, run_title
from .reports import Target
from .traces import counted, printable

LIMITS: Final = "Exit codes: 0 nothing is violated (pending is no violation); 1 something is; 2 unreadable input."
SHOWN: Final = 20
"""Violations, and malformed lines, that are printed; the JSON file has all."""

HEARTBEAT_SECONDS: Final = 5.0


@click.command(epilog=LIMITS)
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--json", "json_file", metavar="FILE", help="Write the results as JSON.")
@click.option("--junitxml", "junit_file", metavar="FILE", help="Write the results as JUnit XML.")
@click.option(
    "--itf", "itf_file", metavar="FILE", help="Write the first violation's history, or an --entity's, as ITF."
)
@click.option("--mermaid", "mermaid_file", metavar="FILE", help="Write the same as a Mermaid sequence diagram.")
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Report violations of this rule alone; repeatable.")
@click.option("--entity", "entities", multiple=True, metavar="NAME", help="Audit this entity alone; repeatable.")
@click.option("--map", "map_file", metavar="MAP", help="A map from the log's own words: a TOML file, or a shipped one.")
@click.option("--lenient", is_flag=True, help="Malformed lines are reported, but don't decide the exit code.")
def audit(
    logs: tuple[str, ...],
    json_file: str | None,
    junit_file: str | None,
    itf_file: str | None,
    mermaid_file: str | None,
    rules: tuple[str, ...],
    entities: tuple[str, ...],
    map_file: str | None,
    lenient: bool,
) -> None:
    """Hold each line of every LOG against the machines, and report what no run of theirs explains.

    A LOG has one JSON object a line, in the order of its journal; it may be packed by gzip or zstd, and - is the standard
    input. Several are read one after the other. Shipped maps: cloudflare-agents, iterate, opentelemetry.
    """
    known_rules = {
        number_of(rule.id): None for machine in MACHINES.values() for rule in machine.rules if not rule.lemma
    }
    mapped = None if map_file is None else read_map(map_file)
    for rule in (*rules, *(() if mapped is None else mapped.not_observable)):
        if rule not in known_rules:
            raise CallerError(f"no rule {rule}: {', '.join(known_rules)}")
    targets = [Target.at(file) if file else None for file in (json_file, junit_file)]
    known = Known() if mapped is None else Known(mapped.unwritten, mapped.not_observable)
    exports = Exports.at(itf_file, mermaid_file)
    work = Audit(Filters(frozenset(rules), frozenset(entities)), known, run=bool(exports.targets))
    change = None if mapped is None else mapped.lines
    unread: list[EnvironmentFault] = []
    with without_garbage():
        for name in dict.fromkeys(logs):
            try:
                with Reading(console(stderr=True), name, work, change) as reading:
                    work.read(reading.source.lines(), name)
                work.report.left_out += reading.source.left_out
            except EnvironmentFault as fault:  # what the other logs say is not lost
                unread.append(fault)
    if len(unread) == len(dict.fromkeys(logs)):
        raise unread[0]
    report = work.end()
    if mapped is not None and not report.entities:
        raise CallerError(f"{map_file} fits no line of {', '.join(logs)}: nothing was judged")
    if entities and not report.entities:
        raise CallerError(f"no line is of {', '.join(entities)}: nothing was judged")
    shown(report)
    for target, form in zip(targets, (as_json, as_junit), strict=True):
        if target is not None:
            target.write(form(report))
    exported(exports, report)
    for one in unread:
        click.echo(f"deadreckon: {one}", err=True)
    code = 1 if report.violations else 2 if unread or (report.malformed and not lenient) else 0
    click.get_current_context().exit(code)


def exported(exports: Exports, report: Report) -> None:
    """Write the history that the audit reports, and say so."""
    run, sort = report.run, "violation, and no --entity that is followed to the end"
    more = len(report.violations) - 1 if report.violations else report.entities - 1
    stories = [] if run is None else [(run_title(run), run_story(run))]
    if written := exports.write(stories, sort, more=more):
        console().print(written, soft_wrap=True)


@contextmanager
def without_garbage() -> Iterator[None]:
    """What is kept is kept to the end: looking for garbage in it would cost a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Reading:
    """Reads one log, and shows how far it is: a bar with throughput on a terminal, a line now and then elsewhere."""

    def __init__(self, out: Console, name: str, work: Audit, change: Change | None) -> None:
        self.source = Source(name, work.unread, self._advance, change)
        self._out = out
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._begun = self._next = time.monotonic()

    def __enter__(self) -> Reading:
        if self._out.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=self._out, transient=True)
            self._task = self._bar.add_task(printable(self.source.name), total=self.source.size, rate="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        self.source.close()

    def _advance(self, position: int, lines: int) -> None:
        now = time.monotonic()
        rate = f"{lines:,} lines, {lines / max(now - self._begun, 0.001):,.0f} lines/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=position, rate=rate)
        elif now >= self._next + HEARTBEAT_SECONDS:
            self._next = now
            self._out.print(f"{printable(self.source.name)}: {rate}", soft_wrap=True)


def shown(report: Report) -> None:
    """Print what was found."""
    out = console()
    for violation in report.violations[:SHOWN]:
        for line in explained(violation):
            out.print(line, soft_wrap=True)
        out.print()
    if (more := len(report.violations) - SHOWN) > 0:
        out.print(f"... and {counted(more, 'more violation')}: --json FILE has all", soft_wrap=True)
    if report.violations:
        out.print(rules_table(report))
    for line in notes(report):
        out.print(line, soft_wrap=True)
    style = "bold red" if report.violations else "bold green"
    verdicts = ", ".join(f"{report.verdicts[word]:,} {word}" for word in (CONFORMS, VIOLATES, PENDING))
    sums = f"{counted(report.lines, 'line')}, {report.entities:,} {'entity' if report.entities == 1 else 'entities'}"
    out.print(f"{sums}: {verdicts}", style=style, soft_wrap=True)


def explained(violation: Violation) -> Iterator[str]:
    """A violation as numbered steps in words."""
    where = f"{violation.source}:{violation.line}"
    yield printable(f"{violation.machine} {violation.entity} violates {violation.rule}, {where}")
    yield f"  rule {violation.rule}: {violation.sentence}"
    for number, (at, line) in enumerate(violation.history, 1):
        mark = "  <- no run of the machine explains this" if at == violation.line else ""
        yield printable(f"  {number:3}. line {at}, at {line.get('at')}: {told(line)}{mark}")
    if violation.why is None:
        yield f"       line {violation.line}: {violation.happened}"
        return
    yield "  allowed would have been: " + (
        printable("; ".join(violation.allowed)) or "nothing that is written to a log"
    )
    for refusal in violation.why.refusals:
        yield f"  refused: {refusal}"
    for at, state in enumerate(violation.why.states):
        yield f"  or: {state}" if at else f"  the state before: {state}"


def rules_table(report: Report) -> Table:
    """How often each rule is violated, and where first."""
    table = Table(title="violated", title_justify="left")
    for name in ("machine", "rule"):
        table.add_column(name, no_wrap=True)
    table.add_column("entities", justify="right")
    table.add_column("first", overflow="fold")
    found: dict[tuple[str, str], list[Violation]] = {}
    for one in report.violations:
        found.setdefault((one.machine, one.rule), []).append(one)
    for (machine, rule), ones in sorted(found.items()):
        table.add_row(machine, rule, f"{len(ones):,}", printable(f"{ones[0].entity}, {ones[0].source}:{ones[0].line}"))
    return table


def notes(report: Report) -> Iterator[str]:
    """What else there is to say, each thing once."""
    for source, number, why in report.malformed[:SHOWN]:
        yield printable(f"malformed: {source}:{number}: {why}")
    if (more := len(report.malformed) - SHOWN) > 0:
        yield f"malformed: {counted(more, 'more line')}"
    if report.left_out:
        yield f"left out, since the map says nothing of them: {counted(report.left_out, 'record')}"
    if report.unknown:
        types = ", ".join(f"{type_} ({number:,})" for type_, number in report.unknown.most_common(8))
        yield printable(f"unknown types, left out: {types}")
    for why, number in report.not_followed.most_common():
        yield f"not followed to the end: {number:,}, since {why}"
    if report.pending:
        rules = ", ".join(
            f"{rule} ({machine}, {number:,})" for (machine, rule), number in sorted(report.pending.items())
        )
        yield f"pending, for the log doesn't say that it ended: {rules}"
    if report.not_observable:
        yield f"not observable in these logs: {', '.join(report.not_observable)}"


def as_json(report: Report) -> str:
    """The report for other programs: its shape is fixed, since others read it."""
    found = {
        "lines": report.lines,
        "entities": report.entities,
        "verdicts": {word: report.verdicts[word] for word in (CONFORMS, VIOLATES, PENDING)},
        "not_observable": report.not_observable,
        "violations": [
            {
                "machine": one.machine,
                "entity": one.entity,
                "rule": one.rule,
                "line": one.line,
                "happened": one.happened,
                "allowed": list(one.allowed),
                "history": [{"line": at, **line} for at, line in one.history],
            }
            for one in report.violations
        ],
    }
    return json.dumps(found, indent=1) + "\n"


def as_junit(report: Report) -> str:
    """The report as JUnit XML: a test case for each violation, and one for all entities without one."""
    root = ET.Element("testsuites", name="deadreckon")
    suite = ET.SubElement(root, "testsuite", name="audit")
    ET.SubElement(suite, "testcase", classname="audit", name=f"{report.verdicts[CONFORMS]} conform")
    for one in report.violations:
        case = ET.SubElement(suite, "testcase", classname=f"audit.{one.machine}", name=printable(one.entity))
        message = printable(f"{one.rule}: {one.source}:{one.line}: {one.happened}")
        ET.SubElement(case, "failure", message=message, type=one.rule).text = "\n".join(explained(one))
    for source, number, why in report.malformed:
        case = ET.SubElement(suite, "testcase", classname="audit.log", name=printable(f"{source}:{number}"))
        ET.SubElement(case, "error", message=printable(why), type="malformed")
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
