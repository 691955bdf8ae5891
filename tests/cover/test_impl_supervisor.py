"""Hosts that a supervisor keeps running, as async functions in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine

import pytest

from deadreckon.impl import keepalive_supervisor
from deadreckon.impl.events import Event
from deadreckon.impl.keepalive_memory import MemoryKeepalive
from deadreckon.impl.keepalive_steps import reset_by_hand
from deadreckon.impl.keepalive_supervisor import CLEAN_AFTER_MS, RUN, Supervisor
from deadreckon.impl.store import Fenced, StoreFault, StoreUnavailable
from deadreckon.impl.virtual import START_MS, VirtualTimer, run_virtual
from deadreckon.spec import CallerError
from deadreckon.spec.keepalive_state import NEVER, RESET_VERB, KeepalivePolicy

LEAD_MS = 10_000
LADDER_MS = KeepalivePolicy().ladder_ms
PLATEAU_MS = KeepalivePolicy().plateau_ms
WEDGE_MS = KeepalivePolicy().wedge_ms
HOUR_MS = 3_600_000


class World:
    """What outlives supervisors, and the hosts: when they ran, from and to."""

    def __init__(self) -> None:
        self.store = MemoryKeepalive()
        self.timer = VirtualTimer()
        self.runs: list[tuple[int, int]] = []
        self.evidence: list[str] = []
        self.events: list[Event] = []
        self.running = 0

    @property
    def now_ms(self) -> int:
        """Milliseconds since the start."""
        return self.timer.now_ms() - START_MS

    @property
    def starts_ms(self) -> list[int]:
        """When each run began."""
        return [start_ms for start_ms, _ in self.runs]

    def supervise(self, policy: KeepalivePolicy | None = None, version: str = "v1") -> Supervisor:
        """A new supervisor."""
        return Supervisor(
            self.store,
            policy,
            self.timer,
            version=version,
            on_evidence=lambda host, text: self.evidence.append(text),
            sink=self.events.append,
        )

    def host(self, *spans_ms: int) -> Callable[[], Awaitable[None]]:
        """A host that ends by itself after each of these spans; the last is repeated."""
        spans = itertools.chain(spans_ms, itertools.repeat(spans_ms[-1]))

        async def run() -> None:
            start_ms = self.now_ms
            self.running += 1
            assert self.running == 1, "two children of one host"
            try:
                await self.timer.pause(next(spans))
            finally:
                self.running -= 1
                self.runs.append((start_ms, self.now_ms))

        return run

    def run(self, main: Coroutine[object, object, None]) -> None:
        """Run in virtual time."""
        run_virtual(main, self.timer)

    def seen(self, type_: str) -> list[Event]:
        """The events of a type."""
        return [event for event in self.events if event["type"] == type_]


@pytest.fixture
def world() -> World:
    """A store in memory."""
    return World()


@pytest.mark.parametrize("lives_ms", [0, 1_000, 9_999, 10_500, 300_000, CLEAN_AFTER_MS - 1])
def test_k2_a_crash_loop_climbs_the_ladder(world: World, lives_ms: int) -> None:
    """However long a child lives before it dies, if it is not up by then: the distances only grow, to the plateau."""

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(lives_ms))
            await world.timer.pause(24 * HOUR_MS)
            view = await supervisor.inspect("h")
            assert view.on_plateau
            assert view.owed == (RUN,)

    world.run(main())
    begun = [int(str(event["at"])) - START_MS for event in world.seen("revival.started")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(begun)]
    ladder = [*LADDER_MS, *[PLATEAU_MS] * len(gaps)]
    assert all(gap >= rung for gap, rung in zip(gaps, ladder, strict=False))
    assert all(gap <= max(rung, lives_ms + rung) for gap, rung in zip(gaps, ladder, strict=False))
    assert len(begun) >= 7
    assert [event["n"] for event in world.seen("revival.started")] == list(range(1, len(begun) + 1))
    assert begun[0] >= lives_ms
    assert len(world.evidence) == 1
    assert RESET_VERB in world.evidence[0]
    assert not world.seen("count.cleared")


def test_k7_an_end_that_nobody_asked_for_is_a_death(world: World) -> None:
    """An exit is clean only if it was asked for: a function that returns is revived like one that raises."""

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1_000, HOUR_MS))
            await world.timer.pause(LEAD_MS + 1)
            await supervisor.stop("h")

    world.run(main())
    assert world.starts_ms == [0, LEAD_MS]
    assert [event["asked"] for event in world.seen("host.died")] == [False, True]


def test_k3_a_child_that_stays_up_clears_the_count(world: World) -> None:
    """Once a child has been up for long enough, the next look, a lead later, clears the count."""
    up_ms = LEAD_MS + LADDER_MS[0] + LADDER_MS[1] + CLEAN_AFTER_MS

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1, 1, 1, 30 * HOUR_MS))
            await world.timer.pause(up_ms - 1)
            assert (await supervisor.inspect("h")).revivals == 3
            await world.timer.pause(LEAD_MS + 10)
            view = await supervisor.inspect("h")
            assert (view.revivals, view.owed) == (0, (RUN,))
            assert view.next_at_ms != NEVER
            await world.timer.pause(24 * HOUR_MS)
            assert (await supervisor.inspect("h")).revivals == 0

    world.run(main())
    assert [event["by"] for event in world.seen("count.cleared")] == ["quiet-clean"]
    assert len(world.runs) == 4


def test_a_host_that_runs_for_days_is_left_alone(world: World) -> None:
    """A healthy child is neither wedged nor revived, however long it runs."""

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(200 * HOUR_MS))
            await world.timer.pause(30 * HOUR_MS)

    world.run(main())
    assert world.runs == [(0, 30 * HOUR_MS)]
    assert not world.seen("revival.started")


def test_stopping_is_clean_and_no_reset(world: World) -> None:
    """A host that was asked to stop owes nothing and is not revived; its count stays, until a stretch was clean."""

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1, 1, 1, 30 * HOUR_MS))
            await world.timer.pause(LEAD_MS + LADDER_MS[0] + LADDER_MS[1] + 1)
            await supervisor.stop("h")
            view = await supervisor.inspect("h")
            assert (view.revivals, view.owed, view.next_at_ms, view.alarm_at_ms) == (3, (), NEVER, NEVER)
            await world.timer.pause(24 * HOUR_MS)
            assert len(world.runs) == 4
            await supervisor.start("h", world.host(30 * HOUR_MS))
            await world.timer.pause(1)
            assert world.running == 1
            assert (await supervisor.inspect("h")).revivals == 3
            await world.timer.pause(2 * HOUR_MS)
            assert (await supervisor.inspect("h")).revivals == 0

    world.run(main())
    assert len(world.runs) == 5


def test_a_stop_during_a_look_stays_stopped(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A host that is stopped while its alarm is being looked at is not revived by that look, nor is that tried."""

    async def slow(point: str) -> None:
        if point == "transact.after":
            await world.timer.pause(5)

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1))
            await world.timer.pause(LEAD_MS - 100)
            world.store.hook = slow
            await world.timer.pause(102)
            await supervisor.stop("h")
            await world.timer.pause(HOUR_MS)
            assert (await supervisor.inspect("h")).owed == ()

    world.run(main())
    assert len(world.runs) == 1
    assert [event["n"] for event in world.seen("revival.started")] == [1]
    assert caplog.messages == ["host h has died: it returned"]


