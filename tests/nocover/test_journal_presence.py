"""The journal of events shown real: presence that fills nothing, long journals that wake at once, lives that are killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import attrs
import pytest

from deadreckon.impl import EventJournal, EventType, JournalEvent, Reducer, SqliteEvents, Subject
from deadreckon.spec.journal_state import JournalPolicy

PATIENCE_S = 60.0
SESSIONS = 1_500
"""Sessions that reconnected at each revival in the field; facts/keepalive.md F2."""


def count(total: int, event: JournalEvent) -> int:
    """Counts events."""
    return total + 1


# Presence.


async def cycles(path: Path, number: int) -> tuple[int, int]:
    """So many revivals, at each of which all sessions come and go: durable rows, and the last offset."""
    last = 0
    for _ in range(number):
        async with SqliteEvents(path) as store, EventJournal(store) as journal:
            await journal.revived()
            for session in range(SESSIONS):
                await journal.connected(f"session-{session}")
            for session in range(SESSIONS):
                last = (await journal.disconnected(f"session-{session}")).offset
    async with SqliteEvents(path) as store, EventJournal(store) as journal:
        rows = (await journal.read()).events
    assert {row.type for row in rows} == {"journal.revived"}
    return len(rows), last


@pytest.mark.parametrize("number", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_j2_presence_fills_nothing(tmp_path: Path, number: int) -> None:
    """J2: 1,500 connections and departures at each revival add no row; the revival itself adds one."""
    path = tmp_path / "events.db"
    rows, last = asyncio.run(cycles(path, number))
    assert rows == number
    assert last > number * 2 * SESSIONS
    assert path.stat().st_size < 100_000


def test_b1_a_flood_stays_in_its_budget(tmp_path: Path) -> None:
    """B1: however many ephemeral events come, the buffer keeps the latest, within ten times less than were sent."""

    async def main() -> None:
        policy = JournalPolicy(buffer_max_bytes=1_000_000)
        async with SqliteEvents(tmp_path / "events.db") as store, EventJournal(store, policy) as journal:
            for n in range(10_000):
                await journal.append("chunk", {"n": n, "text": "x" * 1_000}, ephemeral=True)
            page = await journal.read(journal.max_offset - 1, ephemeral=True)
            assert [event.body["n"] for event in page.events if isinstance(event.body, dict)] == [9_999]
            cursor, known = 0, 0
            while (page := await journal.read(cursor, ephemeral=True)).events:
                cursor, known = page.cursor, known + sum(event.size for event in page.events)
            assert 990_000 < known <= 1_000_000
            assert await journal.count() == 0

    asyncio.run(main())


# Long journals.


@attrs.define
class Cost:
    """What a wake did."""

    statements: int = 0
    instructions: int = 0


async def filled(path: Path, events: int) -> None:
    """A journal with so many events, all of them folded and acknowledged."""
    async with (
        SqliteEvents(path) as store,
        EventJournal(store) as journal,
        Subject(journal, "count", Reducer(1, 0, count), batch=500) as subject,
    ):
        for first in range(0, events, 5_000):
            await journal.append_all([("note", n) for n in range(first, min(events, first + 5_000))])
        while await subject.step():
            pass


async def woken(path: Path, events: int) -> Cost:
    """What SQLite did for one wake of the same version."""
    cost = Cost()

    def statement(text: str) -> None:
        cost.statements += 1

    def instruction() -> int:
        cost.instructions += 1
        return 0

    async with SqliteEvents(path) as store, EventJournal(store) as journal:

        def watch(connection: sqlite3.Connection) -> None:
            connection.set_trace_callback(statement)
            connection.set_progress_handler(instruction, 1)

        await store._file.call(watch)
        async with Subject(journal, "count", Reducer(1, 0, count)) as subject:
            assert subject.fold == events
            await store._file.call(lambda connection: connection.set_progress_handler(None, 1))
    return cost


def test_j8_a_wake_costs_the_same_however_long_the_journal(tmp_path: Path) -> None:
    """J8: waking on 100,000 events takes SQLite the same statements, and nearly the same steps, as on 100."""
    costs = []
    for events in (100, 100_000):
        path = tmp_path / f"{events}.db"
        asyncio.run(filled(path, events))
        began = time.perf_counter()
        costs.append(asyncio.run(woken(path, events)))
        assert time.perf_counter() - began < 1
    short, long = costs
    assert short.statements == long.statements <= 8
    assert abs(long.instructions - short.instructions) <= 5
    assert long.instructions < 200


def test_j8a_a_refold_of_a_long_journal_runs_no_effect(tmp_path: Path) -> None:
    """J8a: another version folds 20,000 events again, page by page, runs no effect, and then goes on."""

    async def main() -> None:
        path = tmp_path / "events.db"
        await filled(path, 20_000)
        effects: list[int | None] = []

        async def effect(event: JournalEvent, fold: int) -> None:
            effects.append(event.index)

        async with (
            SqliteEvents(path) as store,
            EventJournal(store) as journal,
            Subject(journal, "count", Reducer(2, 0, lambda total, event: total + 2), effect) as subject,
        ):
            assert (subject.fold, subject.acknowledged, effects) == (40_000, 20_000, [])
            await journal.append("note", 1)
            await subject.step()
            assert effects == [20_000]

    asyncio.run(main())


# Lives that are killed. The children run this very file, and write down what they were told.


async def serve(folder: Path) -> None:
    """One life: append everything there is, in turn, for ever."""
    told = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(*words: object) -> None:
        os.write(told, (json.dumps(words) + "\n").encode())

    async def effect(event: JournalEvent, fold: int) -> None:
        say("effect", event.index, fold)

    types = [EventType("chunk", ephemeral=True)]
    async with (
        SqliteEvents(folder / "events.db") as store,
        EventJournal(store, types=types) as journal,
        Subject(journal, "count", Reducer(1, 0, count), effect) as subject,
        asyncio.TaskGroup() as group,
    ):
        say("life", journal.incarnation)
        group.create_task(subject.run())
        chance = random.Random(journal.incarnation)
        for n in itertools.count():
            key = f"{journal.incarnation}/{n}"
            match chance.randrange(5):
                case 0:
                    say("row", (await journal.append("note", key, key=key)).offset, key)
                case 1:
                    say("row", (await journal.append("note", key)).offset, key)
                case 2:
                    for row in await journal.append_all([("note", key), ("note", key)]):
                        say("row", row.offset, key)
                case 3:
                    say("ephemeral", (await journal.append("chunk", n)).offset)
                case _:
                    say("ephemeral", (await journal.connected(key)).offset)


def life(folder: Path) -> subprocess.Popen[bytes]:
    """A process that serves."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, __file__, str(folder)], env=environment, stderr=subprocess.PIPE)


