"""Asks a broker for the places of its memory and its files on this host."""

from collections.abc import Mapping
from typing import NamedTuple

from smq.client.kafka.answers import only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import DESCRIBE_CONFIGS
from smq.client.secure.opening import is_path
from smq.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

RESOURCE_BROKER = 4


class BrokerFacts(NamedTuple):
    """The cluster's id, a broker's settings by name, and the host that answered; whether it was
    asked in TLS."""

    cluster_id: str
    settings: Mapping[str, str]
    host: str = ""
    is_in_tls: bool = False


def broker_facts(cluster: Cluster) -> BrokerFacts:
    """The facts of one of a cluster's brokers. Raises BrokerError."""
    cluster.metadata([])
    node_id, broker = cluster.some_broker()
    resource = DescribeConfigsResource(
        resource_type=RESOURCE_BROKER, resource_name=str(node_id), configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    result = only(broker.ask(DESCRIBE_CONFIGS, request).results, "broker")
    check(result.error_code, result.error_message)
    settings = {each.name: each.value or "" for each in result.configs}
    host, _, _ = broker.address.rpartition(":")
    if is_path(broker.address):
        host = settings.get("host", "")
    is_in_tls = cluster.security.tls is not None
    return BrokerFacts(cluster.cluster_id, settings, host.strip("[]"), is_in_tls)
