"""What a keepalive did, read off the steps that were committed, as events of the vocabulary of logs."""

from __future__ import annotations

from deadreckon.spec.keepalive_state import NEVER, Pass, State

from .events import Emitter
from .hold_journal import Json


class HostEvents:
    """Tells what happens to one host. Each line comes after what it says is durable.

    Args:
        host: the host.
        emit: where to.
        version: the name of the version that runs.
    """

    def __init__(self, host: str, emit: Emitter, version: str) -> None:
        self._host = host
        self._emit = emit
        self._version = version

    def committed(self, action: str, before: State, after: State) -> None:
        """One line for each thing that became true in a step, but for its alarm."""
        if action == "fire":
            self.tell("alarm.fired", before)
        if action == "track":
            self.tell("work.tracked", before)
        if action in ("settle", "settle_failed"):
            self.tell("work.settled", before, ok=action == "settle")
        if before.alive and not after.alive:
            self.tell("host.died", before, asked=before.stopping)
        if after.record.epoch > before.record.epoch and after.record.lifetime == before.record.lifetime:
            self.tell("count.cleared", before, by=after.record.cleared_by.value)
        if before.reviving is Pass.IDLE and after.reviving is Pass.RECORDED:
            self.tell("revival.started", before, n=after.record.revivals, version=self._version)
        if after.reported_facts > before.reported_facts:
            self.tell("plateau.reported", before, version=self._version)
        if action == "succeed":
            self.tell("revival.succeeded", before)
        given_up = action in ("fire", "stray_fire") and before.reviving is not Pass.IDLE and after.reviving is Pass.IDLE
        if action == "fail" or given_up:
            self.tell("revival.failed", before)

    def armed(self, state: State, at_ms: int) -> None:
        """The platform's alarm was set."""
        if at_ms != NEVER:
            self.tell("alarm.armed", state, due_at=at_ms)

    def tell(self, type_: str, state: State, **fields: Json) -> None:
        """One line."""
        self._emit(type_, {"host": self._host, **fields}, state.now_ms)
