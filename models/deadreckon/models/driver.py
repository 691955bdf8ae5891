"""How models drive an implementation, and how what it shows is compared with what the machine says.

An implementation is whatever obeys :class:`Driver`: it is told actions by the machine's names for them, and shows the
machine's state. Models import no implementation. :class:`MachineDriver` runs the machine's own functions, for machines
that nobody has implemented yet.

    CallerError
    └── Unable                  an implementation can't be brought to take an action just now

    AssertionError, CallerError
    └── Failure                 base; carries a program that repeats the run
        ├── Divergence          the implementation does not do what the machine says
        └── RuleBroken          the machine itself breaks one of its rules
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Protocol, cast

import attrs

from deadreckon.spec import CallerError, Machine, Refused, Rule, Scope, SpecError

from .compiled import Reference, compile_relation
from .grounding import Instance
from .layout import Field, Flat, Layout, parts, position
from .relation import Relation, relation
from .symmetry import Symmetry


class Driver(Protocol):
    """An implementation, as models see it. Every call returns only when what it asked for is done.

    A driver may also have an attribute ``at_once``, the names of actions that the implementation takes by itself
    wherever they are possible, before :meth:`do` returns (a store that syncs every write: ``("sync",)``). Walks then
    take these on the machine's side alone. And it may have an attribute ``cannot``, what the implementation doesn't have
    (see :data:`Lack`): walks never ask for it; and ``never_refuses``, the names of actions that it takes also where the
    machine has nothing to do (a sync when nothing was written): walks don't try whether it refuses them. All three are
    read after each :meth:`reset`.

    Whatever a method raises beside :class:`~deadreckon.spec.Refused` ends the walk as a failure of the implementation,
    but for :class:`~deadreckon.spec.EnvironmentFault`: that is nobody's divergence, and is passed on.
    """

    def reset(self, policy: object) -> None:
        """Begin anew, in an initial state of the machine under *policy*; nothing of earlier runs is left.

        Called before anything else, and again for every further run. *policy* is that of the scope that is walked: an
        instance of the machine's policy class, or None if it has none.
        """
        ...

    def do(self, action: str, /, **inputs: object) -> None:
        """Take *action*, or let it happen (a crash, the passing of time), with these *inputs*.

        Inputs are as the machine's transition functions take them: integers, bools and enum members.

        Raises:
            Refused: the implementation refuses. Nothing may have changed. ``rule`` is the id of the rule that it
                refuses by; an implementation that knows no rule ids leaves it empty, and it is then not compared.
            Unable: it can't be brought to take it just now, and nothing has changed; the machine then doesn't either.
        """
        ...

    def observe(self) -> object:
        """The state now: an instance of the machine's state class, or a mapping.

        A mapping gives the values of what can be observed, and only this is compared: dotted paths as in
        ``durable.turn`` or ``phases[0]``, to integers, bools and enum members. Looking changes nothing.
        """
        ...

    def close(self) -> None:
        """Let go of everything. Called once, as the last; also after a failure, and without a :meth:`reset`."""
        ...


class Unable(CallerError):
    """The implementation can't be brought to take an action just now: it waits for its store, say.

    That is no refusal. The walk goes on as if it had not been asked; how often that happens is reported.
    """


DriverMaker = Callable[[], Driver]
Lack = str | tuple[str, Mapping[str, object]]
"""An action that an implementation doesn't have, by name; or only with certain inputs: ``("finish", {"slot": 2})``."""


def at_once(driver: Driver) -> tuple[str, ...]:
    """The actions that the implementation takes by itself (see :class:`Driver`)."""
    return tuple(getattr(driver, "at_once", ()))


def cannot(driver: Driver) -> tuple[Lack, ...]:
    """What the implementation doesn't have (see :class:`Driver`)."""
    return tuple(getattr(driver, "cannot", ()))


def never_refuses(driver: Driver) -> tuple[str, ...]:
    """What the implementation takes also where the machine refuses (see :class:`Driver`)."""
    return tuple(getattr(driver, "never_refuses", ()))


