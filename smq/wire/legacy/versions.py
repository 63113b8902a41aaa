"""Converts API versions that Kafka 4 dropped to equivalent newer ones.

    request of an old version → of the newer one → handled → its answer → answer of the old version

Produce and Fetch also convert their records (smq.wire.legacy.conversion).

ListOffsets 0 asked for the starts of segments before a time; it is answered with the one offset
that version 1 has. OffsetCommit 0 and OffsetFetch 0 meant offsets in ZooKeeper: here they mean the
group's. The time of OffsetCommit 1 is the broker's.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from smq.wire.codec import (
    READ_ERRORS,
    Buffer,
    Malformed,
    Writer,
    read_count,
    read_string,
    write_nullable_string,
    write_string,
)
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.generated.create_topics import read_create_topics_response
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    read_list_offsets_response,
    write_list_offsets_request,
)
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    write_offset_commit_request,
)
from smq.wire.headers import RequestHeader, read_request_header, write_request_header

ELEMENTS_MAX = 20_000  # The largest request read here.
FETCH_BYTES_MAX = 1024 * 1024  # Batches to read for a fetch before conversion.
_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_TIME_AND_COUNT, _ERROR_AND_COUNT = Struct(">iqi"), Struct(">ihi")
_FETCH_HEAD_BYTES = 12  # Replica, wait and least bytes.
_NO_ISOLATION = b"\0"


class Newer(NamedTuple):
    """An old version: the newer one, its request's body and the old answer's.

    `answer` None: the answer is the same, or is made elsewhere.
    """

    version: int
    body: Callable[[Buffer, int], bytes]
    answer: Callable[[bytes], bytes] | None = None


def newer_of(request: Buffer) -> tuple[RequestHeader, Newer, bytes]:
    """An old request's header, its newer version and the request in that. Raises Malformed."""
    header, at = read_request_header(request, 0)
    newer = NEWER[header.api_key, header.api_version]
    writer = Writer()
    write_request_header(header._replace(api_version=newer.version), writer)
    try:
        writer.append(newer.body(request, at))
    except READ_ERRORS as error:
        raise Malformed(f"a request of an old version that is cut: {error}") from error
    return header, newer, writer.to_bytes()


def _same(body: Buffer, at: int) -> bytes:
    return bytes(body[at:])


# --- Fetch ----------------------------------------------------------------------------------------


def _fetch_without_limit(body: Buffer, at: int) -> bytes:
    head = at + _FETCH_HEAD_BYTES
    limit = _INT32.pack(FETCH_BYTES_MAX)
    return b"".join((body[at:head], limit, _NO_ISOLATION, body[head:]))


def _fetch_with_limit(body: Buffer, at: int) -> bytes:
    head = at + _FETCH_HEAD_BYTES
    [asked] = _INT32.unpack_from(body, head)
    limit = _INT32.pack(min(asked, FETCH_BYTES_MAX))
    return b"".join((body[at:head], limit, _NO_ISOLATION, body[head + _INT32.size :]))


# --- ListOffsets, OffsetCommit, CreateTopics ------------------------------------------------------


def _counted(body: Buffer, at: int) -> tuple[int, int]:
    count, at = read_count(body, at)
    if count > ELEMENTS_MAX:
        raise Malformed(f"{count} elements")
    return count, at


def _list_offsets(body: Buffer, at: int) -> bytes:
    [replica] = _INT32.unpack_from(body, at)
    count, at = _counted(body, at + _INT32.size)
    topics = []
    for _ in range(count):
        name, at = read_string(body, at)
        partition_count, at = _counted(body, at)
        partitions = []
        for _ in range(partition_count):
            index, time, _ = _TIME_AND_COUNT.unpack_from(body, at)
            partitions.append(ListOffsetsPartition(partition_index=index, timestamp=time))
            at += _TIME_AND_COUNT.size
        topics.append(ListOffsetsTopic(name=name, partitions=partitions))
    writer = Writer()
    write_list_offsets_request(ListOffsetsRequest(replica_id=replica, topics=topics), 1, writer)
    return writer.to_bytes()


