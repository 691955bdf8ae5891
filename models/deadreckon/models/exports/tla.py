"""A machine in one scope as a TLA+ module, which TLC explores to the same states.

Variables, records and functions have the paths of the fields; members of enums are strings; tuples are functions from 0.
An invariant stands for every rule: a rule over steps says of a state that each step that is possible there keeps it,
which is how exploration judges it too, steps that leave the bounds included.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import count

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr
from deadreckon.models.grounding import Instance
from deadreckon.models.layout import Field
from deadreckon.models.relation import Relation
from deadreckon.spec import Kind, Rule, Scope

from .model import Model, about, comment, model
from .tla_state import assigned, initial_state, ordering, plain, record
from .tla_text import WIDTH, Writer, closed, headed, listed, literal, within_let

_TAKEN = frozenset(
    (
        "Init",
        "Next",
        "Spec",
        "vars",
        "Step",
        "Within",
        "Ordered",
        "Now",
        "TypeOK",
        "MayRest",
        "NoDeadlock",
        "after",
        "may",
        "Nat",
        "Int",
        "Print",
        "PrintT",
        "Assert",
        "JavaTime",
        "Permutations",
        "SortSeq",
        "RandomElement",
        "Any",
        "ToString",
        "TLCEval",
        "TLCGet",
        "TLCSet",
        "STRING",
        "BOOLEAN",
        "TRUE",
        "FALSE",
    )
)


class Names:
    """Names of one module: each is given once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def __call__(self, wanted: str) -> str:
        """*wanted*, or the next free name like it."""
        wanted = plain(wanted)
        name = next(name for at in count() if (name := wanted + "_" * at) not in self.taken)
        self.taken.add(name)
        return name


