"""EndTxn is answered before its markers are written; what the next transaction asks for waits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smq.coordinator.transactions import waiting
from smq.coordinator.transactions.decisions import ProducerEpoch
from smq.coordinator.transactions.endings import RETRY_MS
from smq.coordinator.transactions.waiting import WAIT_MS
from smq.model.errors import ErrorCode
from smq.wire.codec import Message
from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from smq.wire.headers import read_response_header
from smq.wire.internal.form import decode_answer, decode_question, encode_answer, encode_question
from smq.wire.internal.frames import ACCEPTOR_IDS_FROM
from smq.wire.internal.messages import FOR_SHARD
from smq.wire.internal.transactions import AddPartitions, WriteMarkers
from tests.app.coordinator.server_bench import Bench, Peer, create

E = ErrorCode
VERSIONS = {
    "InitProducerId": 4,
    "AddPartitionsToTxn": 3,
    "AddOffsetsToTxn": 3,
    "TxnOffsetCommit": 4,
    "EndTxn": 4,
}


def name_of(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")


def read(name: str, body: bytes) -> Any:
    """A response."""
    api, version = API_BY_NAME[name], VERSIONS[name]
    _, at = read_response_header(body, 0, api.key, version)
    return api.read_response(body, at, version)


def added(body: bytes) -> ErrorCode:
    """What AddPartitionsToTxn says of its partition."""
    [topic] = read("AddPartitionsToTxn", body).results_by_transaction[0].topic_results
    return ErrorCode(topic.results_by_partition[0].partition_error_code)


class Cluster:
    """A coordinator, and a shard's link: it relays for a client with a transactional id, and writes
    markers when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.bench = Bench(directory / "store.sqlite")
        self.ordered: list[tuple[int, WriteMarkers]] = []
        self.peer = Peer(self.bench)
        create(self.peer, "a")
        self.peer.answers()
        begun = self.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000))
        self.producer = ProducerEpoch(begun.producer_id, begun.producer_epoch)

    def answers(self) -> dict[int, bytes]:
        """What the client is answered; orders are kept."""
        found = self.peer.answers()
        for frame_id in [each for each in found if each >= ACCEPTOR_IDS_FROM]:
            question = decode_question(found.pop(frame_id), FOR_SHARD)
            assert isinstance(question, WriteMarkers)
            self.ordered.append((frame_id, question))
        return found

    def write_markers(self) -> None:
        """The shard does what it is told to."""
        frame_id, asked = self.ordered.pop()
        self.peer._send(encode_answer(frame_id, [0] * len(asked.numbers)))

    def send(self, request: Message, peer: Peer | None = None) -> int:
        api = API_BY_NAME[name_of(request)]
        return (peer or self.peer).kafka(api.name, VERSIONS[api.name], request, api.write_request)

    def ask(self, request: Message) -> Any:
        asked = self.send(request)
        return read(name_of(request), self.answers()[asked])

    def add(self, peer: Peer | None = None) -> int:
        """A partition joins the transaction."""
        added = AddPartitionsToTxnTransaction(
            transactional_id="t",
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            topics=[AddPartitionsToTxnTopic(name="a", partitions=[0])],
        )
        request = AddPartitionsToTxnRequest(transactions=[added])
        return self.send(request, peer)

    def add_now(self) -> ErrorCode:
        asked = self.add()
        return added(self.answers()[asked])

    def add_offsets(self) -> int:
        return self.send(
            AddOffsetsToTxnRequest(
                transactional_id="t",
                producer_id=self.producer.id,
                producer_epoch=self.producer.epoch,
                group_id="g",
            )
        )

    def end(self) -> Any:
        return self.ask(
            EndTxnRequest(
                transactional_id="t",
                producer_id=self.producer.id,
                producer_epoch=self.producer.epoch,
                committed=True,
            )
        )

    def commit_one(self) -> None:
        """A whole transaction but for its markers."""
        assert self.add_now() == E.NONE
        assert self.end().error_code == E.NONE

    def pass_ms(self, ms: int) -> None:
        now = self.bench.now
        self.bench.now = now._replace(monotonic_ms=now.monotonic_ms + ms)

    def close(self) -> None:
        self.bench.server.close()
        for peer in self.bench.peers:
            peer.sock.close()
        self.bench.store.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def test_the_order_goes_out_before_the_answer(cluster: Cluster) -> None:
    assert cluster.add_now() == E.NONE
    asked = cluster.send(
        EndTxnRequest(
            transactional_id="t",
            producer_id=cluster.producer.id,
            producer_epoch=cluster.producer.epoch,
            committed=True,
        )
    )
    order, answer = cluster.peer.answers()
    assert order >= ACCEPTOR_IDS_FROM
    assert answer == asked


