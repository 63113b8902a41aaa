"""`write.format("smq")` and `writeStream.format("smq")`: rows to topics.

In a batch write the tasks send; a task that Spark repeats sends again. A stream is exactly once:
its tasks write their rows to files beside the checkpoint, and the driver publishes a batch's files
in one transaction, see `spark_jobs.source.publishing`.
"""

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from smq.client.client import connect
from spark_jobs.source.options import BrokerLocation, WrongOption, location, pace
from spark_jobs.source.publishing import Publisher, place_of, send

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "key": {"binary", "string"},
    "value": {"binary", "string"},
    "headers": {"array<struct<key:string,value:binary>>"},
    "topic": {"string"},
    "partition": {"int"},
    "timestamp": {"timestamp"},
}


class Staged(WriterCommitMessage):
    """The file that a task has written; None without rows."""

    def __init__(self, name: str | None) -> None:
        self.name = name


class SmqWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
    ) -> None:
        if overwrite:
            raise WrongOption('a topic cannot be overwritten: write with mode("append")')
        self._location = location(options)
        self._topic = checked_topic(options, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Send a task's rows and wait for the acks."""
        place = self._location
        opened = connect(_address(place), config=place.config, transport=place.transport)
        with opened as client, client.producer() as producer:
            for batch in iterator:
                send(producer, batch, self._topic)
            producer.flush()
        return Staged(None)


class SmqStreamWriter(DataSourceStreamArrowWriter):
    """A stream's write."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._location = location(options)
        self._topic = checked_topic(options, schema)
        self._place = place_of(options)
        self._pace = pace(options)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Write a task's rows to a file."""
        import pyarrow as pa  # noqa: PLC0415  (Spark loads this module to look at its classes.)

        first = next(iterator, None)
        if first is None:
            return Staged(None)
        self._place.directory.mkdir(parents=True, exist_ok=True)
        name = f"{secrets.token_hex(16)}.arrow"
        with (self._place.directory / name).open("xb") as file:
            with pa.ipc.new_stream(file, first.schema) as stream:
                stream.write_batch(first)
                for batch in iterator:
                    stream.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())
        return Staged(name)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's)
        """Publish a batch exactly once."""
        place = self._location
        connecting = _address(place), self._place, self._topic, self._pace
        publisher = Publisher(*connecting, place.config, place.transport)
        publisher.publish(batchId, _names(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete the files of a failed batch."""
        for name in _names(messages):
            (self._place.directory / name).unlink(missing_ok=True)


def checked_topic(options: Mapping[str, str], schema: StructType) -> str | None:
    """The topic of all rows; None: each row names its own. Raises WrongOption."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in COLUMNS.get(field.name, set()):
            allowed = ", ".join(f"{name} {' or '.join(sorted(COLUMNS[name]))}" for name in COLUMNS)
            raise WrongOption(f"column {field.name} is {kind}; the sink's columns are {allowed}")
    names = schema.fieldNames()
    if "value" not in names:
        raise WrongOption("Required attribute 'value' not found")
    topic = {name.lower(): value for name, value in options.items()}.get("topic")
    if topic is None and "topic" not in names:
        raise WrongOption(
            "topic option required when no 'topic' attribute is present. Use the topic option"
        )
    return topic


def _address(found: BrokerLocation) -> str:
    return found.bootstrap or str(Path(found.data_dir or ""))


def _names(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [each.name for each in messages if isinstance(each, Staged) and each.name is not None]
