"""What the reference implementation writes passes the audit, whatever happens to it; known-bad designs don't.

Random walks of the machines are told by the implementation's own writers of events; holds and requests are served for
real, in virtual time, by doors and incarnations that die, on journals that are away.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import attrs
import pytest

from deadreckon.impl import DecisionRefused, Door, JournalUnavailable, decide, open_holds
from deadreckon.impl.events import Emitter, Event
from deadreckon.impl.hold_journal import Json
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.incident_events import IncidentEvents, TurnEvents
from deadreckon.impl.keepalive_events import HostEvents
from deadreckon.impl.request import Requests
from deadreckon.impl.request_store import MemoryRequests
from deadreckon.impl.request_words import RequestAttempt, RequestEnd
from deadreckon.impl.virtual import VirtualTimer, run_virtual
from deadreckon.models.audit import Audit, Filters, Report, audit
from deadreckon.models.audit.words import Line
from deadreckon.spec import Machine, Refused
from deadreckon.spec.hold_state import HoldPolicy, Wait
from deadreckon.spec.hold_state import State as HoldState
from deadreckon.spec.incident_state import RecoveryPolicy
from deadreckon.spec.incident_state import State as IncidentState
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy
from deadreckon.spec.keepalive_state import State as HostState
from deadreckon.spec.machines import hold, incident, keepalive
from deadreckon.spec.request_state import RequestPolicy
from tests.cover.test_audit_run import check

LIMITED = RecoveryPolicy(max_interrupted_attempts=3)
HOSTS = KeepalivePolicy(ladder_ms=(10, 60, 300, 1_800), plateau_ms=21_600, lead_ms=10, wedge_ms=900)
HOLDS = HoldPolicy(hold_ms=20_000, slice_ms=5_000, release_grace_ms=3_000)
ASKS = RequestPolicy(horizon_ms=100_000, floor_ms=5_000, retry_backoff_ms=1_000, retry_backoff_max_ms=8_000)

Heard = list[Event]
Tell = Callable[[str, object, object], None]
"""Told of each step: the action, and the states before and after."""


def limits(machine: str, policy: attrs.AttrsInstance) -> Line:
    """The first line of a log."""
    return {"type": "policy", "machine": machine, **attrs.asdict(policy)}


def judged(machine: str, policy: attrs.AttrsInstance, heard: Heard) -> Report:
    """What an audit finds."""
    report = audit([("log", [(0, limits(machine, policy)), *enumerate(map(dict, heard), 1)])])
    assert not report.malformed
    assert not report.not_followed
    return report


def clean(report: Report) -> None:
    """Nothing may be violated."""
    assert [(one.rule, one.line, one.happened) for one in report.violations] == []


def walk(machine: Machine, policy: object, seed: int, weights: Mapping[str, float], tell: Tell) -> None:
    """So many random steps."""
    chance = random.Random(seed)
    calls = [(one, machine.signature(one.function)) for one in machine.actions if weights.get(one.name, 2) > 0]
    state = machine.initial[0]()
    for _ in range(70):
        possible: dict[str, list[object]] = {}
        for action, signature in calls:
            for inputs in action.instances():
                if action.name == "tick":
                    inputs = {"elapsed_ms": chance.choice((1, 5, 10, 50, 300))}
                with suppress(Refused):
                    after = action.function(*signature.arguments(policy, (state,), None, inputs))
                    possible.setdefault(action.name, []).append(after)
        name = chance.choices(list(possible), [weights.get(one, 2) for one in possible])[0]
        after = chance.choice(possible[name])
        tell(name, state, after)
        state = after


LIKELY = {"tick": 1, "progress": 1, "call_from_the_dead": 1, "begin": 5, "sync": 6}
PARKED = {
    "tick": 0.2, "progress": 0.2, "call_from_the_dead": 0.2, "end_original": 0.3, "sweep": 0.2, "finish": 0.5,
    "park": 9, "unpark": 9, "start_work": 9, "boot": 9, "sync": 8, "replay": 6, "begin": 5, "deploy": 0.5,
}  # fmt: skip
"""Walks in which much is parked and unparked at the limit."""


def told_incident(machine: Machine, seed: int, weights: Mapping[str, float] = LIKELY) -> Heard:
    """A walk of an incident, as an incarnation tells it: what is durable once it is, a death by the next life."""
    heard: Heard = []
    events = IncidentEvents(heard.append)
    turn = TurnEvents("i", events)

    def tell(action: str, before: object, after: object) -> None:
        nonlocal turn, events
        assert isinstance(before, IncidentState)
        assert isinstance(after, IncidentState)
        if action in ("crash", "deploy"):
            heard.append({"at": 0, "type": "incarnation.died", "incarnation": before.incarnation})
            events = IncidentEvents(heard.append, attempts=events.attempts)
            turn = TurnEvents("i", events)
        elif action == "sync":
            events.durable(events.mark())
        elif action not in ("tick", "call_from_the_dead"):
            turn.committed(action, before, after)
            if action == "begin":
                events.durable(events.mark())

    walk(machine, LIMITED, seed, weights, tell)
    return heard


def told_host(machine: Machine, seed: int) -> Heard:
    """A walk of a host, as its keeper tells it."""
    heard: Heard = []
    events = HostEvents("x", Emitter(heard.append, lambda: 0), "v1")

    def tell(action: str, before: object, after: object) -> None:
        assert isinstance(before, HostState)
        assert isinstance(after, HostState)
        events.committed(action, before, after)
        moved = after.record.armed_at_ms != before.record.armed_at_ms
        if moved or (action in ("fire", "arm") and after.alarm_at_ms != NEVER):
            events.armed(after, after.record.armed_at_ms)

    weights = {"tick": 4, "deploy": 0, "recreate": 0, "lose_alarm": 0.2, "reset": 0.3, "ask_to_stop": 0.3, "end": 0.5}
    walk(machine, HOSTS, seed, {**weights, "arm": 8, "act": 8, "report": 8, "fire": 8, "die": 1.5}, tell)
    return heard


def told_holds(seed: int) -> tuple[HoldPolicy, Heard]:
    """A walk of two holds under some policy, as their doors might tell it: each fact, wait, call and death."""
    heard: Heard = []
    chance = random.Random(seed)
    policy = HoldPolicy(
        hold_ms=chance.choice((300, 5_000, 600_000)),
        slice_ms=chance.choice((100, 5_000)),
        backoff_first_ms=chance.choice((1, 200)),
        backoff_max_ms=chance.choice((200, 5_000)),
        release_grace_ms=chance.choice((0, 3_000)),
        idempotent=chance.random() < 0.5,
    )

    def line(at_ms: int, type_: str, name: str, **fields: Json) -> None:
        heard.append({"at": at_ms, "type": type_, "hold": name, **fields})

    def tell(action: str, before: object, after: object) -> None:
        assert isinstance(before, HoldState)
        assert isinstance(after, HoldState)
        if action in ("crash", "boot"):
            line(after.now_ms, {"crash": "door.died", "boot": "door.booted"}[action], "")
        for name, old, new in zip("ab", before.holds, after.holds, strict=True):
            if old == new or action == "crash":
                continue
            write = partial(line, after.now_ms, name=name)
            if action == "decide":
                write(type_="hold.decided", verdicts=["approve" if yes else "reject" for yes in new.approved], by="ada")
            elif action in FACTS:
                write(type_=FACTS[action], deadline_at=new.deadline_at_ms, requests=2, error="availability")
            if action in ("ask", "ask_again", "adopt", "wake", "slice_ends") and new.wait is Wait.WAITING:
                write(type_="wait.armed", cursor=1)
            for index in range(2):
                if action in CALLS and old.calls[index] is not new.calls[index]:
                    write(type_=CALLS[action], index=index)
                if action in ("settle", "settle_unknown", "lapse") and old.releases[index] is not new.releases[index]:
                    write(type_="release.settled", index=index, outcome=new.releases[index].value)
                if old.told[index] is not new.told[index]:
                    write(type_="caller.told", index=index, outcome=new.told[index].value.replace(" ", "-"))

    rare = {"crash": 0.3, "journal_fails": 1, "detach": 0.3, "lose_track": 0.5, "decide": 0.4, "change_keys": 0}
    often = {"boot": 6, "tick": 6, "judge": 6, "start_release": 6, "call": 6, "settle": 6, "settle_unknown": 6}
    walk(hold, policy, seed, rare | often, tell)
    return policy, heard


FACTS = {
    "ask": "hold.requested", "expire": "hold.expired", "abandon": "hold.abandoned", "leave": "caller.gone",
    "wait_fails": "wait.failed", "judgement_fails": "wait.failed",
}  # fmt: skip
CALLS = {"start_release": "release.started", "call": "effect.called"}


@pytest.mark.parametrize("seed", range(60))
def test_walked_holds(seed: int) -> None:
    """Holds of the sound machine are accused of nothing under any policy, whichever type of line their log lacks."""
    policy, heard = told_holds(seed)
    for absent in ("", "wait.armed", "wait.failed", "effect.called", "release.started", "door.booted", "caller.told"):
        clean(judged("hold", policy, [line for line in heard if line["type"] != absent]))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("machine", ["incident", "parked", "keepalive"])
def test_the_run_that_explains_a_walk(machine: str, seed: int) -> None:
    """Whatever was walked, the audit finds a run of the machine that explains it, each step of which is a real one."""
    heard = {
        "incident": lambda: told_incident(incident, seed),
        "parked": lambda: told_incident(incident, seed, PARKED),
        "keepalive": lambda: told_host(keepalive, seed),
    }[machine]()
    work = Audit(Filters(entities=frozenset({"i", "x"})), run=True)
    first = limits("keepalive", HOSTS) if machine == "keepalive" else limits("incident", LIMITED)
    work.read(enumerate([first, *map(dict, heard)]), "log")
    found = work.end().run
    assert found is not None
    check(found)
    assert {step.line for step in found.steps} <= set(range(len(heard) + 1))


@pytest.mark.parametrize("seed", range(60))
def test_incidents(seed: int) -> None:
    """An incident of the sound machine is accused of nothing."""
    clean(judged("incident", LIMITED, told_incident(incident, seed)))


@pytest.mark.parametrize("seed", [*range(20), 120, 243, 297])
def test_parked_incidents(seed: int) -> None:
    """C4, C8: work that a parking allows is told after it, though it starts before the parking is durable."""
    clean(judged("incident", LIMITED, told_incident(incident, seed, PARKED)))


@pytest.mark.parametrize("seed", range(40))
def test_hosts(seed: int) -> None:
    """A host of the sound machine is accused of nothing."""
    clean(judged("keepalive", HOSTS, told_host(keepalive, seed)))


@pytest.mark.parametrize(
    "name", ["count-per-entry", "heavy-before-sync", "debounce-skips-count", "sealed-callback-runs", "found-twice"]
)
def test_known_bad_incidents(name: str) -> None:
    """What a known-bad design writes is found out within a few walks, by the rule that refutes it."""
    variant = next(one for one in incident.variants if one.name == name)
    machine = incident.variant(name)
    rules = {
        one.rule for seed in range(25) for one in judged("incident", LIMITED, told_incident(machine, seed)).violations
    }
    assert variant.rule in rules


@pytest.mark.parametrize("name", ["return-clears", "count-in-host", "evidence-unkeyed"])
def test_known_bad_hosts(name: str) -> None:
    """What a known-bad design writes is found out within a few walks, by the rule that refutes it."""
    variant = next(one for one in keepalive.variants if one.name == name)
    machine = keepalive.variant(name)
    rules = {one.rule for seed in range(25) for one in judged("keepalive", HOSTS, told_host(machine, seed)).violations}
    assert variant.rule.rstrip("abc") in rules


async def an_effect(release_id: str) -> str:
    """Whatever was approved."""
    return release_id


async def fails(release_id: str) -> str:
    """Whatever was approved, and goes wrong."""
    raise ConnectionError(release_id)


async def hold_story(journal: MemoryJournal, heard: Heard, chance: random.Random) -> int:
    """Doors one after the other, callers, approvers, and a journal that is away now and then; how often was decided."""

    async def caller(door: Door) -> None:
        with suppress(Exception):
            grant = await door.ask(["a", "b"][: chance.randint(1, 2)], chance.choice((3_000, 12_000, 20_000)))
            for index in range(2):
                await journal.timer.pause(chance.choice((0, 100, 4_000)))
                with suppress(Exception):
                    await door.release(grant, index, chance.choice((an_effect, an_effect, fails)))

    decided = 0

    async def approver() -> None:
        nonlocal decided
        for held in await open_holds(journal):
            verdicts = [chance.random() < 0.7 for _ in held.hold.approved]
            with suppress(DecisionRefused, JournalUnavailable):
                await decide(journal, held.hold_id, verdicts, by="ada", sink=heard.append)
                decided += 1

    for _ in range(3):
        settings = {"caller_lease_ms": 2_000, "reconcile_every_ms": 1_000}
        with suppress(JournalUnavailable):
            async with Door(journal, HOLDS, debounce_ms=None, sink=heard.append, **settings) as door:
                tasks = []
                for _ in range(12):
                    tasks.append(asyncio.create_task(caller(door) if chance.random() < 0.6 else approver()))
                    await journal.timer.pause(chance.choice((1, 50, 700, 3_000)))
                    if chance.random() < 0.2:
                        journal.down()
                        await journal.timer.pause(chance.choice((10, 400, 2_500)))
                        journal.up()
                    if chance.random() < 0.2 and tasks:
                        chance.choice(tasks).cancel()
                await journal.timer.pause(chance.choice((0, 30_000)))
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [end for end in ends if isinstance(end, AttributeError | TypeError)] == []
    return decided


@pytest.mark.parametrize("seed", range(25))
def test_holds(seed: int) -> None:
    """Whatever doors, callers, approvers and the journal go through, the log of it is accused of nothing."""
    timer, heard = VirtualTimer(), []  # type: ignore[var-annotated]  # of events
    run_virtual(hold_story(MemoryJournal(timer), heard, random.Random(seed)), timer)
    assert len(heard) > 20
    clean(judged("hold", HOLDS, heard))


async def request_story(store: MemoryRequests, timer: VirtualTimer, heard: Heard, chance: random.Random) -> None:
    """Incarnations one after the other, and attempts that answer, fail or hang."""

    async def attempt(told: RequestAttempt) -> str:
        await timer.pause(chance.choice((0, 10, 3_000, 200_000)))
        if chance.random() < 0.5:
            raise ConnectionError
        return "done"

    async def caller(requests: Requests, name: str) -> None:
        with suppress(RequestEnd, Exception):
            await requests.run(name, attempt)

    for life in range(3):
        async with Requests(store, ASKS, timer, on_outcome=lambda view: None, sink=heard.append) as requests:
            tasks = []
            for number in range(4):
                name = f"r{chance.randrange(8)}"
                await requests.open(name, "a body")
                tasks.append(asyncio.create_task(caller(requests, name)))
                await timer.pause(chance.choice((1, 1_000, 30_000)) * (life + number))
        await asyncio.gather(*tasks, return_exceptions=True)
        await timer.pause(chance.choice((0, 300_000)))


@pytest.mark.parametrize("seed", range(25))
def test_requests(seed: int) -> None:
    """Whatever happens to incarnations and attempts, the log of it is accused of nothing."""
    timer, heard = VirtualTimer(), []  # type: ignore[var-annotated]  # of events
    run_virtual(request_story(MemoryRequests(), timer, heard, random.Random(seed)), timer)
    assert len(heard) > 5
    clean(judged("request", ASKS, heard))
