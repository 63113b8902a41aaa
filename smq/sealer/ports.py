"""The ports of the sealer's jobs: the shards, and the coordinator's manifest.

A port raises StoreError when the other side fails. That ends the job, and the next round finds the
unfinished work again.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from smq.model.segments import Segment
from smq.store.manifest import INT64_MIN
from smq.wire.internal.messages import Ends, UnsealedParts


class ShardPort(Protocol):
    """The shard that leads a partition."""

    def batches(self, number: int, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one with `offset`, below the last stable offset."""
        ...

    def tail(self, number: int, offset: int, bytes_max: int) -> bytes:
        """As `batches`, and also those that are not visible or not on disk yet."""
        ...

    def as_sent(self, number: int, offset: int, bytes_max: int) -> bytes:
        """As `batches`, up to the high watermark, and aborted ones as they were sent."""
        ...

    def aborted(
        self, number: int, start: int, end: int, producers: list[int]
    ) -> list[tuple[int, int, int]]:
        """The aborted transactions of some producers that overlap [start, end), which is decided:
        producer id, first offset, offset of the marker; in the order of the markers."""
        ...

    def sealed(self, number: int, end: int, *, is_decided: bool = True) -> None:
        """Report that all below `end` is sealed; returns once the shard's checkpoint is durable.

        Not `is_decided`: undecided segments hold the last of it.
        """
        ...

    def compacted(self, number: int, end: int) -> None:
        """Say that all below `end` is about to be compacted: the shard no longer serves its own
        copies. Returns once its checkpoint says so."""
        ...

    def log_start(self, number: int, offset: int) -> None:
        """Records below `offset` are deleted."""
        ...

    def unsealed(self, number: int) -> UnsealedParts:
        """A partition's unsealed bytes, and its records by full WAL segment, in order."""
        ...

    def ends(self, number: int) -> Ends:
        """The partition's sealed end and log end."""
        ...


class ManifestPort(Protocol):
    """The manifest; a change is durable when the call returns.

    What is read may not be durable yet. Who is about to free a log, to delete a file or to tell
    another store because of it calls `sync` in between.
    """

    def sync(self) -> None:
        """Return once all that was read is durable."""
        ...

    def has_topic(self, namespace: str, name: str) -> bool:
        """Whether the topic exists."""
        ...

    def segments(
        self,
        partition_number: int,
        from_offset: int = 0,
        *,
        newest_ms: int = INT64_MIN,
        count_max: int = -1,
    ) -> list[Segment]:
        """A page of segments with records from this offset on and at `newest_ms` or later."""
        ...

    def sealed_end(self, partition_number: int) -> int:
        """The end offset of the last segment; 0 if there is none."""
        ...

    def undecided(
        self, partition_number: int, from_offset: int = 0, count_max: int = -1
    ) -> list[Segment]:
        """The undecided segments with batches at or after `from_offset`, in order."""
        ...

    def commit_undecided(self, segment: Segment) -> bool:
        """Add an undecided segment; False: the partition was deleted."""
        ...

    def sealed_bytes(self, partition_number: int, end_offset: int, undecided_end: int = 0) -> int:
        """The size of the segments that end at this offset or before, and of the undecided ones
        between there and `undecided_end`."""
        ...

    def named_files(self, paths: Sequence[str]) -> set[str]:
        """Those of these files that are segments."""
        ...

    def replaced_files(self, paths: Sequence[str], since_ms: int) -> set[str]:
        """Those of these files that were segments and were replaced since a time."""
        ...

    def name_payloads(self, path: str, ids: Sequence[str]) -> None:
        """The records of a file that will be a segment name these payloads. Some at a time: see
        smq.sealer.payloads.name_all."""
        ...

    def payloads_of(self, paths: Sequence[str]) -> Iterator[list[str]]:
        """The payloads that the records of these segments' files name, some at a time."""
        ...

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace neighbours by one segment; False: the partition was deleted."""
        ...

    def log_start(self, partition_number: int) -> int:
        """The log start offset that retention has set."""
        ...

    def commit_segments(self, segments: list[Segment]) -> list[Segment]:
        """Add segments; returns the manifest's for these offsets. Skips deleted partitions."""
        ...

    def named_payloads(self, ids: Sequence[str]) -> set[str]:
        """Those of these payloads that records in segments refer to."""
        ...

    def delete_segments(self, paths: Sequence[str], *, are_replaced: bool = False) -> None:
        """Remove the segments in these files; those that are replaced stay for a while, for a table
        names them."""
        ...

    def condemn_files(self, paths: Sequence[str]) -> list[str]:
        """Condemn those of these files that are no segments: no line may name them any more."""
        ...

    def condemned_payloads(self, keys: Sequence[str]) -> set[str]:
        """Those of these payloads that are condemned."""
        ...

    def condemned_between(self, after: str, last: str | None, before_ms: int) -> list[str]:
        """Condemned payloads after a key, up to the last one of a page, condemned by a time."""
        ...

    def condemn_payloads(self, keys: Sequence[str], now_ms: int, settle_ms: int) -> list[str]:
        """Condemn payloads: no new record may name them; returns those settled for so long."""
        ...

    def forget_payloads(self, keys: Sequence[str]) -> None:
        """These condemned payloads are deleted."""
        ...

    def set_log_start(self, partition_number: int, offset: int) -> None:
        """Raise a partition's log start offset."""
        ...
