"""A Produce appends what its client may append, and answers the rest like Kafka."""

import json
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from smq.model.catalog import Topic
from smq.model.errors import ErrorCode
from smq.security.acls import AclBinding, Operation
from smq.security.audit import Audit
from smq.security.authorizer import Authorizer, Decision
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.shard.led import Led
from smq.shard.produce import Produced
from smq.shard.refusals import TOPICS_MAX, refuse_topics
from smq.shard.shard import Shard
from smq.shard.transactional import TransactionalProduce
from smq.shard.unfinished import Unfinished
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
    write_produce_request,
)
from smq.wire.headers import RequestHeader, write_request_header
from tests.security.test_authorizer import ALICE, rule
from tests.shard.shard_bench import (
    NOW,
    Producer,
    batch,
    new_shard,
    produce_request,
    responses,
    topic,
)
from tests.shard.transactional_bench import (
    Producers,
    errors_of,
    transactional_batch,
    transactional_request,
)

E = ErrorCode
MAY, MAY_NOT = topic("may"), topic("may-not", range(2, 3))
BOTH = {"may-not": {0: batch(b"x")}, "may": {0: batch(b"x")}, "unknown": {0: batch(b"x")}}


def rights(*rules: AclBinding) -> Rights:
    return Rights(Authorizer(Rules(rules)), ALICE)


WRITER = rights(rule("may", Operation.WRITE))


def run(shard: Shard, sent: bytes) -> Produced:
    refuse = partial(refuse_topics, shard=shard, rights=WRITER)
    data = np.frombuffer(bytearray(sent), np.uint8)
    producing = Producer(shard).producing
    return producing.run(data, 0, len(data), shard.directory, NOW, refuse=refuse)


def errors(produced: Produced) -> dict[str, int]:
    [(_, response)] = responses(bytes(produced.answers))
    return {each.name: each.partition_responses[0].error_code for each in response.responses}


def _led(shard: Shard, of: Topic) -> Led:
    led = shard.by_number(of.partition_numbers[0])
    assert led is not None
    return led


def ends(shard: Shard) -> list[int]:
    return [_led(shard, each).offsets().log_end for each in (MAY, MAY_NOT)]


