"""Members of a group share partitions, among themselves and with Kafka's own clients."""

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import smq
from smq.client.consuming.group.group_session import GroupSession
from smq.model.errors import ErrorCode
from smq.testing.smq_broker import SmqBroker
from tests.client.both import client, running, topic

__all__ = ["client", "running", "topic"]  # Fixtures.

DEADLINE_SECONDS = 20
QUICK: dict[str, Any] = {
    "session_timeout_s": 6
}  # The least a broker takes: a heartbeat each 0.4 s.


def eventually(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what


def fill(client: smq.Client, topic: str, first: int, count: int) -> None:
    with client.producer() as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, partition=number % 3)


def read(consumer: smq.Consumer, found: list[int], timeout_s: float = 0.05) -> bool:
    """Add what a poll gives."""
    with consumer.poll(timeout_s) as batch:
        found += [int(record.value or b"") for record in batch]
    return True


def share(consumers: list[smq.Consumer]) -> list[int]:
    """How many partitions each has once all three are somebody's."""
    counts: list[int] = []

    def is_shared() -> bool:
        for consumer in consumers:
            read(consumer, [])
        counts[:] = [len(consumer.assignment()) for consumer in consumers]
        names = [name for consumer in consumers for name in consumer.assignment()]
        return len(names) == len(set(names)) == 3 and min(counts) > 0

    eventually(is_shared, f"three partitions are shared: {counts}")
    return sorted(counts)


def test_a_group_goes_on_where_it_has_committed(client: smq.Client, topic: str) -> None:
    fill(client, topic, 0, 30)
    found: list[int] = []
    with client.consumer(topic, group=topic, start="earliest") as consumer:
        eventually(lambda: read(consumer, found) and len(found) == 30, "all come")
        assert consumer.committed() == {}
        consumer.commit()
        assert consumer.committed() == {(topic, each): 10 for each in range(3)}
        assert consumer.statistics().rebalances == 1
        fill(client, topic, 30, 3)
        eventually(lambda: read(consumer, found) and len(found) == 33, "more come")
        consumer.commit_async({(topic, 0): 11}).result(5)
    again: list[int] = []
    with client.consumer(topic, group=topic, start="earliest") as consumer:
        eventually(lambda: read(consumer, again) and len(again) == 2, "the rest comes")
        assert sorted(again) == [31, 32]


