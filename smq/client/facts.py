"""Asks a broker for the places of its memory and its files on this host."""

from collections.abc import Mapping
from typing import NamedTuple

from smq.client.kafka.answers import only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.questions import DESCRIBE_CONFIGS
from smq.client.secure.opening import is_path
from smq.client.secure.security import PLAINTEXT, Security
from smq.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

RESOURCE_BROKER = 4


class BrokerFacts(NamedTuple):
    """The cluster's id, a broker's settings by name, the host that answered, how it was asked, and
    whether the client was configured with this host; others are named by the broker alone."""

    cluster_id: str
    settings: Mapping[str, str]
    host: str = ""
    security: Security = PLAINTEXT
    is_configured: bool = True


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
    host = host.strip("[]")
    is_configured = cluster.names_host(host)
    return BrokerFacts(cluster.cluster_id, settings, host, cluster.security, is_configured)
