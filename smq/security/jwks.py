"""The keys that an issuer of tokens publishes (JWKS, RFC 7517), and what they have signed (RFC
7515).

A key decides which algorithms it checks, not the token: an RSA key the RS and PS ones, a key of a
curve that curve's alone. There is no `none`, and no HMAC, whose key a published one would be.
A token's `kid` chooses the key; without one the only key that its algorithm fits.

The library checks signatures, of bytes. What a token says besides is read here: whoever sends it
has proved nothing yet, so no error may escape.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry

from smq.security.tokens import InvalidToken, Signed, object_of

KEYS_MAX = 100
"""Issuers publish two or three. Each takes some 100 µs to read, in a loop."""
HEADER_BYTES_MAX = 8 * 1024  # Some put a chain of certificates into it.
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192
"""Shorter keys are forged; of longer ones a check takes milliseconds."""

_OF_RSA = frozenset(f"{kind}{bits}" for kind in ("RS", "PS") for bits in (256, 384, 512))
_OF_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS = _OF_RSA | {*_OF_CURVE.values()}
_PARTS = re.compile(r"([\w-]+)\.([\w-]+)\.([\w-]+)", re.ASCII)

PublicKey: TypeAlias = RSAKey | ECKey


class UnusableJwks(ValueError):
    """Keys that no token can be checked with; a sentence."""


class _Published(NamedTuple):
    key: PublicKey
    kid: str
    algorithms: frozenset[str]
    thumbprint: str
    """Of the key's numbers alone: RFC 7638 would take them as they are written."""


class PublishedKeys:
    """The keys of one issuer. What is not for signatures, or of a kind that is not known, is
    ignored."""

    def __init__(self, data: bytes) -> None:
        """`data`: the JWKS. Raises UnusableJwks."""
        try:
            listed = object_of(data).get("keys")
        except InvalidToken as reason:
            raise UnusableJwks("it is no JSON object") from reason
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise UnusableJwks(f"it has no list `keys`, or more than {KEYS_MAX}")
        found = [_published(each) for each in listed if isinstance(each, dict)]
        self._keys = [each for each in found if each is not None]
        if not self._keys:
            raise UnusableJwks(
                f"it has no key for signatures: RSA of {RSA_BITS_MIN} to {RSA_BITS_MAX} bits, or "
                f"EC of {', '.join(_OF_CURVE)}"
            )
        kids = [each.kid for each in self._keys if each.kid]
        if len(set(kids)) < len(kids):
            raise UnusableJwks("two keys have the same `kid`")

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, key: str) -> bool:
        """See smq.security.tokens.Keys. `key` is a thumbprint: another key may have its `kid`."""
        return any(each.thumbprint == key for each in self._keys)

    def opened(self, token: str) -> Signed:
        """See smq.security.tokens.Keys."""
        parts = _PARTS.fullmatch(token)
        if parts is None or len(parts[1]) > HEADER_BYTES_MAX:
            raise InvalidToken("it is no signed token")
        header = object_of(_decoded(parts[1]))
        if "crit" in header or "b64" in header:
            raise InvalidToken("it asks for more than is known")
        algorithm, chosen = self._choose(header)
        signed, signature = f"{parts[1]}.{parts[2]}".encode(), _decoded(parts[3])
        if not _is_signed(signed, signature, algorithm, chosen.key):
            raise InvalidToken("its signature is not by that key")
        return Signed(_decoded(parts[2]), chosen.thumbprint)

    def _choose(self, header: Mapping[str, Any]) -> tuple[str, _Published]:
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str):
            raise InvalidToken("it names no algorithm")
        fitting = [
            each
            for each in self._keys
            if algorithm in each.algorithms and (kid is None or each.kid == kid)
        ]
        if len(fitting) != 1:
            raise InvalidToken("there is not one key for it")
        return algorithm, fitting[0]


def _is_signed(data: bytes, signature: bytes, algorithm: str, key: PublicKey) -> bool:
    """Whether a key, which fits the algorithm, has signed the data."""
    assert algorithm in ALGORITHMS, "a key has these alone"
    try:
        return bool(JWSRegistry.algorithms[algorithm].verify(data, signature, key))
    except ValueError:
        return False


def _published(jwk: Mapping[str, Any]) -> _Published | None:
    """A key, without the private part that it should not have; None: it is not for us. Raises
    UnusableJwks."""
    algorithms = _algorithms_of(jwk)
    if not algorithms:
        return None
    kid = jwk.get("kid", "")
    if not isinstance(kid, str):
        raise UnusableJwks("a `kid` is no text")
    try:
        if jwk["kty"] == "RSA":
            key: PublicKey = RSAKey.import_key({each: jwk[each] for each in ("kty", "n", "e")})
        else:
            members = ("kty", "crv", "x", "y")
            key = ECKey.import_key({each: jwk[each] for each in members})
        key.get_op_key("verify")
        thumbprint = sha256(key.as_der(private=False)).hexdigest()
    except (JoseError, UnsupportedAlgorithm, ValueError, TypeError, KeyError) as reason:
        raise UnusableJwks(f"the key {kid!r} is none: {reason}") from reason
    return _Published(key, kid, algorithms, thumbprint)


def _algorithms_of(jwk: Mapping[str, Any]) -> frozenset[str]:
    """What a key checks; nothing: it is not for us."""
    operations, own = jwk.get("key_ops", ["verify"]), jwk.get("alg")
    if jwk.get("use", "sig") != "sig" or not (
        isinstance(operations, list) and "verify" in operations
    ):
        return frozenset()
    kind, curve = jwk.get("kty"), jwk.get("crv")
    found = frozenset[str]()
    if kind == "RSA" and RSA_BITS_MIN <= _bits(jwk.get("n")) <= RSA_BITS_MAX:
        found = _OF_RSA
    elif kind == "EC" and isinstance(curve, str) and curve in _OF_CURVE:
        found = frozenset({_OF_CURVE[curve]})
    return found if own is None else frozenset(each for each in found if each == own)


def _bits(number: object) -> int:
    """How many bits a number has, as JWK writes it; 0: it is none."""
    if not isinstance(number, str):
        return 0
    try:
        return int.from_bytes(_decoded(number)).bit_length()
    except InvalidToken:
        return 0


def _decoded(text: str) -> bytes:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as reason:
        raise InvalidToken("it is no Base64") from reason
