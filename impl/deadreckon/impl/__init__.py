"""The reference implementation: asyncio shells around the functions of ``deadreckon.spec``.

Example::

    from deadreckon.impl import Recovery, SqliteStore

    async def tell(turn_id, reason, count):
        await chat.post(turn_id, f"gave up after {count} interruptions ({reason.value})")

    async with SqliteStore("turns.db") as store, Recovery(store, on_terminal=tell) as recovery:
        for turn_id in await recovery.unfinished():         # what earlier lives of this process left behind
            async with recovery.replay(turn_id) as attempt:  # Sealed after five of them died in here
                await run_the_model(turn_id)                # heavy work: runs only once every death is counted
                await attempt.progress()
"""

from .clock import Clock, SystemClock
from .incident import OnTerminal, Predicate, Recovery
from .incident_attempt import Attempt
from .incident_steps import Life, Memory, Steps, boot
from .incident_words import Closed, GivenUp, Incident, IncidentRefused, Kind, NoIncident, NotEntered, Sealed
from .sqlite import SqliteStore
from .store import (
    UNKNOWN,
    Change,
    Fenced,
    Store,
    StoreClosed,
    StoreCorrupt,
    Stored,
    StoreFault,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreNewer,
    StoreReadOnly,
    StoreUnavailable,
    admit_caller,
    successor,
)

__all__ = [
    "UNKNOWN",
    "Attempt",
    "Change",
    "Clock",
    "Closed",
    "Fenced",
    "GivenUp",
    "Incident",
    "IncidentRefused",
    "Kind",
    "Life",
    "Memory",
    "NoIncident",
    "NotEntered",
    "OnTerminal",
    "Predicate",
    "Recovery",
    "Sealed",
    "SqliteStore",
    "Steps",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreFault",
    "StoreForeign",
    "StoreFull",
    "StoreLocked",
    "StoreNewer",
    "StoreReadOnly",
    "StoreUnavailable",
    "Stored",
    "SystemClock",
    "admit_caller",
    "boot",
    "successor",
]