def diary(folder: Path) -> list[list[object]]:
    """What the children were told; a last line that was cut by a death left out."""
    if not (folder / "told").exists():
        return []
    lines = (folder / "told").read_bytes().split(b"\n")
    return [json.loads(line) for line in lines if line.endswith(b"]")]


def lived(folder: Path, number: int, chance: random.Random, end: signal.Signals) -> bytes:
    """Let one life begin, and end it a while after; what it said at the end."""
    process = life(folder)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while sum(1 for words in diary(folder) if words[0] == "life") < number:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline, "the child never served"
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.25))
    finally:
        process.send_signal(end)
        said = process.communicate(timeout=PATIENCE_S)[1]
    return said


def checked(folder: Path, lives: int) -> tuple[int, int]:
    """What must hold after so many lives; how many rows and ephemerals were told."""
    words = diary(folder)
    offsets = [int(str(one[1])) for one in words if one[0] in ("row", "ephemeral")]
    assert all(before < after for before, after in pairwise(offsets)), "an offset was given again, or went back"
    with closing(sqlite3.connect(folder / "events.db")) as connection:
        rows = {
            at: (body, index) for at, body, index in connection.execute("SELECT at_offset, body, dense FROM events")
        }
        (done,) = connection.execute("SELECT acknowledged FROM subjects").fetchone()
    told = {int(str(one[1])): str(one[2]) for one in words if one[0] == "row"}
    assert {at: json.loads(rows[at][0]) for at in told} == told, "an acknowledged event is missing, or another"
    assert [index for _, (_, index) in sorted(rows.items())] == list(range(len(rows)))
    assert len(rows) - len(told) <= 2 * lives, "more rows than were told or under way"
    ephemeral = {int(str(one[1])) for one in words if one[0] == "ephemeral"}
    assert not ephemeral & set(rows)
    effects = [(int(str(one[1])), int(str(one[2]))) for one in words if one[0] == "effect"]
    assert all(fold == index + 1 for index, fold in effects), "an effect was run on a fold that is not its own"
    assert list(dict.fromkeys(index for index, _ in effects)) == list(range(len({index for index, _ in effects})))
    assert done <= len({index for index, _ in effects}) <= len(rows)
    return len(told), len(ephemeral)


@pytest.mark.parametrize("lives", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_j1_killed_again_and_again(tmp_path: Path, lives: int) -> None:
    """J1: after any number of SIGKILLs no offset was given twice, and every acknowledged durable event is there."""
    chance = random.Random(7)
    for number in range(1, lives + 1):
        lived(tmp_path, number, chance, signal.SIGKILL)
        checked(tmp_path, number)
    rows, ephemerals = checked(tmp_path, lives)
    assert rows > lives
    assert ephemerals > lives


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A service that is interrupted ends with KeyboardInterrupt, and the next life finds a sound journal."""
    chance = random.Random(3)
    for number in range(1, 4):
        said = lived(tmp_path, number, chance, signal.SIGINT)
        assert said.rstrip().endswith(b"KeyboardInterrupt")
    checked(tmp_path, 3)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    asyncio.run(serve(Path(sys.argv[1])))
