"""Known-bad designs of the recovery incident: each replaces a few helpers, and each is refuted by the rule it names.

The first seventeen are the protocol's, met in the field or in review; the rest remove a guard that those leave alone.
"""

from __future__ import annotations

import attrs

from .incident import (
    accepts,
    admitted,
    counted,
    current,
    died,
    entered,
    entry_is_durable,
    gives_up,
    has_record,
    in_phase,
    is_open,
    next_identity,
    nobody_works,
    ready,
    removal_is_durable,
    removed,
    sweepable,
    terminal_is_durable,
    without_dead,
)
from .incident_budgets import credited, verdict, waits_for_person, within_limit
from .incident_state import Phase, Reason, Record, RecoveryPolicy, State, Status
from .language import swap
from .machine import Variant


def entered_alone(attempts: tuple[int, ...], slot: int, owner: int) -> tuple[int, ...]:
    """One in-flight mark for the whole incident, overwritten by each admission."""
    return (owner,) + tuple(0 for _ in attempts[1:])  # noqa: RUF005  # a starred generator is refused by the check


def removed_for_all(attempts: tuple[int, ...], slot: int) -> tuple[int, ...]:
    """The one mark is taken away by whoever finishes first."""
    return tuple(0 for _ in attempts)


def counted_per_entry(policy: RecoveryPolicy, record: Record, incarnation: int, now_ms: int) -> int:
    """Each entry left behind counts."""
    if record.status == Status.ABSENT:
        return 1
    return record.interrupted + sum(1 for owner in record.attempts if owner != 0 and owner != incarnation)


def always_durable(state: State, slot: int) -> bool:
    """Nobody waits for the sync."""
    return True


def not_counted(policy: RecoveryPolicy, record: Record, incarnation: int, now_ms: int) -> int:
    """Admission counts nothing: the dying incarnation is trusted to have done it."""
    return record.interrupted


def died_writing(state: State) -> State:
    """The dying incarnation writes the count; the write is lost with it, like every other unsynced one."""
    counting = attrs.evolve(state.buffered, interrupted=state.buffered.interrupted + 1)
    return died(attrs.evolve(state, buffered=counting))


def credited_in_full(policy: RecoveryPolicy, record: Record, produced: int, now_ms: int) -> Record:
    """Progress resets every meter, the count included."""
    meters = credited(policy, record, produced, now_ms)
    return attrs.evolve(meters, interrupted=0) if produced > record.progress else meters


def counted_unless_debounced(policy: RecoveryPolicy, record: Record, incarnation: int, now_ms: int) -> int:
    """A death soon after the last admission is not counted."""
    if record.attempt != 0 and now_ms - record.last_attempt_at_ms < policy.debounce_ms:
        return record.interrupted
    return counted(policy, record, incarnation, now_ms)


def open_or_sealed(record: Record) -> bool:
    """A callback queued before the seal runs after it."""
    return record.status == Status.OPEN or record.status == Status.SEALED


def no_verdict_once_sealed(
    policy: RecoveryPolicy, record: Record, now_ms: int, kind_is_callback: bool, first: bool, keep_going: bool
) -> Reason:
    """The seal is forgotten by the callback that runs."""
    if record.status == Status.SEALED:
        return Reason.NONE
    return verdict(policy, record, now_ms, kind_is_callback, first, keep_going)


def same_identity(incarnation: int) -> int:
    """The identity of the process, which outlives the incarnation."""
    return max(incarnation, 1)


def read_before_the_wait(state: State) -> Record:
    """The record as it was read before something was awaited: what others wrote meanwhile is overwritten."""
    return state.durable


def known_or_not(record: Record) -> bool:
    """A callback whose record is gone is let through."""
    return True


def open_or_missing(record: Record) -> bool:
    """A missing record is no obstacle to heavy work."""
    return record.status == Status.OPEN or record.status == Status.ABSENT


def admitted_or_untracked(
    policy: RecoveryPolicy, state: State, slot: int, kind_is_callback: bool, keep_going: bool
) -> State:
    """No record, so run without one."""
    if kind_is_callback and state.buffered.status == Status.ABSENT:
        return in_phase(state, slot, Phase.ADMITTED)
    return admitted(policy, state, slot, kind_is_callback, keep_going)


def durable_or_untracked(state: State, slot: int) -> bool:
    """An attempt without a record has no entry to wait for."""
    return entry_is_durable(state, slot) or state.buffered.status == Status.ABSENT


def sweepable_when_idle(policy: RecoveryPolicy, record: Record, incarnation: int, now_ms: int) -> bool:
    """Every idle record goes, whatever its count."""
    return record.status != Status.ABSENT and now_ms - record.last_attempt_at_ms > policy.record_ttl_ms


def ready_at_once(phase: Phase) -> bool:
    """The partial is rebuilt before the admission."""
    return phase == Phase.ADMITTED or phase == Phase.IDLE


def seals_at_once(state: State) -> bool:
    """The seal does not wait for the terminal fact."""
    return True


