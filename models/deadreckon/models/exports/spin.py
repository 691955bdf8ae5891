"""Runs SPIN on a model that :mod:`promela` wrote, and reads what it found. Needs ``spin`` and a C compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from decimal import Decimal
from pathlib import Path

import attrs

from deadreckon.spec import CallerError, EnvironmentFault, InternalError

from .promela import Promela

DEPTH = 2_000_000
"""Of the search, which goes depth first: about 50 bytes each."""

_CUT = "max search depth too small"
_TROUBLE = (_CUT, "out of memory", "MEMLIM", "Search not completed", "VECTORSZ")


_DIGITS = 8
"""So many are printed of a count (``%9.8g``), and those after them are rounded away."""


@attrs.frozen
class Count:
    """A count that SPIN printed. Above 99,999,999 it is *rounded*, to a multiple of ``unit``, which is then over 1."""

    value: int
    unit: int = 1

    @property
    def rounded(self) -> bool:
        """Whether the count itself may be another number."""
        return self.unit > 1

    def may_be(self, count: int) -> bool:
        """Whether *count* would have been printed so."""
        return 2 * abs(count - self.value) < self.unit + self.rounded

    def __str__(self) -> str:
        return f"{self.value:,}" + (f" (rounded by SPIN to {self.unit:,})" if self.rounded else "")


def counted(said: str, what: str) -> Count:
    """The count of *what* (``transitions``) in what SPIN *said*: ``1769``, or ``1.0924837e+08``.

    Raises:
        EnvironmentFault: when there is none.
    """
    number = Decimal(_figure(said, rf"([\d.]+(?:e\+\d+)?) {what}"))
    return Count(int(number), 10 ** max(0, number.adjusted() + 1 - _DIGITS))


@attrs.frozen
class Spun:
    """What SPIN found: the states of the machine, its transitions (see :mod:`promela`), and its verdicts by rule.

    ``reached`` are those *sometimes* rules that are reached; ``seconds`` is the search, ``built_seconds`` what went
    before it, ``megabytes`` the memory that SPIN says it used. Not ``complete``: the search was asked to end at a depth,
    and did, so that only what it found counts.
    """

    states: Count
    transitions: Count
    violated: frozenset[str]
    reached: frozenset[str]
    deadlock: bool
    seconds: float
    built_seconds: float
    megabytes: float
    complete: bool = True


def missing() -> str:
    """Which of the programs that are needed is not installed; empty if none."""
    return next((name for name in ("spin", "cc") if shutil.which(name) is None), "")


def spin(
    model: Promela,
    *,
    witnesses: bool = True,
    no_deeper: int | None = None,
    depth: int = DEPTH,
    megabytes: int = 8_000,
    optimise: str = "-O2",
) -> Spun:
    """Search every state of *model*, exactly: no state is hashed away, and none is left out by partial orders.

    Args:
        model: what to search.
        witnesses: whether *sometimes* rules are judged too.
        no_deeper: search all that is within so many steps, and no more; the judgement of a state is a step of its own.
        depth: steps that the search may go down; it takes memory beforehand.
        megabytes: memory that it may take.
        optimise: of the C compiler; -O0 compiles five times as fast, for models that are searched in no time.

    Raises:
        EnvironmentFault: when SPIN or the compiler is missing or fails, or the search ended early.
        CallerError: when a number outgrew 32 bits.
        InternalError: when the model is not what SPIN takes it for.
    """
    with tempfile.TemporaryDirectory(prefix="deadreckon-spin-") as name:
        folder = Path(name)
        (folder / "model.pml").write_text(model.text, encoding="ascii")
        started = time.monotonic()
        _run(folder, "spin", "-a", *(["-DWITNESS"] if witnesses else []), "model.pml")
        # Without reduction, so that it is every state; without hash-compact, which loses states in silence.
        options = ["-w", "-DSAFETY", "-DNOREDUCE", f"-DMEMLIM={megabytes}"]
        if no_deeper is not None:  # A state that is met again by fewer steps is searched again.
            options.append("-DREACH")
        _run(folder, "cc", optimise, *options, "-o", "pan", "pan.c")
        built = time.monotonic()
        said = _run(folder, "./pan", "-n", f"-m{no_deeper or depth}", "-c0")
        spun = read(model, said, cut=no_deeper is not None)
        return attrs.evolve(spun, seconds=time.monotonic() - built, built_seconds=built - started)


def read(model: Promela, said: str, *, cut: bool = False) -> Spun:
    """What SPIN *said* of *model*; *cut*: whether it may have ended at a depth.

    Raises:
        EnvironmentFault: when the search ended early.
        CallerError: when a number outgrew 32 bits.
        InternalError: when the model is not what SPIN takes it for.
    """
    for trouble in _TROUBLE:
        if trouble in said and not (cut and trouble == _CUT):
            raise EnvironmentFault(f"SPIN ended early ({trouble}), so it has no verdict: give it more depth or memory")
    flags = set()
    for message in re.findall(r"^pan:\d+: (.*) \(at depth -?\d+\)$", said, re.MULTILINE):
        if not message.startswith("assertion violated"):
            raise InternalError(f"the Promela model went wrong: {message}")
        named = re.fullmatch(r"assertion violated \s*!?\(?(\w+)\)?", message)
        if named is None or named[1] not in (*model.flags, model.deadlock):
            raise CallerError(f"a number outgrew the 32 bits that SPIN counts in: {message}")
        flags.add(named[1])
    rules = {model.flags[flag]: flag for flag in flags if flag != model.deadlock}
    stored = counted(said, "states, stored")
    return Spun(
        attrs.evolve(stored, value=stored.value - (model.starts > 1)),
        counted(said, "transitions"),
        frozenset(id for id, flag in rules.items() if flag not in model.witnesses),
        frozenset(id for id, flag in rules.items() if flag in model.witnesses),
        model.deadlock in flags,
        0.0,
        0.0,
        float(_figure(said, r"([\d.]+)\s+total actual memory usage")),
        _CUT not in said,
    )


def _figure(said: str, pattern: str) -> str:
    found = re.search(rf"^\s*{pattern}", said, re.MULTILINE)
    if found is None:
        raise EnvironmentFault(f"SPIN said nothing of its search: {said[-500:]}")
    return found[1]


def _run(folder: Path, *command: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as fault:
        raise EnvironmentFault(f"{command[0]} can't be run: {fault}") from fault
    said = done.stdout + done.stderr
    if done.returncode != 0 and command[0] != "./pan":
        raise EnvironmentFault(f"{' '.join(command)} failed: {said[-2000:]}")
    return said
