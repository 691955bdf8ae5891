"""The built-in machines: what ``deadreckon check`` checks when it is not told what."""

from __future__ import annotations

from types import MappingProxyType

from .hold_table import hold
from .incident_table import incident
from .journal_table import journal
from .keepalive_table import keepalive
from .request_table import request

__all__ = ["MACHINES", "hold", "incident", "journal", "keepalive", "request"]

MACHINES = MappingProxyType({machine.name: machine for machine in (incident, hold, keepalive, journal, request)})
