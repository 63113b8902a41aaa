"""Clients of `scramp`, of RFC 7677 and of our own hand log in, or do not."""

from base64 import b64encode

import pytest
import scramp
from hypothesis import given, strategies as st

from smq.model.errors import BrokerError, ErrorCode
from smq.security.credentials import (
    Profiles,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted,
)
from smq.security.decoys import Decoys
from smq.security.scram import TOKEN_BYTES_MAX, ScramServer
from smq.testing.credentials import UsersInMemory

SHA_256, SHA_512 = ScramMechanism
NONCE = "servers3nonce"
USERS = UsersInMemory({"alice": "pencil", "a,b=c": "p", "unix/root": "p"})
DECOYS = Decoys(b"secret")


def server(mechanism: ScramMechanism = SHA_256, nonce: str = NONCE) -> ScramServer:
    return ScramServer(mechanism, USERS, DECOYS, nonce)


def client(user: str, password: str, mechanism: ScramMechanism = SHA_256) -> scramp.ScramClient:
    return scramp.ScramClient([mechanism.sasl_name], user, password, c_nonce="clients3nonce")


def log_in(user: str, password: str, to: ScramServer) -> str | None:
    theirs = client(user, password, to._mechanism)
    theirs.set_server_first(to.respond(theirs.get_client_first().encode()).decode())
    theirs.set_server_final(to.respond(theirs.get_client_final().encode()).decode())
    return to.user


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_client_with_the_right_password_logs_in(mechanism: ScramMechanism) -> None:
    assert log_in("alice", "pencil", server(mechanism)) == "alice"


def test_a_name_with_a_comma_and_an_equals_sign_logs_in() -> None:
    assert log_in("a,b=c", "p", server()) == "a,b=c"


def test_rfc_7677s_example_is_answered_as_the_rfc_says() -> None:
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"

    class Rfc:
        def find(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
            key = salted(SHA_256, "pencil", salt, 4096)
            return credential_of(SHA_256, key, salt, 4096)

        def profiles(self) -> Profiles:
            return {}

    ours = ScramServer(SHA_256, Rfc(), DECOYS, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = ours.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = ours.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert ours.user == "user"


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "pen"), ("eve", "pencil"), ("eve", ""), ("unix/root", "p")]
)
def test_a_failed_login_says_the_same_whether_the_user_exists(user: str, password: str) -> None:
    ours = server()
    with pytest.raises(BrokerError) as seen:
        log_in(user, password, ours)
    assert seen.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert seen.value.message is None
    assert ours.user is None


def test_an_unknown_user_is_sent_the_same_salt_each_time() -> None:
    first = [server().respond(b"n,,n=eve,r=x") for _ in range(2)]
    assert first[0] == first[1]
    assert first[0].startswith(f"r=x{NONCE},s=".encode())
    assert first[0].endswith(b",i=4096")


def test_a_replayed_proof_does_not_log_in() -> None:
    theirs, recorded = client("alice", "pencil"), server()
    first = theirs.get_client_first().encode()
    theirs.set_server_first(recorded.respond(first).decode())
    final = theirs.get_client_final().encode()
    assert recorded.respond(final)
    again = server(nonce="anothernonce")
    again.respond(first)
    with pytest.raises(BrokerError):
        again.respond(final)


def test_a_proof_with_the_nonce_of_the_client_alone_does_not_log_in() -> None:
    """CVE-2024-56128: Kafka did not compare the nonce of the final message."""
    theirs, ours = client("alice", "pencil"), server()
    ours.respond(theirs.get_client_first().encode())
    salt = b64encode(b"salt of alice").decode()
    theirs.set_server_first(f"r=clients3nonce{NONCE[:-1]},s={salt},i=4096")
    with pytest.raises(BrokerError):
        ours.respond(theirs.get_client_final().encode())


def test_a_complete_exchange_takes_no_further_token() -> None:
    ours = server()
    log_in("alice", "pencil", ours)
    with pytest.raises(BrokerError):
        ours.respond(b"n,,n=alice,r=x")
    assert ours.user == "alice"


def test_an_authorization_id_must_be_the_user() -> None:
    assert server().respond(b"n,a=alice,n=alice,r=x")
    with pytest.raises(BrokerError, match="an authorization id that is different from username"):
        server().respond(b"n,a=root,n=alice,r=x")


def test_the_binding_of_the_final_message_is_not_looked_at() -> None:
    """As in Kafka: there is no channel binding."""
    ours, binding = server(), f"c={b64encode(b'y,,').decode()},r=x{NONCE}"
    first = ours.respond(b"n,,n=alice,r=x").decode()
    credential = USERS.find("alice", SHA_256)
    assert credential is not None
    key = salted(SHA_256, "pencil", credential.salt, credential.iterations)
    client_key = SHA_256.keyed(key, b"Client Key")
    signature = SHA_256.keyed(credential.stored_key, f"n=alice,r=x,{first},{binding}".encode())
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert ours.respond(f"{binding},p={b64encode(proof).decode()}".encode())
    assert ours.user == "alice"


def test_an_extension_is_ignored_but_for_delegation_tokens() -> None:
    assert server().respond(b"n,,n=alice,r=x,ext=1")
    for token in (b"tokenauth=true", b"tokenauth=TRUE", b"a=b,tokenauth=true,c=d"):
        with pytest.raises(BrokerError):
            server().respond(b"n,,n=alice,r=x," + token)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,n=,r=x",
        b"n,,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=x\n",
        b"n,,n=alice,r=\0",
        "n,,n=zoë,r=x".encode(),
        b"n,,n=alice,r=" + b"x" * TOKEN_BYTES_MAX,
    ],
)
def test_a_malformed_first_message_fails(token: bytes) -> None:
    with pytest.raises(BrokerError):
        server().respond(token)


@given(st.binary(max_size=200))
def test_garbage_fails_as_a_first_and_as_a_final_message(token: bytes) -> None:
    with pytest.raises(BrokerError):
        server().respond(token)
    begun = server()
    begun.respond(b"n,,n=alice,r=x")
    with pytest.raises(BrokerError):
        begun.respond(token)


@pytest.mark.parametrize("proof", ["", "AAAA", b64encode(bytes(32)).decode()])
def test_a_proof_of_another_length_or_value_fails(proof: str) -> None:
    ours = server()
    ours.respond(b"n,,n=alice,r=x")
    with pytest.raises(BrokerError):
        ours.respond(f"c=biws,r=x{NONCE},p={proof}".encode())


def test_a_credential_that_changes_meanwhile_is_not_current() -> None:
    users = UsersInMemory({"alice": "pencil"})
    ours = ScramServer(SHA_256, users, DECOYS, NONCE)
    assert log_in("alice", "pencil", ours) == "alice"
    assert ours.checked is not None
    assert ours.checked.is_current()
    users.add("alice", "other", SHA_256)
    assert not ours.checked.is_current()
