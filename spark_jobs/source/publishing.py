"""Publishes the batches of a stream to topics, each exactly once. The broker tracks progress.

A batch is one transaction: its records, and a note that it is published. The note is a committed
offset of a group without members, named after the query: the number of the next batch, and a
checksum of this batch's entry in the checkpoint. The query's name is also the transactional id, so
a publisher whose driver was replaced is fenced, and its open transaction is aborted.

The note also detects a checkpoint other than the last batch's: an older copy, or a new one under an
old name. Its batches have the same numbers but different records; they are refused.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from smq.client.client import Client, connect
from smq.client.clock import SYSTEM_CLOCK
from smq.client.errors import ProducerFenced
from smq.client.kafka.group_admin import Committed, committed
from smq.client.locate import AUTO, cluster_at
from smq.client.names import GroupOffsets, TopicPartition
from smq.client.producing.producer import Producer
from smq.client.secure.security import security_of
from smq.tables.plan import Unreadable
from spark_jobs.source.options import WrongOption

PREFIX = "spark-sink-"
STEPS_PER_SECOND = 10  # A second's records are sent in this many parts.
TRANSACTION_S = 900  # The broker's bound (transaction.max.timeout.ms).
ABANDONED_S = 24 * 3600  # Files this much older than a batch's belong to no live driver.


class SinkPlace(NamedTuple):
    """Where a query keeps the sink's data.

    directory   holds rows until they are published
    checkpoint  the query's, if it is a directory
    query       the name given by its user, if any
    """

    directory: Path
    checkpoint: Path | None
    query: str | None

    def name(self) -> str:
        """The query's name, for the broker. Raises Unreadable."""
        if self.query is not None:
            return PREFIX + self.query
        assert self.checkpoint is not None
        path = self.checkpoint / "metadata"
        try:
            return PREFIX + str(json.loads(path.read_text())["id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"{path} does not say the query's id: {error}") from error

    def mark(self, batch: int) -> str:
        """A checksum of a batch's entry in the checkpoint; empty without a checkpoint directory.

        Spark writes the entry before the batch runs, and never again.
        """
        if self.checkpoint is None:
            return ""
        path = self.checkpoint / "offsets" / str(batch)
        try:
            return f"{zlib.crc32(path.read_bytes()):08x}"
        except OSError as error:
            raise Unreadable(
                f"{path} cannot be read: {error}. checkpointLocation must be the query's own"
            ) from error


def place_of(options: Mapping[str, str]) -> SinkPlace:
    """Where a stream's rows wait for publishing, and its identity. Raises WrongOption."""
    given = {name.lower(): value for name, value in options.items()}
    query, staging = given.get("queryid"), given.get("stagingdir")
    location = given.get("checkpointlocation")
    if location is None:
        raise WrongOption("set checkpointLocation as an option of writeStream: rows wait beside it")
    parts = urlsplit(location)
    if parts.scheme in {"", "file"}:
        checkpoint = Path(parts.path)
        return SinkPlace(Path(staging) if staging else checkpoint / "smq-sink", checkpoint, query)
    if not staging or not query:
        raise WrongOption(
            f"checkpointLocation is {location}: set stagingDir to a directory that all nodes "
            "have, where rows wait, and queryId to a name of this query's own"
        )
    return SinkPlace(Path(staging), None, query)


class Publisher:
    """Publishes a query's batches. `topic` applies to all rows; None: each row names its own.

    `pace` bounds the records a second; `config` is a file that says how to connect, `transport`
    as in `connect`.
    """

    def __init__(  # noqa: PLR0913, PLR0917  (each is an option)
        self,
        address: str,
        place: SinkPlace,
        topic: str | None,
        pace: int | None = None,
        config: str | None = None,
        transport: str = AUTO,
    ) -> None:
        self._address, self._place, self._topic, self._pace = address, place, topic, pace
        self._config, self._transport = config, transport

    def publish(self, batch: int, files: Sequence[str]) -> None:
        """Publish a batch, unless it was already. Raises Unreadable, BrokerError."""
        name, mark = self._place.name(), self._place.mark(batch)
        topics = self._topics(files)
        if topics:
            opened = connect(self._address, config=self._config, transport=self._transport)
            with opened as client:
                _check_there(client, topics)
                try:
                    self._publish(client, name, Committed(batch + 1, mark), topics, files)
                except ProducerFenced as error:
                    raise Unreadable(
                        f"batch {batch} of {name} is not published: another driver publishes this "
                        f"query's batches, or it took longer than {TRANSACTION_S} s "
                        "(maxOffsetsPerTrigger makes batches smaller)"
                    ) from error
        self._forget(files)

    def _publish(
        self, client: Client, name: str, note: Committed, topics: set[str], files: Sequence[str]
    ) -> None:
        producer = client.producer(transactional_id=name, transaction_timeout_s=TRANSACTION_S)
        with producer:  # Fences all other publishers of this name.
            if _is_published(name, note, self._last(name)):
                return
            with producer.transaction() as transaction:
                for rows in self._rows(files):
                    self._send_paced(producer, rows)
                offsets = {TopicPartition(topic, 0): note.offset for topic in topics}
                transaction.commit_group(GroupOffsets(name, offsets, metadata=note.metadata))

    def _last(self, name: str) -> Committed | None:
        """The note of the last published batch."""
        security = security_of(self._config)
        with cluster_at(self._address, security) as cluster:
            found = cluster.retrying(lambda: committed(cluster, name))
        return max(found.values(), default=None)

    def _send_paced(self, producer: Producer, rows: pa.RecordBatch) -> None:
        if self._pace is None:
            send(producer, rows, self._topic)
            return
        step = max(1, self._pace // STEPS_PER_SECOND)
        for first in range(0, rows.num_rows, step):
            due_s = SYSTEM_CLOCK.monotonic_s() + step / self._pace
            send(producer, rows.slice(first, step), self._topic)
            producer.flush()
            SYSTEM_CLOCK.sleep(due_s - SYSTEM_CLOCK.monotonic_s())

    def _rows(self, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for name in files:
            path = self._place.directory / name
            try:
                with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
                    yield from stream
            except (OSError, pa.ArrowException) as error:
                raise Unreadable(
                    f"{path} cannot be read: {error}. All nodes need the directory (stagingDir)"
                ) from error

    def _topics(self, files: Sequence[str]) -> set[str]:
        if self._topic is not None:
            return {self._topic} if files else set()
        found: set[str] = set()
        for rows in self._rows(files):
            found |= set(pc.unique(_named(rows)).to_pylist())
        return found

    def _forget(self, files: Sequence[str]) -> None:
        """Delete the files of a published batch, and those that dead drivers left."""
        newest_s = 0.0
        for path in (self._place.directory / each for each in files):
            newest_s = max(newest_s, _written_s(path))
            path.unlink(missing_ok=True)
        for path in self._place.directory.glob("*.arrow"):
            if _written_s(path) < newest_s - ABANDONED_S:
                path.unlink(missing_ok=True)


def _written_s(path: Path) -> float:
    """When a file was written; 0 if it no longer exists."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _is_published(name: str, note: Committed, last: Committed | None) -> bool:
    """Whether a batch was published. Raises Unreadable for a batch of another checkpoint."""
    if last is None or note.offset > last.offset:
        return False
    is_known = note.metadata and last.metadata
    if note.offset == last.offset and not (is_known and note.metadata != last.metadata):
        return True
    raise Unreadable(
        f"batch {note.offset - 1} of {name} was published from another checkpoint, up to batch "
        f"{last.offset - 1}: this checkpoint is an older copy, or a new one under an old name. "
        "Nothing was written. Use the former checkpoint, or a new one (and another queryId), "
        "with startingOffsets at the first record that is still to be written"
    )


def _check_there(client: Client, topics: set[str]) -> None:
    if missing := sorted(topics - client.topics().keys()):
        raise Unreadable(f"there is no topic {missing[0]}; create it first")


def send(producer: Producer, rows: pa.RecordBatch, topic: str | None) -> None:
    """Send rows of a DataFrame. Raises Unreadable for a row without a topic, BrokerError."""
    if not rows.num_rows:
        return
    if topic is not None:
        producer.send_batch(topic, _without_topic(rows))
        return
    names = _named(rows)
    for name in pc.unique(names).to_pylist():
        producer.send_batch(name, _without_topic(rows.filter(pc.equal(names, name))))


def _named(rows: pa.RecordBatch) -> pa.Array:
    """The topics of rows."""
    names = rows["topic"]
    if names.null_count:
        raise Unreadable("null topic present in the data. Use the topic option")
    return names


def _without_topic(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([name for name in rows.schema.names if name != "topic"])
