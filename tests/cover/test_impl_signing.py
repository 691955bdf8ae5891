"""Signed decisions: what is signed, in one spelling only, and whatever is changed is not verified."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import assume, given
from hypothesis import strategies as st

from deadreckon.impl import KeyRefused, SqliteJournal, add_key, key_ballot, revoke_key
from deadreckon.impl.hold_journal import Ballot, Key
from deadreckon.impl.signing import (
    BadKey,
    Json,
    NotCanonical,
    ballot_message,
    canonical_json,
    canonical_message,
    key_id,
    load_private_key,
    new_private_key,
    public_key_b64,
    sign,
    verified,
    verify,
)
from deadreckon.spec import CallerError, EnvironmentFault

MESSAGE = canonical_message("h1", ["aa", "bb"], [True, False])
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@cache
def key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    """A key, the same each time."""
    return ec.derive_private_key(number + 0xDEAD, ec.SECP256R1())


@cache
def signature() -> str:
    """A good signature of the message."""
    return sign(key(), MESSAGE)


def test_canonical_message_is_the_documented_bytes() -> None:
    """What is signed is this, byte for byte, so that any language can make it."""
    assert MESSAGE == (
        b'{"hold":"h1","requests":["aa","bb"],"v":"deadreckon.decision.v1","verdicts":["approve","reject"]}'
    )


@pytest.mark.parametrize(
    "other",
    [
        canonical_message("h2", ["aa", "bb"], [True, False]),
        canonical_message("h1", ["bb", "aa"], [True, False]),
        canonical_message("h1", ["aa", "bc"], [True, False]),
        canonical_message("h1", ["aa", "bb"], [False, True]),
        canonical_message("h1", ["aa", "bb"], [True, True]),
        canonical_message("h1", ["aa", "bb", "bb"], [True, False, False]),
        canonical_message("h1", ["aa"], [True]),
    ],
)
def test_a_signature_is_good_for_one_decision_alone(other: bytes) -> None:
    """Another hold, request, order or verdict is another message, and the signature is not good for it."""
    assert other != MESSAGE
    assert not verify(public_key_b64(key()), other, signature())


holds = st.tuples(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.booleans()), min_size=1, max_size=4),
)


@given(holds, holds)
def test_canonical_message_tells_decisions_apart(
    one: tuple[str, list[tuple[str, bool]]], other: tuple[str, list[tuple[str, bool]]]
) -> None:
    """No two decisions have the same message, whatever stands in their texts."""
    first, second = (
        canonical_message(hold, [digest for digest, _ in rows], [verdict for _, verdict in rows])
        for hold, rows in (one, other)
    )
    assert (first == second) == (one == other)


@pytest.mark.parametrize(("digests", "verdicts"), [([], []), (["a"], []), (["a"], [True, False])])
def test_canonical_message_wants_a_verdict_for_each_request(digests: list[str], verdicts: list[bool]) -> None:
    """A decision of the wrong count has no message."""
    with pytest.raises(NotCanonical, match="one for each"):
        canonical_message("h", digests, verdicts)


def test_canonical_message_wants_its_types() -> None:
    """A number as a verdict, or an id or a digest that is no text, has no message."""
    for hold, digest_, verdict in (("h", "a", 1), (7, "a", True), ("h", b"a", True)):
        with pytest.raises(NotCanonical):
            canonical_message(hold, [digest_], [verdict])  # type: ignore[arg-type, list-item]  # that is the point


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)


@given(values)
def test_canonical_json_reads_back_and_is_a_fixed_point(value: Json) -> None:
    """The canonical form is JSON of the same value, and its own canonical form."""
    written = canonical_json(value)
    assert json.loads(written) == value
    assert canonical_json(json.loads(written)) == written


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values), st.randoms())
def test_canonical_json_does_not_know_the_order_of_keys(value: dict[str, Json], shuffler: object) -> None:
    """Two mappings that are equal are written alike, at every depth."""
    assert canonical_json(dict(reversed(list(value.items())))) == canonical_json(value)
    assert canonical_json([{"b": {"d": 1, "c": 2}, "a": 3}]) == b'[{"a":3,"b":{"c":2,"d":1}}]'


@pytest.mark.parametrize(
    "value", [1.0, float("nan"), b"a", bytearray(b"a"), {1: 2}, {"a": [0.5]}, "\ud800", object(), {1}]
)
def test_canonical_json_refuses_what_has_two_spellings(value: object) -> None:
    """Fractions, bytes, keys that are no text, sets and lone surrogates are refused by type."""
    with pytest.raises(NotCanonical):
        canonical_json(value)  # type: ignore[arg-type]  # that is the point


def test_canonical_json_refuses_endless_nesting() -> None:
    """A list that holds itself is refused, not followed."""
    endless: list[Json] = []
    endless.append(endless)
    with pytest.raises(NotCanonical, match="deeply"):
        canonical_json(endless)


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 3))
def test_signature_verifies_with_its_own_key_alone(message: bytes, signer: int, verifier: int) -> None:
    """Any message that is signed verifies with the signer's public key, and with no other."""
    assert verify(public_key_b64(key(verifier)), message, sign(key(signer), message)) == (signer == verifier)


