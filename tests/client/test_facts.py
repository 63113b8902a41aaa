"""A broker's facts about itself."""

from smq.client.facts import broker_facts
from smq.client.kafka.cluster import Cluster
from tests.client.fake_kafka import FakeKafka


def test_a_brokers_settings_and_its_clusters_id_are_known(
    kafka: FakeKafka, cluster: Cluster
) -> None:
    kafka.settings["runtime.dir"] = "/somewhere"
    facts = broker_facts(cluster)
    assert facts.cluster_id == "fake"
    assert facts.settings["runtime.dir"] == "/somewhere"


def test_a_host_that_only_the_broker_names_is_not_a_configured_one(kafka: FakeKafka) -> None:
    """A broker that names another host got the client's login sent there."""
    for name, is_configured in (("127.0.0.1", True), ("localhost", True), ("127.1", False)):
        with Cluster(kafka.bootstrap.replace("127.0.0.1", name), deadline_seconds=5) as cluster:
            facts = broker_facts(cluster)
            assert (facts.host, facts.is_configured) == ("127.0.0.1", is_configured)
