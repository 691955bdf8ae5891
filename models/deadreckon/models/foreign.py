"""Drive an implementation in another process, in whatever language: JSON lines over its stdin and stdout.

One request, one answer, in that order; ``docs/conform.md`` is the contract.

    EnvironmentFault
    └── DriverFault         base: the driver program failed, so that nothing is known of the implementation
        ├── DriverHung      no answer in time
        ├── DriverDied      it ended, or could not be started
        ├── DriverRubbish   what it wrote is no answer
        └── WrongAnswer     it is the answer to another request
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

import attrs

from deadreckon.spec import CallerError, EnvironmentFault, Machine, Refused

from .child import Child
from .driver import Lack, Unable
from .layout import Layout
from .wire import Json, members, read_inputs, read_state, written

TIMEOUT_S = 10.0
"""How long an answer may take, unless told."""

TIMEOUT_MAX_S = 86_400.0
"""The longest that may be told."""

SHOWN = 200
"""How much of a line is shown."""


class DriverFault(EnvironmentFault):
    """The driver program failed, so nothing is known of the implementation. Mend the driver, then try again."""


class DriverHung(DriverFault):
    """No answer in time. It waits for something, or its output is buffered: flush after every line."""


class DriverDied(DriverFault):
    """It ended in the middle, or could not be started. Its last words on stderr say why."""


class DriverRubbish(DriverFault):
    """What it wrote is no answer. Only answers may go to stdout; write everything else to stderr."""


class WrongAnswer(DriverFault):
    """The answer to another request: each answer carries the id of its request."""


@attrs.frozen
class CommandDriver:
    """A driver program, by its command line; it is started when it is needed.

    Attributes:
        command: the program and its arguments; no shell is involved.
        timeout_s: how long each answer may take.
        loud: whether its stderr is passed through, as it comes; the last lines are kept in any case.
    """

    command: Sequence[str]
    timeout_s: float = TIMEOUT_S
    loud: bool = False

    def __attrs_post_init__(self) -> None:
        if not 0 < self.timeout_s <= TIMEOUT_MAX_S:  # not so for NaN either
            raise CallerError(
                f"the timeout is {self.timeout_s}: give more than 0 and at most {TIMEOUT_MAX_S:g} seconds"
            )

    def of(self, machine: Machine) -> ProcessDriver:
        """The driver, for *machine*."""
        return ProcessDriver(machine, self)


class ProcessDriver:
    """A :class:`~.driver.Driver` whose implementation is another process. It is started by the first :meth:`reset`.

    After a fault the process is gone; the next :meth:`reset` starts another one.

    Raises:
        DriverFault: (every method) the process does not answer as it must.
    """

    def __init__(self, machine: Machine, program: CommandDriver) -> None:
        self.machine = machine
        self.program = program
        self.at_once: tuple[str, ...] = ()
        self.cannot: tuple[Lack, ...] = ()
        self.never_refuses: tuple[str, ...] = ()
        initial = machine.initial[0]
        self._fields: Layout | None = None
        self._initial = initial
        self._child: Child | None = None
        self._id = 0

    def reset(self, policy: object) -> None:
        """Begin anew, under *policy*."""
        arguments = self.machine.signature(self._initial).arguments(policy, ())
        self._fields = Layout(self._initial(*arguments))
        answer = self._ask({"do": "init", "machine": self.machine.name, "policy": written(policy)})
        if answer.get("ok") is not True:
            raise self._rubbish("an init is always possible: it forgets all", answer)
        try:
            self.at_once = tuple(map(self._action, _listed(answer, "at_once")))
            self.never_refuses = tuple(map(self._action, _listed(answer, "never_refuses")))
            self.cannot = tuple(map(self._lack, _listed(answer, "cannot")))
        except ValueError as wrong:
            raise self._rubbish(str(wrong), answer) from None

    def do(self, action: str, /, **inputs: object) -> None:
        """Let *action* happen."""
        given = {name: written(value) for name, value in inputs.items()}
        self._agreed(self._ask({"do": "act", "action": action, "inputs": given}))

    def observe(self) -> Mapping[str, object]:
        """What it shows of its state."""
        answer = self._ask({"do": "observe"})
        assert self._fields is not None
        try:
            return read_state(answer.get("state"), self._fields.fields)
        except ValueError as wrong:
            raise self._rubbish(f"state: {wrong}", answer) from None

    def close(self) -> None:
        """Say goodbye, and see that it ends."""
        child, self._child = self._child, None
        if child is not None:
            try:
                child.send(_line({"id": self._id + 1, "do": "bye"}))
            except OSError:
                pass  # it is gone already
            finally:
                child.end()

    def _agreed(self, answer: Mapping[str, Json]) -> None:
        """Whether it did as asked.

        Raises:
            Refused: it refuses, and says so.
            Unable: it can't be brought to do it just now.
        """
        told = [word for word in ("ok", "refused", "unable") if answer.get(word) is True]
        if len(told) != 1:
            wanted = 'neither "ok", "refused" nor "unable" is true' if not told else f"{' and '.join(told)} are true"
            raise self._rubbish(wanted, answer)
        if answer.get("unable") is True:
            raise Unable(str(answer.get("why", "")))
        if answer.get("refused") is True:
            rule, why = answer.get("rule", ""), answer.get("why", "")
            if not isinstance(rule, str) or not isinstance(why, str):
                raise self._rubbish("rule and why are not strings", answer)
            raise Refused(rule, why)

    def _action(self, name: Json) -> str:
        if name not in [action.name for action in self.machine.actions]:
            raise ValueError(f"{name!r} is no action of {self.machine.name}")
        return str(name)

    def _lack(self, lack: Json) -> Lack:
        if isinstance(lack, str):
            return self._action(lack)
        told = members(lack)
        action = self._action(told.get("action"))
        return action, read_inputs(self.machine, action, told.get("inputs", {}))

    def _ask(self, request: dict[str, Json]) -> Mapping[str, Json]:
        """The answer to *request*. An answer that is none ends the process."""
        try:
            return self._asked(request)
        except BaseException:
            # Interrupts too: a process that still owes an answer is of no use any more.
            self._end(0.0)
            raise

    def _asked(self, request: dict[str, Json]) -> Mapping[str, Json]:
        child = self._started()
        if unasked := child.unread():
            raise DriverRubbish(f"the driver wrote {_shown(unasked)}, though nothing was asked{self._stderr()}")
        self._id += 1
        asked = _line({"id": self._id, **request})
        try:
            child.send(asked)
            line = child.line(self.program.timeout_s)
        except OSError:
            line = b""
        if line is None:
            raise DriverHung(
                f"the driver did not answer {_shown(asked)} within {self.program.timeout_s:g} s{self._stderr()}"
            )
        if not line:
            ended = self._end()
            raise DriverDied(f"the driver ended ({ended}) instead of answering {_shown(asked)}{self._stderr(child)}")
        return self._read(line, asked)

    def _read(self, line: bytes, asked: bytes) -> Mapping[str, Json]:
        try:
            answer = members(json.loads(line))
        except (ValueError, RecursionError):
            raise DriverRubbish(
                f"the driver answered {_shown(asked)} with {_shown(line)}, which is no JSON object{self._stderr()}"
            ) from None
        if answer.get("id") != self._id or isinstance(answer.get("id"), bool):
            raise WrongAnswer(f"the driver answered {_shown(asked)} with {_shown(line)}, which has another id")
        return answer

    def _started(self) -> Child:
        if self._child is None:
            try:
                self._child = Child(self.program.command, loud=self.program.loud)
            except (OSError, ValueError) as refusal:
                shown = shlex.join(self.program.command)
                raise DriverDied(f"the driver can't be started: {shown}: {refusal}") from refusal
        return self._child

    def _end(self, grace_s: float = 1.0) -> str:
        child, self._child = self._child, None
        return "" if child is None else child.end(grace_s)

    def _rubbish(self, what: str, answer: Mapping[str, Json]) -> DriverRubbish:
        self._end(0.0)
        return DriverRubbish(f"the driver answered {_shown(_line(answer))}: {what}")

    def _stderr(self, child: Child | None = None) -> str:
        child = child or self._child
        if child is None or not child.last_words:
            return ""
        return "\nthe last lines of its stderr:\n" + "\n".join(f"  {line}" for line in child.last_words)


def _listed(answer: Mapping[str, Json], name: str) -> list[Json]:
    listed = answer.get(name, [])
    if not isinstance(listed, list):
        raise ValueError(f"{name} is no list")
    return listed


def _line(message: Mapping[str, Json]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
