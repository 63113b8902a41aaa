"""Somebody who has logged in and may read and write all topics, and nothing else.

It uses groups and transactional ids of others, and asks for changes of the cluster. Each of its
requests is refused by the right that it lacks, whatever else is wrong with it, and changes nothing:
`rules.py`, the administrator and those whose groups and ids it uses look for what it has done.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from smq.model.errors import ErrorCode
from smq.security.acls import CLUSTER_NAME, Operation, ResourcePattern, ResourceType
from smq.testing.simulation.clients import MOVED, Answered, Message, SimClient, SimConnection
from smq.testing.simulation.consumer import COMMIT_VERSION, OFFSETS_VERSION
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.guardian import ACLS, SCRAM, creation, deletion
from smq.testing.simulation.ledger import Broken
from smq.testing.simulation.people import INTRUDER, TELLER_WRITES, WORKER, rule
from smq.testing.simulation.transactor import (
    END,
    INIT,
    OF_OFFSETS,
    OFFSETS,
    PLACES,
    PRODUCE,
    TIMEOUT_MS,
    TOPIC,
    TransactionTopics,
    Transactor,
    Who,
    transactional_batch,
)
from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from smq.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from smq.wire.generated.delete_groups import DeleteGroupsRequest
from smq.wire.generated.end_txn import EndTxnRequest
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

INTRUDERS_TOPIC = "intruders"  # It may not create it.
FAR_OFFSET = 1 << 40  # Nobody else commits it.
NOBODY = Who(0, 0)
FIND, CREATE_TOPICS, DELETE_GROUPS = 4, 5, 2  # Versions.
NO_TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_ALL = rule(INTRUDER, Operation.ALL, ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))


class Attempt(NamedTuple):
    """A request that must be refused: `code_of` finds the error in its answer, `place` says where
    a Produce goes."""

    name: str
    version: int
    request: Message
    refusal: ErrorCode
    code_of: Callable[[Message], int]
    place: int | None = None


def _begin(_self: "Intruder", victim: Transactor) -> Attempt:
    request = InitProducerIdRequest(transactional_id=victim.name, transaction_timeout_ms=TIMEOUT_MS)
    return Attempt("InitProducerId", INIT, request, NO_TXN, _error)


def _write(self: "Intruder", victim: Transactor) -> Attempt:
    """A record for the transaction that is open, or as if one was."""
    place = self.chance.randrange(len(PLACES))
    incarnation, partition = TransactionTopics(self.world).of(place)
    value = self.new_value()
    self.world.ledger.sent.setdefault(incarnation.topic.name, set()).add(value)
    now_ms = self.world.clock.wall_ns() // 1_000_000
    data = transactional_batch(incarnation, value, victim.who or NOBODY, now_ms)
    row = PartitionProduceData(index=partition, records=data)
    request = ProduceRequest(
        transactional_id=victim.name,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=incarnation.topic.name, partition_data=[row])],
    )
    return Attempt("Produce", PRODUCE, request, NO_TXN, _error_of_produce, place)


def _add_offset(_self: "Intruder", victim: Transactor) -> Attempt:
    who = victim.who or NOBODY
    row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=FAR_OFFSET)
    request = TxnOffsetCommitRequest(
        transactional_id=victim.name,
        group_id=victim.group,
        producer_id=who.id,
        producer_epoch=who.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
    )
    return Attempt("TxnOffsetCommit", OFFSETS, request, NO_TXN, _error_of_offset)


def _end(self: "Intruder", victim: Transactor) -> Attempt:
    who = victim.who or NOBODY
    request = EndTxnRequest(
        transactional_id=victim.name,
        producer_id=who.id,
        producer_epoch=who.epoch,
        committed=bool(self.chance.randrange(2)),
    )
    return Attempt("EndTxn", END, request, NO_TXN, _error)


def _find(self: "Intruder", victim: Transactor) -> Attempt:
    of_group = self.chance.randrange(2)
    key = victim.group if of_group else victim.name
    request = FindCoordinatorRequest(key_type=0 if of_group else 1, coordinator_keys=[key])
    refusal = NO_GROUP if of_group else NO_TXN
    return Attempt(
        "FindCoordinator", FIND, request, refusal, lambda told: told.coordinators[0].error_code
    )


def _commit(_self: "Intruder", victim: Transactor) -> Attempt:
    partition = PLACES[OF_OFFSETS][1]
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=FAR_OFFSET)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[row])]
    request = OffsetCommitRequest(group_id=victim.group, topics=topics)
    return Attempt("OffsetCommit", COMMIT_VERSION, request, NO_GROUP, _error_of_offset)


def _look(_self: "Intruder", victim: Transactor) -> Attempt:
    groups = [OffsetFetchRequestGroup(group_id=victim.group, topics=None)]
    request = OffsetFetchRequest(groups=groups)
    return Attempt(
        "OffsetFetch", OFFSETS_VERSION, request, NO_GROUP, lambda told: told.groups[0].error_code
    )


def _delete(_self: "Intruder", victim: Transactor) -> Attempt:
    request = DeleteGroupsRequest(groups_names=[victim.group])
    return Attempt(
        "DeleteGroups", DELETE_GROUPS, request, NO_GROUP, lambda told: told.results[0].error_code
    )


def _take_all_rights(_self: "Intruder", _victim: Transactor) -> Attempt:
    return _change_of_rules("CreateAcls", creation(_ALL))


def _take_a_right_away(_self: "Intruder", _victim: Transactor) -> Attempt:
    return _change_of_rules("DeleteAcls", deletion(TELLER_WRITES))


def _change_of_rules(name: str, request: Message) -> Attempt:
    def code_of(told: Message) -> int:
        rows = told.results if name == "CreateAcls" else told.filter_results
        return int(rows[0].error_code)

    return Attempt(name, ACLS, request, NO_CLUSTER, code_of)


def _delete_a_user(_self: "Intruder", _victim: Transactor) -> Attempt:
    deleted = ScramCredentialDeletion(name=WORKER.name, mechanism=WORKER.stored.value)
    request = AlterUserScramCredentialsRequest(deletions=[deleted])
    return Attempt(
        *("AlterUserScramCredentials", SCRAM, request, NO_CLUSTER),
        lambda told: told.results[0].error_code,
    )


def _create(_self: "Intruder", _victim: Transactor) -> Attempt:
    """A topic, for which the right to the cluster would do."""
    wanted = CreatableTopic(name=INTRUDERS_TOPIC, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=1000)
    return Attempt(
        "CreateTopics", CREATE_TOPICS, request, NO_TOPIC, lambda told: told.topics[0].error_code
    )


def _error(told: Message) -> int:
    return int(told.error_code)


def _error_of_produce(told: Message) -> int:
    return int(told.responses[0].partition_responses[0].error_code)


def _error_of_offset(told: Message) -> int:
    return int(told.topics[0].partitions[0].error_code)


INTRUSIONS: tuple[Callable[["Intruder", Transactor], Attempt], ...] = (
    *(_begin, _write, _add_offset, _end, _find),
    *(_commit, _look, _delete),
    *(_take_all_rights, _take_a_right_away, _delete_a_user, _create),
)


class Intruder(SimClient):
    """The client. `values`: of the records that nobody may ever see."""

    def __init__(self, world: Environment, name: str, lane_numbers: Iterator[int]) -> None:
        super().__init__(world, name)
        self.identity = INTRUDER
        self._lane_numbers = lane_numbers
        self.values: set[bytes] = set()

    def intrude(self, which: int, victim: Transactor) -> None:
        """Try one of the intrusions."""
        if not TransactionTopics(self.world).are_there:
            return  # What is unknown is refused by other words, too.
        attempt = INTRUSIONS[which % len(INTRUSIONS)](self, victim)
        connection = self._connection_for(attempt)
        if connection is not None:
            connection.ask(attempt.name, attempt.version, attempt.request, self._judge(attempt))

    def new_value(self) -> bytes:
        """A value of a record."""
        value = b"%d:0:intruder" % next(self._lane_numbers)
        self.values.add(value)
        return value

    def _connection_for(self, attempt: Attempt) -> SimConnection | None:
        """A connection to the leader of what it writes to, or to any node."""
        if attempt.place is None:
            return self.any_connection()
        return self.connection(self.leader_of(*TransactionTopics(self.world).of(attempt.place)))

    def _judge(self, attempt: Attempt) -> Answered:
        """Raises Broken if it is told anything but that it may not."""

        def answered(told: Message) -> None:
            if told is None:
                return
            code = ErrorCode(attempt.code_of(told))
            answer = f"{self.name}: {attempt.name} is answered {code.name}"
            self.world.detail(lambda: answer)
            if attempt.place is not None and code in MOVED:
                self.look_again(*TransactionTopics(self.world).of(attempt.place))
            elif code != attempt.refusal:
                raise Broken(f"{answer} without the right to it")

        return answered