class _Module:
    def __init__(self, written: Model) -> None:
        self.model = written
        self.machine = written.machine
        fields = written.relation.layout.fields
        roots = dict.fromkeys(re.split(r"[.\[]", field.path)[0] for field in fields)
        self.variables = tuple(plain(root) for root in roots)
        self.names = Names((*_TAKEN, *self.variables))
        self.module = plain(_camel(self.machine.name))
        self.state = written.relation.state
        self.fields = dict(zip(self.state, fields, strict=True))
        self.enums: dict[type, str] = {
            cls: self.names(cls.__name__) for cls in dict.fromkeys(one.type for one in fields) if issubclass(cls, Enum)
        }  # fmt: skip
        self.actions = {action: self.names(_camel(action)) for action in written.steps_of}
        self.called = dict(self._choices())
        self.rules = {rule.id: self.names(rule.id) for rule in self.machine.rules}
        self.locals: dict[int, str] = {}

    def _choices(self) -> Iterator[tuple[Instance, str]]:
        """A name for every choice of inputs, from their values."""
        for action, choices in self.model.steps_of.items():
            for one in choices:
                values = [re.sub(r"\W", "_", one.words(name)) for name in one.inputs] if len(choices) > 1 else []
                yield one, self.names("_".join([self.actions[action], *values])) if values else self.actions[action]

    def writer(self, prefix: str = "") -> Writer:
        """Writes what is said of the state; of the state called *prefix*, if one is given."""
        names = {leaf: prefix + plain(field.path) for leaf, field in self.fields.items()}
        return Writer(self.fields, names, self.local)

    def local(self, at: int) -> str:
        """The name of the *at*-th shared part of a definition."""
        if at not in self.locals:
            self.locals[at] = self.names(f"t{at}")
        return self.locals[at]

    def defined(self, name: str, condition: Expr) -> list[str]:
        """A definition by one condition."""
        return _definition(name, self.writer().block(condition))

    # The parts of the module, in their order.

    def text(self) -> list[str]:
        parts = (
            self.heading(),
            self.declared(),
            self.started(),
            self.bounded(),
            *(self.action(action) for action in self.actions),
            self.behaviour(),
            self.resting(),
            *(self.rule(rule) for rule in self.machine.rules),
        )
        return [*(line for part in parts for line in (*part, "")), "=" * 80]

    def heading(self) -> list[str]:
        scope = self.model.scope
        policy = self.model.relation.policy_layout
        values = policy.flatten(scope.policy) if scope.policy is not None else ()
        said = [
            f"Written by deadreckon from the traced table of the machine {self.machine.name}. Do not edit: write it again.",
            "",
            self.machine.title,
            "",
            f"Scope {scope.name}: {scope.why}",
            *(f"    {field.path} = {field.words(value)}" for field, value in zip(policy.fields, values, strict=True)),
            "",
            "Variables and fields are called as in the machine; tuples are functions from 0; members of enums are strings.",
        ]
        return [
            f"{' MODULE ' + self.module + ' ':-^80}",
            *(line for text in said for line in comment(text, "\\*")),
            "EXTENDS Integers, TLC",
        ]

    def declared(self) -> list[str]:
        found = [f"{name} == {{{', '.join(_members(cls))}}}" for cls, name in self.enums.items()]
        found += ["", f"VARIABLES {', '.join(self.variables)}", "", f"vars == <<{', '.join(self.variables)}>>"]
        found += ["", *_definition("Now", record((name, name) for name in self.variables)), ""]
        kinds = [f"/\\ {plain(one.path)} \\in {self.kind(one)}" for one in self.fields.values()]
        return [*found, *_definition("TypeOK", kinds)]

    def kind(self, field: Field) -> str:
        return self.enums[field.type] if field.size else "BOOLEAN" if field.type is bool else "Int"

    def started(self) -> list[str]:
        starts = [initial_state(tuple(self.fields.values()), one) for one in self.model.initial]
        if len(starts) == 1:
            return _definition("Init", starts[0])
        return _definition("Init", listed("\\/ ", starts))

    def bounded(self) -> list[str]:
        found = comment(f"The bounds of the scope: no step leads out of them. {self.model.scope.why}", "\\*")
        found += _definition("Within(after)", self.writer("after.").block(self.model.within))
        sorted_, ordered = ordering(self.model, self.names)
        state = f"{sorted_}(after)" if sorted_ else "after"
        kept = assigned(self.variables, "to" if sorted_ else "after")
        kept = within_let([f"to == {state}"] if sorted_ else [], kept)
        found += ["", *ordered]
        found += comment("One step, from where it may be taken to the state after it, if that is within bounds.", "\\*")
        found += comment(
            "(Compared with TRUE, so that TLC takes it once, in how many ways ever it may be taken.)", "\\*"
        )
        return [*found, *_definition("Step(may, after)", ["/\\ (may /\\ Within(after)) = TRUE", *headed("/\\ ", kept)])]

    def action(self, action: str) -> list[str]:
        choices = self.model.steps_of[action]
        doc = (inspect.getdoc(self.machine.action(action).function) or "").partition("\n")[0]
        found = ["-" * 80, *comment(re.sub(r":\w+:`~?([^`]+)`", r"\1", f"{action}: {doc}"), "\\*")]
        for one in choices:
            found += ["", *(comment(one.name, "\\*") if one.inputs else ())]
            found += self.defined(f"May_{self.called[one]}", one.guard)
            found += _definition(f"After_{self.called[one]}", self.after(one))
        steps = [f"\\/ Step(May_{self.called[one]}, After_{self.called[one]})" for one in choices]
        return [*found, "", *_definition(self.actions[action], steps if len(steps) > 1 else [steps[0][3:]])]

    def after(self, one: Instance) -> list[str]:
        """The state after a step: what it changes."""
        writer = self.writer()
        changed = [
            (self.fields[leaf], update)
            for leaf, update in zip(self.state, one.updates, strict=True)
            if leaf is not update
        ]
        if not changed:
            return ["Now"]
        lets = writer.lets([(update, field if field.size else None) for field, update in changed])
        clauses: list[str] = []
        for at, (field, update) in enumerate(changed):
            target = f"!.{plain(field.path)}"
            lines = writer.lines((update, field if field.size else None))
            clauses += headed(f"{target} = ", lines if len(lines) == 1 else closed("(", lines))
            clauses[-1] += "," if at < len(changed) - 1 else "]"
        return within_let(lets, ["[Now EXCEPT", *(f"  {line}" for line in clauses)])

    def behaviour(self) -> list[str]:
        return [
            "-" * 80,
            *_definition("Next", [f"\\/ {name}" for name in self.actions.values()]),
            "",
            "Spec == Init /\\ [][Next]_vars",
        ]

    def resting(self) -> list[str]:
        said = "Where no step is possible, not even one that would leave the bounds, the machine must be one that may rest."
        steps = [f"\\/ May_{name}" for name in self.called.values()]
        return [
            *comment(said, "\\*"),
            *self.defined("MayRest", self.model.may_rest),
            "",
            *_definition("NoDeadlock", ["\\/ MayRest", *steps]),
        ]

    # Rules.

    def rule(self, rule: Rule) -> list[str]:
        name, said = self.rules[rule.id], comment(about(rule), "\\*")
        if rule.kind is Kind.EVENTUALLY:
            return [*said, *self.eventual(rule)]
        claims = self.model.grounded.steps.get(rule.id)
        if claims is None:
            found = self.defined(name, self.model.grounded.claims[rule.id])
        else:
            found = _definition(name, list(self.over_steps(claims, rule.kind is Kind.SOMETIMES)))
        if rule.kind is Kind.SOMETIMES:
            found += [f"{self.witness(rule)} == ~{name}"]
        return [*said, *found]

    def witness(self, rule: Rule) -> str:
        """The invariant that a witness must violate."""
        return f"Never_{self.rules[rule.id]}"

    def over_steps(self, claims: Sequence[Expr], possible: bool) -> Iterator[str]:
        """A claim on the steps that may be taken: of every one, or, if it is to be *possible*, of one."""
        trivial, mark, then = (ir.FALSE, "\\/ ", "/\\") if possible else (ir.TRUE, "/\\ ", "=>")
        none = True
        for one, name in self.called.items():
            claim = claims[one.index]
            if claim is trivial:
                continue
            none = False
            lines = self.writer().block(claim)
            if len(lines) > 1 or len(lines[0]) > 60:
                yield from (f"{mark}May_{name} {then}", *(f"     {line}" for line in closed("(", lines)))
            else:
                yield f"{mark}May_{name} {then} ({lines[0]})"
        if none:
            yield literal(trivial is ir.TRUE, None)

    def eventual(self, rule: Rule) -> list[str]:
        if not self.model.scope.liveness:
            return comment("Not judged in this scope: its bounds cut off what should come.", "\\*")
        name, grounded = self.rules[rule.id], self.model.grounded
        said = (
            "Fairness: each of these actions is taken again and again, or is again and again impossible within the bounds. "
            "(To TLA+ a step that changes nothing is none; exploration takes it for one.)"
        )
        fair = [f"/\\ WF_vars({self.actions[action]})" for action in rule.fair if action in self.actions]
        return [
            *comment(said, "\\*"),
            *_definition(f"Fair_{name}", fair),
            *self.defined(f"When_{name}", grounded.triggers[rule.id]),
            *self.defined(f"Then_{name}", grounded.claims[rule.id]),
            f"{name} == Fair_{name} => (When_{name} ~> Then_{name})",
        ]

    def invariants(self) -> dict[str, str]:
        """The invariants that there are, by what they say: a rule, ``TypeOK`` or ``NoDeadlock``."""
        judged = [rule for rule in self.machine.rules if rule.kind is not Kind.EVENTUALLY]
        named = {rule.id: self.witness(rule) if rule.kind is Kind.SOMETIMES else self.rules[rule.id] for rule in judged}
        return {"TypeOK": "TypeOK", "NoDeadlock": "NoDeadlock", **named}

    def config(self, only: Collection[str] | None = None) -> list[str]:
        """What TLC is to check; and, as comments, what may be added: witnesses, and what comes eventually."""
        by = {kind: [rule for rule in self.machine.rules if rule.kind is kind] for kind in Kind}
        live = by[Kind.EVENTUALLY] if self.model.scope.liveness else []
        properties = [f"\\* PROPERTY {self.rules[rule.id]}" for rule in live]
        witnesses = [f"\\* INVARIANT {self.witness(rule)}" for rule in by[Kind.SOMETIMES]]
        asked = ("TypeOK", "NoDeadlock", *(rule.id for rule in by[Kind.ALWAYS])) if only is None else tuple(only)
        return [
            f"\\* What TLC checks of {self.module}.tla: the machine {self.machine.name}, scope {self.model.scope.name}.",
            "SPECIFICATION Spec",
            *(("INVARIANTS",) if asked else ()),
            *(f"  {self.invariants()[one]}" for one in asked),
            "\\* NoDeadlock is exact: it knows where the machine may rest, and that a step out of the bounds is one.",
            "CHECK_DEADLOCK FALSE",
            *(
                ("\\* Witnesses. Add one: TLC must find it violated, and shows how it is reached.",)
                if witnesses
                else ()
            ),
            *witnesses,
            *(("\\* What comes eventually. Add one: TLC then takes far longer.",) if properties else ()),
            *properties,
        ]


