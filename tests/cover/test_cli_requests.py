"""``deadreckon requests``: what it shows of a file that a service keeps."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deadreckon.cli.commands import command
from deadreckon.impl.clock import SystemClock
from deadreckon.impl.request_sqlite import SqliteRequests
from deadreckon.impl.request_steps import Steps, boot
from deadreckon.spec.request_state import RequestPolicy


def requests(*arguments: object) -> Result:
    """Run the command."""
    environment = {"COLUMNS": "200"}
    return CliRunner().invoke(command, ["requests", *map(str, arguments)], prog_name="deadreckon", env=environment)


class Service:
    """Incarnations of a service over one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def live(self, *actions: tuple[str, str], policy: RequestPolicy | None = None) -> None:
        """One incarnation takes these actions, each of a request, and dies."""

        async def run() -> None:
            async with SqliteRequests(self.path) as store:
                life = await boot(store)
                steps: dict[str, Steps] = {}
                for request_id, action in actions:
                    one = steps.setdefault(
                        request_id, Steps(store, life, request_id, policy or RequestPolicy(), SystemClock())
                    )
                    inputs = {"body": f"ask\x1b[2J {request_id}"} if action == "open_request" else {}
                    await getattr(one, action)(**inputs)

        asyncio.run(run())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    """A service with a file."""
    return Service(tmp_path / "requests.db")


def test_list_shows_what_is_open(service: Service, tmp_path: Path) -> None:
    """The list has each request's state, the time left, the attempts, who runs it and what is asked."""
    service.live(("r1", "open_request"), ("r1", "dial"), ("r2", "open_request"))
    ended = requests("list", "--db", service.path, "--json", tmp_path / "out.json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    first, second = (next(line for line in ended.stdout.splitlines() if name in line) for name in ("r1", "r2"))
    for word in ("open", "9:5", "1", "incarnation 1", "ask\\x1b[2J r1"):
        assert word in first
    assert "nobody" in second
    assert "\x1b" not in ended.stdout
    content = json.loads((tmp_path / "out.json").read_text())
    assert set(content) == {"deadreckon", "now_ms", "incarnation", "requests"}
    assert [(row["request_id"], row["attempts"], row["who"]) for row in content["requests"]] == [
        ("r1", 1, "incarnation 1"),
        ("r2", 0, "nobody"),
    ]
    assert content["requests"][0]["running"] is True


def test_list_tells_who_is_gone_and_who_waits(service: Service) -> None:
    """A request whose incarnation was replaced is nobody's; one that keeps its distance says until when."""
    service.live(("r1", "open_request"), ("r1", "dial"))
    service.live(("r2", "open_request"), ("r2", "dial"), ("r2", "fail"))
    shown = requests("list", "--db", service.path).stdout
    assert "nobody: incarnation 1 is gone" in shown
    assert "nobody before 20" in shown


def test_list_tells_the_overdue(service: Service) -> None:
    """Q5: an open request past its horizon means that nobody serves the file, and is said so."""
    service.live(("r1", "open_request"), policy=RequestPolicy(horizon_ms=1, floor_ms=0))
    time.sleep(0.01)
    shown = requests("list", "--db", service.path).stdout
    assert "overdue: nobody serves this file" in shown
    assert "0:00" in shown


def test_list_shows_outcomes(service: Service) -> None:
    """Q7: an outcome that was not told stays in the list, with its reason; --last shows those that were told too."""
    brief = RequestPolicy(horizon_ms=2, floor_ms=1)
    service.live(("r1", "open_request"), policy=brief)
    time.sleep(0.01)
    service.live(("r1", "fire"), policy=brief)
    service.live(("r2", "open_request"), ("r2", "dial"), ("r2", "succeed"), ("r2", "tell"))
    shown = requests("list", "--db", service.path).stdout
    assert "expired: horizon passed (not told yet)" in shown
    assert "nobody did" in shown
    assert "r2" not in shown
    shown = requests("list", "--db", service.path, "--last", 2).stdout
    assert "succeeded" in shown
    assert "incarnation 3 did" in shown
    assert "r1" not in requests("list", "--db", service.path, "--last", 1).stdout


def test_list_of_nothing_says_so(service: Service) -> None:
    """A file in which everything is settled and told has no table, and how to see more is said."""
    service.live()
    ended = requests("list", "--db", service.path)
    assert (ended.exit_code, ended.stdout) == (0, "no request is open\n")
    assert ended.stderr == "see settled ones with --last N\n"
    assert requests("list", "--db", service.path, "--last", 1).stdout == "there are no requests\n"


def test_looking_disturbs_nobody(service: Service) -> None:
    """The list claims nothing: the incarnation that serves the file goes on."""

    async def run() -> None:
        async with SqliteRequests(service.path) as store:
            steps = Steps(store, await boot(store), "r1", RequestPolicy(), SystemClock())
            await steps.open_request()
            ended = await asyncio.get_running_loop().run_in_executor(None, requests, "list", "--db", service.path)
            assert ended.exit_code == 0
            await steps.dial()

    asyncio.run(run())


def garbage(path: Path) -> None:
    """A file that is no database."""
    path.write_bytes(b"not a database" * 100)


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, Path.touch, garbage])
def test_what_holds_no_requests_ends_with_2(tmp_path: Path, make: Callable[[Path], object]) -> None:
    """A file that is missing, a directory, empty or garbage: one line, 2, and nothing is made."""
    path = tmp_path / "db"
    make(path)
    before = path.exists()
    ended = requests("list", "--db", path)
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("deadreckon: ")
    assert path.exists() == before
