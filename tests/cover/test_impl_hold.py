"""The door of ``deadreckon.impl``, against the sentences of the protocol, on both journals, in virtual time."""

from __future__ import annotations

import ast
import asyncio
import functools
import gc
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import attrs
import pytest

import deadreckon.impl as impl
from deadreckon.impl import (
    Ballot,
    DecisionForged,
    DecisionLate,
    DecisionMalformed,
    DecisionSecond,
    DecisionUnsigned,
    Door,
    DoorClosed,
    Fenced,
    Grant,
    HoldAbandoned,
    HoldEnd,
    HoldExpired,
    HoldLapsed,
    HoldRefused,
    HoldSettled,
    InDoubt,
    Journal,
    JournalUnavailable,
    Key,
    KeyConflict,
    KeyRefused,
    NoSuchHold,
    SqliteJournal,
    add_key,
    approve,
    decide,
    open_holds,
    reject,
    revoke_key,
)
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.testing import Died
from deadreckon.impl.virtual import VirtualTimer, run_virtual
from deadreckon.spec.errors import CallerError, PolicyError
from deadreckon.spec.hold_state import Fact, Hold, HoldPolicy, Release, Told

POLICY = HoldPolicy(hold_ms=20_000, slice_ms=5_000, release_grace_ms=3_000)
LEASE_MS = 4_000
EVERY_MS = 1_000


def good(ballot: Ballot, signature: str, key: Key) -> bool:
    """Stands for a signature scheme."""
    return signature == f"{key.public_key} signs {ballot.hold_id} {ballot.verdicts}"


class World:
    """A journal, its clock, and what happened outside: effects."""

    def __init__(self, journal: Journal, timer: VirtualTimer) -> None:
        self.journal = journal
        self.timer = timer
        self.effects: list[tuple[str, int]] = []

    def door(self, policy: HoldPolicy = POLICY, **options: Any) -> Door:  # Any: the options of a door
        named = {"debounce_ms": None, "caller_lease_ms": LEASE_MS, "reconcile_every_ms": EVERY_MS, **options}
        return Door(self.journal, policy, **named)

    async def effect(self, release_id: str) -> str:
        self.effects.append((release_id, self.timer.now_ms()))
        return f"done {release_id}"

    async def asked(self, door: Door, *requests: str, **options: Any) -> tuple[asyncio.Task[Grant], str]:
        """A caller that waits, and its hold."""
        before = {held.hold_id for held in await open_holds(self.journal)}
        task = asyncio.create_task(door.ask(requests or ("a", "b"), **options))
        while not (new := [held for held in await open_holds(self.journal) if held.hold_id not in before]):
            await self.timer.pause(1)
        return task, new[0].hold_id

    async def granted(self, door: Door, *requests: str) -> Grant:
        """A grant of everything."""
        task, hold_id = await self.asked(door, *requests)
        await approve(self.journal, hold_id, by="ada")
        return await task

    async def fact(self, hold_id: str) -> Fact:
        held = (await self.journal.read(hold_id)).held
        assert held is not None
        return held.hold.fact

    async def releases(self, hold_id: str) -> tuple[Release, ...]:
        held = (await self.journal.read(hold_id)).held
        assert held is not None
        return held.hold.releases

    async def types(self, hold_id: str) -> list[str]:
        return [fact.type for fact in await self.journal.facts(hold_id=hold_id)]


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    timer = VirtualTimer()
    journal: Journal = (
        MemoryJournal(timer, good) if request.param == "memory" else SqliteJournal(tmp_path / "j.db", timer, good)
    )
    yield World(journal, timer)
    asyncio.run(journal.close())


@pytest.fixture
def frail() -> World:
    """A journal that can be away, lose acknowledgements, and kill."""
    timer = VirtualTimer()
    return World(MemoryJournal(timer, good), timer)


def memory(world: World) -> MemoryJournal:
    assert isinstance(world.journal, MemoryJournal)
    return world.journal


Test = Callable[..., Coroutine[object, object, None]]


def scenario(test: Test) -> Callable[..., None]:
    """Run an async test in virtual time; at its end no task is left."""

    @functools.wraps(test)
    def run(**worlds: World) -> None:
        (world,) = worlds.values()

        async def alone() -> None:
            await test(world)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        run_virtual(alone(), world.timer)

    return run


# Decisions.


@scenario
async def test_h5_success_is_durable_when_it_is_told(world: World) -> None:
    """A caller is told success only if `settled(ok)` is durable, and `release_started` is before the effect (H4)."""

    async def effect(release_id: str) -> str:
        assert await world.releases(grant.hold_id) == (Release.STARTED, Release.NONE)
        return await world.effect(release_id)

    async with world.door() as door:
        task, hold_id = await world.asked(door, "a", "b")
        await approve(world.journal, hold_id, by="ada", reason="fine")
        grant = await task
        assert (grant.approved, grant.by, grant.reason) == ((True, True), "ada", "fine")
        assert await door.release(grant, 0, effect) == f"done {hold_id}/0"
        assert await world.releases(hold_id) == (Release.OK, Release.NONE)
        await door.release(grant, 1, world.effect)
    types = await world.types(hold_id)
    assert types[:4] == ["hold.requested", "hold.decided", "release.started", "release.settled"]


@scenario
async def test_h6_mixed_batch(world: World) -> None:
    """Refused and approved are different facts, one for each index of a batch."""
    async with world.door() as door:
        task, hold_id = await world.asked(door, "a", "b", "c")
        await approve(world.journal, hold_id, by="ada", indexes=[0, 2], reason="not b")
        grant = await task
        assert grant.approved == (True, False, True)
        assert grant.outcomes == (Told.NOTHING, Told.REFUSED, Told.NOTHING)
        with pytest.raises(HoldRefused, match="refused by ada: not b") as refusal:
            await door.release(grant, 1, world.effect)
        assert refusal.value.index == 1
        await door.release(grant, 2, world.effect)
    assert [release_id for release_id, _ in world.effects] == [f"{hold_id}/2"]


