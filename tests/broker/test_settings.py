"""What clients learn of a broker's settings."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from smq.testing.smq_broker import SmqBroker

pytestmark = pytest.mark.timeout(120)

ANSWER_S = 30


def test_a_client_sees_the_rack_and_where_a_broker_is(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, {"broker.rack": "r1"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [node] = admin.describe_cluster().result(ANSWER_S).nodes
        assert (node.id, node.rack) == (1, "r1")
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        [answer] = admin.describe_configs([resource]).values()
        configs = {name: each.value for name, each in answer.result(ANSWER_S).items()}
        assert configs["advertised.listeners"] == f"PLAINTEXT://{broker.bootstrap}"
        assert configs["listeners"] == f"PLAINTEXT://{broker.bootstrap}"
        assert configs["log.dirs"] == str(broker.data_dir / "logs")
        assert configs["broker.rack"] == "r1"
