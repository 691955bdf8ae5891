"""The recovery of ``deadreckon.impl``, against the sentences of the protocol, on both stores."""

from __future__ import annotations

import ast
import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

import deadreckon.impl as impl
from deadreckon.impl import (
    Closed,
    Fenced,
    GivenUp,
    IncidentRefused,
    Kind,
    NoIncident,
    NotEntered,
    Recovery,
    Sealed,
    SqliteStore,
    Store,
    StoreFull,
)
from deadreckon.impl.testing import Died, MemoryStore, VirtualClock
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.incident_state import Outcome, Phase, Reason, Record, RecoveryPolicy, Status, Turn

LIMIT = 5


class World:
    """A store, a clock, and what happened outside: runs of the body, and what was told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = VirtualClock(1_000)
        self.runs = 0
        self.told: list[tuple[str, Reason, int]] = []

    def recovery(
        self,
        policy: RecoveryPolicy | None = None,
        *,
        ask: Callable[[str, Record], bool | Awaitable[bool]] | None = None,
        transient: tuple[type[Exception], ...] = (),
    ) -> Recovery:
        return Recovery(self.store, policy, self.clock, ask, self.tell, transient=transient)

    def tell(self, turn_id: str, reason: Reason, count: int) -> None:
        self.told.append((turn_id, reason, count))

    async def die(
        self,
        turn_id: str = "t",
        kind: Kind = Kind.TURN,
        policy: RecoveryPolicy | None = None,
        ask: Callable[[str, Record], bool | Awaitable[bool]] | None = None,
    ) -> int:
        """A life that dies in the body of one attempt; the count that the attempt was admitted with."""
        count = -1
        try:
            async with self.recovery(policy, ask=ask) as recovery, recovery.attempt(turn_id, kind=kind) as attempt:
                self.runs += 1
                count = attempt.count
                raise Died
        except Died:
            return count

    async def fail(self, recovery: Recovery, turn_id: str = "t", error: type[Exception] = ZeroDivisionError) -> None:
        """An attempt whose body raises in a living incarnation."""

        async def attempt() -> None:
            async with recovery.attempt(turn_id):
                self.runs += 1
                raise error

        with pytest.raises(error):
            await attempt()

    async def count(self, turn_id: str = "t") -> int:
        return (await self.store.read(turn_id)).buffered.interrupted

    async def status(self, turn_id: str = "t") -> Status:
        return (await self.store.read(turn_id)).buffered.status


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "turns.db")
    yield World(store)
    asyncio.run(store.close())


async def dies(life: Coroutine[object, object, None]) -> None:
    """A life that ends in a death; what it never got to write stays unwritten."""
    with pytest.raises(Died):
        await life


Test = Callable[[World], Coroutine[object, object, None]]


def scenario(test: Test) -> Callable[[World], None]:
    """Run an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(world: World) -> None:
        asyncio.run(test(world))

    return run


@scenario
async def test_c4_five_runs_then_sealed(world: World) -> None:
    """A turn that dies every time runs exactly `limit` times, the original included."""
    counts = [await world.die() for _ in range(LIMIT)]
    assert counts == [0, 1, 2, 3, 4]
    async with world.recovery() as recovery:
        with pytest.raises(Sealed) as refusal:
            async with recovery.attempt("t"):
                world.runs += 1
    assert world.runs == LIMIT
    assert (refusal.value.turn_id, refusal.value.reason, refusal.value.count) == ("t", Reason.INTERRUPTED, LIMIT)
    assert world.told == [("t", Reason.INTERRUPTED, LIMIT)]


@scenario
async def test_c4_limit_of_one(world: World) -> None:
    """No heavy work starts when the count has reached the limit: with a limit of 1, the original turn runs alone."""
    policy = RecoveryPolicy(max_interrupted_attempts=1)
    await world.die(policy=policy)
    async with world.recovery(policy) as recovery:
        with pytest.raises(Sealed):
            await recovery.replay("t").__aenter__()
    assert world.runs == 1


