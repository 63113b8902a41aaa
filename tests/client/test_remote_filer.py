"""The filer over HTTP: uploads are whole or absent, and can be read in ranges."""

import os
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import smq
from smq.client import remote_filer
from smq.client.remote_filer import RemoteFiler
from smq.client.secure.security import Security, TlsFiles
from smq.client.secure.tokens import Callback
from smq.filer.local import LocalStore
from smq.filer.mark import NAME as MARK
from smq.filer.store import OVERWRITE
from smq.model.errors import AlreadyExists, Full, NotFound, StoreError, Unavailable
from smq.testing.payloads import reference_to
from smq.testing.smq_broker import SmqBroker
from smq.testing.stepped_clock import SteppedClock
from tests.client.silent_endpoint import SAID, silent_endpoint

if TYPE_CHECKING:
    from smq.client.reference import Payload

pytestmark = pytest.mark.timeout(60)
KEY = "images/ü b"
QUOTA_BYTES = 20_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    settings = {"http.port": "0", "filer.quota.bytes": str(QUOTA_BYTES)}  # Any: clients find it.
    with SmqBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


@pytest.fixture
def store(broker: SmqBroker) -> LocalStore:
    """The same filer, as the broker has it."""
    return LocalStore(broker.data_dir / "filer")


@pytest.fixture
def filer(broker: SmqBroker, store: LocalStore) -> Iterator[RemoteFiler]:
    host, _, port = broker.status().http.rpartition(":")
    yield RemoteFiler(host, int(port))
    store.delete(KEY)


def test_an_upload_appears_when_its_block_ends(filer: RemoteFiler, store: LocalStore) -> None:
    data = os.urandom(3_000_000)
    with filer.writing(KEY) as sink:
        for at in range(0, len(data), 700_000):
            sink.write(memoryview(data)[at : at + 700_000])
        sink.write(b"")
        with pytest.raises(NotFound):
            store.head(KEY)
    assert store.get(KEY) == filer.get(KEY) == data
    assert filer.get(KEY, 10, 5) == data[10:15]
    assert filer.get(KEY, len(data) - 3, 100) == data[-3:]
    assert filer.get(KEY, 5, 0) == filer.get(KEY, len(data) + 5, 1) == b""
    assert filer.local_path(KEY) is None


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def hang_up(connection: socket.socket) -> None:
    """As a process does that is killed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def put(filer: RemoteFiler) -> None:
    with filer.writing(KEY) as sink:
        sink.write(b"payload")


def test_nothing_is_replaced(filer: RemoteFiler) -> None:
    put(filer)
    with pytest.raises(AlreadyExists):
        put(filer)


def test_a_payload_that_is_there_gets_a_new_time(filer: RemoteFiler, store: LocalStore) -> None:
    """Use fault 7: `smq copy` brings it again, as the broker takes no handle of an old one."""
    key = reference_to(b"renewed").key("t")
    with pytest.raises(AlreadyExists), filer.writing(key, OVERWRITE) as sink:
        sink.write(b"renewed")  # It is not there.
    with filer.writing(key) as sink:
        sink.write(b"renewed")
    os.utime(store.root / key, (1, 1))
    with filer.writing(key, OVERWRITE) as sink:
        sink.write(b"renewed")
    assert store.head(key).modified_ms > 1000
    store.outdate(key)
    with pytest.raises(AlreadyExists, match="about to delete"), filer.writing(key, OVERWRITE):
        pass


def test_of_a_block_that_fails_nothing_stays(filer: RemoteFiler, store: LocalStore) -> None:
    def fail() -> None:
        with filer.writing(KEY) as sink:
            sink.write(b"begun")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(NotFound):
        store.head(KEY)
    for length in (None, 5, 0):
        with pytest.raises(NotFound):
            filer.get(KEY, 0, length)


def test_an_exception_of_the_source_is_raised_unchanged(filer: RemoteFiler) -> None:
    def fail() -> None:
        with filer.writing(KEY) as sink:
            sink.write(b"begun")
            raise OSError("the disk of the source")

    with pytest.raises(OSError, match="the disk of the source"):
        fail()


def test_a_filer_that_hangs_up_raises_unavailable(listener: socket.socket) -> None:
    def talk() -> None:
        with RemoteFiler("127.0.0.1", listener.getsockname()[1]).writing(KEY) as sink:
            hang_up(listener.accept()[0])
            sink.write(bytes(1_000_000))

    with pytest.raises(Unavailable, match="does not answer"):
        talk()


def test_a_full_filer_says_so(filer: RemoteFiler) -> None:
    def fill() -> None:
        with filer.writing(KEY) as sink:
            for _ in range(2 * QUOTA_BYTES // 1_000_000):
                sink.write(bytes(1_000_000))

    with pytest.raises(Full):
        fill()


def test_a_read_that_breaks_is_asked_for_again(listener: socket.socket) -> None:
    whole = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 7\r\n\r\npayload"
    busy = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"

    def answer() -> None:
        for said in (b"", whole[:-3], busy, whole):
            met, _ = listener.accept()
            met.recv(10_000)
            met.sendall(said)
            hang_up(met) if said != whole else met.close()

    with ThreadPoolExecutor() as pool:
        answered = pool.submit(answer)
        filer = RemoteFiler("127.0.0.1", listener.getsockname()[1])
        assert filer.get(KEY, 0, 7) == b"payload"
        answered.result(10)


def test_a_refusal_is_not_asked_for_again(filer: RemoteFiler) -> None:
    with pytest.raises(StoreError, match="answers 400") as told:
        filer.get("a\nb")
    assert not isinstance(told.value, Unavailable)


def test_a_silent_filer_raises_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_filer, "PATIENCE_S", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        nobody = RemoteFiler("127.0.0.1", listener.getsockname()[1])
        with pytest.raises(Unavailable, match="does not answer"):
            nobody.get(KEY)


def test_a_client_on_another_host_passes_by_reference(broker: SmqBroker, tmp_path: Path) -> None:
    path, data = tmp_path / "source", os.urandom(1_000_000)
    path.write_bytes(data)
    mark = broker.data_dir / "filer" / MARK
    hidden = mark.rename(mark.with_suffix(".hidden"))  # As where the path is another directory.
    with smq.connect(broker.bootstrap, transport="kafka") as client:
        client.create_topic("remote", 1)
        with client.producer() as producer:
            producer.send_reference("remote", path).result(10)
            producer.send_reference("remote", data).result(10)
        with client.consumer("remote", start="earliest") as consumer:
            payloads: list[Payload | None] = []
            while len(payloads) < 2:
                with consumer.poll(timeout_s=10) as batch:
                    payloads += [record.payload for record in batch]
        said: list[tuple[int, int]] = []
        for payload in payloads:
            assert payload is not None
            assert payload.path is None
            assert payload.read(7, 5) == data[7:12]
            assert payload.view(lambda *how_far: said.append(how_far)) == data
        assert said == [(len(data), len(data))] * 2
    hidden.rename(mark)


class Secured(RemoteFiler):
    """One that asks a plain listener of a test, as if it were its broker's."""

    def _connection(self) -> "closing[HTTPConnection]":
        return closing(HTTPConnection(self._host, self._port, timeout=20))


