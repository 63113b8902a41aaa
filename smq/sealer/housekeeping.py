"""Retention and sweeping: what is deleted from the manifest, the log and the filer.

    log start raised in the manifest  →  shard told  →  lines deleted  →  files deleted

This order never sends a reader to a deleted file: nothing below the log start is read. Files that
no line names (of a killed seal, of a deleted topic) are swept once two sweeps have seen them so,
which is too long for work in progress:

    seen by a sweep  →  seen by the next one  →  condemned in the manifest  →  deleted
"""

from collections.abc import Iterable, Mapping
from itertools import chain, groupby
from types import MappingProxyType
from typing import NamedTuple

from smq.filer.store import Store
from smq.model.now import Now
from smq.model.segments import SealedPartition, is_table_metadata, topic_directory
from smq.model.topic_configs import NO_TABLE
from smq.model.topic_settings import TopicSettings
from smq.sealer.plan import Retention, Size, retain, retain_unsealed
from smq.sealer.ports import ManifestPort, ShardPort
from smq.store.manifest import walk
from smq.wire.internal.messages import PartitionState, UnsealedParts

NO_TABLES: Mapping[str, int] = MappingProxyType({})
DELETED_MAX = 100  # Segments at a time: some ms on a disk, some seconds on S3.


def drop_unsealed(
    shard: ShardPort, manifest: ManifestPort, number: int, settings: TopicSettings, wall_ms: int
) -> int:
    """Raise the log start over expired records that could not be sealed; 0: it stays.

    Works while the filer is down. The next retain() deletes the sealed segments below. Undecided
    ones that are decided by now lie between these and the log, and may wait for the filer too.
    """
    unsealed = shard.unsealed(number)
    undecided = manifest.undecided(number)  # First: one commit has others in their place.
    retention = retain(
        chain(walk(manifest, number), undecided),
        settings,
        wall_ms,
        size=_size(manifest, number, settings, unsealed),
    )
    if not retention.all_go:
        return 0
    log_start = retain_unsealed(unsealed, settings, wall_ms)
    if log_start > manifest.log_start(number):
        manifest.set_log_start(number, log_start)
        shard.log_start(number, log_start)
    return log_start


def _size(
    manifest: ManifestPort,
    number: int,
    settings: TopicSettings,
    log: UnsealedParts | PartitionState,
) -> Size:
    """A partition's size at the moment of what its log says of itself.

    An undecided segment of which a part is sealed again does not count: too little is deleted, not
    too much.
    """
    size = log.unsealed_bytes if isinstance(log, PartitionState) else log.bytes
    if settings.retention_bytes >= 0:
        size += manifest.sealed_bytes(number, log.sealed_end, log.undecided_end)
    return Size(log.sealed_end, size, log.undecided_end)


class Housekeeping(NamedTuple):
    """The job, and the ports it uses."""

    store: Store
    shard: ShardPort
    manifest: ManifestPort

    def retain(
        self, place: SealedPartition, settings: TopicSettings, now: Now, state: PartitionState
    ) -> Retention:
        """Delete some of a partition's expired segments. Raises StoreError.

        `state` is what the shard knew when it was last asked. Its start lags behind the manifest's
        after a kill between the two steps, and is ahead after DeleteRecords.
        """
        number = place.number
        sealed_start, shard_start = self.manifest.log_start(number), state.start
        retention = retain(
            walk(self.manifest, number),
            settings,
            now.wall_ms,
            log_start=max(sealed_start, shard_start),
            size=_size(self.manifest, number, settings, state),
            count_max=DELETED_MAX,
        )
        if retention.log_start > sealed_start:
            self.manifest.set_log_start(number, retention.log_start)
        if retention.log_start > shard_start:
            self.manifest.sync()  # The start may have been there.
            self.shard.log_start(number, retention.log_start)
        if retention.deleted:
            paths = [segment.path for segment in retention.deleted]
            has_table = settings.table != NO_TABLE
            self.manifest.delete_segments(paths, are_replaced=has_table)
            if has_table:  # It names the files until it follows; then they are swept.
                return retention
        for segment in retention.deleted:
            self.store.delete(segment.path)
        return retention

    def unnamed(
        self, paths: Iterable[str], before_ms: int, in_step_ms: Mapping[str, int] = NO_TABLES
    ) -> list[str]:
        """Those of these files that are no segments, and were none since `before_ms`.

        `in_step_ms` has, for each topic directory with a table, when the table last matched the
        manifest; 0: unknown. Files that the table may still name count as named, and so does its
        metadata.
        """
        some = [path for path in paths if not is_table_metadata(path)]
        kept = self.manifest.named_files(some)
        assert kept <= set(some)
        for directory, keys in groupby(some, topic_directory):
            since_ms = min(before_ms, in_step_ms.get(directory, before_ms))
            there = list(keys)
            kept |= self.manifest.replaced_files(there, since_ms) if since_ms else set(there)
        return [path for path in some if path not in kept]

    def sweep(
        self, paths: Iterable[str], before_ms: int, in_step_ms: Mapping[str, int] = NO_TABLES
    ) -> list[str]:
        """Delete those of these files that are unnamed; returns them.

        They are condemned first: a line may still be on its way to a coordinator that hung when its
        sealer gave it up.
        """
        condemned = self.manifest.condemn_files(self.unnamed(paths, before_ms, in_step_ms))
        for path in condemned:
            self.store.delete(path)
        return condemned
