"""What a service did, as it happens: one small mapping an event, through one optional sink that all machines share.

    with EventLog("service.jsonl", policy=policy) as log:           # lines for ``deadreckon audit``
        async with Recovery(store, policy, sink=log) as recovery, Door(journal, sink=log) as door: ...

What is written
    The vocabulary of logs: ``at`` (milliseconds), ``type``, and the fields of that type; texts of requests, reasons and
    signatures stay in the journal. A line that speaks of something durable comes after it is durable, in the order of
    the journal or of the commits; ``effect.called`` comes just before the effect. Facts of a journal also carry their
    ``offset``. That an incarnation or a door died is written by the next one, for the dead write nothing.

What a sink may do to the protocol
    Nothing. It is called in the event loop, so it must not block for long. If it raises, that is logged once, as a
    warning, and this machine never calls it again: what it has then is a true beginning of what happened, while a log
    with a hole in it would accuse the service of what it never did.

What is not promised
    A log is not the journal: a process that is killed between a commit and its line leaves the line out. A door writes
    it later, if its sink says up to which ``offset`` it has the journal's facts, as :class:`EventLog` does. To others a
    door tells what happens from its own boot on.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, TypeAlias

import attrs

from deadreckon.spec.errors import CallerError
from deadreckon.spec.hold_state import HoldPolicy
from deadreckon.spec.incident_state import RecoveryPolicy
from deadreckon.spec.journal_state import JournalPolicy
from deadreckon.spec.keepalive_state import KeepalivePolicy
from deadreckon.spec.request_state import RequestPolicy

from .hold_journal import Json

logger = logging.getLogger("deadreckon.events")

Event: TypeAlias = Mapping[str, Json]
"""One event, read-only: ``at``, ``type``, and the fields of its type."""

Sink: TypeAlias = Callable[[Event], None]
"""``sink(event)``: takes note of an event. Called in the event loop; it may have an ``offset`` (see above)."""

BLOCK_BYTES: Final = 65_536
MACHINES: Final = {
    HoldPolicy: "hold",
    RecoveryPolicy: "incident",
    JournalPolicy: "journal",
    RequestPolicy: "request",
    KeepalivePolicy: "keepalive",
}


class Emitter:
    """A sink that can't do harm.

    Args:
        sink: where events go; nowhere if it is None.
        now_ms: the time of events that have none of their own.
    """

    def __init__(self, sink: Sink | None, now_ms: Callable[[], int]) -> None:
        self.sink = sink
        self._now_ms = now_ms

    def __call__(self, type_: str, fields: Mapping[str, Json], at_ms: int | None = None) -> None:
        """Hand on one event; the first that the sink raises at is the last."""
        if self.sink is None:
            return
        event = {"at": self._now_ms() if at_ms is None else at_ms, "type": type_, **fields}
        try:
            self.sink(MappingProxyType(event))
        except Exception:
            self.sink = None
            logger.warning("the event sink raised at %s: nothing more is written to it", event, exc_info=True)


class EventLog:
    """A :data:`Sink` that appends JSON lines to a file.

    Each line is one write, without a buffer: it outlives the death of the process, not that of the machine. Several
    machines and processes may share the file, as long as there is one journal at most among them.

    Args:
        path: the file; made if it doesn't exist, and continued if it does.
        policy: written as the first line of a new file, so that an audit knows the limits.

    Raises:
        OSError: the file can't be opened; from a call, that it can't be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        policy: HoldPolicy | RecoveryPolicy | JournalPolicy | RequestPolicy | KeepalivePolicy | None = None,
    ) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self._cut_torn_line()
            if policy is not None and os.fstat(self._file).st_size == 0:
                self._write({"type": "policy", "machine": MACHINES[type(policy)], **attrs.asdict(policy)})
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, event: Event, /) -> None:
        """Append *event*."""
        if self._file < 0:
            raise CallerError("the event log was closed: close it after the machines that write to it")
        self._write(dict(event))

    def close(self) -> None:
        """Let go of the file. Closing again does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @property
    def offset(self) -> int:
        """The last offset of a journal in the file; 0 if there is none."""
        rest = b""
        end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - BLOCK_BYTES)
            first, *lines = (os.pread(self._file, end - start, start) + rest).split(b"\n")
            if offsets := [offset for line in lines if (offset := _offset(line)) is not None]:
                return offsets[-1]
            rest, end = first, start
        return _offset(rest) or 0

    def _write(self, event: Mapping[str, object]) -> None:
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError("the line was cut: the disk is full")

    def _cut_torn_line(self) -> None:
        """Take away the part of a line that a death, or a full disk, left at the end."""
        end = size = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - BLOCK_BYTES)
            whole = os.pread(self._file, end - start, start).rfind(b"\n")
            if whole >= 0 or start == 0:
                end = start + whole + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._file, end)


def _offset(line: bytes) -> int | None:
    """The offset of the fact of a hold's journal that *line* tells; None if it tells none."""
    if b'"offset":' not in line:
        return None
    event = json.loads(line)
    found = None if event.get("type") == "journal.appended" else event.get("offset")
    return found if isinstance(found, int) else None
