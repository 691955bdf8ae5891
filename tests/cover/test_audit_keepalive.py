"""Audits of logs of hosts: each rule with a log that keeps it and one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deadreckon.models.audit import Report, audit
from deadreckon.models.audit.words import Line


def value(text: str) -> object:
    """A field: a number, a truth value, or a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def lines(text: str) -> Iterator[tuple[int, Line]]:
    """Numbered lines of a log: a time in seconds, a type, then fields; the host is x, the version v1."""
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        at, type_, *fields = line.split()
        given = {name: value(text) for name, _, text in (field.partition("=") for field in fields)}
        if "due" in given:
            given["due_at"] = round(float(str(given.pop("due"))) * 1000)
        version = {"version": "v1"} if type_ in ("revival.started", "plateau.reported") else {}
        yield number, {"at": round(float(at) * 1000), "type": type_, "host": "x", **version, **given}


def judged(text: str) -> Report:
    """What an audit finds, under the default policy."""
    return audit([("log", lines(text))])


def verdict(text: str) -> str:
    """``conforms``, ``pending``, or the rule that is violated and the number of the line."""
    report = judged(text)
    assert not report.malformed
    assert not report.not_followed
    for violation in report.violations:
        return f"{violation.rule} at {violation.line}"
    return "pending" if report.verdicts["pending"] else "conforms"


def story(*parts: str) -> str:
    """A log that begins with work and its alarm."""
    return "\n".join(("0 work.tracked", "0 alarm.armed due=10", *parts))


DIES = "4 host.died asked=false"


def revival(at: float, number: int, due: float, *after: str) -> str:
    """An alarm that is due starts a revival, which arms the next."""
    begun = (f"{at} alarm.fired", f"{at} revival.started n={number}")
    told = (f"{at} plateau.reported",) if number == 3 else ()
    return "\n".join((*begun, *told, f"{at} alarm.armed due={due}", *after))


def failing(at: float, number: int, due: float) -> str:
    """A revival that fails after a second."""
    return revival(at, number, due, f"{at + 1} revival.failed")


def unreported(at: float, number: int, due: float) -> str:
    """A revival that fails, and of which nobody is told."""
    return "\n".join(line for line in failing(at, number, due).splitlines() if "reported" not in line)


LOOP = (failing(10, 1, 20), failing(20, 2, 80), failing(80, 3, 380))
LADDER = (
    DIES,
    *LOOP,
    failing(380, 4, 2180),
    failing(2180, 5, 23780),
)
CLEAN = ("4 work.settled ok=true", "10 alarm.fired", "10 count.cleared by=quiet-clean")
END = "99999 log.ended"

