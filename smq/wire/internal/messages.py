"""The table of what our own processes ask each other.

A question names the type of its answer: `class FindEnds(Question[Ends])`. The asker gets that type,
or Failed; a misspelt field is a type error. Both travel as smq.wire.internal.form says.

    shard  ──FOR_SEALER──▶               sealer    ──FOR_WORKER──▶  its workers
    sealer, its workers  ──FOR_SHARD──▶ shard
    workers  ──FOR_COORDINATOR──▶       coordinator

`number` is a partition's number in the catalog, `node` the id of the shard that leads it.
"""

from dataclasses import dataclass
from typing import NamedTuple

from smq.model.segments import SealedPartition, Segment
from smq.model.topic_configs import TopicSettings
from smq.wire.internal.form import Question, by_name
from smq.wire.internal.telemetry import FindPush, ListPushes
from smq.wire.internal.transactions import AddPartitions, FindTransactions, SyncLogs, WriteMarkers


class PartitionState(NamedTuple):
    """The state of a partition, as its shard reports it."""

    number: int
    log: int
    start: int
    sealed_end: int
    stable_end: int
    unsealed_bytes: int
    oldest_ms: int


class Part(NamedTuple):
    """The unsealed records of a partition that a full segment of the log holds."""

    end_offset: int
    newest_ms: int
    bytes: int


class Ends(NamedTuple):
    """Up to where a partition is sealed, and where its log ends, visible or not."""

    sealed_end: int
    log_end: int


class Owner(NamedTuple):
    """A topic: how long an upload may wait, and (number, node) of each of its partitions."""

    namespace: str
    topic: str
    orphan_ms: int
    partitions: list[tuple[int, int]]


# What a shard answers.


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What has changed of a shard's partitions after version `since` up to `version`.

    `since` is 0 when all is told anew (smq.shard.changes); versions are of one `life` of the shard.
    """

    life: int
    since: int
    version: int
    more: bool
    gone: list[int]
    partitions: list[PartitionState]
    wal_bytes: int
    wal_bytes_max: int


@dataclass(frozen=True, slots=True)
class Partitions(Question[ShardFacts]):
    """What has changed since a version of a life of the shard, or a first part of it."""

    life: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True)
class RawBatches:
    """Behind it come this many bytes of batches."""

    bytes: int


@dataclass(frozen=True, slots=True)
class Batches(Question[RawBatches]):
    """Whole batches from the one that holds `offset` on.

    `synced`: answered when the WAL has them on disk, for what is sealed must not outlive the log,
    or its offsets are used again. `shown`: only what everybody may see.
    """

    number: int
    offset: int
    bytes_max: int
    synced: bool = True
    shown: bool = True


@dataclass(frozen=True, slots=True)
class MarkSealed(Question[bool]):
    """Sealed segments hold all below `end`. Answered when the checkpoint with it is durable."""

    number: int
    end: int


@dataclass(frozen=True, slots=True)
class MarkCompacted(Question[bool]):
    """Sealed segments hold all below `end`, compacted: it is read from there."""

    number: int
    end: int


@dataclass(frozen=True, slots=True)
class RaiseLogStart(Question[bool]):
    """Retention has dropped what is below `offset`. Answered as MarkSealed."""

    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Unsealed(Question[list[Part]]):
    """What full segments of the WAL hold of a partition that is not sealed, in order."""

    number: int


@dataclass(frozen=True, slots=True)
class FindEnds(Question[Ends]):
    """Up to where a partition is sealed, and where its log ends."""

    number: int


@dataclass(frozen=True, slots=True)
class LogMemory:
    """The size of a log's memory, whose descriptor comes with the answer."""

    bytes: int


@dataclass(frozen=True, slots=True)
class Attach(Question[LogMemory]):
    """A log's memory, read-only."""

    log: int


FOR_SHARD = by_name(
    Partitions,
    Batches,
    MarkSealed,
    MarkCompacted,
    RaiseLogStart,
    Unsealed,
    FindEnds,
    Attach,
    WriteMarkers,
    SyncLogs,
    ListPushes,
    FindPush,
)


# What the sealer answers, by its workers but for the first.


@dataclass(frozen=True, slots=True)
class Pressure(Question[bool]):
    """The WAL has grown too much: seal what there is, whatever its size."""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """Batches as a range of a file of the sealer; the offset behind them; was the file there?"""

    path: str
    at: int
    length: int
    next_offset: int
    is_cached: bool = False


