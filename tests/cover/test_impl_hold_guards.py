"""What a door does when two things happen at once: each test fails without one guard that nothing else needs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from deadreckon.impl import (
    Door,
    Grant,
    HoldAbandoned,
    HoldRefused,
    HoldSettled,
    InDoubt,
    StoreUnavailable,
    approve,
    open_holds,
    reject,
)
from deadreckon.impl.hold_journal import JournalUnavailable
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.hold_journal_wait import Listeners
from deadreckon.impl.hold_keeper import Keeper
from deadreckon.impl.hold_memory import Asked, Life, boot
from deadreckon.impl.hold_parked import Parked, watch
from deadreckon.impl.hold_steps import Steps
from deadreckon.impl.virtual import VirtualTimer, run_virtual
from deadreckon.spec.hold_state import Caller, Fact, HoldPolicy, Release, Told, Wait
from tests.cover.hold_stories import asked, effect, granted, release_of, told

LEASE_MS = 1_000


async def slow(name: str) -> None:
    """A journal that takes two seconds for each append."""
    if name == "append.before":
        await asyncio.sleep(2)


async def cut_off(task: asyncio.Task[Any]) -> None:  # Any: whatever it would return
    """Cancel a caller, and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def seated(journal: MemoryJournal, door: Door, count: int) -> list[asyncio.Task[Grant]]:
    """Callers of one name, whose group is on its way to the journal."""
    on_the_way = asyncio.Event()

    async def hook(name: str) -> None:
        if name == "append.before":
            on_the_way.set()
            await asyncio.sleep(1)

    journal.hook = hook
    tasks = [asyncio.create_task(door.ask([str(at)], caller="ada")) for at in range(count)]
    await on_the_way.wait()
    return tasks


def test_h12_a_grant_of_an_earlier_door() -> None:
    """A grant counts at the next door too, even if that could not look at the journal when it opened."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def away(name: str) -> None:
        if name == "unfinished.before":
            journal.down()

    async def main() -> None:
        async with Door(journal) as door:
            grant = await granted(journal, door, "a")
        journal.hook = away
        async with Door(journal) as door:
            journal.hook = None
            journal.up()
            assert await door.release(grant, 0, effect) == f"{grant.hold_id}/0"

    run_virtual(main(), timer)


def test_h12_who_was_cut_off_is_there_again_for_its_release() -> None:
    """A caller that was cut off before the effect, and asks for it again, is there, with a lease, when it happens."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        journal.hook = slow
        first = asyncio.create_task(door.release(grant, 0, effect))
        await journal.timer.pause(10)
        await cut_off(first)
        journal.hook = None
        assert journal.held(grant.hold_id).hold.caller is Caller.DETACHED

        async def seen(release_id: str) -> Caller:
            return journal.held(grant.hold_id).hold.caller

        assert await door.release(grant, 0, seen) is Caller.ATTACHED

    told(story)


def test_h3_a_release_under_way_is_joined_while_the_journal_is_away() -> None:
    """A second call of release joins the first, whether or not the journal answers just then."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        done = asyncio.Event()

        async def waits(release_id: str) -> str:
            await done.wait()
            return release_id

        first = asyncio.create_task(door.release(grant, 0, waits))
        await journal.timer.pause(10)
        await cut_off(first)
        journal.down()
        second = asyncio.create_task(door.release(grant, 0, waits))
        await journal.timer.pause(10)
        journal.up()
        done.set()
        assert await second == f"{grant.hold_id}/0"

    told(story)


@pytest.mark.parametrize("fails", [False, True])
def test_h12_a_caller_cut_off_just_as_its_group_is_parked(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """A caller that is cancelled in the moment in which its group is parked, or is not, waits for nothing any more."""
    park = Keeper.park

    async def story(journal: MemoryJournal, door: Door) -> None:
        async def cancelled_then(keeper: Keeper, asked: Asked, callers: int, patience_ms: int) -> Parked:
            parked = await park(keeper, asked, callers, patience_ms)
            asyncio.get_running_loop().call_soon(task.cancel)
            if fails:
                raise StoreUnavailable("not now")
            return parked

        monkeypatch.setattr(Keeper, "park", cancelled_then)
        task = asyncio.create_task(door.ask(["a"], caller="ada"))
        with pytest.raises(asyncio.CancelledError):
            await task
        (held,) = await open_holds(journal)
        if not fails:
            await journal.timer.pause(10 * LEASE_MS)
            assert journal.held(held.hold_id).hold.fact is Fact.ABANDONED

    told(story, debounce_ms=10, caller_lease_ms=LEASE_MS)


def test_a_group_that_cannot_be_parked() -> None:
    """Everybody in a group is told why it could not be parked, although one of them has left meanwhile."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        tasks = await seated(journal, door, 3)

        async def broken(name: str) -> None:
            if name == "append.after":
                raise StoreUnavailable("not now")

        journal.hook = broken
        await cut_off(tasks[1])
        for task in (tasks[0], tasks[2]):
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(task, 60)
        journal.hook = None

    told(story, debounce_ms=10)