class Functions:
    """The machine's own transition functions, called by name; how each is called is read off once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._calls = {action.name: (action.function, machine.signature(action.function)) for action in machine.actions}

    def step(self, policy: object, state: object, action: str, inputs: Mapping[str, object]) -> object:
        """The state after *action*.

        Raises:
            Refused: with event and state filled in.
            SpecError: the machine has no such action.
        """
        if action not in self._calls:
            self._machine.action(action)
        function, signature = self._calls[action]
        try:
            return function(*signature.arguments(policy, (state,), None, inputs))
        except Refused as refusal:
            refusal.event, refusal.state = action, state
            raise


class MachineDriver:
    """Drives the machine itself: its functions are the implementation, and its state is all there is.

    Args:
        machine: the machine.
        start: which of its initial states a run begins in.
    """

    def __init__(self, machine: Machine, *, start: int = 0) -> None:
        self.machine = machine
        self.policy: object = None
        self.state: object = None
        self._functions = Functions(machine)
        self._initial = machine.initial[start]

    def reset(self, policy: object) -> None:
        """Begin in the initial state."""
        self.policy = policy
        self.state = self._initial(*self.machine.signature(self._initial).arguments(policy, ()))

    def do(self, action: str, /, **inputs: object) -> None:
        """Run the transition function of this name."""
        self.state = self._functions.step(self.policy, self.state, action, inputs)

    def observe(self) -> object:
        """The state."""
        return self.state

    def close(self) -> None:
        """Nothing to let go of."""


@attrs.frozen
class Difference:
    """A field in which implementation and machine differ, with both values in words."""

    path: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path} is {self.found}, the machine says {self.expected}"


class Failure(CallerError, AssertionError):
    """A walk failed: ``step`` is where, ``program`` repeats it. Mend the implementation, or the machine.

    ``walk`` holds the steps since the last reset.
    """

    def __init__(self, what: str, *, step: str, program: str = "", walk: tuple[Taken, ...] = ()) -> None:
        self.what = what
        self.step = step
        self.program = program
        self.walk = walk
        super().__init__(what)

    def __str__(self) -> str:
        return f"{self.what}\n\nTo repeat it:\n\n{self.program}" if self.program else self.what


class Divergence(Failure):
    """The implementation does not do what the machine says.

    Attributes:
        action: the action after which they differ; empty if they do so from the start.
        inputs: its inputs.
        rule: the rule by which the machine refuses it, if it does; else that by which the implementation does.
        differences: the fields that differ, if it is the state.
    """

    def __init__(
        self,
        what: str,
        *,
        step: str,
        action: str,
        inputs: Mapping[str, object],
        rule: str = "",
        differences: tuple[Difference, ...] = (),
        program: str = "",
        walk: tuple[Taken, ...] = (),
    ) -> None:
        super().__init__(what, step=step, program=program, walk=walk)
        self.action = action
        self.inputs = inputs
        self.rule = rule
        self.differences = differences


class RuleBroken(Failure):
    """The machine itself breaks one of its ``always`` rules on this walk: the machine or the rule is wrong."""

    def __init__(self, rule: Rule, *, step: str, program: str = "", walk: tuple[Taken, ...] = ()) -> None:
        super().__init__(f"{rule.id} is broken by {step}: {rule.sentence}", step=step, program=program, walk=walk)
        self.rule = rule.id


def alike(one: Exception, other: Exception) -> bool:
    """Whether two failures are of one kind: a state that differs, a refusal that is missing, one too many."""
    kinds = [
        (isinstance(failure, Divergence) and bool(failure.differences), isinstance(failure.__cause__, Refused))
        for failure in (one, other)
    ]
    return type(one) is type(other) and kinds[0] == kinds[1]


KEPT = 1 << 15
"""How many states of a walk are remembered; walks pass the same ones again and again."""


class Ground:
    """A machine under one scope, compiled for walking. What it tells of a state is kept for a while.

    Args:
        machine: the machine.
        scope: its bounds and policy; the machine's first scope by default.
        traced: its relation, if it is there already.

    Attributes:
        canonical: the representative of a flat state.
        state: the machine's state of a flat one, without the ghost.
        successors: what is possible in a flat state, within the scope or not: labels, and the states after.
    """

    def __init__(self, machine: Machine, scope: Scope | None = None, *, traced: Relation | None = None) -> None:
        self.machine = machine
        self.scope = scope or machine.scopes[0]
        self.relation = traced or relation(machine)
        self.code = compile_relation(self.relation, self.scope.policy)
        self.within = self.code.triggers[f"within:{self.scope.name}"]
        self.functions = Functions(machine)
        self.canonical = lru_cache(KEPT)(Symmetry(machine, self.relation.layout).canonical)
        self.state = lru_cache(KEPT)(self._state)
        self.successors = lru_cache(KEPT)(self.code.successors)
        shape = Layout(self.state(self.code.initial[0]))
        self.fields = self.relation.layout.fields[: len(shape)]

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The actions with every choice of inputs, by their labels."""
        return self.code.instances

    def _state(self, at: Flat) -> object:
        return cast("tuple[object, object]", self.relation.layout.rebuild(at))[0]

    def inputs(self, label: int) -> dict[str, object]:
        """The inputs of an instance, as transition functions take them."""
        return Reference.inputs(self.instances[label])

    def open(self, at: Flat) -> list[tuple[int, Flat]]:
        """What is possible and stays within the scope: label, and state after it."""
        return [(label, after) for label, after in self.successors(at) if self.within(after)]

    def offered(self, at: Flat, own: frozenset[str]) -> dict[int, Flat]:
        """What is open to a walk of an implementation that takes *own* by itself."""
        return {
            label: after
            for label, after in self.open(at)
            if self.instances[label].action not in own
            and all(self.within(one) for _, one in self.chain(label, after, own))
        }

    def chain(self, label: int, after: Flat, own: frozenset[str]) -> Iterator[tuple[int, Flat]]:
        """A step, and those of the actions *own* that follow it at once."""
        passed: set[Flat] = set()
        step: tuple[int, Flat] | None = (label, after)
        while step is not None and step[1] not in passed:
            yield step
            passed.add(step[1])
            following = self.successors(step[1]) if own else ()
            step = next((one for one in following if self.instances[one[0]].action in own), None)

    def lacking(self, lacks: Sequence[Lack]) -> frozenset[int]:
        """The labels of what an implementation doesn't have."""
        pairs = [(one, {}) if isinstance(one, str) else one for one in lacks]
        return frozenset(
            label
            for label, instance in enumerate(self.instances)
            for name, inputs in pairs
            if instance.action == name and inputs.items() <= self.inputs(label).items()
        )

    def closed(self, at: Flat) -> list[int]:
        """What the machine refuses."""
        possible = {label for label, _ in self.successors(at)}
        return [label for label in range(len(self.instances)) if label not in possible]

    def refusal(self, at: Flat, label: int) -> Refused:
        """Why the machine refuses an instance."""
        try:
            self.functions.step(self.scope.policy, self.state(at), self.instances[label].action, self.inputs(label))
        except Refused as refusal:
            return refusal
        raise SpecError(
            f"{self.instances[label].name} is possible, though its traced guard refuses it",
            instead="run 'deadreckon check', which compares the two",
        )

    def differences(self, at: Flat, seen: object) -> tuple[Difference, ...]:
        """Where what a driver shows differs from the state *at*.

        Raises:
            SpecError: the driver shows something that is no state and no mapping, or names an unknown field.
        """
        state = self.state(at)
        if seen == state:
            return ()
        if isinstance(seen, self.machine.state):
            shown: Mapping[str, object] = dict(leaves(seen))
            missing = [field for field in self.fields if field.path not in shown]
        elif isinstance(seen, Mapping):
            shown, missing = seen, []
            self._check_known(shown)
        else:
            raise SpecError(f"the driver observes {seen!r}", instead=f"a {self.machine.state.__name__}, or a mapping")
        expected = dict(leaves(state))
        return (
            *(
                Difference(path, words(value), words(expected.get(path)))
                for path, value in shown.items()
                if value != expected.get(path)
            ),
            *(Difference(field.path, "missing", words(expected[field.path])) for field in missing),
        )

    def _check_known(self, shown: Mapping[str, object]) -> None:
        known = [field.path for field in self.fields]
        for path in shown:
            if path not in known:
                raise SpecError(
                    f"the driver observes {path!r}, which is no field of {self.machine.state.__name__}",
                    instead=f"one of {', '.join(known)}",
                )


def words(leaf: object) -> str:
    """A leaf of a state as a person writes it."""
    if leaf is None:
        return "absent"
    if isinstance(leaf, Enum):
        return Field("", type(leaf)).words(position(leaf))
    return str(leaf).lower() if isinstance(leaf, bool) else str(leaf)


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The scalars of a state under their dotted paths."""
    if isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from leaves(element, f"{path}[{index}]")
    elif (names := parts(value)) is not None:
        for name in names:
            yield from leaves(getattr(value, name), f"{path}.{name}" if path else name)
    else:
        yield path, value


@attrs.frozen
class Taken:
    """One step of a walk: an instance, and whether the machine refuses it (then it was tried for the refusal)."""

    label: int
    refused_by: str | None = None
