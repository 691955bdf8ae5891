"""Read logs: files of JSON lines, plain or compressed, or the standard input; whatever is wrong with a line."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

import attrs

from deadreckon.spec import EnvironmentFault

from .words import Line, instant

GZIP: Final = b"\x1f\x8b"
ZSTD: Final = b"\x28\xb5\x2f\xfd"
UNDATED: Final = frozenset({"policy", "log.ended"})
EVERY: Final = 5_000
"""After so many lines it is said how far it is."""

Change = Callable[[dict[str, object]], Iterable[Line | None]]
"""What a map makes of an object of the log: its lines; None for what it leaves out."""


@attrs.define
class Source:
    """One log.

    Attributes:
        name: its path, or ``-`` for the standard input.
        size: of the file in bytes; None if that isn't known.
        on_progress: told every few thousand lines: how many bytes of the file have been read, and how many lines.
        on_malformed: told of each line that is no event: its number, and why.
        change: what a map makes of each line.
        left_out: records of which it made none.
    """

    name: str
    on_malformed: Callable[[int, str], None]
    on_progress: Callable[[int, int], None] | None = None
    change: Change | None = None
    size: int | None = attrs.field(init=False, default=None)
    left_out: int = attrs.field(init=False, default=0)
    _raw: BinaryIO = attrs.field(init=False)
    _last_at_ms: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        try:
            if self.name == "-":
                if sys.stdin is None:
                    raise EnvironmentFault("can't read -: the standard input is closed")
                self._raw = cast("BinaryIO", sys.stdin.buffer)
            else:
                path = Path(self.name)
                self._raw = path.open("rb")
                self.size = path.stat().st_size if path.is_file() else None
        except OSError as refusal:
            raise EnvironmentFault(f"can't read {self.name}: {refusal.strerror or refusal}") from refusal

    def close(self) -> None:
        """Let go of the file."""
        if self.name != "-":
            self._raw.close()

    def lines(self) -> Iterator[tuple[int, Line]]:
        """The lines that are events, with their numbers.

        Raises:
            EnvironmentFault: the file can't be read, or not be unpacked.
        """
        try:
            yield from self._lines(self._unpacked())
        except (OSError, EOFError, zlib.error) as fault:
            raise EnvironmentFault(f"can't read {self.name}: {fault}") from fault

    def _lines(self, stream: BinaryIO) -> Iterator[tuple[int, Line]]:
        raw_decode = json.JSONDecoder().raw_decode
        change, number = self.change, 0
        for raw in stream:
            number += 1
            if number % EVERY == 0 and self.on_progress is not None:
                self.on_progress(self._position(), number)
            try:
                text = raw.decode().strip()
                found, end = raw_decode(text)
                if end != len(text):
                    raise ValueError("more than one value")
                if found.__class__ is not dict:
                    raise ValueError("it is no object")
                if change is None:
                    at = found.get("at")
                    if at.__class__ is int:
                        self._last_at_ms = at
                    else:
                        self._date(found, at)
                    yield number, found
                    continue
            except (ValueError, RecursionError) as fault:
                self._odd(raw, number, fault)
                continue
            yield from self._changed(raw, number, found, change)

    def _changed(self, raw: bytes, number: int, found: dict[str, object], change: Change) -> Iterator[tuple[int, Line]]:
        """What a map makes of one object, dated."""
        try:
            for line in change(found):
                if line is None:
                    self.left_out += 1
                    continue
                dated = dict(line)
                self._date(dated, dated.get("at"))
                yield number, dated
        except (ValueError, TypeError, AttributeError, OverflowError) as fault:  # shapes that the map does not expect
            self._odd(raw, number, fault)

    def _date(self, line: dict[str, object], at: object) -> None:
        """Give a line its time as a number."""
        if type(at) is int:
            self._last_at_ms = at
        elif isinstance(at, str):
            try:
                line["at"] = self._last_at_ms = instant(at)
            except ValueError:
                raise ValueError(f"at is {at!r}: give a time like 2026-01-31T12:00:00.000Z") from None
        elif at is None and line.get("type") in UNDATED:
            line["at"] = self._last_at_ms
        else:
            raise ValueError(f"at is {at!r}: give milliseconds, or a time like 2026-01-31T12:00:00.000Z")

    def _odd(self, raw: bytes, number: int, fault: Exception) -> None:
        """A line that is none: blank, or malformed."""
        if raw.strip():
            why = "it nests too deeply" if isinstance(fault, RecursionError) else str(fault)
            self.on_malformed(number, why)

    def _position(self) -> int:
        return self._raw.tell() if self.size is not None else 0

    def _unpacked(self) -> BinaryIO:
        raw = self._raw
        buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", raw))
        magic = buffered.peek(4)[:4]
        if magic.startswith(GZIP):
            return cast("BinaryIO", gzip.open(buffered))
        if magic.startswith(ZSTD):
            return _zstd(buffered, self.name)
        if magic.startswith(b"\xef\xbb\xbf"):
            buffered.read(3)
        return cast("BinaryIO", buffered)


def _zstd(stream: BinaryIO, name: str) -> BinaryIO:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise EnvironmentFault(
            f"{name} is packed by zstd: pip install 'deadreckon[zstd]', or unpack it: zstd -dc {name} | deadreckon audit -"
        ) from None

    def fresh() -> _Frame:
        return cast("_Frame", zstandard.ZstdDecompressor().decompressobj())

    return cast("BinaryIO", io.BufferedReader(_Frames(stream, fresh, zstandard.ZstdError)))


class _Frame(Protocol):
    """What is left of one frame of a stream that zstd packed."""

    eof: bool
    unused_data: bytes

    def decompress(self, packed: bytes) -> bytes:
        """More of it, unpacked."""


class _Frames(io.RawIOBase):
    """Frames one after another; the library's own stream would take a frame that is cut for a whole one."""

    def __init__(self, stream: BinaryIO, fresh: Callable[[], _Frame], error: type[Exception]) -> None:
        self._stream = stream
        self._fresh = fresh
        self._error = error
        self._frame: _Frame | None = None
        self._packed = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer))
        try:
            while not self._ready and self._more():
                pass
        except self._error as fault:
            raise OSError(str(fault)) from fault
        data, self._ready = self._ready[: len(view)], self._ready[len(view) :]
        view[: len(data)] = data
        return len(data)

    def _more(self) -> bool:
        packed = self._packed or self._stream.read(io.DEFAULT_BUFFER_SIZE)
        if not packed:
            if self._frame is not None:
                raise OSError("it ends in the middle of a frame: the log is cut")
            return False
        frame = self._frame = self._frame or self._fresh()
        self._packed, self._ready = b"", frame.decompress(packed)
        if frame.eof:
            self._packed, self._frame = frame.unused_data, None
        return True