@scenario
async def test_h6_refused(world: World) -> None:
    """A caller is told refused only if that fact is durable; it says by whom and why."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        await reject(world.journal, hold_id, by="ada", reason="never")
        with pytest.raises(HoldRefused) as refusal:
            await task
    assert (refusal.value.hold_id, refusal.value.by, refusal.value.reason) == (hold_id, "ada", "never")
    assert "caller.told" in await world.types(hold_id)


@scenario
async def test_h2_expiry_at_the_deadline(world: World) -> None:
    """No hold outlives its deadline: it expires in that millisecond, durably, before its caller is told."""
    began = world.timer.now_ms()
    async with world.door() as door:
        with pytest.raises(HoldExpired) as end:
            await door.ask(["a"])
        assert world.timer.now_ms() == began + POLICY.hold_ms
        assert await world.fact(end.value.hold_id) is Fact.EXPIRED


@scenario
async def test_h2_late_decision_is_refused_by_type(world: World) -> None:
    """A late decision is refused by type and changes nothing (H6), even if no door has written the expiry."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
    with pytest.raises(DoorClosed):
        await task
    await world.timer.pause(POLICY.hold_ms + 1)
    with pytest.raises(DecisionLate) as refusal:
        await approve(world.journal, hold_id, by="ada")
    assert refusal.value.rule == "H2"
    assert await world.fact(hold_id) is Fact.OPEN
    async with world.door():
        assert await world.fact(hold_id) is Fact.EXPIRED
        with pytest.raises(DecisionSecond):
            await approve(world.journal, hold_id, by="ada")


@scenario
async def test_h6_second_decision_is_refused_by_type(world: World) -> None:
    """At most one accepted decision per hold: a second one is refused by type and changes nothing."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        await approve(world.journal, hold_id, by="ada", key="k")
        await approve(world.journal, hold_id, by="ada", key="k")  # the same one, sent again
        with pytest.raises(DecisionSecond):
            await reject(world.journal, hold_id, by="bob")
        assert (await task).by == "ada"
    assert (await world.types(hold_id)).count("hold.decided") == 1


@scenario
async def test_h11_invalid_decisions_change_nothing(world: World) -> None:
    """An invalid decision (wrong count, unsigned while a key is active, bad signature) blocks no valid one."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        journal = world.journal
        await add_key(journal, "k", "ada's", by="root")
        signature = f"ada's signs {hold_id} {(True, True)}"
        with pytest.raises(DecisionMalformed):
            await decide(journal, hold_id, [True], "ada", key="x")
        with pytest.raises(DecisionUnsigned):
            await decide(journal, hold_id, [True, True], "ada", key="x")
        with pytest.raises(DecisionForged):
            await decide(journal, hold_id, [True, False], "ada", "", signature, "k", key="x")
        with pytest.raises(DecisionForged):
            await decide(journal, hold_id, [True, True], "ada", "", signature, "other", key="x")
        assert await world.fact(hold_id) is Fact.OPEN
        await decide(journal, hold_id, [True, True], "ada", "", signature, "k", key="x")
        assert (await task).approved == (True, True)
        assert (await world.types(hold_id)).count("hold.decided") == 1


@scenario
async def test_h11_keys_as_of_the_append(world: World) -> None:
    """Refusing everything needs no signature; after the last key is revoked, approving needs none either."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        await add_key(world.journal, "k", "ada's", by="root")
        await reject(world.journal, hold_id, by="bob")
        with pytest.raises(HoldRefused):
            await task
        with pytest.raises(KeyRefused):
            await revoke_key(world.journal, "k", by="mallory")
        signature = f"ada's signs  {(False,)}"  # the hold's id is empty
        await revoke_key(world.journal, "k", by="root", signature=signature, signed_by="k")
        grant = await world.granted(door)
        assert grant.by == "ada"


def test_h11_signed_for_real(tmp_path: Path) -> None:
    """A signature by an active key is good for one hold and one set of verdicts, and for no other hold (H7)."""
    signing = pytest.importorskip("deadreckon.impl.signing")
    pytest.importorskip("cryptography")
    timer = VirtualTimer()
    world = World(SqliteJournal(tmp_path / "j.db", timer, signing.verified), timer)
    secret = signing.new_private_key()
    public = signing.public_key_b64(secret)
    name = signing.key_id(public)

    async def run() -> None:
        await add_key(world.journal, name, public, by="root")
        async with world.door() as door:
            task, hold_id = await world.asked(door, "a", "b")
            twin, twin_id = await world.asked(door, "a", "b")
            ballot = Ballot(hold_id, ("a", "b"), (True, False))
            signature = signing.sign(secret, signing.ballot_message(ballot))
            for verdicts, other in (([True, True], hold_id), ([True, False], twin_id)):
                with pytest.raises(DecisionForged):
                    await decide(world.journal, other, verdicts, "ada", "", signature, name)
            await decide(world.journal, hold_id, [True, False], "ada", "", signature, name)
            assert (await task).approved == (True, False)
            await reject(world.journal, twin_id, by="ada")
            with pytest.raises(HoldRefused):
                await twin
        await world.journal.close()

    run_virtual(run(), timer)


@scenario
async def test_h7_a_decision_belongs_to_one_hold(world: World) -> None:
    """A decision can't wake or decide a later hold of the same caller."""
    async with world.door() as door:
        first, first_id = await world.asked(door, "a", caller="run")
        second, second_id = await world.asked(door, "a", caller="run")
        await approve(world.journal, first_id, by="ada")
        await first
        await world.timer.pause(1_000)
        assert not second.done()
        await reject(world.journal, second_id, by="ada")
        with pytest.raises(HoldRefused):
            await second


