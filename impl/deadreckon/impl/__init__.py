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

A request that waits for a person::

    from deadreckon.impl import Door, SqliteJournal, approve

    async with SqliteJournal("holds.db") as journal, Door(journal) as door:
        async with door.hold([digest_of(request)], caller=run_id) as grant:     # or HoldRefused, HoldExpired, ...
            response = await door.release(grant, 0, send)       # send(release_id): at most once, and on record

    await approve(journal, hold_id, by="ada")                                   # there, or in any other process

A request that is worth ten minutes, and not one more::

    from deadreckon.impl import Requests, SqliteRequests

    async with SqliteRequests("requests.db") as store, Requests(store, on_outcome=tell) as requests:
        await requests.adopt(ask_the_model)                                     # what earlier lives left open
        await requests.open(turn_id, prompt)
        answer = await requests.run(turn_id, ask_the_model)                     # or RequestExpired, RequestFailed

A journal of events, whose clients may come and go without filling it::

    from deadreckon.impl import EventJournal, Reducer, SqliteEvents, Subject

    async with SqliteEvents("events.db") as store, EventJournal(store) as journal:
        await journal.append("order.placed", {"id": 7}, key="order-7")          # on disk; again, it is the old event
        await journal.connected("ada")                                          # known in memory, and no row
        async with Subject(journal, "totals", Reducer(1, 0, add), ship) as totals:
            await totals.run()                                                  # ship(event, fold): at least once

Work that outlives the process that does it, however often that dies::

    from deadreckon.impl import Keepalive, SqliteKeepalive

    async with SqliteKeepalive("hosts.db") as store, Keepalive(store, revive=take_up, version=build) as keepalive:
        async with keepalive.supervise("agent", obliges=True, work_id=turn_id):  # on record, and an alarm is armed
            await run_the_model(turn_id)

A process that is kept running, and not restarted for ever::

    async with SqliteKeepalive("hosts.db") as store, Supervisor(store, version=build) as supervisor:
        await supervisor.start("worker", ["python", "-m", "worker"], probe=answers)
        await supervisor.until_signal()
