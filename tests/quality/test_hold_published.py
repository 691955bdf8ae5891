"""What was published of approval gates, walked step by step through the hold and its known-bad variants.

One unit of time is a second of the reports: a hold of 60, slices of 25, a grace of 30.
"""

from __future__ import annotations

import math

import attrs
import pytest

from deadreckon.spec import Machine, PolicyError
from deadreckon.spec.hold import initial
from deadreckon.spec.hold_rules import Ghost
from deadreckon.spec.hold_state import Caller, Evidence, Fact, Hold, HoldPolicy, Release, State, Told, Wait
from deadreckon.spec.machines import hold
from tests.quality.walk import MachineWalk

POLICY = HoldPolicy(hold_ms=60, slice_ms=25, backoff_first_ms=1, backoff_max_ms=5, release_grace_ms=30)
DEADLINE = POLICY.hold_ms
MONTH = 31 * 24 * 3600


class Walk(MachineWalk[State, Ghost]):
    """One run, of the first hold and its first request unless told."""

    def __init__(self, machine: Machine = hold, policy: HoldPolicy = POLICY) -> None:
        super().__init__(machine, policy, initial(), Ghost(), {"index": 0, "request": 0, "source": 0})

    def ask(self, index: int = 0) -> Walk:
        """A hold is parked, and its door knows it."""
        return self.do("ask", index=index, acknowledged=True)

    def approve(self, evidence: Evidence = Evidence.UNSIGNED, index: int = 0) -> Walk:
        """The first request is approved, and the second refused."""
        return self.do("decide", index=index, first=True, second=False, evidence=evidence)

    def refuses_approval(self, evidence: Evidence = Evidence.UNSIGNED) -> str:
        """The rule by which an approval is refused."""
        return self.refuses("decide", first=True, second=False, evidence=evidence)

    def release(self) -> Walk:
        """What was taken up is started, called, answered and settled, and the caller is told."""
        self.do("start_release", "call").do("answer", succeeds=True)
        return self.do("settle", "tell")

    def until(self, now_ms: int) -> Walk:
        """Time passes; on the way the door does what its timers say, and nothing else."""
        while self.state.now_ms < now_ms:
            waits = [one.until_ms for one in self.state.holds if self.state.alive and one.wait is not Wait.IDLE]
            self.do("tick", elapsed_ms=min([now_ms, *waits]) - self.state.now_ms)
            for index, one in enumerate(self.state.holds):
                if one.until_ms == self.state.now_ms < one.deadline_at_ms:
                    self._timer(index, one)
        return self

    def _timer(self, index: int, one: Hold) -> None:
        if one.wait is Wait.BACKING_OFF:
            self.do("wake", index=index)
        if one.wait is Wait.WAITING and self.state.up:
            self.do("slice_ends", index=index)
        elif one.wait is not Wait.IDLE and not self.state.up:
            self.do("wait_fails", index=index)

    @property
    def hold(self) -> Hold:
        """The first hold."""
        return self.state.holds[0]

    @property
    def effects(self) -> int:
        """How often the effect of the first request happened."""
        return self.ghost.effects[0][0]


def variant(name: str) -> Walk:
    """A walk through a known-bad variant."""
    return Walk(hold.variant(name))


def released(walk: Walk) -> bool:
    """Whether the first request had its effect once, is settled and told so, and no rule is broken."""
    told = (walk.hold.releases[0], walk.hold.told[0]) == (Release.OK, Told.OK)
    return told and walk.effects == 1 and walk.broken == set()


# The field reports, by their numbers.


def test_report_1_a_lost_socket_is_no_denial() -> None:
    """H9: a hold whose caller's connection broke stays parked to its deadline, and an approval releases it."""
    walk = Walk().ask().until(10).do("detach").until(30)
    assert (walk.hold.fact, walk.hold.caller) == (Fact.OPEN, Caller.DETACHED)
    assert (walk.refuses("abandon"), walk.refuses("expire")) == ("H9", "H9")
    assert released(walk.approve().do("judge", "attach").release())


