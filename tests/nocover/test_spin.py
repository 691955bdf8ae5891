"""SPIN against the explorer: as many states and steps, and the same verdict on every rule.

SPIN knows nothing of the explorer, of its compiled functions or of its way to find representatives; what both are made
from is the traced relation under the policy of a scope.
"""

from __future__ import annotations

import re

import attrs
import pytest

from deadreckon.models.compiled import compile_relation
from deadreckon.models.explorer import Bounds, Exploration, explore
from deadreckon.models.exports.model import Model, model
from deadreckon.models.exports.promela import promela
from deadreckon.models.exports.spin import Spun, missing, spin
from deadreckon.models.relation import relation
from deadreckon.spec import CallerError, EnvironmentFault, Kind, Machine, Scope, SpecError
from deadreckon.spec.machines import MACHINES
from tests.cover.knots import machine as knots
from tests.cover.test_exports_promela import outside
from tests.nocover import manifest

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"{missing()} is not installed")

ALL = manifest.machines()
SCOPES = [(name, scope.name) for name, machine in ALL.items() for scope in machine.scopes]
VARIANTS = [(name, variant.name) for name, machine in MACHINES.items() for variant in machine.variants]
MOST = 400_000
"""States of a known-bad design that are compared; some have no end, and of these the verdict alone is."""


def named(machine: Machine, name: str) -> Scope:
    """The scope of this name."""
    return next(scope for scope in machine.scopes if scope.name == name)


def apart(machine: Machine) -> Machine:
    """*machine* without its symmetries: a known-bad design may break them."""
    changed: Machine = object.__new__(Machine)
    for field in attrs.fields(Machine):
        object.__setattr__(changed, field.name, getattr(machine, field.name))
    object.__setattr__(changed, "interchangeable", ())
    return changed


def explored(machine: Machine, scope: Scope) -> tuple[Model, Exploration]:
    """What the explorer finds; without symmetries, where they are none: it then finds no run along representatives."""
    built = model(relation(machine), scope)
    bounds = Bounds(max_states=MOST)
    try:
        return built, explore(machine, scope, traced=built.relation, bounds=bounds, compare_every=0, keep_graph=True)
    except (StopIteration, SpecError):
        assert machine.interchangeable
        return explored(apart(machine), scope)


def agree(machine: Machine, scope: Scope, deepest: int | None = None) -> Spun:
    """Both find the same states, steps, verdicts, witnesses and deadlocks; SPIN's verdicts are handed back.

    Of a machine with too many states, SPIN searches as deep as *deepest*, and nothing is compared.
    """
    built, found = explored(machine, scope)
    written = promela(built)
    if not found.complete:
        assert deepest is not None
        return spin(written, no_deeper=deepest, optimise="-O1")
    spun = spin(written, optimise="-O0")
    assert found.graph is not None
    assert outside(built, found.graph) == []
    code = compile_relation(built.relation, scope.policy)
    resting = sum(not code.successors(state) for state in found.graph.index)
    choosing = len(built.initial) if len(built.initial) > 1 else 0
    assert spun.states.may_be(found.states), spun.states
    steps = 1 + choosing + found.edges + found.cut + found.states + resting
    assert spun.transitions.may_be(steps), (spun.transitions, steps)
    eventual = {rule.id for rule in machine.rules if rule.kind is Kind.EVENTUALLY}
    assert spun.violated == set(found.violated) - eventual
    assert spun.reached == set(found.reached)
    assert spun.deadlock == (found.deadlock is not None)
    return spun


@pytest.mark.parametrize("scope", [scope.name for scope in knots.scopes])
@pytest.mark.parametrize("variant", [None, "colourless"])
def test_all_that_is_awkward_comes_to_the_same(variant: str | None, scope: str) -> None:
    """Reserved words, several starts, exchanges, negative numbers, representatives, cuts, deadlocks and no limit."""
    machine = knots if variant is None else knots.variant(variant)
    spun = agree(machine, named(machine, scope))
    assert spun.deadlock
    assert ("L1" in spun.violated) is (variant is not None and scope == "small")


def test_a_small_machine_comes_to_the_same() -> None:
    """The machine of ``docs/language.md`` and its known-bad design."""
    lease = ALL["lease"]
    assert agree(lease, lease.scopes[0]).violated == set()
    assert "F2" in agree(lease.variant("no-fencing"), lease.scopes[0]).violated


def test_a_search_that_ends_early_has_no_verdict() -> None:
    """Where SPIN may not go deep enough, the answer is an error."""
    with pytest.raises(EnvironmentFault, match="max search depth too small"):
        spin(promela(model(relation(knots), knots.scopes[0])), optimise="-O0", depth=3)


def test_a_search_may_be_asked_to_end() -> None:
    """No deeper than asked, SPIN finds what there is and says that there may be more."""
    written = promela(model(relation(ALL["lease"].variant("no-fencing")), ALL["lease"].scopes[0]))
    shallow, whole = (spin(written, no_deeper=steps, optimise="-O0") for steps in (3, 50))
    assert not shallow.complete
    assert not shallow.violated
    assert shallow.states.value < whole.states.value
    assert whole.complete
    assert whole.violated == {"F2"}


def test_sometimes_rules_are_no_errors_unless_asked_for() -> None:
    """As it stands, the model of a sound machine has no error to tell of."""
    built = model(relation(ALL["lease"]), ALL["lease"].scopes[0])
    quiet = spin(promela(built), witnesses=False, optimise="-O0")
    assert not quiet.violated
    assert not quiet.reached
    assert spin(promela(built), optimise="-O0").reached == {"S1"}


def test_a_number_that_outgrows_32_bits_is_no_verdict() -> None:
    """What intervals couldn't hold is asked about at every step."""
    written = promela(model(relation(knots), knots.scopes[0]))
    tight = attrs.evolve(written, text=re.sub(r"#define LIMIT \d+", "#define LIMIT 3", written.text))
    assert tight.text != written.text
    with pytest.raises(CallerError, match="a number outgrew the 32 bits"):
        spin(tight, optimise="-O0")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scope"), SCOPES)
def test_a_sound_machine_comes_to_the_same(name: str, scope: str) -> None:
    """In every scope: states, steps, verdicts, witnesses, and neither violation nor deadlock."""
    spun = agree(ALL[name], named(ALL[name], scope))
    assert spun.violated == set()
    assert not spun.deadlock


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_a_variant_is_refuted_by_the_same_rule(name: str, variant: str) -> None:
    """In the scope of its shortest counterexample: as many states, the same verdicts, and its rule refuted."""
    machine = MACHINES[name].variant(variant)
    pinned = manifest.read()[name]["variants"]
    assert isinstance(pinned, dict)
    pin = pinned[variant]
    # The last state is judged by a step of its own.
    spun = agree(machine, named(machine, pin["scope"]), deepest=pin["steps"] + 1)
    if machine.rule(pin["rule"]).kind is not Kind.EVENTUALLY:
        assert pin["rule"] in spun.violated
