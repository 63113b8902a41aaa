"""Uploads to S3 that break, in every way a network or a process can, and are gone on with."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from smq.filer import s3, s3_uploads
from smq.filer.content import Content, SourceChanged, crc_of
from smq.filer.s3 import S3Store
from smq.filer.s3_uploads import (
    OBJECT_BYTES_MAX,
    PART_BYTES,
    PARTS_MAX,
    Access,
    Away,
    MiB,
    Patience,
    Unfinished,
    UploadLost,
    Uploads,
    md5_of,
    part_bytes_for,
    version_of,
)
from smq.filer.store import OVERWRITE
from smq.filer.upload import Naming, upload_file
from smq.model.errors import AlreadyExists, StoreError, Unavailable
from smq.testing.s3_server import BUCKET, REGION, S3Server, s3_server, store_on
from tests.app.fake_broker import eventually
from tests.filer.cable import Cable, cut_short
from tests.filer.killed_upload import upload_and_be_killed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTS = 6
DATA = Random(1).randbytes(PARTS * PART_BYTES - 1000)
KEYS: Access = {"region": REGION, "access_key_id": "test", "secret_access_key": "test"}
UPLOAD = f"""
from pathlib import Path
from smq.filer.s3 import S3Store
from smq.filer.upload import Naming, upload_file
endpoint, prefix, path = sys.argv[1:]
access = {{"endpoint": endpoint, **{KEYS}}}
naming = Naming("kafka", "scans", "image/tiff", 1_000, bytes(10), lately_ms=500)
upload_file(S3Store("{BUCKET}", prefix, access), naming, Path(path))
"""
_prefixes = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"uploads/{next(_prefixes)}"


@pytest.fixture
def store(server: S3Server, prefix: str) -> S3Store:
    return store_on(server, prefix)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def sent(server: S3Server) -> Callable[[], list[int]]:
    """The numbers of the parts that were sent in this test, in order."""
    before = len(server.parts_sent())
    return lambda: sorted(server.parts_sent()[before:])


@pytest.fixture
def cable(server: S3Server) -> Iterator[Cable]:
    with Cable(server.port) as cable:
        yield cable


def naming(now_ms: int = 1_400, chance: bytes = b"again" * 2) -> Naming:
    return Naming("kafka", "scans", "image/tiff", now_ms, chance, lately_ms=500)


def upload(store: S3Store, key: str = "a/b", data: bytes = DATA) -> str:
    """Any unfinished upload beside the key is gone on with."""
    return store.upload(key, Content.of_memory(memoryview(data)), lambda _: True)


def begun(store: S3Store, key: str, *numbers: int, data: bytes = DATA) -> Unfinished:
    """An upload that somebody has begun, and sent these parts of."""
    begun = store.uploads.begin(key)
    for number in numbers:
        store.uploads.send(begun, number, data[(number - 1) * PART_BYTES : number * PART_BYTES])
    return begun


def nothing_is_unfinished(store: S3Store) -> bool:
    return not list(store.uploads.unfinished())


def test_parts_sent_by_a_killed_process_are_not_sent_again(
    server: S3Server, store: S3Store, prefix: str, path: Path, sent: Callable[[], list[int]]
) -> None:
    arguments = [server.endpoint, prefix, str(path)]
    upload_and_be_killed(UPLOAD, arguments, path.parent, 3, lambda: sent() == [1, 2, 3])
    assert list(store.list()) == []
    reference = upload_file(store, naming(), path)
    assert sent() == list(range(1, PARTS + 1))
    assert (reference.length, reference.content_type) == (len(DATA), "image/tiff")
    assert store.get(f"payloads/kafka/scans/{reference.id}") == DATA
    assert reference.id.startswith(f"{1_000:012x}"), "it has the name it had"
    assert nothing_is_unfinished(store)


@pytest.mark.parametrize("change", ["another topic", "other bytes", "long ago"])
def test_an_upload_of_something_else_is_left_alone(
    store: S3Store, path: Path, change: str, sent: Callable[[], list[int]]
) -> None:
    first = naming(1_000).reference(len(DATA), crc_of(DATA))
    begun(store, naming().key(first), 1, 2)
    if change == "other bytes":
        path.write_bytes(DATA[:-1] + b"!")
    other = {
        "another topic": Naming("kafka", "other", "x/y", 1_400, bytes(10), lately_ms=500),
        "long ago": naming(1_500),
    }
    reference = upload_file(store, other.get(change, naming()), path)
    assert sent() == sorted([1, 2, *range(1, PARTS + 1)])
    assert reference.id != first.id
    assert len(list(store.uploads.unfinished())) == 1


def test_a_part_that_is_not_what_it_should_be_is_sent_again(
    store: S3Store, sent: Callable[[], list[int]]
) -> None:
    begun(store, "a/a", 1)
    begun(store, "a/a", data=DATA)
    wrong = next(store.uploads.unfinished("a/"))
    store.uploads.send(wrong, 2, bytes(PART_BYTES))
    store.uploads.send(wrong, PARTS + 1, b"more than there should be")
    assert upload(store) == "a/a"
    assert sent() == sorted([2, PARTS + 1, 1, *range(2, PARTS + 1)])
    assert store.get("a/a") == DATA


def test_where_an_upload_has_become_an_object_already_another_is_begun(store: S3Store) -> None:
    begun(store, "a/a", 1)
    store.put("a/a", b"whole", OVERWRITE)
    assert upload(store) == "a/b"
    assert store.get("a/b") == DATA
    assert nothing_is_unfinished(store)


@pytest.mark.parametrize("length", [100, len(DATA)])
def test_of_what_changes_while_it_is_sent_nothing_stays(store: S3Store, length: int) -> None:
    reads = iter([DATA[:length], b""])
    content = Content("a.bin", lambda _, size: next(reads, bytes(size)))
    with pytest.raises(SourceChanged):
        store.upload("a/b", content, lambda _: True)
    assert list(store.list()) == []
    assert nothing_is_unfinished(store)


def test_a_network_that_is_gone_for_a_while_costs_what_was_on_its_way(
    cable: Cable, prefix: str, store: S3Store, sent: Callable[[], list[int]]
) -> None:
    far = S3Store(BUCKET, prefix, {"endpoint": cable.endpoint, **KEYS})
    with ThreadPoolExecutor(1) as thread:
        uploading = thread.submit(upload, far)
        eventually(lambda: bool(sent()), "a part is sent")
        cable.cut()
        before = set(sent())
        cable.mend()
        assert uploading.result(60) == "a/b"
    assert set(sent()) == set(range(1, PARTS + 1))
    assert len(sent()) <= PARTS + s3.UPLOAD_PARTS_AT_ONCE
    assert before
    assert store.get("a/b") == DATA


def test_an_answer_that_was_cut_short_is_no_answer() -> None:
    upload = Unfinished("a/b", "id", 0)
    asks: list[Callable[[], object]] = [
        lambda: uploads.begin("a/b"),
        lambda: list(uploads.unfinished()),
        lambda: uploads.parts(upload),
        lambda: uploads.send(upload, 1, b"x"),
        lambda: uploads.complete(upload, ["tag"], create=True),
    ]
    with cut_short() as endpoint:
        uploads = Uploads(BUCKET, "x", {"endpoint": endpoint, **KEYS})
        for ask in asks:
            with pytest.raises(Away):
                ask()


def test_a_server_that_hangs_is_asked_again(
    server: S3Server, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_uploads, "REQUEST_WAIT_S", 0.3)
    asked = count()
    send = store.uploads.send

    def counted(*of: Any) -> str:
        next(asked)
        return send(*of)

    monkeypatch.setattr(store.uploads, "send", counted)
    server.hang()
    with ThreadPoolExecutor(1) as thread:
        uploading = thread.submit(upload, store)
        try:
            with pytest.raises(TimeoutError):
                uploading.result(1)
        finally:
            server.go_on()
        assert uploading.result(60) == "a/b"
    assert store.get("a/b") == DATA


def test_a_server_that_stays_away_is_unavailable_and_what_it_has_is_used_later(
    cable: Cable,
    prefix: str,
    store: S3Store,
    sent: Callable[[], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "UPLOAD_PATIENCE_S", 0.2)
    far = S3Store(BUCKET, prefix, {"endpoint": cable.endpoint, **KEYS})
    send = far.uploads.send

    def cut_after_two(upload: Unfinished, number: int, data: bytes) -> str:
        if number == 3:
            eventually(lambda: sent() == [1, 2], "two are sent")
            cable.cut()
        if number > 3:
            eventually(lambda: sent() == [1, 2], "two are sent")
        return send(upload, number, data)

    monkeypatch.setattr(far.uploads, "send", cut_after_two)
    with pytest.raises(Unavailable, match="s3://"):
        upload(far)
    assert sent() == [1, 2]
    assert upload(store, "a/c") == "a/b"
    assert sent() == list(range(1, PARTS + 1))


def test_an_upload_that_somebody_ended_meanwhile_is_begun_anew(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = begun(store, "a/a", 1)
    parts = store.uploads.parts

    def end_it(upload: Unfinished) -> dict[int, Any]:
        found = parts(upload)
        if upload.id == others.id:
            store.uploads.abort(upload)
        return found

    monkeypatch.setattr(store.uploads, "parts", end_it)
    assert upload(store) == "a/b"
    assert store.get("a/b") == DATA
    assert nothing_is_unfinished(store)


def test_two_that_go_on_with_the_same_upload_both_have_it_done(store: S3Store) -> None:
    begun(store, "a/a", 1)
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(upload, store, f"a/{name}") for name in "bc"]
        keys = {each.result(60) for each in both}
    assert all(store.get(key) == DATA for key in keys)
    assert nothing_is_unfinished(store)


@pytest.mark.parametrize("step", ["send", "complete"])
def test_an_upload_completed_by_another_process_counts_as_done(
    server: S3Server, store: S3Store, prefix: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = store_on(server, prefix)
    ours = getattr(store.uploads, step)

    def is_overtaken(*of: Any, **named: Any) -> Any:
        monkeypatch.setattr(store.uploads, step, ours)
        assert upload(other, "a/c") == "a/b"
        return ours(*of, **named)

    monkeypatch.setattr(store.uploads, step, is_overtaken)
    assert upload(store) == "a/b"
    assert [facts.key for facts in store.list()] == ["a/b"]
    assert store.get("a/b") == DATA


def test_a_changed_source_leaves_the_uploads_of_others(store: S3Store) -> None:
    others = begun(store, "a/a", 1)
    reads = iter([DATA, b"", DATA[:PART_BYTES]])
    content = Content("a.bin", lambda _, size: next(reads, bytes(size)))
    with pytest.raises(SourceChanged):
        store.upload("a/b", content, lambda _: True)
    assert 1 in store.uploads.parts(others)
    assert upload(store) == "a/a"
    assert store.get("a/a") == DATA


def test_uploads_of_one_process_do_not_meet(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = store.uploads.complete

    def beside_another(*of: Any, **named: Any) -> None:
        monkeypatch.setattr(store.uploads, "complete", complete)
        assert upload(store, "a/c") == "a/c"
        complete(*of, **named)

    monkeypatch.setattr(store.uploads, "complete", beside_another)
    assert upload(store) == "a/b"
    assert [facts.key for facts in store.list()] == ["a/b", "a/c"]


def test_an_answer_that_was_lost_is_found_in_what_is_there(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = store.uploads.complete
    for error in (UploadLost, AlreadyExists):
        answers = iter([None, error("a", "as S3 says to who asks again")])

        def lose_the_answer(*of: Any, answers: Iterator[Any] = answers, **named: Any) -> None:
            if (reason := next(answers)) is not None:
                raise reason
            complete(*of, **named)
            raise Away("a", "the connection is broken")

        monkeypatch.setattr(store.uploads, "complete", lose_the_answer)
        key = f"a/{error.__name__}"
        with store.writing(key) as sink:
            sink.write(DATA)
        assert store.get(key) == DATA


def test_the_version_of_parts_that_are_not_called_by_their_md5_is_not_known() -> None:
    assert version_of(["0" * 32]) == '"4ae71336e44bf9bf79d2752e234818a5-1"'
    assert version_of(["0" * 32, "a word of the server's"]) is None


def test_an_object_created_by_another_process_raises_already_exists(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = store.uploads.complete

    def meets_another(*of: Any, **named: Any) -> None:
        monkeypatch.setattr(store.uploads, "complete", complete)
        store.put("a/b", b"of another", OVERWRITE)
        raise Away("a", "the connection is broken")

    monkeypatch.setattr(store.uploads, "complete", meets_another)
    with pytest.raises(AlreadyExists):
        store.put("a/b", DATA)
    assert store.get("a/b") == b"of another"
    assert nothing_is_unfinished(store)


def test_a_stream_whose_upload_was_ended_says_so(store: S3Store) -> None:
    def write_and_lose() -> None:
        with store.writing("a/b") as sink:
            sink.write(DATA)
            for each in list(store.uploads.unfinished()):
                store.uploads.abort(each)

    with pytest.raises(Unavailable, match="another process ended the unfinished upload"):
        write_and_lose()


def test_an_upload_without_permission_to_list_sends_all_parts(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, sent: Callable[[], list[int]]
) -> None:
    begun(store, "a/a", 1)

    def forbidden(_prefix: str = "") -> Iterator[Unfinished]:
        raise Unavailable("a", "AccessDenied")

    monkeypatch.setattr(store.uploads, "unfinished", forbidden)
    assert upload(store) == "a/b"
    assert sent() == [1, *range(1, PARTS + 1)]


def test_an_upload_is_swept_when_nothing_has_come_of_it_for_long(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 8: S3's clock is not compared with ours."""
    slow = begun(store, "a/a", 1)
    [found] = store.uploads.unfinished()
    long_ago = found._replace(begun_ms=0)  # It is slow: its part is new.
    monkeypatch.setattr(store.uploads, "unfinished", lambda: iter([long_ago]))
    there = store.sweep()
    assert there.keys() == {found.id}
    assert there[found.id] > 0
    assert store.sweep({found.id: 0}) == there
    assert list(store.uploads.parts(slow)) == [1]
    assert store.sweep(there) == {}
    with pytest.raises(UploadLost):
        store.uploads.parts(slow)


