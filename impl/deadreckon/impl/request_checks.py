"""What callers of requests may give, checked before anything is recorded."""

from __future__ import annotations

from typing import Final

from deadreckon.spec.errors import CallerError

from .request_drive import Attempter

ID_MAX_CHARS: Final = 1_000
"""The longest id of a request: it is in an index."""


def check_text(name: str, text: str) -> None:
    """Refuse what no store keeps.

    Raises:
        CallerError: it is no text, or has surrogates.
    """
    try:
        if isinstance(text, str):
            text.encode()  # quicker by far than a look at each character: a body may be large
            return
    except UnicodeEncodeError:
        pass
    shown = text[:60] if isinstance(text, str) else text
    raise CallerError(f"{name} is {shown!r:.60}: give text without surrogates")


def check_id(request_id: str) -> None:
    """Refuse what names no request.

    Raises:
        CallerError: it is no text, is empty or too long, or has surrogates.
    """
    if not isinstance(request_id, str) or not 1 <= len(request_id) <= ID_MAX_CHARS:
        raise CallerError(f"request_id is {request_id!r:.60}: give 1 to {ID_MAX_CHARS} characters of text")
    check_text("request_id", request_id)


def check_attempt(attempt: Attempter) -> None:
    """Refuse what can't be called, before an attempt is used up by it.

    Raises:
        CallerError: it is no function.
    """
    if not callable(attempt):
        raise CallerError(f"attempt is {attempt!r:.60}: give an async function that returns the answer")


def check_trigger(triggered_at_ms: int | None) -> None:
    """Refuse what is no instant.

    Raises:
        CallerError: it is no integer, or negative.
    """
    if triggered_at_ms is not None and (type(triggered_at_ms) is not int or triggered_at_ms < 0):
        raise CallerError(f"triggered_at_ms is {triggered_at_ms!r:.60}: give milliseconds since 1970, an integer")
