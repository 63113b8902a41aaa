"""What compaction has removed: the offsets that the sealed segments of a partition lack."""

from smq.filer.location import Location
from smq.filer.store import Store
from smq.sealer.cold import open_segment
from smq.sealer.parquet_segment import ParquetSegment
from smq.store.manifest import Manifest, open_manifest
from smq.store.store import FILE_NAME
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Part


def removed_offsets(world: Environment) -> dict[Part, set[int]]:
    """The offsets that compaction has removed by now, by partition: no reader gets them later."""
    if not world.host.compacts:
        return {}
    store = Location.of(world.host.config).open()
    with open_manifest(world.host.directory / FILE_NAME) as manifest:
        return {
            (incarnation, partition): _removed(manifest, store, number)
            for incarnation in world.ledger.all
            if incarnation.is_compacted and not incarnation.is_dying
            for partition, number in enumerate(incarnation.topic.partition_numbers)
        }


def _removed(manifest: Manifest, store: Store, number: int) -> set[int]:
    removed: set[int] = set()
    for segment in manifest.segments(number):
        if segment.compacted_ms and segment.kind == "parquet":
            opened = open_segment(store, segment)
            assert isinstance(opened, ParquetSegment)
            removed.update(range(segment.base_offset, segment.end_offset))
            for rows in opened.rows(segment.base_offset, segment.end_offset, ["_offset"]):
                removed.difference_update(rows["_offset"].to_pylist())
    return removed
