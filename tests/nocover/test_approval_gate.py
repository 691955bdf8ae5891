"""The example of an approval gate, run as a process, with decisions from other processes."""

from __future__ import annotations

import json
import os
import queue
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "approval_gate.py"
PATIENCE_S = 30
Answer = tuple[int, dict[str, object]]


class Gate:
    """A running gate: the lines it prints, and requests to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        self.clients = ThreadPoolExecutor(8)
        threading.Thread(target=self._read, daemon=True).start()
        self.port = int(self.line("gate: ").rsplit(":", 1)[1])

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def line(self, start: str) -> str:
        """The next line that starts so."""
        while True:
            line = self.lines.get(timeout=PATIENCE_S)
            self.seen.append(line)
            if line.startswith(start):
                return line

    def post(self, path: str, body: bytes = b"{}") -> Future[Answer]:
        """Send a request; its answer comes when the gate gives one."""
        return self.clients.submit(self._post, path, body)

    def _post(self, path: str, body: bytes) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("POST", path, body)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        return answer.status, content

    def command(self) -> list[str]:
        """The command that the gate prints for the next request: to approve it."""
        return shlex.split(self.line("deadreckon holds approve"))

    def calls(self) -> int:
        """How often the upstream was called until now."""
        while not self.lines.empty():
            self.seen.append(self.lines.get())
        return sum(line.startswith("upstream: call") for line in self.seen)


@contextmanager
def gate(db: Path, hold_ms: int = 600_000) -> Iterator[Gate]:
    """A gate that runs within, and is killed at the end."""
    command = [sys.executable, str(EXAMPLE), "--db", str(db), "--port", "0", "--hold-ms", str(hold_ms)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            running = Gate(process)
            yield running
        finally:
            process.kill()
            process.wait(PATIENCE_S)
        running.clients.shutdown()


def deadreckon(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = (sys.executable, "-m", "deadreckon.cli", *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environment)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A path for a journal, which needs quoting."""
    return tmp_path / "the holds.db"


def test_an_approved_request_is_sent_once(db: Path) -> None:
    """H1, H3: nothing is sent before the approval; after it the upstream is called once, and the client is answered."""
    with gate(db) as running:
        answer = running.post("/pay", b'{"amount": 5}')
        _, *arguments = running.command()
        waiting = 'waiting: {"method": "POST", "path": "/pay", "body": "{\\"amount\\": 5}", "body_sha256"'
        assert running.seen[-2].startswith(waiting)
        assert not answer.done()
        assert running.calls() == 0
        assert deadreckon(*arguments, "--by", "ada").returncode == 0
        assert answer.result(PATIENCE_S) == (200, {"upstream": "/pay", "calls": 1})
        second = deadreckon(*arguments, "--by", "bob")
        assert (second.returncode, "refused by H6" in second.stderr) == (1, True)
        assert running.calls() == 1
        assert deadreckon("holds", "list", "--db", str(db)).stdout == "no hold waits\n"
        assert "request 0: ok" in deadreckon("holds", "show", "--db", str(db), arguments[-1]).stdout


def test_a_rejected_request_is_not_sent(db: Path) -> None:
    """H5: a refusal reaches the client with who and why, and the upstream is never called."""
    with gate(db) as running:
        answer = running.post("/pay")
        hold = running.command()[-1]
        ended = deadreckon("holds", "reject", "--db", str(db), hold, "--by", "ada", "--reason", "too much")
        assert ended.returncode == 0
        assert answer.result(PATIENCE_S) == (403, {"error": "refused", "by": "ada", "reason": "too much"})
        assert running.calls() == 0


def test_an_undecided_request_expires(db: Path) -> None:
    """H2: at its deadline the client is told, and a later approval is refused."""
    with gate(db, hold_ms=1_000) as running:
        answer = running.post("/pay")
        _, *arguments = running.command()
        status, content = answer.result(PATIENCE_S)
        assert (status, content["error"]) == (403, "HoldExpired")
        assert deadreckon(*arguments).returncode == 1
        assert running.calls() == 0


def test_requests_are_decided_apart(db: Path) -> None:
    """H7: each decision is of its own request, whatever the order."""
    with gate(db) as running:
        answers, commands = [], []
        for path in ("/a", "/b", "/c"):
            answers.append(running.post(path))
            commands.append(running.command()[1:])
        for command in reversed(commands):
            assert deadreckon(*command).returncode == 0
        found = [answer.result(PATIENCE_S) for answer in answers]
        assert [(status, content["upstream"]) for status, content in found] == [(200, "/a"), (200, "/b"), (200, "/c")]
        assert running.calls() == 3


def test_nothing_is_sent_for_a_client_that_has_hung_up(db: Path) -> None:
    """H12: an approval after the client has gone has no effect."""
    with gate(db) as running:
        connection = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE_S)
        connection.request("POST", "/pay", b"{}")
        _, *arguments = running.command()
        connection.close()
        deadreckon(*arguments)
        later = running.post("/other")
        assert deadreckon(*running.command()[1:]).returncode == 0
        assert later.result(PATIENCE_S) == (200, {"upstream": "/other", "calls": 1})


def test_a_killed_gate_sends_nothing_for_the_dead(db: Path) -> None:
    """H12, H3: the next gate takes up the open hold, and an approval then has no effect: its client is gone."""
    with gate(db) as running:
        running.post("/pay").add_done_callback(lambda answer: answer.exception())
        command = running.command()
    with gate(db) as running:
        assert running.command() == command
        assert deadreckon(*command[1:]).returncode == 0
        later = running.post("/other")
        assert deadreckon(*running.command()[1:]).returncode == 0
        assert later.result(PATIENCE_S) == (200, {"upstream": "/other", "calls": 1})


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /a\nX: y HTTP/1.1\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\nxy",
    ],
)
def test_what_is_no_request_is_not_parked(db: Path, sent: bytes) -> None:
    """What can't be sent on as it was approved is refused at once, and nobody is asked about it."""
    with gate(db) as running, socket.create_connection(("127.0.0.1", running.port), PATIENCE_S) as client:
        client.sendall(sent)
        assert client.makefile("rb").readline() == b"HTTP/1.1 400 Bad Request\r\n"
        assert deadreckon("holds", "list", "--db", str(db)).stdout == "no hold waits\n"


def test_a_gate_that_is_replaced_ends(db: Path) -> None:
    """The earlier gate of a journal is fenced: it says so to whoever asks next, and ends."""
    with gate(db) as first, gate(db):
        status, content = first.post("/pay").result(PATIENCE_S)
        assert (status, content) == (503, {"error": "another gate has taken over"})
        first.process.wait(PATIENCE_S)
        assert first.process.returncode == 0


@pytest.mark.parametrize("wrong", [("--hold-ms", "0"), ("--db", "/nonexistent/x.db"), ("--port", "1")])
def test_a_gate_that_can_t_start_says_why(db: Path, wrong: tuple[str, str]) -> None:
    """A wrong argument ends with one line, not with a traceback."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = ("--port", str(taken.getsockname()[1])) if wrong[0] == "--port" else wrong
        command = [sys.executable, str(EXAMPLE), "--db", str(db), "--port", "0", *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("gate: ")
    assert "Traceback" not in done.stderr
