"""Wrong arguments, callers that come twice, doors that close, clocks that were set: each ends as it should, by type."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import pytest

from deadreckon.impl import (
    DecisionForged,
    DecisionSecond,
    Door,
    DoorClosed,
    Entry,
    HoldExpired,
    HoldRefused,
    InDoubt,
    JournalUnavailable,
    Moment,
    SqliteJournal,
    StoreClosed,
    StoreUnavailable,
    SystemTimer,
    Written,
    add_key,
    approve,
    decide,
    open_holds,
    reject,
)
from deadreckon.impl.hold_journal_clock import SteadyClock
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.virtual import VirtualTimer, run_virtual
from deadreckon.spec.errors import CallerError, PolicyError
from deadreckon.spec.hold_state import Fact, HoldPolicy, Release
from tests.cover.hold_stories import asked, effect, granted, release_of, told

SURROGATE = "\ud800"


@pytest.mark.parametrize(
    "verdicts", [["reject", "reject"], "no", "", ["False", "False"], [None, 2], [1, 0], None, [True, "reject"]]
)
def test_h11_a_verdict_is_true_or_false(verdicts: Any) -> None:  # Any: of the wrong kind
    """A word such as "reject" is never taken for a yes: it is refused, and the hold stays open."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a", "b")
        with pytest.raises(CallerError, match="True or False"):
            await decide(journal, hold_id, verdicts, "ada")
        assert len(await open_holds(journal)) == 1
        await approve(journal, hold_id, by="ada")
        await task

    told(story)


@pytest.mark.parametrize("indexes", [5, [], [True], [0.0], [2], [-1], ["0", 1], [None]])
def test_approve_wants_indexes_of_the_hold(indexes: Any) -> None:  # Any: of the wrong kind
    """An index is a whole number within the hold, and there is at least one: nothing else is decided."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a", "b")
        with pytest.raises(CallerError, match="indexes are"):
            await approve(journal, hold_id, by="ada", indexes=indexes)
        assert len(await open_holds(journal)) == 1
        await approve(journal, hold_id, by="ada", indexes=(at for at in [1]))
        assert (await task).approved == (False, True)

    told(story)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("caller_lease_ms", "reconcile_every_ms") for value in (0, "x", 1000.5, 10**30)),
        *((name, value) for name in ("park_patience_ms", "settle_patience_ms") for value in (-1, "x", None, True)),
        ("reconcile_every_ms", float("nan")),
        ("debounce_ms", "5"),
        ("debounce_ms", 60_001),
        ("policy", {"hold_ms": 5}),
    ],
)
def test_settings_of_a_door_are_checked_at_once(name: str, value: Any) -> None:  # Any: of the wrong kind
    """A setting out of its range, or of another type, is refused by name before the door opens."""
    with pytest.raises(PolicyError, match=name):
        Door(MemoryJournal(), **{name: value})


@pytest.mark.parametrize("path", [None, 5, "a\0b", b"bytes"])
def test_a_journal_has_a_path(path: Any) -> None:  # Any: of the wrong kind
    """A path that is none, and a timeout that is no whole number, are refused by name."""
    with pytest.raises(CallerError, match="path is"):
        SqliteJournal(path)
    with pytest.raises(CallerError, match="busy_timeout_ms"):
        SqliteJournal("x", busy_timeout_ms=[path])  # type: ignore[arg-type]  # of the wrong kind


def test_wrong_arguments_are_refused_by_name() -> None:
    """What no journal can keep, and what is no grant, index or effect, is refused by type; nothing is written."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        wrong: Any = None  # Any: of the wrong kind
        before = await journal.newest()
        for call in (
            lambda: door.ask(wrong),
            lambda: door.ask(5),  # type: ignore[arg-type]  # of the wrong kind
            lambda: door.ask([]),
            lambda: door.ask("text"),
            lambda: door.ask(["a", 5]),  # type: ignore[list-item]  # of the wrong kind
            lambda: door.ask([SURROGATE]),
            lambda: door.ask(["a"], caller=wrong),
            lambda: door.ask(["a"], caller=SURROGATE),
            lambda: door.ask(["a"], rule=wrong),
            lambda: door.ask(["a"], key=SURROGATE),
            lambda: door.ask(["a"], horizon_ms=float("nan")),  # type: ignore[arg-type]  # of the wrong kind
            lambda: door.attach(SURROGATE),
            lambda: door.attach(wrong),
            lambda: door.release(wrong, 0, effect),
            lambda: door.release(grant, True, effect),
            lambda: door.release(grant, wrong, effect),
            lambda: door.release(grant, 1, effect),
            lambda: door.release(grant, 0, wrong),
            lambda: approve(journal, wrong, by="ada"),
            lambda: reject(journal, grant.hold_id, by=SURROGATE),
            lambda: decide(journal, grant.hold_id, [True], ""),
            lambda: decide(journal, grant.hold_id, [True], "ada", "x" * 1_001),
            lambda: decide(journal, grant.hold_id, [True], "ada", wrong),
            lambda: decide(journal, grant.hold_id, [True], wrong),
            lambda: add_key(journal, wrong, "", by="ada"),
        ):
            with pytest.raises(CallerError) as refusal:
                await call()
            assert type(refusal.value) in (CallerError, PolicyError)
        assert await journal.newest() == before
        with pytest.raises(DecisionSecond):
            await approve(journal, grant.hold_id, by="ada")
        assert await door.release(grant, 0, effect) == f"{grant.hold_id}/0"

    told(story)


