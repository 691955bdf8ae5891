"""``deadreckon holds``: what it shows of a journal, and how decisions end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from deadreckon.cli.commands import command
from deadreckon.cli.traces import printable
from deadreckon.impl.hold_decisions import add_key, decide
from deadreckon.impl.hold_journal import Held
from deadreckon.impl.hold_journal_sqlite import SqliteJournal
from deadreckon.impl.hold_memory import Asked, boot
from deadreckon.impl.hold_steps import Steps
from deadreckon.impl.signing import key_id, new_private_key, public_key_b64, verified
from deadreckon.spec.hold_state import Fact, HoldPolicy

REQUESTS = ("GET https://example.test/a", "POST https://example.test/b")


def parked(db: Path, hold_id: str = "h1", requests: Sequence[str] = REQUESTS, policy: HoldPolicy | None = None) -> None:
    """A door parks a hold in the journal, and dies."""

    async def run() -> None:
        async with SqliteJournal(db) as journal:
            steps = Steps(journal, await boot(journal), hold_id, policy or HoldPolicy(), 60_000)
            await steps.ask(Asked(tuple(requests), "agent 7", hold_id, policy or HoldPolicy()))

    asyncio.run(run())


def known(db: Path, hold_id: str = "h1") -> Held:
    """What the journal has of a hold."""

    async def run() -> Held:
        async with SqliteJournal(db, verifier=verified) as journal:
            held = (await journal.read(hold_id)).held
            assert held is not None
            return held

    return asyncio.run(run())


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A journal with one open hold of two requests."""
    parked(tmp_path / "holds.db")
    return tmp_path / "holds.db"


def holds(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(command, ["holds", *map(str, arguments)], prog_name="deadreckon", env={"COLUMNS": "140"})


def test_list_shows_what_waits(db: Path, tmp_path: Path) -> None:
    """The list has each hold's id, its state, the time left, who waits, and what will run."""
    ended = holds("list", "--db", db, "--json", tmp_path / "out.json")
    assert (ended.exit_code, ended.stderr) == (0, "")
    for word in ("h1", "open", "9:5", "agent 7", "0: GET https://example.test/a", "1: POST https://example.test/b"):
        assert word in ended.stdout
    content = json.loads((tmp_path / "out.json").read_text())
    assert set(content) == {"deadreckon", "now_ms", "holds"}
    (one,) = content["holds"]
    assert (one["hold"], one["state"], one["caller"], one["attached"]) == ("h1", "open", "agent 7", True)
    assert 0 < one["deadline_at_ms"] - content["now_ms"] <= 600_000
    assert one["requests"][0] == {
        "index": 0,
        "text": REQUESTS[0],
        "sha256": hashlib.sha256(REQUESTS[0].encode()).hexdigest(),
        "state": "undecided",
    }


def test_list_of_nothing_says_so(db: Path) -> None:
    """A journal in which everything is finished has no table."""
    assert holds("reject", "--db", db, "h1").exit_code == 0
    ended = holds("list", "--db", db)
    assert (ended.exit_code, ended.stdout) == (0, "no hold waits\n")


def test_list_tells_the_overdue(tmp_path: Path) -> None:
    """H15: a hold past its deadline that no door has expired is shown as overdue, not hidden."""
    parked(tmp_path / "db", policy=HoldPolicy(hold_ms=1))
    ended = holds("list", "--db", tmp_path / "db")
    assert "overdue" in ended.stdout
    assert "0:00" in ended.stdout


def test_show_has_every_request_in_full(tmp_path: Path) -> None:
    """What the list shortens is shown whole, with its digest."""
    long = "GET https://example.test/" + "x" * 300
    parked(tmp_path / "db", requests=(long,))
    assert long not in holds("list", "--db", tmp_path / "db").stdout
    shown = holds("show", "--db", tmp_path / "db", "h1")
    assert shown.exit_code == 0
    assert long in shown.stdout
    assert f"sha256 {hashlib.sha256(long.encode()).hexdigest()}" in shown.stdout
    assert "request 0: undecided" in shown.stdout


def test_no_request_writes_to_the_terminal(tmp_path: Path) -> None:
    """Control, direction and line-end characters, and markup, are shown as what they are."""
    evil = "GET /\x1b[2J\r\nrequest 1: approved\u202e[red]"
    parked(tmp_path / "db", requests=(evil,))
    for verb in (("list",), ("show", "h1")):
        shown = holds(verb[0], "--db", tmp_path / "db", *verb[1:]).stdout
        assert "\\x1b[2J\\r\\nrequest 1: approved\\u202e[red]" in shown
        assert not {"\x1b", "\r", "\u202e"} & set(shown)
    assert printable("naïve 日本") == "naïve 日本"


def test_approve_decides_every_request(db: Path) -> None:
    """Without an index everything is approved, by whom and why is in the journal, and the caller's door sees it."""
    ended = holds("approve", "--db", db, "h1", "--by", "ada", "--reason", "looks right")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "hold h1: 2 of 2 requests approved\n", "")
    held = known(db)
    assert (held.hold.fact, held.hold.approved, held.by, held.reason) == (
        Fact.DECIDED,
        (True, True),
        "ada",
        "looks right",
    )
    shown = holds("show", "--db", db, "h1").stdout
    assert "approved, 0 of 2 settled" in shown
    assert "decided by ada: looks right" in shown


