"""The recovery incident: every dead attempt is counted exactly once, before the next one does heavy work.

Rules of this file
    Everything below is a pure function over frozen values. The explorer, the solvers and the reference
    implementation call these very functions; nothing here knows about them. Rule ids (C1 to C13) are those of the
    protocol, and stand in ``incident_rules.py``; the known-bad designs are in ``incident_variants.py``.

Words
    *Incarnation*: one life of whatever owns the record; a new life has a new identity, always. *Turn*: the work that
    must be done once. *Attempt*: one try at it: the original turn, a replay, or a queued callback. *Heavy work*:
    whatever may kill the incarnation. *Admission*: the one atomic read-modify-write that lets an attempt run.
    *Entry*: the mark that an admitted attempt leaves in the record until it ends. *Verdict*: the recorded reason for
    which an incident is given up. *Seal*: the final refusal.

Theory of operation
    The dying can't write, so nothing is recorded on the failure path. Instead every attempt leaves its entry before it
    does heavy work, and takes it away when it ends. The next admission finds the entries of incarnations that are no
    more, counts each such incarnation once, drops their entries and adds its own: one write. Only when that write is
    durable may heavy work start. The original turn leaves no entry; a replay that finds no record counts it.
    The order is always: admission, sync, heavy work, removal, sync, report. On the way to the seal: verdict, sync,
    terminal fact, sync, seal; no heavy work on it.

Storage
    ``durable`` is what a crash leaves, ``buffered`` what the live incarnation reads and writes; ``sync`` copies the
    latter to the former, at any moment, so that a crash keeps any prefix of the unsynced writes.

Decided conflicts
    * Cause is irrelevant: a deploy counts like a fault. Five deploys over a healthy turn seal it.
    * A removal that was not durable when its incarnation died is counted: at most one too many, never one too few.
    * While parked (a person is waited for) deaths are counted, but no verdict falls; it falls at the first admission
      after. An attempt admitted while parked starts no heavy work once unparked at the limit. Parking is refused once
      a verdict is recorded: the incident is on its way to the seal.
    * The time for which a person was waited for is no time without progress; the time for which a turn lay idle is.
    * The seal waits for attempts that are still at work; a sealed record is final.
    * The original turn that ends without a result (a stall, a clean shutdown) opens the record with count 0.
    * The sweep takes only incidents that are over (closed), never a live or sealed one: an open record with count 0
      that were swept would be counted 1 by its replay, though nothing died; a sealed one would run again.
    * (owner, slot) names an attempt: a slot is taken by one attempt of one incarnation at a time.

Not modelled
    Chat content, stream chunks, reconnecting clients. The progress counter is an opaque number that grows. Other
    incidents: each has its own record, so they are independent.
"""

from __future__ import annotations

import attrs

from .incident_budgets import credited, verdict, within_limit
from .incident_state import SLOTS, Outcome, Phase, Reason, Record, RecoveryPolicy, State, Status, Turn
from .language import require


def no_record(turn: Turn, slots: tuple[int, ...]) -> Record:
    """A turn without an incident; *slots* are free (owner 0)."""
    return Record(turn, Status.ABSENT, 0, slots, Reason.NONE, False, False, 0, 0, 0, 0, 0, 0)


def initial(slots: int = SLOTS) -> State:
    """Nothing has started, nobody lives."""
    record = no_record(Turn.NEW, tuple(0 for _ in range(slots)))
    phases = tuple(Phase.IDLE for _ in range(slots))
    return State(record, record, 0, False, phases, Phase.IDLE, False, 0, 0)


# Helpers: the words of the protocol. A variant replaces some of them.


def current(state: State) -> Record:
    """The record that an admission reads: all that this incarnation wrote, in the same transaction (C6)."""
    return state.buffered


def next_identity(incarnation: int) -> int:
    """The identity of the next incarnation: never used before."""
    return incarnation + 1


def accepts(state: State, caller: int) -> bool:
    """Whether the store takes a write of *caller* (fencing, C13)."""
    return state.alive and caller == state.incarnation


def dead_owners(attempts: tuple[int, ...], incarnation: int) -> int:
    """How many distinct other incarnations left entries: each is one death, however many it left (C2)."""
    return sum(
        1
        for index, owner in enumerate(attempts)
        if owner != 0 and owner != incarnation and owner not in attempts[:index]
    )


