"""Names of the system: what each API says of `__consumer_offsets` and `__transaction_state`.

Kafka makes them when they are first wanted, so each dialogue begins a transactional producer.
"""

from typing import Any

from smq.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from smq.wire.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from smq.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from smq.wire.generated.describe_configs import DescribeConfigsResponse
from smq.wire.generated.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from smq.wire.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from smq.wire.generated.describe_transactions import DescribeTransactionsRequest
from smq.wire.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from smq.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from smq.wire.generated.produce import PartitionProduceData, ProduceRequest
from smq.wire.generated.write_txn_markers import WriteTxnMarkersRequest
from tests.oracle.batches import batch
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.hanging import describing, in_order, markers_in_order, marking
from tests.oracle.dialogues.produce import named
from tests.oracle.dialogues.topics import TOPIC, ask, creation, description, topic
from tests.oracle.dialogues.transactions import (
    END,
    OFFSETS as JOINS,
    Who,
    adding,
    begin,
    committing,
    ending,
    find,
    in_order as in_order_of_adding,
    partitions,
    settled,
)
from tests.oracle.talk import Talk

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
LEAST_CONFIGS = ["cleanup.policy", "compression.type", "segment.bytes"]


def make_them(talk: Talk) -> None:
    """Kafka's warm-up has made the one, a transactional producer makes the other."""
    find(talk, talk.own())
    talk.settle(TRANSACTIONS, 50)


def epoch_of(talk: Talk) -> int:
    """The leader epoch of partition 7 of the transactions, as Metadata says."""
    topics = [MetadataRequestTopic(name=TRANSACTIONS)]
    answer = talk.quietly(MetadataRequest(topics=topics), 7)
    found = {each.partition_index: each for each in answer.topics[0].partitions}
    return int(found[7].leader_epoch)


@dialogue("Metadata", since=1)
def of_internal_topics(talk: Talk) -> None:
    make_them(talk)

    def trim(answer: MetadataResponse) -> None:
        answer.brokers = []
        for each in answer.topics:
            each.partitions = each.partitions[49:]
            for partition in each.partitions:
                partition.leader_epoch = -1

    topics = [MetadataRequestTopic(name=TRANSACTIONS)]
    talk.ask("created on demand", MetadataRequest(topics=topics), trim=trim)
    if talk.version >= 4:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        talk.ask("not created on demand", request, trim=trim)


@dialogue("DescribeTopicPartitions")
def of_internal_topics_too(talk: Talk) -> None:
    make_them(talk)

    def trim(answer: DescribeTopicPartitionsResponse) -> None:
        for each in answer.topics:
            each.partitions = each.partitions[49:]
            for partition in each.partitions:
                partition.leader_epoch = -1

    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TRANSACTIONS)])
    talk.ask("one", request, trim=trim)


@dialogue("DescribeConfigs")
def of_internal_ones(talk: Talk) -> None:
    make_them(talk)

    def trim(answer: DescribeConfigsResponse) -> None:
        for result in answer.results:
            result.configs = sorted(result.configs, key=lambda each: each.name)

    for name in (OFFSETS, TRANSACTIONS):
        talk.ask(name, description(TOPIC, name, LEAST_CONFIGS), trim=trim)


@dialogue("CreateTopics")
def internal(talk: Talk) -> None:
    make_them(talk)
    names = (OFFSETS, TRANSACTIONS, talk.own("not-internal"))
    ask(talk, "with one that is not", creation(*map(topic, names)))


@dialogue("Produce", since=3)
def to_internal_topics(talk: Talk) -> None:
    make_them(talk)
    for name in (OFFSETS, TRANSACTIONS):
        data: list[Any] = [PartitionProduceData(index=0, records=batch(b"v"))]
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[named(talk, name, data)])
        talk.ask(name, request)


@dialogue("DeleteRecords")
def of_internal_topics_as_well(talk: Talk) -> None:
    make_them(talk)
    partitions = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    topics = [DeleteRecordsTopic(name=OFFSETS, partitions=partitions)]
    talk.ask("offsets", DeleteRecordsRequest(topics=topics, timeout_ms=5000))


@dialogue("DescribeProducers")
def of_internal(talk: Talk) -> None:
    """In Kafka's partitions there may be producers, by markers of another dialogue."""
    make_them(talk)

    def trim(answer: Any) -> None:
        in_order(answer)
        for each in answer.topics[0].partitions:
            each.active_producers = ()

    talk.ask("transactions", describing((TRANSACTIONS, [0, 49])), trim=trim)
    talk.ask("no such partition", describing((TRANSACTIONS, [50])))


