"""The same model within the same bounds by every explorer, in one run: states a second, wall time, memory.

    python bench/explorer.py [--size S6 | --machine REFERENCE [--bound NAME=VALUE ...]] [--engine ENGINE ...]
                             [--rounds N] [--plot FILE.png] [--tlc tla2tools.jar]
                             [--promela "holds.pml -DN=4 -DD=2 -DF=1 -DB=1"]

Engines: ``plain``, ``numpy`` and ``numba`` are ours, ``numba-cold`` with nothing compiled yet; ``spin`` runs the Promela
that we export, and ``tlc`` the TLA+, where they are installed or given; ``spin-by-hand`` runs a Promela model that somebody
wrote by hand. Each run is a process of its own, start-up included in its wall time, and its peak memory is that of the
largest process in it. Runs are interleaved: all engines, then all again. A machine that is shared is noisy, so what counts
is the ratio to the first engine, taken round by round, and CPU time, which neighbours disturb less; the table has the
medians. All engines must find the same counts, or it ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from deadreckon.cli.bounds import written
from deadreckon.cli.references import resolve
from deadreckon.models.bounding import with_bounds
from deadreckon.models.explorer import Bounds, explore
from deadreckon.models.relation import relation
from deadreckon.spec import DeadreckonError, Machine

if TYPE_CHECKING:  # each engine's process loads no more than it needs
    from deadreckon.models.exports.spin import Count

COLD = "numba-cold"
"""As numba, and what was compiled before is not there."""

HERE = Path(__file__).parent
BOUNDS = Bounds(max_states=200_000_000, max_megabytes=16_000)
LIMIT_SECONDS = 1_200.0


@attrs.frozen
class Given:
    """What an engine is to explore, and what it needs beside it."""

    reference: str
    bounds: tuple[str, ...]
    tlc: str
    promela: str

    @property
    def title(self) -> str:
        """The machine's name, and its bounds where they are not its own."""
        return " ".join((self.machine.name, *self.bounds))

    @property
    def machine(self) -> Machine:
        """The machine within its bounds."""
        return with_bounds(resolve(self.reference), tuple(map(written, self.bounds)))


@attrs.frozen
class Found:
    """What an engine found. ``edges`` and ``depth`` are 0 where it does not say, or means something else by them."""

    states: int
    edges: int
    depth: int
    search_seconds: float


@attrs.frozen
class Run:
    """One process: what it found, how long it took in all, on all cores together, and its peak memory."""

    found: Found
    wall_seconds: float
    cpu_seconds: float
    megabytes: float


# The engines, each in a process of its own, which loads no more than it needs.


def ours(engine: str, given: Given) -> Found:
    """One of our own engines; nothing is compared with the machine's functions, since the others don't either."""
    found = explore(given.machine, bounds=BOUNDS, compare_every=0, engine=engine)
    _sound(found.stopped, found.violated)
    return Found(found.states, found.edges, found.depth, found.seconds)


def spun(given: Given) -> Found:
    """SPIN on the Promela that we write."""
    from deadreckon.models.exports.model import model
    from deadreckon.models.exports.promela import promela
    from deadreckon.models.exports.spin import spin

    machine = given.machine
    found = spin(promela(model(relation(machine), machine.scopes[0])), witnesses=False)
    _sound("", found.violated)
    return Found(_exact(found.states), 0, 0, found.seconds)


def spun_by_hand(given: Given) -> Found:
    """SPIN on a model that somebody wrote. Its transitions are left out where it prints them rounded."""
    from deadreckon.models.exports.spin import counted

    name, *defines = shlex.split(given.promela)
    with tempfile.TemporaryDirectory() as folder:
        _said(folder, "spin", "-a", *defines, str(Path(name).resolve()))
        _said(folder, "cc", "-w", "-O2", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=16000", "-o", "pan", "pan.c")
        begun = time.monotonic()
        said = _said(folder, "./pan", "-n", "-m2000000")
        took = time.monotonic() - begun
    if "errors: 0" not in said:
        raise SystemExit(said)
    transitions = counted(said, "transitions")
    edges = 0 if transitions.rounded else transitions.value - 1
    return Found(_exact(counted(said, "states, stored")), edges, 0, took)


def checked_by_tlc(given: Given) -> Found:
    """TLC on the TLA+ that we write."""
    from deadreckon.models.exports.tlc import tlc

    machine, workers = given.machine, os.cpu_count() or 1
    java = ("-XX:+UseParallelGC", "-Xmx10g")
    found = tlc(relation(machine), machine.scopes[0], given.tlc, workers=workers, java=java)
    _sound("", filter(None, [found.violated]))
    # With several workers the depth that it tells may be that of a longer path.
    return Found(found.states, found.generated - len(machine.initial), 0, found.seconds)


ENGINES: dict[str, Callable[[Given], Found]] = {
    "plain": partial(ours, "plain"),
    "numpy": partial(ours, "numpy"),
    "numba": partial(ours, "numba"),
    COLD: partial(ours, "numba"),
    "spin": spun,
    "spin-by-hand": spun_by_hand,
    "tlc": checked_by_tlc,
}


def _sound(stopped: str, violated: Iterable[str]) -> None:
    if stopped or any(True for _ in violated):
        raise SystemExit(f"not complete, or not sound: {stopped}{', '.join(violated)}")


def _said(folder: str, *command: str) -> str:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def _exact(count: Count) -> int:
    """A number of states that can be held against that of the other engines."""
    if count.rounded:
        raise SystemExit(f"states can't be compared: {count}")
    return count.value


# The runs.


def run(engine: str, given: Given) -> Run | str:
    """*engine* in a process of its own; why there is no result, if there is none."""
    command = [sys.executable, __file__, "--one", engine, "--machine", given.reference]
    command += [f"--bound={one}" for one in given.bounds]
    command += ["--tlc", given.tlc, "--promela", given.promela]
    with tempfile.TemporaryDirectory() as folder:
        return _run(command, {**os.environ, "NUMBA_CACHE_DIR": folder} if engine == COLD else dict(os.environ))


def _run(command: Sequence[str], environment: Mapping[str, str]) -> Run | str:
    begun = time.monotonic()
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
    timer = threading.Timer(LIMIT_SECONDS, child.kill)
    timer.start()
    assert child.stdout is not None
    assert child.stderr is not None
    said = child.stdout.read()
    complaint = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)  # the only way to learn the memory of this child alone
    child.returncode = os.waitstatus_to_exitcode(status)
    timer.cancel()
    took = time.monotonic() - begun
    if child.returncode:
        return complaint.strip().splitlines()[-1] if complaint.strip() else f"not within {LIMIT_SECONDS:g} s"
    unit = 1 if sys.platform == "darwin" else 1024
    return Run(Found(**json.loads(said)), took, used.ru_utime + used.ru_stime, used.ru_maxrss * unit / 1e6)


