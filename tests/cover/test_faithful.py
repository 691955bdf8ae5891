"""The static check refuses every form that would trace to a wrong formula, and no other."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import attrs
import pytest

from deadreckon.spec import faithful
from deadreckon.spec.errors import SpecError

Load = Callable[[str], ModuleType]

PRELUDE = """\
from __future__ import annotations
import copy, random, time
import attrs
from attrs import asdict, evolve
from enum import Enum
from functools import wraps
from typing import Any, ClassVar, Optional
from deadreckon.spec.language import require
class Phase(Enum):
    DOWN = 0
    UP = 1
    def label(self): return 1
@attrs.frozen
class Slot:
    owner: int = 0
@attrs.frozen
class State:
    phase: Phase = Phase.DOWN
    deaths: int = 0
    armed: bool = False
    slots: tuple[Slot, Slot] = (Slot(), Slot())
@attrs.frozen
class Ghost:
    deaths: int = 0
@attrs.frozen
class Strict:
    deaths: int = attrs.field(default=0, validator=attrs.validators.ge(0))
@attrs.define
class Loose:
    deaths: int = 0
TABLE = {1: 2}
LIMITS = [1, 2]
RATIO = 0.5
MEMBERS = {1, 2}
NOTHING = None
LOOSE = Loose()
NESTED = (1, [2])
STARTED = Ghost()
RULE = "C1"
COUNTER = 0
COUNTER = 1
SHARED = 0
def bump():
    global SHARED
    SHARED += 1
