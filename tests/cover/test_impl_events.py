"""The one optional sink: each story as the exact sequence of its lines; and a sink never changes a story."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from deadreckon.impl import (
    DecisionSecond,
    Door,
    Event,
    EventLog,
    HoldAbandoned,
    HoldExpired,
    Journal,
    JournalUnavailable,
    Kind,
    Recovery,
    Sealed,
    SqliteJournal,
    SqliteStore,
    Store,
    approve,
    decide,
    open_holds,
)
from deadreckon.impl.clock import VirtualClock
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.incident_memory import MemoryStore
from deadreckon.impl.testing import Died
from deadreckon.impl.virtual import START_MS, VirtualTimer, run_virtual
from deadreckon.spec.errors import CallerError
from deadreckon.spec.hold_state import HoldPolicy
from deadreckon.spec.incident_state import RecoveryPolicy

POLICY = HoldPolicy(hold_ms=20_000, slice_ms=5_000, release_grace_ms=3_000)
VOCABULARY = {
    "turn.started", "attempt.admitted", "attempt.refused", "work.started", "attempt.finished", "incident.parked",
    "incident.unparked", "incident.closed", "record.swept", "incident.sealed", "terminal.delivered", "incarnation.died",
    "hold.requested", "hold.decided", "hold.expired", "hold.abandoned", "release.started", "effect.called",
    "release.settled", "caller.told", "caller.gone", "wait.armed", "wait.failed", "door.died", "door.booted",
}  # fmt: skip
"""The types of the two machines, in the vocabulary of logs: none but these is told, and none is seen in no story."""


class Heard(list[Event]):
    """A sink that remembers."""

    def __call__(self, event: Event) -> None:
        self.append(event)
        assert event["type"] in VOCABULARY

    def words(self, *, at: bool = False) -> list[str]:
        """One line of words for each event: its type and fields; the hold, the offset and the time left out."""
        return [words(event, at=at) for event in self]


def words(event: Mapping[str, object], *, at: bool = False) -> str:
    """The type and the fields of an event, in their order."""
    left_out = {"type", "hold", "offset"} | (set() if at else {"at"})
    fields = {name: value for name, value in event.items() if name not in left_out}
    if at:
        fields["at"] = int(str(fields["at"])) - START_MS
    return " ".join([str(event["type"]), *(f"{name}={said(value)}" for name, value in fields.items())])


def said(value: object) -> str:
    """A field's value."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    timer = VirtualTimer()
    made: Journal = MemoryJournal(timer) if request.param == "memory" else SqliteJournal(tmp_path / "j.db", timer)
    yield made
    asyncio.run(made.close())


def told(journal: Journal, story: Coroutine[object, object, None]) -> None:
    """Run a story in the journal's time."""
    assert isinstance(journal.timer, VirtualTimer)
    run_virtual(story, journal.timer)


def a_door(journal: Journal, sink: Heard | EventLog | None, **settings: int) -> Door:
    """A door that tells."""
    return Door(journal, POLICY, debounce_ms=None, sink=sink, **settings)


async def waiting(journal: Journal) -> str:
    """The hold that waits."""
    while not (found := await open_holds(journal)):
        await journal.timer.pause(1)
    return found[0].hold_id


async def effect(release_id: str) -> str:
    return release_id


async def refuses(release_id: str) -> str:
    raise ConnectionError(release_id)


