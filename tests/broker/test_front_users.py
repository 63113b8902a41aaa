"""The front asks shards for users who have logged in by HTTP: they are who it says, and nobody else
may say so."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.app.process.inheritance import front_name, socket_path
from smq.client.errors import AuthenticationFailed
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.questions import METADATA
from smq.client.locate import way_to
from smq.client.secure.security import Security
from smq.model.errors import BrokerError
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import Operation, ResourceType
from smq.security.external import NAME as EXTERNAL, Named
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.metadata import MetadataRequest
from tests.broker.guarded import allow

pytestmark = pytest.mark.timeout(120)
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:root",
    "http.port": "0",
    "shards": "2",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("b"), SETTINGS) as broker:
        with broker.connect() as client:
            for name in ("one", "two"):
                client.create_topic(name, 2)
        allow(broker, "alice", ResourceType.TOPIC, "one", Operation.READ, host="10.9.8.7")
        yield broker


def doors(broker: SmqBroker, process: str) -> dict[str, Path]:
    """The descriptors of a process that lead to listeners of the front's."""
    folder = Path(f"/proc/{broker.status().processes[process].pid}/fd")
    links = {each: str(each.readlink()) for each in folder.iterdir() if each.is_symlink()}
    found = {each: re.search(r"/(front-\d+)\.sock", link) for each, link in links.items()}
    return {match[1]: each for each, match in found.items() if match}


def topics(broker: SmqBroker, user: str, host: str, node_id: int = 1) -> list[str]:
    """The topics that the front would see for a user who asks from there."""
    path = doors(broker, "front")[front_name(node_id)]
    connection = KafkaConnection(str(path), 0, 10, security=as_front(broker, user, host))
    try:
        found = connection.ask(METADATA, MetadataRequest(topics=None))
    finally:
        connection.close()
    numbers = {each.node_id: each.host for each in found.brokers}
    assert numbers == {
        node: f"/proc/self/fd/{doors(broker, 'front')[front_name(node)].name}" for node in (1, 2)
    }
    return sorted(each.name or "" for each in found.topics if not each.is_internal)


def as_front(broker: SmqBroker, user: str, host: str) -> Security:
    owner = way_to(broker.data_dir).security.socket_owner
    return Security(mechanism=EXTERNAL, user=Named(user, host).token, socket_owner=owner)


@pytest.mark.parametrize("node_id", [1, 2])
def test_a_user_has_the_rights_of_its_name_and_its_address(broker: SmqBroker, node_id: int) -> None:
    assert topics(broker, "alice", "10.9.8.7", node_id) == ["one"]
    assert topics(broker, "alice", "10.9.8.8", node_id) == []
    assert topics(broker, "bob", "10.9.8.7", node_id) == []
    assert topics(broker, "root", "10.9.8.7", node_id) == ["one", "two"]


def test_a_name_of_a_user_of_this_host_is_refused(broker: SmqBroker) -> None:
    with pytest.raises(AuthenticationFailed):
        topics(broker, "unix/root", "127.0.0.1")


def test_only_the_front_has_the_way_there(broker: SmqBroker) -> None:
    assert sorted(doors(broker, "front")) == ["front-1", "front-2"]
    for process in ("coordinator", "sealer"):
        assert not doors(broker, process)
    for node_id in (1, 2):
        assert not socket_path(broker.runtime_dir, front_name(node_id)).exists()
        assert not doors(broker, f"shard-{node_id}")


def test_no_other_door_takes_the_front_s_word(broker: SmqBroker) -> None:
    security = as_front(broker, "root", "127.0.0.1")
    host, _, port = broker.bootstrap.partition(",")[0].partition(":")
    for address in ((way_to(broker.data_dir).bootstrap.partition(",")[0], 0), (host, int(port))):
        with pytest.raises(BrokerError):
            KafkaConnection(*address, 10, security=security)


def test_a_shard_that_comes_back_has_the_same_door(broker: SmqBroker) -> None:
    broker.kill("shard-1")
    assert topics(broker, "alice", "10.9.8.7") == ["one"]
