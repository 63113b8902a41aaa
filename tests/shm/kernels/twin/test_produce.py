"""The plain twin of the produce path reads what the generated codec writes and others' batches."""

import contextlib

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.twin import produce as plain
from shm.kernels.twin.produce import (
    Appended,
    BatchRefused,
    Cut,
    PlainPartition,
    Producers,
    TopicLimits,
)
from smq.model.errors import PeerError
from smq.wire.generated.produce import read_produce_request
from smq.wire.headers import read_request_header
from smq.wire.records import read_batches
from tests.oracle.batches import batch
from tests.shm.kernels.rig import TOPICS, request_of
from tests.shm.kernels.strategies import batches, requests


@settings(deadline=None)
@given(requests())
def test_requests_are_read_as_the_codec_reads_them(data: bytes) -> None:
    header, at = read_request_header(data, 4)
    message = read_produce_request(data, at, header.api_version)
    read = plain.parse_request(data[4:])
    assert (read.version, read.correlation_id) == (header.api_version, header.correlation_id)
    assert read.is_transactional == (message.transactional_id is not None)
    assert read.acks == message.acks
    for (key, partitions), topic in zip(read.topics, message.topic_data, strict=True):
        assert key == (topic.topic_id.bytes if read.version >= 13 else topic.name.encode())
        expected = [(each.index, each.records) for each in topic.partition_data]
        assert partitions == expected
    assert len(read.topics) == len(message.topic_data)


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_request_that_is_cut_anywhere_is_cut(version: int) -> None:
    body = request_of([("a", [(0, batch())])], version)[4:]
    for end in range(8, len(body)):
        with pytest.raises(Cut):
            plain.parse_request(body[:end])


@settings(deadline=None)
@given(batches().filter(lambda data: len(data) >= 61))
def test_a_header_is_read_as_our_codec_of_batches_reads_it(data: bytes) -> None:
    header = plain.read_header(data)
    try:
        other = next(read_batches(data), None)
    except PeerError:
        other = None
    if other is None:  # This is about good ones.
        return
    assert header.base_offset == other.base_offset
    assert header.record_count == other.record_count
    assert header.max_timestamp == other.max_timestamp
    assert header.producer_id == other.producer_id


def test_a_stream_ends_for_a_reason() -> None:
    one = request_of([("a", [])])
    read = [plain.parse_request(one[4:])]
    assert plain.parse(one + one[:9], 1000) == (read, len(one), "need more")
    assert plain.parse(one[:4] + b"\0\1" + one[6:], 1000) == ([], 0, "other API")
    assert plain.parse(one, 10) == ([], 0, "malformed")


def test_a_producer_is_remembered_for_five_batches_of_its_newest_epoch() -> None:
    producers = Producers()
    assert producers.check(1, 0, 7, 7) is None
    for first in range(6):
        producers.remember(1, 0, Appended(first, first, 10 * first, 0))
    assert producers.check(1, 0, 5, 5) == Appended(5, 5, 50, 0)
    for epoch, first, error in ((0, 0, 45), (0, 7, 45), (-1, 6, 47), (1, 6, 45)):
        with pytest.raises(BatchRefused) as refused:
            producers.check(1, epoch, first, first)
        assert refused.value.error == error
    assert producers.check(1, 0, 6, 6) is None
    producers.remember(1, 1, Appended(0, 0, 60, 0))
    assert len(producers.known[1][1]) == 1


def test_a_partition_stores_a_batch_at_its_end() -> None:
    partition = PlainPartition(TopicLimits(1000, log_append_time=True), leader_epoch=3, log_end=8)
    assert partition.append(batch(b"a", b"b"), wall_ms=99) == (8, 99)
    (stored,) = read_batches(partition.batches[0])
    assert (stored.base_offset, stored.leader_epoch, stored.max_timestamp) == (8, 3, 99)
    assert stored.is_log_append_time
    assert partition.log_end == 10


def test_a_twin_answers_for_topics_by_name_and_by_id() -> None:
    partition = PlainPartition(TopicLimits(1000))
    broker = plain.PlainBroker({b"a": [partition], TOPICS["a"].id.bytes: [partition]})
    for version in (9, 13):
        read = plain.parse_request(request_of([("a", [(0, batch())])], version)[4:])
        ((_, rows),) = broker.answers([read], wall_ms=5)
        assert rows[0][0].error == 0
    assert partition.log_end == 2


@given(st.binary(max_size=40))
def test_garbage_is_cut_or_a_request(data: bytes) -> None:
    with contextlib.suppress(Cut):
        assert -(2**15) <= plain.parse_request(data).version < 2**15
