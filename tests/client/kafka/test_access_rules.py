"""Access rules over the wire: what is added is found until it is deleted."""

from collections.abc import Iterator

import pytest

from smq.client.kafka.access_rules import add_rules, delete_rules, find_rules
from smq.client.kafka.cluster import Cluster
from smq.model.errors import BrokerError
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import (
    AccessControlEntryFilter,
    AclBindingFilter,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.testing.smq_broker import SmqBroker
from tests.security.test_authorizer import rule

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("rules")
    with SmqBroker(directory, SETTINGS) as broker, Cluster(broker.bootstrap) as cluster:
        yield cluster


def test_rules_are_found_as_they_were_added_until_they_are_deleted(cluster: Cluster) -> None:
    rules = [rule("a", Operation.READ), rule("b", Operation.ALL, Permission.DENY)]
    add_rules(cluster, rules)
    assert find_rules(cluster, AclBindingFilter()) == rules
    denying = AclBindingFilter(entry=AccessControlEntryFilter(permission=Permission.DENY))
    assert find_rules(cluster, denying) == rules[1:]
    assert delete_rules(cluster, denying) == rules[1:]
    assert find_rules(cluster, AclBindingFilter()) == rules[:1]


def test_a_refused_rule_is_an_error(cluster: Cluster) -> None:
    elsewhere = rule("a", Operation.READ)._replace(
        pattern=ResourcePattern(ResourceType.CLUSTER, "elsewhere")
    )
    with pytest.raises(BrokerError, match="kafka-cluster"):
        add_rules(cluster, [elsewhere])
