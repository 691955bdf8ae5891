"""One method for each action of the journal's machine that is about a subject, run against a real store.

As in ``journal_steps.py``, nothing is decided here. Positions are numbers of rows, so the rows that a step needs are
read by their index. A page of the refold is one read; ``wake`` is one read of the head and the progress together.

``process`` asks the specification twice: before anything is done, so that no effect is run by a subject that may not
run any; and in the transaction that acknowledges. If an effect fails in between, what was done before it is
acknowledged, and the rest is not: effects are done at least once.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

import attrs

from deadreckon.spec import journal as spec
from deadreckon.spec.errors import CallerError
from deadreckon.spec.journal_state import NOBODY_WAITS, JournalPolicy, Log, Phase, State, Wait

from .clock import Clock
from .journal_steps import Move, moved
from .journal_store import EventStore, Kept, Look, Sight, Writes
from .journal_words import FoldMalformed, JournalEvent
from .store import StoreCorrupt
from .waiting import to_the_end

S = TypeVar("S")

LARGEST_VERSION = 2**53

SubjectEffect = Callable[[JournalEvent, S], Awaitable[None]]
"""``await effect(event, fold)``: what an event, folded as the last into *fold*, is to bring about. At least once."""


@attrs.frozen
class Reducer(Generic[S]):
    """What a subject makes of the durable events.

    Attributes:
        version: that of ``reduce``: another one folds all events again; from 1 on.
        initial: the fold of no events.
        reduce: the fold after one event more. It must be pure: a new fold, the old one left as it is. Folds are kept
            as JSON, so make them of what JSON gives back as it was: no tuples, and no numbers as keys.
    """

    version: int
    initial: S
    reduce: Callable[[S, JournalEvent], S]

    def __attrs_post_init__(self) -> None:
        if type(self.version) is not int or not 1 <= self.version < LARGEST_VERSION:
            raise CallerError(f"the reducer's version is {self.version!r}: give an integer from 1 on")


class SubjectSteps(Generic[S]):
    """The actions of one subject in one incarnation of a journal.

    They raise as those of :class:`~.journal_steps.Steps`. After a fault of the store the subject is asleep again, for
    what it has acknowledged may be unknown.
    """

    def __init__(
        self,
        store: EventStore,
        incarnation: int,
        name: str,
        reducer: Reducer[S],
        policy: JournalPolicy,
        clock: Clock,
        phase: Phase = Phase.OPEN,
    ) -> None:
        self.name = name
        self.fold = reducer.initial
        self.policy = policy
        self.memory: State = attrs.evolve(
            spec.initial(), log=Log(0, 0, 0, 0, ()), buffer=(), version=reducer.version, phase=phase
        )
        self._asleep = self.memory
        self._store = store
        self._incarnation = incarnation
        self._reducer = reducer
        self._clock = clock

    async def look(self) -> State:
        """The state as the specification sees it now."""
        self.memory = self._seen(await self._store.look(Look(subject=self.name)))
        return self.memory

    async def wake(self) -> None:
        """The subject begins: one read, and no row."""
        sight = await self._store.look(Look(subject=self.name, fold=True))
        before = self._seen(sight)
        self.memory = moved("wake", before, spec.wake)
        kept = self.memory.fold == before.progress.checkpoint and sight.kept.fold is not None
        self.fold = self._loaded(sight.kept.fold or "") if kept else self._reducer.initial

    async def fold_page(self, rows: int) -> None:
        """So many acknowledged rows are folded again; no effects."""
        after = moved("fold_page", self.memory, lambda state: spec.fold_page(state, rows))
        fold = self.fold
        for event in await self._rows(self.memory.fold.position, rows):
            fold = self._reducer.reduce(fold, event)
        self.memory, self.fold = after, fold

    async def process(self, rows: int, effect: SubjectEffect[S] | None = None) -> None:
        """So many new rows are folded, their effects run, and acknowledged.

        What *effect* or the reducer raises, this raises, once the rows before it are acknowledged.
        """
        moved("process", await self.look(), lambda state: spec.process(self.policy, state, rows))
        done, fold = 0, self.fold
        try:
            for event in await self._rows(self.memory.fold.position, rows):
                after = self._reducer.reduce(fold, event)
                if effect is not None:
                    await effect(event, after)
                done, fold = done + 1, after
        finally:
            if done:
                await self._commit("process", fold, lambda state: spec.process(self.policy, state, done))

    async def checkpoint(self) -> None:
        """The fold is kept."""
        await self._commit("checkpoint", self.fold, spec.checkpoint)

    async def _commit(self, event: str, fold: S, move: Move) -> None:
        await to_the_end(self._committed(event, fold, move))

    async def _committed(self, event: str, fold: S, move: Move) -> None:
        reached: list[State] = []

        def change(sight: Sight) -> Writes:
            before = self._seen(sight)
            after = moved(event, before, move)
            is_kept = after.progress.checkpoint != before.progress.checkpoint
            kept = Kept(after.progress, self._dumped(fold) if is_kept else None)
            reached.append(after)
            return Writes(sight.high, kept=kept)

        try:
            await self._store.transact(self._incarnation, Look(subject=self.name), change)
        except BaseException:
            if reached:
                self.memory = self._asleep
            raise
        self.memory, self.fold = reached[-1], fold

    async def _rows(self, first: int, rows: int) -> Sequence[JournalEvent]:
        found = await self._store.listed(first, rows)
        if len(found) != rows or found[0].index != first:
            raise StoreCorrupt(f"of {rows} rows from index {first} on, {len(found)} are there")
        return found

    def _seen(self, sight: Sight) -> State:
        return attrs.evolve(self.memory, log=sight.log, progress=sight.kept.progress, now_ms=self._clock.now_ms())

    def _dumped(self, fold: S) -> str:
        try:
            text = json.dumps(fold, separators=(",", ":"), allow_nan=False)
            same = json.loads(text) == fold  # or the reducer would be given another type, but only after a restart
        except (TypeError, ValueError, RecursionError) as error:
            raise FoldMalformed(f"the fold of {self.name!r} can't be kept as JSON: {error}") from error
        if not same:
            raise FoldMalformed(f"JSON gives the fold of {self.name!r} back as another: has it tuples, or odd keys?")
        return text

    def _loaded(self, text: str) -> S:
        try:
            return cast("S", json.loads(text))
        except (ValueError, RecursionError) as error:
            raise StoreCorrupt(f"the fold of {self.name!r} is no JSON: {error}") from error


async def begin_wait(store: EventStore, subject: str, before: State) -> Wait:
    """What to wait for, so that *subject* has seen everything so far; *before* is the state but for what is durable."""
    return moved("begin_wait", _looked(before, await store.look(Look(subject=subject))), spec.begin_wait).waiting


async def end_wait(store: EventStore, subject: str, before: State) -> None:
    """End a wait, which *before* has.

    Raises:
        Refused: the subject is not there yet (J6).
    """
    moved("end_wait", _looked(before, await store.look(Look(subject=subject))), spec.end_wait)


def waiting_state(waiting: Wait = NOBODY_WAITS, phase: Phase = Phase.OPEN) -> State:
    """The state of somebody who waits for this, but for what is durable."""
    return attrs.evolve(spec.initial(), phase=phase, waiting=waiting, buffer=())


def _looked(before: State, sight: Sight) -> State:
    return attrs.evolve(before, log=sight.log, progress=sight.kept.progress)
