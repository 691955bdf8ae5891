"""Do tasks in worker processes, say what goes on while it goes on, and end cleanly however it ends.

Workers are spawned, not forked: the same on every platform, and safe beside threads. They never see Ctrl-C (the parent
decides), and they end when the parent does, even if it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.queues import Queue
from typing import Protocol

import attrs

from deadreckon.models.explorer import Progress
from deadreckon.spec import EnvironmentFault

from .checking import Failed, Finding, Task, perform

POLL_SECONDS = 0.2
STARTED = "started"


class Watcher(Protocol):
    """Is told what goes on."""

    def started(self, task: Task) -> None:
        """A worker took *task* up."""

    def progress(self, task: Task, progress: Progress | str) -> None:
        """Where *task* stands."""

    def finished(self, task: Task, finding: Finding) -> None:
        """*task* is done."""

    def beat(self) -> None:
        """Some time has passed."""


@attrs.frozen
class _Note:
    """From a worker: what task *number* has to say."""

    number: int
    said: Progress | str


@attrs.define
class Outcome:
    """What was found, in the order of the tasks; ``stopped`` says why the rest was not done."""

    findings: dict[Task, Finding]
    stopped: str = ""


def run(tasks: Sequence[Task], jobs: int, watcher: Watcher) -> Outcome:
    """Do *tasks* in *jobs* processes.

    Ctrl-C, SIGTERM and a worker that dies end the run early: the workers are gone when this returns, and what was
    finished is in the outcome.
    """
    if not tasks:
        return Outcome({})
    context = multiprocessing.get_context("spawn")
    notes: Queue[_Note] = context.Queue()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), context, _begin, (notes,))
    found: dict[int, Finding] = {}
    stopped = ""
    with _terminable():
        try:
            with _interrupts_held():
                futures = {pool.submit(_work, number, task): number for number, task in enumerate(tasks)}
            _collect(tasks, futures, notes, watcher, found)
        except KeyboardInterrupt as interrupt:
            stopped = f"interrupted{f' by {interrupt}' if str(interrupt) else ''}"
        except BrokenProcessPool:
            stopped = "a worker process died (killed, or out of memory); try fewer --jobs, or narrower scopes"
        finally:
            with _interrupts_held():
                if len(found) < len(tasks):
                    _end(others)
                pool.shutdown(wait=True, cancel_futures=True)
                notes.close()
    return Outcome({task: found[number] for number, task in enumerate(tasks) if number in found}, stopped)


def _collect(
    tasks: Sequence[Task],
    futures: dict[Future[Finding], int],
    notes: Queue[_Note],
    watcher: Watcher,
    found: dict[int, Finding],
) -> None:
    pending = set(futures)
    started: set[int] = set()
    while pending:
        done, pending = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for note in _drained(notes):
            task = tasks[note.number]
            if note.said == STARTED:
                started.add(note.number)
                watcher.started(task)
            elif note.number in started and note.number not in found:
                watcher.progress(task, note.said)
        for future in sorted(done, key=futures.__getitem__):
            number = futures[future]
            found[number] = _result(future)
            if number not in started:  # its note is still on the way
                started.add(number)
                watcher.started(tasks[number])
            watcher.finished(tasks[number], found[number])
        watcher.beat()


def _result(future: Future[Finding]) -> Finding:
    try:
        return future.result()
    except BrokenProcessPool:
        raise
    except Exception as failure:  # a finding that can't be sent home
        return Failed(f"{type(failure).__name__}: {failure}")


def _drained(notes: Queue[_Note]) -> Iterator[_Note]:
    while True:
        try:
            yield notes.get_nowait()
        except queue.Empty:
            return


def _end(others: set[multiprocessing.process.BaseProcess]) -> None:
    """End the worker processes of this run, and only those."""
    workers = [process for process in multiprocessing.active_children() if process not in others]
    for process in workers:
        process.terminate()
    for process in workers:
        process.join(2)
        if process.is_alive():
            process.kill()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back; a process that is spawned meanwhile never sees it, not even while it starts."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: continuous integration ends its jobs with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# In a worker.

_notes: Queue[_Note] | None = None


def _begin(notes: Queue[_Note]) -> None:
    global _notes
    _notes = notes
    notes.cancel_join_thread()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(2)


def _work(number: int, task: Task) -> Finding:
    if _notes is None:
        raise EnvironmentFault("a worker process did not start properly")
    notes = _notes
    notes.put(_Note(number, STARTED))
    return perform(task, lambda said: notes.put(_Note(number, said)))
