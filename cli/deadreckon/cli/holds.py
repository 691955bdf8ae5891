"""``deadreckon holds``: what waits for a person, and the person's answer, in another process than the door's.

Whatever a caller wrote is shown with its control characters spelt out, so that no request can paint over the terminal
of whoever has to judge it. Requests hold no secrets; each is shown with the SHA-256 of its text, which is what a
signature vouches for.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from rich.table import Column, Table

from deadreckon.spec import CallerError
from deadreckon.spec.hold_state import Caller, Fact, Release

from .display import console
from .reports import Target, version
from .traces import counted, printable

if TYPE_CHECKING:
    from deadreckon.impl.hold_journal import Held
    from deadreckon.impl.hold_journal_sqlite import SqliteJournal

T = TypeVar("T")

SUMMARY_CHARS = 60
LISTED = 4
"""Requests of one hold that a list has."""

PATIENCE_S = 5.0
"""How long an unavailable journal is asked again before the command gives up."""

LIMITS = (
    "Exit codes: 0 done; 1 the decision was refused, and nothing was changed; 2 wrong usage, or an unusable journal."
)


@click.group(epilog=LIMITS)
def holds() -> None:
    """List the holds that a door has parked in a journal, look at one, approve it or reject it."""


def login_name() -> str:
    """Who runs the command; nobody, where the system doesn't know."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        return ""


db_option = click.option("--db", required=True, metavar="FILE", help="The journal: an SQLite file.")
json_option = click.option("--json", "json_file", metavar="FILE", help="Write what is printed as JSON too.")
by_option = click.option("--by", default=login_name, show_default="your login name", help="Who decides.")
reason_option = click.option("--reason", default="", metavar="TEXT", help="Why; the caller is told.")


@holds.command("list", epilog=LIMITS)
@db_option
@json_option
def list_holds(db: str, json_file: str | None) -> None:
    """List what is not finished, the oldest first: time left, who waits, and what will run."""
    target = Target.at(json_file) if json_file else None
    now_ms, found = on_journal(db, _unfinished)
    # An id that is cut can't be copied: whatever else has to give way, it is whole.
    whole = max((len(printable(held.hold_id)) for held in found), default=0)
    table = Table(Column("hold", min_width=whole, no_wrap=True), "state", "left", "caller", "requests")
    for held in found:
        state = state_word(held, now_ms)
        ident = printable(held.hold_id)
        table.add_row(ident, state, time_left(held, now_ms), caller_words(held, now_ms), summary(held))
    console().print(table if found else "no hold waits", soft_wrap=not found)
    _write(target, found, now_ms)


@holds.command("show", epilog=LIMITS)
@db_option
@click.argument("hold")
@json_option
def show_hold(db: str, hold: str, json_file: str | None) -> None:
    """Show one HOLD: every request in full, with its digest, its verdict and its release."""
    target = Target.at(json_file) if json_file else None
    now_ms, held = on_journal(db, lambda journal: _known(journal, hold))
    print_hold(held, now_ms)
    _write(target, [held], now_ms)


@holds.command(epilog=LIMITS)
@db_option
@click.argument("hold")
@click.option("--index", "indexes", type=click.IntRange(min=0), multiple=True, help="Approve this request; repeatable.")
@by_option
@reason_option
@click.option("--sign-with", metavar="PEM", help="Sign with the P-256 private key in this file.")
@json_option
def approve(
    db: str, hold: str, indexes: tuple[int, ...], by: str, reason: str, sign_with: str | None, json_file: str | None
) -> None:
    """Approve every request of HOLD; with --index those alone, and the others are refused: there is one decision."""
    target = Target.at(json_file) if json_file else None

    _, held = on_journal(db, lambda journal: _known(journal, hold))
    count = len(held.requests)
    if outside := [at for at in indexes if at >= count]:
        raise CallerError(f"hold {hold} has no request {outside[0]}: give some of 0 to {count - 1}")
    verdicts = tuple(not indexes or at in indexes for at in range(count))
    signature = _signed(held, verdicts, sign_with) if sign_with else ("", "")
    _decide(db, hold, verdicts, by, reason, signature, target)


