"""Machine code kept on disk, a file for each piece: what is not whole, or can't be read or written, is compiled again.

Numba's own cache numbers its files by an index that functions share: two processes that compile two machines at once may
take the code of one for that of the other, and a file that was cut off is an error. Here a file has the name of what it
is, and a checksum.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

import numba
from numba.core import caching, serialize

from .. import expr, intervals

SUFFIX = ".machine-code"
MOST = 2000
"""Files that are kept, some 15 kB each: when there are more, the half that was not used for longest goes."""

BESIDE = (expr, intervals)


class Cache(Protocol):
    """What this module asks of a cache of numba's, which says nothing of its types."""

    cache_path: str
    _cache_file: Pieces

    def load_overload(self, signature: object, context: object) -> object:
        """What was compiled for *signature*."""

    def save_overload(self, signature: object, code: object) -> None:
        """Keep it."""


class Caching(Protocol):
    """Something of numba's that has a cache."""

    _cache: Kept


def keep(compiler: object, function: Callable[..., object]) -> None:
    """Let *compiler*, a dispatcher or C function of numba's, keep the machine code of *function* here."""
    cast("Caching", compiler)._cache = Kept(function)


def sources() -> str:
    """A digest of the modules that machine code depends on: it changes when they do."""
    files = sorted({*Path(__file__).parent.glob("*.py"), *(Path(str(one.__file__)) for one in BESIDE)})
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


class Kept:
    """Keeps the machine code of *function*, in place of a cache of numba's; without a place to keep it, it keeps none."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._cache: Cache | None = None
        with suppress(RuntimeError, OSError):  # numba finds no directory that it may write to
            self._cache = cast("Callable[..., Cache]", caching.FunctionCache)(function)
            self._cache._cache_file = Pieces(Path(self._cache.cache_path), function.__name__)

    @property
    def cache_path(self) -> str | None:
        """Where it is kept."""
        return None if self._cache is None else self._cache.cache_path

    def load_overload(self, signature: object, context: object) -> object:
        """What was compiled for *signature*, or None."""
        if self._cache is None:
            return None
        try:
            return self._cache.load_overload(signature, context)
        except Exception:  # whatever does not load is compiled again
            return None

    def save_overload(self, signature: object, code: object) -> None:
        """Keep what was compiled for *signature*, if there is a place."""
        if self._cache is not None:
            with suppress(OSError):
                self._cache.save_overload(signature, code)


class Pieces:
    """The files of one function: what numba asks of a cache file."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = name

    def load(self, key: object) -> object:
        """What was saved under *key*; None if there is nothing, or nothing whole.

        Raises:
            OSError: the file can't be read.
            Exception: what unpickling makes of another version.
        """
        path, mark = self._place(key)
        if not path.exists():
            return None
        found = path.read_bytes()
        data = found[64:]
        if found[:64] != _checksum(mark, data):
            return None
        with suppress(OSError):
            os.utime(path)
        whole: object = pickle.loads(data)
        return whole

    def save(self, key: object, data: object) -> None:
        """Keep *data* under *key*; another process sees all of it or nothing.

        Raises:
            OSError: it can't be written.
        """
        path, mark = self._place(key)
        written = cast("Callable[[object], bytes]", serialize.dumps)(data)
        handle, name = tempfile.mkstemp(dir=self.directory, prefix=f"{path.name}.")
        try:
            with open(handle, "wb") as file:
                file.write(_checksum(mark, written) + written)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
        self._tidy()

    def flush(self) -> None:
        """Forget all."""
        for path in self._files():
            path.unlink(missing_ok=True)

    def _place(self, key: object) -> tuple[Path, bytes]:
        mark = hashlib.sha256(repr((numba.__version__, _SOURCES, self.name, key)).encode()).hexdigest()
        return self.directory / f"{self.name}-{mark[:40]}{SUFFIX}", mark.encode()

    def _files(self) -> list[Path]:
        return list(self.directory.glob(f"{self.name}-*{SUFFIX}"))

    def _tidy(self) -> None:
        files = self._files()
        if len(files) <= MOST:
            return
        with suppress(OSError):  # another process may be tidying as well
            for path in sorted(files, key=lambda one: one.stat().st_mtime)[: len(files) // 2]:
                path.unlink(missing_ok=True)


def _checksum(mark: bytes, data: bytes) -> bytes:
    return hashlib.sha256(mark + data).hexdigest().encode()


_SOURCES = sources()
