"""What is taken of a token whose signature is right, as Apache Kafka 4.3.1 does unless it says
otherwise (tests/oracle/login)."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.security.tokens import (
    NAME_BYTES_MAX,
    TOKEN_BYTES_MAX,
    InvalidToken,
    Signed,
    TokenHolder,
    TokenRules,
    Tokens,
    object_of,
)
from tests.security.issuer import AUDIENCE, ISSUER, LIFETIME_SECONDS, SKEW_SECONDS, claims_of

NOW_S = 1_800_000_000
RULES = TokenRules(frozenset({AUDIENCE, "others"}), ISSUER, skew_ms=SKEW_SECONDS * 1000)


class SignsAll:
    """Keys to which a token is its own payload."""

    def opened(self, token: str) -> Signed:
        return Signed(token.encode("utf-8", "surrogatepass"), "key")

    def has(self, key: str) -> bool:
        return key == "key"


def tokens(rules: TokenRules = RULES, now_ms: int = NOW_S * 1000) -> Tokens:
    return Tokens(rules, SignsAll(), lambda: now_ms)


def holder(rules: TokenRules = RULES, **claims: Any) -> TokenHolder:
    return tokens(rules).holder_of(json.dumps(claims_of(NOW_S, **claims)))


def test_a_token_names_its_user_and_when_it_ends() -> None:
    found = holder()
    assert found[:3] == ("alice", (NOW_S + LIFETIME_SECONDS) * 1000, "key")
    assert tokens().left_ms(found) == LIFETIME_SECONDS * 1000


GOOD = {
    "a list of audiences": {"aud": ["x", "others"]},
    "an end that is no whole second": {"exp": NOW_S + 100.7},
    "a name in white space": {"sub": "\t alice\n"},
    "a beginning within the skew": {"nbf": NOW_S + SKEW_SECONDS},
    "issued within the skew": {"iat": NOW_S + SKEW_SECONDS},
    "an end within the skew": {"iat": NOW_S - 99, "exp": NOW_S - SKEW_SECONDS + 1},
    "scopes": {"scope": ["a", "b"]},
    "a scope that is no text": {"scope": 5},
    "an unknown claim": {"x": {}},
}


@pytest.mark.parametrize("claims", GOOD.values(), ids=GOOD)
def test_a_token_is_taken_with(claims: dict[str, Any]) -> None:
    assert holder(**claims).user == "alice"


BAD = {
    **{f"no {each}": {each: None} for each in ("iss", "aud", "sub", "iat", "exp")},
    "another issuer": {"iss": "x"},
    "a list of issuers": {"iss": [ISSUER]},
    "another audience": {"aud": "x"},
    "audiences that are no texts": {"aud": [{}, [AUDIENCE], 5]},
    "an end in the past": {"iat": NOW_S - 99, "exp": NOW_S - SKEW_SECONDS},
    "a beginning in the future": {"nbf": NOW_S + SKEW_SECONDS + 1},
    "issued in the future": {"iat": NOW_S + SKEW_SECONDS + 1},  # Kafka takes it.
    "an end before it is issued": {"iat": NOW_S, "exp": NOW_S},
    "an end that is a text": {"exp": str(NOW_S + 100)},
    "an end that is a truth": {"exp": True},
    "an end beyond all time": {"exp": 10**15},
    "an end without end": {"exp": float(f"1{'0' * 300}")},
    "a negative time": {"iat": -1},
    "a beginning that is none": {"nbf": None} | {"nbf": "x"},
    "a name that is a number": {"sub": 5},
    "a blank name": {"sub": " \t"},
    "a long name": {"sub": "x" * (NAME_BYTES_MAX + 1)},
    "half of a surrogate pair": {"sub": "\ud800"},
    "a name of this host's users": {"sub": "unix/root"},
    "such a name in white space": {"sub": "\x1f unix/root"},
    "a blank scope": {"scope": ["a", " "]},
    "a scope twice": {"scope": ["a", "a "]},
    "a scope in a list that is no text": {"scope": [1]},
}


@pytest.mark.parametrize("claims", BAD.values(), ids=BAD)
def test_a_token_is_refused_with(claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        holder(**claims)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", "{", '{"exp": NaN}', "[" * 50_000, '{"exp": 1e999}', "\ud800"],
    ids=["nothing", "list", "number", "half", "nan", "deep", "infinite", "surrogate"],
)
def test_a_payload_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        tokens().holder_of(text)


def test_a_token_of_a_megabyte_is_refused_unread() -> None:
    with pytest.raises(InvalidToken, match="too long"):
        holder(x="x" * 1024 * 1024)
    assert holder(x="x" * (TOKEN_BYTES_MAX - 1024)).user == "alice"


def test_other_claims_may_name_user_and_scopes() -> None:
    rules = RULES._replace(subject_claim="email", scope_claim="scp")
    assert holder(rules, email="a@b.example", sub=None, scope="").user == "a@b.example"
    with pytest.raises(InvalidToken):
        holder(rules, email="a@b.example", scp="")


def test_without_a_skew_a_token_ends_at_its_end() -> None:
    rules = RULES._replace(skew_ms=0)
    ended = json.dumps(claims_of(NOW_S, iat=NOW_S - 9, exp=NOW_S))
    assert tokens(rules, NOW_S * 1000 - 1).holder_of(ended).expires_ms == NOW_S * 1000
    with pytest.raises(InvalidToken):
        tokens(rules).holder_of(ended)


CLAIMS = ("iss", "aud", "sub", "iat", "exp", "nbf", "scope")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(CLAIMS), JSON))
def test_garbage_raises_nothing_else(claims: dict[str, Any]) -> None:
    try:
        holder(**claims)
    except InvalidToken:
        return


@given(st.binary())
def test_bytes_that_are_no_object_raise_nothing_else(data: bytes) -> None:
    try:
        assert isinstance(object_of(data), dict)
    except InvalidToken:
        return
