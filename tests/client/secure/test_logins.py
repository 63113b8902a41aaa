"""The client's side of PLAIN and SCRAM, against the broker's own side and that of `scramp`."""

from base64 import b64encode
from collections.abc import Callable

import pytest
import scramp

from smq.client.secure.logins import (
    ITERATIONS_MAX,
    MECHANISMS,
    LoginFailed,
    SaslClient,
    ScramLogin,
    TokenLogin,
    login_by,
)
from smq.model.errors import BrokerError
from smq.security.credentials import ScramMechanism
from smq.security.decoys import Decoys
from smq.security.external import NAME as EXTERNAL, ExternalServer, Named
from smq.security.mechanisms import LoginServers
from smq.security.oauthbearer import OAuthBearerServer
from smq.testing.credentials import UsersInMemory
from tests.security.issuer import claims_of, token as issued, tokens_at

NOW_S = 1_800_000_000

USERS = UsersInMemory({"alice": "pencil", "a,b=c": "ü"})
SERVERS = LoginServers(USERS, Decoys(b"secret"), lambda: "serversnonce")


def exchange(login: SaslClient, respond: Callable[[bytes], object]) -> None:
    """Let both sides talk until the client has nothing to say."""
    token: bytes | None = login.first()
    while token is not None:
        said = respond(token)
        token = login.next(said() if callable(said) else bytes(said))  # type: ignore[call-overload]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "pencil"), ("a,b=c", "ü")])
def test_a_user_logs_in_at_the_broker(mechanism: str, user: str, password: str) -> None:
    server = SERVERS.begin(mechanism)
    exchange(login_by(mechanism, user, password, "nonce"), server.respond)
    assert server.user == user


def test_the_server_knows_the_user_of_the_front() -> None:
    named, server = Named("alice", "10.0.0.1"), ExternalServer()
    exchange(login_by(EXTERNAL, named.token, "", "nonce"), server.respond)
    assert server.checked == named


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_user_logs_in_at_the_server_of_scramp(mechanism: ScramMechanism) -> None:
    known = scramp.ScramMechanism(mechanism.sasl_name)
    auth = known.make_auth_info("pencil", iteration_count=4096)
    server = known.make_server(lambda _: auth)

    def respond(token: bytes) -> bytes:
        if server.stage is None:
            server.set_client_first(token.decode())
            return str(server.get_server_first()).encode()
        server.set_client_final(token.decode())
        return str(server.get_server_final()).encode()

    exchange(ScramLogin(mechanism, "alice", "pencil", "nonce"), respond)


def begun(first: str = "nonceX", salt: bytes = b"salt", iterations: int = 4096) -> ScramLogin:
    """A login that has got the server's first message."""
    login = ScramLogin(ScramMechanism.SCRAM_SHA_256, "alice", "pencil", "nonce")
    login.next(f"r={first},s={b64encode(salt).decode()},i={iterations}".encode())
    return login


@pytest.mark.parametrize(
    "said", [b"", b"v=", b"v=AAAA", b"e=invalid-proof", b"\xff", b"v=" + b64encode(bytes(32))]
)
def test_a_broker_that_does_not_know_the_password_is_refused(said: bytes) -> None:
    with pytest.raises(LoginFailed, match="does not prove"):
        begun().next(said)


@pytest.mark.parametrize("nonce", ["nonce", "other", "Xnonce"])
def test_an_answer_to_another_login_is_refused(nonce: str) -> None:
    with pytest.raises(LoginFailed, match="another login"):
        begun(nonce)


@pytest.mark.parametrize("iterations", [1, 4095, ITERATIONS_MAX + 1, 999_999_999])
def test_a_broker_does_not_choose_how_long_the_client_computes(iterations: int) -> None:
    with pytest.raises(LoginFailed, match="iterations"):
        begun(iterations=iterations)


@pytest.mark.parametrize(
    "said", [b"", b"r=nonceX", b"r=nonceX,s=!,i=4096", b"r=nonceX,s=AAAAA,i=4096", b"\xff\xff"]
)
def test_an_answer_that_is_not_scrams_is_refused(said: bytes) -> None:
    login = ScramLogin(ScramMechanism.SCRAM_SHA_256, "alice", "pencil", "nonce")
    with pytest.raises(LoginFailed):
        login.next(said)


def test_a_token_is_sent_and_a_failure_is_asked_for() -> None:
    server = OAuthBearerServer(tokens_at(lambda: NOW_S * 1000))
    ours = TokenLogin(issued(claims_of(NOW_S)))
    check = server.respond(ours.first())
    assert ours.next(check()) is None
    assert server.user == "alice"
    server, ours = OAuthBearerServer(tokens_at(lambda: 0)), TokenLogin(issued(claims_of(NOW_S)))
    asked = ours.next(server.respond(ours.first())())
    assert asked == b"\1"
    with pytest.raises(BrokerError, match="invalid_token"):
        server.respond(asked)
    with pytest.raises(LoginFailed, match="does not take the token"):
        ours.next(b"")
