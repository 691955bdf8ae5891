"""Walk a machine and an implementation side by side, a step at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deadreckon.spec import EnvironmentFault, Kind, Refused, Rule

from .coverage import Recorder
from .driver import (
    Difference,
    Divergence,
    Driver,
    DriverMaker,
    Ground,
    RuleBroken,
    Taken,
    Unable,
    at_once,
    cannot,
    never_refuses,
)
from .layout import Flat
from .program import program


class Walk:
    """A machine and an implementation, side by side. After every step both are compared, and the rules are judged.

    Args:
        ground: the machine.
        driver: the implementation; it is reset. Whoever made it closes it.
        recorder: counts what is covered.
        made_by: what made the driver, for the program that repeats a failure.

    Raises:
        Divergence: the implementation does not begin in an initial state of the machine.
    """

    def __init__(
        self, ground: Ground, driver: Driver, *, recorder: Recorder | None = None, made_by: DriverMaker | None = None
    ) -> None:
        self.ground = ground
        self.driver = driver
        self.recorder = recorder
        self.taken: list[Taken] = []
        self._made_by = made_by
        self._own: frozenset[str] = frozenset()
        self._lacking: frozenset[int] = frozenset()
        self._untried: frozenset[int] = frozenset()
        self._claims = [
            (rule, ground.code.claims.get(rule.id), ground.code.steps.get(rule.id))
            for rule in ground.machine.rules
            if rule.kind is Kind.ALWAYS
        ]
        self.at = ground.code.initial[0]
        self._open: dict[int, Flat] = {}
        self.reset()

    def reset(self) -> None:
        """Begin the walk anew, on both sides.

        Raises:
            Divergence: the implementation does not begin in an initial state of the machine.
        """
        self.taken.clear()
        self.driver.reset(self.ground.scope.policy)
        self._own, self._lacking = frozenset(at_once(self.driver)), self.ground.lacking(cannot(self.driver))
        self._untried = self._lacking | self.ground.lacking((*at_once(self.driver), *never_refuses(self.driver)))
        seen = self.driver.observe()
        starts = {start: self.ground.differences(start, seen) for start in self.ground.code.initial}
        self.at = min(starts, key=lambda start: len(starts[start]))
        if starts[self.at]:
            what = f"at the start, {'; '.join(map(str, starts[self.at]))}"
            raise self._divergence(what, None, differences=starts[self.at])
        self._arrive(self.at)
        self._open = self._offered()

    def open(self) -> Mapping[int, Flat]:
        """What may be taken next: label, and the state after it. Nothing in it leaves the scope."""
        return self._open

    def closed(self) -> list[int]:
        """What the machine refuses here, as labels."""
        return [label for label in self.ground.closed(self.at) if label not in self._untried]

    def take(self, label: int) -> None:
        """Take an instance on both sides.

        Raises:
            Divergence: the implementation refuses it, or its state differs afterwards.
            RuleBroken: the machine breaks a rule.
        """
        instance, inputs = self.ground.instances[label], self.ground.inputs(label)
        self.taken.append(Taken(label))
        try:
            self._do(instance.action, inputs)
        except Refused as refusal:
            rule = f" by {refusal.rule}" if refusal.rule else ""
            what = f"{instance.name} is refused{rule} ({refusal.why}), the machine allows it"
            raise self._divergence(what, label, rule=refusal.rule) from refusal
        except Unable:
            self.taken.pop()
            self._compare(f"after {instance.name} could not be taken", label)
            return
        for own, after in self.ground.chain(label, self._open[label], self._own):
            self._move(own, after)
        self._compare(f"after {instance.name}", label)
        self._open = self._offered()

    def probe(self, label: int) -> None:
        """Ask the implementation for what the machine refuses: it must refuse too, by the same rule, unchanged.

        Raises:
            Divergence: it does not.
        """
        instance, inputs = self.ground.instances[label], self.ground.inputs(label)
        expected = self.ground.refusal(self.at, label)
        self.taken.append(Taken(label, expected.rule))
        found: Refused | None = None
        try:
            self._do(instance.action, inputs)
        except Refused as refusal:
            found = refusal
        except Unable:
            self.taken.pop()
            self._compare(f"after {instance.name} could not be taken", label)
            return
        if found is None or found.rule not in ("", expected.rule):
            done = "is allowed" if found is None else f"is refused by {found.rule} ({found.why})"
            what = f"{instance.name} {done}, the machine refuses it by {expected.rule} ({expected.why})"
            raise self._divergence(what, label, rule=expected.rule)
        self._compare(f"after {instance.name} was refused by {expected.rule}", label)

    def program(self, differences: Sequence[Difference] = ()) -> str:
        """Python that repeats this walk and shows how it failed."""
        return program(self.ground, self.taken, self._made_by, differences)

    def _offered(self) -> dict[int, Flat]:
        offered = self.ground.offered(self.at, self._own)
        return {label: after for label, after in offered.items() if label not in self._lacking}

    def _do(self, action: str, inputs: Mapping[str, object]) -> None:
        try:
            self.driver.do(action, **inputs)
        except (Refused, Unable, EnvironmentFault):
            raise
        except Exception as error:
            error.add_note(f"{action} failed. To repeat it:\n\n{self.program()}")
            raise

    def _compare(self, when: str, label: int) -> None:
        differences = self.ground.differences(self.at, self.driver.observe())
        if differences:
            raise self._divergence(f"{when}, {'; '.join(map(str, differences))}", label, differences=differences)

    def _divergence(
        self, what: str, label: int | None, *, rule: str = "", differences: tuple[Difference, ...] = ()
    ) -> Divergence:
        instance = None if label is None else self.ground.instances[label]
        return Divergence(
            what,
            step="reset()" if instance is None else instance.name,
            action="" if instance is None else instance.action,
            inputs={} if label is None else self.ground.inputs(label),
            rule=rule,
            differences=differences,
            program=self.program(differences),
            walk=tuple(self.taken),
        )

    def _broken(self, rule: Rule, step: str) -> RuleBroken:
        return RuleBroken(rule, step=step, program=self.program(), walk=tuple(self.taken))

    def _move(self, label: int, after: Flat) -> None:
        before, self.at = self.at, after
        instance = self.ground.instances[label]
        for rule, _, steps in self._claims:
            if steps is not None and not steps[label](before):
                raise self._broken(rule, instance.name)
        if self.recorder is not None:
            self.recorder.step(before, instance.action, after)
        self._arrive(after, instance.name)

    def _arrive(self, at: Flat, step: str = "the initial state") -> None:
        for rule, holds, _ in self._claims:
            if holds is not None and not holds(at):
                raise self._broken(rule, step)
        if self.recorder is not None:
            self.recorder.visit(at)
