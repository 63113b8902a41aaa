"""Sealed segments: a file's line in the manifest, and the key it has in the filer."""

from dataclasses import dataclass
from typing import NamedTuple

SEGMENTS_PREFIX = "topics/"
UNDECIDED = "undecided"  # The kind of those that have a table of their own in the manifest.
ATTEMPT_BITS = 62  # Drawn at random, so that no name comes twice; SQL stores 63.
KiB = 1024
BATCH_BYTES = 256 * KiB  # The largest batch of several records that is made from a segment.
ASKED_BYTES_MIN = KiB  # A client that asks for less gets this much: a batch costs microseconds.


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A line of the manifest: an immutable file with the records base_offset <= o < end_offset.

    `kind` is "parquet", or "raw" for batches as they were sent, or "undecided" for all batches
    behind the start of an open transaction. `path` is its key in the filer, `bytes` and `crc32c`
    are those of the whole file. `untyped_count` are records whose value does not fit the topic's
    schema. `attempt` was drawn at random for the file's name, which no other file ever has.
    `compacted_ms` is when its records were first compacted, with all before them; 0: never.

    Look-ups go by the records' times, `min_timestamp_ms` and `max_timestamp_ms`. Only the times in
    the headers of its batches were checked when they came: retention and compaction go by the
    smallest and the largest of these, `oldest_ms` and `newest_ms`; a batch without a time counts
    from `committed_ms`.
    """

    partition_number: int
    base_offset: int
    end_offset: int
    kind: str
    path: str
    bytes: int
    crc32c: int
    record_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    attempt: int
    committed_ms: int
    compacted_ms: int = 0
    untyped_count: int = 0
    oldest_ms: int = -1
    newest_ms: int = -1


class KnownEnds(NamedTuple):
    """What the manifest has of a partition: below which offset records were deleted, where its
    segments end, and where its undecided ones; 0: none."""

    number: int
    log_start: int
    sealed_end: int
    undecided_end: int

    @property
    def end(self) -> int:
        """The partition does not end below this."""
        return max(self.log_start, self.sealed_end, self.undecided_end)


class BatchLimits(NamedTuple):
    """How large batches are that are made from a segment's rows.

    Several records share at most `shared_bytes`, which a client may ask for. A record that exceeds
    `alone_bytes`, the topic's `max.message.bytes`, by itself was sent compressed, and is again.
    """

    shared_bytes: int = BATCH_BYTES
    alone_bytes: int = 2**31 - 1

    @classmethod
    def of(cls, message_bytes_max: int, asked_bytes: int) -> "BatchLimits":
        """The limits for a topic and a client that asks for `asked_bytes`.

        `shared_bytes` is a power of two, so that clients whose wishes differ little share a cached
        file.
        """
        shared = max(1, min(BATCH_BYTES, message_bytes_max, max(asked_bytes, ASKED_BYTES_MIN)))
        return cls(1 << shared.bit_length() - 1, message_bytes_max)


ANY_SIZE = BatchLimits()
NO_LIMIT = 2**63 - 1


class SegmentReach(NamedTuple):
    """Up to where undecided segments are read.

    Batches end before `limit`. All but the first one end before `told_end` too: the aborted
    transactions up to there are told with them.
    """

    limit: int = NO_LIMIT
    told_end: int = NO_LIMIT


ANY_REACH = SegmentReach()


class SealedPartition(NamedTuple):
    """A partition: the directory of its files, and its number."""

    namespace: str
    topic: str
    partition: int
    number: int

    def key(self, base_offset: int, end_offset: int, attempt: int, suffix: str) -> str:
        """The key of a segment's file in the filer."""
        directory = f"{directory_of(self.namespace, self.topic)}partition={self.partition}/"
        return f"{directory}{base_offset:020d}-{end_offset}-{attempt}.{suffix}"


TABLE_METADATA = ("metadata", "_delta_log")  # Directories beside those of partitions.


def topic_directory(key: str) -> str:
    """The directory of the topic that a key below SEGMENTS_PREFIX belongs to."""
    return "".join(f"{part}/" for part in key.split("/")[:3])


def is_table_metadata(key: str) -> bool:
    """Whether a key belongs to a lake table's metadata, not to a segment."""
    parts = key.split("/")
    return key.startswith(SEGMENTS_PREFIX) and len(parts) > 4 and parts[3] in TABLE_METADATA


def directory_of(namespace: str, topic: str) -> str:
    """Where a topic's segments lie in the filer."""
    return f"{SEGMENTS_PREFIX}{namespace}/{topic}/"
