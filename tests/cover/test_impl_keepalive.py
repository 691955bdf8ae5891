"""Hosts kept alive within a process, by the reference implementation, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from deadreckon.impl.events import Event
from deadreckon.impl.keepalive import InProcess, Keepalive
from deadreckon.impl.keepalive_kept import Kept, Work
from deadreckon.impl.keepalive_memory import MemoryKeepalive
from deadreckon.impl.keepalive_revival import Reviver
from deadreckon.impl.keepalive_sqlite import SqliteKeepalive
from deadreckon.impl.keepalive_steps import REASSERT_FLOOR_MS, Steps, enter, reset_by_hand
from deadreckon.impl.keepalive_store import Filed, KeepaliveStore
from deadreckon.impl.keepalive_words import KeepaliveClosed, PutDown, Revival, WorkInFlight
from deadreckon.impl.store import Fenced, StoreClosed, StoreFault, StoreUnavailable
from deadreckon.impl.testing import CrashAt, Died
from deadreckon.impl.virtual import START_MS, VirtualTimer, run_virtual
from deadreckon.spec import CallerError
from deadreckon.spec.keepalive_state import NEVER, RESET_VERB, Cleared, KeepalivePolicy

LEAD_MS = 10_000
LADDER_MS = KeepalivePolicy().ladder_ms
PLATEAU_MS = KeepalivePolicy().plateau_ms
HOUR_MS = 3_600_000
STARTS_MS = list(itertools.accumulate((LEAD_MS, *LADDER_MS, PLATEAU_MS, PLATEAU_MS)))
"""When a host that does nothing but die is revived, from the start of its work."""


class World:
    """What outlives incarnations: the store, the clock, and what happened."""

    def __init__(self, store: KeepaliveStore) -> None:
        self.store = store
        self.timer = VirtualTimer()
        self.revivals: list[tuple[int, Revival]] = []
        self.evidence: list[tuple[int, str, str]] = []
        self.events: list[Event] = []

    @property
    def now_ms(self) -> int:
        """Milliseconds since the start."""
        return self.timer.now_ms() - START_MS

    @property
    def starts_ms(self) -> list[int]:
        """When each revival acted."""
        return [at_ms for at_ms, _ in self.revivals]

    def keep(
        self,
        revive: Callable[[Revival], Awaitable[None]] | None = None,
        policy: KeepalivePolicy | None = None,
        version: str = "v1",
        chance: random.Random | None = None,
    ) -> Keepalive:
        """A new incarnation; its revivals are noted, then do what they are given."""

        async def noted(revival: Revival) -> None:
            self.revivals.append((self.now_ms, revival))
            if revive is not None:
                await revive(revival)

        def told(host: str, text: str) -> None:
            self.evidence.append((self.now_ms, host, text))

        return Keepalive(
            self.store,
            policy,
            self.timer,
            revive=noted,
            version=version,
            on_evidence=told,
            chance=chance,
            sink=self.events.append,
        )

    def run(self, main: Coroutine[object, object, None]) -> None:
        """Run in virtual time."""
        run_virtual(main, self.timer)

    async def owe(self, keepalive: Keepalive, *ids: str, host: str = "h") -> None:
        """Work that fails at once, so that it is owed."""
        for work_id in ids or ("w",):
            with pytest.raises(ValueError, match="no"):
                async with keepalive.supervise(host, obliges=True, work_id=work_id):
                    raise ValueError("no")

    async def filed(self, host: str = "h") -> Filed:
        """What the store has of a host."""
        return await self.store.read(host)

    def types(self, *of: str) -> list[str]:
        """The types of all events, or of those that are asked for."""
        return [str(event["type"]) for event in self.events if not of or event["type"] in of]


async def refuse(revival: Revival) -> None:
    """A turn that fails."""
    raise ValueError("no")


@pytest.fixture
def world() -> World:
    """A store in memory."""
    return World(MemoryKeepalive())


@pytest.fixture(params=["memory", "file"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A store in memory, and one in a file."""
    return World(MemoryKeepalive() if request.param == "memory" else SqliteKeepalive(tmp_path / "hosts.db"))