def test_report_1_the_lost_socket_becomes_a_denial() -> None:
    """H9, as reported: the loss itself decides, the approval comes too late, and nobody denied anything."""
    walk = variant("transport-loss-denies").ask().until(10).do("detach")
    assert (walk.hold.fact, walk.hold.approved) == (Fact.DECIDED, (False, False))
    assert walk.broken == {"H9"}
    assert walk.do("attach").refuses_approval() == "H6"
    assert walk.do("tell").hold.told[0] is Told.REFUSED


@pytest.mark.parametrize("swept", [False, True])
def test_report_2_the_deadline_is_in_the_transition(swept: bool) -> None:
    """H2: past its deadline a hold can't be approved, whether or not anything has marked it as expired."""
    walk = Walk().ask().until(DEADLINE).do(*(["expire"] if swept else ["stop_waiting"])).until(DEADLINE + 1)
    assert walk.refuses_approval() == ("H6" if swept else "H2")
    assert walk.do(*([] if swept else ["expire"]), "tell").hold.told[0] is Told.EXPIRED
    assert walk.broken == set()


@pytest.mark.parametrize("name", ["expiry-only-swept", "check-then-write"])
def test_report_2_past_its_expiry_and_still_executable(name: str) -> None:
    """H2, as reported: where the approval looks at the status, or at a clock read before, the action runs late."""
    walk = variant(name).ask().do("crash").until(DEADLINE + 1).approve()
    assert walk.broken == {"H2"}
    walk.do("boot", "adopt").release()
    assert (walk.effects, walk.broken) == (1, {"H1", "H2"})


def test_report_2_nor_is_it_released_later_than_the_grace() -> None:
    """H2: what was approved in time and not started within the grace lapses, whenever a door returns."""
    walk = Walk().ask().until(59).approve().do("crash").until(DEADLINE + 31).do("boot", "adopt")
    assert walk.refuses("start_release") == "H2"
    assert walk.do("lapse", "tell").hold.told[0] is Told.LAPSED
    assert (walk.effects, walk.broken) == (0, set())
    bad = variant("release-without-horizon").ask().until(59).approve().do("crash").until(3600).do("boot", "adopt")
    assert bad.do("start_release").broken == {"H2"}


def test_report_4_one_grant_one_run_of_the_effect() -> None:
    """H3: after a crash the effect of a grant is in doubt, and no door runs it again."""
    walk = Walk().ask().approve().do("judge", "start_release", "call", "crash", "boot")
    assert walk.refuses("call") == "H3"
    assert walk.do("adopt").refuses("start_release") == "H3"
    assert walk.do("settle_unknown", "tell").hold.told[0] is Told.IN_DOUBT
    assert walk.refuses("settle_unknown") == "H3"
    assert (walk.effects, walk.broken) == (1, set())


def test_report_4_one_grant_three_runs_of_the_effect() -> None:
    """H3, as reported: each new run finds the grant and performs the effect again."""
    walk = variant("replay-effect-on-resume").ask().approve().do("judge", "start_release", "call")
    for runs in (2, 3):
        walk.do("crash", "boot", "settle_unknown", "call")
        assert walk.effects == runs
    assert walk.broken == {"H3"}


def test_report_4_declared_idempotent_it_may_run_again() -> None:
    """H3: only a release that is declared idempotent is run again, and then under the same release."""
    walk = Walk(policy=attrs.evolve(POLICY, idempotent=True)).ask().approve()
    walk.do("judge", "start_release", "call", "crash", "boot", "settle_unknown", "call")
    walk.do("answer", succeeds=True).do("settle", "tell")
    assert (walk.effects, walk.hold.releases[0], walk.broken) == (2, Release.OK, set())