GOOD = {
    "a turn": story(*CLEAN, END),
    "a long turn": story(
        "10 alarm.fired",
        "10 alarm.armed due=20",
        "14 work.settled ok=true",
        "20 alarm.fired",
        "20 count.cleared by=quiet-clean",
        END,
    ),
    "two turns": story(
        *CLEAN,
        "50 work.tracked",
        "50 alarm.armed due=60",
        "51 work.settled ok=true",
        "60 alarm.fired",
        "60 count.cleared by=quiet-clean",
        END,
    ),
    "four works at once": story(
        "1 work.tracked",
        "2 work.tracked",
        "3 work.tracked",
        "4 work.settled ok=true",
        "4 work.settled ok=true",
        "4 work.settled ok=true",
        *CLEAN,
        END,
    ),
    "the ladder": story(*LADDER),
    "the plateau stays": story(*LADDER, failing(23780, 6, 45380), failing(45380, 7, 66980)),
    "a revival that heals": story(
        DIES,
        revival(
            10,
            1,
            20,
            "11 revival.succeeded",
            "12 work.settled ok=true",
            "20 alarm.fired",
            "20 count.cleared by=quiet-clean",
        ),
        END,
    ),
    "a revival that heals, its turn tracked": story(
        DIES,
        revival(
            10,
            1,
            20,
            "11 revival.succeeded",
            "11 work.tracked",
            "12 work.settled ok=true",
            "20 alarm.fired",
            "20 count.cleared by=quiet-clean",
        ),
        END,
    ),
    "the early look disarms": story(
        DIES,
        failing(10, 1, 20),
        revival(20, 2, 80, "21 revival.succeeded", "22 work.settled ok=true", "31 count.cleared by=quiet-clean"),
        END,
    ),
    "alarms that nobody logs": "\n".join(
        (
            "0 work.tracked",
            DIES,
            "10 revival.started n=1",
            "11 revival.failed",
            "20 revival.started n=2",
            "21 revival.failed",
            "80 revival.started n=3",
        )
    ),
    "a death that nobody saw": story(revival(10, 1, 20, "11 revival.succeeded")),
    "nobody logs what people are told": "\n".join(
        line for line in story(*LADDER, failing(23780, 6, 45380)).splitlines() if "reported" not in line
    ),
    "told before the revival has its line": story(
        DIES, *LOOP[:2], "80 alarm.fired", "80 plateau.reported", "80 revival.started n=3", "80 alarm.armed due=380"
    ),
    "the alarm of a revival has its line first": story(
        DIES, "10 alarm.fired", "10 alarm.armed due=20", "10 revival.started n=1", "11 revival.failed"
    ),
    "another alarm after a revival that armed none in the log": story(
        DIES, "10 alarm.fired", "10 revival.started n=1", "11 revival.succeeded", "12 alarm.armed due=19"
    ),
    "three works, taken up by one turn": "\n".join(
        (
            "0 work.tracked\n0 work.tracked",
            story(DIES, revival(10, 1, 20, "11 revival.succeeded", "12 work.settled ok=true")),
            "20 alarm.fired",
            "20 count.cleared by=quiet-clean",
        )
    ),
    "a reset by hand": story(
        *LADDER, "5780 count.cleared by=hand", "5780 alarm.armed due=5790", failing(5790, 1, 5800)
    ),
    "a reset by hand that does not delay": story(
        DIES, failing(10, 1, 20), "15 count.cleared by=hand", "15 alarm.armed due=20", failing(20, 1, 30)
    ),
    "a deploy": story(DIES, failing(10, 1, 20), "15 count.cleared by=deploy", failing(20, 1, 30)),
    "a stop that was asked for": story("4 host.died asked=true", END),
    "an alarm of somebody else": story("5 alarm.fired", *CLEAN, END),
    "a late alarm": story(DIES, revival(4000, 1, 4010, "4011 revival.failed")),
    "a log that begins in the middle": failing(380, 4, 2180),
}

