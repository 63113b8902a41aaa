"""A broker whose files are in S3: as with a directory, and while S3 hangs, dies or lies."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from smq.app.process.clock import monotonic_ms
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.s3_server import BUCKET, S3Server, s3_server, settings_for
from smq.testing.smq_broker import SmqBroker
from smq.wire.records import Record, write_batch
from tests.app.fake_broker import eventually
from tests.broker.one_topic import (
    FILLER_BYTES,
    LATEST,
    SETTINGS,
    OneTopic,
    said,
    store_of,
    wal_bytes,
)
from tests.broker.test_retention import (
    QUICK,
    test_a_deleted_topic_leaves_neither_files_nor_segments_of_the_log as deleting_on_s3,
    test_segments_whose_newest_record_is_too_old_are_deleted as ageing_on_s3,
    test_the_oldest_segments_go_while_the_others_keep_enough_bytes as sizing_on_s3,
)
from tests.broker.test_sealing import (
    test_every_kind_of_record_is_read_back_from_sealed_segments_after_any_kill as sealing_on_s3,
    test_offsets_by_time_are_found_in_sealed_segments_and_in_the_log as times_on_s3,
    test_one_reader_goes_from_sealed_segments_through_the_log_into_the_ring as reading_on_s3,
)
from tests.broker.test_space import WAL_BYTES_MAX

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]

_prefixes = count()

# What holds for a directory holds for S3: the same tests, with the fixtures of this file.
test_what_is_sealed_to_s3_comes_back = sealing_on_s3
test_offsets_by_time_are_found_on_s3 = times_on_s3
test_one_reader_goes_from_s3_into_the_ring = reading_on_s3
test_segments_on_s3_are_deleted_by_age = ageing_on_s3
test_segments_on_s3_are_deleted_by_size = sizing_on_s3
test_a_deleted_topic_leaves_nothing_on_s3 = deleting_on_s3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def settings(server: S3Server, tmp_path: Path) -> dict[str, str]:
    return SETTINGS | settings_for(server, tmp_path, f"broker-{next(_prefixes)}")


@pytest.fixture
def broker(
    settings: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[SmqBroker]:
    by_retention = request.function.__module__.endswith("retention")
    with SmqBroker(tmp_path, settings | (QUICK if by_retention else {})) as broker:
        yield broker
    assert not (broker.data_dir / "filer").exists()


@pytest.mark.parametrize("outage", ["dead from the start", "dies", "hangs"])
def test_clients_do_not_wait_and_the_log_stays_bounded_while_s3_is_unavailable(
    tmp_path: Path, outage: str
) -> None:
    with s3_server(tmp_path) as server:
        settings = {**SETTINGS, **settings_for(server, tmp_path, "x")}
        settings["wal.bytes.max"] = str(WAL_BYTES_MAX)
        if outage == "dead from the start":
            server.kill()
        with SmqBroker(tmp_path, settings) as broker, Cluster(broker.bootstrap) as cluster:
            topic = OneTopic(broker, cluster, "topic")
            if outage == "dies":
                server.kill()
            elif outage == "hangs":
                topic.append(write_batch([Record(0, 0, b"0", None)]))
                topic.wait_sealed(1)
                server.hang()
            _fill_while_it_is_away(topic)
            if outage == "hangs":
                server.go_on()
            else:
                server.start()
            end = topic.append(write_batch([Record(0, 5, None, b"taken again")])) + 1
            topic.wait_sealed(end)
            assert [record.offset for record in topic.records(end)] == list(range(end))


def _fill_while_it_is_away(topic: OneTopic) -> None:
    other = OneTopic(topic.broker, topic.cluster, "other")
    longest_ms = 0
    before = topic.offset_at(LATEST)
    taken = 8  # Half of what the log may hold.
    for _ in range(taken):
        started_ms = monotonic_ms()
        topic.append_filler(1)
        other.fetch(0)
        longest_ms = max(longest_ms, monotonic_ms() - started_ms)
    assert longest_ms < 2000, "a shard waited for S3"
    filler = write_batch([Record(0, 0, None, bytes(FILLER_BYTES))])
    while topic.produce(filler).error_code == ErrorCode.NONE:
        taken += 1
        assert taken * FILLER_BYTES <= WAL_BYTES_MAX, "the log takes more than it may hold"
    assert wal_bytes(topic.broker) <= WAL_BYTES_MAX
    eventually(lambda: f"s3://{BUCKET}/x" in said(topic.broker), "S3 is named")
    assert len(topic.records(before + taken, before)) == taken


def test_a_fetch_of_what_hangs_is_answered_and_the_next_one_finds_it(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        settings = {**SETTINGS, **settings_for(server, tmp_path, "x")}
        with SmqBroker(tmp_path, settings) as broker, Cluster(broker.bootstrap) as cluster:
            topic = OneTopic(broker, cluster, "topic")
            topic.append(write_batch([Record(0, 0, b"0", b"cold")]))
            topic.seal_and_recycle(1)
            end = topic.append(write_batch([Record(0, 0, b"1", b"hot")]))
            server.hang()
            with ThreadPoolExecutor(1) as thread, Cluster(broker.bootstrap) as other:
                cold = thread.submit(OneTopic.fetch, on(topic, other), 0)
                while not cold.done():
                    started_ms = monotonic_ms()
                    assert topic.fetch(end).error_code == ErrorCode.NONE
                    assert monotonic_ms() - started_ms < 2000, "a fetch of the log waited for S3"
                assert cold.result().error_code == ErrorCode.KAFKA_STORAGE_ERROR
            server.go_on()
            eventually(
                lambda: topic.fetch(0).error_code == ErrorCode.NONE, "what hung is read after all"
            )
            assert topic.records(1)[0].value == b"cold"


def on(topic: OneTopic, cluster: Cluster) -> OneTopic:
    """The same topic over connections of one's own."""
    other = copy(topic)
    other.cluster = cluster
    return other