@scenario
async def test_c4_finishing_at_limit_minus_one(world: World) -> None:
    """It is not sealed for that reason any earlier: the last allowed run may finish the turn."""
    for _ in range(LIMIT - 1):
        await world.die()
    async with world.recovery() as recovery:
        async with recovery.attempt("t") as attempt:
            assert attempt.count == LIMIT - 1
        assert (await recovery.inspect("t")).status is Status.CLOSED
        with pytest.raises(Closed):
            await recovery.attempt("t").__aenter__()
    assert world.told == []


@scenario
async def test_c4_callbacks_are_not_exempt(world: World) -> None:
    """No class of work is exempt: callbacks that die use up the same limit."""
    await world.die()
    await world.die()
    for _ in range(LIMIT - 2):
        await world.die(kind=Kind.CALLBACK)
    async with world.recovery() as recovery:
        with pytest.raises(Sealed):
            await recovery.attempt("t", kind="callback").__aenter__()
    assert world.runs == LIMIT


@scenario
async def test_c3_entry_durable_before_body(world: World) -> None:
    """No heavy work before the attempt's own entry is durable."""
    await world.die()
    async with world.recovery() as recovery, recovery.attempt("t"):
        assert recovery.incarnation in (await world.store.read("t")).durable.attempts


@scenario
async def test_c3_original_is_owed_before_body(world: World) -> None:
    """No heavy work before it is durable that the turn is owed."""
    async with world.recovery() as recovery, recovery.attempt("t") as attempt:
        assert attempt.original
        assert (await world.store.read("t")).durable.turn is Turn.RUNNING


@scenario
async def test_c1_callback_ends_first_replay_dies(world: World) -> None:
    """Every earlier incarnation that died holding a durable entry has been counted, whoever of its attempts ended."""
    await world.die()

    async def life() -> None:
        async with world.recovery() as recovery, recovery.replay("t"):
            async with recovery.attempt("t", kind=Kind.CALLBACK) as callback:
                callback.yield_()
            raise Died

    await dies(life())
    async with world.recovery() as recovery, recovery.attempt("t") as attempt:
        assert attempt.count == 2


@scenario
async def test_c2_two_entries_one_death(world: World) -> None:
    """No death is counted twice: an incarnation that died with two attempts counts once."""
    await world.die()

    async def life() -> None:
        async with world.recovery() as recovery, recovery.replay("t"), recovery.attempt("t", kind="callback"):
            assert len((await recovery.inspect("t")).entries) == 2
            raise Died

    await dies(life())
    async with world.recovery() as recovery, recovery.attempt("t") as attempt:
        assert attempt.count == 2


@scenario
async def test_c2_clean_end_then_death(world: World) -> None:
    """Nothing that did not die is counted: not an attempt whose removal is durable."""
    await world.die()

    async def life() -> None:
        async with world.recovery() as recovery:
            async with recovery.attempt("t") as attempt:
                attempt.yield_()
            raise Died

    await dies(life())
    async with world.recovery() as recovery, recovery.attempt("t") as attempt:
        assert attempt.count == 1


@scenario
async def test_c2_live_attempt_is_not_counted(world: World) -> None:
    """Nothing that did not die is counted: not a live attempt, however often others are admitted beside it."""
    await world.die()
    async with world.recovery() as recovery, recovery.replay("t") as first:
        first.yield_()
        for _ in range(3):
            async with recovery.attempt("t", kind="callback") as beside:
                beside.yield_()
                assert beside.count == 1


@scenario
async def test_c2_exception_in_body(world: World) -> None:
    """Nothing that did not die is counted: a body that raises hands its turn over."""
    await world.die()
    async with world.recovery() as recovery:
        for _ in range(3):
            await world.fail(recovery)
        seen = await recovery.inspect("t")
    assert (seen.count, seen.entries, seen.turn) == (1, (), Turn.RUNNING)


@scenario
async def test_c2_exception_in_original(world: World) -> None:
    """Nothing that did not die is counted: an original turn that ends without a result opens the record with 0."""
    async with world.recovery() as recovery:
        await world.fail(recovery)
        async with recovery.attempt("t") as attempt:
            assert (attempt.count, attempt.original) == (0, False)


