"""Rules that change while clients are at work, on a real broker with two nodes."""

import time
from collections.abc import Iterator

import pytest

from smq.client.kafka.access_rules import add_rules, delete_rules
from smq.client.kafka.cluster import Cluster
from smq.model.errors import ErrorCode
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import (
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePatternFilter,
    ResourceType,
)
from smq.testing.smq_broker import SmqBroker
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.app.http_client import ask
from tests.oracle.talk import Talk
from tests.security.test_authorizer import rule
from tests.shard.shard_bench import batch

SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",  # Until a rule names a resource.
    "shards": "2",
    "http.port": "0",
    "metrics.token": "s3cret",
}
WAIT_MS, AT_ONCE_S = 20_000, 2.0
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmqBroker]:
    with SmqBroker(tmp_path_factory.mktemp("rules"), SETTINGS) as broker:
        yield broker


def only_for(topic: str, operation: Operation) -> list[AclBinding]:
    """Rules that leave the right to nobody who is here."""
    return [rule(topic, operation, Permission.ALLOW, principal="User:nobody")]


def fetch(topic: str, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    return FetchRequest(
        max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics
    )


def produce(topic: str) -> ProduceRequest:
    row = PartitionProduceData(index=0, records=batch(b"x"))
    topics = [TopicProduceData(name=topic, partition_data=[row])]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)


def test_a_fetch_that_waits_is_refused_at_once_when_its_right_is_taken(broker: SmqBroker) -> None:
    talk = Talk(broker.port, "parked", 12)
    topic = talk.make_topic()
    waiting = talk.voice()
    waiting.begin(fetch(topic))
    with Cluster(broker.bootstrap) as cluster:
        began = time.monotonic()
        add_rules(cluster, only_for(topic, Operation.READ))
        answer: object = waiting.finish()
    took = time.monotonic() - began
    assert answer.responses[0].partitions[0].error_code == DENIED  # type: ignore[attr-defined]
    assert took < AT_ONCE_S
    talk.close()


def test_a_request_sent_after_a_rule_is_deleted_is_refused_on_every_node(broker: SmqBroker) -> None:
    talks = [Talk(int(each.rpartition(":")[2]), "after", 9) for each in broker.bootstrap.split(",")]
    topic = talks[0].make_topic()
    mine = rule(topic, Operation.WRITE, principal="User:ANONYMOUS")
    named = AclBindingFilter(
        ResourcePatternFilter(ResourceType.TOPIC, topic, PatternType.LITERAL),
        AccessControlEntryFilter(operation=Operation.WRITE),
    )
    keeps = only_for(topic, Operation.READ)
    with Cluster(broker.bootstrap) as cluster:
        for _ in range(20):
            add_rules(cluster, [mine, *keeps])
            # The first answer is Python's, the others are a kernel's.
            codes = {_code(talk, topic) for talk in talks for _ in range(3)}
            assert DENIED not in codes
            assert ErrorCode.NONE in codes
            delete_rules(cluster, named)
            assert {_code(talk, topic) for talk in talks} == {DENIED}
    for talk in talks:
        talk.close()


def test_http_passes_by_no_rule(broker: SmqBroker) -> None:
    """Payloads and queries are for users (test_http_users), so is the console
    (test_console_users)."""
    assert ask(broker, "PUT", "/filer/docs/a", b"x").status == 401
    assert ask(broker, "POST", "/sql", b"SELECT 1").status == 401
    assert ask(broker, "GET", "/").status == 303
    assert ask(broker, "GET", "/console/rates", sec_fetch_mode="cors").status == 401
    assert ask(broker, "GET", "/health/ready").status == 200
    assert ask(broker, "GET", "/metrics").status == 401
    assert ask(broker, "GET", "/metrics", Authorization="Bearer s3cret").status == 200
    assert "console" not in broker.output.read_text()


def _code(talk: Talk, topic: str) -> int:
    answer = talk.quietly(produce(topic))
    code: int = answer.responses[0].partition_responses[0].error_code
    return code