def test_k10_the_alarm_is_durable_before_work_begins(either: World) -> None:
    """Work in flight implies a durable alarm no later than its start plus the lead, and a healthy turn leaves nothing."""

    async def main() -> None:
        async with either.keep() as keepalive:
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                filed = await either.filed()
                assert (filed.record.armed_at_ms, filed.alarm_at_ms) == (START_MS + LEAD_MS, START_MS + LEAD_MS)
                assert filed.owed == ("w",)
                await either.timer.pause(14_000)
            assert (await either.filed()).owed == ()
            await either.timer.pause(6_001)
            filed = await either.filed()
            assert (filed.record.armed_at_ms, filed.alarm_at_ms) == (NEVER, NEVER)
        await either.store.close()

    either.run(main())
    assert either.revivals == []
    assert [{**event, "at": int(str(event["at"])) - START_MS} for event in either.events] == [
        {"at": 0, "type": "work.tracked", "host": "h"},
        {"at": 0, "type": "alarm.armed", "host": "h", "due_at": START_MS + 10_000},
        {"at": 10_000, "type": "alarm.fired", "host": "h"},
        {"at": 10_000, "type": "alarm.armed", "host": "h", "due_at": START_MS + 20_000},
        {"at": 14_000, "type": "work.settled", "host": "h", "ok": True},
        {"at": 20_000, "type": "alarm.fired", "host": "h"},
    ]


def test_k2_days_of_failing_revivals_keep_the_ladder(either: World) -> None:
    """Between two clears, revival n+1 starts no earlier than ladder(n) after revival n; at the plateau it is the plateau."""

    async def main() -> None:
        async with either.keep(refuse) as keepalive:
            await either.owe(keepalive)
            await either.timer.pause(STARTS_MS[-1] + 1)
            view = await keepalive.inspect("h")
            assert (view.revivals, view.rung, view.on_plateau, view.owed) == (len(STARTS_MS), "plateau", True, ("w",))
        await either.store.close()

    either.run(main())
    assert either.starts_ms == STARTS_MS
    assert [revival.number for _, revival in either.revivals] == list(range(1, len(STARTS_MS) + 1))
    assert {revival.owed for _, revival in either.revivals} == {("w",)}


def test_k2_a_process_that_answers_and_then_dies(either: World) -> None:
    """A revival that returned proves nothing: whoever dies after it is revived at its rung, in any later process."""

    async def life(dies_after_ms: int) -> None:
        async with either.keep() as keepalive:
            if not either.revivals:
                await either.owe(keepalive)
            known = len(either.revivals)
            while len(either.revivals) == known:
                await either.timer.pause(1_000)
            await either.timer.pause(dies_after_ms)

    async def end() -> None:
        await either.store.close()

    for _ in STARTS_MS[:-1]:
        either.run(life(3_000))
    either.run(end())
    gaps = [later - earlier for earlier, later in itertools.pairwise(either.starts_ms)]
    assert gaps == [*LADDER_MS, PLATEAU_MS]
    assert either.types("host.died") == ["host.died"] * (len(STARTS_MS) - 2)


def test_k3_a_quiet_clean_run_clears_the_count(world: World) -> None:
    """The count is cleared by the early look, a lead after the revival that ended well: recorded, with its reason."""

    async def second_time(revival: Revival) -> None:
        if revival.number == 1:
            raise ValueError("no")

    async def main() -> None:
        async with world.keep(second_time) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[1] + LEAD_MS - 1)
            assert (await world.filed()).record.revivals == 2
            await world.timer.pause(2)
            filed = await world.filed()
            assert (filed.record.revivals, filed.record.cleared_by) == (0, Cleared.QUIET_CLEAN)
            assert filed.alarm_at_ms == filed.record.armed_at_ms == NEVER

    world.run(main())
    assert world.starts_ms == STARTS_MS[:2]
    assert [event["by"] for event in world.events if event["type"] == "count.cleared"] == ["quiet-clean"]


def test_k3_unrelated_work_clears_nothing(world: World) -> None:
    """The count is never cleared by settles of unrelated work while work is owed."""

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(LEAD_MS + 1)
            async with keepalive.supervise("h"):
                pass
            await world.timer.pause(LEAD_MS)
            assert (await world.filed()).record.revivals == 2

    world.run(main())


