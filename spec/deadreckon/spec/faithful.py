"""The static check: a machine may use only the forms that trace faithfully.

A tracer calls transitions with symbolic integers, booleans and enum members, whose operators build a formula and whose
truth value forks the path. What it can't intercept (``is``, ``hash``, ``len``, formatting, mutation, a global that
changes) would give a wrong formula, in silence. So it is refused, with the line and with what to write instead.

The check is a *whitelist* over syntax trees: a node is allowed because a ``visit_`` method or ``_PLAIN`` says so, and
``_MENDS`` only gives the refused ones better words. Helpers are checked like their callers, and after them.

Not checked: types (mypy's part); that a product is linear (``*`` is allowed, but a product of two state values is
beyond most solvers); that a symbolic leaf has no attribute which a field may also be called (the tracer's part).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, EnumType
from functools import cache
from types import FunctionType, ModuleType

import attrs

from .errors import SpecError
from .language import Function, location, require
from .rebind import ATTRS_CODE, helpers, reachable

_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_Forbidden = frozenset[tuple[type, str]]
_CONSUMERS = frozenset({"all", "any", "max", "min", "sum", "tuple"})  # These may take a comprehension.
_ITERATORS = frozenset({"enumerate", "range", "reversed", "zip"})
_BUILTINS = _CONSUMERS | _ITERATORS | {"abs", "bool"}
_PLAIN = frozenset({
    ast.If, ast.Return, ast.Pass, ast.Assign, ast.AugAssign, ast.Match, ast.match_case, ast.MatchValue, ast.MatchOr,
    ast.IfExp, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.comprehension,
    ast.Tuple, ast.Starred, ast.Subscript, ast.Slice, ast.Load, ast.Store,
})  # fmt: skip
"""Nodes that are allowed wherever their parts are."""
_INERT = frozenset({"__attrs_post_init__", "__repr__", "__str__", "__annotate__", "__annotate_func__"})
"""Special methods that a state class may define: nothing traced calls them, or the compiler wrote them."""
_MENDS: Mapping[str, tuple[str, str]] = {
    name: mend
    for names, mend in {
        "Is IsNot": ("compares objects, not values, with 'is'", "write ==, or != for 'is not'"),
        "Div": ("divides", "multiply the other side, a * 2 <= b"),
        "FloorDiv divmod()": ("divides with //", "multiply the other side, or make the quotient part of the policy"),
        "Mod": ("takes a remainder", "count in a field that starts again from 0 at its limit"),
        "Pow pow()": ("takes a power", "take the value from a tuple of the policy, or multiply"),
        "LShift RShift": ("shifts bits", "multiply by a constant, this side or the other"),
        "BitOr BitAnd BitXor Invert": ("combines bits", "booleans of their own, with or, and, !=, not"),
        "NamedExpr": ("assigns inside an expression", "assign on a line of its own"),
        "JoinedStr format() str() repr() .format() .join()": ("makes text", "compare the values; texts are no state"),
        "Lambda FunctionDef ClassDef": ("nests a definition", "write it with def at the top level of the module"),
        "AsyncFunctionDef Yield YieldFrom Await AsyncFor AsyncWith": ("suspends", "wait in a state, for an action"),
        "List list() sorted()": ("makes a list, which may change", "a tuple, (a, b) or tuple(...)"),
        "Dict DictComp dict()": ("hashes the keys of a dict", "if, match, or a tuple that an integer indexes"),
        "Set SetComp set() frozenset()": ("hashes the elements of a set", "a tuple; x in (a, b) compares with =="),
        "ListComp GeneratorExp": ("uses a bare comprehension", "tuple(... for ...), or sum, any, all, min, max of it"),
        "Try TryStar": ("catches exceptions", "ask first, with if; a refusal leaves the transition as it is"),
        "Raise Assert": ("raises an exception", "require(condition, rule, why), or a rule of the machine"),
        "While": ("loops with while", "for ... in range(...), with a constant bound"),
        "Break Continue": ("jumps in a loop", "if around the rest of its body, or a helper that returns from it"),
        "With": ("enters a context", "a pure function; the implementation holds locks and files"),
        "Import ImportFrom __import__()": ("imports inside a function", "import at the top of the module"),
        "Global Nonlocal": ("assigns a name of another scope", "keep what changes in the state"),
        "Delete": ("deletes", "leave the name, or build a new value with attrs.evolve(...)"),
        "Attribute=": ("assigns an attribute", "attrs.evolve(value, field=...)"),
        "Subscript=": ("assigns an element", "attrs.evolve with a new tuple, t[:i] + (new,) + t[i + 1:]"),
        "Starred=": ("makes a list with a starred target", "a slice, rest = values[1:]"),
        "MatchAs MatchSingleton": ("uses a pattern that is no value", "members of an enum, |, and case _"),
        "MatchClass MatchSequence MatchMapping": ("matches on a type", "match on the members of an enum field"),
        "isinstance() issubclass() type()": ("asks for a type", "keep the kind in an enum field, compare it with =="),
        "len()": ("calls len()", "shapes are concrete: iterate the tuple, count with sum(), or name a constant"),
        "hash() id()": ("compares by hash or identity", "compare the values themselves with =="),
        "int()": ("calls int()", "use the integer itself; (1 if flag else 0) for a boolean"),
        "float() round()": ("makes a float", "an integer in the smallest unit, such as milliseconds"),
        "print() open() input()": ("reads or writes", "an input of the action; the implementation reads and writes"),
        ".append() .extend() .insert() .pop() .remove() .sort() .update()": ("changes a value", "attrs.evolve(...)"),
    }.items() for name in names.split()
}  # fmt: skip
"""By the name of the node; of a builtin, with (); of a method, with .(); of a node that is assigned to, with =."""

_KINDS: Mapping[object, str] = {
    str: "an enum; texts and their formatting belong to the implementation",
    float: "an integer in the smallest unit, such as milliseconds",
    type(None): "a free slot is a value, owner 0, not None",
    tuple: "a tuple of integers, booleans, members or frozen classes: tuple[int, ...], tuple[Slot, Slot]",
    list: "a tuple",
    object: "an int, a bool, an enum, a frozen attrs class, or a tuple of these",
    dict: "if/else, match, a frozen attrs class, or a tuple that an integer indexes",
    set: "a tuple; x in (a, b) compares with ==",
    ModuleType: "import helpers by name; time, chance and surroundings are inputs of the action",
}
"""What to write instead of a value of this type, as a constant, a global, a default or a field."""


def check_function(function: Function, forbidden: Mapping[type, str]) -> None:
    """Refuse *function* unless it, and every helper below it, uses only forms that trace faithfully.

    Args:
        function: a transition, a rule or another function of a machine.
        forbidden: classes that must not be read, each with a word for it (``{Ghost: "a ghost"}``).

    Raises:
        SpecError: with file and line of the offending form, and what to write instead.
    """
    _check_all(function, frozenset(forbidden.items()))


def check_state_class(cls: type) -> None:
    """Refuse *cls* unless it is a frozen attrs class of integers, booleans, enums, and tuples and classes of these.

    Raises:
        SpecError: with file and line of the class, and what to write instead.
    """
    _check_class(cls, ())


@cache
def _check_all(function: Function, forbidden: _Forbidden) -> None:
    found = [function]
    for one in found:  # It grows.
        if one.__code__ is not require.__code__:
            _check_one(one, forbidden)
            found += [helper for helper in helpers(one).values() if helper not in found]
    list(reachable(function))  # It refuses recursion.


@cache
def _check_one(function: Function, forbidden: _Forbidden) -> None:
    code = function.__code__
    try:
        tree, rebound = _module("".join(inspect.findsource(code)[0]))
        defined = [node for node in tree.body if isinstance(node, _Definition) and node.name == code.co_name]
        # A function's first line is that of its first decorator; what a decorator wrapped is nested, hence not here.
        node = next(one for one in defined if code.co_firstlineno in {x.lineno for x in (one, *one.decorator_list)})
    except (OSError, SyntaxError, StopIteration) as absent:
        what = f"{function.__name__} is not a function at the top level of a file that can be read"
        instead = "write it with def at the top level of the module; what it reads from around it is a parameter"
        raise SpecError(what, where=location(function), instead=instead) from absent
    form = _Form(function.__name__, code.co_filename, function.__globals__, forbidden, rebound, node.lineno)
    form.check(function, node)


@cache
def _module(source: str) -> tuple[ast.Module, frozenset[str]]:
    """The tree of a module, and its globals that may change: bound twice, or named in a ``global`` statement."""
    tree = ast.parse(source)
    bound = list(_bound(tree.body))
    declared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return tree, frozenset(declared | {name for name in bound if bound.count(name) > 1})


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names that *nodes* bind in their own scope, once for each binding."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case ast.AnnAssign(value=None) | ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                pass
            case _:
                yield from _bound(ast.iter_child_nodes(node))


@attrs.define(eq=False)
class _Form(ast.NodeVisitor):
    """The form of one function: visits its tree, and refuses the first node that does not trace."""

    name: str
    file: str
    globals: Mapping[str, object]
    forbidden: _Forbidden
    rebound: frozenset[str]
    line: int
    locals: frozenset[str] = frozenset()

    def refuse(self, what: str, instead: str, node: ast.AST | None = None) -> typing.NoReturn:
        where = f"{self.file}:{getattr(node, 'lineno', self.line)}"
        raise SpecError(f"{self.name} {what}", where=where, instead=instead)

    def check(self, function: Function, node: _Definition) -> None:
        """Check parameters, defaults and body."""
        parameters = [part for part in ast.walk(node.args) if isinstance(part, ast.arg)]
        self.locals = frozenset({part.arg for part in parameters} | set(_bound(node.body)))
        for star in filter(None, (node.args.vararg, node.args.kwarg)):
            self.refuse("takes any number of arguments", "name each parameter", star)
        values = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        for part, value in zip((*node.args.defaults, *filter(None, node.args.kw_defaults)), values, strict=True):
            if not _is_constant(value):
                self.refuse("has a default that may change", _KINDS.get(type(value), _KINDS[object]), part)
        hints = _hints(function, location(function)) if self.forbidden else {}
        for parameter in parameters:
            self.forbid(hints.get(parameter.arg), parameter)
        body = node.body[ast.get_docstring(node) is not None :]
        for statement in [node] if isinstance(node, ast.AsyncFunctionDef) else body:
            self.visit(statement)

    def forbid(self, value: object, node: ast.AST | None = None) -> None:
        """Refuse *value* if it is, holds or is typed as something forbidden."""
        instead = "keep what a transition needs in the state; ghosts are for rules alone"
        for word in (word for cls, word in self.forbidden if value is cls or isinstance(value, cls)):
            self.refuse(f"reads {word}", instead, node)
        for part in value if isinstance(value, tuple) else typing.get_args(value):
            self.forbid(part, node)

    def visit(self, node: ast.AST) -> None:
        """Visit *node*, knowing its line: operators have none of their own."""
        outer, self.line = self.line, getattr(node, "lineno", self.line)
        assigned = f"{type(node).__name__}="
        if isinstance(getattr(node, "ctx", None), ast.Store) and assigned in _MENDS:
            self.refuse(*_MENDS[assigned])
        super().visit(node)
        self.line = outer

    def generic_visit(self, node: ast.AST) -> None:
        """Refuse a node that no ``visit_`` method and no table allows."""
        if type(node) not in _PLAIN and not (isinstance(node, ast.MatchAs) and node.name is None):
            form = type(node).__name__
            self.refuse(*_MENDS.get(form, (f"uses {form}", "if, match, for, return, comparisons, + - * and calls")))
        super().generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        for part in filter(None, (node.target, node.value)):
            self.visit(part)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit(node.value)
        called = node.value.func if isinstance(node.value, ast.Call) else None
        if not isinstance(called, ast.Name) or not isinstance(self.resolve(called.id), FunctionType):
            self.refuse("drops a value", "assign or return it; require(...) for a guard")

    def visit_For(self, node: ast.For) -> None:
        if node.orelse:
            self.refuse("uses the else of a loop", "any() or all() in an if", node.orelse[0])
        super().generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        super().generic_visit(node)
        for op, right in zip(node.ops, node.comparators, strict=True):
            iterator = getattr(getattr(right, "func", None), "id", "") in _ITERATORS
            if isinstance(op, ast.In | ast.NotIn) and iterator:
                self.refuse("uses 'in' with something else than a tuple", "low <= x < high, or x in (a, b)", right)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) not in (int, bool):
            self.refuse(f"uses the constant {node.value!r}", _KINDS.get(type(node.value), _KINDS[object]))

    def visit_Name(self, node: ast.Name) -> None:
        value = None if node.id in self.locals else self.resolve(node.id)
        if node.id in self.locals or node.id in _BUILTINS or isinstance(value, FunctionType):
            return
        if isinstance(value, type):
            self.refuse(f"uses the class {node.id} as a value", "name a member; a constant PHASES = tuple(Phase)")
        if not _is_constant(value):
            self.refuse(f"reads {node.id}, a global that may change", _KINDS.get(type(value), _KINDS[object]))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_"):
            self.refuse(f"reads the private attribute {node.attr}", "read a declared field")
        owner = self.globals.get(getattr(node.value, "id", ""))
        if isinstance(owner, EnumType) and node.attr in owner.__members__:
            self.resolve(getattr(node.value, "id", ""))
        else:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        self.check_callee(node.func)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        speaks = getattr(self.globals.get(name), "__code__", None) is require.__code__
        if any(keyword.arg is None for keyword in node.keywords):
            self.refuse("takes keywords from a mapping", "name each of them")
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            if name in _CONSUMERS and isinstance(part, ast.GeneratorExp | ast.ListComp):
                self.check_comprehension(part)
            elif not (speaks and isinstance(part, ast.Constant) and type(part.value) is str):
                self.visit(part)

    def check_comprehension(self, node: ast.GeneratorExp | ast.ListComp) -> None:
        outer = self.locals
        self.visit(node.generators[0].iter)  # Its names are those of the surroundings.
        self.locals = outer | set(_bound(loop.target for loop in node.generators))
        for part in (*node.generators, node.elt):
            self.visit(part)
        self.locals = outer

    def check_callee(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name) if name not in self.locals:
                value = self.resolve(name)
                if name not in _BUILTINS and not isinstance(value, FunctionType):
                    self.check_constructor(name, value)
            case ast.Attribute(value=ast.Name(id=name), attr="evolve") if self.globals.get(name) is attrs:
                self.resolve(name)
            case ast.Attribute(attr=name):
                other = (f"calls the method {name}()", "a module-level function; time and chance are inputs")
                self.refuse(*_MENDS.get(f".{name}()", other))
            case _:
                self.refuse("calls a computed function", "call a module-level function by its name")

    def check_constructor(self, name: str, cls: typing.Any) -> None:
        if isinstance(cls, EnumType):
            self.refuse(f"looks up a member of {name} by its hash", "if/else or match, with the members by name")
        if not isinstance(cls, type) or not _is_frozen(cls):
            self.refuse(f"calls {name}, which is unknown", "a module-level function, or a frozen attrs class")
        check_state_class(cls)
        own = [x.name for x in attrs.fields(cls) if x.validator or x.converter or hasattr(x.default, "factory")]
        if own or hasattr(cls, "__attrs_post_init__"):
            self.refuse(f"calls {name}, which runs code of its own", "plain fields; require(...) in the transition")

    def resolve(self, name: str) -> object:
        """The value of a global; one that is unknown, unstable, forbidden or a library's is refused."""
        if name not in self.globals and name not in _BUILTINS:
            self.refuse(*_MENDS.get(f"{name}()", (f"reads the unknown {name}", "a function or constant of the module")))
        value = self.globals.get(name, getattr(builtins, name, None))
        if name in _BUILTINS and value is not getattr(builtins, name):
            self.refuse(f"hides the builtin {name}", "another name")
        if name in self.rebound:
            self.refuse(f"reads {name}, a global that may change: its module binds it again", "bind it once")
        library = str(value.__module__).partition(".")[0] if isinstance(value, FunctionType) else ""
        if library in {"attr", "attrs", *sys.stdlib_module_names} and value is not attrs.evolve:
            self.refuse(f"reads {name}, a function of a library", "a module-level function of the machine")
        self.forbid(value)
        return value


