"""A gate before an HTTP upstream: every request waits for a person, and is sent on at most once, or not at all.

    python examples/approval_gate.py --db holds.db
    curl -d '{"amount": 5}' http://127.0.0.1:8080/pay       in a second terminal: waits
    deadreckon holds approve --db holds.db HOLD             in a third: the gate prints this line for each request

Only what was approved is sent on: method, path and body, without the client's headers. The body is shown to the approver
and kept in the journal if it is short text; a gate for bodies with secrets in them must leave that out.

A client that hangs up leaves its hold: nothing is sent for it any more. A gate that is killed and started again takes
up what it finds in the journal; one whose journal another gate has taken over ends. The upstream is a toy in the same
process, which says each time that it is called.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import attrs

from deadreckon.impl import (
    Door,
    DoorClosed,
    Fenced,
    HoldEnd,
    HoldRefused,
    InDoubt,
    Journal,
    JournalUnavailable,
    SqliteJournal,
    StoreFault,
)
from deadreckon.spec import DeadreckonError
from deadreckon.spec.hold_state import Fact, HoldPolicy

BODY_MAX_BYTES = 1_000_000
SHOWN_CHARS = 1_000
"""The longest body that the approver reads in full; of others there is the digest."""

HOST = "127.0.0.1"
REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 502: "Bad Gateway", 503: "Service Unavailable"}


@attrs.frozen
class Request:
    """One HTTP request, its body in full."""

    method: str
    path: str
    body: bytes

    def as_text(self) -> str:
        """What the approver sees, and what is approved: no secrets, and the digest of the very bytes to be sent."""
        text = self.body.decode("utf-8", "replace")
        shown = {"body": text} if len(text) <= SHOWN_CHARS and text.encode() == self.body else {}
        digest = hashlib.sha256(self.body).hexdigest()
        return json.dumps({"method": self.method, "path": self.path, **shown, "body_sha256": digest})


async def read_request(reader: asyncio.StreamReader) -> Request:
    """The next request.

    Raises:
        ValueError: it is no HTTP request, or too long.
    """
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.split("\r\n")
        method, path, _ = line.split(" ")
        if not (line.isascii() and line.isprintable()):
            raise ValueError("control characters in the request line")
        headers = [(name.lower(), value.strip()) for name, _, value in (field.partition(":") for field in fields)]
        lengths = [value for name, value in headers if name == "content-length"]
        if any(name == "transfer-encoding" for name, _ in headers) or len(lengths) > 1:
            raise ValueError("a body without one plain Content-Length: what is approved must be what is sent")
        length = int(lengths[0]) if lengths else 0
        if not 0 <= length <= BODY_MAX_BYTES:
            raise ValueError(f"a body of {length} bytes")
        return Request(method, path, await reader.readexactly(length))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ValueError("no HTTP request") from error


def response(status: int, content: Mapping[str, object]) -> bytes:
    """An HTTP response with a JSON body."""
    body = json.dumps(content).encode() + b"\n"
    head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


class Upstream:
    """What is guarded: it counts how often it is called."""

    def __init__(self) -> None:
        self.calls = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        request = await read_request(reader)
        self.calls += 1
        print(f"upstream: call {self.calls}: {request.method} {request.path}", flush=True)
        writer.write(response(200, {"upstream": request.path, "calls": self.calls}))
        await writer.drain()
        writer.close()


async def forward(port: int, request: Request, release_id: str) -> bytes:
    """Send *request* upstream. The release's id goes with it, so that an upstream may tell a repetition."""
    reader, writer = await asyncio.open_connection(HOST, port)
    head = f"{request.method} {request.path} HTTP/1.1\r\nHost: {HOST}\r\nIdempotency-Key: {release_id}\r\n"
    writer.write(f"{head}Content-Length: {len(request.body)}\r\nConnection: close\r\n\r\n".encode() + request.body)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


@attrs.frozen
class Gate:
    """Parks each request, and sends it on if it is approved."""

    door: Door
    upstream_port: int
    replaced: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client: its request waits in a task that ends when the client hangs up."""
        try:
            request = await read_request(reader)
        except ValueError as error:
            writer.write(response(400, {"error": str(error)}))
        else:
            answering = asyncio.create_task(self.answer(request))
            hanging_up = asyncio.create_task(reader.read())
            await asyncio.wait((answering, hanging_up), return_when=asyncio.FIRST_COMPLETED)
            hanging_up.cancel()
            if answering.done():
                writer.write(answering.result())
            else:
                answering.cancel()  # the door takes note: the caller is gone
                await asyncio.gather(answering, return_exceptions=True)
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def answer(self, request: Request) -> bytes:
        """What the client is told; success only once it is in the journal."""

        async def effect(release_id: str) -> bytes:
            return await forward(self.upstream_port, request, release_id)

        try:
            async with self.door.hold([request.as_text()]) as grant:
                return await self.door.release(grant, 0, effect)
        except HoldRefused as refusal:
            return response(403, {"error": "refused", "by": refusal.by, "reason": refusal.reason})
        except InDoubt as doubt:
            return response(502, {"error": "in doubt", "why": str(doubt)})
        except HoldEnd as end:
            return response(403, {"error": type(end).__name__, "why": str(end)})
        except Fenced:
            self.replaced.set()
            return response(503, {"error": "another gate has taken over"})
        except (StoreFault, DoorClosed) as fault:
            return response(503, {"error": "no journal, or no door", "why": str(fault)})
        except OSError as failure:
            return response(502, {"error": "upstream failed", "why": str(failure)})


async def announce(journal: Journal, db: Path) -> None:
    """Say of each open hold how it is approved: a pager, or a chat message, in a real service."""
    offset = 0
    while True:
        with suppress(JournalUnavailable):
            for fact in await journal.facts(offset):
                offset = fact.offset
                held = (await journal.read(fact.hold_id)).held if fact.type == "hold.requested" else None
                if held is not None and held.hold.fact is Fact.OPEN:
                    print(f"waiting: {held.requests[0]}", flush=True)
                    print(f"deadreckon holds approve --db {shlex.quote(str(db))} {held.hold_id}", flush=True)
            await journal.wait(offset, 60_000)
            continue
        await asyncio.sleep(1)


async def main(db: Path, port: int, hold_ms: int) -> None:
    """Serve until interrupted, or until another gate takes the journal over."""
    upstream = await asyncio.start_server(Upstream().serve, HOST, 0)
    async with SqliteJournal(db) as journal, Door(journal, HoldPolicy(hold_ms=hold_ms)) as door:
        gate = Gate(door, upstream.sockets[0].getsockname()[1])
        server = await asyncio.start_server(gate.serve, HOST, port)
        print(f"gate: http://{HOST}:{server.sockets[0].getsockname()[1]}", flush=True)
        announcing = asyncio.create_task(announce(journal, db))
        try:
            await gate.replaced.wait()
            print("gate: another one has taken over", flush=True)
            await asyncio.sleep(1)  # the last answer goes out
        finally:
            announcing.cancel()
            server.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A gate before an HTTP upstream, with a person who approves.")
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--hold-ms", type=int, default=600_000)
    options = parser.parse_args()
    try:
        asyncio.run(main(options.db, options.port, options.hold_ms))
    except (OSError, DeadreckonError) as failure:
        sys.exit(f"gate: {failure}")
    except KeyboardInterrupt:
        pass