@scenario
async def test_requests_that_cannot_be_held(world: World) -> None:
    """Parking without requests or deadline, or for longer than the caller can wait, is refused."""
    async with world.door() as door:
        for refused in (door.ask([]), door.ask("abc"), door.ask(["a"], horizon_ms=POLICY.hold_ms - 1)):
            with pytest.raises(CallerError):
                await refused
        with pytest.raises(PolicyError):
            await door.ask(["a"], 0)
        with pytest.raises(NoSuchHold):
            await door.attach("x")
        with pytest.raises(NoSuchHold):
            await approve(world.journal, "x", by="ada")
        assert await open_holds(world.journal) == []
    with pytest.raises(DoorClosed):
        await door.ask(["a"])


# Releases.


@scenario
async def test_h14_failure_of_one_index(world: World) -> None:
    """The failure of one index is settled as an error, raised, and changes no sibling's outcome."""

    async def fail(release_id: str) -> None:
        raise ConnectionError(release_id)

    async with world.door() as door:
        grant = await world.granted(door)
        with pytest.raises(ConnectionError):
            await door.release(grant, 0, fail)
        assert await door.release(grant, 1, world.effect)
        assert await world.releases(grant.hold_id) == (Release.ERROR, Release.OK)
        with pytest.raises(HoldSettled) as settled:
            await door.release(grant, 0, world.effect)
    assert settled.value.outcome is Told.ERROR
    assert len(world.effects) == 1


@scenario
async def test_h3_two_releases_of_one_index_are_one(world: World) -> None:
    """The effect of (hold, index) happens at most once: a second call joins the first, a later one is refused."""

    async def slow(release_id: str) -> str:
        await world.timer.pause(100)
        return await world.effect(release_id)

    async with world.door() as door:
        grant = await world.granted(door)
        results = await asyncio.gather(*(door.release(grant, 0, slow) for _ in range(3)))
        assert len(set(results)) == len(world.effects) == 1
        with pytest.raises(HoldSettled):
            await door.release(grant, 0, slow)
    assert len(world.effects) == 1


@scenario
async def test_h2_no_release_after_the_grace(world: World) -> None:
    """No release starts later than `release_grace_ms` after the deadline: it is settled `lapsed`."""
    async with world.door() as door:
        grant = await world.granted(door)
        await world.timer.pause(grant.deadline_at_ms + POLICY.release_grace_ms - world.timer.now_ms())
        await door.release(grant, 0, world.effect)
        await world.timer.pause(1)
        with pytest.raises(HoldLapsed):
            await door.release(grant, 1, world.effect)
        assert await world.releases(grant.hold_id) == (Release.OK, Release.LAPSED)
    assert len(world.effects) == 1


@scenario
async def test_h15_what_is_not_released_lapses(world: World) -> None:
    """Every requested hold gets a terminal fact for every index: by deadline and grace plus one sweep."""
    async with world.door() as door:
        grant = await world.granted(door)
        await world.timer.pause(POLICY.hold_ms + POLICY.release_grace_ms + EVERY_MS)
        assert await world.releases(grant.hold_id) == (Release.LAPSED, Release.LAPSED)
        assert await world.journal.unfinished() == []


@scenario
async def test_h12_goodbye(world: World) -> None:
    """What the body of `door.hold` did not release by its end lapses at once: nobody is there for it any more."""
    async with world.door() as door:

        async def body() -> str:
            async with door.hold(["a", "b"], caller="run") as grant:
                await door.release(grant, 0, world.effect)
                return grant.hold_id

        task = asyncio.create_task(body())
        await world.timer.pause(10)
        (held,) = await open_holds(world.journal)
        await approve(world.journal, held.hold_id, by="ada")
        assert await task == held.hold_id
        assert await world.releases(held.hold_id) == (Release.OK, Release.LAPSED)
        assert "caller.gone" in await world.types(held.hold_id)


@scenario
async def test_shutdown_waits_for_the_effect(world: World) -> None:
    """Leaving the door ends its waits, and settles the effects under way."""

    async def slow(release_id: str) -> str:
        await world.timer.pause(5_000)
        return await world.effect(release_id)

    async with world.door() as door:
        grant = await world.granted(door)
        waiting, _ = await world.asked(door)
        release = asyncio.create_task(door.release(grant, 0, slow))
        await world.timer.pause(10)
    with pytest.raises(DoorClosed):
        await waiting
    assert await release == f"done {grant.hold_id}/0"
    assert await world.releases(grant.hold_id) == (Release.OK, Release.NONE)


# Callers that go and come back.


@scenario
async def test_h12_cancelled_caller_is_abandoned(world: World) -> None:
    """A hold whose caller vanished gets its terminal fact sooner than the deadline: when the lease has lapsed."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await world.timer.pause(LEASE_MS - 100)
        assert await world.fact(hold_id) is Fact.OPEN
        await world.timer.pause(2 * EVERY_MS)
        assert await world.fact(hold_id) is Fact.ABANDONED
        assert (await world.types(hold_id))[-2:] == ["caller.gone", "hold.abandoned"]
        with pytest.raises(HoldAbandoned):
            await door.attach(hold_id)
        with pytest.raises(DecisionSecond):
            await approve(world.journal, hold_id, by="ada")


@scenario
async def test_h12_approved_for_the_dead_lapses(world: World) -> None:
    """No effect is started for a caller known to be gone."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await approve(world.journal, hold_id, by="ada")
        await world.timer.pause(LEASE_MS + 2 * EVERY_MS)
        assert await world.releases(hold_id) == (Release.LAPSED, Release.LAPSED)
        with pytest.raises(HoldLapsed):
            await door.attach(hold_id)