@dataclass(frozen=True, slots=True)
class Cold(Question[BatchFile]):
    """Batches from sealed segments."""

    number: int
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Inline(Question[BatchFile]):
    """Batches with payloads in place of their handles, from the log or from segments."""

    number: int
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class RecordTime:
    """Where a record is, and its time."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class OffsetForTime(Question[RecordTime | None]):
    """The first sealed record of a time or later, if there is one, at `log_start` or behind."""

    number: int
    timestamp: int
    log_start: int = 0


@dataclass(frozen=True, slots=True)
class FindPayloads(Question[dict[str, tuple[int, int] | None]]):
    """Of each payload its length and when it was uploaded in ms; None: there is none."""

    keys: list[str]


@dataclass(frozen=True, slots=True)
class Storage:
    """What partitions have sealed, in the order they were asked for, and the disk of the logs."""

    sealed_bytes: list[int]
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True)
class DescribeStorage(Question[Storage]):
    """How much is stored of partitions."""

    numbers: list[int]


FOR_SEALER = by_name(Pressure, Cold, Inline, OffsetForTime, FindPayloads, DescribeStorage)


# What a worker of the sealer answers.


@dataclass(frozen=True, slots=True)
class Probe(Question[str | None]):
    """Why the filer must not be used, if it must not."""


@dataclass(frozen=True, slots=True)
class Seal(Question[int]):
    """Seal a partition; up to which offset it is sealed then."""

    node: int
    place: SealedPartition
    sealed_end: int
    end: int
    segment_bytes: int
    schema: str = ""


@dataclass(frozen=True, slots=True)
class DropUnsealed(Question[int]):
    """Drop what could not be sealed and is no longer kept; where the log starts then."""

    node: int
    place: SealedPartition
    settings: TopicSettings
    unsealed_bytes: int


@dataclass(frozen=True, slots=True)
class Retained:
    """The files that were deleted, and whether more are to go."""

    deleted: list[str]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Retain(Question[Retained]):
    """Delete some of what a partition no longer keeps."""

    node: int
    place: SealedPartition
    settings: TopicSettings
    shard_start: int
    unsealed_bytes: int


@dataclass(frozen=True, slots=True)
class Merge(Question[int]):
    """Merge some of a partition's small segments, if that is due; how many became one."""

    place: SealedPartition
    settings: TopicSettings


@dataclass(frozen=True, slots=True)
class Compact(Question[bool]):
    """Take a step of compacting a partition, if that is due; whether there is more to do.

    The worker remembers how far it is. One that does not begins anew, with what is left.
    """

    node: int
    place: SealedPartition
    settings: TopicSettings


@dataclass(frozen=True, slots=True)
class Swept:
    """What was deleted of a page of files; `after` which the next page begins, if there is one."""

    swept: list[str]
    after: str | None


@dataclass(frozen=True, slots=True)
class Sweep(Question[Swept]):
    """Of a page of segments' files delete those that no line of the manifest names."""

    before_ms: int
    after: str


@dataclass(frozen=True, slots=True)
class SweepPayloads(Question[Swept]):
    """Of a page of payloads delete those that no record names any more and none can name."""

    owners: list[Owner]
    before_ms: int
    after: str


@dataclass(frozen=True, slots=True)
class PublishTable(Question[bool]):
    """Have a topic's lake table follow the manifest; whether more commits are to come.

    `numbers` are those of its partitions, in order. Snapshots are kept for `keep_ms`. `check`: look
    at the table even if the manifest is as it was when the table was made equal to it.
    """

    topic_id: str
    namespace: str
    topic: str
    format: str
    numbers: list[int]
    keep_ms: int
    schema: str = ""
    check: bool = False


@dataclass(frozen=True, slots=True)
class WithdrawTable(Question[bool]):
    """Drop a lake table that no topic has any more."""

    namespace: str
    topic: str
    format: str


@dataclass(frozen=True, slots=True)
class ForgetUnfinished(Question[int]):
    """Forget unfinished writes that nobody has touched since; how many there were."""

    before_ms: int


@dataclass(frozen=True, slots=True)
class MakeInline(Question[BatchFile]):
    """`Inline`, with what the sealer knows of the partition."""

    node: int
    place: SealedPartition
    offset: int
    bytes_max: int


FOR_WORKER = by_name(
    Probe,
    Seal,
    DropUnsealed,
    Retain,
    Merge,
    Compact,
    Sweep,
    SweepPayloads,
    PublishTable,
    WithdrawTable,
    ForgetUnfinished,
    FindPayloads,
    Cold,
    MakeInline,
    OffsetForTime,
    DescribeStorage,
)


# What the coordinator answers, after the change is durable.


@dataclass(frozen=True, slots=True)
class SegmentPage:
    """A partition's log start and some of its segments, in order."""

    log_start: int
    segments: list[Segment]


@dataclass(frozen=True, slots=True)
class ListSegments(Question[SegmentPage]):
    """Those with records at or after `from_offset`, a page of them.

    After a full page the next begins at the end offset of the last.
    """

    number: int
    from_offset: int = 0


@dataclass(frozen=True, slots=True)
class CommitSegments(Question[list[Segment]]):
    """Add these to the manifest, all or none; what it has in their place.

    Again is harmless: the segment that is there already comes back, and the file of the other is
    one too many. Those of deleted topics are left out. An overlap fails. `payloads` are the ids of
    those that each segment's records name; none of any segment if the list is empty.
    """

    segments: list[Segment]
    payloads: list[list[str]]


@dataclass(frozen=True, slots=True)
class DeleteSegments(Question[bool]):
    """Take these out of the manifest.

    With `replaced_ms` their files stay as replaced ones do, for a table still names them.
    """

    number: int
    base_offsets: list[int]
    replaced_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReplaceSegments(Question[bool]):
    """Have `new` in place of its neighbours `old`; False: the partition is gone.

    Again is harmless. Fails when the manifest does not have exactly these. `payloads` are the ids
    of those that its records name; None: those that the old ones name.
    """

    old: list[Segment]
    new: Segment
    now_ms: int
    payloads: list[str] | None = None


@dataclass(frozen=True, slots=True)
class SetLogStart(Question[bool]):
    """Raise a partition's log start offset; it never goes back."""

    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class EnsureTopics(Question[dict[str, str | None]]):
    """Make the topics that are not there; why not, for each, or None."""

    names: list[str]


FOR_COORDINATOR = by_name(
    ListSegments,
    CommitSegments,
    DeleteSegments,
    ReplaceSegments,
    SetLogStart,
    EnsureTopics,
    AddPartitions,
    FindTransactions,
)