def test_k11b_a_child_whose_probe_says_no_is_put_down(world: World) -> None:
    """A child that runs, but says for longer than the wedge that it is not well, is killed and revived."""
    well = iter([True, True])

    async def probe() -> bool:
        return next(well, False)

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(30 * HOUR_MS), probe=probe)
            await world.timer.pause(2 * CLEAN_AFTER_MS + WEDGE_MS + LEAD_MS + 10)
            assert len(world.runs) == 1
            assert (await supervisor.inspect("h")).revivals == 1
            assert world.running == 1

    world.run(main())
    assert 2 * CLEAN_AFTER_MS + WEDGE_MS <= world.runs[0][1] <= 2 * CLEAN_AFTER_MS + WEDGE_MS + LEAD_MS


@pytest.mark.parametrize("answer", ["hangs", "no", "raises"])
def test_k11b_a_revival_that_hangs_is_put_down(world: World, answer: str) -> None:
    """A child that never comes up is killed after the wedge; the next look starts another."""
    ends: list[int] = []

    async def probe() -> bool:
        try:
            if answer == "hangs":
                await asyncio.Event().wait()
        finally:
            ends.append(world.now_ms)
        if answer == "raises":
            raise OSError("no route")
        return False

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1, 30 * HOUR_MS), probe=probe)
            await world.timer.pause(LEAD_MS + WEDGE_MS + 2 * LEAD_MS + 10)
            assert world.running == 1
            assert ends, "the hung probe was not given up"

    world.run(main())
    start_ms, end_ms = world.runs[1]
    assert start_ms == LEAD_MS
    assert LEAD_MS + WEDGE_MS <= end_ms <= LEAD_MS + WEDGE_MS + LEAD_MS
    assert len(world.seen("revival.failed")) == 1