def _definition(name: str, lines: Sequence[str]) -> list[str]:
    if len(lines) == 1 and len(name) + len(lines[0]) < WIDTH:
        return [f"{name} == {lines[0]}"]
    return [f"{name} ==", *(f"  {line}" for line in lines)]


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", name))


def _members(cls: type[Enum]) -> list[str]:
    field = Field("", cls)
    return [literal(at, field) for at in range(field.size)]


def tla(relation: Relation, scope: Scope) -> str:
    """The TLA+ module of a machine in *scope*, followed by the configuration, where TLC can read it too.

    Raises:
        CallerError: when the machine computes with numbers that 32 bits don't hold.
    """
    module = _Module(model(relation, scope))
    config = [f"{' CONFIG ' + module.module + ' ':-^80}", *module.config(), "=" * 80]
    return "\n".join((*module.text(), "", *config, ""))


def tla_config(relation: Relation, scope: Scope, only: Collection[str] | None = None) -> str:
    """The configuration alone, for a file of its own; with *only* these of :func:`tla_invariants`, if given.

    Raises:
        CallerError: when the machine computes with numbers that 32 bits don't hold.
    """
    return "\n".join((*_Module(model(relation, scope)).config(only), ""))


def tla_invariants(relation: Relation, scope: Scope) -> Mapping[str, str]:
    """How the module calls its invariants: ``TypeOK``, ``NoDeadlock``, and each rule that is judged, by its id.

    That of a *sometimes* rule says that it is never so.

    Raises:
        CallerError: when the machine computes with numbers that 32 bits don't hold.
    """
    return _Module(model(relation, scope)).invariants()
