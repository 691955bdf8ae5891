"""Real processes that are supervised, and die in every way; and supervisors that are killed, over real time."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deadreckon.impl import EventLog, FiledHost, SqliteKeepalive, Supervisor
from deadreckon.impl.keepalive_child import PROC, ProcessChild
from deadreckon.impl.keepalive_supervisor import RUN
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy

PATIENCE_S = 30.0
POLICY = KeepalivePolicy(ladder_ms=(100, 200, 300, 400), plateau_ms=600, lead_ms=80, evidence_at=3, wedge_ms=90_000)
"""Six hours in less than a second."""
RUNGS_MS = (*POLICY.ladder_ms, *[POLICY.plateau_ms] * 100)
SLACK_MS = 10_000
"""How much longer than its rung a distance may be, on a machine that is busy."""

BEGIN = """
import os, resource, signal, sys, time
folder = sys.argv[1]
with open(os.path.join(folder, "starts"), "a") as starts:
    starts.write(f"{time.time_ns() // 1_000_000} {os.getpid()}\\n")
"""
DAEMON = """
if os.fork() == 0:
    os.setsid()
    with open(os.path.join(folder, "daemons"), "a") as daemons:
        daemons.write(f"{time.time_ns() // 1_000_000} {os.getpid()}\\n")
    time.sleep(600)
while not os.path.exists(os.path.join(folder, "daemons")): time.sleep(0.01)
"""
"""Something that leaves the session of its host, and does not end with it."""
DEATHS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "exit 0, unasked": "sys.exit(0)",
    "out of memory": "resource.setrlimit(resource.RLIMIT_AS, (1 << 27, 1 << 27)); bytearray(1 << 29)",
    "right after answering": "open(os.path.join(folder, 'answered'), 'a').write('yes\\n'); os._exit(3)",
    "never": "time.sleep(600)",
    "deaf": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "with a child": "os.fork() or time.sleep(600); os._exit(1)",
    "with a daemon": DAEMON + "os._exit(1)",
    "never, with a daemon": "signal.signal(signal.SIGTERM, signal.SIG_IGN)" + DAEMON + "time.sleep(600)",
}


def program(folder: Path, death: str) -> Sequence[str]:
    """A host that says that it has started, and dies so."""
    return (sys.executable, "-S", "-E", "-c", BEGIN + DEATHS[death], str(folder))


def events(folder: Path, type_: str) -> list[dict[str, int]]:
    """What was told of a type; a line that a death has torn is none."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == type_]


def starts(folder: Path, what: str = "starts") -> list[tuple[int, int]]:
    """When hosts started, and their process ids."""
    path = folder / what
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(at_ms), int(pid)) for at_ms, pid in (line.split() for line in lines)]