def counted(policy: RecoveryPolicy, record: Record, incarnation: int, now_ms: int) -> int:
    """The count after an admission; a missing record means that the original turn died (C1).

    Neither *policy* nor *now_ms* is looked at: no debounce and no limit changes what is counted.
    """
    if record.status == Status.ABSENT:
        return 1
    return record.interrupted + dead_owners(record.attempts, incarnation)


def without_dead(attempts: tuple[int, ...], incarnation: int) -> tuple[int, ...]:
    """The entries of the live incarnation: they are kept (C6), all others have been counted."""
    return tuple(owner if owner == incarnation else 0 for owner in attempts)


def entered(attempts: tuple[int, ...], slot: int, owner: int) -> tuple[int, ...]:
    """The entries with that of the attempt in *slot*."""
    return (*attempts[:slot], owner, *attempts[slot + 1 :])


def removed(attempts: tuple[int, ...], slot: int) -> tuple[int, ...]:
    """The entries without that of the attempt in *slot*."""
    return (*attempts[:slot], 0, *attempts[slot + 1 :])


def in_phase(state: State, slot: int, phase: Phase) -> State:
    """The state with the attempt in *slot* moved to *phase*."""
    return attrs.evolve(state, phases=(*state.phases[:slot], phase, *state.phases[slot + 1 :]))


def has_record(record: Record) -> bool:
    """Whether there is an incident to work for (C10)."""
    return record.status != Status.ABSENT


def is_open(record: Record) -> bool:
    """Whether attempts may be admitted (C7)."""
    return record.status == Status.OPEN


def entry_is_durable(state: State, slot: int) -> bool:
    """Whether the attempt's own entry would survive a crash (C3)."""
    return state.durable.attempts[slot] == state.incarnation


def removal_is_durable(state: State, slot: int) -> bool:
    """Whether a crash now would not bring the entry back (C2)."""
    return state.durable.attempts[slot] != state.incarnation


def ready(phase: Phase) -> bool:
    """Whether an attempt may start heavy work: only past its admission (C11)."""
    return phase == Phase.ADMITTED


def nobody_works(record: Record) -> bool:
    """Whether no entry is left; the way to the seal begins only then (C7)."""
    return all(owner == 0 for owner in record.attempts)


def opened(record: Record, produced: int, now_ms: int) -> Record:
    """The record as an admission finds it: a missing one is opened now."""
    if record.status != Status.ABSENT:
        return record
    return attrs.evolve(
        record,
        status=Status.OPEN,
        progress=produced,
        work_baseline=produced,
        last_progress_at_ms=now_ms,
        last_attempt_at_ms=now_ms,
    )


def admitted(policy: RecoveryPolicy, state: State, slot: int, kind_is_callback: bool, keep_going: bool) -> State:
    """Admission: count the dead, drop their entries, then enter or give up, in one write."""
    found = current(state)
    record = attrs.evolve(
        opened(found, state.produced, state.now_ms),
        interrupted=counted(policy, found, state.incarnation, state.now_ms),
        attempts=without_dead(found.attempts, state.incarnation),
    )
    record = credited(policy, record, state.produced, state.now_ms)
    first = found.attempt == 0
    reason = verdict(policy, record, state.now_ms, kind_is_callback, first, keep_going)
    if reason != Reason.NONE:
        given_up = attrs.evolve(state, buffered=attrs.evolve(record, reason=reason))
        return in_phase(given_up, slot, Phase.GIVING_UP)
    entry = entered(record.attempts, slot, state.incarnation)
    return in_phase(attrs.evolve(state, buffered=attrs.evolve(record, attempts=entry)), slot, Phase.ADMITTED)


def died(state: State) -> State:
    """A death: memory and every unsynced write are lost."""
    idle = tuple(Phase.IDLE for _ in state.phases)
    return attrs.evolve(state, alive=False, phases=idle, original=Phase.IDLE, buffered=state.durable)


# Actions.


def boot(state: State) -> State:
    """A new incarnation begins, under an identity never used before."""
    require(not state.alive, "C13", "an incarnation lives already")
    return attrs.evolve(state, alive=True, incarnation=next_identity(state.incarnation))


def begin(state: State) -> State:
    """The original turn starts; that it is owed is durable before it does anything."""
    require(state.alive, "C13", "no incarnation lives")
    require(state.buffered.turn == Turn.NEW, "C3", "the turn has been started before: replay it")
    record = attrs.evolve(state.buffered, turn=Turn.RUNNING)
    return attrs.evolve(state, durable=record, buffered=record, original=Phase.HEAVY)


