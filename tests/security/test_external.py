"""EXTERNAL, by which the front says for whom it asks."""

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import BrokerError
from smq.security.external import TOKEN_BYTES_MAX, ExternalServer, Named


@pytest.mark.parametrize(
    "named",
    [
        Named("alice", "10.0.0.1"),
        Named("a lice ", "2001:db8:0:0:0:0:0:1"),
        Named("zoë", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_a_token_names_a_user_and_an_address(named: Named) -> None:
    server = ExternalServer()
    assert server.respond(named.token.encode()) == b""
    assert (server.user, server.checked) == (named.user, named)
    assert named.is_current()
    assert server.lifetime_ms(5) == 5


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice",
        b"10.0.0.1",
        b"10.0.0.1 ",
        b" alice",
        b"localhost alice",
        b"10.0.0.1 unix/root",
        b"10.0.0.1 \xff",
        b"10.0.0.1 " + TOKEN_BYTES_MAX * b"x",
    ],
)
def test_a_token_without_a_name_or_an_address_is_refused(token: bytes) -> None:
    with pytest.raises(BrokerError):
        ExternalServer().respond(token)


def test_a_connection_names_one_user() -> None:
    server = ExternalServer()
    server.respond(Named("alice", "10.0.0.1").token.encode())
    with pytest.raises(BrokerError):
        server.respond(Named("bob", "10.0.0.1").token.encode())
    assert server.user == "alice"


@given(st.binary(max_size=64))
def test_garbage_raises_only_its_own_error(token: bytes) -> None:
    server = ExternalServer()
    try:
        server.respond(token)
    except BrokerError:
        assert server.user is None
