"""The store that models disks, and with it a crash of the recovery between every two of its await points."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import random
from collections import Counter
from functools import partial

import attrs
import pytest

from deadreckon.impl import Fenced, IncidentRefused, Kind, Memory, Recovery, Steps, StoreClosed, Stored, boot
from deadreckon.impl.testing import CrashAt, Died, MemoryStore, VirtualClock, live
from deadreckon.spec import incident as spec
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.incident_state import Outcome, Reason, Record, RecoveryPolicy, State, Status, Turn

LIMIT = 3
POLICY = RecoveryPolicy(max_interrupted_attempts=LIMIT)


def numbered(stored: Stored) -> Stored:
    """A change that can be told apart from every other."""
    return attrs.evolve(stored, buffered=attrs.evolve(stored.buffered, interrupted=stored.buffered.interrupted + 1))


def put(stored: Stored, turn: Turn, status: Status) -> Stored:
    return attrs.evolve(stored, buffered=attrs.evolve(stored.buffered, turn=turn, status=status))


async def write(store: MemoryStore, incarnation: int, times: int = 1) -> None:
    for _ in range(times):
        await store.transact(incarnation, "t", numbered)


@pytest.mark.parametrize("keep", range(5))
def test_storage_a_crash_keeps_any_prefix(keep: int) -> None:
    """A crash keeps any prefix of the unsynced writes."""

    async def run() -> None:
        store = MemoryStore()
        incarnation = await store.claim()
        await write(store, incarnation)
        await store.sync(incarnation)
        await write(store, incarnation, 3)
        assert (store.now("t").durable.interrupted, store.now("t").buffered.interrupted) == (1, 4)
        assert store.unsynced == 3
        store.crash(keep)
        assert store.now("t").durable.interrupted == store.now("t").buffered.interrupted == min(1 + keep, 4)

    asyncio.run(run())


def test_storage_writes_reach_the_disk_in_order() -> None:
    """A crash keeps a prefix of the unsynced writes of all turns together, never a later one without an earlier."""

    async def run() -> None:
        store = MemoryStore()
        incarnation = await store.claim()
        await store.transact(incarnation, "a", numbered)
        await store.transact(incarnation, "b", numbered)
        store.crash(1)
        assert [turn_id for turn_id, _ in await store.select()] == ["a"]

    asyncio.run(run())


def test_storage_a_change_may_ask_for_the_disk() -> None:
    """What a change returns as durable is durable when the call returns, and so is every earlier write."""

    async def run() -> None:
        store = MemoryStore()
        incarnation = await store.claim()
        await write(store, incarnation)
        await store.transact(
            incarnation, "u", lambda stored: attrs.evolve(numbered(stored), durable=numbered(stored).buffered)
        )
        assert (store.unsynced, store.now("t").durable.interrupted) == (0, 1)

    asyncio.run(run())


def test_storage_a_change_that_raises_changes_nothing() -> None:
    """A refused event changes nothing."""

    async def run() -> None:
        store = MemoryStore()

        def refuse(stored: Stored) -> Stored:
            raise Refused("C7", "no")

        with pytest.raises(Refused):
            await store.transact(await store.claim(), "t", refuse)
        assert (store.unsynced, await store.select()) == (0, [])

    asyncio.run(run())


def test_c13_later_calls_of_the_dead_are_fenced() -> None:
    """A call from a dead incarnation changes nothing: neither after a crash nor after another claim."""

    async def run() -> None:
        store = MemoryStore()
        first = await store.claim()
        store.crash()
        with pytest.raises(Fenced):
            await write(store, first)
        second = await store.claim()
        await write(store, second)
        third = await store.claim()
        for dead in (first, second):
            with pytest.raises(Fenced) as fenced:
                await write(store, dead)
            assert (fenced.value.caller, fenced.value.living) == (dead, third)
            with pytest.raises(Fenced):
                await store.sync(dead)
        assert store.now("t").buffered.interrupted == 0
        assert len({first, second, third}) == 3

    asyncio.run(run())


def test_storage_rows_are_listed_by_turn_and_status() -> None:
    """Rows are listed by turn and status, in order of their ids."""

    async def run() -> None:
        store = MemoryStore()
        incarnation = await store.claim()
        await store.transact(incarnation, "b", partial(put, turn=Turn.RUNNING, status=Status.ABSENT))
        await store.transact(incarnation, "a", partial(put, turn=Turn.RUNNING, status=Status.OPEN))
        assert [turn_id for turn_id, _ in await store.select(turn=Turn.RUNNING)] == ["a", "b"]
        assert [turn_id for turn_id, _ in await store.select(status=Status.OPEN)] == ["a"]
        assert await store.select(turn=Turn.FINISHED) == []

    asyncio.run(run())


def test_storage_closed() -> None:
    """A closed store refuses every call but another close."""

    async def run() -> None:
        store = MemoryStore()
        await store.close()
        await store.close()
        with pytest.raises(StoreClosed):
            await store.claim()

    asyncio.run(run())


def test_time_does_not_go_back() -> None:
    """A virtual clock moves when it is told to, and only forward."""
    clock = VirtualClock(5)
    clock.advance(2)
    assert clock.now_ms() == 7
    with pytest.raises(CallerError):
        clock.advance(-1)


# A crash between every two await points.


class Witness:
    """Sees what really happens to one turn, from outside: deaths, runs, and what was told."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = VirtualClock()
        self.deaths = 0
        self.original_died = False
        self.working: Counter[int] = Counter()
        self.deaths_at_work = 0
        self.parked = False
        self.told: list[tuple[Reason, int]] = []

    def life(self, at: int, keep: int) -> int:
        """One life of the service, which dies at await point *at*; how many points it met."""
        hook = CrashAt(self.store, at, keep)
        self.store.hook = hook
        before = self.store.incarnation
        lived = live(self.service(hook))
        self.store.hook = None
        if not lived:
            self.see_death(before)
        return hook.passed

    def see_death(self, before: int) -> None:
        """The ghost of the specification, from what the disk and the bodies say."""
        durable = self.store.now("t").durable
        incarnation = self.store.incarnation
        self.deaths_at_work += bool(self.working[incarnation])
        over = durable.status in (Status.CLOSED, Status.SEALED)
        original = durable.turn is Turn.RUNNING and durable.status is Status.ABSENT and not self.original_died
        self.original_died |= original
        entry = incarnation > before and incarnation in durable.attempts
        self.deaths += (entry or original) and not over

    async def service(self, hook: CrashAt) -> None:
        """What a service does with a turn: try it, hand it over, wait for a person, try it twice at a time, end it."""
        async with Recovery(self.store, POLICY, self.clock, on_terminal=self.tell) as recovery:
            await self.attempt(recovery, hook, Kind.TURN, Outcome.YIELDED)
            await self.park(recovery)
            await asyncio.gather(
                self.attempt(recovery, hook, Kind.CALLBACK, Outcome.YIELDED),
                self.attempt(recovery, hook, Kind.REPLAY, Outcome.YIELDED),
            )
            await self.attempt(recovery, hook, Kind.TURN, Outcome.DONE)

    async def attempt(self, recovery: Recovery, hook: CrashAt, kind: Kind, outcome: Outcome) -> None:
        try:
            async with recovery.attempt("t", kind=kind) as attempt:
                self.check_start(attempt.original, recovery.incarnation)
                self.working[recovery.incarnation] += 1
                await attempt.progress()
                await hook("body")
                attempt.outcome = outcome
                self.working[recovery.incarnation] -= 1
        except IncidentRefused:
            pass

    async def park(self, recovery: Recovery) -> None:
        """A person is waited for, and answers; only where the incident lets us."""
        try:
            await recovery.park("t")
            await recovery.unpark("t")
        except IncidentRefused:
            pass

    def check_start(self, original: bool, incarnation: int) -> None:
        """C1, C3, C4: what must hold whenever a body starts."""
        durable = self.store.now("t").durable
        assert original or incarnation in durable.attempts
        assert durable.interrupted == self.deaths
        assert durable.parked or durable.interrupted < LIMIT

    async def tell(self, turn_id: str, reason: Reason, count: int) -> None:
        assert self.store.now("t").durable.reason is reason
        assert not any(self.working.values()) or self.deaths_at_work
        self.told.append((reason, count))

    def check_end(self) -> Record:
        """What must hold when a life has lived to its end."""
        durable = self.store.now("t").durable
        assert durable.status in (Status.CLOSED, Status.SEALED) or durable.turn is Turn.FINISHED
        assert durable.interrupted == self.deaths
        assert self.deaths_at_work <= LIMIT
        assert not any(durable.attempts)
        if durable.status is Status.SEALED:
            assert self.deaths == LIMIT
            assert (Reason.INTERRUPTED, LIMIT) in self.told
        return durable