def helper(x: int) -> int:
    return x
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Writes a module below the prelude and imports it."""
    names: list[str] = []

    def write(source: str) -> ModuleType:
        name = f"machine_{tmp_path.name}_{len(names)}"
        path = tmp_path / f"{name}.py"
        path.write_text(PRELUDE + source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        names.append(name)
        spec.loader.exec_module(module)
        return module

    yield write
    for name in names:
        del sys.modules[name]


def marked(module: ModuleType, source: str) -> str:
    """``file:line`` of the line that ends in a mark."""
    lines = (PRELUDE + source).splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if text.endswith("# <-")]
    return f"{module.__file__}:{line}"


# Each body of a function of a state ``s`` and an integer ``n``, its offending line marked, and a word of the mend.
BODIES = {
    "is": ("return s.phase is Phase.UP  # <-", "write =="),
    "is not": ("return s.phase is not Phase.UP  # <-", "!= for"),
    "is, after other lines": ("a = n\nb = (\n    a\n)\nreturn (a == 1 and\n    a is b)  # <-", "write =="),
    "isinstance": ("return isinstance(n, int)  # <-", "enum field"),
    "type": ("return type(n)  # <-", "enum field"),
    "len": ("return len(s.slots)  # <-", "iterate the tuple"),
    "hash": ("return hash(n)  # <-", "with =="),
    "id": ("return id(n)  # <-", "with =="),
    "dict display": ("return {n: 1}  # <-", "a tuple that an integer indexes"),
    "dict comprehension": ("return {x: 1 for x in s.slots}  # <-", "a tuple that an integer indexes"),
    "dict call": ("return dict(a=n)  # <-", "a tuple that an integer indexes"),
    "state value as key": ("return TABLE[n]  # <-", "a tuple that an integer indexes"),
    "set display": ("return {n}  # <-", "compares with =="),
    "set comprehension": ("return {x for x in s.slots}  # <-", "compares with =="),
    "set call": ("return set(s.slots)  # <-", "compares with =="),
    "in a set": ("return n in {1, 2}  # <-", "compares with =="),
    "in a range": ("return n in range(3)  # <-", "low <= x < high"),
    "in an enum": ("return s.phase in Phase  # <-", "name a member"),
    "list display": ("return [n]  # <-", "a tuple"),
    "list comprehension": ("return [x for x in s.slots]  # <-", "tuple(... for ...)"),
    "list call": ("return list(s.slots)  # <-", "a tuple"),
    "bare generator": ("g = (x for x in s.slots)  # <-\nreturn g", "tuple(... for ...)"),
    "generator for a helper": ("return helper(x for x in s.slots)  # <-", "tuple(... for ...)"),
    "f-string": ("return f'{n}'  # <-", "texts are no state"),
    "f-string as reason": ("require(n > 0, 'C1', f'{n}')  # <-\nreturn s", "texts are no state"),
    "str": ("return str(n)  # <-", "texts are no state"),
    "repr": ("return repr(n)  # <-", "texts are no state"),
    "format call": ("return format(n)  # <-", "texts are no state"),
    "format method": ("return '{}'.format(n)  # <-", "texts are no state"),
    "percent format": ("return '%s' % n  # <-", "formatting"),
    "string": ("return s.phase == 'up'  # <-", "an enum"),
    "string statement": ("n = 1\n'no docstring'  # <-\nreturn n", "an enum"),
    "int": ("return int(s.armed)  # <-", "1 if flag else 0"),
    "float call": ("return float(n)  # <-", "smallest unit"),
    "float": ("return n * 1.5  # <-", "smallest unit"),
    "None": ("return None  # <-", "owner 0"),
    "try": ("try:  # <-\n    return s\nexcept ValueError:\n    return s", "ask first"),
    "raise": ("raise ValueError  # <-", "require(condition, rule, why)"),
    "assert": ("assert n  # <-\nreturn s", "require(condition, rule, why)"),
    "while": ("while n:  # <-\n    n -= 1\nreturn n", "range(...)"),
    "break": ("for x in s.slots:\n    break  # <-\nreturn n", "helper that returns"),
    "for else": ("for x in s.slots:\n    n += 1\nelse:\n    n = 0  # <-\nreturn n", "any() or all()"),
    "for over a set": ("for x in MEMBERS:  # <-\n    n += 1\nreturn n", "a tuple"),
    "for over an enum": ("for x in Phase:  # <-\n    n += 1\nreturn n", "tuple(Phase)"),
    "with": ("with n:  # <-\n    return s", "implementation holds locks"),
    "import": ("import os  # <-\nreturn s", "top of the module"),
    "import from": ("from os import path  # <-\nreturn s", "top of the module"),
    "global": ("global SHARED  # <-\nreturn s", "in the state"),
    "del": ("del n  # <-\nreturn s", "attrs.evolve"),
    "lambda": ("return lambda: n  # <-", "with def at the top level"),
    "nested def": ("def inner():  # <-\n    return 1\nreturn s", "at the top level"),
    "nested class": ("class Inner:  # <-\n    pass\nreturn s", "at the top level"),
    "yield": ("yield n  # <-", "wait in a state"),
    "attribute assignment": ("s.deaths = 1  # <-\nreturn s", "attrs.evolve(value, field=...)"),
    "attribute augmented": ("s.deaths += 1  # <-\nreturn s", "attrs.evolve(value, field=...)"),
    "attribute as loop target": ("for s.deaths in (1, 2):  # <-\n    n = 1\nreturn s", "attrs.evolve(value"),
    "element assignment": ("s.slots[0] = 1  # <-\nreturn s", "new tuple"),
    "element unpacking": ("n, s.slots[0] = 1, 2  # <-\nreturn s", "new tuple"),
    "starred target": ("a, *b = s.slots  # <-\nreturn b", "a slice"),
    "append": ("s.slots.append(1)  # <-\nreturn s", "attrs.evolve"),
    "method": ("return s.moved()  # <-", "module-level function"),
    "method of a member": ("return s.phase.label()  # <-", "module-level function"),
    "private attribute": ("return s.__class__  # <-", "declared field"),
    "print": ("print(n)  # <-\nreturn s", "input of the action"),
    "open": ("open('x')  # <-\nreturn s", "input of the action"),
    "input": ("return input()  # <-", "input of the action"),
    "unknown name": ("return missing(n)  # <-", "function or constant of the module"),
    "unlisted builtin": ("return map(helper, s.slots)  # <-", "function or constant of the module"),
    "builtin as value": ("return max(s.slots, key=len)  # <-", "iterate the tuple"),
    "clock": ("return time.time()  # <-", "time and chance"),
    "chance": ("return random.random()  # <-", "time and chance"),
    "function of a library": ("return copy.deepcopy(s)  # <-", "module-level function"),
    "function imported from a library": ("return asdict(s)  # <-", "module-level function of the machine"),
    "division": ("return n / 2  # <-", "multiply the other side"),
    "floor division": ("return n // 2  # <-", "part of the policy"),
    "augmented floor division": ("n //= 2  # <-\nreturn n", "part of the policy"),
    "modulo": ("return n % 2  # <-", "starts again from 0"),
    "power": ("return n ** 2  # <-", "tuple of the policy"),
    "shift": ("return n << 2  # <-", "multiply by a constant"),
    "bit or": ("return s.armed | s.armed  # <-", "with or"),
    "bit not": ("return ~n  # <-", "not"),
    "walrus": ("return (m := n) + m  # <-", "line of its own"),
    "capture pattern": ("match n:\n    case x:  # <-\n        return x", "case _"),
    "singleton pattern": ("match s.armed:\n    case True:  # <-\n        return n\nreturn s", "case _"),
    "class pattern": ("match n:\n    case int():  # <-\n        return n\nreturn s", "enum field"),
    "sequence pattern": ("match s.slots:\n    case (1, 2):  # <-\n        return n\nreturn s", "enum field"),
    "enum call": ("return Phase(n)  # <-", "members by name"),
    "unfrozen class": ("return Loose(n)  # <-", "frozen attrs class"),
    "constructor with a validator": ("return Strict(n)  # <-", "plain fields"),
    "call of a local": ("f = helper\nreturn f(n)  # <-", "by its name"),
    "call of a call": ("return helper(n)(n)  # <-", "by its name"),
    "double star": ("return evolve(s, **n)  # <-", "name each"),
    "dropped value": ("n + 1  # <-\nreturn s", "require(...)"),
    "global list": ("return LIMITS[0]  # <-", "a tuple"),
    "global list hidden by its own loop": ("return sum(LIMITS for LIMITS in LIMITS)  # <-", "a tuple"),
    "global set": ("return sum(MEMBERS)  # <-", "a tuple"),
    "global float": ("return RATIO  # <-", "smallest unit"),
    "global None": ("return NOTHING  # <-", "owner 0"),
    "global mutable instance": ("return LOOSE.deaths  # <-", "frozen attrs class"),
    "global tuple with a list": ("return NESTED  # <-", "frozen classes"),
    "global module": ("return time  # <-", "inputs of the action"),
    "global bound twice": ("return COUNTER  # <-", "bind it once"),
    "global of a global statement": ("return SHARED  # <-", "bind it once"),
}  # fmt: skip


@pytest.mark.parametrize("case", BODIES)
def test_refused_body(case: str, load: Load) -> None:
    """A form that does not trace is refused with its file, its line and what to write instead."""
    body, instead = BODIES[case]
    source = '@wraps(helper, (), ())\ndef f(s: State, n: int) -> object:\n    """About f."""\n' + "".join(
        f"    {line}\n" for line in body.splitlines()
    )
    module = load(source)
    with pytest.raises(SpecError) as refusal:
        faithful.check_function(module.f, {})
    assert refusal.value.where == marked(module, source)
    assert instead in refusal.value.instead
    assert str(refusal.value).startswith(f"{refusal.value.where}: f ")


WHOLES = {
    "var-positional": ("def f(s, *rest):  # <-\n    return s\n", "name each parameter"),
    "var-keyword": ("def f(\n    s,\n    **rest,  # <-\n):\n    return s\n", "name each parameter"),
    "mutable default": ("def f(s,\n    n=[]):  # <-\n    return s\n", "a tuple"),
    "mutable keyword default": ("def f(s, *,\n    n={}):  # <-\n    return s\n", "an integer indexes"),
    "default None": ("def f(s, n=None):  # <-\n    return s\n", "owner 0"),
    "async": ("async def f(s):  # <-\n    return s\n", "wait in a state"),
    "lambda": ("f = lambda s: s  # <-\n", "top level of the module"),
    "nested": ("def make():\n    def f(s):  # <-\n        return s\n    return f\nf = make()\n", "top level"),
    "closure": ("def make(n):\n    def f(s):  # <-\n        return n\n    return f\nf = make(1)\n", "is a parameter"),
    "closure with a fine name": (
        "def deco(g):\n    @wraps(g)  # <-\n    def h(s):\n        return g(s)\n    return h\n"
        "@deco\ndef f(s):\n    return s\n",
        "is a parameter",
    ),
    "helper": ("def g(s):\n    return s is s  # <-\ndef f(s):\n    return g(s)\n", "write =="),
    "helper of a helper": (
        "def h(s):\n    return len(s)  # <-\ndef g(s):\n    return h(s)\n"
        "def f(s):\n    return sum(g(x) for x in (s, s))\n",
        "iterate the tuple",
    ),
    "nonlocal": (
        "def f(s):\n    def g():  # <-\n        nonlocal s\n        s = 1\n    return s\n",
        "top level of the module",
    ),
    "recursion": ("def f(n):  # <-\n    return f(n - 1)\n", "a loop over a range"),
    "recursion through another": ("def g(n):\n    return f(n)\ndef f(n):  # <-\n    return g(n)\n", "a loop over"),
    "library function": ("from copy import deepcopy\ndef f(s):\n    return deepcopy(s)  # <-\n", "of the machine"),
    "hidden builtin": ("def min(a, b):\n    return a\ndef f(s):\n    return min(s, s)  # <-\n", "another name"),
    "another require": (
        "def demand(condition, rule, why):\n    return\ndef f(s):\n    demand(s,\n        'C1', 'why')  # <-\n",
        "an enum",
    ),
    "helper bound twice": ("def g(s):\n    return s\ng = helper\ndef f(s):\n    return g(s)  # <-\n", "bind it once"),
}  # fmt: skip


@pytest.mark.parametrize("case", WHOLES)
def test_refused_function(case: str, load: Load) -> None:
    """Parameters, defaults, enclosing scopes and helpers are checked like the body of the function itself."""
    source, instead = WHOLES[case]
    module = load(source)
    with pytest.raises(SpecError) as refusal:
        faithful.check_function(module.f, {})
    assert refusal.value.where == marked(module, source)
    assert instead in refusal.value.instead


def test_refused_source_out_of_reach() -> None:
    """A function whose source can't be read is refused."""
    scope: dict[str, FunctionType] = {}
    exec("def f(s): return s", scope)
    with pytest.raises(SpecError, match="f is not a function at the top level of a file") as refusal:
        faithful.check_function(scope["f"], {})
    assert "with def" in refusal.value.instead


