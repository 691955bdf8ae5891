"""Expressions and names in Promela."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum

import attrs

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op
from deadreckon.models.layout import Field

from .model import comment

RESERVED = frozenset(
    word
    for words in (
        # Promela's
        "active assert atomic bit bool break byte chan d_step do else empty enabled end eval false fi for full goto",
        "hidden if in init inline int len ltl mtype nempty never nfull notrace np_ od of pc_value printf printm",
        "priority proctype provided run select short show skip timeout trace true typedef unless unsigned xr xs",
        # of C, and of the program that SPIN writes
        "auto case char const continue default double enum extern float long now register return signed sizeof static",
        "struct switch union void volatile while",
        # of every model
        "LIMIT Machine Rules WITNESS holds may_rest reached started tell tell_reached told told_may_rest",
    )
    for word in words.split()
)
"""Identifiers that no field may have."""

WIDTH = 110

SMALL = 6
"""Nodes up to which a shared expression is written out again rather than named."""

_COMPARED = {Op.EQ: "==", Op.LT: "<", Op.LE: "<="}
_NEGATED = {Op.EQ: "!=", Op.LT: ">=", Op.LE: ">"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


class Names:
    """Identifiers that are told apart, and from Promela's own words."""

    def __init__(self) -> None:
        self._taken = set(RESERVED)

    def fresh(self, wanted: str) -> str:
        """*wanted* as an identifier that nothing else has."""
        plain = re.sub(r"[^A-Za-z0-9]+", "_", wanted).strip("_") or "x"
        plain = plain if plain[0].isalpha() else f"x{plain}"
        name, count = plain, 1
        while name in self._taken or re.fullmatch(r"(tmp|cond|sort_)\d+", name):
            count += 1
            name = f"{plain}_{count}"
        self._taken.add(name)
        return name


@attrs.frozen
class Words:
    """What expressions are written with: the names of the state's leaves, their enums, and the enums' members."""

    leaves: Mapping[Expr, str]
    enums: Mapping[Expr, type[Enum]]
    members: Mapping[type[Enum], tuple[str, ...]]


def words(state: tuple[Expr, ...], fields: tuple[Field, ...], names: Names) -> Words:
    """Names for the leaves of a state, and for the members of their enums."""
    leaves = {leaf: names.fresh(field.path) for leaf, field in zip(state, fields, strict=True)}
    enums = {leaf: field.type for leaf, field in zip(state, fields, strict=True) if issubclass(field.type, Enum)}
    members = {
        cls: tuple(names.fresh(f"{cls.__name__}_{one.name}") for one in cls) for cls in dict.fromkeys(enums.values())
    }
    return Words(leaves, enums, members)


