"""What was published of crash loops, walked step by step through the keepalive and its known-bad variants.

The policy is the published one: 10 s, 1 min, 5 min, 30 min, then six hours; evidence at the third revival.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deadreckon.models.relation import relation
from deadreckon.proofs.certificate import Certificate
from deadreckon.proofs.prove import stored_invariants
from deadreckon.spec import Machine
from deadreckon.spec.keepalive import initial
from deadreckon.spec.keepalive_ghost import Ghost
from deadreckon.spec.keepalive_state import NEVER, RESET_VERB, Cleared, KeepalivePolicy, Pass, Record, State
from deadreckon.spec.machines import keepalive
from tests.quality.walk import MachineWalk

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
LEAD = 10 * SECOND
RUNGS = (10 * SECOND, MINUTE, 5 * MINUTE, 30 * MINUTE)
PLATEAU = 6 * HOUR


class Walk(MachineWalk[State, Ghost]):
    """One run under the published policy; of the first slot, and without jitter, unless told."""

    def __init__(self, machine: Machine = keepalive) -> None:
        super().__init__(machine, KeepalivePolicy(), initial(), Ghost(), {"slot": 0, "jitter_ms": 0, "obliges": True})

    def at(self, now_ms: int) -> Walk:
        """Let time pass until then."""
        return self.do("tick", elapsed_ms=now_ms - self.state.now_ms) if now_ms > self.state.now_ms else self

    def struck(self, at_ms: int = 4 * SECOND) -> Walk:
        """Work is begun at once, and the host dies over it."""
        return self.do("boot", "track").at(at_ms).do("die")

    def revived(self) -> Walk:
        """The alarm fires when it is due, and a revival goes as far as to act, telling people first if it must."""
        self.at(self.state.alarm_at_ms).do("fire").do("arm")
        if self.record.revivals >= KeepalivePolicy().evidence_at and not self.reported:
            self.do("report")
        return self.do("act")

    def answered_and_died(self, after_ms: int = 2 * SECOND) -> Walk:
        """The revival returns, and the host dies soon after."""
        self.at(self.state.now_ms + 200).do("succeed")
        return self.at(self.record.last_revival_at_ms + after_ms).do("die")

    def climbed(self, revivals: int) -> Walk:
        """So many revivals, each of which returns and dies."""
        for _ in range(revivals):
            self.revived().answered_and_died()
        return self

    @property
    def record(self) -> Record:
        """The durable record."""
        return self.state.record

    @property
    def reported(self) -> bool:
        """Whether the evidence of this version and epoch is durable."""
        return (self.state.reported_version, self.state.reported_epoch) == (self.record.version, self.record.epoch)

    @property
    def distance(self) -> int:
        """How long after the last revival the next one is armed."""
        assert self.state.alarm_at_ms == self.record.armed_at_ms
        return self.record.armed_at_ms - self.record.last_revival_at_ms


def variant(name: str) -> Walk:
    """A walk through a known-bad variant."""
    return Walk(keepalive.variant(name))


# A host that keeps dying, and one that doesn't.


def test_k2_a_failing_host_climbs_the_ladder() -> None:
    """Revivals at 10 s, 20 s, 80 s, 380 s, 2180 s, and then every six hours; people are told before the third acts."""
    walk = Walk().struck()
    began = []
    for expected in (*RUNGS, PLATEAU, PLATEAU):
        walk.at(walk.state.alarm_at_ms).do("fire")
        began.append(walk.state.now_ms)
        walk.do("arm")
        assert walk.distance == expected
        if len(began) == 3:
            assert walk.refuses("act") == "K9"
            walk.do("report")
        else:
            assert walk.refuses("report") == "K9"
        walk.do("act").at(walk.state.now_ms + SECOND).do("fail", "settle_failed")
        assert walk.distance == expected, "a failure moves nothing"
    assert began == [10_000, 20_000, 80_000, 380_000, 2_180_000, 23_780_000]
    assert (walk.record.revivals, walk.state.reported_facts, walk.broken) == (6, 1, set())


def test_k2_the_ten_second_crash_loop() -> None:
    """A host that answers each revival and then dies is revived after 10 s, 60 s, 300 s: not every ten seconds."""
    walk = Walk().struck()
    for expected in (*RUNGS, PLATEAU):
        walk.revived().answered_and_died()
        assert walk.distance == expected
        walk.at(min(walk.state.now_ms + LEAD, walk.state.alarm_at_ms - 1))
        assert walk.refuses("fire") == "K8", "it is not due"
    assert walk.broken == set()


def test_k2_the_ten_second_crash_loop_as_seen() -> None:
    """K2, as seen: the early look replaces the rung, so the loop goes on for ever; a day of it is 8,471 revivals."""
    walk = variant("success-rearms-lead").struck().climbed(1)
    assert "K2" not in walk.broken, "the first rung is as long as the lead: the second shows it"
    walk.climbed(2)
    assert "K2" in walk.broken
    before = walk.state.now_ms, walk.record.revivals
    walk.climbed(50)
    period = (walk.state.now_ms - before[0]) / (walk.record.revivals - before[1])
    assert DAY / period == pytest.approx(8_471, abs=1)


def test_k10_a_healthy_turn() -> None:
    """An alarm one lead ahead of the work finds it busy and looks again; the next finds it clean, and disarms."""
    walk = Walk().do("boot", "track")
    assert walk.state.alarm_at_ms == 10_000
    walk.at(10_000).do("fire")
    assert (walk.record.revivals, walk.state.alarm_at_ms) == (0, 20_000)
    walk.at(14_000).do("settle").at(20_000).do("fire")
    assert (walk.state.alarm_at_ms, walk.record.armed_at_ms, walk.record.lifetime_total) == (NEVER, NEVER, 0)
    assert walk.broken == set()


def test_k6_a_hand_reset_at_the_plateau() -> None:
    """An hour into six hours of silence a person resets: revived one lead later, at the first rung again."""
    walk = Walk().struck().climbed(5)
    assert walk.distance == PLATEAU
    walk.at(walk.state.now_ms + HOUR).do("reset")
    assert (walk.record.revivals, walk.record.cleared_by) == (0, Cleared.HAND)
    assert walk.state.alarm_at_ms == walk.state.now_ms + LEAD
    walk.revived()
    assert (walk.record.revivals, walk.distance, walk.record.lifetime_total) == (1, RUNGS[0], 6)
    assert walk.broken == set()


def test_k6_no_hand_reset_and_silence_for_six_hours() -> None:
    """K6, as seen: nobody has built the door, and a person who asks waits like everybody."""
    walk = variant("no-hand-reset").struck().climbed(5)
    due = walk.state.alarm_at_ms
    walk.at(walk.state.now_ms + HOUR).do("reset")
    assert (walk.record.revivals, walk.state.alarm_at_ms, walk.broken) == (5, due, {"K6"})


# The field reports, by their numbers.


def probed(walk: Walk, crashes: int) -> list[int]:
    """Crash, respawn, probe, and crash again, so many times: the strikes after each of them."""
    strikes = []
    for _ in range(crashes):
        walk.revived()
        strikes.append(walk.record.revivals)
        walk.at(walk.state.now_ms + 50).do("succeed").do("probe")
        strikes.append(walk.record.revivals)
        walk.at(walk.record.last_revival_at_ms + 3 * SECOND).do("die")
    return strikes


def test_report_10_a_probe_that_passes_clears_nothing() -> None:
    """K3: the strikes climb although every startup probe passes, and at the third people are told."""
    walk = Walk().struck(SECOND)
    assert probed(walk, 5) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert (walk.state.reported_facts, walk.distance, walk.broken) == (1, PLATEAU, set())


@pytest.mark.parametrize(("name", "rule"), [("probe-clears", "K3"), ("return-clears", "K3a")])
def test_report_10_zero_one_zero_one(name: str, rule: str) -> None:
    """K3, as reported: the respawn, or its probe, clears the strikes, so no limit is ever reached."""
    walk = variant(name).struck(SECOND)
    strikes = probed(walk, 50)
    assert strikes[1::2] == [0] * 50, "after each probe"
    assert (max(strikes), walk.distance, walk.state.reported_facts) == (1, RUNGS[0], 0)
    assert rule in walk.broken


def healthy_for_a_day(walk: Walk) -> Walk:
    """The revival's turn ends well, an early look finds the host quiet, and new work runs for a day until it dies."""
    walk.do("settle", "succeed").at(walk.state.confirm_at_ms).do("confirm")
    return walk.at(walk.state.now_ms + DAY).do("track").do("die")


