"""What was published of requests near their expiry, walked step by step through the machine and its known-bad variants."""

from __future__ import annotations

from deadreckon.spec import Machine
from deadreckon.spec.machines import request
from deadreckon.spec.request import initial
from deadreckon.spec.request_rules import Ghost
from deadreckon.spec.request_state import Reason, RequestPolicy, State, Status
from tests.quality.walk import MachineWalk


class Walk(MachineWalk[State, Ghost]):
    """One run under the published policy, of a request that was opened at its start."""

    def __init__(self, machine: Machine = request) -> None:
        super().__init__(machine, RequestPolicy(), initial(), Ghost())
        self.do("boot").do("open_request", triggered_at_ms=0)

    def at(self, now_ms: int) -> Walk:
        """Let time pass until then."""
        return self.do("tick", elapsed_ms=now_ms - self.state.now_ms)


def adopted(machine: Machine) -> Walk:
    """Dialled at 1 s, died at 5 s, found by the next incarnation at 590.9 s."""
    return Walk(machine).at(1_000).do("dial").at(5_000).do("crash").do("boot").at(590_900)


def test_q1_the_doomed_attempt() -> None:
    """An adopter at 590.9 s of 600 s dialled with 9 s left, and failed "1 of 3": refused, and expired at once."""
    walk = adopted(request)
    assert walk.refuses("dial") == "Q1"
    walk.do("expire").do("tell")
    assert (walk.state.request.told, walk.state.request.reason) == (Status.EXPIRED, Reason.NO_TIME)
    assert walk.broken == set()
    assert adopted(request.variant("floorless")).do("dial").broken == {"Q1", "Q4"}


def test_q5_the_wedged_attempt() -> None:
    """An attempt fell silent after eight seconds and was found 28 minutes later: its timer ends it at the horizon."""
    walk = Walk().at(1_000).do("dial").at(600_000)
    assert walk.refuses("tick", elapsed_ms=1) == "Q5b"
    walk.do("fire").do("tell").at(1_700_000)
    assert walk.state.request.told is Status.EXPIRED
    assert walk.broken == set()
    assert Walk(request.variant("overslept")).do("dial").at(1_700_000).broken == {"Q5b"}


def test_q5_the_four_day_orphan() -> None:
    """An open request past its expiry that nobody woke for: the next boot can do nothing before its timer fires."""
    walk = Walk().do("crash").at(4 * 86_400_000).do("boot")
    assert walk.refuses("tick", elapsed_ms=1) == "Q5b"
    assert walk.refuses("dial") == "Q1"
    walk.do("fire").do("tell")
    assert walk.state.request.reason is Reason.HORIZON
    assert walk.broken == set()
    orphan = Walk(request.variant("no-timer")).do("crash").at(4 * 86_400_000).do("boot").at(8 * 86_400_000)
    assert orphan.state.request.status is Status.OPEN
    assert orphan.broken == {"Q5a", "Q5b"}


def test_q3_the_backstop_that_settled_live_work() -> None:
    """A backstop settled requests that were still worked on: a live attempt is left alone until the horizon."""
    walk = Walk().do("dial").at(599_999)
    assert walk.refuses("expire") == "Q3"
    assert walk.refuses("fire") == "Q3"
    assert walk.do("succeed").state.request.status is Status.SUCCEEDED
    assert Walk(request.variant("expire-a-live-one")).do("dial").at(570_000).do("expire").broken == {"Q3", "Q3b", "Q3c"}


def last_attempt(machine: Machine) -> Walk:
    """Two incarnations died with their attempts, the third runs the last one, and a minute has passed."""
    walk = Walk(machine).do("dial").do("crash").do("boot").do("dial").do("crash").do("boot").do("dial")
    return walk.at(60_000)


def test_q3_the_last_attempt_keeps_its_horizon_too() -> None:
    """A watchdog that settles the last attempt failed, not expired, has stopped a live one all the same."""
    assert last_attempt(request).refuses("fire") == "Q3"
    cut_short = last_attempt(request.variant("last-one-cut-short")).do("fire")
    assert cut_short.state.request.status is Status.FAILED
    assert cut_short.broken == {"Q3c"}


def test_q4_half_an_hour_of_retries() -> None:
    """A failure was the next trigger, so each retry had ten minutes of its own: here the horizon stays."""
    walk = Walk().do("dial").at(500_000).do("fail").at(510_000).do("dial")
    assert walk.state.deadline_at_ms == 600_000
    bad = Walk(request.variant("fresh-horizon-on-retry")).do("dial").at(500_000).do("fail").at(510_000).do("dial")
    assert bad.state.deadline_at_ms == 1_100_000
    assert "Q4" in bad.broken


def test_q2_a_late_settlement_loses() -> None:
    """The attempt answers after the expiry: dropped here, a second settlement where answers are just written."""
    walk = Walk().do("dial").at(600_000).do("fire").do("answer_late", succeeded=True)
    assert walk.state.request.status is Status.EXPIRED
    assert walk.broken == set()
    bad = Walk(request.variant("settle-twice")).do("dial").at(600_000).do("fire").do("answer_late", succeeded=True)
    assert "Q2" in bad.broken


def test_r2_three_dead_attempts() -> None:
    """An upstream that kills its caller is tried three times, not for ever: the fourth incarnation fails the request."""
    walk = Walk()
    for _ in range(3):
        walk.do("dial").do("crash").do("boot")
    assert walk.refuses("dial") == "R2"
    assert walk.do("give_up").state.request.reason is Reason.ATTEMPTS
    assert walk.broken == set()
    endless = Walk(request.variant("count-after-attempt"))
    for _ in range(4):
        endless.do("dial").do("crash").do("boot")
    assert "R2" in endless.broken
