"""What there is to check of a machine, cut into tasks that run in any process, and what each task finds.

No user interface here: a :class:`Task` names what to do in plain values, :func:`perform` does it and returns a
:data:`Finding` of plain values, and ``verdicts.py`` puts the findings together. A machine is named by its reference
and traced anew where it is needed (a tenth of a second), since functions and expressions don't travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

import attrs

from deadreckon.models.bounding import Settings, own, with_bounds
from deadreckon.models.explorer import AUTO, Bounds, Exploration, Progress, explore
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import DeadreckonError, Kind, Machine, Scope

from .references import explained, resolve
from .traces import Story, story

EXPLORE, BOUNDED, PROVE, DEFECT = "explore", "bounded", "prove", "defect"
ENGINES = (EXPLORE, BOUNDED, PROVE)
BOUNDED_SECONDS = 240.0
PROVE_SECONDS = 240.0
"""Ten times what the slowest machine takes on two idle cores, since a core may be shared."""
Say = Callable[["Progress | str"], None]


@attrs.frozen
class Plan:
    """What is asked: the engines, the depth and time of the solvers, the rules (all, if none is named), other bounds.

    ``explorer`` is the engine of exploration, and ``megabytes`` the memory at which a process of it stops.
    """

    engines: tuple[str, ...] = ENGINES
    depth: int = 8
    seconds: float | None = None
    rules: tuple[str, ...] = ()
    defects: bool = True
    bounds: Settings = ()
    explorer: str = AUTO
    megabytes: int = Bounds().max_megabytes

    def asks(self, rule: str) -> bool:
        """Whether *rule* is to be checked."""
        return not self.rules or rule in self.rules


@attrs.frozen
class Task:
    """One piece of work. ``subject`` is a scope (explore), or a variant (defect)."""

    reference: str
    machine: str
    engine: str
    subject: str = ""
    plan: Plan = Plan()

    @property
    def title(self) -> str:
        """The task as progress lines name it."""
        return " ".join(filter(None, (self.machine, self.engine, self.subject)))


@attrs.frozen
class Explored:
    """What exhaustive exploration found in one scope."""

    scope: str
    states: int
    edges: int
    depth: int
    complete: bool
    stopped: str
    seconds: float
    liveness: bool
    verdicts: Mapping[str, str]
    stories: Mapping[str, Story]
    deadlock: Story | None
    ran: frozenset[str]
    fingerprint: str
    engine: str


@attrs.frozen
class Bound:
    """What bounded checking found of one rule."""

    verdict: str
    depth: int
    seconds: float
    detail: str
    story: Story | None


@attrs.frozen
class Searched:
    """What bounded checking found, by rule."""

    rules: Mapping[str, Bound]


@attrs.frozen
class Proven:
    """What proving found of one rule: ``proved``, ``refuted`` or ``unknown``, and how."""

    verdict: str
    method: str
    solvers: tuple[str, ...]
    seconds: float
    detail: str


@attrs.frozen
class Proved:
    """What proving found, by rule."""

    rules: Mapping[str, Proven]


@attrs.frozen
class Defect:
    """What became of a known-bad variant: ``refuted`` with the shortest story, ``survives`` or ``unknown``."""

    name: str
    rule: str
    verdict: str
    story: Story | None
    steps: int
    seconds: float
    detail: str = ""


@attrs.frozen
class Failed:
    """The task could not be done; ``why`` is for whoever asked."""

    why: str


Finding = Explored | Searched | Proved | Defect | Failed


def tasks(reference: str, machine: Machine, plan: Plan) -> list[Task]:
    """The tasks of *machine* under *plan*, those that may take long first."""

    def task(engine: str, subject: str = "") -> Task:
        return Task(reference, machine.name, engine, subject, plan)

    has_always = any(rule.kind is Kind.ALWAYS and plan.asks(rule.id) for rule in machine.rules)
    found = [task(engine) for engine in (PROVE, BOUNDED) if engine in plan.engines and has_always]
    if EXPLORE in plan.engines:
        found += [task(EXPLORE, scope.name) for scope in machine.scopes]
        found += defect_tasks(reference, machine, plan) if plan.defects else []
    return found


def defect_tasks(reference: str, machine: Machine, plan: Plan, name: str | None = None) -> list[Task]:
    """The task of each known-bad variant that *plan* asks for, or of the one called *name*."""
    return [
        Task(reference, machine.name, DEFECT, variant.name, plan)
        for variant in machine.variants
        if (plan.asks(variant.rule) if name is None else variant.name == name)
    ]


def perform(task: Task, say: Say) -> Finding:
    """Do *task* in this process; whatever goes wrong is a finding too."""
    try:
        return _WORK[task.engine](task, say)
    except DeadreckonError as fault:
        return Failed(f"{type(fault).__name__}: {fault}")
    except MemoryError:
        return Failed("out of memory: use fewer --jobs, or narrower scopes")
    except Exception as failure:  # a rule that divides by zero is the machine's fault, and needs one line
        return Failed(explained(failure))


def under(machine: Machine, plan: Plan) -> Machine:
    """*machine* under those bounds of *plan* that it has."""
    return with_bounds(machine, own(machine, plan.bounds))


@cache
def _traced(reference: str, plan: Plan) -> Relation:
    return relation(under(resolve(reference), plan))


def _scope(machine: Machine, name: str) -> Scope:
    return next(scope for scope in machine.scopes if scope.name == name)


def _explore(task: Task, say: Say) -> Finding:
    traced = _traced(task.reference, task.plan)
    scope = _scope(traced.machine, task.subject)
    found = explore(
        traced.machine,
        scope,
        traced=traced,
        bounds=Bounds(max_megabytes=task.plan.megabytes),
        on_progress=say,
        engine=task.plan.explorer,
    )
    rules = [rule for rule in traced.machine.rules if task.plan.asks(rule.id)]
    traces = {rule.id: found.violated[rule.id] for rule in rules if rule.id in found.violated}
    return Explored(
        scope.name,
        found.states,
        found.edges,
        found.depth,
        found.complete,
        found.stopped,
        found.seconds,
        scope.liveness,
        {rule.id: found.verdict(rule) for rule in rules},
        {id: story(traced, trace, scope) for id, trace in traces.items()},
        None if found.deadlock is None else story(traced, found.deadlock, scope),
        frozenset(found.ran),
        traced.fingerprint(),
        found.engine,
    )


def _bounded(task: Task, say: Say) -> Finding:
    from deadreckon.proofs import bounded  # here, so that exploration does without solvers

    traced = _traced(task.reference, task.plan)
    scope = traced.machine.scopes[0]
    rules = [rule.id for rule in traced.machine.rules if rule.kind is Kind.ALWAYS and task.plan.asks(rule.id)]
    found = bounded(
        traced,
        scope,
        rules,
        depth=task.plan.depth,
        seconds=task.plan.seconds or BOUNDED_SECONDS,
        on_depth=lambda depth: say(f"depth {depth}"),
    )
    return Searched(
        {
            id: Bound(
                one.verdict,
                one.depth,
                one.seconds,
                one.detail,
                None if one.trace is None else story(traced, one.trace, scope),
            )
            for id, one in found.items()
        }
    )


def _prove(task: Task, say: Say) -> Finding:
    from deadreckon.proofs import prove

    seconds = task.plan.seconds or PROVE_SECONDS
    found = prove(_traced(task.reference, task.plan), seconds=seconds, on_rule=lambda rule: say(f"rule {rule}"))
    return Proved(
        {
            id: Proven(one.verdict, one.method, one.solvers, one.seconds, one.detail)
            for id, one in found.items()
            if task.plan.asks(id)
        }
    )


def _refute(task: Task, say: Say) -> Finding:
    sound = under(resolve(task.reference), task.plan)
    machine = sound.variant(task.subject)
    rule_id = next(one.rule for one in sound.variants if one.name == task.subject)
    rule = machine.rule(rule_id)
    traced = relation(machine)
    explorations: list[Exploration] = []
    best: Story | None = None
    for scope in machine.scopes:
        if rule.kind is Kind.EVENTUALLY and not scope.liveness:
            continue
        # A way round can be judged on a whole graph alone, so only the others may stop early.
        limit = None if best is None or rule.kind is Kind.EVENTUALLY else best.steps
        found = explore(
            machine,
            scope,
            traced=traced,
            only=rule.id,
            bounds=Bounds(max_depth=limit, max_megabytes=task.plan.megabytes),
            compare_every=0,
            on_progress=say,
            engine=task.plan.explorer,
        )
        explorations.append(found)
        trace = found.violated.get(rule.id)
        if trace is not None and (best is None or len(trace) < best.steps):
            best = story(traced, trace, scope)
    verdict = combined(rule.kind, [(found.verdict(rule), found.scope.liveness) for found in explorations])
    return Defect(
        task.subject,
        rule.id,
        {"violated": "refuted", "holds": "survives"}.get(verdict, verdict),
        best,
        0 if best is None else best.steps,
        sum(found.seconds for found in explorations),
        "; ".join(sorted({found.stopped for found in explorations if found.stopped} if best is None else ())),
    )


_WORK: Mapping[str, Callable[[Task, Say], Finding]] = {
    EXPLORE: _explore,
    BOUNDED: _bounded,
    PROVE: _prove,
    DEFECT: _refute,
}


def combined(kind: Kind, verdicts: Iterable[tuple[str, bool]]) -> str:
    """The verdict of exploration on a rule, over ``(verdict, liveness)`` of every scope.

    One scope that violates an *always* rule is enough; one that reaches a *sometimes* rule is enough; an *eventually*
    rule is judged only where the bounds themselves keep nothing from happening.
    """
    if kind is Kind.EVENTUALLY:
        verdicts = [(verdict, live) for verdict, live in verdicts if live]
    found = {verdict for verdict, _ in verdicts}
    strongest = ("holds", "unknown", "violated") if kind is Kind.SOMETIMES else ("violated", "unknown", "holds")
    return next((verdict for verdict in strongest if verdict in found), "unknown")
