"""One expression means the same in every target language."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op, Sort
from deadreckon.proofs.lowering import TEXT, bits, integers, lower, symbol, text
from deadreckon.proofs.solvers import SOLVERS, Answer
from tests.cover.expressions import SMALL, expressions

INTS = tuple(ir.var(f"durable.attempts[{index}]", Sort.INT) for index in range(3))
BOOLS = (ir.var("alive", Sort.BOOL), ir.var("callback", Sort.BOOL))
ints, bools = expressions(INTS, BOOLS)
worlds: st.SearchStrategy[dict[Expr, int | bool]] = st.fixed_dictionaries(
    {**dict.fromkeys(INTS, SMALL), **dict.fromkeys(BOOLS, st.booleans())}
)


def meaning(root: Expr, world: Mapping[Expr, int | bool]) -> int | bool:
    """What *root* is in *world*, by Python's own arithmetic."""
    args = [meaning(arg, world) for arg in root.args]
    match root.op:
        case Op.CONST:
            return bool(root.value) if root.sort is Sort.BOOL else int(root.value)
        case Op.VAR:
            return world[root]
        case Op.ADD:
            return args[0] + args[1]
        case Op.NEG:
            return -args[0]
        case Op.MUL:
            return args[0] * args[1]
        case Op.EQ:
            return args[0] == args[1]
        case Op.LT:
            return args[0] < args[1]
        case Op.LE:
            return args[0] <= args[1]
        case Op.NOT:
            return not args[0]
        case Op.AND:
            return all(args)
        case Op.OR:
            return any(args)
        case Op.ITE:
            return args[1] if args[0] else args[2]


def python(value: z3.ExprRef) -> int | bool:
    """The value of a ground Z3 term."""
    value = z3.simplify(value)
    if z3.is_bool(value):
        return bool(z3.is_true(value))
    return int(value.as_signed_long()) if z3.is_bv(value) else int(value.as_long())


def ground(world: Mapping[Expr, int | bool], width: int | None) -> dict[Expr, z3.ExprRef]:
    """The variables of *world* as Z3 constants."""
    constant = (integers() if width is None else bits(width)).constant
    return {variable: constant(value) for variable, value in world.items()}


@given(st.one_of(ints, bools), worlds)
def test_integers_mean_what_the_expression_means(root: Expr, world: dict[Expr, int | bool]) -> None:
    """Over Z3's integers an expression has the value that Python gives it."""
    (lowered,) = lower((root,), integers(), ground(world, None))
    assert python(lowered) == meaning(root, world)


@given(st.one_of(ints, bools), worlds)
def test_wide_bit_vectors_mean_what_the_expression_means(root: Expr, world: dict[Expr, int | bool]) -> None:
    """Over bit-vectors that are wide enough an expression has the value that Python gives it, signs included."""
    (lowered,) = lower((root,), bits(512), ground(world, 512))
    assert python(lowered) == meaning(root, world)


@given(st.one_of(ints, bools), worlds)
def test_text_means_what_the_expression_means_to_both_solvers(root: Expr, world: dict[Expr, int | bool]) -> None:
    """The SMT-LIB text of an expression has the value that Python gives it, for each solver."""
    result = meaning(root, world)
    lines = [f"(declare-const {symbol(str(leaf.value))} {leaf.sort.value})" for leaf in world]
    lines += [f"(assert (= {text(leaf)} {text(ir.const(value))}))" for leaf, value in world.items()]
    lines.append(f"(assert (not (= {text(root)} {text(ir.const(result))})))\n")
    assert {name: ask("\n".join(lines), 10.0) for name, ask in SOLVERS.items()} == dict.fromkeys(SOLVERS, Answer.UNSAT)


@given(st.one_of(ints, bools))
def test_variables_keep_their_name_and_sort(root: Expr) -> None:
    """The variables of a lowered expression are those of the expression."""
    (lowered,) = lower((root,), integers())
    names = {str(leaf.value) for leaf in ir.variables((root,))}
    assert {str(one) for one in _free(lowered)} <= names


def _free(term: z3.ExprRef) -> set[z3.ExprRef]:
    if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
        return {term}
    return {leaf for child in term.children() for leaf in _free(child)}


@pytest.mark.parametrize("op", [op for op in Op if op not in (Op.CONST, Op.VAR)])
def test_every_operator_has_a_meaning_in_every_language(op: Op) -> None:
    """No operator is missing in a target language."""
    assert op in TEXT.apply
    assert op in integers().apply
    assert op in bits(8).apply


def test_text_stays_as_small_as_the_shared_form() -> None:
    """A node that is used many times is written once."""
    node = INTS[0]
    for _ in range(60):
        node = ir.add(node, node)
    assert len(text(node)) < 60 * 60


def test_text_writes_negative_numbers_as_the_standard_wants_them() -> None:
    """SMT-LIB has no negative literals: -3 is ``(- 3)``."""
    assert text(ir.add(INTS[0], ir.const(-3))) == "(+ |durable.attempts[0]| (- 3))"
    assert text(ir.neg(INTS[0])) == "(- |durable.attempts[0]|)"


def test_text_of_a_bound_node_is_its_name() -> None:
    """What a caller has bound already is named, not written again."""
    both = ir.and_(*BOOLS)
    assert text(ir.not_(both), {both: "inv"}) == "(not inv)"


def test_bindings_of_inner_nodes_cut_the_walk() -> None:
    """A binding replaces a node as a whole, whatever is below it."""
    total = ir.add(INTS[0], INTS[1])
    (lowered,) = lower((ir.lt(total, INTS[2]),), integers(), {total: z3.IntVal(7)})
    assert str(lowered) == "7 < durable.attempts[2]"
