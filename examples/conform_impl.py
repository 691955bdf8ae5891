"""Serve the reference implementation to ``deadreckon conform``, which then treats it as anybody else's program.

deadreckon conform incident -- python examples/conform_impl.py incident
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from deadreckon.impl.hold_driver import HoldDriver
from deadreckon.impl.incident_driver import IncidentDriver
from deadreckon.impl.journal_driver import JournalDriver
from deadreckon.impl.keepalive_driver import KeepaliveDriver
from deadreckon.impl.request_driver import RequestDriver
from deadreckon.models.driver import Driver
from deadreckon.models.serve import serve
from deadreckon.spec.machines import MACHINES

DRIVERS: dict[str, Callable[[], Driver]] = {
    "hold": HoldDriver,
    "incident": IncidentDriver,
    "journal": JournalDriver,
    "keepalive": KeepaliveDriver,
    "request": RequestDriver,
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in DRIVERS:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(DRIVERS)}")
    serve(MACHINES[sys.argv[1]], DRIVERS[sys.argv[1]]())