@pytest.mark.parametrize("all_leave", [False, True])
def test_h12_who_leaves_while_its_group_is_parked_is_not_waited_for(all_leave: bool) -> None:
    """Of a group, those count that are still there when it is parked; when they leave too, their hold is abandoned."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        tasks = await seated(journal, door, 2)
        await cut_off(tasks[0])
        if all_leave:
            await cut_off(tasks[1])
        await journal.timer.pause(2_000)
        journal.hook = None
        (held,) = await open_holds(journal)
        assert held.requests == ("0", "1")
        await cut_off(tasks[1])
        await journal.timer.pause(10 * LEASE_MS)
        assert journal.held(held.hold_id).hold.fact is Fact.ABANDONED

    told(story, debounce_ms=10, caller_lease_ms=LEASE_MS)


def test_h12_a_goodbye_is_said_to_its_end() -> None:
    """Who leaves the body of a hold says goodbye, even if it is cancelled over it: what it did not release lapses."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        async def body() -> None:
            async with door.hold(["a"]):
                journal.hook = slow

        task = asyncio.create_task(body())
        while not (found := await open_holds(journal)):
            await journal.timer.pause(1)
        await approve(journal, found[0].hold_id, by="ada")
        await journal.timer.pause(1_000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        journal.hook = None
        hold = journal.held(found[0].hold_id).hold
        assert (hold.caller, hold.releases) == (Caller.GONE, (Release.LAPSED,))

    told(story)


def not_async(release_id: str) -> str:
    """A plain function, as somebody might give it."""
    return release_id


async def gives_up(release_id: str) -> str:
    """An effect that is cancelled from within."""
    raise asyncio.CancelledError


@pytest.mark.parametrize("kind", [not_async, gives_up])
def test_h15_a_release_in_doubt_that_is_cancelled_again(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """A release that becomes a doubt is recorded as one, however often it is cancelled meanwhile."""
    lose_track = Steps.lose_track
    tasks: list[asyncio.Task[object]] = []

    async def later(steps: Steps, request: int) -> object:
        tasks.extend(task for task in asyncio.all_tasks() if "released" in repr(task.get_coro()))
        await asyncio.sleep(2)
        return await lose_track(steps, request)

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        releasing = asyncio.create_task(door.release(grant, 0, kind))
        await journal.timer.pause(1_000)
        (task,) = tasks
        task.cancel()
        with pytest.raises(InDoubt):
            await releasing
        await journal.timer.pause(60_000)
        assert await release_of(journal, grant) is Release.UNKNOWN

    monkeypatch.setattr(Steps, "lose_track", later)
    told(story)


def alone(story: Any) -> None:  # Any: a coroutine function of journal and steps
    """Run a story with the steps of one hold, without a door around them."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)
    policy = HoldPolicy(hold_ms=10_000)

    async def main() -> None:
        steps = Steps(journal, await boot(journal), "h", policy, LEASE_MS)
        work: Coroutine[object, object, None] = story(journal, steps, Asked(("a",), "ada", "k", policy))
        await work

    run_virtual(main(), timer)


def test_an_action_is_never_torn_from_what_is_remembered_of_it() -> None:
    """An action that is cancelled while it is appended is remembered, as it is kept."""

    async def story(journal: MemoryJournal, steps: Steps, asked: Asked) -> None:
        async def late(name: str) -> None:
            if name == "append.after":
                await asyncio.sleep(1)

        journal.hook = late
        task = asyncio.create_task(steps.ask(asked))
        await journal.timer.pause(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps.hold.fact is Fact.OPEN
        assert steps.hold.wait is Wait.WAITING

    alone(story)


def test_h2_nothing_is_waited_for_after_the_deadline() -> None:
    """When the deadline comes while the journal is away the wait is over, and nothing is remembered of it."""

    async def story(journal: MemoryJournal, steps: Steps, asked: Asked) -> None:
        await steps.ask(asked)
        journal.down()
        with pytest.raises(JournalUnavailable):
            await watch(journal, steps)
        assert steps.hold.wait is Wait.IDLE

    alone(story)


def test_h6_an_end_that_was_appended_while_the_journal_was_away() -> None:
    """A wait that finds at the deadline that its hold was ended by somebody else is over."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def ticks(name: str) -> None:
        if name == "read.before":
            await asyncio.sleep(0.001)

    async def main() -> None:
        async with Door(journal, HoldPolicy(hold_ms=100), debounce_ms=None) as door:
            task, hold_id = await asked(journal, door, "a")
            journal.down()
            await timer.pause(10)
            journal.up()
            somebody = Steps(journal, Life(door.door), hold_id, HoldPolicy(), LEASE_MS, journal.held(hold_id))
            await somebody.detach()
            await somebody.leave(goodbye=True)
            await somebody.abandon()
            journal.hook = ticks
            with pytest.raises(HoldAbandoned):
                await asyncio.wait_for(task, 60)

    run_virtual(main(), timer)


def test_h9_a_quiet_door_appends_nothing() -> None:
    """Reconciling costs a hold that is waited for no append, and an approved one none for what was refused."""
    appends = 0

    async def counts(name: str) -> None:
        nonlocal appends
        appends += name == "append.before"

    async def story(journal: MemoryJournal, door: Door) -> None:
        nonlocal appends
        task, hold_id = await asked(journal, door, "a", "b")
        journal.hook = counts
        await journal.timer.pause(60_000)
        assert appends == 0
        await approve(journal, hold_id, by="ada", indexes=[0])
        grant = await task
        await journal.timer.pause(10)
        appends = 0
        await journal.timer.pause(60_000)
        assert appends <= 12  # one for each look: whether what was approved has lapsed
        await door.release(grant, 0, effect)

    told(story, reconcile_every_ms=5_000)


def test_h5_a_reconciliation_does_not_settle_what_its_release_does() -> None:
    """A success that is settled late is told as one: the door's own sweep doesn't come between."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")

        async def away(release_id: str) -> str:
            journal.down()
            return release_id

        task = asyncio.create_task(door.release(grant, 0, away))
        await journal.timer.pause(5_000)
        journal.up()
        await journal.timer.pause(20)
        assert await task == f"{grant.hold_id}/0"

    told(story, reconcile_every_ms=10)


def test_h15_what_is_owed_past_its_grace_is_unknown() -> None:
    """A release that may be run again, and that nobody runs within the grace, gets its terminal fact all the same."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        with pytest.raises(InDoubt):
            await door.release(grant, 0, gives_up)
        assert await release_of(journal, grant) is Release.STARTED
        await journal.timer.pause(20_000)
        assert await release_of(journal, grant) is Release.UNKNOWN

    told(story, policy=HoldPolicy(hold_ms=1_000, release_grace_ms=1_000, idempotent=True))


def test_h5_a_release_that_is_not_settled_yet_is_in_doubt() -> None:
    """Who asks again for a release whose outcome could not be recorded is told of the doubt, and later of the outcome."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")

        async def away(release_id: str) -> str:
            journal.down()
            return release_id

        with pytest.raises(InDoubt, match="could not be recorded"):
            await door.release(grant, 0, away)
        journal.up()
        with pytest.raises(InDoubt, match="no outcome yet"):
            await door.release(grant, 0, effect)
        await journal.timer.pause(10_000)
        with pytest.raises(HoldSettled, match="'ok'"):
            await door.release(grant, 0, effect)

    told(story, settle_patience_ms=0)


def test_h2_a_start_that_took_too_long_while_the_journal_goes_away() -> None:
    """A release whose start outlasts the grace has no effect, and lapses once the journal is back."""
    calls: list[str] = []

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")

        async def late(name: str) -> None:
            if name == "append.after":
                await asyncio.sleep(3)
                asyncio.get_running_loop().call_soon(journal.down)

        async def counted(release_id: str) -> None:
            calls.append(release_id)

        journal.hook = late
        with pytest.raises(InDoubt):
            await door.release(grant, 0, counted)
        journal.hook = None
        journal.up()
        await journal.timer.pause(20_000)
        assert await release_of(journal, grant) is Release.LAPSED

    told(story, policy=HoldPolicy(hold_ms=1_000, release_grace_ms=1_000))
    assert not calls


def test_h5_a_success_that_is_settled_is_told() -> None:
    """Once the outcome is durable the caller has it, even if the journal then fails to note that it was told."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")

        async def breaks(name: str) -> None:
            if name == "append.before" and journal.held(grant.hold_id).hold.releases[0] is Release.OK:
                raise StoreUnavailable("not now")

        journal.hook = breaks
        assert await door.release(grant, 0, effect) == f"{grant.hold_id}/0"
        journal.hook = None

    told(story)


def test_h5_a_failed_effect_that_cannot_be_settled_names_its_error() -> None:
    """Of an effect that raised, and whose outcome could not be recorded, the doubt has the effect's error as its cause."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")

        async def fails(release_id: str) -> None:
            journal.down()
            raise OSError("connection reset")

        with pytest.raises(InDoubt) as doubt:
            await door.release(grant, 0, fails)
        assert isinstance(doubt.value.__cause__, OSError)
        journal.up()

    told(story, settle_patience_ms=0)


def test_h6_an_end_is_told_even_if_that_cannot_be_noted() -> None:
    """A refusal that is in the journal is told, whether or not the journal can note that it was."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a")

        async def breaks(name: str) -> None:
            if name == "append.before" and journal.held(hold_id).hold.fact is Fact.DECIDED:
                raise StoreUnavailable("not now")

        journal.hook = breaks
        await reject(journal, hold_id, by="ada")
        with pytest.raises(HoldRefused):
            await task
        journal.hook = None

    told(story)


