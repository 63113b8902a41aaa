"""The walk over an answer finds every error code in it, within a bound."""

import pytest

from gateway.apis.table import APIS, Api
from gateway.error_codes import ELEMENTS_MAX, error_codes, error_codes_of_rows
from smq.wire.generated.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from smq.wire.generated.heartbeat import HeartbeatResponse
from smq.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from smq.wire.generated.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from smq.wire.messages.tables import APIS as TABLES
from tests.wire.oracles import default_message

HEARTBEAT, LIST_OFFSETS, OFFSET_FETCH, DELETE_ACLS = 12, 2, 9, 31


def offsets(*topics: list[int]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                partitions=[ListOffsetsPartitionResponse(error_code=code) for code in codes]
            )
            for codes in topics
        ]
    )


def test_a_code_of_the_whole_answer_is_found() -> None:
    assert error_codes(HEARTBEAT, 4, HeartbeatResponse(error_code=25)) == {25: 1}


def test_an_answer_without_errors_has_none() -> None:
    assert error_codes(HEARTBEAT, 4, HeartbeatResponse()) == {}
    assert error_codes(LIST_OFFSETS, 10, offsets([0, 0], [])) == {}


def test_codes_of_rows_are_counted_each() -> None:
    assert error_codes(LIST_OFFSETS, 10, offsets([3, 0, 6], [3, -1])) == {3: 2, 6: 1, -1: 1}


def test_codes_at_several_depths_are_found() -> None:
    acl = DeleteAclsMatchingAcl(error_code=7)
    rows = [DeleteAclsFilterResult(error_code=31, matching_acls=[acl, acl])]
    assert error_codes(DELETE_ACLS, 3, DeleteAclsResponse(filter_results=rows)) == {31: 1, 7: 2}


def test_fields_that_a_version_does_not_send_do_not_count() -> None:
    partition = OffsetFetchResponsePartitions(error_code=3)
    topic = OffsetFetchResponseTopics(partitions=[partition])
    response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(topics=[topic], error_code=16)])
    assert error_codes(OFFSET_FETCH, 1, response) == {3: 1}
    for version in (2, 7, 8):  # Before 8 there are no groups.
        assert error_codes(OFFSET_FETCH, version, response) == {3: 1, 16: 1}


def test_only_the_first_elements_are_looked_at() -> None:
    response = offsets([3] * 10, [6] * ELEMENTS_MAX)
    found = error_codes(LIST_OFFSETS, 10, response)
    assert found == {3: 10, 6: ELEMENTS_MAX - 13}  # The answer and two topics count as well.


def test_rows_of_a_part_are_added_to_those_before() -> None:
    found = {3: 1}
    error_codes_of_rows(LIST_OFFSETS, 10, ("topics",), offsets([3, 6]).topics, found)
    error_codes_of_rows(LIST_OFFSETS, 10, ("elsewhere",), offsets([3, 6]).topics, found)
    assert found == {3: 2, 6: 1}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_walk_fits_every_answer(api: Api) -> None:
    [table] = (each for each in TABLES if each.key == api.key)
    for version in api.versions:
        response = default_message(table, f"{table.name}Response", version)
        assert error_codes(api.key, version, response) == {}