@scenario
async def test_c2_cancelled_body(world: World) -> None:
    """Nothing that did not die is counted: a cancelled body hands its turn over, durably."""
    await world.die()
    at_work = asyncio.Event()

    async def work(recovery: Recovery) -> None:
        async with recovery.attempt("t"):
            at_work.set()
            await asyncio.sleep(60)

    async with world.recovery() as recovery:
        task = asyncio.create_task(work(recovery))
        await at_work.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        durable = (await world.store.read("t")).durable
        assert (durable.turn, sum(durable.attempts), durable.interrupted) == (Turn.RUNNING, 0, 1)


@scenario
async def test_c2_cancelled_at_any_moment(world: World) -> None:
    """Nothing that did not die is counted: wherever a task is cancelled, and twice, no entry is left."""
    await world.die()

    async def work(recovery: Recovery) -> None:
        async with recovery.attempt("t") as attempt:
            attempt.yield_()
            await asyncio.sleep(0)

    async def pause(point: str) -> None:
        await asyncio.sleep(0)

    async with world.recovery() as recovery:
        if isinstance(world.store, MemoryStore):
            world.store.hook = pause
        for moments in range(60):
            task = asyncio.create_task(work(recovery))
            for _ in range(moments):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            stored = await world.store.read("t")
            assert not any(stored.durable.attempts + stored.buffered.attempts)
    async with world.recovery() as recovery, recovery.attempt("t") as attempt:
        assert attempt.count == 1


@scenario
async def test_c2_process_ending_writes_nothing(world: World) -> None:
    """The dying can't write: an interrupt leaves the entry, and the next incarnation counts it."""
    await world.die()
    await world.die()
    assert sum((await world.store.read("t")).durable.attempts) > 0


@scenario
async def test_c5_progress_keeps_the_count(world: World) -> None:
    """Nothing lowers the count while the incident lives: not progress."""

    async def life(run: int) -> None:
        async with world.recovery() as recovery, recovery.attempt("t") as attempt:
            await attempt.progress(3)
            assert attempt.count == run
            raise Died

    for run in range(LIMIT):
        await dies(life(run))
    async with world.recovery() as recovery:
        assert (await recovery.inspect("t")).produced == 3 * LIMIT
        with pytest.raises(Sealed, match="interrupted_attempts_exceeded, 5 deaths"):
            await recovery.attempt("t").__aenter__()


@scenario
async def test_c5_sweep_keeps_open_records(world: World) -> None:
    """Nothing lowers the count while the incident lives: not a sweep; what is closed and old is dropped."""
    await world.die("open")
    async with world.recovery() as recovery:
        await world.fail(recovery, "open")
        await world.fail(recovery, "closed")
        async with recovery.attempt("closed"):
            pass
        assert await recovery.sweep() == []
        world.clock.advance(recovery.policy.record_ttl_ms + 1)
        assert await recovery.sweep() == ["closed"]
        assert [await world.count("open"), await world.status("closed")] == [1, Status.ABSENT]
        assert (await world.store.read("closed")).durable.status is Status.ABSENT
        with pytest.raises(Closed):
            await recovery.attempt("closed").__aenter__()
        with pytest.raises(Closed):
            await recovery.attempt("closed", kind="callback").__aenter__()


@scenario
async def test_c6_concurrent_admissions(world: World) -> None:
    """Two admissions in one incarnation lose nothing to each other, nor do twenty."""
    await world.die()
    everybody = asyncio.Barrier(20)

    async def work(recovery: Recovery, kind: Kind) -> None:
        async with recovery.attempt("t", kind=kind) as attempt:
            await everybody.wait()
            entries = (await recovery.inspect("t")).entries
            assert entries == (recovery.incarnation,) * 20
            await everybody.wait()
            attempt.yield_()

    async with world.recovery() as recovery:
        await asyncio.gather(*(work(recovery, kind) for kind in (Kind.REPLAY, Kind.CALLBACK) * 10))
        assert (await recovery.inspect("t")).entries == ()


