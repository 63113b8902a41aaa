"""The table of questions between our own processes.

A question names the type of its answer: `class FindEnds(Question[Ends])`. The asker gets that type,
or Failed; a misspelt field is a type error. smq.wire.internal.form encodes both.

    shard  ──FOR_SEALER──▶               sealer    ──FOR_WORKER──▶  its workers
    sealer, its workers  ──FOR_SHARD──▶ shard, also from the coordinator
    shards, workers  ──FOR_COORDINATOR──▶  coordinator

`number` is a partition's number in the catalog, `node` the id of the shard that leads it.
"""

from typing import NamedTuple

from smq.model.frozen import frozen
from smq.model.segments import SealedPartition
from smq.model.topic_settings import TopicSettings
from smq.wire.internal.form import Question, by_name
from smq.wire.internal.groups import HoldGroups
from smq.wire.internal.manifest import FOR_MANIFEST
from smq.wire.internal.reads import Cold, Inline, MakeInline, NewestRecord, OffsetForTime
from smq.wire.internal.telemetry import FindPush, ListPushes
from smq.wire.internal.transactions import AddPartitions, FindTransactions, SyncLogs, WriteMarkers


class PartitionState(NamedTuple):
    """The state of a partition, as its shard reports it.

    `sealed_end`: below it segments hold what is decided. `undecided_end`: below it they hold the
    rest too, as sent.
    """

    number: int
    log: int
    start: int
    sealed_end: int
    stable_end: int
    unsealed_bytes: int
    oldest_ms: int
    undecided_end: int = 0
    high_watermark: int = 0


class UnsealedPart(NamedTuple):
    """The unsealed records of a partition in a full segment of the log."""

    end_offset: int
    newest_ms: int
    bytes: int


@frozen
class UnsealedParts:
    """What a partition has from `undecided_end` on, as of one moment: its bytes, and its parts.

    The ends are those of PartitionState.
    """

    sealed_end: int
    bytes: int
    parts: list[UnsealedPart]
    undecided_end: int
    stable_end: int


class Ends(NamedTuple):
    """The sealed end of a partition, and its log end, visible or not."""

    sealed_end: int
    log_end: int


class Owner(NamedTuple):
    """A topic: how long an upload may wait for a record, and (number, node) of each partition."""

    namespace: str
    topic: str
    orphan_ms: int
    partitions: list[tuple[int, int]]


# What a shard answers.


@frozen
class ShardFacts:
    """The changes of a shard's partitions after version `since` up to `version`.

    `since` is 0 in a full answer (smq.shard.changes); versions belong to one `life` of the shard.
    """

    life: int
    since: int
    version: int
    more: bool
    gone: list[int]
    partitions: list[PartitionState]
    wal_bytes: int
    wal_bytes_max: int
    cpu_ms: int = 0  # The processor's time that the shard has used.


@frozen
class Partitions(Question[ShardFacts]):
    """Ask for changes since a version of a life of the shard, or the first part of them."""

    life: int = 0
    since: int = 0


@frozen
class RawBatches:
    """An answer followed by this many bytes of batches; `is_unread`: the disk cannot read any."""

    bytes: int
    is_unread: bool = False


@frozen
class Batches(Question[RawBatches]):
    """Ask for whole batches from the one that holds `offset` on.

    `synced`: answer once the WAL has them on disk, since sealed records must not outlive the log,
    or their offsets would be used again. `shown`: only visible batches. `as_sent`: up to the high
    watermark, aborted ones too.
    """

    number: int
    offset: int
    bytes_max: int
    synced: bool = True
    shown: bool = True
    as_sent: bool = False


@frozen
class MarkSealed(Question[bool]):
    """Report that sealed segments hold all below `end`: what is decided, or batches as sent.

    Answered when the checkpoint with it is durable.
    """

    number: int
    end: int
    is_decided: bool = True


@frozen
class FindAborted(Question[list[tuple[int, int, int]]]):
    """Ask for the aborted transactions of some producers with records or markers in [start, end),
    which is decided: producer id, first offset, offset of the marker."""

    number: int
    start: int
    end: int
    producers: list[int]


@frozen
class MarkCompacted(Question[bool]):
    """Say that segments below `end` are about to be compacted: readers must use them from now on.

    Answered as MarkSealed.
    """

    number: int
    end: int


@frozen
class RaiseLogStart(Question[bool]):
    """Report that retention has dropped all below `offset`. Answered as MarkSealed."""

    number: int
    offset: int


@frozen
class Unsealed(Question[UnsealedParts]):
    """Ask for a partition's unsealed bytes, and the parts in full segments of the WAL, in order."""

    number: int


@frozen
class FindEnds(Question[Ends]):
    """Ask for the sealed end and the log end of a partition."""

    number: int


@frozen
class LogMemory:
    """The size of a log's memory, whose descriptor comes with the answer."""

    bytes: int


@frozen
class Attach(Question[LogMemory]):
    """A log's memory, read-only."""

    log: int


@frozen
class FollowRights(Question[bool]):
    """Users or access rules have changed: answer what waits by them now.

    A shard looks at them before each decision anyway, but does not wake for them.
    """


FOR_SHARD = by_name(
    Partitions,
    Batches,
    MarkSealed,
    FindAborted,
    MarkCompacted,
    RaiseLogStart,
    Unsealed,
    FindEnds,
    Attach,
    WriteMarkers,
    SyncLogs,
    FollowRights,
    ListPushes,
    FindPush,
)


