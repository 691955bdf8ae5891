"""The reference implementation as models drive it: two holds of two requests, an action at a time.

The driver plays what is not of the implementation: callers, approvers, the keys' owner, the clock, deaths and boots of
doors, and outages. All else is asked of :class:`~.hold_steps.Steps` over a real journal. It has the methods that
``deadreckon.models.driver.Driver`` asks for, and knows nothing of models.

Where the machine is wider than a journal
    * Who is outside may act while the journal is away: a caller comes or goes, keys change, a door boots. These are
      facts of the journal here, so the driver lets that one append through. So it is with what a door is told of a
      decision just before an outage.
    * A door of the machine stops waiting for an acknowledgement and stays aware of the hold. The implementation's door
      lets go of what it never had an acknowledgement of; the driver shows it the hold first.
    * A wait is told of its own hold: ``judge`` with another source is refused without asking anybody.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final, Protocol, TypeVar

import attrs

from deadreckon.spec import hold as spec
from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.hold_state import Evidence, Hold, HoldPolicy, State, Told, Wait

from .hold_decisions import add_key, decide, revoke_key
from .hold_journal import Ballot, Change, Held, Journal, JournalUnavailable, Key, NoSuchHold, Receipt, Verifier, blank
from .hold_journal_keys import key_ballot
from .hold_journal_memory import MemoryJournal
from .hold_journal_sqlite import SqliteJournal
from .hold_memory import Asked, Life, Memory, boot
from .hold_steps import Steps
from .store import Fenced
from .timer import Timer
from .virtual import VirtualTimer

T = TypeVar("T")

HOLDS: Final = ("hold-0", "hold-1")
REQUESTS: Final = ("first", "second")
PUBLIC: Final = "public"
"""The public key of whoever owns the keys: each key that is added has a new id."""
LEASE_MS: Final = 1

PLAYED: Final = frozenset(
    {"crash", "boot", "journal_fails", "journal_returns", "change_keys", "tick", "ask", "ask_again", "judge", "decide"}
)
"""The actions that the driver plays, or prepares."""

ASKED: Final = frozenset(
    {
        "slice_ends", "wait_fails", "judgement_fails", "wake", "stop_waiting", "adopt", "expire", "abandon",
        "start_release", "call", "answer", "lose_track", "settle", "settle_unknown", "lapse", "tell", "detach",
        "attach", "leave",
    }
)  # fmt: skip
"""Those that are methods of :class:`~.hold_steps.Steps`."""

OUTSIDE: Final = frozenset({"detach", "attach", "leave"})
"""Those of them that an outage does not keep from happening."""

INFORMED: Final = frozenset({"judgement_fails", "tell"})
"""Those of them whose door has been told, just before the outage, what the journal has."""


class Frail(Journal, Protocol):
    """A journal that can be made unavailable.

    Attributes:
        unacknowledged: so many appends to come are kept, and then raise ``JournalUnavailable``.
    """

    unacknowledged: int

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        ...

    def down(self) -> None:
        """Become unavailable."""
        ...

    def up(self) -> None:
        """Be available again, with all facts."""
        ...


class FrailSqliteJournal(SqliteJournal):
    """A :class:`~.hold_journal_sqlite.SqliteJournal` that can be made unavailable, and lose acknowledgements."""

    def __init__(self, path: str, timer: Timer, verifier: Verifier) -> None:
        super().__init__(path, timer, verifier)
        self.unacknowledged = 0
        self._up = True

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        return self._up

    def down(self) -> None:
        """Become unavailable."""
        self._up = False

    def up(self) -> None:
        """Be available again, with all facts."""
        self._up = True

    async def append(
        self, hold_id: str, change: Change, *, door: int | None = None, key: str = "", body: str = ""
    ) -> Receipt:
        """See :meth:`deadreckon.impl.Journal.append`."""
        receipt = await super().append(hold_id, change, door=door, key=key, body=body)
        if self.unacknowledged:
            self.unacknowledged -= 1
            raise JournalUnavailable("the acknowledgement was lost", hold_id=hold_id)
        return receipt

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if not self._up:
            raise JournalUnavailable("the journal is down")
        return await super()._call(work)


JournalMaker = Callable[[VirtualTimer, Verifier], Frail]


def in_memory(timer: VirtualTimer, verifier: Verifier) -> Frail:
    """An empty journal in memory."""
    return MemoryJournal(timer, verifier)


def in_files(directory: str | os.PathLike[str]) -> JournalMaker:
    """What makes empty journals, each in an SQLite file of its own in *directory*."""
    paths = (os.path.join(os.fspath(directory), f"journal-{number}.db") for number in count(1))

    def make(timer: VirtualTimer, verifier: Verifier) -> Frail:
        return FrailSqliteJournal(next(path for path in paths if not os.path.exists(path)), timer, verifier)

    return make


def signature(ballot: Ballot) -> str:
    """Stands for the key's signature over *ballot*."""
    return f"{PUBLIC} signs {ballot.hold_id} {ballot.requests} {ballot.verdicts}"