@scenario
async def test_c7_sealed_stays_sealed(world: World) -> None:
    """A sealed incident does no work and changes no more; a callback queued for it is refused."""
    for _ in range(LIMIT):
        await world.die()
    for _ in range(2):
        async with world.recovery() as recovery:
            for kind in Kind:
                with pytest.raises(Sealed):
                    await recovery.attempt("t", kind=kind).__aenter__()
            with pytest.raises(IncidentRefused):
                await recovery.park("t")
            assert await recovery.unfinished() == []
            sealed = await world.store.read("t")
    assert await world.store.read("t") == sealed
    assert world.told == [("t", Reason.INTERRUPTED, LIMIT)]


@scenario
async def test_c7_others_go_on(world: World) -> None:
    """Sealing an incident does not stop the recovery of others."""
    await world.die("healthy")
    for _ in range(LIMIT):
        await world.die("deadly")
    async with world.recovery() as recovery:
        assert await recovery.unfinished() == ["deadly", "healthy"]
        with pytest.raises(Sealed):
            await recovery.replay("deadly").__aenter__()
        async with recovery.replay("healthy") as attempt:
            assert attempt.count == 1
        assert await recovery.unfinished() == []


POLICY_OF_WORK = RecoveryPolicy(max_recovery_work=0)


async def given_up_beside(world: World, recovery: Recovery) -> None:
    """A second attempt meets a verdict (work budget) while the caller's first one is at work."""
    with pytest.raises(GivenUp) as refusal:
        await recovery.attempt("t", kind="callback").__aenter__()
    assert (refusal.value.reason, refusal.value.rule, world.told) == (Reason.WORK, "C7", [])


@pytest.mark.parametrize("fails", [False, True])
def test_c7_last_to_end_seals(world: World, fails: bool) -> None:
    """The seal waits for attempts that are still at work: the one that ends last takes the incident to it."""

    async def last(recovery: Recovery) -> None:
        async with recovery.replay("t") as first:
            await first.progress()
            for _ in range(5):
                await given_up_beside(world, recovery)
            first.yield_()
            if fails:
                raise ZeroDivisionError

    async def run() -> None:
        await world.die()
        async with world.recovery(POLICY_OF_WORK) as recovery:
            with suppress(ZeroDivisionError):
                await last(recovery)
            assert (world.told, await world.status()) == ([("t", Reason.WORK, 1)], Status.SEALED)
            assert len((await world.store.read("t")).durable.attempts) == 3

    asyncio.run(run())


@scenario
async def test_c7_telling_fails_as_the_last_ends(world: World) -> None:
    """An attempt that ends is not to blame if an incident that waited for it can't be sealed: the next one tries."""
    await world.die()

    def tell(turn_id: str, reason: Reason, count: int) -> None:
        raise ConnectionError

    async with Recovery(world.store, POLICY_OF_WORK, world.clock, on_terminal=tell) as recovery:
        async with recovery.replay("t") as first:
            await first.progress()
            await given_up_beside(world, recovery)
            first.yield_()
        with pytest.raises(ConnectionError):
            await recovery.replay("t").__aenter__()
    assert await world.status() is Status.OPEN


@scenario
async def test_c9_last_to_end_may_finish_the_turn(world: World) -> None:
    """Every given-up incident's terminal fact is delivered, or the turn finishes after all."""
    await world.die()
    async with world.recovery(POLICY_OF_WORK) as recovery:
        async with recovery.replay("t") as first:
            await first.progress()
            await given_up_beside(world, recovery)
        with pytest.raises(Closed):
            await recovery.replay("t").__aenter__()
    assert (world.told, await world.status()) == ([], Status.CLOSED)


