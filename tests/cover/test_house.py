"""House rules that a machine can hold: layout, public names, length of modules, reasons of exceptions."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("spec", "impl", "models", "proofs", "cli")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
PYTHON = sorted([*MODULES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])
LINES = 400


def named(path: Path) -> str:
    """A path as the test's id."""
    return str(path.relative_to(ROOT))


def test_the_namespace_has_no_init() -> None:
    """An ``__init__.py`` in the namespace itself would hide the other rooms in an editable install."""
    assert not [path for path in MODULES if path.parent.name == "deadreckon"]


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_typed(room: str) -> None:
    """Each room ships its types."""
    assert (ROOT / room / "deadreckon" / room / "py.typed").is_file()


@pytest.mark.parametrize("room", ["spec", "impl"])
def test_public_names_exist(room: str) -> None:
    """What a room says is public can be imported from it, and is listed once, in order."""
    module = importlib.import_module(f"deadreckon.{room}")
    names = list(module.__all__)
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_modules_are_short(path: Path) -> None:
    """A module has under 400 lines; where the second subject begins, it is split."""
    assert len(path.read_text(encoding="utf-8").splitlines()) < LINES


@pytest.mark.parametrize("path", PYTHON, ids=named)
def test_exceptions_carry_reasons(path: Path) -> None:
    """What is switched off for a linter or the type checker says why, on the same line."""
    bare = re.compile(r"#\s*(type: ignore(\[[a-z-]+\])?|noqa(: [A-Z0-9, ]+)?)\s*$")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [f"{number}: {line.strip()}" for number, line in enumerate(lines, 1) if bare.search(line)] == []
