"""Records of the SDK's consumer, as SeaweedMQ's clients get them."""

import pytest

from smq.agent.proto.mq_broker_pb2 import DataMessage
from smq.app.agent.consumed import headers_of, read_record, size_of, time_ns
from smq.client.consuming.batch.chunk import PollRoom, Record, cut
from smq.wire.records import Record as Written, write_batch
from tests.client.batches import batches_of


def record_of(written: Written) -> Record:
    [chunk], _ = cut(batches_of(write_batch([written])), PollRoom(10**6))
    return next(chunk.records())


def test_null_and_empty_are_the_same_for_them() -> None:
    for key, value in ((None, None), (b"", b"")):
        found = read_record(record_of(Written(3, 5, key, value, ())))
        assert (found.key, found.value, found.offset, found.ts_ns) == (b"", b"", 3, 5_000_000)
        assert found.headers == b""
        assert size_of(record_of(Written(3, 5, key, value, ()))) == 0


def test_headers_are_fields_of_the_message_that_will_have_them() -> None:
    headers = ((b"a", b"x"), (b"", None), (b"a", b""))
    record = record_of(Written(0, 0, None, b"v", headers))
    assert size_of(record) == 1 + len(headers_of(record))
    found = DataMessage.FromString(headers_of(record))
    assert [(each.key, each.value, each.HasField("value")) for each in found.headers] == [
        ("a", b"x", True), ("", b"", False), ("a", b"", True),
    ]  # fmt: skip


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63)])
def test_a_time_has_64_bits_in_nanoseconds_too(time_ms: int) -> None:
    assert -(2**63) <= time_ns(time_ms) < 2**63
    assert (time_ns(time_ms) > 0) == (time_ms > 0)
