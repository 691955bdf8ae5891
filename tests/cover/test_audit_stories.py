"""Whole logs, one a story of the field, each with its verdict; and what a rejection says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadreckon.models.audit import Filters, Report, audit
from deadreckon.models.audit.incident import IncidentWords
from deadreckon.models.audit.log import Source
from deadreckon.models.audit.moves import Do, Key, Move, See
from deadreckon.models.audit.words import Line, Place

LOGS = Path(__file__).parent / "logs"
VERDICTS: dict[str, dict[str, str]] = json.loads((LOGS / "verdicts.json").read_text(encoding="utf-8"))


def read(name: str, filters: Filters | None = None) -> Report:
    """What an audit finds in one of the logs."""
    source = Source(str(LOGS / name), lambda number, why: pytest.fail(f"line {number}: {why}"))
    try:
        return audit([(name, source.lines())], filters)
    finally:
        source.close()


def verdict(report: Report) -> str:
    """As the file of verdicts has it."""
    return f"violates {report.violations[0].rule}" if report.violations else "conforms"


def test_every_log_has_a_verdict() -> None:
    """No log is left out."""
    assert {path.name for path in LOGS.glob("*.jsonl")} == set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_stories(name: str) -> None:
    """Each story has the verdict that it is told for."""
    wanted, _, rules = VERDICTS[name]["verdict"].partition(" ")
    said = verdict(read(name))
    assert said in ([f"violates {rule}" for rule in rules.split("|")] if wanted == "violates" else ["conforms"])


def test_a_rejection_explains() -> None:
    """What happened, what would have been allowed, which guard refused what, the last states, the lines that suffice."""
    (found,) = read("incident-work-without-admission.jsonl").violations
    assert (found.machine, found.entity, found.rule, found.line) == ("incident", "turn-7", "C3", 7)
    assert found.happened == "work.started (incident turn-7, attempt try-b, incarnation life-2)"
    assert "attempt.admitted (replay, count 2)" in found.allowed
    assert "incarnation.died" in found.allowed
    assert not any("work.started" in one for one in found.allowed)
    assert found.why is not None
    (refused,) = found.why.refusals
    assert refused == (
        "start_work (slot 0): C11: the attempt has not been admitted; C3: the attempt's entry is not durable yet"
    )
    assert "durable.interrupted 1" in found.why.states[0]
    assert [number for number, _ in found.history] == [2, 3, 7]


def test_the_history_is_the_shortest_that_is_still_rejected() -> None:
    """Lines of others, and those without which the verdict is the same, are left out; the rule stays."""
    (found,) = read("hold-approved-after-deadline.jsonl").violations
    assert [number for number, _ in found.history] == [2, 3]
    lines = [(number, dict(line)) for number, line in found.history]
    assert verdict(audit([("short", iter(lines))])) == verdict(read("hold-approved-after-deadline.jsonl"))


def test_filters() -> None:
    """Other rules are not reported, other entities not followed."""
    name = "incident-sixth-run.jsonl"
    assert read(name, Filters(rules=frozenset({"C1"}))).violations == []
    assert len(read(name, Filters(rules=frozenset({"C4"}))).violations) == 1
    assert read(name, Filters(entities=frozenset({"other"}))).entities == 0
    assert len(read(name, Filters(entities=frozenset({"turn-7"}))).violations) == 1


def incidents(number: int) -> Iterator[Line]:
    """Lines of so many incidents that overlap, each of which heals."""
    chance = random.Random(5)
    stories = []
    for at in range(number):
        name, lives = f"i{at}", [f"{at}/{life}" for life in range(3)]
        one: list[Line] = [
            {"type": "turn.started", "incident": name, "incarnation": lives[0]},
            {"type": "incarnation.died", "incarnation": lives[0]},
        ]
        for count, life in enumerate(lives[1:], 1):
            whose = {"incident": name, "attempt": f"a{count}", "incarnation": life}
            one.append({"type": "attempt.admitted", **whose, "kind": "replay", "count": count})
            one.append({"type": "work.started", **whose})
            if count == 1:
                one.append({"type": "incarnation.died", "incarnation": life})
            else:
                one.append({"type": "attempt.finished", **whose})
                one.append({"type": "incident.closed", "incident": name})
        stories.append(iter(one))
    at_ms = 0
    while stories:
        story = chance.choice(stories[:50])
        line = next(story, None)
        if line is None:
            stories.remove(story)
            continue
        at_ms += chance.randrange(3)
        yield {"at": at_ms, **line}


def test_one_wrong_line_among_ten_thousand_is_named() -> None:
    """A count that did not move, somewhere in the middle; ``bench/audit.py`` measures how soon."""
    lines = [dict(line) for line in incidents(1_100)]
    assert len(lines) > 9_800
    wrong = next(at for at, line in enumerate(lines) if at > 5_000 and line.get("count") == 2)
    lines[wrong]["count"] = 1
    report = audit([("log", enumerate(lines, 1))])
    assert [(one.rule, one.line, one.entity) for one in report.violations] == [
        ("C1", wrong + 1, lines[wrong]["incident"])
    ]


def test_equal_stories_cost_a_look_up() -> None:
    """The sets of states are those of one story, however many entities tell it."""
    words = IncidentWords(lambda rejected: pytest.fail("none is wrong"), Place())
    for line in incidents(200):
        words.readers[str(line["type"])](line)
    assert words.count == 200
    assert len(words.monitor()._nodes) < 20
    assert not words.entities


class Careless(IncidentWords):
    """A vocabulary that does not look at the count."""

    def moves(self, key: Key) -> Iterator[Move]:
        """The moves, without what they see of the count."""
        for move in super().moves(key):
            yield tuple(
                one for one in move if isinstance(one, Do) or getattr(one, "path", "") != "buffered.interrupted"
            )


def test_known_bad_a_vocabulary_that_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the count were not looked at, these stories would pass: so it is what the tests above stand on."""
    monkeypatch.setattr("deadreckon.models.audit.auditor.VOCABULARIES", (Careless,))
    for name in ("incident-single-slot-loses-a-death.jsonl", "incident-progress-resets-count.jsonl"):
        assert verdict(read(name)) == "conforms"
    assert isinstance(See("x", 1, 1), See)


def test_the_past_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entity that goes on for ever keeps the last steps; what it is now says all that a verdict needs."""
    monkeypatch.setattr("deadreckon.models.audit.words.KEPT", 8)
    lines: list[Line] = [{"at": 0, "type": "turn.started", "incident": "i", "incarnation": "0"}]
    for life in range(1, 40):
        whose = {"incident": "i", "attempt": str(life), "incarnation": str(life)}
        lines.append({"at": 0, "type": "attempt.admitted", **whose, "kind": "replay", "count": life})
        lines.append({"at": 0, "type": "work.started", **whose})
    policy: Line = {"type": "policy", "machine": "incident", "max_interrupted_attempts": 39}
    report = audit([("log", enumerate([policy, *lines], 1))])
    (found,) = report.violations
    assert (found.rule, found.line) == ("C4", 79)
    assert len(found.history) <= 8
