"""The one table of APIs: from it come dispatch, the ApiVersions answer and docs/api_versions.md.

SHARD       every node answers it itself
COORDINATOR a node relays it, as it came, to the coordinator, which answers from the same table
KERNEL      Produce: parsed, appended and answered by shm.kernels.request.produce
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import ModuleType
from typing import Any

from gateway.apis import (
    acls,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    large_fetch,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    session_fetch,
    sync_group,
    update_features,
)
from gateway.apis.bounds import (
    GROUP,
    NAMED,
    PARTITIONS,
    SMALL,
    WHOLE,
    WHOLE_ELEMENTS_MAX,
    Bounds,
    Cut,
    MiB,
    answered_in_parts,
    listing,
)
from gateway.apis.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    list_transactions,
    txn_offset_commit,
)
from smq.wire.api import API_BY_NAME
from smq.wire.generated import (
    add_offsets_to_txn as add_offsets_to_txn_codec,
    add_partitions_to_txn as add_partitions_to_txn_codec,
    alter_configs as alter_configs_codec,
    alter_partition_reassignments as alter_partition_reassignments_codec,
    alter_replica_log_dirs as alter_replica_log_dirs_codec,
    api_versions as api_versions_codec,
    create_acls as create_acls_codec,
    create_partitions as create_partitions_codec,
    create_topics as create_topics_codec,
    delete_acls as delete_acls_codec,
    delete_groups as delete_groups_codec,
    delete_records as delete_records_codec,
    delete_topics as delete_topics_codec,
    describe_acls as describe_acls_codec,
    describe_cluster as describe_cluster_codec,
    describe_configs as describe_configs_codec,
    describe_groups as describe_groups_codec,
    describe_log_dirs as describe_log_dirs_codec,
    describe_quorum as describe_quorum_codec,
    describe_topic_partitions as describe_topic_partitions_codec,
    describe_transactions as describe_transactions_codec,
    elect_leaders as elect_leaders_codec,
    end_txn as end_txn_codec,
    fetch as fetch_codec,
    find_coordinator as find_coordinator_codec,
    heartbeat as heartbeat_codec,
    incremental_alter_configs as incremental_alter_configs_codec,
    init_producer_id as init_producer_id_codec,
    join_group as join_group_codec,
    leave_group as leave_group_codec,
    list_config_resources as list_config_resources_codec,
    list_groups as list_groups_codec,
    list_offsets as list_offsets_codec,
    list_partition_reassignments as list_partition_reassignments_codec,
    list_transactions as list_transactions_codec,
    metadata as metadata_codec,
    offset_commit as offset_commit_codec,
    offset_delete as offset_delete_codec,
    offset_fetch as offset_fetch_codec,
    offset_for_leader_epoch as offset_for_leader_epoch_codec,
    produce as produce_codec,
    sync_group as sync_group_codec,
    txn_offset_commit as txn_offset_commit_codec,
    update_features as update_features_codec,
)

NO_AUTHORIZER = "all: there is no authorizer, as in Kafka by default"


class Where(Enum):
    """Which process answers an API."""

    KERNEL = "kernel"
    SHARD = "shard"
    COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Api:
    """One row of the table: key and versions come from the codecs.

    `in_parts` makes the steps of a request that is too large to be handled whole, where the parts
    are not independent of each other.
    """

    name: str
    where: Where
    codec: ModuleType
    handle: Callable[..., Any] | None
    left_out: str = ""
    bounds: Bounds = SMALL
    in_parts: Callable[..., Any] | None = None

    @cached_property
    def key(self) -> int:
        return API_BY_NAME[self.name].key

    @cached_property
    def versions(self) -> range:
        facts = API_BY_NAME[self.name]
        return range(facts.first_version, facts.last_version + 1)

    @cached_property
    def advertised(self) -> tuple[int, int, int]:
        first = 0 if self.where is Where.KERNEL else self.versions.start
        return self.key, first, self.versions.stop - 1

    @cached_property
    def read_request(self) -> Callable[..., Any]:
        return getattr(self.codec, f"read_{self._snake()}_request")  # type: ignore[no-any-return]

    @cached_property
    def write_response(self) -> Callable[..., Any]:
        return getattr(self.codec, f"write_{self._snake()}_response")  # type: ignore[no-any-return]

    def cut(self, version: int) -> Cut | None:
        """How a version is answered in parts, if it ever is."""
        return next((each for each in self.bounds.cuts if version >= each.first_version), None)

    def _snake(self) -> str:
        return self.codec.__name__.rpartition(".")[2]


def _advertised() -> list[tuple[int, int, int]]:
    return [api.advertised for api in APIS]


APIS: tuple[Api, ...] = (
    Api(
        "Produce",
        Where.KERNEL,
        produce_codec,
        None,
        "0-2: advertised and refused, as Kafka does",
        Bounds(2**31 - 1, 0),  # The kernel looks at socket.request.max.bytes and its plan's rows.
    ),
    Api(
        "Fetch",
        Where.SHARD,
        fetch_codec,
        session_fetch.handle,
        "follower fetching",
        # A session begins with all of its partitions, and names may have 249 bytes.
        listing(Cut(0, PARTITIONS, ("responses", "partitions")), bytes_max=4 * MiB),
        large_fetch.steps,
    ),
    Api(
        "ListOffsets",
        Where.SHARD,
        list_offsets_codec,
        list_offsets.handle,
        "",
        NAMED,
        list_offsets.steps,
    ),
    Api(
        "Metadata",
        Where.SHARD,
        metadata_codec,
        metadata.handle,
        "",
        listing(Cut(0, ("topics",), PARTITIONS)),
    ),
    Api("OffsetCommit", Where.COORDINATOR, offset_commit_codec, offset_commit.handle, "", NAMED),
    Api(
        "OffsetFetch",
        Where.COORDINATOR,
        offset_fetch_codec,
        offset_fetch.handle,
        "",
        listing(
            Cut(8, ("groups", "topics", "partition_indexes"), ("groups", *PARTITIONS)),
            Cut(0, ("topics", "partition_indexes"), PARTITIONS),
        ),
    ),
    Api(
        "FindCoordinator",
        Where.COORDINATOR,
        find_coordinator_codec,
        find_coordinator.handle,
        "share groups",
        listing(Cut(4, ("coordinator_keys",), ("coordinators",)), elements_max=10_000),
    ),
    Api("JoinGroup", Where.COORDINATOR, join_group_codec, join_group.handle, "", GROUP),
    Api("Heartbeat", Where.COORDINATOR, heartbeat_codec, heartbeat.handle),
    Api("LeaveGroup", Where.COORDINATOR, leave_group_codec, leave_group.handle, "", GROUP),
    Api("SyncGroup", Where.COORDINATOR, sync_group_codec, sync_group.handle, "", GROUP),
    Api(
        "DescribeGroups",
        Where.COORDINATOR,
        describe_groups_codec,
        describe_groups.handle,
        "",
        listing(Cut(0, ("groups",), ("groups",)), elements_max=10_000),
    ),
    Api(
        "ListGroups",
        Where.COORDINATOR,
        list_groups_codec,
        list_groups.handle,
        "",
        Bounds(SMALL.bytes_max, WHOLE_ELEMENTS_MAX, (Cut(0, (), ("groups",)),)),
    ),
    Api(
        "ApiVersions",
        Where.SHARD,
        api_versions_codec,
        lambda request, context: api_versions.handle(request, context, _advertised()),
        "features",
    ),
    Api(
        "CreateTopics",
        Where.COORDINATOR,
        create_topics_codec,
        create_topics.handle,
        "replication factors above 1, quotas",
        answered_in_parts("topics"),
    ),
    Api(
        "DeleteTopics",
        Where.COORDINATOR,
        delete_topics_codec,
        delete_topics.handle,
        "quotas",
        answered_in_parts("responses"),
    ),
    Api(
        "DeleteRecords",
        Where.SHARD,
        delete_records_codec,
        delete_records.handle,
        "",
        listing(Cut(0, PARTITIONS, PARTITIONS, delete_records.PORTION_MAX)),
    ),
    Api(
        "InitProducerId",
        Where.COORDINATOR,
        init_producer_id_codec,
        init_producer_id.handle,
        "two-phase commit (6, KIP-939)",
    ),
    Api(
        "OffsetForLeaderEpoch",
        Where.SHARD,
        offset_for_leader_epoch_codec,
        offset_for_leader_epoch.handle,
        "",
        NAMED,
    ),
    Api(
        "AddPartitionsToTxn",
        Where.COORDINATOR,
        add_partitions_to_txn_codec,
        add_partitions_to_txn.handle,
        "",
        listing(
            Cut(
                4,
                ("transactions", "topics", "partitions"),
                ("results_by_transaction", "topic_results", "results_by_partition"),
            ),
            Cut(
                0,
                ("v3_and_below_topics", "partitions"),
                ("results_by_topic_v3_and_below", "results_by_partition"),
            ),
        ),
    ),
    Api(
        "AddOffsetsToTxn",
        Where.COORDINATOR,
        add_offsets_to_txn_codec,
        add_offsets_to_txn.handle,
    ),
    Api("EndTxn", Where.COORDINATOR, end_txn_codec, end_txn.handle),
    Api(
        "TxnOffsetCommit",
        Where.COORDINATOR,
        txn_offset_commit_codec,
        txn_offset_commit.handle,
        "",
        NAMED,
    ),
    Api("DescribeAcls", Where.SHARD, describe_acls_codec, acls.describe, NO_AUTHORIZER),
    Api("CreateAcls", Where.SHARD, create_acls_codec, acls.create, NO_AUTHORIZER, WHOLE),
    Api("DeleteAcls", Where.SHARD, delete_acls_codec, acls.delete, NO_AUTHORIZER, WHOLE),
    Api(
        "DescribeConfigs",
        Where.COORDINATOR,
        describe_configs_codec,
        describe_configs.handle,
        "loggers, client metrics, groups",
        answered_in_parts("results"),
    ),
    Api(
        "AlterConfigs",
        Where.COORDINATOR,
        alter_configs_codec,
        alter_configs.handle,
        "brokers, loggers, client metrics, groups",
        answered_in_parts("responses"),
    ),
    Api(
        "AlterReplicaLogDirs",
        Where.SHARD,
        alter_replica_log_dirs_codec,
        alter_replica_log_dirs.handle,
        "moves: there is one directory",
        WHOLE,
    ),
    Api(
        "DescribeLogDirs",
        Where.SHARD,
        describe_log_dirs_codec,
        describe_log_dirs.handle,
        "",
        answered_in_parts("results", "topics", "partitions"),
    ),
    Api(
        "CreatePartitions",
        Where.COORDINATOR,
        create_partitions_codec,
        create_partitions.handle,
        "quotas",
        answered_in_parts("results"),
    ),
    Api(
        "DeleteGroups",
        Where.COORDINATOR,
        delete_groups_codec,
        delete_groups.handle,
        "",
        listing(Cut(0, ("groups_names",), ("results",), 50), elements_max=10_000),
    ),
    Api(
        "ElectLeaders",
        Where.SHARD,
        elect_leaders_codec,
        elect_leaders.handle,
        "",
        listing(
            Cut(
                0,
                ("topic_partitions", "partitions"),
                ("replica_election_results", "partition_result"),
            ),
            elements_max=5000,  # Each is answered with a sentence.
        ),
    ),
    Api(
        "IncrementalAlterConfigs",
        Where.COORDINATOR,
        incremental_alter_configs_codec,
        alter_configs.handle_incremental,
        "brokers, loggers, client metrics, groups",
        answered_in_parts("responses"),
    ),
    Api(
        "AlterPartitionReassignments",
        Where.SHARD,
        alter_partition_reassignments_codec,
        alter_partition_reassignments.handle,
        "moves: a partition stays on its log",
        WHOLE,
    ),
    Api(
        "ListPartitionReassignments",
        Where.SHARD,
        list_partition_reassignments_codec,
        list_partition_reassignments.handle,
        "",
        WHOLE,
    ),
    Api(
        "OffsetDelete",
        Where.COORDINATOR,
        offset_delete_codec,
        offset_delete.handle,
        "",
        NAMED,
    ),
    Api(
        "DescribeQuorum",
        Where.SHARD,
        describe_quorum_codec,
        describe_quorum.handle,
        "a quorum: one node keeps the metadata",
        WHOLE,
    ),
    Api(
        "UpdateFeatures",
        Where.SHARD,
        update_features_codec,
        update_features.handle,
        "features: there are none to choose",
        WHOLE,
    ),
    Api("DescribeCluster", Where.SHARD, describe_cluster_codec, describe_cluster.handle),
    Api(
        "DescribeTransactions",
        Where.COORDINATOR,
        describe_transactions_codec,
        describe_transactions.handle,
        "",
        listing(Cut(0, ("transactional_ids",), ("transaction_states",), 50), elements_max=10_000),
    ),
    Api(
        "ListTransactions",
        Where.COORDINATOR,
        list_transactions_codec,
        list_transactions.handle,
        "patterns (2)",
        Bounds(SMALL.bytes_max, WHOLE_ELEMENTS_MAX, (Cut(0, (), ("transaction_states",)),)),
    ),
    Api(
        "ListConfigResources",
        Where.SHARD,
        list_config_resources_codec,
        list_config_resources.handle,
        "",
        Bounds(SMALL.bytes_max, WHOLE_ELEMENTS_MAX, (Cut(0, (), ("config_resources",)),)),
    ),
    Api(
        "DescribeTopicPartitions",
        Where.SHARD,
        describe_topic_partitions_codec,
        describe_topic_partitions.handle,
        "",
        answered_in_parts(*PARTITIONS),
    ),
)

API_BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
assert list(API_BY_KEY) == sorted(API_BY_KEY)
assert len(API_BY_KEY) == len(APIS)
