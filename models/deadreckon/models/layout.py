"""How a state is laid out as a flat tuple of integers, and back.

The shape (nesting, length of tuples) is read off an example; scalars become leaves. Enums are stored as the position
of their member, booleans as 0 and 1 in the order of Python's own ``bool``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import cast

import attrs

from deadreckon.spec import SpecError

from .expr import Sort

Flat = tuple[int, ...]
Build = Callable[[Iterator[object]], object]
Leaf = type[int] | type[bool] | type[Enum]


@attrs.frozen
class Field:
    """One leaf of a state: its dotted path and its type."""

    path: str
    type: Leaf

    @property
    def sort(self) -> Sort:
        """The sort of its variable in the intermediate form."""
        return Sort.BOOL if self.type is bool else Sort.INT

    @property
    def size(self) -> int:
        """How many members an enum field has; 0 for numbers and booleans."""
        return len(_members(self.type)) if issubclass(self.type, Enum) else 0

    def value(self, leaf: int) -> object:
        """What the leaf stands for: an integer, a bool or an enum member."""
        if issubclass(self.type, Enum):
            return member(self.type, leaf)
        return bool(leaf) if self.type is bool else leaf

    def words(self, value: int) -> str:
        """*value* as a person writes it."""
        if issubclass(self.type, Enum):
            return member(self.type, value).name.lower().replace("_", " ")
        return str(bool(value)).lower() if self.type is bool else str(value)


def member(cls: type[Enum], position: int) -> Enum:
    """The member of *cls* at *position*."""
    return _members(cls)[position]


def _members(cls: type[Enum]) -> tuple[Enum, ...]:
    if cls not in _member_tuples:
        _member_tuples[cls] = tuple(cls)
    return _member_tuples[cls]


_member_tuples: dict[type[Enum], tuple[Enum, ...]] = {}


class _Positions(dict[int, int]):
    """Positions by the identity of members, which live as long as their classes: quicker than hashing an enum."""

    def of(self, value: Enum) -> int:
        """The position of a member, whose class is learnt when it is first met."""
        if id(value) not in self:
            self.update((id(one), at) for at, one in enumerate(_members(type(value))))
        return self[id(value)]


_positions = _Positions()


def position(value: Enum) -> int:
    """The position of an enum member in its class."""
    return _positions.of(value)


def parts(value: object) -> tuple[str, ...] | None:
    """The names of the fields of *value*, if it is of an attrs class."""
    cls = type(value)
    if cls not in _field_names:
        _field_names[cls] = tuple(field.name for field in attrs.fields(cls)) if attrs.has(cls) else None
    return _field_names[cls]


_field_names: dict[type, tuple[str, ...] | None] = {}


class Layout:
    """Flattens and rebuilds values that have the shape of *example* (attrs instances, tuples, scalars, None).

    Raises:
        SpecError: when the example holds something else.
    """

    def __init__(self, example: object, root: str = "") -> None:
        self.fields = tuple(_fields(example, root))
        self.flatten: Callable[[object], Flat] = _flattener(example)
        self._rebuild = _rebuilder(example)

    def __len__(self) -> int:
        return len(self.fields)

    def rebuild(self, leaves: Iterable[object]) -> object:
        """The value with these leaves (integers as in a flat tuple, or a tracer's symbolic values)."""
        return self._rebuild(iter(leaves))

    def index(self, path: str) -> int:
        """Where the leaf *path* stands.

        Raises:
            SpecError: if there is no such leaf.
        """
        for index, field in enumerate(self.fields):
            if field.path == path:
                return index
        raise SpecError(f"no field {path}", instead=f"one of {', '.join(field.path for field in self.fields)}")


def _fields(value: object, path: str) -> Iterator[Field]:
    if value is None:
        return
    if isinstance(value, tuple):
        for index, element in enumerate(value):
            yield from _fields(element, f"{path}[{index}]")
    elif (names := parts(value)) is not None:
        for name in names:
            yield from _fields(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, bool | int | Enum):
        yield Field(path, type(value))
    else:
        raise SpecError(
            f"field {path or 'state'} holds {value!r}",
            instead="an integer, a bool, an enum member, a tuple or a frozen attrs class of these",
        )


def _flattener(example: object) -> Callable[[object], Flat]:
    """Compiled once per shape, since it runs on every edge."""
    scope: dict[str, object] = {"at": _positions, "id": id}
    leaves: list[str] = []

    def walk(value: object, access: str) -> None:
        if isinstance(value, tuple):
            for index, element in enumerate(value):
                walk(element, f"{access}[{index}]")
        elif isinstance(value, Enum):
            _positions.of(value)
            leaves.append(f"at[id({access})]")
        elif (names := parts(value)) is not None:
            for name in names:
                walk(getattr(value, name), f"{access}.{name}")
        elif value is not None:
            leaves.append(f"{access} + 0" if isinstance(value, bool) else access)

    walk(example, "v")
    exec(f"def flatten(v):\n    return ({''.join(f'{leaf}, ' for leaf in leaves)})", scope)
    return cast("Callable[[object], Flat]", scope["flatten"])


def _rebuilder(example: object) -> Build:
    if example is None:
        return lambda leaves: None
    if isinstance(example, tuple):
        inner = [_rebuilder(element) for element in example]
        return lambda leaves: tuple(build(leaves) for build in inner)
    if (names := parts(example)) is not None:
        return _class_rebuilder(type(example), {name: _rebuilder(getattr(example, name)) for name in names})
    if isinstance(example, Enum):
        members = tuple(type(example))
        return lambda leaves: _scalar(next(leaves), members.__getitem__)
    if isinstance(example, bool):
        return lambda leaves: _scalar(next(leaves), bool)
    return next


def _class_rebuilder(cls: type, inner: Mapping[str, Build]) -> Build:
    """Sets the fields past ``__init__``: a policy is not validated while it is symbolic."""

    def build(leaves: Iterator[object]) -> object:
        return assembled(cls, {name: part(leaves) for name, part in inner.items()})

    return build


def assembled(cls: type, values: Mapping[str, object]) -> object:
    """An instance of an attrs class with these fields, made past its ``__init__``."""
    value: object = object.__new__(cls)
    for name, part in values.items():
        object.__setattr__(value, name, part)
    return value


def _scalar(leaf: object, convert: Callable[[int], object]) -> object:
    return convert(leaf) if isinstance(leaf, int) else leaf
