"""What was published of recovery incidents, walked step by step through the machine and its known-bad variants."""

from __future__ import annotations

from typing import Self

import attrs
import pytest

from deadreckon.models.explorer import explore
from deadreckon.models.relation import relation
from deadreckon.proofs import bounded
from deadreckon.proofs.spacer import search
from deadreckon.proofs.system import System
from deadreckon.spec import Machine, Variant, swap
from deadreckon.spec.incident import counted, initial
from deadreckon.spec.incident_rules import Ghost
from deadreckon.spec.incident_state import Outcome, Phase, Reason, Record, RecoveryPolicy, State, Status
from deadreckon.spec.machines import incident
from tests.quality.walk import MachineWalk

LIMIT = 5


class Walk(MachineWalk[State, Ghost]):
    """One run, which counts how often the model ran."""

    def __init__(self, machine: Machine = incident, limit: int = LIMIT) -> None:
        super().__init__(machine, RecoveryPolicy(max_interrupted_attempts=limit), initial(), Ghost())
        self.runs = 0

    def do(self, *names: str, **inputs: object) -> Self:
        """Take these actions, all with the same inputs."""
        super().do(*names, **inputs)
        self.runs += sum(name in ("begin", "start_work") for name in names)
        return self

    def replay(self, slot: int = 0) -> Walk:
        """A replay is admitted, durably or on its way there."""
        return self.do("replay", slot=slot, keep_going=True)

    def deliver(self, slot: int, again: bool = True) -> Walk:
        """A callback is admitted."""
        return self.do("deliver", slot=slot, again=again, keep_going=True)

    def first_life(self) -> Walk:
        """The original turn runs and dies."""
        return self.do("boot", "begin", "crash")

    def handed_over(self) -> Walk:
        """The original turn ends without a result and leaves it to callbacks; nothing has died."""
        return self.do("boot", "begin").do("end_original", outcome=Outcome.YIELDED).do("sync", "report_original")

    def published_life(self) -> Walk:
        """A replay finds the turn interrupted and queues a callback, which runs the model and dies."""
        self.do("boot").replay().do("sync").do("finish", slot=0, outcome=Outcome.YIELDED).do("sync")
        return self.do("report", slot=0).deliver(0).do("sync").do("start_work", slot=0).do("crash")

    def synced(self) -> Walk:
        """What was written, if anything was, becomes durable."""
        return self if self.state.buffered == self.state.durable else self.do("sync")

    def life(self) -> Walk:
        """A replay runs the model and dies."""
        return self.do("boot").replay().do("sync").do("start_work", slot=0).do("crash")

    def sealed(self) -> Walk:
        """The way to the seal, for the attempt in slot 0 that gave up."""
        return self.do("sync", "deliver_terminal", "sync", "seal", "sync", "stand_down", slot=0)

    @property
    def count(self) -> int:
        """The durable count."""
        return self.state.durable.interrupted


def variant(name: str, limit: int = LIMIT) -> Walk:
    """A walk through a known-bad variant."""
    return Walk(incident.variant(name), limit)


def test_c4_the_worked_table_step_by_step() -> None:
    """With limit 5 the model runs five times, the original included; the sixth incarnation seals and runs nothing."""
    walk = Walk().first_life()
    assert (walk.runs, walk.state.durable.status) == (1, Status.ABSENT)
    for number in range(1, 5):
        walk.do("boot").replay()
        assert walk.state.buffered.interrupted == number
        walk.do("sync").do("finish", slot=0, outcome=Outcome.YIELDED).do("sync").do("report", slot=0).deliver(0)
        assert walk.state.buffered.interrupted == number, "the callback of the same incarnation counts nothing"
        walk.do("sync").do("start_work", slot=0).do("crash")
        assert (walk.runs, walk.count) == (number + 1, number)
        assert walk.state.durable.attempts.count(walk.state.incarnation) == 1
    walk.do("boot").replay()
    assert (walk.state.buffered.interrupted, walk.state.buffered.reason) == (5, Reason.INTERRUPTED)
    assert walk.state.phases[0] is Phase.GIVING_UP
    walk.deliver(1)
    assert walk.state.phases[1] is Phase.GIVING_UP
    assert walk.refuses("start_work", slot=1) == "C11"
    walk.sealed().do("stand_down", slot=1)
    assert (walk.state.durable.status, walk.count, walk.runs) == (Status.SEALED, 5, 5)
    assert walk.refuses("deliver", slot=0, again=False, keep_going=True) in ("C7", "C10")
    assert walk.refuses("replay", slot=0, keep_going=True) == "C7"
    assert walk.broken == set()


