"""A subject: whoever folds the durable events of a journal, and has effects for them.

Theory of operation
    ``async with Subject(...)`` wakes it. If the version of the reducer is the one that acknowledged last, that is one
    read, and one more for the tail, however long the journal is (J8). If it is another, all acknowledged events are
    folded again, page by page, without effects and without moving the acknowledgement; the fold is kept every few
    pages, so that a death on the way doesn't cost it all.

    Then each batch of new events is folded, its effects are run, and it is acknowledged. Effects are at least once: a
    death between an effect and its acknowledgement repeats the effect. The fold is kept every 64 events or every
    second, whichever comes first; and when the subject goes idle.

    When an effect or the reducer raises, what came before it is acknowledged, and ``step`` or ``run`` raises; calling
    it again begins with the event that failed.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Generic, NoReturn

from deadreckon.spec import journal_words as words
from deadreckon.spec.errors import CallerError
from deadreckon.spec.journal_state import Phase

from .journal import EventJournal
from .journal_reader import SLICE_MS
from .journal_store import PAGE
from .journal_subject_steps import Reducer, S, SubjectEffect, SubjectSteps
from .journal_words import check_name

KEPT_EVERY: Final = 10
"""Pages of a refold after which the fold is kept: about one write for 5,000 events."""


class Subject(Generic[S]):
    """A subject of *journal*: ``async with Subject(journal, "totals", reducer, effect) as subject``.

    Args:
        journal: an open journal.
        name: under which its progress is kept.
        reducer: what it makes of events.
        effect: what each event is to bring about; see :data:`~deadreckon.impl.SubjectEffect`.
        batch: events that are acknowledged at once, at most.
    """

    def __init__(
        self,
        journal: EventJournal,
        name: str,
        reducer: Reducer[S],
        effect: SubjectEffect[S] | None = None,
        *,
        batch: int = 64,
    ) -> None:
        if type(batch) is not int or not 1 <= batch <= PAGE:
            raise CallerError(f"batch is {batch!r:.60}: give 1 to {PAGE}")
        check_name("the subject's name", name)
        self.name = name
        self._journal = journal
        self._reducer = reducer
        self._effect = effect
        self._batch = batch
        self._steps: SubjectSteps[S] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def __aenter__(self) -> Subject[S]:
        journal = self._journal
        incarnation = journal.incarnation
        journal.claim_subject(self.name)
        self._one_at_a_time = asyncio.Lock()  # of this event loop
        try:
            steps = SubjectSteps(journal.store, incarnation, self.name, self._reducer, journal.policy, journal.timer)
            await self._woken(steps)
        except BaseException:
            journal.release_subject(self.name)
            raise
        self._steps = steps
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self.keep()
        finally:
            self._steps = None
            self._journal.release_subject(self.name)

    @property
    def fold(self) -> S:
        """What the reducer has made of all events that are acknowledged."""
        return self._awake.fold

    @property
    def acknowledged(self) -> int:
        """The number of durable events whose effects are done."""
        return self._awake.memory.progress.acknowledged

    async def step(self) -> int:
        """Fold, and acknowledge, one batch of new events; how many there were."""
        steps = self._awake
        async with self._one_at_a_time:
            if not words.is_awake(steps.memory.phase):
                await self._woken(steps)  # the store failed, and it is unknown what is acknowledged
            state = await steps.look()
            rows = min(self._batch, state.log.count - state.fold.position)
            if rows > 0:
                try:
                    await steps.process(rows, self._effect)
                finally:
                    self._journal.listeners.tell()
        return max(0, rows)

    async def run(self) -> NoReturn:
        """Follow the journal for ever, in a task of its own.

        Raises:
            StoreFault: the store failed; calling it again goes on.
        """
        while True:
            head = await self._journal.head()
            if await self.step() == 0 and await self._journal.wait(head, SLICE_MS) is None:
                await self.keep()

    async def keep(self) -> None:
        """Keep the fold now, if it is not kept: the next wake is then one read."""
        steps = self._awake
        async with self._one_at_a_time:
            state = steps.memory
            if state.phase == Phase.LIVE and state.fold != state.progress.checkpoint:
                await steps.checkpoint()

    async def _woken(self, steps: SubjectSteps[S]) -> None:
        """Wake it, and fold what is acknowledged."""
        await steps.wake()
        pages = 0
        while steps.memory.phase == Phase.FOLDING:
            left = steps.memory.progress.acknowledged - steps.memory.fold.position
            await steps.fold_page(min(PAGE, left))
            pages += 1
            if pages % KEPT_EVERY == 0:
                await steps.checkpoint()
        state = steps.memory
        if not words.tail_is_bounded(steps.policy, state.progress, state.version):
            await steps.checkpoint()

    @property
    def _awake(self) -> SubjectSteps[S]:
        if self._steps is None:
            raise CallerError(f"the subject {self.name!r} is asleep: use it inside 'async with Subject(...)'")
        return self._steps