@pytest.mark.parametrize("revived", [False, True])
def test_a_probe_that_ends_oddly_says_no(world: World, revived: bool) -> None:
    """A probe that ends with a cancellation which nobody asked for, once, is asked again: its host runs on."""
    answers = itertools.count()

    async def probe() -> bool:
        if next(answers) == 0:
            raise asyncio.CancelledError
        return True

    async def main() -> None:
        async with world.supervise(KeepalivePolicy(wedge_ms=3 * CLEAN_AFTER_MS)) as supervisor:
            await supervisor.start("h", world.host(*[1][: int(revived)], 30 * HOUR_MS), probe=probe)
            await world.timer.pause(20 * HOUR_MS)

    world.run(main())
    assert len(world.runs) == 1 + revived
    assert next(answers) > 2


def test_leaving_asks_every_host_to_stop(world: World) -> None:
    """Whoever leaves a supervisor, by an error too, leaves no child and nothing owed; the next one starts at once."""

    async def first() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("a", world.host(30 * HOUR_MS))
            await world.timer.pause(5_000)
            raise ValueError("no")

    async def second() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("a", world.host(30 * HOUR_MS))
            await world.timer.pause(1)

    with pytest.raises(ValueError, match="no"):
        world.run(first())
    assert world.running == 0
    assert world.store.now("a").owed == ()
    world.run(second())
    assert world.starts_ms == [0, 5_000]


def test_leaving_ends_children_though_the_store_fails(world: World) -> None:
    """A store that fails holds no child alive; what it could not be told, the next supervisor finds owed."""

    async def fail(point: str) -> None:
        raise StoreUnavailable("no disk")

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(30 * HOUR_MS))
            await world.timer.pause(1)
            world.store.hook = fail

    world.run(main())
    world.store.hook = None
    assert world.running == 0
    assert world.store.now("h").owed == (RUN,)

    async def stop() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(30 * HOUR_MS))
            await world.timer.pause(LEAD_MS + 10)
            assert world.running == 1
            world.store.hook = fail
            with pytest.raises(StoreFault):
                await supervisor.stop("h")
            assert world.running == 0
            world.store.hook = None

    world.run(stop())


def test_k5_the_next_supervisor_continues_the_ladder(world: World) -> None:
    """A supervisor that is killed is followed by one that waits for the rung, however its hosts are started."""

    async def life(runs: int) -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1))
            while len(world.runs) < runs:
                await world.timer.pause(10)
            world.store.hook = die

    async def die(point: str) -> None:
        raise StoreUnavailable("killed")

    for runs in range(1, 7):
        world.store.hook = None
        world.run(life(runs))
    gaps = [later - earlier for earlier, later in itertools.pairwise(world.starts_ms)]
    assert gaps[0] == LEAD_MS
    assert gaps[1:] == list(LADDER_MS)