def test_k2_new_work_does_not_shorten_the_rung(world: World) -> None:
    """New work runs when it is delivered; the automatic revival waits for its rung."""
    rung_at_ms = STARTS_MS[2] + LADDER_MS[2]

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[2] + 1)
            async with keepalive.supervise("h", obliges=True, work_id="new"):
                assert (await world.filed()).alarm_at_ms == START_MS + rung_at_ms

    world.run(main())


def test_cancelled_work_has_failed(world: World) -> None:
    """Work that is cancelled has not done what it owed: it stays owed, and a revival takes it up."""

    async def work(keepalive: Keepalive) -> None:
        async with keepalive.supervise("h", obliges=True, work_id="w"):
            await world.timer.pause(HOUR_MS)

    async def main() -> None:
        async with world.keep() as keepalive:
            task = asyncio.create_task(work(keepalive))
            await world.timer.pause(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await world.filed()).owed == ("w",)
            await world.timer.pause(LEAD_MS)

    world.run(main())
    assert world.revivals[0][1].owed == ("w",)
    assert [event["ok"] for event in world.events if event["type"] == "work.settled"] == [False, True]


def test_k11b_a_wedge_is_put_down_by_its_oldest_settle(world: World) -> None:
    """A settle that is owed for longer than the wedge puts the work down, whatever else settles meanwhile (F4)."""
    seen: list[tuple[int, type[BaseException]]] = []

    async def hang(keepalive: Keepalive) -> None:
        try:
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                await asyncio.Event().wait()
        except BaseException as error:
            seen.append((world.now_ms, type(error)))
            raise

    async def main() -> None:
        async with world.keep() as keepalive:
            task = asyncio.create_task(hang(keepalive))
            while world.now_ms < 894_000:
                await world.timer.pause(5_000)
                async with keepalive.supervise("h"):
                    pass
            with pytest.raises(PutDown, match="wedged"):
                await task
            await world.timer.pause(1)

    world.run(main())
    assert seen == [(900_000, PutDown)]
    assert [(at_ms, revival.owed) for at_ms, revival in world.revivals] == [(900_000, ("w",))]


def test_what_was_put_down_ends_too_late(world: World) -> None:
    """Work that runs on although it was put down ends nothing: the revival that has its slot is still under way."""

    async def slowly(revival: Revival) -> None:
        await world.timer.pause(5_000)

    async def stubborn(keepalive: Keepalive) -> None:
        async with keepalive.supervise("h", obliges=True, work_id="w"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await world.timer.pause(1_000)

    async def main() -> None:
        async with world.keep(slowly) as keepalive:
            with pytest.raises(PutDown):
                await stubborn(keepalive)
            assert (await world.filed()).owed == ("w",)
            await world.timer.pause(4_001)
            assert (await world.filed()).owed == ()

    world.run(main())


def test_an_end_that_comes_with_a_put_down_is_too_late(world: World) -> None:
    """Work that the machine has given up already has no end: nobody is told that it was settled."""

    async def main() -> None:
        policy = KeepalivePolicy()
        life = await enter(world.store, "v1", policy)
        kept = Kept(Steps(world.store, life, "h", policy, world.timer))
        await kept.steps.boot()
        work = kept.works[0] = Work(0, "w", None)
        assert not await Reviver(policy, world.timer, InProcess(refuse), None).finish(kept, work, True)
        assert not kept.works

    world.run(main())


class Odd(BaseException):
    """What no ``except Exception`` sees."""


@pytest.mark.parametrize("error", [asyncio.CancelledError, Odd])
def test_k2_a_turn_that_ends_oddly_has_failed(
    world: World, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """However a turn ends, nothing is in flight after it: the next revival comes at its rung, and not with the wedge."""

    async def odd(revival: Revival) -> None:
        raise error

    async def main() -> None:
        async with world.keep(odd) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[2] + 1)
            assert (await world.filed()).owed == ("w",)

    world.run(main())
    assert world.starts_ms == STARTS_MS[:3]
    assert [text for text in caplog.messages if "turn" in text] == ["the turn of a revival of host h failed"] * 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_turn_may_end_the_process(world: World, error: type[BaseException]) -> None:
    """What a turn raises in order to end the process, ends it; what it took up is still owed."""

    async def leave(revival: Revival) -> None:
        raise error

    async def main() -> None:
        async with world.keep(leave) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(HOUR_MS)

    with pytest.raises(error):
        world.run(main())
    assert len(world.revivals) == 1
    assert world.types("work.settled") == ["work.settled"] * 2


@pytest.mark.parametrize("error", [asyncio.CancelledError, Odd])
def test_k9_evidence_whose_hearer_ends_oddly_holds_nothing_up(world: World, error: type[BaseException]) -> None:
    """Whatever on_evidence raises: the revival acts."""

    async def odd(host: str, text: str) -> None:
        raise error

    async def main() -> None:
        keepalive = Keepalive(world.store, timer=world.timer, revive=refuse, on_evidence=odd, sink=world.events.append)
        async with keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[4])

    world.run(main())
    assert world.types("revival.succeeded") == ["revival.succeeded"] * 4


