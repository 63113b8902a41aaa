"""Validated batches are accepted as in Kafka: whole records with valid keys and times."""

from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.shard.references import REASONS_MAX, References
from smq.shard.validation import INFLATED_BYTES_MAX, Validation
from smq.testing.payloads import handle_batch, reference_to
from smq.wire.compression import Codec
from smq.wire.generated.produce import PartitionProduceResponse
from smq.wire.records import Record, write_batch
from tests.oracle.batches import with_crc
from tests.shard.shard_bench import NOW_MS, Producer, new_shard, produce_request, responses, topic
from tests.shard.test_references import FakePayloads

BEFORE_MS, AFTER_MS = 1000, 2000
LIMITS = {
    "message.timestamp.before.max.ms": str(BEFORE_MS),
    "message.timestamp.after.max.ms": str(AFTER_MS),
}
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def batch(*keys: bytes | None, codec: Codec = Codec.NONE, value: bytes | None = b"v") -> bytes:
    records = [Record(i, NOW_MS, key, value) for i, key in enumerate(keys)]
    return bytes(write_batch(records, compression=codec))


class Bench:
    """A shard with a compacted topic, one that is not, and two that are looked into."""

    def __init__(self, directory: Path) -> None:
        compacted = topic("one", range(1, 3), LIMITS | {"cleanup.policy": "delete, compact"})
        looked_into = LIMITS | {"smq.validate": "records"}
        self.shard = new_shard(
            directory,
            compacted,
            topic("two", range(3, 4)),
            topic("three", range(4, 5), looked_into),
            topic("four", range(5, 6), looked_into | {"message.timestamp.type": "LogAppendTime"}),
        )
        self.payloads = FakePayloads()
        references = References(self.payloads, self.shard.topic_of, self.shard.config)
        checks = Validation(references, self.shard.topic_of, self.shard.config)
        self.producer = Producer(self.shard, checks)

    def send(self, records: bytes, name: str = "one") -> PartitionProduceResponse:
        request = produce_request({name: {0: records}})
        [(_, response)] = responses(self.producer.answers(request))
        [answer] = response.responses[0].partition_responses
        return answer

    def end(self) -> int:
        return sum(led.offsets().log_end for led in self.shard.led())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("codec", CODECS)
def test_records_with_keys_are_appended(bench: Bench, codec: Codec) -> None:
    answer = bench.send(batch(b"a", b"", b"c", codec=codec))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert bench.send(batch(b"a", value=None, codec=codec)).base_offset == 3


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_key_are_refused_by_their_places(bench: Bench, codec: Codec) -> None:
    answer = bench.send(batch(b"a", None, b"c", None, codec=codec))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    words = "Compacted topic cannot accept message without key in topic partition one-0."
    assert {each.batch_index_error_message for each in answer.record_errors} == {words}
    assert answer.error_message == words
    assert bench.end() == 0


def test_other_topics_take_them(bench: Bench) -> None:
    assert bench.send(batch(None), "two").error_code == 0
    assert bench.send(batch(None), "three").error_code == 0


def test_so_many_are_named_and_no_more(bench: Bench) -> None:
    assert len(bench.send(batch(*[None] * 100)).record_errors) == REASONS_MAX


@pytest.mark.parametrize("name", ["one", "three"])
def test_a_malformed_batch_or_one_that_inflates_too_far_is_refused(bench: Bench, name: str) -> None:
    garbled = bytearray(batch(b"a", b"b", b"c"))
    garbled[70] = 0xFF
    bad = with_crc(bytes(garbled))
    large = batch(b"a", codec=Codec.ZSTD, value=bytes(INFLATED_BYTES_MAX + 1))
    for each in (bad, large):
        answer = bench.send(each, name)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert "malformed, or inflate to more than" in (answer.error_message or "")
    assert bench.end() == 0
    assert bench.send(bad, "two").error_code == 0, "nobody looks into it"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", ["one", "three"])
def test_each_record_has_a_time_within_limits(bench: Bench, name: str, codec: Codec) -> None:
    times = [NOW_MS, NOW_MS - BEFORE_MS - 1, NOW_MS + AFTER_MS, NOW_MS - BEFORE_MS, -1]
    records = [Record(i, time, b"key", b"v") for i, time in enumerate(times)]
    answer = bench.send(write_batch(records, compression=codec), name)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == [1]
    assert "out of range" in (answer.error_message or "")
    good = [Record(i, time, b"key", b"v") for i, time in enumerate(times[2:])]
    assert bench.send(write_batch(good, compression=codec), name).error_code == 0


def test_times_are_the_brokers_where_it_sets_them(bench: Bench) -> None:
    records = [Record(i, NOW_MS - i * BEFORE_MS, b"key", b"v") for i in range(3)]
    assert bench.send(write_batch(records), "four").error_code == 0


def test_handles_are_checked_as_well(bench: Bench) -> None:
    reference = reference_to(b"payload")
    handle = bytearray(handle_batch([reference]))
    assert bench.send(bytes(handle), "two").error_code == ErrorCode.INVALID_RECORD, "none is there"
    record = Record(0, NOW_MS, b"key", reference.handle(), ((b"smq-ref", b"1"),))
    keyed = bytes(write_batch([record]))
    assert "has no payload" in (bench.send(keyed).error_message or "")
    bench.payloads.add(reference)
    assert bench.send(keyed).error_code == 0