@scenario
async def test_h12_dropped_grant(world: World) -> None:
    """A caller is there as long as somebody keeps its grant; then it has a lease."""
    async with world.door() as door:
        grant = await world.granted(door)
        hold_id = grant.hold_id
        await world.timer.pause(3 * LEASE_MS)
        assert await world.releases(hold_id) == (Release.NONE, Release.NONE)
        del grant
        gc.collect()
        await world.timer.pause(LEASE_MS + 2 * EVERY_MS)
        assert await world.releases(hold_id) == (Release.LAPSED, Release.LAPSED)


@scenario
async def test_h9_a_caller_comes_back(world: World) -> None:
    """A caller holds a lease and can re-attach by hold id: the caller-to-door leg may break freely."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await world.timer.pause(LEASE_MS // 2)
        again = asyncio.create_task(door.attach(hold_id))
        await world.timer.pause(2 * LEASE_MS)
        await approve(world.journal, hold_id, by="ada")
        grant = await again
        await door.release(grant, 0, world.effect)
        late = await door.attach(hold_id)
        assert late.outcomes == (Told.OK, Told.NOTHING)


@scenario
async def test_h5_a_cancelled_caller_does_not_tear_the_effect(world: World) -> None:
    """An effect whose caller was not told is in the journal, and the caller that comes back joins it."""

    async def slow(release_id: str) -> str:
        await world.timer.pause(1_000)
        return await world.effect(release_id)

    async with world.door() as door:
        grant = await world.granted(door)
        release = asyncio.create_task(door.release(grant, 0, slow))
        await world.timer.pause(10)
        release.cancel()
        with pytest.raises(asyncio.CancelledError):
            await release
        again = await door.attach(grant.hold_id)
        assert await door.release(again, 0, world.effect) == f"done {grant.hold_id}/0"
        assert await world.releases(grant.hold_id) == (Release.OK, Release.NONE)
    assert len(world.effects) == 1


async def never(release_id: str) -> str:
    """An effect that nobody ever hears of again."""
    await asyncio.Event().wait()
    return release_id


@scenario
async def test_h15_cancelled_effect_is_settled_at_once(world: World) -> None:
    """Every requested hold gets a terminal fact for every index: an effect that is cancelled, in the living door."""

    async def cut_off(release_id: str) -> str:
        raise asyncio.CancelledError

    async with world.door() as door:
        grant = await world.granted(door)
        with pytest.raises(InDoubt):
            await door.release(grant, 0, cut_off)
        assert await world.releases(grant.hold_id) == (Release.UNKNOWN, Release.NONE)
        with pytest.raises(InDoubt):
            await door.release(grant, 0, world.effect)
        assert await door.release(grant, 1, world.effect) == f"done {grant.hold_id}/1"
        assert await world.journal.unfinished() == []


@scenario
async def test_h15_cancelled_effect_of_a_door_that_is_cancelled(world: World) -> None:
    """A door whose leaving is cancelled settles what it gives up: every index gets its terminal fact without a boot."""
    door = await world.door().__aenter__()
    grant = await world.granted(door, "a")
    release = asyncio.create_task(door.release(grant, 0, never))
    await world.timer.pause(10)
    leaving = asyncio.create_task(door.__aexit__(None, None, None))
    await world.timer.pause(10)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    with pytest.raises(InDoubt):
        await release
    assert await world.releases(grant.hold_id) == (Release.UNKNOWN,)


@scenario
async def test_h15_cancelled_effect_while_the_journal_is_away(frail: World) -> None:
    """What can't be settled when its effect is cancelled gets its terminal fact when the journal comes back."""

    async def cut_off(release_id: str) -> str:
        memory(frail).down()
        raise asyncio.CancelledError

    async with frail.door() as door:
        grant = await frail.granted(door, "a")
        with pytest.raises(InDoubt):
            await door.release(grant, 0, cut_off)
        memory(frail).up()
        await frail.timer.pause(2 * EVERY_MS)
        assert await frail.releases(grant.hold_id) == (Release.UNKNOWN,)


@scenario
async def test_h3_cancelled_idempotent_effect_runs_again(world: World) -> None:
    """The only exception is a release declared idempotent, re-run under the same release id, by the same door too."""

    async def cut_off(release_id: str) -> str:
        await world.effect(release_id)
        raise asyncio.CancelledError

    async with world.door(attrs.evolve(POLICY, idempotent=True)) as door:
        grant = await world.granted(door, "a")
        with pytest.raises(InDoubt):
            await door.release(grant, 0, cut_off)
        assert await world.releases(grant.hold_id) == (Release.STARTED,)
        await door.release(grant, 0, world.effect)
        assert await world.releases(grant.hold_id) == (Release.OK,)
    assert [release_id for release_id, _ in world.effects] == [f"{grant.hold_id}/0"] * 2


