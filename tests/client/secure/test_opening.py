"""A socket in TLS is opened to the broker that was meant, and to no other."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from smq.cli.key_pairs import KeyPair
from smq.client.clock import SYSTEM_CLOCK
from smq.client.errors import AuthenticationFailed, ClosedUnanswered
from smq.client.kafka.cluster import PASSING
from smq.client.secure.opening import connected, in_tls
from smq.client.secure.security import TlsFiles
from tests.another_user import needs_root
from tests.client.fake_kafka import FakeKafka
from tests.client.secure.keys import BROKER, ELSEWHERE, EXPIRED, broker_context, files_in
from tests.shm.forks import forked

NOBODY = 65_534


def tls_files(path: str, *, checks_names: bool = True) -> TlsFiles:
    """Only this authority is trusted."""
    return TlsFiles((("ssl.truststore.location", path),), checks_names=checks_names)


def shake_hands(kafka: FakeKafka, files: TlsFiles, host: str = "localhost") -> None:
    """Open a connection, and close it."""
    port = int(kafka.bootstrap.split(",")[0].rpartition(":")[2])
    in_tls(connected("127.0.0.1", port, 5), host, files, 5, SYSTEM_CLOCK).close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_broker_proves_who_it_is(kafka: FakeKafka, tmp_path: Path, host: str) -> None:
    kafka.tls = broker_context(tmp_path)
    shake_hands(kafka, tls_files(files_in(tmp_path).authority), host)


@pytest.mark.parametrize(
    ("pair", "trusted", "said"),
    [
        (BROKER, "other", "; name the authority that has signed it"),
        (ELSEWHERE, "authority", "[Hh]ostname mismatch.*; use a host name of the certificate"),
        (EXPIRED, "authority", "has expired; the broker needs a certificate that is valid now"),
    ],
)
def test_another_broker_is_refused(
    kafka: FakeKafka, tmp_path: Path, pair: KeyPair, trusted: str, said: str
) -> None:
    kafka.tls = broker_context(tmp_path, pair)
    with pytest.raises(AuthenticationFailed, match=said):
        shake_hands(kafka, tls_files(getattr(files_in(tmp_path), trusted)))


def test_a_name_that_is_not_checked_may_be_another(kafka: FakeKafka, tmp_path: Path) -> None:
    kafka.tls = broker_context(tmp_path, ELSEWHERE)
    shake_hands(kafka, tls_files(files_in(tmp_path).authority, checks_names=False))


def test_a_broker_without_tls_is_refused(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"\0\0\0\4\0\0\0\1")
    with theirs, pytest.raises(AuthenticationFailed, match="no TLS"):
        in_tls(ours, "localhost", tls_files(files_in(tmp_path).authority), 5, SYSTEM_CLOCK)
    assert ours.fileno() < 0


def test_a_broker_that_ends_during_the_handshake_may_come_again(tmp_path: Path) -> None:
    """Programs ended with AuthenticationFailed because a broker was started anew."""
    ours, theirs = socket.socketpair()
    theirs.shutdown(socket.SHUT_WR)
    with theirs, pytest.raises(ClosedUnanswered, match=r"no TLS.* see whether") as end:
        in_tls(ours, "localhost", tls_files(files_in(tmp_path).authority), 5, SYSTEM_CLOCK)
    assert end.value.code in PASSING
    assert ours.fileno() < 0


def test_a_handshake_that_never_ends_is_given_up(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(TimeoutError):
        in_tls(ours, "localhost", tls_files(files_in(tmp_path).authority), 0.05, SYSTEM_CLOCK)
    assert ours.fileno() < 0


def test_a_file_that_is_gone_closes_the_socket(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with theirs, pytest.raises(AuthenticationFailed, match="cannot be read"):
        in_tls(ours, "localhost", tls_files(str(tmp_path / "none")), 5, SYSTEM_CLOCK)
    assert ours.fileno() < 0


@pytest.fixture
def unix_socket() -> Iterator[str]:
    """Somebody listens to it, and accepts nobody."""
    with TemporaryDirectory(prefix="smq-") as directory, socket.socket(socket.AF_UNIX) as listener:
        path = f"{directory}/one.sock"
        listener.bind(path)
        listener.listen(0)
        yield path


def test_a_unix_socket_is_an_address_only_where_its_owner_is_known(unix_socket: str) -> None:
    connected(unix_socket, 0, 5, os.getuid()).close()
    for port, owner in ((0, None), (9092, os.getuid())):
        with pytest.raises(OSError):  # noqa: PT011  (the resolver's own words)
            connected(unix_socket, port, 5, owner)


def test_a_unix_socket_without_room_is_given_up_in_time(unix_socket: str) -> None:
    with connected(unix_socket, 0, 5, os.getuid()), pytest.raises(BlockingIOError):
        connected(unix_socket, 0, 0.05, os.getuid())


@needs_root
def test_a_unix_socket_of_another_user_is_not_spoken_to(unix_socket: str) -> None:
    def listen_as_another() -> None:
        os.setuid(NOBODY)
        listener.listen()
        os.write(tell, b"1")
        listener.accept()[0].recv(1)

    ready, tell = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{unix_socket}.theirs")
        with forked(listen_as_another):
            os.read(ready, 1)
            with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
                connected(f"{unix_socket}.theirs", 0, 5, os.getuid())
        with forked(listen_as_another):
            os.read(ready, 1)
            connected(f"{unix_socket}.theirs", 0, 5, NOBODY).close()
    os.close(ready)
    os.close(tell)
