"""The questions that the SDK asks of brokers: one table, an API in the versions that we speak."""

from collections.abc import Callable
from typing import Generic, TypeVar

from smq.wire.api import API_BY_NAME
from smq.wire.codec import Buffer, Writer
from smq.wire.generated.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    read_add_offsets_to_txn_response,
    write_add_offsets_to_txn_request,
)
from smq.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    read_add_partitions_to_txn_response,
    write_add_partitions_to_txn_request,
)
from smq.wire.generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    read_api_versions_response,
    write_api_versions_request,
)
from smq.wire.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    read_create_partitions_response,
    write_create_partitions_request,
)
from smq.wire.generated.create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    read_create_topics_response,
    write_create_topics_request,
)
from smq.wire.generated.delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    read_delete_groups_response,
    write_delete_groups_request,
)
from smq.wire.generated.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    read_delete_records_response,
    write_delete_records_request,
)
from smq.wire.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    read_delete_topics_response,
    write_delete_topics_request,
)
from smq.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    read_describe_configs_response,
    write_describe_configs_request,
)
from smq.wire.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    read_describe_groups_response,
    write_describe_groups_request,
)
from smq.wire.generated.end_txn import (
    EndTxnRequest,
    EndTxnResponse,
    read_end_txn_response,
    write_end_txn_request,
)
from smq.wire.generated.fetch import (
    FetchRequest,
    FetchResponse,
    read_fetch_response,
    write_fetch_request,
)
from smq.wire.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    read_find_coordinator_response,
    write_find_coordinator_request,
)
from smq.wire.generated.heartbeat import (
    HeartbeatRequest,
    HeartbeatResponse,
    read_heartbeat_response,
    write_heartbeat_request,
)
from smq.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    read_incremental_alter_configs_response,
    write_incremental_alter_configs_request,
)
from smq.wire.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    read_init_producer_id_response,
    write_init_producer_id_request,
)
from smq.wire.generated.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    read_join_group_response,
    write_join_group_request,
)
from smq.wire.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    read_leave_group_response,
    write_leave_group_request,
)
from smq.wire.generated.list_groups import (
    ListGroupsRequest,
    ListGroupsResponse,
    read_list_groups_response,
    write_list_groups_request,
)
from smq.wire.generated.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    read_list_offsets_response,
    write_list_offsets_request,
)
from smq.wire.generated.metadata import (
    MetadataRequest,
    MetadataResponse,
    read_metadata_response,
    write_metadata_request,
)
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    read_offset_commit_response,
    write_offset_commit_request,
)
from smq.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    read_offset_delete_response,
    write_offset_delete_request,
)
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    read_offset_fetch_response,
    write_offset_fetch_request,
)
from smq.wire.generated.produce import (
    ProduceRequest,
    ProduceResponse,
    read_produce_response,
    write_produce_request,
)
from smq.wire.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupResponse,
    read_sync_group_response,
    write_sync_group_request,
)
from smq.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    read_txn_offset_commit_response,
    write_txn_offset_commit_request,
)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Question(Generic[Request, Response]):
    """An API as the SDK uses it: how to write a request and read an answer, up to which version.

    `version_max` is by default the newest version that SMQ itself knows.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Request, int, Writer], None],
        read: Callable[[Buffer, int, int], Response],
        version_max: int | None = None,
    ) -> None:
        self.api = API_BY_NAME[name]
        self.write = write
        self.read = read
        self.version_max = self.api.last_version if version_max is None else version_max


API_VERSIONS = Question[ApiVersionsRequest, ApiVersionsResponse](
    "ApiVersions", write_api_versions_request, read_api_versions_response
)
METADATA = Question[MetadataRequest, MetadataResponse](
    "Metadata", write_metadata_request, read_metadata_response
)
CREATE_TOPICS = Question[CreateTopicsRequest, CreateTopicsResponse](
    "CreateTopics", write_create_topics_request, read_create_topics_response
)
DELETE_TOPICS = Question[DeleteTopicsRequest, DeleteTopicsResponse](
    "DeleteTopics", write_delete_topics_request, read_delete_topics_response
)
CREATE_PARTITIONS = Question[CreatePartitionsRequest, CreatePartitionsResponse](
    "CreatePartitions", write_create_partitions_request, read_create_partitions_response
)
DELETE_RECORDS = Question[DeleteRecordsRequest, DeleteRecordsResponse](
    "DeleteRecords", write_delete_records_request, read_delete_records_response
)
INCREMENTAL_ALTER_CONFIGS = Question[
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
](
    "IncrementalAlterConfigs",
    write_incremental_alter_configs_request,
    read_incremental_alter_configs_response,
)
DESCRIBE_CONFIGS = Question[DescribeConfigsRequest, DescribeConfigsResponse](
    "DescribeConfigs", write_describe_configs_request, read_describe_configs_response
)
LIST_OFFSETS = Question[ListOffsetsRequest, ListOffsetsResponse](
    "ListOffsets", write_list_offsets_request, read_list_offsets_response
)
FETCH = Question[FetchRequest, FetchResponse](
    "Fetch",
    write_fetch_request,
    read_fetch_response,
    version_max=13,  # The first with topic ids instead of names; later ones are for brokers.
)
FETCH_BY_NAME = Question[FetchRequest, FetchResponse](
    "Fetch",
    write_fetch_request,
    read_fetch_response,
    version_max=12,  # The last with names, for brokers that know no topic ids.
)
PRODUCE = Question[ProduceRequest, ProduceResponse](
    "Produce",
    write_produce_request,
    read_produce_response,
    version_max=12,  # The last with names instead of topic ids.
)
INIT_PRODUCER_ID = Question[InitProducerIdRequest, InitProducerIdResponse](
    "InitProducerId", write_init_producer_id_request, read_init_producer_id_response
)
FIND_COORDINATOR = Question[FindCoordinatorRequest, FindCoordinatorResponse](
    "FindCoordinator",
    write_find_coordinator_request,
    read_find_coordinator_response,
    version_max=3,  # Later ones ask for several groups at once.
)
LIST_GROUPS = Question[ListGroupsRequest, ListGroupsResponse](
    "ListGroups", write_list_groups_request, read_list_groups_response
)
DESCRIBE_GROUPS = Question[DescribeGroupsRequest, DescribeGroupsResponse](
    "DescribeGroups", write_describe_groups_request, read_describe_groups_response
)
DELETE_GROUPS = Question[DeleteGroupsRequest, DeleteGroupsResponse](
    "DeleteGroups", write_delete_groups_request, read_delete_groups_response
)
JOIN_GROUP = Question[JoinGroupRequest, JoinGroupResponse](
    "JoinGroup", write_join_group_request, read_join_group_response
)
SYNC_GROUP = Question[SyncGroupRequest, SyncGroupResponse](
    "SyncGroup", write_sync_group_request, read_sync_group_response
)
HEARTBEAT = Question[HeartbeatRequest, HeartbeatResponse](
    "Heartbeat", write_heartbeat_request, read_heartbeat_response
)
LEAVE_GROUP = Question[LeaveGroupRequest, LeaveGroupResponse](
    "LeaveGroup", write_leave_group_request, read_leave_group_response
)
OFFSET_DELETE = Question[OffsetDeleteRequest, OffsetDeleteResponse](
    "OffsetDelete", write_offset_delete_request, read_offset_delete_response
)
OFFSET_FETCH = Question[OffsetFetchRequest, OffsetFetchResponse](
    "OffsetFetch",
    write_offset_fetch_request,
    read_offset_fetch_response,
    version_max=7,  # Later ones ask for several groups at once.
)
OFFSET_COMMIT = Question[OffsetCommitRequest, OffsetCommitResponse](
    "OffsetCommit",
    write_offset_commit_request,
    read_offset_commit_response,
    version_max=8,  # Later ones are for groups of the consumer protocol.
)
ADD_PARTITIONS_TO_TXN = Question[AddPartitionsToTxnRequest, AddPartitionsToTxnResponse](
    "AddPartitionsToTxn",
    write_add_partitions_to_txn_request,
    read_add_partitions_to_txn_response,
    version_max=3,  # Later ones are for brokers.
)
ADD_OFFSETS_TO_TXN = Question[AddOffsetsToTxnRequest, AddOffsetsToTxnResponse](
    "AddOffsetsToTxn", write_add_offsets_to_txn_request, read_add_offsets_to_txn_response
)
TXN_OFFSET_COMMIT = Question[TxnOffsetCommitRequest, TxnOffsetCommitResponse](
    "TxnOffsetCommit",
    write_txn_offset_commit_request,
    read_txn_offset_commit_response,
    version_max=4,  # Later ones add the group to the transaction.
)
END_TXN = Question[EndTxnRequest, EndTxnResponse](
    "EndTxn", write_end_txn_request, read_end_txn_response
)
