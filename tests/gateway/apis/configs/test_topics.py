"""A topic's configs follow the settings of the broker, as they are now."""

from gateway.apis.configs.kinds import Resource
from smq.coordinator.topics import NewTopic
from tests.gateway.apis.configs.config_asker import SET, change, describe
from tests.gateway.coordinator_bench import CoordinatorBench


def test_a_topic_without_a_value_of_its_own_has_the_brokers(bench: CoordinatorBench) -> None:
    bench.coordinator.topics.create(NewTopic(name="t"), bench.now)
    change(bench, Resource.BROKER, "", ("log.retention.ms", SET, "77"))
    change(bench, Resource.BROKER, "1", ("log.retention.ms", SET, "78"))
    layers = [("78", 2), ("77", 3), ("168", 5)]
    assert describe(bench, Resource.TOPIC, "t")["retention.ms"] == ("78", 2, layers)
    assert describe(bench, Resource.TOPIC, "t", 2)["retention.ms"][0] == "77"
    change(bench, Resource.TOPIC, "t", ("retention.ms", SET, "9"))
    own = describe(bench, Resource.TOPIC, "t")["retention.ms"]
    assert own == ("9", 1, [("9", 1), *layers])
