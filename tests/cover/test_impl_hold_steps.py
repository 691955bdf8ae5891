"""Lockstep: the steps of a hold on a real journal, and the specification, never disagree."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import attrs
import pytest

from deadreckon.impl import Asked, Held, HoldSteps, JournalUnavailable, Key, KeyChange, NoSuchHold, boot_door
from deadreckon.impl.hold_journal import blank
from deadreckon.impl.hold_journal_memory import MemoryJournal
from deadreckon.impl.virtual import VirtualTimer
from deadreckon.spec import hold as spec
from deadreckon.spec.errors import Refused
from deadreckon.spec.hold_state import Evidence, Fact, Hold, HoldPolicy, State

POLICY = HoldPolicy(hold_ms=12, slice_ms=3, backoff_first_ms=1, backoff_max_ms=4, release_grace_ms=4)
ONLY = 0


class Pair:
    """One hold, twice: as the specification has it, and as door and journal have it."""

    def __init__(self, policy: HoldPolicy, decisive: bool) -> None:
        self.policy = policy
        self.decisive = decisive
        self.asked = Asked(("a", "b"), "run", "key", policy)
        self.timer = VirtualTimer(0)
        self.journal = MemoryJournal(self.timer, lambda ballot, signature, key: signature == "signed")
        self.keys = 0
        self.spec = State((blank(2),), door=1, alive=True, journal=1, up=True, key_active=False, now_ms=0)
        self.taken: list[str] = []

    async def begin(self) -> None:
        self.life = await boot_door(self.journal)
        held: Held | None = (await self.journal.read("h")).held
        self.steps = HoldSteps(self.journal, self.life, "h", self.policy, 1, held)

    def hold(self) -> Hold:
        """The hold as the implementation has it."""
        try:
            return self.steps.memory.on(self.journal.held("h").hold)
        except KeyError:
            return blank(2)

    async def both(self, name: str, move: Callable[[State], State], act: Callable[[], Awaitable[object]]) -> None:
        """Take an action on both sides: both do it, or both refuse it; then they agree."""
        try:
            after: State | None = move(self.spec)
        except Refused:
            after = None
        try:
            await act()
            acted = True
        except (Refused, NoSuchHold):
            acted = False
        except JournalUnavailable:
            acted = name == "ask, unacknowledged" and self.spec.up
        assert acted == (after is not None), f"{name} after {self.taken}"
        self.spec = after or self.spec
        self.taken.append(name)
        assert self.hold() == self.spec.holds[ONLY], f"{name} after {self.taken}"

    async def unacknowledged(self) -> None:
        self.journal.unacknowledged = 1
        try:
            await self.steps.ask(self.asked)
        finally:
            self.journal.unacknowledged = 0

    async def die(self) -> None:
        spec.crash(self.spec)
        self.life.alive = False
        told = self.spec.holds[ONLY].told
        self.steps.memory = attrs.evolve(type(self.steps.memory).of(blank(2)), told=told)

    async def reborn(self) -> None:
        spec.boot(self.spec)
        told = self.steps.memory.told
        await self.begin()
        self.steps.memory = attrs.evolve(type(self.steps.memory).of(blank(2)), told=told)


Action = Callable[[Pair, random.Random], Awaitable[None]]


async def waits(pair: Pair, chance: random.Random) -> None:
    """What the door does about its wait."""
    policy, steps = pair.policy, pair.steps
    name, move, act = chance.choice(
        (
            ("ask", lambda state: spec.ask(policy, state, ONLY, True), lambda: steps.ask(pair.asked)),
            ("ask, unacknowledged", lambda state: spec.ask(policy, state, ONLY, False), pair.unacknowledged),
            ("slice_ends", lambda state: spec.slice_ends(policy, state, ONLY), steps.slice_ends),
            ("wait_fails", lambda state: spec.wait_fails(policy, state, ONLY), steps.wait_fails),
            ("wake", lambda state: spec.wake(policy, state, ONLY), steps.wake),
            ("judge", lambda state: spec.judge(state, ONLY, ONLY), steps.judge),
            ("stop_waiting", lambda state: spec.stop_waiting(state, ONLY), steps.stop_waiting),
            ("adopt", lambda state: spec.adopt(policy, state, ONLY), steps.adopt),
            ("expire", lambda state: spec.expire(state, ONLY), steps.expire),
            ("abandon", lambda state: spec.abandon(state, ONLY), steps.abandon),
        )
    )
    asking = pair.spec.holds[ONLY].wait.value == "asking"
    parked = pair.spec.holds[ONLY].fact is not Fact.ABSENT
    if name.startswith("ask") and (asking or parked or not pair.spec.alive):
        if not asking or name != "ask":
            return  # a caller asks once; the door asks again
        name, move, act = "ask_again", lambda state: spec.ask_again(policy, state, ONLY), act
    await pair.both(name, move, act)


async def releases(pair: Pair, chance: random.Random) -> None:
    """What the door does about a release."""
    policy, steps, at = pair.policy, pair.steps, chance.randrange(2)
    succeeds = chance.random() < 0.7
    name, move, act = chance.choice(
        (
            ("start", lambda state: spec.start_release(policy, state, ONLY, at), lambda: steps.start_release(at)),
            ("call", lambda state: spec.call(policy, state, ONLY, at), lambda: steps.call(at)),
            ("answer", lambda state: spec.answer(state, ONLY, at, succeeds), lambda: steps.answer(at, succeeds)),
            ("lose_track", lambda state: spec.lose_track(state, ONLY, at), lambda: steps.lose_track(at)),
            ("settle", lambda state: spec.settle(state, ONLY, at), lambda: steps.settle(at)),
            ("unknown", lambda state: spec.settle_unknown(policy, state, ONLY, at), lambda: steps.settle_unknown(at)),
            ("lapse", lambda state: spec.lapse(policy, state, ONLY, at), lambda: steps.lapse(at)),
            ("tell", lambda state: spec.tell(state, ONLY, at), lambda: steps.tell(at)),
        )
    )
    if name == "tell" and not pair.spec.up:
        return  # the door may know less than the journal then
    await pair.both(name, move, act)


async def outside(pair: Pair, chance: random.Random) -> None:
    """Approvers, callers, keys, deaths, the journal, and time."""
    steps, state = pair.steps, pair.spec
    verdicts = (chance.random() < 0.8, chance.random() < 0.8)
    evidence = chance.choice(list(Evidence))
    elapsed_ms = chance.randint(1, 2)

    async def keys() -> None:
        if not state.key_active:
            pair.keys += 1
        key = Key(f"k{pair.keys}", "p")
        await pair.journal.change_key(KeyChange(key, not state.key_active, "root", "signed", key.key_id))

    async def on(what: Callable[[], None]) -> None:
        what()

    async def tick() -> None:
        spec.tick(pair.policy, state, elapsed_ms)
        pair.timer.advance(elapsed_ms)

    decide = (
        "decide",
        lambda now: spec.decide(now, ONLY, *verdicts, evidence),
        lambda: steps.decide(verdicts, evidence),
    )
    gone = ("leave", lambda now: spec.leave(now, ONLY), lambda: steps.leave(goodbye=True))
    choices: list[tuple[str, Callable[[State], State], Callable[[], Awaitable[object]]]] = [
        ("tick", lambda now: spec.tick(pair.policy, now, elapsed_ms), tick),
    ] * 3
    choices += [("crash", spec.crash, pair.die)] if chance.random() < 0.2 else []
    if state.up:
        choices += [
            ("detach", lambda now: spec.detach(now, ONLY), steps.detach),
            ("attach", lambda now: spec.attach(now, ONLY), steps.attach),
            ("keys", spec.change_keys, keys),
            ("boot", spec.boot, pair.reborn),
        ]
        choices += [decide, decide] if pair.decisive else []
        choices += [gone] if chance.random() < 0.2 else []
        choices += [("fails", spec.journal_fails, lambda: on(pair.journal.down))] if chance.random() < 0.3 else []
    else:
        choices += [("returns", spec.journal_returns, lambda: on(pair.journal.up))] * 2
    name, move, act = chance.choice(choices)
    await pair.both(name, move, act)


async def walk(pair: Pair, chance: random.Random, steps: int) -> None:
    await pair.begin()
    for _ in range(steps):
        action = chance.choice((waits, releases, releases, outside))
        await action(pair, chance)


@pytest.mark.parametrize("idempotent", [False, True])
def test_lockstep_random_walks(idempotent: bool) -> None:
    """Whatever is done to a hold, in whatever order: door and journal have the state that the specification has."""
    taken: set[str] = set()
    told: set[str] = set()
    for seed in range(150):
        pair = Pair(attrs.evolve(POLICY, idempotent=idempotent), decisive=seed % 2 == 0)
        asyncio.run(walk(pair, random.Random(seed), 150))
        taken |= set(pair.taken)
        told |= {one.value for one in pair.spec.holds[ONLY].told}
    assert {"ask, unacknowledged", "ask_again", "wake", "judge", "adopt"} <= taken
    assert {"lose_track", "settle", "unknown", "lapse"} <= taken
    assert told >= {"nothing", "ok", "refused", "expired"}
