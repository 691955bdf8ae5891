"""What every machine is known to come to: written to ``models/manifest.json``, compared by ``test_manifest.py``.

    python tests/nocover/manifest.py            show what differs from the pins
    python tests/nocover/manifest.py --write    pin what is found now
    python tests/nocover/manifest.py keepalive  only these machines; the pins of the others stay

The state space of each scope (states, edges, depth, steps cut at its bounds), the verdict on each rule, the shortest
counterexample of each variant over all scopes, and what is proved by which method.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from deadreckon.models.explorer import Bounds, Exploration, explore
from deadreckon.models.relation import Relation, relation
from deadreckon.proofs import prove
from deadreckon.spec import Kind, Machine, Rule, Variant
from deadreckon.spec.machines import MACHINES

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "models" / "manifest.json"
COMPARE_EVERY = 50
"""Sampling is enough here: ``deadreckon check`` validates the translation on every edge."""

Pins = dict[str, object]


def machines() -> dict[str, Machine]:
    """The built-in machines, and those of the examples."""
    return {**MACHINES, "lease": _example("lease")}


def _example(name: str) -> Machine:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    spec.loader.exec_module(module)
    machine = module.machine
    assert isinstance(machine, Machine)
    return machine


def pins(machine: Machine, pinned: Mapping[str, int | None] | None = None, *, defects: bool = True) -> Pins:
    """All that is pinned of one machine; *defects*: its variants too, no deeper than the steps *pinned*, if given."""
    deepest = pinned or {}
    variants = machine.variants if defects else ()
    traced = relation(machine)
    runs = [explore(machine, scope, traced=traced, compare_every=COMPARE_EVERY) for scope in machine.scopes]
    return {
        "scopes": {run.scope.name: _space(run) for run in runs},
        "rules": {rule.id: {"kind": rule.kind.value, "explored": _verdict(rule, runs)} for rule in machine.rules},
        "proved": dict(_proved(traced)),
        "variants": {one.name: _refuted(machine, one, deepest.get(one.name)) for one in variants},
    }


def _space(run: Exploration) -> Pins:
    return {
        "states": run.states,
        "edges": run.edges,
        "depth": run.depth,
        "cut": run.cut,
        "complete": run.complete,
        "deadlock": run.deadlock is not None,
        "reached": sorted(run.reached),
    }


def _verdict(rule: Rule, runs: list[Exploration]) -> str:
    """The verdict over all scopes in which *rule* is judged."""
    judged = [run.verdict(rule) for run in runs if rule.kind is not Kind.EVENTUALLY or run.scope.liveness]
    if rule.kind is Kind.SOMETIMES:
        return "holds" if "holds" in judged else "violated"
    return "violated" if "violated" in judged else "holds" if set(judged) == {"holds"} else "unknown"


def _proved(traced: Relation) -> Iterator[tuple[str, str]]:
    for id, proof in prove(traced).items():
        yield id, f"{proof.verdict} by {proof.method}" if proof.verdict == "proved" else proof.verdict


def _refuted(machine: Machine, variant: Variant, deepest: int | None) -> Pins:
    """The shortest counterexample of a variant, over all scopes; the first scope in which it is found."""
    bad = machine.variant(variant.name)
    traced, rule = relation(bad), bad.rule(variant.rule)
    eventual = rule.kind is Kind.EVENTUALLY
    scopes = [scope for scope in machine.scopes if scope.liveness or not eventual]
    best: Pins = {"rule": rule.id, "steps": None, "scope": None}
    for scope in scopes:
        bounds = Bounds() if eventual else Bounds(max_depth=deepest)  # a run without end shows in whole graphs alone
        found = explore(bad, scope, traced=traced, only=rule.id, bounds=bounds, compare_every=0).violated.get(rule.id)
        if found is not None and (deepest is None or len(found) <= deepest):
            best = {"rule": rule.id, "steps": len(found), "scope": scope.name}
            deepest = len(found) - 1
    return best


def text(all_pins: dict[str, Pins]) -> str:
    """The manifest as it is stored: one line for each rule, proof and variant, so that differences read well."""
    return json.dumps({name: all_pins[name] for name in sorted(all_pins)}, indent=1) + "\n"


def difference(pinned: dict[str, Pins], found: dict[str, Pins]) -> str:
    """What differs, line by line with its place; empty when nothing does."""
    old, new = (list(_lines("", dict(sorted(one.items())))) for one in (pinned, found))
    return "\n".join(difflib.unified_diff(old, new, "pinned", "found", lineterm="", n=0))


def _lines(place: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _lines(f"{place}{key}: ", inner)
    else:
        yield f"{place}{json.dumps(value)}"


def read() -> dict[str, Pins]:
    """The pins in the repository."""
    pinned = json.loads(MANIFEST.read_text(encoding="utf-8"))
    assert isinstance(pinned, dict)
    return pinned


def main() -> int:
    """Compare or write."""
    wanted = [name for name in sys.argv[1:] if name != "--write"] or list(machines())
    found = {**(read() if MANIFEST.exists() else {}), **{name: pins(machines()[name]) for name in wanted}}
    found = {name: found[name] for name in machines() if name in found}
    if "--write" in sys.argv[1:]:
        MANIFEST.write_text(text(found), encoding="utf-8")
        return 0
    changed = difference(read(), found)
    print(changed or "everything is as pinned")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
