"""``deadreckon hosts``: what is kept alive, how often it died, and the door by which a person clears its count.

``list`` and ``show`` only look: whoever keeps the hosts goes on undisturbed. ``reset`` writes what the machine says, in
the same two steps as anybody else, whether somebody keeps the hosts or not; whoever does notices before it is due.
Whatever a service wrote is shown with its control characters spelt out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import attrs
import click
from rich.table import Table

from deadreckon.spec import CallerError
from deadreckon.spec.keepalive_state import NEVER, Cleared

from .display import console
from .holds import by_option, check_unicode, clock_time, json_option, shortened
from .reports import Target, version
from .traces import printable

if TYPE_CHECKING:
    from deadreckon.impl.keepalive_sqlite import SqliteKeepalive
    from deadreckon.impl.keepalive_words import HostView, Reset

T = TypeVar("T")

LIMITS = "Exit codes: 0 done; 2 wrong usage, or an unusable file."

CLEARS = {
    Cleared.QUIET_CLEAN: "a quiet clean run",
    Cleared.DEPLOY: "a deploy",
    Cleared.HAND: "a person",
}


@click.group(epilog=LIMITS)
def hosts() -> None:
    """List the hosts that a service or a supervisor keeps alive, look at one, or clear its count."""


db_option = click.option("--db", required=True, metavar="FILE", help="The hosts: an SQLite file.")


@hosts.command("list", epilog=LIMITS)
@db_option
@json_option
def list_hosts(db: str, json_file: str | None) -> None:
    """List every host: its count, its rung, when it is looked at next, what is owed, and whether people were told."""
    target = Target.at(json_file) if json_file else None
    found = on_store(db, _all)
    now_ms = time.time_ns() // 1_000_000
    table = Table("host", "count", "rung", "next look", "owed", "version", "evidence")
    for view in found:
        owed = shortened(", ".join(view.owed)) or "-"
        words = (str(view.revivals), view.rung, next_look(view, now_ms), owed, shortened(view.version))
        table.add_row(printable(view.host), *words, evidence_word(view))
    out = console()
    out.print(table if found else "no host is kept", soft_wrap=not found)
    for view in found:
        if view.on_plateau:
            out.print(plateau_line(view, db, now_ms), soft_wrap=True)
    _write(target, found, now_ms)


@hosts.command("show", epilog=LIMITS)
@db_option
@click.argument("host")
@json_option
def show_host(db: str, host: str, json_file: str | None) -> None:
    """Show one HOST, with all the evidence of its crash loops."""
    target = Target.at(json_file) if json_file else None
    view = on_store(db, lambda store: _known(store, host))
    now_ms = time.time_ns() // 1_000_000
    print_host(view, db, now_ms)
    _write(target, [view], now_ms)


@hosts.command("reset", epilog=LIMITS)
@db_option
@click.argument("host")
@by_option
@json_option
def reset_host(db: str, host: str, by: str, json_file: str | None) -> None:
    """Clear the count of HOST, at whatever rung: with work owed the next revival comes within the lead, never later."""
    from deadreckon.impl.clock import SystemClock
    from deadreckon.impl.keepalive import check_name
    from deadreckon.impl.keepalive_steps import reset_by_hand

    target = Target.at(json_file) if json_file else None
    check_unicode(by)
    check_name("--by", by)

    async def work(store: SqliteKeepalive) -> tuple[Reset, HostView]:
        await _known(store, host)
        done = await reset_by_hand(store, host, SystemClock(), by)
        return done, await _known(store, host)

    done, view = on_store(db, work)
    now_ms = time.time_ns() // 1_000_000
    out = console()
    if done.revivals == 0 and done.armed_before_ms == NEVER:
        out.print(f"host {printable(host)}: nothing to reset, the count is 0 and nothing is armed", soft_wrap=True)
    else:
        print_reset(done, now_ms)
    changed = {key: value for key, value in attrs.asdict(done).items() if key != "host"}
    _write(target, [view], now_ms, {"reset": changed})


def print_reset(done: Reset, now_ms: int) -> None:
    """What a reset has changed, in words."""
    out = console()
    out.print(f"host {printable(done.host)}: the count was {done.revivals}, and is 0", soft_wrap=True)
    out.print(f"armed before: {instant(done.armed_before_ms, now_ms)}", soft_wrap=True)
    out.print(f"armed now: {instant(done.armed_at_ms, now_ms)}", soft_wrap=True)


def on_store(db: str, work: Callable[[SqliteKeepalive], Awaitable[T]]) -> T:
    """What *work* finds in the file *db*.

    Raises:
        CallerError: there is no such file, or no such host.
        EnvironmentFault: it holds no hosts, or can't be read.
    """
    from deadreckon.impl.keepalive_sqlite import SqliteKeepalive

    if not Path(db).is_file() or Path(db).stat().st_size == 0:
        raise CallerError(f"there are no hosts in {printable(db)}: give the file that the service was given")

    async def run() -> T:
        async with SqliteKeepalive(db) as store:
            return await work(store)

    return asyncio.run(run())


async def _all(store: SqliteKeepalive) -> Sequence[HostView]:
    from deadreckon.impl.keepalive import host_views

    return await host_views(store)


async def _known(store: SqliteKeepalive, host: str) -> HostView:
    check_unicode(host)
    for view in await _all(store):
        if view.host == host:
            return view
    raise CallerError(f"there is no host {printable(host)}: see 'deadreckon hosts list'")


def print_host(view: HostView, db: str, now_ms: int) -> None:
    """One host, in words."""
    out = console()

    def line(text: str) -> None:
        out.print(text, soft_wrap=True)

    line(f"host {printable(view.host)}: {view.rung}, version {printable(view.version)}")
    line(f"revivals: {view.revivals} since the count was last cleared, {view.lifetime_total} ever")
    if view.last_revival_at_ms:
        line(f"last revival: {clock_time(view.last_revival_at_ms)}")
    line(f"next look: {instant(view.next_at_ms, now_ms)}")
    if view.alarm_at_ms != view.next_at_ms:
        line("the platform's alarm is another: it is set anew when the host is looked at next, or boots")
    line(f"owed: {printable(', '.join(view.owed)) or 'nothing'}")
    if view.cleared_by is not Cleared.NOBODY:
        line(f"the count was last cleared by {cleared_word(view)}")
    for one in view.evidence:
        line(f"told {clock_time(one.at_ms)}: {printable(one.text)}")
    if view.on_plateau:
        line(plateau_line(view, db, now_ms))


def plateau_line(view: HostView, db: str, now_ms: int) -> str:
    """What a person may do about a host on the plateau."""
    from deadreckon.impl.keepalive_words import reset_command

    waits = f"host {printable(view.host)} is on the plateau, next look {next_look(view, now_ms)}"
    return f"{waits}; once its cause is mended: {printable(reset_command(view.host, db))}"


def next_look(view: HostView, now_ms: int) -> str:
    """How long until the host is looked at."""
    from deadreckon.impl.keepalive_words import next_word

    return next_word(view.next_at_ms, now_ms)


def instant(at_ms: int, now_ms: int) -> str:
    """An instant, and how far away it is."""
    from deadreckon.impl.keepalive_words import next_word

    return next_word(at_ms, now_ms) if at_ms == NEVER else f"{clock_time(at_ms)} ({next_word(at_ms, now_ms)})"


def cleared_word(view: HostView) -> str:
    """Who cleared the count."""
    who = CLEARS[view.cleared_by]
    return f"{printable(view.reset_by)}, by hand" if view.cleared_by is Cleared.HAND and view.reset_by else who


def evidence_word(view: HostView) -> str:
    """Whether people were told."""
    return f"told {clock_time(view.evidence[-1].at_ms)}" if view.evidence else "-"


def _write(
    target: Target | None, found: Sequence[HostView], now_ms: int, more: dict[str, object] | None = None
) -> None:
    if target is not None:
        rows = [as_data(view) for view in found]
        content = {"deadreckon": version(), "now_ms": now_ms, "hosts": rows, **(more or {})}
        target.write(json.dumps(content, indent=2) + "\n")


def as_data(view: HostView) -> dict[str, object]:
    """One host, as it is written for other programs."""
    return {**attrs.asdict(view), "cleared_by": view.cleared_by.value, "on_plateau": view.on_plateau}
