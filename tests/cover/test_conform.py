"""Implementations in other processes are held against a machine; a driver that fails by itself is no violation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from io import StringIO
from pathlib import Path

import attrs
import pytest

from deadreckon.cli.commands import command as command_line
from deadreckon.models import foreign
from deadreckon.models.child import Child
from deadreckon.models.conform import conform, examine
from deadreckon.models.conformance import Conformance
from deadreckon.models.driver import Difference, Divergence, Driver, MachineDriver, Unable
from deadreckon.models.foreign import CommandDriver, DriverDied, DriverFault, DriverHung, DriverRubbish, WrongAnswer
from deadreckon.models.serve import serve
from deadreckon.models.wire import read_inputs, read_policy, written, written_state
from deadreckon.spec import UNLIMITED, CallerError, EnvironmentFault, Machine, Refused
from deadreckon.spec.incident_state import Outcome, RecoveryPolicy
from deadreckon.spec.machines import MACHINES, incident

ROOT = Path(__file__).parents[2]

VARIANT = """
import sys
from deadreckon.models.driver import MachineDriver
from deadreckon.models.serve import serve
from deadreckon.spec.machines import incident

serve(incident, MachineDriver(incident.variant(sys.argv[1]) if len(sys.argv) > 1 else incident))
"""
"""Serves the machine itself, or the machine with a guard removed."""

FAULTY = """
import json, sys, time

for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    state = {"alive": False} if number < 3 else {}
    answer = json.dumps({"id": request["id"], "ok": True, "state": state})
    if number == AFTER:
        MISDEED
    print(answer, flush=True)
"""


def command(source: str, *arguments: str, timeout_s: float = 20.0) -> CommandDriver:
    """A Python program as a driver."""
    return CommandDriver([sys.executable, "-c", source, *arguments], timeout_s)


def faulty(misdeed: str, after: int = 5, timeout_s: float = 20.0) -> CommandDriver:
    """A driver that does as it should until, after so many requests, it does not."""
    source = FAULTY.replace("AFTER", str(after)).replace("MISDEED", misdeed)
    return CommandDriver([sys.executable, "-c", source], timeout_s)


def found_in(variant: str) -> Conformance:
    """What is found in a known-bad design in another process."""
    return examine(incident, command(VARIANT, variant), examples=300, seed=1)


def test_a_sound_implementation_conforms() -> None:
    """What does as the machine says passes, and the report says how much was compared."""
    found = conform(incident, command(VARIANT), examples=20, seed=1)
    assert found.failure is None
    assert found.runs >= 20
    assert found.unseen == ()
    assert "durable.attempts[2]" in found.compared


def test_c3_a_missing_guard_is_found_and_shrunk() -> None:
    """No heavy work starts before the attempt's own entry is durable: without the guard, five steps show it."""
    found = found_in("heavy-before-sync")
    assert isinstance(found.failure, Divergence)
    assert found.failure.rule == "C3"
    assert [step.action.partition("(")[0] for step in found.story[1:]][-2:] in (
        ["deliver", "start_work"],
        ["replay", "start_work"],
    )
    assert len(found.story) - 1 <= 6
    last = found.story[-1]
    assert (last.expected, last.answered) == ("refused by C3 (the attempt's entry is not durable yet)", "ok")
    assert [rule.id for rule in last.breaks] == ["C3"]
    assert found.repeatable


def test_c2_a_difference_of_states_names_the_rule_that_it_breaks() -> None:
    """No death is counted twice: a count that is one too high is shown on both sides, with the rule."""
    found = found_in("found-twice")
    assert isinstance(found.failure, Divergence)
    assert found.failure.differences
    last = found.story[-1]
    assert any(path.startswith("buffered.attempts") for path in last.differing)
    text = "\n".join(found.lines())
    assert f"{len(found.story) - 1}. " in text
    assert "in the implementation" in text


