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