class Odd(BaseException):
    """What is neither an answer nor a cancellation."""


def test_h15_an_effect_that_ends_oddly_is_in_doubt() -> None:
    """An effect that raises what is no Exception is in doubt, and settled at once."""

    async def odd(release_id: str) -> None:
        raise Odd

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        with pytest.raises(Odd):
            await door.release(grant, 0, odd)
        assert await release_of(journal, grant) is Release.UNKNOWN

    told(story)


def test_h5_an_effect_that_is_not_async_is_in_doubt() -> None:
    """A plain function has been called when that is seen: its release is in doubt, never an error."""
    calls: list[str] = []

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        with pytest.raises(InDoubt, match="async function"):
            await door.release(grant, 0, calls.append)  # type: ignore[arg-type]  # of the wrong kind
        assert await release_of(journal, grant) is Release.UNKNOWN

    told(story)
    assert len(calls) == 1


def test_an_effect_cannot_wait_for_itself() -> None:
    """An effect that releases its own request is told so, instead of waiting for ever."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")

        async def again(release_id: str) -> object:
            return await door.release(grant, 0, effect)

        with pytest.raises(CallerError, match="wait for itself"):
            await door.release(grant, 0, again)

    told(story)


def test_h12_second_caller_of_a_key_outlives_the_first() -> None:
    """Two callers ask under one key, and the first is cancelled while it asks: the second waits, and is granted."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        gate, appends = asyncio.Event(), 0

        async def hold_up(name: str) -> None:
            nonlocal appends
            if name == "append.after":
                appends += 1
                if appends == 1:
                    await gate.wait()

        journal.hook = hold_up
        first = asyncio.create_task(door.ask(["x"], key="K"))
        await journal.timer.pause(10)
        second = asyncio.create_task(door.ask(["x"], key="K"))
        await journal.timer.pause(10)
        first.cancel()
        gate.set()
        await journal.timer.pause(60_000)
        (held,) = await open_holds(journal)
        await approve(journal, held.hold_id, by="ada")
        assert (await second).approved == (True,)
        assert first.cancelled()

    facts = asyncio.run(told(story, caller_lease_ms=3_000).facts())
    assert [fact.type for fact in facts] == ["door.booted", "hold.requested", "hold.decided"]


