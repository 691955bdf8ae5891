"""Incarnations in a log: names that never come again, whose numbers the machine counts up.

An incarnation that is named for the first time is a life that began; if its predecessor's end was not logged, it ended
unseen. A line that names no incarnation is of the living one, or of one whose name is not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, cast

import attrs

from .moves import Key, Move, do
from .words import Entity, Line, Place, Rejected, Words, text_of

BORN: Final = ("born",)
DIED: Final = ("died",)
NOBODY: Final = ""
"""Under this name the entities stand whose incarnation no line has named."""
NONE: Final[Mapping[str, Entity]] = MappingProxyType({})


@attrs.define
class Life:
    """Who works on an entity.

    Attributes:
        current: the incarnation that lives, or lived last; None if no line has named it.
        number: what the machine calls it.
        alive: whether it lives, as far as lines say.
        past: those before it.
    """

    current: str | None = None
    number: int = 0
    alive: bool = False
    past: set[str] = attrs.field(factory=set)

    def born(self, name: str | None) -> None:
        """Another incarnation."""
        if self.current is not None:
            self.past.add(self.current)
        self.current, self.alive = name, True
        self.number += 1

    def died(self) -> None:
        """The current incarnation is no more."""
        self.alive = False


class LivingWords(Words):
    """A vocabulary whose lines name incarnations; its tables of names are a :class:`Life`."""

    def __init__(self, reject: Callable[[Rejected], None], place: Place) -> None:
        self.living: dict[str, dict[str, Entity]] = {}
        super().__init__(reject, place)

    def lives(self, entity: Entity, line: Line) -> bool:
        """Whether the incarnation that a line names is the living one; a new one begins to live."""
        life = cast("Life", entity.names)
        name = line["incarnation"]
        if name.__class__ is not str:
            name = text_of(line, "incarnation")
        assert isinstance(name, str)
        if name == life.current and life.alive:
            return True
        if name in life.past or name == life.current:
            self.step(entity, line, ("from the dead", life.number - 1 if life.alive else life.number))
            return False
        if life.alive and life.current is None:
            life.current = name
        else:
            if life.alive:  # its predecessor died, and no line says so
                self._dies(entity, line)
            self.step(entity, line, BORN)
            life.born(name)
        self.living.setdefault(name, {})[entity.name] = entity
        return True

    def somebody_lives(self, entity: Entity, line: Line) -> None:
        """A line that names nobody is of the living."""
        life = cast("Life", entity.names)
        if not life.alive:
            self.step(entity, line, BORN)
            life.born(None)
            self.living.setdefault(NOBODY, {})[entity.name] = entity

    def died(self, line: Line) -> None:
        """The reader of ``incarnation.died``: everything that it worked on loses it.

        The dead write nothing, so it may have died long before. Whoever's name is not known may have been this one.
        """
        name = text_of(line, "incarnation")
        for key in (name, NOBODY):
            for entity in self.living.pop(key, NONE).values():
                life = cast("Life", entity.names)
                if life.alive and life.current in (name, None):
                    self._dies(entity, line)

    def _dies(self, entity: Entity, line: Line) -> None:
        death = self.death(entity)
        cast("Life", entity.names).died()
        self.step(entity, line, death, late=True)

    def death(self, entity: Entity) -> Key:
        """What the death of its incarnation is to an entity."""
        return DIED

    def rests(self, entity: Entity) -> None:
        """What happens to its incarnation does not matter to it any more."""
        current = cast("Life", entity.names).current
        self.living.get(NOBODY if current is None else current, {}).pop(entity.name, None)

    def life_moves(self, key: Key) -> Iterator[Move]:
        """The moves of births and deaths."""
        match key:
            case ("born",):
                yield (do("boot"),)
            case ("died",):
                yield (do("crash"),)
