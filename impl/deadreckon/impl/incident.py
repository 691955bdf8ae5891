"""The recovery incident for asyncio services: run a turn so that no death of its incarnation goes uncounted.

Theory of operation
    ``async with recovery.attempt(turn_id)`` is one attempt. On the way in: admission, sync, start of heavy work. On
    the way out: removal of the entry, sync, report. Each is an action of :class:`~.incident_steps.Steps`, so each is
    a function of ``deadreckon.spec.incident``; what is decided here is only in which order they are asked.

    An incarnation that dies in the body (or anywhere else) writes nothing. The next one, entering the same turn,
    counts it before the body runs again, and at the limit takes the incident to its seal instead: verdict, sync,
    ``on_terminal``, sync, seal, sync. No body runs on that way (C11).

Decided conflicts
    * The body raises, its task is cancelled or its generator is closed: the incarnation lives, so this is no death. The
      entry is removed and the turn stays owed. ``KeyboardInterrupt``, ``SystemExit`` and the like mean that the process
      is ending: nothing is written, and the next incarnation counts it.
    * The removal of an entry fails: the entry is left, and the next incarnation counts it although the work ended,
      unless an attempt of this life takes its slot before. One too many, never one too few.
    * A given-up incident is sealed only when nobody works on it. Until then further attempts are refused with
      ``GivenUp``, and the attempt that ends last takes it to the seal. If ``on_terminal`` raises there, that is
      logged; the next attempt tries again, and there it is raised.
    * The predicate is asked only when its answer can change what the specification decides, which is never so on
      first detection nor after a hard bound; and before the admission, since nothing is awaited within one.
    * Nobody is told a terminal fact before the verdict is durable, but some may be told it twice.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TypeVar

import attrs

from deadreckon.spec import incident as spec
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.incident_state import Outcome, Phase, Reason, Record, RecoveryPolicy, State, Status, Turn

from .clock import Clock, SystemClock
from .events import Sink
from .incident_attempt import Attempt, end, end_after
from .incident_events import IncidentEvents
from .incident_steps import Life, Steps, boot, moved
from .incident_words import Incident, Kind, NotEntered, explained
from .store import Store
from .waiting import to_the_end

T = TypeVar("T")

logger = logging.getLogger("deadreckon.incident")

TURN_ID_MAX_CHARS = 1_000

Predicate = Callable[[str, Record], bool | Awaitable[bool]]
"""``should_keep_recovering(turn_id, record)``: false gives the incident up. *record* is as the admission writes it."""

OnTerminal = Callable[[str, Reason, int], Awaitable[None] | None]
"""``on_terminal(turn_id, reason, count)``: tell whoever waits that the turn will never finish. At least once."""


@attrs.define(eq=False)
class _Turn:
    """A turn that somebody uses here, or of which memory must be kept."""

    steps: Steps
    users: int = 0
    attempts: int = 0
    concluding: asyncio.Lock = attrs.field(factory=asyncio.Lock)


class Recovery:
    """The recovery of all turns in one store, as one incarnation.

    ``async with Recovery(store) as recovery`` begins a new incarnation: whoever used the store before is dead from
    then on, and its calls raise :class:`~deadreckon.impl.Fenced`. The store is not closed at the end.

    Args:
        store: where turns are kept.
        policy: the limits.
        clock: source of the time, for the soft budgets alone.
        should_keep_recovering: asked before an admission whether to go on, sync or async. If it raises, recovery
            goes on, and a warning is logged.
        on_terminal: told that a turn is given up, sync or async, at least once, before the incident is sealed. If it
            raises, the attempt that met the verdict raises the same, and the next attempt tries again.
        transient: exceptions of a body that count as ``Outcome.TRANSIENT``; such retries are bounded by
            ``max_attempts``.
        sink: told what happens, each event once it is durable; see ``events.py``.
    """

    def __init__(
        self,
        store: Store,
        policy: RecoveryPolicy | None = None,
        clock: Clock | None = None,
        should_keep_recovering: Predicate | None = None,
        on_terminal: OnTerminal | None = None,
        *,
        transient: tuple[type[Exception], ...] = (),
        sink: Sink | None = None,
    ) -> None:
        self.policy = RecoveryPolicy() if policy is None else policy
        if not isinstance(self.policy, RecoveryPolicy):
            raise CallerError(f"policy is {policy!r}: give a RecoveryPolicy")
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in transient):
            raise CallerError(f"transient is {transient!r}: give a tuple of exception classes")
        self._store = store
        self._clock = SystemClock() if clock is None else clock
        self._should_keep_recovering = should_keep_recovering
        self._on_terminal = on_terminal
        self._transient = transient
        self._sink = sink
        self._life: Life | None = None
        self._turns: dict[str, _Turn] = {}

    async def __aenter__(self) -> Recovery:
        self._life = await boot(self._store, IncidentEvents(self._sink, self._clock.now_ms))
        self._turns = {}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No further attempt is let in; those under way may still end."""
        self._living().alive = False
        self._life = None

    @property
    def incarnation(self) -> int:
        """The identity of this incarnation."""
        return self._living().incarnation

    def attempt(self, turn_id: str, *, kind: Kind | str = Kind.TURN) -> AbstractAsyncContextManager[Attempt]:
        """Run the body of the ``async with`` as one attempt at *turn_id*.

        The first attempt ever is the original turn; a later one is a replay, or a callback if *kind* says so. The
        body runs only after its admission is durable, with every earlier death counted. Leaving it normally finishes
        the turn, unless :attr:`Attempt.outcome` says otherwise; by an exception, or a cancellation, the turn stays
        owed. Both are durable when the ``async with`` is left, which a cancellation delays. If that fails, the entry
        stays and the next incarnation counts this attempt as dead: the error is raised, or added as a note to that
        of the body.

        Raises:
            Sealed: the incident is sealed, now or before. The body does not run.
            GivenUp: it will be, once the attempts still at work have ended. The body does not run.
            Closed: the turn is finished. The body does not run.
            NoIncident: there is nothing to replay, or no incident for the callback. The body does not run.
            IncidentRefused: another rule forbids it. The body does not run.
            StoreFault: the store failed, or another incarnation lives (:class:`~deadreckon.impl.Fenced`).
        """
        try:
            known = Kind(kind)
        except ValueError:
            raise CallerError(f"kind is {kind!r}: give one of {', '.join(Kind)}") from None
        return self._attempt(turn_id, known)

    def replay(self, turn_id: str) -> AbstractAsyncContextManager[Attempt]:
        """:meth:`attempt` for a turn that was begun before; a turn that was not is refused with ``NoIncident``."""
        return self._attempt(turn_id, Kind.REPLAY)

    async def park(self, turn_id: str) -> None:
        """A person is waited for: deaths are still counted, but the incident is not given up (C8). Durable.

        Raises:
            IncidentRefused: there is no open incident, it is given up, or it is parked already.
        """
        with self._using(turn_id) as turn:
            await _typed(turn_id, turn.steps.park())
            await turn.steps.settle()

    async def unpark(self, turn_id: str) -> None:
        """The person has answered; deaths meanwhile take effect at the next attempt. Durable.

        Raises:
            IncidentRefused: the incident is not parked, or it is over.
        """
        with self._using(turn_id) as turn:
            await _typed(turn_id, turn.steps.unpark())
            await turn.steps.settle()

    async def sweep(self) -> list[str]:
        """Drop the records of incidents that are long over; the ids of their turns, which stay finished."""
        swept = []
        for turn_id, _ in await self._store.select(status=Status.CLOSED):
            with self._using(turn_id) as turn:
                try:
                    await turn.steps.sweep()
                except Refused:
                    continue
                await turn.steps.settle()
                swept.append(turn_id)
        return swept

    async def unfinished(self) -> list[str]:
        """Turns that are owed and that no attempt of this incarnation works on: replay each of them.

        Given-up ones that are not sealed yet are among them: their replay takes them to the seal.
        """
        owed = []
        for turn_id, stored in await self._store.select(turn=Turn.RUNNING):
            with self._using(turn_id) as turn:
                may_enter = turn.steps.foreseen(turn.steps.seen(stored), Kind.REPLAY, True) is not None
                if may_enter and not turn.attempts:
                    owed.append(turn_id)
        return owed

    async def incidents(self, status: Status = Status.OPEN) -> list[Incident]:
        """All incidents in *status*, in order of their turns' ids."""
        limit = self.policy.max_interrupted_attempts
        return [Incident.of(turn_id, stored, limit) for turn_id, stored in await self._store.select(status=status)]

    async def inspect(self, turn_id: str) -> Incident:
        """The incident of *turn_id*; with status ``absent`` if there is none."""
        return Incident.of(turn_id, await self._store.read(turn_id), self.policy.max_interrupted_attempts)

    def _living(self) -> Life:
        if self._life is None:
            raise NotEntered("the recovery has no incarnation: use it as 'async with Recovery(store) as recovery'")
        return self._life

    @contextmanager
    def _using(self, turn_id: str) -> Iterator[_Turn]:
        """The turn's memory, shared by all who use it at a time, and kept while it matters."""
        if not isinstance(turn_id, str) or not 1 <= len(turn_id) <= TURN_ID_MAX_CHARS:
            raise CallerError(f"turn_id is {turn_id!r:.60}: give 1 to {TURN_ID_MAX_CHARS} characters of text")
        if not turn_id.isprintable() and any(0xD800 <= ord(char) <= 0xDFFF for char in turn_id):
            raise CallerError(f"turn_id is {turn_id!r:.60}: lone surrogates can't be stored")
        life, turns = self._living(), self._turns
        if turn_id not in turns:
            turns[turn_id] = _Turn(Steps(self._store, life, turn_id, self.policy, self._clock))
        turn = turns[turn_id]
        turn.users += 1
        try:
            yield turn
        finally:
            turn.users -= 1
            if not turn.users and turn.steps.idle:
                del turns[turn_id]

    @asynccontextmanager
    async def _attempt(self, turn_id: str, kind: Kind) -> AsyncIterator[Attempt]:
        with self._using(turn_id) as turn:
            turn.attempts += 1
            try:
                keep_going = await self._keep_going(turn.steps, kind)
                async with self._entered(turn, kind, keep_going) as attempt:
                    yield attempt
            finally:
                turn.attempts -= 1

    @asynccontextmanager
    async def _entered(self, turn: _Turn, kind: Kind, keep_going: bool) -> AsyncIterator[Attempt]:
        admitted: list[Attempt] = []
        try:
            await to_the_end(self._admit(turn.steps, kind, keep_going, admitted))
            if not admitted:
                await self._give_up(turn)
            yield admitted[0]
        except (Exception, asyncio.CancelledError, GeneratorExit) as error:
            for attempt in admitted:
                attempt.outcome = Outcome.TRANSIENT if isinstance(error, self._transient) else Outcome.YIELDED
                await end_after(error, attempt)
            if isinstance(error, Exception) and admitted:
                await self._conclude_for_others(turn)
            raise
        else:
            await end(admitted[0])
            await self._conclude_for_others(turn)

    async def _admit(self, steps: Steps, kind: Kind, keep_going: bool, admitted: list[Attempt]) -> None:
        """Admission, sync, start of heavy work. *admitted* is filled as soon as there is an entry to remove."""
        entered = await _typed(steps.turn_id, steps.enter(kind, keep_going))
        if not entered.gives_up:
            admitted.append(Attempt(steps, entered))
        await steps.settle()
        if admitted and entered.slot is not None:
            await _typed(steps.turn_id, steps.start_work(entered.slot))

    async def _keep_going(self, steps: Steps, kind: Kind) -> bool:
        """The answer of the predicate, if it can matter."""
        if self._should_keep_recovering is None:
            return True
        state = await steps.state()
        going_on = steps.foreseen(state, kind, True)
        if going_on is None or going_on == steps.foreseen(state, kind, False):
            return True
        try:
            answer = self._should_keep_recovering(steps.turn_id, going_on.buffered)
            decided = await answer if inspect.isawaitable(answer) else answer
            if not isinstance(decided, bool):
                raise TypeError(f"should_keep_recovering returned {decided!r}, not a bool")
            return decided
        except Exception:
            logger.warning("should_keep_recovering raised for turn %r: going on", steps.turn_id, exc_info=True)
            return True

    async def _give_up(self, turn: _Turn) -> None:
        """Take the incident to its seal and say so, or say that others must end first; raises either way."""
        over = Refused("C7", "the incident is over", event="replay")
        waiting = await self._conclude(turn)
        record = (await turn.steps.state()).buffered
        raise explained(turn.steps.turn_id, waiting or over, record)

    async def _conclude(self, turn: _Turn) -> Refused | None:
        """From the verdict to the seal: terminal fact, sync, seal, sync; nothing, if nobody is giving up here.

        Returns the refusal of the specification if the terminal fact may not be told yet; then nobody was told.
        """
        steps = turn.steps
        async with turn.concluding:
            if Phase.GIVING_UP not in steps.memory.phases:
                return None
            slot = steps.memory.phases.index(Phase.GIVING_UP)
            state = await steps.state()
            if spec.gives_up(state.buffered):
                try:
                    moved("deliver_terminal", state, lambda state: spec.deliver_terminal(state, slot))
                except Refused as refusal:
                    return refusal
                await self._tell(steps.turn_id, state.buffered)
                await steps.deliver_terminal(slot)
                await steps.settle()
            if spec.is_open(state.buffered):
                await steps.seal(slot)
                await steps.settle()
            await steps.stand_down(slot)
            return None

    async def _tell(self, turn_id: str, record: Record) -> None:
        if self._on_terminal is not None:
            answer = self._on_terminal(turn_id, record.reason, record.interrupted)
            if inspect.isawaitable(answer):
                await answer

    async def _conclude_for_others(self, turn: _Turn) -> None:
        """After an attempt has ended: take an incident that waited for it to its seal, without raising."""
        try:
            await self._conclude(turn)
        except Exception:
            logger.warning("turn %r is given up but not sealed yet", turn.steps.turn_id, exc_info=True)


async def _typed(turn_id: str, action: Awaitable[T]) -> T:
    """The result of *action*; a refusal of the specification in its typed form."""
    try:
        return await action
    except Refused as refusal:
        if isinstance(refusal.state, State):
            raise explained(turn_id, refusal, refusal.state.buffered) from None
        raise