def test_h12_two_callers_of_a_key_are_both_granted() -> None:
    """Two callers ask under one key at once: one hold, and both are told."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        both = [asyncio.create_task(door.ask(["x"], key="K")) for _ in range(2)]
        await journal.timer.pause(5_000)
        (held,) = await open_holds(journal)
        await approve(journal, held.hold_id, by="ada")
        assert [grant.hold_id for grant in await asyncio.gather(*both)] == [held.hold_id] * 2

    told(story, caller_lease_ms=1_000)


@pytest.mark.parametrize("fact", ["hold.expired", "hold.abandoned"])
def test_an_end_that_somebody_else_appended_ends_the_wait(fact: str) -> None:
    """A wait ends with the hold, whoever ended it: its caller is told at once, not at the deadline."""

    def change(moment: Moment) -> Written:
        assert moment.held is not None
        ended = Fact.EXPIRED if fact == "hold.expired" else Fact.ABANDONED
        return Written(attrs.evolve(moment.held, hold=attrs.evolve(moment.held.hold, fact=ended)), (Entry(fact),))

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a")
        await journal.append(hold_id, change)
        await journal.timer.pause(1_000)
        assert task.done()
        assert type(task.exception()).__name__ == f"Hold{fact.partition('.')[2].capitalize()}"

    told(story)


@pytest.mark.parametrize("why", ["slow", "away"])
def test_an_ask_under_way_when_the_door_closes(why: str) -> None:
    """Whoever is still asking when the door closes is told that it closed."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def slowly(name: str) -> None:
        if name == "append.before":
            await timer.pause(2_000)

    async def main() -> None:
        async with Door(journal, debounce_ms=None) as door:
            if why == "slow":
                journal.hook = slowly
            else:
                journal.down()
            task = asyncio.create_task(door.ask(["x"]))
            await timer.pause(50)
        journal.up()
        with pytest.raises(DoorClosed):
            await task

    run_virtual(main(), timer)


@pytest.mark.parametrize("point", ["read.before", "append.before"])
def test_an_attach_or_a_release_under_way_when_the_door_closes(point: str) -> None:
    """Whoever comes back while the door closes is told so at once, and no wait is left behind; the hold goes on."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def slowly(name: str) -> None:
        if name == point:
            await timer.pause(2_000)

    async def main() -> None:
        async with Door(journal, debounce_ms=None) as door:
            decided = await granted(journal, door, "a")
        async with Door(journal, debounce_ms=None) as door:
            task, hold_id = await asked(journal, door, "b")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with Door(journal, debounce_ms=None) as door:
            journal.hook = slowly
            coming = [
                asyncio.create_task(door.attach(hold_id)),
                asyncio.create_task(door.release(decided, 0, effect)),
            ]
            await timer.pause(500)
        closed_at_ms = timer.now_ms()
        for end in await asyncio.gather(*coming, return_exceptions=True):
            assert isinstance(end, DoorClosed) or end == f"{decided.hold_id}/0"
        assert timer.now_ms() - closed_at_ms < 30_000
        journal.hook = None
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [held.hold_id for held in await open_holds(journal)] == [hold_id]

    run_virtual(main(), timer)


def test_h5_a_journal_that_is_closed_after_the_effect() -> None:
    """Whatever keeps the outcome from being recorded, the caller is told that its effect is in doubt."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")

        async def closes(release_id: str) -> None:
            await journal.close()

        with pytest.raises(InDoubt) as doubt:
            await door.release(grant, 0, closes)
        assert isinstance(doubt.value.__cause__, StoreClosed)

    told(story)


