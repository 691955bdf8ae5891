"""What the command prints: progress while it works, tables of verdicts, stories of counterexamples."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

import attrs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deadreckon.models.explorer import Progress
from deadreckon.models.simulate import Advance

from .bounds import told
from .checking import Bound, Defect, Explored, Failed, Finding, Proved, Searched, Task
from .traces import Story, counted
from .verdicts import Failure, MachineReport, RuleReport

HEARTBEAT_SECONDS = 5.0
LOG_COLUMNS = 140
"""Width where nobody says how wide the output is: a file, or the log of a CI job."""

NARROW_COLUMNS = 110
"""Below this width a table leaves little room for sentences beside the notes on verdicts."""

STYLES = {
    "holds": "green",
    "proved": "green",
    "refuted": "green",
    "violated": "bold red",
    "survives": "bold red",
    "unknown": "yellow",
}


def console(stderr: bool = False) -> Console:
    """Where to print. Colours only on a terminal, and never under NO_COLOR; no markup, since fields have brackets."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else LOG_COLUMNS
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def verdict(word: str | None, note: str = "") -> Text:
    """A verdict in its colour, with a note; a dash where there is none."""
    if word is None:
        return Text("-", style="dim")
    return Text(word, style=STYLES.get(word, "")) + Text(f" {note}" if note else "", style="dim")


@attrs.define
class _Running:
    started: float
    progress: Progress | str | None = None


class Display:
    """Progress: a live table on a terminal, plain lines and a heartbeat elsewhere."""

    def __init__(self, out: Console, total: int) -> None:
        self.out = out
        self.total = total
        self.done = 0
        self.begun = self.next_beat = time.monotonic()
        self.running: dict[Task, _Running] = {}
        self.live = Live(console=out, auto_refresh=False, transient=True) if out.is_terminal else None

    def __enter__(self) -> Display:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def started(self, task: Task) -> None:
        """A worker took *task* up."""
        self.running[task] = _Running(time.monotonic())
        if self.live is None:
            self._line("started", task, "")

    def progress(self, task: Task, progress: Progress | str) -> None:
        """Where *task* stands."""
        self.running[task].progress = progress

    def finished(self, task: Task, finding: Finding) -> None:
        """*task* is done."""
        self.running.pop(task, None)
        self.done += 1
        self._line("finished", task, found(finding))

    def beat(self) -> None:
        """Draw what is happening, or say it every few seconds."""
        if self.live is not None:
            self.live.update(self._picture(), refresh=True)
        elif time.monotonic() >= self.next_beat + HEARTBEAT_SECONDS:
            self.next_beat = time.monotonic()
            for task, running in self.running.items():
                self._line("running", task, standing(running.progress) or "working")

    def _line(self, what: str, task: Task, text: str) -> None:
        seconds = time.monotonic() - self.begun
        line = f"[{seconds:6.1f} s] {self.done:3}/{self.total} {what:8} {task.title}" + (f": {text}" if text else "")
        self.out.print(line, soft_wrap=True)
        self.out.file.flush()

    def _picture(self) -> RenderableType:
        table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
        for _ in range(4):  # Each task has one line, whatever there is room for.
            table.add_column(no_wrap=True, overflow="ellipsis")
        for task, running in self.running.items():
            since = f"{time.monotonic() - running.started:5.1f} s"
            table.add_row(Text("*", style="cyan"), task.title, Text(since, style="dim"), standing(running.progress))
        seconds = time.monotonic() - self.begun
        return Group(Text(f"{self.done} of {self.total} tasks done after {seconds:.0f} s", style="bold"), table)