def test_conform_raises_with_the_steps() -> None:
    """For pytest, the error of a failing test holds the numbered steps."""
    with pytest.raises(Divergence, match=r"(?s)seed 1:.*1\. boot\(\).*!.*start_work.*this breaks C3"):
        conform(incident, lambda: MachineDriver(incident.variant("heavy-before-sync")), examples=300, seed=1)


def test_any_driver_will_do() -> None:
    """A driver, or what makes one, is walked like a program, and closed at the end."""

    class Closes(MachineDriver):
        closed = 0

        def close(self) -> None:
            """Count."""
            Closes.closed += 1

    conform(incident, Closes(incident), examples=3, scope="parking", seed=1)
    conform(incident, lambda: Closes(incident), examples=3, scope=incident.scopes[2], seed=1)
    assert Closes.closed == 2
    with pytest.raises(CallerError, match="no scope 'wide': one of overlap, budgets, parking"):
        conform(incident, Closes(incident), scope="wide")


@pytest.mark.parametrize(
    ("driver", "error", "text"),
    [
        (faulty("time.sleep(60)", timeout_s=0.5), DriverHung, r'did not answer .*"do": "act".* within 0.5 s'),
        (faulty("print('why', file=sys.stderr); sys.exit(7)"), DriverDied, r"(?s)exit code 7.*stderr:\n  why"),
        (faulty("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), DriverDied, "killed by SIGKILL"),
        (faulty("answer = 'Traceback'"), DriverRubbish, "Traceback, which is no JSON object"),
        (faulty("answer = '[' * 100_000"), DriverRubbish, "no JSON object"),
        (faulty("answer = 'x' * 3_000_000"), DriverRubbish, "no JSON object"),
        (faulty("answer = '{\"id\": 0, \"ok\": true}'"), WrongAnswer, "which has another id"),
        (faulty("answer = json.dumps({'id': request['id']})"), DriverRubbish, 'neither "ok", "refused" nor'),
        (faulty("answer = json.dumps({'id': request['id'], 'refused': True, 'rule': 3})"), DriverRubbish, "strings"),
        (faulty("answer = json.dumps({'id': request['id'], 'ok': True, 'refused': True})"), DriverRubbish, "ok and refused"),
        (faulty("answer = json.dumps({'id': request['id'], 'refused': True})", 0), DriverRubbish, "init is always possible"),
        (faulty("import os; os.close(1); time.sleep(9)"), DriverDied, "it says no more, though it runs on"),
        (faulty("print(answer)"), DriverFault, "though nothing was asked|another id"),
        (faulty("answer = answer.replace('alive', 'awake')", 2), DriverRubbish, "'awake' is no field of the state"),
        (faulty("answer = answer.replace('false', '0')", 2), DriverRubbish, "alive: 0 is no true or false"),
        (faulty("answer = answer.replace('\"state\"', '\"at_once\"')", 0), DriverRubbish, "at_once is no list"),
        (CommandDriver(["/nonexistent/driver"]), DriverDied, "can't be started"),
        (CommandDriver(["true"]), DriverDied, "ended"),
    ],
)  # fmt: skip
def test_a_failing_driver_is_no_violation(driver: CommandDriver, error: type[DriverFault], text: str) -> None:
    """A driver that hangs, dies, writes rubbish or answers another request is told apart from a divergence, at once."""
    with pytest.raises(error, match=text):
        conform(incident, driver, examples=200, seed=1)


def test_a_driver_that_shows_nothing_is_no_proof() -> None:
    """Where no field is shown nothing is compared, and that is not conformance."""

    class ShowsNothing(MachineDriver):
        def observe(self) -> Mapping[str, object]:
            """Nothing."""
            return {}

    with pytest.raises(DriverFault, match="nothing was compared"):
        conform(incident, ShowsNothing(incident), examples=2)


def test_faults_of_the_environment_pass() -> None:
    """A fault of a driver in this process ends the walks at once, and is no divergence."""

    class Unplugged(MachineDriver):
        calls = 0

        def do(self, action: str, /, **inputs: object) -> None:
            """Fail."""
            Unplugged.calls += 1
            raise EnvironmentFault("unplugged")

    with pytest.raises(EnvironmentFault, match="unplugged"):
        conform(incident, Unplugged(incident))
    assert Unplugged.calls == 1


def test_what_a_program_says_of_itself_is_heeded() -> None:
    """Actions that the implementation takes at once, or doesn't have, are not asked for, with all inputs or some."""
    says = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "act":
        assert request["action"] in ("boot", "crash"), request
    print(json.dumps({"id": request["id"], "ok": True, "at_once": ["sync"], "state": {"parked": False} and
        {"durable.parked": False}, "cannot": [{"action": "tick", "inputs": {"elapsed_ms": 1}}, *NAMES]}), flush=True)
"""
    names = [action.name for action in incident.actions if action.name not in ("boot", "crash", "tick", "sync")]
    found = examine(incident, command(says.replace("NAMES", repr(names))), examples=5, seed=1)
    # It never refuses, so the first crash without a boot before it is a divergence.
    assert isinstance(found.failure, Divergence)
    assert found.at_once == ("sync",)
    assert ("tick", {"elapsed_ms": 1}) in found.cannot


class Lazy(MachineDriver):
    """Parks only on every other call; takes a sync that has nothing to do."""

    never_refuses = ("sync",)

    def __init__(self, machine: Machine = incident) -> None:
        super().__init__(machine)
        self.calls = 0

    def reset(self, policy: object) -> None:
        """Begin anew."""
        super().reset(policy)
        self.calls = 0

    def do(self, action: str, /, **inputs: object) -> None:
        """Take it, or not just now."""
        self.calls += 1
        if action == "park" and self.calls % 2:
            raise Unable("not now")
        with suppress(Refused) if action == "sync" else nullcontext():
            super().do(action, **inputs)


def test_what_can_not_be_done_just_now_is_no_refusal() -> None:
    """An action that the implementation can't be brought to take is not taken by the machine either, and is counted."""
    found = conform(incident, Lazy(), examples=60, scope="parking", seed=1, steer=True)
    unable, done = found.unable["park"]
    assert unable > 0
    assert done > 0
    assert found.never_refuses == ("sync",)
    broken = examine(
        incident, Lazy(incident.variant("seal-while-parked")), examples=300, scope="parking", seed=1, steer=True
    )
    assert isinstance(broken.failure, Divergence)


def test_what_can_not_be_done_just_now_is_served() -> None:
    """Over the wire too: an answer that is neither ok nor a refusal."""
    program = """
from deadreckon.models.driver import MachineDriver, Unable
from deadreckon.models.serve import serve
from deadreckon.spec.machines import incident

class NeverParks(MachineDriver):
    never_refuses = ("sync",)

    def do(self, action, /, **inputs):
        if action == "park":
            raise Unable("not here")
        try:
            super().do(action, **inputs)
        except Exception:
            if action != "sync":
                raise

serve(incident, NeverParks(incident))
"""
    found = conform(incident, command(program), examples=30, scope="parking", seed=1, steer=True)
    assert set(found.unable) == {"park"}
    assert found.never_refuses == ("sync",)
    assert found.coverage.states is not None


def test_what_is_not_shown_now_and_then_is_compared_when_it_is() -> None:
    """A field that is left out at times, while it can't be seen, is compared at all others."""

    class Shy(MachineDriver):
        def observe(self) -> Mapping[str, object]:
            """The count, but not while anything is unsynced."""
            state = self.state
            shown = written_state(state)
            settled = all(shown[path] == shown[path.replace("durable", "buffered")] for path in DURABLE)
            return {"durable.interrupted": shown["durable.interrupted"]} if settled else {}

    DURABLE = [path for path in written_state(incident.initial[0]()) if path.startswith("durable")]
    assert conform(incident, Shy(incident), examples=20, seed=1).compared == ("durable.interrupted",)
    miscounts = Shy(incident.variant("found-twice"))
    found = examine(incident, miscounts, examples=400, seed=1)
    assert isinstance(found.failure, Divergence)
    assert found.failure.differences == (Difference("durable.interrupted", "2", "1"),) or found.story


def test_an_implementation_that_depends_on_more_than_its_steps_is_said_to() -> None:
    """A failure that does not come again is reported, and called unrepeatable."""

    class Moody(MachineDriver):
        calls = 0

        def do(self, action: str, /, **inputs: object) -> None:
            """Once, an action changes nothing."""
            Moody.calls += 1
            if Moody.calls != 30:
                super().do(action, **inputs)

    found = examine(incident, Moody(incident), examples=50, seed=3)
    assert found.failure is not None
    assert not found.repeatable
    assert "does not fail again" in "\n".join(found.lines())


def test_interrupts_leave_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C ends the command with code 2, and with it the driver and whatever the driver has started."""
    pids = tmp_path / "pids"
    source = f"""
import os, subprocess, sys, time
other = subprocess.Popen(["sleep", "300"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{other.pid}}\\n")
time.sleep(300)
"""
    verb = [sys.executable, "-m", "deadreckon.cli", "conform", "incident", "--timeout", "200"]
    run = subprocess.Popen(
        [*verb, "--", sys.executable, "-c", source],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        # A job in the background of a shell ignores interrupts, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not (pids.exists() and pids.read_text().endswith("\n")) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert (run.returncode, errors.strip()) == (2, "deadreckon: interrupted")
    for pid in map(int, pids.read_text().split()):
        assert gone(pid), f"{pid} is still there"


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody of ours must reap counts as ended."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_a_driver_is_reaped_after_every_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """No zombie is left, and a driver may be used again after a fault."""
    children = []

    class Watched(Child):
        def __init__(self, command: Sequence[str], *, loud: bool = False) -> None:
            super().__init__(command, loud=loud)
            children.append(self)

    monkeypatch.setattr(foreign, "Child", Watched)
    driver = faulty("time.sleep(60)", after=3, timeout_s=0.3).of(incident)
    policy = incident.scopes[0].policy
    for _ in range(2):
        driver.reset(policy)
        driver.observe()
        driver.do("boot")
        with pytest.raises(DriverHung):
            driver.observe()
    driver.close()
    assert [child._process.returncode for child in children] == [-signal.SIGKILL] * 2


def test_serve_answers_every_request() -> None:
    """The other end of the protocol: init, act, refusals with their rules, failures as refusals, observe, bye."""

    class Fails(MachineDriver):
        cannot = ("park", ("finish", {"outcome": Outcome.TRANSIENT}))

        def do(self, action: str, /, **inputs: object) -> None:
            """Fail at one action."""
            if action == "tick":
                raise ZeroDivisionError("no time")
            super().do(action, **inputs)

    requests = [
        {"id": 7, "do": "init", "machine": "incident", "policy": {"max_attempts": "unlimited"}},
        {"id": 8, "do": "act", "action": "boot"},
        {"id": 9, "do": "act", "action": "end_original", "inputs": {"outcome": "DONE"}},
        {"id": 10, "do": "act", "action": "tick", "inputs": {"elapsed_ms": 1}},
        {"id": 11, "do": "observe"},
        {"id": 12, "do": "bye"},
    ]
    answers = StringIO()
    driver: Driver = Fails(incident)
    serve(incident, driver, StringIO("".join(f"{json.dumps(one)}\n" for one in requests)), answers)
    told = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert [one["id"] for one in told] == [7, 8, 9, 10, 11, 12]
    assert told[0]["cannot"] == ["park", {"action": "finish", "inputs": {"outcome": "TRANSIENT"}}]
    assert told[2] == {"id": 9, "refused": True, "rule": "C2", "why": "the original turn does not run here"}
    assert told[3]["why"] == "it failed: ZeroDivisionError: no time"
    assert told[4]["state"]["alive"] is True
    assert told[4]["state"]["durable.turn"] == "NEW"


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_what_is_written_can_be_read(machine: type[object]) -> None:
    """Policies and inputs of every machine survive the way through JSON."""
    one = MACHINES[machine.name]  # type: ignore[attr-defined]  # parametrized with machines
    for scope in one.scopes:
        assert read_policy(one, json.loads(json.dumps(written(scope.policy)))) == scope.policy
    for action in one.actions:
        for inputs in action.instances():
            told = json.loads(json.dumps({name: written(value) for name, value in inputs.items()}))
            assert read_inputs(one, action.name, told) == inputs


def test_what_can_not_be_read_is_explained() -> None:
    """Inputs and policies that are none are refused, with what was wanted."""
    assert written(RecoveryPolicy(max_attempts=UNLIMITED)) == {
        **attrs.asdict(RecoveryPolicy()),
        "max_attempts": "unlimited",
    }
    for action, inputs, text in (
        ("finish", {"slot": True, "outcome": "DONE"}, "no integer"),
        ("finish", {"slot": 0, "outcome": "done"}, "none of DONE, YIELDED, TRANSIENT"),
        ("finish", {"slut": 0}, "finish has no input 'slut': slot, outcome"),
        ("finish", [], "no object"),
    ):
        with pytest.raises(ValueError, match=text):
            read_inputs(incident, action, inputs)
    with pytest.raises(ValueError, match="max_tries"):
        read_policy(incident, {"max_tries": 1})
    with pytest.raises(ValueError, match="max_attempts is 0"):
        read_policy(incident, {"max_attempts": 0})


def conformed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of ``deadreckon conform``."""
    with pytest.raises(SystemExit) as ended:
        command_line(["conform", *arguments])
    out, err = capsys.readouterr()
    return int(str(ended.value.code)), out, err


def test_the_command_tells_a_violation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 1, both sides step by step, the rule, a command to replay, and the same as JSON."""
    out_file = tmp_path / "out.json"
    program = [sys.executable, "-c", VARIANT, "heavy-before-sync"]
    code, out, err = conformed(
        capsys, "incident", "--scope", "overlap", "--runs", "300", "--seed", "1", "--json", str(out_file), "--", *program
    )  # fmt: skip
    assert code == 1
    assert "this breaks C3" in out
    assert "the machine refuses it by C3" in err
    assert "replay: deadreckon conform incident --scope overlap --runs 300 --steps 40 --seed 1 -- " in err
    (scope,) = json.loads(out_file.read_text())["scopes"]
    assert scope["verdict"] == "violated"
    assert scope["failure"]["rule"] == "C3"
    last = scope["failure"]["steps"][-1]
    assert last["breaks"] == ["C3"]
    (differing,) = last["differing"]
    assert (last["machine"]["state"][differing], last["implementation"]["state"][differing]) == ("admitted", "heavy")


def test_the_command_tells_conformance(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit code 0 when no walk in any scope fails."""
    out_file = tmp_path / "out.json"
    code, out, _ = conformed(
        capsys, "incident", "--runs", "5", "--json", str(out_file), "--", sys.executable, "-c", VARIANT
    )  # fmt: skip
    assert code == 0
    assert out.count("it conforms") == 3
    assert [scope["verdict"] for scope in json.loads(out_file.read_text())["scopes"]] == ["conforms"] * 3


def test_the_command_tells_a_failing_driver(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 when the driver fails, which says nothing of the implementation."""
    code, _, err = conformed(capsys, "incident", "--timeout", "0.3", "--", "sleep", "60")
    assert code == 2
    assert "did not answer" in err
