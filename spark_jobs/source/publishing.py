"""Publishes the batches of a stream to topics, each exactly once.

A batch's rows are in files, in a directory beside the query's checkpoint. Before the first record
is sent, `state.json` says which files they are, and where each partition ended. Each record has a
header with the query, the batch and its number. After a crash the publisher reads what follows
those ends, and sends the records that are missing, from the same files: Spark may give the rows of
a repeated batch in another order. A lock keeps a publisher whose driver has died, and the one that
continues its work, apart.
"""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from smq.client.client import Client, connect
from smq.client.producing.producer import Producer
from smq.tables.plan import Unreadable
from spark_jobs.source.options import WrongOption

FORMAT = 1
HEADER = "smq.batch"
STATE = "state.json"
STEPS_PER_SECOND = 10  # Into how many parts a second's records are cut.
_HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
Rows = tuple[int, pa.RecordBatch]


def stage_directory(options: Mapping[str, str]) -> Path:
    """Where a stream's rows wait to be published: of all its nodes. Raises WrongOption."""
    given = {name.lower(): value for name, value in options.items()}
    if (named := given.get("stagingdir")) is not None:
        return Path(named)
    checkpoint = given.get("checkpointlocation")
    if checkpoint is None:
        raise WrongOption("set checkpointLocation as an option of writeStream: rows wait beside it")
    parts = urlsplit(checkpoint)
    if parts.scheme not in {"", "file"}:
        raise WrongOption(
            f"checkpointLocation is {checkpoint}: set stagingDir to a directory that all nodes "
            "have; rows wait there"
        )
    return Path(parts.path) / "smq-sink"


@dataclass(frozen=True, slots=True)
class State:
    """What the query is doing: publishing this batch, or done with it.

    query  a name of its own, in the records' headers
    ends   by topic and partition: the end before the batch
    """

    query: str
    batch: int = -1
    is_done: bool = True
    files: list[str] = field(default_factory=list)
    ends: dict[str, dict[str, int]] = field(default_factory=dict)
    format: int = FORMAT


class Publisher:
    """Publishes batches from a directory. `topic`: of all rows; None: each row names its own.

    `pace` bounds the records a second.
    """

    def __init__(
        self, address: str, directory: Path, topic: str | None, pace: int | None = None
    ) -> None:
        self._address, self._directory, self._topic = address, directory, topic
        self._pace = pace

    def publish(self, batch: int, files: Sequence[str]) -> None:
        """Publish a batch; nothing if that was done. Raises Unreadable, BrokerError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._locked():
            state = self._read()
            if state.is_done and batch > state.batch:
                with connect(self._address) as client:
                    ends = _ends(client, self._topics(files))
                    state = State(state.query, batch, is_done=False, files=[*files], ends=ends)
                    self._write(state)
                    self._send(client, state, landed=set())
            elif not state.is_done:
                if batch != state.batch:
                    raise Unreadable(
                        f"{self._directory} is in the middle of batch {state.batch}, not {batch}: "
                        "it belongs to another query, or its checkpoint was changed"
                    )
                with connect(self._address) as client:
                    self._send(client, state, _landed(client, state))
            for name in self._directory.glob("*.arrow"):
                name.unlink(missing_ok=True)

    def _send(self, client: Client, state: State, landed: set[int]) -> None:
        with client.producer() as producer:
            for first, rows in self._rows(state.files):
                numbers = np.arange(first, first + rows.num_rows)
                missing = np.array([each not in landed for each in numbers.tolist()], np.bool_)
                marked = _marked(rows, f"{state.query}/{state.batch}/", numbers)
                self._send_paced(producer, marked.filter(pa.array(missing)))
            producer.flush()
        self._write(State(state.query, state.batch))

    def _send_paced(self, producer: Producer, rows: pa.RecordBatch) -> None:
        if self._pace is None:
            send(producer, rows, self._topic)
            return
        step = max(1, self._pace // STEPS_PER_SECOND)
        for first in range(0, rows.num_rows, step):
            due_s = time.monotonic() + step / self._pace
            send(producer, rows.slice(first, step), self._topic)
            producer.flush()
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _rows(self, files: Sequence[str]) -> Iterator[Rows]:
        """The batches of some files, with the number of each one's first row."""
        first = 0
        for name in files:
            path = self._directory / name
            try:
                with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
                    for batch in stream:
                        yield first, batch
                        first += batch.num_rows
            except (OSError, pa.ArrowException) as error:
                raise Unreadable(
                    f"{path} cannot be read: {error}. All nodes need the directory (stagingDir)"
                ) from error

    def _topics(self, files: Sequence[str]) -> set[str]:
        if self._topic is not None:
            return {self._topic}
        return {
            topic for _, rows in self._rows(files) for topic in pc.unique(rows["topic"]).to_pylist()
        }

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._directory / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> State:
        path = self._directory / STATE
        if not path.exists():
            return State(secrets.token_hex(8))
        try:
            found = json.loads(path.read_text())
            assert found["format"] == FORMAT
            return State(**found)
        except (ValueError, KeyError, TypeError, AssertionError) as error:
            raise Unreadable(f"{path} is not the state of a sink of this version") from error

    def _write(self, state: State) -> None:
        """Replace the state, durably."""
        new = self._directory / f".{STATE}"
        with new.open("w") as file:
            json.dump(asdict(state), file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._directory / STATE)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def send(producer: Producer, rows: pa.RecordBatch, topic: str | None) -> None:
    """Send rows of a DataFrame. Raises Unreadable for a row without a topic, BrokerError."""
    if not rows.num_rows:
        return
    if topic is not None:
        producer.send_batch(topic, _without_topic(rows))
        return
    for name in pc.unique(rows["topic"]).to_pylist():
        if name is None:
            raise Unreadable("null topic present in the data. Use the topic option")
        chosen = rows.filter(pc.equal(rows["topic"], name))
        producer.send_batch(name, _without_topic(chosen))