@scenario
async def test_h13_next_door_keeps_the_deadline(world: World) -> None:
    """The advertised deadline is unchanged by restart; open holds are adopted, and their callers may re-attach."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
        (before,) = await open_holds(world.journal)
    with pytest.raises(DoorClosed):
        await task
    await world.timer.pause(1_000)
    async with world.door() as door:
        again = asyncio.create_task(door.attach(hold_id))
        await world.timer.pause(1_000)
        (after,) = await open_holds(world.journal)
        assert after.hold.deadline_at_ms == before.hold.deadline_at_ms
        with pytest.raises(HoldExpired):
            await again
        assert world.timer.now_ms() == before.hold.deadline_at_ms


@scenario
async def test_h15_next_door_releases_what_was_decided_meanwhile(world: World) -> None:
    """A decision made while no door lived is taken up by the next one, for the caller that comes back."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
    with suppress(DoorClosed):
        await task
    await approve(world.journal, hold_id, by="ada")
    async with world.door() as door:
        grant = await door.attach(hold_id)
        await door.release(grant, 0, world.effect)
    assert await world.releases(hold_id) == (Release.OK, Release.NONE)


@scenario
async def test_h2_overdue_expires_at_boot(world: World) -> None:
    """A door that comes back after the deadline expires an undecided hold before anything else."""
    async with world.door() as door:
        task, hold_id = await world.asked(door)
    with suppress(DoorClosed):
        await task
    await world.timer.pause(3_600_000)
    async with world.door() as door:
        assert await world.fact(hold_id) is Fact.EXPIRED
        with pytest.raises(HoldExpired):
            await door.attach(hold_id)


@scenario
async def test_earlier_door_is_fenced(world: World) -> None:
    """A newer door fences the earlier one: it appends nothing, and its callers are told, and where to go on."""
    async with world.door() as old:
        task, hold_id = await world.asked(old)
        async with world.door() as new:
            await world.timer.pause(2 * EVERY_MS)
            with pytest.raises(Fenced, match=f"door {new.door} was opened .* after door {old.door}, .* attach at the"):
                await task
            with pytest.raises(Fenced):
                await old.ask(["a"])
            again = asyncio.create_task(new.attach(hold_id))
            await world.timer.pause(10)
            await approve(world.journal, hold_id, by="ada")
            await new.release(await again, 0, world.effect)
    assert len(world.effects) == 1


@scenario
async def test_key_makes_a_repetition_known(world: World) -> None:
    """`requested` is keyed: asked again, at any door, it is the same hold; with other requests, a conflict."""
    async with world.door() as door:
        task, hold_id = await world.asked(door, "a", key="k")
        twin = asyncio.create_task(door.ask(["a"], key="k"))
        await world.timer.pause(10)
        with pytest.raises(KeyConflict):
            await door.ask(["b"], key="k")
        assert len(await open_holds(world.journal)) == 1
    for ended in (task, twin):
        with pytest.raises(DoorClosed):
            await ended
    async with world.door() as door:
        again = asyncio.create_task(door.ask(["a"], key="k"))
        await world.timer.pause(10)
        await approve(world.journal, hold_id, by="ada")
        grant = await again
        await door.release(grant, 0, world.effect)
        assert (await door.ask(["a"], key="k")).outcomes == (Told.OK,)
    assert grant.hold_id == hold_id


# Grouping.


@scenario
async def test_coalesced_requests_are_one_hold(world: World) -> None:
    """Requests of one run and rule within `debounce_ms`, at most 3 times that from opening, become one hold."""
    async with world.door(debounce_ms=100) as door:
        opened = world.timer.now_ms()
        tasks = []
        for at in range(7):
            tasks.append(asyncio.create_task(door.ask([f"r{at}"], caller="run", rule="x")))
            await world.timer.pause(50)
        while len(await open_holds(world.journal)) < 2:
            await world.timer.pause(5)
        first, second = await open_holds(world.journal)
        assert first.requests == tuple(f"r{at}" for at in range(len(first.requests)))
        assert first.requests + second.requests == tuple(f"r{at}" for at in range(7))
        assert first.hold.deadline_at_ms - POLICY.hold_ms == opened + 300
        await approve(world.journal, first.hold_id, by="ada", indexes=[0, 2])
        await approve(world.journal, second.hold_id, by="ada")
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(ends[1], HoldRefused)
        assert isinstance(ends[2], Grant)
        await door.release(ends[2], 0, world.effect)
    assert [release_id for release_id, _ in world.effects] == [f"{first.hold_id}/2"]


@scenario
async def test_coalescing_keeps_rules_and_callers_apart(world: World) -> None:
    """A batch never mixes two rules or two callers; a caller that left before it was parked leaves no fact (H12)."""
    async with world.door(debounce_ms=100) as door:
        asks = [("run", "x"), ("run", "y"), ("other", "x"), ("", "x")]
        tasks = [asyncio.create_task(door.ask(["a"], caller=caller, rule=rule)) for caller, rule in asks]
        lost = [asyncio.create_task(door.ask(["lost"], caller=caller, rule="x")) for caller in ("run", "alone")]
        await world.timer.pause(50)
        for task in lost:
            task.cancel()
        await world.timer.pause(200)
        holds = await open_holds(world.journal)
        assert [held.requests for held in holds] == [("a",)] * 4
        for held in holds:
            await approve(world.journal, held.hold_id, by="ada")
        await asyncio.gather(*tasks)
        await asyncio.gather(*lost, return_exceptions=True)
    waiting = world.door(debounce_ms=1_000)
    async with waiting as door:
        task = asyncio.create_task(door.ask(["a"], caller="run"))
        await world.timer.pause(10)
    with pytest.raises(DoorClosed):
        await task


# A journal that is away.


