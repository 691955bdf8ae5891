"""The policy of the journal refuses every bad value, and its words hold for any number of slots and any run."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadreckon.spec import UNLIMITED, PolicyError, Refused
from deadreckon.spec.journal import append, boot, connect, crash, evict, initial, reserve
from deadreckon.spec.journal_state import FREE, Event, Fold, JournalPolicy, Progress, State
from deadreckon.spec.journal_words import acknowledged, due, fits, placed, resumed, without_oldest

FIELDS = tuple(field.name for field in attrs.fields(JournalPolicy))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, math.inf, True, None, "64", UNLIMITED + 1], ids=repr)
def test_a_bad_limit_is_a_policy_error(field: str, value: object) -> None:
    """Zero, negative, fractional, a bool, text or too large: an error that names the field and the value."""
    bad: dict[str, object] = {field: value}
    with pytest.raises(PolicyError) as error:
        JournalPolicy(**bad)  # type: ignore[arg-type]  # the point of this test
    assert str(error.value).startswith(f"{field} is {value!r}: give ")


@pytest.mark.parametrize("field", FIELDS)
def test_the_least_and_the_greatest_limit_are_taken(field: str) -> None:
    """The ends of each range are inside it."""
    for value in (1, UNLIMITED):
        assert getattr(JournalPolicy(**{field: value}), field) == value


def test_the_defaults_are_those_published() -> None:
    """Ten MiB, sixty-four events, one second."""
    assert attrs.astuple(JournalPolicy()) == (10 * 1024 * 1024, 64, 1_000)


POLICY = JournalPolicy(buffer_max_bytes=30)


def with_slots(rows: int, buffered: int) -> State:
    """An empty journal with so many slots."""
    fresh = initial()
    return attrs.evolve(fresh, log=attrs.evolve(fresh.log, rows=(FREE,) * rows), buffer=(FREE,) * buffered)


OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 4), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("connect"), st.integers(1, 12)),
    st.tuples(st.just("reserve"), st.integers(1, 5)),
    st.tuples(st.just("evict")),
    st.tuples(st.just("restart")),
)


def step(state: State, operation: tuple[object, ...]) -> State:
    """One operation, as an implementation would do it; a refusal changes nothing."""
    try:
        match operation:
            case ("append", int(key), int(body), bool(asked)):
                return append(POLICY, state, key, body, asked, size=7)
            case ("connect", int(size)):
                return connect(POLICY, state, size)
            case ("reserve", int(ahead)):
                return reserve(state, ahead)
            case ("evict",):
                return evict(state)
    except Refused:
        return state
    return boot(crash(state), version=1, declared=False)


@given(st.lists(OPERATIONS, max_size=40))
def test_j1_j5_whatever_happens_no_offset_is_given_twice(operations: list[tuple[object, ...]]) -> None:
    """Over any run of a journal with forty slots, offsets are new each time, and indices are without gaps."""
    state = boot(with_slots(40, 5), version=1, declared=False)
    given_out: set[int] = set()
    for operation in operations:
        before = {event.offset for event in (*state.log.rows, *state.buffer)}
        state = step(state, operation)
        new = {event.offset for event in (*state.log.rows, *state.buffer)} - before - {0}
        assert all(offset > max(given_out, default=0) for offset in new)
        given_out |= new
        rows = [row for row in state.log.rows if row.offset]
        assert [row.index for row in rows] == list(range(state.log.count))
        keys = [row.key for row in rows if row.key]
        assert len(keys) == len(set(keys))


@given(st.lists(st.integers(1, 20), max_size=30))
def test_b1_b2_a_buffer_within_its_budget_has_the_newest(sizes: list[int]) -> None:
    """Whoever forgets the oldest until the next fits has the newest, in order, and never more than the budget."""
    buffer: tuple[Event, ...] = (FREE,) * 31
    for offset, size in enumerate(sizes, 1):
        while not fits(POLICY, buffer, size):
            buffer = without_oldest(buffer)
        buffer = placed(buffer, Event(offset, 0, 0, True, 0, size))
    kept = [event.offset for event in buffer if event.offset]
    assert kept == list(range(len(sizes) - len(kept) + 1, len(sizes) + 1))
    assert sum(event.size for event in buffer) <= POLICY.buffer_max_bytes


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(0, 700)), max_size=30))
def test_j8_the_tail_is_bounded_whatever_the_batches(batches: list[tuple[int, int]]) -> None:
    """After each acknowledgement fewer than 64 events, none of them a second after the checkpoint, are not kept."""
    policy, now_ms = JournalPolicy(), 0
    fold = Fold(1, 0, 0)
    progress = Progress(0, fold, 0)
    for rows, elapsed_ms in batches:
        now_ms += elapsed_ms
        fold = Fold(1, fold.position + rows, fold.events + rows)
        progress = acknowledged(policy, progress, fold, now_ms)
        tail = progress.acknowledged - progress.checkpoint.position
        assert tail < 64
        assert not tail or now_ms - progress.checkpoint_at_ms < 1_000
        assert resumed(progress.checkpoint, 1) == progress.checkpoint
        assert resumed(progress.checkpoint, 2) == Fold(2, 0, 0)


def test_j8_the_cadence_at_its_limits() -> None:
    """At 63 events and 999 ms nothing is due; at 64 events, or at 1 s, the fold is."""
    policy = JournalPolicy()
    assert not due(policy, 63, 999)
    assert due(policy, 64, 0)
    assert due(policy, 1, 1_000)
