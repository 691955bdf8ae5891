"""The option ``--bound``: what it sets, what it refuses, and where it is told."""

from __future__ import annotations

import json
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result

from deadreckon.cli.checking import PROVE, Plan, Proved, Task, perform
from deadreckon.cli.commands import command
from deadreckon.spec import UNLIMITED

LEASE = f"{Path(__file__).parents[2] / 'examples' / 'lease.py'}:machine"
PAIR = """\
import attrs
from deadreckon.spec import Machine, PolicyError, action, require, scope

@attrs.frozen
class Policy:
    most: tuple[int, ...] = (2, 3)
    strict: bool = True

@attrs.frozen
class State:
    count: int

def valid(policy: Policy) -> bool:
    require(policy.most[0] >= 1, "M1", "give at least 1")
    return policy.most[0] <= policy.most[1]

def initial() -> State:
    return State(0)

def step(policy: Policy, state: State) -> State:
    require(state.count < policy.most[0] or not policy.strict, "M1", "enough")
    return State(state.count + 1)

SCOPES = tuple(scope(name, why="w", at_most={"count": 9}, policy=Policy(), liveness=False) for name in ("one", "two"))
pair = Machine(name="pair", title="t", state=State, policy=Policy, policy_valid=valid, initial=(initial,),
               actions=(action(step),), rules=(), scopes=SCOPES, terminal=valid)
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a machine with two scopes, whose policy has a tuple and a bool."""
    path = tmp_path_factory.mktemp("machines") / "pair.py"
    path.write_text(PAIR)
    return f"{path}:pair"


def run(*words: str) -> Result:
    """What a command comes to; nothing may surprise it."""
    done = CliRunner().invoke(command, words, prog_name="deadreckon")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def explored(machine: str, *bounds: str) -> tuple[Result, dict[str, int], dict[str, object]]:
    """Exploration under bounds: how it ended, the states of each scope, and what the JSON says of the machine."""
    options = [option for bound in bounds for option in ("--bound", bound)]
    with TemporaryDirectory() as place:
        file = Path(place) / "out.json"
        done = run("check", machine, "--engine", "explore", "--jobs", "1", "--json", str(file), *options)
        (found,) = json.loads(file.read_text())["machines"].values()
    return done, {scope["name"]: scope["states"] for scope in found["scopes"]}, found


def test_bound_raises_and_lowers(pair: str) -> None:
    """A horizon, or a limit, may be set to more and to less than is declared."""
    states = [explored(pair, *bounds)[1]["one"] for bounds in ((), ("most[0]=1",), ("most[0]=3",), ("count=1",))]
    assert states == [3, 2, 4, 2]
    assert explored(pair, "strict=false", "count=12")[1] == {"one": 13, "two": 13}


def test_bound_of_one_scope_leaves_the_others(pair: str) -> None:
    """`SCOPE.NAME` sets a bound in one scope alone; without a scope it holds in every one that has it."""
    assert explored(pair, "two.count=1")[1] == {"one": 3, "two": 2}
    assert explored(pair, "count=1")[1] == {"one": 2, "two": 2}


def test_the_last_bound_of_a_name_counts(pair: str) -> None:
    """Of two values for one thing, the last one counts."""
    assert explored(pair, "count=1", "one.count=2")[1] == {"one": 3, "two": 2}
    assert explored(pair, "one.count=2", "count=1")[1] == {"one": 2, "two": 2}


def test_limits_that_are_valid_together_are_set_together(pair: str) -> None:
    """A policy is judged with all of its new limits, not after each."""
    assert explored(pair, "most[0]=5", "most[1]=6")[1]["one"] == 6


