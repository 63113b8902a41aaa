"""A Delta table, through deltalake: a log beside the topic's own files.

    topics/<namespace>/<topic>/_delta_log/00000000000000000007.json
                               partition=0/….parquet

A commit carries the version that it was computed from as the version of the application `smq`, and
is never retried: of two workers that publish at once, one fails and computes again.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from smq.filer.store import Store
from smq.model.segments import directory_of
from smq.sealer.lake.errors import LakeError
from smq.sealer.lake.plan import NewFile, range_of
from smq.sealer.lake.seen import Seen
from smq.sealer.lake.table import COUNTED, PARTITION, TOPIC_ID, Held, LakeCommit, TableName
from smq.sealer.years import within_years

if TYPE_CHECKING:
    from deltalake import DeltaTable as Log
    from deltalake.transaction import AddAction

LOG = "_delta_log/"
APPLICATION = "smq"
VECTORS = "deletionVectors"
_CONFIGURATION = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.enableExpiredLogCleanup": "true",
    # deltalake takes a column without statistics for one without the rows that a filter wants,
    # unless the table says that it has statistics of others only.
    "delta.dataSkippingStatsColumns": ",".join(COUNTED),
}


class DeltaTable:
    """A topic's Delta table; see LakeTable. `base` is the filer's root, in deltalake's form."""

    def __init__(
        self, name: TableName, store: Store, base: str, storage_options: dict[str, str]
    ) -> None:
        self._name, self._store, self._options = name, store, storage_options
        self._directory = directory_of(name.namespace, name.topic)
        self._uri = f"{base}/{self._directory.rstrip('/')}"
        self._log: Log | None = None
        self._sizes: dict[str, int] = {}

    def where(self) -> str:
        """See LakeTable."""
        return self._uri

    def read(self) -> Held | None:
        """See LakeTable."""
        self._refuse_other_place()
        library, exceptions = _library("deltalake"), _library("deltalake.exceptions")
        with self._failures():
            try:
                self._log = log = library.DeltaTable(self._uri, storage_options=self._options)
            except exceptions.TableNotFoundError:
                return None
            files: dict[str, int] = {}
            features = log.protocol().reader_features or []
            foreign = [f"deletion vectors ({VECTORS})"] if VECTORS in features else []
            for path, size, rows in self._added(log):
                key = self._directory + path
                if range_of(key) is None:
                    foreign.append(path)
                else:
                    files[key], self._sizes[key] = rows, size
            columns = {each.name: each.type for each in pa.schema(log.schema().to_arrow())}
            said = log.metadata().configuration
            is_dated = not _CONFIGURATION.items() <= said.items()
            return Held(said.get(TOPIC_ID, ""), files, foreign, columns, is_dated)

    def _refuse_other_place(self) -> None:
        """Raise LakeError where deltalake takes the directory's path for another one."""
        taken = unquote(self._uri).replace("\\", "/")
        if "://" not in self._uri and taken != self._uri:
            raise LakeError(
                str(self._name),
                f"deltalake takes {self._uri} for {taken}; choose another --data-dir, or "
                "`filer.root`",
            )

    def _added(self, log: "Log") -> Iterator[tuple[str, int, int]]:
        """Path, bytes and rows of each file; -1 rows if the log does not tell."""
        found = pa.table(log.get_add_actions(flatten=True))
        names = found.column_names
        rows = found["num_records"].to_pylist() if "num_records" in names else [-1] * len(found)
        for path, size, count in zip(
            found["path"].to_pylist(), found["size_bytes"].to_pylist(), rows, strict=True
        ):
            yield path, size, -1 if count is None else count

    def create(self, columns: pa.Schema, topic_id: str) -> None:
        """See LakeTable."""
        with self._failures():
            self._log = _library("deltalake").DeltaTable.create(
                self._uri,
                columns,
                partition_by=[PARTITION],
                configuration={**_CONFIGURATION, TOPIC_ID: topic_id},
                storage_options=self._options,
                raise_if_key_not_exists=False,
            )

    def add_columns(self, columns: list[pa.Field]) -> None:
        """See LakeTable."""
        assert self._log is not None, "it was read or created"
        fields = _library("deltalake").Schema.from_arrow(pa.schema(columns)).fields
        with self._failures():
            version = self._log.version()
            self._log.alter.add_columns(fields)
            self._follow(version)

    def renew(self) -> None:
        """See LakeTable."""
        assert self._log is not None, "it was read"
        with self._failures():
            version = self._log.version()
            self._log.alter.set_table_properties(_CONFIGURATION)
            self._follow(version)

    def commit(self, commit: LakeCommit) -> None:
        """See LakeTable."""
        assert self._log is not None, "it was read or created"
        library = _library("deltalake.transaction")
        change, version = commit.change, self._log.version()
        actions: list[Any] = [
            self._add(new, commit.footers, rows_differ=change.rows_differ) for new in change.added
        ]
        for key in change.removed:
            place = range_of(key)
            assert place is not None, "it was read as a segment's"
            actions.append(
                library.RemoveAction(
                    key.removeprefix(self._directory),
                    change.rows_differ,
                    commit.wall_ms,
                    self._sizes[key],
                    {PARTITION: str(place.partition)},
                )
            )
        with self._failures():
            self._log.create_write_transaction(
                actions,
                "append",
                self._log.schema(),
                [PARTITION],
                commit_properties=library.CommitProperties(
                    custom_metadata=commit.properties,
                    max_commit_retries=0,
                    app_transactions=[library.Transaction(APPLICATION, version + 1)],
                ),
            )
            self._follow(version)

    def _follow(self, version: int) -> None:
        """Read our own commit, and no further."""
        assert self._log is not None
        self._log.update_incremental()
        if self._log.version() != version + 1:
            raise LakeError(str(self._name), "somebody else changed the table at the same time")

    def _add(
        self, new: NewFile, footers: dict[str, pq.FileMetaData], *, rows_differ: bool
    ) -> "AddAction":
        self._sizes[new.segment.path] = new.segment.bytes
        action: AddAction = _library("deltalake.transaction").AddAction(
            path=new.segment.path.removeprefix(self._directory),
            size=new.segment.bytes,
            partition_values={PARTITION: str(new.partition)},
            modification_time=new.segment.committed_ms,
            data_change=rows_differ,
            stats=json.dumps(statistics_of(footers[new.segment.path])),
        )
        return action

    def tidy(self, seen: Seen, now_ms: int, keep_ms: int) -> Seen:  # noqa: ARG002  (no snapshots)
        """Nothing to do: commits write checkpoints, and remove log files a day older than one."""
        return seen

    def drop(self) -> None:
        """See LakeTable. Deletes the newest file first: a kill leaves an older table, or none."""
        self._log = None
        for facts in reversed(list(self._store.list(self._directory + LOG))):
            self._store.delete(facts.key)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn errors into LakeError with one sentence."""
        exceptions = _library("deltalake.exceptions")
        try:
            yield
        except exceptions.CommitFailedError as reason:
            raise LakeError(
                str(self._name), f"somebody else changed the table: {reason}"
            ) from reason
        except (exceptions.DeltaError, OSError, ValueError) as reason:
            said = str(reason).split("\n", maxsplit=1)[0]
            raise LakeError(str(self._name), f"its log at {self._uri} fails: {said}") from reason


def statistics_of(footer: pq.FileMetaData) -> dict[str, Any]:
    """Delta's statistics of a file: its rows; minimum, maximum and nulls of COUNTED.

    Of all of these columns or, if one of them has no statistics, of none: deltalake takes a column
    that others are told without for one without such rows.
    """
    told = {"numRecords": footer.num_rows}
    least: dict[str, int] = {}
    greatest: dict[str, int] = {}
    nulls: dict[str, int] = {}
    for name, found in _statistics(footer):
        if found is None or not found.has_null_count:
            return told
        nulls[name] = nulls.get(name, 0) + found.null_count
        if found.has_min_max:
            least[name] = min(least.get(name, found.min_raw), found.min_raw)
            greatest[name] = max(greatest.get(name, found.max_raw), found.max_raw)
        elif found.num_values:
            return told
    if nulls.keys() != set(COUNTED):
        return told
    bounds = {"minValues": least, "maxValues": greatest}
    return told | {
        **{
            kind: {name: _told(name, found[name]) for name in found}
            for kind, found in bounds.items()
        },
        "nullCount": nulls,
    }


def _statistics(footer: pq.FileMetaData) -> Iterator[tuple[str, pq.Statistics | None]]:
    """Those of COUNTED, for each row group."""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in COUNTED:
                yield column.path_in_schema, column.statistics


def _told(name: str, value: int) -> int | str:
    """A bound as Delta writes it: times in ISO 8601, which has the years 1 to 9999. Files of
    earlier versions have others; no filter can name these, so a bound within still holds."""
    if name != "_ts":
        return value
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=within_years(value))
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _library(name: str) -> Any:  # noqa: ANN401  (a module)
    """A module of deltalake. Raises LakeError with how to install it."""
    try:
        return import_module(name)
    except ImportError as reason:
        raise LakeError(
            "smq.table=delta", f"needs deltalake; `pip install 'smq-broker[delta]'` ({reason})"
        ) from reason