@holds.command(epilog=LIMITS)
@db_option
@click.argument("hold")
@by_option
@reason_option
@json_option
def reject(db: str, hold: str, by: str, reason: str, json_file: str | None) -> None:
    """Refuse every request of HOLD. It needs no signature. To refuse some of them, approve the others."""
    target = Target.at(json_file) if json_file else None

    _, held = on_journal(db, lambda journal: _known(journal, hold))
    _decide(db, hold, (False,) * len(held.requests), by, reason, ("", ""), target)


def _decide(
    db: str,
    hold: str,
    verdicts: tuple[bool, ...],
    by: str,
    reason: str,
    signed: tuple[str, str],
    target: Target | None,
) -> None:
    from deadreckon.impl.hold_decisions import decide
    from deadreckon.impl.hold_words import DecisionRefused

    check_unicode(by, reason)
    # One decision, however often it is sent: the key and the signature are made once.
    key = uuid.uuid4().hex

    async def work(journal: SqliteJournal) -> tuple[int, Held]:
        after = await decide(journal, hold, verdicts, by, reason, *signed, key=key)
        return journal.now_ms(), after

    try:
        now_ms, held = on_journal(db, work)
    except DecisionRefused as refusal:
        console(stderr=True).print(f"deadreckon: {printable(str(refusal))}", soft_wrap=True)
        click.get_current_context().exit(1)
    out = console()
    out.print(f"hold {held.hold_id}: {sum(verdicts)} of {counted(len(verdicts), 'request')} approved", soft_wrap=True)
    if any(verdicts) and held.hold.caller is not Caller.ATTACHED:
        lease = f"its caller is {caller_words(held, now_ms)}: nothing is sent unless it comes back"
        out.print(lease, soft_wrap=True)
    _write(target, [held], now_ms)


def on_journal(db: str, work: Callable[[SqliteJournal], Awaitable[T]]) -> T:
    """What *work* finds in the journal *db*; one that is busy is asked again for a while.

    Raises:
        CallerError: there is no such file, or no such hold.
        EnvironmentFault: it is no journal, or can't be read.
    """
    from deadreckon.impl.hold_journal import JournalUnavailable
    from deadreckon.impl.hold_journal_sqlite import SqliteJournal
    from deadreckon.impl.signing import verified

    if not Path(db).is_file() or Path(db).stat().st_size == 0:
        raise CallerError(f"there is no journal {printable(db)}: give the file that the door was given")
    if not os.access(Path(db).resolve().parent, os.W_OK):
        raise CallerError(
            f"the directory of {printable(db)} can't be written to: looking at a live journal needs that too"
        )

    async def run() -> T:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                async with SqliteJournal(db, verifier=verified) as journal:
                    return await work(journal)
            except JournalUnavailable as fault:
                if time.monotonic() > give_up_at:
                    raise
                await asyncio.sleep(fault.retry_after_ms / 1000)

    return asyncio.run(run())


async def _unfinished(journal: SqliteJournal) -> tuple[int, Sequence[Held]]:
    found = await journal.unfinished()
    return journal.now_ms(), found


def check_unicode(*texts: str) -> None:
    """Refuse arguments with bytes that are no text: no journal can keep them.

    Raises:
        CallerError: one of them is no Unicode.
    """
    for text in texts:
        if text.encode(errors="replace").decode() != text:
            raise CallerError(f"this argument is no Unicode: {printable(text)}")


async def _known(journal: SqliteJournal, hold: str) -> tuple[int, Held]:
    check_unicode(hold)
    moment = await journal.read(hold)
    if moment.held is None:
        raise CallerError(f"the journal has no hold {printable(hold)}")
    return moment.now_ms, moment.held


def _signed(held: Held, verdicts: tuple[bool, ...], pem: str) -> tuple[str, str]:
    from deadreckon.impl.hold_journal import Ballot
    from deadreckon.impl.signing import ballot_message, key_id, load_private_key, public_key_b64, sign

    try:
        content = Path(pem).read_bytes()
    except OSError as fault:
        raise CallerError(f"can't read {printable(pem)}: {fault.strerror}") from fault
    encrypted = b"ENCRYPTED" in content
    password = click.prompt(f"password of {printable(pem)}", hide_input=True, err=True).encode() if encrypted else None
    private_key = load_private_key(content, password)
    message = ballot_message(Ballot(held.hold_id, held.requests, verdicts))
    return sign(private_key, message), key_id(public_key_b64(private_key))