def good(ballot: Ballot, signed: str, key: Key) -> bool:
    """Whether it is."""
    return key.public_key == PUBLIC and signed == signature(ballot)


@attrs.define(eq=False)
class Place:
    """One of the machine's holds: the door's steps of it, and what its caller asked for."""

    hold_id: str
    steps: Steps
    asked: Asked


class HoldDriver:
    """Drives the reference implementation of the hold.

    Args:
        journal: makes the journal of a run, empty; in memory by default.
    """

    def __init__(self, journal: JournalMaker = in_memory) -> None:
        self._make = journal
        self._runner = asyncio.Runner()
        self._policy = HoldPolicy()
        self._timer = VirtualTimer(0)
        self._journal: Frail | None = None
        self._life = Life(0, alive=False)
        self._places: list[Place] = []
        self._outages = 0
        self._key_id = "none"
        self._keys = (str(number) for number in count(1))

    def reset(self, policy: object) -> None:
        """Begin anew: an empty journal, a living door, time 0."""
        if not isinstance(policy, HoldPolicy):
            raise CallerError(f"the policy is {policy!r}: give a HoldPolicy")
        self._policy = policy
        self._runner.run(self._reset())

    def do(self, action: str, /, **inputs: object) -> None:
        """Take an action of the machine.

        Raises:
            Refused: the implementation refuses; a journal that is away, or fences the caller, names no rule.
            CallerError: there is no such action.
        """
        if self._journal is None:
            raise CallerError("the driver has not been reset yet: call reset(policy) first")
        if action in PLAYED:
            self._runner.run(self._taken(getattr(self, f"_{action}"), inputs))
        elif action in ASKED:
            self._runner.run(self._taken(self._step, {"action": action, **inputs}))
        else:
            raise CallerError(f"the hold has no action {action!r}: one of {', '.join(sorted(PLAYED | ASKED))}")

    def observe(self) -> State:
        """The state as the specification sees it: what the journal has, and the memory of the door."""
        return self._runner.run(self._state())

    def close(self) -> None:
        """Close the journal, and end the event loop."""
        try:
            if self._journal is not None:
                self._runner.run(self._journal.close())
        finally:
            self._runner.close()

    @property
    def journal(self) -> Frail:
        """The journal of this run."""
        if self._journal is None:
            raise CallerError("the driver has not been reset yet: call reset(policy) first")
        return self._journal

    def steps(self, held: Held | None, hold_id: str) -> Steps:
        """A door's steps of one hold."""
        return Steps(self.journal, self._life, hold_id, self._policy, LEASE_MS, held)

    async def _reset(self) -> None:
        if self._journal is not None:
            await self._journal.close()
        self._timer = VirtualTimer(0)
        self._journal = self._make(self._timer, good)
        self._outages = 0
        self._life = await boot(self._journal)
        self._places = [Place(hold_id, self.steps(None, hold_id), self._asking(hold_id)) for hold_id in HOLDS]
        for place in self._places:
            place.steps.memory = Memory.of(blank(len(REQUESTS)))

    async def _taken(self, own: Callable[..., Awaitable[object]], inputs: dict[str, object]) -> None:
        try:
            await own(**inputs)
        except (Fenced, JournalUnavailable, NoSuchHold) as failure:
            raise Refused("", str(failure)) from failure

    async def _state(self) -> State:
        with self._through():
            moments = [await self.journal.read(place.hold_id) for place in self._places]
        holds = tuple(
            place.steps.memory.on(blank(len(REQUESTS)) if moment.held is None else moment.held.hold)
            for place, moment in zip(self._places, moments, strict=True)
        )
        return State(
            holds,
            door=self._life.door,
            alive=self._life.alive,
            journal=self._outages + 1,
            up=self.journal.is_up,
            key_active=bool(moments[0].keys),
            now_ms=self.journal.now_ms(),
        )

    @contextmanager
    def _through(self, condition: bool = True) -> Iterator[None]:
        """Let through what is done meanwhile, even if the journal is away."""
        away = condition and not self.journal.is_up
        if away:
            self.journal.up()
        try:
            yield
        finally:
            if away:
                self.journal.down()

    async def _step(self, action: str, index: int, **inputs: object) -> None:
        """An action that is a method of the steps."""
        steps = self._places[index].steps
        if action in INFORMED or (action == "stop_waiting" and steps.held is None):
            with self._through():
                await steps.read()
        if action == "leave":
            inputs = {"goodbye": True}
        with self._through(action in OUTSIDE):
            await getattr(steps, action)(**inputs)

    # Callers and approvers.

    def _asking(self, hold_id: str) -> Asked:
        """What a caller asks for: each time something new, as the machine has it."""
        return Asked(REQUESTS, hold_id, next(self._keys), self._policy)

    async def _ask(self, index: int, acknowledged: bool) -> None:
        place = self._places[index]
        asked, steps = self._asking(place.hold_id), self.steps(None, place.hold_id)
        self.journal.unacknowledged = 0 if acknowledged else 1
        try:
            await steps.ask(asked)
        except JournalUnavailable:
            if steps.memory.wait is not Wait.ASKING:
                raise
        finally:
            self.journal.unacknowledged = 0
        place.steps, place.asked = steps, asked

    async def _ask_again(self, index: int) -> None:
        """Sent by a door that lacks an acknowledgement; whether one does, the specification says."""
        place = self._places[index]
        if place.steps.memory.wait is not Wait.ASKING:
            spec.ask_again(self._policy, await self._state(), index)
        await place.steps.ask_again(place.asked)

    async def _judge(self, index: int, source: int) -> None:
        if source != index:
            raise Refused("", "a wait is told of its own hold alone")
        await self._places[index].steps.judge()

    async def _decide(self, index: int, first: bool, second: bool, evidence: Evidence) -> None:
        hold_id = self._places[index].hold_id
        verdicts = (first, second, first) if evidence is Evidence.MALFORMED else (first, second)
        signed = signature(Ballot(hold_id, REQUESTS, verdicts))
        key_id = self._key_id
        match evidence:
            case Evidence.UNSIGNED | Evidence.MALFORMED:
                signed = key_id = ""
            case Evidence.BAD_SIGNATURE:
                signed = "forged"
            case Evidence.SIGNED:
                pass
        await decide(self.journal, hold_id, verdicts, "approver", "", signed, key_id)

    async def _change_keys(self) -> None:
        with self._through():
            if (await self._state()).key_active:
                signed = signature(key_ballot(Key(self._key_id, ""), active=False))
                await revoke_key(self.journal, self._key_id, by="owner", signature=signed, signed_by=self._key_id)
            else:
                self._key_id = f"key-{next(self._keys)}"
                await add_key(self.journal, self._key_id, PUBLIC, by="owner")

    # What happens to everybody. Whether it can, the specification says.

    async def _crash(self) -> None:
        spec.crash(await self._state())
        self._life.alive = False
        for place in self._places:
            place.steps.memory = self._forgotten(place)

    async def _boot(self) -> None:
        spec.boot(await self._state())
        with self._through():
            self._life = await boot(self.journal)
            for place in self._places:
                steps = self.steps((await self.journal.read(place.hold_id)).held, place.hold_id)
                steps.memory, place.steps = self._forgotten(place), steps

    def _forgotten(self, place: Place) -> Memory:
        """The memory of a door that has none yet. What its caller was told is outside: that is not forgotten."""
        told: tuple[Told, ...] = place.steps.memory.told
        empty: Hold = blank(len(REQUESTS))
        return attrs.evolve(Memory.of(empty), told=told)

    async def _journal_fails(self) -> None:
        spec.journal_fails(await self._state())
        self.journal.down()

    async def _journal_returns(self) -> None:
        spec.journal_returns(await self._state())
        self.journal.up()
        self._outages += 1

    async def _tick(self, elapsed_ms: int) -> None:
        spec.tick(self._policy, await self._state(), elapsed_ms)
        self._timer.advance(elapsed_ms)