def test_k6_a_reset_starts_a_host_on_the_plateau(world: World) -> None:
    """The hand reset works at the plateau, from here and from elsewhere: a child starts within the lead."""
    world.store.others = True

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1))
            await world.timer.pause(HOUR_MS)
            runs = len(world.runs)
            done = await supervisor.reset("h", by="ada")
            assert (done.revivals, done.armed_at_ms) == (5, world.timer.now_ms() + LEAD_MS)
            await world.timer.pause(LEAD_MS + 10)
            assert len(world.runs) == runs + 1
            await world.timer.pause(HOUR_MS)
            runs = len(world.runs)
            await reset_by_hand(world.store, "h", world.timer, "bob")
            await world.timer.pause(LEAD_MS + 10)
            assert len(world.runs) == runs + 1

    world.run(main())
    assert [event["by"] for event in world.seen("count.cleared")] == ["hand"]  # that of bob, his own process tells


def test_k3_a_deploy_starts_a_host_on_the_plateau(world: World) -> None:
    """Another version clears the count, and brings the next start within the lead."""

    async def first() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", world.host(1))
            await world.timer.pause(HOUR_MS)
            world.store.hook = die

    async def die(point: str) -> None:
        raise StoreUnavailable("killed")

    async def second() -> None:
        async with world.supervise(version="v2") as supervisor:
            runs = len(world.runs)
            await supervisor.start("h", world.host(1))
            await world.timer.pause(LEAD_MS + 10)
            assert len(world.runs) == runs + 1

    world.run(first())
    world.store.hook = None
    world.run(second())
    assert [event["by"] for event in world.seen("count.cleared")] == ["deploy"]