def test_a_door_is_entered_once_at_a_time() -> None:
    """A second ``async with`` on an open door is refused, and the first goes on."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        with pytest.raises(CallerError, match="open already"):
            await door.__aenter__()
        await granted(journal, door, "a")

    told(story)


class Wall(VirtualTimer):
    """A wall clock that can be set, beside a steady one."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """As set."""
        return super().now_ms() + self.ahead_ms

    def elapsed_ms(self) -> int:
        """Unmoved by that."""
        return super().now_ms()


def test_h2_a_wall_clock_that_was_set_ahead_and_back() -> None:
    """The journal's time goes on by what a steady clock measures: it neither goes back nor stands still."""
    wall = Wall(1_000)
    clock = SteadyClock(wall)
    assert clock.now_ms() == 1_000
    wall.ahead_ms = 3_600_000
    assert clock.now_ms() == 3_601_000
    wall.ahead_ms = 0
    assert clock.now_ms() == 3_601_000
    wall.advance(500)
    assert clock.now_ms() == 3_601_500
    assert clock.now_ms(floor_ms=4_000_000) == 4_000_000
    wall.advance(7)
    assert clock.now_ms() == 4_000_007


def test_h2_the_steady_clock_never_leads_the_wall() -> None:
    """While nobody sets the wall clock the journal's time is the wall's, to the millisecond, however often it is read."""

    class Fine(SystemTimer):
        ms = 1_000.9

        def now_ms(self) -> int:
            return int(self.ms)

        def elapsed_ms(self) -> float:
            return self.ms - 0.95

    timer = Fine()
    clock = SteadyClock(timer)
    for _ in range(1_000):
        timer.ms += 0.3
        assert clock.now_ms() == int(timer.ms)


def test_h2_holds_expire_after_the_wall_clock_was_set_back(tmp_path: Path) -> None:
    """A hold expires in its time, and no late approval counts, although one write came under a clock set ahead."""

    class Ahead(SystemTimer):
        ahead_ms = 3_600_000

        def now_ms(self) -> int:
            return super().now_ms() + self.ahead_ms

    timer = Ahead()

    async def main() -> None:
        async with SqliteJournal(tmp_path / "j.db", timer) as journal, Door(journal, HoldPolicy(hold_ms=300)) as door:
            await add_key(journal, "k", "x", by="root")  # a write
            timer.ahead_ms = 0
            with pytest.raises(HoldExpired):
                await asyncio.wait_for(door.ask(["x"]), 10)

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [["r"] * 1_001, ["x" * 100_001]])
def test_a_hold_is_no_larger_than_a_person_can_judge(wrong: list[str]) -> None:
    """Too many requests, and one that is too long, are refused before anything is written."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        with pytest.raises(CallerError, match="give"):
            await door.ask(wrong)
        assert await journal.newest() == 1

    told(story)


def test_h5_all_refusals_of_a_batch_are_told_at_once() -> None:
    """However many requests are refused, their caller is told after one append, and each is on record."""
    appends = 0

    async def story(journal: MemoryJournal, door: Door) -> None:
        nonlocal appends
        task, hold_id = await asked(journal, door, *["r"] * 1_000)

        async def count(name: str) -> None:
            nonlocal appends
            appends += name == "append.before"

        journal.hook = count
        await reject(journal, hold_id, by="ada")
        with pytest.raises(HoldRefused):
            await task
        facts = await journal.facts(hold_id=hold_id, limit=2_000)
        assert [fact.body["index"] for fact in facts if fact.type == "caller.told"] == list(range(1_000))

    told(story)
    assert appends == 2


def test_coalescing_stops_at_a_full_hold() -> None:
    """A group that would grow too large is sent as it is, and another one is begun; a door that closes ends both."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def main() -> None:
        async with Door(journal, debounce_ms=100) as door:
            tasks = [asyncio.create_task(door.ask(["r"] * 600, caller="c")) for _ in range(2)]
            await timer.pause(500)
            assert [len(held.requests) for held in await open_holds(journal)] == [600, 600]
            tasks += [asyncio.create_task(door.ask(["r"] * 600, caller="c")) for _ in range(2)]
            await timer.pause(50)
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(end, DoorClosed)

    run_virtual(main(), timer)


