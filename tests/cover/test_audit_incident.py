"""Audits of logs of incidents: each rule with a log that keeps it and one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deadreckon.models.audit import Report, audit
from deadreckon.models.audit.words import Line

DEAD = "turn.started incarnation=k0\nincarnation.died incarnation=k0"
"""The original turn dies."""


def lines(text: str) -> Iterator[tuple[int, Line]]:
    """Numbered lines of a log: a type, then fields; the incident is i, times don't matter."""
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        type_, *fields = line.split()
        given = dict(field.split("=") for field in fields)
        values = {name: json.loads(value) if value.isdigit() else value for name, value in given.items()}
        yield number, {"at": 0, "type": type_, "incident": "i", **values}


def judged(text: str) -> Report:
    """What an audit finds; the limit is 3."""
    policy = {"type": "policy", "machine": "incident", "max_interrupted_attempts": 3}
    return audit([("log", [(0, policy), *lines(text)])])


def verdict(text: str) -> str:
    """``conforms``, ``pending``, or the rule that is violated and the number of the line."""
    report = judged(text)
    assert not report.malformed
    assert not report.not_followed
    for violation in report.violations:
        return f"{violation.rule} at {violation.line}"
    return "pending" if report.verdicts["pending"] else "conforms"


def run(attempt: str, incarnation: str, count: int, kind: str = "replay") -> str:
    """An attempt is admitted and works."""
    return (
        f"attempt.admitted attempt={attempt} incarnation={incarnation} kind={kind} count={count}\n"
        f"work.started attempt={attempt} incarnation={incarnation}"
    )


def dies(incarnation: str) -> str:
    """An incarnation dies."""
    return f"incarnation.died incarnation={incarnation}"


def story(*parts: str) -> str:
    """A log of these parts, after the death of the original turn."""
    return "\n".join((DEAD, *parts))


AT_THE_LIMIT = story(run("a", "k1", 1), dies("k1"), run("b", "k2", 2), dies("k2"))
SEALED = "terminal.delivered\nincident.sealed reason=interrupted_attempts_exceeded count=3"