def test_k11b_a_turn_that_hangs_is_put_down(world: World) -> None:
    """A revival's turn that hangs as long is cancelled, and the next one is tried."""
    ends: list[int] = []

    async def hang(revival: Revival) -> None:
        if revival.number > 1:
            return
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(world.now_ms)

    async def main() -> None:
        async with world.keep(hang) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(HOUR_MS)
            assert (await world.filed()).record.revivals == 0

    world.run(main())
    assert ends == [LEAD_MS + 900_000]
    assert world.starts_ms == [LEAD_MS, LEAD_MS + 900_000]


def test_k9_evidence_is_durable_before_the_third_revival_acts(either: World) -> None:
    """Evidence is written once for each version and epoch, durable before the revival acts; it names the reset."""
    durable: list[int] = []

    async def look(revival: Revival) -> None:
        durable.append(len((await either.filed()).evidence))
        raise ValueError("no")

    async def main() -> None:
        async with either.keep(look) as keepalive:
            await either.owe(keepalive)
            await either.timer.pause(STARTS_MS[3] + 1)
            await keepalive.reset("h", by="ada")
            await either.timer.pause(HOUR_MS)
        await either.store.close()

    either.run(main())
    assert durable[:4] == [0, 0, 1, 1]
    assert durable[4:7] == [1, 1, 2]
    assert [host for _, host, _ in either.evidence] == ["h", "h"]
    assert all(RESET_VERB in text and "host h" in text and "version v1" in text for _, _, text in either.evidence)
    assert either.types("plateau.reported") == ["plateau.reported"] * 2


def test_k9_evidence_that_nobody_hears_holds_nothing_up(world: World) -> None:
    """The fact is in the store: a callback that fails is logged, and the revival acts."""

    def deaf(host: str, text: str) -> None:
        raise OSError("the chat is down")

    async def main() -> None:
        async with Keepalive(world.store, None, world.timer, revive=refuse, on_evidence=deaf) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[4] + 1)
            filed = await world.filed()
            assert (filed.record.revivals, len(filed.evidence)) == (5, 1)

    world.run(main())


def test_k9_a_death_before_the_evidence(world: World) -> None:
    """A process that dies between the count and the evidence leaves the evidence to the next look, before the plateau."""
    policy = KeepalivePolicy(ladder_ms=(10, 10, 10), plateau_ms=100, lead_ms=10, evidence_at=3)
    store = MemoryKeepalive()
    world.store = store

    async def dying() -> None:
        async with world.keep(refuse, policy) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(25)

            async def no_arm(point: str) -> None:
                if point == "arm.before":
                    raise StoreUnavailable("gone")

            store.hook = no_arm
            await world.timer.pause(10)

    async def living() -> None:
        store.hook = None
        async with world.keep(refuse, policy):
            await world.timer.pause(30)
            filed = await world.filed()
            assert (filed.record.revivals, len(filed.evidence)) == (4, 1)

    with pytest.raises(StoreUnavailable):
        world.run(dying_if(dying(), store))
    world.run(living())


async def dying_if(life: Coroutine[object, object, None], store: MemoryKeepalive) -> None:
    """A life that the death of its store ends."""
    await life
    raise StoreUnavailable("gone")


