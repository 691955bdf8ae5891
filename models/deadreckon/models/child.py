"""A child process that is spoken to in lines: what it says is waited for no longer than told, and it is always reaped.

The child gets a process group of its own. An interrupt from the terminal therefore reaches this process alone, which
then ends the child and everything that the child has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import BinaryIO, Final

LINE_MAX_BYTES: Final = 1 << 20
"""A longer line is cut, and is then no JSON."""

UNREAD_MAX: Final = 100
"""Lines that nobody asked for, after which no more are read: a child that talks without end fills no memory."""

STDERR_LINES: Final = 20
"""How much of what the child last wrote to its stderr is kept."""

GRACE_S: Final = 1.0
"""How long a child may take to end by itself, once its stdin is closed."""


class Child:
    """A running process.

    Args:
        command: the program and its arguments; no shell is involved.
        loud: whether its stderr also goes to ours, as it comes.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, command: Sequence[str], *, loud: bool = False) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._last_words: deque[str] = deque(maxlen=STDERR_LINES)
        self._loud = loud
        out, err = self._process.stdout, self._process.stderr
        assert out is not None
        assert err is not None
        self._threads = [
            threading.Thread(target=target, args=(stream,), daemon=True)
            for target, stream in ((self._listen, out), (self._overhear, err))
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self, out: BinaryIO) -> None:
        while line := out.readline(LINE_MAX_BYTES):
            self._lines.put(line)
            if self._lines.qsize() > UNREAD_MAX:
                return
        self._lines.put(b"")

    def _overhear(self, err: BinaryIO) -> None:
        while line := err.readline(LINE_MAX_BYTES):
            self._last_words.append(line.decode(errors="replace").rstrip())
            if self._loud:
                print(self._last_words[-1], file=sys.stderr, flush=True)

    def send(self, line: bytes) -> None:
        """Write a line.

        Raises:
            OSError: it does not read any more.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def unread(self) -> bytes:
        """A line that it has written already; nothing if there is none."""
        with suppress(Empty):
            return self._lines.get_nowait()
        return b""

    def line(self, timeout_s: float) -> bytes | None:
        """Its next line; nothing if it writes no more; None if it takes longer than told."""
        with suppress(Empty):
            return self._lines.get(timeout=timeout_s)
        return None

    def end(self, grace_s: float = GRACE_S) -> str:
        """End it, by force if need be, and all that it started. How it ended, in words."""
        assert self._process.stdin is not None
        forced = False
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            forced = True
        finally:
            self._kill()
        return "it says no more, though it runs on" if forced else _ending(self._process.returncode)

    def _kill(self) -> None:
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread, stream in zip(self._threads, (self._process.stdout, self._process.stderr), strict=True):
            thread.join(GRACE_S)
            if stream is not None and not thread.is_alive():
                stream.close()

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last lines of its stderr."""
        return tuple(self._last_words)


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
