"""The seams of the compiled engines: where they cut up their work, begin again, grow or stop, on machines at random."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import attrs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from deadreckon.models import explorer
from deadreckon.models.explorer import Bounds, Unsuitable, explore
from deadreckon.models.fast import native, native_engine, vector_engine
from deadreckon.models.fast import search as fast
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import Machine, Scope, SpecError
from tests.cover.engines import told
from tests.nocover.lockstep import EXAMPLES
from tests.nocover.random_machines import loaded, texts

BROKEN = "elements are told apart"
"""What is said of a symmetry that is none."""


@attrs.frozen
class Knobs:
    """How the engines cut up their work: small numbers make a small machine meet every seam."""

    probed: int
    rooms: tuple[int, ...]
    narrow: int
    share: int
    few: int
    smallest: int
    threads: int
    run: int

    @contextmanager
    def turned(self) -> Iterator[None]:
        """With these; and machine code is not kept, since it would be of no use to anybody."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(explorer, "PROBED", self.probed)
            patch.setattr(fast, "ROOMS", self.rooms)
            patch.setattr(fast, "NARROW", self.narrow)
            patch.setattr(native_engine, "SHARE", self.share)
            patch.setattr(native_engine, "FEW", self.few)
            patch.setattr(native_engine, "SMALLEST", self.smallest)
            patch.setattr(native_engine, "_cores", lambda: self.threads)
            patch.setattr(native, "keep", lambda compiler, function: None)
            patch.setattr(vector_engine, "RUN", self.run)
            patch.setattr(vector_engine.VectorEngine, "run", self.run)
            yield


KNOBS = st.builds(
    Knobs,
    probed=st.sampled_from((1, 3, 20, 1000)),
    rooms=st.sampled_from(((1,), (4, 2, 1))),
    narrow=st.sampled_from((0, 16, 4096)),
    share=st.sampled_from((1, 2, 7, 64, 4096)),
    few=st.sampled_from((2, 5, 256)),
    smallest=st.sampled_from((2, 16, 1024)),
    threads=st.integers(1, 3),
    run=st.sampled_from((1, 2, 16, 1024)),
)


@attrs.frozen
class Question:
    """One exploration that is asked of every engine."""

    traced: Relation
    scope: Scope
    only: str | None
    bounds: Bounds
    compare_every: int | None
    keep_graph: bool

    def asked(self, engine: str) -> object:
        """What *engine* finds, or why it does not."""
        parts = attrs.asdict(self, recurse=False)
        try:
            return told(explore(self.traced.machine, engine=engine, **parts))
        except Unsuitable:
            return None
        except SpecError:
            return BROKEN


def drawn(random: Random, machine: Machine) -> Question:
    """A question about *machine*."""
    most = random.choice((0, 1, 7, 60, 400, 400, 400, 2500))
    return Question(
        relation(machine),
        random.choice(machine.scopes),
        random.choice((None, None, *(rule.id for rule in machine.rules))),
        Bounds(max_states=most, max_depth=random.choice((None, None, None, 0, 1, 4))),
        random.choice((0, 0, 1, 7, None)),
        random.choice((True, True, False)),
    )


def agree(source: str, folder: Path, random: Random, knobs: Knobs) -> bool:
    """All engines answer a question about the machine of this text alike; whether there was an answer."""
    note(source)
    try:
        question = drawn(random, loaded(source, folder))
    except SpecError:  # an action that can never run
        return False
    note(f"{question}")
    with knobs.turned():
        found = {engine: question.asked(engine) for engine in ("plain", "numpy", "numba")}
    plain = found.pop("plain")
    for engine, other in found.items():
        # Engines look for broken symmetries in samples, which differ; and may not carry large numbers.
        if other is not None and BROKEN not in (plain, other):
            assert other == plain, engine
    return None not in found.values()


def answered(examples: int, folder: Path) -> int:
    """Of so many machines, how many were explored by every engine."""
    seen: list[bool] = []

    @settings(EXAMPLES, max_examples=examples)
    @given(texts(), st.randoms(use_true_random=True), KNOBS)
    def every(source: str, random: Random, knobs: Knobs) -> None:
        seen.append(agree(source, folder, random, knobs))

    every()
    return sum(seen)


def test_engines_agree_at_every_seam(tmp_path: Path) -> None:
    """Runs of one state, full tables, narrow fields, any threads, one rule, any bounds; most machines suit all engines."""
    assert answered(50, tmp_path) > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_engines_agree_at_every_seam_of_very_many_machines(tmp_path: Path) -> None:
    """The same, for longer."""
    assert answered(2_000, tmp_path) > 800
