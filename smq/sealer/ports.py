"""Whom the sealer's jobs talk to: the shards, and the manifest, which the coordinator keeps.

Whoever stands behind a port raises StoreError when the other side cannot do it; a job that meets
one ends, and what it had not finished is found again by the next round.
"""

from collections.abc import Sequence
from typing import Protocol

from smq.model.segments import Segment
from smq.store.manifest import INT64_MIN
from smq.wire.internal.messages import Ends, Part


class ShardPort(Protocol):
    """The shard that leads a partition."""

    def batches(self, number: int, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that holds `offset` on, below the last stable offset."""
        ...

    def tail(self, number: int, offset: int, bytes_max: int) -> bytes:
        """As `batches`, and those too that nobody may see yet or the disk does not have."""
        ...

    def sealed(self, number: int, end: int) -> None:
        """Everything below `end` is sealed; the shard's checkpoint that says so is durable."""
        ...

    def log_start(self, number: int, offset: int) -> None:
        """Records below `offset` are deleted."""
        ...

    def unsealed(self, number: int) -> list[Part]:
        """What full segments of the log hold of a partition that is not sealed, in order."""
        ...

    def ends(self, number: int) -> Ends:
        """Up to where the partition is sealed, and where it ends."""
        ...


class ManifestPort(Protocol):
    """The manifest; what is changed is durable when the call returns."""

    def has_topic(self, namespace: str, name: str) -> bool:
        """Whether there is such a topic now."""
        ...

    def segments(
        self,
        partition_number: int,
        from_offset: int = 0,
        *,
        newest_ms: int = INT64_MIN,
        count_max: int = -1,
    ) -> list[Segment]:
        """The first segments with records from this offset on, and as late as `newest_ms`."""
        ...

    def sealed_end(self, partition_number: int) -> int:
        """Where the last segment ends; 0: there is none."""
        ...

    def sealed_bytes(self, partition_number: int) -> int:
        """The size of all segments."""
        ...

    def named_files(self, paths: Sequence[str]) -> set[str]:
        """Those of these files that are segments."""
        ...

    def log_start(self, partition_number: int) -> int:
        """Where retention has moved the partition's start to."""
        ...

    def commit_segments(
        self, segments: list[Segment], payloads: Sequence[Sequence[str]] = ()
    ) -> list[Segment]:
        """Add these; what the manifest holds in their place. None for a partition that is gone.

        `payloads` are the ids of those that each segment's records name.
        """
        ...

    def named_payloads(self, ids: Sequence[str]) -> set[str]:
        """Those of these payloads that records in segments name."""
        ...

    def delete_segments(self, partition_number: int, base_offsets: list[int]) -> None:
        """Take these out."""
        ...

    def set_log_start(self, partition_number: int, offset: int) -> None:
        """Raise a partition's log start offset."""
        ...
