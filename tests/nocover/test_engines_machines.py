"""The compiled engines against the plain one on every machine: states, numbers, steps, verdicts and counterexamples."""

from __future__ import annotations

from functools import cache

import pytest

from deadreckon.models.explorer import Bounds, Exploration, explore
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import Kind, Machine, Scope, SpecError
from deadreckon.spec.machines import MACHINES
from tests.cover.engines import told
from tests.nocover import manifest

ALL = manifest.machines()
COMPILED = ("numba", "numpy")
SCOPES = [(name, one.name) for name, machine in ALL.items() for one in machine.scopes]
VARIANTS = [(name, variant.name) for name, machine in MACHINES.items() for variant in machine.variants]
MOST = 400_000
"""States of a scope that are explored; that it is the same ones is what the comparison is about."""

FEWER = 60_000
"""The same of a variant's: there are many."""


@cache
def traced(name: str, variant: str = "") -> Relation:
    """The relation of a machine, or of a variant of it."""
    return relation(ALL[name].variant(variant) if variant else ALL[name])


def by(engine: str, found: Relation, scope: Scope, only: str | None = None, most: int = MOST) -> Exploration:
    """What *engine* finds."""
    bounds = Bounds(max_states=most)
    return explore(found.machine, scope, traced=found, only=only, bounds=bounds, compare_every=0, engine=engine)


def scope_named(machine: Machine, name: str) -> Scope:
    """The scope of this name."""
    return next(one for one in machine.scopes if one.name == name)


def agree(
    found: Relation, scope: Scope, engines: tuple[str, ...] = COMPILED, only: str | None = None, most: int = MOST
) -> None:
    """All *engines* find what the plain one finds."""
    try:
        plain = told(by("plain", found, scope, only, most))
    except SpecError:  # a design that treats interchangeable slots unlike has no run along representatives
        for engine in engines:
            with pytest.raises(SpecError, match="tells apart"):
                by(engine, found, scope, only, most)
        return
    for engine in engines:
        other = by(engine, found, scope, only, most)
        assert other.engine == engine
        assert told(other) == plain


def shared(cases: list[tuple[str, str]]) -> list[object]:
    """Cases by machine, so that one process traces it."""
    return [pytest.param(*case, marks=pytest.mark.xdist_group(case[0]), id="-".join(case)) for case in cases]


@pytest.mark.parametrize(("name", "scope"), shared(SCOPES))
def test_engines_agree_on_every_machine(name: str, scope: str) -> None:
    """Sound machines, every scope."""
    agree(traced(name), scope_named(ALL[name], scope))


@pytest.mark.parametrize(("name", "variant"), shared(VARIANTS[::12]))
def test_engines_refute_a_sample_of_the_known_bad_designs(name: str, variant: str) -> None:
    """The counterexample is the same to the last state, and so is what was seen until it was found."""
    found = traced(name, variant)
    rule = next(one.rule for one in MACHINES[name].variants if one.name == variant)
    for scope in found.machine.scopes[:1]:
        agree(found, scope, ("numpy",), rule)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "variant"), shared(VARIANTS))
def test_engines_agree_on_every_known_bad_design(name: str, variant: str) -> None:
    """Every variant in every scope, with all that it violates, and until its rule is refuted."""
    found = traced(name, variant)
    for scope in found.machine.scopes:
        agree(found, scope, most=FEWER)
        rule = found.machine.rule(next(one.rule for one in MACHINES[name].variants if one.name == variant))
        if rule.kind is not Kind.EVENTUALLY or scope.liveness:
            agree(found, scope, COMPILED, rule.id, FEWER)


@pytest.mark.parametrize("engine", ["plain", *COMPILED])
def test_a_symmetry_that_a_design_breaks_is_told(engine: str) -> None:
    """The design that has one slot for all attempts tells them apart: that is said, whatever explores."""
    with pytest.raises(SpecError, match="tells apart elements that it declares interchangeable"):
        by(engine, traced("incident", "single-slot"), MACHINES["incident"].scopes[0])
