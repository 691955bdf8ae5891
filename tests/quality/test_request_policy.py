"""The policy of the request refuses every bad value, and its words mean what the protocol says at their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.spec import UNLIMITED, PolicyError
from deadreckon.spec.request import attempts_left, deadline, longer, opened, worth_dialling
from deadreckon.spec.request_state import HORIZON_MAX_MS, RequestPolicy

BAD: tuple[Mapping[str, object], ...] = (
    {"horizon_ms": 0, "floor_ms": 0},
    {"horizon_ms": 30_000},
    {"horizon_ms": 29_999},
    {"horizon_ms": HORIZON_MAX_MS + 1},
    {"horizon_ms": -1},
    {"floor_ms": -1},
    {"max_attempts": 0},
    {"max_attempts": -1},
    {"retry_backoff_ms": 0},
    {"retry_backoff_ms": 60_001},
    {"retry_backoff_max_ms": 9_999},
    {"retry_backoff_max_ms": HORIZON_MAX_MS + 1},
)
"""Values of the right type that are out of their range."""

FIELDS = tuple(field.name for field in attrs.fields(RequestPolicy))


def refusal(values: Mapping[str, object]) -> str:
    """What is said of a policy with these values."""
    with pytest.raises(PolicyError) as error:
        RequestPolicy(**values)  # type: ignore[arg-type]  # bad values of any type are what is tried
    return str(error.value)


@pytest.mark.parametrize("values", BAD, ids=str)
def test_policy_out_of_range_is_refused(values: Mapping[str, object]) -> None:
    """A value out of its range is refused by name, with what to give."""
    said = refusal(values)
    assert ": give " in said
    assert said.split(" is ")[0] in {*values, "retry_backoff_max_ms"}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [1.5, math.nan, math.inf, True, None, "600", UNLIMITED + 1], ids=repr)
def test_policy_takes_integers_alone(field: str, value: object) -> None:
    """A fraction, NaN, infinity, a bool, text, nothing and what no store keeps are refused, with the field."""
    assert refusal({field: value}) == f"{field} is {value!r}: give an integer"


@pytest.mark.parametrize("floor_ms", [0, 1, 30_000])
def test_q6_a_horizon_that_is_not_above_the_floor_is_refused(floor_ms: int) -> None:
    """A policy whose horizon is not above the floor is refused: it could never run anything."""
    for horizon_ms in (floor_ms, floor_ms - 1):
        assert "(Q6)" in refusal({"horizon_ms": horizon_ms, "floor_ms": floor_ms})
    policy = RequestPolicy(horizon_ms=floor_ms + 1, floor_ms=floor_ms)
    assert worth_dialling(policy, opened(policy, 1_000), 1_000)


def test_policy_defaults_are_the_protocol_s() -> None:
    """Ten minutes, thirty seconds, three attempts, ten seconds doubling to a minute."""
    assert attrs.astuple(RequestPolicy()) == (600_000, 30_000, 3, 10_000, 60_000)


def test_q1_exactly_the_floor_is_not_worth_a_dial() -> None:
    """No dial with no more than the floor left; one millisecond more is enough."""
    policy = RequestPolicy()
    request = opened(policy, 0)
    assert not worth_dialling(policy, request, 570_000)
    assert worth_dialling(policy, request, 569_999)


def test_q4_each_attempt_ends_at_the_horizon() -> None:
    """A deadline is the horizon, whenever the attempt begins and whichever it is."""
    policy = RequestPolicy()
    request = attrs.evolve(opened(policy, 7), attempts=2)
    assert {deadline(policy, request, now_ms) for now_ms in (7, 1_000, 500_000)} == {600_007}


def test_r1_the_distance_doubles_up_to_its_longest() -> None:
    """Ten, twenty, forty seconds, then a minute for ever."""
    policy = RequestPolicy()
    distances = [opened(policy, 0).backoff_ms]
    for _ in range(5):
        distances.append(longer(policy, distances[-1]))
    assert distances == [10_000, 20_000, 40_000, 60_000, 60_000, 60_000]


@given(limit=st.integers(1, UNLIMITED), attempts=st.integers(0, UNLIMITED))
def test_r2_the_limit_counts_attempts(limit: int, attempts: int) -> None:
    """No more attempts than allowed: the limit is one of attempts, not of retries."""
    policy = RequestPolicy(max_attempts=limit)
    assert attempts_left(policy, attrs.evolve(opened(policy, 0), attempts=attempts)) == (attempts < limit)
