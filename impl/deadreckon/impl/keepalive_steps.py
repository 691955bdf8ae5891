"""One method for each action of the keepalive machine, run against a real store.

Each loads the state, calls the function of the same name in ``deadreckon.spec.keepalive``, and commits what it returns:
the record first, then the alarm. Nothing is decided here. The state that the specification sees is put together from:

    ==============================  ===============================================================================
    record, owed, reported_*,       the store, read in the transaction that writes them
    lifetime, alarm_at_ms
    alive to stopping               memory of this incarnation (``keepalive_clocks.py``); lost with it, as it must be
    version                         :class:`Life`, from the store's ``claim``
    ==============================  ===============================================================================

The machine has two slots; here are as many as are needed, since its functions take tuples of any length.

A death, or a failure of the store, between the two writes leaves the alarm as it was: for the machine that is a step
whose alarm was lost, and heals like one. Only a revival insists (``arm``): it does not act before its alarm is set (K1).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from deadreckon.spec import keepalive as spec
from deadreckon.spec.errors import InternalError
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, State

from .clock import Clock
from .events import Emitter
from .keepalive_clocks import OF_THE_MACHINE, Memory, apart_ms, brought_back
from .keepalive_events import HostEvents
from .keepalive_slots import Action, More, Move, moved, owed_ids, padded, slot_for, widened
from .keepalive_store import OPERATOR, UNCLAIMED, UNFILED, Claim, Evidence, Filed, KeepaliveStore
from .keepalive_words import Reset, evidence_text
from .waiting import to_the_end

REASSERT_FLOOR_MS: Final = 2_500
"""How long an alarm that was written is not written again, if it is to say the same. A lane with 50 pieces of work a
second made as many writes: PR #2376 of the field, ``facts/keepalive.md`` 1.2. For the machine it is a lost write."""


@attrs.define(eq=False)
class Life:
    """One incarnation, as it knows itself."""

    claim: Claim = UNCLAIMED
    version: str = ""


async def enter(store: KeepaliveStore, version: str, policy: KeepalivePolicy) -> Life:
    """Begin a new incarnation that runs *version*: all earlier ones are dead from now on."""
    return Life(await store.claim(version, policy), version)


