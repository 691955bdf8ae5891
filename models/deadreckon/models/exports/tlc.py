"""Runs TLC on a module that :mod:`tla` wrote, and reads what it found. Needs Java and a ``tla2tools.jar``."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import attrs

from deadreckon.models.relation import Relation
from deadreckon.spec import EnvironmentFault, InternalError, Scope

from .tla import tla, tla_config, tla_invariants

_ENDED = re.compile(r"^([\d,]+) states generated, ([\d,]+) distinct states found, ([\d,]+) states left", re.MULTILINE)
_DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)", re.MULTILINE)
_VIOLATED = re.compile(
    r"^Error: (?:Invariant (\w+) is violated|The invariant of (\w+) is equal to FALSE)", re.MULTILINE
)
_SURROUNDINGS = re.compile("memory|main class|jarfile|space left")
_TRACE = re.compile(r"^State \d+:", re.MULTILINE)


@attrs.frozen
class Checked:
    """What TLC found. It stops at the first invariant that is violated; the counts are then those so far.

    ``generated`` are the steps within the bounds and the initial states; ``depth`` counts states along a path, not steps,
    and so does ``trace``, the counterexample. ``violated`` is a rule, or ``NoDeadlock``; empty if none is. A *sometimes*
    rule that was asked is violated where it is reached.
    """

    states: int
    generated: int
    depth: int
    violated: str
    trace: int
    seconds: float


def missing(jar: str) -> str:
    """What is needed and not there: Java, or the *jar*; empty if nothing."""
    return "java" if shutil.which("java") is None else "" if Path(jar).is_file() else jar or "a tla2tools.jar"


def tlc(
    relation: Relation,
    scope: Scope,
    jar: str,
    *,
    invariants: Collection[str] | None = None,
    workers: int = 1,
    java: Collection[str] = ("-XX:+UseParallelGC",),
) -> Checked:
    """Have TLC visit every state of a machine in *scope*.

    Args:
        relation: the machine.
        scope: its policy and bounds.
        jar: the ``tla2tools.jar``.
        invariants: rules that are asked, ``NoDeadlock`` too; all that the configuration has by default.
        workers: threads. With more than one, the counterexample may not be the shortest.
        java: options of Java.

    Raises:
        EnvironmentFault: when Java or the jar is missing or fails, or the search ended early.
        CallerError: when the machine computes with numbers that 32 bits don't hold.
        InternalError: when the module is not what TLC takes it for.
    """
    absent = missing(jar)
    if absent:
        raise EnvironmentFault(f"TLC can't be run: {absent} is missing")
    text = tla(relation, scope)
    name = re.findall(r"MODULE (\w+)", text)[0]
    with tempfile.TemporaryDirectory(prefix="deadreckon-tlc-") as folder:
        Path(folder, f"{name}.tla").write_text(text, encoding="utf-8")
        # Older ones don't know this line; newer ones take the option as well.
        config = tla_config(relation, scope, invariants).replace("\nCHECK_DEADLOCK FALSE\n", "\n")
        Path(folder, f"{name}.cfg").write_text(config, encoding="utf-8")
        # TLC unpacks modules into the temporary folder, and would find those of another one that ends just then.
        command = ["java", *java, f"-Djava.io.tmpdir={folder}", "-cp", str(Path(jar).resolve()), "tlc2.TLC"]
        command += ["-deadlock", "-workers", str(workers), f"{name}.tla"]
        begun = time.monotonic()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        found = read(done.stdout + done.stderr)
    called = {invariant: rule for rule, invariant in tla_invariants(relation, scope).items()}
    return attrs.evolve(found, violated=called.get(found.violated, ""), seconds=time.monotonic() - begun)


def read(said: str) -> Checked:
    """What TLC *said*; an invariant has the name that it has in the module.

    Raises:
        EnvironmentFault: when the search ended early.
        InternalError: when the module is not what TLC takes it for.
    """
    violated, ended, depth = (pattern.search(said) for pattern in (_VIOLATED, _ENDED, _DEPTH))
    error = re.search(r"^Error: .*", said, re.MULTILINE)
    if violated is None and error is not None:
        kind = EnvironmentFault if _SURROUNDINGS.search(error[0]) else InternalError
        raise kind(f"TLC went wrong: {said[error.start() :][:500]}")
    found = tuple(int(number.replace(",", "")) for number in ended.groups()) if ended else (0, 0, 0)
    if violated is None and (depth is None or found[2] or "No error has been found" not in said):
        raise EnvironmentFault(f"TLC ended early, so it has no verdict: {said[-500:]}")
    return Checked(
        states=found[1],
        generated=found[0],
        depth=int(depth[1]) if depth else 0,
        violated=next(filter(None, violated.groups())) if violated else "",
        trace=max(1, len(_TRACE.findall(said))) if violated else 0,
        seconds=0.0,
    )
