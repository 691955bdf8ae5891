"""What approvers do: decide holds, and manage the keys that decisions are signed with. All they need is the journal.

The journal judges at the append: a decision that doesn't count is refused at once, by type, and changes nothing (H6,
H11). A refused one doesn't use up its key, so a good one may follow (H16).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence

import attrs

from deadreckon.spec.errors import CallerError, Refused
from deadreckon.spec.hold_state import Evidence, Fact

from .events import Emitter, Sink
from .hold_checks import check_text, checked_indexes, checked_verdicts
from .hold_journal import Ballot, Entry, Held, Journal, Json, Key, KeyChange, Moment, NoSuchHold, Verifier, Written
from .hold_journal_keys import vouched
from .hold_memory import ONLY, decided, moved, seen
from .hold_words import explained
from .signing import check_key, verified

REASON_MAX_CHARS = 1_000


@attrs.frozen
class Decision:
    """What an approver appends.

    Attributes:
        verdicts: one for each request of the hold: whether it is approved.
        by: who decides.
        reason: why, for the caller.
        signature, key_id: over the :class:`~deadreckon.impl.Ballot`; both or neither.
    """

    verdicts: tuple[bool, ...]
    by: str
    reason: str = ""
    signature: str = ""
    key_id: str = ""


def evidence(decision: Decision, held: Held, keys: Collection[Key], verifier: Verifier | None) -> Evidence:
    """What came with *decision*, by the keys active now. Without a verifier no signature is good."""
    if len(decision.verdicts) != len(held.requests):
        return Evidence.MALFORMED
    if not decision.signature and not decision.key_id:
        return Evidence.UNSIGNED
    ballot = Ballot(held.hold_id, held.requests, decision.verdicts)
    good = vouched(verifier, ballot, decision.signature, decision.key_id, keys)
    return Evidence.SIGNED if good else Evidence.BAD_SIGNATURE


async def decide(
    journal: Journal,
    hold_id: str,
    verdicts: Sequence[bool],
    by: str,
    reason: str = "",
    signature: str = "",
    key_id: str = "",
    *,
    key: str | None = None,
    sink: Sink | None = None,
) -> Held:
    """Decide a hold: durable when this returns.

    Args:
        journal: where the hold is.
        hold_id: which.
        verdicts: one for each request: whether it is approved.
        by: who decides.
        reason: why, for the caller.
        signature: over the :class:`~deadreckon.impl.Ballot`, by the key *key_id*; needed while a key is active, unless
            everything is refused.
        key_id: the signing key's name.
        key: makes a repetition after ``JournalUnavailable`` known, so that it is not refused as a second decision.
        sink: told of a decision that is refused; one that is accepted is told by the door.

    Raises:
        CallerError: a verdict is neither True nor False, nobody is named, or the reason is too long.
        DecisionLate, DecisionSecond, DecisionMalformed, DecisionUnsigned, DecisionForged: not accepted.
        NoSuchHold: there is no such hold.
        JournalUnavailable: it may be accepted or not; repeat it with the same *key*.
    """
    check_text(
        hold_id=hold_id, by=by, reason=reason, signature=signature, key_id=key_id, key="" if key is None else key
    )
    if not by:
        raise CallerError("by is empty: name who decides")
    if len(reason) > REASON_MAX_CHARS:
        raise CallerError(f"reason has {len(reason)} characters: give at most {REASON_MAX_CHARS}")
    decision = Decision(checked_verdicts(verdicts), by, reason, signature, key_id)
    found = [Evidence.UNSIGNED]

    def change(moment: Moment) -> Written:
        held = moment.held
        if held is None:
            raise NoSuchHold(f"the journal has no hold {hold_id!r}")
        found.append(evidence(decision, held, moment.keys, journal.verifier))
        before = seen(moment, held.hold)
        after = moved("decide", before, lambda state: decided(state, decision.verdicts, found[-1]))
        new = attrs.evolve(held, hold=after.holds[ONLY], by=by, reason=reason)
        return Written(new, (_fact(decision),))

    name = f"decide:{hold_id}:{key or uuid.uuid4().hex}"
    try:
        return (await journal.append(hold_id, change, key=name, body=repr(decision))).held
    except Refused as refusal:
        told: dict[str, Json] = {"hold": hold_id, "verdicts": _words(decision), "by": by, "accepted": False}
        Emitter(sink, journal.now_ms)("hold.decided", told)
        raise explained(hold_id, refusal, found[-1]) from None


async def approve(
    journal: Journal,
    hold_id: str,
    *,
    by: str,
    indexes: Iterable[int] | None = None,
    reason: str = "",
    signature: str = "",
    key_id: str = "",
    key: str | None = None,
) -> Held:
    """:func:`decide`: approve the requests in *indexes* and refuse the others; all of them without *indexes*."""
    count = len((await _known(journal, hold_id)).requests)
    wanted = range(count) if indexes is None else checked_indexes(indexes, count)
    verdicts = [at in wanted for at in range(count)]
    return await decide(journal, hold_id, verdicts, by, reason, signature, key_id, key=key)


async def reject(journal: Journal, hold_id: str, *, by: str, reason: str = "", key: str | None = None) -> Held:
    """:func:`decide`: refuse every request. It needs no signature: whoever can append can veto."""
    count = len((await _known(journal, hold_id)).requests)
    return await decide(journal, hold_id, [False] * count, by, reason, key=key)


async def open_holds(journal: Journal) -> list[Held]:
    """The holds that wait for a decision, the oldest first. A deadline may pass before the decision is appended."""
    return [held for held in await journal.unfinished() if held.hold.fact is Fact.OPEN]


async def add_key(
    journal: Journal, key_id: str, public_key: str, *, by: str, signature: str = "", signed_by: str = ""
) -> None:
    """From now on a decision that approves must be signed by an active key.

    Args:
        journal: where the holds are.
        key_id: the key's name, for ever: with the verifier of ``deadreckon.impl.signing`` it is ``key_id(public_key)``.
        public_key: as the verifier reads it.
        by: who adds it.
        signature: over :func:`~deadreckon.impl.key_ballot`, needed while a key is active.
        signed_by: the id of the active key that signed.

    Raises:
        KeyRefused: it is not signed, or the id is taken.
        BadKey: it is no key that the verifier of ``deadreckon.impl.signing`` can verify with.
    """
    check_text(key_id=key_id, public_key=public_key, by=by, signature=signature, signed_by=signed_by)
    if not key_id or not by:
        raise CallerError("key_id or by is empty: name the key, and who adds it")
    if journal.verifier is verified:
        check_key(key_id, public_key)
    await journal.change_key(KeyChange(Key(key_id, public_key), True, by, signature, signed_by))


async def revoke_key(journal: Journal, key_id: str, *, by: str, signature: str = "", signed_by: str = "") -> None:
    """Signatures by this key no longer count, for ever. After the last one is revoked, decisions need none.

    Args:
        journal: where the holds are.
        key_id: the key.
        by: who revokes it.
        signature, signed_by: as for :func:`add_key`; the key itself may sign.

    Raises:
        KeyRefused: it is not signed.
    """
    check_text(key_id=key_id, by=by, signature=signature, signed_by=signed_by)
    await journal.change_key(KeyChange(Key(key_id, ""), False, by, signature, signed_by))


def _words(decision: Decision) -> list[Json]:
    return ["approve" if yes else "reject" for yes in decision.verdicts]


def _fact(decision: Decision) -> Entry:
    body: dict[str, Json] = {
        "verdicts": _words(decision),
        "by": decision.by,
        "reason": decision.reason,
        "accepted": True,
    }
    signed: dict[str, Json] = {"signature": decision.signature, "key": decision.key_id} if decision.key_id else {}
    return Entry("hold.decided", {**body, **signed})


async def _known(journal: Journal, hold_id: str) -> Held:
    check_text(hold_id=hold_id)
    held = (await journal.read(hold_id)).held
    if held is None:
        raise NoSuchHold(f"the journal has no hold {hold_id!r}")
    return held