def test_an_order_is_given_again_to_a_shard_that_died(cluster: Cluster) -> None:
    cluster.commit_one()
    cluster.ordered.clear()
    cluster.peer.sock.close()
    cluster.bench.turn(3)
    cluster.peer = Peer(cluster.bench)
    begins = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    assert cluster.ask(begins).error_code == E.CONCURRENT_TRANSACTIONS
    cluster.pass_ms(RETRY_MS)
    assert cluster.answers() == {}
    cluster.write_markers()
    cluster.answers()
    assert cluster.ask(begins).error_code == E.NONE


def test_the_next_transaction_waits_for_the_markers_and_no_longer(cluster: Cluster) -> None:
    cluster.commit_one()
    partition, offsets = cluster.add(), cluster.add_offsets()
    commit = cluster.send(
        TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=cluster.producer.id,
            producer_epoch=cluster.producer.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="a", partitions=[TxnOffsetCommitRequestPartition(committed_offset=1)]
                )
            ],
        )
    )
    assert cluster.answers() == {}
    assert cluster.end().error_code == E.NONE, "the same, again"
    cluster.write_markers()
    answers = cluster.answers()
    assert list(answers) == [partition, offsets, commit], "in their order"
    assert added(answers[partition]) == E.NONE
    assert read("AddOffsetsToTxn", answers[offsets]).error_code == E.NONE
    [topic] = read("TxnOffsetCommit", answers[commit]).topics
    assert topic.partitions[0].error_code == E.NONE
    txn = cluster.bench.server._coordinator.transactions.get("t")
    assert txn is not None
    assert (txn.state, len(txn.partitions), len(txn.groups)) == ("Ongoing", 1, 1)


def test_a_request_gets_concurrent_transactions_after_waiting_for_100_ms(cluster: Cluster) -> None:
    cluster.commit_one()
    asked = cluster.add()
    cluster.bench.turn(3)
    cluster.pass_ms(WAIT_MS - 1)
    assert cluster.answers() == {}
    cluster.pass_ms(1)
    assert added(cluster.answers()[asked]) == E.CONCURRENT_TRANSACTIONS
    cluster.write_markers()
    cluster.bench.turn(3)
    assert cluster.add_now() == E.NONE


def test_the_loop_wakes_for_requests_that_wait(cluster: Cluster) -> None:
    cluster.commit_one()
    cluster.write_markers()
    cluster.bench.turn(3)
    cluster.commit_one()
    cluster.ordered.clear()  # Its answer is far.
    cluster.add()
    cluster.bench.turn(3)
    assert cluster.bench.server._alarm_ms == cluster.bench.now.monotonic_ms + WAIT_MS


def test_the_question_of_a_shard_for_a_produce_waits_too(cluster: Cluster) -> None:
    cluster.commit_one()
    [number] = cluster.bench.published[-1].by_name["a"].partition_numbers
    question = AddPartitions("t", *cluster.producer, [number], 0)
    cluster.peer._frame_id += 1
    cluster.peer._send(encode_question(cluster.peer._frame_id, question))
    assert cluster.answers() == {}
    cluster.write_markers()
    [body] = cluster.answers().values()
    assert decode_answer(AddPartitions, body) == [E.NONE]


def test_the_next_request_is_refused_at_once_if_too_many_wait(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "WAITING_MAX", 1)
    cluster.commit_one()
    cluster.add()
    asked = cluster.add()
    assert added(cluster.answers()[asked]) == E.CONCURRENT_TRANSACTIONS
    [number] = cluster.bench.published[-1].by_name["a"].partition_numbers
    told = cluster.peer.command(AddPartitions("t", *cluster.producer, [number], 0))
    assert decode_answer(AddPartitions, told) == [E.CONCURRENT_TRANSACTIONS]


def test_a_process_that_died_while_it_waited_adds_nothing(cluster: Cluster) -> None:
    other = Peer(cluster.bench)
    cluster.commit_one()
    cluster.add(other)
    cluster.bench.turn(3)
    other.sock.close()
    cluster.bench.turn(3)
    cluster.write_markers()
    cluster.bench.turn(3)
    txn = cluster.bench.server._coordinator.transactions.get("t")
    assert txn is not None
    assert txn.state == "CompleteCommit"


def test_a_producer_that_begins_does_not_wait(cluster: Cluster) -> None:
    cluster.commit_one()
    begun = cluster.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000))
    assert begun.error_code == E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("body", [b"", b"\x7f", b"\xff\xff"])
def test_a_transactional_id_that_is_cut_closes_the_connection(
    cluster: Cluster, body: bytes
) -> None:
    asked = cluster.peer.relay(b"\x00\x18\x00\x00\x00\x00\x00\x01\xff\xff" + body)
    assert cluster.answers() == {asked: b""}