def test_an_upload_that_went_during_the_sweep_is_no_error(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = begun(store, "a/a")._replace(begun_ms=0)
    store.uploads.abort(gone)
    store.uploads.abort(gone)
    monkeypatch.setattr(store.uploads, "unfinished", lambda: iter([gone]))
    assert store.sweep() == {}


def test_patience_ends_and_counts_from_the_last_answer() -> None:
    def away() -> None:
        raise Away("a", "nobody is there")

    with pytest.raises(Away):
        Patience(0).ask(away)
    ended = Patience(1e9)
    ended.end()
    with pytest.raises(Away):
        ended.ask(away)
    answers: Iterator[Away | int] = iter([Away("a", "busy"), Away("a", "busy"), 7])

    def sometimes() -> int:
        answer = next(answers)
        if isinstance(answer, Away):
            raise answer
        return answer

    assert Patience(60).ask(sometimes) == 7


@given(st.integers(1, OBJECT_BYTES_MAX))
def test_every_object_has_parts_that_s3_takes(length: int) -> None:
    part_bytes = part_bytes_for(length)
    assert part_bytes >= PART_BYTES
    assert part_bytes % MiB == 0
    assert -(-length // part_bytes) <= PARTS_MAX


def test_an_object_that_is_too_long_is_refused_before_it_is_sent(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "OBJECT_BYTES_MAX", 10)
    monkeypatch.setattr(s3, "STREAM_BYTES_MAX", 10)
    with pytest.raises(StoreError, match="an object has at most 10 bytes"):
        upload(store)
    with pytest.raises(StoreError, match="a stream has at most 10 bytes"):
        store.put("a/b", DATA)
    assert nothing_is_unfinished(store)


def test_keys_that_were_given_need_no_profile(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "of-nobody")
    uploads = Uploads(BUCKET, "x", {"endpoint": server.endpoint, **KEYS})
    assert list(uploads.unfinished()) == []
    assert uploads.send(uploads.begin("a"), 1, b"x") == md5_of(b"x")
    with pytest.raises(Unavailable, match="of-nobody"):
        list(Uploads(BUCKET, "x", {"endpoint": server.endpoint}).unfinished())


def test_a_bucket_and_keys_that_are_not_there_are_named(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable, match="there is no bucket s3://nowhere/x"):
        Uploads("nowhere", "x", {"endpoint": server.endpoint, **KEYS}).begin("a")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Unavailable, match="no keys were found"):
        Uploads(BUCKET, "x", {"endpoint": server.endpoint}).begin("a")
