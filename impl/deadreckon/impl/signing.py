"""Signed decisions: ECDSA P-256 with SHA-256 over a canonical form of what is decided.

What is signed
    The bytes of :func:`canonical_message`: canonical JSON (keys sorted, no blanks, UTF-8, no fractions) of a version
    tag, the hold, the digests of its requests in their order, and the verdict on each. So a signature is good for one
    hold (whose deadline is fixed), for these requests and for these verdicts. Who decided, and why, is not signed.
    :func:`verified` is the verifier for a journal: ``SqliteJournal(path, verifier=verified)``.

Forms
    A public key is the base64 of its uncompressed point (65 bytes), a signature the base64 of r and s (32 bytes each),
    as browsers and phones make them; a key's id is the first 16 hexadecimal digits of the SHA-256 of the point.
    Each value has one spelling only: base64 with other padding bits, blanks or letters is refused. A signature's
    mirror image (r, n - s) verifies too, so a signature must never serve as the identity of a decision.

Whoever verifies gets a yes or a no: what is malformed is not verified. The package ``cryptography`` does the
arithmetic; it is imported when it is first needed, and comes with ``pip install 'deadreckon[signing]'``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, Union

from deadreckon.spec import CallerError, EnvironmentFault

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from .hold_journal import Ballot, Key

VERSION = "deadreckon.decision.v1"
"""Tag of the signed form; another form gets another tag, so that no signature is good for both."""

CURVE = "secp256r1"
POINT_BYTES, SCALAR_BYTES = 65, 32
UNCOMPRESSED = 4
INSTALL = "pip install 'deadreckon[signing]'"

Json: TypeAlias = Union[str, int, bool, Sequence["Json"], Mapping[str, "Json"], None]  # noqa: UP007 - it is recursive


class BadKey(CallerError, ValueError):
    """A key is no P-256 key, or not in the form that is asked for. Mend the key that was given."""


class NotCanonical(CallerError, ValueError):
    """A value has no canonical form: a fraction, a key that is no text, text that is no Unicode. Mend the value."""


def canonical_json(value: Json) -> bytes:
    """*value* in the only way to write it: keys sorted by code point, no blanks, UTF-8, integers alone.

    Raises:
        NotCanonical: when it holds anything else than text, integers, bools, None, sequences and mappings from text.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as fault:
        raise NotCanonical(f"text that is no Unicode has no canonical form: {fault.reason}") from None
    except RecursionError:
        raise NotCanonical("a value that nests too deeply has no canonical form") from None


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise NotCanonical(f"key {key!r} is no text")
            return {key: _plain(one) for key, one in value.items()}
        case bytes() | bytearray():
            raise NotCanonical("bytes have no canonical form: give their digest or their base64")
        case Sequence():
            return [_plain(one) for one in value]
        case _:
            raise NotCanonical(f"{value!r} has no canonical form: give text, integers, bools, None, lists and mappings")


def canonical_message(hold_id: str, digests: Sequence[str], verdicts: Sequence[bool]) -> bytes:
    """What is signed of a decision: it approves (True) or refuses (False) each request of one hold.

    Args:
        hold_id: the hold; unique within its journal.
        digests: the digest of each request (:func:`digest`), in the order in which they were parked.
        verdicts: one for each request.

    Raises:
        NotCanonical: when there are not as many verdicts as digests, none at all, or a value is of another type.
    """
    if not verdicts or len(digests) != len(verdicts):
        raise NotCanonical(f"{len(verdicts)} verdicts on {len(digests)} requests: give one for each, and at least one")
    if any(type(verdict) is not bool for verdict in verdicts):
        raise NotCanonical("a verdict is True or False")
    if not all(isinstance(text, str) for text in (hold_id, *digests)):
        raise NotCanonical("a hold's id and the digests are text")
    return canonical_json(
        {
            "v": VERSION,
            "hold": hold_id,
            "requests": list(digests),
            "verdicts": ["approve" if verdict else "reject" for verdict in verdicts],
        }
    )


def digest(request: str) -> str:
    """The digest of a request's text, in hexadecimal."""
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()


def ballot_message(ballot: Ballot) -> bytes:
    """What is signed of *ballot*.

    Raises:
        NotCanonical: when there are not as many verdicts as requests.
    """
    return canonical_message(ballot.hold_id, [digest(request) for request in ballot.requests], ballot.verdicts)


