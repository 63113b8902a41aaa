"""The cluster: what is seen of it, and what tools change."""

from typing import Any
from uuid import UUID

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
from smq.wire.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.describe_cluster import DescribeClusterRequest
from smq.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from smq.wire.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from smq.wire.generated.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from smq.wire.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from smq.wire.generated.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from smq.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from smq.wire.generated.push_telemetry import PushTelemetryRequest
from smq.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from smq.wire.generated.sasl_handshake import SaslHandshakeRequest
from smq.wire.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.oracle.plain import own
from tests.oracle.rights import asked
from tests.oracle.rights.cell import Cell

PREFERRED = 0
SHA_256 = 1
METADATA_LOG = "__cluster_metadata"


@asked("ApiVersions")
def versions(cell: Cell) -> None:
    def trim(answer: Any) -> None:
        answer.api_keys = []
        for name in ("supported_features", "finalized_features"):
            setattr(answer, name, [])

    cell.ask(
        "after the login",
        ApiVersionsRequest(client_software_name="x", client_software_version="1"),
        trim=trim,
    )


@asked("SaslHandshake")
def handshakes(cell: Cell) -> None:
    cell.ask("after the login", SaslHandshakeRequest(mechanism="PLAIN"))


@asked("SaslAuthenticate")
def logins(cell: Cell) -> None:
    cell.ask("after the login", SaslAuthenticateRequest(auth_bytes=b"\0super\0super-secret"))


@asked("DescribeCluster")
def described(cell: Cell) -> None:
    def trim(answer: Any) -> None:
        answer.brokers, answer.cluster_id, answer.controller_id = [], "", -1

    cell.ask("without operations", DescribeClusterRequest(), trim=trim)
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    cell.ask("with operations", request, trim=trim)
    if cell.version:
        cell.ask("controllers", DescribeClusterRequest(endpoint_type=2), trim=trim)


@asked("DescribeLogDirs")
def directories(cell: Cell) -> None:
    def trim(answer: Any) -> None:
        for directory in answer.results:
            directory.log_dir = ""
            directory.total_bytes = directory.usable_bytes = 0
            directory.topics = own(directory.topics, "name", cell.own())

    topics = [DescribableLogDirTopic(topic=each, partitions=[0]) for each in cell.all()]
    cell.ask("all", DescribeLogDirsRequest(topics=topics), trim=trim)
    cell.ask("everything", DescribeLogDirsRequest(topics=None), trim=trim)


@asked("AlterReplicaLogDirs")
def other_directories(cell: Cell) -> None:
    topics = [AlterReplicaLogDirTopic(name=each, partitions=[0]) for each in cell.all()]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/no/such", topics=topics)])
    cell.ask("all", request)


@asked("ElectLeaders")
def elections(cell: Cell) -> None:
    def mine(answer: Any) -> None:
        answer.replica_election_results = own(answer.replica_election_results, "topic", cell.own())

    topics = [TopicPartitions(topic=each, partitions=[0]) for each in cell.all()]
    for step, asked_for in (("all", topics), ("everything", None)):
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=asked_for, timeout_ms=5000
        )
        cell.ask(step, request, trim=mine)


@asked("AlterPartitionReassignments")
def moves(cell: Cell) -> None:
    place = [ReassignablePartition(partition_index=0, replicas=[1])]
    topics = [ReassignableTopic(name=each, partitions=place) for each in cell.all()]
    cell.ask("all", AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics))


@asked("ListPartitionReassignments")
def moving(cell: Cell) -> None:
    topics = [
        ListPartitionReassignmentsTopics(name=each, partition_indexes=[0]) for each in cell.all()
    ]
    cell.ask("all", ListPartitionReassignmentsRequest(timeout_ms=5000, topics=topics))
    cell.ask("everything", ListPartitionReassignmentsRequest(timeout_ms=5000, topics=None))


@asked("DescribeQuorum")
def quorum(cell: Cell) -> None:
    def trim(answer: Any) -> None:
        answer.nodes = []
        for topic in answer.topics:
            for each in topic.partitions:
                each.current_voters, each.observers = [], []
                each.high_watermark = each.leader_epoch = 0

    place = [DescribeQuorumRequestPartitionData(partition_index=0)]
    topics = [DescribeQuorumRequestTopicData(topic_name=METADATA_LOG, partitions=place)]
    cell.ask("the cluster's log", DescribeQuorumRequest(topics=topics), trim=trim)


@asked("UpdateFeatures")
def features(cell: Cell) -> None:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=2)
    request = UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[update])
    cell.ask("the level that it has", request)


@asked("DescribeUserScramCredentials")
def users(cell: Cell) -> None:
    asked_for = [UserName(name="nobody")]
    cell.ask("nobody", DescribeUserScramCredentialsRequest(users=asked_for))


@asked("AlterUserScramCredentials")
def changed_users(cell: Cell) -> None:
    gone = ScramCredentialDeletion(name=cell.own(), mechanism=SHA_256)
    one = ScramCredentialUpsertion(
        name=cell.own(), mechanism=SHA_256, iterations=4096, salt=b"s", salted_password=b"p"
    )
    cell.ask("a deletion of nobody", AlterUserScramCredentialsRequest(deletions=[gone]))
    cell.ask("one", AlterUserScramCredentialsRequest(upsertions=[one]))
    answer = cell.quietly(AlterUserScramCredentialsRequest(deletions=[gone]), 0)
    cell.note("one: made", not answer.results[0].error_code)
    cell.ask("none", AlterUserScramCredentialsRequest())


@asked("GetTelemetrySubscriptions")
def subscriptions(cell: Cell) -> None:
    instance = UUID(int=0x73_0000 + cell.turn)
    request = GetTelemetrySubscriptionsRequest(client_instance_id=instance)
    cell.ask("with an id", request, trim=_without_id)


def _without_id(answer: Any) -> None:
    answer.client_instance_id, answer.subscription_id = UUID(int=0), 0


@asked("PushTelemetry")
def pushes(cell: Cell) -> None:
    instance = UUID(int=0x74_0000 + cell.turn)
    request = PushTelemetryRequest(client_instance_id=instance, subscription_id=7)
    cell.ask("an unknown subscription", request)
