"""Translation validation: the compiled relation against the machine's own functions, state by state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import attrs

from deadreckon.spec import InternalError, SpecError

from .compiled import Compiled, Reference
from .grounding import Instance
from .layout import Flat
from .symmetry import Symmetry

Steps = list[tuple[int, Flat]]


@attrs.frozen
class Validator:
    """Compares, under one policy, what was compiled with what the functions do, and checks declared symmetries."""

    code: Compiled
    reference: Reference
    symmetry: Symmetry

    def edges(self, state: Flat, found: Steps) -> None:
        """Every step that was found is one that the functions take.

        Raises:
            InternalError: when they differ.
        """
        self._compare(state, found, (self.code.instances[label] for label, _ in found))

    def everything(self, state: Flat, found: Steps) -> None:
        """The functions refuse every other step; rules judge alike; interchangeable elements are not told apart.

        Raises:
            InternalError: when functions and relation differ.
            SpecError: when elements that are declared interchangeable are told apart.
        """
        self._compare(state, found, self.code.instances)
        self._compare_rules(state, found)
        self._check_symmetry(state, found)

    def _compare(self, state: Flat, found: Steps, instances: Iterable[Instance]) -> None:
        pair = self._rebuilt(state)
        compiled = dict(found)
        for instance in instances:
            real = self.reference.step(instance, pair)
            if real != compiled.get(instance.index):
                raise InternalError(
                    f"{self.reference.machine.name}: the traced relation and {instance.name} differ on {pair}: "
                    f"{compiled.get(instance.index)} and {real}"
                )

    def _compare_rules(self, state: Flat, found: Steps) -> None:
        before, ghost = self._rebuilt(state)
        steps = [(label, self._rebuilt(after)[0]) for label, after in found]
        for rule in self.reference.machine.rules:
            if rule.id in self.code.claims:
                judged: list[tuple[bool, tuple[object, ...]]] = [(self.code.claims[rule.id](state), (before,))]
            else:
                judged = [
                    (self.code.steps[rule.id][label](state), (before, after))
                    for label, after in steps
                    if not rule.on or self.code.instances[label].action in rule.on
                ]
            for compiled, states in judged:
                if bool(compiled) != self.reference.claim(rule, states, ghost):
                    name = self.reference.machine.name
                    raise InternalError(f"{name}: the traced rule {rule.id} and its function differ on {states}")

    def _rebuilt(self, state: Flat) -> tuple[object, object]:
        return cast("tuple[object, object]", self.reference.layout.rebuild(state))

    def _check_symmetry(self, state: Flat, found: Steps) -> None:
        """Exchanged elements must lead to the same states by the same actions, and be the same to every rule."""
        seen = self._seen(state, found)
        for group, elements in enumerate(self.symmetry.groups):
            for first in range(len(elements) - 1):
                other = self.symmetry.swapped(state, group, first)
                if self._seen(other, self.code.successors(other)) != seen:
                    names = ", ".join(self.reference.machine.interchangeable[group])
                    raise SpecError(
                        f"{names} are not interchangeable: elements {first} and {first + 1} of "
                        f"{self.reference.layout.rebuild(state)} are told apart",
                        instead="leave the group out of interchangeable=, or treat its elements alike",
                    )

    def _seen(self, state: Flat, found: Steps) -> tuple[list[bool], set[tuple[object, ...]]]:
        """What tells *state* from another: the rules that hold, and actions, states and rules of its steps."""
        claims = [bool(holds(state)) for holds in (*self.code.claims.values(), *self.code.triggers.values())]
        return claims, {
            (
                self.code.instances[label].action,
                self.symmetry.canonical(after),
                tuple(bool(functions[label](state)) for functions in self.code.steps.values()),
            )
            for label, after in found
        }