@scenario
async def test_c9_on_terminal_raises(world: World) -> None:
    """Loss is not allowed: while telling fails, the incident stays given up but unsealed, and is told again."""
    for _ in range(LIMIT):
        await world.die()
    asked = 0

    async def tell(turn_id: str, reason: Reason, count: int) -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked < 3:
            raise ConnectionError

    for _ in range(2):
        async with Recovery(world.store, clock=world.clock, on_terminal=tell) as recovery:
            with pytest.raises(ConnectionError):
                await recovery.attempt("t").__aenter__()
            assert await world.status() is Status.OPEN
            assert await recovery.unfinished() == ["t"]
    async with Recovery(world.store, clock=world.clock, on_terminal=tell) as recovery:
        with pytest.raises(Sealed):
            await recovery.attempt("t").__aenter__()
    assert asked == 3


@scenario
async def test_c9_same_life_tries_again(world: World) -> None:
    """Loss is not allowed: the next attempt of the same incarnation goes on on the way to the seal."""
    for _ in range(LIMIT):
        await world.die()
    failures = [ConnectionError(), None]

    def tell(turn_id: str, reason: Reason, count: int) -> None:
        if (failure := failures.pop(0)) is not None:
            raise failure

    async with Recovery(world.store, clock=world.clock, on_terminal=tell) as recovery:
        with pytest.raises(ConnectionError):
            await recovery.attempt("t").__aenter__()
        with pytest.raises(Sealed):
            await recovery.attempt("t").__aenter__()


@scenario
async def test_c9_told_before_sealed_by_a_listener_only_once_at_a_time(world: World) -> None:
    """On a seal: terminal fact durable, then the seal; attempts that meet it together tell it once."""
    for _ in range(LIMIT):
        await world.die()
    seen = []

    async def tell(turn_id: str, reason: Reason, count: int) -> None:
        await asyncio.sleep(0.01)
        durable = (await world.store.read(turn_id)).durable
        seen.append((durable.reason, durable.status, durable.terminal_delivered))

    async with Recovery(world.store, clock=world.clock, on_terminal=tell) as recovery:
        results = await asyncio.gather(*(recovery.attempt("t").__aenter__() for _ in range(4)), return_exceptions=True)
    assert [type(result) for result in results] == [Sealed] * 4
    assert seen == [(Reason.INTERRUPTED, Status.OPEN, False)]


@scenario
async def test_c8_parked_is_counted_but_not_sealed(world: World) -> None:
    """No budget seals while a person is being waited for; deaths while parked are counted, and take effect after."""
    await world.die()
    async with world.recovery() as recovery:
        await world.fail(recovery)
        await recovery.park("t")
    counts = [await world.die() for _ in range(LIMIT + 2)]
    assert counts == list(range(1, LIMIT + 3))
    async with world.recovery() as recovery:
        assert (await recovery.inspect("t")).parked
        await recovery.unpark("t")
        with pytest.raises(Sealed) as refusal:
            await recovery.attempt("t").__aenter__()
    assert refusal.value.count == LIMIT + 3


@scenario
async def test_c8_parking_needs_an_open_incident(world: World) -> None:
    """Parking is refused where there is no open incident, and twice."""
    await world.die()
    async with world.recovery() as recovery:
        with pytest.raises(IncidentRefused):
            await recovery.park("unknown")
        with pytest.raises(IncidentRefused):
            await recovery.unpark("t")
        async with recovery.attempt("t") as attempt:
            await recovery.park("t")
            with pytest.raises(IncidentRefused, match="parked already"):
                await recovery.park("t")
            attempt.yield_()


@scenario
async def test_c4_unparked_between_admission_and_work(world: World) -> None:
    """No heavy work starts when the count has reached the limit: nor if the person answers after the admission."""
    policy = RecoveryPolicy(max_interrupted_attempts=2)
    await world.die(policy=policy)
    async with world.recovery(policy) as recovery, recovery.attempt("t") as attempt:
        attempt.yield_()
        await recovery.park("t")
    await world.die(policy=policy)
    if isinstance(world.store, MemoryStore):
        store = world.store

        async def unpark(point: str) -> None:
            if point == "sync.before" and recovery.incarnation in store.now("t").buffered.attempts:
                store.hook = None
                await recovery.unpark("t")

        async with world.recovery(policy) as recovery:
            store.hook = unpark
            with pytest.raises(IncidentRefused) as refusal:
                await recovery.attempt("t").__aenter__()
            assert (refusal.value.rule, (await recovery.inspect("t")).entries) == ("C4", ())


