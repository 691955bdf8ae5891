"""A walk as Python to paste: it makes a driver, takes the steps, and shows what the driver observes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import attrs

from .driver import Difference, DriverMaker, Ground, Taken

REFUSALS = frozenset({"from contextlib import suppress", "from deadreckon.spec import Refused"})


def program(
    ground: Ground, taken: Sequence[Taken], made_by: DriverMaker | None, differences: Sequence[Difference]
) -> str:
    """Python that repeats the steps *taken* by a driver of *made_by*, and the *differences* that they led to."""
    imports = set(REFUSALS)
    name = getattr(made_by, "__qualname__", "<")
    made = f"{name}()" if name.isidentifier() else "make_driver()  # what makes your driver"
    policy = _source(ground.scope.policy, imports)
    calls = []
    for number, one in enumerate(taken, 1):
        instance = ground.instances[one.label]
        given = "".join(f", {key}={_source(value, imports)}" for key, value in ground.inputs(one.label).items())
        call = f"driver.do({instance.action!r}{given})"
        if one.refused_by is not None:
            call = f"with suppress(Refused): {call}"
        because = f", to be refused by {one.refused_by}" if one.refused_by else ""
        calls.append(f"{call}  # {number}{because}")
    if all(one.refused_by is None for one in taken):
        imports -= REFUSALS
    seen = [f"# {one}" for one in differences]
    lines = (*sorted(imports), f"driver = {made}", f"driver.reset({policy})", *calls, "print(driver.observe())", *seen)
    return "\n".join(lines)


def _source(value: object, imports: set[str]) -> str:
    """*value* as Python; what it needs is added to *imports*."""
    cls = type(value)
    if isinstance(value, Enum):
        imports.add(f"from {cls.__module__} import {cls.__qualname__.partition('.')[0]}")
        return f"{cls.__qualname__}.{value.name}"
    if isinstance(value, tuple):
        return f"({''.join(f'{_source(one, imports)}, ' for one in value)})"
    if attrs.has(cls):
        imports.add(f"from {cls.__module__} import {cls.__qualname__.partition('.')[0]}")
        fields = [one for one in attrs.fields(cls) if one.init and getattr(value, one.name) != one.default]
        given = (f"{one.alias}={_source(getattr(value, one.name), imports)}" for one in fields)
        return f"{cls.__qualname__}({', '.join(given)})"
    return repr(value)