def test_report_12_a_crash_a_day_is_always_the_first() -> None:
    """K12, K3: after a quiet clean run the next crash is revived after one lead; the total is for people alone."""
    walk = Walk().struck()
    for crashes in range(1, 301):
        walk.revived()
        assert (walk.distance, walk.record.revivals, walk.record.lifetime_total) == (RUNGS[0], 1, crashes)
        healthy_for_a_day(walk)
        assert walk.record.cleared_by is Cleared.QUIET_CLEAN
        assert walk.state.alarm_at_ms == walk.state.now_ms + LEAD
    assert (walk.state.reported_facts, walk.broken) == (0, set())


def test_report_12_the_lifetime_count() -> None:
    """K12, as reported: the delay goes by all the crashes ever, however healthy the host was between them."""
    walk = variant("lifetime-count").struck()
    delays = []
    for _ in range(7):
        walk.revived()
        delays.append(walk.distance)
        healthy_for_a_day(walk)
    assert delays == [*RUNGS, PLATEAU, PLATEAU, PLATEAU]
    assert walk.record.revivals == 7


def test_report_12_and_the_delay_grows_without_end() -> None:
    """K4: past the ladder the distance is six hours for ever; as reported, it grows with each crash."""
    walk, bad = Walk().struck().climbed(20), variant("growing-past-plateau").struck().climbed(20)
    assert (walk.distance, walk.broken) == (PLATEAU, set())
    assert bad.distance > PLATEAU
    assert "K4" in bad.broken