@dialogue("ElectLeaders")
def of_all_and_internal(talk: Talk) -> None:
    """A request for all partitions is answered with each topic."""
    make_them(talk)
    name = talk.make_topic()
    those = {name, OFFSETS, TRANSACTIONS}

    def trim(answer: ElectLeadersResponse) -> None:
        rows = [each for each in answer.replica_election_results if each.topic in those]
        answer.replica_election_results = sorted(rows, key=lambda each: each.topic)

    internal = [TopicPartitions(topic=TRANSACTIONS, partitions=[0, 49, 50])]
    talk.ask("internal", ElectLeadersRequest(topic_partitions=internal, timeout_ms=5000))
    talk.ask("all", ElectLeadersRequest(topic_partitions=None, timeout_ms=5000), trim=trim)
    if talk.version >= 1:
        unclean = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=5000)
        talk.ask("all, unclean", unclean, trim=trim)


@dialogue("WriteTxnMarkers")
def in_internal_topics(talk: Talk) -> None:
    make_them(talk)
    who = begin(talk)
    for name in (OFFSETS, TRANSACTIONS):
        asked = [marking(who, (name, [0]))]
        talk.ask(name, WriteTxnMarkersRequest(markers=asked), trim=markers_in_order)
    asked = [marking(who, (TRANSACTIONS, [50]))]
    talk.ask("no such partition", WriteTxnMarkersRequest(markers=asked))
    nobody = [marking(Who("", -1, -1), (TRANSACTIONS, [0]))]
    talk.ask("of no producer", WriteTxnMarkersRequest(markers=nobody))


@dialogue("AddPartitionsToTxn", until=3)
def internal_ones(talk: Talk) -> None:
    make_them(talk)
    topic = talk.make_topic()
    who = begin(talk)

    def described(step: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[who.name])
        answer = talk.quietly(request, 0)
        [state] = answer.transaction_states
        those = sorted((each.topic, list(each.partitions)) for each in state.topics)
        names = [[name.replace(talk.own(), "~"), indexes] for name, indexes in those]
        talk.note(step, [state.transaction_state, names])

    def ask(step: str, *topics: Any) -> None:
        talk.ask(step, adding(who, list(topics)), trim=in_order_of_adding)

    ask("offsets", *partitions(OFFSETS, 0))
    ask("transactions", *partitions(TRANSACTIONS, 49))
    described("both have joined")
    ask("with one of a user", *partitions(OFFSETS, 0), *partitions(topic, 0))
    ask("one that is not there", *partitions(OFFSETS, 50), *partitions(topic, 0))
    described("all have joined")
    talk.ask("the end", ending(who), version=END)
    settled(talk, who)
    described("it has ended")


@dialogue("AddPartitionsToTxn", since=4)
def internal_ones_by_brokers(talk: Talk) -> None:
    make_them(talk)
    who = begin(talk)
    for name in (OFFSETS, TRANSACTIONS):
        talk.ask(name, adding(who, partitions(name, 0)))


@dialogue("AlterPartitionReassignments")
def of_internal_partitions(talk: Talk) -> None:
    make_them(talk)

    def ask(step: str, index: int, replicas: list[int] | None) -> None:
        rows = [ReassignablePartition(partition_index=index, replicas=replicas)]
        topics = [ReassignableTopic(name=TRANSACTIONS, partitions=rows)]
        talk.ask(step, AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=topics))

    ask("where it is", 0, [1])
    ask("a cancellation", 0, None)
    ask("an unknown broker", 0, [99])
    ask("no such partition", 50, [1])


@dialogue("DescribeLogDirs", also=(2,))
def of_internal_logs(talk: Talk) -> None:
    make_them(talk)

    def trim(answer: DescribeLogDirsResponse) -> None:
        for result in answer.results:
            result.log_dir = "<directory>"
            if result.total_bytes >= 0:
                result.total_bytes = result.usable_bytes = 0
            kept = [each for each in result.topics if each.name in {OFFSETS, TRANSACTIONS}]
            result.topics = sorted(kept, key=lambda each: each.name)
            for each in result.topics:
                rows = sorted(each.partitions, key=lambda one: one.partition_index)
                each.partitions = rows[:1] if each.name == OFFSETS else rows  # Kafka has one here.
                for one in each.partitions:
                    one.partition_size = 0

    topics = [DescribableLogDirTopic(topic=TRANSACTIONS, partitions=[0, 49, 50])]
    talk.ask("two", DescribeLogDirsRequest(topics=topics), trim=trim)
    talk.ask("all", DescribeLogDirsRequest(topics=None), trim=trim)


