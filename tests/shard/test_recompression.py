"""A topic's `compression.type`: stored batches have its codec, and the records sent."""

import random
from pathlib import Path

import numpy as np
import pytest

from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.now import Now
from smq.model.topic_settings import TopicSettings
from smq.shard.checks import GOOD, Check
from smq.shard.recompression import CODECS, Compression, compression_of, recompressed
from smq.shard.references import NoFiler
from smq.shard.validation import Validation
from smq.testing.payloads import handle_batch, reference_to
from smq.wire.compression import Codec
from smq.wire.records import BatchView, Record, read_batches, write_batch
from tests.oracle.batches import with_crc
from tests.shard.shard_bench import (
    NOW_MS,
    Appender,
    new_shard,
    produce_request,
    responses,
    topic,
)

RECORDS = [Record(i, NOW_MS, b"key", b"value %d" % i, ((b"h", b"1"),)) for i in range(100)]
KINDS = [pytest.param(name, id=name) for name in CODECS]


def wanted_by(configs: dict[str, str]) -> Compression | None:
    return compression_of(TopicSettings.of(configs, Config(shards=1)))


def array(batch: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(batch), np.uint8)


class AllGood(NoFiler):
    """Takes handles to anything."""

    def check(self, _number: int, _data: np.ndarray, _at: int, _now: Now) -> Check:
        yield from ()
        return GOOD


class Recompressing(Appender):
    """A shard with one topic of this compression."""

    def __init__(self, directory: Path, kind: str) -> None:
        super().__init__(new_shard(directory, topic("t", range(1, 2), {"compression.type": kind})))
        shard = self.shard
        checks = Validation(AllGood(), shard.topic_of, shard.config)
        self.producing = type(self.producing)(shard.logs, shard.config, shard.drain, checks)

    def stored(self) -> list[BatchView]:
        [led] = self.shard.led()
        found = led.log.find(led.number, 0, 1 << 40, 1 << 30)
        assert found is not None
        ring, size = led.log.memory.ring, led.log.memory.layout.ring_bytes
        spans = found.spans.tolist()
        data = b"".join(ring[at % size : at % size + length].tobytes() for at, length in spans)
        return list(read_batches(data))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sent", list(Codec))
def test_a_batch_is_stored_in_the_topics_codec(tmp_path: Path, kind: str, sent: Codec) -> None:
    appender = Recompressing(tmp_path, kind)
    appender.append("t", 0, write_batch(RECORDS, compression=sent))
    appender.append("t", 0, write_batch(RECORDS, compression=sent))
    appender.end_turn()
    first, second = appender.stored()
    assert (first.base_offset, second.base_offset) == (0, len(RECORDS))
    assert first.codec == second.codec == CODECS[kind]
    assert list(first.records()) == RECORDS


def test_a_retry_is_known_however_its_batch_was_stored(tmp_path: Path) -> None:
    appender = Recompressing(tmp_path, "lz4")
    batch = write_batch(RECORDS, producer_id=9, producer_epoch=0, base_sequence=0)
    assert [appender.append("t", 0, batch) for _ in range(2)] == [0, 0]
    appender.end_turn()
    assert len(appender.stored()) == 1


def test_records_are_looked_into(tmp_path: Path) -> None:
    appender = Recompressing(tmp_path, "gzip")
    garbage = bytearray(write_batch(RECORDS))
    garbage[80:90] = b"\xff" * 10
    produced = appender.run(produce_request({"t": {0: with_crc(bytes(garbage))}}))
    [(_, response)] = responses(bytes(produced.answers))
    [answer] = response.responses[0].partition_responses
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_a_batch_that_inflates_too_far_or_may_have_handles_is_stored_as_sent() -> None:
    noise = random.Random(1).randbytes(Compression(Codec.GZIP).bytes_max)
    large = array(write_batch([Record(0, NOW_MS, None, noise)]))
    assert recompressed(large, Compression(Codec.GZIP)) is None
    assert recompressed(large, Compression(Codec.ZSTD)) is not None
    handles = array(handle_batch([reference_to(b"payload")], time_ms=NOW_MS))
    assert recompressed(handles, Compression(Codec.LZ4)) is None
    hidden = [Record(0, NOW_MS, None, b"{}", ((b"smq-ref", b"1"),))]
    assert (
        recompressed(array(write_batch(hidden, compression=Codec.LZ4)), Compression(Codec.NONE))
        is None
    )


def test_a_producer_may_keep_its_codec() -> None:
    assert wanted_by({}) is wanted_by({"compression.type": "producer"}) is None
    assert wanted_by({"compression.type": "uncompressed"}) == Compression(Codec.NONE)
    sent = array(write_batch(RECORDS, compression=Codec.ZSTD))
    assert recompressed(sent, Compression(Codec.ZSTD)) is None


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", (1, 9)), ("lz4", (9, 12)), ("zstd", (-50, 1, 19))]
)
def test_a_topic_says_at_which_level_its_batches_are_compressed(
    codec: str, levels: tuple[int, ...]
) -> None:
    chance = random.Random(2)
    words = ["".join(chance.choices("abcdefgh", k=6)) for _ in range(300)]
    sent = array(write_batch([Record(0, NOW_MS, None, " ".join(words).encode())]))
    sizes = []
    for level in levels:
        configs = {"compression.type": codec, f"compression.{codec}.level": str(level)}
        wanted = wanted_by(configs)
        assert wanted is not None
        made = recompressed(sent, wanted)
        assert made is not None
        [record] = next(iter(read_batches(bytes(made)))).records()
        assert record.value == " ".join(words).encode()
        sizes.append(len(made))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_a_batch_is_the_smaller_the_slower_its_level_is() -> None:
    for codec, levels in {
        Codec.GZIP: (None, 7),
        Codec.LZ4: (None, 3),
        Codec.ZSTD: (None, 4, 8, 11, 15),
    }.items():
        sizes = [Compression(codec, level).bytes_max for level in levels]
        assert sizes == sorted(set(sizes), reverse=True)
    assert Compression(Codec.GZIP, -1).bytes_max == Compression(Codec.GZIP).bytes_max
