"""Pairs of namespace and name, and Kafka's names."""

import pytest
from hypothesis import given, strategies as st

from smq.agent.topic_names import KAFKA, TopicName, name_of, named

words = st.text("abc.", min_size=1, max_size=6)


def test_kafkas_namespace_is_no_part_of_kafkas_name() -> None:
    assert named("kafka", "clicks").kafka_name == "clicks"
    assert named("", "clicks") == TopicName(KAFKA, "clicks")
    assert named("shop", "clicks").kafka_name == "shop.clicks"


def test_a_topic_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="no name"):
        named("shop", "")


@given(words, words)
def test_the_stored_namespace_leads_back_to_the_pair(namespace: str, name: str) -> None:
    topic = named(namespace, name)
    assert name_of(topic.kafka_name, topic.namespace) == topic


@given(words, words)
def test_a_topic_of_kafka_has_one_pair_with_any_configs(name: str, namespace: str) -> None:
    assert name_of(name, "") == TopicName(KAFKA, name)
    assert name_of(name, namespace).kafka_name == name