@pytest.mark.parametrize("rung", [1, 4, 6])
def test_k6_a_reset_brings_the_next_revival_within_the_lead(either: World, rung: int) -> None:
    """The hand reset works at every rung, and from another process: the living one notices, and never comes later."""
    store = either.store
    other = SqliteKeepalive(store.path) if isinstance(store, SqliteKeepalive) else store
    if isinstance(store, MemoryKeepalive):
        store.others = True

    async def main() -> None:
        async with either.keep(refuse) as keepalive:
            await either.owe(keepalive)
            await either.timer.pause(STARTS_MS[rung - 1] + 1)
            before = await either.filed()
            done = await reset_by_hand(other, "h", either.timer, "ada")
            assert (done.revivals, done.armed_before_ms) == (rung, before.record.armed_at_ms)
            assert done.armed_at_ms == min(before.record.armed_at_ms, either.timer.now_ms() + LEAD_MS)
            await either.timer.pause(done.armed_at_ms - either.timer.now_ms() + 1)
            filed = await either.filed()
            assert (filed.record.revivals, filed.reset_by) == (1, "ada")
        await other.close()
        if other is not store:
            await store.close()

    either.run(main())
    assert either.revivals[-1][1].number == 1
    assert len(either.revivals) == rung + 1


def test_k6_a_reset_is_seen_before_it_is_due(world: World) -> None:
    """However short the lead, the living process looks often enough to revive when a reset elsewhere says so."""
    world.store = MemoryKeepalive(others=True)
    policy = KeepalivePolicy(lead_ms=100)

    async def main() -> None:
        async with world.keep(refuse, policy) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(HOUR_MS)
            await reset_by_hand(world.store, "h", world.timer, "ada")
            await world.timer.pause(200)

    world.run(main())
    assert world.starts_ms[-1] == HOUR_MS + 100


def test_k6_repeated_resets_do_not_starve_the_retry(world: World) -> None:
    """A reset never delays: one every 3 s leaves the revival where it was."""

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            for _ in range(4):
                await world.timer.pause(3_000)
                await keepalive.reset("h", by="ada")

    world.run(main())
    assert world.starts_ms == [LEAD_MS]


def test_k6_a_reset_overtakes_an_alarm_on_its_way(world: World) -> None:
    """A reset between the two writes of somebody else is not half applied: the alarm says what the record says."""
    store = MemoryKeepalive(others=True)
    world.store = store
    resets = itertools.count()

    async def overtake(point: str) -> None:
        if point == "arm.before" and len(world.revivals) == 4 and next(resets) == 0:
            await reset_by_hand(store, "h", world.timer, "ada")

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            store.hook = overtake
            await world.timer.pause(STARTS_MS[4] + 1)
            filed = await world.filed()
            assert filed.record.revivals == 0
            assert filed.alarm_at_ms == filed.record.armed_at_ms == START_MS + STARTS_MS[4] + LEAD_MS
            await world.timer.pause(LEAD_MS)

    world.run(main())
    assert [revival.number for _, revival in world.revivals] == [1, 2, 3, 4, 1]


def test_k6_whoever_resets_may_die_between_the_two_writes(world: World) -> None:
    """A reset whose second write never came is made up for by the living process, in time."""
    store = MemoryKeepalive(others=True)
    world.store = store

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[5] + 1)

            async def cut(point: str) -> None:
                if point == "arm.before":
                    raise Died(point)

            store.hook = cut
            with pytest.raises(Died):
                await reset_by_hand(store, "h", world.timer, "ada")
            store.hook = None
            assert (await world.filed()).alarm_at_ms > START_MS + world.now_ms + HOUR_MS
            await world.timer.pause(LEAD_MS // 2 + 1)
            assert (await world.filed()).alarm_at_ms == (await world.filed()).record.armed_at_ms
            await world.timer.pause(LEAD_MS // 2)

    world.run(main())
    assert world.starts_ms[-1] == STARTS_MS[5] + 1 + LEAD_MS


@pytest.mark.parametrize(("version", "count"), [("v1", 5), ("v2", 1)])
def test_k3_a_deploy_is_told_by_its_version(world: World, version: str, count: int) -> None:
    """Another version than the last clears the count, and that is recorded; the same one does not."""

    async def first() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[3] + 1)

    async def second() -> None:
        async with world.keep(refuse, version=version) as keepalive:
            await world.timer.pause(LADDER_MS[3])
            assert (await keepalive.inspect("h")).version == version

    world.run(first())
    world.run(second())
    assert world.revivals[4][1].number == count
    assert [event["by"] for event in world.events if event["type"] == "count.cleared"] == ["deploy"] * (count == 1)


def test_k5_a_stream_that_is_recreated_owes_nothing(world: World) -> None:
    """A record of another lifetime is never acted on."""

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[1] + 1)
            await keepalive.recreate("h")
            await world.timer.pause(HOUR_MS)
            assert ((await world.filed()).owed, (await world.filed()).alarm_at_ms) == ((), NEVER)

    world.run(main())
    assert len(world.revivals) == 2