GOOD = {
    "the seal, where refusals are not logged": "\n".join(
        (AT_THE_LIMIT, "incarnation.died incarnation=k3", SEALED, "log.ended")
    ),
    "a reason of the service's own": story(
        run("a", "k1", 1),
        "attempt.finished attempt=a incarnation=k1",
        "attempt.refused incarnation=k1 count=1",
        "terminal.delivered\nincident.sealed reason=stable_timeout count=1",
        "log.ended",
    ),
    "the original turn asks a person": (
        "turn.started incarnation=k0\nincident.parked\nincident.unparked\n"
        "attempt.finished attempt=t incarnation=k0\nincident.closed\nlog.ended"
    ),
    "it dies while it asks": "\n".join(
        ("turn.started incarnation=k0\nincident.parked", dies("k0"), "incident.unparked", run("a", "k1", 1))
    ),
    "a callback is the first to recover": story(run("cb", "k1", 1, "callback")),
    "the dead are refused": story(
        run("a", "k1", 1), dies("k1"), "attempt.refused incarnation=k1 count=1", run("b", "k2", 2)
    ),
    "a healthy turn is swept": (
        "turn.started incarnation=k0\nattempt.finished attempt=t incarnation=k0\nincident.closed\nrecord.swept\nlog.ended"
    ),
    "a callback beside the original turn, which dies later": "\n".join(
        (
            "turn.started incarnation=k0",
            run("cb", "k0", 0, "callback"),
            "attempt.finished attempt=cb incarnation=k0",
            dies("k0"),
            run("a", "k1", 1),
        )
    ),
    "a callback beside the original turn, which ends after it": "\n".join(
        (
            "turn.started incarnation=k0",
            run("cb", "k0", 0, "callback"),
            "attempt.finished attempt=cb incarnation=k0",
            "attempt.finished attempt=t incarnation=k0",
            "incident.closed",
            "log.ended",
        )
    ),
    "the person answers after the end": story(
        run("a", "k1", 1),
        "incident.parked",
        "attempt.finished attempt=a incarnation=k1",
        "incident.unparked",
        "incident.closed",
        "log.ended",
    ),
    "at the limit, for a soft reason": "\n".join(
        (
            AT_THE_LIMIT,
            "attempt.refused incarnation=k3 count=3",
            "terminal.delivered",
            "incident.sealed reason=no_progress count=3",
        )
    ),
    "a turn that finishes leaves no incident": "turn.started incarnation=k0",
    "a replay that finishes": story(
        run("a", "k1", 1), "attempt.finished attempt=a incarnation=k1", "incident.closed", "log.ended"
    ),
    "the seal": "\n".join((AT_THE_LIMIT, "attempt.refused incarnation=k3 count=3", SEALED, "log.ended")),
    "the terminal fact is told twice": "\n".join(
        (
            AT_THE_LIMIT,
            "attempt.refused incarnation=k3 count=3",
            "terminal.delivered",
            dies("k3"),
            "attempt.refused incarnation=k4 count=3",
            SEALED,
            "log.ended",
        )
    ),
    "refusals after the seal": "\n".join(
        (AT_THE_LIMIT, "attempt.refused incarnation=k3 count=3", SEALED, "attempt.refused incarnation=k4 count=3")
    ),
    "a soft budget": story(
        run("a", "k1", 1),
        "attempt.finished attempt=a incarnation=k1",
        "attempt.refused incarnation=k1 count=1",
        "terminal.delivered\nincident.sealed reason=no_progress count=1",
        "log.ended",
    ),
    "deaths while parked take effect after": story(
        run("a", "k1", 1),
        "incident.parked",
        dies("k1"),
        run("b", "k2", 2),
        dies("k2"),
        run("c", "k3", 3),
        "incident.unparked",
        dies("k3"),
        "attempt.refused incarnation=k4 count=4",
        "terminal.delivered\nincident.sealed reason=interrupted_attempts_exceeded count=4",
        "log.ended",
    ),
    "an incarnation whose death nobody logged": story(
        run("a", "k1", 1), run("b", "k2", 2), "attempt.finished attempt=b incarnation=k2", "incident.closed"
    ),
    "the original turn hands over to a callback": "\n".join(
        (
            "turn.started incarnation=k0",
            run("cb", "k0", 0, "callback"),
            "attempt.finished attempt=cb incarnation=k0",
            "incident.closed",
            "log.ended",
        )
    ),
    "a log that begins in the middle": "\n".join(
        (run("a", "k7", 2), "attempt.finished attempt=a incarnation=k7", "incident.closed", "log.ended")
    ),
    "a record is swept and gone": story(
        run("a", "k1", 1), "attempt.finished attempt=a incarnation=k1", "incident.closed", "record.swept"
    ),
}

