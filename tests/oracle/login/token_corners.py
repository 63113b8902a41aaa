"""The corners of OAUTHBEARER. They knock at a listener of its own (stage.TOKENS)."""

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

from tests.oracle.login.corners import PLAIN, Script, corner
from tests.oracle.login.knock import Knock, authenticated, authentication
from tests.security.issuer import (
    AUDIENCE,
    claims_of,
    encoded,
    first_message,
    key_of,
    signed,
    token,
)

OAUTHBEARER = "OAUTHBEARER"
LONG_MS = 60_000
ENDS_SOON_SECONDS = 2
OF_TOKENS: set[str] = set()


def token_corner(script: Script) -> Script:
    OF_TOKENS.add(script.__name__.replace("_", "-"))
    return corner(script)


def present(knock: Knock, step: str, message: bytes) -> None:
    """A login of its own, with the answer that the RFC asks for after an error."""
    knock.again()
    knock.begin(OAUTHBEARER)
    if present_again(knock, step, message):
        present_again(knock, f"{step}: after the error", b"\1")
        knock.end(f"{step}: at the end")


def present_again(knock: Knock, step: str, message: bytes) -> bool:
    """Whether there was an error. How long a session lasts is noted in words."""
    knock.send_frame(authentication(message))
    answer = authenticated(knock.receive(), 1)
    if not isinstance(answer, dict):
        knock.note(step, answer)
        return False
    lifetime_ms = answer.pop("session_lifetime_ms")
    lasts = "long" if lifetime_ms > LONG_MS else "a moment" if lifetime_ms > 1 else "no longer"
    said = answer.pop("token").decode()
    knock.note(step, answer | {"session_lasts": lasts, "token": said})
    return bool(said)


def with_claims(knock: Knock, cases: Mapping[str, Mapping[str, Any]]) -> None:
    for name, other in cases.items():
        present(knock, name, first_message(token(claims_of(time.time(), **other))))


@token_corner
def tokens_of_each_algorithm(knock: Knock) -> None:
    keys = {"ES256": "p-256", "ES384": "p-384", "ES512": "p-521"}
    for alg in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *keys):
        good = token(claims_of(time.time()), alg, keys.get(alg, "rsa"))
        present(knock, alg, first_message(good))


@token_corner
def tokens_that_are_forged(knock: Knock) -> None:
    claims = json.dumps(claims_of(time.time())).encode()

    def forged(name: str, by: str, key: str, **header: Any) -> None:
        present(knock, name, first_message(signed(json.dumps(header).encode(), claims, by, key)))

    forged("none", "none", "rsa", alg="none")
    forged("none, with a key", "none", "rsa", alg="none", kid="rsa")
    forged("another key", "RS256", "rsa other", alg="RS256", kid="rsa")
    forged("an unknown key", "RS256", "rsa", alg="RS256", kid="unknown")
    forged("a key of another curve", "ES384", "p-384", alg="ES256", kid="p-384")
    forged("a key of another kind", "ES256", "p-256", alg="ES256", kid="rsa")
    forged("a critical header", "RS256", "rsa", alg="RS256", kid="rsa", crit=["x"], x=1)
    forged("without a kid", "RS256", "rsa", alg="RS256")
    forged("of another type", "RS256", "rsa", alg="RS256", kid="rsa", typ="x")
    said = f"{encoded(json.dumps({'alg': 'HS256', 'kid': 'rsa'}).encode())}.{encoded(claims)}"
    public = json.dumps(key_of("rsa").as_dict(private=False)).encode()
    mac = encoded(hmac.digest(public, said.encode(), hashlib.sha256))
    present(knock, "an HMAC by the published key", first_message(f"{said}.{mac}"))
    for text in ("abc", "a.b.c", "a.b.c.d.e"):
        present(knock, f"no token: {text}", first_message(text))


