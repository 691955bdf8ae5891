"""What a log says of a journal: which offsets it gave, to what, and when it was started again.

What is taken over from the log
    The offset of each event: a log may leave events out, and a mark may be reserved ahead, so gaps are no harm. An offset
    that was given before is (J1).

What a log does not show, and what is assumed
    Bodies are equal wherever keys are. The buffer forgets at once: how long it remembers is in no line. Keys that were not
    used for a long time are forgotten here too. Lines name no incarnation, so after a restart one may be of the last
    incarnation, which is fenced and doesn't know it yet, or writes late: offsets that were skipped since, and that no line
    has had, may still come, each gap in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final, cast

import attrs

from deadreckon.spec.machines import journal

from .code import Use
from .moves import Key, Malformed, Move, Put, do, see
from .words import Entity, Line, Reader, Words, text_of, whole_number

KEYS: Final = 100_000
"""Keys of one journal that are remembered."""

GAPS: Final = 64
"""Gaps of one journal that are remembered."""

FIRST: Final = 1
"""The machine's offsets begin here; a log's may begin at 0."""

MAX_OFFSET: Final = "max_offset"
ROW: Final = {"offset": 0, "key": 1, "body": 1, "ephemeral": 0, "index": 0, "size": 1}


@attrs.define
class Names:
    """What is remembered of a journal.

    Attributes:
        keys: its keys, the newest last, with their offsets.
        last_row: the offset of its last row.
        last: the highest offset that it gave.
        restarted: whether it was started again, so that lines may be of an incarnation that is fenced.
        gaps: offsets that were skipped since, the newest last: each the one before and the one after.
    """

    keys: dict[str, int] = attrs.field(factory=dict)
    last_row: int = 0
    last: int = 0
    restarted: bool = False
    gaps: list[tuple[int, int]] = attrs.field(factory=list)

    def given(self, offset: int) -> bool:
        """An offset is given; whether it fills a gap, so that an incarnation that is fenced may have given it."""
        for at, (before, after) in enumerate(self.gaps):
            if before < offset < after:
                self.gaps[at] = (offset, after)
                return True
        if self.restarted and offset > self.last + 1:
            self.gaps = [*self.gaps, (self.last, offset)][-GAPS:]
        self.last = max(self.last, offset)
        return False


class JournalWords(Words):
    """The vocabulary of the journal."""

    machine = journal
    noun = "journal"
    use = Use(
        actions=("boot", "crash", "reserve", "append", "append_others", "evict"),
        fixed={"version": 1, "declared": 0, "size": 1},
        observed=(MAX_OFFSET, "told.offset", *(f"log.rows[1].{name}" for name in ROW)),
        judged=True,
    )
    exact = None
    last_resort = "J1"
    unseen: ClassVar[Mapping[str, tuple[str, ...]]] = dict.fromkeys(("J2", "J4", "J5", "J6", "J8"), ())

    def vocabulary(self) -> dict[str, Reader]:
        """The reader of each type of line."""
        return {"journal.appended": self._appended, "journal.restarted": self._restarted}

    def names(self) -> Names:
        """Fresh tables."""
        return Names()

    def _appended(self, line: Line) -> None:
        offset = whole_number(line, "offset") + FIRST
        ephemeral = line.get("ephemeral", False)
        if offset < FIRST or type(ephemeral) is not bool:
            raise Malformed("give an offset of 0 or more, and ephemeral as true or false")
        name = text_of(line, "journal")
        entity = self.entity(name) or self._opened(name)
        keys = _names(entity).keys
        key = None if line.get("key") is None else text_of(line, "key")
        if key is not None and key in keys:
            self.step(entity, line, ("repeated", keys[key], offset))
            return
        names = _names(entity)
        again = offset == names.last_row
        late = names.given(offset)
        if late and not (ephemeral and key is not None):
            self.step(entity, line, ("late",))
        elif ephemeral:
            self.step(entity, line, ("ephemeral", names.last + 1 if late else offset, key is not None))
        else:
            self.step(entity, line, ("durable", offset, again))
            names.last_row = offset
        if key is not None:
            keys[key] = offset
            if len(keys) > KEYS:
                del keys[next(iter(keys))]

    def _restarted(self, line: Line) -> None:
        entity = self.entity(text_of(line, "journal"))
        if entity is not None:
            _names(entity).restarted = True
            self.step(entity, line, ("restarted",))

    def _opened(self, name: str) -> Entity:
        entity = self.opened(name)
        self.assume(entity, ("opened",))
        return entity

    # Moves.

    def moves(self, key: Key) -> Iterable[Move]:
        """The moves that may have written a line with this key."""
        match key:
            case ("opened",):
                yield (do("boot"),)
            case ("restarted",):
                yield (do("crash"), do("boot"))
            case ("durable", int(offset), False):
                yield (Put(MAX_OFFSET, offset - 1), do("append_others", rows=1))
            case ("durable", int(offset), True):
                known = (Put(f"log.rows[1].{name}", value) for name, value in {**ROW, "offset": offset}.items())
                append = do("append", key=0, body=1, asked=False)
                yield (*known, Put(MAX_OFFSET, offset - 1), append)
            case ("ephemeral", int(offset), bool(keyed)):
                append = do("append", key=int(keyed), body=1, asked=True)
                yield (Put(MAX_OFFSET, offset - 1), do("reserve", ahead=1), append, do("evict"))
            case ("repeated", int(first), int(offset)) if first == offset:
                yield ()
            case ("late",):
                yield ()
            case ("repeated", int(first), int(offset)):
                row = {**ROW, "offset": first}
                known = (Put(f"log.rows[1].{name}", value) for name, value in row.items())
                yield (*known, do("append", key=1, body=1, asked=False), see("told.offset", offset))

    def hidden(self, absent: frozenset[str]) -> Iterable[Move]:
        """Nothing."""
        return ()

    def options(self, entity: Entity, part: int) -> Iterator[tuple[str, Key]]:
        """The lines that might come next."""
        highest = max(state[entity.monitor.code.index["ghost.issued"]] for state in entity.nodes[part].states)
        offset = highest + 1
        yield f"journal.appended (offset {offset - FIRST} or more)", ("durable", offset, False)
        yield f"journal.appended (offset {offset - FIRST} or more, ephemeral)", ("ephemeral", offset, False)
        yield "journal.restarted", ("restarted",)


def _names(entity: Entity) -> Names:
    return cast("Names", entity.names)