class Writer:
    """Writes expressions; nodes that are shared become scratch variables, once :meth:`lines` was asked for them."""

    def __init__(self, words: Words, scratch_name: str = "tmp") -> None:
        self.words = words
        self.scratch_name = scratch_name
        self.names: dict[Expr, str] = dict(words.leaves)
        self.scratch = 0

    def lines(self, roots: tuple[Expr, ...], bound: frozenset[Expr] = frozenset()) -> Iterator[str]:
        """Assignments for the nodes that *roots* share, and for those in *bound*, whose value is wanted for later."""
        uses = Counter(arg for node in ir.postorder(roots) for arg in node.args)
        uses.update(roots)
        size: dict[Expr, int] = {}
        for node in ir.postorder(roots):
            size[node] = 1 if node in self.names else 1 + sum(size[arg] for arg in node.args)
            shared = uses[node] > 1 and size[node] > SMALL
            if node.args and node not in self.names and (shared or node in bound):
                value = self.whole(node)
                self.names[node] = self.spare()
                size[node] = 1
                yield f"{self.names[node]} = {value};"

    def spare(self) -> str:
        """A scratch variable that nothing was assigned to."""
        self.scratch += 1
        return f"{self.scratch_name}{self.scratch - 1}"

    def fork(self) -> Writer:
        """A writer that knows what this one does, and names further nodes on its own account."""
        other = Writer(self.words, self.scratch_name)
        other.names, other.scratch = dict(self.names), self.scratch
        return other

    def text(self, node: Expr, enum: type[Enum] | None = None) -> str:
        """*node* in Promela, in parentheses if it needs them anywhere; constants by their name in *enum*, if given."""
        if node in self.names:
            return self.names[node]
        if ir.is_const(node):
            return self._constant(node, enum)
        match node.op:
            case Op.NOT:
                inner = node.args[0]
                comparison = inner.op in _COMPARED and inner not in self.names
                return self._compared(inner, _NEGATED[inner.op]) if comparison else f"!{self.text(inner)}"
            case Op.EQ | Op.LT | Op.LE:
                return self._compared(node, _COMPARED[node.op])
            case Op.AND | Op.OR:
                return f"({(' && ' if node.op is Op.AND else ' || ').join(map(self.text, node.args))})"
            case Op.ADD:
                return self._sum(*node.args)
            case Op.NEG:
                return f"(0 - {self.text(node.args[0])})"
            case Op.MUL:
                return f"({self.text(node.args[0])} * {self.text(node.args[1])})"
            case _:
                enum = enum or self._enum(node)
                condition, then, other = node.args
                return f"({self.text(condition)} -> {self.text(then, enum)} : {self.text(other, enum)})"

    def whole(self, node: Expr, enum: type[Enum] | None = None) -> str:
        """:meth:`text` where it stands alone: without parentheses around all of it, unless they are needed even there."""
        text = self.text(node, enum)
        if node in self.names or node.op is Op.ITE or not text.startswith("("):
            return text
        return text[1:-1]

    def _constant(self, node: Expr, enum: type[Enum] | None) -> str:
        value = int(node.value)
        if enum is not None and 0 <= value < len(self.words.members[enum]):
            return self.words.members[enum][value]
        if isinstance(node.value, bool):
            return str(node.value).lower()
        return str(value) if value >= 0 else f"(0 - {-value})"

    def _compared(self, node: Expr, operator: str) -> str:
        left, right = node.args
        if ir.is_const(left):
            left, right, operator = right, left, _MIRRORED[operator]
        enum = self._enum(left) or self._enum(right)
        return f"({self.text(left, enum)} {operator} {self.text(right, enum)})"

    def _sum(self, left: Expr, right: Expr) -> str:
        if ir.is_const(right) and int(right.value) < 0:
            return f"({self.text(left)} - {-int(right.value)})"
        if right.op is Op.NEG and right not in self.names:
            return f"({self.text(left)} - {self.text(right.args[0])})"
        return f"({self.text(left)} + {self.text(right)})"

    def _enum(self, node: Expr) -> type[Enum] | None:
        """The enum that a node is a member of, as far as its leaves say."""
        while node.op is Op.ITE:
            if (found := self.words.enums.get(node.args[1])) is not None:
                return found
            node = node.args[2] if ir.is_const(node.args[1]) else node.args[1]
        return self.words.enums.get(node)


def plain(text: str) -> str:
    """*text* as it may stand in a comment."""
    return text.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *")


def commented(*paragraphs: str, indent: str = "") -> Iterator[str]:
    """*paragraphs* as one comment."""
    lines = [line[1:] for text in paragraphs for line in comment(plain(text), "*", WIDTH - 5) or ["*"]]
    for at, line in enumerate(lines):
        end = " */" if at == len(lines) - 1 else ""
        yield f"{indent}{' *' if at else '/*'}{line}{end}"


def wrapped(text: str, indent: str, end: str = "") -> str:
    """*text*, broken where it is long; behind operators, since SPIN takes other ends of lines for ends of statements."""
    lines = [""]
    for word in text.split(" "):
        lines[-1] += f" {word}" if lines[-1] else word
        if len(lines[-1]) > WIDTH - 30 and word in ("&&", "||", "->", ":", "+"):
            lines.append("")
    return f"{end}\n{indent}".join(line for line in lines if line)
