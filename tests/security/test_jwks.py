"""What an issuer's keys have signed, and what others have."""

import hmac
import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from hypothesis import given, strategies as st
from joserfc.jwk import RSAKey

from smq.security.jwks import (
    ALGORITHMS,
    HEADER_BYTES_MAX,
    KEYS_MAX,
    PublishedKeys,
    UnusableJwks,
)
from smq.security.tokens import InvalidToken
from tests.security.issuer import encoded, key_of, published, signed, token

CLAIMS = {"sub": "alice"}
NAMES = ("rsa", "p-256", "p-384", "p-521")
KEY_OF_CURVE = {"ES256": "p-256", "ES384": "p-384", "ES512": "p-521"}
KEYS = PublishedKeys(published(*NAMES).encode())


def key_for(alg: str) -> str:
    return KEY_OF_CURVE.get(alg, "rsa")


def refuses(text: str, keys: PublishedKeys = KEYS) -> bool:
    with pytest.raises(InvalidToken):
        keys.opened(text)
    return True


@pytest.mark.parametrize("alg", sorted(ALGORITHMS))
def test_each_algorithm_is_taken_with_and_without_a_kid(alg: str) -> None:
    for header in ({}, {"kid": None}, {"typ": None}, {"x": [1]}):
        said = token(CLAIMS, alg, key_for(alg), **header)
        assert json.loads(KEYS.opened(said).payload) == CLAIMS


@pytest.mark.parametrize("alg", sorted(ALGORITHMS))
def test_a_signature_of_other_bytes_or_another_key_is_refused(alg: str) -> None:
    header, claims, signature = token(CLAIMS, alg, key_for(alg)).split(".")
    assert refuses(f"{header}.{encoded(b'{}')}.{signature}")
    assert refuses(f"{header}.{claims}.{signature[:-4]}")
    assert refuses(f"{header}.{claims}.")
    other = f"{key_for(alg)} other"
    assert refuses(signed(_header(alg=alg, kid=key_for(alg)), b"{}", alg, other))


def test_each_algorithm_needs_a_key_of_its_own_kind() -> None:
    for alg in ALGORITHMS:
        for name in NAMES:
            if key_for(alg) != name:
                said = signed(_header(alg=alg, kid=name), b"{}", alg, key_for(alg))
                assert refuses(said)


def _header(**header: Any) -> bytes:
    return json.dumps(header).encode()


def test_none_is_no_algorithm() -> None:
    for alg in ("none", "None", "NONE", "nOnE"):
        assert refuses(signed(_header(alg=alg), b"{}", "none"))
        assert refuses(signed(_header(alg=alg, kid="rsa"), b"{}", "none") + "AA")
    assert refuses(signed(_header(alg="none"), b"{}", "RS256"))


def test_a_published_key_is_no_secret_of_hmac() -> None:
    public = key_of("rsa")
    assert isinstance(public, RSAKey)
    for secret in (
        public.as_pem(private=False),
        public.as_der(private=False),
        json.dumps(public.as_dict(private=False)).encode(),
        b"",
    ):
        said = f"{encoded(_header(alg='HS256', kid='rsa'))}.{encoded(b'{}')}"
        signature = encoded(hmac.digest(secret, said.encode(), "sha256"))
        assert refuses(f"{said}.{signature}")
    shared = PublishedKeys(published("rsa", "oct").encode())
    assert refuses(token(CLAIMS, "HS256", "oct"), shared)
    with pytest.raises(UnusableJwks, match="no key for signatures"):
        PublishedKeys(published("oct").encode())


def test_a_token_brings_no_key_of_its_own() -> None:
    own = key_of("rsa own").as_dict(private=False)
    for header in ({"jwk": own}, {"jku": "https://evil.example"}, {"x5u": "https://evil.example"}):
        said = _header(alg="RS256", kid="rsa", **header)
        assert refuses(signed(said, b"{}", "RS256", "rsa own"))
        assert KEYS.opened(signed(said, b"{}", "RS256", "rsa")).payload == b"{}"


def test_a_header_is_read_as_far_as_it_must_be() -> None:
    for header in (
        {"alg": "RS256", "kid": "unknown"},
        {"alg": "RS256", "kid": ["rsa"]},
        {"alg": ["RS256"], "kid": "rsa"},
        {"alg": {}, "kid": "rsa"},
        {"kid": "rsa"},
        {"alg": "RS256", "crit": ["x"], "x": 1},
        {"alg": "RS256", "crit": ["b64"], "b64": False},
        {"alg": "RS256", "b64": False},
    ):
        assert refuses(signed(_header(**header), b"{}"))
    for header_bytes in (b"[]", b"5", b"[" * 5000, b"\xff", b"{"):
        assert refuses(signed(header_bytes, b"{}"))
    room = HEADER_BYTES_MAX * 3 // 4 - 64
    assert KEYS.opened(token(CLAIMS, x5c=["x" * room]))
    assert refuses(token(CLAIMS, x5c=["x" * HEADER_BYTES_MAX]))


def test_a_header_may_be_as_deep_as_it_likes() -> None:
    """At each depth that one reader takes and another, called from deeper, does not."""
    for depth in range(900, 1000):
        deep = b"[" * depth + b"]" * depth
        header = b'{"alg": "RS256", "kid": "rsa", "x": %s}' % deep
        assert refuses(f"{encoded(header)}.{encoded(b'{}')}.AAAA")


