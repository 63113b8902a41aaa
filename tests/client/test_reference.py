"""Payloads as a client sees them: mapped here, downloaded from elsewhere, verified once."""

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smq.client.errors import PayloadDamaged, PayloadMissing
from smq.client.facts import BrokerFacts
from smq.client.reference import (
    RANGE_BYTES,
    InlinePayload,
    Payload,
    Payloads,
    PayloadSpace,
    Source,
    StoredPayload,
)
from smq.client.remote_filer import RemoteFiler
from smq.client.secure.security import Security, TlsFiles
from smq.filer.local import LocalStore
from smq.filer.mark import mark
from smq.filer.store import Store
from smq.filer.upload import UploadTarget
from smq.model.errors import Full, Unavailable
from smq.model.references import HEADER, HEADER_VALUE, LENGTH_MAX, NotAHandle, Reference
from smq.testing.memory_store import MemoryStore
from smq.testing.payloads import uploaded

HANDLE = {HEADER: HEADER_VALUE}
LARGE = bytes(range(256)) * (RANGE_BYTES // 256) + b"and a rest"


@pytest.fixture(params=["local", "elsewhere"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "filer") if request.param == "local" else MemoryStore()


def stored(store: Store, data: bytes) -> tuple[StoredPayload, str]:
    """A payload in the filer, and its key."""
    reference = uploaded(store, "images", data)
    key = reference.key("images")
    return StoredPayload(PayloadSpace.of(store, "images"), reference), key


@pytest.mark.parametrize("data", [b"", b"payload", LARGE], ids=["empty", "small", "large"])
def test_a_payload_is_all_its_bytes(store: Store, data: bytes, tmp_path: Path) -> None:
    payload, _ = stored(store, data)
    view = payload.view()
    assert view == data
    assert view.readonly
    assert payload.view() is view
    assert (len(payload), bytes(payload)) == (len(data), data)
    payload.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == data
    assert (payload.path is not None) == isinstance(store, LocalStore)
    assert "text/plain" in repr(payload)


def test_a_range_is_read_without_the_rest(store: Store) -> None:
    payload, _ = stored(store, b"0123456789")
    assert payload.read(3, 4) == b"3456"
    assert payload.read(8, 100) == payload.read(8, 1 << 70) == b"89"
    assert payload.read(10) == payload.read(1 << 70) == payload.read(1 << 70, 1 << 70) == b""
    for start, length in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="neither may be negative"):
            payload.read(start, length)


@pytest.mark.parametrize("is_stored", [True, False])
def test_wrong_arguments_are_refused_by_name(tmp_path: Path, *, is_stored: bool) -> None:
    payload: Any = InlinePayload(b"payload", "text/plain")
    if is_stored:
        payload, _ = stored(LocalStore(tmp_path / "filer"), b"payload")
    for start in (None, 1.5, True, "1", np.ones(2, int)):
        with pytest.raises(TypeError, match="start is a whole number, not"):
            payload.read(start)
    with pytest.raises(TypeError, match="length is a whole number, not str"):
        payload.read(0, "1")
    with pytest.raises(TypeError, match="progress is a function, not int"):
        payload.view(5)
    with pytest.raises(TypeError, match="path is text or a path, not int"):
        payload.save(5)


def test_a_payload_is_not_saved_over_itself(tmp_path: Path) -> None:
    payload, _ = stored(LocalStore(tmp_path / "filer"), b"payload")
    assert payload.path is not None
    other_name = tmp_path / "link"
    other_name.symlink_to(payload.path)
    for path in (payload.path, other_name):
        with pytest.raises(ValueError, match="is the payload itself"):
            payload.save(path)
    assert payload.path.read_bytes() == b"payload"


def test_a_handle_that_lies_about_its_length_costs_no_memory() -> None:
    store = MemoryStore()
    reference = Reference.of(0, bytes(10), LENGTH_MAX, 0, "text/plain")
    payload = StoredPayload(PayloadSpace.of(store, "images"), reference)
    with pytest.raises(PayloadMissing):
        payload.view()
    store.put(reference.key("images"), b"payload")
    with pytest.raises(PayloadDamaged, match="shorter than its handle says"):
        payload.view()


def test_a_download_says_how_far_it_is() -> None:
    payload, _ = stored(MemoryStore(), LARGE)
    said: list[tuple[int, int]] = []
    payload.view(lambda done, total: said.append((done, total)))
    assert said == [(RANGE_BYTES, len(LARGE)), (len(LARGE), len(LARGE))]


def test_changed_bytes_raise_payload_damaged_at_first_use(store: Store) -> None:
    payload, key = stored(store, b"payload")
    store.put(key, b"payl0ad", "overwrite")
    assert bytes(payload.view(verify=False)) == b"payl0ad"
    with pytest.raises(PayloadDamaged, match="CRC-32C"):
        payload.view()


@pytest.mark.parametrize("data", [b"short", b"longer than that"])
def test_a_payload_of_another_length_raises_payload_damaged(store: Store, data: bytes) -> None:
    payload, key = stored(store, b"payload")
    store.put(key, data, "overwrite")
    if isinstance(store, LocalStore) or len(data) < 7:
        with pytest.raises(PayloadDamaged):
            payload.view()
    else:  # A download asks for no more than the handle says.
        with pytest.raises(PayloadDamaged, match="CRC-32C"):
            payload.view()


def test_a_deleted_payload_raises_payload_missing(store: Store) -> None:
    payload, key = stored(store, b"payload")
    store.delete(key)
    for use in (payload.view, payload.read):
        with pytest.raises(PayloadMissing):
            use()


def test_a_mapped_view_outlives_its_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    payload, key = stored(store, b"payload")
    view = payload.view()
    store.delete(key)
    assert bytes(view) == b"payload"


def test_a_value_is_its_own_payload() -> None:
    payload: Payload = InlinePayload(b"0123456789", "text/plain")
    said: list[tuple[int, int]] = []
    payload.view(lambda done, total: said.append((done, total)))
    assert bytes(payload) == b"0123456789"
    assert said == [(10, 10)]
    assert payload.read(2, 3) == b"234"
    assert payload.read(8, 1 << 70) == b"89"
    with pytest.raises(ValueError, match="neither may be negative"):
        payload.read(-1)
    assert (len(payload), payload.path) == (10, None)


# Finding the filer.


def payloads_at(root: Path, cluster_id: str = "ours") -> Payloads:
    return Payloads(lambda: BrokerFacts(cluster_id, {"filer.root": str(root)}))


def test_a_marked_directory_is_the_filer(tmp_path: Path) -> None:
    mark(tmp_path, "ours")
    payloads = payloads_at(tmp_path)
    reference = payloads.upload("images", b"payload", content_type="a/b")
    found = payloads.of("images", HANDLE, reference.handle())
    assert isinstance(found, StoredPayload)
    assert (bytes(found), found.content_type) == (b"payload", "a/b")


IN_TLS = Security(TlsFiles())
RECORDS = np.zeros(2, [("number", "i4"), ("name", "S3")])


@pytest.mark.parametrize(
    "source",
    [
        np.arange(3),
        np.zeros((0, 4)),
        np.array(5.0),
        np.array(["2026-11-22", "NaT"], "datetime64[D]"),
        RECORDS,
        np.zeros((2, 0)).data,
    ],
)
def test_an_array_in_one_piece_is_its_bytes(source: Source, tmp_path: Path) -> None:
    mark(tmp_path, "ours")
    payloads = payloads_at(tmp_path)
    found = payloads.of_handle("images", payloads.upload("images", source).handle())
    assert bytes(found) == np.asarray(source).tobytes()


OBJECTS = np.array([object(), "text"], object)


@pytest.mark.parametrize(
    "source",
    [
        OBJECTS,
        OBJECTS.data,
        np.zeros(2, [("number", "i4"), ("object", object)]),
        np.zeros(0, object),
        np.zeros(0, object).data,
        np.ma.masked_array([1, 2], [True, False]),
        np.arange(9)[::2],
        5,
    ],
)
def test_an_upload_of_bytes_not_in_one_piece_is_refused(source: Any, tmp_path: Path) -> None:
    mark(tmp_path, "ours")
    with pytest.raises(TypeError, match="it must be a path, a stream to read, or bytes in one"):
        payloads_at(tmp_path).upload("images", source)
    assert list(LocalStore(tmp_path).list()) == []


def test_an_upload_leaves_the_log_what_it_needs(tmp_path: Path) -> None:
    mark(tmp_path, "ours")
    settings = {"filer.root": str(tmp_path), "filer.reserve.bytes": str(1 << 60)}
    with pytest.raises(Full, match=r"filer\.reserve\.bytes"):
        Payloads(lambda: BrokerFacts("ours", settings)).upload("images", b"payload")


def test_a_directory_that_only_has_the_same_name_is_not(tmp_path: Path) -> None:
    mark(tmp_path, "another's")
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Unavailable, match=r"no http\.port to reach it"):
            payloads_at(root).upload("images", b"payload")


