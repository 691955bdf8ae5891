"""What the protocols' tables of known-bad designs say, machine by machine, for ``test_defects.py``."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from deadreckon.spec import Variant, swap
from deadreckon.spec.hold_variants import owed_or_new
from deadreckon.spec.hold_words import owed

Refutation = tuple[str, int]
"""The rule that refutes a design, and the steps of the shortest run that breaks it."""

Guard = tuple[str, str, str]
"""An action, the rule by which it refuses, and why."""


@attrs.frozen
class Table:
    """What is known of the designs of one machine.

    Attributes:
        protocol: the known-bad designs of the protocol's own table.
        ours: those that guard what the protocol's leave alone.
        guards: the machine has more guards than this.
        unrefuted: the rules that no design of either table names: another rule refutes what would break them.
        backstops: guards that only a worse design needs: where everything else is sound they never refuse. That design,
            for each, and its refutation of the guard lies in the first scope.
        worse: such designs that are no variants of the machine, since they break no rule while the backstop stands.
        by_inputs: guards that the traced relation decides when it is traced, since inputs alone say so.
    """

    protocol: Mapping[str, Refutation]
    ours: Mapping[str, Refutation]
    guards: int
    unrefuted: frozenset[str] = frozenset()
    backstops: Mapping[Guard, str] = attrs.field(factory=dict)
    worse: tuple[Variant, ...] = ()
    by_inputs: frozenset[Guard] = frozenset()

    @property
    def all(self) -> Mapping[str, Refutation]:
        """Both tables."""
        return {**self.protocol, **self.ours}


INCIDENT = Table(
    protocol={
        "single-slot": ("C1", 13),
        "count-per-entry": ("C2", 9),
        "heavy-before-sync": ("C3", 5),
        "no-sync-on-finish": ("C2", 10),
        "count-on-failure-path": ("C1", 6),
        "reset-on-progress": ("C5", 9),
        "debounce-skips-count": ("C1", 9),
        "sealed-callback-runs": ("C7", 10),
        "process-identity": ("C1", 8),
        "lost-update": ("C6", 6),
        "untracked-when-missing": ("C10", 7),
        "sweep-erases-count": ("C5", 9),
        "rebuild-before-admission": ("C11", 7),
        "seal-before-terminal": ("C9", 10),
        "seal-while-parked": ("C8", 6),
        "exempt-class": ("C4", 10),
        "found-twice": ("C2", 9),
    },
    ours={"no-fence": ("C13", 4), "seal-over-work": ("C7a", 9)},
    guards=40,
    unrefuted=frozenset({"C4a", "C4b", "C9a", "C12", "B1", "B2"}),
)

HOLD = Table(
    protocol={
        "rearm-on-timeout-only": ("H9", 3),
        "cursor-moves-on-failed-judgement": ("H8", 4),
        "rearm-from-head": ("H8", 6),
        "unclipped-backoff": ("H2", 6),
        "no-sweep": ("H16", 4),
        "release-without-horizon": ("H2", 7),
        "check-then-write": ("H2", 5),
        "expiry-only-swept": ("H2", 5),
        "transport-loss-denies": ("H9", 2),
        "settle-best-effort": ("H5", 7),
        "effect-before-mark": ("H4", 3),
        "replay-effect-on-resume": ("H3", 8),
        "release-for-the-dead": ("H12", 6),
        "ignored-decision-burns-key": ("H16", 2),
        "append-after-expiry-wins": ("H6", 4),
        "unkeyed-request": ("H12", 2),
        "no-reconcile": ("H15", 7),
        "no-wait-epoch": ("H7", 4),
        "hot-loop": ("H10", 3),
        "sibling-blast": ("H14", 6),
        "deadline-recomputed-on-resume": ("H13", 5),
    },
    ours={"unchecked-decision": ("H11", 2), "signed-by-nobody": ("H11", 2), "second-decision": ("H6", 3)},
    guards=80,
    unrefuted=frozenset({"H1", "H10a", "H16a"}),
    backstops={
        ("judge", "H16", "the door no longer looks"): "no-sweep",
        ("adopt", "H16", "the door no longer looks"): "no-sweep",
        ("adopt", "H15", "this door leaves alone what it did not park"): "no-reconcile",
        ("expire", "H15", "this door leaves alone what it did not park"): "no-reconcile",
        ("abandon", "H15", "this door leaves alone what it did not park"): "no-reconcile",
        ("settle_unknown", "H15", "this door leaves alone what it did not park"): "no-reconcile",
        ("lapse", "H15", "this door leaves alone what it did not park"): "no-reconcile",
        ("decide", "H16", "the decision's key is taken"): "ignored-decision-burns-key",
        ("call", "H1", "the request was not approved"): "called-unowed",
        ("call", "H4", "the start of the release is not durable"): "called-unowed",
    },
    worse=(Variant("called-unowed", "H3", "whoever finds an approval calls", (swap(owed, owed_or_new),)),),
    by_inputs=frozenset({("judge", "H7", "the decision is of another hold")}),
)

REQUEST = Table(
    protocol={
        "floorless": ("Q1", 10),
        "no-timer": ("Q5", 12),
        "settle-twice": ("Q2", 5),
        "expire-a-live-one": ("Q3", 11),
        "fresh-horizon-on-retry": ("Q4", 8),
    },
    ours={
        "no-fence": ("Q2a", 4),
        "early-timer": ("Q3", 4),
        "last-one-cut-short": ("Q3c", 10),
        "share-of-the-horizon": ("Q3a", 3),
        "reopened-afresh": ("Q4a", 4),
        "trusted-trigger": ("Q4b", 2),
        "timer-in-memory": ("Q5a", 3),
        "overslept": ("Q5b", 11),
        "expired-unrun": ("Q6", 3),
        "silent-expiry": ("Q7", 10),
        "bare-expiry": ("Q7a", 10),
        "told-too-early": ("Q7b", 3),
        "no-distance": ("R1", 5),
        "endless-distance": ("R1a", 8),
        "one-too-many": ("R2", 13),
        "count-after-attempt": ("R2", 13),
        "failed-untried": ("R3", 3),
        "adopted-while-running": ("R4", 4),
        "adopted-when-settled": ("R4", 5),
        "success-from-nowhere": ("R5", 3),
        "given-up-alive": ("Q3b", 10),
        "the-dead-act": ("R6", 1),
    },
    guards=25,
)

KEEPALIVE = Table(
    protocol={
        "success-rearms-lead": ("K2", 12),
        "probe-clears": ("K3", 6),
        "any-settle-clears": ("K3", 12),
        "count-after-attempt": ("K1", 7),
        "count-in-host": ("K5", 6),
        "never-cleared": ("K12", 17),
        "lifetime-count": ("K12", 17),
        "growing-past-plateau": ("K4", 22),
        "reset-postpones": ("K6", 4),
        "no-hand-reset": ("K6", 6),
        "evidence-key-without-epoch": ("K9", 12),
        "new-work-shortens": ("K2", 9),
        "exit-zero-is-clean": ("K7", 3),
        "track-moves-later": ("K10", 4),
        "boot-forgets-alarm": ("K11", 5),
        "flapping-version-clears-unrecorded": ("K3", 7),
    },
    ours={
        "return-clears": ("K3a", 8),
        "act-before-arm": ("K1", 6),
        "foreign-record": ("K5a", 5),
        "any-alarm-is-ours": ("K8", 4),
        "revive-again": ("K8a", 8),
        "pass-forgotten": ("K8a", 8),
        "evidence-best-effort": ("K9", 7),
        "evidence-unkeyed": ("K9a", 7),
        "failure-masked": ("K3", 11),
        "clean-though-busy": ("K3", 12),
        "withdrawn-revival-acts": ("K1", 8),
        "plateau-unannounced": ("K9b", 21),
        "wedge-unseen": ("K11b", 5),
        "hang-unseen": ("K11b", 9),
        "jitter-unbounded": ("K1a", 5),
        "cleared-in-the-count": ("K3", 8),
        "failure-forgives": ("K11c", 3),
        "early-look-rearms": ("K3c", 10),
        "empty-recovery": ("K11e", 7),
        "deploy-by-hand": ("K3b", 7),
        "settle-forgives-all": ("K11d", 4),
    },
    guards=25,
    unrefuted=frozenset({"K10a", "K11a"}),
)

JOURNAL = Table(
    protocol={
        "durable-presence": ("J2", 3),
        "reused-offset": ("J1", 6),
        "keyed-ephemeral": ("J3", 3),
        "parse-rewrites-history": ("J4", 5),
        "offset-as-index": ("J5", 4),
        "wait-on-ephemeral": ("J6", 5),
        "replay-from-zero": ("J8", 10),
    },
    ours={
        "unmarked-ephemeral": ("J1", 5),
        "offset-past-what-is-known": ("J1", 5),
        "rows-in-a-ring": ("J1a", 4),
        "revival-per-session": ("J2a", 3),
        "fold-by-definition": ("J4a", 5),
        "sender-decides": ("J4b", 2),
        "ephemerals-on-disk": ("J4c", 3),
        "key-dropped": ("J3a", 3),
        "wake-forgets-waits": ("J6c", 4),
        "repetition-untold": ("J7b", 3),
        "wait-returns-early": ("J6a", 4),
        "wait-for-one-more": ("J6b", 7),
        "keys-ignored": ("J7a", 3),
        "conflict-answers-old": ("J7", 3),
        "keys-forgotten": ("J7", 4),
        "wake-scans": ("J8", 3),
        "refold-runs-effects": ("J8a", 9),
        "refold-acknowledges": ("J8a", 11),
        "cadence-by-time": ("J8b", 7),
        "cadence-by-events": ("J8b", 7),
        "live-before-kept": ("J8b", 4),
        "effects-before-fold": ("J8c", 9),
        "refold-past-acknowledgement": ("J8d", 10),
        "acknowledged-unseen": ("J8d", 4),
        "fold-of-another": ("J8e", 2),
        "endless-buffer": ("B1", 3),
        "newest-forgotten": ("B2", 6),
    },
    guards=30,
)

TABLES = {"incident": INCIDENT, "hold": HOLD, "keepalive": KEEPALIVE, "journal": JOURNAL, "request": REQUEST}
