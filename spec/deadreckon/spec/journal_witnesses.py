"""What must be reachable in the journal, so that no rule holds for want of anything to hold of."""

from __future__ import annotations

from .journal_rules import PROTOCOL, Ghost, awake, tail
from .journal_state import JournalPolicy, Phase, State
from .language import sometimes


@sometimes(
    "S1",
    "a row gets an offset that is not next to the head's, and what had those between is forgotten",
    source=PROTOCOL,
    beside=("J1", "J1a"),
    on=("append",),
)
def s1(before: State, after: State) -> bool:
    return after.log.head > before.log.head + 1 and before.log.head > 0 and before.buffer[0].offset == 0


@sometimes("S2", "a client connects, and it is known", source=PROTOCOL, beside=("J2", "J4c"), on=("connect",))
def s2(before: State, after: State) -> bool:
    return after.buffer != before.buffer and before.log.count > 0


@sometimes("S3", "a revival tells so in a row", source=PROTOCOL, beside=("J2a",), on=("revive",))
def s3(before: State, after: State) -> bool:
    return after.log.count == before.log.count + 1


@sometimes("S4", "a keyed row and an ephemeral event stand side by side", source=PROTOCOL, beside=("J3",))
def s4(state: State) -> bool:
    return any(row.key != 0 for row in state.log.rows) and state.buffer[0].offset != 0


@sometimes("S5", "a row is read after its type was declared ephemeral", source=PROTOCOL, beside=("J4",))
def s5(state: State) -> bool:
    return state.declared and any(row.offset == state.seen.offset for row in state.log.rows if row.offset != 0)


@sometimes("S6", "history is folded again under a definition that has changed", source=PROTOCOL, beside=("J4a",))
def s6(state: State) -> bool:
    return state.declared and state.replayed == 2


@sometimes(
    "S7",
    "an event of a type that is declared ephemeral is appended",
    source=PROTOCOL,
    beside=("J4b",),
    on=("append",),
)
def s7(before: State, after: State) -> bool:
    return before.declared and after.max_offset > before.max_offset


@sometimes("S8", "two rows have neighbouring indices, though not neighbouring offsets", source=PROTOCOL, beside=("J5",))
def s8(state: State) -> bool:
    first, second = state.log.rows[0], state.log.rows[1]
    return second.index == first.index + 1 and second.offset > first.offset + 1


@sometimes("S9", "somebody waits while the last offset is an ephemeral one", source=PROTOCOL, beside=("J6",))
def s9(state: State) -> bool:
    return state.waiting.offset != 0 and state.max_offset > state.log.head


@sometimes("S10", "a wait ends while the journal has grown", source=PROTOCOL, beside=("J6a",), on=("end_wait",))
def s10(before: State, after: State) -> bool:
    return before.log.head > before.waiting.offset


@sometimes("S11", "a repetition is told an event that is no longer the last", source=PROTOCOL, beside=("J7", "J7a"))
def s11(state: State) -> bool:
    return state.told.offset != 0 and state.told.offset < state.log.head


@sometimes(
    "S12", "a wake of the settled version has a tail to fold, and has folded it", source=PROTOCOL, beside=("J8",)
)
def s12(state: State, ghost: Ghost) -> bool:
    return (
        state.phase == Phase.LIVE and state.replayed == 1 and ghost.replayable == 1 and state.progress.acknowledged > 1
    )


@sometimes("S13", "another version goes live on its own fold of all rows", source=PROTOCOL, beside=("J8a", "J8e"))
def s13(state: State) -> bool:
    return state.phase == Phase.LIVE and state.replayed == state.progress.acknowledged and state.replayed > 1


@sometimes("S14", "an acknowledgement leaves the longest tail that is allowed", source=PROTOCOL, beside=("J8b", "J8d"))
def s14(policy: JournalPolicy, state: State) -> bool:
    return awake(state) and tail(state) == policy.checkpoint_every_events - 1


@sometimes("S15", "an effect follows a refold", source=PROTOCOL, beside=("J8c",), on=("process",))
def s15(before: State, after: State) -> bool:
    return before.replayed > 0


@sometimes("S16", "the buffer is full to the last byte", source=PROTOCOL, beside=("B1",))
def s16(policy: JournalPolicy, state: State) -> bool:
    return sum(event.size for event in state.buffer) == policy.buffer_max_bytes


@sometimes("S17", "the buffer forgets one of two events", source=PROTOCOL, beside=("B2",), on=("evict",))
def s17(before: State, after: State) -> bool:
    return before.buffer[1].offset != 0


@sometimes(
    "S18",
    "a row is appended with a key while an ephemeral event is known",
    source=PROTOCOL,
    beside=("J3a",),
    on=("append",),
)
def s18(before: State, after: State) -> bool:
    return after.told.key != 0 and after.log.count > before.log.count and before.buffer[0].offset != 0


@sometimes("S19", "the subject wakes while somebody waits for it", source=PROTOCOL, beside=("J6c",), on=("wake",))
def s19(before: State, after: State) -> bool:
    return before.waiting.offset != 0 and before.log.count > 0


@sometimes("S20", "a repetition is told the old event", source=PROTOCOL, beside=("J7b",), on=("append",))
def s20(before: State, after: State) -> bool:
    return after.max_offset == before.max_offset and after.told.key != 0 and before.told.key == 0
