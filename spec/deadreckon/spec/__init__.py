"""Machines: states, transitions, rules and known-bad variants, in plain Python that every engine runs."""

from __future__ import annotations

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
    eventually,
    require,
    sometimes,
    swap,
)
from .machine import Action, Inputs, Machine, Scope, Signature, Variant, action, explored, hints_of, scope

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
    "eventually",
    "explored",
    "hints_of",
    "require",
    "scope",
    "sometimes",
    "swap",
]