@scenario
async def test_b2_predicate_is_not_asked_when_it_can_not_matter(world: World) -> None:
    """The predicate is never asked on first detection nor after a hard bound."""
    asked: list[int] = []

    def ask(turn_id: str, record: Record) -> bool:
        asked.append(record.interrupted)
        return True

    for _ in range(LIMIT):
        await world.die(ask=ask)
    async with world.recovery(ask=ask) as recovery:
        with pytest.raises(Sealed):
            await recovery.attempt("t").__aenter__()
        with pytest.raises(Sealed):
            await recovery.attempt("t").__aenter__()
    assert asked == [2, 3, 4]


@scenario
async def test_b1_predicate_comes_before_attempts(world: World) -> None:
    """Reason precedence: interrupted, work, no progress, predicate, attempts."""
    policy = RecoveryPolicy(max_attempts=1, debounce_ms=0)
    await world.die(policy=policy)
    await world.die(policy=policy)

    async def decline(turn_id: str, record: Record) -> bool:
        assert record.attempt > policy.max_attempts
        return False

    async with world.recovery(policy, ask=decline) as recovery:
        with pytest.raises(Sealed) as refusal:
            await recovery.attempt("t").__aenter__()
    assert refusal.value.reason is Reason.PREDICATE


@scenario
async def test_b2_predicate_raises(world: World) -> None:
    """If the predicate throws, recovery goes on."""
    await world.die()
    await world.die()

    def fail(turn_id: str, record: Record) -> bool:
        raise ConnectionError

    async with world.recovery(ask=fail) as recovery, recovery.attempt("t") as attempt:
        assert attempt.count == 2


@scenario
async def test_b1_transient_failures_are_bounded(world: World) -> None:
    """Transient retries are capped by `max_attempts`."""
    policy = RecoveryPolicy(max_attempts=2)
    async with world.recovery(policy, transient=(ConnectionError,)) as recovery:
        for _ in range(4):
            await world.fail(recovery, error=ConnectionError)
        with pytest.raises(Sealed) as refusal:
            await recovery.attempt("t").__aenter__()
    assert (refusal.value.reason, refusal.value.count, world.runs) == (Reason.ATTEMPTS, 0, 4)


@scenario
async def test_c10_no_record_no_work(world: World) -> None:
    """Heavy work for an incident without a record is impossible."""
    async with world.recovery() as recovery:
        for kind in (Kind.REPLAY, Kind.CALLBACK):
            with pytest.raises(NoIncident):
                await recovery.attempt("t", kind=kind).__aenter__()
        async with recovery.attempt("t"):
            with pytest.raises(NoIncident):
                await recovery.attempt("t", kind="callback").__aenter__()
            with pytest.raises(IncidentRefused, match="alive in this incarnation"):
                await recovery.attempt("t").__aenter__()
        with pytest.raises(Closed):
            await recovery.replay("t").__aenter__()


@scenario
async def test_c13_the_dead_change_nothing(world: World) -> None:
    """A call from a dead incarnation changes nothing."""
    await world.die()
    old = world.recovery()
    await old.__aenter__()

    async def life() -> None:
        async with old.attempt("t") as outlived:
            async with world.recovery() as new, new.attempt("t") as attempt:
                assert attempt.count == 2
                attempt.yield_()
            with pytest.raises(Fenced, match="throw away what it was doing"):
                await outlived.progress()
            with pytest.raises(Fenced):
                await old.park("t")

    with pytest.raises(Fenced):
        await life()
    stored = await world.store.read("t")
    assert (stored.buffered.turn, stored.produced) == (Turn.RUNNING, 0)


@scenario
async def test_c13_no_attempt_outside_the_recovery(world: World) -> None:
    """No attempt is let in before an incarnation begins or after it is left; one under way may still end."""
    recovery = world.recovery()
    with pytest.raises(NotEntered):
        await recovery.attempt("t").__aenter__()
    await recovery.__aenter__()
    async with recovery.attempt("t"):
        await recovery.__aexit__(None, None, None)
        with pytest.raises(NotEntered):
            await recovery.attempt("u").__aenter__()
    assert (await world.store.read("t")).durable.turn is Turn.FINISHED