@pytest.mark.parametrize("limit", [1, 2, 3, 8])
def test_c4_a_turn_that_dies_every_time_runs_exactly_limit_times(limit: int) -> None:
    """Whatever the limit, that many runs and then the seal; not one run fewer."""
    walk = Walk(limit=limit).first_life()
    while walk.runs < limit:
        walk.published_life()
    walk.do("boot").replay().sealed()
    assert (walk.runs, walk.count, walk.state.durable.status) == (limit, limit, Status.SEALED)
    assert walk.broken == set()


@pytest.mark.parametrize("runs", [14, 54])
def test_c1_counted_on_the_failure_path_nothing_is_counted(runs: int) -> None:
    """As released before the fix: 14 runs (54, in another system) and more, count 0, attempt 1, never sealed."""
    walk = variant("count-on-failure-path").first_life()
    while walk.runs < runs:
        walk.published_life()
    record = walk.state.durable
    assert (record.interrupted, record.attempt, record.status, record.reason) == (0, 1, Status.OPEN, Reason.NONE)
    assert walk.broken >= {"C1", "C4a"}
    walk.do("boot").replay()
    assert walk.state.phases[0] is Phase.ADMITTED, "and so on without end"


@pytest.mark.parametrize("limit", [1, 2, 5, 20])
def test_c4a_no_limit_bounds_what_is_counted_on_the_failure_path(limit: int) -> None:
    """For every limit the variant runs once more than that."""
    walk = variant("count-on-failure-path", limit).first_life()
    while walk.runs <= limit:
        assert "C4a" not in walk.broken
        walk.published_life()
    assert "C4a" in walk.broken


def test_c4a_is_refuted_where_the_dying_count() -> None:
    """Exploration and the bounded check find runs past the limit, as early as they can be."""
    traced = relation(incident.variant("count-on-failure-path"))
    parking = next(one for one in incident.scopes if one.name == "parking")
    explored = explore(traced.machine, traced=traced, only="C4a", compare_every=0)
    assert len(explored.violated["C4a"]) == 13, "limit 2: three lives of which the last two were recovered"
    found = bounded(traced, parking, ["C4a"], depth=8)["C4a"]
    assert (found.verdict, found.depth) == ("violated", 8), "limit 1: one life of three steps, one of five"


@pytest.mark.slow
def test_c4a_is_refuted_unbounded_where_the_dying_count() -> None:
    """Spacer derives runs past the limit, confined to no scope: no bound on steps or incarnations saves the design."""
    traced = relation(incident.variant("count-on-failure-path"))
    assert search(System(traced), "C4a", (), 240.0).verdict == "refuted"


def overlapping(walk: Walk) -> Walk:
    """A replay at heavy work, beside which a callback comes and goes; then death, and the next admission."""
    walk.handed_over().replay().do("sync").do("start_work", slot=0).deliver(1, again=False).synced()
    walk.do("finish", slot=1, outcome=Outcome.YIELDED).do("sync").do("report", slot=1).do("crash")
    return walk.do("boot").replay().do("sync")


def test_c1_the_attempt_that_outlives_its_neighbour_is_counted() -> None:
    """Two attempts overlap, the callback finishes first, the replay dies: counted."""
    walk = overlapping(Walk())
    assert (walk.count, walk.broken) == (1, set())
    bad = overlapping(variant("single-slot"))
    assert bad.count == 0
    assert "C1" in bad.broken