class LyingS3(BaseHTTPRequestHandler):
    """Says yes to everything, and replaces what was only to be created."""

    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        kinds = {
            "uploads": "<InitiateMultipartUploadResult><UploadId>1</UploadId>"
            "</InitiateMultipartUploadResult>",
            "uploadId": '<CompleteMultipartUploadResult><ETag>"1"</ETag>'
            "</CompleteMultipartUploadResult>",
            "delete": "<DeleteResult></DeleteResult>",
            "partNumber": '<CopyPartResult><ETag>"1"</ETag></CopyPartResult>',
        }
        query = self.path.partition("?")[2]
        body = next((kinds[kind] for kind in kinds if query.startswith(kind)), "").encode()
        self.send_response(200)
        self.send_header("etag", '"1"')
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = do_DELETE = answer  # noqa: N815  (http.server looks for these)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def test_a_store_that_does_not_create_once_is_refused_at_the_start(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), LyingS3) as liar:
        Thread(target=liar.serve_forever).start()
        keys = tmp_path / "keys"
        keys.write_text("[default]\naws_access_key_id = x\naws_secret_access_key = x\n")
        settings = {
            **SETTINGS,
            "filer.root": "s3://liar/x",
            "filer.s3.endpoint": f"http://127.0.0.1:{liar.server_address[1]}",
            "filer.s3.credentials": str(keys),
        }
        with pytest.raises(RuntimeError, match=r"filer.root: s3://liar/x.*ignores\s+If-None-Match"):
            SmqBroker(tmp_path, settings)
        liar.shutdown()


def test_keys_that_cannot_be_read_are_refused_at_the_start(tmp_path: Path) -> None:
    settings = {"filer.root": "s3://bucket", "filer.s3.credentials": str(tmp_path / "none")}
    with pytest.raises(RuntimeError, match=r"smq: filer\.s3\.credentials: .* cannot be read"):
        SmqBroker(tmp_path, settings)


def test_the_files_are_where_the_prefix_says(
    broker: SmqBroker, cluster: Cluster, settings: dict[str, str]
) -> None:
    topic = OneTopic(broker, cluster, "orders")
    topic.append(write_batch([Record(0, 7, b"k", b"v")]))
    [segment] = topic.wait_sealed(1)
    assert topic.files() == {segment.path}
    assert store_of(broker).head(segment.path).length == segment.bytes
    assert broker.status().filer_root == settings["filer.root"]