@pytest.mark.parametrize(
    ("bound", "said"),
    {
        "an unknown name": ("depth=3", r"no bound depth: pair has most[0], most[1], strict, count; SCOPE.NAME"),
        "an unknown scope": ("three.count=3", "no bound three.count"),
        "no value": ("count", "'count' is no NAME=VALUE, with an integer, true, false, unlimited"),
        "no name": ("=3", "'=3' is no NAME=VALUE"),
        "no number": ("count=many", "'count=many' is no NAME=VALUE"),
        "a bool for a number": ("most[0]=true", "most[0] is True: give an integer"),
        "a number for a bool": ("strict=1", "strict is 1: give true or false"),
        "a bool for a horizon": ("count=true", "horizon count is True: give an integer"),
        "what the policy refuses": ("most[0]=0", "the policy with most[0] 0 is not valid: M1: give at least 1"),
        "what the policy denies": ("most[0]=7", "the policy with most[0] 7 is not valid: valid says no"),
    }.values(),
    ids=lambda value: value.split(" ")[0],
)
def test_bound_that_can_not_be_is_refused(pair: str, bound: str, said: str) -> None:
    """A bound that there isn't, or a value that is none for it, is wrong usage: exit 2, with the names that there are."""
    done = run("check", pair, "--bound", bound)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ("max_interrupted_attempts=0", "max_interrupted_attempts is 0: give at least 1, or UNLIMITED"),
        ("slots=0", "size slots is 0. Instead: give an integer, from 1 to 1000."),
        ("slots=9223372036854775807", "size slots is 9223372036854775807. Instead: give an integer, from 1 to 1000."),
    ],
)
def test_what_policy_or_size_refuses_is_its_own_error(bound: str, said: str) -> None:
    """The policy's class, and the size, say themselves what they take."""
    done = run("check", "incident", "--bound", bound)
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_bounds_are_told(tmp_path: Path) -> None:
    """Tables, JSON and JUnit say which bounds were set; the JSON has all bounds of each scope."""
    junit = tmp_path / "out.xml"
    files = ("--junitxml", str(junit))
    done = run("check", LEASE, "--engine", "explore", "--bound", "granted=4", "--bound", "lease_ms=unlimited", *files)
    assert "lease: known-bad variants, under granted=4, lease_ms=unlimited" in done.stdout
    suite = ET.parse(junit).getroot()[0]
    assert [dict(one.attrib) for one in suite.findall("properties/property")] == [
        {"name": "bound granted", "value": "4"},
        {"name": "bound lease_ms", "value": "unlimited"},
    ]
    assert suite.attrib["tests"] == str(len(suite.findall("testcase")))
    _, _, told = explored(LEASE, "granted=4", "lease_ms=unlimited")
    assert (told["bounds"], told["sizes"]) == ({"granted": 4, "lease_ms": UNLIMITED}, {})
    assert isinstance(told["scopes"], list)
    assert told["scopes"][0]["at_most"] == {"granted": 4, "now_ms": 6}
    assert told["scopes"][0]["policy"] == {"lease_ms": UNLIMITED}


def test_without_bounds_nothing_is_told_of_them() -> None:
    """What is declared is not told as if it had been asked for."""
    done, _, told = explored(LEASE)
    assert "under" not in done.stdout
    assert told["bounds"] == {}


def test_variants_are_refuted_under_the_same_bounds() -> None:
    """A known-bad design is checked under the bounds too, and what replays its failure names them."""
    done, _, told = explored(LEASE, "granted=1")
    assert done.exit_code == 1
    assert told["defects"] == {"no-fencing": {"verdict": "survives", "rule": "F2", "steps": None}}
    replay = next(line for line in done.stderr.splitlines() if "variant" in line).partition("replay: deadreckon ")[2]
    again = run(*shlex.split(replay))
    assert (again.exit_code, "survives" in again.stdout) == (1, True)
    assert run("defects", LEASE).exit_code == 0
    assert run("defects", LEASE, "--bound", "granted=2").exit_code == 0


def test_bound_holds_for_the_machines_that_have_it(pair: str) -> None:
    """Of several machines a bound is set in those that have it, and told of those alone."""
    done = run("check", LEASE, pair, "--engine", "explore", "--bound", "count=2", "--bound", "granted=1")
    replays = [line.partition("replay: ")[2] for line in done.stderr.splitlines() if "replay: " in line]
    assert replays
    assert all("granted=1" in replay and "count" not in replay for replay in replays)
    assert "pair: rules, 6 states, 4 edges in 2 scopes, explored by plain, under count=2" in " ".join(
        done.stdout.split()
    )


def test_show_has_the_bounds() -> None:
    """`show` lists the bounds of every scope, and shows the machine under others if it is asked to."""
    assert "granted 3, now_ms 6" in run("show", LEASE).stdout
    assert "granted 9, now_ms 6" in run("show", LEASE, "--bound", "granted=9").stdout
    assert "slot in 0, 1, 2, 3" in run("show", "incident", "--bound", "slots=4").stdout
    diagrams = {run("show", LEASE, "--format", "mermaid", "--field", "granted", *more).stdout for more in ((), SMALLER)}
    assert len(diagrams) == 2


SMALLER = ("--bound", "granted=2")


def test_another_size_is_proved_anew() -> None:
    """A stored invariant is of one size; of another size every rule is proved anew, and horizons change no proof."""
    plan = Plan(bounds=(("slots", 2), ("overlap.incarnation", 9)))
    said: list[str] = []
    found = perform(Task("incident", "incident", PROVE, plan=plan), lambda what: said.append(str(what)))
    assert isinstance(found, Proved)
    assert {one.verdict for one in found.rules.values()} == {"proved"}
    assert "rule induction" in said