def test_report_7_no_wait_without_a_deadline() -> None:
    """H2, H13: a hold without a deadline, or of 31 days, can't be parked, and keeping a connection extends nothing."""
    for forever in (0, MONTH * 1000, math.inf, None):
        with pytest.raises(PolicyError):
            HoldPolicy(hold_ms=forever)  # type: ignore[arg-type]  # that is the point
    walk = Walk().ask()
    for second in range(1, DEADLINE):
        walk.do("detach", "attach").until(second)
    assert walk.until(DEADLINE).refuses("tick", elapsed_ms=1) == "H2"
    assert walk.do("expire").hold.fact is Fact.EXPIRED
    assert walk.broken == set()


def test_report_7_a_worker_that_died_is_not_waited_for_31_days() -> None:
    """H15: the next door expires what is overdue; without reconciliation it is still open after 31 days."""
    walk = Walk().ask().until(30).do("crash").until(MONTH).do("boot")
    assert walk.refuses("adopt") == "H2"
    assert walk.do("expire").hold.fact is Fact.EXPIRED
    assert walk.broken == set()
    bad = variant("no-reconcile").ask().until(30).do("crash").until(MONTH).do("boot")
    assert (bad.refuses("adopt"), bad.refuses("expire"), bad.hold.fact) == ("H15", "H15", Fact.OPEN)


def test_report_9_the_mark_comes_first() -> None:
    """H4, the merged variant: with the start durable first, a crash fails closed, and the effect never runs twice."""
    walk = Walk().ask().approve().do("judge")
    assert walk.refuses("call") == "H3"
    walk.do("start_release", "call").do("answer", succeeds=True).do("crash", "boot", "adopt")
    assert (walk.refuses("start_release"), walk.refuses("call")) == ("H3", "H3")
    assert walk.do("settle_unknown", "tell").hold.told[0] is Told.IN_DOUBT
    assert (walk.effects, walk.broken) == (1, set())


def test_report_9_a_crash_between_the_effect_and_the_tick_mark() -> None:
    """H4, H3, as reported: the approval still reads approved after the crash, and the tool runs a second time."""
    walk = variant("effect-before-mark").ask().approve().do("judge", "call")
    assert "H4" in walk.broken
    walk.do("crash", "boot", "adopt", "call")
    assert (walk.effects, walk.hold.fact, walk.broken >= {"H3", "H4"}) == (2, Fact.DECIDED, True)


# The published failures, by their numbers.


def test_f1_a_restart_of_the_stream_kills_no_hold() -> None:
    """H9: the wait fails, the door keeps its distance and waits again, and the grant a second later is honoured."""
    walk = Walk().ask().until(5).do("journal_fails", "wait_fails")
    assert walk.hold.wait is Wait.BACKING_OFF
    assert walk.refuses("wait_fails") == "H8"
    assert walk.refuses("wake") == "H10"
    assert released(walk.do("journal_returns").until(6).approve().do("judge").release())


def test_f1_a_restart_of_the_stream_kills_the_hold() -> None:
    """H9, as published: armed again on a time-out alone, the hold fails, and the grant finds nobody."""
    walk = variant("rearm-on-timeout-only").ask().until(5).do("journal_fails", "wait_fails")
    assert walk.hold.told == (Told.FAILED, Told.FAILED)
    assert "H9" in walk.broken
    assert walk.do("journal_returns").until(6).approve().refuses("judge") == "H8"


def test_f1_an_outage_is_asked_after_at_a_distance() -> None:
    """H10: retries at 1, 2, 4 and 5 seconds, not in a loop."""
    walk = Walk().ask().do("journal_fails", "wait_fails")
    gaps = []
    while walk.state.now_ms < 17:
        gaps.append(walk.hold.until_ms - walk.state.now_ms)
        walk.until(walk.hold.until_ms)
    assert gaps == [1, 2, 4, 5, 5]
    assert walk.broken == set()