def test_h14_requests_that_ended_differently() -> None:
    """Who comes back to a batch is told of each request for itself: one that lapsed hides none that was released."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a", "b")
        await door.release(grant, 1, effect)
        await journal.timer.pause(10_000)
        again = await door.attach(grant.hold_id)
        assert again.outcomes == (Told.LAPSED, Told.OK)

    told(story, policy=HoldPolicy(hold_ms=1_000, release_grace_ms=1_000))


def test_h12_a_door_that_is_left_detaches_nobody() -> None:
    """The lease to come back begins when the next door opens, not when the last one was left."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def main() -> None:
        async with Door(journal, debounce_ms=None) as door:
            task, _ = await asked(journal, door, "a")
        await asyncio.gather(task, return_exceptions=True)
        (held,) = await open_holds(journal)
        assert held.hold.caller is Caller.ATTACHED
        await timer.pause(60_000)
        async with Door(journal, caller_lease_ms=LEASE_MS):
            hold = journal.held(held.hold_id)
            assert (hold.hold.caller, hold.lease_until_ms) == (Caller.DETACHED, timer.now_ms() + LEASE_MS)

    run_virtual(main(), timer)


def test_h9_leases_are_renewed_while_another_request_is_parked() -> None:
    """A request that the journal is slow to take keeps no other caller's lease from being renewed."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        first, hold_id = await asked(journal, door, "a")

        async def hangs(name: str) -> None:
            if name == "append.before":
                await asyncio.sleep(60)

        journal.hook = hangs
        second = asyncio.create_task(door.ask(["b"]))
        await journal.timer.pause(30_000)
        assert journal.held(hold_id).lease_until_ms > journal.now_ms()
        journal.hook = None
        await cut_off(first)
        await cut_off(second)

    told(story, caller_lease_ms=LEASE_MS)


def test_an_idle_door_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody waits no lease is renewed, and a journal that is away is no warning each time that it is looked at."""
    writes = 0

    async def counts(name: str) -> None:
        nonlocal writes
        writes += name in {"append.before", "renew.before"}

    async def story(journal: MemoryJournal, door: Door) -> None:
        journal.hook = counts
        await journal.timer.pause(60_000)
        journal.down()
        await journal.timer.pause(60_000)
        journal.up()

    told(story)
    assert (writes, caplog.records) == (0, [])