def test_approve_one_refuses_the_others(db: Path, tmp_path: Path) -> None:
    """H6: there is one decision, so what is not named with --index is refused by it."""
    ended = holds("approve", "--db", db, "h1", "--index", 1, "--json", tmp_path / "out.json")
    assert ended.exit_code == 0
    assert known(db).hold.approved == (False, True)
    (one,) = json.loads((tmp_path / "out.json").read_text())["holds"]
    assert [request["state"] for request in one["requests"]] == ["refused", "approved"]


def test_reject_refuses_everything(db: Path) -> None:
    """A rejection refuses every request, with its reason."""
    ended = holds("reject", "--db", db, "h1", "--by", "ada", "--reason", "no")
    assert (ended.exit_code, ended.stdout) == (0, "hold h1: 0 of 2 requests approved\n")
    assert (known(db).hold.approved, known(db).reason) == ((False, False), "no")
    assert "hold h1: refused\n" in holds("show", "--db", db, "h1").stdout


@pytest.mark.parametrize("second", ["approve", "reject"])
def test_a_second_decision_is_refused(db: Path, second: str) -> None:
    """H6: the first decision counts; another one ends with 1 and one line, and changes nothing."""
    assert holds("approve", "--db", db, "h1", "--by", "ada").exit_code == 0
    before = known(db)
    ended = holds(second, "--db", db, "h1", "--by", "bob")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert "refused by H6" in ended.stderr
    assert known(db) == before


def test_a_late_decision_is_refused(tmp_path: Path) -> None:
    """H2: past the deadline an approval ends with 1 and names the rule."""
    parked(tmp_path / "db", policy=HoldPolicy(hold_ms=1))
    ended = holds("approve", "--db", tmp_path / "db", "h1")
    assert ended.exit_code == 1
    assert "refused by H2: the deadline has passed" in ended.stderr


def test_a_signed_approval(db: Path, tmp_path: Path) -> None:
    """H11: while a key is active only an approval signed by it counts; a veto needs no signature."""
    parked(db, "h2")
    keys = {name: new_private_key() for name in ("right", "wrong")}
    for name, key in keys.items():
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (tmp_path / name).write_bytes(pem)

    async def activate() -> None:
        public = public_key_b64(keys["right"])
        async with SqliteJournal(db) as journal:
            await add_key(journal, key_id(public), public, by="ada")

    asyncio.run(activate())
    assert holds("approve", "--db", db, "h1").exit_code == 1
    assert holds("approve", "--db", db, "h1", "--sign-with", tmp_path / "wrong").exit_code == 1
    assert known(db).hold.fact is Fact.OPEN
    assert holds("approve", "--db", db, "h1", "--index", 0, "--sign-with", tmp_path / "right").exit_code == 0
    assert known(db).hold.approved == (True, False)
    assert holds("reject", "--db", db, "h2").exit_code == 0


def garbage(path: Path) -> None:
    """A file that is no database."""
    path.write_bytes(b"not a database" * 100)


