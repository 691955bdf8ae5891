"""Every machine, scope, rule and variant comes to what ``models/manifest.json`` says."""

from __future__ import annotations

import json

import pytest

from deadreckon.spec.machines import MACHINES as BUILT_IN
from tests.nocover import manifest

MACHINES = manifest.machines()


def test_every_machine_is_pinned_and_no_other() -> None:
    """The manifest has an entry for each built-in machine and each example."""
    assert set(manifest.read()) == set(MACHINES)


def differences(name: str, *, defects: bool) -> str:
    """In what the machine differs from its pins; without *defects* the variants are left out."""
    pinned = json.loads(json.dumps(manifest.read()[name]))
    steps = {one: pin["steps"] for one, pin in pinned["variants"].items()}
    found = manifest.pins(MACHINES[name], steps, defects=defects)
    return manifest.difference({name: pinned}, {name: found if defects else {**found, "variants": pinned["variants"]}})


@pytest.mark.parametrize("name", MACHINES)
def test_machine_comes_to_what_is_pinned(name: str) -> None:
    """States, edges, depth, cut, verdicts and proofs are those of the manifest."""
    changed = differences(name, defects=name not in BUILT_IN)  # theirs are held to it by quality/test_defects.py
    assert not changed, f"regenerate with: python tests/nocover/manifest.py --write {name}\n{changed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_variants_come_to_what_is_pinned(name: str) -> None:
    """Shortest counterexamples, over all scopes, are those of the manifest."""
    changed = differences(name, defects=True)
    assert not changed, f"regenerate with: python tests/nocover/manifest.py --write {name}\n{changed}"


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_pinned_is_good(name: str) -> None:
    """Nothing bad is pinned: scopes are complete and free of deadlocks, rules hold, proofs are proofs, defects fall."""
    pinned = json.loads(json.dumps(manifest.read()[name]))
    assert all(scope["complete"] and not scope["deadlock"] for scope in pinned["scopes"].values())
    assert {rule["explored"] for rule in pinned["rules"].values()} == {"holds"}
    assert all(proof.startswith("proved by ") for proof in pinned["proved"].values())
    assert {id for id, rule in pinned["rules"].items() if rule["kind"] == "always"} == set(pinned["proved"])
    assert all(variant["steps"] for variant in pinned["variants"].values())


def _one_machine(states: int) -> dict[str, dict[str, object]]:
    return {"m": {"scopes": {"s": {"states": states, "edges": 2}}}}


def test_a_difference_says_where() -> None:
    """Two manifests that differ in one number are told apart by one line each."""
    old, new = (_one_machine(states) for states in (1, 3))
    assert manifest.difference(old, old) == ""
    assert manifest.difference(old, new).splitlines()[-2:] == ["-m: scopes: s: states: 1", "+m: scopes: s: states: 3"]