def _is_constant(value: typing.Any) -> bool:
    if _is_frozen(type(value)):
        check_state_class(type(value))
        return all(_is_constant(getattr(value, field.name)) for field in attrs.fields(type(value)))
    scalar = type(value) in (int, bool, str) or isinstance(value, Enum)
    return scalar or (type(value) is tuple and all(map(_is_constant, value)))


def _is_frozen(cls: typing.Any) -> bool:
    try:
        cls.__setattr__(object.__new__(cls), "probe", 0)
    except Exception as refusal:
        return isinstance(refusal, attrs.exceptions.FrozenInstanceError)
    return False


def _hints(owner: type | Function, where: str) -> dict[str, object]:
    try:
        return typing.get_type_hints(owner)
    except (NameError, AttributeError, TypeError, SyntaxError) as wrong:
        what = f"an annotation of {owner.__name__} can't be resolved ({wrong})"
        raise SpecError(what, where=where, instead="import the types at run time, not under TYPE_CHECKING") from wrong


@cache
def _check_class(cls: typing.Any, above: tuple[type, ...]) -> None:
    try:
        where = f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        where = f"{cls.__module__}.{cls.__qualname__}"
    for what, instead in _wrong_in_class(cls, above, where):
        raise SpecError(f"{cls.__name__}{what}", where=where, instead=instead)