@pytest.mark.parametrize("name", ["typ", "cty", "x5c", "x5t", "jwk", "jku", "x5u"])
def test_other_headers_are_not_looked_at(name: str) -> None:
    for value in (5, [], {}, True, "x", [5], {"kty": "oct"}):
        header = _header(alg="RS256", kid="rsa", **{name: value})
        assert KEYS.opened(signed(header, b"{}")).payload == b"{}"


def test_forms_that_are_no_signed_token_are_refused() -> None:
    good = token(CLAIMS)
    for text in ("", "a", "a.b", "a.b.c", "..", good + ".x.y", good + "=", f" {good}", "é.b.c"):
        assert refuses(text)
    assert refuses(good.replace(".", ".\n", 1))


def test_without_a_kid_one_key_must_fit() -> None:
    two = PublishedKeys(published("rsa", "rsa other", "p-256").encode())
    assert refuses(token(CLAIMS, kid=None), two)
    assert two.opened(token(CLAIMS, key="rsa other"))
    assert two.opened(token(CLAIMS, "ES256", "p-256", kid=None))


def test_a_keys_own_algorithm_and_use_hold() -> None:
    one = PublishedKeys(published("rsa", alg="PS256").encode())
    assert one.opened(token(CLAIMS, "PS256"))
    assert refuses(token(CLAIMS, "RS256"), one)
    for more in ({"use": "enc"}, {"key_ops": ["sign"]}, {"key_ops": 5}, {"alg": ["RS256"]}):
        with pytest.raises(UnusableJwks, match="no key for signatures"):
            PublishedKeys(published("rsa", **more).encode())
    assert len(PublishedKeys(published("rsa", use="sig", key_ops=["verify"]).encode())) == 1


def test_keys_that_are_unknown_or_weak_are_ignored() -> None:
    keys = json.loads(published("rsa", "k"))["keys"]
    more = [{}, {"kty": "OKP", "crv": "Ed25519"}, {"kty": ["RSA"]}, 5, {"kty": "EC", "crv": {}}]
    more += [{"kty": "RSA", "n": 5}, {"kty": "RSA", "n": "é"}, {"kty": "RSA", "n": "AQAB"}]
    assert len(PublishedKeys(json.dumps({"keys": [*more, *keys]}).encode())) == 1
    with pytest.raises(UnusableJwks, match="no key for signatures"):
        PublishedKeys(_jwks(n=encoded(b"\xff" * 128), kty="RSA", e="AQAB"))
    with pytest.raises(UnusableJwks, match="no key for signatures"):
        PublishedKeys(_jwks(n=encoded(b"\xff" * 4096), kty="RSA", e="AQAB"))


def _jwks(**key: Any) -> bytes:
    return json.dumps({"keys": [key]}).encode()


def test_a_private_part_is_left_alone() -> None:
    private = key_of("rsa").as_dict(private=True)
    assert PublishedKeys(_jwks(**private)).opened(token(CLAIMS))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b"{}", "no list `keys`"),
        (b'{"keys": {}}', "no list `keys`"),
        (b'{"keys": []}', "no key for signatures"),
        (_jwks(kty="EC", crv="P-256", x="AQAB", y="AQAB"), "the key '' is none"),
        (_jwks(kty="EC", crv="P-256"), "the key '' is none"),
        (_jwks(**key_of("rsa").as_dict(private=False) | {"kid": 5}), "no text"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(), "more than"),
        (json.dumps({"keys": json.loads(published("rsa"))["keys"] * 2}).encode(), "same `kid`"),
    ],
    ids=["empty", "list", "none", "dict", "no-key", "off", "half", "kid", "many", "twice"],
)
def test_a_file_that_is_no_jwks_is_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnusableJwks, match=why):
        PublishedKeys(data)


@given(
    st.text() | st.lists(st.binary(), max_size=4).map(lambda parts: ".".join(map(encoded, parts)))
)
def test_garbage_is_an_invalid_token(text: str) -> None:
    assert refuses(text)


def test_a_key_is_known_by_itself_and_not_by_its_kid() -> None:
    key = KEYS.opened(token(CLAIMS)).key
    assert KEYS.has(key)
    assert PublishedKeys(published("rsa", kid="renamed").encode()).has(key)
    assert not PublishedKeys(published("rsa other", kid="rsa").encode()).has(key)


@pytest.mark.parametrize("name", ["rsa", "p-256"])
def test_a_key_stays_the_same_however_its_numbers_are_written(name: str) -> None:
    alg = "RS256" if name == "rsa" else "ES256"
    [written] = json.loads(published(name))["keys"]
    padded = {
        member: encoded(b"\0" + _decoded(written[member]))
        for member in ("n", "e", "x", "y")
        if member in written
    }
    again = PublishedKeys(_jwks(**written | padded))
    assert again.has(KEYS.opened(token(CLAIMS, alg, name)).key)
    assert KEYS.has(again.opened(token(CLAIMS, alg, name)).key)


def _decoded(number: str) -> bytes:
    return urlsafe_b64decode(number + "=" * (-len(number) % 4))
