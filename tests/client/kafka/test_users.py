"""Users over the wire: each mechanism is given and taken by itself."""

from pathlib import Path

import pytest

from smq.client.kafka.cluster import Cluster
from smq.client.kafka.users import give, take, users
from smq.model.errors import BrokerError
from smq.security.credentials import SaltedPassword, ScramMechanism
from smq.testing.smq_broker import SmqBroker


def test_a_user_has_the_mechanisms_that_were_given_and_not_taken(tmp_path: Path) -> None:
    both = [SaltedPassword(each, 4096, b"salt", b"salted") for each in ScramMechanism]
    with SmqBroker(tmp_path) as broker, Cluster(broker.bootstrap) as cluster:
        assert users(cluster) == {}
        give(cluster, "alice", both)
        assert users(cluster) == {"alice": {1: 4096, 2: 4096}}
        take(cluster, "alice", [1])
        assert users(cluster) == {"alice": {2: 4096}}
        with pytest.raises(BrokerError, match="does not exist"):
            take(cluster, "alice", [1])