@token_corner
def claims_of_tokens(knock: Knock) -> None:
    now = int(time.time())
    with_claims(knock, {f"no {name}": {name: None} for name in ("iss", "aud", "sub", "iat", "exp")})
    with_claims(
        knock,
        {
            "another issuer": {"iss": "x"},
            "another audience": {"aud": "x"},
            "a list of audiences": {"aud": ["x", AUDIENCE]},
            "a user that is a number": {"sub": 5},
            "a blank user": {"sub": " "},
            "a user in white space": {"sub": "\t alice "},
            "an end that is a text": {"exp": str(now + 100)},
            "an end that is no whole second": {"exp": now + 100.7},
            "an end far away": {"exp": 10**15},
            "ended": {"iat": now - 7000, "exp": now - 3600},
            "ended within the skew": {"iat": now - 100, "exp": now - 10},
            "ended before it was issued": {"iat": now, "exp": now - 10},
            "issued in the future": {"iat": now + 3600, "exp": now + 7200},
            "issued within the skew": {"iat": now + 15},
            "not before the future": {"nbf": now + 3600},
            "not before, within the skew": {"nbf": now + 15},
            "a blank scope": {"scope": ""},
            "a scope twice": {"scope": ["a", "a"]},
            "a scope that is a number": {"scope": 5},
            "scopes that are numbers": {"scope": [1]},
            "scopes": {"scope": ["a", "b"]},
        },
    )


@token_corner
def first_messages_of_tokens(knock: Knock) -> None:
    good = token(claims_of(time.time()))
    firsts = {
        "for herself": first_message(good, "n,a=alice,"),
        "for another": first_message(good, "n,a=bob,"),
        "a channel that is not bound": first_message(good, "y,,"),
        "a channel that is bound": first_message(good, "p=tls-unique,,"),
        "extensions": first_message(good, more="\1host=x\1port=1"),
        "an extension without a value": first_message(good, more="\1a="),
        "an extension with a bad name": first_message(good, more="\1a1=x"),
        "another scheme": f"n,,\1auth=Basic {good}\1\1".encode(),
        "lower case": f"n,,\1auth=bearer  {good}\1\1".encode(),
        "no token": b"n,,\1host=x\1\1",
        "nothing in it": b"n,,\1\1",
        "nothing": b"",
        "an answer to no error": b"\1",
        "the draft's form": f"n,,auth=Bearer {good}".encode(),
        "one end": f"n,,\1auth=Bearer {good}\1".encode(),
    }
    for name, message in firsts.items():
        present(knock, name, message)


@token_corner
def sessions_of_tokens(knock: Knock) -> None:
    def good(**other: Any) -> bytes:
        return first_message(token(claims_of(time.time(), **other)))

    knock.begin(OAUTHBEARER)
    present_again(knock, "a bad token", first_message("abc"))
    present_again(knock, "a good token after a bad one", good())
    knock.again()
    knock.begin(OAUTHBEARER)
    present_again(knock, "a good token", good())
    knock.metadata("a good token: Metadata")
    for step, sub in (("the same user", "alice"), ("another user", "bob")):
        knock.again()
        knock.begin(OAUTHBEARER)
        present_again(knock, f"{step}: a token", good())
        knock.handshake(f"{step}: handshake", OAUTHBEARER)
        present_again(knock, f"{step}: another token", good(sub=sub))
        knock.metadata(f"{step}: Metadata")
    knock.again()
    knock.handshake("another mechanism", PLAIN)
    knock.again()
    knock.begin(OAUTHBEARER)
    ends = int(time.time()) + ENDS_SOON_SECONDS
    present_again(knock, "a token that ends soon", good(exp=ends))
    knock.metadata("a token that ends soon: Metadata")
    while time.time() < ends + 0.1:
        time.sleep(0.05)
    knock.metadata("a token that has ended: Metadata")
    knock.again()
    knock.begin(OAUTHBEARER, 0)
    knock.raw_token("raw: a bad token", first_message("abc"))
    knock.raw_token("raw: after the error", b"\1")
    knock.again()
    knock.begin(OAUTHBEARER, 0)
    knock.raw_token("raw: a good token", good())
    knock.metadata("raw: Metadata")
