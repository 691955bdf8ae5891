"""``deadreckon hosts``: what it shows of a file, and what its reset changes, whether somebody keeps the hosts or not."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deadreckon.cli.commands import command
from deadreckon.impl.clock import SystemClock
from deadreckon.impl.keepalive import Keepalive
from deadreckon.impl.keepalive_sqlite import SqliteKeepalive
from deadreckon.impl.keepalive_steps import Steps, enter
from deadreckon.impl.keepalive_words import Revival, span_word
from deadreckon.spec.keepalive_state import NEVER, RESET_VERB, KeepalivePolicy

POLICY = KeepalivePolicy(ladder_ms=(1, 1), plateau_ms=3_600_000, lead_ms=1, evidence_at=2)
"""The plateau begins after the third revival."""


def hosts(*arguments: object) -> Result:
    """Run the command."""
    environment = {"COLUMNS": "200"}
    return CliRunner().invoke(command, ["hosts", *map(str, arguments)], prog_name="deadreckon", env=environment)


class Service:
    """A service over one file, that was killed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def die(self, host: str, revivals: int, policy: KeepalivePolicy = POLICY) -> None:
        """It owes work on *host*, was revived so often, and dies."""

        async def run() -> None:
            async with SqliteKeepalive(self.path) as store:
                life = await enter(store, "v1", policy)
                steps = Steps(store, life, host, policy, SystemClock())
                await steps.boot()
                await steps.begin("turn\x1b[2J", True)
                await steps.die()
                for _ in range(revivals):
                    filed = await steps.refresh()
                    await asyncio.sleep(max(0.0, filed.alarm_at_ms / 1_000 - time.time()) + 0.002)
                    await steps.fire(0)
                    await steps.arm()
                    if filed.record.revivals + 1 == policy.evidence_at:
                        await steps.report()
                    await steps.die()

        asyncio.run(run())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A service with a file, in a folder whose name has to be quoted."""
    (tmp_path / "my hosts").mkdir()
    return Service(tmp_path / "my hosts" / "hosts.db")


def test_list_shows_every_host(service: Service, tmp_path: Path) -> None:
    """The list has each host's count, rung, next look, what is owed, and whether people were told."""
    service.die("calm", 0)
    service.die("ill", 2)
    service.die("worst", 3)
    ended = hosts("list", "--db", service.path, "--json", tmp_path / "out.json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout
    lines = {
        name: next(line for line in ended.stdout.splitlines() if name in line) for name in ("calm", "ill", "worst")
    }
    for name, words in {
        "calm": ("0", "clear", "due", "turn\\x1b[2J", "v1", "-"),
        "ill": ("2", "rung 2 of 2", "told 20"),
        "worst": ("3", "plateau", "in 0:59:5", "told 20"),
    }.items():
        assert all(word in lines[name] for word in words), lines[name]
    content = json.loads((tmp_path / "out.json").read_text())
    assert set(content) == {"deadreckon", "now_ms", "hosts"}
    assert [(row["host"], row["revivals"], row["on_plateau"]) for row in content["hosts"]] == [
        ("calm", 0, False),
        ("ill", 2, False),
        ("worst", 3, True),
    ]


def test_k6_the_plateau_line_names_the_reset(service: Service) -> None:
    """The evidence, and the line of a host on the plateau, name the command that resets it; it works as it is printed."""
    service.die("it's bad", 3)
    for verb in (("list",), ("show", "it's bad")):
        shown = hosts(verb[0], "--db", service.path, *verb[1:]).stdout
        (line,) = (line for line in shown.splitlines() if "on the plateau" in line)
        printed = line.split("mended: ")[1]
        assert printed.startswith(RESET_VERB)
    words = shlex.split(printed)
    assert words[:2] == ["deadreckon", "hosts"]
    ended = hosts(*words[2:], "--by", "ada")
    assert ended.exit_code == 0, ended.stderr
    assert "the count was 3, and is 0" in ended.stdout


def test_k6_the_evidence_can_be_pasted(service: Service) -> None:
    """What people are told is the whole command, with the file, and says in units for people what happens by itself."""
    service.die("it's bad", 3)
    shown = hosts("show", "--db", service.path, "it's bad").stdout
    (line,) = (line for line in shown.splitlines() if "keeps dying" in line)
    assert f"it is tried every {span_word(POLICY.plateau_ms)} only" in line
    words = shlex.split(line.split("or run: ")[1])
    assert words[-2:] == [str(service.path), "it's bad"]
    assert hosts(*words[2:], "--by", "ada").exit_code == 0


@pytest.mark.parametrize(
    ("span_ms", "word"), [(21_600_000, "6 h"), (90_000, "90 s"), (60_000, "1 min"), (1_500, "1500 ms")]
)
def test_spans_are_told_in_units_for_people(span_ms: int, word: str) -> None:
    """A span is told in the largest unit of which it is a whole number."""
    assert span_word(span_ms) == word


def test_show_has_everything(service: Service) -> None:
    """One host is shown with its evidence in full, and who cleared its count."""
    service.die("worst", 3)
    shown = hosts("show", "--db", service.path, "worst").stdout
    for words in ("plateau, version v1", "revivals: 3 since", "3 ever", "last revival: 20", "keeps dying", RESET_VERB):
        assert words in shown
    hosts("reset", "--db", service.path, "worst", "--by", "ada")
    shown = hosts("show", "--db", service.path, "worst").stdout
    assert "last cleared by ada, by hand" in shown
    assert "on the plateau" not in shown


def test_k6_reset_while_nobody_keeps_the_host(service: Service, tmp_path: Path) -> None:
    """The reset tells what was armed and what is armed now: never later, and within the lead of the service's policy."""
    service.die("worst", 3)
    before_ms = time.time_ns() // 1_000_000
    ended = hosts("reset", "--db", service.path, "worst", "--by", "ada", "--json", tmp_path / "out.json")
    after_ms = time.time_ns() // 1_000_000
    assert ended.exit_code == 0
    assert "armed before: 20" in ended.stdout
    assert "armed now: 20" in ended.stdout
    content = json.loads((tmp_path / "out.json").read_text())
    reset, (row,) = content["reset"], content["hosts"]
    assert reset["revivals"] == 3
    assert reset["armed_before_ms"] > after_ms + 3_000_000
    assert before_ms + POLICY.lead_ms <= reset["armed_at_ms"] <= after_ms + POLICY.lead_ms
    assert row["next_at_ms"] == row["alarm_at_ms"] == reset["armed_at_ms"]
    assert (row["revivals"], row["cleared_by"], row["reset_by"]) == (0, "hand", "ada")


def test_k6_reset_while_somebody_keeps_the_host(service: Service) -> None:
    """Whoever keeps the host notices the reset, and revives it within the lead."""
    policy = KeepalivePolicy(ladder_ms=(1, 1), plateau_ms=3_600_000, lead_ms=300, evidence_at=2)
    service.die("worst", 3, policy)
    revived: list[tuple[float, int]] = []
    there = asyncio.Event()

    async def revive(revival: Revival) -> None:
        revived.append((time.monotonic(), revival.number))
        there.set()

    async def main() -> float:
        async with SqliteKeepalive(service.path) as store, Keepalive(store, policy, revive=revive, version="v1"):
            await asyncio.sleep(0.1)
            assert not revived
            loop = asyncio.get_running_loop()
            asked = time.monotonic()
            ended = await loop.run_in_executor(None, hosts, "reset", "--db", service.path, "worst", "--by", "ada")
            assert ended.exit_code == 0
            await asyncio.wait_for(there.wait(), 10)
            return asked

    asked = asyncio.run(main())
    ((when, number),) = revived
    assert number == 1
    assert 0.3 <= when - asked < 5


def test_reset_of_a_host_at_rest(service: Service) -> None:
    """A host that owes nothing, and has nothing armed, has nothing armed afterwards."""

    async def run() -> None:
        async with SqliteKeepalive(service.path) as store:
            steps = Steps(store, await enter(store, "v1", POLICY), "calm", POLICY, SystemClock())
            await steps.boot()
            await steps.begin("turn", True)
            await steps.ask_to_stop()
            await steps.end(True)

    asyncio.run(run())
    ended = hosts("reset", "--db", service.path, "calm", "--by", "ada")
    assert ended.stdout == "host calm: nothing to reset, the count is 0 and nothing is armed\n"
    assert asyncio.run(alarm_of(service.path, "calm")) == NEVER


async def alarm_of(path: Path, host: str) -> int:
    """The platform's alarm of a host."""
    async with SqliteKeepalive(path) as store:
        return (await store.read(host)).alarm_at_ms


def test_list_of_nothing_says_so(service: Service) -> None:
    """A file without hosts has no table."""

    async def run() -> None:
        async with SqliteKeepalive(service.path):
            pass

    asyncio.run(run())
    ended = hosts("list", "--db", service.path)
    assert (ended.exit_code, ended.stdout) == (0, "no host is kept\n")


@pytest.mark.parametrize("verb", ["show", "reset"])
def test_an_unknown_host_is_told(service: Service, verb: str) -> None:
    """A host that isn't there is no host to reset: one line, 2, and nothing is made."""
    service.die("calm", 0)
    ended = hosts(verb, "--db", service.path, "clam\x1b")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == "deadreckon: there is no host clam\\x1b: see 'deadreckon hosts list'\n"
    assert "clam" not in hosts("list", "--db", service.path).stdout


def test_reset_needs_to_know_who(service: Service) -> None:
    """Whoever resets gives a name."""
    service.die("calm", 0)
    ended = hosts("reset", "--db", service.path, "calm", "--by", "")
    assert ended.exit_code == 2
    assert "--by" in ended.stderr


def garbage(path: Path) -> None:
    """A file that is no database."""
    path.write_bytes(b"not a database" * 100)


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, Path.touch, garbage])
def test_what_holds_no_hosts_ends_with_2(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A file that is missing, a directory, empty or garbage: one line, 2, and nothing is made."""
    path = tmp_path / "db"
    make(path)
    before = path.exists()
    ended = hosts("list", "--db", path)
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("deadreckon: ")
    assert path.exists() == before
