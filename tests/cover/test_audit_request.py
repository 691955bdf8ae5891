"""Audits of logs of requests: each rule with a log that keeps it and one that does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deadreckon.models.audit import audit
from deadreckon.models.audit.words import Line


def lines(text: str) -> Iterator[tuple[int, Line]]:
    """Numbered lines of a log: a time, a type, then fields; the request is r."""
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        at, type_, *fields = line.split()
        given = dict(field.split("=") for field in fields)
        values = {name: int(value) if value.isdigit() else value for name, value in given.items()}
        yield number, {"at": int(at), "type": type_, "request": "r", **values}


def verdict(text: str) -> str:
    """``conforms``, ``pending``, or the rule that is violated and the number of the line."""
    report = audit([("log", lines(text))])
    assert not report.malformed
    assert not report.not_followed
    for violation in report.violations:
        return f"{violation.rule} at {violation.line}"
    return "pending" if report.verdicts["pending"] else "conforms"


def story(*parts: str) -> str:
    """A log that begins with a request, and its first attempt."""
    return "\n".join(("0 request.opened expires_at=600000", "1000 request.dialled incarnation=k0", *parts))


END = "9000000 log.ended"
DIES = "5000 incarnation.died incarnation=k0"

GOOD = {
    "an answer": story("3000 request.settled outcome=succeeded", END),
    "an adoption": story(DIES, "6000 request.dialled incarnation=k1", "7000 request.settled outcome=succeeded", END),
    "a retry that keeps its distance": story(
        "11000 request.dialled incarnation=k0",
        "31000 request.dialled incarnation=k0",
        "32000 request.settled outcome=failed",
        END,
    ),
    "the timer, a little late": story("600040 request.settled outcome=expired", END),
    "the timer of a dead incarnation": story(DIES, "5000000 request.settled outcome=expired", END),
    "no time for an attempt": story(DIES, "570000 request.settled outcome=expired", END),
    "the last attempt died": story(
        DIES,
        "6000 request.dialled incarnation=k1",
        "7000 incarnation.died incarnation=k1",
        "8000 request.dialled incarnation=k2",
        "9000 incarnation.died incarnation=k2",
        "10000 request.settled outcome=failed",
        END,
    ),
    "a retry that keeps none": story(
        "3000 request.dialled incarnation=k0", "8000 request.settled outcome=succeeded", END
    ),
    "an error that no retry mends": story("2000 request.settled outcome=failed", END),
    "asked for twice": story("1001 request.opened expires_at=600000", "3000 request.settled outcome=succeeded", END),
    "under way": story(),
}

BAD = {
    "Q1 at 4: a doomed attempt": story(DIES, "591000 request.dialled incarnation=k1"),
    "Q1 at 4: an attempt at the floor": story(DIES, "570000 request.dialled incarnation=k1"),
    "Q2 at 4: settled twice": story("3000 request.settled outcome=succeeded", "600000 request.settled outcome=expired"),
    "Q2 at 4: settled twice alike": story(
        "3000 request.settled outcome=succeeded", "3001 request.settled outcome=succeeded"
    ),
    "Q3 at 3: a live attempt is stopped early": story("560000 request.settled outcome=expired"),
    "Q5 at 3: a timer that is hours late": story("9000000 request.settled outcome=expired"),
    "Q4 at 3: another horizon": story("2000 request.opened expires_at=700000"),
    "Q4 at 1: a horizon that is too long": "0 request.opened expires_at=600001",
    "Q5 at 3: never settled": story(END),
    "Q3 at 4: expired though there was time": story(DIES, "6000 request.settled outcome=expired"),
    "Q2 at 4: a dial after the end": story(
        "3000 request.settled outcome=succeeded", "4000 request.dialled incarnation=k0"
    ),
    "Q1 at 3: a dial after the horizon": story("600001 request.dialled incarnation=k0"),
    "Q3 at 2: expired at once": "0 request.opened expires_at=600000\n1000 request.settled outcome=expired",
    "Q5 at 2: never touched": "0 request.opened expires_at=600000\n700000 log.ended",
    "R2 at 5: once too often": story(
        "11000 request.dialled incarnation=k0",
        "31000 request.dialled incarnation=k0",
        "91000 request.dialled incarnation=k0",
    ),
    "Q7 at 4: failed too early, without a reason": story(DIES, "6000 request.settled outcome=failed"),
    "Q2 at 4: the dead go on": story(DIES, "6000 request.dialled incarnation=k0"),
}


@pytest.mark.parametrize("name", GOOD)
def test_logs_that_keep_the_rules(name: str) -> None:
    """What a run of the machine may have written conforms, also where the log leaves steps out."""
    assert verdict(GOOD[name]) == ("conforms" if "log.ended" in GOOD[name] else "pending")


@pytest.mark.parametrize("name", BAD)
def test_logs_that_break_a_rule(name: str) -> None:
    """What no run of the machine may have written is named: the rule, and the line."""
    assert verdict(BAD[name]) == name.partition(":")[0]