EVERY_FORM = '''
PAIR = (1, (2, Phase.UP))
ORIGIN = State()
PHASES = tuple(Phase)
@attrs.frozen
class Plain:
    values: tuple[int, ...]
def guard(s: State) -> None:
    """A helper may guard, and may end early."""
    if s.armed:
        return
    require(s.deaths < 3, RULE, "enough "
            "deaths")
    require(condition=not s.armed, rule="C2", why="armed")
def delay(n: int, *, factor: int = 2, phase: Phase = Phase.UP) -> int:
    match phase:
        case Phase.UP | Phase.DOWN if n > 0:
            pass
        case _:
            return 0
    match n:
        case 0 | -1:
            return 1
        case _:
            return factor * n
@wraps(guard, (), ())
def f(s: State, n: int, on: bool = False) -> State:
    """Every allowed form."""
    guard(s)
    total: int = delay(n, factor=3)
    later: int
    total += 1
    total -= -n
    total *= 2
    first, (second, other) = n, (total, 0)
    for i, slot in enumerate(s.slots):
        if slot.owner == i and not on or n != 3:
            total = total + (1 if slot.owner >= 0 else 2)
        elif 0 <= n < 5:
            total = max(total, n, *PAIR[:1], default=0)
        else:
            total = abs(total)
    for i in range(3):
        total += i
    for a, b in zip(s.slots, reversed(s.slots), strict=True):
        total += a.owner - b.owner
    for a in (1, 2):
        total += a
    for a in PHASES:
        total += 1 if a == s.phase else 0
    later = sum([x.owner for x in s.slots if x.owner > 0])
    most = min(y + delay(y) for x in s.slots for y in (x.owner, later))
    held = any(x.owner == n for x in s.slots) and all(x.owner in (0, n) for x in s.slots)
    phase = Phase.UP if bool(held) and s.phase not in (Phase.DOWN,) else s.phase
    slots = tuple(attrs.evolve(x, owner=most) if i == n else x for i, x in enumerate(s.slots[:-1]))
    rest = evolve(s, slots=(*slots, s.slots[-1]), phase=phase, deaths=max(s.slots, key=owner).owner)
    best = Plain((total, first, second, other)).values[0] + ORIGIN.deaths
    return State(rest.phase, best, on, rest.slots)
def owner(slot: Slot) -> int:
    return slot.owner
'''


