"""Garbage from clients: others are served as before, no process dies, and none grows."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from shm.kernels.twin import records as plain
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.testing.messages import random_message
from smq.testing.smq_broker import SmqBroker
from smq.wire.compression import Codec, compress
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from smq.wire.generated.list_groups import ListGroupsRequest
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.messages.tables import APIS
from smq.wire.records import Record, write_batch
from tests.app.shard_client import request
from tests.broker.hostile import MiB, RawClient, bounded, crowd
from tests.broker.one_topic import SETTINGS, OneTopic, fetch_request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

GROWS_BYTES_MAX = 24 * MiB  # Of a shard or a coordinator, whatever comes: buffers and free lists.
# A sealer's worker imports pyarrow, and inflates up to 64 MiB of a batch.
WORKER_BYTES_MAX = 400 * MiB
VERSIONS = [(api, version) for api in APIS for version in api.versions]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def one_record(value: bytes) -> bytes:
    return write_batch([Record(0, 0, None, value)])


def produce(topic: str, batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def any_request(chance: Random) -> bytes:
    """Of the right form, whatever it says."""
    api, version = chance.choice(VERSIONS)
    message = random_message(chance, api, f"{api.name}Request", version)
    if isinstance(message, ProduceRequest):
        message = produce("topic-1", one_record(b"whole")[: chance.randrange(80)])
    return request(api.name, version, message, chance.randrange(1 << 31))


def garbled(chance: Random) -> bytes:
    """A conversation of a few requests, some of which are damaged somewhere or cut."""
    said = b""
    for _ in range(chance.randint(1, 4)):
        one = bytearray(any_request(chance))
        for _ in range(chance.choice((0, 0, 1, 3))):
            one[chance.randrange(len(one))] = chance.randrange(256)
        if chance.random() < 0.2:
            del one[chance.randrange(len(one)) :]
        if chance.random() < 0.1:
            one = bytearray(chance.randbytes(chance.randrange(100)))
        said += one
    return said


def test_garbage_on_live_sockets_harms_no_other_client(broker: SmqBroker, cluster: Cluster) -> None:
    topic = OneTopic(broker, cluster, "neighbour")
    taken = 0

    @settings(deadline=None, max_examples=150)
    @given(seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=5), dies=st.booleans())
    def harmless(seeds: list[int], dies: bool) -> None:
        nonlocal taken
        with crowd(broker.port, len(seeds), lambda _: None) as clients:
            for client, seed in zip(clients, seeds, strict=True):
                client.send(garbled(Random(seed)))
            answer = topic.produce(one_record(b"mine"))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, taken)
            taken += 1
            if dies:
                for client in clients:
                    client.reset()

    with bounded(broker, GROWS_BYTES_MAX, WORKER_BYTES_MAX):
        harmless()
        assert {record.value for record in topic.records(taken)} == {b"mine"}


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * MiB + 1, 0, 7])
def test_impossible_lengths_close_at_once_and_hold_nothing(broker: SmqBroker, size: int) -> None:
    with bounded(broker, GROWS_BYTES_MAX, WORKER_BYTES_MAX):
        for _ in range(100):
            with RawClient(broker.port) as client:
                client.send(size.to_bytes(4, signed=True) + bytes(100))
                assert client.answer() is None


def test_requests_that_never_end_hold_no_more_than_what_was_sent(broker: SmqBroker) -> None:
    def announce(client: RawClient) -> None:
        client.send((90 * MiB).to_bytes(4) + bytes(2000))

    with (
        bounded(broker, GROWS_BYTES_MAX, WORKER_BYTES_MAX),
        crowd(broker.port, 500, announce),
        RawClient(broker.port) as neighbour,
    ):
        for _ in range(20):
            assert neighbour.ask("ApiVersions", 0, ApiVersionsRequest()).api_keys


def test_a_request_may_come_byte_by_byte_while_others_go_on(broker: SmqBroker) -> None:
    question = request("ApiVersions", 0, ApiVersionsRequest())
    with crowd(broker.port, 20, lambda _: None) as slow, RawClient(broker.port) as neighbour:
        for at in range(len(question)):
            for client in slow:
                client.send(question[at : at + 1])
            assert neighbour.ask("ApiVersions", 0, ApiVersionsRequest()) is not None
        assert all(client.answer() for client in slow)


def test_a_client_that_fetches_much_and_reads_nothing_takes_little_memory(
    broker: SmqBroker, cluster: Cluster
) -> None:
    """Answers are lent from the ring and the log, and requests wait while they are stuck."""
    topic = OneTopic(broker, cluster, "much")
    end = topic.append_filler(6)
    question = request("Fetch", 12, fetch_request("much", {0: 0}))
    with (
        bounded(broker, GROWS_BYTES_MAX, WORKER_BYTES_MAX),
        crowd(broker.port, 50, lambda client: client.send(20 * question)),
    ):
        assert topic.append(one_record(b"mine")) == end
        assert topic.records(end + 1, end)[0].value == b"mine"


def bomb(codec: Codec) -> bytes:
    """A batch of half a megabyte that stands for hundreds, its CRC good."""
    inflated_bytes = {Codec.LZ4: 100 * MiB, Codec.SNAPPY: 8 * MiB}.get(codec, 256 * MiB)
    compressed = compress(codec, bytes(inflated_bytes))
    if codec is Codec.SNAPPY:  # It says how long it is: 4 GiB.
        compressed = b"\xff\xff\xff\xff\x0f" + compressed[4:]
    record = plain.PlainRecord(0, 5, None, None)
    return plain.batch([record], end_offset=1, attributes=codec, inflated=compressed)


@pytest.mark.parametrize("codec", [each for each in Codec if each], ids=lambda each: each.name)
def test_a_batch_that_inflates_to_hundreds_of_megabytes_is_kept_as_it_was_sent(
    broker: SmqBroker, cluster: Cluster, codec: Codec
) -> None:
    sent = bomb(codec)
    topic = OneTopic(broker, cluster, f"bomb-{codec.name}")
    with bounded(broker, GROWS_BYTES_MAX, WORKER_BYTES_MAX):
        for _ in range(3):
            topic.append(sent)
        [*segments] = topic.seal_and_recycle(3)
        assert {segment.kind for segment in segments} == {"raw"}
        batches = topic.read(3)
        assert [bytes(each.data[21:]) for each in batches[:3]] == 3 * [sent[21:]]
        assert topic.list_offset(3).error_code == ErrorCode.NONE


def test_a_batch_that_announces_more_records_than_it_has_is_refused_or_kept_raw(
    broker: SmqBroker, cluster: Cluster
) -> None:
    topic = OneTopic(broker, cluster, "boaster")
    boast = plain.PlainRecord(0, 5, None, None)
    with bounded(broker, GROWS_BYTES_MAX, WORKER_BYTES_MAX):
        for end in (2, 2**31 - 1):
            answer = topic.produce(plain.batch([boast], end_offset=end))
            assert answer.error_code == ErrorCode.INVALID_RECORD
        counts = bytes(61 - 4)  # What follows is said to be 2^31 - 1 records.
        assert topic.produce(counts + b"\x7f\xff\xff\xff").error_code != ErrorCode.NONE


# --- answers that cannot be written ------------------------------------------------------------

LONG = "n" * 40_000  # A compact string could hold it, an older one cannot.


def join(group: str, instance: str | None = None) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@pytest.mark.parametrize("message", [join("short", LONG), join(LONG, "static")])
def test_a_string_that_older_versions_cannot_hold_closes_that_connection_only(
    broker: SmqBroker, message: JoinGroupRequest
) -> None:
    """Kafka's strings have 32,767 bytes at most, also where a compact one could be longer."""
    with RawClient(broker.port) as one, RawClient(broker.port) as neighbour:
        assert neighbour.ask("ListGroups", 4, ListGroupsRequest()).error_code == ErrorCode.NONE
        assert one.ask("JoinGroup", 9, message) is None
        listed = neighbour.ask("ListGroups", 4, ListGroupsRequest())
        assert not {"short", LONG} & {group.group_id for group in listed.groups}
