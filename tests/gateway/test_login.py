"""What is said before a login, in any order."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import scramp
from hypothesis import HealthCheck, given, settings, strategies as st

from gateway.apis.table import API_BY_KEY
from gateway.login import TAKES, Checking, Login, LoginRules, LoginSession, Reply, Stage
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.security.caller import Caller
from smq.security.credentials import ScramMechanism, look_up
from smq.security.decoys import Decoys
from smq.security.mechanisms import MECHANISMS, LoginServers
from smq.security.oauthbearer import ERROR, NAME as OAUTHBEARER
from smq.security.plain import CheckedPassword
from smq.security.principals import USER, Principal
from smq.testing.credentials import UsersInMemory
from smq.wire.codec import Writer
from smq.wire.generated import apis
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.metadata import MetadataRequest
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from smq.wire.headers import RequestHeader, read_response_header, write_request_header
from tests.gateway.shard_api_bench import ShardBench
from tests.security.issuer import (
    LIFETIME_SECONDS,
    claims_of,
    first_message,
    token as issued,
    tokens_at,
)
from tests.shard.shard_bench import NOW, topic

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
USERS = UsersInMemory({"alice": "pencil", "bob": "stylus"})
SERVERS = LoginServers(USERS, Decoys(b"secret"), lambda: "servers3nonce")
RULES = LoginRules(MECHANISMS, SERVERS.begin, len)


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("topic-1", range(1)))


@pytest.fixture
def login(bench: ShardBench) -> Login:
    return Login(RULES, bench.shard, Caller("127.0.0.1", 1))


def renewing(bench: ShardBench, principal: Principal, mechanism: str) -> Login:
    checked = look_up(USERS, principal.name, ScramMechanism.SCRAM_SHA_512)
    return Login(RULES, bench.shard, Caller(), LoginSession(principal, mechanism, 1000, checked))


def frame(name: str, version: int, request: Any) -> bytes:
    [api] = [each for each in apis.APIS if each.name == name]
    writer = Writer()
    write_request_header(RequestHeader(api.key, version, 77, "client"), writer)
    api.write_request(request, version, writer)
    return writer.to_bytes()


VERSIONS = frame("ApiVersions", 0, ApiVersionsRequest())
UNKNOWN_VERSIONS = VERSIONS[:2] + b"\0\x63" + VERSIONS[4:] + b"\0"


def handshake(mechanism: str, version: int = 1) -> bytes:
    return frame("SaslHandshake", version, SaslHandshakeRequest(mechanism=mechanism))


def token(text: bytes, version: int = 2) -> bytes:
    return frame("SaslAuthenticate", version, SaslAuthenticateRequest(auth_bytes=text))


def take(login: Login, data: bytes) -> Reply:
    """The reply, with its work done."""
    reply = login.take(memoryview(data), NOW)
    if not isinstance(reply, Checking):
        return reply
    try:
        return reply.then(reply.work())
    except BrokerError as failure:
        return reply.then(failure)


def answer(reply: Reply, name: str, version: int) -> Any:
    [api] = [each for each in apis.APIS if each.name == name]
    assert int.from_bytes(reply.answer[:4]) == len(reply.answer) - 4
    correlation_id, at = read_response_header(reply.answer, 4, api.key, version)
    assert correlation_id == 77
    return api.read_response(reply.answer, at, version)


def test_every_stage_is_in_the_table_and_can_be_reached() -> None:
    reached = {Stage.BEGINNING, Stage.RENEWING}
    for _ in TAKES:
        reached |= {to for stage in reached for to in TAKES[stage].values()}
    assert reached == set(Stage)
    assert TAKES[Stage.DONE] == {}


def test_versions_are_answered_once_before_the_handshake(login: Login) -> None:
    assert answer(take(login, VERSIONS), "ApiVersions", 0).error_code == ErrorCode.NONE
    with pytest.raises(PeerError):
        take(login, VERSIONS)


def test_a_client_may_ask_again_for_versions_in_a_version_that_there_is(login: Login) -> None:
    for _ in range(3):
        refused = answer(take(login, UNKNOWN_VERSIONS), "ApiVersions", 0)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer(take(login, VERSIONS), "ApiVersions", 0).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
def test_an_unknown_mechanism_is_answered_with_those_that_there_are(
    login: Login, version: int
) -> None:
    reply = take(login, handshake("GSSAPI", version))
    response = answer(reply, "SaslHandshake", version)
    assert (reply.has_failed, response.error_code) == (True, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    assert response.mechanisms == [*MECHANISMS]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_logs_in(login: Login, version: int) -> None:
    take(login, VERSIONS)
    assert answer(take(login, handshake("PLAIN")), "SaslHandshake", 1).error_code == 0
    reply = take(login, token(b"\0alice\0pencil", version))
    response = answer(reply, "SaslAuthenticate", version)
    assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, b"")
    assert response.session_lifetime_ms == (len("PLAIN") if version else 0)
    checked = look_up(USERS, "alice", ScramMechanism.SCRAM_SHA_512)
    assert login.session == LoginSession(ALICE, "PLAIN", len("PLAIN"), CheckedPassword((), checked))


def exchange(login: Login, mechanism: str, send: Any) -> None:
    theirs = scramp.ScramClient([mechanism], "alice", "pencil")
    theirs.set_server_first(send(theirs.get_client_first()).decode())
    assert login.session is None
    theirs.set_server_final(send(theirs.get_client_final()).decode())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_logs_in_with_two_tokens(login: Login, mechanism: str) -> None:
    take(login, handshake(mechanism))

    def send(text: str) -> bytes:
        response = answer(take(login, token(text.encode())), "SaslAuthenticate", 2)
        return bytes(response.auth_bytes)

    exchange(login, mechanism, send)
    checked = look_up(USERS, "alice", ScramMechanism[mechanism.replace("-", "_")])
    assert login.session == LoginSession(ALICE, mechanism, len(mechanism), checked)


def test_tokens_come_alone_after_a_handshake_of_version_0(login: Login) -> None:
    take(login, handshake("SCRAM-SHA-256", 0))

    def send(text: str) -> bytes:
        reply = take(login, text.encode())
        assert int.from_bytes(reply.answer[:4]) == len(reply.answer) - 4
        return reply.answer[4:]

    exchange(login, "SCRAM-SHA-256", send)
    assert login.session is not None


def test_plain_alone_is_answered_with_an_empty_token(login: Login) -> None:
    take(login, handshake("PLAIN", 0))
    assert take(login, b"\0alice\0pencil") == Reply(bytes(4))
    assert login.session is not None


def test_a_failed_token_alone_has_no_answer(login: Login) -> None:
    take(login, handshake("PLAIN", 0))
    assert take(login, b"\0alice\0wrong") == Reply(b"", has_failed=True)
    assert login.session is None


def test_a_failed_login_is_answered_in_words_that_tell_nothing(login: Login) -> None:
    take(login, handshake("SCRAM-SHA-512"))
    reply = take(login, token(b"garbage"))
    response = answer(reply, "SaslAuthenticate", 2)
    assert (reply.has_failed, response.error_code) == (True, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert response.error_message.endswith("invalid credentials with SASL mechanism SCRAM-SHA-512")


@pytest.mark.parametrize("again", [False, True])
def test_versions_and_handshakes_among_tokens_are_refused(
    bench: ShardBench, *, again: bool
) -> None:
    for name, version, request in (
        ("ApiVersions", 0, VERSIONS),
        ("SaslHandshake", 1, handshake("PLAIN")),
    ):
        begun = renewing(bench, ALICE, "PLAIN") if again else Login(RULES, bench.shard, Caller())
        take(begun, handshake("PLAIN"))
        reply = take(begun, request)
        assert reply.has_failed
        assert answer(reply, name, version).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_failed_renewal_says_that_it_is_one(bench: ShardBench) -> None:
    again = renewing(bench, ALICE, "SCRAM-SHA-256")
    take(again, handshake("SCRAM-SHA-256"))
    response = answer(take(again, token(b"garbage")), "SaslAuthenticate", 2)
    assert "during re-authentication due to" in response.error_message


def test_a_renewal_by_an_unknown_mechanism_closes(bench: ShardBench) -> None:
    with pytest.raises(PeerError):
        take(renewing(bench, ALICE, "PLAIN"), handshake("GSSAPI"))


def test_another_request_before_the_login_closes(login: Login) -> None:
    request = frame("Metadata", 9, MetadataRequest())
    for before in ((), (VERSIONS,), (handshake("PLAIN"),)):
        for each in before:
            take(login, each)
        with pytest.raises(PeerError):
            take(login, request)


def test_a_token_without_a_handshake_closes(login: Login) -> None:
    with pytest.raises(PeerError):
        take(login, token(b"\0alice\0pencil"))


def test_nothing_is_taken_after_the_login(login: Login) -> None:
    take(login, handshake("PLAIN"))
    take(login, token(b"\0alice\0pencil"))
    for each in (VERSIONS, handshake("PLAIN"), token(b"\0alice\0pencil")):
        with pytest.raises(PeerError):
            take(login, each)


def test_a_login_is_renewed_with_its_mechanism_and_principal(bench: ShardBench) -> None:
    again = renewing(bench, ALICE, "PLAIN")
    take(again, handshake("PLAIN"))
    take(again, token(b"\0alice\0pencil"))
    assert again.session is not None
    assert again.session[:3] == (ALICE, "PLAIN", len("PLAIN"))


def test_a_renewal_with_another_mechanism_closes_at_its_first_token(bench: ShardBench) -> None:
    again = renewing(bench, ALICE, "SCRAM-SHA-256")
    assert answer(take(again, handshake("PLAIN")), "SaslHandshake", 1).error_code == 0
    with pytest.raises(PeerError):
        take(again, token(b"\0alice\0pencil"))


def test_a_renewal_by_another_principal_fails(bench: ShardBench) -> None:
    again = renewing(bench, BOB, "PLAIN")
    take(again, handshake("PLAIN"))
    reply = take(again, token(b"\0alice\0pencil"))
    response = answer(reply, "SaslAuthenticate", 2)
    assert response.error_message == (
        "Cannot change principals during re-authentication from User.bob: User.alice"
    )
    assert (reply.has_failed, again.session) == (True, None)


def test_a_failed_renewal_of_users_with_long_names_fits_its_answer(bench: ShardBench) -> None:
    one, two = "1" * 16_370, "2" * 16_370
    servers = LoginServers(UsersInMemory({two: "pencil"}), Decoys(b"secret"), lambda: "nonce")
    checked = look_up(USERS, "bob", ScramMechanism.SCRAM_SHA_512)
    former = LoginSession(Principal(USER, one), "PLAIN", 1000, checked)
    again = Login(RULES._replace(begin=servers.begin), bench.shard, Caller(), former)
    take(again, handshake("PLAIN"))
    reply = take(again, token(f"\0{two}\0pencil".encode()))
    assert "User.111" in answer(reply, "SaslAuthenticate", 2).error_message
    assert (reply.has_failed, again.session) == (True, None)


def test_a_renewal_does_not_ask_for_versions(bench: ShardBench) -> None:
    with pytest.raises(PeerError):
        take(renewing(bench, ALICE, "PLAIN"), VERSIONS)


def beginnings() -> Iterator[list[bytes]]:
    yield []
    yield [VERSIONS]
    yield [handshake("PLAIN")]
    yield [handshake("SCRAM-SHA-256", 0)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*beginnings()]), st.binary(max_size=80))
def test_garbage_closes_or_fails(bench: ShardBench, begun: list[bytes], garbage: bytes) -> None:
    login = Login(RULES, bench.shard, Caller())
    for each in begun:
        take(login, each)
    with suppress(PeerError):
        take(login, garbage)
    assert login.session is None


def test_the_apis_of_a_login_are_advertised() -> None:
    assert [API_BY_KEY[key].versions for key in (17, 36)] == [range(2), range(3)]


def with_tokens(bench: ShardBench, former: LoginSession | None = None) -> Login:
    begin = partial(SERVERS.begin, tokens=tokens_at(lambda: NOW.wall_ms))
    return Login(LoginRules(MECHANISMS, begin, lambda _: 0), bench.shard, Caller(), former)


def bearer(**claims: Any) -> bytes:
    return first_message(issued(claims_of(NOW.wall_ms / 1000, **claims)))


def test_a_session_ends_with_its_token(bench: ShardBench) -> None:
    login = with_tokens(bench)
    take(login, handshake(OAUTHBEARER))
    response = answer(take(login, token(bearer())), "SaslAuthenticate", 2)
    left_ms = response.session_lifetime_ms
    assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, b"")
    assert 0 <= LIFETIME_SECONDS * 1000 - left_ms < 1000
    assert login.session is not None
    assert login.session[:3] == (ALICE, OAUTHBEARER, left_ms)
    assert login.session.checked.is_current()


def test_a_bad_token_is_answered_with_an_error_before_the_login_fails(bench: ShardBench) -> None:
    login = with_tokens(bench)
    take(login, handshake(OAUTHBEARER))
    reply = take(login, token(bearer(aud=None)))
    response = answer(reply, "SaslAuthenticate", 2)
    assert (reply.has_failed, response.error_code) == (False, ErrorCode.NONE)
    assert response.auth_bytes == ERROR.encode()
    reply = take(login, token(b"\1"))
    response = answer(reply, "SaslAuthenticate", 2)
    assert (reply.has_failed, response.error_message) == (True, ERROR)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_another_token_of_the_same_user_renews_a_login(bench: ShardBench) -> None:
    for sub, has_failed in (("alice", False), ("bob", True)):
        former = tokens_at(lambda: NOW.wall_ms).holder_of(issued(claims_of(NOW.wall_ms / 1000)))
        login = with_tokens(bench, LoginSession(ALICE, OAUTHBEARER, 1000, former))
        take(login, handshake(OAUTHBEARER))
        assert take(login, token(bearer(sub=sub))).has_failed == has_failed
        assert (login.session is None) == has_failed


CLOSED = Reply(b"", has_failed=True)


@pytest.fixture
def users() -> UsersInMemory:
    """Users that a test may change."""
    return UsersInMemory({"alice": "pencil"})


@pytest.fixture
def begun(bench: ShardBench, users: UsersInMemory) -> Login:
    """A login by these users."""
    servers = LoginServers(users, Decoys(b"secret"), lambda: "servers3nonce")
    return Login(LoginRules(MECHANISMS, servers.begin, len), bench.shard, Caller())


@pytest.mark.parametrize("password", [b"pencil", b"crayon"])
def test_a_login_by_plain_whose_password_changes_meanwhile_is_closed_without_an_answer(
    begun: Login, users: UsersInMemory, password: bytes
) -> None:
    """Whether it has the old one or the new one: it is asked again."""
    take(begun, handshake("PLAIN"))
    checking = begun.take(memoryview(token(b"\0alice\0" + password)), NOW)
    assert isinstance(checking, Checking)
    try:
        checked: bytes | BrokerError = checking.work()
    except BrokerError as failure:
        checked = failure
    users.add("alice", "crayon", ScramMechanism.SCRAM_SHA_512)
    assert checking.then(checked) == CLOSED
    assert begun.session is None


@pytest.mark.parametrize("password", ["pencil", "crayon"])
def test_a_login_by_scram_whose_password_changes_meanwhile_is_closed_without_an_answer(
    begun: Login, users: UsersInMemory, password: str
) -> None:
    take(begun, handshake("SCRAM-SHA-256"))
    theirs = scramp.ScramClient(["SCRAM-SHA-256"], "alice", password)
    first = answer(take(begun, token(theirs.get_client_first().encode())), "SaslAuthenticate", 2)
    theirs.set_server_first(bytes(first.auth_bytes).decode())
    users.add("alice", "crayon", ScramMechanism.SCRAM_SHA_256)
    assert take(begun, token(theirs.get_client_final().encode())) == CLOSED
    assert begun.session is None


def test_a_login_goes_on_while_the_user_s_other_mechanism_gets_another_password(
    begun: Login, users: UsersInMemory
) -> None:
    take(begun, handshake("SCRAM-SHA-256"))

    def send(text: str) -> bytes:
        users.add("alice", "crayon", ScramMechanism.SCRAM_SHA_512)
        return bytes(answer(take(begun, token(text.encode())), "SaslAuthenticate", 2).auth_bytes)

    exchange(begun, "SCRAM-SHA-256", send)
    assert begun.session is not None


@pytest.mark.parametrize("name", [b"alice", b"eve"])
def test_a_wrong_password_is_refused_with_an_answer_whether_the_user_exists(
    begun: Login, name: bytes
) -> None:
    take(begun, handshake("PLAIN"))
    response = answer(take(begun, token(b"\0%s\0crayon" % name)), "SaslAuthenticate", 2)
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
