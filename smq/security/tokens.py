"""What a token says of who has it: a JWT (RFC 7519), by the rules of Kafka's broker (KIP-768).

It names its issuer, for whom it is, its user, when it was issued and when it ends; all of them are
required. Whoever takes tokens, by SASL or over HTTP, asks here. Signatures are checked elsewhere
(smq.security.jwks).

Wall time decides only this: an issuer on another host says by it when its tokens begin and end.
Kafka takes a token that says it was issued in the future; here it is refused (docs/deviations.md).
"""

import json
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol, TypeAlias

from smq.security.sasl import RESERVED_PREFIX

TOKEN_BYTES_MAX = 64 * 1024
"""As much as a connection may send until it has logged in."""
NAME_BYTES_MAX = 1024  # Of a user; it stands in rules, quotas and logs.
_SECONDS_MAX = 253_402_300_800  # The year 10000: a claim beyond it is no time.
_WHITE = "".join(map(chr, range(33)))  # What Java trims.


WallMs: TypeAlias = Callable[[], int]
"""The wall time."""


class InvalidToken(ValueError):
    """Nobody comes in with this token. The sentence is for our own tests: clients are not told."""


class TokenRules(NamedTuple):
    """Which tokens are taken, as the settings say."""

    audiences: frozenset[str]
    issuer: str
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_ms: int = 30_000


class Signed(NamedTuple):
    """What a key has signed; `key` names it, whatever its issuer calls it."""

    payload: bytes
    key: str


class Keys(Protocol):
    """The keys of an issuer."""

    def opened(self, token: str) -> Signed:
        """What one of these keys has signed. Raises InvalidToken."""

    def has(self, key: str) -> bool:
        """Whether a key, as `opened` names it, is among them."""


class TokenHolder(NamedTuple):
    """Who has a token, the wall time at which it ends, and which of its issuer's keys has signed
    it."""

    user: str
    expires_ms: int
    key: str
    issued: "Tokens"

    def is_current(self) -> bool:
        """Whether it still holds, but for its end: the issuer still publishes the key."""
        return self.issued.keys.has(self.key)


class Tokens:
    """The tokens of one issuer. `keys` are replaced when it publishes others."""

    def __init__(self, rules: TokenRules, keys: Keys, wall_ms: WallMs) -> None:
        self._rules, self.keys, self._wall_ms = rules, keys, wall_ms

    def left_ms(self, holder: TokenHolder) -> int:
        """How long its token still lasts; it may have ended within the skew."""
        return holder.expires_ms - self._wall_ms()

    def holder_of(self, token: str) -> TokenHolder:
        """Who has this token. Takes a fraction of a millisecond, for the signature. Raises
        InvalidToken."""
        if len(token) > TOKEN_BYTES_MAX:
            raise InvalidToken("it is too long")
        payload, key = self.keys.opened(token)
        claims = object_of(payload)
        rules = self._rules
        if claims.get("iss") != rules.issuer:
            raise InvalidToken("it is from another issuer")
        if rules.audiences.isdisjoint(_texts(claims.get("aud"))):
            raise InvalidToken("it is for somebody else")
        self._check_scopes(claims.get(rules.scope_claim))
        expires_ms = self._check_times(claims, self._wall_ms())
        return TokenHolder(_user(claims.get(rules.subject_claim)), expires_ms, key, self)

    def _check_times(self, claims: dict[str, Any], wall_ms: int) -> int:
        """When it ends."""
        skew_ms = self._rules.skew_ms
        issued_ms, expires_ms = _ms(claims.get("iat")), _ms(claims.get("exp"))
        begins_ms = _ms(claims["nbf"]) if "nbf" in claims else issued_ms
        if expires_ms <= wall_ms - skew_ms:
            raise InvalidToken("it has expired")
        if max(issued_ms, begins_ms) > wall_ms + skew_ms:
            raise InvalidToken("it is from the future")
        if issued_ms >= expires_ms:
            raise InvalidToken("it ends before it begins")
        return expires_ms

    def _check_scopes(self, claim: object) -> None:
        """As Kafka: texts that are not blank, each once; what is neither text nor list has none."""
        scopes = claim if isinstance(claim, list) else [claim] if isinstance(claim, str) else []
        trimmed = [each.strip(_WHITE) if isinstance(each, str) else "" for each in scopes]
        if not all(trimmed) or len(set(trimmed)) < len(trimmed):
            raise InvalidToken("its scopes are blank or stand twice")


def object_of(data: bytes) -> dict[str, Any]:
    """A JSON object of a token. Raises InvalidToken."""
    try:
        found = json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as reason:
        raise InvalidToken("it has no JSON") from reason
    if not isinstance(found, dict):
        raise InvalidToken("it has no JSON object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _texts(claim: object) -> Collection[str]:
    """The texts of a claim that is one, or a list of them."""
    claims = claim if isinstance(claim, list) else [claim]
    return [each for each in claims if isinstance(each, str)]


def _ms(claim: object) -> int:
    """The time of a claim (NumericDate), in whole seconds as Kafka takes it."""
    if isinstance(claim, bool) or not isinstance(claim, int | float):
        raise InvalidToken("a time is none")
    if not 0 <= claim < _SECONDS_MAX:
        raise InvalidToken("a time is out of range")
    return int(claim) * 1000


def _user(claim: object) -> str:
    if not isinstance(claim, str):
        raise InvalidToken("it names no user")
    user = claim.strip(_WHITE)
    try:
        size = len(user.encode())
    except UnicodeEncodeError as reason:  # Half of a pair: no wire and no file takes it.
        raise InvalidToken("its user is no text") from reason
    if not 0 < size <= NAME_BYTES_MAX or user.startswith(RESERVED_PREFIX):
        raise InvalidToken("its user cannot be one")
    return user
