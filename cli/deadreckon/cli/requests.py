"""``deadreckon requests``: what is asked for, how long it may still take, and who is at it, from another terminal.

It only looks: whoever serves the file goes on undisturbed. Whatever a caller or an upstream wrote is shown with its
control characters spelt out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click
from rich.table import Table

from deadreckon.spec import CallerError
from deadreckon.spec.request_state import Status

from .display import console
from .holds import clock_time, shortened
from .reports import Target, version
from .traces import printable

if TYPE_CHECKING:
    from deadreckon.impl.request_words import RequestView

LIMITS = "Exit codes: 0 done; 2 wrong usage, or an unusable file."


@click.group(epilog=LIMITS)
def requests() -> None:
    """List requests with a horizon that a service keeps in a file."""


@requests.command("list", epilog=LIMITS)
@click.option("--db", required=True, metavar="FILE", help="The requests: an SQLite file.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="The N opened last, settled ones too.")
@click.option("--json", "json_file", metavar="FILE", help="Write what is printed as JSON too.")
def list_requests(db: str, last: int | None, json_file: str | None) -> None:
    """List what is open, or was not told yet, the first to expire first: time left, attempts, who runs it."""
    target = Target.at(json_file) if json_file else None
    living, found = _read(db, last)
    now_ms = time.time_ns() // 1_000_000
    table = Table("request", "state", "left", "attempts", "who runs it", "asked")
    for view in found:
        words = (state_word(view, now_ms), time_left(view, now_ms), str(view.attempts), who_runs(view, living, now_ms))
        table.add_row(printable(view.request_id), *words, shortened(view.body))
    none = "no request is open" if last is None else "there are no requests"
    console().print(table if found else none, soft_wrap=not found)
    if not found and last is None:
        click.echo("see settled ones with --last N", err=True)
    if target is not None:
        rows = [_as_data(view, living, now_ms) for view in found]
        content = {"deadreckon": version(), "now_ms": now_ms, "incarnation": living, "requests": rows}
        target.write(json.dumps(content, indent=2) + "\n")


def _read(db: str, last: int | None) -> tuple[int, Sequence[RequestView]]:
    """The incarnation that owns the file, and its requests.

    Raises:
        CallerError: there is no such file.
        EnvironmentFault: it holds no requests, or can't be read.
    """
    from deadreckon.impl.request_sqlite import SqliteRequests
    from deadreckon.impl.request_words import RequestView

    if not Path(db).is_file() or Path(db).stat().st_size == 0:
        raise CallerError(f"there are no requests in {printable(db)}: give the file that the service was given")

    async def run() -> tuple[int, Sequence[RequestView]]:
        async with SqliteRequests(db) as store:
            living = await store.living()
            rows = await store.unfinished() if last is None else await store.latest(last)
            return living, [RequestView.of(request_id, filed, living) for request_id, filed in rows]

    return asyncio.run(run())


def state_word(view: RequestView, now_ms: int) -> str:
    """Open, overdue, or the outcome with its reason, and whether it was told."""
    if view.status is Status.OPEN:
        return "open" if now_ms < view.expires_at_ms else "overdue: nobody serves this file"
    reason = "" if view.status is Status.SUCCEEDED else f": {view.reason.value.replace('_', ' ')}"
    return f"{view.status.value}{reason}{'' if view.told else ' (not told yet)'}"


def time_left(view: RequestView, now_ms: int) -> str:
    """How long until the horizon."""
    left_s = max(0, view.expires_at_ms - now_ms) // 1_000
    return f"{left_s // 60}:{left_s % 60:02}" if view.status is Status.OPEN else "-"


def who_runs(view: RequestView, living: int, now_ms: int) -> str:
    """Which incarnation tries it, as far as the file tells; it doesn't know whether that one still lives."""
    if view.status is not Status.OPEN:
        return f"incarnation {view.owner} did" if view.owner else "nobody did"
    if view.running:
        return f"incarnation {view.owner}"
    if view.owner not in (0, living):
        return f"nobody: incarnation {view.owner} is gone"
    if view.retry_at_ms > now_ms:
        return f"nobody before {clock_time(view.retry_at_ms)}"
    return "nobody"


def _as_data(view: RequestView, living: int, now_ms: int) -> dict[str, object]:
    """One request, as it is written for other programs."""
    data = attrs.asdict(view)
    return {
        **data,
        "status": view.status.value,
        "reason": view.reason.value,
        "state": state_word(view, now_ms),
        "who": who_runs(view, living, now_ms),
    }
