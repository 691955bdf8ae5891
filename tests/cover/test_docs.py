"""The pages about machines: their diagrams are the generated ones, their snippets run, and what they name is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from deadreckon import impl
from deadreckon.cli.commands import command
from deadreckon.spec import Kind
from deadreckon.spec.keepalive_state import KeepalivePolicy
from deadreckon.spec.keepalive_words import distance
from deadreckon.spec.machines import MACHINES

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md") if path.stem in MACHINES)
NOT_STEPS = {
    "incident": {"boot", "call_from_the_dead", "crash", "deploy", "tick"},
    "journal": {"boot", "crash", "tick"},
    "keepalive": {"die", "lose_alarm", "tick"},
    "request": {"answer_from_the_dead", "answer_late", "boot", "crash", "tick"},
}
"""Actions that the table of steps leaves out, since they are the world's own."""

UNTESTED = {"journal": {"revive"}, "keepalive": set[str]()}
"""Actions that the table for testers leaves out, on pages whose table is meant to have the others."""


def page(name: str) -> str:
    """The text of a page."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def block(name: str, before: str, language: str) -> str:
    """The first code block of this language after *before*."""
    found = re.search(rf"{re.escape(before)}.*?```{language}\n(.*?)```", page(name), re.DOTALL)
    assert found is not None
    return found[1]


def table(name: str, begins: str) -> list[list[str]]:
    """The rows of the table whose header begins like this, as cells."""
    assert begins in page(name)
    lines = page(name)[page(name).index(begins) :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def named(cells: Iterator[str]) -> set[str]:
    """What could be actions in these cells."""
    return {name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)}


def run(folder: Path, *arguments: str) -> str:
    """What a program prints; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        (sys.executable, *arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def snippet(folder: Path, name: str, marker: str) -> str:
    """What a snippet of a page prints, as it stands."""
    (folder / "snippet.py").write_text(block(name, f"<!-- {marker} -->", "python"), encoding="utf-8")
    return run(folder, "snippet.py")


def actions(name: str) -> set[str]:
    """The actions of a machine."""
    return {action.name for action in MACHINES[name].actions}


@pytest.mark.parametrize("name", PAGES)
def test_the_diagram_is_generated(name: str) -> None:
    """The diagram in the page is what the command named below it draws from the explored graph."""
    said = re.search(rf"`deadreckon (show {name} --format mermaid[^`]*)`", page(name))
    assert said is not None
    shown = CliRunner().invoke(command, shlex.split(said[1]))
    assert shown.exit_code == 0
    assert block(name, "## States", "mermaid") == shown.stdout


@pytest.mark.parametrize("name", PAGES)
def test_the_stateful_snippet_runs(name: str, tmp_path: Path) -> None:
    """The snippet that tests an implementation is a test that passes."""
    (tmp_path / "test_mine.py").write_text(block(name, "<!-- test-your-own -->", "python"), encoding="utf-8")
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")


@pytest.mark.parametrize("name", PAGES)
def test_every_rule_is_on_the_page(name: str) -> None:
    """The page names every rule, further clauses aside, and none that the machine doesn't have."""
    ids = {rule.id for rule in MACHINES[name].rules if rule.kind is not Kind.SOMETIMES and not rule.lemma}
    letters = "".join(sorted({id[0] for id in ids}))
    mentioned = set(re.findall(rf"\b[{letters}]\d+\b", page(name)))
    assert mentioned <= ids
    assert {id for id in ids if id[-1].isdigit()} <= mentioned


@pytest.mark.parametrize("name", PAGES)
def test_every_step_on_the_page_is_the_machine_s(name: str) -> None:
    """The table of steps, if there is one, names all actions of the machine that are not the world's own."""
    if "\n| step |" not in page(name):
        assert name not in NOT_STEPS
        return
    assert named(row[0] for row in table(name, "| step |")) == actions(name) - NOT_STEPS[name]


@pytest.mark.parametrize("name", PAGES)
def test_every_action_for_testers_is_the_machine_s(name: str) -> None:
    """The table for testers, if there is one, names actions of the machine."""
    if "| your implementation has" not in page(name):
        assert name not in UNTESTED
        return
    driven = named(row[1] for row in table(name, "| your implementation has"))
    assert driven <= actions(name)
    if name in UNTESTED:
        assert driven == actions(name) - UNTESTED[name]


@pytest.mark.parametrize("name", PAGES)
def test_what_the_page_points_to_is_there(name: str) -> None:
    """Files that the page names are in the repository."""
    files = re.findall(r"`((?:tests|examples|docs)/[\w/.]+)`", page(name))
    assert files
    assert [file for file in files if not (ROOT / file).exists()] == []


# What each page alone has.


def test_hold_the_service_snippet_runs(tmp_path: Path) -> None:
    """The snippet parks, is approved and releases, as it stands."""
    assert re.fullmatch(r"paid, as \w+/0\n", snippet(tmp_path, "hold", "use"))


def test_hold_every_fact_on_the_page_is_appended_by_the_implementation() -> None:
    """The table of facts has those types that the implementation appends, and no others."""
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(next(iter(impl.__path__))).glob("*.py"))
    appended = set(re.findall(r'Entry\(\s*"([a-z.]+)"', sources)) | set(re.findall(r'"(key\.[a-z]+)"', sources))
    assert set(re.findall(r"`((?:hold|caller|release|door|key)\.[a-z]+)`", page("hold"))) == appended