def both_die(walk: Walk) -> Walk:
    """An incarnation dies with a replay and a callback at heavy work."""
    walk.handed_over().replay().deliver(1, again=False).do("sync")
    walk.do("start_work", slot=0).do("start_work", slot=1).do("crash")
    return walk.do("boot").replay().do("sync")


def test_c2_an_incarnation_with_two_entries_counts_once() -> None:
    """The unit of death is the incarnation, however many attempts it held."""
    walk = both_die(Walk())
    assert (walk.count, walk.ghost.deaths, walk.broken) == (1, 1, set())
    bad = both_die(variant("count-per-entry"))
    assert bad.count == 2
    assert "C2" in bad.broken


def test_c2_a_clean_finish_and_then_a_death_is_not_counted() -> None:
    """Once the removal is durable the attempt is over: a death after it is none of it."""
    walk = Walk().handed_over().replay().do("sync").do("start_work", slot=0)
    walk.do("finish", slot=0, outcome=Outcome.TRANSIENT)
    assert walk.refuses("report", slot=0) == "C2"
    walk.do("sync").do("report", slot=0).do("crash", "boot").replay().do("sync")
    assert (walk.count, walk.ghost.deaths, walk.broken) == (0, 0, set())


def test_c2_a_finish_that_was_reported_but_not_durable_is_counted() -> None:
    """Reported before the removal is durable, an attempt that ended is counted as dead: refused, or C2 is broken."""
    bad = variant("no-sync-on-finish").handed_over().replay().do("sync").do("start_work", slot=0)
    bad.do("finish", slot=0, outcome=Outcome.YIELDED).do("report", slot=0).do("crash", "boot").replay()
    assert bad.state.buffered.interrupted == 1
    assert "C2" in bad.broken


def test_c6_three_overlapping_admissions_leave_three_entries() -> None:
    """A replay and two callbacks admitted before anything is synced: none overwrites another's entry."""
    walk = Walk().handed_over().replay().deliver(1).deliver(2).do("sync")
    assert walk.state.durable.attempts == (1, 1, 1)
    assert walk.broken == set()
    bad = variant("lost-update").handed_over().replay().deliver(1).deliver(2)
    assert bad.state.buffered.attempts.count(1) < 3
    assert "C6" in bad.broken


def test_c5_an_idle_hour_erases_nothing() -> None:
    """The sweep of a record that is open and counted is refused; released, it forgot two deaths."""
    for walk in (Walk(), variant("sweep-erases-count")):
        walk.first_life().published_life().do("boot").replay().do("sync").do("crash", "boot")
        walk.do("tick", elapsed_ms=3_600_001)
        assert walk.count == 2
        if walk.machine is incident:
            assert walk.refuses("sweep") == "C5"
            assert walk.broken == set()
        else:
            walk.do("sweep", "sync")
            assert walk.count == 0
            assert "C5" in walk.broken


def test_c10_a_callback_without_a_record_is_refused() -> None:
    """Released, it ran uncounted after a sweep."""
    for walk in (Walk(), variant("untracked-when-missing")):
        walk.handed_over().replay().do("sync").do("finish", slot=0, outcome=Outcome.DONE).do("sync")
        walk.do("report", slot=0).do("tick", elapsed_ms=3_600_001).do("sweep", "sync")
        assert (walk.state.callback, walk.state.durable.status) == (True, Status.ABSENT)
        if walk.machine is incident:
            assert walk.refuses("deliver", slot=0, again=False, keep_going=True) == "C10"
            assert walk.broken == set()
        else:
            walk.deliver(0).do("start_work", slot=0)
            assert "C10" in walk.broken


# Field reports.


def streaming_life(walk: Walk) -> Walk:
    """A life that streams a little before it dies."""
    return walk.do("boot").replay().do("sync").do("start_work", slot=0).do("progress", units=1).do("crash")