def _listed_offsets(answer: bytes) -> bytes:
    response = read_list_offsets_response(answer, 0, 1)
    writer = Writer()
    append = writer.append
    append(_INT32.pack(len(response.topics)))
    for topic in response.topics:
        write_string(append, topic.name)
        append(_INT32.pack(len(topic.partitions)))
        for each in topic.partitions:
            found = each.error_code == 0 and each.offset >= 0
            append(_ERROR_AND_COUNT.pack(each.partition_index, each.error_code, found))
            append(_INT64.pack(each.offset) if found else b"")
    return writer.to_bytes()


def _offset_commit_0(body: Buffer, at: int) -> bytes:
    group, at = read_string(body, at)
    return _offset_commit(OffsetCommitRequest(group_id=group), [body[at:]])  # The same rows.


def _offset_commit_1(body: Buffer, at: int) -> bytes:
    """Its rows have times, which are left out: what lies between two of them is copied as it is."""
    group, at = read_string(body, at)
    [generation] = _INT32.unpack_from(body, at)
    member, start = read_string(body, at + _INT32.size)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member
    )
    rows: list[Buffer] = []
    count, at = _counted(body, start)
    for _ in range(count):
        _, at = read_string(body, at)
        partition_count, at = _counted(body, at)
        for _ in range(partition_count):
            at += _INT32.size + _INT64.size
            rows.append(body[start:at])
            start = at + _INT64.size
            [length] = _INT16.unpack_from(body, start)
            at = start + _INT16.size + max(0, length)
    rows.append(body[start:at])
    return _offset_commit(request, rows)


def _offset_commit(request: OffsetCommitRequest, rows: Sequence[Buffer]) -> bytes:
    """The request with these topics: it is read later, whatever they hold."""
    writer = Writer()
    write_offset_commit_request(request, 2, writer)
    empty = writer.to_bytes()
    return b"".join((empty[: -_INT32.size], *rows))


def _create_topics_0(body: Buffer, at: int) -> bytes:
    return bytes(body[at:]) + b"\0"  # Not only validated: they are created.


def _created_topics(answer: bytes, *, in_words: bool) -> bytes:
    response = read_create_topics_response(answer, 0, 2)
    writer = Writer()
    append = writer.append
    append(_INT32.pack(len(response.topics)))
    for topic in response.topics:
        write_string(append, topic.name)
        append(topic.error_code.to_bytes(2, signed=True))
        if in_words:
            write_nullable_string(append, topic.error_message)
    return writer.to_bytes()


# --- the table ------------------------------------------------------------------------------------

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, CREATE_TOPICS = (
    API_BY_NAME[name].key
    for name in (
        "Produce", "Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "CreateTopics"
    )
)  # fmt: skip

# Produce is not among them: its request is read before it is converted.
NEWER: dict[tuple[int, int], Newer] = {
    (FETCH, 0): Newer(4, _fetch_without_limit),
    (FETCH, 1): Newer(4, _fetch_without_limit),
    (FETCH, 2): Newer(4, _fetch_without_limit),
    (FETCH, 3): Newer(4, _fetch_with_limit),
    (LIST_OFFSETS, 0): Newer(1, _list_offsets, _listed_offsets),
    (OFFSET_COMMIT, 0): Newer(2, _offset_commit_0),
    (OFFSET_COMMIT, 1): Newer(2, _offset_commit_1),
    (OFFSET_FETCH, 0): Newer(1, _same),
    (CREATE_TOPICS, 0): Newer(
        2, _create_topics_0, lambda answer: _created_topics(answer, in_words=False)
    ),
    (CREATE_TOPICS, 1): Newer(2, _same, lambda answer: _created_topics(answer, in_words=True)),
}
OLD_KEYS = frozenset(key for key, _ in NEWER)  # Served from version 0, if at all.
