"""A producer's questions to a cluster, and its channels."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn, cast

import pytest

from smq.client.door.door import Door, DoorUnavailable
from smq.client.errors import BrokerUnavailable, NoSuchTopic
from smq.client.producing.channel.links import MESSAGE_BYTES_MAX_DEFAULT, Links, ProducerTopic
from smq.client.producing.channel.wire_channel import WireChannel
from smq.client.reach import Reach
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.stepped_clock import SteppedClock
from tests.client.fake_kafka import FakeKafka
from tests.client.silent_endpoint import SAID, silent_endpoint

if TYPE_CHECKING:
    from smq.client.kafka.cluster import Cluster
    from smq.client.producing.channel.channel import Channel


@pytest.fixture
def links(kafka: FakeKafka) -> Iterator[Links]:
    made = Links(Reach(kafka.bootstrap, None, 5))
    yield made
    made.close()


def test_each_producer_has_an_id_of_its_own(links: Links) -> None:
    assert links.new_producer() != links.new_producer()


def test_a_question_with_a_passing_error_is_repeated(kafka: FakeKafka, links: Links) -> None:
    kafka.faults["InitProducerId"] += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "close"]
    assert links.new_producer()[1] == 0


def test_a_topic_has_leaders_and_a_largest_batch(kafka: FakeKafka, links: Links) -> None:
    kafka.add_topic("t", 3)
    assert links.topic("t") == ProducerTopic((1, 2, 1), MESSAGE_BYTES_MAX_DEFAULT)
    kafka.topic_settings["max.message.bytes"] = "77"
    kafka.topics["t"][0].leader = 2
    assert links.topic_now("t") == ProducerTopic((2, 2, 1), 77)


def test_a_producer_that_may_not_see_settings_takes_kafkas_default(
    kafka: FakeKafka, links: Links
) -> None:
    kafka.add_topic("a")
    kafka.faults["DescribeConfigs"].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert links.topic("a").message_bytes_max == MESSAGE_BYTES_MAX_DEFAULT


def test_asking_for_a_missing_topic_raises_no_such_topic(links: Links) -> None:
    for ask in (links.topic, links.topic_now):
        with pytest.raises(NoSuchTopic):
            ask("nope")


def test_only_one_attempt_is_made_where_somebody_else_repeats(
    kafka: FakeKafka, links: Links
) -> None:
    kafka.add_topic("t")
    links.topic("t")
    kafka.faults["Metadata"].append("close")
    with pytest.raises(BrokerUnavailable):
        links.topic_now("t")


def test_a_channel_goes_to_the_broker_over_the_wire(kafka: FakeKafka, links: Links) -> None:
    kafka.add_topic("t")
    links.topic("t")
    channel = links.channel(2)
    assert isinstance(channel, WireChannel)
    channel.close()
    with pytest.raises(BrokerError, match="there is no broker 9 now"):
        links.channel(9)


class FakeDoor:
    request_bytes_max = 1000

    def __init__(self) -> None:
        self.closings = 0

    def close(self) -> None:
        self.closings += 1


def test_a_door_that_does_not_take_the_request_is_passed_by(kafka: FakeKafka) -> None:
    door = FakeDoor()
    links = Links(Reach(kafka.bootstrap, lambda _: cast("Door", door), 5))
    kafka.add_topic("t")
    links.topic("t")
    assert links.channel(1, door.request_bytes_max) is cast("Channel", door)
    assert door.closings == 0
    channel = links.channel(1, door.request_bytes_max + 1)
    assert isinstance(channel, WireChannel)
    assert door.closings == 1
    channel.close()
    links.close()


def test_a_door_that_does_not_open_is_passed_by(kafka: FakeKafka) -> None:
    def refuse(node_id: int) -> NoReturn:
        raise DoorUnavailable(f"node {node_id} is being restarted")

    links = Links(Reach(kafka.bootstrap, refuse, 5))
    kafka.add_topic("t")
    links.topic("t")
    channel = links.channel(1)
    assert isinstance(channel, WireChannel)
    channel.close()
    links.close()


class KnownCluster:
    """A cluster that is known already."""

    def address(self, _node_id: int) -> tuple[str, int]:
        return "127.0.0.1", 1


class KnownReach(Reach):
    def cluster(self) -> "Cluster":
        return cast("Cluster", KnownCluster())


def test_a_channel_waits_for_a_silent_token_endpoint_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SteppedClock()
    security, waited = silent_endpoint(monkeypatch, clock)
    links = Links(KnownReach("127.0.0.1:1", None, 3.0, clock=clock, security=security))
    with pytest.raises(BrokerUnavailable, match=SAID):
        links.channel(1)
    assert waited == [3.0]
