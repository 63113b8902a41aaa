"""Objects over HTTP, on stores in memory, in a directory and on S3."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest
from starlette.types import ASGIApp

from smq.filer.local import LocalStore
from smq.filer.store import OVERWRITE, Data, Facts, OpenObject, Store
from smq.front.files import LIST_LIMIT_MAX, PARTS_MAX
from smq.model.errors import Unavailable
from smq.security.acls import PatternType
from smq.testing.faulty_store import Flaky, Torn, Wrapper
from smq.testing.memory_store import MemoryStore
from smq.testing.payloads import reference_to
from smq.testing.s3_server import S3Server, s3_server, store_on
from smq.testing.store_suite import BAD_KEYS
from tests.front.asgi import Call, at_once, call, front

MiB = 1 << 20
PREFIXED = PatternType.PREFIXED
ROUNDS = 10  # Of a race, so that a mistake shows.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["memory", "local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        return store_on(request.getfixturevalue("server"), tmp_path.name)
    return MemoryStore(lambda: 1) if request.param == "memory" else LocalStore(tmp_path / "filer")


@pytest.fixture
def app(store: Store) -> ASGIApp:
    return front(store)


def test_an_object_is_returned_with_its_length_and_etag(app: ASGIApp, store: Store) -> None:
    put = call(app, "PUT", "/filer/docs/a", [b"he", b"", b"llo"])
    assert (put.status, put.json["key"], put.json["bytes"]) == (201, "docs/a", 5)
    assert put.headers["etag"] == put.json["etag"]
    got = call(app, "GET", "/filer/docs/a")
    assert (got.status, got.body) == (200, b"hello")
    assert got.headers["content-length"] == "5"
    assert got.headers["etag"] == put.json["etag"]
    assert got.headers["x-content-type-options"] == "nosniff"
    head = call(app, "HEAD", "/filer/docs/a")
    assert (head.status, head.body) == (200, b"")
    assert head.headers == got.headers
    assert store.get("docs/a") == b"hello"


def test_a_range_is_a_part_and_says_which(app: ASGIApp) -> None:
    call(app, "PUT", "/filer/docs/a", b"0123456789")
    part = call(app, "GET", "/filer/docs/a", range="bytes=3-5")
    assert (part.status, part.body) == (206, b"345")
    assert part.headers["content-range"] == "bytes 3-5/10"
    assert part.headers["content-length"] == "3"
    behind = call(app, "GET", "/filer/docs/a", range="bytes=10-")
    assert (behind.status, behind.headers["content-range"]) == (416, "bytes */10")
    assert call(app, "GET", "/filer/docs/a", range="bytes=0-1,3-4").body == b"0123456789"


@pytest.mark.parametrize("wanted", ["bytes=3-5", "bytes=10-"])
def test_a_range_means_nothing_to_a_head(app: ASGIApp, wanted: str) -> None:
    call(app, "PUT", "/filer/docs/a", b"0123456789")
    whole = call(app, "HEAD", "/filer/docs/a", range=wanted)
    assert (whole.status, whole.headers["content-length"]) == (200, "10")


def test_a_part_does_not_take_the_place_of_the_whole(app: ASGIApp, store: Store) -> None:
    call(app, "PUT", "/filer/docs/a", b"0123456789")
    part = call(app, "PUT", "/filer/docs/a", b"56789", content_range="bytes 5-9/10")
    assert (part.status, "the whole object" in part.json["error"]) == (400, True)
    assert store.get("docs/a") == b"0123456789"


def test_large_objects_pass_in_pieces(app: ASGIApp) -> None:
    data = Random(1).randbytes(3 * MiB + 17)
    pieces = [data[at : at + 60_000] for at in range(0, len(data), 60_000)]
    assert call(app, "PUT", "/filer/docs/a", pieces).status == 201
    assert call(app, "GET", "/filer/docs/a").body == data
    assert call(app, "GET", "/filer/docs/a", range="bytes=-1000001").body == data[-1000001:]


def test_reads_with_conditions(app: ASGIApp) -> None:
    tag = call(app, "PUT", "/filer/docs/a", b"x").json["etag"]
    same = call(app, "GET", "/filer/docs/a", if_none_match=tag)
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    assert call(app, "HEAD", "/filer/docs/a", if_none_match='"other"').status == 200
    assert call(app, "GET", "/filer/docs/a", if_match='"other"').status == 412
    assert call(app, "GET", "/filer/docs/a", if_match=tag).status == 200


def test_several_lines_of_a_condition_are_one_list(app: ASGIApp, store: Store) -> None:
    tag = call(app, "PUT", "/filer/docs/a", b"x").json["etag"]
    lines = f'"other"\n{tag}'
    assert call(app, "GET", "/filer/docs/a", if_none_match=lines).status == 304
    assert call(app, "GET", "/filer/docs/a", if_match=lines).status == 200
    assert call(app, "DELETE", "/filer/docs/a", if_none_match=lines).status == 412
    put = call(app, "PUT", "/filer/docs/a", b"y", if_match=lines)
    assert put.status == 200
    lines = f'"other"\n{put.json["etag"]}'
    assert call(app, "DELETE", "/filer/docs/a", if_match=lines).status == 204
    assert list(store.list()) == []


def test_puts_with_conditions(app: ASGIApp) -> None:
    first = call(app, "PUT", "/filer/docs/a", b"1", if_none_match="*")
    assert first.status == 201
    refused = call(app, "PUT", "/filer/docs/a", b"2", if_none_match="*")
    assert (refused.status, refused.json) == (412, {"error": "docs/a: there is an object already"})
    second = call(app, "PUT", "/filer/docs/a", b"2", if_match=first.json["etag"])
    assert second.status == 200
    assert call(app, "PUT", "/filer/docs/a", b"3", if_match=first.json["etag"]).status == 412
    assert call(app, "PUT", "/filer/docs/new", b"3", if_match="*").status == 412
    assert call(app, "PUT", "/filer/docs/a", b"3", if_none_match='"x"').status == 400
    assert call(app, "GET", "/filer/docs/a").body == b"2"


def test_an_upload_overtaken_by_another_fails_its_precondition(app: ASGIApp, store: Store) -> None:
    times = count()

    def overtake() -> None:
        store.put("docs/a", b"early %d" % next(times), OVERWRITE)

    late = call(app, "PUT", "/filer/docs/a", [b"la", b"te"], between=overtake, if_none_match="*")
    assert late.status == 412
    assert store.get("docs/a").startswith(b"early")
    tag = call(app, "HEAD", "/filer/docs/a").headers["etag"]
    assert call(app, "PUT", "/filer/docs/a", b"x", between=overtake, if_match=tag).status == 412


def test_a_deleted_object_is_gone(app: ASGIApp) -> None:
    tag = call(app, "PUT", "/filer/docs/a", b"x").json["etag"]
    assert call(app, "DELETE", "/filer/docs/a", if_match='"other"').status == 412
    for condition in (tag, f"W/{tag}", "*"):
        assert call(app, "DELETE", "/filer/docs/a", if_none_match=condition).status == 412
    assert call(app, "DELETE", "/filer/docs/a", if_match=tag).status == 204
    for method in ("GET", "HEAD", "DELETE"):
        assert call(app, method, "/filer/docs/a").status == 404


def test_each_of_several_concurrent_puts_returns_its_own_etag(app: ASGIApp) -> None:
    bodies = [bytes(length) for length in (1, 20, 300, 4000)]
    puts = [Call("PUT", "/filer/docs/a", (body, body)) for body in bodies]
    for _ in range(ROUNDS):
        answers = at_once(app, puts)
        assert {answer.status for answer in answers} <= {200, 201}
        assert [answer.json["bytes"] for answer in answers] == [2 * len(body) for body in bodies]
        assert len({answer.json["etag"] for answer in answers}) == len(bodies)


def test_of_those_who_delete_a_version_at_once_one_has_done_it(app: ASGIApp) -> None:
    for _ in range(ROUNDS):
        tag = call(app, "PUT", "/filer/docs/a", b"x").json["etag"]
        answers = at_once(app, [Call("DELETE", "/filer/docs/a", headers={"if-match": tag})] * 4)
        assert sorted(answer.status for answer in answers) == [204, 404, 404, 404]


def test_sealed_segments_can_be_read_and_not_written(app: ASGIApp, store: Store) -> None:
    key = "topics/kafka/t/partition=0/00000000000000000000-1-0.parquet"
    store.put(key, b"PAR1")
    assert call(app, "GET", f"/filer/{key}").body == b"PAR1"
    assert call(app, "PUT", f"/filer/{key}", b"x").status == 403
    assert call(app, "PUT", "/filer/topics/new", b"x").status == 403
    assert call(app, "PUT", "/filer/topics", b"x").status == 403
    assert call(app, "DELETE", f"/filer/{key}").status == 403
    assert store.get(key) == b"PAR1"


def test_payloads_are_uploaded_once_and_not_deleted(app: ASGIApp, store: Store) -> None:
    key = reference_to(b"x").key("t")
    path = f"/filer/{key}"
    assert call(app, "PUT", path, b"x").status == 201
    assert call(app, "PUT", path, b"y").status == 409
    assert call(app, "PUT", path, b"y", if_none_match="*").status == 412
    assert call(app, "PUT", path, b"y", if_match="*").status == 422
    refused = call(app, "DELETE", path)
    assert refused.status == 403
    assert "once no record refers to them" in refused.json["error"]
    assert store.get(key) == b"x"


def test_a_payload_gets_a_new_time_unless_it_is_condemned(tmp_path: Path) -> None:
    """Data fault 16: one that was there, and too old to be named, could not be brought again."""
    key = reference_to(b"x").key("t")
    store = LocalStore(tmp_path)
    path, file, app = f"/filer/{key}", store.root / key, front(store)
    assert call(app, "PUT", path, b"x").status == 201
    os.utime(file, (1, 1))
    assert call(app, "PUT", path, b"x", if_match="*").status == 200
    assert store.head(key).modified_ms > 1000
    store.outdate(key)
    refused = call(app, "PUT", path, b"x", if_match="*")
    assert refused.status == 409
    assert "about to delete it" in refused.json["error"]
    assert store.head(key).modified_ms == 0


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([b"pay", b"load"], None),
        ([b"pay", b"loaD"], "the CRC-32C of the body is "),
        ([b"payloa"], "the body has 6 bytes; its name says 7"),
        ([b"payload", b"s"], "more bytes than the 7 in its name"),
        ([b""], "the body has 0 bytes; its name says 7"),
    ],
)
def test_a_payload_is_what_its_name_says_or_is_not_stored(
    app: ASGIApp, store: Store, body: list[bytes], sentence: str | None
) -> None:
    key = reference_to(b"payload").key("t")
    answer = call(app, "PUT", f"/filer/{key}", body)
    if sentence is None:
        assert (answer.status, store.get(key)) == (201, b"payload")
    else:
        assert answer.status == 422
        assert answer.json["error"].startswith(f"{key}: {sentence}")
        assert list(store.list()) == []


@pytest.mark.parametrize("key", ["x", "kafka/t", "kafka/t/id", f"kafka/{reference_to(b'').id}"])
def test_an_invalid_payload_name_is_refused(app: ASGIApp, store: Store, key: str) -> None:
    for path in (f"/filer/payloads/{key}", "/filer/payloads"):
        answer = call(app, "PUT", path, b"")
        assert answer.status == 400
        assert "payload" in answer.json["error"]
    assert list(store.list()) == []


def test_a_list_is_in_order_and_comes_in_pages(app: ASGIApp, store: Store) -> None:
    keys = [f"docs/a {number}" for number in range(5)]
    for key in [*keys, "other/x"]:
        store.put(key, b"x")
    path, seen = "/filer/docs/?limit=2", []
    while path:
        page = call(app, "GET", path).json
        assert len(page["objects"]) <= 2
        seen += [each["key"] for each in page["objects"]]
        path = page["next"]
    assert seen == keys
    everything = call(app, "GET", "/filer/").json
    assert [each["key"] for each in everything["objects"]] == [*keys, "other/x"]
    assert call(app, "GET", "/filer/?prefix=oth").json["objects"][0]["key"] == "other/x"
    assert call(app, "GET", "/filer/none/").json == {"objects": [], "next": None}


@pytest.mark.parametrize("limit", ["0", "-1", "x", str(LIST_LIMIT_MAX + 1), "1" * 5000])
def test_a_limit_is_within_its_bounds(app: ASGIApp, limit: str) -> None:
    answer = call(app, "GET", f"/filer/?limit={limit}")
    assert (answer.status, answer.json["error"]) == (400, "limit must be a number from 1 to 1000")


@pytest.mark.parametrize("key", [key for key in BAD_KEYS if key.strip("/") and key[-1] != "/"])
def test_a_path_names_nothing_outside(app: ASGIApp, store: Store, key: str) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in key.encode())
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert call(app, method, f"/filer/{quoted}", b"x").status in {400, 404}
    assert list(store.list()) == []


@pytest.mark.parametrize("path", ["docs/a%0a", "docs/a%0ab", "%0a", "docs/%0a/a"])
def test_a_line_feed_is_part_of_no_name(app: ASGIApp, store: Store, path: str) -> None:
    call(app, "PUT", "/filer/docs/a", b"first")
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert call(app, method, f"/filer/{path}", b"second").status == 400
    assert store.get("docs/a") == b"first"


def test_a_path_that_is_not_utf_8_is_refused(app: ASGIApp) -> None:
    assert call(app, "PUT", "/filer/docs/%ff", b"x").status == 400


def test_other_methods_are_not_allowed(app: ASGIApp) -> None:
    assert call(app, "POST", "/filer/docs/a", b"x").status == 405


def test_a_client_that_leaves_in_the_middle_leaves_nothing(app: ASGIApp, store: Store) -> None:
    call(app, "PUT", "/filer/docs/a", [bytes(MiB), b"half"], leaves=True)
    assert list(store.list()) == []


def test_an_announced_body_beyond_the_quota_is_refused_unread(store: Store) -> None:
    app = front(store, quota_bytes=10)
    body_read: list[None] = []
    answer = call(
        app,
        "PUT",
        "/filer/docs/a",
        bytes(11),
        between=lambda: body_read.append(None),
        content_length="11",
        expect="100-continue",
    )
    assert (answer.status, body_read) == (507, [])
    assert "filer.quota.bytes" in answer.json["error"]
    assert call(app, "PUT", "/filer/docs/a", [bytes(5), bytes(6)]).status == 507
    assert list(store.list()) == []
    assert call(app, "PUT", "/filer/docs/a", bytes(10)).status == 201
    assert call(app, "PUT", "/filer/docs/b", b"x").status == 507
    assert call(app, "PUT", "/filer/else/b", b"x").status == 201
    assert call(app, "DELETE", "/filer/docs/a").status == 204
    assert call(app, "PUT", "/filer/docs/b", b"x").status == 201


def test_a_store_that_is_down_is_503_and_one_that_dies_in_an_upload_too() -> None:
    down = front(Flaky(MemoryStore(), Random(1), probability=1))
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        answer = call(down, method, "/filer/docs/a", b"x")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    inner = MemoryStore()
    assert (
        call(front(Torn(inner, Random(1), probability=1)), "PUT", "/filer/docs/a", b"x").status
        == 503
    )
    assert list(inner.list()) == []


class DiesReading(Wrapper):
    """Gives one piece of an object, and dies."""

    @contextmanager
    def reading(self, key: str, start: int = 0, length: int | None = None) -> Iterator[OpenObject]:
        with self.inner.reading(key, start, length) as reading:
            yield OpenObject(reading.facts, self._dying(reading.pieces))
        self.closed = True

    def _dying(self, pieces: Iterator[Data]) -> Iterator[Data]:
        yield next(pieces)
        raise Unavailable("docs/a", "the store died")


def test_a_store_that_dies_in_a_download_breaks_it_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DiesReading(LocalStore(tmp_path / "filer"))
    store.put("docs/a", bytes(3 * MiB))
    answer = call(front(store), "GET", "/filer/docs/a")
    assert answer.cut
    assert 0 < len(answer.body) < 3 * MiB == int(answer.headers["content-length"])
    assert "sending docs/a failed: docs/a: the store died" in capsys.readouterr().err
    assert store.closed


def test_an_object_that_is_replaced_between_a_look_and_its_opening_is_looked_at_again(
    store: Store,
) -> None:
    class Replaced(Wrapper):
        times = 1

        def head(self, key: str) -> Facts:
            facts = super().head(key)
            if self.times:
                self.times -= 1
                self.inner.put(key, b"%d times" % self.times, OVERWRITE)
            return facts

    store.put("docs/a", b"short")
    replaced = Replaced(store)
    assert call(front(replaced), "GET", "/filer/docs/a").body == b"0 times"
    replaced.times = 100
    assert call(front(replaced), "GET", "/filer/docs/a").status == 503


@pytest.mark.parametrize("key", ["x/.hidden", ".hidden", "x/./y", "x/..", "a/.b/c"])
def test_a_part_of_a_name_does_not_start_with_a_dot(key: str) -> None:
    """Door fault 15."""
    store = MemoryStore()
    assert call(front(store), "PUT", f"/filer/{key}", b"x").status == 400
    assert [*store.list("")] == []


def test_a_new_name_has_few_parts_and_an_old_one_can_be_deleted() -> None:
    """Each part of a new name costs a directory, and the disk's time for it."""
    store = MemoryStore(lambda: 1)
    deep = "/".join("a" * (PARTS_MAX + 1))
    store.put(deep, b"x")
    app = front(store)
    refused = call(app, "PUT", f"/filer/{deep}", b"y")
    assert (refused.status, refused.json["error"]) == (400, "a new name has at most 32 parts")
    assert call(app, "GET", f"/filer/{deep}").body == b"x"
    assert call(app, "DELETE", f"/filer/{deep}").status == 204
    assert call(app, "PUT", f"/filer/{deep[2:]}", b"y").status == 201


def test_a_payload_may_be_of_a_topic_whose_name_begins_with_a_dot() -> None:
    key = reference_to(b"content").key(".t")
    assert call(front(MemoryStore()), "PUT", f"/filer/{key}", b"content").status == 201
