"""Old versions as the newer ones that say the same, against kafka-python's old codecs' layouts."""

from struct import pack

import pytest
from hypothesis import given, strategies as st

from smq.model.errors import PeerError
from smq.wire.codec import Writer
from smq.wire.generated.apis import API_BY_KEY
from smq.wire.generated.create_topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
    read_create_topics_request,
    write_create_topics_response,
)
from smq.wire.generated.fetch import read_fetch_request
from smq.wire.generated.list_offsets import read_list_offsets_request
from smq.wire.generated.offset_commit import read_offset_commit_request
from smq.wire.generated.offset_fetch import read_offset_fetch_request
from smq.wire.headers import read_request_header
from smq.wire.legacy.versions import (
    CREATE_TOPICS,
    FETCH,
    FETCH_BYTES_MAX,
    LIST_OFFSETS,
    NEWER,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    newer_of,
)


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


ONE_TOPIC = pack(">i", 1) + text("t") + pack(">i", 1)
BODIES = {
    (FETCH, 0): pack(">iii", -1, 500, 1) + ONE_TOPIC + pack(">iqi", 3, 9, 77),
    (FETCH, 3): pack(">iiii", -1, 500, 1, 99) + ONE_TOPIC + pack(">iqi", 3, 9, 77),
    (LIST_OFFSETS, 0): pack(">i", -1) + ONE_TOPIC + pack(">iqi", 3, -2, 10),
    (OFFSET_COMMIT, 0): text("g") + ONE_TOPIC + pack(">iq", 3, 9) + text("m"),
    (OFFSET_COMMIT, 1): text("g") + pack(">i", 5) + text("member") + ONE_TOPIC
    + pack(">iqq", 3, 9, 123) + text("m"),
    (OFFSET_FETCH, 0): text("g") + ONE_TOPIC + pack(">i", 3),
    (CREATE_TOPICS, 0): pack(">i", 1) + text("t") + pack(">ihii", 3, 1, 0, 0) + pack(">i", 9),
    (CREATE_TOPICS, 1): pack(">i", 1) + text("t") + pack(">ihii", 3, 1, 0, 0)
    + pack(">i?", 9, True),
}  # fmt: skip
READ = {
    FETCH: read_fetch_request,
    LIST_OFFSETS: read_list_offsets_request,
    OFFSET_COMMIT: read_offset_commit_request,
    OFFSET_FETCH: read_offset_fetch_request,
    CREATE_TOPICS: read_create_topics_request,
}


def request(key: int, version: int, body: bytes) -> bytes:
    return pack(">hhi", key, version, 7) + text("c") + body


def newer(key: int, version: int) -> object:
    found = newer_of(request(key, version, BODIES[key, version]))
    header, at = read_request_header(found[2], 0)
    assert (header.api_key, header.api_version, header.correlation_id) == (
        key, found[1].version, 7,
    )  # fmt: skip
    return READ[key](found[2], at, header.api_version)


def test_a_fetch_reads_what_is_not_committed_and_a_megabyte_at_most() -> None:
    for version, limit in ((0, FETCH_BYTES_MAX), (3, 99)):
        said = newer(FETCH, version)
        assert (said.max_wait_ms, said.min_bytes, said.max_bytes) == (500, 1, limit)  # type: ignore[attr-defined]
        assert said.isolation_level == 0  # type: ignore[attr-defined]
        [each] = said.topics[0].partitions  # type: ignore[attr-defined]
        assert (each.partition, each.fetch_offset, each.partition_max_bytes) == (3, 9, 77)


def test_offsets_are_listed_by_time() -> None:
    [each] = newer(LIST_OFFSETS, 0).topics[0].partitions  # type: ignore[attr-defined]
    assert (each.partition_index, each.timestamp) == (3, -2)


@pytest.mark.parametrize(("version", "member"), [(0, (-1, "")), (1, (5, "member"))])
def test_offsets_are_committed(version: int, member: tuple[int, str]) -> None:
    said = newer(OFFSET_COMMIT, version)
    assert said.group_id == "g"  # type: ignore[attr-defined]
    assert (said.generation_id_or_member_epoch, said.member_id) == member  # type: ignore[attr-defined]
    [each] = said.topics[0].partitions  # type: ignore[attr-defined]
    assert (each.partition_index, each.committed_offset, each.committed_metadata) == (3, 9, "m")


@pytest.mark.parametrize("version", [0, 1])
def test_many_offsets_are_committed_as_they_were(version: int) -> None:
    time = pack(">q", -1) if version else b""
    names, counts, row = ("a", "", "b"), (200, 0, 300), pack(">iq", 3, 9)
    metadata = [pack(">h", -1), text(""), text("m" * 300)]
    head = text("g") + (pack(">i", 5) + text("member") if version else b"") + pack(">i", 3)
    topics = [
        text(name)
        + pack(">i", count)
        + b"".join(row + time + metadata[i % 3] for i in range(count))
        for name, count in zip(names, counts, strict=True)
    ]
    body = head + b"".join(topics)
    found = newer_of(request(OFFSET_COMMIT, version, body))
    _, at = read_request_header(found[2], 0)
    said = read_offset_commit_request(found[2], at, 2)
    assert [each.name for each in said.topics] == list(names)
    for topic, count in zip(said.topics, counts, strict=True):
        found_there = [each.committed_metadata for each in topic.partitions]
        assert found_there == [(None, "", "m" * 300)[i % 3] for i in range(count)]
        assert {each.committed_offset for each in topic.partitions} <= {9}


def test_offsets_are_fetched() -> None:
    said = newer(OFFSET_FETCH, 0)
    [group] = said.groups  # type: ignore[attr-defined]
    assert (group.group_id, list(group.topics[0].partition_indexes)) == ("g", [3])


def test_topics_are_created() -> None:
    assert [newer(CREATE_TOPICS, v).validate_only for v in (0, 1)] == [False, True]  # type: ignore[attr-defined]
    response = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", error_code=36, error_message="why")]
    )
    writer = Writer()
    write_create_topics_response(response, 2, writer)
    row = pack(">i", 1) + text("t") + pack(">h", 36)
    for version, said in ((0, row), (1, row + text("why"))):
        answer = NEWER[CREATE_TOPICS, version].answer
        assert answer is not None
        assert answer(writer.to_bytes()) == said


def test_a_version_becomes_one_that_is_not_old() -> None:
    for (key, version), newer in NEWER.items():
        assert version < newer.version == API_BY_KEY[key].first_version


@given(data=st.data())
def test_garbage_raises_nothing_but_its_own_error(data: st.DataObject) -> None:
    (key, version), body = data.draw(st.sampled_from(sorted(BODIES.items())))
    cut = body[: data.draw(st.integers(0, len(body)))] + data.draw(st.binary(max_size=20))
    try:
        found = newer_of(request(key, version, cut))
    except PeerError:
        return
    assert found[1].version == NEWER[key, version].version
