"""Mutate the transitions of a machine, one place at a time, and see whether anything notices.

    python tests/quality/mutation.py incident [--module incident_budgets] [--skip N] [--only N] [--jobs 2] [--report FILE]

Each mutant is judged in a process of its own, cheapest evidence first: the static check, exploration of the
smallest scope, induction, exploration of the others (every rule holds, every ``sometimes`` is reached, every action runs),
and last the pinned counts. A mutant that nothing notices survives: either it is equivalent, or a rule is missing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec" / "deadreckon" / "spec"
Change = Callable[[], object]
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Description and source of every mutant."""
    tree = ast.parse(source)
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for place, node in enumerate(ast.walk(function)):
            for number, (what, _) in enumerate(_changes(node)):
                changed = copy.deepcopy(tree)
                twin = next(one for one in changed.body if getattr(one, "name", "") == function.name)
                _apply(twin, place, number)
                line = getattr(node, "lineno", function.lineno)
                yield f"{function.name}:{line} {what}", ast.unparse(ast.fix_missing_locations(changed))


def _apply(function: ast.stmt, place: int, number: int) -> None:
    node = list(ast.walk(function))[place]
    list(_changes(node))[number][1]()


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    """What can be changed at a node: description, and the change itself (in place)."""
    match node:
        case ast.FunctionDef() | ast.If():
            yield from _dropped_guards(node)
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            other = COMPARISONS[type(op)]
            yield f"{type(op).__name__} becomes {other.__name__}", partial(_set, node, ops=[other()])
        case ast.BoolOp(values=values):
            for at in range(len(values)):
                rest = values[:at] + values[at + 1 :]
                yield f"without operand {at}: {ast.unparse(values[at])}", partial(_set, node, values=rest)
        case ast.UnaryOp(op=ast.Not()):
            yield "without not", partial(_unwrap, node)
        case ast.IfExp(body=body, orelse=orelse):
            yield "branches exchanged", partial(_set, node, body=orelse, orelse=body)
        case ast.Constant(value=bool() as value):
            yield f"{value} becomes {not value}", partial(_set, node, value=not value)
        case ast.Constant(value=int() as value):
            yield f"{value} becomes {value + 1}", partial(_set, node, value=value + 1)
        case ast.Call(func=ast.Attribute(attr="evolve"), keywords=keywords):
            for at, keyword in enumerate(keywords):
                fewer = keywords[:at] + keywords[at + 1 :]
                yield f"evolve without {keyword.arg}", partial(_set, node, keywords=fewer)


def _dropped_guards(node: ast.FunctionDef | ast.If) -> Iterator[tuple[str, Change]]:
    for at, statement in enumerate(node.body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and len(node.body) > 1:
            rest = node.body[:at] + node.body[at + 1 :]
            yield f"without guard: {ast.unparse(statement)}", partial(_set, node, body=rest)


def _set(node: ast.AST, **fields: object) -> None:
    for name, value in fields.items():
        setattr(node, name, value)


def _unwrap(node: ast.UnaryOp) -> None:
    """``not x`` becomes ``not not x``."""
    node.operand = ast.UnaryOp(ast.Not(), node.operand)


def judge(name: str) -> str:
    """What notices the machine as it stands now; empty when nothing does."""
    from deadreckon.models.explorer import Bounds, explore
    from deadreckon.models.relation import relation
    from deadreckon.proofs.induction import Inductor
    from deadreckon.proofs.system import System
    from deadreckon.spec import Kind
    from deadreckon.spec.machines import MACHINES

    machine = MACHINES[name]
    traced = relation(machine)
    *large, small = machine.scopes
    enough = Bounds(max_states=120_000)
    explored = [explore(machine, small, traced=traced, compare_every=0, bounds=enough)]
    if explored[0].violated:
        return f"rule {min(explored[0].violated)}"
    always = [rule.id for rule in machine.rules if rule.kind is Kind.ALWAYS]
    induction = Inductor(System(traced), float("inf")).run(always, depth=1)
    if induction.broken:
        return f"proof of {min(induction.broken)}"
    for scope in large:
        found = explore(machine, scope, traced=traced, compare_every=0, bounds=enough)
        if found.violated:
            return f"rule {min(found.violated)}"
        if found.deadlock:
            return "deadlock"
        if found.stopped:
            return f"scope {scope.name} has {found.stopped}"
        explored.append(found)
    for rule in machine.rules:
        if rule.kind is Kind.SOMETIMES and not any(rule.id in found.reached for found in explored):
            return f"unreached {rule.id}"
    idle = {action.name for action in machine.actions}.difference(*(found.ran for found in explored))
    if idle:
        return f"action {min(idle)} never runs"
    pinned = json.loads((ROOT / "models" / "manifest.json").read_text(encoding="utf-8"))[name]["scopes"]
    for found in explored:
        pins = pinned[found.scope.name]
        if (pins["states"], pins["edges"], pins["depth"]) != (found.states, found.edges, found.depth):
            return f"pinned counts of scope {found.scope.name}"
    return ""


def verdict(name: str, module: str, source: str) -> str:
    """Judge one mutant in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "deadreckon" / "spec"
        shutil.copytree(SPEC, package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / f"{module}.py").write_text(source, encoding="utf-8")
        roots = [folder, *(str(ROOT / room) for room in ("models", "proofs", "impl", "cli"))]
        done = subprocess.run(
            [sys.executable, "-S", __file__, name, "--judge"],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([*roots, *(path for path in sys.path if "site-packages" in path)]),
            },
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode:
            return f"refused: {done.stderr.strip().splitlines()[-1][:160]}"
        return done.stdout.strip()


def main() -> None:
    """Mutate, judge, and print the score with every survivor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("machine")
    parser.add_argument("--module", help="the file to mutate, if it is not that of the machine")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if options.judge:
        print(judge(options.machine))
        return
    module = options.module or options.machine
    sources = list(mutants((SPEC / f"{module}.py").read_text(encoding="utf-8")))[options.skip :][: options.only]
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = []
        for (what, _), noticed in zip(
            sources, pool.map(lambda one: verdict(options.machine, module, one[1]), sources), strict=True
        ):
            verdicts.append((what, noticed))
            print(f"{len(verdicts)}/{len(sources)} {what}: {noticed or 'SURVIVES'}", flush=True)
    killed = Counter(noticed.split(" ")[0] for _, noticed in verdicts if noticed)
    print(f"{sum(killed.values())} of {len(verdicts)} noticed: {dict(killed)}")
    if options.report:
        options.report.write_text(json.dumps(verdicts, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