def foreign(path: Path) -> None:
    """A database of somebody else."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, Path.touch, garbage, foreign])
@pytest.mark.parametrize("verb", [("list",), ("show", "h1"), ("approve", "h1"), ("reject", "h1")])
def test_what_is_no_journal_ends_with_2(tmp_path: Path, verb: Sequence[str], make: Callable[[Path], object]) -> None:
    """A file that is missing, a directory, empty, garbage or somebody else's: one line, 2, and nothing is made."""
    path = tmp_path / "db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    ended = holds(verb[0], "--db", path, *verb[1:])
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("deadreckon: ")
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nobody"),
        ("approve", "nobody"),
        ("reject", "nobody"),
        ("approve", "h1", "--index", 2),
        ("approve", "h1", "--by", ""),
        ("approve", "h1", "--by", "\udcff"),
        ("reject", "h1", "--reason", "\udcff"),
        ("show", "\udcff"),
        ("approve", "h1", "--reason", "x" * 1001),
        ("approve", "h1", "--sign-with", "missing.pem"),
        ("list", "--json", "missing/out.json"),
    ],
    ids=str,
)
def test_wrong_arguments_end_with_2(db: Path, arguments: Sequence[object]) -> None:
    """An unknown hold or request, a nameless approver, an endless reason, a missing key: one line, 2, no change."""
    before = known(db)
    ended = holds(arguments[0], "--db", db, *arguments[1:])
    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith("deadreckon: ")
    assert known(db) == before