class Pulse:
    """Says every few seconds where a simulation stands."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.next_beat = time.monotonic() + HEARTBEAT_SECONDS

    def scope(self, name: str, how: str) -> None:
        """Say how a scope is walked."""
        self.out.print(f"scope {name}: {how}", soft_wrap=True)
        self.out.file.flush()

    def __call__(self, scope: str, advance: Advance) -> None:
        if time.monotonic() >= self.next_beat:
            self.next_beat = time.monotonic() + HEARTBEAT_SECONDS
            line = f"scope {scope}: {advance.runs} walks, {advance.steps:,} steps so far; covered {advance.coverage}"
            self.out.print(line, soft_wrap=True)
            self.out.file.flush()


def standing(progress: Progress | str | None) -> str:
    """Where a task stands, in words."""
    if not isinstance(progress, Progress):
        return progress or ""
    rate = progress.states / progress.seconds if progress.seconds > 0 else 0
    return (  # What matters most comes first: a narrow terminal cuts the rest.
        f"{progress.states:,} states, {rate:,.0f}/s, frontier {progress.frontier:,}, {progress.megabytes:,} MB, "
        f"depth {progress.depth}, {progress.edges:,} edges"
    )


def found(finding: Finding) -> str:
    """What a task found, in a few words."""
    match finding:
        case Explored():
            bad = sorted(finding.stories)
            shape = f"{finding.states:,} states, {finding.edges:,} edges, depth {finding.depth}, by {finding.engine}"
            whole = "" if finding.complete else f", incomplete ({finding.stopped})"
            return shape + whole + (f", violated: {', '.join(bad)}" if bad else "")
        case Searched():
            return tallied(one.verdict for one in finding.rules.values())
        case Proved():
            return tallied(one.verdict for one in finding.rules.values())
        case Defect():
            how = f" in {counted(finding.steps, 'step')}" if finding.story else ""
            return f"{finding.verdict}{how}, rule {finding.rule}"
        case Failed():
            return f"failed: {finding.why}"


def tallied(words: Iterable[str]) -> str:
    """``18 holds, 1 unknown``."""
    words = list(words)
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words)) or "nothing to do"


def rules_table(report: MachineReport, columns: int = LOG_COLUMNS) -> Table:
    """One line for each rule, one column for each engine; in few *columns* the same notes stand once, below it."""
    states = sum(scope.states for scope in report.scopes)
    edges = sum(scope.edges for scope in report.scopes)
    scopes = counted(len(report.scopes), "scope")
    by = " and ".join(dict.fromkeys(scope.engine for scope in report.scopes))
    size = f", {states:,} states, {edges:,} edges in {scopes}, explored by {by}" if report.scopes else ""
    table = Table(title=f"{report.machine.name}: rules{size}{_under(report)}", title_justify="left")
    for name in ("rule", "kind"):
        table.add_column(name, no_wrap=True)
    table.add_column("sentence", ratio=1)
    for name in ("explored", "bounded", "proved"):
        table.add_column(name)
    narrow = columns < NARROW_COLUMNS
    for one in report.rules:
        kind = ("lemma" if narrow else "always (lemma)") if one.rule.lemma else one.rule.kind.value
        notes = _notes(one)
        row = (verdict(word, "" if narrow else note) for word, note in notes)
        table.add_row(one.rule.id, kind, short(one.rule.sentence), verdict(one.explored), *row)
    if narrow:
        table.caption, table.caption_justify = _footnotes(report), "left"
    return table


def _notes(one: RuleReport) -> tuple[tuple[str | None, str], tuple[str | None, str]]:
    """The verdicts of the bounded check and of the proof, each with how far or how."""
    bounded = (one.bounded.verdict, _to_depth(one.bounded)) if one.bounded else (None, "")
    if one.proved is None:
        return bounded, (None, "")
    how = ", ".join(filter(None, (one.proved.method, " + ".join(one.proved.solvers))))
    return bounded, (one.proved.verdict, f"({how})" if how else "")


def _to_depth(bound: Bound) -> str:
    return f"to depth {bound.depth}" if bound.depth >= 0 else ""  # It may have given up before the first state.


def _footnotes(report: MachineReport) -> str:
    """All the notes that a narrow table leaves out, each once, with the verdicts that they belong to."""
    notes = (f"{word} {note}" for one in report.rules for word, note in _notes(one) if word and note)
    return "; ".join(dict.fromkeys(notes))


def _under(report: MachineReport) -> str:
    bounds = ", ".join(told(report.bounds))
    return f", under {bounds}" if bounds else ""


def short(sentence: str, limit: int = 72) -> str:
    """*sentence*, cut at a word."""
    if len(sentence) <= limit:
        return sentence
    return sentence[: limit - 3].rpartition(" ")[0].rstrip(",;:") + "..."


def defects_table(report: MachineReport) -> Table:
    """One line for each known-bad variant."""
    table = Table(title=f"{report.machine.name}: known-bad variants{_under(report)}", title_justify="left")
    for name in ("variant", "rule", "verdict"):
        table.add_column(name, no_wrap=True)
    table.add_column("steps", justify="right")
    table.add_column("what it changes", ratio=1)
    sentences = {variant.name: variant.sentence for variant in report.machine.variants}
    for defect in report.defects:
        steps = str(defect.steps) if defect.story else "-"
        table.add_row(defect.name, defect.rule, verdict(defect.verdict), steps, short(sentences[defect.name]))
    return table


def story_table(story: Story, title: str) -> Group:
    """A counterexample: numbered steps in words, what each changed, and what really happened beside it."""
    table = Table(title=title, title_justify="left", show_lines=True)
    table.add_column("step", justify="right")
    table.add_column("action", ratio=2)
    table.add_column("changed", ratio=2)
    if any(change.ghost for row in story.rows for change in row.changes):
        table.add_column("what really happened", style="magenta", ratio=1)
    for row in story.rows:
        action = Text(row.action, style="bold") + Text(f"\n{row.meaning}" if row.meaning else "", style="dim")
        cells: list[RenderableType] = [str(row.number), action, "\n".join(row.told(ghost=False))]
        if len(table.columns) == 4:
            cells.append("\n".join(row.told(ghost=True)))
        table.add_row(*cells)
    where = Text(f"scope {story.scope}" + (f": {story.policy}" if story.policy else ""), style="dim")
    return Group(where, table, *([Text(story.ending, style="bold")] if story.ending else []))


def failure_line(failure: Failure) -> Text:
    """A failing line."""
    return Text(str(failure), style=STYLES[failure.verdict])
