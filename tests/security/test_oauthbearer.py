"""One exchange of OAUTHBEARER."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import BrokerError, ErrorCode
from smq.security.oauthbearer import ERROR, MESSAGE_BYTES_MAX, OAuthBearerServer
from smq.security.sasl import SaslServer
from smq.security.tokens import InvalidToken, Signed, TokenRules, Tokens
from tests.security.issuer import AUDIENCE, ISSUER, claims_of, first_message

NOW_S = 1_800_000_000
GOOD, BAD = "good.good-._~+/==", "bad"


class SignsGood:
    is_published = True

    def opened(self, token: str) -> Signed:
        if token != GOOD:
            raise InvalidToken("it is not good")
        return Signed(json.dumps(claims_of(NOW_S, exp=NOW_S + 10)).encode(), "key")

    def has(self, key: str) -> bool:
        return self.is_published and key == "key"


class Clock:
    now_ms = NOW_S * 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> OAuthBearerServer:
    rules = TokenRules(frozenset({AUDIENCE}), ISSUER)
    return OAuthBearerServer(Tokens(rules, SignsGood(), lambda: clock.now_ms))


def test_a_login_is_current_until_its_issuer_withdraws_the_key() -> None:
    keys = SignsGood()
    tokens = Tokens(TokenRules(frozenset({AUDIENCE}), ISSUER), keys, lambda: NOW_S * 1000)
    server = OAuthBearerServer(tokens)
    answer(server, first_message(GOOD))
    assert server.checked is not None
    assert server.checked.is_current()
    keys.is_published = False
    assert not server.checked.is_current()


def answer(server: SaslServer, message: bytes) -> bytes:
    said = server.respond(message)
    return said() if callable(said) else said


def refusal(server: SaslServer, message: bytes) -> str | None:
    with pytest.raises(BrokerError) as failure:
        answer(server, message)
    assert failure.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert server.user is None
    return failure.value.message


def test_a_good_token_logs_its_user_in(server: OAuthBearerServer) -> None:
    assert answer(server, first_message(GOOD)) == b""
    assert server.user == "alice"
    assert server.checked is not None
    assert server.checked.is_current()
    with pytest.raises(BrokerError):
        server.respond(first_message(GOOD))


def test_a_bad_token_is_answered_with_an_error_and_then_it_fails(
    server: OAuthBearerServer,
) -> None:
    assert answer(server, first_message(BAD)) == ERROR.encode() == b'{"status":"invalid_token"}'
    assert server.user is None
    assert refusal(server, b"\1") == ERROR
    assert refusal(server, first_message(GOOD)) == ERROR


@pytest.mark.parametrize(
    "message",
    [
        first_message(GOOD, "n,a=alice,"),
        first_message(GOOD, more="\1host=queue.example\1port=9092"),
        f"n,,\1host=x\1auth=bearer   {GOOD}\1\1".encode(),
    ],
    ids=["authorization-id", "extensions", "lower-case"],
)
def test_a_first_message_may_be(server: OAuthBearerServer, message: bytes) -> None:
    assert answer(server, message) == b""


MALFORMED = {
    "nothing": b"",
    "an answer to no error": b"\1",
    "garbage": b"garbage",
    "a channel that is not bound": first_message(GOOD, "y,,"),
    "a channel that is bound": first_message(GOOD, "p=tls-unique,,"),
    "the draft's form": f"n,,auth=Bearer {GOOD}".encode(),
    "one end": f"n,,\1auth=Bearer {GOOD}\1".encode(),
    "no token": b"n,,\1host=x\1\1",
    "nothing at all": b"n,,\1\1",
    "two tokens": first_message(GOOD, more=f"\1auth=Bearer {GOOD}"),
    "another scheme": f"n,,\1auth=Basic {GOOD}\1\1".encode(),
    "a tab before the token": f"n,,\1auth=Bearer\t{GOOD}\1\1".encode(),
    "letters that no token has": first_message("tok\N{LATIN SMALL LETTER E WITH ACUTE}n"),
    "an extension without a value": first_message(GOOD, more="\1a="),
    "an extension with a bad name": first_message(GOOD, more="\1a1=x"),
    "a long authorization id": first_message(GOOD, f"n,a={'x' * 40_000},"),
    "a megabyte": first_message("x" * 1024 * 1024),
    "a byte too much": b"x" * (MESSAGE_BYTES_MAX + 1),
}


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
def test_a_first_message_is_refused_that_is(server: OAuthBearerServer, message: bytes) -> None:
    assert refusal(server, message) is None


def test_a_user_does_not_log_in_for_another(server: OAuthBearerServer) -> None:
    assert refusal(server, first_message(GOOD, "n,a=bob,")) == (
        "Authentication failed: Client requested an authorization id (bob) that is different from "
        "the token's principal name (alice)"
    )


def test_a_login_lasts_as_long_as_its_token_or_the_settings_allow(
    server: OAuthBearerServer, clock: Clock
) -> None:
    answer(server, first_message(GOOD))
    assert server.lifetime_ms(0) == 10_000
    assert server.lifetime_ms(20_000) == 10_000
    assert server.lifetime_ms(3000) == 3000
    clock.now_ms += 15_000
    assert server.lifetime_ms(0) == server.lifetime_ms(3000) == 1  # And not for ever.


@given(
    st.binary() | st.tuples(st.binary(), st.binary()).map(lambda x: b"n,,\1" + x[0] + b"\1" + x[1])
)
def test_garbage_is_refused(message: bytes) -> None:
    tokens: Any = None
    with pytest.raises(BrokerError):
        OAuthBearerServer(tokens).respond(message)