def test_without_a_login_name_the_approver_is_asked_for(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system doesn't know who runs the command, --by is needed, and its absence is said in one line."""

    def unknown() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", unknown)
    ended = holds("approve", "--db", db, "h1")
    assert (ended.exit_code, ended.stderr.count("\n")) == (2, 1)
    assert "name who decides" in ended.stderr
    assert holds("approve", "--db", db, "h1", "--by", "ada").exit_code == 0


def test_a_busy_journal_is_asked_again(db: Path) -> None:
    """H9: while another process holds the file nothing is decided; the command waits, and then decides."""
    connection = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")

    async def both() -> Result:
        asking = asyncio.get_running_loop().run_in_executor(None, holds, "approve", "--db", db, "h1")
        await asyncio.sleep(1)
        assert not asking.done()
        connection.execute("ROLLBACK")
        return await asking

    ended = asyncio.run(both())
    connection.close()
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert known(db).hold.approved == (True, True)


def test_a_journal_that_stays_busy_is_given_up(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H9: a journal that no longer answers is asked for a while, not for ever: one line, 2, and no change."""
    monkeypatch.setattr("deadreckon.cli.holds.PATIENCE_S", 0.1)
    before = known(db)
    connection = sqlite3.connect(db, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    ended = holds("reject", "--db", db, "h1")
    connection.execute("ROLLBACK")
    connection.close()
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert known(db) == before


def test_errors_write_nothing_to_the_terminal(db: Path) -> None:
    """A name of a file or of a hold is spelt out in errors too, whoever made it up."""
    for arguments in (
        ("list", "--db", "\x1b[2Jx"),
        ("show", "--db", db, "\x1b[2Jx"),
        ("approve", "--db", db, "h1", "--sign-with", "\x1b[2Jx"),
    ):
        ended = holds(*arguments)
        assert (ended.exit_code, "\\x1b[2Jx" in ended.stderr, "\x1b" in ended.stderr) == (2, True, False)


def test_list_never_cuts_an_id(tmp_path: Path) -> None:
    """On a narrow terminal the id of a hold is whole: it is what is copied to approve it."""
    ident = "4f889fe8f8304061a1f5b0c7d2e3f4a5"
    parked(tmp_path / "db", ident, requests=("GET https://example.test/" + "x" * 300,))
    for columns in ("60", "80"):
        ended = CliRunner().invoke(command, ["holds", "list", "--db", str(tmp_path / "db")], env={"COLUMNS": columns})
        assert ident in ended.stdout


def test_list_has_the_first_requests_of_many(tmp_path: Path) -> None:
    """Of a large batch the list has a few requests, and how many more there are; show has all."""
    parked(tmp_path / "db", requests=[f"GET /{at}" for at in range(30)])
    listed = holds("list", "--db", tmp_path / "db").stdout
    assert "3: GET /3" in listed
    assert "GET /4" not in listed
    assert "... and 26 more" in listed
    assert "GET /29" in holds("show", "--db", tmp_path / "db", "h1").stdout


def detached(db: Path, *, gone: bool = False) -> None:
    """The caller of the hold is cut off, or says goodbye."""

    async def run() -> None:
        async with SqliteJournal(db) as journal:
            steps = Steps(journal, await boot(journal), "h1", HoldPolicy(), 29_999, (await journal.read("h1")).held)
            await steps.detach()
            if gone:
                await steps.leave(goodbye=True)

    asyncio.run(run())


def test_approve_tells_that_nobody_waits(db: Path) -> None:
    """H12: whoever approves for a caller that is not there is told that nothing is sent unless it comes back in time."""
    assert "comes back" not in holds("list", "--db", db).stdout
    detached(db)
    assert "agent 7 (detached, 29 s left)" in holds("list", "--db", db).stdout
    ended = holds("approve", "--db", db, "h1")
    assert ended.exit_code == 0
    assert "its caller is agent 7 (detached, 29 s left): nothing is sent unless it comes back" in ended.stdout


def test_a_refusal_tells_nobody_to_come_back(db: Path) -> None:
    """A veto sends nothing anyhow."""
    detached(db)
    assert "comes back" not in holds("reject", "--db", db, "h1").stdout


def test_an_unsigned_approval_is_told_how_to_sign(db: Path, tmp_path: Path) -> None:
    """H11: each refusal has its own words: how to sign, or that the signature is not by an active key."""
    key = new_private_key()
    (tmp_path / "pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    async def activate() -> None:
        public = public_key_b64(new_private_key())
        async with SqliteJournal(db) as journal:
            await add_key(journal, key_id(public), public, by="ada")

    asyncio.run(activate())
    assert "--sign-with KEY.pem" in holds("approve", "--db", db, "h1").stderr
    assert "not by an active key" in holds("approve", "--db", db, "h1", "--sign-with", tmp_path / "pem").stderr


def test_nobody_else_writes_to_the_terminal(tmp_path: Path) -> None:
    """The caller's name, who decided and why are shown with their control characters spelt out, as requests are."""
    evil = "\x1b[2Jx"

    async def run() -> None:
        async with SqliteJournal(tmp_path / "db") as journal:
            steps = Steps(journal, await boot(journal), "h1", HoldPolicy(), 60_000)
            await steps.ask(Asked(("a", "b"), evil, "k", HoldPolicy()))
            await decide(journal, "h1", [True, False], evil, evil)

    asyncio.run(run())
    for verb in (("list",), ("show", "h1")):
        shown = holds(verb[0], "--db", tmp_path / "db", *verb[1:]).stdout
        assert "\\x1b[2Jx" in shown
        assert "\x1b" not in shown
    assert "decided by \\x1b[2Jx: \\x1b[2Jx" in holds("show", "--db", tmp_path / "db", "h1").stdout


@pytest.mark.parametrize(("policy", "words"), [(HoldPolicy(hold_ms=1), "expired"), (HoldPolicy(), "abandoned")])
def test_show_tells_how_it_ended(tmp_path: Path, policy: HoldPolicy, words: str) -> None:
    """H6: expired, abandoned and refused are three different ends, and shown as such."""
    parked(tmp_path / "db", policy=policy)
    if words == "abandoned":
        detached(tmp_path / "db", gone=True)

    async def run() -> None:
        async with SqliteJournal(tmp_path / "db") as journal:
            held = (await journal.read("h1")).held
            steps = Steps(journal, await boot(journal), "h1", policy, 1, held)
            await (steps.expire() if words == "expired" else steps.abandon())

    asyncio.run(run())
    shown = holds("show", "--db", tmp_path / "db", "h1").stdout
    assert f"hold h1: {words}" in shown
    assert f"request 0: {words}" in shown


def test_a_key_with_a_password(db: Path, tmp_path: Path) -> None:
    """Whoever signs with an encrypted key is asked for its password; a wrong one decides nothing."""
    key = new_private_key()
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open sesame"))
    (tmp_path / "pem").write_bytes(locked)

    async def activate() -> None:
        public = public_key_b64(key)
        async with SqliteJournal(db) as journal:
            await add_key(journal, key_id(public), public, by="ada")

    asyncio.run(activate())
    arguments = ["holds", "approve", "--db", str(db), "h1", "--sign-with", str(tmp_path / "pem")]
    wrong = CliRunner().invoke(command, arguments, input="sesame\n")
    assert wrong.exit_code == 2
    assert known(db).hold.fact is Fact.OPEN
    right = CliRunner().invoke(command, arguments, input="open sesame\n")
    assert (right.exit_code, "sesame" in right.output) == (0, False)


def test_a_directory_that_cannot_be_written_to(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where SQLite could not even look, that is said in words."""
    monkeypatch.setattr("os.access", lambda path, mode: path != db.parent)
    ended = holds("list", "--db", db)
    assert (ended.exit_code, "can't be written to" in ended.stderr.replace("\n", " ")) == (2, True)
