"""Bounds of requests, and their helpers."""

import pytest

from gateway.apis.bounds import (
    OFFSETS,
    PARTITIONS,
    WHOLE_ELEMENTS_MAX,
    Cut,
    answered_in_parts,
    listing,
)
from smq.wire.codec import Writer
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    write_offset_commit_request,
)


def test_a_listing_is_cut_where_it_says() -> None:
    cut = Cut(PARTITIONS, PARTITIONS)
    assert listing(cut).cut == cut
    assert listing(cut).elements_max > listing(cut, elements_max=5).elements_max == 5


def test_a_request_that_is_handled_whole_is_answered_in_parts() -> None:
    bounds = answered_in_parts("results", "topics")
    assert bounds.cut == Cut((), ("results", "topics"))
    assert bounds.elements_max == 2 * WHOLE_ELEMENTS_MAX


@pytest.mark.parametrize("version", range(2, 11))
def test_few_bytes_hold_few_topics_and_offsets(version: int) -> None:
    def size(topics: list[OffsetCommitRequestTopic]) -> int:
        writer = Writer()
        write_offset_commit_request(OffsetCommitRequest(topics=topics), version, writer)
        return len(writer.to_bytes())

    topics = [OffsetCommitRequestTopic()] * (WHOLE_ELEMENTS_MAX + 24)
    offsets = [OffsetCommitRequestPartition()] * 300
    assert size(topics) > OFFSETS.few_bytes
    assert size([OffsetCommitRequestTopic(partitions=offsets)]) > OFFSETS.few_bytes
