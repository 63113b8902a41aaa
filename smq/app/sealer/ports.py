"""The sealer's ports over unix sockets: a shard, and the coordinator's manifest.

The manifest is read from the SQL store itself, as by other readers: a cold read waits for no other
process. A commit can be read before it is durable; `sync` asks the coordinator, which answers after
its sync.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from smq.app.process.asker import Asker
from smq.model.errors import StoreError
from smq.model.segments import Segment
from smq.store.manifest import INT64_MIN, Manifest, open_manifest
from smq.wire.internal.manifest import (
    CommitSegments,
    CommitUndecided,
    CondemnFiles,
    CondemnPayloads,
    DeleteSegments,
    ForgetPayloads,
    NamePayloads,
    ReplaceSegments,
    SetLogStart,
    SyncManifest,
)
from smq.wire.internal.messages import (
    Batches,
    Ends,
    FindAborted,
    FindEnds,
    MarkCompacted,
    MarkSealed,
    RaiseLogStart,
    Unsealed,
    UnsealedParts,
)


class ShardOverSocket:
    """A `smq.sealer.ports.ShardPort`."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def batches(self, number: int, offset: int, bytes_max: int, *, synced: bool = True) -> bytes:
        """Whole batches from the one with `offset` on; `synced`: only those on disk."""
        return self._asker.ask(Batches(number, offset, bytes_max, synced=synced))[1]

    def tail(self, number: int, offset: int, bytes_max: int) -> bytes:
        """Like `batches`, but including batches that are not yet visible or not yet on disk."""
        asked = Batches(number, offset, bytes_max, synced=False, shown=False)
        return self._asker.ask(asked)[1]

    def as_sent(self, number: int, offset: int, bytes_max: int, *, synced: bool = True) -> bytes:
        """Like `batches`, up to the high watermark and with aborted records."""
        asked = Batches(number, offset, bytes_max, synced=synced, as_sent=True)
        return self._asker.ask(asked)[1]

    def for_reader(self, number: int, offset: int, bytes_max: int, *, as_sent: bool) -> bytes:
        """Like `batches` or `as_sent`, on disk or not. Raises StoreError too if there are some that
        cannot be read now: a reader who is told of none asks again at once."""
        asked = Batches(number, offset, bytes_max, synced=False, as_sent=as_sent)
        said, data = self._asker.ask(asked)
        if said.is_unread:
            raise StoreError(f"partition {number}", f"offset {offset} cannot be read now")
        return data

    def aborted(
        self, number: int, start: int, end: int, producers: list[int]
    ) -> list[tuple[int, int, int]]:
        """The aborted transactions of some producers that overlap a range."""
        return self._asker.ask(FindAborted(number, start, end, producers))[0]

    def sealed(self, number: int, end: int, *, is_decided: bool = True) -> None:
        """Report that everything below `end` is sealed."""
        self._asker.ask(MarkSealed(number, end, is_decided))

    def compacted(self, number: int, end: int) -> None:
        """Say that everything below `end` is about to be compacted."""
        self._asker.ask(MarkCompacted(number, end))

    def log_start(self, number: int, offset: int) -> None:
        """Report that records below `offset` are deleted."""
        self._asker.ask(RaiseLogStart(number, offset))

    def unsealed(self, number: int) -> UnsealedParts:
        """The unsealed bytes of a partition, and its parts in full WAL segments, in order."""
        return self._asker.ask(Unsealed(number))[0]

    def ends(self, number: int) -> Ends:
        """The partition's sealed end, and its end."""
        return self._asker.ask(FindEnds(number))[0]