@scenario
async def test_h9_journal_away_for_a_while(frail: World) -> None:
    """An availability error never ends a hold before its deadline; retries keep their distance (H10)."""
    looks: list[int] = []

    async def hook(point: str) -> None:
        if point == "wait.before":
            looks.append(frail.timer.now_ms())

    async with frail.door(reconcile_every_ms=60_000, caller_lease_ms=600_000) as door:
        task, hold_id = await frail.asked(door)
        memory(frail).hook = hook
        memory(frail).down()
        await frail.timer.pause(10_000)
        memory(frail).up()
        await approve(frail.journal, hold_id, by="ada")
        grant = await task
        assert grant.approved == (True, True)
    assert [later - earlier for earlier, later in itertools.pairwise(looks[:6])] == [200, 400, 800, 1_600, 3_200]


@scenario
async def test_h2_journal_away_across_the_deadline(frail: World) -> None:
    """After the deadline the door stops waiting even if the journal is away; the expiry is appended by the sweep."""
    async with frail.door() as door:
        task, hold_id = await frail.asked(door)
        (held,) = await open_holds(frail.journal)
        memory(frail).down()
        with pytest.raises(JournalUnavailable) as away:
            await task
        assert frail.timer.now_ms() == held.hold.deadline_at_ms
        assert away.value.hold_id == hold_id
        await frail.timer.pause(10_000)
        with pytest.raises(JournalUnavailable):
            await door.attach(hold_id)
        memory(frail).up()
        await frail.timer.pause(EVERY_MS + 1)
        assert await frail.fact(hold_id) is Fact.EXPIRED
        with pytest.raises(HoldExpired):
            await door.attach(hold_id)


@scenario
async def test_h16_decision_just_before_the_journal_went(frail: World) -> None:
    """A valid decision created by the deadline is honoured if door and journal are up before the deadline ends."""
    async with frail.door() as door:
        task, hold_id = await frail.asked(door)
        (held,) = await open_holds(frail.journal)
        memory(frail).down()
        await frail.timer.pause(held.hold.deadline_at_ms - frail.timer.now_ms() - 1)
        memory(frail).up()
        await approve(frail.journal, hold_id, by="ada")
        grant = await task
        assert frail.timer.now_ms() == held.hold.deadline_at_ms
        await door.release(grant, 0, frail.effect)


@scenario
async def test_h16_decided_in_time_and_found_after_the_deadline(frail: World) -> None:
    """A door that could not look at the deadline still releases within the grace, for a caller that comes back."""
    async with frail.door() as door:
        task, hold_id = await frail.asked(door)
        await frail.timer.pause(1_000)
        hook = memory(frail).hook

        async def away(point: str) -> None:
            if point.startswith(("wait", "read", "append")) and APPROVER.get() == "":
                raise JournalUnavailable("cut off")

        memory(frail).hook = away
        APPROVER.set("ada")
        await approve(frail.journal, hold_id, by="ada")
        with pytest.raises(JournalUnavailable):
            await task
        memory(frail).hook = hook
        grant = await door.attach(hold_id)
        await door.release(grant, 0, frail.effect)
    assert len(frail.effects) == 1


@scenario
async def test_h12_lost_acknowledgement_of_the_request(frail: World) -> None:
    """A request whose acknowledgement is lost is sent again under its key: one hold, no orphan."""
    async with frail.door() as door:
        for lost in (1, 3):
            memory(frail).unacknowledged = lost
            task, hold_id = await frail.asked(door)
            await frail.timer.pause(5_000)
            assert [held.hold_id for held in await open_holds(frail.journal)] == [hold_id]
            await approve(frail.journal, hold_id, by="ada")
            await door.release(await task, 0, frail.effect)


@scenario
async def test_h12_request_while_the_journal_is_away(frail: World) -> None:
    """A request is sent until it is acknowledged, and for a bounded time; what became of it can be asked for."""
    async with frail.door(park_patience_ms=2_000) as door:
        memory(frail).down()
        task = asyncio.create_task(door.ask(["a"], key="k"))
        await frail.timer.pause(1_000)
        memory(frail).up()
        await frail.timer.pause(1_000)
        (held,) = await open_holds(frail.journal)
        await approve(frail.journal, held.hold_id, by="ada")
        await task
        memory(frail).down()
        with pytest.raises(JournalUnavailable) as away:
            await door.ask(["b"], key="l")
        assert away.value.retry_after_ms > 0
        memory(frail).up()
        memory(frail).unacknowledged = 100
        with pytest.raises(JournalUnavailable):
            await door.ask(["b"], key="l")
        memory(frail).unacknowledged = 0
        (orphan,) = await open_holds(frail.journal)
        await frail.timer.pause(LEASE_MS + 3 * EVERY_MS)
        assert await frail.fact(orphan.hold_id) is Fact.ABANDONED


@scenario
async def test_h3_lost_acknowledgements_of_a_release(frail: World) -> None:
    """The effect happens once, lost acknowledgements of start and settlement included."""

    async def effect(release_id: str) -> str:
        memory(frail).unacknowledged = 2
        return await frail.effect(release_id)

    async with frail.door() as door:
        grant = await frail.granted(door)
        memory(frail).unacknowledged = 2
        await door.release(grant, 0, effect)
        await frail.timer.pause(1_000)
        assert await frail.releases(grant.hold_id) == (Release.OK, Release.NONE)
        types = await frail.types(grant.hold_id)
        assert types.count("release.started") == types.count("release.settled") == 1
    assert len(frail.effects) == 1


@scenario
async def test_h16_decided_before_the_acknowledgement(frail: World) -> None:
    """A decision made between a request and its acknowledgement is not skipped (H8)."""
    async with frail.door() as door:
        memory(frail).unacknowledged = 1
        task, hold_id = await frail.asked(door)
        await approve(frail.journal, hold_id, by="ada")
        began = frail.timer.now_ms()
        await task
        assert frail.timer.now_ms() <= began + POLICY.backoff_first_ms


