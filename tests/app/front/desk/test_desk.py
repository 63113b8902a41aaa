"""The desk at a real broker."""

from collections.abc import Iterator

import pytest

from smq.app.front.desk import desk as desk_module
from smq.app.front.desk.desk import SdkDesk, members_of
from smq.client.consuming.group.group_protocol import write_assignment
from smq.client.names import TopicPartition
from smq.front.console.desk import NewRecord, Wanted
from smq.model.errors import BrokerError, ErrorCode
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.describe_groups import DescribedGroup, DescribedGroupMember

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("desk")) as broker:
        yield broker


@pytest.fixture
def desk(broker: SmqBroker) -> SdkDesk:
    return SdkDesk(broker.data_dir)


def test_assignments_are_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bytes of one become a hundred."""
    data = write_assignment({TopicPartition("clicks", n) for n in range(10)})
    group = DescribedGroup(
        protocol_type="consumer",
        members=[DescribedGroupMember(member_assignment=data) for _ in range(3)],
    )
    assert [len(each.partitions) for each in members_of(group)] == [10, 10, 10]
    monkeypatch.setattr(desk_module, "ASSIGNED_BYTES_MAX", 2 * len(data))
    assert [len(each.partitions) for each in members_of(group)] == [10, 10, 0]
    group.protocol_type = "connect"
    assert not any(each.partitions for each in members_of(group))


def test_a_topic_lives_and_ends(desk: SdkDesk) -> None:
    assert desk.create("lives", 2, {"retention.ms": "12345"}) == 2
    settings = {each.name: each for each in desk.settings("lives")}
    assert settings["retention.ms"][1:3] == ("12345", True)
    desk.set("lives", "retention.ms", "54321")
    desk.set("lives", "max.message.bytes", "1000")
    desk.set("lives", "max.message.bytes", None)
    settings = {each.name: each for each in desk.settings("lives")}
    assert settings["retention.ms"].value == "54321"
    assert not settings["max.message.bytes"].is_set
    assert desk.add_partitions("lives", 1) == 3
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        desk.set("lives", "retention.ms", "soon")
    desk.delete("lives")
    with pytest.raises(BrokerError, match="there is no topic lives"):
        desk.settings("lives")


def test_a_record_is_produced_and_read(desk: SdkDesk) -> None:
    desk.create("records", 2, {})
    made = NewRecord("records", 1, b"k", b"v", (("h", b"1"),))
    assert desk.produce(made) == (1, 0)
    assert desk.produce(made._replace(value=None)) == (1, 1)
    whole = desk.record("records", 1, 0)
    assert whole is not None
    assert (whole.key, whole.value, whole.headers) == (b"k", b"v", (("h", b"1"),))
    assert desk.record("records", 7, 0) is None
    assert [each.value for each in desk.read(Wanted(topic="records")).records] == [None, b"v"]
    for ask in (
        lambda: desk.read(Wanted(topic="none")),
        lambda: desk.produce(made._replace(topic="none")),
    ):
        with pytest.raises(BrokerError, match="there is no topic none"):
            ask()


def test_a_group_is_shown_with_its_members_and_moved_when_they_are_gone(
    desk: SdkDesk, broker: SmqBroker
) -> None:
    with broker.connect() as client:
        client.create_topic("read", 2)
        with client.producer() as producer:
            for number in range(10):
                producer.send("read", b"x", partition=number % 2)
        with client.consumer("read", group="readers", start="earliest") as consumer:
            while sum(consumer.position(*name) for name in consumer.assignment()) < 10:
                with consumer.poll():
                    pass
            consumer.commit()
            group = desk.group("readers")
            assert group.state == "Stable"
            assert group.members[0].partitions == (("read", 0), ("read", 1))
            moves = desk.moves("readers", "", "2")
            assert [(each.before, each.after, each.end) for each in moves] == [(5, 2, 5)] * 2
            with pytest.raises(BrokerError, match="stop its consumers first"):
                desk.reset("readers", moves)
    desk.reset("readers", moves)
    assert [each.before for each in desk.moves("readers", "", "newest")] == [2, 2]
    assert [each.after for each in desk.moves("readers", "read", "99")] == [5, 5]
    assert "readers" in [each.group for each in desk.groups()]
    desk.reset("fresh", desk.moves("fresh", "read", "earliest"))
    with pytest.raises(ValueError, match="name a topic"):
        desk.moves("unheard-of", "", "earliest")
    desk.delete_group("readers")
    with pytest.raises(BrokerError) as raised:
        desk.group("readers")
    assert raised.value.code == ErrorCode.GROUP_ID_NOT_FOUND
