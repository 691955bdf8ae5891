"""One walk over expressions, three target languages: Z3 integers, Z3 bit-vectors, SMT-LIB 2 text (for any solver)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import attrs
import z3

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op, Sort

T = TypeVar("T")


@attrs.frozen
class Algebra(Generic[T]):
    """How a target language writes constants, variables and operators."""

    constant: Callable[[int | bool], T]
    variable: Callable[[str, Sort], T]
    apply: Mapping[Op, Callable[..., T]]


def lower(roots: Iterable[Expr], algebra: Algebra[T], bindings: Mapping[Expr, T] | None = None) -> list[T]:
    """*roots* in the target language; *bindings* are what variables (or other nodes) stand for already."""
    roots = tuple(roots)
    done: dict[Expr, T] = {}
    given = bindings or {}
    for node in ir.postorder(roots):
        if node in given:
            done[node] = given[node]
        elif node.op is Op.CONST:
            done[node] = algebra.constant(node.value if node.sort is Sort.INT else bool(node.value))  # type: ignore[arg-type]  # never a name
        elif node.op is Op.VAR:
            done[node] = algebra.variable(str(node.value), node.sort)
        else:
            done[node] = algebra.apply[node.op](*(done[arg] for arg in node.args))
    return [done[root] for root in roots]


_LOGIC: dict[Op, Callable[..., z3.ExprRef]] = {
    Op.EQ: lambda a, b: a == b,
    Op.NOT: z3.Not,
    Op.AND: z3.And,
    Op.OR: z3.Or,
    Op.ITE: z3.If,
    Op.ADD: lambda a, b: a + b,
    Op.NEG: lambda a: -a,
    Op.MUL: lambda a, b: a * b,
}


def integers() -> Algebra[z3.ExprRef]:
    """Z3 over unbounded integers."""
    return Algebra(
        lambda value: z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value),
        lambda name, sort: z3.Bool(name) if sort is Sort.BOOL else z3.Int(name),
        {**_LOGIC, Op.LT: lambda a, b: a < b, Op.LE: lambda a, b: a <= b},
    )


def bits(width: int) -> Algebra[z3.ExprRef]:
    """Z3 over signed bit-vectors of *width*; the caller shows that nothing overflows."""
    return Algebra(
        lambda value: z3.BoolVal(value) if isinstance(value, bool) else z3.BitVecVal(value, width),
        lambda name, sort: z3.Bool(name) if sort is Sort.BOOL else z3.BitVec(name, width),
        {**_LOGIC, Op.LT: lambda a, b: a < b, Op.LE: lambda a, b: a <= b},
    )


def symbol(name: str) -> str:
    """*name* as an SMT-LIB symbol."""
    return f"|{name}|"


def _application(operator: str) -> Callable[..., str]:
    return lambda *args: f"({operator} {' '.join(args)})"


TEXT: Algebra[str] = Algebra(
    lambda value: str(value).lower() if isinstance(value, bool) or value >= 0 else f"(- {-value})",
    lambda name, sort: symbol(name),
    {op: _application("-" if op is Op.NEG else op.value) for op in Op if op not in (Op.CONST, Op.VAR)},
)


def text(root: Expr, bindings: Mapping[Expr, str] | None = None) -> str:
    """*root* as one SMT-LIB term; nodes used more than once are bound by ``let``, so it stays as small as the form."""
    uses: dict[Expr, int] = {}
    for node in ir.postorder((root,)):
        for arg in node.args:
            uses[arg] = uses.get(arg, 0) + 1
    names = dict(bindings or {})
    opening: list[str] = []
    for node in ir.postorder((root,)):
        if node.args and uses.get(node, 0) > 1 and node not in names:
            (term,) = lower((node,), TEXT, names)
            names[node] = f"t!{len(opening)}"
            opening.append(f"(let (({names[node]} {term})) ")
    (term,) = lower((root,), TEXT, names)
    return "".join(opening) + term + ")" * len(opening)