def test_h12_a_repetition_that_fails_is_not_waited_for() -> None:
    """Who asks again under its key, and fails, leaves nobody behind: the hold is abandoned when the first leaves too."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        first = asyncio.create_task(door.ask(["a"], key="k"))
        await journal.timer.pause(10)
        appends = 0

        async def breaks(name: str) -> None:
            nonlocal appends
            appends += name == "append.before"
            if appends == 2:
                raise StoreUnavailable("not now")

        journal.hook = breaks
        with pytest.raises(StoreUnavailable):
            await door.ask(["a"], key="k")
        journal.hook = None
        (held,) = await open_holds(journal)
        await cut_off(first)
        await journal.timer.pause(10 * LEASE_MS)
        assert journal.held(held.hold_id).hold.fact is Fact.ABANDONED

    told(story, caller_lease_ms=LEASE_MS)


def test_h12_two_who_come_back_at_once() -> None:
    """Two callers come back to a hold that the door has not seen yet: if one leaves, the other goes on waiting."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def away(name: str) -> None:
        if name == "unfinished.before":
            journal.down()

    async def lags(name: str) -> None:
        if name == "read.after":
            await asyncio.sleep(0.01)

    async def main() -> None:
        async with Door(journal, debounce_ms=None) as door:
            task, hold_id = await asked(journal, door, "a")
        await asyncio.gather(task, return_exceptions=True)
        journal.hook = away
        async with Door(journal, caller_lease_ms=LEASE_MS) as door:
            journal.hook = lags
            journal.up()
            first, second = (asyncio.create_task(door.attach(hold_id)) for _ in range(2))
            await timer.pause(200)
            await cut_off(second)
            await timer.pause(10 * LEASE_MS)
            await approve(journal, hold_id, by="ada")
            assert (await first).approved == (True,)

    run_virtual(main(), timer)