@scenario
async def test_h14_a_lost_acknowledgement_touches_no_sibling(frail: World) -> None:
    """While the start of one release is sent again, the effect of another one goes on and is settled."""

    async def slow(release_id: str) -> str:
        await frail.timer.pause(1_000)
        return await frail.effect(release_id)

    async def lose_the_second(point: str) -> None:
        appends.append(point)
        if appends.count("append.after") == 2 and point == "append.after":
            memory(frail).unacknowledged = 1

    appends: list[str] = []
    async with frail.door() as door:
        grant = await frail.granted(door)
        await frail.timer.pause(1)
        memory(frail).hook = lose_the_second
        await asyncio.gather(*(door.release(grant, index, slow) for index in range(2)))
        assert await frail.releases(grant.hold_id) == (Release.OK, Release.OK)
    assert len(frail.effects) == 2


@scenario
async def test_h12_cancelled_before_the_effect(frail: World) -> None:
    """A caller that is cut off while its release can't be started gets no effect."""
    async with frail.door() as door:
        grant = await frail.granted(door)
        memory(frail).unacknowledged = 1
        release = asyncio.create_task(door.release(grant, 0, frail.effect))
        await frail.timer.pause(10)
        release.cancel()
        with pytest.raises(asyncio.CancelledError):
            await release
        await frail.timer.pause(LEASE_MS + 3 * EVERY_MS)
        assert await frail.releases(grant.hold_id) == (Release.LAPSED, Release.LAPSED)
    assert frail.effects == []


@scenario
async def test_h5_success_that_cannot_be_settled_is_in_doubt(frail: World) -> None:
    """A success is never told before it is durable: if it can't be settled, the caller is told *in doubt*."""

    async def effect(release_id: str) -> str:
        memory(frail).down()
        return await frail.effect(release_id)

    async with frail.door(settle_patience_ms=5_000) as door:
        grant = await frail.granted(door)
        with pytest.raises(InDoubt):
            await door.release(grant, 0, effect)
        memory(frail).up()
        await frail.timer.pause(2 * EVERY_MS)
        assert await frail.releases(grant.hold_id) == (Release.OK, Release.NONE)
        with pytest.raises(HoldSettled):
            await door.release(grant, 0, effect)
    assert len(frail.effects) == 1


@scenario
async def test_h2_journal_away_past_the_grace(frail: World) -> None:
    """A release that can't be started by the end of the grace isn't."""
    async with frail.door() as door:
        grant = await frail.granted(door)
        memory(frail).down()
        with pytest.raises(JournalUnavailable):
            await door.release(grant, 0, frail.effect)
        assert frail.timer.now_ms() <= grant.deadline_at_ms + POLICY.release_grace_ms
        memory(frail).up()
        await frail.timer.pause(POLICY.backoff_max_ms + EVERY_MS)
        assert await frail.releases(grant.hold_id) == (Release.LAPSED, Release.LAPSED)
    assert frail.effects == []


@pytest.mark.parametrize("cut_ms", [19_000, 56_000])
def test_h9_twelve_holds_and_a_restart(cut_ms: int) -> None:
    """Twelve holds, the journal restarts while they wait, and all are granted within a second: twelve effects."""
    timer = VirtualTimer()
    world = World(MemoryJournal(timer), timer)

    async def run() -> None:
        async with Door(world.journal, debounce_ms=None) as door:

            async def caller(name: str) -> str:
                async with door.hold([name]) as grant:
                    return await door.release(grant, 0, world.effect)

            callers = [asyncio.create_task(caller(f"get {at}")) for at in range(12)]
            await timer.pause(cut_ms)
            memory(world).down()
            await timer.pause(1_000)
            memory(world).up()
            for held in await open_holds(world.journal):
                await timer.pause(80)
                await approve(world.journal, held.hold_id, by="ada")
            assert len(set(await asyncio.gather(*callers))) == 12
            assert await world.journal.unfinished() == []

    run_virtual(run(), timer)
    assert len(world.effects) == 12


# Doors that die.

APPROVER: ContextVar[str] = ContextVar("approver", default="")


class KillAt:
    """Kills the door at one await point of its journal; whoever is not of the door goes on."""

    def __init__(self, at: int) -> None:
        self.passed = 0
        self.at = at

    async def __call__(self, point: str) -> None:
        if not APPROVER.get():
            self.passed += 1
            if self.passed >= self.at:
                raise Died(point)


@asynccontextmanager
async def aside(world: World, verdicts: Sequence[bool]) -> Any:
    """An approver that decides whatever is open."""

    async def run() -> None:
        APPROVER.set("ada")
        while True:
            await world.timer.pause(70)
            for held in await open_holds(world.journal):
                await decide(world.journal, held.hold_id, verdicts, "ada")

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def use(world: World, door: Door, told: list[tuple[str, str]]) -> None:
    """A caller that asks for two requests and releases both."""
    grant = await door.ask(["a", "b"], key="k")
    for index in range(2):
        with suppress(HoldEnd):
            told.append((f"{grant.hold_id}/{index}", await door.release(grant, index, world.effect)))


def kill_everywhere(policy: HoldPolicy, survivor: Callable[[World, Door], Awaitable[None]]) -> list[World]:
    """One world for each await point at which the first door died; each is brought to its end by a second door."""
    worlds = []
    for at in itertools.count(1):
        timer = VirtualTimer()
        world = World(MemoryJournal(timer), timer)
        memory(world).hook = killer = KillAt(at)
        told: list[tuple[str, str]] = []
        run_virtual(first_life(world, policy, told), timer)
        memory(world).hook = None
        durable = {f"{fact.hold_id}/{fact.body['index']}" for fact in memory(world)._facts if is_ok(fact.body)}
        assert {release_id for release_id, _ in told} <= durable
        run_virtual(second_life(world, policy, survivor), timer)
        worlds.append(world)
        if killer.passed < at:
            return worlds
    raise AssertionError


