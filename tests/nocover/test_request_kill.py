"""Real processes that serve requests from a real file and are killed by SIGKILL, over real time."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from deadreckon.impl import EventLog, RequestAttempt, Requests, RequestView, SqliteRequests
from deadreckon.spec.request_state import RequestPolicy, Status

PATIENCE_S = 30.0
POLICY = RequestPolicy(horizon_ms=1_500, floor_ms=300, max_attempts=5, retry_backoff_ms=20, retry_backoff_max_ms=80)
"""Ten minutes in a second and a half."""


async def serve(folder: Path, answers_after_ms: int) -> None:
    """One life: adopt what is open, open one more, and answer each after a while."""
    dials = (folder / "dials").open("a", buffering=1)

    async def attempt(told: RequestAttempt) -> str:
        left_ms = told.deadline_at_ms - time.time_ns() // 1_000_000
        dials.write(f"{told.request_id} {told.number} {left_ms}\n")
        (folder / f"dialled-{told.incarnation}").touch()
        await asyncio.sleep(answers_after_ms / 1_000)
        return "yes"

    def tell(view: RequestView) -> None:
        with (folder / "told").open("a") as told:
            told.write(f"{view.request_id} {view.status.value}\n")

    with EventLog(folder / "log.jsonl", policy=POLICY) as log:
        async with (
            SqliteRequests(folder / "requests.db") as store,
            Requests(store, POLICY, on_outcome=tell, sink=log) as requests,
        ):
            await requests.adopt(attempt)
            await requests.open(f"r{requests.incarnation}")
            await requests.adopt(attempt)
            (folder / f"serving-{requests.incarnation}").touch()
            while await requests.unfinished():  # noqa: ASYNC110  # the outcome told last is what is waited for
                await asyncio.sleep(0.01)
            (folder / f"idle-{requests.incarnation}").touch()
            await asyncio.sleep(PATIENCE_S)


def life(folder: Path, answers_after_ms: int) -> subprocess.Popen[bytes]:
    """A process that serves."""
    command = [sys.executable, __file__, str(folder), str(answers_after_ms)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def wait_for(process: subprocess.Popen[bytes], path: Path) -> None:
    """Wait until the process has made this file."""
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert process.poll() is None, "the child ended by itself"
        assert time.monotonic() < deadline, f"the child never made {path.name}"
        time.sleep(0.005)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL."""
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)


def test_killed_again_and_again(tmp_path: Path) -> None:
    """Q1, Q2, Q5, Q7: after six lives that were killed at random, every request is settled once, in time, and told."""
    chance = random.Random(1)
    for number in range(1, 7):
        process = life(tmp_path, 400)
        try:
            wait_for(process, tmp_path / f"serving-{number}")
            time.sleep(chance.uniform(0, 0.5))
        finally:
            kill(process)
    process = life(tmp_path, 50)
    try:
        wait_for(process, tmp_path / "idle-7")
    finally:
        kill(process)
    events = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    opened = {event["request"]: event["expires_at"] for event in events if event["type"] == "request.opened"}
    settled = [event for event in events if event["type"] == "request.settled"]
    # A life that is killed between a commit and its line leaves the line out, never writes it twice.
    assert len(settled) == len({event["request"] for event in settled}) >= 4
    assert {event["request"] for event in settled} <= {f"r{number}" for number in range(1, 8)}
    for event in settled:
        if event["outcome"] == "succeeded":
            assert event["at"] <= opened[event["request"]]
    told = dict(line.split() for line in (tmp_path / "told").read_text().splitlines())
    assert set(told) == {f"r{number}" for number in range(1, 8)}
    dials = [line.split() for line in (tmp_path / "dials").read_text().splitlines()]
    assert max(int(number) for _, number, _ in dials) <= POLICY.max_attempts
    numbers = [(request_id, number) for request_id, number, _ in dials]
    assert len(numbers) == len(set(numbers)), "an attempt was made twice under one number"
    assert {event["type"] for event in events} >= {"policy", "incarnation.died", "request.dialled"}

    async def statuses() -> dict[str, str]:
        async with SqliteRequests(tmp_path / "requests.db") as store:
            return {request_id: filed.request.status.value for request_id, filed in await store.latest(100)}

    assert asyncio.run(statuses()) == told
    assert Status.OPEN.value not in told.values()


def test_nobody_lives_at_the_horizon(tmp_path: Path) -> None:
    """Q5: the horizon passes between two lives; the second settles the request before it tries anything."""
    process = life(tmp_path, 10_000)
    try:
        wait_for(process, tmp_path / "dialled-1")
    finally:
        kill(process)
    time.sleep(POLICY.horizon_ms / 1_000)
    process = life(tmp_path, 10)
    try:
        wait_for(process, tmp_path / "idle-2")
    finally:
        kill(process)
    assert (tmp_path / "told").read_text().splitlines()[0] == "r1 expired"
    assert [line.split()[0] for line in (tmp_path / "dials").read_text().splitlines()] == ["r1", "r2"]


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
