"""What requests tell their callers: attempts, views, ends and refusals, and what to do now.

CallerError
├── RequestEnd                  the request is settled without an answer; ``request_id`` says which
│   ├── RequestExpired          nobody had the answer by the horizon
│   └── RequestFailed           every attempt failed, or died with its incarnation
├── AttemptMalformed            the function that tries it returns no text
├── RequestConflict             the id stands for another request
├── NoSuchRequest               the id stands for nothing
└── RequestsClosed              the ``Requests`` were used outside their ``async with``
"""

from __future__ import annotations

import attrs

from deadreckon.spec.errors import CallerError
from deadreckon.spec.request_state import Reason, Status

from .request_store import Filed


class RequestEnd(CallerError):
    """The request has its outcome, and it is no answer. Durable, final: ask anew, under another id, if it matters.

    Attributes:
        request_id: the request.
        reason: why.
        attempts: how often it was tried.
        error: what the last failure said; empty if there was none.
    """

    def __init__(self, request_id: str, filed: Filed) -> None:
        self.request_id = request_id
        self.reason = filed.request.reason
        self.attempts = filed.request.attempts
        self.error = filed.error
        last = f"; the last failure: {filed.error}" if filed.error else ""
        tried = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}"
        super().__init__(f"request {request_id}: {REASONS[self.reason]} ({tried}){last}")


class RequestExpired(RequestEnd):
    """Nobody had the answer by the horizon, or there was no time left to try (Q7). Whoever asked has to ask again."""


class RequestFailed(RequestEnd):
    """The attempts are used up: each failed, or died with its incarnation. ``error`` is what the last one said."""


class RequestConflict(CallerError):
    """The id stands for a request with another body. Give each request an id of its own."""


class AttemptMalformed(CallerError, TypeError):
    """The function that makes attempts returned no text, or nothing to await. Mend it, then ``run`` the request again.

    The attempt is used up, and no other is made meanwhile: it would be paid for, and end like this one.
    """


class NoSuchRequest(CallerError):
    """The store has no request of this id. Open it first."""


class RequestsClosed(CallerError):
    """The requests are not served here. Use ``async with Requests(store)``; an open request goes on at the next."""


REASONS = {
    Reason.NONE: "no reason",
    Reason.ATTEMPTS: "the attempts are used up",
    Reason.NO_TIME: "too little time was left for an attempt",
    Reason.HORIZON: "the horizon has passed",
}


@attrs.frozen
class RequestAttempt:
    """One attempt, as the function that makes it sees it.

    Attributes:
        request_id: the request.
        body: what is asked.
        number: 1 for the first attempt, whichever incarnation made it.
        deadline_at_ms: the attempt is cancelled at this instant, on the clock of the ``Requests``.
        incarnation: the one that makes it.
    """

    request_id: str
    body: str
    number: int
    deadline_at_ms: int
    incarnation: int


@attrs.frozen
class RequestView:
    """A request, for callers, people and dashboards.

    Attributes:
        request_id: the request.
        status: open, or its outcome.
        reason: why it is no success.
        expires_at_ms: its horizon.
        attempts: how many were begun.
        owner: the incarnation that began the last; 0 if none was.
        running: whether that attempt is under way, as far as the record tells; if its incarnation has died since, it
            isn't.
        retry_at_ms: no attempt is begun before; 0 if none has failed.
        told: whether ``on_outcome`` has returned for it.
        body, answer, error: what was asked, what came of it, and what the last failure said.
    """

    request_id: str
    status: Status
    reason: Reason
    expires_at_ms: int
    attempts: int
    owner: int
    running: bool
    retry_at_ms: int
    told: bool
    body: str
    answer: str
    error: str

    @classmethod
    def of(cls, request_id: str, filed: Filed, living: int) -> RequestView:
        """The view of what a store holds of *request_id*, while *living* owns the store."""
        request = filed.request
        begun = request.owner == living and request.attempts > 0
        return cls(
            request_id=request_id,
            status=request.status,
            reason=request.reason,
            expires_at_ms=request.expires_at_ms,
            attempts=request.attempts,
            owner=request.owner,
            running=request.status is Status.OPEN and begun and filed.dialled_at_ms >= request.retry_at_ms,
            retry_at_ms=request.retry_at_ms,
            told=request.told is not Status.ABSENT,
            body=filed.body,
            answer=filed.answer,
            error=filed.error,
        )


def ended(request_id: str, filed: Filed) -> str:
    """The answer of a settled request.

    Raises:
        RequestEnd: it has none.
    """
    if filed.request.status is Status.SUCCEEDED:
        return filed.answer
    raise (RequestExpired if filed.request.status is Status.EXPIRED else RequestFailed)(request_id, filed)