def test_a_process_with_very_many_files_joins_groups(client: smq.Client, topic: str) -> None:
    fill(client, topic, 0, 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    null = os.open(os.devnull, os.O_RDONLY)
    held = [null, *(os.dup(null) for _ in range(1100))]  # select(2) takes descriptors to 1023.
    try:
        found: list[int] = []
        with client.consumer(topic, group=topic, start="earliest") as consumer:
            eventually(lambda: read(consumer, found) and len(found) == 3, "all come")
    finally:
        for fileno in held:
            os.close(fileno)


def test_commits_can_be_automatic(client: smq.Client, topic: str) -> None:
    fill(client, topic, 0, 30)
    settings: dict[str, Any] = {"group": topic, "start": "earliest", "auto_commit_s": 0.05}
    found: list[int] = []
    with client.consumer(topic, **settings) as consumer:
        eventually(lambda: read(consumer, found) and len(found) == 30, "all come")
        eventually(
            lambda: (
                read(consumer, found)
                and consumer.committed() == {(topic, each): 10 for each in range(3)}
            ),
            "what was handed out is committed in time",
        )
        fill(client, topic, 30, 3)
        eventually(lambda: read(consumer, found) and len(found) == 33, "more come")
    fill(client, topic, 33, 1)
    with client.consumer(topic, **settings) as consumer:
        eventually(lambda: read(consumer, found) and len(found) == 34, "the last comes")
        assert sorted(found) == list(range(34)), "what was handed out is committed at the end"


def test_a_block_that_fails_commits_nothing(client: smq.Client, topic: str) -> None:
    fill(client, topic, 0, 3)
    found: list[int] = []
    settings: dict[str, Any] = {"group": topic, "start": "earliest", "auto_commit_s": 60}
    with suppress(ZeroDivisionError), client.consumer(topic, **settings) as consumer:
        eventually(lambda: read(consumer, found) and len(found) == 3, "all come")
        raise ZeroDivisionError
    with client.consumer(topic, **settings) as consumer:
        eventually(lambda: read(consumer, found) and len(found) == 6, "all come again")


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_nothing_is_lost(
    client: smq.Client, topic: str, assignor: str
) -> None:
    settings = QUICK | {"group": topic, "start": "earliest"}
    settings |= {"assignors": [assignor], "auto_commit_s": 60}
    found: list[int] = []
    first = client.consumer(topic, **settings)
    eventually(lambda: read(first, found) and len(first.assignment()) == 3, "one has all")
    second = client.consumer(topic, **settings)
    assert share([first, second]) == [1, 2]
    third = client.consumer(topic, **settings)
    assert share([first, second, third]) == [1, 1, 1]
    fill(client, topic, 0, 30)
    members = [first, second, third]
    eventually(
        lambda: [read(each, found) for each in members] != [] and len(found) >= 30, "all come"
    )
    first.close()
    assert share([second, third]) == [1, 2]
    second.close()
    eventually(lambda: read(third, found) and len(third.assignment()) == 3, "one has all")
    fill(client, topic, 30, 3)
    eventually(lambda: read(third, found) and len(found) >= 33, "the rest comes")
    third.close()
    assert sorted(found) == list(range(33))


def test_cooperative_members_keep_what_they_have(client: smq.Client, topic: str) -> None:
    settings = QUICK | {"group": topic, "assignors": ["cooperative-sticky"]}
    with client.consumer(topic, **settings) as first:
        eventually(lambda: read(first, []) and len(first.assignment()) == 3, "one has all")
        with client.consumer(topic, **settings) as second:
            kept: set[Any] = set(first.assignment())

            def is_shared() -> bool:
                nonlocal kept
                read(first, [])
                read(second, [])
                kept &= set(first.assignment())
                return len(second.assignment()) == 1

            eventually(is_shared, "the second has one")
            assert len(kept) == 2, "what stays is not taken away in between"


def test_a_member_that_does_not_poll_loses_its_partitions_and_rejoins(
    client: smq.Client, topic: str
) -> None:
    settings = QUICK | {"group": topic, "start": "earliest", "poll_interval_s_max": 1}
    with client.consumer(topic, **settings) as slow:
        eventually(lambda: read(slow, []) and len(slow.assignment()) == 3, "one has all")
        with client.consumer(topic, **settings) as other:
            eventually(lambda: read(other, []) and len(other.assignment()) == 3, "other has all")
            assert len(slow.assignment()) == 3, "it does not know yet"
            with pytest.raises(smq.BrokerError) as raised:
                slow.commit({(topic, 0): 0})
            assert raised.value.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
            assert share([slow, other]) == [1, 2]


def has(consumer: smq.Consumer, count: int) -> Callable[[], bool]:
    """Whether it has come to so many partitions."""
    return lambda: read(consumer, []) and len(consumer.assignment()) == count


def generation(consumer: smq.Consumer) -> int:
    """How often its group has shared anew, as far as it has been told."""
    assert consumer._sharing is not None
    return consumer._sharing.membership.generation_id


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_a_static_member_that_comes_back_in_time_has_what_it_had_and_no_other_notices(
    client: smq.Client, topic: str, assignor: str, leads: bool
) -> None:
    settings = QUICK | {"group": topic, "start": "earliest", "assignors": [assignor]}
    first = client.consumer(topic, group_instance_id="first", **settings)
    eventually(has(first, 3), "one has all")
    second = client.consumer(topic, group_instance_id="second", **settings)
    share([first, second])
    eventually(
        lambda: read(first, []) and read(second, []) and generation(first) == generation(second),
        "they have come to rest",
    )
    leaves, stays = (first, second) if leads else (second, first)
    name, had = ("first" if leads else "second"), leaves.assignment()
    before = generation(stays)
    fill(client, topic, 0, 30)
    leaves.commit(dict.fromkeys(had, 4))
    leaves.close()
    again = client.consumer(topic, group_instance_id=name, **settings)
    found: list[int] = []
    eventually(lambda: read(again, found) and len(found) == 6 * len(had), "what it had goes on")
    assert again.assignment() == had
    again.commit()
    assert again.committed() == dict.fromkeys(had, 10)
    stays.commit()  # Who is of an older generation may not.
    assert generation(stays) == generation(again) == before
    again.close()
    stays.close()


def test_of_two_with_the_name_of_one_the_former_is_fenced(client: smq.Client, topic: str) -> None:
    settings = QUICK | {"group": topic, "group_instance_id": "one"}
    with client.consumer(topic, **settings) as former:
        eventually(has(former, 3), "one has all")
        with client.consumer(topic, **settings) as latter:
            eventually(has(latter, 3), "the other has all")
            for _ in range(2):  # It does not take it back.
                with pytest.raises(smq.BrokerError) as raised:
                    eventually(lambda: read(former, []) and False, "it is told")
                assert raised.value.code == ErrorCode.FENCED_INSTANCE_ID
            assert former.assignment() == []
            assert len(latter.assignment()) == 3
            latter.commit()


def test_a_static_member_that_does_not_poll_is_out_and_comes_back(
    client: smq.Client, topic: str
) -> None:
    settings = QUICK | {"group": topic, "poll_interval_s_max": 1}
    with client.consumer(topic, group_instance_id="slow", **settings) as slow:
        eventually(has(slow, 3), "one has all")
        with client.consumer(topic, group_instance_id="other", **settings) as other:
            eventually(has(other, 3), "the other has all once the session is over")
            assert share([slow, other]) == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_partitions_that_a_topic_gets_are_shared_too(
    client: smq.Client, topic: str, running: SmqBroker, assignor: str
) -> None:
    settings = QUICK | {"group": topic, "start": "earliest", "assignors": [assignor]}
    with (
        running.connect(transport=client.transport, metadata_max_age_s=0.5) as quick,
        quick.consumer(topic, **settings) as first,
    ):
        eventually(has(first, 3), "one has all")
        with quick.consumer(topic, **settings) as second:
            share([first, second])
            client.delete_topic(topic)  # As nothing can add partitions yet: a new one has more.
            client.create_topic(topic, 7)
            found: list[int] = []
            with client.producer() as producer:
                for partition in range(7):
                    producer.send(topic, b"%d" % partition, partition=partition)

            def is_shared() -> bool:
                names = [each for one in (first, second) for each in one.assignment()]
                return (
                    read(first, found)
                    and read(second, found)
                    and len(set(found)) == 7
                    and len(names) == len(set(names)) == 7
                )

            eventually(is_shared, "seven partitions are shared, and read")


def test_a_member_without_a_common_assignor_gets_an_error(client: smq.Client, topic: str) -> None:
    with client.consumer(topic, group=topic, assignors=["range"]) as one:
        eventually(lambda: read(one, []) and len(one.assignment()) == 3, "one has all")
        with client.consumer(topic, group=topic, assignors=["roundrobin"]) as other:
            with pytest.raises(smq.BrokerError) as raised:
                eventually(lambda: read(other, []) and False, "it is told")
            assert raised.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_assignment_whose_offsets_cannot_be_asked_for_is_not_lost(
    client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.consumer(topic, group=topic) as consumer:
        assert consumer._committing is not None
        fetch, failures = consumer._committing.fetch, [smq.BrokerUnavailable("away")] * 2

        def failing(names: Any) -> Any:
            if failures:
                raise failures.pop()
            return fetch(names)

        monkeypatch.setattr(consumer._committing, "fetch", failing)
        for _ in range(2):
            with pytest.raises(smq.BrokerUnavailable):
                consumer.poll(10)
        eventually(lambda: read(consumer, []) and len(consumer.assignment()) == 3, "all its own")


def test_partitions_revoked_in_a_failed_assignment_go_to_the_other_member(
    client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = QUICK | {"group": topic, "assignors": ["cooperative-sticky"]}
    with client.consumer(topic, **settings) as first:
        eventually(has(first, 3), "one has all")
        assert first._committing is not None
        fetch, failures = first._committing.fetch, [smq.BrokerUnavailable("away")]

        def failing(names: Any) -> Any:
            if failures:
                raise failures.pop()
            return fetch(names)

        monkeypatch.setattr(first._committing, "fetch", failing)
        with client.consumer(topic, **settings) as second:

            def has_failed() -> bool:
                read(second, [])
                with suppress(smq.BrokerUnavailable):
                    read(first, [])
                return not failures

            eventually(has_failed, "it has failed")
            assert share([first, second]) == [1, 2]


def test_an_unexpected_exception_of_the_group_is_raised_by_poll(
    client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("not foreseen")

    monkeypatch.setattr(GroupSession, "join", fail)
    with (
        client.consumer(topic, group=topic) as consumer,
        pytest.raises(RuntimeError, match="not foreseen"),
    ):
        consumer.poll(10)


def test_assign_is_refused_in_a_consumer_with_a_group(client: smq.Client, topic: str) -> None:
    with client.consumer(topic, group=topic) as consumer, pytest.raises(ValueError, match="assign"):
        consumer.assign([(topic, 0)])


def test_a_group_without_members_commits_for_chosen_partitions(
    client: smq.Client, topic: str
) -> None:
    fill(client, topic, 0, 6)
    for first in (0, 3):
        with client.consumer(group=topic, start="earliest") as consumer:
            consumer.assign([(topic, 0)])
            with consumer.poll(5) as batch:
                assert next(int(record.value or b"") for record in batch) == first
                offset = next(iter(batch)).offset
            consumer.commit({(topic, 0): offset + 1})


def test_a_group_survives_the_death_of_a_shard(
    client: smq.Client, topic: str, running: SmqBroker
) -> None:
    found: list[int] = []
    with client.consumer(topic, group=topic, start="earliest") as consumer:
        eventually(lambda: read(consumer, found) and len(consumer.assignment()) == 3, "all its own")
        running.kill("shard-1")
        fill(client, topic, 0, 30)
        eventually(lambda: read(consumer, found) and len(found) == 30, "all come")
        running.kill("coordinator")
        fill(client, topic, 30, 3)
        eventually(lambda: read(consumer, found) and len(found) == 33, "more come")
        consumer.commit()
    running.restart()


@contextmanager
def confluent(running: SmqBroker, topic: str, **settings: Any) -> Iterator[Any]:
    """A confluent-kafka consumer in a thread that polls; gives its assignment, as a callable."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": running.bootstrap,
            "group.id": topic,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            **settings,
        }
    )
    consumer.subscribe([topic])
    with polling(consumer, lambda: consumer.poll(0.05)) as assignment:
        yield assignment


@contextmanager
def kafka_python(running: SmqBroker, topic: str) -> Iterator[Any]:
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=running.bootstrap.split(","),
        group_id=topic,
        session_timeout_ms=6000,
        heartbeat_interval_ms=200,
    )
    # It may assign before it knows the topic's partitions, and then stays with none.
    eventually(lambda: bool(consumer.partitions_for_topic(topic)), "it knows the topic")
    with polling(consumer, lambda: consumer.poll(50)) as assignment:
        yield assignment


@contextmanager
def polling(consumer: Any, poll: Callable[[], Any]) -> Iterator[Callable[[], set[Any]]]:
    """Neither client may be asked by two threads at a time."""
    ended = threading.Event()
    assignment: set[Any] = set()

    def run() -> None:
        nonlocal assignment
        while not ended.is_set():
            poll()
            assignment = {(each.topic, each.partition) for each in consumer.assignment()}
        consumer.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: assignment
    finally:
        ended.set()
        thread.join()


OTHERS = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
}


@pytest.mark.clients
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("is_first", [True, False], ids=["leads", "follows"])
def test_a_group_is_shared_with_kafkas_clients(
    client: smq.Client, topic: str, running: SmqBroker, other: str, is_first: bool
) -> None:
    opened = OTHERS[other]

    def check(consumer: smq.Consumer, theirs: Callable[[], set[Any]]) -> None:
        def is_shared() -> bool:
            read(consumer, [])
            mine, others = set(consumer.assignment()), theirs()
            return bool(mine and others) and mine.isdisjoint(others) and len(mine | others) == 3

        eventually(is_shared, "three partitions, each one's")

    if is_first:
        with client.consumer(topic, group=topic, **QUICK) as consumer:
            eventually(lambda: read(consumer, []) and len(consumer.assignment()) == 3, "all")
            with opened(running, topic) as theirs:
                check(consumer, theirs)
            eventually(lambda: read(consumer, []) and len(consumer.assignment()) == 3, "all again")
        return
    with opened(running, topic) as theirs:
        eventually(lambda: len(theirs()) == 3, "they have all")
        with client.consumer(topic, group=topic, **QUICK) as consumer:
            check(consumer, theirs)
        eventually(lambda: len(theirs()) == 3, "they have all again")


@pytest.mark.clients
def test_cooperative_groups_are_shared_with_librdkafka(
    client: smq.Client, topic: str, running: SmqBroker
) -> None:
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    with client.consumer(topic, group=topic, assignors=["cooperative-sticky"], **QUICK) as consumer:
        eventually(lambda: read(consumer, []) and len(consumer.assignment()) == 3, "all")
        with confluent(running, topic, **settings) as theirs:
            eventually(
                lambda: (
                    read(consumer, [])
                    and len(theirs()) == 1
                    and set(consumer.assignment()).isdisjoint(theirs())
                    and len(consumer.assignment()) == 2
                ),
                "one is theirs",
            )
