"""SeaweedMQ's Go module: what it says of its API, and its own clients against a real broker.

They are used as they come. agent_client reads no answers, sends no acknowledgements, and has no
call that waits until its records have arrived: the test lets its program go once they have.
pub_client's Shutdown waits for the nanosecond of its close message. sub_client acknowledges on
whichever stream comes first, and cannot be closed.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import OffsetType, RecordValue, Topic, Value
from smq.client.kafka.group_admin import committed_offsets
from smq.client.locate import cluster_at
from smq.testing.processes import ReservedPorts
from smq.testing.smq_broker import SmqBroker
from tests.agent.seaweedmq import RECORDED
from tests.app.agent.doors import SETTINGS, Doors, opened
from tests.app.agent.streams import soon
from tests.clients import toolchain

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(900)]

MANY, SOME, FEW = 50_000, 2_000, 100
RUN_SECONDS_MAX = 200


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    directory = tmp_path_factory.mktemp("seaweedmq")
    with SmqBroker(directory, SETTINGS) as broker, opened(broker) as found:
        yield found


def test_the_recorded_descriptors_are_those_of_its_go_module() -> None:
    program = toolchain.seaweedmq("descriptors")
    said = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == RECORDED.read_text()


def call(what: str, *arguments: object) -> list[str]:
    return [*toolchain.seaweedmq("referee"), what, *map(str, arguments)]


def subscribe(
    service: str, address: str, topic: str, group: str, count: int, *limits: int
) -> list[int]:
    """The records that a subscriber reads; agents have limits of partitions and of the window."""
    command = call(f"{service}-subscribe", address, "shop", topic, group, count, *limits)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [*map(int, done.stdout.split())]


def end_of(doors: Doors, name: str) -> int:
    """How many records the topic has."""
    topic = Topic(namespace="shop", name=name)
    found = doors.broker.LookupTopicBrokers(pb.LookupTopicBrokersRequest(topic=topic))
    ranges = (each.partition for each in found.broker_partition_assignments)
    asked = (pb.GetPartitionRangeInfoRequest(topic=topic, partition=each) for each in ranges)
    return sum(
        doors.broker.GetPartitionRangeInfo(each).offset_range.high_water_mark for each in asked
    )


def test_agent_client_publishes_subscribes_and_resumes(doors: Doors) -> None:
    address = doors.smq.status().agent
    publish_by_agent(doors, address, "agent", 0, MANY)
    assert sorted(subscribe("agent", address, "agent", "readers", MANY, 0, 0)) == [*range(MANY)]
    publish_by_agent(doors, address, "agent", MANY, FEW)
    found = subscribe("agent", address, "agent", "readers", FEW, 0, 0)
    assert sorted(found) == [*range(MANY, MANY + FEW)]


def publish_by_agent(doors: Doors, address: str, name: str, first: int, count: int) -> None:
    """Numbers into four partitions."""
    command = call("agent-publish", address, "shop", name, 4, first, count)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as program:
        soon(lambda: exists(doors, name) and end_of(doors, name) == first + count)
        assert program.stdin is not None
        program.stdin.close()
        assert program.wait(RUN_SECONDS_MAX) == 0


def exists(doors: Doors, name: str) -> bool:
    asked = pb.TopicExistsRequest(topic=Topic(namespace="shop", name=name))
    return bool(doors.broker.TopicExists(asked).exists)


def test_pub_client_and_sub_client_publish_subscribe_and_resume(doors: Doors) -> None:
    address = doors.smq.status().grpc

    def publish(first: int, count: int) -> None:
        command = call("broker-publish", address, "shop", "broker", 4, first, count)
        subprocess.run(command, capture_output=True, check=True, timeout=RUN_SECONDS_MAX)
        assert end_of(doors, "broker") == first + count

    publish(0, MANY)
    assert {*subscribe("broker", address, "broker", "readers", MANY)} == {*range(MANY)}
    soon(lambda: committed(doors, "readers") == MANY)
    publish(MANY, FEW)
    assert {*subscribe("broker", address, "broker", "readers", FEW)} == {*range(MANY, MANY + FEW)}


def committed(doors: Doors, group: str) -> int:
    with cluster_at(doors.smq.data_dir) as cluster:
        offsets = committed_offsets(cluster, group)
    return sum(offset for name, offset in offsets.items() if name.topic == "shop.broker")


def test_a_seek_by_its_stubs_goes_to_a_time_or_an_offset(doors: Doors) -> None:
    topic, first_ms = Topic(namespace="shop", name="sought"), 1_790_000_000_000
    doors.broker.ConfigureTopic(pb.ConfigureTopicRequest(topic=topic, partition_count=1))
    with doors.smq.connect() as client, client.producer() as producer:
        for each in range(10):
            value = RecordValue(fields={"id": Value(int64_value=each)}).SerializeToString()
            producer.send("shop.sought", value, key=b"k", timestamp_ms=first_ms + each)
    seeks = (
        (OffsetType.EXACT_OFFSET, 7),
        (OffsetType.EXACT_TS_NS, (first_ms + 5) * 10**6),
        (OffsetType.RESUME_OR_EARLIEST, 8),
        (OffsetType.EXACT_OFFSET, 99),
    )
    arguments = [number for seek in seeks for number in seek]
    command = call("broker-seek", doors.smq.status().grpc, "shop", "sought", 10, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    *lines, refused = done.stdout.splitlines()
    assert [[*map(int, each.split())] for each in lines] == [
        [*range(begin, 10)] for begin in (0, 7, 5, 8)
    ]
    assert "out of range: the partition has 0 to 10" in refused


@contextmanager
def weed_agent(broker: str, path: Path) -> Iterator[str]:
    """The address of SeaweedMQ's agent before our broker service."""
    with ReservedPorts(1) as ports, (path / "log").open("wb") as log:
        address = f"127.0.0.1:{ports.first}"
        words = f"-broker={broker}", "-ip=127.0.0.1", f"-port={ports.first}"
        command = [toolchain.weed(), "mq.agent", *words]
        with subprocess.Popen(command, cwd=path, stdout=log, stderr=log) as agent:
            try:
                with grpc.insecure_channel(address) as channel:
                    grpc.channel_ready_future(channel).result(RUN_SECONDS_MAX)
                yield address
            finally:
                agent.terminate()


def test_seaweedmqs_own_agent_works_with_our_broker_service(doors: Doors, tmp_path: Path) -> None:
    """Its subscribers must name a number of partitions and a window: with 0 it waits for ever."""
    with weed_agent(doors.smq.status().grpc, tmp_path) as address:
        publish_by_agent(doors, address, "weed", 0, SOME)
        assert {*subscribe("agent", address, "weed", "readers", SOME, 4, 1)} == {*range(SOME)}
        publish_by_agent(doors, address, "weed", SOME, FEW)
        found = subscribe("agent", address, "weed", "readers", FEW, 4, 1)
        assert {*found} == {*range(SOME, SOME + FEW)}