def test_report_15_restarting_is_not_the_reset() -> None:
    """K6: at the limit new work and a restart leave the count alone; the verb that clears it works, and is named."""
    walk = Walk().struck().climbed(5)
    due = walk.state.alarm_at_ms
    assert walk.refuses("fire") == "K8"
    walk.do("boot", "track").do("ask_to_stop").do("die", "boot")
    assert (walk.record.revivals, walk.state.alarm_at_ms) == (5, due)
    walk.do("reset")
    assert (walk.record.revivals, walk.record.cleared_by) == (0, Cleared.HAND)
    assert walk.state.alarm_at_ms == walk.state.now_ms + LEAD
    assert walk.broken == set()
    assert "reset" in RESET_VERB


def test_report_15_the_count_is_not_forgotten_with_what_died() -> None:
    """K5, the contrast: a count that is unloaded with the host starts afresh at each death, and no limit is reached."""
    walk, bad = Walk().struck().climbed(8), variant("count-in-host").struck().climbed(8)
    assert (walk.record.revivals, walk.distance, walk.broken) == (8, PLATEAU, set())
    assert bad.record.revivals == 0
    assert (bad.distance, bad.state.reported_facts) == (RUNGS[0], 0)
    assert "K5" in bad.broken


# Conflicts that are decided: each design that decides otherwise breaks a rule, which the sound machine has a proof of.


def reset_every_nine_seconds(walk: Walk) -> Walk:
    """A host that is to be revived at 20 s is reset at 15 s, and again before each lead is over, until it is revived."""
    walk.struck().climbed(1)
    for at_ms in (15_000, 24_000, 33_000):
        if walk.state.alarm_at_ms <= at_ms:
            return walk.revived()
        walk.at(at_ms).do("reset")
    return walk


