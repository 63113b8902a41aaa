"""A head and a batch behind it are a Produce request as anybody reads it."""

import numpy as np

from smq.client.producing.channel import PRODUCE_VERSION, complete_request, request_head
from smq.wire.generated.produce import read_produce_request
from smq.wire.headers import read_request_header


def test_a_completed_head_is_a_request() -> None:
    head = request_head("who", "töpic", 7)
    out = np.zeros(len(head) + 10, np.uint8)
    out[: len(head)] = head
    out[len(head) :] = 0xAB
    complete_request(out, len(head), len(out), 2**31 - 1)
    data = out.tobytes()
    assert int.from_bytes(data[:4]) == len(data) - 4
    header, at = read_request_header(data, 4)
    assert (header.api_key, header.api_version, header.client_id) == (0, PRODUCE_VERSION, "who")
    assert header.correlation_id == 2**31 - 1
    request = read_produce_request(data, at, PRODUCE_VERSION)
    assert (request.acks, request.transactional_id) == (-1, None)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index) == ("töpic", 7)
    assert isinstance(partition.records, memoryview | bytes)
    assert bytes(partition.records) == b"\xab" * 10