def test_hold_mixed_batch(journal: Journal) -> None:
    """One is approved and one refused: each fact once it is durable, the effect between its mark and its outcome."""
    heard = Heard()

    async def story() -> None:
        async with a_door(journal, heard) as door:
            task = asyncio.create_task(door.ask(["secret a", "secret b"]))
            await approve(journal, hold := await waiting(journal), by="ada", indexes=[0], reason="why not")
            with pytest.raises(DecisionSecond):
                await decide(journal, hold, [True, True], "bob", sink=heard)
            grant = await task
            await door.release(grant, 0, effect)
            assert {event["hold"] for event in heard[1:]} == {hold}

    told(journal, story())
    by_bob = "hold.decided verdicts=approve,approve by=bob accepted=False"
    assert [line for line in heard.words() if line != by_bob] == [
        "door.booted door=1",
        f"hold.requested deadline_at={START_MS + POLICY.hold_ms} requests=2",
        "wait.armed cursor=2",
        "hold.decided verdicts=approve,reject by=ada",
        "caller.told index=1 outcome=refused",
        "release.started index=0",
        "effect.called index=0",
        "release.settled index=0 outcome=ok",
        "caller.told index=0 outcome=ok",
    ]
    assert by_bob in heard.words()
    assert "secret" not in json.dumps([dict(event) for event in heard])
    with pytest.raises(TypeError):
        heard[0]["at"] = 0  # type: ignore[index]  # that it can't be changed is the point


def test_hold_effect_fails(journal: Journal) -> None:
    """An effect that fails is settled as an error, and its caller told so."""
    heard = Heard()

    async def story() -> None:
        async with a_door(journal, heard) as door:
            task = asyncio.create_task(door.ask(["a"]))
            await approve(journal, await waiting(journal), by="ada")
            with pytest.raises(ConnectionError):
                await door.release(await task, 0, refuses)

    told(journal, story())
    assert heard.words()[-3:] == [
        "effect.called index=0",
        "release.settled index=0 outcome=error",
        "caller.told index=0 outcome=error",
    ]


def test_hold_expiry(journal: Journal) -> None:
    """A wait is armed slice by slice from the same cursor; the expiry is told before the caller is."""
    heard = Heard()

    async def story() -> None:
        async with a_door(journal, heard) as door:
            with pytest.raises(HoldExpired):
                await door.ask(["a"], 12_000)

    told(journal, story())
    assert heard.words(at=True) == [
        "door.booted at=0 door=1",
        f"hold.requested at=0 deadline_at={START_MS + 12_000} requests=1",
        "wait.armed at=0 cursor=2",
        "wait.armed at=5000 cursor=2",
        "wait.armed at=10000 cursor=2",
        "hold.expired at=12000",
        "caller.told at=12000 index=0 outcome=expired",
    ]


def test_hold_abandoned(journal: Journal) -> None:
    """A caller that is cut off is gone after its lease, and its hold is abandoned."""
    heard = Heard()

    async def story() -> None:
        async with a_door(journal, heard, caller_lease_ms=300, reconcile_every_ms=100) as door:
            task = asyncio.create_task(door.ask(["a"]))
            hold = await waiting(journal)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await journal.timer.pause(600)
            with pytest.raises(HoldAbandoned):
                await door.attach(hold)

    told(journal, story())
    assert heard.words()[3:] == ["caller.gone", "hold.abandoned"]


def test_hold_journal_away_and_armed_again() -> None:
    """H8, H9, H10: an outage is told as it happens; the wait is armed again from the same cursor, after its backoff."""
    journal, heard = MemoryJournal(VirtualTimer()), Heard()

    async def story() -> None:
        async with a_door(journal, heard) as door:
            task = asyncio.create_task(door.ask(["a"]))
            hold = await waiting(journal)
            await journal.timer.pause(999)
            journal.down()
            await journal.timer.pause(500)
            assert heard.words()[-1] == "wait.failed error=availability"
            journal.up()
            await journal.timer.pause(500)
            await approve(journal, hold, by="ada")
            await door.release(await task, 0, effect)

    told(journal, story())
    assert heard.words(at=True)[2:] == [
        "wait.armed at=0 cursor=2",
        "wait.failed at=1000 error=availability",
        "wait.armed at=1200 cursor=2",
        "wait.failed at=1200 error=availability",
        "wait.armed at=1600 cursor=2",
        "hold.decided at=2000 verdicts=approve by=ada",
        "release.started at=2000 index=0",
        "effect.called at=2000 index=0",
        "release.settled at=2000 index=0 outcome=ok",
        "caller.told at=2000 index=0 outcome=ok",
    ]


