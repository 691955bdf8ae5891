"""Put the findings of all tasks together: the verdict on each rule and variant, what failed, and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

import attrs

from deadreckon.models.bounding import Settings, own
from deadreckon.spec import Kind, Machine, Rule

from .bounds import told
from .checking import (
    BOUNDED,
    BOUNDED_SECONDS,
    DEFECT,
    EXPLORE,
    PROVE,
    Bound,
    Defect,
    Explored,
    Failed,
    Finding,
    Plan,
    Proved,
    Proven,
    Searched,
    Task,
    combined,
)
from .traces import Story

VIOLATED, UNKNOWN = "violated", "unknown"
Findings = Mapping[Task, Finding]


@attrs.frozen
class Failure:
    """One thing that is not as it must be: ``violated``, or ``unknown`` because it was not shown either way."""

    machine: str
    subject: str
    engine: str
    verdict: str
    text: str
    replay: str
    story: Story | None = None
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.machine}: {self.subject} {self.verdict} ({self.engine}): {self.text}; replay: {self.replay}"


@attrs.frozen(eq=False)
class RuleReport:
    """What each engine says of one rule; None where the engine does not speak of it."""

    rule: Rule
    explored: str | None = None
    bounded: Bound | None = None
    proved: Proven | None = None
    story: Story | None = None


@attrs.frozen(eq=False)
class MachineReport:
    """Everything found of one machine."""

    machine: Machine
    plan: Plan
    scopes: tuple[Explored, ...]
    rules: tuple[RuleReport, ...]
    defects: tuple[Defect, ...]
    failures: tuple[Failure, ...]

    @property
    def bounds(self) -> Settings:
        """The bounds that were asked for, and that the machine has."""
        return own(self.machine, self.plan.bounds)

    @property
    def complete(self) -> bool:
        """Whether every state of every scope was seen."""
        return len(self.scopes) == len(self.machine.scopes) and all(scope.complete for scope in self.scopes)


def grouped(failures: Iterable[Failure]) -> Iterator[Failure]:
    """*failures* in their order; rules of one machine that are unknown to one engine for one reason are one of them."""
    alike: dict[object, list[Failure]] = {}
    for at, one in enumerate(failures):
        unknown = one.rule and one.verdict == UNKNOWN
        alike.setdefault((one.machine, one.engine, one.text) if unknown else at, []).append(one)
    for first, *others in alike.values():
        if others:
            ids = ", ".join(one.rule for one in (first, *others))
            together = first.replay.replace(f" --rule {shlex.quote(first.rule)}", "")
            yield attrs.evolve(first, subject=f"rules {ids}", replay=together)
        else:
            yield first


def exit_code(failures: Iterable[Failure]) -> int:
    """0 when all holds, 1 when something is violated, else 2 when something is unknown."""
    verdicts = {failure.verdict for failure in failures}
    return 1 if VIOLATED in verdicts else 2 if verdicts else 0


def report(reference: str, machine: Machine, plan: Plan, findings: Findings) -> MachineReport:
    """The report on *machine*, named *reference* by whoever asked, from the findings of its tasks."""
    own = {task: finding for task, finding in findings.items() if task.machine == machine.name}
    return _Reporter(reference, machine, plan, own).report()


@attrs.frozen
class _Reporter:
    reference: str
    machine: Machine
    plan: Plan
    findings: Findings

    def report(self) -> MachineReport:
        scopes = tuple(one for one in self.findings.values() if isinstance(one, Explored))
        rules = tuple(self.rule(rule, scopes) for rule in self.machine.rules if self.plan.asks(rule.id))
        defects = tuple(
            finding if isinstance(finding, Defect) else self.undecided(task.subject)
            for task, finding in self.findings.items()
            if task.engine == DEFECT
        )
        failures = (
            *self.broken(),
            *(failure for one in rules for failure in self.rule_failures(one, scopes) if not self.follows(failure)),
            *self.machine_failures(scopes),
            *(failure for defect in defects for failure in self.defect_failures(defect) if not self.follows(failure)),
        )
        return MachineReport(self.machine, self.plan, scopes, rules, defects, failures)

    def undecided(self, name: str) -> Defect:
        variant = next(one for one in self.machine.variants if one.name == name)
        return Defect(name, variant.rule, UNKNOWN, None, 0, 0.0, "see the message above")

    def ran(self, engine: str) -> bool:
        return any(task.engine == engine for task in self.findings)

    def rule(self, rule: Rule, scopes: tuple[Explored, ...]) -> RuleReport:
        explored = None
        if self.ran(EXPLORE):
            by_scope = {scope.scope: scope.verdicts.get(rule.id, UNKNOWN) for scope in scopes}
            explored = combined(
                rule.kind, [(by_scope.get(scope.name, UNKNOWN), scope.liveness) for scope in self.machine.scopes]
            )
        stories = [scope.stories[rule.id] for scope in scopes if rule.id in scope.stories]
        found = self.findings.values()
        bounds = next((one.rules for one in found if isinstance(one, Searched)), {})
        proofs = next((one.rules for one in found if isinstance(one, Proved)), {})
        always = rule.kind is Kind.ALWAYS
        return RuleReport(
            rule,
            explored,
            bounds.get(rule.id, Bound(UNKNOWN, 0, 0.0, "", None)) if always and self.ran(BOUNDED) else None,
            proofs.get(rule.id, Proven(UNKNOWN, "", (), 0.0, "")) if always and self.ran(PROVE) else None,
            min(stories, key=lambda one: one.steps, default=None),
        )

    def failure(
        self,
        subject: str,
        engine: str,
        verdict: str,
        text: str,
        *options: str,
        story: Story | None = None,
        rule: str = "",
    ) -> Failure:
        replay = f"deadreckon check {shlex.quote(self.reference)} {' '.join((*options, *self.bound_options()))}".strip()
        return Failure(self.machine.name, subject, engine, verdict, text, replay, story, rule)

    def broken(self) -> Iterator[Failure]:
        """Tasks that could not be done."""
        for task, finding in self.findings.items():
            if isinstance(finding, Failed):
                subject = f"{task.engine} {task.subject}".strip()
                yield self.failure(subject, task.engine, UNKNOWN, finding.why, *self.options(task.engine))

    def follows(self, failure: Failure) -> bool:
        """Whether *failure* says no more than that its engine's task could not be done."""
        broken = {
            task.subject if task.engine == DEFECT else task.engine
            for task, finding in self.findings.items()
            if isinstance(finding, Failed)
        }
        subject = failure.subject.removeprefix("variant ") if failure.engine == DEFECT else failure.engine
        return failure.verdict == UNKNOWN and subject in broken

    def options(self, engine: str) -> tuple[str, ...]:
        options: tuple[str, ...] = ("--engine", EXPLORE if engine == DEFECT else engine)
        if engine == BOUNDED and self.plan.depth != Plan().depth:
            options += ("--depth", str(self.plan.depth))
        if engine != EXPLORE and self.plan.seconds is not None:
            options += ("--seconds", f"{self.plan.seconds:g}")
        return (*options, *self.exploring()) if engine in (EXPLORE, DEFECT) else options

    def exploring(self) -> tuple[str, ...]:
        """What was asked of exploration, where it is not the default."""
        plan, usual = self.plan, Plan()
        options = () if plan.explorer == usual.explorer else ("--explorer", plan.explorer)
        return options if plan.megabytes == usual.megabytes else (*options, "--memory", str(plan.megabytes))

    def bound_options(self) -> Iterator[str]:
        yield from (f"--bound {shlex.quote(bound)}" for bound in told(own(self.machine, self.plan.bounds)))

    def rule_failures(self, one: RuleReport, scopes: tuple[Explored, ...]) -> Iterator[Failure]:
        def failure(engine: str, verdict: str, text: str, story: Story | None = None) -> Failure:
            options = (*self.options(EXPLORE if engine == "none" else engine), "--rule", shlex.quote(one.rule.id))
            return self.failure(f"rule {one.rule.id}", engine, verdict, text, *options, story=story, rule=one.rule.id)

        contradicted = one.proved is not None and one.proved.verdict == "proved"
        shown = "; the proof says it holds, so please report this" if contradicted else ""
        if one.explored in (VIOLATED, UNKNOWN):
            assert one.explored is not None
            text = self.explored_words(one, scopes) + (shown if one.explored == VIOLATED else "")
            yield failure(EXPLORE, one.explored, text, story=one.story)
        if one.bounded is not None and one.bounded.verdict != "holds":
            text = f"{one.bounded.story.last}{shown}" if one.bounded.story else self.undecided_words(one.bounded)
            yield failure(BOUNDED, one.bounded.verdict, text, story=one.bounded.story)
        if one.proved is not None and one.proved.verdict != "proved":
            verdict = VIOLATED if one.proved.verdict == "refuted" else UNKNOWN
            text = one.proved.detail or "the solver gave up"
            yield failure(PROVE, verdict, text)
        if self.plan.rules and one.explored is None and one.bounded is None and one.proved is None:
            text = f"no engine that was asked judges a '{one.rule.kind.value}' rule"
            yield failure("none", UNKNOWN, text)

    def undecided_words(self, bound: Bound) -> str:
        seconds = self.plan.seconds or BOUNDED_SECONDS
        return f"{bound.detail or 'not decided'} (--seconds gives it more than {seconds:g})"

    def explored_words(self, one: RuleReport, scopes: tuple[Explored, ...]) -> str:
        if one.explored == UNKNOWN:
            if one.rule.kind is Kind.EVENTUALLY and not any(scope.liveness for scope in self.machine.scopes):
                return "no scope judges liveness: declare one with liveness=True"
            stopped = (f"scope {scope.scope} stopped at {scope.stopped}" for scope in scopes if scope.stopped)
            text = "; ".join(stopped) or "not decided"
            return f"{text} (--memory gives it more)" if "of memory" in text else text
        if one.story is None:
            return f"never reached in any scope: {one.rule.sentence}"
        return f"{one.story.last}, in scope {one.story.scope}: not '{one.rule.sentence}'"

    def machine_failures(self, scopes: tuple[Explored, ...]) -> Iterator[Failure]:
        """Deadlocks, and actions that no scope runs; no matter for a run about named rules."""
        if not scopes or self.plan.rules:
            return
        options = self.options(EXPLORE)
        for scope in scopes:
            if scope.deadlock is not None:
                text = f"{scope.deadlock.last}, in scope {scope.scope}: nothing is possible, and it is not terminal"
                yield self.failure("deadlock", EXPLORE, VIOLATED, text, *options, story=scope.deadlock)
        complete = len(scopes) == len(self.machine.scopes) and all(scope.complete for scope in scopes)
        verdict = VIOLATED if complete else UNKNOWN
        text = "runs in no scope, so every rule about it is vacuous" if complete else "did not run as far as was seen"
        for action in self.machine.actions:
            if not any(action.name in scope.ran for scope in scopes):
                yield self.failure(f"action {action.name}", EXPLORE, verdict, text, *options)

    def defect_failures(self, defect: Defect) -> Iterator[Failure]:
        if defect.verdict == "refuted":
            return
        survives = defect.verdict == "survives"
        text = (
            f"survives: no scope shows it to violate rule {defect.rule}"
            if survives
            else f"rule {defect.rule}: {defect.detail or 'not decided'}"
        )
        bounds = "".join(f" {option}" for option in (*self.exploring(), *self.bound_options()))
        command = f"deadreckon defects {shlex.quote(self.reference)} {shlex.quote(defect.name)}{bounds}"
        verdict = VIOLATED if survives else UNKNOWN
        yield Failure(self.machine.name, f"variant {defect.name}", DEFECT, verdict, text, command)
