"""Asks the coordinator of a transactional id: gets the producer's id and epoch, adds partitions,
ends transactions.

Brokers with KIP-890 raise the producer's epoch with each end of a transaction, and return it: a
late batch then meets another epoch. With older ones the epoch stays, and rises after an abort
(KIP-360), because it is unknown which sequences the broker has.
"""

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from smq.client.errors import Act, AuthenticationFailed, BrokerUnavailable, ProducerFenced
from smq.client.kafka.admin import KEY_TYPE_TRANSACTION, coordinator
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.questions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from smq.client.names import GroupOffsets, TopicPartition, by_topic
from smq.client.reach import Reach
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

CONCURRENT_S = 0.01  # Between two checks whether the former transaction has ended.
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# A request to end a transaction that is answered so has done nothing; an earlier one may have.
NOT_ENDED = frozenset(
    {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)

Result = TypeVar("Result")


class ProducerEpoch(NamedTuple):
    """A producer id and its epoch."""

    id: int
    epoch: int


NOBODY = ProducerEpoch(-1, -1)


class TransactionCoordinator:
    """Threads may share it: a lock is held while it asks. Connects when it is first used.

    All methods retry transient errors, and raise ProducerFenced, BrokerError.
    """

    def __init__(self, reach: Reach, transactional_id: str, timeout_ms: int) -> None:
        self._reach, self._name, self._timeout_ms = reach, transactional_id, timeout_ms
        self._act = Act(transactional_id=transactional_id)
        self._clock = reach.clock
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._producer = NOBODY
        self._has_asked = False  # To end the transaction, and has got no answer whether it has.
        self._nodes: dict[str | None, int] = {}  # By group; None: the transactional id's.

    def begin(self) -> ProducerEpoch:
        """Fence the transactional id's former producer, abort its transaction, and get an epoch.

        A later call, while no transaction is open, raises our own epoch, unless another producer
        has the transactional id by now.
        """

        def ask(connection: KafkaConnection) -> ProducerEpoch:
            request = InitProducerIdRequest(
                transactional_id=self._name,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
            )
            response = connection.ask(INIT_PRODUCER_ID, request)
            check(response.error_code, act=self._act)
            return ProducerEpoch(response.producer_id, response.producer_epoch)

        with self._lock:
            self._producer = self._retrying(ask)
            return self._producer

    def add_partitions(self, names: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction."""
        topics = [
            AddPartitionsToTxnTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic(names).items()
        ]

        def ask(connection: KafkaConnection) -> None:
            asked = AddPartitionsToTxnTransaction(
                transactional_id=self._name,
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[asked])
            [result] = connection.ask(ADD_PARTITIONS_TO_TXN, request).results_by_transaction
            codes = [
                (each.partition_error_code, topic.name)
                for topic in result.topic_results
                for each in topic.results_by_partition
            ]
            # The reason comes first.
            codes.sort(key=lambda each: each[0] == ErrorCode.OPERATION_NOT_ATTEMPTED)
            for code, topic_name in codes:
                check(code, act=self._act._replace(verb="write to", topic=topic_name))

        with self._lock:
            self._retrying(ask)

    def commit_offsets(self, group: GroupOffsets) -> None:
        """A group's offsets are committed if and when the transaction is."""

        def add(connection: KafkaConnection) -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=self._name,
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
                group_id=group.group,
            )
            act = self._act._replace(verb="commit offsets of", group=group.group)
            check(connection.ask(ADD_OFFSETS_TO_TXN, request).error_code, act=act)

        def commit(connection: KafkaConnection) -> None:
            response = connection.ask(TXN_OFFSET_COMMIT, self._offsets_request(group))
            for topic in response.topics:
                act = self._act._replace(verb="commit offsets of", group=group.group)
                for each in topic.partitions:
                    check(each.error_code, act=act._replace(topic=topic.name))

        with self._lock:
            self._retrying(add)
            self._retrying(commit, of_group=group.group)

    def _offsets_request(self, group: GroupOffsets) -> TxnOffsetCommitRequest:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=each,
                        committed_offset=group.offsets[TopicPartition(topic, each)],
                        committed_metadata=group.metadata,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(group.offsets).items()
        ]
        return TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=group.group,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=topics,
        )

    def end(self, *, committed: bool) -> ProducerEpoch | None:
        """Commit or abort the transaction; returns the producer's new id and epoch, None:
        unchanged.

        If it raises AuthenticationFailed, no broker was asked, or has refused (NOT_ENDED): the next
        call may ask for either. A code of NOT_ENDED says that this call has not ended it. If it
        raises anything else but ProducerFenced, the outcome is unknown. A second call, which must
        ask for the same, settles it.
        """

        def ask(connection: KafkaConnection) -> ProducerEpoch | None:
            request = EndTxnRequest(
                transactional_id=self._name,
                producer_id=self._producer.id,
                producer_epoch=self._producer.epoch,
                committed=committed,
            )
            had_asked, self._has_asked = self._has_asked, True
            response = connection.ask(END_TXN, request)
            if response.error_code in NOT_ENDED:
                self._has_asked = had_asked
            if response.error_code == ErrorCode.INVALID_TXN_STATE:
                raise ProducerFenced(self._name)  # A transaction is open, and it is not ours.
            check(response.error_code, act=self._act)
            if response.producer_epoch < 0:
                return None
            return ProducerEpoch(response.producer_id, response.producer_epoch)

        with self._lock:
            try:
                found = self._retrying(ask)
            except AuthenticationFailed as refusal:
                if not self._has_asked:
                    raise
                unknown = "it is unknown whether the transaction has ended: its answer is lost, and"
                raise BrokerUnavailable(f"{unknown} {refusal.message}") from refusal
            self._has_asked = False
            self._producer = found or self._producer
            return found

    def _retrying(
        self, ask: Callable[[KafkaConnection], Result], of_group: str | None = None
    ) -> Result:
        """Ask the coordinator of the transactional id, or of a group."""
        if self._cluster is None:
            self._cluster = self._reach.cluster()
        cluster = self._cluster
        deadline_s = self._clock.monotonic_s() + self._reach.deadline_seconds

        def work() -> Result:
            try:
                return ask(self._connection(cluster, of_group))
            except BrokerError:
                self._nodes.clear()  # It may have another coordinator by now.
                raise

        while True:
            try:
                return cluster.retrying(work)
            except BrokerError as error:
                if error.code in FENCED:
                    raise ProducerFenced(self._name) from error
                is_over = self._clock.monotonic_s() >= deadline_s
                if error.code != ErrorCode.CONCURRENT_TRANSACTIONS or is_over:
                    raise
            self._clock.sleep(CONCURRENT_S)

    def _connection(self, cluster: Cluster, group: str | None) -> KafkaConnection:
        if group not in self._nodes:
            self._nodes[group] = (
                coordinator(cluster, self._name, KEY_TYPE_TRANSACTION)
                if group is None
                else coordinator(cluster, group)
            )
        return cluster.broker(self._nodes[group])

    def close(self) -> None:
        """Close the connections; in a forked process its copies."""
        if self._cluster is not None:
            self._cluster.close()
