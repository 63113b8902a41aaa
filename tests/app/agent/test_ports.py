"""SeaweedMQ's ports as listeners: TLS, logins, and streams that end when nobody may go on."""

import json
import shutil
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from smq.agent.proto import (
    health_pb2,
    mq_agent_pb2 as agent_pb,
    mq_broker_pb2 as pb,
    reflection_pb2,
)
from smq.agent.proto.mq_schema_pb2 import OffsetType, Partition, Topic
from smq.app.agent.logins import NO_LOGIN, SEEN, WRONG
from smq.app.front.observer import Observer
from smq.app.process.inheritance import agent_name, socket_path
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.questions import Question
from smq.security.acls import Operation, ResourceType
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    QuotaEntity,
    QuotaEntry,
    QuotaOp,
)
from smq.wire.generated.apis import ALTER_CLIENT_QUOTAS
from tests.app.agent.doors import Doors, opened, refused, stubs_of
from tests.app.agent.guarded_doors import (
    ROOT,
    GuardedDoors,
    basic,
    bearer,
    make_certificates,
    opened_in_tls,
    settings_of,
)
from tests.app.agent.streams import OpenStream, kafka_name, soon, topic_of
from tests.broker.users import add_users, remove_user
from tests.security.issuer import claims_of, token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
LEADER = pb.FindBrokerLeaderRequest()
TOPIC, OF_GROUP = ResourceType.TOPIC, ResourceType.GROUP
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


class Guarded(NamedTuple):
    doors: GuardedDoors
    certs: Path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    certs = make_certificates(tmp_path_factory.mktemp("certs"))
    with (
        SmqBroker(tmp_path_factory.mktemp("b"), settings_of(certs)) as broker,
        opened_in_tls(broker, certs) as doors,
    ):
        doors.add_users(ROOT, "alice", "bob")
        yield Guarded(doors, certs)


# --- logins ------------------------------------------------------------------------------------


def test_a_call_without_a_login_or_with_a_wrong_one_is_refused(guarded: Guarded) -> None:
    doors = guarded.doors
    with refused(UNAUTHENTICATED, NO_LOGIN):
        doors.doors.broker.FindBrokerLeader(LEADER)
    for wrong in (basic(ROOT, "wrong"), basic("nobody"), bearer("a.b.c"), basic("", "x")):
        with refused(UNAUTHENTICATED, WRONG):
            doors.by(wrong).broker.FindBrokerLeader(LEADER)
    with refused(UNAUTHENTICATED, NO_LOGIN):
        doors.by((*basic(ROOT), *basic(ROOT))).broker.FindBrokerLeader(LEADER)
    with refused(UNAUTHENTICATED, NO_LOGIN):
        begun = OpenStream(doors.doors.agent.PublishRecord, agent_pb.PublishRecordRequest())
        begun.read()
    assert doors.user(ROOT).broker.FindBrokerLeader(LEADER).broker


def test_failed_logins_and_denials_are_audited(guarded: Guarded) -> None:
    doors = guarded.doors
    with refused(UNAUTHENTICATED, WRONG):
        doors.by(basic(ROOT, "audited")).broker.FindBrokerLeader(LEADER)
    with refused(DENIED, "ALTER on the cluster"):
        doors.user("bob").broker.BalanceTopics(pb.BalanceTopicsRequest())

    def lines() -> list[dict[str, Any]]:
        files = (doors.smq.data_dir / "audit").iterdir()
        return [json.loads(each) for file in files for each in file.read_text().splitlines()]

    def told(**wanted: str) -> bool:
        return any(wanted.items() <= each.items() for each in lines())

    soon(lambda: told(event="failed login", listener="GRPC", detail="password"))
    soon(lambda: told(event="denied", principal="User:bob", api="gRPC BalanceTopics"))
    soon(lambda: told(event="login", principal="User:bob", listener="GRPC"))
    assert "audited" not in json.dumps(lines())


def test_a_token_logs_in_until_it_ends(guarded: Guarded) -> None:
    doors = guarded.doors
    topic, [partition] = topic_of(doors.user(ROOT))
    claims = claims_of(time.time(), sub=ROOT, exp=int(time.time()) + 8)
    by_token = doors.by(bearer(token(claims)))
    stream = OpenStream(by_token.broker.PublishMessage, published(topic, partition))
    assert stream.read().error == ""
    with refused(UNAUTHENTICATED, "has ended"):
        stream.read()


