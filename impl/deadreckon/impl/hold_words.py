"""What the door tells its callers and approvers: grants, ends and refusals, and what to do now.

CallerError
├── HoldEnd                     nothing (more) will be released; ``hold_id`` says of which hold
│   ├── HoldRefused             an approver refused
│   ├── HoldExpired             nobody decided in time
│   ├── HoldAbandoned           its caller was thought to be gone
│   ├── HoldLapsed              approved, but not started in time, or for a caller that was gone
│   ├── HoldSettled             released before; this is the recorded outcome
│   └── InDoubt                 the effect may have happened: the journal doesn't say
├── DoorClosed                  the door was used outside its ``async with``
└── Refused                     (of the specification) nothing was changed
    └── DecisionRefused         the base: a decision was not accepted
        ├── DecisionLate        the deadline has passed
        ├── DecisionSecond      the hold was decided, or ended, before
        ├── DecisionMalformed   the number of verdicts is not that of the requests
        ├── DecisionUnsigned    a key is active, and the decision approves without a signature
        └── DecisionForged      the signature is not by an active key over these verdicts
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs

from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.hold_state import Evidence, Told

from .hold_journal import Held


class HoldEnd(CallerError):
    """A hold, or one of its requests, came to an end without (further) effect.

    Attributes:
        hold_id: the hold.
        index: the request; None if it is about all.
    """

    def __init__(self, why: str, hold_id: str, index: int | None = None) -> None:
        self.hold_id = hold_id
        self.index = index
        super().__init__(f"hold {hold_id}{'' if index is None else f', request {index}'}: {why}")


class HoldRefused(HoldEnd):
    """An approver refused: durable, final. Don't ask again without a change that meets ``reason``."""

    def __init__(self, hold_id: str, by: str, reason: str, index: int | None = None) -> None:
        self.by = by
        self.reason = reason
        super().__init__(f"refused by {by}{f': {reason}' if reason else ''}", hold_id, index)


class HoldExpired(HoldEnd):
    """Nobody decided by the deadline: durable, final. Ask for a new hold if it still matters."""


class HoldAbandoned(HoldEnd):
    """The caller did not come back within its lease: durable, final. Ask for a new hold if it still matters."""


class HoldLapsed(HoldEnd):
    """Approved, but not started within the grace after the deadline, or its caller was gone (H2, H12): no effect.

    Ask for a new hold if it still matters.
    """


class HoldSettled(HoldEnd):
    """The request was released before, and ``outcome`` is what the journal says of it. Don't run it again."""

    def __init__(self, outcome: Told, hold_id: str, index: int) -> None:
        self.outcome = outcome
        super().__init__(f"released before, with the outcome {outcome.value!r}", hold_id, index)


class InDoubt(HoldEnd):
    """The release was started and the journal has no outcome of it, or `unknown`: the effect may have happened.

    Look at the upstream before anything else. The door will never run it again, unless it is declared idempotent.
    """


class DoorClosed(CallerError):
    """The door is not open. Use it as ``async with Door(journal) as door``; a hold goes on: attach to it later."""


class DecisionRefused(Refused):
    """A decision was not accepted, and nothing was changed: the hold can still be decided validly if it is open."""

    words: ClassVar[str] = ""
    """What was wrong, where the rule doesn't say it all."""

    def __init__(self, hold_id: str, refusal: Refused) -> None:
        self.hold_id = hold_id
        super().__init__(refusal.rule, self.words or refusal.why, event=refusal.event, state=refusal.state)

    def __str__(self) -> str:
        return f"hold {self.hold_id}: {super().__str__()}"


class DecisionLate(DecisionRefused):
    """The deadline has passed (H2). Drop the hold from the list; its caller has to ask anew."""


class DecisionSecond(DecisionRefused):
    """The hold was decided, expired or abandoned before (H6). Drop it from the list."""


class DecisionMalformed(DecisionRefused):
    """There are not as many verdicts as requests (H11). Read the hold again, then decide."""

    words = "there are not as many verdicts as requests: read the hold again"


class DecisionUnsigned(DecisionRefused):
    """A key is active and the decision approves something (H11). Sign it, and send it again."""

    words = (
        "a key is active, and the decision approves something: sign it (deadreckon holds approve --sign-with KEY.pem)"
    )


class DecisionForged(DecisionRefused):
    """The signature is not by an active key over these verdicts (H11). Sign again with an active key."""

    words = "the signature is not by an active key over these verdicts: sign again, with an active key"


_INVALID = {
    Evidence.UNSIGNED: DecisionUnsigned,
    Evidence.SIGNED: DecisionRefused,
    Evidence.BAD_SIGNATURE: DecisionForged,
    Evidence.MALFORMED: DecisionMalformed,
}
_NAMED = {"H2": DecisionLate, "H6": DecisionSecond}


def explained(hold_id: str, refusal: Refused, evidence: Evidence) -> DecisionRefused:
    """The typed form of *refusal*. It names what was decided, and decides nothing."""
    named = _INVALID[evidence] if refusal.rule == "H11" else _NAMED.get(refusal.rule, DecisionRefused)
    return named(hold_id, refusal)


@attrs.frozen(eq=False)
class Grant:
    """The decision on a caller's requests: at least one of them was approved.

    Attributes:
        held: the hold as it was when this was made.
        outcomes: what the journal says of each of the caller's requests: ``Told.NOTHING`` is approved and not settled.
        positions: the index of each of them in the hold, which may hold others of the same caller too.
    """

    held: Held
    outcomes: tuple[Told, ...]
    positions: Sequence[int]

    @property
    def hold_id(self) -> str:
        """The hold; to come back with, and to attach."""
        return self.held.hold_id

    @property
    def deadline_at_ms(self) -> int:
        """Until when it could be decided; releases must start within the grace after it."""
        return self.held.hold.deadline_at_ms

    @property
    def approved(self) -> tuple[bool, ...]:
        """Which of the caller's requests were approved."""
        return tuple(self.held.hold.approved[at] for at in self.positions)

    @property
    def by(self) -> str:
        """Who decided."""
        return self.held.by

    @property
    def reason(self) -> str:
        """Why, in the approver's words."""
        return self.held.reason