def test_jitter_only_adds(world: World) -> None:
    """Jitter is drawn from the source that was given, and is added to a distance."""
    policy = KeepalivePolicy(jitter_ms=5_000)

    async def main() -> None:
        async with world.keep(refuse, policy, chance=random.Random(7)) as keepalive:
            await world.owe(keepalive)
            await world.timer.pause(STARTS_MS[4])

    world.run(main())
    same = random.Random(7)
    added = [same.randint(0, 5_000) for _ in world.revivals]
    gaps = [later - earlier for earlier, later in itertools.pairwise(world.starts_ms)]
    assert gaps == [rung + more for rung, more in zip(LADDER_MS, added, strict=False)][: len(gaps)]
    assert max(added) > 0


class Counting(MemoryKeepalive):
    """A store that counts the writes of alarms."""

    armed = 0

    async def arm(self, incarnation: int, host: str, at_ms: int) -> bool:
        """One more."""
        self.armed += 1
        return await super().arm(incarnation, host, at_ms)


def test_redundant_alarms_are_written_once_in_a_while(world: World) -> None:
    """Fifty pieces of work a second write one alarm, and assert it again after the floor, not with each piece."""
    store = Counting()
    world.store = store

    async def main() -> None:
        async with world.keep() as keepalive:
            for _ in range(2 * 50):
                async with keepalive.supervise("h"):
                    await world.timer.pause(20)
            assert store.armed == 1
            await world.timer.pause(REASSERT_FLOOR_MS)
            for _ in range(2):
                async with keepalive.supervise("h"):
                    pass
            assert store.armed == 2

    world.run(main())


def test_many_pieces_of_work_at_once(either: World) -> None:
    """There are as many slots as are needed: whatever was in flight at a death is owed afterwards."""

    async def work(keepalive: Keepalive, work_id: str) -> None:
        async with keepalive.supervise("h", obliges=True, work_id=work_id):
            await either.timer.pause(HOUR_MS)

    async def first() -> None:
        async with either.keep() as keepalive:
            tasks = [asyncio.create_task(work(keepalive, f"w{number}")) for number in range(40)]
            await either.timer.pause(100)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ends} == {KeepaliveClosed}

    async def second() -> None:
        async with either.keep() as keepalive:
            await either.timer.pause(2 * LEAD_MS)
            assert (await keepalive.inspect("h")).owed == ()
        await either.store.close()

    either.run(first())
    either.run(second())
    assert sorted(either.revivals[0][1].owed) == sorted(f"w{number}" for number in range(40))


def test_actions_of_a_host_come_one_after_another(world: World) -> None:
    """However actions of a host overlap, each finds what the one before has left: no slot is given twice."""
    store = MemoryKeepalive()
    world.store = store

    async def others_go_first(point: str) -> None:
        await asyncio.sleep(0)

    async def work(keepalive: Keepalive, number: int) -> None:
        async with keepalive.supervise("h"):
            await world.timer.pause(100 + number)

    async def main() -> None:
        async with world.keep() as keepalive:
            store.hook = others_go_first
            await asyncio.gather(*(work(keepalive, number) for number in range(10)))

    world.run(main())
    assert world.types("work.settled") == ["work.settled"] * 10