@scenario
async def test_c2_failed_removal_is_counted(world: World) -> None:
    """A removal that was not durable when its incarnation died is counted: at most one too many, never one too few."""
    await world.die()
    if not isinstance(world.store, MemoryStore):
        return
    store = world.store

    async def full(point: str) -> None:
        if point == "transact.before":
            raise StoreFull("no space")

    async def life() -> None:
        async with recovery.attempt("t"):
            store.hook = full
            raise ZeroDivisionError

    async with world.recovery() as recovery:
        with pytest.raises(ZeroDivisionError) as failure:
            await life()
        store.hook = None
        assert failure.value.__notes__ == ["the attempt's entry was left and will be counted: no space"]
        assert await recovery.unfinished() == ["t"]
        async with recovery.attempt("t") as attempt:
            assert (attempt.count, len((await recovery.inspect("t")).entries)) == (1, 1)
            attempt.outcome = Outcome.YIELDED
    async with world.recovery() as recovery:
        with pytest.raises(ZeroDivisionError):
            await life()
        store.hook = None
    async with world.recovery() as recovery, recovery.attempt("t") as attempt:
        assert attempt.count == 2


@scenario
async def test_c2_a_failed_end_of_the_original_turn_does_not_strand_it(world: World) -> None:
    """An end that could not be recorded leaves the turn owed in this very life: one death too many, never a turn lost."""
    if not isinstance(world.store, MemoryStore):
        return
    store = world.store

    async def full(point: str) -> None:
        if point == "transact.before":
            raise StoreFull("no space")

    async def first(recovery: Recovery) -> None:
        async with recovery.attempt("t"):
            store.hook = full

    async with world.recovery() as recovery:
        with pytest.raises(StoreFull):
            await first(recovery)
        store.hook = None
        assert await recovery.unfinished() == ["t"]
        async with recovery.replay("t") as attempt:
            assert attempt.count == 1


@scenario
async def test_c2_a_closed_generator_is_no_death(world: World) -> None:
    """A stream whose reader goes away ends its attempt: the incarnation lives, so nothing is counted."""

    async def stream(recovery: Recovery) -> AsyncGenerator[int, None]:
        async with recovery.attempt("t"):
            yield 1

    async with world.recovery() as recovery:
        chunks = stream(recovery)
        assert await anext(chunks) == 1
        await chunks.aclose()
        assert await recovery.unfinished() == ["t"]
        async with recovery.replay("t") as attempt:
            assert attempt.count == 0


@scenario
async def test_misuse_of_settings_is_refused(world: World) -> None:
    """What is no policy, no exception class, no outcome or no text is refused at once, and a non-answer goes on."""
    with pytest.raises(CallerError, match="give a RecoveryPolicy"):
        Recovery(world.store, {})  # type: ignore[arg-type]  # the point of this test
    with pytest.raises(CallerError, match="exception classes"):
        Recovery(world.store, transient=(5,))  # type: ignore[arg-type]  # ditto
    async with world.recovery() as recovery:
        for turn_id in (None, 5, "\ud800"):
            with pytest.raises(CallerError, match="turn_id is"):
                await recovery.attempt(turn_id).__aenter__()  # type: ignore[arg-type]  # ditto
        async with recovery.attempt("t") as attempt:
            with pytest.raises(CallerError, match="member of Outcome"):
                attempt.outcome = "done"  # type: ignore[assignment]  # ditto


@scenario
async def test_misuse_is_refused(world: World) -> None:
    """A call that can't be meant is refused, and says what to give instead."""
    async with world.recovery() as recovery:
        with pytest.raises(CallerError, match="turn, replay, callback"):
            recovery.attempt("t", kind="retry")
        for turn_id in ("", "x" * 1_001):
            with pytest.raises(CallerError, match="give 1 to 1000"):
                await recovery.attempt(turn_id).__aenter__()
        async with recovery.attempt("t") as attempt:
            with pytest.raises(CallerError, match="at least 1"):
                await attempt.progress(0)