def test_a_hold_ends_within_what_its_caller_can_wait() -> None:
    """Parking refuses what can't be awaited: by the deadline itself, however long the journal was away."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        assert door.policy.hold_ms == 20_000
        with pytest.raises(PolicyError, match="19999 only"):
            await door.ask(["a"], horizon_ms=19_999)
        task = asyncio.create_task(door.ask(["a"], caller="c", horizon_ms=20_000))
        await journal.timer.pause(1)
        (held,) = await open_holds(journal)
        await approve(journal, held.hold_id, by="ada")
        await task

        async def slowly(name: str) -> None:
            if name == "append.before":
                await journal.timer.pause(500)

        journal.hook = slowly
        with pytest.raises(PolicyError, match="400 ms longer than its caller waits"):
            await door.ask(["b"], horizon_ms=20_100)
        journal.hook = None
        journal.down()
        with pytest.raises(JournalUnavailable):
            await door.ask(["c"], horizon_ms=21_000)
        journal.up()
        assert await open_holds(journal) == []

    told(story, policy=HoldPolicy(hold_ms=20_000), caller_lease_ms=300, reconcile_every_ms=10_000)


def test_grouping_keeps_keys_and_the_nameless_apart() -> None:
    """Requests with keys of their own, and those of nobody, are holds of their own, however close they come."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def main() -> None:
        async with Door(journal, debounce_ms=100) as door:
            asks = [door.ask(["a"], caller="c", key=key) for key in ("k", "l")]
            asks += [door.ask(["a"]) for _ in range(2)]
            asks += [door.ask(["a"], caller="c", horizon_ms=600_000) for _ in range(2)]
            tasks = [asyncio.create_task(ask) for ask in asks]
            await timer.pause(300)
            assert [len(held.requests) for held in await open_holds(journal)] == [1] * 6
        await asyncio.gather(*tasks, return_exceptions=True)

    run_virtual(main(), timer)


@pytest.mark.parametrize("index", [-1, 2])
def test_h1_no_release_of_an_index_that_is_none(index: int) -> None:
    """An index outside of the batch releases nothing, not the last one either."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a", "b")
        with pytest.raises(CallerError, match="give 0 to 1"):
            await door.release(grant, index, effect)
        assert "release.started" not in [fact.type for fact in await journal.facts()]

    told(story)


def test_h6_a_decision_sent_again_under_its_key_is_the_same() -> None:
    """A lost acknowledgement of a decision is repeated with its key, and is no second decision."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a")
        journal.unacknowledged = 1
        with pytest.raises(JournalUnavailable):
            await decide(journal, hold_id, [True], "ada", key="once")
        assert (await decide(journal, hold_id, [True], "ada", key="once")).by == "ada"
        assert (await task).approved == (True,)

    told(story)


@pytest.mark.parametrize(("signature", "key_id"), [("signed", ""), ("", "k"), ("signed", "k")])
def test_h11_half_a_signature_is_none(signature: str, key_id: str) -> None:
    """A signature without a key's name, a name without a signature, and both at a journal that verifies nothing."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a")
        with pytest.raises(DecisionForged):
            await decide(journal, hold_id, [True], "ada", "", signature, key_id)
        await approve(journal, hold_id, by="ada")
        await task

    told(story)


def test_h12_a_caller_that_could_not_come_back_is_not_waited_for() -> None:
    """An attach that fails leaves nobody behind: the hold is abandoned once the lease of its caller has lapsed."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        async def fails(name: str) -> None:
            if name.startswith("append"):
                raise StoreUnavailable("not now")

        journal.hook = fails
        with pytest.raises(StoreUnavailable):
            await door.attach(hold_id)
        journal.hook = None
        await journal.timer.pause(5_000)
        held = (await journal.read(hold_id)).held
        assert held is not None
        assert held.hold.fact is Fact.ABANDONED

    told(story, caller_lease_ms=1_000)


