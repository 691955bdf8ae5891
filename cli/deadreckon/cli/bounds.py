"""The option ``--bound NAME=VALUE``: how bounds are written on a command line, and told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import click

from deadreckon.models.bounding import Settings, own, unknown
from deadreckon.spec import UNLIMITED, CallerError, Machine

WORDS = {"true": True, "false": False, "unlimited": UNLIMITED}


def written(text: str) -> tuple[str, int]:
    """The bound that *text* sets: ``NAME=VALUE``.

    Raises:
        click.BadParameter: when it sets none.
    """
    name, equals, value = text.partition("=")
    if name and equals and (value in WORDS or re.fullmatch(r"-?[0-9]{1,19}", value)):
        return name, WORDS[value] if value in WORDS else int(value)
    raise click.BadParameter(f"{text!r} is no NAME=VALUE, with an integer, {', '.join(WORDS)} as the value")


bound_option = click.option(
    "--bound",
    "bounds",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, values: tuple(map(written, values)),
    help="Raise or lower a size (slots=4), a limit of the policy (max_attempts=3) or a horizon (now_ms=5, or "
    "SCOPE.now_ms=5 in one scope alone); repeatable.",
)


def told(bounds: Settings) -> Iterator[str]:
    """Each of *bounds* as it is written."""
    for name, value in bounds:
        word = next((word for word, meant in WORDS.items() if type(meant) is type(value) and meant == value), None)
        yield f"{name}={value if word is None else word}"


def check_bounds(machines: Iterable[Machine], bounds: Settings) -> None:
    """Refuse a bound that none of *machines* has.

    Raises:
        CallerError: with the bounds that there are.
    """
    there = tuple(machines)
    for bound in bounds:
        if not any(own(one, (bound,)) for one in there):
            raise CallerError(unknown(bound[0], *there))
