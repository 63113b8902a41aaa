"""The catalog as published: encoding round-trips, and unchanged topics stay the same objects."""

from dataclasses import replace
from uuid import UUID, uuid5

import pytest
from hypothesis import given, strategies as st

from smq.model.catalog import Catalog, Leader, Node, Topic, node_of_log

SPACE = UUID(int=0)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    name = draw(st.text(min_size=1, max_size=20))
    logs = tuple(draw(st.lists(st.integers(0, 8), min_size=1, max_size=5)))
    first = draw(st.integers(0, 1000))
    configs = draw(st.dictionaries(st.text(), st.text(), max_size=3))
    numbers = tuple(range(first, first + len(logs)))
    return Topic(name, uuid5(SPACE, name), numbers, logs, configs)


@given(st.lists(topics(), max_size=5, unique_by=lambda topic: topic.name), st.integers(0, 2**62))
def test_a_decoded_catalog_equals_the_encoded_one(listed: list[Topic], version: int) -> None:
    catalog = Catalog("cluster", version, {topic.name: topic for topic in listed})
    decoded = Catalog.decode(catalog.encode())
    assert (decoded.cluster_id, decoded.version) == ("cluster", version)
    assert decoded.by_name == catalog.by_name
    assert decoded.by_id == {topic.id: topic for topic in listed}


def test_a_topic_that_did_not_change_is_the_same_object_in_the_next_version() -> None:
    kept, changed = Topic("kept", SPACE, (1,), (0,)), Topic("changed", UUID(int=1), (2,), (0,))
    before = Catalog.decode(Catalog("c", 1, {"kept": kept, "changed": changed}).encode())
    grown = Topic("changed", UUID(int=1), (2, 3), (0, 1))
    after = Catalog.decode(Catalog("c", 2, {"kept": kept, "changed": grown}).encode())
    assert after.by_name["kept"] is before.by_name["kept"]
    assert after.by_name["changed"].partition_count == 2


def test_however_many_topics_did_not_change_they_are_the_same_objects() -> None:
    topics = [Topic(str(i), UUID(int=i), (i,), (0,)) for i in range(70_000)]
    published = Catalog("c", 1, {topic.name: topic for topic in topics}).encode()
    before = Catalog.decode(published)
    assert Catalog.decode(published).without(before) == []


def test_without_returns_topics_that_another_catalog_lacks_or_has_different() -> None:
    kept, changed = Topic("kept", SPACE, (1,), (0,)), Topic("changed", UUID(int=1), (2,), (0,))
    before = Catalog("c", 1, {"kept": kept, "changed": changed})
    grown, new = replace(changed, configs={"a": "b"}), Topic("new", UUID(int=2), (3,), (0,))
    after = Catalog("c", 2, {"kept": kept, "changed": grown, "new": new})
    assert (after.without(before), before.without(after)) == ([grown, new], [changed])


def test_logs_are_assigned_to_nodes_in_turn() -> None:
    assert [node_of_log(log, range(5, 8)) for log in range(7)] == [5, 6, 7, 5, 6, 7, 5]
    assert {node_of_log(log, range(1, 2)) for log in range(7)} == {1}


def test_a_partition_is_led_by_the_node_that_serves_its_log_in_that_nodes_generation() -> None:
    nodes = [Node(1, "one", 9092, 7), Node(2, "two", 9093, 9)]
    topic = Topic("t", SPACE, (1, 2, 3), (4, 1, 0))
    assert [topic.leader(index, nodes) for index in range(3)] == [
        Leader(nodes[0], 7),
        Leader(nodes[1], 9),
        Leader(nodes[0], 7),
    ]
    assert [topic.node(index, range(1, 3)) for index in range(3)] == [1, 2, 1]


def test_a_topic_without_partitions_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        Topic("t", SPACE, (), ())


def test_a_topic_that_did_not_change_is_not_encoded_again() -> None:
    kept = Topic("kept", SPACE, (1,), (0,), {"a": "b"})
    first = kept.line()
    assert Catalog("c", 1, {"kept": kept}).encode().decode().endswith(first)
    assert kept.line() is first
    other = replace(kept, configs={"a": "c"})
    assert (other.line() != first, other == kept) == (True, False)


def test_a_partition_is_found_by_its_number_among_many() -> None:
    numbers = tuple(range(7, 400_007, 4))
    topic = Topic("t", UUID(int=1), numbers, (1,) * len(numbers))
    assert [topic.index_of(number) for number in numbers] == list(range(len(numbers)))
    with pytest.raises(ValueError, match="not in"):
        topic.index_of(8)


def test_a_partition_of_an_internal_topic_is_found_by_its_number() -> None:
    topic = Topic("t", UUID(int=1), (-5, -6, -7), (1, 1, 1))
    assert [topic.index_of(number) for number in (-5, -6, -7)] == [0, 1, 2]
