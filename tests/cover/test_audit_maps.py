"""Maps from the logs of other systems: renames, constants, times, types, filters; and the shipped ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from deadreckon.models.audit import Known, Report, audit
from deadreckon.models.audit.log import Source
from deadreckon.models.audit.mapping import SHIPPED, read_map
from deadreckon.spec import CallerError


def judged(name: str, records: Iterable[object], tmp_path: Path) -> Report:
    """What an audit finds in a log of these objects, by a map."""
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    mapped = read_map(name)
    source = Source(str(log), lambda number, why: pytest.fail(f"line {number}: {why}"), change=mapped.lines)
    try:
        return audit([(name, source.lines())], known=Known(mapped.unwritten, mapped.not_observable))
    finally:
        source.close()


def found(report: Report) -> list[str]:
    """The rules that are violated."""
    assert not report.malformed
    assert not report.not_followed
    return [f"{one.rule} at {one.line}" for one in report.violations]


def fact(at: str, offset: int, type_: str, **payload: object) -> dict[str, object]:
    """A fact of a stream of iterate's."""
    created = f"2026-08-10T{at}Z"
    return {"type": f"events.iterate.com/{type_}", "offset": offset, "createdAt": created, "payload": payload}


def held(decided: dict[str, object], *after: dict[str, object]) -> list[dict[str, object]]:
    """A hold of two requests, what decided it, and what came after."""
    requested = {"requests": [{"method": "GET"}, {"method": "POST"}], "expiresAt": "2026-08-10T10:10:00.000Z"}
    return [fact("10:00:00.000", 7, "project/human-approval-requested", **requested), decided, *after]


def test_iterate_holds(tmp_path: Path) -> None:
    """A batch is the offset of its request; an expiry is a decision by nobody; settled says how."""
    decided = fact(
        "10:03:00.000",
        9,
        "project/human-approval-decided",
        approvalRequestEventOffset=7,
        verdicts=["approve", "reject"],
        decidedBy="ada",
    )
    settled = fact(
        "10:03:01.000", 11, "project/human-approval-settled", approvalRequestEventOffset=7, index=0, status=200
    )
    other = fact("10:03:01.500", 12, "project/approval-presented", approvalRequestEventOffset=7)
    report = judged("iterate", held(decided, settled, other), tmp_path)
    assert (found(report), report.verdicts["conforms"], report.lines) == ([], 1, 3)
    assert "H4" in report.not_observable
    expired = fact(
        "10:10:00.050",
        9,
        "project/human-approval-decided",
        approvalRequestEventOffset=7,
        verdicts=["reject", "reject"],
        decidedBy="expiry",
    )
    assert found(judged("iterate", held(expired), tmp_path)) == []
    late = fact(
        "10:10:01.000",
        9,
        "project/human-approval-decided",
        approvalRequestEventOffset=7,
        verdicts=["approve", "reject"],
        decidedBy="ada",
    )
    assert found(judged("iterate", held(late), tmp_path)) == ["H2 at 2"]


def revived(at: str, offset: int, revivals: int) -> dict[str, object]:
    """A processor was revived."""
    return fact(at, offset, "stream/processor-revived", processorSlug="agent", revivals=revivals, version="v9")


def test_iterate_revivals(tmp_path: Path) -> None:
    """A processor that is revived every ten seconds is in a crash loop; one that climbs the ladder is not."""
    ladder = [revived("10:00:00.000", 1, 1), revived("10:00:10.100", 2, 2), revived("10:01:10.200", 3, 3)]
    assert found(judged("iterate", ladder, tmp_path)) == []
    loop = [revived("10:00:00.000", 1, 1), revived("10:00:10.100", 2, 2), revived("10:00:20.200", 3, 3)]
    assert found(judged("iterate", loop, tmp_path)) == ["K2 at 3"]
    assert found(judged("iterate", [*ladder[:2], revived("10:09:00.000", 3, 1)], tmp_path)) == []  # cleared, unwritten


def event(at_ms: int, type_: str, **payload: object) -> dict[str, object]:
    """An event of the package agents."""
    whose = {"incidentId": "req:msg", "requestId": "req", "attempt": 1, "maxAttempts": 10, "recoveryKind": "retry"}
    return {"type": type_, "agent": "Chat", "name": "room", "payload": {**whose, **payload}, "timestamp": at_ms}


def test_cloudflare_agents(tmp_path: Path) -> None:
    """Attempts that end, an incident that is given up, and one that goes on after that."""
    attempts = [
        event(1, "chat:recovery:detected"),
        event(2, "chat:recovery:attempt"),
        event(3, "chat:recovery:scheduled"),
        event(4, "chat:recovery:attempt", attempt=2),
    ]
    assert found(judged("cloudflare-agents", [*attempts, event(5, "chat:recovery:completed")], tmp_path)) == []
    given_up = [*attempts, event(5, "chat:recovery:exhausted", reason="no_progress_timeout")]
    report = judged("cloudflare-agents", given_up, tmp_path)
    assert (found(report), report.verdicts["conforms"]) == ([], 1)
    after = event(6, "chat:recovery:attempt", attempt=3)
    assert found(judged("cloudflare-agents", [*given_up, after], tmp_path)) == ["C7 at 6"]


def record(at_ms: int, name: str, **fields: object) -> dict[str, object]:
    """A log record of OpenTelemetry."""

    def wrapped(value: object) -> dict[str, object]:
        if isinstance(value, list):
            return {"arrayValue": {"values": [wrapped(one) for one in value]}}
        return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}

    attributes = [{"key": key, "value": wrapped(value)} for key, value in fields.items()]
    return {"timeUnixNano": str(at_ms * 1_000_000), "eventName": name, "attributes": attributes}


