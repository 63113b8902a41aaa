"""The common part of both table formats: the port that publishing uses, and the columns.

    partition  _offset  _ts_ms  _ts  _key  _value  _headers  and the topic's typed columns

`partition` is a partition column of the table: its value is in the table's metadata, not in files.
"""

from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from smq.sealer.lake.plan import Change
from smq.sealer.lake.seen import Seen
from smq.sealer.parquet import SCHEMA

PARTITION = "partition"
COUNTED = ("_offset", "_ts_ms", "_ts")
"""Columns whose minimum, maximum and nulls every segment's footer has."""
TOPIC_ID, OFFSETS, RAW_RECORDS = "smq.topic.id", "smq.offsets", "smq.records.raw"
"""Properties: of the table, of each snapshot, of each snapshot."""


class TableName(NamedTuple):
    """The topic of a table."""

    namespace: str
    topic: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.topic}"


class Held(NamedTuple):
    """The current content of a table.

    files    keys of this topic's segments, with their rows
    foreign  files, or files of deleted rows, that SMQ did not write
    columns  names and types of its columns
    is_dated whether its properties are those of an earlier version
    """

    topic_id: str
    files: dict[str, int]
    foreign: list[str]
    columns: dict[str, pa.DataType]
    is_dated: bool = False


class LakeCommit(NamedTuple):
    """A change, the footers of the files that it adds by key, the snapshot's properties, and its
    time for people."""

    change: Change
    footers: dict[str, pq.FileMetaData]
    properties: dict[str, str]
    wall_ms: int


class LakeTable(Protocol):
    """A table in its catalog. Every method raises LakeError."""

    def read(self) -> Held | None:
        """The current table; None: there is none."""
        ...

    def create(self, columns: pa.Schema, topic_id: str) -> None:
        """Make an empty one."""
        ...

    def add_columns(self, columns: list[pa.Field]) -> None:
        """Add columns, null in the rows there are."""
        ...

    def renew(self) -> None:
        """Give it the properties of this version."""
        ...

    def commit(self, commit: LakeCommit) -> None:
        """Commit on top of what `read` returned; fails if another writer was quicker."""
        ...

    def tidy(self, seen: Seen, now_ms: int, keep_ms: int) -> Seen:
        """Forget snapshots that were there `keep_ms` ago, and delete metadata that nothing names
        since the last tidying. Returns what the next one needs to know."""
        ...

    def drop(self) -> None:
        """Remove it and its metadata, if it is there; its data files stay."""
        ...

    def where(self) -> str:
        """Where readers find it."""
        ...


def columns_of(typed: pa.Schema | None) -> pa.Schema:
    """The columns of the table of a topic with these typed columns."""
    fields = [pa.field(PARTITION, pa.int32()), *SCHEMA, *(typed or [])]
    return pa.schema(fields)
