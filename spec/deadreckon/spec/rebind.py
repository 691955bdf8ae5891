"""Run the same code with other helpers: the mechanism behind known-bad variants and behind tracing.

A transition calls its helpers through the globals of its module. :func:`rebound` makes a copy of a function *object*
that shares the code object and differs in a few globals only, so the sound machine is never modified, costs nothing,
and a variant is the list of helpers that it replaces.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import cast

import attrs

from .errors import SpecError
from .language import Function, location

ATTRS_CODE = str(Path(attrs.evolve.__code__.co_filename).parent)
"""Where attrs lives. Its functions are told by their code: from Python 3.13 on ``evolve`` is the ``__replace__`` of every
attrs class, and attrs then names the class's module as that of ``evolve``."""

Wrap = Callable[[Function], Callable[..., object]]


@cache
def global_names(code: CodeType) -> tuple[str, ...]:
    """Names that *code*, nested code included, looks up in its module's globals.

    Each variant asks for them anew; kept, the built-in machines are imported in less than half the time.
    """
    own = (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
    nested = (name for one in code.co_consts if isinstance(one, CodeType) for name in global_names(one))
    return (*map(str, own), *nested)


def helpers(function: Function) -> dict[str, Function]:
    """The module-level Python functions that *function* names, apart from those of installed libraries."""
    named = {name: function.__globals__.get(name) for name in global_names(function.__code__)}
    return {
        name: cast("Function", value)
        for name, value in named.items()
        if isinstance(value, FunctionType) and not value.__code__.co_filename.startswith(ATTRS_CODE)
    }


def reachable(function: Function) -> Iterator[Function]:
    """*function* and every helper below it, each once, callees before callers.

    Raises:
        SpecError: if a helper calls itself, directly or through others; its tracing would not end.
    """
    yield from _reachable(function, (), set())


def _reachable(function: Function, stack: tuple[Function, ...], seen: set[Function]) -> Iterator[Function]:
    if function in stack:
        raise SpecError(
            f"{function.__name__} calls itself",
            where=location(function),
            instead="write a loop over a range or over the elements of a tuple",
        )
    if function in seen:
        return
    for helper in helpers(function).values():
        yield from _reachable(helper, (*stack, function), seen)
    seen.add(function)
    yield function


class Rebinder:
    """Copies functions so that they, and all that they call, see replaced helpers.

    Args:
        swaps: helper to take -> helper to use in its place.
        names: further globals to replace by name (a tracer's ``any``, ``min``, ...).
        wrap: applied to each rebound helper when another function calls it.
    """

    def __init__(
        self,
        swaps: Mapping[Function, Function] | None = None,
        names: Mapping[str, object] | None = None,
        wrap: Wrap | None = None,
    ) -> None:
        self._swaps = dict(swaps or {})
        self._names = dict(names or {})
        self._wrap = wrap
        self._done: dict[Function, Function] = {}
        self._wraps: dict[Function, Callable[..., object]] = {}

    def rebound(self, function: Function) -> Function:
        """*function* with the replaced helpers; *function* itself when nothing below it changes."""
        known = self._done.get(function)
        if known is not None:
            return known
        source = self._swaps.get(function, function)
        # A replacement may call what it replaces, directly or not; such a call reaches the original.
        self._done[function] = function
        changed: dict[str, object] = dict(self._names)
        for name, helper in helpers(source).items():
            target = self.rebound(helper)
            if target is not helper or self._wrap is not None:
                changed[name] = self._wrapped(target)
        self._done[function] = _copy(source, changed) if changed else source
        return self._done[function]

    def _wrapped(self, helper: Function) -> Callable[..., object]:
        if self._wrap is None:
            return helper
        if helper not in self._wraps:
            self._wraps[helper] = self._wrap(helper)
        return self._wraps[helper]


def with_defaults(function: Function, values: Mapping[str, int]) -> Function:
    """*function* with other defaults for the parameters named; those without a default are left as they are."""
    parameters = inspect.signature(function).parameters.values()
    defaults = {one.name: values.get(one.name, one.default) for one in parameters if one.default is not one.empty}
    copy = _copy(function, {})
    named = function.__kwdefaults__ or {}
    copy.__defaults__ = tuple(value for name, value in defaults.items() if name not in named)
    copy.__kwdefaults__ = {name: defaults[name] for name in named} or None
    return copy


def _copy(source: Function, changed: Mapping[str, object]) -> Function:
    copy = FunctionType(source.__code__, {**source.__globals__, **changed}, source.__name__, source.__defaults__)
    copy.__kwdefaults__ = source.__kwdefaults__
    copy.__annotations__ = source.__annotations__
    copy.__module__ = source.__module__
    copy.__qualname__ = source.__qualname__
    copy.__doc__ = source.__doc__
    return cast("Function", copy)
