"""Requests with a horizon, run by the reference implementation in virtual time."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import attrs
import pytest

from deadreckon.impl.events import Event
from deadreckon.impl.request import LEAVE_MAX_MS, Requests
from deadreckon.impl.request_drive import insist
from deadreckon.impl.request_sqlite import SqliteRequests
from deadreckon.impl.request_store import UNFILED, Change, Filed, MemoryRequests, RequestStore
from deadreckon.impl.request_words import (
    AttemptMalformed,
    NoSuchRequest,
    RequestAttempt,
    RequestConflict,
    RequestExpired,
    RequestFailed,
    RequestsClosed,
    RequestView,
)
from deadreckon.impl.store import Fenced, StoreClosed, StoreCorrupt, StoreFault, StoreForeign, StoreUnavailable
from deadreckon.impl.testing import CrashAt, Died
from deadreckon.impl.virtual import START_MS, VirtualLoop, VirtualTimer, run_virtual
from deadreckon.spec import CallerError, Refused
from deadreckon.spec.request import opened
from deadreckon.spec.request_state import Reason, RequestPolicy, Status

HORIZON_MS = 600_000


class World:
    """What outlives incarnations: the store, the clock, who is told, and what was dialled."""

    def __init__(self, store: RequestStore) -> None:
        self.store = store
        self.timer = VirtualTimer()
        self.told: list[RequestView] = []
        self.dials: list[tuple[int, RequestAttempt]] = []
        self.events: list[Event] = []

    @property
    def now_ms(self) -> int:
        """Milliseconds since the start."""
        return self.timer.now_ms() - START_MS

    def serve(self, policy: RequestPolicy | None = None) -> Requests:
        """A new incarnation."""
        return Requests(self.store, policy, self.timer, on_outcome=self.told.append, sink=self.events.append)

    def run(self, main: Coroutine[object, object, None]) -> None:
        """Run in virtual time."""
        run_virtual(main, self.timer)

    def attempt(self, *script: str | Exception | int) -> Callable[[RequestAttempt], Awaitable[str]]:
        """Attempts one after another: an answer, a failure, or milliseconds to hang; the last is repeated."""
        steps = itertools.chain(script, itertools.repeat(script[-1]))

        async def attempt(told: RequestAttempt) -> str:
            self.dials.append((self.now_ms, told))
            step = next(steps)
            if isinstance(step, Exception):
                raise step
            if isinstance(step, int):
                await self.timer.pause(step)
                return f"after {step} ms"
            return step

        return attempt

    async def settle(self) -> None:
        """Let everything happen that is due now."""
        await self.timer.pause(1)

    def types(self) -> list[str]:
        """The types of all events."""
        return [str(event["type"]) for event in self.events]


@pytest.fixture
def world() -> World:
    """A store in memory."""
    return World(MemoryRequests())


@pytest.fixture(params=["memory", "file"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store in memory, and one in a file."""
    return World(MemoryRequests() if request.param == "memory" else SqliteRequests(tmp_path / "requests.db"))


def test_q2_an_answer_settles_and_is_told(either: World) -> None:
    """A request has exactly one settlement: its answer is durable, is told once, and is returned again later."""

    async def main() -> None:
        async with either.serve() as requests:
            view = await requests.open("r", "what?")
            assert (view.status, view.expires_at_ms, view.body) == (Status.OPEN, START_MS + HORIZON_MS, "what?")
            assert await requests.run("r", either.attempt("that")) == "that"
            assert await requests.run("r", either.attempt("another")) == "that"
            await either.settle()
            assert await requests.unfinished() == []
        await either.store.close()

    either.run(main())
    assert [told.number for _, told in either.dials] == [1]
    assert either.dials[0][1].body == "what?"
    assert [(view.status, view.answer, view.told) for view in either.told] == [(Status.SUCCEEDED, "that", False)]
    assert [dict(event) for event in either.events] == [
        {"at": START_MS, "type": "request.opened", "request": "r", "expires_at": START_MS + HORIZON_MS},
        {"at": START_MS, "type": "request.dialled", "request": "r", "incarnation": "requests-1"},
        {"at": START_MS, "type": "request.settled", "request": "r", "outcome": "succeeded"},
    ]