def test_f2_nothing_is_released_for_the_dead() -> None:
    """H12: once the caller is gone its hold is abandoned, or what was approved lapses, without effect."""
    walk = Walk().ask().until(19).do("detach", "leave").until(20)
    assert walk.do("abandon").refuses_approval() == "H6"
    late = Walk().ask().until(18).approve().do("judge", "detach", "leave")
    assert late.refuses("start_release") == "H12"
    assert late.do("lapse").hold.releases[0] is Release.LAPSED
    assert walk.broken | late.broken == set()
    bad = variant("release-for-the-dead").ask().until(19).do("detach", "leave").approve().do("judge")
    assert "H12" in bad.do("start_release", "call").broken


def test_f5_no_success_without_its_settled_fact() -> None:
    """H5: with the journal away the caller is told nothing of the 200; it is told once that is settled."""
    walk = Walk().ask().until(3).approve().do("judge", "start_release", "call").do("answer", succeeds=True)
    walk.do("journal_fails")
    assert (walk.refuses("settle"), walk.refuses("tell")) == ("H9", "H5")
    assert released(walk.do("journal_returns", "settle", "tell"))


def test_f5_success_without_its_settled_fact() -> None:
    """H5, as published: the caller sees 200 while the history has no outcome."""
    walk = variant("settle-best-effort").ask().until(3).approve().do("judge", "start_release", "call")
    walk.do("answer", succeeds=True).do("journal_fails", "tell")
    assert (walk.hold.told[0], walk.hold.releases[0]) == (Told.OK, Release.STARTED)
    assert walk.broken == {"H5"}


def test_f8_a_lost_acknowledgement_leaves_no_orphan() -> None:
    """H12: the request has a key, so it is sent again: the same hold, with the same deadline, and a door that waits."""
    walk = Walk().do("ask", acknowledged=False)
    assert walk.refuses("ask", acknowledged=True) == "H13"
    walk.do("ask_again")
    assert (walk.hold.wait, walk.hold.deadline_at_ms) == (Wait.WAITING, DEADLINE)
    assert released(walk.until(30).approve().do("judge").release())


def test_f8_an_orphan_request() -> None:
    """H12, as published: the caller is told of a failure, and the request is in the journal for anybody to approve."""
    walk = variant("unkeyed-request").do("ask", acknowledged=False).do("ask_again")
    assert (walk.hold.told[0], walk.hold.fact) == (Told.FAILED, Fact.OPEN)
    assert "H12" in walk.broken
    assert walk.until(30).approve().refuses("judge") == "H8"


def test_f9_an_outage_over_the_deadline() -> None:
    """H9, H15: the door stops at the deadline, and the expiry is appended, and told, once the journal is back."""
    walk = Walk().ask().until(58).do("journal_fails", "wait_fails").until(DEADLINE)
    assert walk.refuses("tick", elapsed_ms=1) == "H2"
    walk.do("stop_waiting")
    assert (walk.refuses("expire"), walk.refuses("tell")) == ("H9", "H5")
    walk.until(63).do("journal_returns", "expire", "tell")
    assert (walk.hold.told[0], walk.broken) == (Told.EXPIRED, set())


def test_f9_a_decision_before_the_outage_over_the_deadline() -> None:
    """H16: what was decided in time is taken up once the journal is back, and released within the grace."""
    walk = Walk().ask().until(57).approve().do("journal_fails", "judgement_fails").until(DEADLINE)
    assert released(walk.do("stop_waiting").until(63).do("journal_returns", "adopt").release())


def test_f9_an_outage_over_the_deadline_ends_in_a_raw_error() -> None:
    """H9, as published: the callers get an error, and the hold stays open in the journal."""
    walk = variant("rearm-on-timeout-only").ask().until(58).do("journal_fails", "wait_fails")
    assert (walk.hold.told[0], walk.hold.fact) == (Told.FAILED, Fact.OPEN)
    assert "H9" in walk.broken


