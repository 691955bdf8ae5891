"""Expressions as TLA+: with the names of fields and members, shared parts named by LET, laid out to be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op, Sort
from deadreckon.models.layout import Field

WIDTH = 96
"""Of a line; what is longer is broken at its operators."""
SHORT = 24
"""Characters of a part that is written out again where it is used again, instead of being named."""

DEEP = 24
"""Operators in one another, at most; what is deeper is named."""

_COMPARE = {Op.EQ: "=", Op.LT: "<", Op.LE: "<="}
_NEGATED = {Op.EQ: "#", Op.LT: ">=", Op.LE: ">"}
_TURNED = {"=": "=", "#": "#", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ATOM, _SUM, _COMPARISON, _JUNCTION, _LOOSE = range(5)
"""How loosely the outermost operator of a text binds."""

Typed = tuple[Expr, Field | None]
"""A node, with the enum field whose members its numbers stand for."""


def literal(value: int | bool, field: Field | None) -> str:
    """A value as TLA+ writes it; members of enums are strings."""
    if field is not None:
        return f'"{field.words(int(value))}"'
    return str(value).upper()


@attrs.define
class Writer:
    """Writes expressions over one state, whose leaves are called ``names``; ``local`` makes names for shared parts."""

    fields: Mapping[Expr, Field]
    names: Mapping[Expr, str]
    local: Callable[[int], str]
    _known: dict[Expr, Field | None] = attrs.field(factory=dict)
    _named: dict[Typed, str] = attrs.field(factory=dict)

    def block(self, root: Expr, field: Field | None = None) -> list[str]:
        """*root* alone, with its own LET."""
        lets = self.lets([(root, field)])
        return within_let(lets, self.lines((root, field)))

    def lets(self, roots: list[Typed]) -> list[str]:
        """Definitions of the parts that *roots* share; until the next call the texts of roots refer to them."""
        self._named = {}
        found: list[str] = []
        roots = [self._typed(*one) for one in roots]
        order = list(self._postorder(roots))
        uses = Counter(arg for one in order for arg in self._arguments(one))
        uses.update(roots)
        depth: dict[Typed, int] = {}
        for one in order:
            depth[one] = 1 + max((depth[arg] for arg in self._arguments(one)), default=-1)
            if depth[one] > DEEP or (uses[one] > 1 and one[0].args and len(self.flat(one)) > SHORT):
                name = self.local(len(self._named) + 1)
                found += headed(f"{name} == ", self.lines(one))
                self._named[one] = name
                depth[one] = 0
        return found

    def lines(self, one: Typed) -> list[str]:
        """The text of a root, broken into lines."""
        one = self._typed(*one)
        if one in self._named:
            return [self._named[one]]
        text = self.flat(one)
        return [text] if len(text) <= WIDTH else self._broken(one)

    def flat(self, one: Typed) -> str:
        """The text of a root in one line."""
        return self._text(self._typed(*one))[0]

    # What enum the numbers of a node are members of.

    def _typed(self, node: Expr, wanted: Field | None) -> Typed:
        return node, None if node.sort is Sort.BOOL else self._own(node) or wanted

    def _own(self, node: Expr) -> Field | None:
        for below in ir.postorder((node,)) if node not in self._known else ():
            found = self.fields.get(below)
            self._known[below] = found if found is not None and found.size else None
            if below.op is Op.ITE:
                self._known[below] = self._known[below.args[1]] or self._known[below.args[2]]
        return self._known[node]

    def _arguments(self, one: Typed) -> list[Typed]:
        node, field = one
        if node.op is Op.ITE:
            return [self._typed(arg, field if at else None) for at, arg in enumerate(node.args)]
        if node.op is Op.EQ and node.args[0].sort is Sort.INT:
            field = self._own(node.args[0]) or self._own(node.args[1])
            return [self._typed(arg, field) for arg in node.args]
        return [self._typed(arg, None) for arg in node.args]

    def _postorder(self, roots: list[Typed]) -> Iterator[Typed]:
        seen: set[Typed] = set()
        stack = list(reversed(roots))
        while stack:
            waiting = [arg for arg in self._arguments(stack[-1]) if arg not in seen]
            if waiting:
                stack += reversed(waiting)
                continue
            one = stack.pop()
            if one not in seen:
                seen.add(one)
                yield one

    # Text.

    def _text(self, one: Typed) -> tuple[str, int]:
        """The text, and how loosely it binds."""
        node, field = one
        if one in self._named:
            return self._named[one], _ATOM
        if node in self.names:
            return self.names[node], _ATOM
        args = self._arguments(one)
        match node.op:
            case Op.CONST:
                value = node.value if isinstance(node.value, bool) else int(node.value)
                return literal(value, field), _ATOM if value >= 0 else _SUM
            case Op.NOT:
                return self._not(args[0])
            case Op.AND | Op.OR:
                return self._junction(node.op, args)
            case Op.ITE:
                condition, then, other = (self._tight(arg, _JUNCTION) for arg in args)
                return f"IF {condition} THEN {then} ELSE {other}", _LOOSE
            case Op.ADD:
                return self._sum(*args), _SUM
            case Op.NEG:
                return f"-{self._tight(args[0], _ATOM)}", _SUM
            case Op.MUL:
                return f"{self._tight(args[1], _ATOM)} * {self._tight(args[0], _ATOM)}", _SUM
        return self._comparison(_COMPARE[node.op], args), _COMPARISON

    def _tight(self, one: Typed, most: int) -> str:
        text, binds = self._text(one)
        return f"({text})" if binds > most else text

    def _comparison(self, operator: str, args: list[Typed]) -> str:
        if args[0][0].op is Op.CONST:
            args, operator = args[::-1], _TURNED[operator]
        left, right = (self._tight(arg, _SUM) for arg in args)
        return f"{left} {operator} {right}"

    def _not(self, one: Typed) -> tuple[str, int]:
        if one[0].op in _NEGATED and one not in self._named:
            return self._comparison(_NEGATED[one[0].op], self._arguments(one)), _COMPARISON
        return f"~{self._tight(one, _ATOM)}", _COMPARISON

    def _sum(self, left: Typed, right: Typed) -> str:
        for a, b in ((left, right), (right, left)):
            if b in self._named or a[0].op is Op.NEG:
                continue
            if b[0].op is Op.NEG:
                return f"{self._tight(a, _ATOM)} - {self._tight(self._arguments(b)[0], _ATOM)}"
            if b[0].op is Op.CONST and int(b[0].value) < 0:
                return f"{self._tight(a, _ATOM)} - {-int(b[0].value)}"
        return f"{self._tight(left, _ATOM)} + {self._tight(right, _ATOM)}"

    def _junction(self, op: Op, args: list[Typed]) -> tuple[str, int]:
        conditions, consequences = self._implication(op, args)
        if conditions and consequences:
            left = " /\\ ".join(self._tight(one, _COMPARISON) for one in conditions)
            right = " \\/ ".join(self._tight(one, _COMPARISON) for one in consequences)
            return f"{left} => {right}", _LOOSE
        sign = " /\\ " if op is Op.AND else " \\/ "
        return sign.join(self._tight(one, _COMPARISON) for one in args), _JUNCTION

    def _implication(self, op: Op, args: list[Typed]) -> tuple[list[Typed], list[Typed]]:
        """A disjunction with negated parts says what follows from them."""
        negated = [one for one in args if op is Op.OR and one[0].op is Op.NOT and one not in self._named]
        return [self._arguments(one)[0] for one in negated], [one for one in args if one not in negated]

    def _broken(self, one: Typed) -> list[str]:
        node, _ = one
        args = self._arguments(one)
        match node.op:
            case Op.AND | Op.OR:
                conditions, consequences = self._implication(node.op, args)
                known = " /\\ ".join(self._tight(arg, _COMPARISON) for arg in conditions)
                if conditions and consequences and len(known) < WIDTH:
                    last = consequences if len(consequences) > 1 else None
                    rest = listed("\\/ ", map(self.lines, last)) if last else self.lines(consequences[0])
                    return [f"{known} =>", *(f"  {line}" for line in rest)]
                return listed("/\\ " if node.op is Op.AND else "\\/ ", map(self.lines, args))
            case Op.ITE:
                return self._choice(one)
            case Op.NOT:
                return closed("~(", self.lines(args[0]))
            case Op.EQ:
                left, right = (closed("(", self.lines(arg)) for arg in args)
                return [*left, *headed("= ", right)]
        return [self.flat(one)]

    def _choice(self, one: Typed) -> list[str]:
        """IF, with the ELSE IF of a chain below each other."""
        condition, then, other = self._arguments(one)
        found = headed("IF ", self.lines(condition))
        found += headed("THEN ", self.lines(then))
        if other[0].op is Op.ITE and other not in self._named:
            rest = self._choice(other)
            return [*found, f"ELSE {rest[0]}", *rest[1:]]
        return [*found, *headed("ELSE ", self.lines(other))]


def within_let(definitions: list[str], lines: list[str]) -> list[str]:
    """*lines*, that refer to *definitions*."""
    return [*headed("LET ", definitions), *headed("IN  ", lines)] if definitions else lines


def headed(head: str, lines: list[str]) -> list[str]:
    """*lines* behind *head*, all in one column."""
    return [head + lines[0], *(" " * len(head) + line for line in lines[1:])]


def listed(mark: str, items: Iterable[list[str]]) -> list[str]:
    """A junction list: each item behind *mark*."""
    return [line for item in items for line in headed(mark, item)]


def closed(opening: str, lines: list[str]) -> list[str]:
    """*lines* in parentheses, the first of which is the end of *opening*."""
    found = headed(opening, lines)
    return [*found[:-1], f"{found[-1]})"]
