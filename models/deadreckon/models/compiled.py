"""Lower a relation to Python: straight-line code over flat tuples, for one concrete policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

import attrs

from deadreckon.spec import Refused, Rule

from . import expr as ir
from .expr import Expr, Op
from .grounding import Grounded, Instance, ground
from .layout import Flat
from .relation import Relation


@attrs.frozen(eq=False)
class Compiled:
    """Functions over flat states.

    ``successors`` gives the index of each enabled instance and the state after it; ``claims[id]`` judges a state,
    ``steps[id][instance]`` a step from the state before it (constants where the rule does not apply).
    """

    instances: tuple[Instance, ...]
    initial: tuple[Flat, ...]
    successors: Callable[[Flat], list[tuple[int, Flat]]]
    claims: Mapping[str, Callable[[Flat], bool]]
    steps: Mapping[str, Mapping[int, Callable[[Flat], bool]]]
    triggers: Mapping[str, Callable[[Flat], bool]]


def compile_relation(relation: Relation, policy: object) -> Compiled:
    """Compile *relation* under *policy*."""
    return compile_grounded(ground(relation, policy))


def compile_grounded(grounded: Grounded) -> Compiled:
    """Compile a relation whose policy and inputs are constants."""
    state = grounded.relation.state

    def over_states(conditions: Mapping[str, Expr]) -> dict[str, Callable[[Flat], bool]]:
        return {id: _function(state, condition) for id, condition in conditions.items()}

    return Compiled(
        grounded.instances,
        grounded.initial,
        _successors(state, grounded.instances),
        over_states(grounded.claims),
        {
            id: {one.index: _function(state, claims[one.index]) for one in grounded.instances}
            for id, claims in grounded.steps.items()
        },
        over_states(grounded.triggers),
    )


# Code generation. Nodes used more than once become local variables, so the code is as large as the shared form.

MAX_DEPTH = 40
"""Of parentheses in one line of generated code; Python refuses more than 200."""

_INFIX = {Op.ADD: "+", Op.MUL: "*", Op.EQ: "==", Op.LT: "<", Op.LE: "<=", Op.AND: "and", Op.OR: "or"}


class _Writer:
    def __init__(self, state: tuple[Expr, ...]) -> None:
        self.names = {leaf: f"s{index}" for index, leaf in enumerate(state)}
        self.fresh = 0

    def lines(self, roots: tuple[Expr, ...], indent: str) -> Iterator[str]:
        """Assignments for the nodes that *roots* share; afterwards :meth:`text` of a root is short."""
        uses = Counter(arg for node in ir.postorder(roots) for arg in node.args)
        uses.update(roots)
        depth: dict[Expr, int] = {}
        for node in ir.postorder(roots):
            depth[node] = 0 if node in self.names else 1 + max((depth[arg] for arg in node.args), default=0)
            if node.args and (uses[node] > 1 or depth[node] > MAX_DEPTH) and node not in self.names:
                text = self.text(node)
                self.names[node] = f"t{self.fresh}"
                self.fresh += 1
                depth[node] = 0
                yield f"{indent}{self.names[node]} = {text}"

    def text(self, node: Expr) -> str:
        """Python for *node*."""
        if node in self.names:
            return self.names[node]
        if ir.is_const(node):
            return str(node.value)
        args = [self.text(arg) for arg in node.args]
        if node.op is Op.ITE:
            return f"({args[1]} if {args[0]} else {args[2]})"
        if node.op is Op.NOT:
            return f"(not {args[0]})"
        if node.op is Op.NEG:
            return f"(-{args[0]})"
        return f"({f' {_INFIX[node.op]} '.join(args)})"


def _unpack(state: tuple[Expr, ...]) -> str:
    return f"    {', '.join(f's{index}' for index in range(len(state)))}, = s"


def _function(state: tuple[Expr, ...], root: Expr) -> Callable[[Flat], bool]:
    if ir.is_const(root):
        constant = bool(root.value)
        return lambda s: constant
    writer = _Writer(state)
    body = [*writer.lines((root,), "    "), f"    return {writer.text(root)}"]
    return cast("Callable[[Flat], bool]", _define(["def f(s):", _unpack(state), *body]))


def _successors(state: tuple[Expr, ...], instances: Iterable[Instance]) -> Callable[[Flat], list[tuple[int, Flat]]]:
    lines = ["def f(s):", _unpack(state), "    out = []"]
    guards = tuple(instance.guard for instance in instances)
    writer = _Writer(state)
    lines += writer.lines(guards, "    ")
    shared = dict(writer.names)
    for instance in instances:
        writer.names = dict(shared)
        lines.append(f"    if {writer.text(instance.guard)}:")
        lines += writer.lines(instance.updates, "        ")
        after = ", ".join(writer.text(update) for update in instance.updates)
        lines.append(f"        out.append(({instance.index}, ({after},)))")
    lines.append("    return out")
    return cast("Callable[[Flat], list[tuple[int, Flat]]]", _define(lines))


def straight_line(
    state: tuple[Expr, ...], inputs: tuple[Expr, ...], guard: Expr, updates: tuple[Expr, ...] | None
) -> Callable[..., Flat | None]:
    """A function of a flat state and integer *inputs*: the updated leaves where *guard* holds, else None.

    Without *updates* it is the guard itself.
    """
    writer = _Writer(state)
    writer.names.update((leaf, f"x{index}") for index, leaf in enumerate(inputs))
    lines = [f"def f({', '.join(('s', *(writer.names[leaf] for leaf in inputs)))}):"]
    lines += [_unpack(state)] if state else []
    lines += writer.lines((guard,), "    ")
    if updates is None:
        lines.append(f"    return bool({writer.text(guard)})")
    else:
        lines += [] if guard is ir.TRUE else [f"    if not {writer.text(guard)}: return None"]
        lines += writer.lines(updates, "    ")
        lines.append(f"    return ({''.join(f'{writer.text(update)}, ' for update in updates)})")
    return cast("Callable[..., Flat | None]", _define(lines))


def _define(lines: list[str]) -> object:
    names: dict[str, object] = {}
    exec("\n".join(lines), names)
    return names["f"]


class Reference:
    """Runs the machine's own functions on flat states: what the compiled relation is compared with."""

    def __init__(self, relation: Relation, policy: object) -> None:
        self.machine = relation.machine
        self.layout = relation.layout
        self.policy = policy
        self._calls: dict[Instance, Callable[[object], object]] = {}
        self._rules = {rule.id: self.machine.signature(rule.holds) for rule in self.machine.rules}
        observe = self.machine.observe
        self._observer = None if observe is None else (observe, self.machine.signature(observe))

    def step(self, instance: Instance, pair: tuple[object, object]) -> Flat | None:
        """The flat state after *instance*, or None when it is refused."""
        state, ghost = pair
        try:
            after = self._call(instance)(state)
        except Refused:
            return None
        if self._observer is None:
            return self.layout.flatten((after, None))
        observe, signature = self._observer
        return self.layout.flatten((after, observe(*signature.arguments(self.policy, (state, after), ghost))))

    def _call(self, instance: Instance) -> Callable[[object], object]:
        """The instance as a function of the state alone."""
        known = self._calls.get(instance)
        if known is None:
            function = self.machine.action(instance.action).function
            mark = object()
            arguments = self.machine.signature(function).arguments(self.policy, (mark,), None, self.inputs(instance))
            at = arguments.index(mark) if mark in arguments else len(arguments)
            ahead, behind = tuple(arguments[:at]), tuple(arguments[at + 1 :])
            known = self._calls[instance] = lambda state: function(*ahead, state, *behind)
        return known

    def claim(self, rule: Rule, states: tuple[object, ...], ghost: object) -> bool:
        """What the rule's own function says of one state, or of a step; a refusal is a no."""
        try:
            return bool(rule.holds(*self._rules[rule.id].arguments(self.policy, states, ghost)))
        except Refused:
            return False

    @staticmethod
    def inputs(instance: Instance) -> dict[str, object]:
        """The inputs of *instance* as the function takes them: enum members and bools, not their positions."""
        return {
            name: value if name not in instance.fields else instance.fields[name].value(value)
            for name, value in instance.inputs.items()
        }
