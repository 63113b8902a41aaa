"""An issuer of tokens for tests: its keys, what it publishes of them, and what it signs, right or
wrong.

Keys are made once a process. A token's bytes are joined here, so that each part can be wrong.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from smq.security.jwks import PublishedKeys
from smq.security.tokens import TokenRules, Tokens, WallMs

ISSUER, AUDIENCE = "https://issuer.example", "smq"
SKEW_SECONDS = 30  # Kafka's default.
LIFETIME_SECONDS = 3600
Key = RSAKey | ECKey | OctKey


@cache
def key_of(name: str) -> Key:
    """A private key: `rsa`, `p-256` and so on, each followed by what tells it from others."""
    kind = name.split(maxsplit=1)[0]
    if kind == "rsa":
        return RSAKey.generate_key(2048, {"kid": name})
    if kind == "weak":
        return RSAKey.generate_key(1024, {"kid": name})
    if kind == "oct":
        return OctKey.generate_key(256, {"kid": name})
    curve = {"p-256": "P-256", "p-384": "P-384", "p-521": "P-521", "k": "secp256k1"}[kind]
    return ECKey.generate_key(curve, {"kid": name})


def published(*names: str, **more: Any) -> str:
    """A JWKS with the public parts of these keys; `more` are further members of each."""
    keys = [{**key_of(each).as_dict(private=False), **more} for each in names]
    return json.dumps({"keys": keys})


def write_jwks(path: Path, *names: str) -> str:
    """The URL of a file with these keys."""
    path.write_text(published(*names))
    return path.as_uri()


def tokens_at(wall_ms: WallMs) -> Tokens:
    """The tokens of this issuer, as a broker takes them."""
    keys = PublishedKeys(published("rsa").encode())
    return Tokens(TokenRules(frozenset({AUDIENCE}), ISSUER), keys, wall_ms)


def claims_of(now_s: float, **other: Any) -> dict[str, Any]:
    """Good claims, but for `other`; a claim that is None is left out."""
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": int(now_s),
        "exp": int(now_s) + LIFETIME_SECONDS,
    } | other
    return {name: value for name, value in claims.items() if value is not None}


def token(claims: Mapping[str, Any], alg: str = "RS256", key: str = "rsa", **header: Any) -> str:
    """A signed token; a header that is None is left out."""
    full = {"alg": alg, "kid": key, "typ": "JWT"} | header
    said = {name: value for name, value in full.items() if value is not None}
    return signed(json.dumps(said).encode(), json.dumps(claims).encode(), alg, key)


def signed(header: bytes, claims: bytes, alg: str = "RS256", key: str = "rsa") -> str:
    """A token of these bytes, whatever they are. `alg` none: without a signature."""
    said = f"{encoded(header)}.{encoded(claims)}"
    if alg == "none":
        return f"{said}."
    return f"{said}.{encoded(JWSRegistry.algorithms[alg].sign(said.encode(), key_of(key)))}"


def encoded(data: bytes) -> str:
    """As JWS writes bytes."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def first_message(token: str, header: str = "n,,", more: str = "") -> bytes:
    """What a client of OAUTHBEARER begins with."""
    return f"{header}\1auth=Bearer {token}{more}\1\1".encode()