@dialogue("OffsetForLeaderEpoch")
def of_internal_epochs(talk: Talk) -> None:
    """Kafka's partitions have records, ours have none."""
    make_them(talk)
    current_epoch = epoch_of(talk)

    def trim(answer: Any) -> None:
        [row] = answer.topics[0].partitions
        row.end_offset = min(row.end_offset, 0)
        row.leader_epoch = min(row.leader_epoch, row.leader_epoch - current_epoch)

    def ask(step: str, epoch: int, current: int = -1, index: int = 7) -> None:
        row = OffsetForLeaderPartition(
            partition=index, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [OffsetForLeaderTopic(topic=TRANSACTIONS, partitions=[row])]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        talk.ask(step, request, trim=trim)

    ask("the epoch", current_epoch)
    ask("a later epoch", current_epoch + 5)
    ask("no epoch", -1)
    ask("of the current epoch", current_epoch, current_epoch)
    ask("of a later current epoch", current_epoch, current_epoch + 5)
    ask("no such partition", current_epoch, index=50)


@dialogue("ListOffsets", since=4)
def of_internal_offsets(talk: Talk) -> None:
    """Kafka's partitions have records, ours have none."""
    make_them(talk)
    current_epoch = epoch_of(talk)

    def trim(answer: Any) -> None:
        [row] = answer.topics[0].partitions
        row.offset = min(row.offset, 0)
        row.leader_epoch = min(row.leader_epoch, row.leader_epoch - current_epoch)

    def ask(step: str, timestamp: int, current: int = -1, index: int = 7) -> None:
        row = ListOffsetsPartition(
            partition_index=index, timestamp=timestamp, current_leader_epoch=current
        )
        topics = [ListOffsetsTopic(name=TRANSACTIONS, partitions=[row])]
        talk.ask(step, ListOffsetsRequest(replica_id=-1, topics=topics), trim=trim)

    ask("latest", -1)
    ask("earliest", -2)
    if talk.version >= 8:
        ask("earliest local", -4)
    ask("of the current epoch", -1, current_epoch)
    ask("of a later current epoch", -1, current_epoch + 5)
    ask("no such partition", -1, index=50)


@dialogue("TxnOffsetCommit")
def of_offsets_in_internal_topics(talk: Talk) -> None:
    make_them(talk)
    who = begin(talk)
    joins = AddOffsetsToTxnRequest(
        transactional_id=who.name,
        producer_id=who.id,
        producer_epoch=who.epoch,
        group_id=talk.own(),
    )
    talk.until(joins, lambda answer: not answer.error_code, JOINS)
    talk.ask("offsets", committing(talk, who, OFFSETS, (0, 9)))
    talk.ask("transactions", committing(talk, who, TRANSACTIONS, (49, 9)))
    talk.ask("no such partition", committing(talk, who, TRANSACTIONS, (50, 9)))
    talk.ask("the end", ending(who), version=END)


@dialogue("OffsetDelete")
def of_offsets_of_internal_topics(talk: Talk) -> None:
    make_them(talk)
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name=TRANSACTIONS, partitions=[row])]
    commit = OffsetCommitRequest(
        group_id=talk.own(), generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    talk.ask("a commit", commit, version=7)
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 50)]
    deleted = [OffsetDeleteRequestTopic(name=TRANSACTIONS, partitions=rows)]
    talk.ask("a deletion", OffsetDeleteRequest(group_id=talk.own(), topics=deleted))


@dialogue("AlterReplicaLogDirs")
def of_internal_replicas(talk: Talk) -> None:
    make_them(talk)
    described = talk.quietly(DescribeLogDirsRequest(topics=None), 2)
    topics = [AlterReplicaLogDirTopic(name=TRANSACTIONS, partitions=[0])]
    paths = {"where it is": described.results[0].log_dir, "elsewhere": "/no/such/directory"}
    for step, path in paths.items():
        wanted = [AlterReplicaLogDir(path=path, topics=topics)]
        talk.ask(step, AlterReplicaLogDirsRequest(dirs=wanted))


@dialogue("Fetch", since=9, until=12)
def of_internal_records(talk: Talk) -> None:
    make_them(talk)
    current_epoch = epoch_of(talk)

    def ask(step: str, epoch: int, index: int = 7) -> None:
        def trim(answer: Any) -> None:
            [row] = answer.responses[0].partitions
            row.high_watermark = min(row.high_watermark, 0)
            row.last_stable_offset = min(row.last_stable_offset, 0)
            row.records = b""  # Kafka has some.
            row.aborted_transactions = []

        row = FetchPartition(
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=0,
            partition_max_bytes=1_000_000,
        )
        topics = [FetchTopic(topic=TRANSACTIONS, partitions=[row])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=topics)
        talk.ask(step, request, trim=trim)

    ask("all of it", -1)
    ask("of the current epoch", current_epoch)
    ask("of a later current epoch", current_epoch + 5)
    ask("no such partition", -1, index=50)