# Answered by the sealer; its workers answer all but the first.


@frozen
class Pressure(Question[bool]):
    """The WAL has grown too much: seal all partitions, whatever their size."""


@frozen
class FindPayloads(Question[dict[str, tuple[int, int] | None]]):
    """Ask for the length and the upload time in ms of each payload; None: it does not exist."""

    keys: list[str]


@frozen
class Storage:
    """The sealed bytes of partitions, in the order of the request, and the disk of the logs."""

    sealed_bytes: list[int]
    total_bytes: int
    usable_bytes: int


@frozen
class DescribeStorage(Question[Storage]):
    """Ask how much of partitions is stored, up to where their logs say that they are sealed."""

    numbers: list[int]
    sealed_ends: list[int]


FOR_SEALER = by_name(
    Pressure, Cold, Inline, OffsetForTime, NewestRecord, FindPayloads, DescribeStorage
)


# Answered by a worker of the sealer.


@frozen
class Probe(Question[str | None]):
    """Ask why the filer must not be used, if so."""


@frozen
class Seal(Question[int]):
    """Seal a partition; answers its new sealed end. `log_start` is the shard's.

    With `undecided_end`, what lies from `end` up to there is sealed as it was sent; `known_end` is
    where the shard knows that this ends so far.
    """

    node: int
    place: SealedPartition
    sealed_end: int
    end: int
    segment_bytes: int
    schema: str = ""
    log_start: int = 0
    undecided_end: int = 0
    known_end: int = 0


@frozen
class DropUnsealed(Question[int]):
    """Drop expired records that could not be sealed; answers the new log start."""

    node: int
    place: SealedPartition
    settings: TopicSettings


@frozen
class Retained:
    """The deleted files, and whether more remain."""

    deleted: list[str]
    has_more: bool


@frozen
class Retain(Question[Retained]):
    """Delete some of a partition's expired segments.

    `state` is as old as the job: sealing may have moved records since, so only segments below its
    sealed end count beside its unsealed bytes.
    """

    node: int
    place: SealedPartition
    settings: TopicSettings
    state: PartitionState


@frozen
class Merge(Question[int]):
    """Merge some of a partition's small segments, if due; answers how many became one."""

    place: SealedPartition
    settings: TopicSettings


@frozen
class Compact(Question[bool]):
    """Take a step of compacting a partition, if due; answers whether there is more to do.

    The worker remembers its progress. A new worker starts over with the remaining segments.
    """

    node: int
    place: SealedPartition
    settings: TopicSettings


@frozen
class Unnamed:
    """The files of a page that nothing names; `after` is where the next page begins, if any."""

    files: list[str]
    after: str | None


@frozen
class FindUnnamed(Question[Unnamed]):
    """Ask for the files of a page that are no segments, nor were some since `before_ms`."""

    before_ms: int
    after: str


@frozen
class Sweep(Question[list[str]]):
    """Delete those of these files that nothing names, as FindUnnamed says; answers which."""

    files: list[str]
    before_ms: int


@frozen
class FindOrphans(Question[Unnamed]):
    """Ask for the payloads of a page that no record names and no new record may name.

    Those of topics without an owner count if they are older than `before_ms`, by the filer's times.
    """

    owners: list[Owner]
    before_ms: int
    after: str


@frozen
class SweepPayloads(Question[list[str]]):
    """Condemn these payloads, and delete those that have been condemned long enough.

    `settle_ms` is long enough for topics without an owner. Answers which are deleted.
    """

    owners: list[Owner]
    keys: list[str]
    settle_ms: int


@frozen
class PublishTable(Question[bool]):
    """Have a topic's lake table follow the manifest; answers whether more commits remain.

    `numbers` are those of its partitions, in order. Snapshots are kept for `keep_ms`. `check`: read
    the table even if the manifest has not changed since the table matched it.
    """

    topic_id: str
    namespace: str
    topic: str
    format: str
    numbers: list[int]
    keep_ms: int
    schema: str = ""
    check: bool = False


@frozen
class WithdrawTable(Question[bool]):
    """Drop the lake table of a deleted topic."""

    namespace: str
    topic: str
    format: str


@frozen
class ForgetUnfinished(Question[dict[str, int]]):
    """Delete unfinished writes that were not touched since these times, or whose writer is gone.

    Answers the others, and when each was touched last, in ms of the filer's clock.
    """

    idle: dict[str, int]


FOR_WORKER = by_name(
    Probe,
    Seal,
    DropUnsealed,
    Retain,
    Merge,
    Compact,
    FindUnnamed,
    Sweep,
    FindOrphans,
    SweepPayloads,
    PublishTable,
    WithdrawTable,
    ForgetUnfinished,
    FindPayloads,
    Cold,
    MakeInline,
    OffsetForTime,
    NewestRecord,
    DescribeStorage,
)


# Answered by the coordinator, after the change is durable; so are those of `manifest`.


@frozen
class EnsureTopics(Question[dict[str, str | None]]):
    """Create missing topics; answers why not, for each, or None."""

    names: list[str]


@frozen
class Audited(Question[bool]):
    """Lines for the audit log: of acts, kept until this is answered; of denials and logins."""

    acts: list[str]
    accesses: list[str]


FOR_COORDINATOR = by_name(
    *FOR_MANIFEST,
    EnsureTopics,
    AddPartitions,
    FindTransactions,
    Audited,
    HoldGroups,
)