def started_more_often(folder: Path, times: int) -> bool:
    """Whether the host has started more often than that."""
    return len(starts(folder)) > times


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(holds: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert process is None or process.poll() is None, "the supervisor ended by itself"
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.005)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds, in the loop of the supervisor."""
    await asyncio.get_running_loop().run_in_executor(None, wait_for, holds, what)


async def filed(folder: Path) -> FiledHost:
    """What the store has of the host."""
    async with SqliteKeepalive(folder / "hosts.db") as store:
        return await store.read("h")


def check_ladder(folder: Path) -> list[int]:
    """Revivals are counted one by one, no distance is shorter than its rung, or much longer; how many there were."""
    begun = [(event["at"], event["n"]) for event in events(folder, "revival.started")]
    numbers = [n for _, n in begun]
    assert numbers == list(range(1, len(begun) + 1))
    gaps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(begun)]
    for gap, rung in zip(gaps, RUNGS_MS, strict=False):
        assert rung <= gap <= rung + SLACK_MS, gaps
    return numbers


async def climb(folder: Path, death: str, revivals: int) -> None:
    """A supervisor in this process, until its host was revived so often."""
    with EventLog(folder / "log.jsonl", policy=POLICY) as log:
        async with (
            SqliteKeepalive(folder / "hosts.db") as store,
            Supervisor(store, POLICY, clean_after_ms=60_000, sink=log) as supervisor,
        ):
            await supervisor.start("h", program(folder, death))
            await until(lambda: len(starts(folder)) > revivals, "revivals")
            view = await supervisor.inspect("h")
            assert view.revivals >= revivals
            assert view.owed == (RUN,)


@pytest.mark.parametrize(
    "death",
    [
        "SIGKILL",
        "exit 0, unasked",
        pytest.param("out of memory", marks=pytest.mark.slow),
        "right after answering",
    ],
)
def test_k2_however_a_process_dies(tmp_path: Path, death: str) -> None:
    """K2, K4, K7, K9: a process that dies is revived by the ladder, to the plateau, whatever it dies of; people are told."""
    asyncio.run(climb(tmp_path, death, 7))
    assert len(check_ladder(tmp_path)) >= 7
    begun = [event["at"] for event in events(tmp_path, "revival.started")]
    ran = [at_ms for at_ms, _ in starts(tmp_path)][1:]
    assert all(at_ms <= start_ms for at_ms, start_ms in zip(begun, ran, strict=False)), "a child ran before its record"
    assert len(events(tmp_path, "plateau.reported")) == 1
    assert not events(tmp_path, "count.cleared")
    assert not any(lives(pid) for _, pid in starts(tmp_path))


async def serve(folder: Path, death: str, grace_ms: int) -> None:
    """One life of a supervisor in a process of its own."""
    with EventLog(folder / "log.jsonl", policy=POLICY) as log:
        async with (
            SqliteKeepalive(folder / "hosts.db") as store,
            Supervisor(store, POLICY, clean_after_ms=60_000, grace_ms=grace_ms, sink=log) as supervisor,
        ):
            await supervisor.start("h", program(folder, death))
            (folder / "serving").touch()
            await supervisor.until_signal()


def supervise(folder: Path, death: str, grace_ms: int = 300) -> subprocess.Popen[bytes]:
    """A process that supervises."""
    (folder / "serving").unlink(missing_ok=True)
    command = [sys.executable, __file__, str(folder), death, str(grace_ms)]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    wait_for((folder / "serving").exists, "a supervisor", process)
    return process


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGKILL) -> int:
    """Send a signal, and wait for the end."""
    process.send_signal(number)
    return process.wait(PATIENCE_S)


def test_k5_a_supervisor_that_is_killed_between_rungs(tmp_path: Path) -> None:
    """K2, K5: whoever supervises after a SIGKILL of the supervisor continues the ladder at the rung, never earlier."""
    for revivals in range(1, 7):
        process = supervise(tmp_path, "exit 0, unasked")
        try:
            wait_for(functools.partial(started_more_often, tmp_path, revivals), "a revival", process)
            time.sleep(0.03)
        finally:
            end(process)
    assert len(check_ladder(tmp_path)) >= 6
    assert asyncio.run(filed(tmp_path)).owed == (RUN,)


@pytest.mark.slow
def test_k5_a_supervisor_that_is_killed_at_random(tmp_path: Path) -> None:
    """K1, K2, K5: wherever supervisors are killed, no revival comes before its rung, and the store stays sound."""
    chance = random.Random(1)
    for _ in range(25):
        process = supervise(tmp_path, "SIGKILL")
        try:
            time.sleep(chance.uniform(0, 0.7))
        finally:
            end(process)
    kept = asyncio.run(filed(tmp_path))
    # A supervisor that is killed between a commit and its line leaves the line out.
    begun = {event["n"]: event["at"] for event in events(tmp_path, "revival.started")}
    assert len(begun) == len(events(tmp_path, "revival.started")), "a revival was counted twice"
    assert max(begun) <= kept.record.revivals == kept.record.lifetime_total
    for n, at_ms in begun.items():
        if n + 1 in begun:
            assert begun[n + 1] - at_ms >= RUNGS_MS[n - 1]
    assert len(kept.evidence) == (kept.record.revivals >= POLICY.evidence_at)


@pytest.mark.skipif(not PROC.is_dir(), reason="orphans are found by /proc")
def test_an_orphan_is_killed_before_its_successor_starts(tmp_path: Path) -> None:
    """There is one child of a host, or none: what a killed supervisor has left running is killed by the next one."""
    process = supervise(tmp_path, "never")
    try:
        wait_for(lambda: len(starts(tmp_path)) == 1, "a child", process)
    finally:
        end(process)
    ((_, orphan),) = starts(tmp_path)
    assert lives(orphan)
    process = supervise(tmp_path, "never")
    try:
        assert not lives(orphan)
        wait_for(lambda: len(starts(tmp_path)) == 2, "a child", process)
    finally:
        end(process, signal.SIGTERM)
    assert [event["n"] for event in events(tmp_path, "revival.started")] == [1]
    assert not any(lives(pid) for _, pid in starts(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("death", ["never", "deaf"])
def test_k7_a_signal_ends_children_and_is_asked(tmp_path: Path, number: signal.Signals, death: str) -> None:
    """A supervisor that is asked to end by a signal ends its children first, by force if need be, and owes nothing."""
    process = supervise(tmp_path, death)
    wait_for(lambda: len(starts(tmp_path)) == 1, "a child", process)
    assert end(process, number) == 0
    kept = asyncio.run(filed(tmp_path))
    assert (kept.owed, kept.alarm_at_ms, kept.record.armed_at_ms) == ((), NEVER, NEVER)
    assert not any(lives(pid) for _, pid in starts(tmp_path))
    assert [event["asked"] for event in events(tmp_path, "host.died")] == [True]


def test_a_second_signal_ends_the_grace(tmp_path: Path) -> None:
    """Whoever does not want to wait for a deaf child signals again: it is killed at once, and nothing is left running."""
    process = supervise(tmp_path, "deaf", 60_000)
    wait_for(lambda: len(starts(tmp_path)) == 1, "a child", process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    begun = time.monotonic()
    assert end(process, signal.SIGINT) != 0
    assert time.monotonic() - begun < 20
    wait_for(lambda: not any(lives(pid) for _, pid in starts(tmp_path)), "the end of the child")
    assert asyncio.run(filed(tmp_path)).owed == (RUN,)


def test_k11b_a_child_that_hangs_is_killed(tmp_path: Path) -> None:
    """A child that is not well for longer than the wedge is killed, even if it is deaf, and the next one is started."""
    policy = KeepalivePolicy(ladder_ms=(100,), plateau_ms=100, lead_ms=80, evidence_at=1, wedge_ms=400)

    async def ill() -> bool:
        return False

    async def main() -> None:
        path = tmp_path / "hosts.db"
        async with SqliteKeepalive(path) as store, Supervisor(store, policy, grace_ms=100) as supervisor:
            await supervisor.start("h", program(tmp_path, "deaf"), probe=ill)
            await until(lambda: len(starts(tmp_path)) == 2, "a second child")
            (first, hung), _ = starts(tmp_path)
            assert not lives(hung)
            assert starts(tmp_path)[1][0] - first >= 400 - 200  # from the record on, before the child was up

    asyncio.run(main())
    assert not any(lives(pid) for _, pid in starts(tmp_path))


def test_a_process_dies_with_all_that_it_started(tmp_path: Path) -> None:
    """What a dead host has left in its session does not run on beside the next one."""

    async def main() -> None:
        async with SqliteKeepalive(tmp_path / "hosts.db") as store, Supervisor(store, POLICY) as supervisor:
            await supervisor.start("h", program(tmp_path, "with a child"))
            await until(lambda: len(starts(tmp_path)) == 2, "a second child")
            sessions = [int(words[3]) for words in stats()]
            assert starts(tmp_path)[0][1] not in sessions

    asyncio.run(main())


@pytest.mark.skipif(not PROC.is_dir(), reason="what has left its session is found by /proc")
@pytest.mark.parametrize("death", ["with a daemon", "never, with a daemon"])
def test_a_process_dies_with_what_has_left_its_session(tmp_path: Path, death: str) -> None:
    """There is one child of a host, or none: a daemon that a host has started ends with it, however the host ends."""

    async def main() -> None:
        path = tmp_path / "hosts.db"
        async with SqliteKeepalive(path) as store, Supervisor(store, POLICY, grace_ms=100) as supervisor:
            await supervisor.start("h", program(tmp_path, death))
            for number in range(1, 4):
                await until(lambda: len(starts(tmp_path)) >= number, "a child")  # noqa: B023  # awaited here
                await until(lambda: bool(starts(tmp_path, "daemons")), "its daemon")
                assert sum(lives(pid) for _, pid in starts(tmp_path, "daemons")) <= 1
                if "never" in death:
                    os.kill(starts(tmp_path)[-1][1], signal.SIGKILL)
        assert not any(lives(pid) for _, pid in starts(tmp_path, "daemons"))

    asyncio.run(main())


@pytest.mark.skipif(not PROC.is_dir(), reason="what has left its session is found by /proc")
def test_a_second_signal_ends_what_has_left_the_session(tmp_path: Path) -> None:
    """Whoever does not wait for a deaf child leaves none of its daemons either."""
    process = supervise(tmp_path, "never, with a daemon", 60_000)
    wait_for(lambda: len(starts(tmp_path, "daemons")) == 1, "a daemon", process)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert end(process, signal.SIGINT) != 0
    wait_for(lambda: not any(lives(pid) for _, pid in starts(tmp_path, "daemons")), "the end of the daemon")


@pytest.mark.parametrize(("code", "how"), [("SIGKILL", "killed by SIGKILL"), ("exit 3", "exit code 3")])
def test_it_is_told_how_a_process_has_died(tmp_path: Path, code: str, how: str) -> None:
    """A death is told with the exit code or the signal: a memory kill can be told from a bug."""
    ends = {"SIGKILL": DEATHS["SIGKILL"], "exit 3": "sys.exit(3)"}

    async def main() -> None:
        child = await ProcessChild.start((sys.executable, "-S", "-E", "-c", BEGIN + ends[code], str(tmp_path)), "token")
        await child.ended
        assert (child.how, child.code_zero) == (how, False)

    asyncio.run(main())


def test_a_process_that_has_ended_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of a process that was waited for may be another's: nobody signals it any more."""
    signalled: list[int] = []

    async def main() -> None:
        child = await ProcessChild.start((sys.executable, "-S", "-E", "-c", ""), "token")
        await child.ended
        monkeypatch.setattr(os, "killpg", lambda pid, number: signalled.append(pid))
        child.kill()
        child.terminate()

    asyncio.run(main())
    assert not signalled


