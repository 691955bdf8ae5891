"""What runs a supervised host: a process of the system, or a task of this one.

A process is started in a session of its own, so that Ctrl-C reaches the supervisor alone. It carries a token in its
environment, which everything that it starts inherits. Its end is the end of all that: its process group is killed, and
whatever carries its token too, though it has left group and session as daemons do (on Linux; elsewhere those are not
found, nor is anywhere what wiped its environment). The token is on record before the process starts: so whoever
supervises the host after a SIGKILL of the supervisor finds what that one has left running, and kills it before it
starts another.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from deadreckon.spec.errors import CallerError

from .timer import Timer

logger = logging.getLogger("deadreckon.supervisor")

TOKEN: Final = "DEADRECKON_CHILD"
"""The variable in the environment of a child that holds its token."""

PROC: Final = Path("/proc")
ORPHAN_S: Final = 5.0
"""How long a killed orphan may take to be gone: one that waits for its disk takes a moment."""
KILLED_MS: Final = int(2 * ORPHAN_S * 1_000)
"""How long a killed child may take to be gone, with all that it has started."""

Program = Sequence[str] | Callable[[], Awaitable[object]]
"""How a host is run: ``argv`` of a process, or an async function. When it ends, the host has died."""


class Child(Protocol):
    """One run of a host.

    Attributes:
        ended: done once it has ended.
        code_zero: whether it ended without complaint; that proves nothing (K7).
        how: how it ended, in words.
    """

    ended: asyncio.Future[None]
    code_zero: bool
    how: str

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def kill(self) -> None:
        """End it, if that can be done at all."""
        ...


class ProcessChild:
    """A process, in a session of its own, and whatever it has started."""

    def __init__(self, process: asyncio.subprocess.Process, token: str) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.code_zero = False
        self.how = "it runs"
        self._process = process
        self._token = token
        self._watch = asyncio.create_task(self._wait())

    @classmethod
    async def start(cls, argv: Sequence[str], token: str) -> ProcessChild:
        """Start it. Its standard streams are the supervisor's, but for the input, which is empty.

        Raises:
            OSError: it can't be started.
        """
        env = {**os.environ, TOKEN: token}
        starting = asyncio.create_subprocess_exec(*argv, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        return cls(await starting, token)

    async def _wait(self) -> None:
        code = await self._process.wait()
        self.code_zero = code == 0
        self.how = f"exit code {code}" if code >= 0 else f"killed by {signal_name(-code)}"
        self._signal(signal.SIGKILL)  # what it has left in its group
        await asyncio.get_running_loop().run_in_executor(None, kill_orphans, self._token)
        self.ended.set_result(None)

    def terminate(self) -> None:
        """SIGTERM, to its whole process group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, to its whole process group, and to what has left that."""
        self._signal(signal.SIGKILL)
        if not self.ended.done():
            kill_carriers(self._token)  # here and now: the process may be leaving, and see no more ends

    def _signal(self, number: signal.Signals) -> None:
        if self.ended.done():
            return  # its number may be another's by now
        with suppress(ProcessLookupError, PermissionError):  # gone; on macOS a zombie's group can't be signalled
            os.killpg(self._process.pid, number)


class TaskChild:
    """A task of this process. One that doesn't heed cancellations can't be ended: it runs on."""

    def __init__(self, function: Callable[[], Awaitable[object]]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.code_zero = False
        self.how = "it was cancelled"
        self._task = asyncio.create_task(self._run(function))
        self._task.add_done_callback(self._end)

    async def _run(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            running = function()
            if not inspect.isawaitable(running):
                raise CallerError(f"program returned {running!r:.60}: give an async function")
            await running
            self.code_zero, self.how = True, "it returned"
        except Exception as error:
            self.how = f"it raised {type(error).__name__}"
            logger.warning("a supervised function raised", exc_info=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def terminate(self) -> None:
        """Cancel it."""
        self._task.cancel()

    kill = terminate


async def started(program: Program, token: str) -> Child:
    """A run of *program*.

    Raises:
        OSError: it can't be started.
    """
    return TaskChild(program) if callable(program) else await ProcessChild.start(program, token)


async def ended(child: Child, timer: Timer, grace_ms: int) -> bool:
    """Ask a child to end, and kill it if it doesn't within *grace_ms*; whether it has ended."""
    if not child.ended.done():
        child.terminate()
        await timer.pause(grace_ms, child.ended)
    return await killed(child, timer)


async def killed(child: Child, timer: Timer) -> bool:
    """Kill a child; whether it has ended."""
    if not child.ended.done():
        child.kill()
        await timer.pause(KILLED_MS, child.ended)
    if not child.ended.done():
        logger.error("a child can't be ended, and runs on beside its successor")
    return child.ended.done()


def checked_program(program: Program) -> Program:
    """*program*, if it can be one.

    Raises:
        CallerError: it is neither an async function nor a command with its arguments.
    """
    if callable(program):
        return program
    argv = tuple(program) if isinstance(program, Sequence) and not isinstance(program, str | bytes) else ()
    if not argv or not argv[0] or not all(isinstance(one, str) and "\0" not in one for one in argv):
        raise CallerError(f"program is {program!r:.60}: give a list of texts, the command and its arguments")
    return argv


def signal_name(number: int) -> str:
    """The name of a signal; its number, if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def new_token() -> str:
    """A token that no other child has."""
    return uuid.uuid4().hex


def kill_orphans(token: str) -> int:
    """Kill every process that carries *token*, and wait until they are gone; how many there were. It blocks.

    A child can't be relied on to end what it has started. A supervisor that was killed can't tend its children; whoever
    comes next does.
    """
    found: set[int] = set()
    give_up_at = time.monotonic() + ORPHAN_S
    while pids := kill_carriers(token):
        found |= pids
        if time.monotonic() > give_up_at:
            logger.error("processes %s of an earlier child can't be killed", sorted(pids))
            break
        time.sleep(0.005)
    return len(found)


def kill_carriers(token: str) -> set[int]:
    """Send SIGKILL to every process that carries *token*, once; which there were."""
    if not token or not PROC.is_dir():
        return set()
    pids = _carriers(f"{TOKEN}={token}".encode())
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _carriers(mark: bytes) -> set[int]:
    """The processes that carry *mark* in their environment. One that is dead, but not reaped, has none."""
    pids = set()
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                pids.add(int(entry.name))
        except OSError:
            continue  # gone, or another user's
    return pids
