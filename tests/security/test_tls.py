"""The engine against Python's own client, and what a client cannot make it do."""

import ssl
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pytest

from smq.security.tls import KEYS_MAX, READS_MAX, TlsEngine
from tests.security.tls_bench import (
    Client,
    Files,
    ask_for_new_keys,
    ask_to_renegotiate,
    client_context,
    connected,
    context_of,
    make_files,
    put,
    with_groups,
)

SOON_S = 0.1  # Of the processor's time; one hello with ffdhe8192 took 0.175.
VERSIONS = "TLSv1.2,TLSv1.3"
ALLOW_CLIENT_RENEGOTIATION = 1 << 8  # Of ssl.h; Python's module has no word for it.
HELLO_BYTES_MIN = 100  # Those of a handshake are longer, and an alert in its record is shorter.


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("keys"))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_bytes_arrive_both_ways_however_they_are_cut(
    files: Files, version: ssl.TLSVersion, piece: int
) -> None:
    engine, client = TlsEngine(context_of(files)), Client(client_context(files, version))
    connected(engine, client, piece)
    assert engine.is_established
    sent = Random(1).randbytes(100_000)
    client.tls.write(sent)
    ciphertext, view, received = client.outgoing.read(), memoryview(bytearray(30_000)), b""
    for at in range(0, len(ciphertext), 10 * piece):
        engine.receive(ciphertext[at : at + 10 * piece])
        while count := engine.read_into(view):
            received += view[:count]
    assert received == sent
    rest = memoryview(sent)
    while rest:
        rest = rest[engine.write(rest) :]
    while engine.unsent_bytes:
        client.incoming.write(engine.take_sent())
    assert client.read() == sent


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_shows_a_few_certificates_and_not_a_hundred(
    files: Files, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Each costs half a millisecond before it is refused."""
    authority = files.authority.read_bytes()
    for count in (10, 100):
        shown = put(tmp_path / "shown", files.client.read_bytes(), authority * count)
        engine = TlsEngine(context_of(files, "required"))
        client = Client(client_context(files, version, shown))
        if count == 10:
            connected(engine, client)
            assert engine.peer_certificate() is not None
        else:
            with pytest.raises(ssl.SSLError, match="EXCESSIVE_MESSAGE_SIZE"):
                connected(engine, client)


def test_the_key_exchange_is_on_p_256(files: Files) -> None:
    engine, client = TlsEngine(context_of(files)), Client(client_context(files))
    connected(engine, client)
    other = client_context(files)
    other.set_ecdh_curve("X25519")
    with pytest.raises(ssl.SSLError, match="NO_SUITABLE_KEY_SHARE"):
        connected(TlsEngine(context_of(files)), Client(other))


@pytest.mark.parametrize("groups", [b"ffdhe8192", b"ffdhe2048:ffdhe8192", b"P-521"])
def test_a_client_of_slow_groups_alone_is_refused_at_once(files: Files, groups: bytes) -> None:
    client = Client(with_groups(client_context(files), groups))
    client.shake_hands()  # Its own keys take long.
    engine = TlsEngine(context_of(files))
    engine.receive(client.outgoing.read())
    began_s = process_time()
    with pytest.raises(ssl.SSLError, match="NO_SUITABLE_KEY_SHARE"):
        engine.shake_hands()
    assert process_time() - began_s < SOON_S


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_is_resumed(files: Files, version: ssl.TLSVersion) -> None:
    context, theirs, kept = context_of(files), client_context(files, version), []
    session = None
    for _ in range(3):
        engine, client = TlsEngine(context), Client(theirs, session)
        connected(engine, client)
        assert engine.is_established
        assert not client.tls.session_reused
        kept.append((engine, client))
        session = client.tls.session
        assert session is None or not session.has_ticket


def test_a_client_that_renegotiates_is_refused(files: Files) -> None:
    context = context_of(files)
    context.options |= ALLOW_CLIENT_RENEGOTIATION  # As OpenSSL before 3 does by itself.
    engine, client = TlsEngine(context), Client(client_context(files, ssl.TLSVersion.TLSv1_2))
    connected(engine, client)
    ask_to_renegotiate(client)
    hello = client.outgoing.read()
    assert len(hello) > HELLO_BYTES_MIN
    engine.receive(hello)
    assert engine.read_into(memoryview(bytearray(10))) == 0
    answer = engine.take_sent()
    assert 0 < len(answer) < HELLO_BYTES_MIN  # An alert, and nothing of a handshake.
    client.incoming.write(answer)
    with pytest.raises(ssl.SSLError, match="NO_RENEGOTIATION"):
        client.read()


def test_clients_get_the_certificates_of_the_key_store_and_no_others(files: Files) -> None:
    client = Client(client_context(files))
    connected(TlsEngine(context_of(files)), client)
    inner: Any = client.tls
    assert len(inner._sslobj.get_unverified_chain()) == 1


def test_a_version_that_is_not_enabled_is_refused(files: Files) -> None:
    client = Client(client_context(files, ssl.TLSVersion.TLSv1_2))
    with pytest.raises(ssl.SSLError):
        connected(TlsEngine(context_of(files, versions="TLSv1.3")), client)


def test_a_clients_certificate_is_known_once_it_is_verified(files: Files) -> None:
    context = context_of(files, "required")
    engine, client = TlsEngine(context), Client(client_context(files, certificate=files.client))
    connected(engine, client)
    assert b"alice" in (engine.peer_certificate() or b"")


def test_a_client_without_a_certificate_is_refused_where_one_is_required(files: Files) -> None:
    with pytest.raises(ssl.SSLError):
        connected(TlsEngine(context_of(files, "required")), Client(client_context(files)))
    engine = TlsEngine(context_of(files, "requested"))
    connected(engine, Client(client_context(files)))
    assert engine.is_established
    assert engine.peer_certificate() is None


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_certificate_of_another_authority_is_refused(files: Files, client_auth: str) -> None:
    client = Client(client_context(files, certificate=files.foreign))
    with pytest.raises(ssl.SSLError):
        connected(TlsEngine(context_of(files, client_auth)), client)


def test_both_sides_see_the_end(files: Files) -> None:
    engine, client = TlsEngine(context_of(files)), Client(client_context(files))
    connected(engine, client)
    engine.end()
    client.incoming.write(engine.take_sent())
    assert client.tls.read(1) == b""
    client.tls.unwrap()
    engine.receive(client.outgoing.read())
    assert engine.read_into(memoryview(bytearray(10))) == -1


def test_a_turn_reads_a_bounded_number_of_records(files: Files) -> None:
    engine, client = TlsEngine(context_of(files)), Client(client_context(files))
    connected(engine, client)
    for _ in range(READS_MAX + 10):
        client.tls.write(b"x")
    engine.receive(client.outgoing.read())
    view = memoryview(bytearray(10_000))
    assert engine.read_into(view) == READS_MAX
    assert not engine.is_drained
    assert engine.read_into(view) == 10
    assert engine.is_drained


def test_a_flood_of_new_keys_is_read_a_few_records_a_turn(files: Files) -> None:
    engine, client = TlsEngine(context_of(files)), Client(client_context(files))
    connected(engine, client)
    turns, count = 3, 3 * KEYS_MAX
    for _ in range(count):
        ask_for_new_keys(client)
    client.tls.write(b"data")
    engine.receive(client.outgoing.read())
    view = memoryview(bytearray(100))
    for turn in range(1, turns + 1):
        assert engine.read_into(view) == 0
        assert not engine.is_drained
        assert 0 < engine.unsent_bytes <= turn * KEYS_MAX * 32
    assert engine.read_into(view) == len(b"data")


def test_garbage_raises_only_ssl_errors(files: Files) -> None:
    context, random = context_of(files), Random(2)
    for _ in range(200):
        engine = TlsEngine(context)
        engine.receive(random.randbytes(random.randrange(1, 300)))
        try:
            engine.shake_hands()
        except ssl.SSLError:
            continue
        assert not engine.is_established


def test_a_handshake_that_is_cut_waits(files: Files) -> None:
    client = Client(client_context(files))
    client.shake_hands()
    hello = client.outgoing.read()
    for end in range(0, len(hello), 11):
        engine = TlsEngine(context_of(files))
        engine.receive(hello[:end])
        engine.shake_hands()
        assert not engine.is_established