def test_signature_is_raw_r_and_s() -> None:
    """A signature is 64 bytes, r and s, whatever leading zeros they have; a new one of the same message differs."""
    assert {len(base64.b64decode(sign(key(), bytes([number])))) for number in range(40)} == {64}
    assert sign(key(), MESSAGE) != sign(key(), MESSAGE)


@given(st.integers(0, len(MESSAGE) - 1), st.integers(1, 255))
def test_any_changed_byte_of_the_message_is_not_verified(at: int, flip: int) -> None:
    """A message with one byte changed is not verified."""
    changed = bytearray(MESSAGE)
    changed[at] ^= flip
    assert not verify(public_key_b64(key()), bytes(changed), signature())


@given(st.integers(0, 63), st.integers(1, 255))
def test_any_changed_byte_of_the_signature_is_not_verified(at: int, flip: int) -> None:
    """A signature with one byte changed is not verified."""
    changed = bytearray(base64.b64decode(signature()))
    changed[at] ^= flip
    assert not verify(public_key_b64(key()), MESSAGE, base64.b64encode(changed).decode())


@given(st.integers(0, 64), st.integers(1, 255))
def test_any_changed_byte_of_the_key_is_not_verified(at: int, flip: int) -> None:
    """A key with one byte changed verifies nothing."""
    changed = bytearray(base64.b64decode(public_key_b64(key())))
    changed[at] ^= flip
    assert not verify(base64.b64encode(changed).decode(), MESSAGE, signature())


@given(st.data())
def test_any_changed_letter_is_not_verified(data: st.DataObject) -> None:
    """Base64 has one spelling: a changed, added or dropped letter, padding bits included, is not verified."""
    for text in (signature(), public_key_b64(key())):
        at = data.draw(st.integers(0, len(text)))
        changed = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, 1)) :]
        assume(changed != text)
        which = text == signature()
        good = (public_key_b64(key()), MESSAGE, changed) if which else (changed, MESSAGE, signature())
        assert not verify(*good)


@given(st.text() | st.binary().map(lambda raw: base64.b64encode(raw).decode()))
def test_garbage_is_not_verified(text: str) -> None:
    """Whatever text stands for a key or a signature, the answer is no, never an exception."""
    assert not verify(text, MESSAGE, signature())
    assert not verify(public_key_b64(key()), MESSAGE, text)


@pytest.mark.parametrize("other", [None, 7, b"bytes", ["list"]])
def test_what_is_no_text_is_not_verified(other: object) -> None:
    """A key or a signature that is no text is malformed like any other."""
    assert not verify(other, MESSAGE, signature())  # type: ignore[arg-type]  # that is the point
    assert not verify(public_key_b64(key()), MESSAGE, other)  # type: ignore[arg-type]  # ditto


@pytest.mark.parametrize(("r", "s"), [(0, 1), (1, 0), (0, 0), (ORDER, 1), (1, ORDER), (2**256 - 1, 2**256 - 1)])
def test_scalars_out_of_range_are_not_verified(r: int, s: int) -> None:
    """Neither r nor s may be 0, or the order of the curve, or more."""
    assert not verify(public_key_b64(key()), MESSAGE, base64.b64encode(r.to_bytes(32) + s.to_bytes(32)).decode())


def test_the_mirror_image_verifies_too() -> None:
    """As the documentation warns, (r, n - s) is good as well: a signature is not an identity."""
    raw = base64.b64decode(signature())
    mirrored = raw[:32] + (ORDER - int.from_bytes(raw[32:])).to_bytes(32)
    assert verify(public_key_b64(key()), MESSAGE, base64.b64encode(mirrored).decode())