def end_original(state: State, outcome: Outcome) -> State:
    """The original turn ends in a living incarnation: with its result, or handing over to recovery."""
    require(state.original == Phase.HEAVY, "C2", "the original turn does not run here")
    record = current(state)
    if outcome == Outcome.DONE:
        ended = attrs.evolve(record, turn=Turn.FINISHED)
    else:
        ended = opened(record, state.produced, state.now_ms)
    return attrs.evolve(state, buffered=ended, original=Phase.FINISHING, callback=outcome != Outcome.DONE)


def report_original(state: State) -> State:
    """The end of the original turn is reported: only once it is durable."""
    require(state.original == Phase.FINISHING, "C2", "the original turn has not ended here")
    require(
        state.durable.turn == Turn.FINISHED or state.durable.status != Status.ABSENT,
        "C2",
        "the end of the original turn is not durable yet",
    )
    return attrs.evolve(state, original=Phase.IDLE)


def replay(policy: RecoveryPolicy, state: State, slot: int, keep_going: bool) -> State:
    """An unfinished turn that does not run here is taken up; the only action that may open a record by counting."""
    require(state.alive, "C13", "no incarnation lives")
    require(state.phases[slot] == Phase.IDLE, "C6", "the slot is taken by another attempt")
    require(state.original == Phase.IDLE, "C2", "the original turn is alive in this incarnation")
    record = current(state)
    require(record.turn == Turn.RUNNING, "C10", "there is no unfinished turn to replay")
    require(record.status == Status.ABSENT or is_open(record), "C7", "the incident is over")
    return admitted(policy, state, slot, False, keep_going)


def deliver(policy: RecoveryPolicy, state: State, slot: int, again: bool, keep_going: bool) -> State:
    """A queued callback fires; it may stay queued (*again*), since delivery is at least once."""
    require(state.alive, "C13", "no incarnation lives")
    require(state.phases[slot] == Phase.IDLE, "C6", "the slot is taken by another attempt")
    require(state.callback, "C10", "no callback is queued")
    record = current(state)
    require(has_record(record), "C10", "there is no incident for this callback")
    require(is_open(record), "C7", "the incident is over")
    return admitted(policy, attrs.evolve(state, callback=again), slot, True, keep_going)


def sync(state: State) -> State:
    """The buffered writes become durable."""
    require(state.buffered != state.durable, "C3", "nothing is waiting to become durable")
    return attrs.evolve(state, durable=state.buffered)


def start_work(policy: RecoveryPolicy, state: State, slot: int) -> State:
    """An admitted attempt starts heavy work."""
    require(ready(state.phases[slot]), "C11", "the attempt has not been admitted")
    require(entry_is_durable(state, slot), "C3", "the attempt's entry is not durable yet")
    record = current(state)
    require(is_open(record) and record.reason == Reason.NONE, "C7", "the incident is over or given up")
    require(within_limit(policy, record), "C4", "as many incarnations died as the limit allows")
    return in_phase(state, slot, Phase.HEAVY)


def progress(state: State, units: int) -> State:
    """Heavy work produced something new, so many units of it."""
    working = any(phase == Phase.HEAVY for phase in state.phases) or state.original == Phase.HEAVY
    require(working, "C5", "no heavy work runs")
    return attrs.evolve(state, produced=state.produced + units)


def finish(state: State, slot: int, outcome: Outcome) -> State:
    """An attempt ends in a living incarnation: it takes its own entry away, and no other (C6)."""
    phase = state.phases[slot]
    require(phase == Phase.ADMITTED or phase == Phase.HEAVY, "C6", "no attempt runs in this slot")
    record = current(state)
    done = outcome == Outcome.DONE and is_open(record)
    ended = attrs.evolve(
        record,
        attempts=removed(record.attempts, slot),
        turn=Turn.FINISHED if done else record.turn,
        status=Status.CLOSED if done else record.status,
        transient_retries=record.transient_retries + (1 if outcome == Outcome.TRANSIENT and is_open(record) else 0),
    )
    queued = attrs.evolve(state, buffered=ended, callback=state.callback or outcome != Outcome.DONE)
    return in_phase(queued, slot, Phase.FINISHING)


def report(state: State, slot: int) -> State:
    """The end of an attempt is reported: only once its removal is durable."""
    require(state.phases[slot] == Phase.FINISHING, "C2", "no attempt has ended in this slot")
    require(removal_is_durable(state, slot), "C2", "the removal of the entry is not durable yet")
    return in_phase(state, slot, Phase.IDLE)


def gives_up(record: Record) -> bool:
    """Whether the terminal fact is still to be told."""
    return record.status == Status.OPEN and not record.terminal_delivered


