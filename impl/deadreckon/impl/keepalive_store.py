"""The port to durable storage of hosts: what is filed of each, its alarm, and who lives.

A store keeps one :class:`Filed` for each host, and beside it the host's alarm. It decides nothing about hosts: it reads,
hands what it read to a *change*, and keeps what comes back, as one durable step that nothing can come between. The
alarm is a second durable thing, written after the record in a step of its own, as on platforms where it is another
service. Two conditions keep the two together though several processes write:

    ===========  =======================================================================================================
    ``arm``      sets the alarm only to what the record says *now*. Whoever was overtaken between its two writes, by a
                 person's reset for example, changes nothing: the other's second write follows, or is made up for
    ``use_up``   takes away the very alarm that has fired, and no later one
    ===========  =======================================================================================================

Fencing (K5): a call of an incarnation that is not the living one changes nothing. A person at another terminal is no
incarnation, writes as :data:`OPERATOR`, and is never fenced. The failures are those of :mod:`deadreckon.impl.store`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import attrs

from deadreckon.spec import incident
from deadreckon.spec.keepalive import initial
from deadreckon.spec.keepalive_state import NEVER, KeepalivePolicy, Record
from deadreckon.spec.keepalive_words import belongs

from .store import Fenced, StoreCorrupt

OPERATOR: Final = 0
"""Who writes when it is no incarnation, but a person at another terminal."""


@attrs.frozen
class Evidence:
    """The fact that tells people about a crash loop (K9).

    Attributes:
        version: the number of the version that crashes.
        epoch: which crash loop of it this is.
        revivals: the count when it was written.
        at_ms: when.
        text: for people; it names the verb that resets.
    """

    version: int
    epoch: int
    revivals: int
    at_ms: int
    text: str


@attrs.frozen
class Filed:
    """What a store holds of one host.

    Attributes:
        record: the record of the specification.
        alarm_at_ms: the platform's alarm. A change can't change it: it is written by ``arm`` and ``use_up``.
        lifetime: the life of the stream now.
        owed: the id of the work that is owed in each slot; empty where none is.
        evidence: all that was written, the oldest first.
        reset_by, reset_at_ms: the person who cleared the count last, and when; empty and 0 if nobody has.
        child: what identifies the process that runs the host, for whoever supervises it after a death.
    """

    record: Record
    alarm_at_ms: int = NEVER
    lifetime: int = 1
    owed: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    reset_by: str = ""
    reset_at_ms: int = 0
    child: str = ""

    @property
    def armed_at_ms(self) -> int:
        """What the record says of the alarm: nothing, if it is of another lifetime (K5)."""
        return self.record.armed_at_ms if belongs(self.record, self.lifetime) else NEVER


UNFILED: Final = Filed(initial().record, lifetime=initial().lifetime)
"""What a store returns of a host that it has never seen."""

Change = Callable[[Filed], Filed]
"""A pure function from what is filed to what shall be; it may raise, and then nothing is changed."""


@attrs.frozen
class Claim:
    """Who owns a store.

    Attributes:
        incarnation: its identity, never used before.
        version: the number of the version that it runs; the first version of a store is number 1.
        policy: its limits, so that whoever looks, or resets, uses the same.
    """

    incarnation: int
    version: int
    policy: KeepalivePolicy


UNCLAIMED: Final = Claim(0, initial().version, KeepalivePolicy())
"""Who owns a store that nobody has claimed."""


class KeepaliveStore(Protocol):
    """Durable storage for hosts. Every method raises ``StoreFault`` when the surroundings fail.

    Attributes:
        others: whether other processes may write too, so that they have to be looked for.
    """

    @property
    def others(self) -> bool: ...

    async def claim(self, version: str, policy: KeepalivePolicy) -> Claim:
        """Begin a new incarnation that runs *version*, any name; durable. All earlier ones are fenced."""
        ...

    async def transact(self, incarnation: int, host: str, change: Change) -> Filed:
        """Replace what is filed of *host* by ``change(filed)``, and return it: one atomic read-modify-write, durable.

        *change* may be called in another thread. A cancelled call is either done or not, never in part; and nothing
        of it is under way once it has raised.

        Raises:
            Fenced: *incarnation* is neither the living one nor :data:`OPERATOR`.
        """
        ...

    async def arm(self, incarnation: int, host: str, at_ms: int) -> bool:
        """Set the alarm of *host*, durably, if that is what its record says by now; whether it was."""
        ...

    async def use_up(self, incarnation: int, host: str, at_ms: int) -> bool:
        """Take away the alarm of *host*, durably, if it is still the one at *at_ms*; whether it was."""
        ...

    async def read(self, host: str) -> Filed:
        """What is filed of *host*; :data:`UNFILED` if nothing is. Not fenced: anybody may look."""
        ...

    async def hosts(self) -> Sequence[tuple[str, Filed]]:
        """All hosts, by name."""
        ...

    async def living(self) -> Claim:
        """Who claimed the store last; :data:`UNCLAIMED` if nobody has. Whether it still runs, no store knows."""
        ...

    async def versions(self) -> Mapping[int, str]:
        """The name of each version, by its number."""
        ...

    async def changes(self) -> int:
        """A number that is another one once somebody else has written. Cheap: it is asked for again and again."""
        ...

    async def close(self) -> None:
        """Let go of files and threads. Closing again does nothing; any other call raises ``StoreClosed``."""
        ...


def successor(last: int) -> int:
    """The identity of the incarnation that claims a store after *last* did; 0 if nobody ever has."""
    return incident.boot(attrs.evolve(incident.initial(), incarnation=last)).incarnation


def admit(caller: int, living: int, *, alive: bool = True) -> None:
    """Let a call pass if it is of the living incarnation, or of a person. It is the incident's rule C13, once more.

    Raises:
        Fenced: it is neither.
    """
    if caller != OPERATOR and not incident.accepts(
        attrs.evolve(incident.initial(), incarnation=living, alive=alive), caller
    ):
        raise Fenced(caller, living)


def sound(filed: Filed, versions: Mapping[int, str]) -> Filed:
    """*filed*, if some version of this library could have written it.

    Raises:
        StoreCorrupt: none could.
    """
    record = filed.record
    counts = (record.revivals, record.last_revival_at_ms, record.epoch, filed.reset_at_ms)
    owed = [one for one in filed.owed if one]
    wrong = [
        why
        for why, holds in (
            ("a count or an instant is negative", min(counts) >= 0 and record.lifetime_total >= record.revivals),
            ("an alarm is at an impossible instant", min(record.armed_at_ms, filed.alarm_at_ms) >= NEVER),
            ("a lifetime is impossible", 1 <= record.lifetime <= filed.lifetime),
            ("a version is unknown", {record.version, *(one.version for one in filed.evidence)} <= {1, *versions}),
            ("work is owed, and nothing is armed", not owed or filed.armed_at_ms != NEVER),  # K11a
            ("the same work is owed twice", len(owed) == len(set(owed))),
            ("evidence is of an epoch to come", all(0 <= one.epoch <= record.epoch for one in filed.evidence)),
        )
        if not holds
    ]
    if wrong:
        raise StoreCorrupt(f"a row holds what no version of this library writes: {wrong[0]}")
    return filed