BAD = {
    "K1 at 5: a number is skipped": story(DIES, "10 alarm.fired", "10 revival.started n=2"),
    "K1 at 7: it acts before the next is armed": story(
        DIES, "10 alarm.fired", "10 revival.started n=1", "11 revival.succeeded", "12 alarm.armed due=20"
    ),
    "K2 at 15: new work pulls the alarm in": story(
        DIES, *LOOP[:2], "22 work.tracked", "22 alarm.armed due=32", "32 alarm.fired", "32 revival.started n=3"
    ),
    "K2 at 13: a millisecond early": story(DIES, *LOOP[:2], "79.999 alarm.fired", "79.999 revival.started n=3"),
    "K3 at 9: one of two settles, after a death": "\n".join(
        (
            "0 work.tracked",
            story(DIES, "10 alarm.fired", "10 revival.started n=1", "12 work.settled ok=true"),
            "20 alarm.fired",
            "20 count.cleared by=quiet-clean",
        )
    ),
    "K3 at 6: one of two settles": "\n".join(("0 work.tracked", story(*CLEAN))),
    "K3 at 9: the count falls, and no line says why": story(
        DIES, failing(10, 1, 20), "20 alarm.fired", "20 revival.started n=1"
    ),
    "K2 at 15: a crash loop": story(
        DIES,
        *(
            revival(10 * n, n, 10 * n + 10, f"{10 * n + 1} revival.succeeded", f"{10 * n + 2} host.died asked=false")
            for n in (1, 2, 3)
        ),
    ),
    "K2 at 10: too soon, with no alarm logged": story(
        DIES, failing(10, 1, 20), "12 host.died asked=false", "13 work.tracked", "14 revival.started n=2"
    ),
    "K3 at 8: cleared by a probe": story(DIES, revival(10, 1, 20, "11 revival.succeeded"), "12 count.cleared by=probe"),
    "K3 at 9: cleared while work is in flight": story(
        DIES, revival(10, 1, 20, "11 revival.succeeded", "20 alarm.fired", "20 count.cleared by=quiet-clean")
    ),
    "K4 at 27: the plateau grows": story(*LADDER, failing(23780, 6, 66980)),
    "K4 at 27: the plateau is cut short": story(*LADDER, failing(23780, 6, 23790)),
    "K5 at 10: the count dies with the host": story(
        DIES, failing(10, 1, 20), "12 host.died asked=false", "20 alarm.fired", "20 revival.started n=1"
    ),
    "K6 at 9: a reset delays": story(DIES, failing(10, 1, 20), "15 count.cleared by=hand", "15 alarm.armed due=25"),
    "K6 at 26: a reset delays, while work runs": story(
        *LADDER, "5780 count.cleared by=hand", "5780 alarm.armed due=27380"
    ),
    "K8 at 5: an alarm that is not due": story(DIES, "5 alarm.fired", "5 revival.started n=1"),
    "K3 at 10: the count falls after a success, and the host dies": story(
        DIES,
        revival(10, 1, 20, "11 revival.succeeded"),
        "13 host.died asked=false",
        "20 alarm.fired",
        "20 revival.started n=1",
    ),
    "K4 at 26: a look at the plateau arms another distance": story(
        *LADDER, "23780 alarm.fired", "23780 alarm.armed due=99999"
    ),
    "K11 at 25: nobody comes to the plateau": story(*LADDER, "9999999 log.ended"),
    "K9 at 30: nobody was told of the second loop": story(
        DIES,
        *LOOP,
        "90 count.cleared by=hand",
        "90 alarm.armed due=100",
        failing(100, 1, 110),
        failing(110, 2, 170),
        unreported(170, 3, 470),
    ),
    "K9 at 15: told at the fourth only": story(DIES, *LOOP[:2], unreported(80, 3, 380), "380 plateau.reported"),
    "K9 at 6: told too early": story(DIES, "10 alarm.fired", "10 revival.started n=1", "10 plateau.reported"),
    "K9 at 17: told twice": story(
        DIES, failing(10, 1, 20), failing(20, 2, 80), failing(80, 3, 380), "90 plateau.reported"
    ),
    "K10 at 4: new work moves the alarm": story("5 work.tracked", "5 alarm.armed due=15"),
    "K10 at 2: armed too late": "0 work.tracked\n0 alarm.armed due=60",
    "K10 at 4: disarmed while work is in flight": story("10 alarm.fired", "10 count.cleared by=quiet-clean"),
    "K11 at 4: nobody comes": story(DIES, END),
    "K12 at 3: never at rest": story(END),
}


@pytest.mark.parametrize("name", GOOD)
def test_logs_that_keep_the_rules(name: str) -> None:
    """What a run of the machine may have written conforms, also where the log leaves steps out."""
    assert verdict(GOOD[name]) in ("conforms", "pending")


@pytest.mark.parametrize("name", BAD)
def test_logs_that_break_a_rule(name: str) -> None:
    """What no run of the machine may have written is named: the rule, and the line."""
    assert verdict(BAD[name]) == name.partition(":")[0]


def test_k12_is_owed_only_by_a_log_that_ended() -> None:
    """After the last fault the count returns to zero: a log that goes on doesn't show that a fault was the last."""
    climbs = story(DIES, revival(10, 1, 20, "11 revival.failed"))
    assert verdict(climbs) == "conforms"
    assert verdict(f"{climbs}\n15 log.ended").startswith("K12 at")


def test_k11_is_pending_while_a_dead_host_waits() -> None:
    """A host that died with work owed is revived again: until the log shows that, it is pending."""
    assert verdict(story(DIES)) == "pending"
