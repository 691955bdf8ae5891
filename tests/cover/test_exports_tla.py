"""What a TLA+ module says, and that it is one; whether TLC agrees is for ``nocover/test_tlc.py``."""

from __future__ import annotations

import re
import warnings

import pytest
import tree_sitter_tlaplus
from click.testing import CliRunner
from tree_sitter import Language, Node, Parser

from deadreckon.cli.commands import command
from deadreckon.models.exports.tla import tla, tla_config
from deadreckon.models.relation import Relation, relation
from deadreckon.spec import Kind, Machine, Scope
from deadreckon.spec.machines import MACHINES
from tests.cover.knots import machine as knots

ALL = {**MACHINES, "knots": knots}
with warnings.catch_warnings():  # the grammar hands out a pointer as a number, which its binding would rather not take
    warnings.simplefilter("ignore", DeprecationWarning)
    PARSER = Parser(Language(tree_sitter_tlaplus.language()))
SCOPES = [(name, scope.name) for name, machine in ALL.items() for scope in machine.scopes]


@pytest.fixture(scope="module", params=list(ALL))
def traced(request: pytest.FixtureRequest) -> Relation:
    """Each machine."""
    return relation(ALL[request.param])


def scope_named(machine: Machine, name: str) -> Scope:
    """The scope of this name."""
    return next(scope for scope in machine.scopes if scope.name == name)


def faults(node: Node) -> list[str]:
    """Where the parser met what is no TLA+."""
    found = [f"{node.type} at line {node.start_point[0] + 1}"] if node.type == "ERROR" or node.is_missing else []
    return found + [fault for child in node.children for fault in faults(child)]


def defined(text: str) -> set[str]:
    """The names of all definitions."""
    return set(re.findall(r"^(\w+)(?:\([\w, ]+\))? ==", text, re.MULTILINE))


def prose(text: str) -> str:
    """All comments in one line."""
    return " ".join(re.findall(r"^\\\* ?(.*)$", text, re.MULTILINE))


@pytest.mark.parametrize(("name", "scope"), SCOPES)
def test_module_is_tla(name: str, scope: str) -> None:
    """A parser that is not ours finds nothing to complain of, in every scope of every machine."""
    text = tla(relation(ALL[name]), scope_named(ALL[name], scope))
    tree = PARSER.parse(text.encode())
    assert faults(tree.root_node) == []
    assert "module" in {child.type for child in tree.root_node.children}


def test_parser_finds_what_is_no_tla() -> None:
    """The check can fail."""
    assert faults(PARSER.parse(b"---- MODULE M ----\nA == IF x THEN\n====\n").root_node)


def test_every_rule_is_defined_and_said(traced: Relation) -> None:
    """Each rule that is judged is a definition, whose comment carries the sentence; the others are said to be left out."""
    text = tla(traced, traced.machine.scopes[0])
    said = prose(text)
    assert [rule.id for rule in traced.machine.rules if rule.sentence not in said] == []
    judged = [rule.id for rule in traced.machine.rules if rule.kind is not Kind.EVENTUALLY]
    assert [id for id in judged if not {id, f"{id}_"} & defined(text)] == []


def test_every_action_is_part_of_next(traced: Relation) -> None:
    """Every action that can run is a definition with its instances, and Next is all of them."""
    text = tla(traced, traced.machine.scopes[0])
    following = text[text.index("\nNext ==") : text.index("\nSpec ==")]
    actions = {command.action for command in traced.commands}
    camel = {"".join(part.capitalize() for part in action.split("_")): action for action in actions}
    assert [action for name, action in camel.items() if not re.search(rf"\b{name}_*\b", following)] == []


def test_configuration_names_what_is_defined(traced: Relation) -> None:
    """Every invariant and property of the configuration is a definition; each always-rule and deadlock are among them."""
    scope = traced.machine.scopes[0]
    text, config = tla(traced, scope), tla_config(traced, scope)
    asked = set(re.findall(r"^  (\w+)$", config, re.MULTILINE))
    assert asked <= defined(text)
    always = {rule.id for rule in traced.machine.rules if rule.kind is Kind.ALWAYS}
    assert {"TypeOK", "NoDeadlock"} | always <= {name.rstrip("_") for name in asked}
    witnesses = set(re.findall(r"^\\\* INVARIANT (\w+)$", config, re.MULTILINE))
    assert witnesses <= defined(text)
    assert len(witnesses) == sum(rule.kind is Kind.SOMETIMES for rule in traced.machine.rules)
    eventual = set(re.findall(r"^\\\* PROPERTY (\w+)$", config, re.MULTILINE))
    assert eventual <= defined(text)
    assert len(eventual) == (
        sum(rule.kind is Kind.EVENTUALLY for rule in traced.machine.rules) if scope.liveness else 0
    )
    assert config.strip() in text


def test_bounds_are_those_of_the_scope() -> None:
    """Another scope has another module; the policy and the reason of the scope stand in it."""
    traced = relation(MACHINES["incident"])
    texts = {scope.name: tla(traced, scope) for scope in traced.machine.scopes}
    assert len(set(texts.values())) == len(texts)
    for scope in traced.machine.scopes:
        assert f"Scope {scope.name}" in texts[scope.name]
        assert scope.why in prose(texts[scope.name])


def test_show_writes_module_and_configuration() -> None:
    """`show --format tla` and `tla-cfg` print them, for the scope that is named; a scope that is none is refused."""
    traced = relation(MACHINES["incident"])
    parking = scope_named(traced.machine, "parking")
    for form, wanted in (("tla", tla(traced, parking)), ("tla-cfg", tla_config(traced, parking))):
        done = CliRunner().invoke(command, ["show", "incident", "--format", form, "--scope", "parking"])
        assert (done.exit_code, done.stdout) == (0, wanted)
        done = CliRunner().invoke(command, ["show", "incident", "--format", form, "--scope", "nowhere"])
        assert done.exit_code == 2
        assert "no scope nowhere in incident: overlap, budgets, parking" in done.stderr