def an_unrelated_settle(walk: Walk) -> Walk:
    """A host that was revived once and died still owes its work; other work comes, ends well, and the alarm is due."""
    walk.struck().climbed(1).do("boot").do("track", slot=1, obliges=False).do("settle", slot=1)
    return walk.at(walk.state.alarm_at_ms).do("fire")


def work_at_a_rung(walk: Walk) -> Walk:
    """New work reaches a host whose next revival is a minute away; it dies over it, and dies again when revived."""
    walk.struck().climbed(2).at(25_000).do("boot").do("track", slot=1).do("die")
    return walk.climbed(1)


def a_second_crash_loop(walk: Walk) -> Walk:
    """A crash loop is told of, a person resets, and there is another."""
    return walk.struck().climbed(3).do("reset").climbed(2).at(walk.state.alarm_at_ms).do("fire", "arm")


def test_conflict_a_reset_never_delays() -> None:
    """K6: a reset takes the earlier of the old time and the new; where it takes the new, resets starve the retry."""
    walk, bad = reset_every_nine_seconds(Walk()), reset_every_nine_seconds(variant("reset-postpones"))
    assert (walk.record.last_revival_at_ms, walk.state.reviving, walk.broken) == (20_000, Pass.ACTING, set())
    assert (bad.record.last_revival_at_ms, bad.state.reviving, bad.broken) == (10_000, Pass.IDLE, {"K6"})
    assert bad.state.alarm_at_ms > bad.state.now_ms


def test_conflict_an_unrelated_settle_clears_nothing() -> None:
    """K3: quiet clean asks for the owed work itself; where any settle will do, the owed revival never comes."""
    walk, bad = an_unrelated_settle(Walk()), an_unrelated_settle(variant("any-settle-clears"))
    assert (walk.record.revivals, walk.state.reviving, walk.broken) == (2, Pass.RECORDED, set())
    assert (bad.record.revivals, bad.state.alarm_at_ms, bad.state.owed[0]) == (0, NEVER, True)
    assert "K3" in bad.broken


def test_conflict_new_work_pulls_no_alarm_in() -> None:
    """K2: new work runs as it comes, plateau or not, and the rung stays; in the field a redelivery shortened it."""
    walk, bad = work_at_a_rung(Walk()), work_at_a_rung(variant("new-work-shortens"))
    assert (walk.record.last_revival_at_ms, walk.broken) == (80_000, set())
    assert (bad.record.last_revival_at_ms, bad.broken) == (35_000, {"K2"})
    deaf = Walk().struck().climbed(5).do("boot").do("track", slot=1)
    assert deaf.state.running_since_ms[1] == deaf.state.now_ms, "the host is never deaf"
    assert deaf.distance == PLATEAU


def test_conflict_a_second_crash_loop_is_told_of() -> None:
    """K9: the key of the evidence has the epoch; without it the second crash loop collapses into the first."""
    walk, bad = a_second_crash_loop(Walk()), a_second_crash_loop(variant("evidence-key-without-epoch"))
    assert walk.refuses("act") == "K9"
    assert walk.do("report", "act").state.reported_facts == 2
    assert walk.broken == set()
    assert bad.refuses("report") == "K9"
    assert (bad.do("act").state.reported_facts, bad.broken) == (1, {"K9"})


STORIES: dict[str, Callable[[Walk], Walk]] = {
    "success-rearms-lead": lambda walk: walk.struck().climbed(3),
    "reset-postpones": reset_every_nine_seconds,
    "any-settle-clears": an_unrelated_settle,
    "new-work-shortens": work_at_a_rung,
    "evidence-key-without-epoch": lambda walk: a_second_crash_loop(walk).do("act"),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_conflict_is_decided_by_a_proof(name: str) -> None:
    """The design that decides a conflict otherwise breaks the rule, and the stored invariant of this machine proves it."""
    rule = next(one.rule for one in keepalive.variants if one.name == name)
    assert rule in STORIES[name](variant(name)).broken
    stored = Certificate.load(stored_invariants() / "keepalive.smt2")
    assert stored is not None
    assert rule in stored.methods
    assert stored.fingerprint == relation(keepalive).fingerprint(), "it was found for another machine"
