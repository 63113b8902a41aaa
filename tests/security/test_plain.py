import pytest
from hypothesis import given, strategies as st

from smq.model.errors import BrokerError, ErrorCode
from smq.security import plain
from smq.security.credentials import ScramMechanism
from smq.security.decoys import Decoys
from smq.security.plain import TOKEN_BYTES_MAX, PlainServer
from smq.testing.credentials import UsersInMemory

USERS = UsersInMemory({"alice": "pencil", "zoë": "stift", "unix/root": "p"})


def log_in(token: bytes, users: UsersInMemory = USERS) -> str | None:
    server = PlainServer(users, Decoys(b"secret"))
    assert server.respond(token)() == b""
    return server.user


def test_a_user_logs_in_with_the_password() -> None:
    assert log_in(b"\0alice\0pencil") == "alice"
    assert log_in(b"alice\0alice\0pencil") == "alice"
    assert log_in("\0zoë\0stift".encode()) == "zoë"


def test_a_user_is_logged_in_only_when_the_check_has_run() -> None:
    server = PlainServer(USERS, Decoys(b"secret"))
    server.respond(b"\0alice\0pencil")
    assert server.user is None


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_of_either_mechanism_is_enough(mechanism: ScramMechanism) -> None:
    users = UsersInMemory({})
    users.add("bob", "p", mechanism, iterations=8192)
    assert log_in(b"\0bob\0p", users) == "bob"


@pytest.mark.parametrize("token", [b"\0alice\0pen", b"\0eve\0pencil", b"\0unix/root\0p"])
def test_a_failed_login_says_the_same_whether_the_user_exists(token: bytes) -> None:
    with pytest.raises(BrokerError, match="Invalid username or password") as seen:
        log_in(token)
    assert seen.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_user_who_does_not_exist_is_hashed_as_one_who_does(
    mechanism: ScramMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that it takes would tell who exists."""
    hashed: list[tuple[ScramMechanism, int]] = []

    def salt(mechanism: ScramMechanism, _password: str, _salt: bytes, iterations: int) -> bytes:
        hashed.append((mechanism, iterations))
        return b""

    users = UsersInMemory({})
    users.add("bob", "p", mechanism, iterations=16384)
    monkeypatch.setattr(plain, "salted", salt)
    for token in (b"\0bob\0wrong", b"\0eve\0wrong"):
        with pytest.raises(BrokerError):
            log_in(token, users)
    assert hashed == [(mechanism, 16384)] * 2


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0pencil", "expected 3 tokens, got 2"),
        (b"\0alice\0pencil\0\0", "expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Invalid username or password"),
        (b"\0alice\0" + b"x" * TOKEN_BYTES_MAX, "SASL_AUTHENTICATION_FAILED"),
        (b"\0\0pencil", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"root\0alice\0pencil", "an authorization id that is different from username"),
    ],
)
def test_a_malformed_token_fails_in_kafkas_words(token: bytes, words: str) -> None:
    with pytest.raises(BrokerError, match=words):
        log_in(token)


@given(st.binary(max_size=100))
def test_garbage_never_logs_in(token: bytes) -> None:
    with pytest.raises(BrokerError):
        log_in(token)


def test_a_second_token_after_the_login_fails() -> None:
    server = PlainServer(USERS, Decoys(b"secret"))
    server.respond(b"\0alice\0pencil")()
    with pytest.raises(BrokerError):
        server.respond(b"\0alice\0pencil")


def test_a_credential_that_is_deleted_meanwhile_is_not_current() -> None:
    users = UsersInMemory({"alice": "pencil"})
    server = PlainServer(users, Decoys(b"secret"))
    server.respond(b"\0alice\0pencil")()
    assert server.checked is not None
    assert server.checked.is_current()
    users.found.clear()
    assert not server.checked.is_current()


def test_a_login_is_current_until_the_password_is_checked_with_another_credential() -> None:
    users = UsersInMemory({})
    users.add("alice", "pencil", ScramMechanism.SCRAM_SHA_256)
    server = PlainServer(users, Decoys(b"secret"))
    server.respond(b"\0alice\0pencil")()
    assert server.checked is not None
    assert server.checked.is_current()
    users.add("alice", "other", ScramMechanism.SCRAM_SHA_512)
    assert not server.checked.is_current(), "the stronger one counts"
    server = PlainServer(users, Decoys(b"secret"))
    server.respond(b"\0alice\0other")()
    assert server.checked is not None
    users.add("alice", "third", ScramMechanism.SCRAM_SHA_256)
    assert server.checked.is_current(), "the weaker one does not"
