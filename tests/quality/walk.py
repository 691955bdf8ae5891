"""One run of a machine, step by step, that knows what really happened and which rules were broken."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, Self, TypeVar

import pytest

from deadreckon.spec import Kind, Machine, Refused

S = TypeVar("S")
G = TypeVar("G")
NOTHING: Mapping[str, object] = MappingProxyType({})


class MachineWalk(Generic[S, G]):
    """A run from *state*, in which nothing has happened yet; inputs that are not told are the *usual* ones.

    Judged are the rules that hold always. The lemmas are judged with them in the sound machine: of a known-bad variant
    they say nothing.
    """

    def __init__(self, machine: Machine, policy: object, state: S, ghost: G, usual: Mapping[str, object] = NOTHING):
        self.machine = machine
        self.policy = policy
        self.state = state
        self.ghost = ghost
        self.usual = usual
        self.broken: set[str] = set()
        sound = bool(machine.variants)
        self._judged = [
            (rule, machine.signature(rule.holds))
            for rule in machine.rules
            if rule.kind is Kind.ALWAYS and (sound or not rule.lemma)
        ]

    def do(self, *names: str, **inputs: object) -> Self:
        """Take these actions, all with the same inputs."""
        for name in names:
            before, ghost = self.state, self.ghost
            given = {**self.usual, **inputs}
            after = self.machine.step(
                self.policy, before, name, {one: given[one] for one in self.machine.action(name).domains}
            )
            assert isinstance(after, type(before))
            self.state, self.ghost = after, self._happened(before, after)
            self._judge(name, before, ghost)
        return self

    def _happened(self, before: S, after: S) -> G:
        observe = self.machine.observe
        assert observe is not None
        ghost = observe(*self.machine.signature(observe).arguments(self.policy, (before, after), self.ghost))
        assert isinstance(ghost, type(self.ghost))
        return ghost

    def _judge(self, name: str, before: S, ghost: G) -> None:
        for rule, signature in self._judged:
            if rule.on and name not in rule.on:
                continue
            over_step = bool(rule.on) or signature.parts.count(self.machine.state) > 1
            states, seen = ((before, self.state), ghost) if over_step else ((self.state,), self.ghost)
            if not rule.holds(*signature.arguments(self.policy, states, seen)):
                self.broken.add(rule.id)

    def refuses(self, name: str, **inputs: object) -> str:
        """The rule by which the machine refuses *name*; nothing changes."""
        before = self.state
        with pytest.raises(Refused) as refusal:
            self.do(name, **inputs)
        assert self.state == before
        return refusal.value.rule
