"""An Iceberg table, through pyiceberg.

    catalog (SQL or REST) ──▶ metadata.json ──▶ snapshot ──▶ manifests ──▶ the topic's own files

The files carry no field ids, so the table maps names to ids (`schema.name-mapping.default`). A
commit names the snapshot that it was computed from and is never retried over another one: of two
workers that publish at once, one fails and computes again.

The times in a table never go back, whatever the clock does: Java's readers refuse such a table
(`TableMetadata`: 'Expected sorted snapshot log entries'). pyiceberg takes the clock's, so a
snapshot's time is set here, and where the catalog is ours also that of the table's last update.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from smq.filer.store import Store
from smq.model.segments import directory_of
from smq.sealer.lake.catalog import NAME, CatalogSettings
from smq.sealer.lake.errors import LakeError
from smq.sealer.lake.own_files import Elsewhere, keep_to, refuse_foreign_schema
from smq.sealer.lake.plan import NewFile, range_of
from smq.sealer.lake.seen import Mark, Seen
from smq.sealer.lake.table import COUNTED, PARTITION, TOPIC_ID, Held, LakeCommit, TableName

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

METADATA = "metadata/"
_OF_URIS = frozenset("#?%")
_PROPERTIES = {
    "gc.enabled": "false",  # Spark neither purges the files nor removes 'orphans' beside them.
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergTable:
    """A topic's Iceberg table; see LakeTable. `base` is the URI of the filer's root, without a
    trailing slash; `file_options` are pyiceberg's for files there."""

    def __init__(
        self,
        name: TableName,
        store: Store,
        base: str,
        catalog: CatalogSettings,
        file_options: dict[str, str],
    ) -> None:
        self._name, self._store, self._base = name, store, base
        self._settings, self._file_options = catalog, file_options
        self._directory = directory_of(name.namespace, name.topic)
        self._catalog: Catalog | None = None
        self._table: Table | None = None
        self._files: dict[str, DataFile] = {}

    def where(self) -> str:
        """See LakeTable."""
        return f"{self._name} in the {'REST' if self._settings.is_rest else 'SQL'} catalog"

    def read(self) -> Held | None:
        """See LakeTable."""
        exceptions, io = _library("pyiceberg.exceptions"), _library("pyiceberg.io.pyarrow")
        with self._failures():
            try:
                self._table = self._opened().load_table(self._name)
            except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError):
                return None
            except Elsewhere as reason:
                return Held("", {}, [str(reason)], {})  # Nothing that was made here.
            foreign = list(self._read_files(self._table))
            # pyiceberg 0.12 says large_string for string, and so on.
            columns = io._pyarrow_schema_ensure_small_types(self._table.schema().as_arrow())  # noqa: SLF001
            return Held(
                self._table.properties.get(TOPIC_ID, ""),
                {key: file.record_count for key, file in self._files.items()},
                foreign,
                {each.name: each.type for each in columns},
            )

    def _read_files(self, table: "Table") -> Iterator[str]:
        """Find the files of the current snapshot; yields those that are not this topic's."""
        self._files = {}
        snapshot = table.current_snapshot()
        for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file = entry.data_file
                key = file.file_path.removeprefix(f"{self._base}/")
                is_own = key.startswith(self._directory) and range_of(key) is not None
                if is_own and file.content.value == 0:  # Rows, and no deletions.
                    self._files[key] = file
                else:
                    yield file.file_path

    def create(self, columns: pa.Schema, topic_id: str) -> None:
        """See LakeTable."""
        io, schemas = _library("pyiceberg.io.pyarrow"), _library("pyiceberg.schema")
        partitioning = _library("pyiceberg.partitioning")
        transforms = _library("pyiceberg.transforms")
        with self._failures():
            catalog = self._opened()
            catalog.create_namespace_if_not_exists(self._name.namespace)
            schema = schemas.assign_fresh_schema_ids(
                io._pyarrow_to_schema_without_ids(columns)  # noqa: SLF001  (Nothing else does it.)
            )
            spec = partitioning.PartitionSpec(
                partitioning.PartitionField(
                    source_id=schema.find_field(PARTITION).field_id,
                    field_id=partitioning.PARTITION_FIELD_ID_START,
                    transform=transforms.IdentityTransform(),
                    name=PARTITION,
                )
            )
            self._table = catalog.create_table(
                self._name,
                schema,
                location=f"{self._base}/{self._directory.rstrip('/')}",
                partition_spec=spec,
                properties={
                    **_PROPERTIES,
                    TOPIC_ID: topic_id,
                    "schema.name-mapping.default": schema.name_mapping.model_dump_json(),
                },
            )
            self._files = {}

    def add_columns(self, columns: list[pa.Field]) -> None:
        """See LakeTable."""
        io = _library("pyiceberg.io.pyarrow")
        assert self._table is not None, "it was read or created"
        with self._failures(), self._table.update_schema() as update:
            # The name mapping follows by itself.
            update.union_by_name(io._pyarrow_to_schema_without_ids(pa.schema(columns)))  # noqa: SLF001

    def renew(self) -> None:
        """See LakeTable. Its properties have not changed."""

    def commit(self, commit: LakeCommit) -> None:
        """See LakeTable."""
        assert self._table is not None, "it was read or created"
        added = [self._data_file(new, commit.footers) for new in commit.change.added]
        with self._failures(), self._table.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties=commit.properties)
            kind = update.overwrite if commit.change.removed else update.merge_append
            with kind() as snapshot:
                _set_time(snapshot, max(commit.wall_ms, _newest_ms(self._table.metadata) + 1))
                for key in commit.change.removed:
                    snapshot.delete_data_file(self._files[key])
                for file in added:
                    snapshot.append_data_file(file)
        list(self._read_files(self._table))

    def _data_file(self, new: NewFile, footers: dict[str, pq.FileMetaData]) -> "DataFile":
        io, manifest = _library("pyiceberg.io.pyarrow"), _library("pyiceberg.manifest")
        assert self._table is not None, "it was read or created"
        schema, key = self._table.schema(), new.segment.path
        footer = footers[key]
        statistics = io.data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer,
            stats_columns=io.compute_statistics_plan(schema, _counted(footer)),
            parquet_column_mapping=io.parquet_path_to_id_mapping(schema),
        )
        file: DataFile = manifest.DataFile.from_args(
            content=manifest.DataFileContent.DATA,
            file_path=f"{self._base}/{key}",
            file_format=manifest.FileFormat.PARQUET,
            partition=_library("pyiceberg.typedef").Record(new.partition),
            file_size_in_bytes=new.segment.bytes,
            sort_order_id=None,
            spec_id=self._table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        return file

    def tidy(self, seen: Seen, now_ms: int, keep_ms: int) -> Seen:
        """See LakeTable."""
        assert self._table is not None, "it was read or created"
        with self._failures():
            metadata = self._table.metadata
            if seen.table != str(metadata.table_uuid):
                seen = Seen(str(metadata.table_uuid))
            numbers = {each.snapshot_id: each.sequence_number or 0 for each in metadata.snapshots}
            marks = *seen.at(now_ms).marks, Mark(now_ms, max(numbers.values(), default=0))
            old = [each for each in marks if each.now_ms <= now_ms - keep_ms]
            kept = {ref.snapshot_id for ref in metadata.refs.values()}
            last = old[-1].sequence if old else 0  # Zero is of an older format of the table.
            expired = [key for key, number in numbers.items() if 0 < number <= last]
            if expired := [key for key in expired if key not in kept]:
                self._table.maintenance.expire_snapshots().by_ids(expired).commit()
            named = set(self._named(self._table))
        keys = {facts.key for facts in self._store.list(self._directory + METADATA)}
        unnamed = {key for key in keys if f"{self._base}/{key}" not in named}
        for key in unnamed & seen.unnamed:
            self._store.delete(key)
        return Seen(seen.table, marks[max(0, len(old) - 1) :], unnamed - seen.unnamed)

    def _named(self, table: "Table") -> Iterator[str]:
        """All metadata files that the table needs."""
        yield table.metadata_location
        yield from (entry.metadata_file for entry in table.metadata.metadata_log)
        for snapshot in table.metadata.snapshots:
            yield snapshot.manifest_list
            yield from (each.manifest_path for each in snapshot.manifests(table.io))

    def drop(self) -> None:
        """See LakeTable."""
        exceptions = _library("pyiceberg.exceptions")
        with self._failures():
            gone = exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError
            with suppress(*gone):  # Another worker was quicker, or this is the second attempt.
                self._opened().drop_table(self._name)
        for facts in list(self._store.list(self._directory + METADATA)):
            self._store.delete(facts.key)

    def _opened(self) -> "Catalog":
        if self._catalog is None:
            if self._base.startswith("file:") and not _OF_URIS.isdisjoint(self._base):
                raise LakeError(
                    str(self._name),
                    f"pyiceberg takes {self._base} for another place, as # ? % mean something in "
                    "URIs; choose another --data-dir, or `filer.root`",
                )
            logging.getLogger("pyiceberg").setLevel(logging.ERROR)
            options = self._file_options | self._settings.options()
            if (file := self._settings.file) is not None:
                refuse_foreign_schema(file)
            self._catalog = _library("pyiceberg.catalog").load_catalog(NAME, **options)
            directory, is_rest = f"{self._base}/{self._directory}{METADATA}", self._settings.is_rest
            keep_to(directory, self._catalog, is_rest=is_rest)
            if not is_rest:
                _keep_order(self._catalog)
        return self._catalog

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn errors into LakeError with one sentence."""
        exceptions = _library("pyiceberg.exceptions")
        kinds = [each for each in vars(exceptions).values() if _is_error(each)]
        kinds += [OSError, ValueError, _library("sqlalchemy.exc").SQLAlchemyError]
        kinds += [_library("requests").RequestException]
        try:
            yield
        except exceptions.CommitFailedException as reason:
            self._table = None
            raise LakeError(
                str(self._name), f"somebody else changed the table: {reason}"
            ) from reason
        except tuple(kinds) as reason:
            said = str(reason).split("\n", maxsplit=1)[0]
            raise LakeError(
                str(self._name), f"the catalog at {self._settings.uri} fails: {said}"
            ) from reason


def _newest_ms(metadata: "TableMetadata") -> int:
    """The greatest time that a table's metadata has."""
    logs = metadata.snapshot_log, metadata.metadata_log, metadata.snapshots
    return max([metadata.last_updated_ms, *(each.timestamp_ms for log in logs for each in log)])


def _set_time(snapshot: Any, time_ms: int) -> None:  # noqa: ANN401  (a private type of pyiceberg)
    """Have a snapshot made with this time."""
    make = snapshot._commit  # noqa: SLF001  (Nothing else can set it.)

    def made() -> Any:  # noqa: ANN401  (as above)
        (add, *others), requirements = make()
        timed = add.snapshot.model_copy(update={"timestamp_ms": time_ms})
        return (add.model_copy(update={"snapshot": timed}), *others), requirements

    snapshot._commit = made  # noqa: SLF001  (as above)


def _keep_order(catalog: Any) -> None:  # noqa: ANN401  (a method that the port does not have)
    """Have no update of a table be older than what its metadata has."""
    stage = catalog._update_and_stage_table  # noqa: SLF001  (Nothing else can set it.)

    def staged(current: "Table | None", *others: Any) -> Any:  # noqa: ANN401  (as above)
        made = stage(current, *others)
        if current is not None and made.metadata != current.metadata:
            newest_ms = max(made.metadata.last_updated_ms, _newest_ms(current.metadata))
            made.metadata = made.metadata.model_copy(update={"last_updated_ms": newest_ms})
        return made

    catalog._update_and_stage_table = staged  # noqa: SLF001  (as above)


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Exception)


def _counted(footer: pq.FileMetaData) -> dict[str, str]:
    """Properties of a table: which columns of this file have statistics."""
    kinds = dict.fromkeys(COUNTED, "truncate(16)")
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.is_stats_set and not _has_bounds(column.statistics):
                kinds[column.path_in_schema] = "counts"
            elif column.is_stats_set and number == 0:
                kinds[column.path_in_schema] = "truncate(16)"
    modes = {f"write.metadata.metrics.column.{name}": kind for name, kind in kinds.items()}
    return {"write.metadata.metrics.default": "none", **modes}


def _has_bounds(statistics: pq.Statistics) -> bool:
    """Whether Python has the bounds, as pyiceberg wants them: it has no times outside the years 1
    to 9999, and files of earlier versions do."""
    try:
        _ = statistics.min, statistics.max
    except OverflowError:
        return False
    return True


def _library(name: str) -> Any:  # noqa: ANN401  (a module)
    """A module of pyiceberg, or of its dependencies. Raises LakeError with how to install it."""
    try:
        return import_module(name)
    except ImportError as reason:
        raise LakeError(
            "smq.table=iceberg", f"needs pyiceberg; `pip install 'smq-broker[iceberg]'` ({reason})"
        ) from reason