def print_hold(held: Held, now_ms: int) -> None:
    """One hold, in words."""
    out = console()
    out.print(f"hold {held.hold_id}: {state_word(held, now_ms)}", soft_wrap=True)
    out.print(f"left: {time_left(held, now_ms)} (deadline {clock_time(held.hold.deadline_at_ms)})", soft_wrap=True)
    out.print(f"caller: {caller_words(held, now_ms)}", soft_wrap=True)
    if held.by:
        out.print(
            f"decided by {printable(held.by)}{f': {printable(held.reason)}' if held.reason else ''}", soft_wrap=True
        )
    for at, text in enumerate(held.requests):
        out.print(
            f"request {at}: {_request_word(held, at)}\n  {printable(text)}\n  sha256 {_digest(text)}", soft_wrap=True
        )


def state_word(held: Held, now_ms: int) -> str:
    """What anybody may read off the journal: open, overdue, refused, expired, abandoned, or released k of n."""
    hold = held.hold
    if hold.fact is Fact.OPEN:
        return "open" if now_ms <= hold.deadline_at_ms else "overdue"
    if hold.fact is not Fact.DECIDED:
        return str(hold.fact.value)
    if not any(hold.approved):
        return "refused"
    settled = sum(release not in (Release.NONE, Release.STARTED) for release in hold.releases)
    return f"approved, {settled} of {sum(hold.approved)} settled"


def time_left(held: Held, now_ms: int) -> str:
    """How long it can still be decided."""
    left_s = max(0, held.hold.deadline_at_ms - now_ms) // 1000
    return f"{left_s // 60}:{left_s % 60:02}" if held.hold.fact is Fact.OPEN else "-"


def caller_words(held: Held, now_ms: int) -> str:
    """Who waits, whether it is there, and if not, for how long it may still come back."""
    named = printable(held.caller) or "unnamed"
    match held.hold.caller:
        case Caller.ATTACHED:
            return named
        case Caller.DETACHED:
            return f"{named} (detached, {max(0, held.lease_until_ms - now_ms) // 1000} s left)"
        case gone:
            return f"{named} ({gone.value})"


def summary(held: Held) -> str:
    """The first requests of a hold, each on a short line."""
    lines = [f"{at}: {shortened(text)}" for at, text in enumerate(held.requests[:LISTED])]
    more = len(held.requests) - LISTED
    return "\n".join([*lines, f"... and {more} more: deadreckon holds show"] if more > 0 else lines)


def clock_time(at_ms: int) -> str:
    """An instant of the journal's clock, as people write it."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at_ms / 1000))


def shortened(text: str) -> str:
    """*text* on one short line; an ellipsis where something is left out."""
    shown = printable(text)
    return shown if len(shown) <= SUMMARY_CHARS else f"{shown[: SUMMARY_CHARS - 1]}…"


def _digest(text: str) -> str:
    from deadreckon.impl.signing import digest

    return digest(text)


def _request_word(held: Held, at: int) -> str:
    if held.hold.fact is not Fact.DECIDED:
        return "undecided" if held.hold.fact is Fact.OPEN else held.hold.fact.value
    release = held.hold.releases[at]
    return "refused" if not held.hold.approved[at] else "approved" if release is Release.NONE else release.value


def _write(target: Target | None, found: Sequence[Held], now_ms: int) -> None:
    if target is not None:
        content = {"deadreckon": version(), "now_ms": now_ms, "holds": [as_data(held, now_ms) for held in found]}
        target.write(json.dumps(content, indent=2) + "\n")


def as_data(held: Held, now_ms: int) -> dict[str, object]:
    """One hold, as it is written for other programs."""
    return {
        "hold": held.hold_id,
        "state": state_word(held, now_ms),
        "deadline_at_ms": held.hold.deadline_at_ms,
        "caller": held.caller,
        "attached": held.hold.caller is Caller.ATTACHED,
        "by": held.by,
        "reason": held.reason,
        "requests": [
            {"index": at, "text": text, "sha256": _digest(text), "state": _request_word(held, at)}
            for at, text in enumerate(held.requests)
        ],
    }