def test_k1_a_revival_does_not_act_before_its_alarm_is_set(world: World) -> None:
    """A revival whose alarm can't be written waits until it is, and acts then, not before and not never."""
    store = MemoryKeepalive()
    world.store = store
    failures = iter(range(3))
    seen: list[Filed] = []

    async def fail(point: str) -> None:
        if point == "arm.before" and next(failures, None) is not None:
            raise StoreUnavailable("no disk")

    async def look(revival: Revival) -> None:
        seen.append(store.now("h"))

    async def main() -> None:
        async with world.keep(look) as keepalive:
            await world.owe(keepalive)
            store.hook = fail
            await world.timer.pause(LEAD_MS + 5_000)

    world.run(main())
    assert [filed.alarm_at_ms for filed in seen] == [START_MS + LEAD_MS + LADDER_MS[0]]
    assert LEAD_MS < world.starts_ms[0] <= LEAD_MS + 1_000


def test_a_revival_may_supervise_what_it_takes_up(world: World) -> None:
    """What is supervised by its id within a revival ends by itself; the rest ends with the revival."""

    async def take_up(revival: Revival) -> None:
        for work_id in revival.owed:
            if work_id != "c":
                try:
                    async with keepalive.supervise(revival.host, work_id=work_id):
                        if work_id == "b":
                            raise ValueError("no")
                except ValueError:
                    pass

    keepalive = world.keep(take_up)

    async def main() -> None:
        async with keepalive:
            await world.owe(keepalive, "a", "b", "c")
            await world.timer.pause(LEAD_MS + 1)
            assert [one for one in (await world.filed()).owed if one] == ["b"]

    world.run(main())


def test_work_of_one_id_is_in_flight_once(world: World) -> None:
    """A second piece of work of the same id is refused while the first is in flight."""

    async def main() -> None:
        async with world.keep() as keepalive:
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                with pytest.raises(WorkInFlight):
                    async with keepalive.supervise("h", obliges=True, work_id="w"):
                        pass
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                pass

    world.run(main())


@pytest.mark.parametrize("point", ["transact.before", "transact.after", "arm.before"])
def test_work_does_not_begin_unrecorded(world: World, point: str) -> None:
    """Work whose record or alarm can't be written does not run, and is not in flight."""
    store = MemoryKeepalive()
    world.store = store
    ran: list[int] = []

    async def fail(at: str) -> None:
        if at == point:
            raise StoreUnavailable("no disk")

    async def main() -> None:
        async with world.keep() as keepalive:
            async with keepalive.supervise("other"):
                pass
            store.hook = fail
            with pytest.raises(StoreFault):
                async with keepalive.supervise("h", obliges=True, work_id="w"):
                    ran.append(1)
            store.hook = None
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                ran.append(2)

    world.run(main())
    assert ran == [2]


def test_an_end_that_is_not_recorded_is_owed(world: World) -> None:
    """A good end that can't be written for one lead is none: the work is still owed, and is done again."""
    store = MemoryKeepalive()
    world.store = store

    async def fail(at: str) -> None:
        if at == "transact.before":
            raise StoreUnavailable("no disk")

    async def main() -> None:
        async with world.keep() as keepalive:
            with pytest.raises(StoreFault):
                async with keepalive.supervise("h", obliges=True, work_id="w"):
                    store.hook = fail
            store.hook = None
            await world.timer.pause(LEAD_MS)

    world.run(main())
    assert world.revivals[0][1].owed == ("w",)


def test_an_end_is_recorded_once_the_store_is_back(world: World) -> None:
    """A store that fails for a moment costs a moment."""
    store = MemoryKeepalive()
    world.store = store
    failures = iter(range(3))

    async def fail(at: str) -> None:
        if at == "transact.before" and next(failures, None) is not None:
            raise StoreUnavailable("no disk")

    async def main() -> None:
        async with world.keep() as keepalive:
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                store.hook = fail
            assert (await world.filed()).owed == ()

    world.run(main())


def test_a_store_that_fails_is_not_hammered(world: World) -> None:
    """While the store fails at a look, it is asked again once in a while."""
    store = MemoryKeepalive()
    world.store = store
    asked: list[str] = []

    async def fail(at: str) -> None:
        asked.append(at)
        raise StoreUnavailable("no disk")

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            store.hook = fail
            await world.timer.pause(2 * LEAD_MS)
            store.hook = None
            await world.timer.pause(1_000)

    world.run(main())
    assert len(asked) <= 110
    assert len(world.revivals) == 1


