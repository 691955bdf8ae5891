"""Hosts kept alive while the wall clock is set, ahead and back, as a machine that sleeps does too; in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine

import pytest

from deadreckon.impl.keepalive import Keepalive
from deadreckon.impl.keepalive_memory import MemoryKeepalive
from deadreckon.impl.keepalive_supervisor import CLEAN_AFTER_MS, RUN, Supervisor
from deadreckon.impl.keepalive_words import PutDown, Revival
from deadreckon.impl.virtual import VirtualLoop, VirtualTimer
from deadreckon.spec.keepalive_state import KeepalivePolicy

HOUR_MS = 3_600_000
YEAR_MS = 8_760 * HOUR_MS
START_MS = 10 * YEAR_MS
POLICY = KeepalivePolicy()
LOOK_MS = 60_000
"""A clock that was set is noticed within this time."""


class Wall(VirtualTimer):
    """A wall clock that somebody sets, and a steady one beside it."""

    def __init__(self) -> None:
        super().__init__(START_MS)
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """What the wall clock shows; virtual time itself goes on."""
        return super().now_ms() + self.ahead_ms

    def elapsed_ms(self) -> int:
        """What has passed."""
        return super().now_ms() - START_MS


class SteadyLoop(VirtualLoop):
    """An event loop whose sleeps no wall clock shortens or lengthens."""

    def time(self) -> float:
        """The steady time, in seconds."""
        assert isinstance(self.timer, Wall)
        return self.timer.elapsed_ms() / 1_000


class World:
    """A store, its clocks, and when revivals came, by the steady one."""

    def __init__(self) -> None:
        self.timer = Wall()
        self.store = MemoryKeepalive()
        self.revived_ms: list[int] = []

    def keep(self, revive: Callable[[Revival], Awaitable[None]] | None = None) -> Keepalive:
        """A new incarnation, whose revivals fail if nothing else is given."""

        async def noted(revival: Revival) -> None:
            self.revived_ms.append(self.timer.elapsed_ms())
            if revive is None:
                raise ValueError("no")
            await revive(revival)

        return Keepalive(self.store, POLICY, self.timer, revive=noted)

    def run(self, main: Coroutine[object, object, None]) -> None:
        """Run in virtual time."""

        async def awaited() -> None:
            await main

        with asyncio.Runner(loop_factory=lambda: SteadyLoop(self.timer)) as runner:
            runner.run(awaited())

    async def owe(self, keepalive: Keepalive) -> None:
        """Work that fails at once, so that it is owed."""
        with pytest.raises(ValueError, match="no"):
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                raise ValueError("no")


@pytest.fixture
def world() -> World:
    """A store in memory."""
    return World()


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, POLICY.wedge_ms])
def test_k11b_a_clock_that_is_set_puts_down_no_healthy_work(world: World, step_ms: int) -> None:
    """Work is wedged once it has lasted for too long, and not because the clock was set, or the machine has slept."""

    async def main() -> None:
        async with world.keep() as keepalive:
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                await asyncio.sleep(5)
                world.timer.ahead_ms += step_ms
                await asyncio.sleep(POLICY.wedge_ms / 1_000 - 6)
            await asyncio.sleep(2 * LOOK_MS / 1_000)
            view = await keepalive.inspect("h")
            assert (view.lifetime_total, view.owed) == (0, ())

    world.run(main())


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_k11b_work_that_hangs_is_put_down_whatever_the_clock_is_set_to(world: World, step_ms: int) -> None:
    """A wedge is noticed in the time that it takes, by a clock that nobody sets."""

    async def main() -> None:
        async with world.keep() as keepalive:
            asyncio.get_running_loop().call_later(5, setattr, world.timer, "ahead_ms", step_ms)
            with pytest.raises(PutDown):
                async with keepalive.supervise("h", obliges=True, work_id="w"):
                    await asyncio.sleep(YEAR_MS)
            lasted_ms = world.timer.elapsed_ms()
            assert POLICY.wedge_ms <= lasted_ms <= POLICY.wedge_ms + LOOK_MS + POLICY.lead_ms

    world.run(main())


@pytest.mark.parametrize("revived", [False, True])
@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_is_set_kills_no_healthy_child(world: World, step_ms: int, revived: bool) -> None:
    """A supervised child, be it of a start or of a revival that is not over, outlives a sleep of its machine."""
    starts = itertools.count()

    async def child() -> None:
        if next(starts) == 0 and revived:
            return
        await asyncio.sleep(YEAR_MS)

    async def main() -> None:
        async with Supervisor(world.store, POLICY, world.timer) as supervisor:
            await supervisor.start("h", child)
            for _ in range(3):
                await asyncio.sleep(CLEAN_AFTER_MS / 1_000 - 60)
                world.timer.ahead_ms += step_ms
            await asyncio.sleep(2 * HOUR_MS / 1_000)
            view = await supervisor.inspect("h")
            assert (view.lifetime_total, view.revivals, view.owed) == (int(revived), 0, (RUN,))

    world.run(main())
    assert next(starts) == 1 + revived


def test_a_revival_that_hangs_is_put_down_though_the_clock_was_set(world: World) -> None:
    """A revival under way is given its time by the steady clock, and no more."""
    answers = itertools.count()

    async def ill() -> bool:
        return next(answers) < 0

    runs: list[int] = []

    async def child() -> None:
        runs.append(world.timer.elapsed_ms())
        await asyncio.sleep(YEAR_MS if len(runs) > 1 else 0)

    async def main() -> None:
        async with Supervisor(world.store, POLICY, world.timer) as supervisor:
            await supervisor.start("h", child, probe=ill)
            await asyncio.sleep(60)
            world.timer.ahead_ms += HOUR_MS
            await asyncio.sleep(POLICY.wedge_ms / 1_000 + 2 * LOOK_MS / 1_000)

    world.run(main())
    assert runs[0] == 0
    assert runs[1] == POLICY.lead_ms
    assert POLICY.wedge_ms <= runs[2] - runs[1] <= POLICY.wedge_ms + LOOK_MS + 2 * POLICY.lead_ms


@pytest.mark.parametrize("step_ms", [-HOUR_MS, -YEAR_MS])
def test_k11_a_clock_that_is_set_back_delays_by_a_rung_at_most(world: World, step_ms: int) -> None:
    """A host whose next revival is at an instant to come again is revived a rung after that was noticed; never sooner."""

    async def main() -> None:
        async with world.keep() as keepalive:
            await world.owe(keepalive)
            await asyncio.sleep(POLICY.lead_ms / 1_000 + POLICY.ladder_ms[0] / 1_000 + 1)
            assert len(world.revived_ms) == 2
            world.timer.ahead_ms += step_ms
            await asyncio.sleep((LOOK_MS + POLICY.ladder_ms[1]) / 1_000)
            assert len(world.revived_ms) == 3
            filed = world.store.now("h")
            assert filed.alarm_at_ms == filed.armed_at_ms == filed.record.last_revival_at_ms + POLICY.ladder_ms[2]

    world.run(main())
    assert POLICY.ladder_ms[1] <= world.revived_ms[2] - world.revived_ms[1] <= POLICY.ladder_ms[1] + LOOK_MS


@pytest.mark.parametrize("revivals", [0, 2])
def test_k11_a_record_from_a_time_to_come_is_brought_back_at_boot(world: World, revivals: int) -> None:
    """A clock that was a year ahead, and was set right between two lives, leaves no host dead for a year."""

    async def ahead() -> None:
        world.timer.ahead_ms = YEAR_MS
        async with world.keep() as keepalive:
            await world.owe(keepalive)
            await asyncio.sleep((0.001, 0, (POLICY.lead_ms + POLICY.ladder_ms[0]) / 1_000 + 1)[revivals])
            assert len(world.revived_ms) == revivals

    async def right() -> None:
        world.timer.ahead_ms = 0
        booted_ms = world.timer.elapsed_ms()
        rung_ms = (POLICY.lead_ms, *POLICY.ladder_ms)[revivals]
        async with world.keep() as keepalive:
            view = await keepalive.inspect("h")
            assert view.next_at_ms == view.alarm_at_ms == world.timer.now_ms() + rung_ms
            assert view.revivals == revivals
            await asyncio.sleep(rung_ms / 1_000 + 1)
        assert world.revived_ms[revivals:] == [booted_ms + rung_ms]

    world.run(ahead())
    world.run(right())


def test_k6_a_reset_after_a_step_back_never_delays(world: World) -> None:
    """A reset brings the next revival within the lead of the clock as it is now."""

    async def main() -> None:
        async with world.keep() as keepalive:
            await world.owe(keepalive)
            await asyncio.sleep(1_000)
            world.timer.ahead_ms -= HOUR_MS
            known = len(world.revived_ms)
            done = await keepalive.reset("h", by="ada")
            assert done.armed_at_ms == world.timer.now_ms() + POLICY.lead_ms
            await asyncio.sleep(POLICY.lead_ms / 1_000 + 1)
            assert len(world.revived_ms) == known + 1

    world.run(main())
