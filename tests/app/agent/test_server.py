"""The agent's process: its ports are kept while it is down, and its records survive it."""

import socket
from pathlib import Path

import grpc
import pytest

from smq.agent.proto import mq_broker_pb2 as pb
from smq.agent.proto.mq_schema_pb2 import Topic
from smq.testing.smq_broker import SmqBroker
from tests.app.agent.doors import SETTINGS, opened
from tests.app.agent.streams import OpenStream, soon, topic_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_killed_agent_comes_back_at_its_port_with_what_it_had_acknowledged(
    tmp_path: Path,
) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        topic, [partition] = topic_of(doors)
        said = pb.PublishMessageRequest.InitMessage(topic=topic, partition=partition)
        init = pb.PublishMessageRequest(init=said)
        record = pb.PublishMessageRequest(data=pb.DataMessage(value=b"x"))
        stream = OpenStream(doors.broker.PublishMessage, init, record)
        stream.read()
        assert stream.read().assigned_offset == 0
        before = broker.status().grpc
        broker.kill("agent")
        host, port = before.split(":")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, int(port)))
        soon(lambda: broker.status().ready)
        assert broker.status().grpc == before
        with opened(broker) as again:
            asked = pb.FetchMessageRequest(topic=topic, partition=partition)
            found = again.broker.FetchMessage(asked, wait_for_ready=True)
            assert [each.value for each in found.messages] == [b"x"]


def test_a_message_above_the_limit_and_large_metadata_are_refused_alone(tmp_path: Path) -> None:
    with SmqBroker(tmp_path, SETTINGS) as broker, opened(broker) as doors:
        exists = pb.TopicExistsRequest(topic=Topic(namespace="a", name="x" * (17 << 20)))
        with pytest.raises(grpc.RpcError) as raised:
            doors.broker.TopicExists(exists)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        small = pb.TopicExistsRequest(topic=Topic(namespace="a", name="x"))
        with pytest.raises(grpc.RpcError) as raised:
            doors.broker.TopicExists(small, metadata=(("large", "x" * (1 << 20)),))
        assert raised.value.code() is not grpc.StatusCode.OK
        assert not doors.broker.TopicExists(small).exists


def test_two_brokers_do_not_share_a_port(tmp_path: Path) -> None:
    with SmqBroker(tmp_path / "one", SETTINGS) as broker:
        port = broker.status().grpc.rpartition(":")[2]
        with pytest.raises(RuntimeError, match=r"in use by process .*--grpc-port"):
            SmqBroker(tmp_path / "two", {"grpc.port": port})
