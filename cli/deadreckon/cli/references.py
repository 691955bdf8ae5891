"""Find the machine that a command line names: built in, in a module, or in a file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from deadreckon.spec import CallerError, DeadreckonError, Machine

HOW = "name a built-in machine ({known}), module:object, or path/to/file.py:object"


@cache
def resolve(reference: str) -> Machine:
    """The machine that *reference* names.

    Raises:
        CallerError: when there is none: an unknown name, a module that can't be imported, an object that is no machine.
    """
    place, colon, name = reference.rpartition(":")
    if not colon:
        return _built_in(reference)
    found: object = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise CallerError(f"{place} has no object {name}")
        found = getattr(found, part)
    if not isinstance(found, Machine):
        raise CallerError(f"{reference} is {_kind(found)}, not a deadreckon.spec.Machine")
    return found


def _kind(found: object) -> str:
    name = type(found).__name__
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"


def _built_in(name: str) -> Machine:
    # Imported here, so that a machine of the user's own is checked even where no built-in one is wanted.
    from deadreckon.spec.machines import MACHINES

    if name in MACHINES:
        return MACHINES[name]
    if name.endswith(".py") or Path(name).exists():
        raise CallerError(f"which object of {name}? write {name}:OBJECT")
    raise CallerError(f"unknown machine {name!r}: {HOW.format(known=', '.join(MACHINES))}")


def built_in_names() -> tuple[str, ...]:
    """The names of the built-in machines."""
    from deadreckon.spec.machines import MACHINES

    return tuple(MACHINES)


def absolute(reference: str) -> str:
    """*reference* in a form that means the same wherever it is resolved; replay commands keep the user's form."""
    place, colon, name = reference.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if colon and place.endswith(".py") else reference


def _from_module(name: str) -> ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise CallerError(f"{name!r} is no module: {HOW.format(known=', '.join(built_in_names()))}")
    with _on_path(os.getcwd()), _typed(f"module {name}"):
        return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise CallerError(f"there is no file {path}")
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"_deadreckon_{path.stem}_{digest}"  # its own name: a user's json.py must not hide the library's
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _on_path(str(path.parent)), _typed(str(path)):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _on_path(directory: str) -> Iterator[None]:
    """Look for modules in *directory* first, for a while."""
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)


@contextmanager
def _typed(what: str) -> Iterator[None]:
    """Turn whatever the user's module raises while it loads into one line."""
    try:
        yield
    except DeadreckonError:
        raise
    except SystemExit as stopped:
        raise CallerError(f"{what} ends the program when it is imported ({stopped})") from stopped
    except Exception as failure:
        raise CallerError(f"can't import {what}: {explained(failure)}") from failure


def explained(failure: BaseException) -> str:
    """A foreign exception on one line: its type, its message, and the line that raised it."""
    text = " ".join(str(failure).split())
    kind = type(failure).__name__
    if isinstance(failure, ImportError) or not failure.__traceback__:
        return f"{kind}: {text}"
    if isinstance(failure, SyntaxError):
        return f"{kind}: {failure.msg} ({failure.filename}:{failure.lineno})"
    frame = traceback.extract_tb(failure.__traceback__)[-1]
    return f"{kind}: {text} ({frame.filename}:{frame.lineno})"
