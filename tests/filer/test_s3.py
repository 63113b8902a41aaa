"""The conformance suite on S3 as moto plays it, and what only S3 can get wrong."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random

import pytest

from smq.filer import s3
from smq.filer.location import OWN_CREDENTIALS
from smq.filer.s3 import IF_MATCH_BYTES_MAX, PROBES, S3Store, Unfit
from smq.filer.s3_uploads import PART_BYTES, Access
from smq.filer.store import CREATE, OVERWRITE, IfMatch, Mode, Store
from smq.model.errors import AlreadyExists, NotFound, PreconditionFailed, StoreError, Unavailable
from smq.testing.faulty_store import Flaky, Patient, Slow, Torn
from smq.testing.s3_server import BUCKET, S3Server, s3_server, store_on
from smq.testing.store_suite import StoreTests

LONG = bytes(range(256)) * (2 * PART_BYTES // 256 + 5)
AWAY: Access = {
    "endpoint": "http://127.0.0.1:9",
    "region": "us-east-1",
    "access_key_id": "x",
    "secret_access_key": "x",
}
_prefixes = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def store(server: S3Server) -> S3Store:
    return store_on(server, f"tests/{next(_prefixes)}")


class TestS3Store(StoreTests):
    @pytest.fixture
    def store(self, store: S3Store) -> S3Store:
        return store


class TestSlowS3(StoreTests):
    @pytest.fixture
    def store(self, store: S3Store) -> Store:
        return Slow(store, lambda: None)


class TestPatientAroundFlakyS3(StoreTests):
    @pytest.fixture
    def store(self, store: S3Store) -> Store:
        return Patient(Flaky(store, Random(1)))


class TestPatientAroundTornS3(StoreTests):
    @pytest.fixture
    def store(self, store: S3Store) -> Store:
        return Patient(Torn(store, Random(1)))


def unfinished(store: S3Store) -> list[str]:
    """What nobody sees who lists objects: uploads, and what probes left."""
    uploads = [upload.key for upload in store.uploads.unfinished()]
    return uploads + [facts.key for facts in store._listed(f"{PROBES}/", "")]


@pytest.mark.parametrize("mode", [CREATE, OVERWRITE])
def test_a_long_object_goes_in_parts_and_leaves_only_itself(store: S3Store, mode: Mode) -> None:
    with store.writing("a/long", mode) as sink:
        for at in range(0, len(LONG), 3_000_001):
            sink.write(LONG[at : at + 3_000_001])
    assert store.get("a/long") == LONG
    assert store.get("a/long", PART_BYTES - 3, 7) == LONG[PART_BYTES - 3 : PART_BYTES + 4]
    assert unfinished(store) == []


def test_a_long_object_is_created_once(store: S3Store) -> None:
    store.put("a/long", b"first")
    with pytest.raises(AlreadyExists):
        store.put("a/long", LONG)
    assert store.get("a/long") == b"first"
    assert store.put("a/long", LONG, OVERWRITE).length == len(LONG)
    assert unfinished(store) == []


def test_a_long_stream_that_fails_leaves_nothing(store: S3Store) -> None:
    def write_and_fail() -> None:
        with store.writing("a/long") as sink:
            sink.write(LONG)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()
    assert list(store.list()) == []
    assert unfinished(store) == []


def test_a_long_object_replaces_a_version_up_to_a_bound(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = store.put("a/b", b"x").version
    version = store.put("a/b", LONG, IfMatch(version)).version
    assert store.get("a/b") == LONG
    monkeypatch.setattr("smq.filer.s3.IF_MATCH_BYTES_MAX", len(LONG) - 1)
    with pytest.raises(StoreError, match=f"at most {len(LONG) - 1} bytes"):
        store.put("a/b", LONG, IfMatch(version))
    assert IF_MATCH_BYTES_MAX > PART_BYTES


def test_of_many_that_create_at_once_exactly_one_wins(store: S3Store) -> None:
    def wins(number: int) -> bool:
        try:
            store.put("a/b", bytes([number]))
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(wins, range(8))) == 1


def test_an_unfinished_upload_is_swept_when_untouched_since_the_last_sweep(store: S3Store) -> None:
    """Data fault 8: the server's clock tells that an upload goes on, not how old it is."""
    store.put("a/b", b"x")
    store.put_whole(f"{PROBES}/of-somebody", b"1", OVERWRITE)
    store.uploads.send(store.uploads.begin("a/c"), 1, b"half")
    store.uploads.begin("a/nothing")
    idle = store.sweep()
    assert len(idle) == 3
    assert store.sweep({name: touched_ms - 1 for name, touched_ms in idle.items()}) == idle
    assert store.sweep(idle) == {}
    assert unfinished(store) == []
    assert [facts.key for facts in store.list()] == ["a/b"]


