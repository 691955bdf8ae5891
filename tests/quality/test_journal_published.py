"""What was published of journals that presence filled, walked through the machine and its known-bad variants."""

from __future__ import annotations

import attrs
import pytest

from deadreckon.spec import Machine
from deadreckon.spec.journal import initial
from deadreckon.spec.journal_rules import Ghost
from deadreckon.spec.journal_state import JournalPolicy, Phase, State
from deadreckon.spec.machines import journal
from tests.quality.walk import MachineWalk


class Walk(MachineWalk[State, Ghost]):
    """One run under the published policy."""

    def __init__(self, machine: Machine = journal) -> None:
        super().__init__(machine, JournalPolicy(), initial(), Ghost())
        self.boot()

    def boot(self, version: int = 1, declared: bool = False) -> Walk:
        """An incarnation begins; one that lives dies first."""
        if self.state.phase != Phase.DOWN:
            self.do("crash")
        return self.do("boot", version=version, declared=declared)

    def append(self, key: int = 0, body: int = 1, *, asked: bool = False) -> Walk:
        """Append one event."""
        return self.do("append", key=key, body=body, asked=asked, size=100)


def forgotten(machine: Machine) -> Walk:
    """A row at offset 8, an ephemeral at 9, then a restart: the scenario ``journal-offset-reused``."""
    walk = Walk(machine).do("append_others", rows=8).do("reserve", ahead=1).append(asked=True)
    assert walk.state.buffer[0].offset == 9
    return walk.boot().append()


def test_j1_the_offset_reused() -> None:
    """Offset 9 was issued twice across a restart: with the mark the row gets 10."""
    walk = forgotten(journal)
    assert (walk.state.log.head, walk.broken) == (10, set())
    again = forgotten(journal.variant("reused-offset"))
    assert (again.state.log.head, again.broken) == (9, {"J1"})


def revived(machine: Machine, clients: int) -> Walk:
    """A host that died is revived: its row, and so many clients that come and go again."""
    walk = Walk(machine).do("append_others", rows=3).boot().do("revive")
    for _ in range(clients):
        for change in ("connect", "disconnect"):
            walk.do("reserve", ahead=1).do(change, size=100)
            if walk.state.buffer[-1].offset:
                walk.do("evict")
    return walk


def test_j2_the_death_spiral() -> None:
    """1,500 sessions reconnected at each revival, a row each way: one row now, however many come."""
    walk = revived(journal, 1_500)
    assert (walk.state.log.count, walk.state.max_offset, walk.broken) == (4, 3_004, set())
    spiral = revived(journal.variant("durable-presence"), 10)
    assert spiral.state.log.count == 24
    assert "J2" in spiral.broken


def test_j3_the_keyed_departure() -> None:
    """A departure appended with a key after presence had become ephemeral was lost: it is refused, so somebody knows."""
    walk = Walk().boot(2, declared=True).do("reserve", ahead=1)
    assert walk.refuses("append", key=5, body=1, asked=False, size=1) == "J3"


@pytest.mark.parametrize(
    ("design", "broken"), [("keyed-ephemeral", {"J3", "J3a", "J7"}), ("key-dropped", {"J3a", "J7"})]
)
def test_j3_an_ephemeral_event_is_taken_with_its_key_or_without(design: str, broken: set[str]) -> None:
    """Whether the key is kept in the buffer or dropped in silence, its sender goes on as if it were remembered."""
    assert Walk(journal.variant(design)).do("reserve", ahead=1).append(5, asked=True).broken == broken


def test_j7_a_repetition_that_is_told_nothing() -> None:
    """An append that is sent again changes nothing, and its sender is told nothing: it can't know that it was heard."""
    assert Walk(journal).append(7).append(7).broken == set()
    assert Walk(journal.variant("repetition-untold")).append(7).append(7).broken == {"J7b"}


def replayed(machine: Machine) -> Walk:
    """Three rows of a type that version 2 declares ephemeral, folded by version 2."""
    walk = Walk(machine).do("append_others", rows=2).append().do("wake").do("checkpoint").do("process", rows=3)
    return walk.boot(2, declared=True).do("read_row", slot=0).do("wake").do("fold_page", rows=3)


