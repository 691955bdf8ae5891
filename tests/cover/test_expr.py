"""Expressions are folded and shared as they are built, and never change what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.models import compiled
from deadreckon.models import expr as ir
from deadreckon.models.expr import Expr, Op, Sort

Tree = tuple[object, ...]
Env = Mapping[str, int]

INTS, BOOLS = ("x", "y", "z"), ("p", "q")
X, Y, Z = (ir.var(name, Sort.INT) for name in INTS)
P, Q = (ir.var(name, Sort.BOOL) for name in BOOLS)
LEAVES = (X, Y, Z, P, Q)

PYTHON: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "neg": lambda a: -a,
    "*": lambda a, b: a * b,
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "not": lambda a: not a,
    "and": lambda *parts: all(parts),
    "or": lambda *parts: any(parts),
    "=>": lambda a, b: not a or b,
    "ite": lambda c, a, b: a if c else b,
}
BUILD: dict[str, Callable[..., Expr]] = {
    "+": ir.add,
    "neg": ir.neg,
    "*": ir.mul,
    "=": ir.eq,
    "<": ir.lt,
    "<=": ir.le,
    "not": ir.not_,
    "and": ir.and_,
    "or": ir.or_,
    "=>": ir.implies,
    "ite": ir.ite,
}


def numbers(children: st.SearchStrategy[Tree], conditions: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    constant = st.tuples(st.just("const"), st.integers(-3, 3))
    return st.one_of(
        st.tuples(st.just("+"), children, children),
        st.tuples(st.just("neg"), children),
        st.tuples(st.just("*"), children, constant),
        st.tuples(st.just("*"), constant, children),
        st.tuples(st.just("ite"), conditions, children, children),
    )


def truths(children: st.SearchStrategy[Tree], terms: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from(["=", "<", "<="]), terms, terms),
        st.tuples(st.just("="), children, children),
        st.tuples(st.just("not"), children),
        st.tuples(st.just("=>"), children, children),
        st.tuples(st.just("ite"), children, children, children),
        st.lists(children, max_size=4).map(lambda parts: ("and", *parts)),
        st.lists(children, max_size=4).map(lambda parts: ("or", *parts)),
    )


def leaves(names: tuple[str, ...], constants: st.SearchStrategy[int]) -> st.SearchStrategy[Tree]:
    constant = st.tuples(st.just("const"), constants)
    return st.one_of(st.tuples(st.just("var"), st.sampled_from(names)), constant)


NUMBER_LEAVES = leaves(INTS, st.integers(-3, 3))
TRUTH_LEAVES = leaves(BOOLS, st.booleans())
TERMS = st.recursive(NUMBER_LEAVES, lambda below: numbers(below, TRUTH_LEAVES), max_leaves=6)
CLAIMS = st.recursive(TRUTH_LEAVES, lambda below: truths(below, TERMS), max_leaves=8)
NUMBERS = st.recursive(NUMBER_LEAVES, lambda below: numbers(below, CLAIMS), max_leaves=8)
TREES = st.one_of(NUMBERS, CLAIMS)
ENVS = st.fixed_dictionaries(
    {
        **{name: st.integers(-4, 4) for name in INTS},
        **{name: st.booleans() for name in BOOLS},
    }
)


def build(tree: Tree) -> Expr:
    kind, *rest = tree
    if kind == "const":
        return ir.const(rest[0])  # type: ignore[arg-type]  # as drawn
    if kind == "var":
        return ir.var(str(rest[0]), Sort.INT if rest[0] in INTS else Sort.BOOL)
    return BUILD[str(kind)](*(build(part) for part in rest))  # type: ignore[arg-type]  # trees below


def raw(tree: Tree, env: Env) -> int:
    """What the tree means in Python, without any expression."""
    kind, *rest = tree
    if kind == "const":
        return rest[0]  # type: ignore[return-value]  # as drawn
    if kind == "var":
        return env[str(rest[0])]
    return PYTHON[str(kind)](*(raw(part, env) for part in rest))  # type: ignore[arg-type]  # trees below


def evaluate(expr: Expr, env: Env) -> int:
    """What an expression means, one Python operator for each node."""
    done: dict[Expr, int] = {}
    for node in ir.postorder((expr,)):
        if node.op is Op.CONST:
            assert not isinstance(node.value, str)
            done[node] = node.value
        elif node.op is Op.VAR:
            done[node] = env[str(node.value)]
        else:
            done[node] = PYTHON[node.op.value](*(done[arg] for arg in node.args))
    return done[expr]


@given(TREES, ENVS)
def test_expr_folding_keeps_the_value(tree: Tree, env: Env) -> None:
    """An expression means what the operators that built it mean in Python, and has their sort."""
    expr = build(tree)
    assert evaluate(expr, env) == raw(tree, env)
    assert (expr.sort is Sort.BOOL) == isinstance(raw(tree, env), bool)


@given(TREES, ENVS)
def test_expr_compiled_code_keeps_the_value(tree: Tree, env: Env) -> None:
    """The Python that an expression is lowered to says what it means."""
    claim = ir.eq(build(tree), ir.const(raw(tree, env)))
    assert compiled._function(LEAVES, claim)(tuple(env[str(leaf.value)] for leaf in LEAVES))


@given(TREES)
def test_expr_equal_expressions_are_one_object(tree: Tree) -> None:
    """Building the same expression twice gives the same object."""
    assert build(tree) is build(tree)


@given(TREES, ENVS)
def test_expr_substitution_of_constants_folds_to_one(tree: Tree, env: Env) -> None:
    """With a constant for every variable nothing is left but the value."""
    constants = {leaf: ir.const(env[str(leaf.value)]) for leaf in LEAVES}
    (folded,) = ir.substitute((build(tree),), constants)
    assert ir.is_const(folded)
    assert folded.value == raw(tree, env)


@given(TREES, NUMBERS, CLAIMS, ENVS)
def test_expr_substitution_keeps_the_value(tree: Tree, number: Tree, claim: Tree, env: Env) -> None:
    """Substitution means evaluation where the variables have the values of what replaces them, all at once."""
    bindings = {X: build(number), Y: X, P: build(claim), Q: P}
    (changed,) = ir.substitute((build(tree),), bindings)
    inner = {**env, "x": raw(number, env), "y": env["x"], "p": raw(claim, env), "q": env["p"]}
    assert evaluate(changed, env) == raw(tree, inner)


@given(st.lists(TREES, max_size=4))
def test_expr_postorder_gives_each_node_once_after_its_arguments(trees: list[Tree]) -> None:
    """Every node below the roots comes once, after its arguments; the roots are among them."""
    roots = tuple(map(build, trees))
    order = list(ir.postorder(roots))
    place = {node: at for at, node in enumerate(order)}
    assert len(place) == len(order)
    assert set(roots) <= set(place)
    assert all(place[arg] < place[node] for node in order for arg in node.args)
    assert all(node in roots or any(node in other.args for other in order) for node in order)
    assert ir.variables(roots) == {node for node in order if node.op is Op.VAR}


def test_expr_substitution_shares_what_it_does_not_touch() -> None:
    """A root without a replaced variable is returned as it is; an inner node may be replaced too."""
    root = ir.add(X, ir.mul(Y, ir.const(2)))
    assert ir.substitute((root,), {Z: X}) == (root,)
    assert ir.substitute((root,), {ir.mul(Y, ir.const(2)): Z}) == (ir.add(X, Z),)


FOLDS: dict[str, tuple[Expr, Expr]] = {
    "a sum with zero": (ir.add(ir.const(0), X), X),
    "a sum of constants": (ir.add(ir.add(X, ir.const(2)), ir.const(-2)), X),
    "the constant of a sum is last": (ir.add(ir.const(1), ir.add(X, ir.const(2))), ir.add(X, ir.const(3))),
    "a double negative": (ir.neg(ir.neg(X)), X),
    "a product with one": (ir.mul(ir.const(1), X), X),
    "a product with zero": (ir.mul(X, ir.const(0)), ir.const(0)),
    "equality with itself": (ir.eq(X, X), ir.TRUE),
    "a bool that equals true": (ir.eq(ir.TRUE, P), P),
    "a bool that equals false": (ir.eq(P, ir.FALSE), ir.not_(P)),
    "less than itself": (ir.lt(X, X), ir.FALSE),
    "at most itself": (ir.le(X, X), ir.TRUE),
    "a double denial": (ir.not_(ir.not_(P)), P),
    "a contradiction": (ir.and_(P, Q, ir.not_(P)), ir.FALSE),
    "an excluded middle": (ir.or_(ir.not_(P), Q, P), ir.TRUE),
    "nothing to hold": (ir.and_(), ir.TRUE),
    "nothing that may hold": (ir.or_(), ir.FALSE),
    "one to hold": (ir.and_(ir.TRUE, P, P), P),
    "a nested conjunction": (ir.and_(P, ir.and_(Q, P)), ir.and_(P, Q)),
    "a nested disjunction": (ir.or_(P, ir.or_(Q, P)), ir.or_(P, Q)),
    "a known condition": (ir.ite(ir.FALSE, X, Y), Y),
    "a choice of one": (ir.ite(P, X, X), X),
    "a choice on a denial": (ir.ite(ir.not_(P), X, Y), ir.ite(P, Y, X)),
    "a choice of bools": (ir.ite(P, ir.TRUE, Q), ir.or_(P, Q)),
    "a choice inside its own": (ir.ite(P, ir.ite(P, X, Y), ir.ite(P, Y, Z)), ir.ite(P, X, Z)),
    "two choices of one": (ir.ite(P, X, ir.ite(Q, X, Y)), ir.ite(ir.or_(P, Q), X, Y)),
    "a choice compared with a constant": (ir.eq(ir.ite(P, ir.const(1), ir.const(2)), ir.const(2)), ir.not_(P)),
}


@pytest.mark.parametrize("case", FOLDS)
def test_expr_folds(case: str) -> None:
    """What is trivial is folded while it is built, so that equal meanings are mostly equal objects."""
    folded, expected = FOLDS[case]
    assert folded is expected


def test_expr_constants_keep_their_sort() -> None:
    """True and 1 are equal in Python and are two expressions."""
    assert ir.const(True) is ir.TRUE
    assert ir.const(1) is not ir.TRUE
    assert (ir.const(1).sort, ir.TRUE.sort) == (Sort.INT, Sort.BOOL)
    assert ir.var("x", Sort.INT) is not ir.var("x", Sort.BOOL)


def test_expr_is_shown_as_smt_lib_would() -> None:
    """The representation is the SMT-LIB term, for messages."""
    assert repr(ir.ite(P, ir.add(X, ir.const(1)), Y)) == "(ite p (+ x 1) y)"


def test_expr_of_any_depth_compiles() -> None:
    """A chain that is far deeper than Python's own limit of parentheses is lowered to Python nevertheless."""
    chain, value = X, 3
    for _ in range(2_000):
        chain, value = ir.neg(ir.add(chain, Y)), -(value + 2)
    assert compiled._function(LEAVES, ir.eq(chain, ir.const(value)))((3, 2, 0, False, False))