def test_q4_a_retry_keeps_the_horizon_and_its_distance(either: World) -> None:
    """Retries come 10 and 20 s after the failures, all with the first horizon as their deadline (Q4, R1)."""

    async def main() -> None:
        async with either.serve() as requests:
            await requests.open("r")
            answer = await requests.run("r", either.attempt(ValueError("no"), ValueError("no"), "yes"))
            assert answer == "yes"
        await either.store.close()

    either.run(main())
    assert [at_ms for at_ms, _ in either.dials] == [0, 10_000, 30_000]
    assert {told.deadline_at_ms for _, told in either.dials} == {START_MS + HORIZON_MS}


def test_r3_all_attempts_fail(world: World) -> None:
    """A request is failed once every attempt was begun, with what the last one said."""

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            with pytest.raises(RequestFailed, match=r"used up \(3 attempts\); the last failure: ValueError: no") as end:
                await requests.run("r", world.attempt(ValueError("no")))
            assert (end.value.reason, end.value.attempts) == (Reason.ATTEMPTS, 3)
            await world.settle()

    world.run(main())
    assert len(world.dials) == 3
    assert [view.status for view in world.told] == [Status.FAILED]


def test_q5_an_attempt_that_hangs_ends_at_the_horizon(either: World) -> None:
    """A hung attempt is cancelled at the horizon, and its request is expired then, not later."""
    ends: list[int] = []

    async def hang(told: RequestAttempt) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(either.now_ms)
        return ""

    async def main() -> None:
        async with either.serve() as requests:
            await requests.open("r")
            with pytest.raises(RequestExpired, match="the horizon has passed"):
                await requests.run("r", hang)
            assert either.now_ms == HORIZON_MS
            await either.settle()
        await either.store.close()

    either.run(main())
    assert ends == [HORIZON_MS]
    assert [(view.status, view.reason) for view in either.told] == [(Status.EXPIRED, Reason.HORIZON)]


def test_q5_an_orphan_is_settled_though_nobody_looks(world: World) -> None:
    """A request that nobody runs is expired by its timer: no four-day orphans."""

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("late")
            await world.timer.pause(1_000)
            await requests.open("later")
            with pytest.raises(RequestExpired):
                await requests.answer("late")
            assert world.now_ms == HORIZON_MS
            await world.timer.pause(1_001)

    world.run(main())
    assert [(view.request_id, view.reason) for view in world.told] == [
        ("late", Reason.HORIZON),
        ("later", Reason.HORIZON),
    ]


def test_q5_the_horizon_passes_while_nobody_lives(either: World) -> None:
    """Whoever boots after the horizon settles the request before it does anything else, and tells it."""

    async def first() -> None:
        async with either.serve() as requests:
            await requests.open("r")

    async def second() -> None:
        either.timer.advance(4 * 86_400_000)
        async with either.serve() as requests:
            view = await requests.inspect("r")
            assert (view.status, view.reason) == (Status.EXPIRED, Reason.HORIZON)
            await either.settle()
        await either.store.close()

    either.run(first())
    either.run(second())
    assert [view.request_id for view in either.told] == ["r"]
    assert either.types() == ["request.opened", "incarnation.died", "request.settled"]


@pytest.mark.parametrize(("adopted_at_ms", "dials"), [(569_999, 1), (570_000, 0), (590_900, 0)])
def test_q1_no_doomed_adoption(world: World, adopted_at_ms: int, dials: int) -> None:
    """No dial with no more than the floor left: the adopter at 590.9 s of 600 s expires the request at once."""

    async def first() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            running = asyncio.create_task(requests.run("r", world.attempt(HORIZON_MS)))
            await world.timer.pause(5_000)
        with pytest.raises(RequestsClosed):
            await running

    async def second() -> None:
        world.timer.advance(adopted_at_ms - world.now_ms)
        async with world.serve() as requests:
            assert await requests.adopt(world.attempt("in time")) == ["r"]
            if dials:
                assert await requests.answer("r") == "in time"
            else:
                with pytest.raises(RequestExpired, match=r"too little time was left for an attempt \(1 attempt\)"):
                    await requests.answer("r")
                assert world.now_ms == adopted_at_ms

    world.run(first())
    assert len(world.dials) == 1
    world.run(second())
    assert len(world.dials) == 1 + dials
    if dials:
        assert (world.dials[1][1].number, world.dials[1][1].deadline_at_ms) == (2, START_MS + HORIZON_MS)
        assert world.dials[1][1].incarnation == 2


