"""How TLC's report is read; what TLC finds is for ``nocover/test_tlc.py``."""

from __future__ import annotations

import pytest

from deadreckon.models.exports.tla import tla_config, tla_invariants
from deadreckon.models.exports.tlc import read, tlc
from deadreckon.models.relation import relation
from deadreckon.spec import EnvironmentFault, InternalError
from tests.cover.knots import machine as knots

SAID = """
TLC2 Version 2.15
Progress(11) at 2026-12-01 05:07:00: 1,110 states generated, 440 distinct states found, 3 states left on queue.
Model checking completed. No error has been found.
1117 states generated, 443 distinct states found, 0 states left on queue.
The depth of the complete state graph search is 11.
"""
VIOLATED = """
Error: Invariant F2 is violated.
Error: The behavior up to this point is:
State 1: <Initial predicate>
/\\ granted = 0
State 2: <Step line 70, col 6 to line 70, col 41 of module Lease>
/\\ granted = 1

30 states generated, 25 distinct states found, 11 states left on queue.
"""
INITIALLY = "Error: Invariant F2 is violated by the initial state:\n/\\ granted = 0\n"
CONSTANT = "Error: The invariant of MayRest is equal to FALSE\n"


def test_counts_are_read() -> None:
    """Distinct states, states generated and depth, of a search that came to its end."""
    found = read(SAID)
    assert (found.states, found.generated, found.depth, found.violated, found.trace) == (443, 1117, 11, "", 0)


def test_a_violation_is_read() -> None:
    """The invariant is named, and the states of the counterexample are counted."""
    found = read(VIOLATED)
    assert (found.states, found.violated, found.trace) == (25, "F2", 2)
    assert (read(INITIALLY).violated, read(INITIALLY).trace) == ("F2", 1)
    assert (read(CONSTANT).violated, read(CONSTANT).trace) == ("MayRest", 1)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("nothing that is known", EnvironmentFault),
        (SAID.replace("0 states left", "9 states left"), EnvironmentFault),
        (SAID.replace("No error has been found.", ""), EnvironmentFault),
        ("Error: Could not find or load main class tlc2.TLC\n", EnvironmentFault),
        ("Error: Java ran out of memory.\n" + SAID, EnvironmentFault),
        ("Error: Parsing or semantic analysis failed.\n", InternalError),
        ("Error: worker number required. But encountered auto\n", InternalError),
    ],
)
def test_an_answer_that_is_none_is_no_verdict(said: str, error: type[Exception]) -> None:
    """A search that ended early, or that TLC refused, is an error."""
    with pytest.raises(error):
        read(said)


def test_without_a_jar_there_is_no_verdict() -> None:
    """What is missing is named."""
    with pytest.raises(EnvironmentFault, match=r"TLC can't be run: \S+ is missing"):
        tlc(relation(knots), knots.scopes[0], "nowhere.jar")


def test_a_configuration_asks_for_what_is_wanted() -> None:
    """Only the invariants that are named, a witness by what says that it is never so; or none at all."""
    traced, scope = relation(knots), knots.scopes[0]
    named = tla_invariants(traced, scope)
    always, sometimes = (
        next(one.id for one in knots.rules if one.kind.value == kind) for kind in ("always", "sometimes")
    )
    asked = tla_config(traced, scope, (always, sometimes)).partition("INVARIANTS\n")[2].partition("\\*")[0].split()
    assert asked == [named[always], named[sometimes]]
    assert named[sometimes].startswith("Never_")
    assert "INVARIANTS" not in tla_config(traced, scope, ())
