"""Hold logs against the machines: ``audit`` and what it reports.

``log`` and ``mapping`` read lines, ``words`` and the module of each machine say what they mean, ``monitor`` keeps the states
that they allow, ``explain`` and ``lenient`` say why a line fits nowhere, ``run`` which run of the machine explains the rest.
"""

from .auditor import (
    CONFORMS,
    PENDING,
    VIOLATES,
    VOCABULARIES,
    Audit,
    Filters,
    Known,
    Report,
    Violation,
    audit,
    told,
)
from .words import Line

__all__ = [
    "CONFORMS",
    "PENDING",
    "VIOLATES",
    "VOCABULARIES",
    "Audit",
    "Filters",
    "Known",
    "Line",
    "Report",
    "Violation",
    "audit",
    "told",
]