def test_health_needs_no_login(guarded: Guarded) -> None:
    status, certs = guarded.doors.smq.status(), guarded.certs
    service = health_pb2.DESCRIPTOR.services_by_name["Health"]
    keys = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes())
    for address in (status.grpc, status.agent):
        with grpc.secure_channel(address, keys) as channel:
            found = stubs_of(service, channel).Check(health_pb2.HealthCheckRequest())
            assert found.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_needs_a_login(guarded: Guarded) -> None:
    service = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
    keys = grpc.ssl_channel_credentials((guarded.certs / "ca.pem").read_bytes())
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc.secure_channel(guarded.doors.smq.status().agent, keys) as channel:
        reflect = stubs_of(service, channel).ServerReflectionInfo
        with refused(UNAUTHENTICATED, NO_LOGIN):
            OpenStream(reflect, asked).read()
        [answer] = OpenStream(reflect, asked, metadata=basic("bob")).finish()
        assert len(answer.list_services_response.service) == 3


def test_a_large_request_without_a_login_is_not_read(guarded: Guarded) -> None:
    large = pb.TopicExistsRequest(topic=Topic(namespace="a", name="x" * (15 << 20)))
    with refused(UNAUTHENTICATED, NO_LOGIN):
        guarded.doors.doors.broker.TopicExists(large)


def test_only_the_agent_asks_shards_in_the_name_of_its_users(guarded: Guarded) -> None:
    broker = guarded.doors.smq
    for name, process in broker.status().processes.items():
        links = [each.readlink().name for each in Path(f"/proc/{process.pid}/fd").iterdir()]
        ways = [each for each in links if each.startswith(agent_name(1))]
        assert bool(ways) == (name == "agent"), name
    assert not socket_path(broker.runtime_dir, agent_name(1)).exists()


# --- open streams ------------------------------------------------------------------------------


def published(topic: Topic, partition: Partition) -> pb.PublishMessageRequest:
    return pb.PublishMessageRequest(
        init=pb.PublishMessageRequest.InitMessage(topic=topic, partition=partition)
    )


def record(value: bytes = b"x", key: bytes = b"") -> pb.PublishMessageRequest:
    return pb.PublishMessageRequest(data=pb.DataMessage(value=value, key=key))


def joined(topic: Topic, group: str) -> agent_pb.SubscribeRecordRequest:
    return agent_pb.SubscribeRecordRequest(
        init=agent_pb.SubscribeRecordRequest.InitSubscribeRecordRequest(
            consumer_group=group, topic=topic, offset_type=OffsetType.RESET_TO_EARLIEST
        )
    )


def subscribed(topic: Topic, partition: Partition, group: str) -> pb.SubscribeMessageRequest:
    init = pb.SubscribeMessageRequest.InitMessage(
        consumer_group=group, topic=topic, offset_type=OffsetType.RESET_TO_EARLIEST
    )
    init.partition_offset.partition.CopyFrom(partition)
    return pb.SubscribeMessageRequest(init=init)


@pytest.fixture
def shared(guarded: Guarded) -> tuple[Topic, Partition, str]:
    """A topic with a record, which alice may write and read, in a group of its name."""
    doors = guarded.doors
    root = doors.user(ROOT)
    topic, [partition] = topic_of(root)
    name = kafka_name(topic)
    OpenStream(root.broker.PublishMessage, published(topic, partition), record()).finish()
    for what in (Operation.READ, Operation.WRITE):
        doors.allow("alice", what, TOPIC, name)
    doors.allow("alice", Operation.READ, OF_GROUP, name)
    return topic, partition, name


def all_streams(doors: Doors, topic: Topic, partition: Partition, group: str) -> list[OpenStream]:
    """Each kind, with its first answer read: all wait for something now."""
    begin = agent_pb.StartPublishSessionRequest(topic=topic)
    session = doors.agent.StartPublishSession(begin).session_id
    coordinate = pb.SubscriberToSubCoordinatorRequest.InitMessage(consumer_group=group, topic=topic)
    streams = [
        OpenStream(doors.broker.PublishMessage, published(topic, partition)),
        OpenStream(doors.broker.SubscribeMessage, subscribed(topic, partition, group)),
        OpenStream(doors.agent.SubscribeRecord, joined(topic, group)),
    ]
    for each in streams:
        each.read()
    streams.append(
        OpenStream(
            doors.broker.SubscriberToSubCoordinator,
            pb.SubscriberToSubCoordinatorRequest(init=coordinate),
        )
    )
    publish = agent_pb.PublishRecordRequest(session_id=session)
    streams.append(OpenStream(doors.agent.PublishRecord, publish))
    return streams


