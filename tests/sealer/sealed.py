"""A partition that is sealed, for the tests of the sealer's jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from uuid import UUID

from shm.kernels.twin import records as plain
from smq.filer.store import Store
from smq.model.catalog import Topic
from smq.model.segments import ANY_SIZE, SEGMENTS_PREFIX, BatchLimits, SealedPartition
from smq.sealer.cold import Cache, ColdReader
from smq.sealer.housekeeping import Housekeeping
from smq.sealer.ports import ManifestPort, ShardPort
from smq.sealer.room import Room
from smq.sealer.seal import Sealing
from smq.store.manifest import WritableManifest
from smq.store.store import Store as SqlStore
from smq.testing.sealing import draw
from smq.wire.records import read_batches

PLACE = SealedPartition("kafka", "orders", 0, 1)
SEGMENT_BYTES = 1 << 26


def batch(
    offset: int, records: int = 1, *, time: int = 0, attributes: int = 0, key: bytes = b"h"
) -> bytes:
    """A batch of a few records; `key` is that of a header."""
    made = [
        plain.PlainRecord(offset + i, time + i, b"key", b"value %d" % (offset + i), ((key, None),))
        for i in range(records)
    ]
    return plain.batch(made, end_offset=offset + records, attributes=attributes)


@contextmanager
def manifest_in(directory: Path) -> Iterator[WritableManifest]:
    """A manifest that knows partition 1."""
    store = SqlStore.open(directory / "store.sqlite")
    store.add_topic(Topic("orders", UUID(int=1), (1,), (0,)), 0)
    yield store.manifest
    store.close()


def seal(  # noqa: PLR0913  (A job has many sides.)
    store: Store,
    shard: ShardPort,
    manifest: ManifestPort,
    *,
    sealed_end: int,
    end: int,
    log_start: int = 0,
    segment_bytes: int = SEGMENT_BYTES,
    first_ms: int = 1000,
) -> int:
    """Seal the partition; where it is sealed up to then."""
    times = count(first_ms)
    job = Sealing(store, shard, manifest, lambda: next(times), draw, Room())
    return job.seal(PLACE, sealed_end, end, segment_bytes, log_start)


def forget_names(manifest: WritableManifest) -> None:
    """Forget the payloads' names that the coordinator forgets some time."""
    while manifest.names.may_have_gone:
        manifest.names.forget_some()


def swept(job: Housekeeping, before_ms: int) -> list[str]:
    """Sweep all files that two sweeps have seen; returns the deleted ones."""
    paths = [facts.key for facts in job.store.list(SEGMENTS_PREFIX)]
    return job.sweep(job.unnamed(paths, before_ms), before_ms)


def read_back(  # noqa: PLR0913  (what is read, and how)
    store: Store,
    manifest: ManifestPort,
    cache_dir: Path,
    *,
    offset: int = 0,
    bytes_max: int = 200,
    limits: BatchLimits = ANY_SIZE,
) -> list[tuple[int, bytes | None]]:
    """Offsets and values as a consumer that begins at `offset` gets them."""
    reader = ColdReader(store, manifest, Cache(cache_dir, 1 << 20, lambda: 0, "a"))
    records: list[tuple[int, bytes | None]] = []
    while (found := reader.read(PLACE.number, offset, bytes_max, limits)) is not None:
        assert found.next_offset > offset
        if not found.length:
            break
        data = found.path.read_bytes()[found.at : found.at + found.length]
        for place, batch in enumerate(read_batches(data)):
            wanted = [(r.offset, r.value) for r in batch.records() if r.offset >= offset]
            assert wanted or place, "what comes first moves every client on"
            records += wanted
        offset = found.next_offset
    return records
