"""One method for each action of the request machine, run against a real store.

Each loads the state, calls the function of the same name in ``deadreckon.spec.request``, and commits what it returns.
Nothing is decided here. The state that the specification sees is put together from three places:

    =======================  ==========================================================================
    request                  the store, read in the transaction that writes it
    running, deadline_at_ms  memory of this incarnation (:class:`Memory`); lost with it, as it must be.
                             Of a settled request nothing is under way, whatever memory says
    incarnation, alive       :class:`Life`, from the store's ``claim``
    =======================  ==========================================================================

Memory moves only after the commit, and one action at a time for each request, so that it never runs ahead of the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import attrs

from deadreckon.spec import request as spec
from deadreckon.spec.errors import InternalError, Refused
from deadreckon.spec.request_state import RequestPolicy, State, Status

from .clock import Clock
from .events import Emitter
from .hold_journal import Json
from .request_store import Filed, RequestStore
from .request_words import RequestConflict
from .waiting import to_the_end

Move = Callable[[State], State]

ERROR_MAX_CHARS: Final = 1_000
"""How much of a failure's text is kept, for people."""


@attrs.define(eq=False)
class Life:
    """One incarnation, as it knows itself."""

    incarnation: int
    alive: bool = True

    @property
    def name(self) -> str:
        """What events call it: several machines may share one log, and count their incarnations apart."""
        return f"requests-{self.incarnation}"


async def boot(store: RequestStore) -> Life:
    """Begin a new incarnation (spec ``boot``): all earlier ones are dead from now on."""
    return Life(await store.claim())


@attrs.frozen
class Memory:
    """What an incarnation remembers of one request: whether an attempt is under way, and its deadline."""

    running: bool = spec.initial().running
    deadline_at_ms: int = spec.initial().deadline_at_ms


class Steps:
    """The actions of one request in one incarnation.

    Every action returns the state after it and raises :class:`~deadreckon.spec.errors.Refused` (with ``event`` and
    ``state``) when the specification refuses it, :class:`~deadreckon.impl.Fenced` when a newer incarnation lives, and
    :class:`~deadreckon.impl.StoreFault` when the store fails; in all three cases nothing was changed. A cancellation
    waits for the end of the action.
    """

    def __init__(
        self,
        store: RequestStore,
        life: Life,
        request_id: str,
        policy: RequestPolicy,
        clock: Clock,
        emit: Emitter | None = None,
    ) -> None:
        self.request_id = request_id
        self.memory = Memory()
        self._store = store
        self._life = life
        self._policy = policy
        self._clock = clock
        self._emit = Emitter(None, clock.now_ms) if emit is None else emit
        self._one_at_a_time = asyncio.Lock()

    async def state(self) -> State:
        """The state as the specification sees it now."""
        return self.seen(await self.filed())

    async def filed(self) -> Filed:
        """What the store has."""
        return await self._store.read(self.request_id)

    def seen(self, filed: Filed) -> State:
        """The state, if the store holds *filed*."""
        under_way = self.memory.running and spec.is_open(filed.request)
        return State(
            request=filed.request,
            incarnation=self._life.incarnation,
            alive=self._life.alive,
            running=under_way,
            deadline_at_ms=self.memory.deadline_at_ms if under_way else 0,
            now_ms=self._clock.now_ms(),
        )

    async def open_request(self, triggered_at_ms: int | None = None, body: str = "") -> State:
        """The request, triggered now unless it is said when, is recorded, and its timer armed.

        Raises:
            RequestConflict: the id stands for another body.
        """

        def opened(before: Filed, after: Filed) -> Filed:
            if before.request.status is Status.ABSENT:
                return attrs.evolve(after, body=body, opened_at_ms=self._clock.now_ms())
            if before.body != body:
                raise RequestConflict(f"request {self.request_id} was opened with another body")
            return after

        def move(state: State) -> State:
            return spec.open_request(self._policy, state, state.now_ms if triggered_at_ms is None else triggered_at_ms)

        return await self._act("open_request", move, opened)

    async def dial(self) -> State:
        """An attempt is recorded; when this returns it may be made."""
        return await self._act("dial", lambda state: spec.dial(self._policy, state), self._dialled)

    async def succeed(self, answer: str = "") -> State:
        """The attempt under way has *answer*; it is settled with the same write."""
        return await self._act("succeed", spec.succeed, lambda _, after: attrs.evolve(after, answer=answer))

    async def fail(self, error: str = "") -> State:
        """The attempt under way fails, saying *error*."""
        return await self._act(
            "fail",
            lambda state: spec.fail(self._policy, state),
            lambda _, after: attrs.evolve(after, error=error[:ERROR_MAX_CHARS]),
        )

    async def give_up(self) -> State:
        """The last attempt died with its incarnation."""
        return await self._act("give_up", lambda state: spec.give_up(self._policy, state))

    async def expire(self) -> State:
        """There is no time left to begin an attempt."""
        return await self._act("expire", lambda state: spec.expire(self._policy, state))

    async def fire(self) -> State:
        """The timer fires."""
        return await self._act("fire", lambda state: spec.fire(self._policy, state))

    async def tell(self) -> State:
        """That the outcome was told is recorded."""
        return await self._act("tell", spec.tell)

    async def answer_late(self, succeeded: bool) -> State:
        """An attempt of this incarnation ends although its request was settled meanwhile."""
        return await self._act("answer_late", lambda state: spec.answer_late(state, succeeded))

    def _dialled(self, before: Filed, after: Filed) -> Filed:
        return attrs.evolve(after, dialled_at_ms=self._clock.now_ms())

    async def _act(self, event: str, move: Move, more: Callable[[Filed, Filed], Filed] | None = None) -> State:
        return await to_the_end(self._alone(event, move, more))

    async def _alone(self, event: str, move: Move, more: Callable[[Filed, Filed], Filed] | None) -> State:
        """Commit ``move(state)``, then remember its volatile part; nothing else of this request runs meanwhile."""
        reached: list[tuple[State, State]] = []

        def change(filed: Filed) -> Filed:
            before = self.seen(filed)
            after = moved(event, before, move)
            reached.append((before, after))
            kept = attrs.evolve(filed, request=after.request)
            if after.request.status != before.request.status and spec.is_settled(after.request):
                kept = attrs.evolve(kept, settled_at_ms=before.now_ms)
            return kept if more is None else more(filed, kept)

        async with self._one_at_a_time:
            await self._store.transact(self._life.incarnation, self.request_id, change)
            if not reached:
                raise InternalError(f"the store returned from transact without calling the change for {event}")
            before, after = reached[-1]
            self.memory = Memory(after.running, after.deadline_at_ms)
            self._tell_events(before, after)
        return after

    def _tell_events(self, before: State, after: State) -> None:
        """One line for what became durable in this step."""
        old, new = before.request, after.request
        if old.status is Status.ABSENT and new.status is Status.OPEN:
            self._event("request.opened", before, {"expires_at": new.expires_at_ms})
        if new.attempts > old.attempts:
            self._event("request.dialled", before, {"incarnation": self._life.name})
        if new.status is not old.status and spec.is_settled(new):
            self._event("request.settled", before, {"outcome": new.status.value})

    def _event(self, type_: str, before: State, fields: dict[str, Json]) -> None:
        self._emit(type_, {"request": self.request_id, **fields}, before.now_ms)


def moved(event: str, before: State, move: Move) -> State:
    """``move(before)``; a refusal is given the event and the state."""
    try:
        return move(before)
    except Refused as refusal:
        refusal.event = event
        refusal.state = before
        raise
