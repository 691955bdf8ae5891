"""The table of the keepalive: its actions, rules, scopes and variants, put together."""

from __future__ import annotations

from . import keepalive as keepalive_actions
from . import keepalive_lemmas as lemmas
from . import keepalive_rules as rules
from . import keepalive_witnesses as witnesses
from .bounds import Horizons, scope
from .keepalive import initial
from .keepalive_ghost import Ghost, observe
from .keepalive_state import NEVER, KeepalivePolicy, Pass, State, policy_is_valid
from .keepalive_variants import VARIANTS
from .language import Between, Rule, each
from .machine import Machine, action

SLOT = each("slots")
STEADY: Horizons = {"version": 1, "lifetime": 1}
"""Nothing is deployed or recreated."""


def at_rest(state: State) -> bool:
    """Nothing is owed, armed or counted."""
    return not any(state.owed) and state.record.armed_at_ms == NEVER


def pieces(state: State) -> int:
    """Pieces of work that run or are owed."""
    return sum(1 for since, owed in zip(state.running_since_ms, state.owed, strict=True) if since != NEVER or owed)


def unasked(state: State) -> bool:
    """Nobody is asked to stop."""
    return not state.stopping


def punctual(state: State) -> bool:
    """No alarm is late."""
    return state.alarm_at_ms == NEVER or state.now_ms <= state.alarm_at_ms


def kept(state: State) -> bool:
    """All that runs is owed."""
    return all(since == NEVER or owed for since, owed in zip(state.running_since_ms, state.owed, strict=True))


def climbing(state: State) -> bool:
    """Beside the horizons of the scope *climbing*."""
    return unasked(state) and kept(state) and punctual(state)


def clearing(state: State) -> bool:
    """Beside the horizons of the scope *clearing*."""
    return climbing(state) and not state.failed_seen


def prompt(state: State) -> bool:
    """Nobody dawdles: a look is not late, and neither work nor a revival lasts longer than 1 ms."""
    record = state.record
    looks = (record.armed_at_ms == NEVER or state.now_ms <= record.armed_at_ms) and (
        state.confirm_at_ms == NEVER or state.now_ms <= state.confirm_at_ms
    )
    works = all(since == NEVER or state.now_ms <= since + 1 for since in state.running_since_ms)
    return looks and works and (state.reviving == Pass.IDLE or state.now_ms <= record.last_revival_at_ms + 1)


def recovering(state: State, ghost: Ghost) -> bool:
    """Beside the horizons of the scope *recovering*."""
    heals = not ghost.alarm_lost or not state.alive
    return unasked(state) and not ghost.troubled_late and heals and prompt(state)


keepalive = Machine(
    name="keepalive",
    title="A host that dies is revived, ever more slowly, until a quiet clean run, a deploy or a person clears the count.",
    outline=keepalive_actions.__doc__ or "",
    state=State,
    policy=KeepalivePolicy,
    policy_valid=policy_is_valid,
    ghost=Ghost,
    observe=observe,
    initial=(initial,),
    actions=(
        action(keepalive_actions.boot),
        action(keepalive_actions.track, slot=SLOT),
        action(keepalive_actions.settle, slot=SLOT),
        action(keepalive_actions.settle_failed, slot=SLOT),
        action(keepalive_actions.fire, jitter_ms=Between(0, None, explore=(0, 1))),
        action(keepalive_actions.stray_fire),
        action(keepalive_actions.arm),
        action(keepalive_actions.report),
        action(keepalive_actions.act, slot=SLOT),
        action(keepalive_actions.stand_down),
        action(keepalive_actions.succeed),
        action(keepalive_actions.fail),
        action(keepalive_actions.confirm),
        action(keepalive_actions.probe),
        action(keepalive_actions.reset),
        action(keepalive_actions.ask_to_stop),
        action(keepalive_actions.end),
        action(keepalive_actions.die),
        action(keepalive_actions.deploy, version=Between(1, None, explore=(1, 2))),
        action(keepalive_actions.recreate),
        action(keepalive_actions.lose_alarm),
        action(keepalive_actions.tick, elapsed_ms=Between(1, None, explore=(1,))),
    ),
    rules=tuple(
        value for file in (rules, witnesses, lemmas) for value in vars(file).values() if isinstance(value, Rule)
    ),
    scopes=(
        scope(
            "climbing",
            why="up the whole ladder to the plateau; all work is owed, no count is cleared, no alarm is late or lost",
            policy=KeepalivePolicy(ladder_ms=(1, 1, 1, 1), plateau_ms=2, lead_ms=1, evidence_at=3, wedge_ms=2),
            at_most={pieces: 1, "record.epoch": 0, "now_ms": 6, "ghost.losses": 0, **STEADY},
            within=climbing,
            liveness=False,
        ),
        scope(
            "clearing",
            why="clears, by deploy, hand or clean run; revivals between them, evidence at the first; nothing fails",
            policy=KeepalivePolicy(ladder_ms=(2, 2, 2, 2), plateau_ms=2, lead_ms=1, evidence_at=1, wedge_ms=9),
            at_most={
                pieces: 1,
                "record.epoch": 2,
                "record.revivals": 2,
                "lifetime": 1,
                "now_ms": 4,
                "ghost.losses": 0,
            },
            within=clearing,
            liveness=False,
        ),
        scope(
            "overlapping",
            why="pieces of work at once, some not owed, a wedge after 2 ms, alarms late; few revivals",
            policy=KeepalivePolicy(ladder_ms=(2, 2, 2, 2), plateau_ms=2, lead_ms=2, evidence_at=4, wedge_ms=2),
            at_most={"record.epoch": 1, "record.revivals": 2, "now_ms": 4, "ghost.losses": 0, **STEADY},
            within=unasked,
            liveness=False,
        ),
        scope(
            "replacing",
            why="the stream is recreated, and the host asked to stop; few revivals between clears",
            policy=KeepalivePolicy(ladder_ms=(1, 1, 1, 1), plateau_ms=1, lead_ms=1, evidence_at=4, wedge_ms=9),
            at_most={
                pieces: 1,
                "record.epoch": 1,
                "record.revivals": 1,
                "version": 1,
                "lifetime": 2,
                "now_ms": 3,
                "ghost.losses": 0,
            },
            within=kept,
            liveness=False,
        ),
        scope(
            "recovering",
            why="trouble in the first millisecond, and nobody dawdles; an alarm is lost while the host is dead",
            policy=KeepalivePolicy(ladder_ms=(1, 1, 1, 1), plateau_ms=1, lead_ms=1, evidence_at=4, wedge_ms=9),
            at_most={pieces: 1, "record.epoch": 3, "now_ms": 8, "ghost.losses": 1, **STEADY},
            within=recovering,
        ),
    ),
    interchangeable=(("owed", "running_since_ms"),),
    terminal=at_rest,
    variants=VARIANTS,
)
