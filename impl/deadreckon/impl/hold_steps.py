"""One method for each action of the hold machine, run against a real journal.

Each calls the function of the same name in ``deadreckon.spec.hold``, within the transaction that keeps what it
returns. Nothing is decided here. The state that the specification sees is put together from three places:

    ============================  ======================================================================
    fact to releases, caller      the journal, read in the transaction that writes them
    wait to calls, told           memory of this door (``hold_memory.py``); lost with it, as it must be
    now, key active               the journal, at the same moment
    up                            true within a transaction; false where the journal failed to answer
    ============================  ======================================================================

Memory moves only after the commit, and one action at a time for each hold, so that it never runs ahead of the journal.

The lease is not in the machine: a detached caller *leaves* when its lease has lapsed on the journal's clock, or when it
says so itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import attrs

from deadreckon.spec import hold as spec
from deadreckon.spec.errors import Refused
from deadreckon.spec.hold_state import Evidence, Hold, HoldPolicy, State, Wait
from deadreckon.spec.language import require

from .hold_journal import Entry, Held, Journal, JournalUnavailable, Json, Moment, NoSuchHold, Receipt, Written, blank
from .hold_memory import ONLY, Asked, Life, Memory, Move, changed, decided, moved, seen, unasked
from .waiting import to_the_end

Alter = Callable[[Held, Moment], Held]
Facts = Callable[[Hold], Sequence[Entry]]


class Steps:
    """The actions of one hold at one door.

    Every action returns the hold after it and raises :class:`~deadreckon.spec.errors.Refused` (with ``event`` and
    ``state``) when the specification refuses it, :class:`~deadreckon.impl.Fenced` when a newer door lives, and
    :class:`~deadreckon.impl.StoreFault` when the journal fails. If that is ``JournalUnavailable``, the action may have
    been done: repeated with the same arguments, it is done once. A cancellation waits for the end of the action.

    Attributes:
        held: the hold as the journal last had it.
        memory: what this door remembers.
        cursor: offset of the last fact that was taken up.
    """

    def __init__(
        self, journal: Journal, life: Life, hold_id: str, policy: HoldPolicy, lease_ms: int, held: Held | None = None
    ) -> None:
        self.hold_id = hold_id
        self.held = held
        self.memory = Memory.of(blank(0) if held is None else held.hold)
        self.cursor = 0 if held is None else held.offset
        self._journal = journal
        self._life = life
        self._policy = policy
        self._lease_ms = lease_ms
        self._unconfirmed: dict[str, tuple[Memory, Memory]] = {}
        self._one_at_a_time = asyncio.Lock()

    @property
    def hold(self) -> Hold:
        """The hold as far as this door knows."""
        return self.memory.on(self._known().hold)

    async def read(self) -> Hold:
        """The hold as it is now."""
        self.held = (await self._moment()).held
        return self.hold

    async def ask(self, asked: Asked) -> Hold:
        """Requests are parked. If the acknowledgement may have been lost, the door is left to :meth:`ask_again`."""
        before: list[State] = []

        def move(state: State) -> State:
            before.append(unasked(state))
            return asked.parked(before[-1], True)

        new = Held(self.hold_id, blank(len(asked.requests)), asked.requests, asked.caller, 0)
        if self.memory.wait is not Wait.ASKING:
            self.memory = Memory.of(new.hold)
        try:
            receipt = await self._act(
                "ask", move, asked.facts, alter=self._leased, key=f"ask:{asked.key}", body=asked.body, new=new
            )
        except JournalUnavailable:
            if before:
                self.memory = Memory.of(spec.ask(asked.policy, before[-1], ONLY, False).holds[ONLY])
            raise
        self.hold_id = receipt.held.hold_id
        self.cursor = receipt.held.offset if receipt.fresh else 0  # else there may be facts to take up
        if not receipt.fresh and self.memory.wait is Wait.ASKING:
            await self._think("ask_again", lambda state: spec.ask_again(asked.policy, state, ONLY))
        return self._armed()

    async def ask_again(self, asked: Asked) -> Hold:
        """The request is sent once more, under the same key: the same as to :meth:`ask` again, which knows."""
        return await self.ask(asked)

    async def slice_ends(self) -> Hold:
        """A slice of the wait ends without a fact."""
        await self._think("slice_ends", lambda state: spec.slice_ends(self._policy, state, ONLY))
        return self._armed()

    async def wait_fails(self, failure: JournalUnavailable | None = None) -> Hold:
        """The wait failed with *failure*; without one, the journal is asked whether it is unavailable."""
        await self._think("wait_fails", lambda state: spec.wait_fails(self._policy, state, ONLY), failure)
        return self.broken("availability")

    async def judgement_fails(self, failure: JournalUnavailable | None = None) -> Hold:
        """The decision could not be read: as :meth:`wait_fails`, after the wait has returned it."""
        await self._think("judgement_fails", lambda state: spec.judgement_fails(self._policy, state, ONLY), failure)
        return self.broken("availability")

    def broken(self, error: str) -> Hold:
        """It is told that the wait failed, by an *error* of availability or another; no action of the machine."""
        self._tell("wait.failed", error=error)
        return self.hold

    async def wake(self) -> Hold:
        """The backoff has ended."""
        await self._remember("wake", lambda state: spec.wake(self._policy, state, ONLY))
        return self._armed()

    async def judge(self) -> Hold:
        """The decision is taken up; the cursor passes it."""
        hold = await self._think("judge", lambda state: spec.judge(state, ONLY, ONLY))
        self.cursor = self._known().offset
        await self._life.events.catch_up()
        return hold

    async def take_up(self) -> Hold:
        """Judge what the wait has found; the cursor passes facts that decide nothing, and an end ends the wait."""
        try:
            return await self.judge()
        except Refused:
            self.cursor = self._known().offset
            if self._known().finished:  # another hand of this door's owner appended it
                self.memory = attrs.evolve(self.memory, wait=Wait.IDLE)
            return self.hold

    async def stop_waiting(self, failure: JournalUnavailable | None = None) -> Hold:
        """The deadline has come: nothing is waited for any more."""
        return await self._think("stop_waiting", lambda state: spec.stop_waiting(state, ONLY), failure)

    async def adopt(self) -> Hold:
        """The door takes up a hold that nobody works on."""
        await self._think("adopt", lambda state: spec.adopt(self._policy, state, ONLY))
        self.cursor = self._known().offset
        return self._armed()

    async def expire(self) -> Hold:
        """The deadline has come, and nothing was decided."""
        return await self._fact("expire", lambda state: spec.expire(state, ONLY), Entry("hold.expired"))

    async def abandon(self) -> Hold:
        """The caller is gone, and nothing was decided."""
        return await self._fact("abandon", lambda state: spec.abandon(state, ONLY), Entry("hold.abandoned"))

    async def start_release(self, request: int) -> Hold:
        """The start of a release is made durable. The key is this door's: another one never takes it for its own."""
        return await self._fact(
            "start_release",
            lambda state: spec.start_release(self._policy, state, ONLY, request),
            Entry("release.started", {"index": request, "door": self._life.door}),
            key=f"start:{self.hold_id}:{request}:{self._life.door}",
        )

    async def call(self, request: int) -> Hold:
        """The upstream is about to be called."""
        hold = await self._remember("call", lambda state: spec.call(self._policy, state, ONLY, request))
        self._tell("effect.called", index=request)
        return hold

    async def answer(self, request: int, succeeds: bool) -> Hold:
        """The upstream has answered, or failed."""
        return await self._remember("answer", lambda state: spec.answer(state, ONLY, request, succeeds))

    async def lose_track(self, request: int) -> Hold:
        """The door stops waiting for the upstream's answer: its outcome is in doubt from now on."""
        return await self._remember("lose_track", lambda state: spec.lose_track(state, ONLY, request))

    async def settle(self, request: int) -> Hold:
        """The outcome of a call is made durable."""
        event, move = "settle", lambda state: spec.settle(state, ONLY, request)
        return await self._settled(event, move, request, key=f"settle:{self.hold_id}:{request}:{self._life.door}")

    async def settle_unknown(self, request: int) -> Hold:
        """A release in doubt, whoever left it so, is settled unknown, or will be run again."""
        move: Move = lambda state: spec.settle_unknown(self._policy, state, ONLY, request)  # noqa: E731 - as above
        return await self._settled("settle_unknown", move, request)

    async def lapse(self, request: int) -> Hold:
        """An approved request is settled without effect."""
        return await self._settled("lapse", lambda state: spec.lapse(self._policy, state, ONLY, request), request)

    async def tell(self, request: int) -> Hold:
        """The caller is told what the journal says; that it was told is appended, if the journal answers."""
        return await self.tell_all((request,))

    async def tell_all(self, requests: Sequence[int]) -> Hold:
        """:meth:`tell`, of each request of which there is something to tell, in one append; refused if there is none."""
        told: list[int] = []

        def move(state: State) -> State:
            told.clear()
            refusals: list[Refused] = []
            for request in requests:
                try:
                    state = spec.tell(state, ONLY, request)
                    told.append(request)
                except Refused as refusal:
                    refusals.append(refusal)
            if not told:
                raise refusals[0]
            return state

        def bodies(hold: Hold) -> list[dict[str, Json]]:
            return [{"index": at, "outcome": hold.told[at].value.replace(" ", "-")} for at in told]

        try:
            return await self._done("tell", move, lambda hold: [Entry("caller.told", body) for body in bodies(hold)])
        except JournalUnavailable:
            hold = await self._remember("tell", move)
            for body in bodies(hold):
                self._tell("caller.told", **body)
            return hold

    async def decide(self, verdicts: Sequence[bool], evidence: Evidence) -> Hold:
        """An approver's decision, judged by the journal; approvers use ``deadreckon.impl.decide``."""
        entry = Entry("hold.decided", {"verdicts": ["approve" if yes else "reject" for yes in verdicts], "by": ""})
        return await self._fact("decide", lambda state: decided(state, verdicts, evidence), entry)

    async def detach(self) -> Hold:
        """The caller's connection broke: it has one lease, from now on, to come back."""
        move: Move = lambda state: spec.detach(state, ONLY)  # noqa: E731 - as above
        return await self._done("detach", move, alter=self._leased)

    async def attach(self) -> Hold:
        """The caller came back."""
        move: Move = lambda state: spec.attach(state, ONLY)  # noqa: E731 - as above
        return await self._done("attach", move, alter=self._leased)

    async def leave(self, *, goodbye: bool = False) -> Hold:
        """The caller's lease has lapsed, or it says *goodbye*."""

        def lapsed(held: Held, moment: Moment) -> Held:
            require(goodbye or held.lease_until_ms < moment.now_ms, "H9", "the caller's lease has not lapsed")
            return held

        facts = (Entry("caller.gone"),)
        return await self._done("leave", lambda state: spec.leave(state, ONLY), lambda hold: facts, alter=lapsed)

    def _tell(self, event: str, **fields: Json) -> None:
        self._life.events.tell(event, self._known().offset, hold=self.hold_id, **fields)

    def _armed(self) -> Hold:
        if self.memory.wait is Wait.WAITING:
            self._tell("wait.armed", cursor=self.cursor)
        return self.hold

    def _lease(self, moment: Moment) -> int:
        return moment.now_ms + self._lease_ms

    def _leased(self, held: Held, moment: Moment) -> Held:
        return attrs.evolve(held, lease_until_ms=self._lease(moment))

    def _known(self) -> Held:
        if self.held is None:
            raise NoSuchHold(f"the journal has no hold {self.hold_id!r}")
        return self.held

    async def _moment(self) -> Moment:
        moment = await self._journal.read(self.hold_id)
        if moment.held is None:
            raise NoSuchHold(f"the journal has no hold {self.hold_id!r}")
        return moment

    async def _fact(self, event: str, move: Move, entry: Entry, *, key: str = "") -> Hold:
        return await self._done(event, move, lambda hold: (entry,), key=key)

    async def _settled(self, event: str, move: Move, request: int, *, key: str = "") -> Hold:
        before = self._known().hold.releases[request]

        def facts(hold: Hold) -> Sequence[Entry]:
            release = hold.releases[request]
            changed = release is not before
            return (Entry("release.settled", {"index": request, "outcome": release.value}),) if changed else ()

        return await self._done(event, move, facts, key=key)

    async def _done(
        self,
        event: str,
        move: Move,
        facts: Facts = lambda hold: (),
        *,
        alter: Alter = lambda held, moment: held,
        key: str = "",
    ) -> Hold:
        await self._act(event, move, facts, alter=alter, key=key)
        return self.hold

    async def _act(
        self, event: str, move: Move, facts: Facts, *, alter: Alter, key: str, body: str = "", new: Held | None = None
    ) -> Receipt:
        """Append what *move* makes of the hold, then remember its volatile part."""

        def change(moment: Moment) -> Written:
            held = moment.held or new
            if held is None:
                raise NoSuchHold(f"the journal has no hold {self.hold_id!r}")
            before = seen(moment, self.memory.on(held.hold), self._life.door, alive=self._life.alive)
            after = moved(event, before, move).holds[ONLY]
            self._unconfirmed[key] = (self.memory, Memory.of(after))
            return Written(alter(attrs.evolve(held, hold=after), moment), tuple(facts(after)))

        async def alone() -> Receipt:
            async with self._one_at_a_time:
                receipt = await self._journal.append(self.hold_id, change, door=self._life.door, key=key, body=body)
                self.held = receipt.held
                step = self._unconfirmed.pop(key, None)
                if not receipt.fresh and step is None and new is None:
                    self._recall(event, move, True)  # done and acknowledged before: refused, as doing it twice is
                if step is not None and (receipt.fresh or new is None):
                    self.memory = changed(self.memory, *step)
                await self._life.events.catch_up()
                return receipt

        return await to_the_end(alone())

    async def _think(self, event: str, move: Move, failure: JournalUnavailable | None = None) -> Hold:
        """An action that appends nothing, on the hold as the journal has it, or as it was known if that fails."""
        async with self._one_at_a_time:
            up = failure is None
            if up:
                try:
                    self.held = (await self._moment()).held
                except JournalUnavailable:
                    up = False
            return self._recall(event, move, up)

    async def _remember(self, event: str, move: Move) -> Hold:
        """An action in memory alone, on the hold as it was last known."""
        async with self._one_at_a_time:
            return self._recall(event, move, True)

    def _recall(self, event: str, move: Move, up: bool) -> Hold:
        moment = Moment(self._known(), (), self._journal.now_ms())
        before = seen(moment, self.hold, self._life.door, alive=self._life.alive, up=up)
        self.memory = Memory.of(moved(event, before, move).holds[ONLY])
        return self.hold
