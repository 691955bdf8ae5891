"""Machines: states, transitions, rules and known-bad variants, in plain Python that every engine runs."""

from __future__ import annotations

from .bounds import Scope, scope
from .errors import CallerError, DeadreckonError, EnvironmentFault, InternalError, PolicyError, Refused, SpecError
from .language import (
    UNLIMITED,
    Among,
    Between,
    Domain,
    Function,
    Kind,
    Rule,
    Swap,
    always,
    each,
    eventually,
    require,
    sometimes,
    swap,
)
from .machine import Action, Inputs, Machine, Signature, Variant, action, explored, hints_of

__all__ = [
    "UNLIMITED",
    "Action",
    "Among",
    "Between",
    "CallerError",
    "DeadreckonError",
    "Domain",
    "EnvironmentFault",
    "Function",
    "Inputs",
    "InternalError",
    "Kind",
    "Machine",
    "PolicyError",
    "Refused",
    "Rule",
    "Scope",
    "Signature",
    "SpecError",
    "Swap",
    "Variant",
    "action",
    "always",
    "each",
    "eventually",
    "explored",
    "hints_of",
    "require",
    "scope",
    "sometimes",
    "swap",
]