NEVER = 10**9
POINTS = Witness().life(NEVER, 0)


def test_the_service_lives_when_nothing_kills_it() -> None:
    """Without a death the turn is finished, and nothing is counted."""
    witness = Witness()
    assert witness.life(NEVER, 0) > 40
    assert (witness.check_end().status, witness.deaths, witness.told) == (Status.CLOSED, 0, [])


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_c1_one_crash_anywhere(keep: int) -> None:
    """Wherever an incarnation dies, its death is counted exactly once if it held anything, and the turn ends."""
    for at in range(1, POINTS + 1):
        witness = Witness()
        witness.life(at, keep)
        witness.life(NEVER, 0)
        witness.check_end()
        assert witness.deaths <= 1


@pytest.mark.parametrize("keep", [0, 1])
def test_c1_two_crashes_anywhere(keep: int) -> None:
    """Wherever two incarnations die one after the other, each that held anything is counted exactly once."""
    for first, second in itertools.product(range(1, POINTS + 1, 2), range(1, POINTS + 1, 2)):
        witness = Witness()
        witness.life(first, 0)
        witness.life(second, keep)
        witness.life(NEVER, 0)
        assert witness.check_end().status in (Status.CLOSED, Status.SEALED)
        assert witness.deaths <= 2


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_c4_every_life_dies_at_the_same_point(keep: int) -> None:
    """A turn that dies every time runs at most `limit` times, wherever in its life it dies; then it ends."""
    sealed = 0
    for at in range(1, POINTS + 1):
        witness = Witness()
        for _ in range(LIMIT + 3):
            witness.life(at, keep)
        witness.life(NEVER, 0)
        sealed += witness.check_end().status is Status.SEALED
    assert sealed > 10