def test_a_bucket_is_reached_with_ones_own_keys() -> None:
    facts = BrokerFacts(
        "ours", {"filer.root": "s3://bucket/prefix", "filer.s3.region": "eu-west-1"}
    )
    store = Payloads(lambda: facts).store
    assert store.local_path("payloads/x") is None
    assert not isinstance(store, RemoteFiler)


def test_a_directory_of_another_host_is_reached_over_http(tmp_path: Path) -> None:
    facts = BrokerFacts("ours", {"filer.root": str(tmp_path), "http.port": "1"}, "127.0.0.1")
    payloads = Payloads(lambda: facts)
    assert isinstance(payloads.store, RemoteFiler)
    with pytest.raises(Unavailable, match="does not answer"):  # Nobody listens there.
        payloads.upload("images", b"payload")


def test_a_client_with_tls_sends_no_payload_by_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = str(listener.getsockname()[1])
        settings = {"filer.root": str(tmp_path), "http.port": port}
        payloads = Payloads(lambda: BrokerFacts("ours", settings, "127.0.0.1", IN_TLS))
        with pytest.raises(Unavailable, match="without encryption, and this client asks for TLS"):
            payloads.upload("images", b"payload")
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_login_goes_to_no_host_that_only_the_broker_names(tmp_path: Path) -> None:
    settings = {"filer.root": str(tmp_path), "http.port": "1", "http.security.protocol": "SSL"}
    login = Security(TlsFiles(), "PLAIN", "alice", "secret")
    facts = BrokerFacts("ours", settings, "127.0.0.2", login, is_configured=False)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.2, which only the broker names"):
        payloads_of(facts)
    assert isinstance(payloads_of(facts._replace(is_configured=True)), RemoteFiler)
    assert isinstance(payloads_of(facts._replace(security=IN_TLS)), RemoteFiler)


def payloads_of(facts: BrokerFacts) -> UploadTarget:
    return Payloads(lambda: facts).store


def test_a_records_payload_is_its_value_or_the_bytes_that_its_handle_names(tmp_path: Path) -> None:
    payloads = payloads_at(tmp_path)
    assert payloads.of("images", {}, None) is None
    plain = payloads.of("images", {"content-type": b"text/plain"}, b"value")
    assert plain is not None
    assert (bytes(plain), plain.content_type) == (b"value", "text/plain")
    for value in (None, b"no handle"):
        with pytest.raises(NotAHandle):
            payloads.of("images", HANDLE, value)


def test_a_handle_names_nothing_outside_its_topic(tmp_path: Path) -> None:
    mark(tmp_path, "ours")
    payloads = payloads_at(tmp_path)
    reference = payloads.upload("secret", b"payload")
    found = payloads.of("images", HANDLE, reference.handle())
    assert found is not None
    with pytest.raises(PayloadMissing):
        found.view()
    outside = Reference(f"../secret/{reference.id}", reference.length, reference.crc32c)
    with pytest.raises(NotAHandle):
        payloads.of("images", HANDLE, outside.handle())