class Steps:
    """The actions of one host in one incarnation.

    Every action returns the state after it and raises :class:`~deadreckon.spec.errors.Refused` (with ``event`` and
    ``state``) when the specification refuses it, :class:`~deadreckon.impl.Fenced` when a newer incarnation lives, and
    :class:`~deadreckon.impl.StoreFault` when the store fails. Then nothing was changed, but for one case: if the alarm
    could not be written, the record was. A cancellation waits for the end of the action.

    Attributes:
        memory: what this incarnation remembers of the host.
        filed: what the store had at the last look; a hint of when to look again, never a reason to act.
        on_step: told of each step as memory moves: the action, and the states before and after it.
    """

    def __init__(
        self,
        store: KeepaliveStore,
        life: Life,
        host: str,
        policy: KeepalivePolicy,
        clock: Clock,
        emit: Emitter | None = None,
        *,
        reassert_floor_ms: int = REASSERT_FLOOR_MS,
    ) -> None:
        self.host = host
        self.memory = Memory(apart_ms=apart_ms(clock))
        self.filed = UNFILED
        self.on_step: Callable[[str, State, State], None] | None = None
        self._store = store
        self._life = life
        self._policy = policy
        self._clock = clock
        self._events = HostEvents(host, Emitter(None, clock.now_ms) if emit is None else emit, life.version)
        self._floor_ms = reassert_floor_ms
        self._asserted = (NEVER, 0)
        self._one_at_a_time = asyncio.Lock()

    async def state(self) -> State:
        """The state as the specification sees it now."""
        return self.seen(await self.refresh())

    async def refresh(self) -> Filed:
        """Look at the store again."""
        self.filed = await self._store.read(self.host)
        return self.filed

    def recalled(self) -> Memory:
        """What is remembered, by the wall clock as it is now."""
        return self.memory.anchored(apart_ms(self._clock))

    def seen(self, filed: Filed, recalled: Memory | None = None) -> State:
        """The state, if the store holds *filed*."""
        now = self.recalled() if recalled is None else recalled
        slots = max(len(now.running_since_ms), len(filed.owed))
        memory = {name: getattr(now, name) for name in OF_THE_MACHINE}
        memory["running_since_ms"] = padded(now.running_since_ms, slots, NEVER)
        last = filed.evidence[-1] if filed.evidence else None
        return State(
            record=filed.record,
            alarm_at_ms=filed.alarm_at_ms,
            owed=padded(tuple(one != "" for one in filed.owed), slots, False),
            reported_version=last.version if last else NEVER,
            reported_epoch=last.epoch if last else NEVER,
            reported_facts=len(filed.evidence),
            lifetime=filed.lifetime,
            version=self._life.claim.version,
            now_ms=self._clock.now_ms(),
            **memory,
        )

    async def boot(self) -> State:
        """The host starts: it reads its record, notices a deploy, and re-arms what the record says."""
        return await self._act("boot", lambda state: spec.boot(self._policy, state))

    async def track(self, slot: int, obliges: bool, work_id: str = "") -> State:
        """Work begins in *slot*: when this returns, an alarm is armed, and what it owes is durable."""

        def move(state: State) -> State:
            return spec.track(self._policy, widened(state, slot + 1), slot, obliges)

        return await self._act("track", move, work_id=work_id or f"work-{slot}")

    async def begin(self, work_id: str, obliges: bool) -> int:
        """Work begins (see :meth:`track`) in the slot in which it is owed, or else in a free one, which is returned.

        If it was recorded, but its alarm could not be set, or the caller was cancelled, it has failed.
        """
        begun: list[int] = []

        def move(state: State, owed: Sequence[str]) -> State:
            slot = slot_for(state, owed, work_id)
            begun[:] = [slot]
            return spec.track(self._policy, widened(state, slot + 1), slot, obliges)

        action = Action("track", move, work_id=work_id)
        try:
            await to_the_end(self._alone(action))
        except BaseException:
            if action.remembered:
                self.forget(begun[0])
            raise
        return begun[0]

    async def settle(self, slot: int) -> State:
        """The work in *slot* ends well."""
        return await self._act("settle", lambda state: spec.settle(state, slot))

    async def settle_failed(self, slot: int) -> State:
        """The work in *slot* fails."""
        return await self._act("settle_failed", lambda state: spec.settle_failed(state, slot))

    async def fire(self, jitter_ms: int) -> State:
        """The platform's alarm fires."""
        return await self._act("fire", lambda state: spec.fire(self._policy, state, jitter_ms))

    async def stray_fire(self) -> State:
        """An alarm reaches the living host, which may be meant for somebody else."""
        return await self._act("stray_fire", lambda state: spec.stray_fire(self._policy, state))

    async def arm(self) -> State:
        """The alarm of the next rung is set; not before it is durable does the revival go on (K1)."""
        return await self._act("arm", spec.arm)

    async def report(self) -> State:
        """People are told of the crash loop: the fact is durable, once for each version and epoch."""

        def told(before: Filed, after: Filed) -> Filed:
            record = before.record
            path: str | None = getattr(self._store, "path", None)
            db = "FILE" if path is None else os.path.abspath(path)  # whoever reads it may be anywhere
            text = evidence_text(self._policy, self.host, record, self._life.version, db)
            fact = Evidence(record.version, record.epoch, record.revivals, self._clock.now_ms(), text)
            return attrs.evolve(after, evidence=(*before.evidence, fact))

        return await self._act("report", lambda state: spec.report(self._policy, state), told)

    async def act(self, slot: int = 0) -> State:
        """The revival acts: what is owed is taken up; if nothing is, an empty turn in *slot*."""
        return await self._act("act", lambda state: spec.act(self._policy, state, slot))

    async def stand_down(self) -> State:
        """A revival that has not acted ends, since the count was cleared under it."""
        return await self._act("stand_down", spec.stand_down)

    async def succeed(self) -> State:
        """The revival returns."""
        return await self._act("succeed", lambda state: spec.succeed(self._policy, state))

    async def fail(self) -> State:
        """The revival fails."""
        return await self._act("fail", spec.fail)

    async def confirm(self) -> State:
        """The early look after a revival."""
        return await self._act("confirm", lambda state: spec.confirm(self._policy, state))

    async def probe(self) -> State:
        """Somebody asks the host whether it is well, and it says so."""
        return await self._act("probe", spec.probe)

    async def reset(self, by: str = "") -> Reset:
        """The person *by* clears the count; what that has changed."""
        found: list[Filed] = []

        def signed(before: Filed, after: Filed) -> Filed:
            found.append(before)
            return attrs.evolve(after, reset_by=by, reset_at_ms=self._clock.now_ms())

        after = await self._act("reset", lambda state: spec.reset(self._policy, state), signed)
        return Reset(self.host, found[-1].record.revivals, found[-1].armed_at_ms, after.record.armed_at_ms)

    async def ask_to_stop(self) -> State:
        """Somebody wishes the host to end."""
        return await self._act("ask_to_stop", spec.ask_to_stop)

    async def end(self, code_zero: bool) -> State:
        """The host ends by itself."""
        return await self._act("end", lambda state: spec.end(state, code_zero))

    async def die(self) -> State:
        """The host is killed, while this incarnation lives on."""
        return await self._act("die", spec.die)

    async def recreate(self) -> State:
        """The stream begins another life."""
        return await self._act("recreate", spec.recreate)

    async def note_child(self, child: str) -> None:
        """Keep what identifies the process that runs the host; no action of the machine."""

        def noted(filed: Filed) -> Filed:
            return attrs.evolve(filed, child=child)

        self.filed = await to_the_end(self._store.transact(self._incarnation, self.host, noted))

    async def bring_back(self) -> None:
        """Look at the store, and undo what a clock that was ahead has put on record; no action of the machine."""

        def back(filed: Filed) -> Filed:
            return brought_back(self._policy, filed, self._clock.now_ms())

        await self.refresh()
        if not self.is_ahead:
            return
        async with self._one_at_a_time:
            self.filed = await to_the_end(self._store.transact(self._incarnation, self.host, back))
            await self.reassert()
            await self.refresh()

    @property
    def is_ahead(self) -> bool:
        """Whether the last look has shown what only a clock that was ahead can have put on record."""
        return brought_back(self._policy, self.filed, self._clock.now_ms()) != self.filed

    @property
    def seems_hung(self) -> bool:
        """Whether a look would put a revival down only because the wall clock was set."""
        recalled = self.recalled()
        return recalled.seems_hung(self._policy, self.seen(self.filed, recalled))

    async def reassert(self) -> None:
        """Write the alarm that somebody else, killed between two writes, has left out; no action of the machine."""
        await to_the_end(self._store.arm(self._incarnation, self.host, self.filed.armed_at_ms))

    def forget(self, slot: int) -> None:
        """The work in *slot* fails, and the store is not asked: nothing of that is stored, and what it owes stays."""
        recalled = self.recalled()
        self.memory = recalled.after(spec.settle_failed(self.seen(self.filed, recalled), slot))

    @property
    def _incarnation(self) -> int:
        return self._life.claim.incarnation

    async def _act(self, event: str, move: Move, more: More | None = None, *, work_id: str = "") -> State:
        return await to_the_end(self._alone(Action(event, lambda state, owed: move(state), more, work_id)))

    async def _alone(self, action: Action) -> State:
        """Take *action*: record, then alarm; nothing else of this host runs here meanwhile."""
        async with self._one_at_a_time:
            while True:
                recalled, before, after = await self._recorded(action)
                if not action.insists:
                    self._remember(action, recalled, before, after)
                agreed = await self._alarmed(action, before, after)
                if agreed and action.insists:
                    self._remember(action, recalled, before, after)
                if agreed:
                    return after
                await self.refresh()  # somebody else has written the record since: what it says now decides
                if not action.insists:
                    return after

    async def _recorded(self, action: Action) -> tuple[Memory, State, State]:
        """The first write."""
        reached: list[tuple[Memory, State, State]] = []

        def change(filed: Filed) -> Filed:
            recalled = self.recalled()
            before = self.seen(filed, recalled)
            after = moved(action, before, filed.owed)
            reached.append((recalled, before, after))
            owed = owed_ids(filed.owed, after.owed, action.work_id)
            kept = attrs.evolve(filed, record=after.record, lifetime=after.lifetime, owed=owed)
            return kept if action.more is None else action.more(filed, kept)

        filed = await self._store.transact(self._incarnation, self.host, change)
        if not reached:
            raise InternalError(f"the store returned from transact without calling the change for {action.event}")
        self.filed = filed
        return reached[-1]

    def _remember(self, action: Action, recalled: Memory, before: State, after: State) -> None:
        self.memory = recalled.after(after)
        action.remembered = True
        self._events.committed(action.event, before, after)
        if self.on_step is not None:
            self.on_step(action.event, before, after)

    async def _alarmed(self, action: Action, before: State, after: State) -> bool:
        """The second write; whether the alarm says what it should by now."""
        at_ms = after.alarm_at_ms
        if at_ms == before.alarm_at_ms and not (action.asserts and self._worth_asserting(at_ms)):
            return True
        if at_ms == self.filed.armed_at_ms:
            agreed = await self._store.arm(self._incarnation, self.host, at_ms)
        else:
            agreed = await self._store.use_up(self._incarnation, self.host, before.alarm_at_ms)
        if agreed:
            self._asserted = (at_ms, self._clock.now_ms())
            self.filed = attrs.evolve(self.filed, alarm_at_ms=at_ms)
            if at_ms != before.alarm_at_ms:
                self._events.armed(after, at_ms)
        return agreed

    def _worth_asserting(self, at_ms: int) -> bool:
        """Whether an alarm that is set already, as far as the store knows, is written once more to be sure."""
        asserted_ms, when_ms = self._asserted
        known = at_ms == asserted_ms and self._clock.now_ms() - when_ms < self._floor_ms
        return at_ms != NEVER and at_ms == self.filed.armed_at_ms and not known


async def reset_by_hand(store: KeepaliveStore, host: str, clock: Clock, by: str) -> Reset:
    """The person *by* clears the count of *host* (K6), whoever serves the store, and whether anybody does.

    It uses the limits, and the version, of whoever claimed the store last.
    """
    claim = await store.living()
    operator = Life(attrs.evolve(claim, incarnation=OPERATOR))
    return await Steps(store, operator, host, claim.policy, clock).reset(by)