BAD = {
    "C1 at 3: the death of the original turn is not counted": story(run("a", "k1", 0)),
    "C1 at 3: the original turn is left behind, and not counted": "\n".join(
        ("turn.started incarnation=k0", "work.started attempt=t incarnation=k0", run("a", "k1", 0))
    ),
    "C1 at 9: a refusal counts too few": "\n".join((AT_THE_LIMIT, "attempt.refused incarnation=k3 count=2")),
    "C5 at 9: a refusal counts fewer than before": "\n".join((AT_THE_LIMIT, "attempt.refused incarnation=k3 count=1")),
    "C7 at 13: an admission after the seal counts on": "\n".join(
        (AT_THE_LIMIT, "attempt.refused incarnation=k3 count=3", SEALED, dies("k3"), run("c", "k4", 4))
    ),
    "C7 at 6: the end is told beside work": story(
        run("a", "k1", 1), "attempt.refused incarnation=k1 count=1", "terminal.delivered"
    ),
    "C8 at 10: told and sealed while parked": "\n".join((AT_THE_LIMIT, "incident.parked", SEALED)),
    "C1 at 5: a death is not counted": story(run("a", "k1", 1), run("b", "k2", 1)),
    "C2 at 6: an incarnation with two entries counts twice": story(
        run("a", "k1", 1), "attempt.admitted attempt=b incarnation=k1 kind=callback count=1", run("c", "k2", 3)
    ),
    "C2 at 7: what ended was counted": story(
        run("a", "k1", 1), "attempt.finished attempt=a incarnation=k1", dies("k1"), run("b", "k2", 2)
    ),
    "C2 at 5: a live attempt was counted": story(run("a", "k1", 1), run("b", "k1", 2)),
    "C3 at 3: work without an entry": story("work.started attempt=a incarnation=k1"),
    "C4 at 9: one run too many": "\n".join((AT_THE_LIMIT, run("c", "k3", 3))),
    "C4 at 8: sealed too early": story(
        run("a", "k1", 1),
        dies("k1"),
        "attempt.refused incarnation=k2 count=2",
        "terminal.delivered",
        "incident.sealed reason=interrupted_attempts_exceeded count=2",
    ),
    "C5 at 8: the count falls": story(run("a", "k1", 1), dies("k1"), run("b", "k2", 2), run("c", "k3", 1)),
    "C5 at 6: the sweep takes a live record": story(run("a", "k1", 1), dies("k1"), "record.swept"),
    "C7 at 12: work after the seal": "\n".join(
        (AT_THE_LIMIT, "attempt.refused incarnation=k3 count=3", SEALED, run("c", "k3", 3))
    ),
    "C8 at 6: a verdict while parked": story(
        run("a", "k1", 1), "incident.parked", "attempt.refused incarnation=k1 count=1"
    ),
    "C8 at 10: sealed while parked": story(
        run("a", "k1", 1),
        dies("k1"),
        run("b", "k2", 2),
        "incident.parked",
        dies("k2"),
        "incident.sealed reason=interrupted_attempts_exceeded count=3",
    ),
    "C9 at 10: sealed before the terminal fact": "\n".join(
        (
            AT_THE_LIMIT,
            "attempt.refused incarnation=k3 count=3",
            "incident.sealed reason=interrupted_attempts_exceeded count=3",
        )
    ),
    "C9 at 10: never told": "\n".join((AT_THE_LIMIT, "attempt.refused incarnation=k3 count=3", "log.ended")),
    "C10 at 8: a callback without a record": story(
        run("a", "k1", 1),
        "attempt.finished attempt=a incarnation=k1",
        "incident.closed",
        "record.swept",
        run("cb", "k1", 0, "callback"),
    ),
    "C12 at 5: an open incident is left": story(run("a", "k1", 1), "log.ended"),
    "C13 at 6: the dead go on": story(run("a", "k1", 1), dies("k1"), run("b", "k1", 1)),
}


@pytest.mark.parametrize("name", GOOD)
def test_logs_that_keep_the_rules(name: str) -> None:
    """What a run of the machine may have written conforms, also where the log leaves steps out."""
    assert verdict(GOOD[name]) in ("conforms", "pending")


@pytest.mark.parametrize("name", BAD)
def test_logs_that_break_a_rule(name: str) -> None:
    """What no run of the machine may have written is named: the rule, and the line."""
    assert verdict(BAD[name]) == name.partition(":")[0]


@pytest.mark.parametrize(
    ("policy", "violates"),
    [
        ({"max_oom_retries": 1.5}, True),
        ({"max_oom_retries": 2}, False),
        ({"max_oom_retries": 0, "max_interrupted_attempts": 3}, False),
        ({"max_oom_retries": None, "max_interrupted_attempts": "unlimited"}, False),
        ({"max_interrupted_attempts": float("inf")}, False),
    ],
)
def test_policy_of_a_log(policy: dict[str, object], violates: bool) -> None:
    """The deprecated name of the limit counts the runs after the first; an explicit limit wins, and may be none."""
    first = {"type": "policy", "machine": "incident", **policy}
    text = story(run("a", "k1", 1), dies("k1"), run("b", "k2", 2))
    report = audit([("log", [(0, first), *lines(text)])])
    assert not report.malformed
    assert [violation.rule for violation in report.violations] == (["C4"] if violates else [])


@pytest.mark.parametrize("retries", ["many", -1, float("nan")])
def test_policy_that_is_none(retries: object) -> None:
    """A value that is no number of runs is told, and the default stays."""
    first = {"type": "policy", "machine": "incident", "max_oom_retries": retries}
    report = audit([("log", [(0, first), *lines(DEAD)])])
    assert ["max_oom_retries is" in why for *_, why in report.malformed] == [True]
