"""``deadreckon audit``: what it reads, prints, writes, and how it ends."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result

from deadreckon.cli.commands import command

LOGS = Path(__file__).parent / "logs"
GOOD, BAD = LOGS / "incident-five-deaths-then-seal.jsonl", LOGS / "incident-sixth-run.jsonl"


def run(*arguments: object, stdin: bytes | None = None) -> Result:
    """Run the command."""
    environment = {"COLUMNS": "200"}
    words = ["audit", *map(str, arguments)]
    return CliRunner().invoke(command, words, prog_name="deadreckon", env=environment, input=stdin)


def test_nothing_is_violated() -> None:
    """Exit code 0, and one line that says how much was read."""
    ended = run(GOOD)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "19 lines, 1 entity: 1 conforms, 0 violates, 0 pending" in ended.stdout


def test_a_violation_in_words() -> None:
    """Exit code 1; numbered steps, the line, what was allowed, what refused it, and a table at the end."""
    ended = run(BAD)
    assert ended.exit_code == 1
    for words in (
        "incident turn-7 violates C4,",
        "rule C4: no heavy work starts when the count has reached the limit",
        "  1. line 2, at 17645000000",
        "attempt.admitted (incident turn-7, attempt try-r5, incarnation life-5, kind replay, count 5)  <-",
        "allowed would have been: attempt.refused (count 5)",
        "refused: replay (slot 0, keep_going true)",
        "the state before: ",
        "0 conforms, 1 violates, 0 pending",
    ):
        assert words in ended.stdout


def test_json(tmp_path: Path) -> None:
    """The shape that others read."""
    target = tmp_path / "out.json"
    assert run(BAD, "--json", target).exit_code == 1
    found = json.loads(target.read_text(encoding="utf-8"))
    assert (found["lines"], found["entities"]) == (17, 1)
    assert found["verdicts"] == {"conforms": 0, "violates": 1, "pending": 0}
    assert "C8" in found["not_observable"]
    (violation,) = found["violations"]
    assert list(found) == ["lines", "entities", "verdicts", "not_observable", "violations"]
    assert list(violation) == ["machine", "entity", "rule", "line", "happened", "allowed", "history"]
    assert (violation["machine"], violation["entity"], violation["rule"], violation["line"]) == (
        "incident", "turn-7", "C4", 16
    )  # fmt: skip
    assert violation["allowed"][0] == "attempt.refused (count 5)"
    assert violation["history"][0] == {
        "line": 2, "at": 1764500000001, "type": "turn.started", "incident": "turn-7", "incarnation": "life-0"
    }  # fmt: skip


def test_junit(tmp_path: Path) -> None:
    """A test case for each violation, and one for each line that is none."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(BAD.read_bytes() + b"{\n")
    target = tmp_path / "out.xml"
    assert run(log, "--junitxml", target).exit_code == 1
    suite = ET.parse(target).getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "C4" in str(failure.get("message"))


def test_packed_logs_and_the_standard_input(tmp_path: Path) -> None:
    """gzip, zstd and a pipe say the same as the file."""
    text = BAD.read_bytes()
    (tmp_path / "log.gz").write_bytes(gzip.compress(text))
    (tmp_path / "log.zst").write_bytes(zstandard.compress(text[:200]) + zstandard.compress(text[200:]))
    (tmp_path / "log.bom").write_bytes(b"\xef\xbb\xbf" + text)
    for name in ("log.gz", "log.zst", "log.bom"):
        assert "violates C4" in run(tmp_path / name).stdout
    assert "violates C4, -:16" in run("-", stdin=text).stdout


def test_several_logs_are_one(tmp_path: Path) -> None:
    """A story that goes on in the next file is one story; a file named twice is read once."""
    lines = BAD.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "a").write_text("".join(lines[:9]), encoding="utf-8")
    (tmp_path / "b").write_text("".join(lines[9:]), encoding="utf-8")
    ended = run(tmp_path / "a", tmp_path / "b", tmp_path / "b")
    assert "17 lines, 1 entity" in ended.stdout
    assert f"violates C4, {tmp_path / 'b'}:7" in ended.stdout