def test_a_hold_with_a_release_under_way_is_not_forgotten() -> None:
    """While an effect runs, a second call of release joins it, however often the door has reconciled meanwhile."""
    calls = 0

    async def story(journal: MemoryJournal, door: Door) -> None:
        grant = await granted(journal, door, "a")
        done = asyncio.Event()

        async def slow(release_id: str) -> str:
            nonlocal calls
            calls += 1
            await done.wait()
            return release_id

        first = asyncio.create_task(door.release(grant, 0, slow))
        await journal.timer.pause(60_000)
        second = asyncio.create_task(door.release(grant, 0, slow))
        await journal.timer.pause(1)
        done.set()
        assert {await first, await second} == {f"{grant.hold_id}/0"}

    told(story)
    assert calls == 1


@pytest.mark.parametrize("point", ["unfinished.before", "read.before"])
def test_h9_a_door_opens_although_the_journal_goes_away_meanwhile(point: str) -> None:
    """A journal that becomes unavailable between claim and reconciliation keeps no door from opening."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def away_at(name: str) -> None:
        if name == point:
            journal.down()

    async def main() -> None:
        async with Door(journal, debounce_ms=None) as door:
            task, hold_id = await asked(journal, door, "a")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        journal.hook = away_at
        async with Door(journal, debounce_ms=None) as door:
            assert not journal.is_up
            journal.hook = None
            await timer.pause(300)
            journal.up()
            coming = asyncio.create_task(door.attach(hold_id))
            await timer.pause(100)
            await approve(journal, hold_id, by="ada")
            assert (await coming).approved == (True,)

    run_virtual(main(), timer)


def test_a_door_that_fails_to_open_leaves_nothing_behind() -> None:
    """A fault of the journal while the door reconciles is raised, and no task of the door lives on."""
    timer = VirtualTimer()
    journal = MemoryJournal(timer)

    async def breaks(name: str) -> None:
        if name == "unfinished.before":
            raise StoreUnavailable("not now")

    async def main() -> None:
        journal.hook = breaks
        door = Door(journal)
        with pytest.raises(StoreUnavailable):
            await door.__aenter__()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        journal.hook = None
        async with door:
            await granted(journal, door, "a")

    run_virtual(main(), timer)


def test_unavailability_names_the_hold() -> None:
    """Whoever is told that the journal is away is told of which hold, to come back to."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        journal.down()
        with pytest.raises(JournalUnavailable) as asking:
            await door.ask(["a"])
        assert asking.value.hold_id
        journal.up()
        task, hold_id = await asked(journal, door, "b")
        journal.down()
        with pytest.raises(JournalUnavailable) as waiting:
            await task
        assert waiting.value.hold_id == hold_id

    told(story, policy=HoldPolicy(hold_ms=2_000), park_patience_ms=1_000)


@pytest.mark.parametrize("failure", [StoreUnavailable("not now"), StoreClosed("gone"), ZeroDivisionError()])
def test_every_caller_is_told_what_its_wait_met(failure: Exception) -> None:
    """A wait that fails for good tells each of its callers the same error, not that the hold has ended."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, hold_id = await asked(journal, door, "a")
        second = asyncio.create_task(door.attach(hold_id))
        await journal.timer.pause(10)

        async def fails(name: str) -> None:
            if name == "wait.before":
                raise failure

        journal.hook = fails
        await journal.append(hold_id, touched)
        ends = await asyncio.gather(task, second, return_exceptions=True)
        assert list(ends) == [failure, failure]
        journal.hook = None

    told(story)


def touched(moment: Moment) -> Written:
    """A fact that decides nothing."""
    assert moment.held is not None
    return Written(moment.held, (Entry("noted"),))


def test_a_journal_that_is_closed_under_an_open_door(caplog: pytest.LogCaptureFixture) -> None:
    """The door gives up: whoever waits is told why, once, and it is not tried again for ever."""

    async def story(journal: MemoryJournal, door: Door) -> None:
        task, _ = await asked(journal, door, "a")
        await journal.close()
        await journal.timer.pause(60_000)
        with pytest.raises(StoreClosed):
            await task

    told(story)
    assert caplog.records == []