def test_accepted_every_form(load: Load) -> None:
    """Every form of the whitelist is accepted, in functions that also run."""
    module = load(EVERY_FORM)
    faithful.check_function(module.f, {})
    faithful.check_function(module.f, {module.Ghost: "a ghost"})
    assert isinstance(module.f(module.State(), 1), module.State)


def test_checked_once_for_each_set_of_forbidden_classes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is read once, however many callers it has, and again when other classes are forbidden."""
    module = load("def g(s):\n    return s\ndef f(s):\n    return g(s)\ndef e(s):\n    return g(s)\n")
    read: list[str] = []
    original = inspect.findsource

    def findsource(code: CodeType) -> tuple[list[str], int]:
        read.append(code.co_name)
        return original(code)

    monkeypatch.setattr(inspect, "findsource", findsource)
    faithful.check_function(module.f, {})
    faithful.check_function(module.e, {})
    faithful.check_function(module.f, {})
    assert read == ["f", "g", "e"]
    faithful.check_function(module.f, {module.Ghost: "a ghost"})
    assert read == ["f", "g", "e", "f", "g"]


GHOSTS = {
    "constructed": "def f(s: State) -> object:\n    return Ghost()  # <-\n",
    "constant": "def f(s: State) -> int:\n    return STARTED.deaths  # <-\n",
    "constant in a tuple": "SEEN = (STARTED,)\ndef f(s: State) -> int:\n    return SEEN[0].deaths  # <-\n",
    "parameter": "def f(s: State,\n    g: Ghost) -> object:  # <-\n    return s\n",
    "parameter in a tuple": "def f(s: State,\n    g: tuple[Ghost, ...]) -> object:  # <-\n    return s\n",
    "helper": "def g(x: Ghost) -> int:  # <-\n    return x.deaths\ndef f(s: State) -> int:\n    return g(s)\n",
}


@pytest.mark.parametrize("case", GHOSTS)
def test_refused_ghost(case: str, load: Load) -> None:
    """A function that may not read ghosts is refused when it, or a helper, names one or takes one."""
    module = load(GHOSTS[case])
    faithful.check_function(module.f, {})
    with pytest.raises(SpecError, match=r"[fg] reads a ghost") as refusal:
        faithful.check_function(module.f, {module.Ghost: "a ghost"})
    assert refusal.value.where == marked(module, GHOSTS[case])
    assert refusal.value.instead == "keep what a transition needs in the state; ghosts are for rules alone"


def test_refused_annotation_out_of_reach(load: Load) -> None:
    """An annotation that can't be resolved is refused where ghosts are forbidden: it may hide one."""
    module = load("def f(s: Hidden) -> int:\n    return 1\n")
    with pytest.raises(SpecError, match="can't be resolved") as refusal:
        faithful.check_function(module.f, {module.Ghost: "a ghost"})
    assert "TYPE_CHECKING" in refusal.value.instead