def test_malformed_lines(tmp_path: Path) -> None:
    """Each is reported with its number, and the audit goes on: exit code 2, unless it is lenient."""
    log = tmp_path / "log.jsonl"
    odd = [
        b"{", b"[]", b'{"at": 1} {}', b'{"at": 1}', b'{"at": "then", "type": "x"}', b'{"type": "x"}', b"\xff", b"",
        b'{"at": 1, "type": 7}', b'{"at": 1, "type": "hold.expired"}', b'{"at": 1, "type": "hold.requested", "hold": "h"}',
        b'{"at": 1, "type": "turn.started", "incident": [], "incarnation": "k"}',
        b'{"at": 1, "type": "attempt.admitted", "incident": "i", "attempt": "a", "incarnation": "k", "kind": "x"}',
        b'{"type": "policy", "machine": "incident", "max_interrupted_attempts": 0}',
        b'{"type": "policy", "machine": "incident", "max_interrupted_attempts": "x"}',
        b'{"type": "policy", "machine": "no"}', b"[" * 20_000,
    ]  # fmt: skip
    log.write_bytes(GOOD.read_bytes() + b"\n".join(odd) + b"\n")
    ended = run(log)
    assert ended.exit_code == 2
    assert ended.stdout.count("malformed: ") == len(odd) - 1  # a blank line is none
    assert f"malformed: {log}:20: " in ended.stdout
    assert "1 conforms, 0 violates" in ended.stdout
    assert run(log, "--lenient").exit_code == 0


def test_unknown_types_are_counted_and_no_harm(tmp_path: Path) -> None:
    """What no vocabulary has is said once."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(GOOD.read_bytes().replace(b'{"at"', b'{"at":1,"type":"my\\u001b[2J.own"}\n{"at"', 3))
    ended = run(log)
    assert ended.exit_code == 0
    assert "unknown types, left out: my\\x1b[2J.own (3)" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_times_may_be_texts(tmp_path: Path) -> None:
    """An ISO-8601 time is as good as milliseconds, in every field."""
    log = tmp_path / "log.jsonl"
    lines = [
        {"at": "2026-01-31T12:00:00Z", "type": "hold.requested", "hold": "h", "requests": 1,
         "deadline_at": "2026-01-31T12:01:00.000+00:00"},
        {"at": "2026-01-31T13:01:00.001+01:00", "type": "hold.decided", "hold": "h", "verdicts": ["approve"], "by": "a"},
    ]  # fmt: skip
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert "violates H2" in run(log).stdout


def test_filters_and_maps(tmp_path: Path) -> None:
    """One rule, one entity, somebody else's words."""
    assert run(BAD, "--rule", "C1").exit_code == 0
    assert run(BAD, "--entity", "other").exit_code == 2
    assert run(BAD, "--rule", "C4", "--entity", "turn-7").exit_code == 1
    ended = run(BAD, "--map", "nobody's")
    assert ended.exit_code == 2
    assert "shipped ones: cloudflare-agents, iterate, opentelemetry" in ended.stderr
    ended = run(BAD, "--map", "iterate")  # none of its lines is a fact of theirs
    assert (ended.exit_code, "iterate fits no line of" in ended.stderr) == (2, True)


def test_what_matches_nothing_is_no_success() -> None:
    """A rule that no machine has, and an entity that no line is of, are told."""
    ended = run(BAD, "--rule", "c4")
    assert (ended.exit_code, "no rule c4: C1, C2" in ended.stderr) == (2, True)
    ended = run(BAD, "--entity", "nope")
    assert (ended.exit_code, "no line is of nope" in ended.stderr) == (2, True)


def test_a_log_that_cannot_be_read_loses_nothing_of_the_others(tmp_path: Path) -> None:
    """What the others say is reported, violations too; without them it is exit code 2."""
    missing = tmp_path / "missing.jsonl"
    ended = run(missing, BAD)
    assert (ended.exit_code, "can't read" in ended.stderr, "violates C4" in ended.stdout) == (1, True, True)
    ended = run(missing, GOOD)
    assert (ended.exit_code, "1 conforms" in ended.stdout) == (2, True)


def test_shapes_that_a_map_does_not_expect_are_malformed(tmp_path: Path) -> None:
    """No traceback, whatever a record holds."""
    log, mapping = tmp_path / "log.jsonl", tmp_path / "map.toml"
    log.write_text('{"type":"work.tracked","host":"h","x":1e400}\n{"type":"work.tracked","host":"h","x":1}\n')
    mapping.write_text('at = {field = "x", unit = "s"}\n[[line]]\ntype = "work.tracked"\nfields = {host = "host"}\n')
    ended = run(log, "--map", mapping)
    assert ended.exit_code == 2
    assert "log.jsonl:1: cannot convert float infinity to integer" in ended.output
    assert "2 lines, 1 entity" in ended.output


