"""The table of the keepalive: its actions, rules, scopes and variants, put together."""

from __future__ import annotations

from . import keepalive as keepalive_actions
from . import keepalive_lemmas as lemmas
from . import keepalive_rules as rules
from . import keepalive_witnesses as witnesses
from .keepalive import initial
from .keepalive_ghost import Ghost, observe
from .keepalive_state import NEVER, KeepalivePolicy, Pass, State, policy_is_valid
from .keepalive_variants import VARIANTS
from .language import Among, Between, Rule
from .machine import Machine, action, scope

SLOT = Among((0, 1))


def at_rest(state: State) -> bool:
    """Nothing is owed, armed or counted."""
    return not any(state.owed) and state.record.armed_at_ms == NEVER


def one_at_a_time(state: State) -> bool:
    """One slot is free."""
    return any(since == NEVER and not owed for since, owed in zip(state.running_since_ms, state.owed, strict=True))


def steady(state: State) -> bool:
    """Nothing is deployed, recreated or asked to stop."""
    return state.version == 1 and state.lifetime == 1 and not state.stopping


def punctual(state: State) -> bool:
    """No alarm is late."""
    return state.alarm_at_ms == NEVER or state.now_ms <= state.alarm_at_ms


def kept(state: State) -> bool:
    """All that runs is owed."""
    return all(since == NEVER or owed for since, owed in zip(state.running_since_ms, state.owed, strict=True))


def climbing(state: State, ghost: Ghost) -> bool:
    """Bounds of the scope *climbing*."""
    alone = steady(state) and one_at_a_time(state) and kept(state)
    return alone and ghost.losses == 0 and punctual(state) and state.record.epoch == 0 and state.now_ms <= 6


def clearing(state: State, ghost: Ghost) -> bool:
    """Bounds of the scope *clearing*."""
    few = state.record.epoch <= 2 and state.record.revivals <= 2 and state.lifetime == 1
    calm = one_at_a_time(state) and kept(state) and not state.stopping and not state.failed_seen
    return calm and few and ghost.losses == 0 and punctual(state) and state.now_ms <= 4


def overlapping(state: State, ghost: Ghost) -> bool:
    """Bounds of the scope *overlapping*."""
    few = state.record.epoch <= 1 and state.record.revivals <= 2
    return steady(state) and few and ghost.losses == 0 and state.now_ms <= 4


def replacing(state: State, ghost: Ghost) -> bool:
    """Bounds of the scope *replacing*."""
    few = state.record.epoch <= 1 and state.record.revivals <= 1 and state.version == 1 and state.lifetime <= 2
    return one_at_a_time(state) and kept(state) and few and ghost.losses == 0 and state.now_ms <= 3


def prompt(state: State) -> bool:
    """Nobody dawdles: a look is not late, and neither work nor a revival lasts longer than 1 ms."""
    record = state.record
    looks = (record.armed_at_ms == NEVER or state.now_ms <= record.armed_at_ms) and (
        state.confirm_at_ms == NEVER or state.now_ms <= state.confirm_at_ms
    )
    works = all(since == NEVER or state.now_ms <= since + 1 for since in state.running_since_ms)
    return looks and works and (state.reviving == Pass.IDLE or state.now_ms <= record.last_revival_at_ms + 1)


def recovering(state: State, ghost: Ghost) -> bool:
    """Bounds of the scope *recovering*."""
    early = not ghost.troubled_late and steady(state) and one_at_a_time(state)
    heals = ghost.losses <= 1 and (not ghost.alarm_lost or not state.alive)
    return early and heals and prompt(state) and state.record.epoch <= 3 and state.now_ms <= 8


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
            within=climbing,
            liveness=False,
        ),
        scope(
            "clearing",
            why="two clears, by deploy, hand or clean run; two revivals between them, evidence at the first; nothing fails",
            policy=KeepalivePolicy(ladder_ms=(2, 2, 2, 2), plateau_ms=2, lead_ms=1, evidence_at=1, wedge_ms=9),
            within=clearing,
            liveness=False,
        ),
        scope(
            "overlapping",
            why="two pieces of work at once, some not owed, a wedge after 2 ms, alarms late; at most two revivals",
            policy=KeepalivePolicy(ladder_ms=(2, 2, 2, 2), plateau_ms=2, lead_ms=2, evidence_at=4, wedge_ms=2),
            within=overlapping,
            liveness=False,
        ),
        scope(
            "replacing",
            why="the stream is recreated once, and the host asked to stop; at most one revival between clears",
            policy=KeepalivePolicy(ladder_ms=(1, 1, 1, 1), plateau_ms=1, lead_ms=1, evidence_at=4, wedge_ms=9),
            within=replacing,
            liveness=False,
        ),
        scope(
            "recovering",
            why="trouble in the first millisecond, and nobody dawdles; an alarm is lost once, while the host is dead",
            policy=KeepalivePolicy(ladder_ms=(1, 1, 1, 1), plateau_ms=1, lead_ms=1, evidence_at=4, wedge_ms=9),
            within=recovering,
        ),
    ),
    interchangeable=(("owed", "running_since_ms"),),
    terminal=at_rest,
    variants=VARIANTS,
)