def test_opentelemetry(tmp_path: Path) -> None:
    """A line may hold many records; attributes are the fields, whatever their type."""
    records = [
        record(0, "hold.requested", hold="h", deadline_at=60_000, requests=1),
        record(10, "something.else", text="x"),
        record(60_100, "hold.decided", hold="h", verdicts=["approve"], by="ada"),
    ]
    exported = {"resourceLogs": [{"scopeLogs": [{"logRecords": records[:2]}, {"logRecords": records[2:]}]}]}
    report = judged("opentelemetry", [exported], tmp_path)
    assert (found(report), dict(report.unknown)) == (["H2 at 1"], {"something.else": 1})


def test_what_a_map_leaves_out_is_counted(tmp_path: Path) -> None:
    """Records that no entry fits, bare ones among them, are no silent success."""
    named = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "1", "body": "x"}]}]}]}
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, (named, record(0, "bare"), {"resourceLogs": []}))), encoding="utf-8")
    source = Source(str(log), print, change=read_map("opentelemetry").lines)
    assert ([line["type"] for _, line in source.lines()], source.left_out) == (["bare"], 1)
    source.close()


OWN = """
at = { field = "when", unit = "s" }
type = { field = "what.kind", prefix = "my." }
[[line]]
type = "parked"
where = { "what.n" = { present = true }, state = { starts = "op" }, live = true }
to = "hold.requested"
[line.fields]
hold = { template = "{region}/{what.id}" }
deadline_at = { path = "until", unit = "s" }
requests = { path = "what.n", words = { one = 1 } }
[[line]]
type = "end*"
to = "hold.expired"
[line.fields]
hold = { template = "{region}/{what.id}" }
"""


def test_a_map_of_ones_own(tmp_path: Path) -> None:
    """Templates, words, units and conditions; what no entry fits is left out; policies are taken as they are."""
    (tmp_path / "own.toml").write_text(OWN, encoding="utf-8")
    parked: dict[str, object] = {
        "when": 1.5,
        "what": {"kind": "my.parked", "n": "one", "id": 4},
        "state": "open",
        "live": True,
        "until": 3,
        "region": "eu",
    }
    ended: dict[str, object] = {"when": 2, "what": {"kind": "my.ended", "id": 4}, "region": "eu"}
    policy: dict[str, object] = {"type": "policy", "machine": "hold", "release_grace_ms": 0}
    foreign: list[dict[str, object]] = [{"what": {"kind": "your.parked"}}, {**parked, "live": False}, {"no": "type"}]
    lines = [
        line for one in (policy, *foreign, parked, ended) for line in read_map(str(tmp_path / "own.toml")).lines(one)
    ]
    assert lines == [
        policy,
        None,
        None,
        None,
        {"at": 1500, "type": "hold.requested", "hold": "eu/4", "deadline_at": 3000, "requests": 1},
        {"at": 2000, "type": "hold.expired", "hold": "eu/4"},
    ]
    report = judged(str(tmp_path / "own.toml"), [policy, *foreign, parked, ended], tmp_path)
    assert found(report) == ["H9 at 6"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "is no TOML"),
        ("", "has no [[line]]"),
        ("[[line]]\nto = 'x'", "has no type"),
        ("lines = 1\n[[line]]\ntype = 'x'", "has no lines"),
        ("[[line]]\ntype = 'x'\nfields = { a = 1 }", "give a path, or one of path, template ('a/{path}'), constant"),
        *(
            (f"[[line]]\ntype = 'x'\nfields = {{ a = {{ {field} }} }}", says)
            for field, says in (
                ("path = 'b', unit = 'h'", "takes b with {'unit': 'h'}: give one of as = length or text"),
                ("path = 'b', as = 'lenght'", "takes b with {'as': 'lenght'}"),
                ("path = 'b', words = 'x'", "takes b with"),
                ("path = 'b', unit = 's', as = 'text'", "takes b with"),
                ("path = 'b', otherwise = 1", "takes b with"),
                ("constant = 1, path = 'b'", "takes b with {'constant': 1}"),
                ("constant = 1, foo = 1", "give a path, or one of"),
                ("template = 'a/{b'", "give a path, or one of"),
                ("template = 'a', foo = 1", "give a path, or one of"),
            )
        ),
        *(
            (f"[[line]]\ntype = 'x'\nwhere = {{ a = {{ {test} }} }}", "a condition of the map")
            for test in ("stats = 'x'", "present = 'no'", "starts = 1", "present = true, starts = 'x'", "")
        ),
        ("at = { feild = 'at' }\n[[line]]\ntype = 'x'", "at has no feild: one of field, unit"),
        ("at = { field = 3 }\n[[line]]\ntype = 'x'", "field of the map"),
        ("type = { prefx = 'at' }\n[[line]]\ntype = 'x'", "type has no prefx: one of field, prefix"),
        ("[[line]]\ntype = 'x'\nto = 3", "to of the map"),
        ("at = 1\n[[line]]\ntype = 'x'", "give a table"),
        ("unwritten = [1]\n[[line]]\ntype = 'x'", "give a list of texts"),
    ],
)
def test_a_map_that_is_none(text: str, says: str, tmp_path: Path) -> None:
    """What is wrong with a map is said, with what to write instead."""
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    with pytest.raises(CallerError) as refusal:
        read_map(str(tmp_path / "bad.toml"))
    assert says in str(refusal.value)


def test_an_unknown_map_names_the_shipped_ones() -> None:
    """Whoever mistypes the name of a shipped map is told which there are."""
    with pytest.raises(CallerError, match="cloudflare-agents, iterate, opentelemetry"):
        read_map("iterat")
    assert {path.stem for path in SHIPPED.glob("*.toml")} == {"cloudflare-agents", "iterate", "opentelemetry"}
