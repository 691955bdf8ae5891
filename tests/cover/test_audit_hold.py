"""Audits of logs of holds: each rule with a log that keeps it and one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from deadreckon.models.audit import Report, audit
from deadreckon.models.audit.words import Line


def value(text: str) -> object:
    """A field: a number, a list, a truth value, or a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text.split("/") if "/" in text else text


def lines(text: str) -> Iterator[tuple[int, Line]]:
    """Numbered lines of a log: a time, a type, then fields; the hold is h."""
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        at, type_, *fields = line.split()
        given = {name: value(text) for name, _, text in (field.partition("=") for field in fields)}
        yield number, {"at": int(at), "type": type_, "hold": "h", **given}


def judged(text: str) -> Report:
    """What an audit finds, under the default policy."""
    return audit([("log", [(0, {"type": "policy", "machine": "hold"}), *lines(text)])])


def verdict(text: str) -> str:
    """``conforms``, ``pending``, or the rule that is violated and the number of the line."""
    report = judged(text)
    assert not report.malformed
    assert not report.not_followed
    for violation in report.violations:
        return f"{violation.rule} at {violation.line}"
    return "pending" if report.verdicts["pending"] else "conforms"


def story(*parts: str, requests: int = 1, deadline_at: int = 60_000) -> str:
    """A log that begins with a hold."""
    return "\n".join((f"0 hold.requested deadline_at={deadline_at} requests={requests}", *parts))


APPROVED = '3000 hold.decided verdicts=["approve"] by=human'
REJECTED = '3000 hold.decided verdicts=["reject"] by=human'
REFUSED = "3100 caller.told index=0 outcome=refused"
STARTED = "3100 release.started index=0"
CALLED = "3200 effect.called index=0"
SETTLED = "3300 release.settled index=0 outcome=ok"
TOLD = "3400 caller.told index=0 outcome=ok"
DONE = (APPROVED, STARTED, CALLED, SETTLED, TOLD)
GONE_ELSEWHERE = "50 caller.gone hold=another"
AWAY = ("1000 wait.failed error=availability",)
END = "9000000 log.ended"