@scenario
async def test_operators_see_incidents(world: World) -> None:
    """Operators see each incident with its count, its limit, its entries and its reason."""
    await world.die("b")
    await world.die("a")
    async with world.recovery() as recovery:
        assert await recovery.incidents() == []
        async with recovery.attempt("b") as attempt:
            (seen,) = await recovery.incidents()
            assert (seen.turn_id, seen.count, seen.limit, seen.entries) == ("b", 1, LIMIT, (recovery.incarnation,))
            assert await recovery.unfinished() == ["a"]
            attempt.yield_()
        assert await recovery.unfinished() == ["a", "b"]
        assert (await recovery.inspect("nobody")).status is Status.ABSENT


def test_refusals_name_event_and_state() -> None:
    """A refused event changes nothing and says event, state, rule."""

    async def run() -> None:
        store = MemoryStore()
        steps = impl.Steps(store, await impl.boot(store), "t", RecoveryPolicy(), VirtualClock())
        before = await steps.state()
        with pytest.raises(Refused) as refusal:
            await steps.start_work(0)
        assert (refusal.value.event, refusal.value.rule, refusal.value.state) == ("start_work", "C11", before)
        assert await steps.state() == before

    asyncio.run(run())


async def steps_of_an_owed_turn(store: MemoryStore) -> impl.Steps:
    """The steps of a turn whose original is dead."""
    await impl.Steps(store, await impl.boot(store), "t", RecoveryPolicy(), VirtualClock()).begin()
    return impl.Steps(store, await impl.boot(store), "t", RecoveryPolicy(), VirtualClock())


def test_c6_memory_and_store_move_together() -> None:
    """A cancelled action is done or not done, in the store and in memory alike."""

    async def run(moments: int) -> bool:
        store = MemoryStore()
        steps = await steps_of_an_owed_turn(store)

        async def pause(point: str) -> None:
            await asyncio.sleep(0)

        store.hook = pause
        task = asyncio.create_task(steps.replay(1, True))
        for _ in range(moments):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        entered = steps.memory.phases[1] is Phase.ADMITTED
        assert entered == any(store.now("t").buffered.attempts)
        return entered

    assert {asyncio.run(run(moments)) for moments in range(8)} == {True, False}


def test_c3_a_slot_that_is_added_is_no_sync() -> None:
    """Only a sync makes an entry durable: admitting more attempts at a time than there were slots does not."""

    async def run() -> None:
        store = MemoryStore()
        steps = await steps_of_an_owed_turn(store)
        slots = [(await steps.enter(Kind.REPLAY, True)).slot for _ in range(4)]
        assert (slots, store.unsynced) == ([0, 1, 2, 3], 4)
        await steps.sync()
        assert store.unsynced == 0
        with pytest.raises(Refused, match="waiting"):
            await steps.sync()

    asyncio.run(run())


def test_public_names_exist() -> None:
    """Every public name is there, once, and in order."""
    assert len(set(impl.__all__)) == len(impl.__all__)
    assert all(hasattr(impl, name) for name in impl.__all__)


def test_no_second_copy_of_a_rule() -> None:
    """Whatever is decided about an incident is decided in the specification: the shell compares none of its fields."""
    rules = {field.name for held in (Record, RecoveryPolicy) for field in attrs.fields(held)}
    naming = {"explained", "select", "__str__", "_lines"}  # these name what was decided, or happened, and list rows
    others = ("request", "keepalive", "journal")  # machines of their own, some of whose fields have the same names
    package = Path(impl.__file__).parent
    offenders = [
        f"{path.name}:{node.lineno} {function.name}"
        for path in sorted(package.glob("*.py"))
        if not path.name.startswith(others)
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name not in naming
        for node in ast.walk(function)
        if isinstance(node, ast.Compare | ast.BinOp)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr in rules - {"attempts"}
    ]
    assert offenders == []
