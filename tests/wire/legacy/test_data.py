"""Produce 0-2 and the answers of Fetch 0-3 from their bytes to those of newer versions and back."""

from struct import pack

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import ErrorCode, PeerError
from smq.wire.codec import Writer
from smq.wire.generated.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    write_fetch_response,
)
from smq.wire.generated.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    read_produce_request,
    write_produce_response,
)
from smq.wire.headers import read_request_header
from smq.wire.legacy.data import OldFetch, OldProduce, Steps, sized
from smq.wire.legacy.records import write_message
from smq.wire.legacy.versions import FETCH, newer_of
from tests.wire.legacy.test_records import plain
from tests.wire.legacy.test_versions import BODIES, request, text

GOOD = write_message(plain(1, 0))


def made(steps: Steps) -> bytes:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


def body(*sets: bytes) -> bytes:
    rows = b"".join(pack(">ii", i, len(each)) + each for i, each in enumerate(sets))
    return pack(">hii", -1, 9, 1) + text("t") + pack(">i", len(sets)) + rows


@pytest.mark.parametrize("version", range(3))
def test_partitions_that_cannot_be_converted_are_answered_in_their_places(version: int) -> None:
    old = OldProduce(request(0, version, body(b"?", GOOD, b"")))
    newer = made(old.convert())[4:]
    header, at = read_request_header(newer, 0)
    said = read_produce_request(newer, at, header.api_version)
    assert [each.index for each in said.topic_data[0].partition_data] == [1]
    row = PartitionProduceResponse(index=1, base_offset=9)
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[row])])
    writer = Writer()
    writer.append(pack(">i", 7))
    write_produce_response(answer, 3, writer)
    time = pack(">q", -1) if version == 2 else b""
    corrupt = int(ErrorCode.CORRUPT_MESSAGE)
    rows = [pack(">ihq", *each) + time for each in ((0, corrupt, -1), (1, 0, 9), (2, corrupt, -1))]
    told = b"".join((pack(">ii", 7, 1), text("t"), pack(">i", 3), *rows))
    told += pack(">i", 5) if version else b""
    assert old.answer(sized(writer), 5) == pack(">i", len(told)) + told


def test_a_request_of_which_nothing_is_good_is_empty() -> None:
    old = OldProduce(request(0, 0, body(b"?")))
    made(old.convert())
    assert old.is_empty
    assert old.has_errors
    assert old.answer(b"", 0)[-14:] == pack(">ihq", 0, ErrorCode.CORRUPT_MESSAGE, -1)


@given(data=st.data())
def test_garbage_raises_nothing_but_its_own_error(data: st.DataObject) -> None:
    whole = request(0, 2, body(GOOD, GOOD))
    start = data.draw(st.integers(0, len(whole)))
    garbage = whole[:start] + data.draw(st.binary(max_size=30))
    try:
        old = OldProduce(garbage)
    except PeerError:
        return
    assert len(made(old.convert())) > 4
    assert len(old.answer(b"", 0)) > 8 if old.is_empty else True


@pytest.mark.parametrize("version", [0, 3])
def test_a_partition_error_is_returned_in_the_old_version(version: int) -> None:
    found = newer_of(request(FETCH, version, BODIES[FETCH, version]))
    row = PartitionData(partition_index=3, error_code=1, high_watermark=-1, records=b"")
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])
    writer = Writer()
    writer.append(pack(">i", 7))
    write_fetch_response(answer, 4, writer)
    said = made(OldFetch(found[0], found[2]).convert(sized(writer)))
    assert said.endswith(text("t") + pack(">iihqi", 1, 3, 1, -1, 0))
    assert len(said) == 8 + 4 * (version > 0) + 4 + len(text("t")) + 22
