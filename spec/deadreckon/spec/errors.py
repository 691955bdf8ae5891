"""What can go wrong, and whose fault it is.

DeadreckonError
├── CallerError             mend the call, the machine or the policy
│   ├── SpecError           a machine is declared in a way that can't be checked faithfully
│   ├── PolicyError         a policy value is out of its range
│   └── Refused             a machine refused an event: nothing was changed
├── EnvironmentFault        mend the disk, the database or the installation, then try again
└── InternalError           a defect of Deadreckon: please report it
"""

from __future__ import annotations


class DeadreckonError(Exception):
    """Base of every error that Deadreckon raises on purpose."""


class CallerError(DeadreckonError):
    """The caller can mend this."""


class EnvironmentFault(DeadreckonError):
    """The surroundings failed (disk, database, missing package). What was durable before still is."""


class InternalError(DeadreckonError):
    """Deadreckon contradicts itself. Please report it with the message."""


class PolicyError(CallerError, ValueError):
    """A policy value is outside its range; the message names the field, the value and the range."""


class SpecError(CallerError):
    """A machine is declared in a way that the engines can't follow faithfully.

    ``where`` is ``file:line`` of the offending form, ``instead`` says what to write.
    """

    def __init__(self, what: str, *, where: str = "", instead: str = "") -> None:
        self.what = what
        self.where = where
        self.instead = instead
        at = f"{where}: " if where else ""
        mend = f" Instead: {instead}." if instead else ""
        super().__init__(f"{at}{what}.{mend}")


class Refused(CallerError):
    """A machine refused an event; the state is as it was before.

    ``rule`` is the id of the rule that the refusal keeps, ``why`` its reason in words. ``event`` and ``state`` are
    filled in by whoever ran the transition (:meth:`Machine.step`, a reference implementation).
    """

    def __init__(self, rule: str, why: str, *, event: str = "", state: object = None) -> None:
        self.rule = rule
        self.why = why
        self.event = event
        self.state = state
        super().__init__(rule, why)

    def __str__(self) -> str:
        event = f"{self.event} " if self.event else ""
        return f"{event}refused by {self.rule}: {self.why}"
