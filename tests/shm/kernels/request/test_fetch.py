"""The kernel alone; that it says what the handler says is tested in tests/gateway."""

import numpy as np
import pytest

from shm.kernels.base.words import P_HIGH_WATERMARK, P_LAST_STABLE
from shm.kernels.request.fetch import (
    ANSWERED,
    LEFT,
    STATE_OUT_BYTES,
    STATE_PLACE_COUNT,
    STATE_PLACES,
    STATE_START,
    STATE_WORDS,
    WAITS,
    answer_fetch,
)
from smq.wire.codec import Writer
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    read_fetch_response,
    write_fetch_request,
)
from smq.wire.headers import RequestHeader, read_response_header, write_request_header
from smq.wire.records import read_batches
from tests.oracle.batches import batch
from tests.shm.kernels.rig import LOG, SLOTS, Rig, request_of

CORRELATION = 77


class Asking:
    """A log with one record in partition 0 of topic a, and what the kernel says of fetches."""

    def __init__(self, version: int = 12) -> None:
        self.version, self.rig = version, Rig()
        self.rig.receive(request_of([("a", [(0, batch(b"value"))])]))
        self.rig.drain()
        self.rig.log.partitions[:, [P_HIGH_WATERMARK, P_LAST_STABLE]] = 1
        self.state, self.out = np.zeros(STATE_WORDS, np.int64), np.zeros(1000, np.uint8)

    def request(self, offset: int) -> bytes:
        """A fetch from an offset on."""
        writer, places = Writer(), [FetchPartition(fetch_offset=offset, partition_max_bytes=1000)]
        request = FetchRequest(topics=[FetchTopic(topic="a", partitions=places)], min_bytes=1)
        request.max_wait_ms = 500
        write_request_header(RequestHeader(1, self.version, CORRELATION, "c"), writer)
        write_fetch_request(request, self.version, writer)
        return writer.to_bytes()

    def ask(self, request: bytes, *, is_last: bool = False) -> int:
        """What becomes of a request that does not lie at the buffer's start."""
        data = np.frombuffer(bytearray(b"before" + request), np.uint8)
        self.state[STATE_START] = len(b"before")
        rig = self.rig
        outcome: int = answer_fetch(
            data, len(data), is_last, rig.log.memory, rig.links, rig.directory, self.state, self.out
        )
        return outcome

    def values(self) -> list[bytes | None]:
        """The values of the records in the answer."""
        answer = bytes(self.out[: self.state[STATE_OUT_BYTES]])
        assert int.from_bytes(answer[:4]) == len(answer) - 4
        correlation, at = read_response_header(answer, 4, 1, self.version)
        assert correlation == CORRELATION
        response = read_fetch_response(answer, at, self.version)
        [only] = response.responses[0].partitions
        assert isinstance(only.records, memoryview)
        return [record.value for each in read_batches(only.records) for record in each.records()]


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12])
def test_a_record_in_the_ring_is_the_answer(version: int) -> None:
    asking = Asking(version)
    assert asking.ask(asking.request(0)) == ANSWERED
    assert asking.values() == [b"value"]


def test_a_request_at_the_end_waits_for_its_partitions() -> None:
    asking = Asking()
    assert asking.ask(asking.request(1)) == WAITS
    places = asking.state[STATE_PLACES:][: asking.state[STATE_PLACE_COUNT]].tolist()
    assert len(places) == 1
    assert (places[0] >> 32, places[0] & 0xFFFFFFFF) in {(LOG, slot) for slot in SLOTS.values()}


def test_the_last_time_it_is_answered_with_nothing() -> None:
    asking = Asking()
    assert asking.ask(asking.request(1), is_last=True) == ANSWERED
    assert asking.values() == []


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_request_cut_anywhere_is_left(version: int) -> None:
    asking = Asking(version)
    request = asking.request(0)
    assert {asking.ask(request[:end]) for end in range(len(request))} == {LEFT}


def test_an_answer_without_room_is_left() -> None:
    asking = Asking()
    asking.out = np.zeros(100, np.uint8)
    assert asking.ask(asking.request(0)) == LEFT
