"""Real processes, really killed: after any number of SIGKILLs the count equals the deaths, exactly.

The children run this very file. Each tells what it is doing in a *diary*, line by line, on disk before it goes on, so
the parent knows the truth from outside the store:

    next N      incarnation N is about to enter an attempt
    in N        the body of the attempt runs: its admission has returned
    end N       the body is about to end
    out N       the `async with` of that attempt has been left: its end was reported
    sealed N    incarnation N was refused: the incident is sealed
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from json import loads
from pathlib import Path

import pytest

from deadreckon.impl import Recovery, Sealed, SqliteStore
from deadreckon.spec import UNLIMITED
from deadreckon.spec.incident_state import RecoveryPolicy

ENDLESS = RecoveryPolicy(max_interrupted_attempts=UNLIMITED, max_attempts=UNLIMITED, no_progress_timeout_ms=UNLIMITED)
PATIENCE_S = 60


class Diary:
    """What the children did, as they wrote it down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, word: str, incarnation: int) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{word} {incarnation}\n".encode())
        os.fsync(file)
        os.close(file)

    def lines(self) -> list[tuple[str, int]]:
        """Whole lines alone: the last one may have been cut by the death."""
        text = self.path.read_text() if self.path.exists() else ""
        words = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [(word, int(incarnation)) for word, incarnation in words]

    def last(self, incarnation: int) -> str:
        """The last word of *incarnation*; empty if it wrote none."""
        return next((word for word, writer in reversed(self.lines()) if writer == incarnation), "")


async def child(database: str, diary: Diary, mode: str) -> None:
    """One life: sit in the body until killed (`sit`, `seal`), or go in and out of attempts (`churn`)."""
    policy = RecoveryPolicy() if mode == "seal" else ENDLESS
    async with SqliteStore(database) as store, Recovery(store, policy) as recovery:
        try:
            while True:
                diary.write("next", recovery.incarnation)
                async with recovery.attempt("t") as attempt:
                    diary.write("in", recovery.incarnation)
                    await asyncio.sleep(0.002 if mode == "churn" else PATIENCE_S)
                    await attempt.progress()
                    attempt.yield_()
                    diary.write("end", recovery.incarnation)
                diary.write("out", recovery.incarnation)
                await asyncio.sleep(0.002)
        except Sealed:
            diary.write("sealed", recovery.incarnation)


@contextmanager
def life(database: Path, diary: Diary, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    """A child that is alive within, and killed by SIGKILL at the end."""
    command = [sys.executable, __file__, str(database), str(diary.path), mode]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)


def wait_for(process: subprocess.Popen[bytes], diary: Diary, word: str, times: int) -> None:
    """Wait until *word* stands in the diary so many times."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(written == word for written, _ in diary.lines()) < times:
        assert process.poll() is None, "the child ended by itself"
        assert time.monotonic() < deadline, f"the child never wrote {word!r}"
        time.sleep(0.001)


ORIGINAL = 0
"""Stands for the original turn among the dead: it leaves no entry, but an owed turn without a record."""


def dead_on_disk(database: Path) -> tuple[int, set[int]]:
    """The last incarnation, and who the file says is dead and not counted yet; read without this library."""
    if not database.exists():
        return 0, set()
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            return 0, set()  # died before the tables were committed
        (incarnation,) = connection.execute("SELECT incarnation FROM life").fetchone()
        rows = connection.execute("SELECT turn, status, attempts FROM turns WHERE turn_id = 't'").fetchall()
    dead = {owner for _, _, attempts in rows for owner in loads(attempts)} - {0}
    return incarnation, dead | {ORIGINAL for turn, status, _ in rows if (turn, status) == ("running", "absent")}


def counted(database: Path) -> int:
    """The count of one more admission."""

    async def run() -> int:
        async with (
            SqliteStore(database) as store,
            Recovery(store, ENDLESS) as recovery,
            recovery.replay("t") as attempt,
        ):
            return attempt.count

    return asyncio.run(run())


def kill_in_the_body(tmp_path: Path, kills: int) -> None:
    database, diary = tmp_path / "turns.db", Diary(tmp_path / "diary")
    for kill in range(1, kills + 1):
        with life(database, diary, "sit") as process:
            wait_for(process, diary, "in", kill)
    assert counted(database) == kills


def kill_at_random(tmp_path: Path, kills: int, seed: int) -> set[str]:
    """Kill anywhere; what is on disk then says whether it was a death, and must agree with the diary. Their last words.

    One life in five is killed at any moment of its first half second, the others while attempts come and go.
    """
    database, diary = tmp_path / "turns.db", Diary(tmp_path / "diary")
    chance = random.Random(seed)
    dead: set[int] = set()
    last_words = []
    for _ in range(kills):
        with life(database, diary, "churn") as process:
            if chance.random() < 0.8:
                wait_for(process, diary, "next", sum(word == "next" for word, _ in diary.lines()) + 1)
                time.sleep(chance.random() * 0.03)
            else:
                time.sleep(chance.random() * 0.5)
        incarnation, found = dead_on_disk(database)
        last_words.append(diary.last(incarnation))
        holding = bool(found & {incarnation, ORIGINAL})
        assert holding or last_words[-1] != "in", "a body ran and nothing durable said so (C3)"
        assert not holding or last_words[-1] != "out", "an end was reported that was not durable (C2)"
        dead |= found
    assert counted(database) == len(dead)
    return set(last_words)


def test_c1_killed_in_the_body(tmp_path: Path) -> None:
    """Every dead attempt is counted exactly once: 5 processes killed at work are 5 deaths."""
    kill_in_the_body(tmp_path, 5)


def test_c1_killed_at_random(tmp_path: Path) -> None:
    """A process killed at any moment is a death if, and only if, its entry was durable then."""
    kill_at_random(tmp_path, 5, seed=1)


def test_c4_killed_until_sealed(tmp_path: Path) -> None:
    """A turn that kills its process every time runs exactly `limit` times, the original included."""
    database, diary = tmp_path / "turns.db", Diary(tmp_path / "diary")
    for run in range(1, 6):
        with life(database, diary, "seal") as process:
            wait_for(process, diary, "in", run)
    with life(database, diary, "seal") as process:
        process.wait(PATIENCE_S)
    words = [word for word, _ in diary.lines()]
    assert words == ["next", "in"] * 5 + ["next", "sealed"]


@pytest.mark.slow
def test_c1_killed_in_the_body_often(tmp_path: Path) -> None:
    """Every dead attempt is counted exactly once: 50 processes killed at work are 50 deaths."""
    kill_in_the_body(tmp_path, 50)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5))
def test_c1_killed_at_random_often(tmp_path: Path, seed: int) -> None:
    """A process killed at any moment, 60 times, is counted exactly as often as its entry was durable."""
    assert kill_at_random(tmp_path, 60, seed) >= {"in", "out"}


if __name__ == "__main__":
    asyncio.run(child(sys.argv[1], Diary(Path(sys.argv[2])), sys.argv[3]))
