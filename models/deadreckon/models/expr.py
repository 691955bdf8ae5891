"""The intermediate form: expressions over integers and booleans, shared and folded as they are built.

Every engine lowers this one form: :mod:`compiled` to Python, ``deadreckon.proofs`` to SMT-LIB. Enums are integers here
(the position of the member), so there are two sorts only. Equal expressions are the same object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum

import attrs


class Sort(Enum):
    """The two sorts of expressions."""

    INT = "Int"
    BOOL = "Bool"


class Op(Enum):
    """The operators; values are their SMT-LIB names."""

    CONST = "const"
    VAR = "var"
    ADD = "+"
    NEG = "neg"
    MUL = "*"
    EQ = "="
    LT = "<"
    LE = "<="
    NOT = "not"
    AND = "and"
    OR = "or"
    ITE = "ite"


@attrs.frozen(eq=False)
class Expr:
    """A node; build it with the functions below, which fold constants and share equal nodes."""

    op: Op
    sort: Sort
    args: tuple[Expr, ...]
    value: int | bool | str

    def __repr__(self) -> str:
        if self.op in (Op.CONST, Op.VAR):
            return str(self.value)
        return f"({self.op.value} {' '.join(map(repr, self.args))})"


_nodes: dict[tuple[object, ...], Expr] = {}


def _node(op: Op, sort: Sort, args: tuple[Expr, ...] = (), value: int | bool | str = 0) -> Expr:
    key = (op, sort, value, *map(id, args))
    known = _nodes.get(key)
    if known is None:
        known = _nodes[key] = Expr(op, sort, args, value)
    return known


def const(value: int | bool) -> Expr:
    """A constant of either sort."""
    return _node(Op.CONST, Sort.BOOL if isinstance(value, bool) else Sort.INT, (), value)


TRUE = const(True)
FALSE = const(False)


def var(name: str, sort: Sort) -> Expr:
    """A variable."""
    return _node(Op.VAR, sort, (), name)


def is_const(expr: Expr) -> bool:
    """Whether *expr* is a constant."""
    return expr.op is Op.CONST


def add(left: Expr, right: Expr) -> Expr:
    """``left + right``."""
    if is_const(left) and is_const(right):
        return const(int(left.value) + int(right.value))
    if is_const(left):
        left, right = right, left
    if is_const(right):
        if right.value == 0:
            return left
        if left.op is Op.ADD and is_const(left.args[1]):
            return add(left.args[0], const(int(left.args[1].value) + int(right.value)))
    return _node(Op.ADD, Sort.INT, (left, right))


def neg(expr: Expr) -> Expr:
    """``-expr``."""
    if is_const(expr):
        return const(-int(expr.value))
    return expr.args[0] if expr.op is Op.NEG else _node(Op.NEG, Sort.INT, (expr,))


def mul(left: Expr, right: Expr) -> Expr:
    """``left * right``; one of them is constant, so that the form stays linear."""
    if is_const(left):
        left, right = right, left
    if is_const(left):
        return const(int(left.value) * int(right.value))
    if right.value in (0, 1):
        return const(0) if right.value == 0 else left
    return _node(Op.MUL, Sort.INT, (left, right))


def eq(left: Expr, right: Expr) -> Expr:
    """``left == right``, of either sort."""
    if left is right:
        return TRUE
    if is_const(left) and is_const(right):
        return const(left.value == right.value)
    if is_const(left):
        left, right = right, left
    if left.sort is Sort.BOOL and is_const(right):
        return left if right.value else not_(left)
    if is_const(right) and left.op is Op.ITE and any(map(is_const, left.args[1:])):
        return ite(left.args[0], eq(left.args[1], right), eq(left.args[2], right))
    return _node(Op.EQ, Sort.BOOL, (left, right))


def lt(left: Expr, right: Expr) -> Expr:
    """``left < right``."""
    return _compare(Op.LT, left, right, lambda a, b: a < b)


def le(left: Expr, right: Expr) -> Expr:
    """``left <= right``."""
    return _compare(Op.LE, left, right, lambda a, b: a <= b)


def _compare(op: Op, left: Expr, right: Expr, fold: Callable[[int, int], bool]) -> Expr:
    if left is right:
        return const(fold(0, 0))
    if is_const(left) and is_const(right):
        return const(fold(int(left.value), int(right.value)))
    return _node(op, Sort.BOOL, (left, right))


def not_(expr: Expr) -> Expr:
    """``not expr``."""
    if is_const(expr):
        return const(not expr.value)
    return expr.args[0] if expr.op is Op.NOT else _node(Op.NOT, Sort.BOOL, (expr,))


def and_(*parts: Expr) -> Expr:
    """Conjunction; TRUE when there is nothing to hold."""
    return _junction(Op.AND, parts, unit=TRUE, zero=FALSE)


def or_(*parts: Expr) -> Expr:
    """Disjunction; FALSE when there is nothing to hold."""
    return _junction(Op.OR, parts, unit=FALSE, zero=TRUE)


def _junction(op: Op, parts: tuple[Expr, ...], *, unit: Expr, zero: Expr) -> Expr:
    flat: dict[Expr, None] = {}
    for part in parts:
        for one in part.args if part.op is op else (part,):
            if one is zero or not_(one) in flat:
                return zero
            if one is not unit:
                flat[one] = None
    if len(flat) < 2:
        return next(iter(flat), unit)
    return _node(op, Sort.BOOL, tuple(flat))


def implies(left: Expr, right: Expr) -> Expr:
    """``left`` entails ``right``."""
    return or_(not_(left), right)


def ite(condition: Expr, then: Expr, other: Expr) -> Expr:
    """``then if condition else other``."""
    if is_const(condition):
        return then if condition.value else other
    if then is other:
        return then
    if condition.op is Op.NOT:
        return ite(condition.args[0], other, then)
    if then.sort is Sort.BOOL:
        if then is TRUE or then is condition:
            return or_(condition, other)
        if then is FALSE:
            return and_(not_(condition), other)
        if other is FALSE or other is condition:
            return and_(condition, then)
        if other is TRUE:
            return or_(not_(condition), then)
    if then.op is Op.ITE and then.args[0] is condition:
        then = then.args[1]
    if other.op is Op.ITE and other.args[0] is condition:
        other = other.args[2]
    if other.op is Op.ITE and other.args[1] is then:
        return ite(or_(condition, other.args[0]), then, other.args[2])
    if then is other:
        return then
    return _node(Op.ITE, then.sort, (condition, then, other))


def rebuild(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """The node of the same operator over other arguments, folded."""
    return _REBUILD[expr.op](*args)


_REBUILD: dict[Op, Callable[..., Expr]] = {
    Op.ADD: add,
    Op.NEG: neg,
    Op.MUL: mul,
    Op.EQ: eq,
    Op.LT: lt,
    Op.LE: le,
    Op.NOT: not_,
    Op.AND: and_,
    Op.OR: or_,
    Op.ITE: ite,
}


def postorder(roots: tuple[Expr, ...]) -> Iterator[Expr]:
    """Every node below *roots* once, arguments before the node."""
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        waiting = [arg for arg in node.args if arg not in seen]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if node not in seen:
            seen.add(node)
            yield node


def digest(roots: tuple[Expr, ...]) -> hashlib._Hash:
    """A hash of the shared form of *roots*, open for more."""
    found = hashlib.sha256()
    names: dict[Expr, int] = {}
    for node in postorder(roots):
        names[node] = len(names)
        args = ",".join(str(names[arg]) for arg in node.args)
        found.update(f"{node.op.value}:{node.sort.value}:{node.value}:{args};".encode())
    found.update(",".join(str(names[root]) for root in roots).encode())
    return found


def substitute(roots: tuple[Expr, ...], bindings: Mapping[Expr, Expr]) -> tuple[Expr, ...]:
    """*roots* with variables replaced, folded again."""
    done: dict[Expr, Expr] = {}
    for node in postorder(roots):
        if node in bindings:
            done[node] = bindings[node]
        elif node.args:
            args = tuple(done[arg] for arg in node.args)
            done[node] = node if args == node.args else rebuild(node, args)
        else:
            done[node] = node
    return tuple(done[root] for root in roots)


def variables(roots: tuple[Expr, ...]) -> frozenset[Expr]:
    """The variables below *roots*."""
    return frozenset(node for node in postorder(roots) if node.op is Op.VAR)