def test_report_17_progress_resets_everything() -> None:
    """A little streamed in each life: the sound machine seals at the fifth death, the bad one forgets them all."""
    walk = Walk().do("boot", "begin").do("progress", units=1).do("crash")
    bad = variant("reset-on-progress").do("boot", "begin").do("progress", units=1).do("crash")
    while walk.runs < LIMIT:
        streaming_life(walk)
    walk.do("boot").replay()
    assert (walk.state.buffered.reason, walk.state.buffered.attempt) == (Reason.INTERRUPTED, 1)
    assert (walk.sealed().state.durable.status, walk.broken) == (Status.SEALED, set())
    while bad.runs < 3 * LIMIT:
        streaming_life(bad)
    assert bad.count <= 1
    assert "C5" in bad.broken
    assert bad.state.durable.reason is Reason.NONE


def test_report_17_deaths_within_the_debounce() -> None:
    """Deaths in quick succession are counted like any other; the bad machine slides its window for ever."""
    walk, bad = Walk().first_life(), variant("debounce-skips-count").first_life()
    while walk.runs < LIMIT:
        streaming_life(walk).do("tick", elapsed_ms=25_000)
    assert walk.do("boot").replay().state.buffered.reason is Reason.INTERRUPTED
    assert walk.broken == set()
    while bad.runs < 3 * LIMIT:
        streaming_life(bad).do("tick", elapsed_ms=25_000)
    assert bad.count == 1
    assert "C1" in bad.broken


def test_report_18_fifty_four_deaths_and_count_zero() -> None:
    """Restart after restart without a count is no trace of the sound machine: the sixth life starts no heavy work."""
    walk, bad = Walk().first_life(), variant("count-on-failure-path").first_life()
    while walk.runs < LIMIT:
        walk.life()
    walk.do("boot").replay().do("sync")
    assert walk.refuses("start_work", slot=0) == "C11"
    assert walk.broken == set()
    while bad.ghost.heavy_deaths < 54:
        bad.life()
    assert bad.count == 0
    assert bad.broken >= {"C1", "C4a"}


def test_report_19_one_death_found_twice() -> None:
    """The second finding of the same death changes nothing; the bad machine counts it again."""
    for walk, expected in ((Walk(), 2), (variant("found-twice"), 3)):
        walk.first_life().life().do("boot").replay(1)
        assert walk.state.buffered.interrupted == 2
        walk.replay(2)
        assert walk.state.buffered.interrupted == expected
        assert walk.broken.isdisjoint({"C2"}) == (walk.machine is incident)


def counted_at_admission(policy: RecoveryPolicy, record: Record, incarnation: int, now_ms: int) -> int:
    """Each delivery is an attempt, and each attempt counts."""
    return counted(policy, record, incarnation, now_ms) + (1 if record.status == Status.OPEN else 0)


def test_report_23_queueing_is_not_dying() -> None:
    """However often a callback is delivered, nothing is counted unless something dies."""
    sound = Walk().handed_over()
    for _ in range(60):
        sound.deliver(0).do("sync").do("finish", slot=0, outcome=Outcome.YIELDED).do("sync").do("report", slot=0)
    assert (sound.count, sound.broken) == (0, set())
    queued = Variant("queueing", "C2", "each delivery counts", (swap(counted, counted_at_admission),))
    bad = Walk(attrs.evolve(incident, variants=(queued,)).variant("queueing")).handed_over()
    for _ in range(LIMIT - 1):
        bad.deliver(0).do("sync").do("finish", slot=0, outcome=Outcome.YIELDED).do("sync").do("report", slot=0)
    bad.deliver(0).sealed()
    assert (bad.count, bad.ghost.deaths, bad.state.durable.status) == (LIMIT, 0, Status.SEALED)
    assert "C2" in bad.broken


def test_b2_the_first_replay_goes_on_though_the_predicate_declines() -> None:
    """Through the machine: the first admission is let in, the second is given up."""
    walk = Walk().first_life().do("boot").do("replay", slot=0, keep_going=False)
    assert walk.state.phases[0] is Phase.ADMITTED
    walk.do("sync", "crash", "boot").do("replay", slot=0, keep_going=False)
    assert walk.state.buffered.reason is Reason.PREDICATE
    assert walk.broken == set()