def check_ended(streams: list[OpenStream], status: grpc.StatusCode) -> None:
    for each in streams:
        with pytest.raises(grpc.RpcError) as raised:
            each.finish_reading()
        assert raised.value.code() is status, raised.value


def test_streams_whose_right_is_taken_away_end(
    guarded: Guarded, shared: tuple[Topic, Partition, str]
) -> None:
    doors, (topic, partition, name) = guarded.doors, shared
    streams = all_streams(doors.user("alice"), topic, partition, name)
    doors.allow_no_more("alice", Operation.READ, TOPIC, name)
    doors.allow_no_more("alice", Operation.WRITE, TOPIC, name)
    check_ended(streams, DENIED)


def test_streams_whose_user_is_gone_end(
    guarded: Guarded, shared: tuple[Topic, Partition, str]
) -> None:
    doors, (topic, partition, name) = guarded.doors, shared
    doors.add_users("carol")
    for what in (Operation.READ, Operation.WRITE):
        doors.allow("carol", what, TOPIC, name)
    doors.allow("carol", Operation.READ, OF_GROUP, name)
    streams = all_streams(doors.user("carol"), topic, partition, name)
    remove_user(doors.smq.bootstrap, "carol")
    check_ended(streams, UNAUTHENTICATED)
    with refused(UNAUTHENTICATED, WRONG):
        doors.user("carol").broker.FindBrokerLeader(LEADER)


def test_a_record_that_comes_after_its_right_has_gone_is_not_appended(
    guarded: Guarded, shared: tuple[Topic, Partition, str]
) -> None:
    doors, (topic, partition, name) = guarded.doors, shared
    stream = OpenStream(
        doors.user("alice").broker.PublishMessage, published(topic, partition), record(b"before")
    )
    assert [stream.read().error, stream.read().error] == ["", ""]
    doors.allow_no_more("alice", Operation.WRITE, TOPIC, name)
    stream.send(record(b"after"))
    check_ended([stream], DENIED)
    asked = pb.FetchMessageRequest(topic=topic, partition=partition)
    found = doors.user(ROOT).broker.FetchMessage(asked).messages
    assert [each.value for each in found] == [b"x", b"before"]


def test_a_dead_letter_needs_a_right_on_its_topic(
    guarded: Guarded, shared: tuple[Topic, Partition, str]
) -> None:
    doors, (topic, partition, name) = guarded.doors, shared

    def subscribe_and_refuse() -> OpenStream:
        explicit = (("smq-ack", "explicit"),)
        first = subscribed(topic, partition, name)
        stream = OpenStream(doors.user("alice").broker.SubscribeMessage, first, metadata=explicit)
        for _ in range(5):
            offset = stream.read().data.offset
            nack = pb.SubscribeMessageRequest.AckMessage(offset=offset, nack=True)
            stream.send(pb.SubscribeMessageRequest(ack=nack))
        return stream

    with refused(DENIED, f"WRITE on the topic {name}.{name}.dlq"):
        subscribe_and_refuse().finish_reading()
    doors.allow("alice", Operation.WRITE, TOPIC, f"{name}.{name}.dlq")
    with refused(DENIED, f"CREATE on the topic {name}.{name}.dlq"):
        subscribe_and_refuse().finish_reading()
    doors.allow("alice", Operation.CREATE, TOPIC, f"{name}.{name}.dlq")
    stream = subscribe_and_refuse()
    letters = Topic(namespace="kafka", name=f"{name}.{name}.dlq")
    exists = pb.TopicExistsRequest(topic=letters)
    soon(lambda: doors.user(ROOT).broker.TopicExists(exists).exists)
    assert stream.finish()[-1].ctrl.is_end_of_stream


# --- TLS ---------------------------------------------------------------------------------------


def shown_by(address: str) -> bytes:
    """The certificate that a port shows."""
    host, port = address.split(":")
    return ssl.get_server_certificate((host, int(port))).encode()