def test_q3_a_live_attempt_keeps_its_full_horizon(world: World) -> None:
    """An attempt that was begun in time runs on below the floor, to the last millisecond."""

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            assert await requests.run("r", world.attempt(HORIZON_MS - 1)) == "after 599999 ms"

    world.run(main())
    assert world.now_ms == HORIZON_MS - 1


def test_q2_a_late_answer_loses(world: World) -> None:
    """An attempt that goes on after its deadline has an answer later: the request stays expired."""
    answered: list[int] = []

    async def stubborn(told: RequestAttempt) -> str:
        while world.now_ms < HORIZON_MS + 5_000:
            try:
                await world.timer.pause(HORIZON_MS + 5_000 - world.now_ms)
            except asyncio.CancelledError:
                continue
        answered.append(world.now_ms)
        return "too late"

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            with pytest.raises(RequestExpired):
                await requests.run("r", stubborn)
            assert world.now_ms == HORIZON_MS
            await world.timer.pause(10_000)
            assert (await requests.inspect("r")).status is Status.EXPIRED

    world.run(main())
    assert answered == [HORIZON_MS + 5_000]
    assert world.types().count("request.settled") == 1
    assert len(world.told) == 1


def test_q1_a_retry_that_would_be_doomed_is_told_at_once(world: World) -> None:
    """If no retry can begin above the floor, the request is expired as soon as that is sure, not at the horizon."""

    async def late(told: RequestAttempt) -> str:
        world.dials.append((world.now_ms, told))
        await world.timer.pause(565_000)
        raise ValueError("no")

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            with pytest.raises(RequestExpired, match=r"too little time .* the last failure: ValueError: no"):
                await requests.run("r", late)
            assert world.now_ms == 570_000

    world.run(main())
    assert len(world.dials) == 1


def test_q6_what_is_opened_too_late_is_recorded_and_expired(world: World) -> None:
    """The horizon counts from the trigger: a request that was opened with the floor left is expired, and told."""

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r", triggered_at_ms=START_MS - 570_000)
            with pytest.raises(RequestExpired):
                await requests.run("r", world.attempt("never"))
            await world.settle()

    world.run(main())
    assert world.dials == []
    assert [view.reason for view in world.told] == [Reason.NO_TIME]


def test_r2_the_last_attempt_dies(world: World) -> None:
    """An attempt that dies with its incarnation is used up; after the last the request is failed, and not dialled."""

    async def life() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            await requests.adopt(world.attempt(HORIZON_MS))
            await world.settle()

    async def last() -> None:
        async with world.serve() as requests:
            with pytest.raises(RequestFailed, match=r"used up \(3 attempts\)$"):
                await requests.run("r", world.attempt("never"))

    for _ in range(3):
        world.run(life())
    world.run(last())
    assert [(told.number, told.incarnation) for _, told in world.dials] == [(1, 1), (2, 2), (3, 3)]


def test_q2a_a_newer_incarnation_fences_the_old_one(either: World) -> None:
    """When another incarnation claims the store, the attempt of the old one is stopped and its answer changes nothing."""

    async def main() -> None:
        async with either.serve() as old:
            await old.open("r")
            running = asyncio.create_task(old.run("r", either.attempt(20_000)))
            await either.timer.pause(10_000)
            async with either.serve() as new:
                with pytest.raises(Fenced):
                    await running
                with pytest.raises(Fenced):
                    await old.run("r", either.attempt("old"))
                assert await new.run("r", either.attempt("new")) == "new"
        await either.store.close()

    either.run(main())
    assert [told.incarnation for _, told in either.dials] == [1, 2]