def test_hold_wait_that_fails_otherwise() -> None:
    """A wait that fails for another reason than an outage is told as such."""
    journal, heard = MemoryJournal(VirtualTimer()), Heard()

    async def break_waits(name: str) -> None:
        if name == "wait.before":
            raise ZeroDivisionError

    async def story() -> None:
        async with a_door(journal, heard) as door:
            journal.hook = break_waits
            with pytest.raises(ZeroDivisionError):
                await door.ask(["a"])
            journal.hook = None

    told(journal, story())
    assert heard.words()[3] == "wait.failed error=other"


def test_hold_an_effect_is_never_told_before_its_mark() -> None:
    """H4: if the journal can't be read back, the lines that follow wait for those of the facts before them."""
    journal, heard = MemoryJournal(VirtualTimer()), Heard()
    unreadable = False

    async def hide(name: str) -> None:
        if name == "facts.before" and unreadable:
            raise JournalUnavailable("not now")

    async def story() -> None:
        nonlocal unreadable
        async with a_door(journal, heard) as door:
            journal.hook = hide
            task = asyncio.create_task(door.ask(["a", "b"]))
            await approve(journal, await waiting(journal), by="ada")
            grant = await task
            unreadable = True
            await door.release(grant, 0, effect)
            assert heard.words()[-1].startswith("hold.decided")
            unreadable = False
            await door.release(grant, 1, effect)

    told(journal, story())
    assert [line for line in heard.words()[4:] if not line.startswith("caller")] == [
        "release.started index=0",
        "effect.called index=0",
        "release.settled index=0 outcome=ok",
        "release.started index=1",
        "effect.called index=1",
        "release.settled index=1 outcome=ok",
    ]


def test_hold_log_goes_on_at_the_next_door(journal: Journal, tmp_path: Path) -> None:
    """The next door tells what its log lacks, that the earlier one died, and then what it does itself."""
    path = tmp_path / "log.jsonl"

    async def first() -> None:
        with EventLog(path, policy=POLICY) as log:
            async with a_door(journal, log) as door:
                task = asyncio.create_task(door.ask(["a"]))
                await waiting(journal)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def between() -> None:
        await approve(journal, await waiting(journal), by="ada")
        async with a_door(journal, None):
            pass

    async def second() -> None:
        with EventLog(path, policy=POLICY) as log:
            async with a_door(journal, log) as door:
                (held,) = await journal.unfinished()
                await door.release(await door.attach(held.hold_id), 0, effect)

    for story in (first, between, second):
        told(journal, story())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"type": "policy", "machine": "hold", "hold_ms": 20_000, "slice_ms": 5_000,
                        "backoff_first_ms": 200, "backoff_max_ms": 5_000, "release_grace_ms": 3_000,
                        "idempotent": False}  # fmt: skip
    assert [words(line) for line in lines[1:]] == [
        "door.booted door=1",
        f"hold.requested deadline_at={START_MS + POLICY.hold_ms} requests=1",
        "wait.armed cursor=2",
        "hold.decided verdicts=approve by=ada",
        "door.died door=1",
        "door.booted door=2",
        "door.died door=2",
        "door.booted door=3",
        "release.started index=0",
        "effect.called index=0",
        "release.settled index=0 outcome=ok",
        "caller.told index=0 outcome=ok",
    ]
    offsets = [line["offset"] for line in lines if "offset" in line]
    assert offsets == list(range(1, len(offsets) + 1))
    assert {line["type"] for line in lines[1:]} <= VOCABULARY