def certificates_of(broker: SmqBroker) -> set[str]:
    """The listeners whose certificates' ends are metrics."""
    facts = Observer(broker.data_dir).look().certificates
    return {each.listener for each in facts if each.days_left > 0}


def test_replaced_keys_are_shown_to_new_connections(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path / "one")
    with SmqBroker(tmp_path / "b", settings_of(certs)) as broker:
        address = broker.status().grpc
        before = shown_by(address)
        soon(lambda: certificates_of(broker) == {"GRPC", "AGENT"})
        other = make_certificates(tmp_path / "two")
        shutil.copy(other / "broker.pem", certs / "broker.pem")
        soon(lambda: shown_by(address) != before)
        (certs / "broker.pem").write_text("garbage")
        soon(lambda: "stay in use" in broker.tail())
        add_users(broker.bootstrap, {ROOT: ROOT[::-1]})
        with opened_in_tls(broker, other) as doors:
            assert doors.user(ROOT).broker.FindBrokerLeader(LEADER).broker
        broker.kill("agent")  # It comes back without keys: once they are good, its ports open.
        soon(lambda: broker.status().ready)
        shutil.copy(other / "broker.pem", certs / "broker.pem")
        with opened_in_tls(broker, other) as doors:
            by = doors.user(ROOT).broker
            assert by.FindBrokerLeader(LEADER, wait_for_ready=True).broker


def test_clients_are_named_by_their_certificates(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path / "certs", "alice", "bob")
    settings = settings_of(certs, "SSL") | {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    with SmqBroker(tmp_path / "b", settings) as broker:
        with opened_in_tls(broker, certs, "alice") as doors:
            topic, _ = topic_of(doors.doors)
        asked = pb.LookupTopicBrokersRequest(topic=topic)
        with opened_in_tls(broker, certs, "bob") as doors:
            with refused(grpc.StatusCode.NOT_FOUND, "there is no topic"):
                doors.doors.broker.LookupTopicBrokers(asked)
            doors.allow("bob", Operation.DESCRIBE, TOPIC, kafka_name(topic))
            assert doors.doors.broker.LookupTopicBrokers(asked).topic == topic
        with opened_in_tls(broker, certs) as doors, refused(grpc.StatusCode.UNAVAILABLE, ""):
            doors.doors.broker.FindBrokerLeader(LEADER)


def test_a_password_is_not_taken_where_others_can_see_it(tmp_path: Path) -> None:
    certs = make_certificates(tmp_path / "certs")
    settings = settings_of(certs, "SASL_PLAINTEXT")
    with SmqBroker(tmp_path / "b", settings) as broker, opened(broker) as doors:
        add_users(broker.bootstrap, {ROOT: ROOT[::-1]})
        guarded = GuardedDoors(broker, doors)
        with refused(UNAUTHENTICATED, SEEN):
            guarded.user(ROOT).broker.FindBrokerLeader(LEADER)
        by_token = guarded.by(bearer(token(claims_of(time.time(), sub=ROOT))))
        assert by_token.broker.FindBrokerLeader(LEADER).broker


def test_quotas_of_a_user_hold_here(guarded: Guarded, shared: tuple[Topic, Partition, str]) -> None:
    doors, (topic, partition, _) = guarded.doors, shared
    doors.allow("bob", Operation.READ, TOPIC, kafka_name(topic))
    fetch = doors.user("bob").broker.FetchMessage
    asked = pb.FetchMessageRequest(topic=topic, partition=partition)
    assert len(fetch(asked).messages) == 1
    entity = [QuotaEntity(entity_type="user", entity_name="bob")]
    slow = QuotaOp(key="consumer_byte_rate", value=1.0, remove=False)
    request = AlterClientQuotasRequest(entries=[QuotaEntry(entity=entity, ops=[slow])])
    with Cluster(doors.smq.bootstrap) as cluster:
        answer = cluster.anyone().ask(Question(ALTER_CLIENT_QUOTAS), request)
        assert [each.error_code for each in answer.entries] == [0]

    def is_in_debt() -> bool:
        try:
            fetch(asked, timeout=1)
        except grpc.RpcError as error:
            return bool(error.code() is grpc.StatusCode.DEADLINE_EXCEEDED)
        return False

    soon(is_in_debt)  # The agent looks at quotas from time to time.
    assert len(doors.user(ROOT).broker.FetchMessage(asked).messages) == 1
