"""One method for each action of the incident machine, run against a real store.

Each loads the state, calls the function of the same name in ``deadreckon.spec.incident``, and commits what it
returns. Nothing is decided here. The state that the specification sees is put together from three places:

    =======================  ==========================================================================
    durable, buffered,       the store, read in the transaction that writes them
    produced
    phases, original,        memory of this incarnation (:class:`Memory`); lost with it, as it must be
    callback
    incarnation, alive       :class:`Life`, from the store's ``claim``
    =======================  ==========================================================================

Memory moves only after the commit, and one action at a time for each turn, so that it never runs ahead of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import attrs

from deadreckon.spec import incident as spec
from deadreckon.spec.errors import InternalError, Refused
from deadreckon.spec.incident_state import Outcome, Phase, Record, RecoveryPolicy, State

from .clock import Clock
from .incident_events import IncidentEvents, TurnEvents
from .incident_words import Kind
from .store import Store, Stored
from .waiting import to_the_end

Move = Callable[[State], State]
V = TypeVar("V")


@attrs.define(eq=False)
class Life:
    """One incarnation, as it knows itself, and what it tells of itself."""

    incarnation: int
    alive: bool = True
    events: IncidentEvents = attrs.field(factory=IncidentEvents)


async def boot(store: Store, events: IncidentEvents | None = None) -> Life:
    """Begin a new incarnation (spec ``boot``): all earlier ones are dead from now on. *events* are told so."""
    life = Life(await store.claim(), events=IncidentEvents() if events is None else events)
    if life.incarnation > 1:
        life.events.tell("incarnation.died", incarnation=life.incarnation - 1)
    return life


@attrs.frozen
class Memory:
    """What an incarnation remembers of one turn.

    Attributes:
        phases: where the attempt in each slot is.
        original: where the original turn is, if it runs here.
        callback: whether a callback is queued, as far as known here. The queue itself is outside.
    """

    phases: tuple[Phase, ...] = spec.initial().phases
    original: Phase = spec.initial().original
    callback: bool = spec.initial().callback


@attrs.frozen
class Entered:
    """An attempt that was let in: the state after it, and its slot; None for the original turn."""

    state: State
    slot: int | None

    @property
    def gives_up(self) -> bool:
        """Whether the attempt was let in to give the incident up, not to work."""
        return self.slot is not None and self.state.phases[self.slot] is Phase.GIVING_UP


def enter(policy: RecoveryPolicy, state: State, kind: Kind, keep_going: bool) -> Entered:
    """Let an attempt in: the original turn if there was none yet, a replay or a callback in a free slot otherwise.

    An attempt of this incarnation that is giving the incident up already is joined: there is one way to the seal.
    """
    if Phase.GIVING_UP in state.phases:
        return Entered(state, state.phases.index(Phase.GIVING_UP))
    if kind is Kind.TURN:
        try:
            return Entered(spec.begin(state), None)
        except Refused:
            pass  # begun before: this is a replay
    roomy, slot = _with_room(state)
    if kind is Kind.CALLBACK:
        queued = attrs.evolve(roomy, callback=True)  # its delivery is the proof
        return Entered(spec.deliver(policy, queued, slot, True, keep_going), slot)
    return Entered(spec.replay(policy, roomy, slot, keep_going), slot)


def _with_room(state: State) -> tuple[State, int]:
    """The state with a free slot, which is added if all are taken."""
    if Phase.IDLE in state.phases:
        return state, state.phases.index(Phase.IDLE)
    slots = len(state.phases)
    return _widened(state, slots + 1), slots


def _widened(state: State, slots: int) -> State:
    """The state with free slots added, up to *slots*."""

    def more(record: Record) -> Record:
        return attrs.evolve(record, attempts=record.attempts + (0,) * (slots - len(record.attempts)))

    return attrs.evolve(
        state,
        durable=more(state.durable),
        buffered=more(state.buffered),
        phases=state.phases + (Phase.IDLE,) * (slots - len(state.phases)),
    )


class Steps:
    """The actions of one turn's incident in one incarnation.

    Every action returns the state after it and raises :class:`~deadreckon.spec.errors.Refused` (with ``event`` and
    ``state``) when the specification refuses it, :class:`~deadreckon.impl.Fenced` when a newer incarnation lives,
    and :class:`~deadreckon.impl.StoreFault` when the store fails; in all three cases nothing was changed. A
    cancellation waits for the end of the action.
    """

    def __init__(self, store: Store, life: Life, turn_id: str, policy: RecoveryPolicy, clock: Clock) -> None:
        self.turn_id = turn_id
        self.memory = Memory()
        self._store = store
        self._life = life
        self._policy = policy
        self._clock = clock
        self._told = TurnEvents(turn_id, life.events)
        self._one_at_a_time = asyncio.Lock()

    @property
    def idle(self) -> bool:
        """Whether memory holds nothing of the turn that matters."""
        return self.memory.original is Phase.IDLE and set(self.memory.phases) <= {Phase.IDLE}

    async def state(self) -> State:
        """The state as the specification sees it now."""
        return self.seen(await self._store.read(self.turn_id))

    def seen(self, stored: Stored) -> State:
        """The state, if the store holds *stored*."""
        state = State(
            durable=stored.durable,
            buffered=stored.buffered,
            incarnation=self._life.incarnation,
            alive=self._life.alive,
            phases=self.memory.phases,
            original=self.memory.original,
            callback=self.memory.callback,
            produced=stored.produced,
            now_ms=self._clock.now_ms(),
        )
        return _widened(state, max(len(state.phases), len(state.durable.attempts), len(state.buffered.attempts)))

    def foreseen(self, state: State, kind: Kind, keep_going: bool) -> State | None:
        """What letting an attempt in would lead to; None if it is refused."""
        try:
            return enter(self._policy, state, kind, keep_going).state
        except Refused:
            return None

    async def enter(self, kind: Kind, keep_going: bool) -> Entered:
        """Let an attempt in (see :func:`enter`), in one transaction."""
        entered: list[Entered] = []

        def move(state: State) -> State:
            entered.append(enter(self._policy, state, kind, keep_going))
            return entered[-1].state

        try:
            await self._act("deliver" if kind is Kind.CALLBACK else "replay", move)
        except Refused as refusal:
            if isinstance(refusal.state, State):
                self._told.refused(refusal.state)
            raise
        return entered[-1]

    async def begin(self) -> State:
        """The original turn starts; when this returns it is durable that the turn is owed."""
        return await self._act("begin", spec.begin)

    async def end_original(self, outcome: Outcome) -> State:
        """The original turn ends in a living incarnation."""
        return await self._act("end_original", lambda state: spec.end_original(state, outcome))

    async def report_original(self) -> State:
        """The end of the original turn is durable, and may be told."""
        return await self._act("report_original", spec.report_original)

    async def replay(self, slot: int, keep_going: bool) -> State:
        """An unfinished turn is taken up, in *slot*."""
        return await self._act("replay", lambda state: spec.replay(self._policy, state, slot, keep_going))

    async def deliver(self, slot: int, again: bool, keep_going: bool) -> State:
        """A queued callback fires, in *slot*; it stays queued if *again*."""
        return await self._act("deliver", lambda state: spec.deliver(self._policy, state, slot, again, keep_going))

    async def sync(self) -> State:
        """What was written becomes durable; refused if it is already."""
        mark = self._life.events.mark()
        state = await self._act("sync", spec.sync)
        self._life.events.durable(mark)
        return state

    async def settle(self) -> None:
        """Wait until what was written is durable; not an action of the machine, since nothing may be waiting."""
        await to_the_end(self._settle())

    async def _settle(self) -> None:
        mark = self._life.events.mark()
        await self._store.sync(self._life.incarnation)
        self._life.events.durable(mark)

    def forget(self, slot: int | None) -> None:
        """Give up an attempt whose end could not be recorded: its entry stays, and counts once this life is over."""
        if slot is None:
            self.memory = attrs.evolve(self.memory, original=Phase.IDLE)
        else:
            phases = (*self.memory.phases[:slot], Phase.IDLE, *self.memory.phases[slot + 1 :])
            self.memory = attrs.evolve(self.memory, phases=phases)

    async def start_work(self, slot: int) -> State:
        """The attempt in *slot* starts heavy work."""
        return await self._act("start_work", lambda state: spec.start_work(self._policy, state, slot))

    async def progress(self, units: int = 1) -> State:
        """Heavy work produced *units* of something new; durable when this returns."""
        return await self._act("progress", lambda state: spec.progress(state, units))

    async def finish(self, slot: int, outcome: Outcome) -> State:
        """The attempt in *slot* takes its own entry away."""
        return await self._act("finish", lambda state: spec.finish(state, slot, outcome))

    async def report(self, slot: int) -> State:
        """The end of the attempt in *slot* is durable, and may be told."""
        return await self._act("report", lambda state: spec.report(state, slot))

    async def deliver_terminal(self, slot: int) -> State:
        """That the terminal fact was told is recorded."""
        return await self._act("deliver_terminal", lambda state: spec.deliver_terminal(state, slot))

    async def seal(self, slot: int) -> State:
        """The final refusal is recorded."""
        return await self._act("seal", lambda state: spec.seal(state, slot))

    async def stand_down(self, slot: int) -> State:
        """The attempt in *slot*, on its way to the seal, ends: the incident is over."""
        return await self._act("stand_down", lambda state: spec.stand_down(state, slot))

    async def park(self) -> State:
        """A person is waited for."""
        return await self._act("park", spec.park)

    async def unpark(self) -> State:
        """The person has answered."""
        return await self._act("unpark", spec.unpark)

    async def sweep(self) -> State:
        """The record of an incident that is long over is dropped."""
        return await self._act("sweep", lambda state: spec.sweep(self._policy, state))

    async def _act(self, event: str, move: Move) -> State:
        return await to_the_end(self._alone(event, move))

    async def _alone(self, event: str, move: Move) -> State:
        """Commit ``move(state)``, then remember its volatile part; nothing else of this turn runs meanwhile."""
        reached: list[tuple[State, State]] = []

        def change(stored: Stored) -> Stored:
            before = self.seen(stored)
            after = moved(event, before, move)
            before = _widened(before, len(after.phases))
            reached.append((before, after))
            return Stored(
                durable=_kept(stored.durable, before.durable, after.durable),
                buffered=_kept(stored.buffered, before.buffered, after.buffered),
                produced=after.produced,
            )

        async with self._one_at_a_time:
            await self._store.transact(self._life.incarnation, self.turn_id, change)
            if not reached:
                raise InternalError(f"the store returned from transact without calling the change for {event}")
            before, after = reached[-1]
            self.memory = Memory(after.phases, after.original, after.callback)
            self._told.committed(event, before, after)
        return after


def moved(event: str, before: State, move: Move) -> State:
    """``move(before)``; a refusal is given the event and the state."""
    try:
        return move(before)
    except Refused as refusal:
        refusal.event = event
        refusal.state = before
        raise


def _kept(stored: V, before: V, after: V) -> V:
    """*stored* itself if the action left it alone: free slots that were added on reading are no change."""
    return stored if after == before else after