GOOD = {
    "a release whose call is in no line": story(
        APPROVED, STARTED, "3400 release.settled index=0 outcome=ok", "3401 caller.told index=0 outcome=ok", END
    ),
    "a door that boots gives up what its caller left": story(
        "3000 door.died", "4000 door.booted", "4001 hold.abandoned", END
    ),
    "a call that is told when it is over, hours after a start in time": story(
        '59000 hold.decided verdicts=["approve"] by=human',
        "90000 release.started index=0",
        "8000000 effect.called index=0",
        "8000001 release.settled index=0 outcome=ok",
        "8000002 caller.told index=0 outcome=ok",
        END,
    ),
    "two calls after the grace, both started in it": story(
        '59000 hold.decided verdicts=["approve","approve"] by=human',
        "89990 release.started index=0",
        "89995 release.started index=1",
        "90001 effect.called index=0",
        "90002 release.settled index=0 outcome=error",
        "90003 effect.called index=1",
        "90004 release.settled index=1 outcome=ok",
        END,
        requests=2,
    ),
    "a failure that is none of availability ends the wait": story(
        "1 wait.armed cursor=10",
        "500 wait.failed error=other",
        "501 caller.told index=0 outcome=error",
        "502 hold.abandoned",
        END,
    ),
    "a failure that is none of availability ends the hold": "0 door.booted\n"
    + story("1 wait.armed cursor=10", "500 wait.failed error=other", GONE_ELSEWHERE, "501 hold.abandoned", END),
    "a caller that comes back when its hold was given up": story(
        "100 caller.gone", "5000 hold.abandoned", "5001 caller.told index=0 outcome=abandoned", END
    ),
    "a caller that is gone in a log that never says so": f"0 door.booted\n{story('5000 hold.abandoned', END)}",
    "a door that gives up what its predecessor left, in a log that tells of no door": story(
        GONE_ELSEWHERE, "5000 hold.abandoned", END
    ),
    "a person rejects while the journal comes back": story(
        "1 wait.armed cursor=10",
        *AWAY,
        '1001 hold.decided verdicts=["reject"] by=ada',
        "1201 caller.told index=0 outcome=refused",
        END,
    ),
    "a release": story(*DONE, END),
    "a refusal": story(
        '3000 hold.decided verdicts=["reject"] by=human', "3100 caller.told index=0 outcome=refused", END
    ),
    "an expiry, hours late": story("8000000 hold.expired", "8000001 caller.told index=0 outcome=expired", END),
    "a caller that is gone": story("100 caller.gone", "5000 hold.abandoned", END),
    "a caller that is gone after the approval": story(
        APPROVED, "3050 caller.gone", "3060 release.settled index=0 outcome=lapsed", END
    ),
    "an approval at the deadline, released within the grace": story(
        '60000 hold.decided verdicts=["approve"] by=human',
        "89000 release.started index=0",
        "90000 effect.called index=0",
        "190000 release.settled index=0 outcome=error",
        "190001 caller.told index=0 outcome=error",
        END,
    ),
    "an approval that lapses while the door is dead": story(
        APPROVED, "3001 door.died", "5000000 door.booted", "5000001 release.settled index=0 outcome=lapsed", END
    ),
    "a release in doubt": story(
        APPROVED,
        STARTED,
        CALLED,
        "3250 door.died",
        "4000 door.booted",
        "4100 release.settled index=0 outcome=unknown",
        "4200 caller.told index=0 outcome=in-doubt",
        END,
    ),
    "a late decision that is refused": story(
        "60500 hold.expired", '61000 hold.decided verdicts=["approve"] by=human accepted=false', END
    ),
    "a decision that is told twice": story(*DONE, "4000 caller.told index=0 outcome=ok", END),
    "outages that keep their distance": story(
        "1 wait.armed cursor=10",
        "1000 wait.failed error=availability",
        "1200 wait.armed cursor=10",
        "1210 wait.failed error=availability",
        "1610 wait.armed cursor=10",
        *DONE,
        END,
    ),
    "an answer between two outages, told by the next wait": story(
        "1 wait.armed cursor=10",
        *AWAY,
        "1200 wait.armed cursor=10",
        "1300 wait.armed cursor=11",
        "1400 wait.failed error=availability",
        "1600 wait.armed cursor=11",
        *DONE,
        END,
    ),
    "a slice between two outages, told by nothing but its length": story(
        "1 wait.armed cursor=10",
        *AWAY,
        "26000 wait.failed error=availability",
        "26200 wait.armed cursor=10",
        "60000 hold.expired",
        END,
    ),
    "a decision that is ignored between two outages": story(
        "1 wait.armed cursor=10",
        *AWAY,
        "1250 hold.decided verdicts=[] by=ada accepted=false",
        "1300 wait.failed error=availability",
        "1500 wait.armed cursor=10",
        *DONE,
        END,
    ),
    "outages in a log that tells of no wait": story(
        *AWAY, *(f"{at} wait.failed error=availability" for at in (1200, 1400, 1600)), *DONE, END
    ),
    "an outage whose retries are not logged": story(
        "1 wait.armed cursor=10", "1000 wait.failed error=availability", *DONE, END
    ),
    "three requests, each with its own end": story(
        '3000 hold.decided verdicts=["approve","reject","approve"] by=human',
        "3100 release.started index=2",
        "3101 release.started index=0",
        "3110 effect.called index=2",
        "3111 effect.called index=0",
        "3120 release.settled index=2 outcome=error",
        "3121 release.settled index=0 outcome=ok",
        "3130 caller.told index=1 outcome=refused",
        END,
        requests=3,
    ),
    "a system that does not write starts ahead": story(APPROVED, CALLED, SETTLED, TOLD, END),
    "a request that is sent again": story("10 hold.requested deadline_at=60000 requests=1", *DONE, END),
    "nothing has come yet": story("1 wait.armed cursor=10"),
}