"""

from deadreckon.spec.errors import CallerError, EnvironmentFault, PolicyError, Refused
from deadreckon.spec.hold_state import HoldPolicy
from deadreckon.spec.incident_state import RecoveryPolicy

from .clock import Clock, SystemClock
from .events import Event, EventLog, Sink
from .hold import Door
from .hold_decisions import Decision, add_key, approve, decide, open_holds, reject, revoke_key
from .hold_journal import (
    Ballot,
    Entry,
    Held,
    Journal,
    JournalUnavailable,
    Key,
    KeyChange,
    KeyConflict,
    KeyRefused,
    Moment,
    NoSuchHold,
    Receipt,
    Recorded,
    Verifier,
    Written,
)
from .hold_journal_keys import key_ballot
from .hold_journal_sqlite import SqliteJournal
from .hold_memory import Asked
from .hold_memory import Life as DoorLife
from .hold_memory import boot as boot_door
from .hold_release import Effect
from .hold_steps import Steps as HoldSteps
from .hold_words import (
    DecisionForged,
    DecisionLate,
    DecisionMalformed,
    DecisionRefused,
    DecisionSecond,
    DecisionUnsigned,
    DoorClosed,
    Grant,
    HoldAbandoned,
    HoldEnd,
    HoldExpired,
    HoldLapsed,
    HoldRefused,
    HoldSettled,
    InDoubt,
)
from .incident import OnTerminal, Predicate, Recovery
from .incident_attempt import Attempt
from .incident_sqlite import SqliteStore
from .incident_steps import Life, Memory, Steps, boot
from .incident_words import Closed, GivenUp, Incident, IncidentRefused, Kind, NoIncident, NotEntered, Sealed
from .journal import EventJournal
from .journal_reader import EventPage, EventReader
from .journal_sqlite import SqliteEvents
from .journal_store import EventStore
from .journal_subject import Subject
from .journal_subject_steps import Reducer, SubjectEffect
from .journal_words import (
    EphemeralKeyed,
    EventMalformed,
    EventTooLarge,
    EventType,
    FoldMalformed,
    JournalEvent,
    JournalNotOpen,
    SubjectTaken,
)
from .keepalive import Keepalive, Revive, host_views
from .keepalive_child import Program
from .keepalive_kept import OnEvidence
from .keepalive_sqlite import SqliteKeepalive
from .keepalive_steps import Life as KeepaliveLife
from .keepalive_steps import Steps as KeepaliveSteps
from .keepalive_steps import enter as enter_keepalive
from .keepalive_steps import reset_by_hand
from .keepalive_store import Claim, Evidence, KeepaliveStore
from .keepalive_store import Filed as FiledHost
from .keepalive_supervised import Probe
from .keepalive_supervisor import Supervisor
from .keepalive_words import HostView, KeepaliveClosed, PutDown, Reset, Revival, WorkInFlight
from .request import OnOutcome, Requests
from .request_drive import Attempter
from .request_sqlite import SqliteRequests
from .request_steps import Life as RequestLife
from .request_steps import Steps as RequestSteps
from .request_steps import boot as boot_requests
from .request_store import UNFILED, Filed, RequestStore
from .request_words import (
    AttemptMalformed,
    NoSuchRequest,
    RequestAttempt,
    RequestConflict,
    RequestEnd,
    RequestExpired,
    RequestFailed,
    RequestsClosed,
    RequestView,
)
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
from .timer import SystemTimer, Timer

__all__ = [
    "UNFILED",
    "UNKNOWN",
    "Asked",
    "Attempt",
    "AttemptMalformed",
    "Attempter",
    "Ballot",
    "CallerError",
    "Change",
    "Claim",
    "Clock",
    "Closed",
    "Decision",
    "DecisionForged",
    "DecisionLate",
    "DecisionMalformed",
    "DecisionRefused",
    "DecisionSecond",
    "DecisionUnsigned",
    "Door",
    "DoorClosed",
    "DoorLife",
    "Effect",
    "Entry",
    "EnvironmentFault",
    "EphemeralKeyed",
    "Event",
    "EventJournal",
    "EventLog",
    "EventMalformed",
    "EventPage",
    "EventReader",
    "EventStore",
    "EventTooLarge",
    "EventType",
    "Evidence",
    "Fenced",
    "Filed",
    "FiledHost",
    "FoldMalformed",
    "GivenUp",
    "Grant",
    "Held",
    "HoldAbandoned",
    "HoldEnd",
    "HoldExpired",
    "HoldLapsed",
    "HoldPolicy",
    "HoldRefused",
    "HoldSettled",
    "HoldSteps",
    "HostView",
    "InDoubt",
    "Incident",
    "IncidentRefused",
    "Journal",
    "JournalEvent",
    "JournalNotOpen",
    "JournalUnavailable",
    "Keepalive",
    "KeepaliveClosed",
    "KeepaliveLife",
    "KeepaliveSteps",
    "KeepaliveStore",
    "Key",
    "KeyChange",
    "KeyConflict",
    "KeyRefused",
    "Kind",
    "Life",
    "Memory",
    "Moment",
    "NoIncident",
    "NoSuchHold",
    "NoSuchRequest",
    "NotEntered",
    "OnEvidence",
    "OnOutcome",
    "OnTerminal",
    "PolicyError",
    "Predicate",
    "Probe",
    "Program",
    "PutDown",
    "Receipt",
    "Recorded",
    "Recovery",
    "RecoveryPolicy",
    "Reducer",
    "Refused",
    "RequestAttempt",
    "RequestConflict",
    "RequestEnd",
    "RequestExpired",
    "RequestFailed",
    "RequestLife",
    "RequestSteps",
    "RequestStore",
    "RequestView",
    "Requests",
    "RequestsClosed",
    "Reset",
    "Revival",
    "Revive",
    "Sealed",
    "Sink",
    "SqliteEvents",
    "SqliteJournal",
    "SqliteKeepalive",
    "SqliteRequests",
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
    "Subject",
    "SubjectEffect",
    "SubjectTaken",
    "Supervisor",
    "SystemClock",
    "SystemTimer",
    "Timer",
    "Verifier",
    "WorkInFlight",
    "Written",
    "add_key",
    "admit_caller",
    "approve",
    "boot",
    "boot_door",
    "boot_requests",
    "decide",
    "enter_keepalive",
    "host_views",
    "key_ballot",
    "open_holds",
    "reject",
    "reset_by_hand",
    "revoke_key",
    "successor",
]
