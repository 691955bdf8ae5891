"""A machine within one scope as a model for SPIN.

What is stored is what the explorer stores: canonical states, judged before the representative is taken, and no others.
Each instance of an action is one ``d_step``; whatever it computes on the way is ``hidden`` from the state. A second
process judges every state once, by a step that changes nothing. A step that would leave the scope changes nothing
either. So SPIN's *stored* are the explorer's states (and one more if there are several initial ones), and its
*transitions* are 1 + the edges + the steps that are cut + the states + those in which no action is possible.

SPIN's weak fairness is that of processes, not of actions, so *eventually* rules are named and not judged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import attrs

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op, Sort
from deadreckon.models.grounding import Instance
from deadreckon.models.intervals import Interval
from deadreckon.models.layout import Field
from deadreckon.spec import UNLIMITED, CallerError, Kind, Rule

from .model import Model, about
from .promela_text import Names, Writer, commented, plain, words, wrapped
from .ranges import limit, ranges

LARGEST = 20_000
"""Operators in one guard when it is written without names for what it shares: Promela has none to offer there."""


@attrs.frozen
class Promela:
    """A model's text; ``flags`` has the rule of each variable that SPIN's messages name, ``witnesses`` are those whose
    message says that the rule is reached, not that it is violated.

    ``starts`` is how many initial states there are; with several, one more state is stored, from which one is chosen.
    ``deadlock`` is the variable that is false where nothing is possible but should be.
    """

    text: str
    flags: Mapping[str, str]
    witnesses: frozenset[str]
    starts: int
    deadlock: str = "may_rest"


def promela(model: Model) -> Promela:
    """*model* in Promela.

    Raises:
        CallerError: when a guard is too large, or numbers may be too large for 32 bits.
    """
    return _Document(model).written()


class _Document:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.state = model.relation.state
        self.fields = model.relation.layout.fields
        self.names = Names()
        self.words = words(self.state, self.fields, self.names)
        self.intervals = ranges(model)
        self.limit = limit(model, self.intervals)
        if not self.limit:
            raise CallerError(f"{model.machine.name}: the numbers of scope {model.scope.name} don't fit into 32 bits")
        self.rules = [rule for rule in model.machine.rules if rule.kind is not Kind.EVENTUALLY]
        self.flags = {rule.id: self.names.fresh(f"{_prefix(rule)}_{rule.id}") for rule in self.rules}
        self.told = {rule.id: self.names.fresh(f"told_{rule.id}") for rule in self.rules}
        self.scratch = 0
        self.guards = Writer(self.words, "cond")
        self.groups = [frozenset(at for column in columns for at in column) for columns in model.symmetry.groups]

    def written(self) -> Promela:
        shared = list(self._shared())
        body = [*self._machine(), "", *self._rules()]
        inlines = [*self._inlines(), "", *shared]
        lines = [*self._header(), "", *self._constants(), "", *self._variables(), "", *inlines, "", *body]
        flags = {flag: id for id, flag in self.flags.items()}
        witnesses = frozenset(self.flags[rule.id] for rule in self.rules if rule.kind is Kind.SOMETIMES)
        return Promela("\n".join(lines) + "\n", flags, witnesses, len(self.model.initial))

    # What is declared.

    def _header(self) -> Iterator[str]:
        machine, scope = self.model.machine, self.model.scope
        name = f"{machine.name}-{scope.name}"
        yield from commented(
            f"{machine.name}: {machine.title}",
            "",
            f"Scope {scope.name}: {scope.why}",
            self._policy(),
            *self._horizons(),
        )
        yield from commented(
            f"Written by deadreckon from the traced table of the machine {machine.name}, scope {scope.name}. To check it:",
            "",
            f"spin -a {name}.pml",
            "cc -O2 -DSAFETY -DNOREDUCE -DMEMLIM=8000 -o pan pan.c",
            "./pan -n -m2000000 -c0",
            "",
            "Every rule that is violated is named by an assertion that fails. With spin -a -DWITNESS every 'sometimes' "
            "rule that is reached is named so too; there it is no error. Never use -DHC, which loses states in silence.",
            "",
            "Each action is a d_step for each choice of its inputs. A step that would leave the scope changes nothing, "
            "and process Rules judges each state by a step that changes nothing. So states stored are the states of "
            "the machine; transitions are 1 + its steps + steps out of the scope + its states + its states in which no "
            "action is possible." + " One more state is stored, where the initial one is chosen." * self._several(),
        )
        eventual = [about(rule) for rule in machine.rules if rule.kind is Kind.EVENTUALLY]
        if eventual:
            yield from commented(
                "Not judged here: SPIN can be fair to processes, and these are about actions.", *eventual
            )

    def _horizons(self) -> Iterator[str]:
        if self.model.scope.at_most:
            yield f"At most: {', '.join(f'{path} {most}' for path, most in self.model.scope.at_most.items())}"

    def _policy(self) -> str:
        layout, policy = self.model.relation.policy_layout, self.model.scope.policy
        values = zip(layout.fields, () if policy is None else layout.flatten(policy), strict=True)
        said = (f"{one.path.removeprefix('policy.')} = {_words(one, value)}" for one, value in values)
        return f"Policy: {', '.join(said) or 'none'}"

    def _several(self) -> bool:
        return len(self.model.initial) > 1

    def _constants(self) -> Iterator[str]:
        for members in self.words.members.values():
            yield from (f"#define {name} {position}" for position, name in enumerate(members))
        if None in self.intervals:
            yield from commented("Numbers without a bound that intervals show; SPIN counts in 32 bits.")
            yield f"#define LIMIT {self.limit}"

    def _variables(self) -> Iterator[str]:
        starts = self.model.initial[0]
        for leaf, field, interval, start in zip(self.state, self.fields, self.intervals, starts, strict=True):
            enum = self.words.enums.get(leaf)
            value = self.words.members[enum][start] if enum else str(int(start))
            name = self.words.leaves[leaf]
            what = field.path if enum is None else f"{field.path}: {enum.__name__}"
            yield f"{_type(leaf, interval)} {name} = {value};" + ("" if what == name else f"  /* {plain(what)} */")
        if self._several():
            yield "bool started;"
        yield ""
        for rule in self.rules:
            yield from commented(about(rule))
            yield f"hidden byte {self.flags[rule.id]}, {self.told[rule.id]};"
        yield from commented("No deadlock: where no action is possible, the machine may rest.")
        yield "hidden byte may_rest, told_may_rest;"
        scratch = [f"tmp{number}" for number in range(self.scratch)]
        yield from (f"hidden int {', '.join(scratch[at : at + 12])};" for at in range(0, len(scratch), 12))

    def _inlines(self) -> Iterator[str]:
        yield from commented("An assertion for the first time that a rule fails; SPIN goes on, if it is told to (-c0).")
        yield "inline tell(holds, told) { if :: !holds && !told -> told = 1; assert(holds) :: else fi }"
        yield "inline tell_reached(reached, told) { if :: reached && !told -> told = 1; assert(!reached) :: else fi }"
        for number, columns in enumerate(self.model.symmetry.groups):
            yield ""
            paths = ", ".join(self.model.machine.interchangeable[number])
            yield from commented(f"One representative of states that differ in the order of {paths}.")
            yield f"inline sort_{number}() {{"
            for end in range(len(columns), 1, -1):
                for left, right in itertools.pairwise(columns[:end]):
                    yield from self._exchange(left, right)
            yield "}"

    def _exchange(self, left: tuple[int, ...], right: tuple[int, ...]) -> Iterator[str]:
        """Put two elements in order."""
        self.scratch = max(self.scratch, 1)
        condition = ""
        pairs = [(self._leaf(a), self._leaf(b)) for a, b in zip(left, right, strict=True)]
        for a, b in reversed(pairs):
            condition = f"{b} < {a}" + (f" || ({b} == {a} && ({condition}))" if condition else "")
        yield "  if"
        yield f"  :: {condition} ->"
        yield from (f"     tmp0 = {a}; {a} = {b}; {b} = tmp0;" for a, b in pairs)
        yield "  :: else"
        yield "  fi;"

    def _leaf(self, at: int) -> str:
        return self.words.leaves[self.state[at]]

    def _shared(self) -> Iterator[str]:
        """What guards share, as macros: a guard is one expression, in which nothing can be assigned to scratch."""
        guards = tuple(one.guard for one in self.model.grounded.instances)
        self._check_sizes()
        definitions = [line.rstrip(";").partition(" = ") for line in self.guards.lines(guards)]
        if definitions:
            yield from commented("What guards have in common.")
        for name, _, value in definitions:
            yield f"#define {name} {wrapped(f'({value})', '  ', ' ' + chr(92))}"

    # What happens.

    def _machine(self) -> Iterator[str]:
        yield "active proctype Machine()"
        yield "{"
        if self._several():
            yield "  if"
            for start in self.model.initial:
                values = zip(self.words.leaves.values(), start, strict=True)
                yield f"  :: d_step {{ started = 1; {'; '.join(f'{name} = {int(one)}' for name, one in values)} }}"
            yield "  fi;"
        yield "  do"
        for action in self.model.machine.actions:
            instances = self.model.steps_of.get(action.name, ())
            never = "" if instances else " It is never possible under this policy."
            yield ""
            yield from commented(f"{action.name}: {_first_line(action.function.__doc__)}{never}", indent="  ")
            for one in instances:
                yield from (f"  {line}" if not line.startswith("#") else line for line in self._instance(one))
        yield ""
        yield from commented("Nothing is possible.", indent="  ")
        yield "  :: atomic { else -> d_step {"
        yield from self._assigned([("may_rest", self.model.may_rest)], "       ")
        yield "       tell(may_rest, told_may_rest)"
        yield "     } }"
        yield "  od"
        yield "}"

    def _instance(self, one: Instance) -> Iterator[str]:
        writer = Writer(self.words)
        changed = [at for at, update in enumerate(one.updates) if update is not self.state[at]]
        within = self._within_after(one)
        late = self._read_late(one, changed)
        claims, goals = (self._of_step(one, kind) for kind in (Kind.ALWAYS, Kind.SOMETIMES))
        roots = (*within, *(one.updates[at] for at in changed), *(claim for _, claim in claims))
        yield f":: d_step {{  /* {plain(one.name)} */"
        yield f"     {wrapped(self.guards.whole(one.guard), '     ')} ->"
        yield from (f"     {wrapped(line, '       ')}" for line in writer.lines(roots, late))
        for rule, claim in claims:
            yield f"     {self._flagged(writer, rule, claim)}"
        if goals:
            yield "#ifdef WITNESS"
            other = writer.fork()
            yield from (f"     {line}" for line in other.lines(tuple(goal for _, goal in goals)))
            yield from (f"     {self._flagged(other, rule, goal)}" for rule, goal in goals)
            yield "#endif"
            self.scratch = max(self.scratch, other.scratch)
        yield from self._effects(one, writer, within, changed)
        yield "   }"
        self.scratch = max(self.scratch, writer.scratch)

    def _effects(self, one: Instance, writer: Writer, within: tuple[Expr, ...], changed: list[int]) -> Iterator[str]:
        """The assignments, unless they lead out of the scope."""
        before = []
        assignments = []
        for place, at in enumerate(changed):
            update, name = one.updates[at], self._leaf(at)
            if update in self.state and self.state.index(update) in changed[:place]:
                before.append(f"{writer.spare()} = {self.words.leaves[update]};")
                value = before[-1].partition(" ")[0]
            else:
                value = writer.whole(update, self.words.enums.get(self.state[at]))
            assignments.append(f"{name} = {wrapped(value, '            ')};")
            if self.intervals[at] is None:
                assignments.append(f"assert(0 - LIMIT <= {name} && {name} <= LIMIT);")
        touched = [number for number, leaves in enumerate(self.groups) if leaves & set(changed)]
        assignments += [f"sort_{number}();" for number in touched]
        yield from (f"     {line}" for line in before)
        if not within or not changed:
            yield from (f"     {line}" for line in assignments or ["skip;"])
            return
        yield "     if"
        yield f"     :: {wrapped(' && '.join(map(writer.text, within)), '        ')} ->"
        yield from (f"        {line}" for line in assignments)
        yield "     :: else  /* out of the scope */"
        yield "     fi"

    def _within_after(self, one: Instance) -> tuple[Expr, ...]:
        """What of the scope's bounds is to be asked of the state after *one*: not what is as it was, and held then."""
        parts = _conjuncts(self.model.within)
        fixed = {self.state[at] for leaves in self.groups for at in leaves}
        kept = set(parts) if self._starts_within() else set()
        found = []
        for part in parts:
            after = self.model.grounded.after(part, one)
            if not (after is part and part in kept and not ir.variables((part,)) & fixed):
                found += [after] if after is not ir.TRUE else []
        return tuple(found)

    def _starts_within(self) -> bool:
        starts = (dict(zip(self.state, map(ir.const, start), strict=True)) for start in self.model.initial)
        typed = (
            {leaf: ir.const(bool(value.value)) if leaf.sort is Sort.BOOL else value for leaf, value in start.items()}
            for start in starts
        )
        return all(ir.substitute((self.model.within,), start)[0] is ir.TRUE for start in typed)

    def _read_late(self, one: Instance, changed: list[int]) -> frozenset[Expr]:
        """The updates that read a field which is assigned before them: their values are kept first."""
        found = set()
        for place, at in enumerate(changed):
            earlier = {self.state[other] for other in changed[:place]}
            if ir.variables((one.updates[at],)) & earlier:
                found.add(one.updates[at])
        return frozenset(found)

    def _of_step(self, one: Instance, kind: Kind) -> list[tuple[Rule, Expr]]:
        """The rules over steps of this kind that are not decided for *one* by its form alone."""
        idle = ir.const(kind is Kind.ALWAYS)
        table = self.model.grounded.steps
        rules = [rule for rule in self.rules if rule.kind is kind and rule.id in table]
        return [(rule, table[rule.id][one.index]) for rule in rules if table[rule.id][one.index] is not idle]

    def _check_sizes(self) -> None:
        size: dict[Expr, int] = {}
        instances = self.model.grounded.instances
        for node in ir.postorder(tuple(one.guard for one in instances)):
            size[node] = 1 + sum(size[arg] for arg in node.args)
        for one in instances:
            if size[one.guard] > LARGEST:
                raise CallerError(f"the guard of {one.name} has {size[one.guard]} operators in Promela, over {LARGEST}")

    # What is judged.

    def _rules(self) -> Iterator[str]:
        claims = self.model.grounded.claims
        always, sometimes = (
            [(rule, claims[rule.id]) for rule in self.rules if rule.kind is kind and rule.id in claims]
            for kind in (Kind.ALWAYS, Kind.SOMETIMES)
        )
        writer = Writer(self.words)
        yield from commented("Every state is judged by every rule over states.")
        yield "active proctype Rules()"
        yield "{"
        yield "end:"
        yield "  do"
        yield f"  :: d_step {{ {'started' if self._several() else 'true'} ->"
        yield from self._judged(writer, always)
        yield "#ifdef WITNESS"
        yield from self._judged(writer.fork(), sometimes)
        yield "#endif"
        yield "       skip"
        yield "     }"
        yield "  od"
        yield "}"

    def _judged(self, writer: Writer, rules: list[tuple[Rule, Expr]]) -> Iterator[str]:
        yield from (f"       {wrapped(line, '         ')}" for line in writer.lines(tuple(one for _, one in rules)))
        yield from (f"       {self._flagged(writer, rule, claim)}" for rule, claim in rules)
        self.scratch = max(self.scratch, writer.scratch)

    def _flagged(self, writer: Writer, rule: Rule, claim: Expr) -> str:
        flag, told = self.flags[rule.id], self.told[rule.id]
        tell = "tell" if rule.kind is Kind.ALWAYS else "tell_reached"
        return f"{flag} = {wrapped(writer.whole(claim), '         ')}; {tell}({flag}, {told});"

    def _assigned(self, values: Iterable[tuple[str, Expr]], indent: str) -> Iterator[str]:
        writer = Writer(self.words)
        for name, value in values:
            yield from (f"{indent}{line}" for line in writer.lines((value,)))
            yield f"{indent}{name} = {wrapped(writer.whole(value), indent)};"
        self.scratch = max(self.scratch, writer.scratch)


def _words(field: Field, value: int) -> str:
    return "unlimited" if value == UNLIMITED else field.words(value)


def _prefix(rule: Rule) -> str:
    return "holds" if rule.kind is Kind.ALWAYS else "reached"


def _conjuncts(condition: Expr) -> tuple[Expr, ...]:
    return condition.args if condition.op is Op.AND else () if condition is ir.TRUE else (condition,)


def _type(leaf: Expr, interval: Interval | None) -> str:
    if leaf.sort is Sort.BOOL:
        return "bool"
    if interval is None:
        return "int"
    low, high = interval
    if low >= 0 and high < 2**8:
        return "byte"
    return "short" if low >= -(2**15) and high < 2**15 else "int"


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().partition("\n")[0]
