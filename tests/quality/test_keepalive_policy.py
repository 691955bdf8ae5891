"""The policy of the keepalive refuses every bad value, and its distances are the ladder and then the plateau."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.spec import PolicyError
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, rungs_of
from deadreckon.spec.keepalive_words import allowed_jitter, distance, sooner

BAD: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("ladder_ms", {"ladder_ms": (0, 1)}),
    ("ladder_ms", {"ladder_ms": (10_000, -1)}),
    ("ladder_ms", {"ladder_ms": (2, 1)}),
    ("ladder_ms", {"ladder_ms": (10_000, 60_000, 59_999, 1_800_000)}),
    ("plateau_ms", {"plateau_ms": 1_799_999}),
    ("plateau_ms", {"plateau_ms": 0}),
    ("plateau_ms", {"ladder_ms": (10,), "plateau_ms": 9, "evidence_at": 1}),
    ("lead_ms", {"lead_ms": 0}),
    ("lead_ms", {"lead_ms": -10_000}),
    ("evidence_at", {"evidence_at": 0}),
    ("evidence_at", {"evidence_at": 5}),
    ("evidence_at", {"ladder_ms": (10_000, 60_000)}),
    ("wedge_ms", {"wedge_ms": 0}),
    ("wedge_ms", {"wedge_ms": -1}),
    ("jitter_ms", {"jitter_ms": -1}),
)
"""The field that is blamed, and values of the right type that are out of their range."""

INTEGERS = tuple(field.name for field in attrs.fields(KeepalivePolicy) if field.name != "ladder_ms")


def refusal(values: Mapping[str, object]) -> str:
    """What is said of a policy with these values."""
    with pytest.raises(PolicyError) as error:
        KeepalivePolicy(**values)  # type: ignore[arg-type]  # bad values of any type are what is tried
    return str(error.value)


@pytest.mark.parametrize(("field", "values"), BAD, ids=str)
def test_policy_out_of_range_is_refused(field: str, values: Mapping[str, object]) -> None:
    """A value out of its range is refused by name, with the value and with what to give."""
    value = {**attrs.asdict(KeepalivePolicy()), **values}[field]
    assert refusal(values).startswith(f"{field} is {value}: give ")


@pytest.mark.parametrize("field", INTEGERS)
@pytest.mark.parametrize("value", [1.5, 1000.0, math.nan, math.inf, True, False, None, "600", b"1"], ids=repr)
def test_policy_takes_integers_alone(field: str, value: object) -> None:
    """Milliseconds are integers: a fraction, NaN, infinity, a bool, text and nothing are refused, with the field."""
    assert refusal({field: value}) == f"{field} is {value!r}: give an integer"


@pytest.mark.parametrize(
    "value", [(), [10_000, 60_000], 10_000, None, "10 s", (10_000, 60_000.0), (True, 1), (math.nan,)], ids=repr
)
def test_policy_takes_a_tuple_of_integers_for_the_ladder(value: object) -> None:
    """A ladder has a rung at least, and each of them is an integer; a list could change under the machine."""
    assert refusal({"ladder_ms": value}).startswith(f"ladder_ms is {value!r}: give a tuple of integers")


def test_policy_defaults_are_the_protocol_s() -> None:
    """10 s, 1 min, 5 min, 30 min, then six hours; a lead of 10 s, evidence at 3, a wedge after 15 min, no jitter."""
    expected = ((10_000, 60_000, 300_000, 1_800_000), 21_600_000, 10_000, 3, 900_000, 0)
    assert attrs.astuple(KeepalivePolicy()) == expected


def test_policy_takes_the_ends_of_every_range() -> None:
    """A single rung, a plateau as long as it, a ladder that doesn't climb and evidence at once are all allowed."""
    least = KeepalivePolicy(ladder_ms=(1,), plateau_ms=1, lead_ms=1, evidence_at=1, wedge_ms=1)
    assert (rungs_of(least), distance(least, 1), distance(least, 2)) == (1, 1, 1)
    KeepalivePolicy(ladder_ms=(5, 5, 5), plateau_ms=5, evidence_at=3)


def test_k4_the_plateau_is_reached_after_the_fifth_revival() -> None:
    """The distances of the defaults: one lead while nothing was counted, four rungs, then the plateau for ever."""
    distances = [distance(KeepalivePolicy(), revivals) for revivals in (0, 1, 2, 3, 4, 5, 6, 1_000)]
    assert distances == [10_000, 10_000, 60_000, 300_000, 1_800_000, 21_600_000, 21_600_000, 21_600_000]


@st.composite
def policies(draw: st.DrawFn) -> KeepalivePolicy:
    """Every kind of ladder, the plateau as long as its last rung or longer."""
    rungs = tuple(sorted(draw(st.lists(st.integers(1, 2**40), min_size=1, max_size=6))))
    return KeepalivePolicy(
        ladder_ms=rungs,
        plateau_ms=rungs[-1] + draw(st.integers(0, 2**40)),
        lead_ms=draw(st.integers(1, 2**40)),
        evidence_at=draw(st.integers(1, len(rungs))),
        jitter_ms=draw(st.integers(0, 2**20)),
    )


@given(policies(), st.integers(1, 20))
def test_k2_no_distance_is_shorter_than_the_one_before(policy: KeepalivePolicy, revivals: int) -> None:
    """A host that keeps dying is revived ever more slowly, on any ladder."""
    assert distance(policy, revivals) <= distance(policy, revivals + 1)


@given(policies(), st.integers(1, 2**30))
def test_k4_beyond_the_ladder_the_distance_is_the_plateau(policy: KeepalivePolicy, beyond: int) -> None:
    """Neither shorter nor growing, however many revivals there were."""
    assert distance(policy, rungs_of(policy) + beyond) == policy.plateau_ms


@given(policies(), st.integers(0, 2**30))
def test_k4_jitter_is_at_most_what_the_policy_says(policy: KeepalivePolicy, jitter_ms: int) -> None:
    """What is added to a distance is bounded by the policy; none is the default."""
    assert allowed_jitter(policy, jitter_ms) == (jitter_ms <= policy.jitter_ms)
    assert not allowed_jitter(KeepalivePolicy(), jitter_ms + 1)


@given(st.just(NEVER) | st.integers(0, 2**50), st.integers(0, 2**50))
def test_k6_the_sooner_of_two_instants_never_delays(armed_at_ms: int, wanted_at_ms: int) -> None:
    """What is armed is never moved later, and nothing armed counts as later than anything."""
    at_ms = sooner(armed_at_ms, wanted_at_ms)
    assert at_ms <= wanted_at_ms
    assert at_ms == wanted_at_ms if armed_at_ms == NEVER else at_ms <= armed_at_ms