def test_a_newer_supervisor_replaces_an_older_one(world: World) -> None:
    """There is one child of a host, or none: the older supervisor ends its own as soon as it is fenced."""
    world.store.others = True
    other = World()
    other.timer = world.timer

    async def main() -> None:
        async with world.supervise() as older:
            await older.start("h", world.host(30 * HOUR_MS))
            await world.timer.pause(1)
            async with Supervisor(world.store, timer=world.timer) as newer:
                await newer.start("h", other.host(30 * HOUR_MS))
                await world.timer.pause(LEAD_MS // 2 + 10)
                assert (world.running, other.running) == (0, 0)
                with pytest.raises(Fenced):
                    await older.start("other", world.host(HOUR_MS))
                await world.timer.pause(LEAD_MS)
                assert (world.running, other.running) == (0, 1)

    world.run(main())


def test_whoever_is_fenced_kills_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that has not noticed yet that a newer one lives looks for no orphans: they would be the newer one's."""
    searched: list[str] = []

    def search(token: str) -> int:
        searched.append(token)
        return 0

    monkeypatch.setattr(keepalive_supervisor, "kill_orphans", search)

    async def main() -> None:
        async with world.supervise() as older, world.supervise() as newer:
            await newer.start("h", world.host(HOUR_MS))
            with pytest.raises(Fenced):
                await older.start("h", world.host(HOUR_MS))

    world.run(main())
    assert searched == [""]


def test_a_start_that_fails_leaves_nothing(world: World) -> None:
    """A host whose start can't be put on record does not run, and may be started again."""
    writes = itertools.count()

    async def fail(point: str) -> None:
        if point == "transact.before" and next(writes) >= 1:
            raise StoreUnavailable("no disk")

    async def main() -> None:
        async with world.supervise() as supervisor:
            world.store.hook = fail
            with pytest.raises(StoreFault):
                await supervisor.start("h", world.host(HOUR_MS))
            world.store.hook = None
            assert world.running == 0
            await supervisor.start("h", world.host(HOUR_MS))
            await world.timer.pause(1)
            assert world.running == 1

    world.run(main())


def test_many_hosts_at_once(world: World) -> None:
    """Each host has its own ladder."""
    worlds = [World() for _ in range(20)]
    for one in worlds:
        one.timer = world.timer

    async def main() -> None:
        async with world.supervise() as supervisor:
            for number, one in enumerate(worlds):
                await supervisor.start(f"h{number}", one.host(1 if number % 2 else HOUR_MS))
            await world.timer.pause(LEAD_MS + LADDER_MS[0] + 1)
            assert len(await supervisor.hosts()) == 20

    world.run(main())
    assert [len(one.runs) for one in worlds] == [1, 3] * 10


def test_what_cannot_be_started_has_died(world: World) -> None:
    """A command that does not exist is tried by the ladder, like one that dies at once."""

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", ["/nonexistent/command"])
            await world.timer.pause(LEAD_MS + LADDER_MS[0] + 1)
            assert (await supervisor.inspect("h")).revivals == 2

    world.run(main())


def test_misuse_is_told(world: World) -> None:
    """A host that is supervised already, one that is not, a program that is none, a span that can't be: with what to do."""

    async def main() -> None:
        async with world.supervise() as supervisor:
            for program in ("ls -l", b"ls", [], [1], [""], 5, None, ["a\0b"]):
                with pytest.raises(CallerError, match="program"):
                    await supervisor.start("h", program)  # type: ignore[arg-type]  # that is the misuse
            await supervisor.start("h", world.host(HOUR_MS))
            with pytest.raises(CallerError, match="already"):
                await supervisor.start("h", world.host(HOUR_MS))
            for call in (supervisor.stop("x"), supervisor.reset("x", by="ada")):
                with pytest.raises(CallerError, match="not supervised"):
                    await call
            with pytest.raises(CallerError, match="probe"):
                await supervisor.start("y", world.host(HOUR_MS), probe=5)  # type: ignore[arg-type]  # as above

    world.run(main())
    for span_ms in (0, WEDGE_MS, "5", 5.5, True):
        with pytest.raises(CallerError, match="clean_after_ms"):
            Supervisor(world.store, clean_after_ms=span_ms)  # type: ignore[arg-type]  # as above
    for grace_ms in (-1, "x", True):
        with pytest.raises(CallerError, match="grace_ms"):
            Supervisor(world.store, grace_ms=grace_ms)  # type: ignore[arg-type]  # as above
    with pytest.raises(CallerError, match="on_evidence"):
        Supervisor(world.store, on_evidence=5)  # type: ignore[arg-type]  # as above
    with pytest.raises(CallerError, match="sink"):
        Supervisor(world.store, sink=5)  # type: ignore[arg-type]  # as above


def test_until_signal_ends_once_a_newer_supervisor_lives(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever is fenced is told so: it waits for no signal any more, and a line says why."""
    world.store.others = True

    async def main() -> None:
        async with world.supervise() as older, world.supervise():
            for _ in range(2):
                with pytest.raises(Fenced):
                    await older.until_signal()

    world.run(main())
    assert [text for text in caplog.messages if text.startswith("hosts are kept alive here no more")]


def test_a_death_is_one_line_that_says_how(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Each death is told in one line, with how the host ended, and without a traceback."""
    starts = itertools.count()

    async def host() -> None:
        if next(starts) == 0:
            raise asyncio.CancelledError

    async def main() -> None:
        async with world.supervise() as supervisor:
            await supervisor.start("h", host)
            await supervisor.start("odd", lambda: 5)  # type: ignore[arg-type,return-value]  # that is the misuse
            await supervisor.start("none", ["/nonexistent/command"])
            await world.timer.pause(LEAD_MS + 1)

    world.run(main())
    told = [text for text in caplog.messages if text.startswith("host h ")]
    assert told == ["host h has died: it was cancelled", "host h has died: it returned"]
    assert [record for record in caplog.records if record.exc_info and "function" not in record.message] == []
    assert "host odd has died: it raised CallerError" in caplog.messages
    assert any(text.startswith("host none can't be started: ") for text in caplog.messages)