def test_q2a_who_waits_at_a_fenced_incarnation_is_told_so(either: World, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever waits where nobody tries the request any more hears of the newer incarnation at the next look."""

    async def main() -> None:
        async with either.serve() as old:
            await old.open("r")
            waiting = asyncio.create_task(old.answer("r"))
            await either.timer.pause(1)
            async with either.serve() as new:
                assert await new.run("r", either.attempt("new")) == "new"
                with pytest.raises(Fenced):
                    await waiting
                assert either.now_ms <= 60_001
            with pytest.raises(Fenced):
                await old.answer("r")
        await either.store.close()

    either.run(main())
    assert caplog.text.count("the requests are served here no more: incarnation 2 claimed the store last") == 1


def test_the_latest_come_first() -> None:
    """Operators see the youngest requests first, settled ones too."""

    async def main() -> None:
        store = MemoryRequests()
        incarnation = await store.claim()
        for name, opened_at_ms in (("a", 1), ("b", 3), ("c", 2)):
            opened = attrs.evolve(UNFILED, opened_at_ms=opened_at_ms)
            await store.transact(incarnation, name, lambda _, opened=opened: opened)  # type: ignore[misc]  # a default
        assert [name for name, _ in await store.latest(2)] == ["b", "c"]

    asyncio.run(main())


def test_q7_an_outcome_is_told_until_it_is_heard(world: World) -> None:
    """An expiry is told again if the one who is told raises, or dies before that is recorded; never silence."""
    deaf = [True, True, False]

    def told(view: RequestView) -> None:
        world.told.append(view)
        if deaf[len(world.told) - 1]:
            raise ValueError("not now")

    async def life(lives_ms: int) -> None:
        async with Requests(world.store, timer=world.timer, on_outcome=told) as requests:
            if requests.incarnation == 1:
                await requests.open("r")
            await world.timer.pause(lives_ms)

    world.run(life(HORIZON_MS + 1))
    assert len(world.told) == 1
    world.run(life(70_000))
    assert len(world.told) == 3
    world.run(life(70_000))
    assert len(world.told) == 3


def test_q7_without_a_listener_an_expiry_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Expired is told: without on_outcome as a warning with its reason."""

    async def main() -> None:
        async with Requests(world.store, timer=world.timer) as requests:
            await requests.open("r")
            await world.timer.pause(HORIZON_MS + 1)
            assert (await requests.inspect("r")).told

    world.run(main())
    assert "request 'r' expired: the horizon has passed" in caplog.text


def test_r4_one_attempt_at_a_time(world: World) -> None:
    """Whoever runs a request that is tried already waits for the same attempt; a cancelled waiter stops nothing."""

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            waiters = [asyncio.create_task(requests.run("r", world.attempt(1_000))) for _ in range(3)]
            await world.timer.pause(500)
            assert await requests.adopt(world.attempt("never")) == []
            waiters[0].cancel()
            assert await asyncio.gather(*waiters[1:]) == ["after 1000 ms"] * 2

    world.run(main())
    assert len(world.dials) == 1


class Unspeakable(Exception):
    """A failure that can't be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_r1_whatever_a_failure_says_is_a_failure(either: World) -> None:
    """What has surrogates, can't be told, or cancels itself is a failure like any other, and keeps its distance."""

    async def odd(told: RequestAttempt) -> str:
        either.dials.append((either.now_ms, told))
        match told.number:
            case 1:
                return "\udcff"
            case 2:
                raise OSError("no file \udcff" + "x" * 5_000)
            case 3:
                raise Unspeakable
        raise asyncio.CancelledError

    async def main() -> None:
        async with either.serve(RequestPolicy(max_attempts=4)) as requests:
            await requests.open("r")
            running = asyncio.create_task(requests.run("r", odd))
            said = []
            for wait_ms in (10_000, 20_000, 40_000):
                await either.settle()
                said.append((await requests.inspect("r")).error)
                await either.timer.pause(wait_ms)
            assert said[0].startswith("UnicodeEncodeError: ")
            assert said[1].startswith("OSError: no file \\udcffxxx")
            assert len(said[1]) == 1_000
            assert said[2] == "Unspeakable: it can't be told: RuntimeError"
            with pytest.raises(RequestFailed, match="the attempt was cancelled"):
                await running
        await either.store.close()

    either.run(main())
    assert [at_ms for at_ms, _ in either.dials] == [0, 10_000, 30_000, 70_000]


@pytest.mark.parametrize(
    "odd",
    [lambda told: "at once", lambda told: asyncio.sleep(0, result=5)],
    ids=["no awaitable", "no text"],
)
def test_r2_a_malformed_attempt_is_not_repeated(world: World, odd: Callable[[object], Awaitable[str]]) -> None:
    """An attempt that returns no text costs one attempt and no more: its caller is told, and may mend it."""

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            with pytest.raises(AttemptMalformed, match="the attempt returned"):
                await requests.run("r", odd)
            assert (await requests.inspect("r")).attempts == 1
            assert await requests.run("r", world.attempt("mended")) == "mended"

            await requests.open("last")
            for _ in range(2):
                with pytest.raises(AttemptMalformed):
                    await requests.run("last", odd)
            with pytest.raises(RequestFailed, match="AttemptMalformed: the attempt returned"):
                await requests.run("last", odd)
            await world.settle()

    world.run(main())
    assert [(view.request_id, view.status) for view in world.told] == [
        ("r", Status.SUCCEEDED),
        ("last", Status.FAILED),
    ]


def test_r2_what_can_t_be_called_costs_no_attempt(world: World) -> None:
    """Something that is no function is refused before a dial is recorded."""

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            for use in (lambda: requests.run("r", None), lambda: requests.adopt(None)):  # type: ignore[arg-type]  # it
                with pytest.raises(CallerError, match="attempt is None: give an async function"):
                    await use()
            assert (await requests.inspect("r")).attempts == 0

    world.run(main())


def test_r6_requests_are_entered_once(world: World) -> None:
    """Entering what serves already is refused, and changes nothing; it may be entered again after it was left."""

    async def main() -> None:
        requests = world.serve()
        async with requests:
            with pytest.raises(CallerError, match="enter them once"):
                await requests.__aenter__()
            assert requests.incarnation == 1
            await requests.open("r")
            assert await requests.run("r", world.attempt("yes")) == "yes"
        async with requests:
            assert requests.incarnation == 2

        async def fails(point: str) -> None:
            if point == "claim.before":
                raise StoreUnavailable("the disk is away")

        assert isinstance(world.store, MemoryRequests)
        world.store.hook = fails
        with pytest.raises(StoreUnavailable):
            await requests.__aenter__()
        world.store.hook = None
        async with requests:
            assert requests.incarnation == 3

    world.run(main())


def test_opening_again_changes_nothing(either: World) -> None:
    """The first horizon stands; another body is a conflict, a trigger in the future is refused (Q4)."""

    async def main() -> None:
        async with either.serve() as requests:
            first = await requests.open("r", "body")
            await either.timer.pause(1_000)
            assert await requests.open("r", "body") == first
            with pytest.raises(RequestConflict):
                await requests.open("r", "another")
            with pytest.raises(Refused, match="Q4: the trigger lies in the future"):
                await requests.open("s", triggered_at_ms=START_MS + 86_400_000)
            assert [view.request_id for view in await requests.unfinished()] == ["r"]
        await either.store.close()

    either.run(main())


def test_misuse_is_told(world: World) -> None:
    """Ids and bodies that no store keeps, unknown requests, a wrong policy, and use outside are refused."""
    requests = world.serve()

    async def main() -> None:
        for use in (lambda: requests.open("r"), lambda: requests.answer("r"), lambda: requests.inspect("r")):
            with pytest.raises(RequestsClosed, match="async with Requests"):
                await use()
        async with requests:
            for bad in ("", "x" * 1_001, "\udcff", 5):
                with pytest.raises(CallerError, match="request_id is"):
                    await requests.open(bad)  # type: ignore[arg-type]  # the point of this test
            with pytest.raises(CallerError, match="body is"):
                await requests.open("r", "\udcff")
            for odd in ("x", 1.5, True, -5):
                with pytest.raises(CallerError, match="triggered_at_ms is"):
                    await requests.open("r", triggered_at_ms=odd)  # type: ignore[arg-type]  # the point of this test
            for none in (5, None, ""):
                with pytest.raises(CallerError, match="request_id is"):
                    await requests.inspect(none)  # type: ignore[arg-type]  # the point of this test
            with pytest.raises(NoSuchRequest):
                await requests.run("r", world.attempt("never"))
        with pytest.raises(RequestsClosed):
            await requests.__aexit__(None, None, None)

    world.run(main())
    with pytest.raises(CallerError, match="give a RequestPolicy"):
        Requests(world.store, 5)  # type: ignore[arg-type]  # the point of this test


class SetBack(VirtualTimer):
    """A wall clock that somebody sets back, and a steady one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.back_ms = 0

    def now_ms(self) -> int:
        """What the wall clock shows, once it is set back; virtual time itself goes on."""
        return super().now_ms() - self.back_ms

    def elapsed_ms(self) -> float:
        """What has passed."""
        return super().now_ms()


def test_q4_a_clock_set_back_lengthens_no_attempt() -> None:
    """An attempt gets no longer than it was promised, whatever is done to the wall clock meanwhile."""
    timer = SetBack()
    began: list[float] = []
    ended: list[float] = []

    async def hangs(told: RequestAttempt) -> str:
        began.append(timer.elapsed_ms())
        try:
            await asyncio.sleep(100 * HORIZON_MS)
        finally:
            ended.append(timer.elapsed_ms())
        return "never"

    async def main() -> None:
        async with Requests(MemoryRequests(), RequestPolicy(max_attempts=1), timer) as requests:
            await requests.open("r")
            running = asyncio.create_task(requests.run("r", hangs))
            await asyncio.sleep(60)
            timer.back_ms = 3_600_000
            with pytest.raises(RequestFailed, match="all its time"):
                await running

    with asyncio.Runner(loop_factory=lambda: SteadyLoop(timer)) as runner:
        runner.run(main())
    assert began == [START_MS]
    assert HORIZON_MS <= ended[0] - began[0] <= HORIZON_MS + 1


class SteadyLoop(VirtualLoop):
    """An event loop whose sleeps no wall clock shortens or lengthens."""

    def time(self) -> float:
        """The steady time, in seconds."""
        assert isinstance(self.timer, SetBack)
        return self.timer.elapsed_ms() / 1_000


def test_q7_leaving_waits_for_nobody_for_ever(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever is told an outcome and doesn't end when it is cancelled is left alone; the next incarnation tells it."""
    hold: list[asyncio.Future[None]] = []

    async def stubborn(view: RequestView) -> None:
        hold.append(asyncio.get_running_loop().create_future())
        while not hold[0].done():
            try:
                await asyncio.shield(hold[0])
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        async with Requests(world.store, None, world.timer, on_outcome=stubborn) as requests:
            await requests.open("r")
            assert await requests.run("r", world.attempt("yes")) == "yes"
            await world.settle()
        assert world.now_ms <= LEAVE_MAX_MS + 10
        assert len(hold) == 1
        hold[0].set_result(None)
        await world.settle()
        async with world.serve():
            await world.settle()

    world.run(main())
    assert [view.status for view in world.told] == [Status.SUCCEEDED]
    assert "though they were cancelled" in caplog.text


class Failing(MemoryRequests):
    """A store that fails so many times at each write from some moment on."""

    failures = 0

    async def transact(self, incarnation: int, request_id: str, change: Change) -> None:
        """Fail, or write."""
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the disk is away")
        await super().transact(incarnation, request_id, change)


def test_an_outcome_is_written_until_the_store_takes_it() -> None:
    """While the store fails an answer is kept, and written as soon as it can be; nothing is tried twice for it."""
    store = Failing()
    world = World(store)

    async def attempt(told: RequestAttempt) -> str:
        world.dials.append((world.now_ms, told))
        store.failures = 10
        return "kept"

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            assert await requests.run("r", attempt) == "kept"
            assert 0 < world.now_ms < 60_000

    world.run(main())
    assert len(world.dials) == 1


def test_a_store_that_fails_past_the_horizon_is_told() -> None:
    """Whoever waits is told that the store failed; when it is back the timer settles the request."""
    store = Failing()
    world = World(store)

    async def main() -> None:
        async with world.serve() as requests:
            await requests.open("r")
            store.failures = 1_000_000
            with pytest.raises(StoreFault):
                await requests.run("r", world.attempt("never"))
            assert HORIZON_MS <= world.now_ms <= HORIZON_MS + 5_000
            store.failures = 0
            await world.timer.pause(1_500)
            assert (await requests.inspect("r")).status is Status.EXPIRED

    world.run(main())
    assert world.dials == []


def test_q5_a_request_opened_while_timers_are_looked_at_is_not_overslept() -> None:
    """What is opened just after the store was read for horizons, and just before the sleep, wakes whoever sleeps."""
    store = MemoryRequests()
    world = World(store)
    policy = RequestPolicy(horizon_ms=50, floor_ms=1)

    async def slow(point: str) -> None:
        if point == "unfinished.after":
            await world.timer.pause(10)

    async def main() -> None:
        async with world.serve(policy) as requests:
            store.hook = slow
            await world.timer.pause(5)  # the first look has begun
            await requests.open("r")
            with pytest.raises(RequestExpired):
                await requests.answer("r")
            assert world.now_ms <= 5 + 50 + 20
            store.hook = None

    world.run(main())


def lived(world: World, main: Coroutine[object, object, None]) -> bool:
    """Whether a life came to its end, rather than died."""
    try:
        world.run(main)
    except Died:
        return False
    return True


def test_a_death_at_every_await_point() -> None:
    """Die at the first await point, the second, ...: the next lives settle the request once, by its horizon (Q2, Q5)."""

    async def serve(world: World) -> None:
        async with world.serve() as requests:
            await requests.open("r", "body")
            with pytest.raises(RequestFailed):
                await requests.run("r", world.attempt(ValueError("no")))
            await world.settle()

    async def recover(world: World) -> None:
        async with world.serve() as requests:
            await requests.adopt(world.attempt("yes"))
            await world.timer.pause(HORIZON_MS + 1)

    for at in itertools.count(1):
        store = MemoryRequests()
        world = World(store)
        store.hook = CrashAt(store, at)
        whole = lived(world, serve(world))
        store.hook = None
        assert lived(world, recover(world))
        filed = store.now("r")
        if filed.request.status is Status.ABSENT:
            assert world.dials == []
            continue
        assert filed.request.told is filed.request.status
        assert world.types().count("request.settled") <= 1
        assert len(world.dials) <= 3
        assert world.told
        assert len({view.status for view in world.told}) == 1
        if whole:
            break
    assert at > 40


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A store of turns is not one of requests; a closed store is closed."""

    async def main() -> None:
        from deadreckon.impl.incident_sqlite import SqliteStore

        async with SqliteStore(tmp_path / "turns.db"):
            pass
        with pytest.raises(StoreForeign):
            await SqliteRequests(tmp_path / "turns.db").claim()
        async with SqliteRequests(tmp_path / "requests.db") as store:
            incarnation = await store.claim()
            await store.transact(incarnation, "r", lambda filed: Filed(opened(RequestPolicy(), START_MS), "body"))
            assert (await store.read("r")).body == "body"
            assert await store.living() == incarnation
        with pytest.raises(StoreClosed):
            await store.read("r")

    asyncio.run(main())


DAMAGES = {
    "an odd word": "UPDATE requests SET status = 'odd' WHERE request_id = 'r'",
    "no timer": "UPDATE requests SET timer_at_ms = 0 WHERE request_id = 'r'",
    "a timer elsewhere": "UPDATE requests SET timer_at_ms = timer_at_ms + 1 WHERE request_id = 'r'",
    "a timer of what is settled": "UPDATE requests SET status = 'failed', reason = 'attempts_used_up'",
    "negative attempts": "UPDATE requests SET attempts = -5 WHERE request_id = 'r'",
    "impossible attempts": f"UPDATE requests SET attempts = {2**63 - 1} WHERE request_id = 'r'",
    "an impossible owner": "UPDATE requests SET owner = -1 WHERE request_id = 'r'",
    "no distance": "UPDATE requests SET backoff_ms = 0 WHERE request_id = 'r'",
    "never opened": "UPDATE requests SET status = 'absent', timer_at_ms = 0 WHERE request_id = 'r'",
    "told too early": "UPDATE requests SET told = 'failed' WHERE request_id = 'r'",
    "told another": "UPDATE requests SET status = 'succeeded', told = 'failed', timer_at_ms = 0 WHERE request_id = 'r'",
    "no reason": "UPDATE requests SET status = 'expired', timer_at_ms = 0 WHERE request_id = 'r'",
    "a reason too much": "UPDATE requests SET reason = 'attempts_used_up' WHERE request_id = 'r'",
    "an impossible instant": "UPDATE requests SET opened_at_ms = -1 WHERE request_id = 'r'",
}


async def two_open(path: Path, damage: str) -> SqliteRequests:
    """A store with the requests r and s, the first of which is damaged."""
    store = SqliteRequests(path)
    incarnation = await store.claim()
    for request_id in ("r", "s"):
        await store.transact(incarnation, request_id, lambda filed: Filed(opened(RequestPolicy(), START_MS), "body"))
    await store._call(lambda connection: connection.execute(damage))
    return store


@pytest.mark.parametrize("damage", DAMAGES)
def test_q5_damage_is_told(tmp_path: Path, damage: str) -> None:
    """A row that no version of the library writes is damage, and nothing is decided upon it."""

    async def main() -> None:
        store = await two_open(tmp_path / "requests.db", DAMAGES[damage])
        with pytest.raises(StoreCorrupt, match="no version of this library writes"):
            await store.read("r")
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("damage", ["UPDATE requests SET request_id = '' WHERE request_id = 'r'", DAMAGES["no timer"]])
def test_q5_a_damaged_request_stops_no_other(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged row is logged, once, and left alone; the horizons of all other requests are kept."""

    alone = World(MemoryRequests())

    async def main() -> None:
        alone.store = await two_open(tmp_path / "requests.db", damage)
        async with alone.serve() as requests:
            assert [view.request_id for view in await requests.unfinished()] == ["s"]
            assert [name for name, _ in await alone.store.latest(5)] == ["s"]
            await alone.timer.pause(HORIZON_MS + 1)
        await alone.store.close()

    alone.run(main())
    assert [(view.request_id, view.status) for view in alone.told] == [("s", Status.EXPIRED)]
    assert len([record for record in caplog.records if "its row is damaged" in record.getMessage()]) == 1


def test_q5_those_that_expire_first_come_first(either: World) -> None:
    """What is unfinished is listed by horizon; a settled request has the instant of its settlement on record."""

    async def main() -> None:
        async with either.serve() as requests:
            for name, age_ms in (("young", 1), ("old", 100_000), ("middle", 500)):
                await requests.open(name, triggered_at_ms=START_MS - age_ms)
            assert [view.request_id for view in await requests.unfinished()] == ["old", "middle", "young"]
            await either.timer.pause(70)
            await requests.run("young", either.attempt("yes"))
            assert (await either.store.read("young")).settled_at_ms == START_MS + 70
            assert (await either.store.read("old")).settled_at_ms == 0
        await either.store.close()

    either.run(main())


def test_q2a_nobody_insists_while_fenced(world: World) -> None:
    """Whoever is fenced hears so at once: another try would be fenced too."""

    async def fenced() -> None:
        raise Fenced(1, 2)

    async def main() -> None:
        with pytest.raises(Fenced):
            await insist(world.timer, START_MS + HORIZON_MS, fenced)

    world.run(main())
    assert world.now_ms == 0


def test_q2_a_late_failure_was_seen(world: World) -> None:
    """An attempt that outlives its deadline and then raises is lost without a word (Q2)."""
    complaints: list[object] = []

    async def stubborn(told: RequestAttempt) -> str:
        try:
            await world.timer.pause(2 * HORIZON_MS)
        except asyncio.CancelledError:
            await world.timer.pause(1_000)
        raise ValueError("too late")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        async with world.serve() as requests:
            await requests.open("r")
            with pytest.raises(RequestExpired):
                await requests.run("r", stubborn)
            await world.timer.pause(2_000)
        gc.collect()

    world.run(main())
    assert complaints == []


def test_q7_an_outcome_told_while_timers_are_looked_at_is_told_once() -> None:
    """Whoever looks at the timers with an older list finds that the outcome was told, and doesn't tell it again."""

    async def slow(point: str) -> None:
        if point == "unfinished.after":
            await world.timer.pause(100)

    world = World(MemoryRequests(slow))

    async def main() -> None:
        async def told(view: RequestView) -> None:
            world.told.append(view)
            await requests.open("earlier", triggered_at_ms=START_MS)  # so that the timers are looked at just now
            await world.timer.pause(50)

        brief = RequestPolicy(horizon_ms=40_000, floor_ms=0)  # shorter than the longest sleep of who keeps the timers
        async with Requests(world.store, brief, world.timer, on_outcome=told) as requests:
            await world.timer.pause(1_000)
            await requests.open("r")
            await world.timer.pause(1_000)
            assert await requests.run("r", world.attempt("yes")) == "yes"
            await world.timer.pause(1_000)

    world.run(main())
    assert [view.request_id for view in world.told] == ["r"]


def test_q7_who_fails_to_enter_tells_nothing_afterwards(world: World) -> None:
    """An incarnation whose first look at the timers fails leaves nothing behind that goes on."""
    heard: list[str] = []

    async def slow(view: RequestView) -> None:
        await world.timer.pause(1_000)
        heard.append(view.request_id)

    async def main() -> None:
        store = Failing()
        async with Requests(store, None, world.timer) as requests:
            await requests.open("first")
            await requests.open("second")
        await world.timer.pause(HORIZON_MS)

        async def fails(point: str) -> None:
            if point == "transact.before" and store.now("first").request.status is not Status.OPEN:
                raise StoreUnavailable("the disk is away")

        store.hook = fails
        with pytest.raises(StoreUnavailable):
            await Requests(store, None, world.timer, on_outcome=slow).__aenter__()
        await world.timer.pause(5_000)

    world.run(main())
    assert heard == []