def test_a_map_that_knows_nothing_of_it(tmp_path: Path) -> None:
    """Types and rules that nobody has are a mistake of the map's."""
    mapping = tmp_path / "map.toml"
    for text, says in (("unwritten = ['nope']", "no type nope"), ("not_observable = ['ZZ']", "no rule ZZ")):
        mapping.write_text(f"{text}\n[[line]]\ntype = 'work.tracked'\n")
        ended = run(GOOD, "--map", mapping)
        assert (ended.exit_code, says in ended.stderr) == (2, True)


def test_what_a_map_leaves_out_is_told(tmp_path: Path) -> None:
    """Beside lines that it makes, records of which it makes none are counted."""
    log, mapping = tmp_path / "log.jsonl", tmp_path / "map.toml"
    log.write_text('{"at": 1, "type": "mine", "host": "h"}\n{"at": 1, "type": "yours"}\n')
    mapping.write_text("[[line]]\ntype = 'mine'\nto = 'work.tracked'\nfields = {host = 'host'}\n")
    ended = run(log, "--map", mapping)
    assert (ended.exit_code, "left out, since the map says nothing of them: 1 record" in ended.stdout) == (0, True)


def test_one_rule_of_an_entity_that_breaks_another(tmp_path: Path) -> None:
    """It is not followed beyond that, and is not called conforming."""
    ended = run(BAD, "--rule", "C1", "--json", tmp_path / "found.json")
    assert "not followed to the end: 1, since it violates C4, which was not asked for" in ended.stdout
    assert json.loads((tmp_path / "found.json").read_text())["verdicts"] == {"conforms": 0, "violates": 0, "pending": 0}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told() -> None:
    """What was found and can't be written is no verdict: exit code 2, and no traceback."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "deadreckon.cli", "audit", str(GOOD)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (2, "deadreckon: can't write what was found: No space left on device\n")


@pytest.mark.parametrize(
    "packed", [b"\x1f\x8b\x08rubbish", gzip.compress(b"{}", mtime=0)[:-9], b"\x28\xb5\x2f\xfdrubbish"]
)
def test_what_cannot_be_unpacked(packed: bytes, tmp_path: Path) -> None:
    """A torn archive is the environment's fault: exit code 2, one line, no traceback."""
    (tmp_path / "log").write_bytes(packed)
    ended = run(tmp_path / "log")
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"deadreckon: can't read {tmp_path / 'log'}")


def test_a_log_that_is_not_there() -> None:
    """It is named: exit code 2."""
    ended = run("nowhere.jsonl")
    assert (ended.exit_code, ended.stderr) == (2, "deadreckon: can't read nowhere.jsonl: No such file or directory\n")


@pytest.mark.parametrize("left", [20, -1])
def test_a_zstd_log_that_is_cut_is_not_whole(tmp_path: Path, left: int) -> None:
    """What ends in the middle of a frame is unreadable, however much of it could be read."""
    packed = zstandard.compress(b'{"type":"turn.started","at":0,"incident":"i","incarnation":"k"}\n' * 2_000)
    (tmp_path / "log.zst").write_bytes(packed[:left])
    ended = run(tmp_path / "log.zst")
    assert ended.exit_code == 2
    assert "the log is cut" in ended.stderr


def test_zstd_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package it is said how to get it, or how to do without."""
    (tmp_path / "log.zst").write_bytes(zstandard.compress(b"{}"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    ended = run(tmp_path / "log.zst")
    assert ended.exit_code == 2
    assert "pip install 'deadreckon[zstd]'" in ended.stderr


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    """A log that never ends is left by Ctrl-C: exit code 2, one line."""
    os.mkfifo(tmp_path / "log")
    child = subprocess.Popen(
        [sys.executable, "-m", "deadreckon.cli", "audit", str(tmp_path / "log")],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # background shells ignore it
    )
    with (tmp_path / "log").open("wb") as log:
        log.write(GOOD.read_bytes())
        log.flush()
        time.sleep(1.0)
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=30)
    assert (child.returncode, stderr) == (2, b"deadreckon: interrupted\n")