def test_two_prefixes_of_a_bucket_do_not_see_each_other(server: S3Server, store: S3Store) -> None:
    other = store_on(server, f"tests/{next(_prefixes)}/")
    store.put("a/b", b"x")
    assert list(other.list()) == []
    with pytest.raises(NotFound):
        other.get("a/b")


@pytest.mark.parametrize(("prefix", "after"), [("../", ""), (".", ""), ("a/", "a/."), ("", "//")])
def test_a_list_takes_any_text(store: S3Store, prefix: str, after: str) -> None:
    store.put("a/b", b"x")
    expected = [] if prefix.startswith(".") else ["a/b"]
    assert [facts.key for facts in store.list(prefix, after)] == expected


def test_more_than_one_request_lists(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smq.filer.s3.LIST_CHUNK", 3)
    keys = [f"a/{number:02}" for number in range(10)]
    for key in keys:
        store.put(key, b"")
    assert [facts.key for facts in store.list("a/", "a/04")] == keys[5:]


def test_a_bucket_that_is_not_there_is_unavailable_and_named(server: S3Server) -> None:
    store = S3Store("no-such-bucket", "", {**AWAY, "endpoint": server.endpoint})
    calls: list[Callable[[], object]] = [
        lambda: store.put("a", b"x"),
        lambda: list(store.list()),
        lambda: store.get("a"),
        lambda: store.get("a", 1, 2),
        lambda: store.head("a"),
        lambda: store.delete("a"),
        store.probe,
    ]
    for call in calls:
        with pytest.raises(Unavailable, match="s3://no-such-bucket"):
            call()


def test_a_server_that_is_away_is_unavailable_and_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "STREAM_PATIENCE_S", 1.0)
    store = S3Store(BUCKET, "", AWAY)
    with pytest.raises(Unavailable) as caught:
        store.put("a", b"x")
    assert "127.0.0.1:9" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(Unavailable):
        store.get("a")
    with pytest.raises(Unavailable), store.writing("a") as sink:
        sink.write(LONG)


@pytest.mark.parametrize("endpoint", ["nobody", "a server without the bucket"])
def test_an_error_message_does_not_depend_on_the_key(server: S3Server, endpoint: str) -> None:
    access = AWAY if endpoint == "nobody" else {**AWAY, "endpoint": server.endpoint}
    store = S3Store("no-such-bucket", "", access)
    for write in (store.put, lambda key, _: store.uploads.begin(key)):
        said = []
        for key in ("a/b", "c/d"):
            with pytest.raises(Unavailable) as caught:
                write(key, b"x")
            said.append(caught.value.message)
        assert said[0] == said[1]


def test_without_keys_it_is_said_that_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OWN_CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    store = S3Store(BUCKET, "", {"endpoint": "http://127.0.0.1:9", "region": "us-east-1"})
    with pytest.raises(Unavailable, match="no keys were found"):
        store.put("a", b"x")


def test_a_store_that_creates_once_is_fit(store: S3Store) -> None:
    store.probe()
    assert unfinished(store) == []


@pytest.mark.parametrize("ignored", ["put_whole", "put_in_parts"])
def test_a_store_that_replaces_what_it_should_create_is_refused(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    monkeypatch.setattr(store, ignored, lambda *_: None)
    with pytest.raises(Unfit, match="ignores If-None-Match"):
        store.probe()


def test_a_write_over_a_stale_version_is_refused_where_there_is_nothing(store: S3Store) -> None:
    with pytest.raises(PreconditionFailed):
        store.put("a/b", b"x", IfMatch('"0"'))


def test_importing_it_does_not_import_the_libraries_with_their_threads() -> None:
    program = "import sys, smq.filer.s3; print({'obstore', 'botocore'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
