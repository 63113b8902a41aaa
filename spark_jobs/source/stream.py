"""`readStream.format("smq")`: offsets in the format of Spark's Kafka source, admission, live data.

Spark stores the end of each batch in its checkpoint, but not the start of the first. So the first
batch has no records: its end is the stream's start, which thus survives a crash. Later batches read
up to the offsets visible to the broker's consumers.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from smq.client.clock import SYSTEM_CLOCK
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError
from smq.tables.plan import Unreadable
from spark_jobs.source.options import is_plan, stream_options
from spark_jobs.source.ranges import (
    Edges,
    admitted,
    clamped,
    from_json,
    losses,
    must_wait,
    replaced,
    to_json,
)
from spark_jobs.source.reading import (
    PLAN_COLUMNS,
    Ranges,
    all_columns,
    columns_of,
    read_task,
    resolved,
    tasks_of,
    typed_schema,
)
from spark_jobs.source.topics import BrokerPlace, Offsets, SparkTopics, find_place

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

Json = dict[str, Any]
BEFORE_THE_START: Json = {"": {}}  # No topic has this name; {} is a stream without topics.


class SmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the driver; executors get a copy that only reads."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._read, self._admission = stream_options(options)
        self._lost = losses(self._read.fails_on_loss)
        self._plans = is_plan(options)
        self._schema = "" if self._plans else typed_schema(options)
        columns = PLAN_COLUMNS if self._plans else all_columns(self._schema)
        self._columns = columns_of(schema, columns)
        self._opened: tuple[BrokerPlace, SparkTopics] | None = None
        self._target: Offsets | None = None
        self._batch_at_s: float | None = None
        self._committed: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        """Connections stay in the driver."""
        return {**self.__dict__, "_opened": None}

    def initialOffset(self) -> Json:  # noqa: N802  (Spark's)
        """See the head of this module."""
        return BEFORE_THE_START

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's)
        """The option's limit if set: Spark passes it on, or no limit."""
        if self._admission.offsets_max is not None:
            return ReadMaxRows(self._admission.offsets_max)
        if self._admission.offsets_min is not None:
            return ReadMinRows(self._admission.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's)
        """Read up to the present ends, and no further."""
        topics = self._topics()[1]
        self._target = topics.ends(self._names(topics))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802  (Spark's)
        """The end of the next batch. Raises Unreadable, WrongOption, BrokerError, StoreError."""
        topics = self._topics()[1]
        names = self._names(topics)
        edges = Edges(topics.starts(names), topics.ends(names))
        if start == BEFORE_THE_START:
            starts = resolved(topics, "starting", self._read.starting, edges, self._read)
            return to_json(starts, topics.ids(names))
        ids = topics.ids(names)
        starts = self._starts(self._known(start, ids), edges)
        self._commit(topics, from_json(start))
        ends = edges.ends
        if self._target is not None:
            ends = {name: max(self._target.get(name, 0), starts[name]) for name in names}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._admitted(starts, ends)
        return to_json(ends, ids)

    def _known(self, offsets: Json, ids: Mapping[str, str]) -> Offsets:
        """Offsets, except of topics that were deleted and created again."""
        others = replaced(offsets, ids)
        for topic in sorted(others):
            self._lost(f"Topic {topic} was deleted and created again")
        return {name: at for name, at in from_json(offsets).items() if name.topic not in others}

    def _commit(self, topics: SparkTopics, offsets: Offsets) -> None:
        """Commit the stream's progress to the group: batches before these offsets are complete.

        Spark's own `commit` comes a batch later, and never for the last one. Nothing reads the
        group's offsets, so a failed commit is only a warning.
        """
        group = self._admission.group
        if group is None or offsets in ({}, self._committed):
            return
        try:
            refused = topics.commit(group, offsets)
        except BrokerError as error:
            refused = [str(error)]
        if refused:
            logger.warning("offsets could not be committed to group %s: %s", group, refused)
        else:
            self._committed = offsets

    def _admitted(self, starts: Offsets, ends: Offsets) -> Offsets:
        now_s = SYSTEM_CLOCK.monotonic_s()
        waited_ms = None if self._batch_at_s is None else 1000 * (now_s - self._batch_at_s)
        if self._target is None and must_wait(starts, ends, self._admission, waited_ms):
            return starts
        self._batch_at_s = now_s
        most = self._admission.offsets_max
        return ends if most is None else admitted(starts, ends, most)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802  (Spark's)
        """The current ends, for the query's progress."""
        topics = self._topics()[1]
        return to_json(topics.ends(self._names(topics)))

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch. Raises Unreadable, BrokerError, StoreError."""
        if BEFORE_THE_START in (start, end):
            return []
        place, topics = self._topics()
        there = set(self._names(topics))
        ids = topics.ids(there)
        ends = self._known(end, ids)
        names = sorted(ends.keys() & there)
        if gone := sorted(ends.keys() - there):
            self._lost(f"Partition {gone[0].topic}-{gone[0].partition} is gone")
        edges = Edges(topics.starts(names), topics.ends(names))
        starts = self._starts(self._known(start, ids), edges)
        ranges = clamped(starts, {name: ends[name] for name in names}, edges, self._lost)
        if self._plans:
            return [Ranges(ranges, ids)] if ranges else []
        return tasks_of(place, topics.pieces(ranges, ids), self._read)

    def _starts(self, start: Offsets, edges: Edges) -> Offsets:
        """The starts of a batch; a new partition starts at its first record."""
        if gone := sorted(start.keys() - edges.starts.keys()):
            self._lost(f"Partition {gone[0].topic}-{gone[0].partition} is gone")
        found: Offsets = {}
        for name, first in edges.starts.items():
            if name not in start and first > 0:
                self._lost(
                    f"Added partition {name.topic}-{name.partition} starts from {first} instead "
                    "of 0"
                )
            found[name] = start.get(name, first)
            if edges.ends[name] < found[name]:
                self._lost(
                    f"Partition {name.topic}-{name.partition}'s offset was changed from "
                    f"{found[name]} to {edges.ends[name]}, some data may have been missed"
                )
        return found

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """A task's rows."""
        return read_task(partition, self._columns, self._read, self._schema)

    def stop(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def _topics(self) -> tuple[BrokerPlace, SparkTopics]:
        if self._opened is None:
            place = find_place(self._read.location)
            self._opened = place, SparkTopics(place, reads_live=self._read.reads_live)
        return self._opened

    def _names(self, topics: SparkTopics) -> list[TopicPartition]:
        try:
            return topics.selected(self._read.selection)
        except Unreadable as error:
            self._lost(str(error))
            return topics.selected(self._read.selection, only_existing=True)
