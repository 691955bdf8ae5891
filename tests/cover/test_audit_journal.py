"""Audits of logs of journals: each rule with a log that keeps it and one that does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deadreckon.models.audit import audit
from deadreckon.models.audit.words import Line

Event = tuple[int, bool] | tuple[int, bool, str] | None
"""An offset, whether it is ephemeral, its key; None: the journal is started again."""

DURABLE, EPHEMERAL = False, True


def lines(events: list[Event]) -> Iterator[tuple[int, Line]]:
    """Numbered lines of the journal s."""
    for number, event in enumerate(events, 1):
        if event is None:
            yield number, {"at": number, "type": "journal.restarted", "journal": "s"}
            continue
        offset, ephemeral, *key = event
        keyed = {"key": key[0]} if key else {}
        line = {"at": number, "type": "journal.appended", "journal": "s", "offset": offset, "ephemeral": ephemeral}
        yield number, {**line, **keyed}


def verdict(events: list[Event]) -> str:
    """``conforms``, or the rule that is violated and the number of the line."""
    report = audit([("log", lines(events))])
    assert not report.malformed
    for violation in report.violations:
        return f"{violation.rule} at {violation.line}"
    assert not report.verdicts["pending"]
    return "conforms"


GOOD: dict[str, list[Event]] = {
    "a sequence": [(1, DURABLE), (2, EPHEMERAL), (3, DURABLE), None, (4, DURABLE)],
    "offsets from 0": [(0, DURABLE), (1, EPHEMERAL), (2, DURABLE)],
    "gaps": [(8, DURABLE), (20, EPHEMERAL), None, (64, DURABLE)],
    "many ephemerals": [(n, EPHEMERAL) for n in range(1, 40)],
    "keys": [(1, DURABLE, "a"), (2, DURABLE, "b"), (3, DURABLE)],
    "J1: ephemerals of the incarnation that is fenced": [
        (1, DURABLE),
        (2, EPHEMERAL),
        None,
        (11, DURABLE),
        (3, EPHEMERAL),
        (12, EPHEMERAL),
        (4, EPHEMERAL),
        (13, DURABLE),
    ],
    "J1: a row of the fenced one that is written late": [
        (1, DURABLE),
        None,
        (3, DURABLE),
        (2, DURABLE, "a"),
        (2, DURABLE, "a"),
    ],
    "J1: two that are fenced": [
        (5, DURABLE),
        None,
        (21, DURABLE),
        None,
        (41, DURABLE),
        (6, EPHEMERAL),
        (22, EPHEMERAL),
        (7, EPHEMERAL),
    ],
    "a repetition is told the old event": [(1, DURABLE, "a"), (2, DURABLE), (1, DURABLE, "a"), (3, DURABLE)],
}

BAD: dict[str, list[Event]] = {
    "J1 at 4: an ephemeral offset is given again": [(8, DURABLE), (9, EPHEMERAL), None, (9, DURABLE)],
    "J1 at 4: an offset that another incarnation gave to an ephemeral": [
        (8, DURABLE),
        (9, EPHEMERAL),
        None,
        (9, EPHEMERAL),
    ],
    "J1 at 5: a fenced one gives what the living one gave": [
        (1, DURABLE),
        None,
        (11, DURABLE),
        (2, EPHEMERAL),
        (11, EPHEMERAL),
    ],
    "J1 at 5: a fenced one gives an offset twice": [(1, DURABLE), None, (11, DURABLE), (3, EPHEMERAL), (3, EPHEMERAL)],
    "J1 at 4: a fenced one goes back": [(2, DURABLE), None, (11, DURABLE), (1, EPHEMERAL)],
    "J3 at 4: a fenced one forgets a key": [(1, DURABLE), None, (11, DURABLE), (2, EPHEMERAL, "a")],
    "J7 at 4: a fenced one gives a key a second row": [(1, DURABLE, "a"), None, (11, DURABLE), (2, DURABLE, "a")],
    "J1 at 2: twice": [(1, DURABLE), (1, DURABLE)],
    "J1 at 3: backwards": [(5, DURABLE), (7, DURABLE), (6, DURABLE)],
    "J3 at 2: a key that a crash forgets": [(1, DURABLE), (2, EPHEMERAL, "a")],
    "J7 at 3: a repetition gets a row of its own": [(1, DURABLE, "a"), (2, DURABLE), (3, DURABLE, "a")],
}


@pytest.mark.parametrize("name", GOOD)
def test_logs_that_keep_the_rules(name: str) -> None:
    """What a run of the machine may have written conforms, also where the log leaves steps out."""
    assert verdict(GOOD[name]) == "conforms"


@pytest.mark.parametrize("name", BAD)
def test_logs_that_break_a_rule(name: str) -> None:
    """What no run of the machine may have written is named: the rule, and the line."""
    assert verdict(BAD[name]) == name.partition(":")[0]


def test_events_are_kept_unless_they_say_otherwise() -> None:
    """Of a journal whose lines know no ephemeral events, all are rows."""
    line = {"type": "journal.appended", "journal": "s"}
    report = audit([("log", [(1, {"at": 1, **line, "offset": 1}), (2, {"at": 2, **line, "offset": 1})])])
    assert not report.malformed
    assert [violation.rule for violation in report.violations] == ["J1"]
