"""A stream's batches reach topics once, whatever dies."""

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source.options import WrongOption
from spark_jobs.source.publishing import (
    HEADER,
    Publisher,
    State,
    _ends,
    _marked,
    send,
    stage_directory,
)

KILLS = 12


def stage(directory: Path, name: str, first: int, count: int, **columns: list[object]) -> str:
    """A file of numbers, as a task leaves it."""
    directory.mkdir(exist_ok=True)
    values = [b"%d" % each for each in range(first, first + count)]
    table = pa.table({"value": pa.array(values, pa.binary()), **columns})
    with pa.ipc.new_stream(directory / name, table.schema) as stream:
        stream.write_table(table, max_chunksize=100)
    return name


def values(broker: SmqBroker, topic: str = "orders") -> list[int]:
    with broker.connect() as client, client.consumer(topic, start="earliest") as consumer:
        return sorted(
            int(bytes(record.value or b""))
            for record in consumer.read_until(consumer.find("latest"))
        )


@pytest.fixture
def broker(smq_broker: SmqBroker) -> SmqBroker:
    with smq_broker.connect() as client:
        client.create_topic("orders", 2)
    return smq_broker


def test_a_batch_is_published_once(broker: SmqBroker, tmp_path: Path) -> None:
    for batch in (0, 0, 1, 0, 1):
        file = stage(tmp_path, "a.arrow", 10 * batch, 10)
        Publisher(broker.bootstrap, tmp_path, "orders").publish(batch, [file])
        assert list(tmp_path.glob("*.arrow")) == []
    assert values(broker) == list(range(20))


@pytest.mark.parametrize("landed", [0, 1, 450, 1000])
def test_a_batch_that_was_cut_short_is_completed_from_its_own_files(
    broker: SmqBroker, tmp_path: Path, landed: int
) -> None:
    files = [stage(tmp_path, "a.arrow", 0, 600), stage(tmp_path, "b.arrow", 600, 400)]
    publisher = Publisher(broker.bootstrap, tmp_path, "orders")
    with broker.connect() as client, client.producer() as producer:
        producer.send("orders", b"5000")  # Of somebody else.
        producer.flush()
        state = State("q", 7, is_done=False, files=files, ends=_ends(client, {"orders"}))
        publisher._write(state)
        for first, rows in publisher._rows(files):
            numbers = pa.array(range(first, first + rows.num_rows)).to_numpy()
            marked = _marked(rows, "q/7/", numbers)
            send(producer, marked.slice(0, max(0, landed - first)), "orders")
        producer.send("orders", b"5001")
    again = stage(tmp_path, "other.arrow", 9000, 1000)  # Spark may order a repeated batch anew.
    Publisher(broker.bootstrap, tmp_path, "orders").publish(7, [again])
    assert values(broker) == [*range(1000), 5000, 5001]


def test_rows_name_topics_keys_partitions_and_headers(broker: SmqBroker, tmp_path: Path) -> None:
    with broker.connect() as client:
        client.create_topic("others", 1)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[("a", b"1"), ("a", None)], None, []], kind)
    columns = {
        "topic": ["orders", "others", "orders"],
        "key": ["k", None, "k"],
        "partition": pa.array([1, None, 0], pa.int32()),
        "headers": headers,
    }
    file = stage(tmp_path, "a.arrow", 0, 3, **columns)
    Publisher(broker.bootstrap, tmp_path, None).publish(0, [file])
    assert values(broker, "others") == [1]
    with broker.connect() as client, client.consumer("orders", start="earliest") as consumer:
        found = {
            (record.partition, bytes(record.value or b"")): (record.key, record.headers)
            for record in consumer.read_until(consumer.find("latest"))
        }
    key, first = found[1, b"0"]
    assert (key, first[:2]) == (b"k", (("a", b"1"), ("a", None)))
    assert [name for name, _ in first] == ["a", "a", HEADER]
    assert [name for name, _ in found[0, b"2"][1]] == [HEADER]


def test_what_cannot_be_published_is_said(broker: SmqBroker, tmp_path: Path) -> None:
    publisher = Publisher(broker.bootstrap, tmp_path, None)
    nowhere = stage(tmp_path, "a.arrow", 0, 1, topic=["nowhere"])
    with pytest.raises(Unreadable, match="there is no topic nowhere; create it first"):
        publisher.publish(0, [nowhere])
    with pytest.raises(Unreadable, match=r"gone.arrow cannot be read.*stagingDir"):
        publisher.publish(0, ["gone.arrow"])
    publisher._write(State("q", 3, is_done=False))
    with pytest.raises(Unreadable, match="in the middle of batch 3, not 4"):
        publisher.publish(4, [])
    (tmp_path / "state.json").write_text('{"format": 9}')
    with pytest.raises(Unreadable, match="not the state of a sink of this version"):
        publisher.publish(4, [])


def test_records_that_retention_took_are_not_guessed(broker: SmqBroker, tmp_path: Path) -> None:
    file = stage(tmp_path, "a.arrow", 0, 5)
    publisher = Publisher(broker.bootstrap, tmp_path, "orders")
    publisher._write(State("q", 0, is_done=False, files=[file], ends={"orders": {"0": 0, "1": 0}}))
    with broker.connect() as client, client.producer() as producer:
        producer.send("orders", b"1", partition=0)
        producer.flush()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for deleted in admin.delete_records([TopicPartition("orders", 0, 1)]).values():
        deleted.result(30)
    with pytest.raises(Unreadable, match="has lost its offsets 0 to 1 since"):
        publisher.publish(0, [file])


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"stagingDir": "/a"}, "/a"),
        ({"checkpointLocation": "/c", "stagingDir": "/a"}, "/a"),
        ({"CheckpointLocation": "/c"}, "/c/smq-sink"),
        ({"checkpointLocation": "file:///c"}, "/c/smq-sink"),
    ],
)
def test_rows_wait_beside_the_checkpoint(options: dict[str, str], path: str) -> None:
    assert stage_directory(options) == Path(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "set checkpointLocation as an option of writeStream"),
        ({"checkpointLocation": "s3a://b/c"}, "set stagingDir to a directory that all nodes have"),
    ],
)
def test_a_place_for_the_rows_is_needed(options: dict[str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        stage_directory(options)


PROGRAM = """
import sys
from pathlib import Path
from spark_jobs.source.publishing import Publisher
from tests.spark_jobs.source.test_publishing import stage
bootstrap, directory = sys.argv[1], Path(sys.argv[2])
commits = directory / "commits"
commits.mkdir(exist_ok=True)
print("ready", flush=True)
for batch in range(len(list(commits.iterdir())), 6):  # As Spark: the first without a commit.
    file = stage(directory, f"{batch}.arrow", 5000 * batch, 5000)
    Publisher(bootstrap, directory, "orders").publish(batch, [file])
    (commits / str(batch)).touch()
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_publisher_that_is_killed_loses_and_doubles_nothing(
    broker: SmqBroker, tmp_path: Path
) -> None:
    chance = random.Random(20)
    command = [sys.executable, "-c", PROGRAM, broker.bootstrap, str(tmp_path)]
    kills = 0
    for _ in range(100):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            try:
                ended = program.wait(chance.uniform(0, 0.4) if kills < KILLS else 120)
            except subprocess.TimeoutExpired:
                program.kill()
                kills += 1
                continue
        assert ended == 0
        if kills >= KILLS:
            break
    assert kills == KILLS
    assert values(broker) == list(range(30_000))