def stats() -> list[list[str]]:
    """State, parent, group and session of every process that is no zombie."""
    found = []
    for entry in PROC.iterdir():
        try:
            words = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if words[0] != "Z":
            found.append(words)
    return found


def test_k6_a_reset_from_another_process(tmp_path: Path) -> None:
    """The command resets a host on the plateau while its supervisor lives: it notices, within the lead."""
    policy = KeepalivePolicy(ladder_ms=(50,), plateau_ms=3_600_000, lead_ms=400, evidence_at=1, wedge_ms=90_000)
    path = tmp_path / "hosts.db"
    command = [sys.executable, "-m", "deadreckon.cli", "hosts", "reset", "--db", str(path), "h", "--by", "ada"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    async def main() -> None:
        async with SqliteKeepalive(path) as store, Supervisor(store, policy) as supervisor:
            await supervisor.start("h", program(tmp_path, "exit 0, unasked"))
            await until(lambda: len(starts(tmp_path)) == 3, "the plateau")
            reset = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE)
            printed, _ = await reset.communicate()
            assert reset.returncode == 0
            assert b"the count was 2, and is 0" in printed
            await until(lambda: len(starts(tmp_path)) >= 4, "a revival")
            view = await supervisor.inspect("h")
            assert (view.reset_by, view.cleared_by.value) == ("ada", "hand")
            since_ms = view.last_revival_at_ms - view.reset_at_ms
            assert policy.lead_ms <= since_ms <= policy.lead_ms + SLACK_MS

    asyncio.run(main())


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
