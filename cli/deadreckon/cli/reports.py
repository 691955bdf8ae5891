"""What the command leaves for other programs: JSON, JUnit XML, each written whole or not at all."""

from __future__ import annotations

import importlib.metadata
import json
import os
import stat
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import attrs

from deadreckon.models.bounding import limits_of
from deadreckon.spec import EnvironmentFault

from .bounds import told
from .checking import BOUNDED, DEFECT, EXPLORE, PROVE
from .traces import printable
from .verdicts import UNKNOWN, Failure, MachineReport, RuleReport


def version() -> str:
    """The installed version."""
    try:
        return importlib.metadata.version("deadreckon")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


@attrs.frozen
class Target:
    """A file to be written at the end, which is known to be writable from the start."""

    path: Path

    @classmethod
    def at(cls, path: str) -> Target:
        """The target *path*.

        Raises:
            EnvironmentFault: when it can't be written.
        """
        target = cls(Path(os.path.realpath(path)))
        try:
            if target.path.is_dir():
                raise IsADirectoryError(f"it is a directory: {path!r}")
            if target._replaceable():
                target._fresh().close()
                target._draft().unlink()
            else:
                target.path.open("a").close()
        except OSError as refusal:
            raise EnvironmentFault(f"can't write {path}: {refusal.strerror or refusal}") from refusal
        return target

    def write(self, text: str) -> None:
        """Write *text*; whoever reads the file meanwhile sees the old one or the new one, whole.

        Raises:
            EnvironmentFault: when it can't be written after all.
        """
        try:
            if not self._replaceable():
                self.path.write_text(text, encoding="utf-8")
                return
            with self._fresh() as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            self._draft().replace(self.path)
        except OSError as refusal:
            with suppress(OSError):
                self._draft().unlink()
            raise EnvironmentFault(f"can't write {self.path}: {refusal.strerror or refusal}") from refusal

    def _replaceable(self) -> bool:
        """Whether it is, or will be, a regular file: a pipe or a device is written in place."""
        return not self.path.exists() or stat.S_ISREG(self.path.stat().st_mode)

    def _draft(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")

    def _fresh(self) -> TextIO:
        return self._draft().open("w", encoding="utf-8")


def as_json(reports: Sequence[MachineReport]) -> str:
    """The reports in the form that ``check --json`` promises."""
    machines = {report.machine.name: _machine(report) for report in reports}
    return json.dumps({"deadreckon": version(), "machines": machines}, indent=2) + "\n"


def _machine(report: MachineReport) -> dict[str, object]:
    defects = {
        defect.name: {
            "verdict": defect.verdict,
            "rule": defect.rule,
            "steps": defect.steps if defect.story else None,
        }
        for defect in report.defects
    }
    bounds = dict(report.bounds)
    if not report.plan.engines:
        return {**({"bounds": bounds} if bounds else {}), "defects": defects}
    declared = {one.name: one for one in report.machine.scopes}
    return {
        "states": sum(scope.states for scope in report.scopes),
        "edges": sum(scope.edges for scope in report.scopes),
        "complete": report.complete,
        "fingerprint": next((scope.fingerprint for scope in report.scopes), None),
        "depth": report.plan.depth,
        "bounds": bounds,
        "sizes": dict(report.machine.sizes),
        "scopes": [
            {
                "name": scope.scope,
                "states": scope.states,
                "edges": scope.edges,
                "depth": scope.depth,
                "complete": scope.complete,
                "seconds": round(scope.seconds, 3),
                "at_most": dict(declared[scope.scope].at_most),
                "policy": limits_of(declared[scope.scope]),
            }
            for scope in report.scopes
        ],
        "rules": {one.rule.id: _rule(one) for one in report.rules},
        "defects": defects,
        "failures": [
            {
                "subject": failure.subject,
                "engine": failure.engine,
                "verdict": failure.verdict,
                "text": failure.text,
                "replay": failure.replay,
            }
            for failure in report.failures
        ],
    }


def _rule(one: RuleReport) -> dict[str, object]:
    found: dict[str, object] = {"kind": one.rule.kind.value}
    if one.rule.lemma:
        found["lemma"] = True
    if one.explored is not None:
        found["explored"] = one.explored
    if one.bounded is not None:
        found["bounded"] = {"verdict": one.bounded.verdict, "depth": one.bounded.depth}
    if one.proved is not None:
        found["proved"] = {
            "verdict": one.proved.verdict,
            "method": one.proved.method,
            "solvers": list(one.proved.solvers),
            "seconds": round(one.proved.seconds, 3),
        }
    return found


def as_junit(reports: Sequence[MachineReport]) -> str:
    """The reports as JUnit XML: a test case for each rule and engine, each variant, and whatever else failed."""
    root = ET.Element("testsuites", name="deadreckon")
    for report in reports:
        suite = ET.SubElement(root, "testsuite", name=report.machine.name)
        if report.bounds:
            properties = ET.SubElement(suite, "properties")
            for bound in told(report.bounds):
                name, _, value = bound.rpartition("=")
                ET.SubElement(properties, "property", name=f"bound {name}", value=value)
        left = list(report.failures)
        for engine, subject, sentence, seconds in _cases(report):
            case = _case(suite, report, engine, subject, seconds)
            failure = next((one for one in left if (one.engine, one.subject) == (engine, subject)), None)
            if failure is None and _undecided(report, engine, subject):
                failure = next((one for one in report.failures if one.engine == engine), None)
            elif failure is not None:
                left.remove(failure)
            _mark(case, failure, sentence)
        for failure in left:
            _mark(_case(suite, report, failure.engine, failure.subject, 0.0), failure, "")
        suite.set("tests", str(len(suite.findall("testcase"))))
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, report: MachineReport, engine: str, subject: str, seconds: float) -> ET.Element:
    name = f"{report.machine.name}.{engine}"
    return ET.SubElement(suite, "testcase", classname=name, name=subject, time=f"{seconds:.3f}")


def _cases(report: MachineReport) -> Iterator[tuple[str, str, str, float]]:
    """Engine, subject, sentence and seconds of every test case."""
    for one in report.rules:
        subject = f"rule {one.rule.id}"
        if one.explored is not None:
            yield EXPLORE, subject, one.rule.sentence, 0.0
        if one.bounded is not None:
            yield BOUNDED, subject, one.rule.sentence, one.bounded.seconds
        if one.proved is not None:
            yield PROVE, subject, one.rule.sentence, one.proved.seconds
    for defect in report.defects:
        yield DEFECT, f"variant {defect.name}", "", defect.seconds


def _undecided(report: MachineReport, engine: str, subject: str) -> bool:
    """Whether there is no verdict because the engine's task could not be done."""
    kind, _, name = subject.partition(" ")
    if kind == "variant":
        return any(defect.name == name and defect.verdict == UNKNOWN for defect in report.defects)
    one = next(one for one in report.rules if one.rule.id == name)
    found = {EXPLORE: one.explored, BOUNDED: one.bounded, PROVE: one.proved}[engine]
    return (found if isinstance(found, str) or found is None else found.verdict) == UNKNOWN


def _mark(case: ET.Element, failure: Failure | None, sentence: str) -> None:
    if failure is None:
        return
    kind = "error" if failure.verdict == UNKNOWN else "failure"
    element = ET.SubElement(case, kind, message=failure.text, type=failure.verdict)
    lines = [failure.text, *([f"rule: {sentence}"] if sentence else []), f"replay: {failure.replay}"]
    element.text = "\n".join(map(printable, [*lines, *(failure.story.lines() if failure.story else ())]))