def test_incident_the_service_snippet_runs(tmp_path: Path) -> None:
    """Two lives die at work, the third counts them and gives up without working, the fourth finds the seal."""
    given_up = "turn-7 is given up after 2 deaths: interrupted_attempts_exceeded"
    printed = snippet(tmp_path, "incident", "use").splitlines()
    assert printed == ["heavy work", "dead"] * 2 + [given_up, "sealed", "sealed"]
    assert f"`{given_up}`" in page("incident")


def test_request_the_service_snippet_runs(tmp_path: Path) -> None:
    """The snippet opens a request, tries it and is told the outcome, as it stands; the list then has nothing open."""
    said = snippet(tmp_path, "request", "use").splitlines()
    assert sorted(said) == ["answer 1 to why is the sky blue?", "turn-7 succeeded none"]
    listed = CliRunner().invoke(command, ["requests", "list", "--db", str(tmp_path / "requests.db")])
    assert listed.stdout == "no request is open\n"


def test_journal_the_snippet_prints_what_the_page_says(tmp_path: Path) -> None:
    """The offset of a forgotten event is not given again, and a repetition is told the old one."""
    printed = snippet(tmp_path, "journal", "see-it").splitlines()
    assert printed == ["3 [0, 1]", "1"]
    assert all(f"`{line}`" in page("journal") for line in printed)


def test_keepalive_the_service_snippet_runs(tmp_path: Path) -> None:
    """The snippet's work fails, is revived, and the count is cleared by the clean run after it, as the page says."""
    printed = snippet(tmp_path, "keepalive", "use").splitlines()
    assert printed == ["revival 1 of agent takes up turn-7", "0 clear quiet-clean"]
    assert all(f"`{line}`" in page("keepalive") for line in printed)


def test_keepalive_the_supervisor_snippet_runs(tmp_path: Path) -> None:
    """The snippet keeps a process running until it is signalled, as the page says, and owes nothing afterwards."""
    (tmp_path / "snippet.py").write_text(block("keepalive", "<!-- supervise -->", "python"), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command_line = (sys.executable, "snippet.py")
    with subprocess.Popen(command_line, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            at_work = process.stdout.readline().strip()
            time.sleep(0.5)  # the worker is quicker than its supervisor, which has yet to listen for signals
            process.terminate()
            asked = process.stdout.readline().strip()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert (at_work, asked) == ("at work", "asked to end by SIGTERM")
    assert f"`{at_work}`" in page("keepalive")
    assert f"`{asked}`" in page("keepalive")
    verbs = re.findall(r"^\$ deadreckon (hosts .*)$", page("keepalive"), re.MULTILINE)
    assert [verb.split()[1] for verb in verbs] == ["list", "show", "reset"]
    for verb in verbs:
        words = [str(tmp_path / word) if word == "workers.db" else word for word in shlex.split(verb)]
        shown = CliRunner().invoke(command, words)
        assert shown.exit_code == 0, shown.output
    assert "nothing to reset" in shown.output


def test_journal_the_service_snippet_runs(tmp_path: Path) -> None:
    """The service appends, follows, is caught up and reads, as the page says; run again, nothing is shipped twice."""
    printed = snippet(tmp_path, "journal", "use").splitlines()
    assert len(printed) == 4
    assert all(f"`{line}`" in page("journal") for line in printed)
    again = run(tmp_path, "snippet.py").splitlines()
    assert [line for line in again if line.startswith("ship")] == []
    assert again[-1] == "[0, 1]"


def test_keepalive_the_snippet_prints_the_table_of_the_ladder(tmp_path: Path) -> None:
    """A host that answers and dies climbs the ladder of the page, until somebody resets."""
    *climb, reset = snippet(tmp_path, "keepalive", "see-it").splitlines()
    rows = table("keepalive", "| revival |")
    assert climb == [f"{number} {at} {span}".replace(" s", "") for number, span, at in rows]
    assert all(f"`{line}`" in page("keepalive") for line in (climb[0], climb[-1], reset))


def test_keepalive_the_ladder_is_the_policy_s() -> None:
    """The distances on the page are those of the default policy, each counted from the revival before."""
    spans = [int(span.removesuffix(" s")) for _, span, _ in table("keepalive", "| revival |")]
    assert spans == [distance(KeepalivePolicy(), number) // 1000 for number in range(1, len(spans) + 1)]