def test_c9_a_crash_anywhere_on_the_way_to_the_seal() -> None:
    """On a seal: terminal fact durable, then the seal, then nothing; wherever it is cut, it is told."""
    for at, keep in itertools.product(range(1, 60), (0, 1)):
        witness = Witness()
        body = next(point for point in range(1, POINTS) if dies_at_work(point))
        for _ in range(LIMIT):
            witness.life(body, 0)
        witness.life(at, keep)
        witness.life(NEVER, 0)
        assert witness.check_end().status is Status.SEALED
        assert witness.deaths_at_work <= LIMIT
        assert 1 <= len(witness.told) <= 2


def dies_at_work(at: int) -> bool:
    """Whether a life that dies at *at* dies with its body running."""
    witness = Witness()
    witness.life(at, 0)
    return witness.deaths_at_work == 1


def test_testing_a_dead_life_stays_dead() -> None:
    """Once dead an incarnation stays dead: every further await point of the same life raises too."""

    async def run() -> None:
        store = MemoryStore()
        store.hook = CrashAt(store, 3)
        incarnation = await store.claim()
        for _ in range(2):
            with pytest.raises(Died):
                await write(store, incarnation)

    assert live(run())


# In lockstep with the specification.

TIGHT = RecoveryPolicy(
    max_interrupted_attempts=LIMIT, max_attempts=3, no_progress_timeout_ms=40, max_recovery_work=4, record_ttl_ms=30
)
Action = tuple[str, tuple[object, ...]]


def some_action(chance: random.Random) -> Action:
    """An action and its inputs; more often one that leads on than one that ends a life."""
    slot, outcome = chance.randrange(3), chance.choice([*Outcome, Outcome.YIELDED])
    keep_going = chance.random() < 0.9
    actions: list[Action] = [
        ("begin", ()),
        ("end_original", (outcome,)),
        ("report_original", ()),
        ("replay", (slot, keep_going)),
        ("deliver", (slot, chance.random() < 0.5, keep_going)),
        ("sync", ()),
        ("start_work", (slot,)),
        ("progress", (1,)),
        ("finish", (slot, outcome)),
        ("report", (slot,)),
        ("deliver_terminal", (slot,)),
        ("seal", (slot,)),
        ("stand_down", (slot,)),
        ("park", ()),
        ("unpark", ()),
        ("sweep", ()),
    ]
    return chance.choice([*actions * 2, ("crash", ()), ("tick", (chance.choice([1, 20, 50]),))])


def expected(state: State, name: str, inputs: tuple[object, ...]) -> State | str:
    """What the specification says: the state after the action, or the rule that refuses it."""
    function = getattr(spec, name)
    policy = (TIGHT,) if "policy" in inspect.signature(function).parameters else ()
    try:
        after = function(*policy, state, *inputs)
    except Refused as refusal:
        return refusal.rule
    assert isinstance(after, State)
    return after


async def walk(chance: random.Random, length: int) -> Counter[str]:
    """A random walk of both; the actions that were taken."""
    store, clock = MemoryStore(), VirtualClock()
    state, taken = spec.boot(spec.initial()), Counter[str]()
    steps = Steps(store, await boot(store), "t", TIGHT, clock)
    for _ in range(length):
        name, inputs = some_action(chance)
        wanted = expected(state, name, inputs)
        if name == "tick":
            clock.advance(wanted.now_ms - state.now_ms if isinstance(wanted, State) else 0)
        elif name == "crash":
            store.crash()
            queued = Memory(callback=steps.memory.callback)
            steps = Steps(store, await boot(store), "t", TIGHT, clock)
            steps.memory = queued
            wanted = spec.boot(spec.crash(state))
        else:
            try:
                got: State | str = await getattr(steps, name)(*inputs)
            except Refused as refusal:
                got = refusal.rule
            assert got == wanted, name
        if isinstance(wanted, State):
            state = wanted
            taken[name] += 1
        assert await steps.state() == state
    return taken


def test_lockstep_with_the_specification() -> None:
    """The implementation does what the specification says, step by step, refusals included, through crashes."""
    taken: Counter[str] = Counter()
    for seed in range(150):
        taken += asyncio.run(walk(random.Random(seed), 250))
    assert len(taken) == 18
    assert min(taken.values()) > 5, taken
