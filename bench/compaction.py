"""How fast a partition is compacted, and what memory it takes: `python -m bench.compaction`.

The records have keys of 16 bytes, drawn at random, and values of 100. All are sealed, none is
compacted. It prints records per second of CPU time, the remaining records, and the peak resident
size of the process beyond that when the segments were made.

`--records 110000000 --keys 1000000000 --value-bytes 16` has over 100 million keys, nine times what
the table of keys holds: each pass may write all segments before it anew, as in Kafka's cleaner.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import numpy as np
import pyarrow as pa

from shm.arrow import read_only
from shm.kernels.base.crc32c import crc32c
from smq.filer.local import LocalStore
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.now import Now
from smq.model.segments import SealedPartition, Segment
from smq.model.topic_settings import TopicSettings
from smq.sealer.compact import Compaction, Ports
from smq.sealer.parquet import SCHEMA, ParquetWriter
from smq.sealer.seal import parquet_writer
from smq.store.manifest import WritableManifest
from smq.store.store import Store
from smq.testing.sealing import FakeShard, draw

PLACE = SealedPartition("kafka", "state", 0, 1)
SEGMENT_RECORDS, GROUP_RECORDS = 1_000_000, 65_536
KEY_BYTES, VALUE_BYTES = 16, 100
SETTINGS = TopicSettings.of(
    {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}, Config(shards=1)
)


def tables(
    first: int, records: int, keys: int, value_bytes: int, chance: np.random.Generator
) -> Iterator[pa.Table]:
    """Records from an offset on, a row group at a time."""
    for at in range(first, first + records, GROUP_RECORDS):
        count = min(GROUP_RECORDS, first + records - at)
        offsets = np.arange(at, at + count)
        numbers = np.zeros((count, KEY_BYTES), np.uint8)
        numbers[:, :8] = chance.integers(0, keys, count).view(np.uint8).reshape(count, 8)
        values = chance.integers(0, 64, count * value_bytes, np.uint8)
        columns = [
            offsets,
            offsets,
            pa.array(offsets * 1000).cast(pa.timestamp("us", tz="UTC")),
            _binary(numbers.reshape(-1), KEY_BYTES),
            _binary(values, value_bytes),
            pa.array([[]] * count, SCHEMA.field("_headers").type),
        ]
        yield pa.Table.from_arrays([pa.array(each) for each in columns], schema=SCHEMA)


def _binary(data: np.ndarray, width: int) -> pa.Array:
    ends = pa.py_buffer(np.arange(0, len(data) + 1, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), len(data) // width, [None, ends, pa.py_buffer(data)])


def seal(
    manifest: WritableManifest, store: LocalStore, records: int, keys: int, value_bytes: int
) -> None:
    """Segments of a million records each."""
    chance = np.random.default_rng(1)
    for base in range(0, records, SEGMENT_RECORDS):
        end = min(base + SEGMENT_RECORDS, records)
        writer: ParquetWriter = parquet_writer(PLACE, log_append_time=False)
        for table in tables(base, end - base, keys, value_bytes, chance):
            writer.add_rows(table)
        data = read_only(writer.finish(base, end))
        key = PLACE.key(base, end, 1, "parquet")
        store.put(key, data.data)
        crc = int(crc32c(data, 0, len(data)))
        manifest.commit_segments(
            [Segment(1, base, end, "parquet", key, len(data), crc, end - base, base, end, 1, 1)]
        )


def sweep(manifest: WritableManifest, store: LocalStore) -> None:
    """Delete the files that a pass has replaced, as the sealer does later."""
    named = {each.path for each in manifest.segments(PLACE.number)}
    for facts in list(store.list()):
        if facts.key not in named:
            store.delete(facts.key)


def main() -> None:
    """Seal, compact, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=VALUE_BYTES)
    options = parser.parse_args()
    with TemporaryDirectory() as directory:
        sql = Store.open(Path(directory) / "store.sqlite")
        sql.add_topic(Topic(PLACE.topic, UUID(int=1), (1,), (0,)), 0)
        store = LocalStore(Path(directory) / "filer")
        seal(sql.manifest, store, options.records, options.keys, options.value_bytes)
        ports = Ports(
            store, FakeShard([]), sql.manifest, lambda: Now(10**15, 10**15), draw, bytes(16)
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, steps = 0.0, 0
        while True:
            begin = time.process_time()
            compaction = Compaction(ports, PLACE, SETTINGS)
            done = 0
            while compaction.step():
                done += 1
            seconds += time.process_time() - begin
            if not done:
                break
            steps += done
            sweep(sql.manifest, store)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        left = sum(each.record_count for each in sql.manifest.segments(1))
        print(
            f"{options.records} records of {options.keys} keys: {left} are left, {steps} steps, "
            f"{seconds:.1f} s of processor, {options.records / seconds / 1e6:.2f} M records/s, "
            f"{grown / 1024:.0f} MiB more at the peak"
        )
        sql.close()


if __name__ == "__main__":
    main()
