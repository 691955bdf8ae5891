"""The policy of the incident: which values it takes, the old name, and the precedence of reasons."""

from __future__ import annotations

import math
from itertools import product

import attrs
import pytest

from deadreckon.spec import UNLIMITED, PolicyError
from deadreckon.spec.incident import no_record, unpark
from deadreckon.spec.incident_budgets import verdict
from deadreckon.spec.incident_state import Phase, Reason, Record, RecoveryPolicy, State, Status, Turn, recovery_policy

AT_LEAST_ONE = ("max_interrupted_attempts", "max_attempts", "record_ttl_ms")
FIELDS = tuple(field.name for field in attrs.fields(RecoveryPolicy))
NEVER_GOOD = (-1, 2.5, 3.0, math.nan, math.inf, True, False, "5", None, UNLIMITED + 1)


@pytest.mark.parametrize(
    ("name", "value"), [*product(FIELDS, NEVER_GOOD), *product(AT_LEAST_ONE, (0,))], ids=lambda one: repr(one)
)
def test_a_bad_limit_is_a_policy_error(name: str, value: object) -> None:
    """Zero where one is needed, negative, fractional, NaN, bool or text: an error that names the field and value."""
    bad: dict[str, object] = {name: value}
    with pytest.raises(PolicyError, match=name) as error:
        RecoveryPolicy(**bad)  # type: ignore[arg-type]  # the point of this test
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("name", FIELDS)
def test_the_least_and_the_greatest_limit_are_taken(name: str) -> None:
    """The ends of each range are inside it."""
    for value in (1 if name in AT_LEAST_ONE else 0, UNLIMITED):
        assert getattr(RecoveryPolicy(**{name: value}), name) == value


def test_the_defaults_are_those_published() -> None:
    """Five deaths, ten attempts, five minutes, a thousand units, thirty seconds, an hour."""
    assert attrs.astuple(RecoveryPolicy()) == (5, 10, 300_000, 1_000, 30_000, 3_600_000)


@pytest.mark.parametrize(
    ("retries", "limit"), [(0, 1), (2.7, 3), (3, 4), (math.inf, UNLIMITED), (UNLIMITED, UNLIMITED)]
)
def test_the_old_name_means_one_more(retries: float, limit: int) -> None:
    """``max_oom_retries=v`` means floor(v) + 1, and warns."""
    with pytest.warns(DeprecationWarning, match="max_oom_retries is deprecated"):
        assert recovery_policy(max_oom_retries=retries).max_interrupted_attempts == limit


def test_the_new_name_wins() -> None:
    """An explicit ``max_interrupted_attempts`` stands, and the old name still warns."""
    with pytest.warns(DeprecationWarning, match="max_oom_retries"):
        assert recovery_policy(max_interrupted_attempts=7, max_oom_retries=0).max_interrupted_attempts == 7


@pytest.mark.parametrize("retries", [-1, math.nan, True, "3", -math.inf])
def test_a_bad_old_value_is_a_policy_error(retries: float) -> None:
    """What is no number of retries is refused under the name that was given."""
    with pytest.warns(DeprecationWarning, match="max_oom"), pytest.raises(PolicyError, match="max_oom_retries"):
        recovery_policy(max_oom_retries=retries)


STRICT = RecoveryPolicy(
    max_interrupted_attempts=2, max_recovery_work=3, no_progress_timeout_ms=10, max_attempts=4, debounce_ms=0
)
ORDER = (Reason.INTERRUPTED, Reason.WORK, Reason.NO_PROGRESS, Reason.PREDICATE, Reason.ATTEMPTS)


def exceeding(reasons: tuple[Reason, ...]) -> Record:
    """A record at every limit of STRICT, and one past those of *reasons*."""
    return attrs.evolve(
        no_record(Turn.RUNNING, (0, 0, 0)),
        status=Status.OPEN,
        interrupted=2 if Reason.INTERRUPTED in reasons else 1,
        progress=9 if Reason.WORK in reasons else 8,
        work_baseline=5,
        last_progress_at_ms=89 if Reason.NO_PROGRESS in reasons else 90,
        attempt=5 if Reason.ATTEMPTS in reasons else 4,
    )


@pytest.mark.parametrize("which", list(product((False, True), repeat=5)))
@pytest.mark.parametrize("kind_is_callback", [False, True])
def test_b1_the_first_reason_in_precedence_is_recorded(which: tuple[bool, ...], kind_is_callback: bool) -> None:
    """Interrupted, work, no progress, predicate, attempts: the first that applies, for every class of work."""
    reasons = tuple(reason for reason, applies in zip(ORDER, which, strict=True) if applies)
    keep_going = Reason.PREDICATE not in reasons
    found = verdict(STRICT, exceeding(reasons), 100, kind_is_callback, False, keep_going)
    assert found is (reasons[0] if reasons else Reason.NONE)


@pytest.mark.parametrize("which", list(product((False, True), repeat=5)))
def test_b2_the_predicate_decides_nothing_on_first_detection(which: tuple[bool, ...]) -> None:
    """On first detection its answer makes no difference; nor past a hard bound, nor once a verdict is recorded."""
    reasons = tuple(reason for reason, applies in zip(ORDER, which, strict=True) if applies)
    record = exceeding(reasons)
    asked = {verdict(STRICT, record, 100, False, True, answer) for answer in (False, True)}
    assert len(asked) == 1
    assert Reason.PREDICATE not in asked
    hard = any(reason in reasons for reason in ORDER[:3])
    assert len({verdict(STRICT, record, 100, False, False, answer) for answer in (False, True)}) == (1 if hard else 2)
    given_up = attrs.evolve(record, reason=Reason.ATTEMPTS)
    assert {verdict(STRICT, given_up, 100, False, False, answer) for answer in (False, True)} == {Reason.ATTEMPTS}


def test_c8_the_time_of_waiting_is_not_held_against_the_turn() -> None:
    """Unparking starts the clock of progress anew: the time for which a person was waited for gives nothing up."""
    record = attrs.evolve(no_record(Turn.RUNNING, (0,)), status=Status.OPEN, parked=True, last_progress_at_ms=5)
    asleep = State(record, record, 1, True, (Phase.IDLE,), Phase.IDLE, False, 0, 900_000)
    assert unpark(asleep).buffered.last_progress_at_ms == asleep.now_ms