def measured(given: Given, engines: Sequence[str], rounds: int) -> dict[str, list[Run]]:
    """The runs of each engine, interleaved; one that has no result is left out from then on."""
    runs: dict[str, list[Run]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine in list(runs):
            one = run(engine, given)
            if isinstance(one, str):
                print(f"{engine}: {one}", file=sys.stderr, flush=True)
                del runs[engine]
                continue
            print(f"{engine}: {one.wall_seconds:.1f} s", file=sys.stderr, flush=True)
            runs[engine].append(one)
    return runs


def median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def table(given: Given, runs: dict[str, list[Run]]) -> None:
    """Print the medians in Markdown."""
    first = next(iter(runs.values()))
    found = first[0].found
    print(f"\n### {given.title}: {found.states:,} states\n")
    print("| engine | wall, s | of the first | CPU, s | search, s | distinct states/s | peak MB | bytes/state |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for engine, each in runs.items():
        ratio = median(one.wall_seconds / other.wall_seconds for one, other in zip(each, first, strict=False))
        search, peak = median(one.found.search_seconds for one in each), median(one.megabytes for one in each)
        wall, states = median(one.wall_seconds for one in each), found.states
        cpu = median(one.cpu_seconds for one in each)
        figures = f"{wall:.2f} | {ratio:.3f} | {cpu:.2f} | {search:.2f} | {states / search:,.0f} | {peak:,.0f}"
        print(f"| {engine} | {figures} | {peak * 1e6 / states:,.0f} |", flush=True)


def agree(runs: dict[str, list[Run]]) -> bool:
    """Whether all engines found the same states; and the same edges and depth, where they say."""
    found = [(engine, one.found) for engine, each in runs.items() for one in each]
    for name in ("states", "edges", "depth"):
        said = {engine: getattr(one, name) for engine, one in found if getattr(one, name)}
        if len(set(said.values())) > 1:
            print(f"they differ in {name}: {said}", file=sys.stderr)
            return False
    return True


def plot(file: str, title: str, runs: dict[str, list[Run]]) -> None:
    """Bars: distinct states a second of the search and of the whole process, and memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 0.6 + 0.55 * len(runs)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    engines = list(runs)[::-1]
    states = next(iter(runs.values()))[0].found.states
    for shift, name, seconds in (
        (0.2, "search", [median(one.found.search_seconds for one in runs[engine]) for engine in engines]),
        (-0.2, "whole process", [median(one.wall_seconds for one in runs[engine]) for engine in engines]),
    ):
        rates = [states / one / 1e6 for one in seconds]
        left.barh([at + shift for at in range(len(engines))], rates, 0.38, label=name)
    left.set_yticks(range(len(engines)), engines)
    left.set_xlabel("distinct states a second, millions")
    left.legend()
    right.barh(range(len(engines)), [median(one.megabytes for one in runs[engine]) for engine in engines], 0.6)
    right.set_xlabel("peak memory, MB")
    figure.suptitle(f"{title}: {states:,} states")
    figure.savefig(file, dpi=110)


def main() -> int:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="S6", help="one of bench/holds.py")
    parser.add_argument("--machine", help="what deadreckon check takes, instead of a size")
    parser.add_argument("--bound", action="append", default=[], metavar="NAME=VALUE", help="as in deadreckon check")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="repeatable; the first is the reference")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", help="a PNG file")
    parser.add_argument("--tlc", default="", help="the jar of TLC")
    parser.add_argument("--promela", default="", help="a model for spin-by-hand, with options of spin")
    parser.add_argument("--one", choices=ENGINES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    reference = asked.machine or f"{HERE / 'holds.py'}:{asked.size}"
    given = Given(reference, tuple(asked.bound), asked.tlc, asked.promela)
    if asked.one:
        try:
            print(json.dumps(attrs.asdict(ENGINES[asked.one](given))))
        except DeadreckonError as fault:
            raise SystemExit(" ".join(str(fault).split())[:200]) from None
        return 0
    installed = bool(shutil.which("spin") and shutil.which("cc"))
    there = {name: find_spec(name.partition("-")[0]) is not None for name in ("numpy", "numba", COLD)}
    there |= {"spin": installed, "spin-by-hand": installed and bool(asked.promela), "tlc": bool(asked.tlc)}
    runs = measured(given, asked.engine or [one for one in ENGINES if there.get(one, True)], asked.rounds)
    if not runs:
        return 2
    table(given, runs)
    if asked.plot:
        plot(asked.plot, given.title, runs)
    return 0 if agree(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
