"""A stream's batches reach topics once, whatever dies, and only from their own checkpoint."""

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from smq.client.names import GroupOffsets, TopicPartition
from smq.tables.plan import Unreadable
from smq.testing.smq_broker import SmqBroker
from spark_jobs.source.options import WrongOption
from spark_jobs.source.publishing import PREFIX, Publisher, SinkPlace, place_of

KILLS = 12


def checkpoint(directory: Path, query: str = "q", batches: int = 10, made: str = "") -> SinkPlace:
    """The checkpoint of a query whose batches are planned; `made` tells one from another."""
    (directory / "offsets").mkdir(parents=True, exist_ok=True)
    (directory / "metadata").write_text(f'{{"id":"{query}"}}')
    for batch in range(batches):
        (directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{batch}{made}")
    return place_of({"checkpointLocation": str(directory)})


def stage(directory: Path, name: str, first: int, count: int, **columns: list[object]) -> str:
    """A file of numbers, as a task leaves it."""
    directory.mkdir(exist_ok=True)
    values = [b"%d" % each for each in range(first, first + count)]
    table = pa.table({"value": pa.array(values, pa.binary()), **columns})
    with pa.ipc.new_stream(directory / name, table.schema) as stream:
        stream.write_table(table, max_chunksize=100)
    return name


def values(broker: SmqBroker, topic: str = "orders") -> list[int]:
    """Of the committed records."""
    with (
        broker.connect() as client,
        client.consumer(topic, start="earliest", isolation_level="read_committed") as consumer,
    ):
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
    place = checkpoint(tmp_path)
    for batch in (0, 0, 1, 1, 3):  # Batch 2 had no rows.
        file = stage(place.directory, "a.arrow", 10 * batch, 10)
        Publisher(broker.bootstrap, place, "orders").publish(batch, [file])
        Publisher(broker.bootstrap, place, "orders").publish(2, [])
        assert list(place.directory.glob("*.arrow")) == []
    assert values(broker) == [*range(20), *range(30, 40)]


def test_a_transaction_that_a_dead_driver_left_open_is_aborted(
    broker: SmqBroker, tmp_path: Path
) -> None:
    place = checkpoint(tmp_path)
    with broker.connect() as client:
        dead = client.producer(transactional_id=place.name())
        transaction = dead.transaction()
        transaction.__enter__()
        dead.send_batch("orders", {"value": [b"%d" % each for each in range(500)]})
        dead.flush()
        group = GroupOffsets(place.name(), {TopicPartition("orders", 0): 1}, metadata="")
        transaction.commit_group(group)
        file = stage(place.directory, "a.arrow", 0, 1000)
        Publisher(broker.bootstrap, place, "orders").publish(0, [file])
        with pytest.raises(Exception, match="another producer has begun"):
            transaction.__exit__(None, None, None)
    assert values(broker) == list(range(1000))


@pytest.mark.parametrize("batch", [0, 2])
def test_batches_of_another_checkpoint_are_refused(
    broker: SmqBroker, tmp_path: Path, batch: int
) -> None:
    place = checkpoint(tmp_path / "first")
    for each in range(3):
        file = stage(place.directory, "a.arrow", 10 * each, 10)
        Publisher(broker.bootstrap, place, "orders").publish(each, [file])
    copy = checkpoint(tmp_path / "second", made=" planned anew")
    file = stage(copy.directory, "a.arrow", 100, 10)
    with pytest.raises(Unreadable, match=rf"batch {batch} of .*-q was published from another"):
        Publisher(broker.bootstrap, copy, "orders").publish(batch, [file])
    assert values(broker) == list(range(30))
    exact = SinkPlace(tmp_path / "second", None, "q")  # Not a directory: only numbers are compared.
    file = stage(exact.directory, "a.arrow", 20, 10)
    Publisher(broker.bootstrap, exact, "orders").publish(2, [file])
    assert values(broker) == list(range(30))


def test_a_batch_that_fails_leaves_nothing(broker: SmqBroker, tmp_path: Path) -> None:
    place = checkpoint(tmp_path)
    good = stage(place.directory, "a.arrow", 0, 10)
    huge = pa.table({"value": pa.array([b"x" * (64 << 20)], pa.binary())})
    with pa.ipc.new_stream(place.directory / "b.arrow", huge.schema) as stream:
        stream.write_table(huge)
    with pytest.raises(Exception, match=r"large|MESSAGE_TOO_LARGE"):
        Publisher(broker.bootstrap, place, "orders").publish(0, [good, "b.arrow"])
    assert values(broker) == []
    Publisher(broker.bootstrap, place, "orders").publish(0, [good])
    assert values(broker) == list(range(10))


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
    place = checkpoint(tmp_path)
    file = stage(place.directory, "a.arrow", 0, 3, **columns)
    Publisher(broker.bootstrap, place, None).publish(0, [file])
    assert values(broker, "others") == [1]
    with broker.connect() as client, client.consumer("orders", start="earliest") as consumer:
        found = {
            (record.partition, bytes(record.value or b"")): (record.key, record.headers)
            for record in consumer.read_until(consumer.find("latest"))
        }
    key, first = found[1, b"0"]
    assert (key, first) == (b"k", (("a", b"1"), ("a", None)))
    assert found[0, b"2"][1] == ()


def test_an_impossible_publishing_is_refused_with_a_sentence(
    broker: SmqBroker, tmp_path: Path
) -> None:
    place = checkpoint(tmp_path, batches=1)
    publisher = Publisher(broker.bootstrap, place, None)
    nowhere = stage(place.directory, "a.arrow", 0, 1, topic=["nowhere"])
    with pytest.raises(Unreadable, match="there is no topic nowhere; create it first"):
        publisher.publish(0, [nowhere])
    without = stage(place.directory, "b.arrow", 0, 1, topic=pa.nulls(1, pa.string()))
    with pytest.raises(Unreadable, match="null topic present in the data"):
        publisher.publish(0, [without])
    with pytest.raises(Unreadable, match=r"gone.arrow cannot be read.*stagingDir"):
        publisher.publish(0, ["gone.arrow"])
    with pytest.raises(Unreadable, match=r"offsets/7 cannot be read"):
        publisher.publish(7, [nowhere])
    (tmp_path / "metadata").unlink()
    with pytest.raises(Unreadable, match="metadata does not say the query's id"):
        publisher.publish(0, [nowhere])


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"checkpointLocation": "/c", "stagingDir": "/a"}, SinkPlace(Path("/a"), Path("/c"), None)),
        ({"CheckpointLocation": "/c"}, SinkPlace(Path("/c/smq-sink"), Path("/c"), None)),
        (
            {"checkpointLocation": "file:///c", "queryId": "q"},
            SinkPlace(Path("/c/smq-sink"), Path("/c"), "q"),
        ),
        (
            {"checkpointLocation": "s3a://b/c", "stagingDir": "/a", "queryId": "q"},
            SinkPlace(Path("/a"), None, "q"),
        ),
    ],
)
def test_rows_wait_beside_the_checkpoint(options: dict[str, str], place: SinkPlace) -> None:
    assert place_of(options) == place


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "set checkpointLocation as an option of writeStream"),
        ({"checkpointLocation": "s3a://b/c"}, "set stagingDir to a directory that all nodes have"),
        ({"checkpointLocation": "s3a://b/c", "stagingDir": "/a"}, "and queryId to a name"),
    ],
)
def test_a_place_for_the_rows_is_needed(options: dict[str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        place_of(options)


def test_a_query_has_one_name(tmp_path: Path) -> None:
    assert checkpoint(tmp_path, query="a").name() == PREFIX + "a"
    assert SinkPlace(tmp_path, None, "b").name() == PREFIX + "b"


PROGRAM = """
import sys
from pathlib import Path
from spark_jobs.source.publishing import Publisher
from tests.spark_jobs.source.test_publishing import checkpoint, stage
bootstrap, directory = sys.argv[1], Path(sys.argv[2])
commits = directory / "commits"
commits.mkdir(exist_ok=True)
place = checkpoint(directory)
print("ready", flush=True)
for batch in range(len(list(commits.iterdir())), 6):  # As Spark: the first without a commit.
    file = stage(place.directory, f"{batch}.arrow", 5000 * batch, 5000)
    Publisher(bootstrap, place, "orders").publish(batch, [file])
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
