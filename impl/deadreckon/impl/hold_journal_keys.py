"""When a journal takes a change of its signing keys: signed facts, once there is anybody to sign them.

The first key is taken on trust. While a key is active, keys are added and revoked by its signature alone (any active key
may speak, for itself too): whoever can append, and has no key, can't get rid of the signatures that decisions need. An
old signature is no use to anybody: a key that was revoked never comes back, and a hold has no empty id.
"""

from __future__ import annotations

from collections.abc import Collection

from deadreckon.spec.errors import EnvironmentFault

from .hold_journal import Ballot, Entry, Json, Key, KeyChange, KeyRefused, Verifier


def key_ballot(key: Key, *, active: bool) -> Ballot:
    """What a signature vouches for that adds a key, or revokes one. No hold has an empty id."""
    request = f"add key {key.key_id} {key.public_key}" if active else f"revoke key {key.key_id}"
    return Ballot("", (request,), (active,))


def judged(change: KeyChange, keys: Collection[Key], revoked: bool, verifier: Verifier | None) -> Entry | None:
    """The fact that *change* makes; None if all is so already.

    Args:
        change: what is asked for.
        keys: those active now.
        revoked: whether a key of this id was ever revoked.
        verifier: the journal's.

    Raises:
        KeyRefused: it is not signed as it must be, or the id stands, or stood, for another key.
    """
    key = change.key
    known = [one for one in keys if one.key_id == key.key_id]
    if change.active and key in known:
        return None
    if change.active and (known or revoked):
        raise KeyRefused(f"the key id {key.key_id!r} is taken: a new key needs a new one, also after it was revoked")
    if not change.active and not known:
        return None
    if keys and not _signed(change, keys, verifier):
        raise KeyRefused("a key is active: keys are changed by an active key's signature")
    body: dict[str, Json] = {"key": key.key_id, "by": change.by}
    added: dict[str, Json] = {"public_key": key.public_key} if change.active else {}
    signed: dict[str, Json] = {"signature": change.signature, "signed_by": change.signed_by} if keys else {}
    return Entry("key.added" if change.active else "key.revoked", {**body, **added, **signed})


def _signed(change: KeyChange, keys: Collection[Key], verifier: Verifier | None) -> bool:
    ballot = key_ballot(change.key, active=change.active)
    return vouched(verifier, ballot, change.signature, change.signed_by, keys)


def vouched(verifier: Verifier | None, ballot: Ballot, signature: str, key_id: str, keys: Collection[Key]) -> bool:
    """Whether the active key of this id has signed *ballot*. Without a verifier, or with one that fails, it hasn't.

    Raises:
        EnvironmentFault: what verifies is not installed.
    """
    try:
        return verifier is not None and any(
            verifier(ballot, signature, key) is True for key in keys if key.key_id == key_id
        )
    except EnvironmentFault:
        raise
    except Exception:
        return False