def test_f10_a_last_look_at_the_deadline() -> None:
    """H16: a grant just before the deadline, or in its very millisecond, is found after the last slice."""
    for decided_at in (DEADLINE - 1, DEADLINE):
        walk = Walk().ask().until(decided_at).approve().until(DEADLINE)
        assert (walk.refuses("stop_waiting"), walk.refuses("expire")) == ("H16", "H6")
        assert released(walk.do("judge").release())


def test_f10_an_in_time_decision_is_lost_at_the_deadline() -> None:
    """H16, as published: without the last look the door stops at the deadline, and the grant is never read."""
    walk = variant("no-sweep").ask().until(DEADLINE - 1).approve().until(DEADLINE)
    assert walk.refuses("judge") == "H16"
    assert walk.do("stop_waiting").broken == {"H16"}
    assert (walk.refuses("adopt"), walk.effects) == ("H16", 0)


def test_f12_a_decision_that_could_not_be_judged_is_judged_later() -> None:
    """H8: when taking it up fails the cursor stays, and the next wait finds the same decision, once."""
    walk = Walk().ask().until(5).approve().do("journal_fails", "judgement_fails", "journal_returns").until(6)
    walk.do("judge")
    assert walk.refuses("judge") == "H8"
    assert released(walk.release())


def test_f12_a_real_grant_is_dropped() -> None:
    """H8, as published twice: the cursor moves past what was not judged, or the wait begins at the newest fact."""
    counted = variant("cursor-moves-on-failed-judgement").ask().until(5).approve()
    counted.do("journal_fails", "judgement_fails", "journal_returns").until(6)
    newest = variant("rearm-from-head").ask().until(5).do("journal_fails", "wait_fails", "journal_returns").approve()
    for walk in (counted, newest.until(6)):
        assert (walk.refuses("judge"), "H8" in walk.broken, walk.effects) == ("H8", True, 0)


def test_f16_an_ignored_decision_blocks_no_valid_one() -> None:
    """H11, H16: an unsigned approval is refused at once and leaves nothing, so that the signed one counts."""
    walk = Walk().do("change_keys").ask().until(10)
    for evidence in (Evidence.UNSIGNED, Evidence.BAD_SIGNATURE, Evidence.MALFORMED):
        assert walk.refuses_approval(evidence) == "H11"
    assert released(walk.until(20).approve(Evidence.SIGNED).do("judge").release())


def test_h11_a_signature_that_no_active_key_vouches_for() -> None:
    """H11: while no key is active, and after the last one is revoked, a signed approval is refused like a forged one."""
    walk = Walk().ask()
    assert walk.refuses_approval(Evidence.SIGNED) == "H11"
    assert walk.do("change_keys").do("change_keys").refuses_approval(Evidence.SIGNED) == "H11"


def test_f16_an_ignored_decision_burns_the_key() -> None:
    """H16, as published: the valid decision conflicts with the ignored one, and the hold expires."""
    walk = variant("ignored-decision-burns-key").do("change_keys").ask().until(10).approve()
    assert (walk.hold.fact, walk.broken) == (Fact.OPEN, {"H16"})
    assert walk.until(20).refuses_approval(Evidence.SIGNED) == "H16"
    assert walk.until(DEADLINE).do("expire", "tell").hold.told[0] is Told.EXPIRED


def test_f18_a_decision_and_an_expiry_exclude_each_other() -> None:
    """H6: at the deadline either may come first, and the other is refused by type."""
    decided = Walk().ask().until(DEADLINE).approve()
    assert decided.refuses("expire") == "H6"
    assert decided.refuses_approval() == "H6"
    expired = Walk().ask().until(DEADLINE).do("expire")
    assert expired.refuses_approval() == "H6"
    assert released(decided.do("judge").release())
    assert expired.broken == set()


def test_f18_an_approval_between_the_last_read_and_the_expiry() -> None:
    """H6, as published: the expiry is appended over the grant, and the log holds two decisions."""
    walk = variant("append-after-expiry-wins").ask().until(DEADLINE).approve().do("expire")
    assert (walk.hold.fact, "H6" in walk.broken) == (Fact.EXPIRED, True)