def _without_topic(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select([name for name in rows.schema.names if name != "topic"])


def _marked(rows: pa.RecordBatch, prefix: str, numbers: np.ndarray) -> pa.RecordBatch:
    """Rows with one more header each: which of the batch's records it is."""
    marks = pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")
    ours = pa.StructArray.from_arrays(
        [pa.repeat(HEADER, len(rows)), marks.cast(pa.binary())], fields=list(_HEADER_TYPE)
    )
    counts = np.zeros(len(rows), np.int64)
    theirs = pa.array([], _HEADER_TYPE)
    if "headers" in rows.schema.names:
        lengths = pc.fill_null(pc.list_value_length(rows["headers"]), 0)
        counts = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
        theirs = rows["headers"].flatten().cast(_HEADER_TYPE)
    ends = np.concatenate([[0], np.cumsum(counts + 1)])
    places = np.empty(ends[-1], np.int64)
    is_ours = np.zeros(ends[-1], np.bool_)
    is_ours[ends[1:] - 1] = True
    places[is_ours] = len(theirs) + np.arange(len(rows))
    places[~is_ours] = np.arange(len(theirs))
    items = pa.concat_arrays([theirs, ours]).take(pa.array(places))
    headers = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)
    columns = {name: rows[name] for name in rows.schema.names}
    return pa.record_batch({**columns, "headers": headers})


def _ends(client: Client, topics: set[str]) -> dict[str, dict[str, int]]:
    counts = client.topics()
    if missing := sorted(topics - counts.keys()):
        raise Unreadable(f"there is no topic {missing[0]}; create it first")
    found: dict[str, dict[str, int]] = {topic: {} for topic in sorted(topics)}
    with client.consumer(start="earliest") as consumer:
        consumer.assign((topic, each) for topic in topics for each in range(counts[topic]))
        for name, end in consumer.find("latest").items():
            found[name.topic][str(name.partition)] = end
    return found


def _landed(client: Client, state: State) -> set[int]:
    """The numbers of the records of an unfinished batch that the topics have."""
    counts = client.topics()
    prefix = f"{state.query}/{state.batch}/".encode()
    found: set[int] = set()
    with client.consumer(start="earliest") as consumer:
        names = [(topic, each) for topic in state.ends for each in range(counts.get(topic, 0))]
        if not names:
            return found
        consumer.assign(names)
        firsts, ends = consumer.find("earliest"), consumer.find("latest")
        for name in ends:
            start = state.ends[name.topic].get(str(name.partition), 0)
            if firsts[name] > start:
                raise Unreadable(
                    f"batch {state.batch} was published in part, and {name.topic}-{name.partition} "
                    f"has lost its offsets {start} to {firsts[name]} since: nobody knows which "
                    "records are missing. Delete the query's checkpoint, or go on without the rest"
                )
            consumer.seek(name.topic, name.partition, min(start, ends[name]))
        for record in consumer.read_until(ends):
            for key, value in record.headers:
                if key == HEADER and value is not None and value.startswith(prefix):
                    found.add(int(value[len(prefix) :]))
    return found