def asked_with(listener: socket.socket, filer: RemoteFiler) -> bytes:
    """The head of the request by which a client reads a payload, which is not there."""
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(filer.get, KEY)
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as said:
            head = b"".join(iter(said.readline, b"\r\n"))
            connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        with pytest.raises(NotFound):
            reading.result(20)
    return head


def test_a_token_is_shown_and_the_next_one_when_it_has_nearly_ended(
    listener: socket.socket,
) -> None:
    clock, tokens = SteppedClock(), [f"token-{n}" for n in range(9)]

    def callback(_config: str) -> tuple[str, float]:
        return tokens.pop(0), clock.wall_ms() / 1000 + 100

    security = Security(TlsFiles(), "OAUTHBEARER", tokens=Callback(callback))
    filer = Secured("127.0.0.1", listener.getsockname()[1], clock, security)
    for token in (b"token-0", b"token-0", b"token-1"):
        assert b"\r\nAuthorization: Bearer " + token + b"\r\n" in asked_with(listener, filer)
        clock.sleep(50)


def test_without_tls_no_token_is_asked_for(listener: socket.socket) -> None:
    assert b"Authorization" not in asked_with(listener, RemoteFiler(*listener.getsockname()))


def test_a_payload_cannot_be_reached_without_a_token(listener: socket.socket) -> None:
    security = Security(TlsFiles(), "OAUTHBEARER", tokens=Callback(lambda _: ("", 0.0)))
    filer = Secured("127.0.0.1", listener.getsockname()[1], SteppedClock(), security)
    with pytest.raises(StoreError, match="gives no token"):
        filer.get(KEY)
    with pytest.raises(StoreError, match="gives no token"):
        put(filer)


def test_a_silent_token_endpoint_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SteppedClock()
    security, waited = silent_endpoint(monkeypatch, clock)
    security = replace(security, tls=TlsFiles())
    filer = RemoteFiler("127.0.0.1", 1, clock, security, 2.0)
    with pytest.raises(Unavailable, match=SAID):
        filer.get(KEY)
    with pytest.raises(Unavailable, match=SAID):
        put(filer)
    assert waited == [2.0, 2.0]
