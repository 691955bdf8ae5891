"""How fast logs are audited, next to ``json.loads`` of the same lines: the ratio is the figure.

    python bench/audit.py [LINES]

The logs are made here: overlapping incidents that die, heal or are sealed; holds in which nobody logs what a door does
between facts; hosts whose looks are logged, and hosts of which only work, deaths and revivals are. Then one wrong line among
10,000: how soon it is named, explained, and its history made short. CPU time is measured, tracing the machine included (the
first of each kind), so that a busy neighbour matters little. One process, one core.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator

from deadreckon.models.audit import audit
from deadreckon.models.audit.words import Line

Story = Iterator[tuple[int, Line]]
"""Lines of one entity, with what time passes before each."""


def incident(name: str, chance: random.Random) -> Story:
    """An incident that dies up to five times, and heals or is sealed."""
    lives = iter(range(100))
    life = f"{name}/{next(lives)}"
    yield 0, {"type": "turn.started", "incident": name, "incarnation": life}
    yield 50, {"type": "incarnation.died", "incarnation": life}
    deaths = chance.choice((1, 1, 1, 2, 3, 5))
    for count in range(1, deaths + 1):
        life = f"{name}/{next(lives)}"
        if count == 5:
            yield 5, {"type": "attempt.refused", "incident": name, "incarnation": life, "count": count}
            yield 5, {"type": "terminal.delivered", "incident": name}
            yield (
                5,
                {"type": "incident.sealed", "incident": name, "reason": "interrupted_attempts_exceeded", "count": 5},
            )
            return
        whose = {"incident": name, "attempt": f"a{count}", "incarnation": life}
        yield 5, {"type": "attempt.admitted", **whose, "kind": "replay", "count": count}
        yield 5, {"type": "work.started", **whose}
        if count < deaths:
            yield 90, {"type": "incarnation.died", "incarnation": life}
    yield 70, {"type": "attempt.finished", **whose}
    yield 1, {"type": "incident.closed", "incident": name}


def hold(name: str, chance: random.Random, at_ms: int) -> Story:
    """A hold of one to three requests: how a door judges, and what fails meanwhile, is in no line."""
    requests = chance.choice((1, 1, 2, 3))
    yield 0, {"type": "hold.requested", "hold": name, "deadline_at": at_ms + 600_000, "requests": requests}
    yield chance.randrange(20), {"type": "wait.armed", "hold": name, "cursor": 7}
    verdicts = [chance.choice(("approve", "reject")) for _ in range(requests)]
    yield chance.randrange(500_000), {"type": "hold.decided", "hold": name, "verdicts": verdicts, "by": "ada"}
    for index, verdict in enumerate(verdicts):
        whose = {"hold": name, "index": index}
        if verdict == "approve":
            yield chance.randrange(300), {"type": "release.started", **whose}
            yield chance.randrange(10), {"type": "effect.called", **whose}
            yield chance.randrange(900), {"type": "release.settled", **whose, "outcome": "ok"}
        yield (
            chance.randrange(9),
            {"type": "caller.told", **whose, "outcome": "ok" if verdict == "approve" else "refused"},
        )


def host(name: str, chance: random.Random, at_ms: int, alarms: bool) -> Story:
    """A host that works, and dies, and comes back; *alarms*: its looks are logged too."""
    since = at_ms
    yield 0, {"type": "work.tracked", "host": name}
    if alarms:
        yield 0, {"type": "alarm.armed", "host": name, "due_at": since + 10_000}
    lasts = chance.randrange(1, 9_000)
    if chance.random() < 0.7:
        yield lasts, {"type": "work.settled", "host": name, "ok": True}
        if alarms:
            yield 10_000 - lasts, {"type": "alarm.fired", "host": name}
        yield 0 if alarms else 10_000 - lasts, {"type": "count.cleared", "host": name, "by": "quiet-clean"}
        return
    yield lasts, {"type": "host.died", "host": name, "asked": False}
    if alarms:
        yield 10_000 - lasts, {"type": "alarm.fired", "host": name}
    yield 0 if alarms else 10_000 - lasts, {"type": "revival.started", "host": name, "n": 1, "version": "v1"}
    if alarms:
        yield 0, {"type": "alarm.armed", "host": name, "due_at": since + 20_000}
    took = chance.randrange(1, 900)
    yield took, {"type": "revival.succeeded", "host": name}
    yield took, {"type": "work.settled", "host": name, "ok": True}
    if alarms:
        yield 10_000 - 2 * took, {"type": "alarm.fired", "host": name}
    yield 0 if alarms else 10_000 - 2 * took, {"type": "count.cleared", "host": name, "by": "quiet-clean"}


def lines(size: int, begun: Callable[[str, random.Random, int], Story]) -> list[bytes]:
    """A log of so many lines: stories that overlap, in the order of time."""
    chance = random.Random(1)
    dated: list[tuple[int, int, Line]] = []
    at_ms, number = 1_764_500_000_000, 0
    while len(dated) < size * 1.05:
        number += 1
        at_ms += chance.randrange(400)
        now_ms = at_ms
        for wait_ms, line in begun(f"entity-{number:07}", chance, at_ms):
            now_ms += wait_ms
            dated.append((now_ms, len(dated), line))
    dated.sort()
    return [json.dumps({"at": at, **line}).encode() for at, _, line in dated[:size]]


def measure(name: str, log: list[bytes]) -> None:
    """Print how fast one log is read, and how fast it is audited."""
    begun = time.process_time()
    for raw in log:
        json.loads(raw)
    parsed = time.process_time() - begun

    def numbered() -> Iterator[tuple[int, Line]]:
        for number, raw in enumerate(log, 1):
            yield number, json.loads(raw)

    begun = time.process_time()
    report = audit([(name, numbered())])
    audited = time.process_time() - begun
    assert not report.violations, report.violations[0]
    assert not report.malformed
    rate = len(log) / audited
    print(f"{name:32} {len(log):9,} lines {rate:9,.0f} lines/s {audited / parsed:6.1f} times json.loads", flush=True)


def mistake(size: int) -> None:
    """Print how soon one count that did not move is named, in the middle of a log of incidents."""
    log = [json.loads(raw) for raw in lines(size, lambda name, chance, at_ms: incident(name, chance))]
    wrong = next(at for at, line in enumerate(log) if at > size // 2 and line.get("count") == 2)
    log[wrong]["count"] = 1
    begun = time.process_time()
    report = audit([("one wrong line", enumerate(log, 1))])
    seconds = time.process_time() - begun
    (found,) = report.violations
    assert (found.rule, found.line) == ("C1", wrong + 1)
    print(
        f"{'incidents, one wrong line':32} {len(log):9,} lines {seconds:9.2f} s until {found.rule} is named", flush=True
    )


def main(size: int) -> None:
    """Measure every kind of log."""
    mistake(10_000)
    measure("incidents", lines(size, lambda name, chance, at_ms: incident(name, chance)))
    measure("holds, hidden steps", lines(size // 2, hold))
    measure("hosts, looks logged", lines(size // 10, lambda name, chance, at_ms: host(name, chance, at_ms, True)))
    measure("hosts, hidden steps", lines(size // 10, lambda name, chance, at_ms: host(name, chance, at_ms, False)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