FIELDS = {
    "Optional[int]": "a free slot is a value, owner 0, not None",
    "int | None": "a free slot is a value, owner 0, not None",
    "None": "a free slot is a value, owner 0, not None",
    "Slot | None": "a free slot is a value, owner 0, not None",
    "tuple[int | None, ...]": "a free slot is a value, owner 0, not None",
    "list[int]": "a tuple",
    "list": "a tuple",
    "str": "an enum",
    "float": "smallest unit",
    "tuple[Slot, float]": "smallest unit",
    "dict[int, int]": "an integer indexes",
    "set[int]": "a tuple",
    "tuple": "tuple[int, ...]",
    "object": "an int, a bool, an enum",
    "Any": "an int, a bool, an enum",
    "int | bool": "an int, a bool, an enum",
}


@pytest.mark.parametrize("hint", FIELDS)
def test_refused_field(hint: str, load: Load) -> None:
    """A field that is no int, bool, enum, frozen attrs class or tuple of these is refused."""
    source = f"@attrs.frozen  # <-\nclass Bad:\n    x: int\n    y: {hint}\n"
    module = load(source)
    with pytest.raises(SpecError, match=r"Bad\.y is ") as refusal:
        faithful.check_state_class(module.Bad)
    assert refusal.value.where == marked(module, source)
    assert FIELDS[hint] in refusal.value.instead


