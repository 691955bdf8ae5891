"""The table of the journal: its actions, rules, scopes and variants, put together."""

from __future__ import annotations

from . import journal as journal_actions
from . import journal_lemmas as lemmas
from . import journal_rules as rules
from . import journal_witnesses as witnesses
from .bounds import scope
from .journal import initial
from .journal_rules import events
from .journal_state import NOTHING_SEEN, NOTHING_TOLD, JournalPolicy, Phase, State, policy_is_valid
from .journal_variants import VARIANTS
from .language import Among, Between, Rule
from .machine import Machine, action

ROWS = Between(1, None, explore=(1,))
BYTES = Between(1, None, explore=(1,))


def keyless(state: State) -> bool:
    """Nobody uses a key, and nobody reads."""
    unkeyed = all(row.key == 0 and row.body <= 1 for row in events(state))
    return unkeyed and state.seen == NOTHING_SEEN and state.told == NOTHING_TOLD


def following(state: State) -> bool:
    """Beside the horizons of the scope *following*."""
    plain = state.max_offset <= state.log.head and state.log.high == state.log.head
    changed = state.declared == (state.version == 2)
    return keyless(state) and plain and state.log.untracked == state.log.count and changed


def at_rest(state: State) -> bool:
    """No subject."""
    return state.phase == Phase.DOWN or state.phase == Phase.OPEN


def offsets(state: State) -> bool:
    """Beside the horizons of the scope *offsets*."""
    return at_rest(state) and keyless(state) and not state.declared


def keys(state: State) -> bool:
    """Beside the horizons of the scope *keys*."""
    once = state.told == NOTHING_TOLD or state.seen == NOTHING_SEEN
    named = all(event.key != 0 or event.body <= 1 for event in events(state))
    return at_rest(state) and once and named


journal = Machine(
    name="journal",
    title="One sequence of offsets for rows and ephemerals: never reused, not filled by presence, woken in constant time.",
    outline=journal_actions.__doc__ or "",
    state=State,
    policy=JournalPolicy,
    policy_valid=policy_is_valid,
    ghost=rules.Ghost,
    observe=rules.observe,
    initial=(initial,),
    actions=(
        action(journal_actions.boot, version=Between(1, None, explore=(1, 2))),
        action(journal_actions.crash),
        action(journal_actions.reserve, ahead=Between(1, None, explore=(1,))),
        action(
            journal_actions.append,
            key=Between(0, None, explore=(0, 1, 2)),
            body=Between(1, None, explore=(1, 2)),
            size=BYTES,
        ),
        action(journal_actions.append_others, rows=ROWS),
        action(journal_actions.connect, size=Between(1, None, explore=(1, 2))),
        action(journal_actions.disconnect, size=BYTES),
        action(journal_actions.revive),
        action(journal_actions.evict),
        action(journal_actions.read_row, slot=Among((0, 1))),
        action(journal_actions.read_buffered, slot=Among((0, 1))),
        action(journal_actions.begin_wait),
        action(journal_actions.end_wait),
        action(journal_actions.wake),
        action(journal_actions.fold_page, rows=Between(1, None, explore=(1, 2))),
        action(journal_actions.process, rows=ROWS),
        action(journal_actions.checkpoint),
        action(journal_actions.tick, elapsed_ms=Between(1, None, explore=(1,))),
    ),
    rules=tuple(
        value for file in (rules, witnesses, lemmas) for value in vars(file).values() if isinstance(value, Rule)
    ),
    scopes=(
        scope(
            "following",
            why="a few rows without slots, two versions that differ in the definition, a tail of one; rows alone, no keys",
            policy=JournalPolicy(buffer_max_bytes=1, checkpoint_every_events=2, checkpoint_every_ms=2),
            at_most={"now_ms": 2, "log.count": 3, "revival_rows": 0},
            within=following,
        ),
        scope(
            "offsets",
            why="few offsets, two rows with slots, a buffer of two; no keys, no subject, no time",
            policy=JournalPolicy(buffer_max_bytes=2, checkpoint_every_events=1, checkpoint_every_ms=1),
            at_most={"now_ms": 0, "version": 1, "max_offset": 4, "log.high": 4},
            within=offsets,
            liveness=False,
        ),
        scope(
            "keys",
            why="few offsets, two keys and bodies, a definition that changes, a buffer of one; no subject, no time",
            policy=JournalPolicy(buffer_max_bytes=1, checkpoint_every_events=1, checkpoint_every_ms=1),
            at_most={
                "now_ms": 0,
                "version": 1,
                "max_offset": 4,
                "log.high": 4,
                "log.untracked": 1,
                "revival_rows": 0,
                "waiting.offset": 0,
                "buffer[1].offset": 0,
            },
            within=keys,
            liveness=False,
        ),
    ),
    variants=VARIANTS,
)