def gives_up_even_sealed(record: Record) -> bool:
    """The terminal fact follows the seal, if nothing happens in between."""
    return open_or_sealed(record) and not record.terminal_delivered


def waits_for_nobody(record: Record) -> bool:
    """Waiting for a person is no reason to wait."""
    return False


def verdict_but_for_callbacks(
    policy: RecoveryPolicy, record: Record, now_ms: int, kind_is_callback: bool, first: bool, keep_going: bool
) -> Reason:
    """Callbacks are exempt from every bound."""
    if kind_is_callback:
        return record.reason
    return verdict(policy, record, now_ms, kind_is_callback, first, keep_going)


def no_limit(policy: RecoveryPolicy, record: Record) -> bool:
    """What was admitted runs, whatever the count."""
    return True


def keeping_dead(attempts: tuple[int, ...], incarnation: int) -> tuple[int, ...]:
    """The entries of the dead stay, and are found again."""
    return attempts


def accepts_anybody(state: State, caller: int) -> bool:
    """The store takes writes of incarnations that are no more."""
    return state.alive


def seals_over_work(record: Record) -> bool:
    """The way to the seal does not wait for attempts at work."""
    return True


VARIANTS = (
    Variant(
        "single-slot",
        "C1",
        "one in-flight record, overwritten and removed by the callback",
        (swap(entered, entered_alone), swap(removed, removed_for_all)),
        "first draft of the released fix",
    ),
    Variant("count-per-entry", "C2", "each entry counts", (swap(counted, counted_per_entry),)),
    Variant(
        "heavy-before-sync",
        "C3",
        "heavy work starts before the entry is durable",
        (swap(entry_is_durable, always_durable),),
    ),
    Variant(
        "no-sync-on-finish",
        "C2",
        "finished is reported before the removal is durable",
        (swap(removal_is_durable, always_durable),),
        "fixed in review",
    ),
    Variant(
        "count-on-failure-path",
        "C1",
        "the dying incarnation writes the count",
        (swap(counted, not_counted), swap(died, died_writing)),
        'endless re-runs, "strike 1/3" for eight days',
    ),
    Variant(
        "reset-on-progress",
        "C5",
        "progress resets the count with the soft meters",
        (swap(credited, credited_in_full),),
        "54 deaths, count 0",
    ),
    Variant(
        "debounce-skips-count",
        "C1",
        "deaths within 30 s of the last admission are not counted",
        (swap(counted, counted_unless_debounced),),
    ),
    Variant(
        "sealed-callback-runs",
        "C7",
        "a callback queued before the seal runs after it",
        (swap(is_open, open_or_sealed), swap(verdict, no_verdict_once_sealed)),
    ),
    Variant(
        "process-identity", "C1", "the incarnation's identity survives a crash", (swap(next_identity, same_identity),)
    ),
    Variant(
        "lost-update",
        "C6",
        "read, await, write: two overlapping admissions leave one entry",
        (swap(current, read_before_the_wait),),
        "released npm agents 0.32.0: three overlapping admissions leave two entries",
    ),
    Variant(
        "untracked-when-missing",
        "C10",
        "no record, so run without one",
        (
            swap(has_record, known_or_not),
            swap(is_open, open_or_missing),
            swap(admitted, admitted_or_untracked),
            swap(entry_is_durable, durable_or_untracked),
        ),
        "released npm agents 0.32.0: after a sweep the callback runs uncounted",
    ),
    Variant(
        "sweep-erases-count",
        "C5",
        "the sweep deletes every idle record, whatever its count",
        (swap(sweepable, sweepable_when_idle),),
        "released npm agents 0.32.0",
    ),
    Variant(
        "rebuild-before-admission",
        "C11",
        "the partial is rebuilt before anything is counted",
        (swap(ready, ready_at_once), swap(entry_is_durable, always_durable)),
        "named as unbounded by its authors",
    ),
    Variant(
        "seal-before-terminal",
        "C9",
        "the seal comes first, and makes every later callback a no-op",
        (swap(terminal_is_durable, seals_at_once), swap(gives_up, gives_up_even_sealed)),
    ),
    Variant(
        "seal-while-parked",
        "C8",
        "budgets seal while a person is being waited for",
        (swap(waits_for_person, waits_for_nobody),),
        "human-in-the-loop turns sealed",
    ),
    Variant(
        "exempt-class",
        "C4",
        "callbacks are exempt from the limit",
        (swap(verdict, verdict_but_for_callbacks), swap(within_limit, no_limit)),
        "a stall limit that never applied to scheduled jobs",
    ),
    Variant(
        "found-twice",
        "C2",
        "each finding of a death counts",
        (swap(without_dead, keeping_dead),),
        "one death, two failure rows",
    ),
    Variant("no-fence", "C13", "the store takes writes of dead incarnations", (swap(accepts, accepts_anybody),)),
    Variant(
        "seal-over-work", "C7a", "the seal does not wait for attempts at work", (swap(nobody_works, seals_over_work),)
    ),
)