CLASSES = {
    "no attrs": ("class Bad:  # <-\n    x: int\n", "@attrs.frozen"),
    "not frozen": ("@attrs.define  # <-\nclass Bad:\n    x: int\n", "@attrs.frozen"),
    "field not frozen": ("@attrs.define  # <-\nclass In:\n    x: int\n@attrs.frozen\nclass Bad:\n    x: In\n", "@"),
    "method": ("@attrs.frozen  # <-\nclass Bad:\n    x: int\n    def y(self): return 1\n", "module-level function"),
    "property": (
        "@attrs.frozen  # <-\nclass Bad:\n    x: int\n    @property\n    def y(self): return 1\n",
        "module-level function",
    ),
    "static method": (
        "@attrs.frozen  # <-\nclass Bad:\n    @staticmethod\n    def y(): return 1\n", "module-level function",
    ),
    "class variable": ("@attrs.frozen  # <-\nclass Bad:\n    y: ClassVar[int] = 1\n", "constant of the module"),
    "inherited method": (
        "class Base:\n    def y(self): return 1\n@attrs.frozen  # <-\nclass Bad(Base):\n    x: int\n",
        "module-level function",
    ),
    "comparison by hand": (
        "@attrs.frozen(eq=False)  # <-\nclass Bad:\n    def __eq__(self, other): return True\n",
        "module-level function",
    ),
    "comparison by identity": ("@attrs.frozen(eq=False)  # <-\nclass Bad:\n    x: int\n", "without eq=False"),
    "itself": ("@attrs.frozen  # <-\nclass Bad:\n    x: tuple[Bad, ...]\n", "fixed number"),
    "annotation out of reach": ("@attrs.frozen  # <-\nclass Bad:\n    x: Hidden\n", "TYPE_CHECKING"),
}  # fmt: skip


@pytest.mark.parametrize("case", CLASSES)
def test_refused_class(case: str, load: Load) -> None:
    """A state class is frozen, compares by value and has no code of its own that transitions could call."""
    source, instead = CLASSES[case]
    module = load(source)
    with pytest.raises(SpecError) as refusal:
        faithful.check_state_class(module.Bad)
    assert refusal.value.where == marked(module, source)
    assert instead in refusal.value.instead


def test_accepted_classes(load: Load) -> None:
    """Integers, booleans, enums, tuples and frozen classes of these are accepted, and a policy may check itself."""
    module = load(
        "@attrs.frozen\nclass Policy:\n    ladder: tuple[int, ...] = (1, 2)\n"
        "    fixed: tuple[int, bool, Phase] = (1, True, Phase.UP)\n"
        "    many: tuple[Slot, ...] = ()\n    state: State = State()\n    none: tuple[()] = ()\n"
        "    def __attrs_post_init__(self): assert self.ladder\n    def __repr__(self): return 'Policy'\n"
    )
    for cls in (module.Policy, module.State, module.Ghost):
        faithful.check_state_class(cls)


def test_accepted_class_without_source() -> None:
    """A class without a source is checked too, and named by its module."""
    good = attrs.make_class("Good", {"x": attrs.field(type=int)}, frozen=True)
    faithful.check_state_class(good)
    bad = attrs.make_class("Bad", {"x": attrs.field(type=str)}, frozen=True)
    with pytest.raises(SpecError) as refusal:
        faithful.check_state_class(bad)
    assert refusal.value.where.endswith(".Bad")