def _wrong_in_class(cls: typing.Any, above: tuple[type, ...], where: str) -> Iterator[tuple[str, str]]:
    if not _is_frozen(cls):
        yield " is not a frozen attrs class", "@attrs.frozen"
    if cls in above:
        yield " contains itself", "a tuple of a fixed number of another class"
    if cls.__eq__ is object.__eq__:
        yield " compares by identity", "@attrs.frozen without eq=False"
    fields = [field.name for field in attrs.fields(cls)]
    for name, member in ((name, member) for base in cls.__mro__[:-1] for name, member in vars(base).items()):
        file = member.__code__.co_filename if isinstance(member, FunctionType) else "<attrs"
        inert = name in _INERT or file.startswith(("<attrs", ATTRS_CODE))
        if name not in fields and not (inert and name.startswith("__") and name.endswith("__")):
            yield f" has {name}, which is no field", "a module-level function, or a constant of the module"
    hints = _hints(cls, where)
    for name in fields:
        yield from _wrong_in_field(f".{name}", hints.get(name), (*above, cls))


def _wrong_in_field(name: str, hint: object, above: tuple[type, ...]) -> Iterator[tuple[str, str]]:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        for part in parts:
            yield from () if part is ... else _wrong_in_field(name, part, above)
    elif isinstance(hint, type) and attrs.has(hint):
        _check_class(hint, above)
    elif not (hint in (int, bool) or isinstance(hint, EnumType)):
        kind = type(None) if type(None) in parts else origin or hint
        yield f"{name} is {hint if parts else getattr(hint, '__name__', hint)}", _KINDS.get(kind, _KINDS[object])