def test_hold_log_of_another_journal(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A log that is ahead of the journal is of another one: that is said, and the door tells from its own boot on."""
    journal, path = MemoryJournal(VirtualTimer()), tmp_path / "log.jsonl"
    path.write_text('{"at":1,"type":"door.booted","door":7,"offset":99}\n')

    async def story() -> None:
        with EventLog(path) as log:
            async with a_door(journal, log):
                pass

    told(journal, story())
    assert "of another journal" in caplog.text
    assert path.read_text().splitlines()[1:] == [f'{{"at":{START_MS},"type":"door.booted","door":1,"offset":1}}']


def test_hold_sink_that_joins_late(journal: Journal) -> None:
    """A sink that can't say how far it is hears what happens from its door's boot on."""
    heard = Heard()

    async def story() -> None:
        async with a_door(journal, None):
            pass
        async with a_door(journal, heard):
            pass

    told(journal, story())
    assert heard.words() == ["door.booted door=2"]


class Breaks:
    """A sink that raises at every event but the first few."""

    def __init__(self, good: int) -> None:
        self.good = good
        self.calls = 0

    def __call__(self, event: Event) -> None:
        self.calls += 1
        if self.calls > self.good:
            raise OSError("disk full")


@pytest.mark.parametrize("good", range(8))
def test_a_sink_that_raises_changes_nothing(
    good: int, journal: Journal, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever the sink breaks, effect and caller are served; it is warned of once, and the sink not called again."""
    sink, calls = Breaks(good), 0

    async def counted(release_id: str) -> None:
        nonlocal calls
        calls += 1

    async def story() -> None:
        async with Door(journal, POLICY, debounce_ms=None, sink=sink) as door:
            task = asyncio.create_task(door.ask(["a"]))
            await approve(journal, await waiting(journal), by="ada")
            await door.release(await task, 0, counted)
        async with SqliteStore(tmp_path / "t.db") as store, Recovery(store, sink=Breaks(good)) as recovery:
            await recovery.attempt("t").__aenter__()

    with caplog.at_level(logging.WARNING, "deadreckon.events"):
        told(journal, story())
    assert calls == 1
    warnings = [record for record in caplog.records if record.name == "deadreckon.events"]
    assert sink.calls == min(good + 1, 8)
    assert len(warnings) == (good < 8) + (good < 1)


# The incident.


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "turns.db")
    yield made
    asyncio.run(made.close())


LIMITED = RecoveryPolicy(max_interrupted_attempts=2)


async def dies(store: Store, sink: Heard, policy: RecoveryPolicy = LIMITED, kind: Kind = Kind.TURN) -> None:
    """A life that ends in the body."""
    with suppress(Died):
        async with Recovery(store, policy, VirtualClock(7), sink=sink) as recovery, recovery.attempt("t", kind=kind):
            raise Died


def test_incident_two_deaths_then_seal(store: Store) -> None:
    """Each death is told by the next life; the refusal, the terminal fact and the seal follow in that order."""
    heard = Heard()

    async def story() -> None:
        await dies(store, heard)
        await dies(store, heard)
        async with Recovery(store, LIMITED, VirtualClock(7), sink=heard) as recovery:
            for _ in range(2):
                with pytest.raises(Sealed):
                    await recovery.attempt("t").__aenter__()

    asyncio.run(story())
    assert heard.words() == [
        "turn.started incident=t incarnation=1",
        "incarnation.died incarnation=1",
        "attempt.admitted incident=t attempt=2/1 incarnation=2 kind=replay count=1",
        "work.started incident=t attempt=2/1 incarnation=2",
        "incarnation.died incarnation=2",
        "attempt.refused incident=t incarnation=3 count=2",
        "terminal.delivered incident=t",
        "incident.sealed incident=t reason=interrupted_attempts_exceeded count=2",
        "attempt.refused incident=t incarnation=3 count=2",
    ]
    assert {event["at"] for event in heard} == {7}