def test_the_allowed_part_of_a_request_is_appended_and_the_rest_is_not(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    produced = run(shard, produce_request(BOTH))
    denied = E.TOPIC_AUTHORIZATION_FAILED
    assert errors(produced) == {"may-not": denied, "may": E.NONE, "unknown": denied}
    assert ends(shard) == [1, 0]
    assert not produced.close


def test_without_acks_a_refused_part_closes_the_connection(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    produced = run(shard, produce_request(BOTH, acks=0))
    assert produced.close
    assert ends(shard) == [1, 0]


def test_an_unknown_id_is_unknown_and_a_known_one_refused(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    writer = Writer()
    write_request_header(RequestHeader(0, 13, 1, "test"), writer)
    rows = [
        TopicProduceData(
            topic_id=key, partition_data=[PartitionProduceData(index=0, records=batch(b"x"))]
        )
        for key in (MAY.id, MAY_NOT.id, UUID(int=77))
    ]
    write_produce_request(ProduceRequest(acks=-1, timeout_ms=1, topic_data=rows), 13, writer)
    body = writer.to_bytes()
    produced = run(shard, len(body).to_bytes(4) + body)
    codes = [code for code, _ in errors_of(bytes(produced.answers), 13)]
    assert codes == [E.NONE, E.TOPIC_AUTHORIZATION_FAILED, E.UNKNOWN_TOPIC_ID]
    assert ends(shard) == [1, 0]


def test_a_request_in_steps_is_refused_in_the_step_before_it_is_appended(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    producer, rules = Producer(shard), Rules([rule("may", Operation.WRITE)])
    data = np.frombuffer(bytearray(produce_request(BOTH)), np.uint8)
    limited = Rights(Authorizer(rules), ALICE)
    request = Unfinished(shard, producer.in_steps, data, rights=limited)
    rules.remove(rule("may", Operation.WRITE))
    assert set(errors(producer.stepped(request)).values()) == {E.TOPIC_AUTHORIZATION_FAILED}
    assert ends(shard) == [0, 0]


def test_a_foreign_transactional_id_is_refused_and_the_coordinator_is_not_asked(
    tmp_path: Path,
) -> None:
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    producers = Producers(shard)
    one = transactional_batch(b"x", producer=(7, 0))
    data = np.frombuffer(bytearray(transactional_request({"may": {0: one}})), np.uint8)
    produce = TransactionalProduce(shard, producers.transactional, data, rights=WRITER)
    produced = produce.step(NOW)
    assert isinstance(produced, Produced)
    [(code, _)] = errors_of(bytes(produced.answers))
    assert code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert ends(shard) == [0, 0]


def transactional(shard: Shard, sent: bytes) -> list[int]:
    data = np.frombuffer(bytearray(sent), np.uint8)
    produce = TransactionalProduce(shard, Producers(shard).transactional, data, rights=WRITER)
    produced = produce.step(NOW)
    assert isinstance(produced, Produced)
    return [code for code, _ in errors_of(bytes(produced.answers))]


def test_an_id_without_a_transactions_batch_asks_for_rights_on_topics_alone(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    sent = transactional_request({"may-not": {0: batch(b"x")}, "may": {0: batch(b"x")}})
    assert transactional(shard, sent) == [E.TOPIC_AUTHORIZATION_FAILED, E.NONE]
    assert ends(shard) == [1, 0]


@pytest.mark.parametrize(
    ("name", "other"), [("may", "may-not"), ("may-not", "may"), ("unknown", "may")]
)
def test_one_batch_of_a_foreign_transaction_refuses_its_whole_request(
    tmp_path: Path, name: str, other: str
) -> None:
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    one = transactional_batch(b"x", producer=(7, 0))
    sent = transactional_request({name: {0: one}, other: {0: batch(b"x")}})
    assert transactional(shard, sent) == 2 * [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert ends(shard) == [0, 0]


class Counting(Authorizer):
    """Counts what it is asked."""

    asked = 0

    def decide(self, *about: Any) -> Decision:
        self.asked += 1
        return super().decide(*about)


def counting() -> tuple[Counting, Rights]:
    authorizer = Counting(Rules([rule("may", Operation.WRITE)]))
    return authorizer, Rights(authorizer, ALICE)


def many(count: int) -> dict[str, dict[int, bytes]]:
    """Batches for unknown topics, and behind them for one to which the client may write."""
    return {f"unknown-{n}": {0: batch(b"x")} for n in range(count)} | {"may": {0: batch(b"x")}}


@pytest.mark.parametrize("log_count", [1, 2])
@pytest.mark.parametrize("count", [150, 950, 2000])
def test_a_request_with_many_topics_is_asked_about_in_steps(
    tmp_path: Path, log_count: int, count: int
) -> None:
    """Nine thousand topics held the loop for 0.2 s, and with ten thousand rules for 0.8 s."""
    shard, (authorizer, limited) = new_shard(tmp_path, MAY, logs=log_count), counting()
    producer = Producer(shard)
    data = np.frombuffer(bytearray(produce_request(many(count))), np.uint8)
    refuse = partial(refuse_topics, shard=shard, rights=limited)
    left = producer.producing.run(data, 0, len(data), shard.directory, NOW, refuse=refuse).left
    assert left is not None
    assert authorizer.asked == 0
    assert (left.start, left.end) == (0, len(data))
    request, produced = Unfinished(shard, producer.in_steps, data, left, rights=limited), None
    while produced is None:
        before = authorizer.asked
        produced = request.step(NOW)
        assert authorizer.asked - before <= TOPICS_MAX
    assert isinstance(produced, Produced)
    expected = dict.fromkeys(many(count), E.TOPIC_AUTHORIZATION_FAILED) | {"may": E.NONE}
    assert errors(produced) == expected
    assert authorizer.asked == count + 1
    assert _led(shard, MAY).offsets().log_end == 1


def test_of_many_requests_those_with_few_topics_are_taken_at_once(tmp_path: Path) -> None:
    shard, (authorizer, limited) = new_shard(tmp_path, MAY), counting()
    producing, sent = Producer(shard).producing, produce_request(many(30)) * 10
    data, start, runs = np.frombuffer(bytearray(sent), np.uint8), 0, 0
    refuse = partial(refuse_topics, shard=shard, rights=limited)
    while start < len(data):
        before = authorizer.asked
        produced = producing.run(data, start, len(data), shard.directory, NOW, refuse=refuse)
        assert produced.left is None
        assert 0 < authorizer.asked - before <= TOPICS_MAX
        start, runs = produced.consumed_to, runs + 1
    assert runs == 4
    assert _led(shard, MAY).offsets().log_end == 10


def test_topics_are_asked_about_anew_when_rules_change(tmp_path: Path) -> None:
    shard = new_shard(tmp_path, MAY)
    rules = Rules([rule("may", Operation.WRITE)])
    limited = Rights(Authorizer(rules), ALICE)
    sent = {"may": {0: batch(b"x")}} | {f"unknown-{n}": {0: batch(b"x")} for n in range(150)}
    data = np.frombuffer(bytearray(produce_request(sent)), np.uint8)
    producer = Producer(shard)
    request = Unfinished(shard, producer.in_steps, data, rights=limited)
    assert request.step(NOW) is None
    rules.remove(rule("may", Operation.WRITE))
    shard.access.version += 1
    assert set(errors(producer.stepped(request)).values()) == {E.TOPIC_AUTHORIZATION_FAILED}
    assert _led(shard, MAY).offsets().log_end == 0


def test_a_refused_topic_is_written_to_the_audit_log(tmp_path: Path) -> None:
    audit = Audit()
    limited = Rights(Authorizer(Rules([rule("may", Operation.WRITE)])), ALICE, audit)
    shard = new_shard(tmp_path, MAY, MAY_NOT)
    producing = Producer(shard).producing
    data = np.frombuffer(bytearray(produce_request(BOTH)), np.uint8)
    refuse = partial(refuse_topics, shard=shard, rights=limited)
    producing.run(data, 0, len(data), shard.directory, NOW, refuse=refuse)
    told = [json.loads(line) for line in audit.take_accesses(NOW)]
    assert sorted(each["resource"] for each in told) == ["may-not", "unknown"]
    assert {(each["api"], each["operation"]) for each in told} == {("Produce", "WRITE")}
