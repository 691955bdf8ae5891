"""What the protocol of the hold says of its known-bad designs beyond the one rule that refutes each."""

from __future__ import annotations

from deadreckon.models.explorer import Bounds, explore
from deadreckon.spec.machines import hold

FAILING = next(scope for scope in hold.scopes if scope.name == "failing")


def test_an_effect_before_its_mark_happens_twice() -> None:
    """Where the protocol names two rules for the variant, it breaks both."""
    bounds = Bounds(max_depth=9)
    found = explore(hold.variant("effect-before-mark"), FAILING, only="H3", bounds=bounds, compare_every=0)
    assert "H3" in found.violated


def test_an_orphan_is_taken_up_by_the_reconciliation() -> None:
    """The other rule of an unkeyed request, that it never ends, is kept even so: who reconciles ends orphans too."""
    found = explore(hold.variant("unkeyed-request"), FAILING, only="H15", compare_every=0)
    assert found.verdict(hold.rule("H15")) == "holds"
