"""Words of the journal of events: what an event is, how its type is defined, and what callers are told.

A definition may change with any version of the code, and history must not. So a definition is asked about *input* alone:
it says whether a new event is ephemeral (J4), and its ``parse`` may refuse or tidy the body. What is committed is
handed out as it was stored; no ``parse`` sees it again.

    CallerError
    ├── EphemeralKeyed          an ephemeral event was given a key (J3)
    ├── EventTooLarge           it would not fit an empty buffer (B1)
    ├── EventMalformed          its type, key or body, or a name, is not what it must be
    ├── FoldMalformed           a reducer has made what JSON can't keep
    ├── KeyConflict             the key stands for another event (J7)
    ├── JournalNotOpen          it was not entered, or was left
    └── SubjectTaken            the subject is awake in this journal already

Failures of the surroundings are those of :mod:`deadreckon.impl.store`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import attrs

from deadreckon.spec.errors import CallerError

from .hold_journal import Json, KeyConflict

T = TypeVar("T")

__all__ = [
    "CONNECTED",
    "DISCONNECTED",
    "REVIVED",
    "Definitions",
    "Draft",
    "EphemeralKeyed",
    "EventMalformed",
    "EventTooLarge",
    "EventType",
    "FoldMalformed",
    "JournalEvent",
    "JournalNotOpen",
    "KeyConflict",
    "SubjectTaken",
]


class EphemeralKeyed(CallerError):
    """An ephemeral event was given a key. Nothing was appended.

    A crash forgets ephemeral events, so no key could make a repetition known (J3). Leave the key out, or declare the
    type durable.
    """


class EventTooLarge(CallerError):
    """The ephemeral event is larger than the whole buffer. No offset was used; send less, or make it durable."""


class EventMalformed(CallerError, ValueError):
    """The type, key or body of an event, or a name, is not what it must be; what a ``parse`` said is the cause."""


class FoldMalformed(CallerError, TypeError):
    """A reducer has made a fold that JSON can't keep, or would give back as something else after a restart.

    Make it of dicts with text as keys, lists, text, numbers, booleans and None.
    """


class JournalNotOpen(CallerError):
    """The journal was not entered yet, or was left. Use it inside ``async with EventJournal(...)``."""


class SubjectTaken(CallerError):
    """A subject of this name is awake in this journal already. Take another name, or leave the first."""


@attrs.frozen
class JournalEvent:
    """A committed event.

    Attributes:
        offset: its place in the one sequence of all events.
        type: the name of its type.
        text: its body, as JSON.
        key: what makes a repetition known; empty for none.
        ephemeral: whether it is known in memory only; as it was stored.
        index: its place among the durable events, from 0; None if it is ephemeral.
        at_ms: when it was appended, by the wall clock.
    """

    offset: int
    type: str
    text: str
    key: str = ""
    ephemeral: bool = False
    index: int | None = None
    at_ms: int = 0

    @property
    def body(self) -> Json:
        """The body; each time a new object, so that nobody can change what others see."""
        body: Json = json.loads(self.text)
        return body

    @property
    def size(self) -> int:
        """The bytes that its type and body take in the buffer."""
        return len(self.type.encode()) + len(self.text)  # the JSON is ASCII


@attrs.frozen
class EventType:
    """What the code that runs says of a type of events.

    Attributes:
        name: the type.
        ephemeral: whether such events are ephemeral, whatever their senders say; otherwise the sender decides.
        parse: given the body of a new event, returns it as it shall be stored, or raises.
    """

    name: str
    ephemeral: bool = False
    parse: Callable[[Json], Json] | None = None


CONNECTED: Final = EventType("presence.connected", ephemeral=True)
DISCONNECTED: Final = EventType("presence.disconnected", ephemeral=True)
REVIVED: Final = EventType("journal.revived")
"""The types that the journal appends by itself."""

NAME_MAX_CHARS: Final = 1_000
"""The longest type, key, client or subject: each is in an index."""

_OWN: Final = (CONNECTED, DISCONNECTED, REVIVED)


@attrs.frozen
class Draft:
    """An event that somebody wants to append.

    Attributes:
        type, text, key: as in :class:`JournalEvent`.
        asked: whether the sender wants it ephemeral.
        declared: whether the definition says that it is.
    """

    type: str
    text: str
    key: str = ""
    asked: bool = False
    declared: bool = False

    def committed(self, offset: int, index: int | None, at_ms: int) -> JournalEvent:
        """The event that this became; a place among the durable events makes it durable."""
        return JournalEvent(offset, self.type, self.text, self.key, index is None, index, at_ms)


class Definitions:
    """The types that a journal knows; events of others are durable unless their sender says otherwise.

    Raises:
        CallerError: a type is defined twice, is the journal's own, or is no :class:`EventType`.
    """

    def __init__(self, types: Iterable[EventType] = ()) -> None:
        self._types: dict[str, EventType] = {}
        for one in (*_OWN, *listed("types", types)):
            if not isinstance(one, EventType):
                raise CallerError(f"types has {one!r:.60}: give EventType")
            check_name("a type", one.name)
            if one.name in self._types:
                raise CallerError(f"the type {one.name!r} is defined already: define each once, under its own name")
            self._types[one.name] = one

    def declared(self, name: str) -> bool:
        """Whether events of this type are ephemeral, whatever is asked."""
        return name in self._types and self._types[name].ephemeral

    def draft(self, name: str, body: Json, key: str | None = None, *, ephemeral: bool = False) -> Draft:
        """What a sender gave, checked and parsed.

        Raises:
            EventMalformed: it is not what it must be.
        """
        check_name("a type", name)
        if key is not None:
            check_name("a key", key)
        if type(ephemeral) is not bool:
            raise EventMalformed(f"ephemeral is {ephemeral!r}: give True or False")
        if name == REVIVED.name:
            raise EventMalformed(f"{name} is appended by revived() alone")
        known = self._types.get(name)
        parsed = body if known is None or known.parse is None else _parsed(known.parse, name, body)
        return Draft(name, canonical(parsed), key or "", ephemeral, self.declared(name))


def presence(one: EventType, client: str, about: Mapping[str, Json]) -> Draft:
    """That a client connects or disconnects."""
    check_name("a client", client)
    if not isinstance(about, Mapping):
        raise EventMalformed(f"about is {about!r:.60}: give a mapping")
    return Draft(one.name, canonical({**about, "client": client}), declared=True)


def canonical(body: object) -> str:
    """A body as JSON, the same for the same body.

    Raises:
        EventMalformed: JSON can't say it.
    """
    try:
        return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise EventMalformed(f"the body is no JSON: {error}") from error


def _parsed(parse: Callable[[Json], Json], name: str, body: Json) -> Json:
    try:
        return parse(body)
    except Exception as error:
        raise EventMalformed(f"the body is no {name}: {error}") from error


def listed(what: str, values: Iterable[T]) -> list[T]:
    """The values, if there are any to go through.

    Raises:
        EventMalformed: *values* is no iterable.
    """
    try:
        return list(values)
    except TypeError as error:
        raise EventMalformed(f"{what} is {values!r:.60}: give a list") from error


def check_name(what: str, value: object) -> None:
    """Refuse what no store keeps as a name.

    Raises:
        EventMalformed: it is no text, is empty or too long, or has surrogates.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_MAX_CHARS:
        raise EventMalformed(f"{what} is {value!r:.60}: give 1 to {NAME_MAX_CHARS} characters of text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EventMalformed(f"{what} is {value!r}, which is no Unicode text") from error
