"""An answer of many parts has the bytes of the answer made at once."""

from typing import Any

import pytest

from gateway.rows import Rows
from smq.testing.messages import codec_module
from smq.wire.codec import Writer
from smq.wire.generated.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup as Group,
    OffsetFetchResponsePartitions as Partition,
    OffsetFetchResponseTopics as Topic,
    write_offset_fetch_response,
)
from smq.wire.messages.tables import APIS

VERSION = 9
[API] = (api for api in APIS if api.name == "OffsetFetch")
[GROUPS] = (f for f in API.messages["OffsetFetchResponse"].fields if f.name == "groups")


def topic(name: str, *partitions: int) -> Topic:
    rows = [Partition(partition_index=each, committed_offset=each) for each in partitions]
    return Topic(name=name, partitions=rows)


def group(name: str, *topics: Topic) -> Group:
    return Group(group_id=name, topics=list(topics))


def written(response: OffsetFetchResponse) -> bytes:
    writer = Writer()
    write_offset_fetch_response(response, VERSION, writer)
    return writer.to_bytes()


def in_parts(*parts: tuple[list[Group], bool]) -> bytes:
    rows = Rows(codec_module(API), GROUPS, VERSION, ("topics", "partitions"))
    for groups, continues in parts:
        rows.add(groups, continues=continues)
    writer = Writer()
    response = OffsetFetchResponse(groups=rows.written(writer.append))
    write_offset_fetch_response(response, VERSION, writer)
    return writer.to_bytes()


def test_rows_that_go_on_are_one_row() -> None:
    whole = [group("g", topic("a", 1, 2, 3), topic("b", 4)), group("h", topic("a", 5))]
    assert in_parts(
        ([group("g", topic("a", 1))], False),
        ([group("g", topic("a", 2, 3))], True),
        ([group("g", topic("b", 4)), group("h", topic("a", 5))], True),
    ) == written(OffsetFetchResponse(groups=whole))


@pytest.mark.parametrize("continues", [False, True])
def test_rows_of_another_name_are_others(continues: bool) -> None:
    assert in_parts(
        ([group("g", topic("a", 1))], False), ([group("h", topic("a", 2))], continues)
    ) == written(OffsetFetchResponse(groups=[group("g", topic("a", 1)), group("h", topic("a", 2))]))


def test_a_row_that_comes_again_and_does_not_continue_is_another() -> None:
    twice = [group("g", topic("a", 1)), group("g", topic("a", 2))]
    assert in_parts(
        ([group("g", topic("a", 1))], False), ([group("g", topic("a", 2))], False)
    ) == written(OffsetFetchResponse(groups=twice))


def test_no_rows_are_an_empty_array() -> None:
    assert in_parts(([], False)) == written(OffsetFetchResponse(groups=[]))


def test_the_last_step_of_an_answer_joins_little_however_large_it_is() -> None:
    """An answer of 25 MB was joined three times, in steps of 17 ms."""
    rows = Rows(codec_module(API), GROUPS, VERSION, ("topics", "partitions"))
    for portion in range(3000):
        partitions = topic("a", *range(100 * portion, 100 * portion + 100))
        rows.add([group("g", partitions)], continues=portion > 0)
    before = rows.size
    assert before > 3_000_000
    writer = Writer()
    response = OffsetFetchResponse(groups=rows.written(writer.append))
    write_offset_fetch_response(response, VERSION, writer)
    pieces: list[Any] = writer.framed()
    assert before < sum(map(len, pieces)) < before + 100
    assert max(map(len, pieces)) < 200_000
    assert len(pieces) < 100