def is_ok(body: Any) -> bool:
    return "outcome" in body and body["outcome"] == "ok"


async def first_life(world: World, policy: HoldPolicy, told: list[tuple[str, str]]) -> None:
    async with aside(world, [True, True]):
        with suppress(Died):
            async with world.door(policy) as door:
                await use(world, door, told)


async def second_life(world: World, policy: HoldPolicy, survivor: Callable[[World, Door], Awaitable[None]]) -> None:
    await world.timer.pause(200)
    async with world.door(policy) as door:
        with suppress(HoldEnd):
            await survivor(world, door)
        await world.timer.pause(policy.hold_ms + policy.release_grace_ms + LEASE_MS + 2 * EVERY_MS)
        assert await world.journal.unfinished() == []


def in_time(world: World, policy: HoldPolicy) -> bool:
    """Whether no effect was later than deadline and grace."""
    deadlines = {held.hold_id: held.hold.deadline_at_ms for held in memory(world)._held.values()}
    latest = {hold_id: deadline + policy.release_grace_ms for hold_id, deadline in deadlines.items()}
    return all(at_ms <= latest[release_id.split("/")[0]] for release_id, at_ms in world.effects)


async def nobody(world: World, door: Door) -> None:
    """The caller died with its door."""


async def comes_back(world: World, door: Door) -> None:
    """The caller asks again under its key, and releases what it may."""
    async with aside(world, [True, True]):
        grant = await door.ask(["a", "b"], key="k")
        for index in range(2):
            with suppress(HoldEnd):
                await door.release(grant, index, world.effect)


async def vanishes(world: World, door: Door) -> None:
    """The caller asks again, and is cancelled."""
    task = asyncio.create_task(door.ask(["a", "b"], key="k"))
    await world.timer.pause(30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("survivor", [nobody, comes_back, vanishes])
def test_h3_door_killed_at_every_point(survivor: Callable[[World, Door], Awaitable[None]]) -> None:
    """A door killed anywhere, and another one after it: no effect twice or late, every hold terminal (H15)."""
    worlds = kill_everywhere(POLICY, survivor)
    assert len(worlds) > 15
    for world in worlds:
        ids = [release_id for release_id, _ in world.effects]
        assert len(ids) == len(set(ids))
        assert in_time(world, POLICY)
    outcomes = {release for world in worlds for held in memory(world)._held.values() for release in held.hold.releases}
    assert outcomes >= {Release.OK, Release.UNKNOWN}
    if survivor is not comes_back:
        assert Release.LAPSED in outcomes


def test_h3_idempotent_release_runs_again_under_its_id() -> None:
    """The only exception is a release declared idempotent, re-run under the same release id."""
    policy = attrs.evolve(POLICY, idempotent=True)
    worlds = kill_everywhere(policy, comes_back)
    twice = [world for world in worlds if len(world.effects) > len({release_id for release_id, _ in world.effects})]
    assert twice
    for world in worlds:
        (held,) = memory(world)._held.values()
        assert held.hold.releases == (Release.OK, Release.OK)
        assert {release_id for release_id, _ in world.effects} == {f"{held.hold_id}/0", f"{held.hold_id}/1"}


def test_h15_idempotent_release_of_the_dead_is_unknown() -> None:
    """Releases in doubt whose caller does not come back are settled `unknown`."""
    worlds = kill_everywhere(attrs.evolve(POLICY, idempotent=True), nobody)
    for world in worlds:
        ids = [release_id for release_id, _ in world.effects]
        assert len(ids) == len(set(ids))
    outcomes = {release for world in worlds for held in memory(world)._held.values() for release in held.hold.releases}
    assert Release.UNKNOWN in outcomes


async def comes_too_late(world: World, door: Door) -> None:
    """The caller keeps its place, but asks for its releases only after the grace."""
    grant = await door.ask(["a", "b"], key="k")
    await world.timer.pause(POLICY.hold_ms + POLICY.release_grace_ms + 1)
    for index in range(2):
        with suppress(HoldEnd):
            await door.release(grant, index, world.effect)


def test_h2_no_release_runs_again_after_the_grace() -> None:
    """No release starts later than the grace, one that is run again included: it stays in doubt."""
    policy = attrs.evolve(POLICY, idempotent=True)
    worlds = kill_everywhere(policy, comes_too_late)
    assert all(in_time(world, policy) for world in worlds)
    outcomes = {release for world in worlds for held in memory(world)._held.values() for release in held.hold.releases}
    assert outcomes >= {Release.UNKNOWN, Release.LAPSED}


def test_no_second_copy_of_a_rule() -> None:
    """Whatever is decided about a hold is decided in the specification: the shell reckons with none of its fields."""
    numbers = {field.name for held in (Hold, HoldPolicy) for field in attrs.fields(held) if field.type == "int"}
    waits = {
        "watch",
        "_horizon_ms",
        "ask",
        "_send",
        "insist",
    }  # until when to sleep, or to try; the specification judges what is due
    package = Path(impl.__file__).parent
    offenders = [
        f"{path.name}:{node.lineno} {function.name}"
        for path in sorted((*package.glob("hold*.py"), *package.glob("journal*.py")))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name not in waits
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp | ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr in numbers
    ]
    assert numbers > {"deadline_at_ms", "release_grace_ms"}
    assert offenders == []