def test_incident_overlap_park_close_sweep(store: Store) -> None:
    """Attempts that overlap have names of their own; a person is waited for; the turn is closed and swept."""
    heard, clock = Heard(), VirtualClock(7)

    async def story() -> None:
        await dies(store, heard)
        async with Recovery(store, clock=clock, sink=heard) as recovery:
            async with recovery.attempt("t"):
                async with recovery.attempt("t", kind="callback") as callback:
                    callback.yield_()
                await recovery.park("t")
                await recovery.unpark("t")
            clock.advance(10_000_000)
            assert await recovery.sweep() == ["t"]

    asyncio.run(story())
    assert heard.words()[2:] == [
        "attempt.admitted incident=t attempt=2/1 incarnation=2 kind=replay count=1",
        "work.started incident=t attempt=2/1 incarnation=2",
        "attempt.admitted incident=t attempt=2/2 incarnation=2 kind=callback count=1",
        "work.started incident=t attempt=2/2 incarnation=2",
        "attempt.finished incident=t attempt=2/2 incarnation=2",
        "incident.parked incident=t",
        "incident.unparked incident=t",
        "attempt.finished incident=t attempt=2/1 incarnation=2",
        "incident.closed incident=t",
        "record.swept incident=t",
    ]


def test_incident_nothing_is_told_before_it_is_durable() -> None:
    """A commit whose sync fails is not told, until a later sync has made it durable."""
    store, heard = MemoryStore(), Heard()
    failing = False

    async def fail_syncs(name: str) -> None:
        if failing and name.startswith("sync"):
            raise OSError("the disk is away")

    async def story() -> None:
        nonlocal failing
        store.hook = fail_syncs
        async with Recovery(store, clock=VirtualClock(7), sink=heard) as recovery:
            failing = True
            with pytest.raises(OSError, match="away"):
                await recovery.attempt("t").__aenter__()
            assert heard == []
            failing = False
            async with recovery.attempt("u"):
                assert heard.words()[0] == "turn.started incident=t incarnation=1"

    asyncio.run(story())
    assert "turn.started incident=u incarnation=1" in heard.words()[1:]


# The file.


def test_log_cuts_a_torn_line(tmp_path: Path) -> None:
    """What a death left of a line is taken away, so that the log has whole lines alone."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"type":"a","offset":3}\n{"type":"b"}\n{"type":"c","off')
    with EventLog(path) as log:
        assert log.offset == 3
        log({"at": 1, "type": "d"})
    assert path.read_bytes() == b'{"type":"a","offset":3}\n{"type":"b"}\n{"at":1,"type":"d"}\n'


@pytest.mark.parametrize("torn", [b"", b"x" * 200_000])
def test_log_finds_its_offset_from_the_end(tmp_path: Path, torn: bytes) -> None:
    """The last offset is found however many lines without one follow, and however long the torn one is."""
    path = tmp_path / "log.jsonl"
    lines = b"".join(b'{"type":"wait.armed","hold":"h","cursor":%d}\n' % number for number in range(9_000))
    path.write_bytes(b'{"type":"a","offset":3}\n{"type":"b","offset":4}\n' + lines + torn)
    with EventLog(path) as log:
        assert log.offset == 4
    assert path.read_bytes().endswith(b":8999}\n")


def test_log_has_the_policy_first_and_once(tmp_path: Path) -> None:
    """A new file begins with the limits; one that is continued has them already."""
    path = tmp_path / "log.jsonl"
    for _ in range(2):
        with EventLog(path, policy=LIMITED) as log:
            assert log.offset == 0
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["max_interrupted_attempts"] == 2
    assert line.startswith('{"type":"policy","machine":"incident",')


def test_log_that_was_closed_or_never_opened(tmp_path: Path) -> None:
    """A closed log says what to do; a path that can't be opened is an error of the surroundings, at once."""
    log = EventLog(tmp_path / "log.jsonl")
    log.close()
    log.close()
    with pytest.raises(CallerError, match="after the machines"):
        log({"type": "x"})
    with pytest.raises(FileNotFoundError):
        EventLog(tmp_path / "no" / "log.jsonl")


def test_the_whole_vocabulary_is_written() -> None:
    """Every type of the two machines stands in a story above."""
    stories = Path(__file__).read_text(encoding="utf-8").split("seen in no story", 1)[1]
    assert {type_ for type_ in VOCABULARY if f'"{type_} ' not in stories and f'"{type_}"' not in stories} == set()