def test_j4_the_frozen_replay() -> None:
    """The first version of the fix defaulted the flag onto old rows, and a frozen replay saw the count drift."""
    walk = replayed(journal)
    assert (walk.state.fold.events, walk.state.effects, walk.broken) == (3, 3, set())
    drifted = replayed(journal.variant("parse-rewrites-history"))
    assert drifted.state.fold.events == 0
    assert {"J4", "J4a"} <= drifted.broken


def test_j4_a_repetition_across_the_change_is_told_the_old_event() -> None:
    """A keyed append is sent again after its type was declared ephemeral: it is a row since long."""
    walk = Walk().append(7).boot(2, declared=True).append(7)
    assert (walk.state.told.offset, walk.broken) == (1, set())
    assert walk.refuses("append", key=7, body=2, asked=False, size=1) == "J7"


def test_j5_the_vanishing_rows() -> None:
    """A list that took offset less one for a position lost all rows after a gap."""

    def listed(machine: Machine) -> Walk:
        return Walk(machine).append().do("reserve", ahead=1).do("connect", size=1).append()

    walk = listed(journal)
    assert ([row.index for row in walk.state.log.rows], walk.broken) == ([0, 1], set())
    assert "J5" in listed(journal.variant("offset-as-index")).broken


def waited(machine: Machine) -> Walk:
    """Somebody waits while the last offset is an ephemeral one, and the subject does all there is to do."""
    walk = Walk(machine).append().do("reserve", ahead=1).do("connect", size=1).do("begin_wait")
    return walk.do("wake").do("checkpoint").do("process", rows=1)


def test_j6_the_wait_that_hung() -> None:
    """Waiting on a trailing ephemeral offset hangs; on the last row it ends."""
    assert waited(journal).do("end_wait").broken == set()
    hung = waited(journal.variant("wait-on-ephemeral"))
    assert hung.refuses("end_wait") == "J6"
    assert hung.broken == {"J6"}


def test_j6_the_wait_that_a_wake_forgot() -> None:
    """Somebody waits before the subject has woken: the subject that begins knows of the wait."""
    assert waited(journal.variant("wake-forgets-waits")).broken == {"J6c"}


def woken(machine: Machine, version: int) -> Walk:
    """100,000 events, all acknowledged in batches of 10, and a wake; what is to be folded again is folded."""
    walk = Walk(machine).do("append_others", rows=100_000).do("wake").do("checkpoint")
    walk.do("process", rows=99_967).do("process", rows=33).boot(version).do("wake")
    left = walk.state.progress.acknowledged - walk.state.fold.position
    return walk.do("fold_page", rows=left)


def test_j8_the_wake_of_a_long_journal() -> None:
    """A same-version wake of 100,000 events is one read of the identity, and one of the tail."""
    walk = woken(journal, 1)
    assert (walk.state.reads, walk.state.replayed, walk.broken) == (2, 33, set())
    assert woken(journal.variant("replay-from-zero"), 1).broken == {"J8"}


def test_j8_the_refold_runs_nothing() -> None:
    """Another version folds all 100,000 again, runs no effect, and is not live before its fold is kept."""
    walk = woken(journal, 2).do("append_others", rows=1)
    assert (walk.state.replayed, walk.state.effects, walk.state.progress.acknowledged) == (100_000, 100_000, 100_000)
    assert walk.refuses("process", rows=1) == "J8b"
    walk.do("checkpoint").do("process", rows=1)
    assert (walk.state.effects, walk.broken) == (100_001, set())


def test_b1_an_event_larger_than_the_buffer_takes_no_offset() -> None:
    """One ephemeral larger than the whole budget is refused before any offset is used."""
    walk = Walk().do("reserve", ahead=1)
    before = walk.state
    assert walk.refuses("connect", size=JournalPolicy().buffer_max_bytes + 1) == "B1"
    assert walk.state == before
    assert attrs.evolve(before, max_offset=0) == before
