"""The policy of the hold refuses every bad value, and a batch of requests is sent when it has to be."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.spec import PolicyError
from deadreckon.spec.hold_state import DEBOUNCE_MAX_MS, HOLD_MAX_MS, HoldPolicy
from deadreckon.spec.hold_words import coalesced_until_ms

BAD: tuple[Mapping[str, object], ...] = (
    {"hold_ms": 0},
    {"hold_ms": -1},
    {"hold_ms": HOLD_MAX_MS + 1},
    {"slice_ms": 0},
    {"slice_ms": -25_000},
    {"backoff_first_ms": 0},
    {"backoff_first_ms": 300, "backoff_max_ms": 299},
    {"backoff_max_ms": 199},
    {"backoff_max_ms": -1},
    {"release_grace_ms": -1},
)
"""Values of the right type that are out of their range."""

INTEGERS = tuple(field.name for field in attrs.fields(HoldPolicy) if field.name != "idempotent")


def refusal(values: Mapping[str, object]) -> str:
    """What is said of a policy with these values."""
    with pytest.raises(PolicyError) as error:
        HoldPolicy(**values)  # type: ignore[arg-type]  # bad values of any type are what is tried
    return str(error.value)


@pytest.mark.parametrize("values", BAD, ids=str)
def test_policy_out_of_range_is_refused(values: Mapping[str, object]) -> None:
    """A value out of its range is refused by name, whatever the others are."""
    assert any(refusal(values).startswith(f"{field} is {value}: give ") for field, value in values.items())


@pytest.mark.parametrize("field", INTEGERS)
@pytest.mark.parametrize("value", [1.5, 1000.0, math.nan, math.inf, True, False, None, "600", b"1"], ids=repr)
def test_policy_takes_integers_alone(field: str, value: object) -> None:
    """Milliseconds are integers: a fraction, NaN, infinity, a bool, text and nothing are refused, with the field."""
    assert refusal({field: value}) == f"{field} is {value!r}: give an integer"


@pytest.mark.parametrize("value", [0, 1, None, "yes", math.nan], ids=repr)
def test_policy_idempotent_is_a_bool(value: object) -> None:
    """Whether a release may run again is said with a bool and nothing like one."""
    assert refusal({"idempotent": value}) == f"idempotent is {value!r}: give a bool"


def test_policy_defaults_are_the_protocol_s() -> None:
    """The defaults are ten minutes, slices of 25 s, distances of 200 ms to 5 s, a grace of 30 s, and nothing twice."""
    assert attrs.astuple(HoldPolicy()) == (600_000, 25_000, 200, 5_000, 30_000, False)


def test_policy_takes_the_ends_of_every_range() -> None:
    """An hour, a single millisecond, a constant distance and no grace are all allowed."""
    assert HoldPolicy(hold_ms=HOLD_MAX_MS).hold_ms == 3_600_000
    HoldPolicy(hold_ms=1, slice_ms=1, backoff_first_ms=1, backoff_max_ms=1, release_grace_ms=0)


debounces = st.integers(0, DEBOUNCE_MAX_MS)
instants = st.integers(0, 2**50)


@given(debounces, instants, st.data())
def test_coalescing_waits_out_the_debounce_or_the_cap(debounce_ms: int, opened_at_ms: int, data: st.DataObject) -> None:
    """A batch is sent no earlier than one debounce after an arrival, unless three from its opening have passed."""
    cap = opened_at_ms + 3 * debounce_ms
    arrived_at_ms = data.draw(st.integers(opened_at_ms, cap))
    until = coalesced_until_ms(debounce_ms, opened_at_ms, arrived_at_ms)
    assert arrived_at_ms <= until <= cap
    assert until == arrived_at_ms + debounce_ms or (until == cap and arrived_at_ms + debounce_ms > cap)


@given(debounces, instants, instants)
def test_coalescing_ends_by_three_times_the_debounce(debounce_ms: int, opened_at_ms: int, later_ms: int) -> None:
    """However late the arrivals, a batch is never sent later than three times the debounce from its opening."""
    assert coalesced_until_ms(debounce_ms, opened_at_ms, opened_at_ms + later_ms) <= opened_at_ms + 3 * debounce_ms


@given(debounces, instants, instants, instants, st.integers(0, DEBOUNCE_MAX_MS))
def test_coalescing_is_monotone(debounce_ms: int, opened: int, arrived: int, more: int, longer: int) -> None:
    """A later arrival, a later opening and a longer debounce never send a batch earlier: the timer only advances."""
    until = coalesced_until_ms(debounce_ms, opened, arrived)
    assert coalesced_until_ms(debounce_ms, opened, arrived + more) >= until
    assert coalesced_until_ms(debounce_ms, opened + more, arrived) >= until
    assert coalesced_until_ms(debounce_ms + longer, opened, arrived) >= until


@given(debounces, instants, st.lists(st.integers(0, DEBOUNCE_MAX_MS), max_size=20))
def test_coalescing_a_stream_of_arrivals_ends(debounce_ms: int, opened_at_ms: int, gaps: list[int]) -> None:
    """A batch that arrivals keep extending is sent between one and three debounces after its opening."""
    until = coalesced_until_ms(debounce_ms, opened_at_ms, opened_at_ms)
    assert until == opened_at_ms + debounce_ms
    now = opened_at_ms
    for gap in gaps:
        now += gap
        if now >= until:
            break
        until = coalesced_until_ms(debounce_ms, opened_at_ms, now)
        assert until > now
    assert opened_at_ms + debounce_ms <= until <= opened_at_ms + 3 * debounce_ms


def test_coalescing_without_a_debounce_sends_at_once() -> None:
    """A debounce of 0 sends with the opening."""
    assert coalesced_until_ms(0, 7, 7) == 7
