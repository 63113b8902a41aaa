"""A sealed topic of two partitions, its table, and readers from outside."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from smq.filer.location import Location
from smq.model.catalog import Topic
from smq.model.config import Config
from smq.model.now import Now
from smq.model.segments import SealedPartition
from smq.model.topic_settings import TopicSettings
from smq.sealer.lake.catalog import CatalogSettings
from smq.sealer.lake.publish import Publishing
from smq.sealer.lake.seen import Seen
from smq.sealer.lake.state import TableState, path_of, read_state
from smq.sealer.lake.table import LakeCommit, LakeTable, TableName
from smq.sealer.merge import Merging
from smq.sealer.room import Room
from smq.sealer.seal import Sealing
from smq.store.manifest import WritableManifest
from smq.store.store import Store as SqlStore
from smq.testing.sealing import FakeShard, Fuse, FusedManifest, draw
from smq.wire.internal.messages import PublishTable
from tests.sealer.sealed import batch

if TYPE_CHECKING:
    from smq.filer.store import Store

NAMESPACE, TOPIC = "kafka", "orders"
SETTINGS = TopicSettings.of({"retention.ms": "-1", "smq.table": "delta"}, Config(shards=1))
BEGIN_MS = 1_700_000_000_000
KEEP_MS = 3_600_000
ROWS = 3
COLUMNS = ["partition", "_offset", "_key", "_value"]


class FusedTable:
    """A table, between whose steps a process may end."""

    def __init__(self, table: LakeTable, fuse: Fuse) -> None:
        self._table, self._fuse = table, fuse
        self.where, self.read = table.where, table.read

    def create(self, columns: pa.Schema, topic_id: str) -> None:
        self._fuse.step(lambda: self._table.create(columns, topic_id))

    def add_columns(self, columns: list[pa.Field]) -> None:
        self._fuse.step(lambda: self._table.add_columns(columns))

    def renew(self) -> None:
        self._fuse.step(self._table.renew)

    def commit(self, commit: LakeCommit) -> None:
        self._fuse.step(lambda: self._table.commit(commit))

    def tidy(self, seen: Seen, now_ms: int, keep_ms: int) -> Seen:
        found: list[Seen] = []
        self._fuse.step(lambda: found.append(self._table.tidy(seen, now_ms, keep_ms)))
        return found[0]

    def drop(self) -> None:
        self._fuse.step(self._table.drop)


class FusedPublishing(Publishing):
    """The job on such a table."""

    def __new__(cls, job: Publishing, fuse: Fuse) -> "FusedPublishing":
        made = super().__new__(cls, *job)
        made.fuse = fuse
        return made

    fuse: Fuse

    def table(self, name: TableName, format_: str) -> LakeTable:
        return FusedTable(super().table(name, format_), self.fuse)


@dataclass
class Lake:
    """A broker's data directory without the broker."""

    data_dir: Path
    manifest: WritableManifest
    location: Location
    format: str
    fuse: Fuse = field(default_factory=Fuse)
    topic_id: str = UUID(int=1).hex
    numbers: tuple[int, ...] = (1, 2)
    catalog_uri: str = ""
    schema: str = ""
    now_ms: int = BEGIN_MS
    step_ms: int = 0  # How far the wall clock is off.
    logs: dict[int, FakeShard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store: Store = self.location.open()

    def place(self, partition: int) -> SealedPartition:
        return SealedPartition(NAMESPACE, TOPIC, partition, self.numbers[partition])

    def seal(self, partition: int, segments: int = 1, *, attributes: int = 0) -> None:
        """Seal so many files of ROWS rows behind those that there are."""
        end = self.manifest.sealed_end(self.numbers[partition])
        batches = [
            batch(end + ROWS * each, ROWS, time=BEGIN_MS, attributes=attributes)
            for each in range(segments)
        ]
        self.seal_batches(partition, batches)

    def seal_batches(self, partition: int, batches: Sequence[bytes]) -> None:
        """Seal a file of each of these batches, behind those that there are."""
        end = self.manifest.sealed_end(self.numbers[partition])
        log = self.logs.setdefault(self.numbers[partition], FakeShard([]))
        log.sealed_end = end
        for each in batches:
            log.append(each)
        times = count(self.now_ms)
        manifest = FusedManifest(self.manifest, self.fuse)
        sealing = Sealing(self.store, log, manifest, lambda: next(times), draw, Room(), self.schema)
        sealing.seal(self.place(partition), end, log.end, 1)

    def merge(self, partition: int) -> int:
        """Make one of all the files."""
        manifest = FusedManifest(self.manifest, self.fuse, self.now_ms)
        merging = Merging(self.store, manifest, draw, self.data_dir, 2)
        return merging.merge(self.place(partition), SETTINGS)

    def job(self, *, check: bool = False) -> PublishTable:
        numbers = list(self.numbers)
        return PublishTable(
            self.topic_id, NAMESPACE, TOPIC, self.format, numbers, KEEP_MS, schema=self.schema,
            check=check,
        )  # fmt: skip

    def publishing(self) -> Publishing:
        uri = self.catalog_uri or f"sqlite:///{self.data_dir}/iceberg.sqlite"
        return Publishing(
            self.store,
            self.manifest,
            self.location,
            CatalogSettings(uri),
            self.data_dir,
            lambda: Now(self.now_ms, self.now_ms + self.step_ms),
        )

    def publish(self, *, check: bool = False) -> bool:
        return FusedPublishing(self.publishing(), self.fuse).publish(self.job(check=check))

    def drop(self) -> None:
        """Somebody drops the table, and nothing else."""
        if self.format == "iceberg":
            self.iceberg().catalog.drop_table((NAMESPACE, TOPIC))
        else:
            shutil.rmtree(f"{self.uri()}/_delta_log")

    def state(self) -> TableState:
        state = read_state(path_of(self.data_dir, NAMESPACE, TOPIC, self.format))
        assert state is not None
        return state

    def recreated(self) -> "Lake":
        """The same name for another topic."""
        store = SqlStore(self.manifest._database)
        store.delete_topic(UUID(hex=self.topic_id))
        store.add_topic(Topic(TOPIC, UUID(int=2), (3, 4), (0, 0)), 0)
        return replace(self, topic_id=UUID(int=2).hex, numbers=(3, 4), logs={})

    def expected(self) -> list[tuple[int, int, bytes, bytes]]:
        """The rows of the manifest's Parquet segments, if nothing was compacted."""
        return [
            (partition, offset, b"key", b"value %d" % offset)
            for partition, number in enumerate(self.numbers)
            for segment in self.manifest.segments(number, self.manifest.log_start(number))
            if segment.kind == "parquet"
            for offset in range(segment.base_offset, segment.end_offset)
        ]

    def rows(self) -> list[tuple[int, int, bytes, bytes]]:
        """The table's rows, as its own library reads them."""
        if self.format == "iceberg":
            return sorted_rows(self.iceberg().scan().to_arrow())
        return sorted_rows(self.delta().to_pyarrow_table())

    def outside(self) -> list[tuple[int, int, bytes, bytes]]:
        """The table's rows as Polars reads them."""
        if self.format == "iceberg":
            frame = pl.scan_iceberg(self.iceberg(), reader_override="pyiceberg").collect()
        else:
            frame = pl.read_delta(self.uri())
        return sorted_rows(frame.to_arrow())

    def uri(self) -> str:
        return f"{self.location.root}/topics/{NAMESPACE}/{TOPIC}"

    def delta(self) -> DeltaTable:
        return DeltaTable(self.uri())

    def iceberg(self) -> Table:
        options = CatalogSettings(self.catalog_uri or f"sqlite:///{self.data_dir}/iceberg.sqlite")
        return load_catalog("smq", **options.options()).load_table((NAMESPACE, TOPIC))

    def offsets(self) -> dict[str, int]:
        """The ends that the newest snapshot or commit names."""
        if self.format == "iceberg":
            snapshot = self.iceberg().current_snapshot()
            assert snapshot is not None
            assert snapshot.summary is not None
            found = snapshot.summary["smq.offsets"]
        else:
            found = self.delta().history(1)[0]["smq.offsets"]
        ends: dict[str, int] = json.loads(str(found))
        return ends


def sorted_rows(table: pa.Table) -> list[tuple[int, int, bytes, bytes]]:
    return sorted(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


@contextmanager
def lake_in(directory: Path, format_: str, location: Location | None = None) -> Iterator[Lake]:
    """A topic of two partitions without records."""
    store = SqlStore.open(directory / "store.sqlite")
    store.add_topic(Topic(TOPIC, UUID(int=1), (1, 2), (0, 0)), 0)
    yield Lake(directory, store.manifest, location or Location(str(directory / "filer")), format_)
    store.close()


def assert_follows(lake: Lake) -> None:
    """The table has the manifest's rows, each once, and everybody sees the same."""
    expected = lake.expected()
    assert lake.rows() == expected
    assert lake.outside() == expected
    state = lake.state()
    assert not state.error
    assert state.ends == {
        str(partition): lake.manifest.sealed_end(number)
        for partition, number in enumerate(lake.numbers)
    }
    assert state.files == sum(
        segment.kind == "parquet"
        for number in lake.numbers
        for segment in lake.manifest.segments(number)
    )


def story(lake: Lake) -> None:
    """All that may happen to a table, each published."""
    lake.seal(0, 4)
    lake.publish()
    lake.seal(1)
    lake.merge(0)
    lake.publish()
    lake.seal(0)
    lake.publish()