def verdict_is_durable(state: State) -> bool:
    """Whether the incident stays given up whatever happens next."""
    return state.durable.reason != Reason.NONE


def terminal_is_durable(state: State) -> bool:
    """Whether the terminal fact survives a crash; the seal comes only then (C9)."""
    return state.durable.terminal_delivered


def deliver_terminal(state: State, slot: int) -> State:
    """The terminal fact of a given-up incident is told and recorded; it may be told again after a crash."""
    require(state.phases[slot] == Phase.GIVING_UP, "C9", "no attempt gives up in this slot")
    require(gives_up(state.buffered), "C9", "the terminal fact is told already, or the incident is over")
    require(verdict_is_durable(state), "C9", "the verdict is not durable yet")
    require(nobody_works(state.buffered), "C7", "another attempt is still at work")
    return attrs.evolve(state, buffered=attrs.evolve(state.buffered, terminal_delivered=True))


def seal(state: State, slot: int) -> State:
    """The final refusal, after the terminal fact is durable."""
    require(state.phases[slot] == Phase.GIVING_UP, "C9", "no attempt gives up in this slot")
    require(state.buffered.status == Status.OPEN, "C7", "the incident is over")
    require(terminal_is_durable(state), "C9", "the terminal fact is not durable yet")
    return attrs.evolve(state, buffered=attrs.evolve(state.buffered, status=Status.SEALED))


def stand_down(state: State, slot: int) -> State:
    """An attempt on its way to the seal ends because the incident is over."""
    require(state.phases[slot] == Phase.GIVING_UP, "C9", "no attempt gives up in this slot")
    require(not is_open(state.buffered), "C9", "the incident is not sealed yet")
    return in_phase(state, slot, Phase.IDLE)


def park(state: State) -> State:
    """A person is waited for: from now on no verdict falls."""
    require(state.alive, "C13", "no incarnation lives")
    require(is_open(state.buffered), "C7", "there is no open incident")
    require(state.buffered.reason == Reason.NONE, "C8", "the incident is given up already")
    require(not state.buffered.parked, "C8", "the incident is parked already")
    return attrs.evolve(state, buffered=attrs.evolve(state.buffered, parked=True))


def unpark(state: State) -> State:
    """The person has answered: the time of waiting is not held against the turn, the deaths meanwhile are."""
    require(state.alive, "C13", "no incarnation lives")
    require(state.buffered.parked, "C8", "the incident is not parked")
    require(is_open(state.buffered), "C7", "there is no open incident")
    return attrs.evolve(state, buffered=attrs.evolve(state.buffered, parked=False, last_progress_at_ms=state.now_ms))


def sweepable(policy: RecoveryPolicy, record: Record, incarnation: int, now_ms: int) -> bool:
    """Whether a record may be dropped: its incident is over, nobody works on it, and it is idle long enough (C5)."""
    return (
        record.status == Status.CLOSED
        and all(owner != incarnation for owner in record.attempts)
        and now_ms - record.last_attempt_at_ms > policy.record_ttl_ms
    )


def sweep(policy: RecoveryPolicy, state: State) -> State:
    """Drop the record of an incident that is durably over, and long."""
    require(state.alive, "C13", "no incarnation lives")
    record = state.durable
    require(sweepable(policy, record, state.incarnation, state.now_ms), "C5", "the record is live, sealed or recent")
    free = tuple(0 for _ in record.attempts)
    return attrs.evolve(state, buffered=no_record(record.turn, free))


def crash(state: State) -> State:
    """The incarnation dies of a fault, at any point."""
    require(state.alive, "C13", "no incarnation lives")
    return died(state)


def deploy(state: State) -> State:
    """The incarnation is replaced on purpose: a death like any other."""
    require(state.alive, "C13", "no incarnation lives")
    return died(state)


def call_from_the_dead(state: State, slot: int) -> State:
    """The last incarnation that died, still running somewhere, tries to enter an attempt; the store rejects it."""
    caller = state.incarnation - 1 if state.alive else state.incarnation
    require(caller >= 1, "C13", "no incarnation has died yet")
    if not accepts(state, caller):
        return state
    entry = entered(state.buffered.attempts, slot, caller)
    return attrs.evolve(state, buffered=attrs.evolve(state.buffered, attempts=entry))


def tick(state: State, elapsed_ms: int) -> State:
    """Time passes."""
    return attrs.evolve(state, now_ms=state.now_ms + elapsed_ms)
