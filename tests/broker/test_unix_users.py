"""Users of this host at a broker's unix sockets: the kernel says who they are."""

import os
import pwd
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from smq.app.process.inheritance import (
    COORDINATOR,
    RELAYS,
    kafka_name,
    open_dir,
    shard_name,
    socket_path,
)
from smq.app.process.unix_users import principal_of_user
from smq.client.client import connect
from smq.client.door.door import Door
from smq.client.kafka.access_rules import add_rules
from smq.client.kafka.cluster import Cluster
from smq.client.locate import KAFKA, SHARED_MEMORY, way_to
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from smq.wire.internal.frames import (
    KIND_KAFKA,
    InternalReader,
    WrittenPeer,
    encode_frame,
    encode_relay,
)
from tests.another_user import needs_root, result_as
from tests.app.shard_client import request
from tests.broker.there_and_back import tails_of

pytestmark = [pytest.mark.timeout(120), needs_root]

NOBODY, NAMELESS, TRUSTED = pwd.getpwnam("nobody").pw_uid, 10_001, 10_002
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": f"User:unix/{TRUSTED}",
    "shards": "2",
}
TOPIC = "one"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("users"), SETTINGS) as broker:
        with connect(broker.data_dir) as client:
            client.create_topic(TOPIC, 2)
        yield broker


def kafka_socket(broker: SmqBroker, node: int = 1) -> Path:
    return socket_path(open_dir(broker.runtime_dir), kafka_name(node))


def allow(broker: SmqBroker, principal: str, operation: Operation, host: str = "*") -> None:
    entry = AccessControlEntry(principal, host, operation, Permission.ALLOW)
    add_rule(broker, ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL), entry)


def add_rule(broker: SmqBroker, pattern: ResourcePattern, entry: AccessControlEntry) -> None:
    bootstrap, security = way_to(broker.data_dir)
    with Cluster(bootstrap, security=security) as cluster:
        add_rules(cluster, [AclBinding(pattern, entry)])


def produced(address: Path | str) -> list[Any]:
    """The transport, and the offsets of a record in each partition; else the refusal."""
    with connect(address, timeout_s=10) as client, client.producer() as producer:
        sent = [producer.send(TOPIC, b"x", partition=number) for number in range(2)]
        return [client.transport, *(each.result(10).offset >= 0 for each in sent)]


def test_the_broker_s_user_does_everything_by_its_data_directory(broker: SmqBroker) -> None:
    """Nobody else may do anything: this is the way back in."""
    assert produced(broker.data_dir) == [SHARED_MEMORY, True, True]
    bootstrap, security = way_to(broker.data_dir)
    assert bootstrap == f"{kafka_socket(broker)},{kafka_socket(broker, 2)}"
    with Cluster(bootstrap, security=security) as cluster:
        assert sorted(cluster.topic(TOPIC).leaders) == [1, 2]
        assert [each.address for each in cluster.brokers()] == bootstrap.split(",")
    with connect(broker.data_dir, transport=KAFKA) as client, client.producer() as producer:
        assert producer.send(TOPIC, b"x", partition=1).result(10)


def test_a_user_may_do_what_rules_say_of_its_name_and_of_loopback(broker: SmqBroker) -> None:
    produce = partial(produced, kafka_socket(broker))
    refused = "BrokerError: CLUSTER_AUTHORIZATION_FAILED: "  # No id for a producer.
    before = tails_of(broker, TOPIC)
    assert result_as(NOBODY, produce).startswith(refused)
    assert tails_of(broker, TOPIC) == before
    allow(broker, "User:unix/nobody", Operation.WRITE, host="127.0.0.1")
    assert result_as(NOBODY, produce) == [KAFKA, True, True]
    assert result_as(NAMELESS, produce).startswith(refused)
    allow(broker, f"User:unix/{NAMELESS}", Operation.WRITE)
    assert result_as(NAMELESS, produce) == [KAFKA, True, True]


def test_a_super_user_maps_the_logs_and_others_get_the_wire(broker: SmqBroker) -> None:
    assert result_as(TRUSTED, partial(produced, kafka_socket(broker))) == [
        SHARED_MEMORY,
        True,
        True,
    ]


def test_a_user_with_every_right_maps_no_log_unless_it_is_a_super_user(broker: SmqBroker) -> None:
    """A mapping cannot be taken back, and shows every partition of a log."""
    address, runtime = kafka_socket(broker), broker.runtime_dir
    everything = AccessControlEntry("User:unix/7777", "*", Operation.ALL, Permission.ALLOW)
    for kind, name in ((ResourceType.CLUSTER, "kafka-cluster"), (ResourceType.TOPIC, TOPIC)):
        add_rule(broker, ResourcePattern(kind, name, PatternType.LITERAL), everything)
    assert result_as(7777, partial(produced, address)) == [KAFKA, True, True]
    before = tails_of(broker, TOPIC)
    wanted = partial(connect, address, transport=SHARED_MEMORY)
    assert "cannot be reached by shared memory" in result_as(7777, wanted)
    door = partial(Door.open, runtime.parent, 1, runtime.name, owner=os.getuid())
    assert "this broker belongs to another user" in result_as(7777, door)
    assert tails_of(broker, TOPIC) == before


def test_other_users_reach_no_other_socket(broker: SmqBroker) -> None:
    private = [socket_path(broker.runtime_dir, name) for name in (shard_name(1), "coordinator")]

    def reached() -> list[str]:
        return [str(each) for each in private if is_reached(each)]

    assert result_as(NOBODY, reached) == []
    modes = [
        each.stat().st_mode & 0o777 for each in (broker.runtime_dir, open_dir(broker.runtime_dir))
    ]
    assert modes == [0o700, 0o711]


def test_no_process_that_inherits_nothing_names_a_client(broker: SmqBroker) -> None:
    """Not even one of the broker's own user."""
    asker = WrittenPeer(str(principal_of_user(0)), "127.0.0.1", "PLAINTEXT")
    topic = DeleteTopicState(name=TOPIC)
    deletion = request("DeleteTopics", 6, DeleteTopicsRequest(topics=[topic]))[4:]
    before = tails_of(broker, TOPIC)
    relay = encode_frame(1, KIND_KAFKA, encode_relay(1, asker, deletion))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(socket_path(broker.runtime_dir, COORDINATOR)))
        sock.sendall(relay)
        [frame] = InternalReader().receive(sock.recv(4096))
    assert frame.body == b""
    assert not socket_path(broker.runtime_dir, RELAYS).exists()
    broker.kill(COORDINATOR)  # The shards find the next one.
    with connect(broker.data_dir) as client:
        assert TOPIC in client.topics()
        assert tails_of(broker, TOPIC) == before
        client.create_topic("two", 1)


def is_reached(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
        except PermissionError:
            return False
    return True
