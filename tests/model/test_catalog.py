"""The catalog as published: encoding round-trips, and unchanged topics stay the same objects."""

import json
from dataclasses import replace
from uuid import UUID, uuid5

import pytest
from hypothesis import given, strategies as st

from smq.model.catalog import Catalog, Leader, Leadership, Moved, Node, Topic, node_of_log

SPACE = UUID(int=0)


@st.composite
def moves(draw: st.DrawFn) -> Moved:
    """Of a partition whose newest log is 0."""
    ends = sorted(draw(st.lists(st.integers(0, 2**62), max_size=4)))
    epochs = sorted(
        draw(st.sets(st.integers(0, 2**31), min_size=len(ends) + 1, max_size=len(ends) + 1))
    )
    logs = [draw(st.integers(0, 8)) for _ in ends]
    rows = zip(epochs, [*logs, 0], [0, *ends], [*ends, None], strict=True)
    leaderships = tuple(Leadership(*row) for row in rows)
    target = draw(st.none() | st.integers(1, 8))
    return Moved(draw(st.integers(epochs[-1], 2**31)), target, draw(st.integers(1, 9)), leaderships)


@st.composite
def topics(draw: st.DrawFn) -> Topic:
    name = draw(st.text(min_size=1, max_size=20))
    logs = tuple(draw(st.lists(st.integers(0, 8), min_size=1, max_size=5)))
    first = draw(st.integers(0, 1000))
    configs = draw(st.dictionaries(st.text(), st.text(), max_size=3))
    numbers = tuple(range(first, first + len(logs)))
    moved = {index: draw(moves()) for index, log in enumerate(logs) if log == 0}
    for each in moved.values():
        each.invariants()
    return Topic(name, uuid5(SPACE, name), numbers, logs, configs, moves=moved)


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


NODES = [Node(1, "one", 9092, 7), Node(2, "two", 9093, 9)]
FROM_ONE_TO_TWO = Leadership(3, 0, 0, 100), Leadership(8, 1, 100, None)


def test_a_partition_that_has_moved_is_led_in_its_epoch_or_a_later_generation() -> None:
    topic = Topic("t", SPACE, (1,), (1,), moves={0: Moved(8, None, 1, FROM_ONE_TO_TWO)})
    assert topic.leader(0, NODES) == Leader(NODES[1], 9)
    newer = replace(topic, moves={0: Moved(10, None, 1, FROM_ONE_TO_TWO)})
    assert newer.leader(0, NODES) == Leader(NODES[1], 10)


def test_the_generation_of_a_node_does_not_count_for_a_partition_that_is_moving() -> None:
    topic = Topic("t", SPACE, (1,), (1,), moves={0: Moved(8, 0, 2, FROM_ONE_TO_TWO)})
    assert topic.leader(0, NODES) == Leader(NODES[1], 8)


def test_a_partition_that_has_never_moved_has_one_leadership() -> None:
    topic = Topic("t", SPACE, (1, 2), (1, 0), moves={0: Moved(8, None, 1, FROM_ONE_TO_TWO)})
    assert topic.moved(0).leaderships == FROM_ONE_TO_TWO
    assert topic.moved(1) == Moved(0, None, 0, (Leadership(0, 0, 0, None),))
    topic.moved(1).invariants()


def test_the_epochs_of_former_logs_lie_below_those_of_the_newest() -> None:
    topic = Topic("t", SPACE, (1, 2), (1, 0), moves={0: Moved(8, None, 1, FROM_ONE_TO_TWO)})
    assert topic.epochs_before(0, 8) == [(3, 0)]
    assert topic.epochs_before(0, 3) == topic.epochs_before(1, 7) == []


def test_a_topic_of_which_nothing_has_moved_has_the_line_that_it_always_had() -> None:
    plain = Topic("t", SPACE, (1,), (1,))
    assert len(json.loads(plain.line())) == 6
    assert len(json.loads(replace(plain, moves={0: plain.moved(0)}).line())) == 7


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