def verified(ballot: Ballot, signature_b64: str, key: Key) -> bool:
    """Whether *signature_b64* is *key*'s over *ballot*: the verifier that a journal takes.

    Raises:
        EnvironmentFault: when the package that verifies is not installed.
    """
    try:
        message = ballot_message(ballot)
    except NotCanonical:
        return False
    return verify(key.public_key, message, signature_b64)


def key_id(public_key_b64: str) -> str:
    """The short name of a public key.

    Raises:
        BadKey: when it is not the base64 of an uncompressed P-256 point. (Whether the point lies on the curve is
            seen when something is verified.)
    """
    point = _decoded(public_key_b64, POINT_BYTES)
    if point is None or point[0] != UNCOMPRESSED:
        raise BadKey("a public key is the base64 of the 65 bytes of an uncompressed P-256 point")
    return hashlib.sha256(point).hexdigest()[:16]


def check_key(name: str, public_key_b64: str) -> None:
    """Refuse a key by which nothing could ever be verified, or whose name is not its :func:`key_id`.

    Raises:
        BadKey: it is such a key.
        EnvironmentFault: when the package that verifies is not installed.
    """
    if key_id(public_key_b64) != name:
        raise BadKey(f"the id of this key is {key_id(public_key_b64)}: give that")
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), base64.b64decode(public_key_b64))
    except ValueError:
        raise BadKey("a public key is a point on the curve P-256") from None


def public_key_b64(private_key: EllipticCurvePrivateKey) -> str:
    """The public key of *private_key*, in the form that :func:`verify` takes.

    Raises:
        BadKey: when it is a key of another curve.
        EnvironmentFault: when the package that signs is not installed.
    """
    _cryptography()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    point = _on_curve(private_key).public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64.b64encode(point).decode()


def new_private_key() -> EllipticCurvePrivateKey:
    """A new key, made by the operating system's random numbers.

    Raises:
        EnvironmentFault: when the package that signs is not installed.
    """
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def load_private_key(pem: bytes, password: bytes | None = None) -> EllipticCurvePrivateKey:
    """The key in a PEM file's bytes.

    Raises:
        BadKey: when there is no P-256 key in it, or the password is wrong.
        EnvironmentFault: when the package that signs is not installed.
    """
    _cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return _on_curve(load_pem_private_key(pem, password))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # What went wrong is left out: it may quote the key.
        raise BadKey("no P-256 private key can be read from that PEM with that password") from None


def sign(private_key: EllipticCurvePrivateKey, message: bytes) -> str:
    """The signature of *message*: base64 of r and s.

    Raises:
        BadKey: when it is a key of another curve.
        EnvironmentFault: when the package that signs is not installed.
    """
    _cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    r, s = utils.decode_dss_signature(_on_curve(private_key).sign(message, ec.ECDSA(SHA256())))
    return base64.b64encode(r.to_bytes(SCALAR_BYTES) + s.to_bytes(SCALAR_BYTES)).decode()


def verify(public_key_b64: str, message: bytes, signature_b64: str) -> bool:
    """Whether *signature_b64* is a signature of *message* by the key; what is malformed is none.

    Raises:
        EnvironmentFault: when the package that verifies is not installed.
    """
    _cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    point, raw = _decoded(public_key_b64, POINT_BYTES), _decoded(signature_b64, 2 * SCALAR_BYTES)
    if point is None or raw is None or point[0] != UNCOMPRESSED:
        return False
    r, s = int.from_bytes(raw[:SCALAR_BYTES]), int.from_bytes(raw[SCALAR_BYTES:])
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        key.verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def _decoded(text: object, size: int) -> bytes | None:
    """The bytes that *text* spells in canonical base64, if they are as many as that."""
    if not isinstance(text, str):
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == size and base64.b64encode(raw).decode() == text else None


def _on_curve(private_key: object) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    if not isinstance(private_key, ec.EllipticCurvePrivateKey) or private_key.curve.name != CURVE:
        raise BadKey("the private key is no P-256 key")
    return private_key


def _cryptography() -> ModuleType:
    try:
        import cryptography
    except ImportError as missing:
        raise EnvironmentFault(f"signed decisions need the package cryptography: {INSTALL}") from missing
    return cryptography