@pytest.mark.parametrize("curve", [ec.SECP256K1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: str(curve.name))
def test_a_key_of_another_curve_neither_signs_nor_verifies(curve: ec.EllipticCurve) -> None:
    """P-256 is the only curve: another one's public key verifies nothing, and its private key is refused."""
    other = ec.generate_private_key(curve)
    point = other.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    assert not verify(base64.b64encode(point).decode(), MESSAGE, signature())
    with pytest.raises(BadKey):
        sign(other, MESSAGE)
    with pytest.raises(BadKey):
        public_key_b64(other)


def test_a_compressed_point_and_the_point_at_infinity_verify_nothing() -> None:
    """A key has one form: its uncompressed point."""
    compressed = key().public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    for point in (compressed, b"\x00", b"\x04" + bytes(64), b"\x00" * 65):
        assert not verify(base64.b64encode(point).decode(), MESSAGE, signature())


def test_key_id_is_the_start_of_the_digest_of_the_point() -> None:
    """A key's id is the first 16 hexadecimal digits of the SHA-256 of its point."""
    point = base64.b64decode(public_key_b64(key()))
    assert key_id(public_key_b64(key())) == hashlib.sha256(point).hexdigest()[:16]
    assert key_id(public_key_b64(key())) != key_id(public_key_b64(key(1)))


@pytest.mark.parametrize("text", ["", "A", "====", "not base64!", base64.b64encode(bytes(65)).decode()])
def test_key_id_of_what_is_no_key_is_refused(text: str) -> None:
    """What is no key has no id."""
    with pytest.raises(BadKey):
        key_id(text)


def test_private_keys_are_read_from_pem() -> None:
    """A P-256 key is read from PEM, with its password if it has one."""
    made = new_private_key()
    for encryption, password in ((NoEncryption(), None), (BestAvailableEncryption(b"pw"), b"pw")):
        pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        assert public_key_b64(load_private_key(pem, password)) == public_key_b64(made)


def test_what_is_no_private_key_is_refused_without_quoting_it() -> None:
    """Garbage, another curve's key and a wrong password are refused by type, and nothing is quoted."""
    other = ec.generate_private_key(ec.SECP384R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    locked = new_private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw"))
    for pem, password in ((b"s3cret", None), (other, None), (locked, None), (locked, b"s3cret")):
        with pytest.raises(BadKey) as refusal:
            load_private_key(pem, password)
        assert "s3cret" not in str(refusal.value)


def test_signatures_of_the_plain_library_verify() -> None:
    """What another implementation signs, converted from DER, verifies: the form is the usual one."""
    from cryptography.hazmat.primitives.hashes import SHA256

    r, s = utils.decode_dss_signature(key().sign(MESSAGE, ec.ECDSA(SHA256())))
    assert verify(public_key_b64(key()), MESSAGE, base64.b64encode(r.to_bytes(32) + s.to_bytes(32)).decode())


@pytest.mark.parametrize(
    ("hold", "requests", "verdicts", "good"),
    [
        ("h", ("GET /a", "GET /b"), (True, False), True),
        ("h", ("GET /b", "GET /a"), (True, False), False),
        ("h", ("GET /a", "GET /b"), (False, True), False),
        ("g", ("GET /a", "GET /b"), (True, False), False),
        ("h", ("GET /a",), (True, False), False),
        ("h", (), (), False),
    ],
)
def test_the_verifier_of_a_journal(
    hold: str, requests: tuple[str, ...], verdicts: tuple[bool, ...], good: bool
) -> None:
    """A journal's verifier takes a signature for the ballot that was signed, and for no other or ill-formed one."""
    signed = sign(key(), ballot_message(Ballot("h", ("GET /a", "GET /b"), (True, False))))
    public = public_key_b64(key())
    assert verified(Ballot(hold, requests, verdicts), signed, Key(key_id(public), public)) == good
    assert not verified(Ballot(hold, requests, verdicts), signed, Key(key_id(public), public_key_b64(key(1))))


def test_keys_of_a_journal_are_keys(tmp_path: Path) -> None:
    """A journal whose verifier is this one takes no key that could never verify anything, and no other name for it."""
    public = public_key_b64(key())
    off_curve = base64.b64encode(b"\x04" + bytes(63) + b"\x05").decode()

    async def run() -> None:
        async with SqliteJournal(tmp_path / "j.db", verifier=verified) as journal:
            for name, given in (("k", public), ("", ""), (key_id(public), "AAAA"), (key_id(off_curve), off_curve)):
                with pytest.raises(CallerError):
                    await add_key(journal, name, given, by="ada")
            await add_key(journal, key_id(public), public, by="ada")
            signed = sign(key(), ballot_message(key_ballot(Key(key_id(public), ""), active=False)))
            with pytest.raises(KeyRefused):
                await revoke_key(journal, key_id(public), by="mallory", signature=signature(), signed_by=key_id(public))
            await revoke_key(journal, key_id(public), by="ada", signature=signed, signed_by=key_id(public))
            assert (await journal.read("h")).keys == ()

    asyncio.run(run())


def test_without_the_package_the_command_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is missing, whatever needs it says how to get it; messages and ids need nothing."""
    public, good = public_key_b64(key()), signature()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for use in (
        lambda: verify(public, MESSAGE, good),
        lambda: sign(key(), MESSAGE),
        new_private_key,
        lambda: public_key_b64(key()),
        lambda: load_private_key(b""),
    ):
        with pytest.raises(EnvironmentFault, match=r"pip install 'deadreckon\[signing\]'"):
            use()
    assert canonical_message("h1", ["aa", "bb"], [True, False]) == MESSAGE
    assert len(key_id(public)) == 16