class StoredManifest:
    """A `smq.sealer.ports.ManifestPort`."""

    def __init__(self, path: Path, coordinator: Asker) -> None:
        self._path, self._coordinator = path, coordinator
        self._manifest: Manifest | None = None

    def has_topic(self, namespace: str, name: str) -> bool:
        """Whether the topic exists now."""
        return self._opened().has_topic(namespace, name)

    def segments(
        self,
        partition_number: int,
        from_offset: int = 0,
        *,
        newest_ms: int = INT64_MIN,
        count_max: int = -1,
    ) -> list[Segment]:
        """The segments that hold records at or after `from_offset`, in order."""
        return self._opened().segments(
            partition_number, from_offset, newest_ms=newest_ms, count_max=count_max
        )

    def sealed_end(self, partition_number: int) -> int:
        """The end of the last segment; 0 without segments."""
        return self._opened().sealed_end(partition_number)

    def undecided(
        self, partition_number: int, from_offset: int = 0, count_max: int = -1
    ) -> list[Segment]:
        """The undecided segments with batches at or after `from_offset`, in order."""
        return self._opened().undecided(partition_number, from_offset, count_max)

    def commit_undecided(self, segment: Segment) -> bool:
        """Add an undecided segment; False if the partition was deleted."""
        return self._coordinator.ask(CommitUndecided(segment))[0]

    def sealed_bytes(self, partition_number: int, end_offset: int, undecided_end: int = 0) -> int:
        """The size of the segments that end there or before, and of undecided ones behind it."""
        return self._opened().sealed_bytes(partition_number, end_offset, undecided_end)

    def stored_bytes(self, partition_number: int, end: int) -> int:
        """The size of all segments that begin below an offset."""
        return self._opened().stored(partition_number, end)[1]

    def named_files(self, paths: Sequence[str]) -> set[str]:
        """The subset of these files that are segments."""
        return self._opened().named_files(paths)

    def replaced_files(self, paths: Sequence[str], since_ms: int) -> set[str]:
        """The subset of these files that were segments and were replaced since a time."""
        return self._opened().replaced_files(paths, since_ms)

    def name_payloads(self, path: str, ids: Sequence[str]) -> None:
        """The records of a file name these payloads."""
        self._coordinator.ask(NamePayloads(path, list(ids)))

    def payloads_of(self, paths: Sequence[str]) -> Iterator[list[str]]:
        """The payloads that the records of these segments' files name, in portions."""
        return self._opened().payloads_of(paths)

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace adjacent segments by one; False if the partition was deleted."""
        return self._coordinator.ask(ReplaceSegments(list(old), new))[0]

    def log_start(self, partition_number: int) -> int:
        """The start offset that retention has set."""
        return self._opened().log_start(partition_number)

    def commit_segments(self, segments: list[Segment]) -> list[Segment]:
        """Add segments; returns the segments that the manifest then holds in their place."""
        return self._coordinator.ask(CommitSegments(segments))[0]

    def named_payloads(self, ids: Sequence[str]) -> set[str]:
        """The subset of these payloads that records in segments refer to."""
        return self._opened().named_payloads(ids)

    def delete_segments(self, paths: Sequence[str], *, are_replaced: bool = False) -> None:
        """Delete segments; files that are replaced stay for a while."""
        self._coordinator.ask(DeleteSegments(list(paths), are_replaced))

    def condemn_files(self, paths: Sequence[str]) -> list[str]:
        """Condemn those of these files that are no segments; returns them."""
        return self._coordinator.ask(CondemnFiles(list(paths)))[0]

    def condemned_payloads(self, keys: Sequence[str]) -> set[str]:
        """Those of these payloads that are condemned."""
        return self._opened().condemned_payloads(keys)

    def condemned_between(self, after: str, last: str | None, before_ms: int) -> list[str]:
        """Condemned payloads after a key, up to the last one of a page, condemned by a time."""
        return self._opened().condemned_between(after, last, before_ms)

    def condemn_payloads(self, keys: Sequence[str], now_ms: int, settle_ms: int) -> list[str]:
        """Condemn payloads; returns those that have been so for `settle_ms`."""
        return self._coordinator.ask(CondemnPayloads(list(keys), now_ms, settle_ms))[0]

    def forget_payloads(self, keys: Sequence[str]) -> None:
        """These condemned payloads are deleted."""
        self._coordinator.ask(ForgetPayloads(list(keys)))

    def topic_ids(self) -> dict[tuple[str, str], str]:
        """The id of each topic, by namespace and name."""
        topics = self._opened().topics()
        return {(each.namespace, each.name): each.id.hex for each in topics}

    def set_log_start(self, partition_number: int, offset: int) -> None:
        """Raise a partition's log start offset."""
        self._coordinator.ask(SetLogStart(partition_number, offset))

    def sync(self) -> None:
        """Return once all that was read is durable."""
        self._coordinator.ask(SyncManifest())

    def _opened(self) -> Manifest:
        if self._manifest is None:
            self._manifest = open_manifest(self._path)
        return self._manifest