def test_k11_a_lost_alarm_is_noticed_by_who_lives(world: World) -> None:
    """The platform loses the alarm: the living process looks at what the record has armed all the same."""

    async def main() -> None:
        async with world.keep(refuse) as keepalive:
            await world.owe(keepalive)
            await world.store.use_up(keepalive.incarnation, "h", (await world.filed()).alarm_at_ms)
            await world.timer.pause(LEAD_MS + 10)

    world.run(main())
    assert world.starts_ms == [LEAD_MS + 1]


def test_fenced_work_is_ended(world: World) -> None:
    """Once a newer incarnation keeps the hosts, the older one's work is ended, and its calls are refused."""

    async def hang(keepalive: Keepalive) -> None:
        async with keepalive.supervise("h", obliges=True, work_id="w"):
            await asyncio.Event().wait()

    async def main() -> None:
        async with world.keep() as older:
            task = asyncio.create_task(hang(older))
            await world.timer.pause(1)
            async with world.keep():
                await world.timer.pause(LEAD_MS)
                with pytest.raises(Fenced):
                    await task
                with pytest.raises(Fenced):
                    async with older.supervise("h"):
                        pass

    world.run(main())
    assert [revival.owed for _, revival in world.revivals] == [("w",)]


@pytest.mark.parametrize("at", range(1, 60, 2))
def test_k12_a_death_at_any_point_is_recovered_from(at: int) -> None:
    """Whatever point of its life a process dies at: what it owed is done in the end, and the host comes to rest."""
    store = MemoryKeepalive()
    world = World(store)
    promised: list[str] = []

    async def life() -> None:
        async with world.keep() as keepalive:
            async with keepalive.supervise("h", obliges=True, work_id="w"):
                promised.append("w")
                await world.timer.pause(15_000)
            promised.clear()
            await world.timer.pause(LEAD_MS)

    async def mend() -> None:
        async with world.keep():
            await world.timer.pause(HOUR_MS)

    store.hook = CrashAt(store, at)
    try:
        world.run(life())
    except* Died:
        pass
    store.hook = None
    world.run(mend())
    filed = store.now("h")
    assert (filed.record.revivals, filed.alarm_at_ms, filed.record.armed_at_ms, filed.owed) == (0, NEVER, NEVER, ())
    assert not promised or any("w" in revival.owed for _, revival in world.revivals)


def test_misuse_is_told(world: World) -> None:
    """What can't be kept is refused with what to give, and nothing is kept outside of the ``async with``."""

    async def main() -> None:
        keepalive = world.keep()
        with pytest.raises(KeepaliveClosed):
            await keepalive.reset("h", by="ada")
        async with keepalive:
            for host, work_id in (("", "w"), ("h" * 1_001, "w"), ("\ud800", "w"), ("h", "")):
                with pytest.raises(CallerError):
                    async with keepalive.supervise(host, obliges=True, work_id=work_id):
                        pass
            with pytest.raises(CallerError):
                await keepalive.reset("h", by="")
        with pytest.raises(KeepaliveClosed):
            async with keepalive.supervise("h"):
                pass

    world.run(main())
    with pytest.raises(CallerError, match="give a KeepalivePolicy"):
        Keepalive(world.store, LADDER_MS, revive=refuse)  # type: ignore[arg-type]  # that is the misuse
    with pytest.raises(CallerError, match="version"):
        Keepalive(world.store, revive=refuse, version="")
    with pytest.raises(CallerError, match="revive"):
        Keepalive(world.store, revive=None)  # type: ignore[arg-type]  # that is the misuse
    with pytest.raises(CallerError, match="on_evidence"):
        Keepalive(world.store, revive=refuse, on_evidence=5)  # type: ignore[arg-type]  # that is the misuse
    with pytest.raises(CallerError, match="sink"):
        Keepalive(world.store, revive=refuse, sink=5)  # type: ignore[arg-type]  # that is the misuse


def test_a_closed_store_is_told(either: World) -> None:
    """A store that was closed says so."""

    async def main() -> None:
        await either.store.hosts()
        await either.store.close()
        await either.store.close()
        with pytest.raises(StoreClosed):
            await either.store.read("h")

    either.run(main())
