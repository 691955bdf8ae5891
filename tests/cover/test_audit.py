"""An audit of several logs: what is one entity, and what they show together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from deadreckon.models.audit import audit
from deadreckon.models.audit.hold import HoldWords
from deadreckon.models.audit.monitor import TooMany

Line = Mapping[str, object]


def test_a_log_that_begins_with_a_policy_is_one_of_its_own() -> None:
    """The same names in two logs are two entities; a log that doesn't begin with a policy goes on from the one before."""
    policy: Line = {"type": "policy", "machine": "incident", "max_interrupted_attempts": 5}
    started: Line = {"at": 0, "type": "turn.started", "incident": "i", "incarnation": "k0"}
    died: Line = {"at": 1, "type": "incarnation.died", "incarnation": "k0"}
    again: Line = {"at": 2, "type": "turn.started", "incident": "i", "incarnation": "k1"}
    apart = audit([("a", [(1, policy), (2, started), (3, died)]), ("b", [(1, policy), (2, again)])])
    assert (apart.entities, apart.violations) == (2, [])
    rotated = audit([("a", [(1, policy), (2, started), (3, died)]), ("b", [(1, again)])])
    assert (rotated.entities, [one.source for one in rotated.violations]) == (1, ["b"])


def test_what_one_of_several_logs_shows_is_observable() -> None:
    """A rule is told as not observable only if none of the logs shows it."""
    policy: Line = {"type": "policy", "machine": "hold"}
    asked: Line = {"at": 0, "type": "hold.requested", "hold": "h", "deadline_at": 60_000, "requests": 1}
    decided: Line = {"at": 1, "type": "hold.decided", "hold": "h", "verdicts": ["approve"], "by": "ada"}
    started: Line = {"at": 2, "type": "release.started", "hold": "h", "index": 0}
    short: list[tuple[int, Line]] = [(1, policy), (2, asked)]
    long: list[tuple[int, Line]] = [*short, (3, decided), (4, started)]
    assert "H4" in audit([("a", short)]).not_observable
    assert "H4" not in audit([("a", short), ("b", long)]).not_observable


def test_an_entity_that_is_too_much_at_the_end_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """More states than are followed leave an entity unjudged, also where they come up when the log is over."""

    def owed(*_: object) -> list[str]:
        raise TooMany

    monkeypatch.setattr(HoldWords, "owed", owed)
    asked: Line = {"at": 0, "type": "hold.requested", "hold": "h", "deadline_at": 60_000, "requests": 1}
    report = audit([("a", [(1, asked)])])
    assert (list(report.not_followed.values()), report.verdicts["conforms"]) == ([1], 0)