BAD = {
    "H1 at 2: an effect without an approval": story(CALLED),
    "H1 at 3: the effect of what was rejected": story('3000 hold.decided verdicts=["reject"] by=human', STARTED),
    "H2 at 2: a decision after the deadline": story('60001 hold.decided verdicts=["approve"] by=human', STARTED),
    "H2 at 5: a release after the grace": story(
        APPROVED, "3001 door.died", "90001 door.booted", "90002 release.started index=0"
    ),
    "H2 at 3: a wait past the deadline": story("1 wait.armed cursor=10", "60001 wait.armed cursor=10"),
    "H3 at 5: the effect runs again": story(APPROVED, STARTED, CALLED, "9000 effect.called index=0"),
    "H3 at 7: the effect runs again after a crash": story(
        APPROVED, STARTED, CALLED, "3250 door.died", "4000 door.booted", "4100 effect.called index=0"
    ),
    "H4 at 3: the effect before its mark": story(APPROVED, CALLED, "3300 release.started index=0"),
    "H5 at 5: success without its fact": story(APPROVED, STARTED, CALLED, TOLD),
    "H5 at 2: expired before the fact": story("61000 caller.told index=0 outcome=expired"),
    "H6 at 3: a second decision": story(APPROVED, '3050 hold.decided verdicts=["reject"] by=another'),
    "H2 at 3: an approval after the expiry": story(
        "60001 hold.expired", '60002 hold.decided verdicts=["approve"] by=x'
    ),
    "H6 at 3: an expiry over a decision": story('59999 hold.decided verdicts=["approve"] by=x', "60001 hold.expired"),
    "H8 at 4: armed again from the head": story(
        "1 wait.armed cursor=10", "1000 wait.failed error=availability", "1200 wait.armed cursor=12"
    ),
    "H8 at 3: a fact is judged twice": story("1 wait.armed cursor=10", "25001 wait.armed cursor=9"),
    "H9 at 4: an outage ends the hold": story(
        "1 wait.armed cursor=10", "5000 wait.failed error=availability", "5001 caller.told index=0 outcome=error"
    ),
    "H9 at 2: expired early": story("59999 hold.expired"),
    "H9 at 4: abandoned though the caller is there": f"0 door.booted\n{story(GONE_ELSEWHERE, '5000 hold.abandoned')}",
    "H9 at 4: an outage gives the hold up": story("1 wait.armed cursor=10", *AWAY, "1001 hold.abandoned"),
    "H9 at 4: an outage is taken for a rejection": story(
        "1 wait.armed cursor=10", *AWAY, '1001 hold.decided verdicts=["reject"] by=door'
    ),
    "H9 at 6: an outage after another failure ends the hold": story(
        "1 wait.armed cursor=10",
        "500 wait.failed error=other",
        "700 wait.armed cursor=10",
        *AWAY,
        "1001 caller.told index=0 outcome=error",
    ),
    "H12 at 6: an effect for a caller that was told of a failure": story(
        "1 wait.armed cursor=10",
        "500 wait.failed error=other",
        "501 caller.told index=0 outcome=error",
        APPROVED,
        STARTED,
    ),
    "H5 at 5: success is told, but a failure came": story(
        "1 wait.armed cursor=10", "500 wait.failed error=other", APPROVED, "3100 caller.told index=0 outcome=ok"
    ),
    "H9 at 3: a lost caller is taken for a rejection": story(
        "20000 caller.gone", '20001 hold.decided verdicts=["reject"] by=door'
    ),
    "H6 at 4: a second decision when the first was told": story(
        REJECTED, REFUSED, '3200 hold.decided verdicts=["approve"] by=another'
    ),
    "H6 at 4: an expiry over a decision that was told": story(REJECTED, REFUSED, "60000 hold.expired"),
    "H6 at 4: given up though it was decided and told": story(REJECTED, REFUSED, "4000 hold.abandoned"),
    "H8 at 5: a wait for what was taken up": story(
        "1 wait.armed cursor=10", APPROVED, STARTED, "3150 wait.armed cursor=10"
    ),
    "H12 at 5: a wait for nobody": story(
        "100 caller.gone", "200 door.died", "300 door.booted", "400 wait.armed cursor=1"
    ),
    "H3 at 6: the effect of a release that another door began": story(
        APPROVED, STARTED, "3150 door.died", "3160 door.booted", CALLED
    ),
    "H2 at 1: parked when the deadline has come": story(deadline_at=0),
    "H2 at 1: parked after the deadline": story(*DONE, deadline_at=-5),
    "H2 at 3: a call after the grace whose start is in no line": story(APPROVED, "90001 effect.called index=0"),
    "H3 at 5: the effect runs again, long after the grace": story(
        APPROVED, STARTED, CALLED, "8000000 effect.called index=0"
    ),
    "H10 at 4: no distance": story(
        "1 wait.armed cursor=10", "1000 wait.failed error=availability", "1001 wait.armed cursor=10"
    ),
    "H10 at 4: failures without a distance": story(
        "1 wait.armed cursor=10", "1000 wait.failed error=availability", "1001 wait.failed error=availability"
    ),
    "H10 at 5: failures whose distance does not grow": story(
        "1 wait.armed cursor=10", *AWAY, "1200 wait.failed error=availability", "1400 wait.failed error=availability"
    ),
    "H10 at 6: retries whose distance does not grow": story(
        "1 wait.armed cursor=10",
        *AWAY,
        "1200 wait.armed cursor=10",
        "1200 wait.failed error=availability",
        "1400 wait.armed cursor=10",
    ),
    "H10 at 8: a distance that stops to grow": story(
        "1 wait.armed cursor=10",
        *AWAY,
        "1203 wait.armed cursor=10",
        "1210 wait.failed error=availability",
        "1611 wait.armed cursor=10",
        "1620 wait.failed error=availability",
        "2021 wait.armed cursor=10",
    ),
    "H11 at 2: a decision on too few": story(APPROVED, requests=2),
    "H12 at 4: an effect for nobody": story(APPROVED, "3050 caller.gone", STARTED),
    "H12 at 5: an effect for somebody who left": story(APPROVED, STARTED, "3150 caller.gone", CALLED),
    "H13 at 2: another deadline": story("10 hold.requested deadline_at=99000 requests=1"),
    "H15 at 2: nobody writes the end": story(END),
    "H15 at 5: a release in doubt is left": story(APPROVED, STARTED, CALLED, END),
    "H5 at 6: a sibling's failure": story(
        '3000 hold.decided verdicts=["approve","approve"] by=human',
        STARTED,
        CALLED,
        "3300 release.settled index=0 outcome=error",
        "3301 caller.told index=1 outcome=error",
        requests=2,
    ),
    "H16 at 3: an approval that lapses though there is time": story(
        APPROVED, "60001 release.settled index=0 outcome=lapsed"
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_logs_that_keep_the_rules(name: str) -> None:
    """What a run of the machine may have written conforms, also where the log leaves steps out."""
    assert verdict(GOOD[name]) == ("conforms" if "log.ended" in GOOD[name] else "pending")


@pytest.mark.parametrize("name", BAD)
def test_logs_that_break_a_rule(name: str) -> None:
    """What no run of the machine may have written is named: the rule, and the line."""
    assert verdict(BAD[name]) == name.partition(":")[0]


def test_h4_a_log_without_starts_does_not_show_it() -> None:
    """A system that does not write starts ahead is told once that H4 is not observable."""
    assert "H4" in judged(GOOD["a system that does not write starts ahead"]).not_observable
    assert "H4" not in judged(GOOD["a release"]).not_observable


def test_h2_a_hold_has_a_deadline_within_an_hour() -> None:
    """A line that parks without a deadline, or for more than an hour, is malformed; an hour is not."""
    assert verdict(story(deadline_at=3_600_000)) == "pending"
    for parked in ("deadline_at=3600001 requests=1", "deadline_at=null requests=1", "requests=1"):
        found = judged(f"0 hold.requested {parked}")
        assert [(number, "deadline_at" in why) for _, number, why in found.malformed] == [(1, True)]
        assert found.entities == 0


def test_h3_a_release_that_is_declared_idempotent_may_run_again() -> None:
    """A release in doubt is run again by the door that boots, if that was declared; also where no line tells of calls."""
    policy = {"type": "policy", "machine": "hold", "idempotent": True}
    again = story(
        APPROVED, STARTED, CALLED, "3250 door.died", "4000 door.booted", "4100 effect.called index=0", "4200 door.died",
        "5000 door.booted", "5100 effect.called index=0", "5200 release.settled index=0 outcome=ok", END,
    )  # fmt: skip
    for text in (again, "\n".join(line for line in again.splitlines() if "effect.called" not in line)):
        found = audit([("log", [(0, policy), *lines(text)])])
        assert (found.violations, found.verdicts["conforms"]) == ([], 1)
    assert verdict(again) == "H3 at 7"


def test_h10_a_backoff_that_may_not_grow_keeps_its_distance() -> None:
    """Where the first backoff is the longest, equal distances are right."""
    policy = {"type": "policy", "machine": "hold", "backoff_max_ms": 200}
    steady = story("1 wait.armed cursor=10", *(f"{at} wait.failed error=availability" for at in (1000, 1200, 1400)))
    assert audit([("log", [(0, policy), *lines(steady)])]).violations == []
    hasty = f"{steady}\n1599 wait.failed error=availability"
    assert [one.rule for one in audit([("log", [(0, policy), *lines(hasty)])]).violations] == ["H10"]


def test_h2_the_policy_of_the_log_is_used() -> None:
    """A grace of nothing is a grace of nothing."""
    late = story('60000 hold.decided verdicts=["approve"] by=human', "60001 release.started index=0")
    policy = {"type": "policy", "machine": "hold", "release_grace_ms": 0}
    assert verdict(late) == "pending"
    found = audit([("log", [(0, policy), *lines(late)])])
    assert [one.rule for one in found.violations] == ["H2"]
