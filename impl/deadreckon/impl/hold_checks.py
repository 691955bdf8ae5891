"""What callers and approvers may give: refused at once and by type, before anything is written or called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from deadreckon.spec.errors import CallerError, PolicyError

REQUESTS_MAX: Final = 1_000
REQUEST_MAX_CHARS: Final = 100_000
"""Limits of one hold."""

DAY_MS: Final = 86_400_000
"""The longest that a lease, a patience or a cadence may be."""


def check_text(**texts: object) -> None:
    """Refuse what is no text that a journal can keep.

    Raises:
        CallerError: one of *texts* is no ``str``, or has lone surrogates.
    """
    for name, text in texts.items():
        if not isinstance(text, str):
            raise CallerError(f"{name} is {text!r:.60}: give text")
        if not text.isprintable() and any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise CallerError(f"{name} is {text!r:.60}: lone surrogates can't be stored")


def check_span(name: str, value: object, least: int, most: int = DAY_MS) -> None:
    """Refuse a setting that is no whole number of milliseconds in its range.

    Raises:
        PolicyError: it isn't.
    """
    if type(value) is not int or not least <= value <= most:
        raise PolicyError(f"{name} is {value!r}: give {least} to {most}")


def checked_requests(requests: object) -> tuple[str, ...]:
    """*requests* as a batch: at least one text, and no more than a person can judge.

    Raises:
        CallerError: there is none, there are too many, or one is no text, or too long.
    """
    if isinstance(requests, str) or not isinstance(requests, Iterable):
        raise CallerError(f"requests are {requests!r:.60}: give at least one text in a list")
    batch = tuple(requests)
    if not 1 <= len(batch) <= REQUESTS_MAX:
        raise CallerError(f"there are {len(batch)} requests: give 1 to {REQUESTS_MAX}")
    for at, request in enumerate(batch):
        check_text(**{f"request {at}": request})
        if len(request) > REQUEST_MAX_CHARS:
            raise CallerError(
                f"request {at} has {len(request)} characters: give a digest, or {REQUEST_MAX_CHARS} at most"
            )
    return batch


def checked_verdicts(verdicts: Sequence[bool]) -> tuple[bool, ...]:
    """*verdicts*, if each is True or False: a word such as "reject" must never be taken for a yes.

    Raises:
        CallerError: one is something else.
    """
    if isinstance(verdicts, str) or not isinstance(verdicts, Iterable):
        raise CallerError(f"verdicts are {verdicts!r:.60}: give True or False for each request")
    given = tuple(verdicts)
    if any(type(one) is not bool for one in given):
        raise CallerError(f"verdicts are {given!r:.60}: give True or False for each request")
    return given


def checked_indexes(indexes: Iterable[int], count: int) -> frozenset[int]:
    """*indexes*, if they are some of 0 to *count* - 1.

    Raises:
        CallerError: they are none at all, or one is something else.
    """
    given = list(indexes) if isinstance(indexes, Iterable) else [indexes]
    if not given:
        raise CallerError("indexes are empty: to approve nothing, reject")
    if any(type(at) is not int or not 0 <= at < count for at in given):
        raise CallerError(f"indexes are {given!r:.60}: give some of 0 to {count - 1}")
    return frozenset(given)