@pytest.mark.parametrize(
    ("told_of", "waits_for", "woken"),
    [("h", "h", True), ("h", None, True), (None, "h", True), (None, None, True), ("h", "other", False)],
)
def test_whom_an_append_wakes(told_of: str | None, waits_for: str | None, woken: bool) -> None:
    """An append wakes, once, who waits for that hold or for any; what concerns all holds wakes everybody."""
    timer = VirtualTimer()

    async def main() -> None:
        listeners = Listeners(timer)
        looks = 0

        async def look() -> int | None:
            nonlocal looks
            looks += 1
            return looks if looks > 1 else None

        waiting = asyncio.create_task(listeners.wait(look, 1_000, waits_for, others=False))
        await timer.pause(10)
        listeners.tell(told_of)
        listeners.tell(told_of)
        await timer.pause(10)
        assert waiting.done() is woken
        assert await waiting == 2

    run_virtual(main(), timer)


def test_how_often_others_are_looked_for() -> None:
    """What other processes append is looked for at once, then ever less often, but ten times a second at least."""
    timer = VirtualTimer()

    async def main() -> None:
        looks: list[int] = []

        async def look() -> int | None:
            looks.append(timer.now_ms() - began)
            return None

        began = timer.now_ms()
        assert await Listeners(timer).wait(look, 1_050, None, others=True) is None
        assert looks[:7] == [0, 5, 15, 35, 75, 155, 255]
        assert looks[-1] == 1_050
        assert len(looks) == 15
        looks.clear()
        began = timer.now_ms()
        assert await Listeners(timer).wait(look, 1_050, None, others=False) is None
        assert looks == [0, 1_050]

    run_virtual(main(), timer)
