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
    api_versions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from smq.wire.api import API_BY_NAME
from smq.wire.generated import (
    api_versions as api_versions_codec,
    create_topics as create_topics_codec,
    delete_groups as delete_groups_codec,
    delete_topics as delete_topics_codec,
    describe_cluster as describe_cluster_codec,
    describe_configs as describe_configs_codec,
    describe_groups as describe_groups_codec,
    fetch as fetch_codec,
    find_coordinator as find_coordinator_codec,
    heartbeat as heartbeat_codec,
    init_producer_id as init_producer_id_codec,
    join_group as join_group_codec,
    leave_group as leave_group_codec,
    list_groups as list_groups_codec,
    list_offsets as list_offsets_codec,
    metadata as metadata_codec,
    offset_commit as offset_commit_codec,
    offset_fetch as offset_fetch_codec,
    offset_for_leader_epoch as offset_for_leader_epoch_codec,
    produce as produce_codec,
    sync_group as sync_group_codec,
)


class Where(Enum):
    """Which process answers an API."""

    KERNEL = "kernel"
    SHARD = "shard"
    COORDINATOR = "coordinator"


@dataclass(frozen=True)
class Api:
    """One row of the table: key and versions come from the codecs."""

    name: str
    where: Where
    codec: ModuleType
    handle: Callable[..., Any] | None
    left_out: str = ""

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

    def _snake(self) -> str:
        return self.codec.__name__.rpartition(".")[2]


def _advertised() -> list[tuple[int, int, int]]:
    return [api.advertised for api in APIS]


APIS: tuple[Api, ...] = (
    Api("Produce", Where.KERNEL, produce_codec, None, "0-2: advertised and refused, as Kafka does"),
    Api("Fetch", Where.SHARD, fetch_codec, fetch.handle, "sessions, follower fetching"),
    Api("ListOffsets", Where.SHARD, list_offsets_codec, list_offsets.handle),
    Api("Metadata", Where.SHARD, metadata_codec, metadata.handle),
    Api("OffsetCommit", Where.COORDINATOR, offset_commit_codec, offset_commit.handle),
    Api("OffsetFetch", Where.COORDINATOR, offset_fetch_codec, offset_fetch.handle),
    Api(
        "FindCoordinator",
        Where.COORDINATOR,
        find_coordinator_codec,
        find_coordinator.handle,
        "transactions, share groups",
    ),
    Api("JoinGroup", Where.COORDINATOR, join_group_codec, join_group.handle),
    Api("Heartbeat", Where.COORDINATOR, heartbeat_codec, heartbeat.handle),
    Api("LeaveGroup", Where.COORDINATOR, leave_group_codec, leave_group.handle),
    Api("SyncGroup", Where.COORDINATOR, sync_group_codec, sync_group.handle),
    Api("DescribeGroups", Where.COORDINATOR, describe_groups_codec, describe_groups.handle),
    Api("ListGroups", Where.COORDINATOR, list_groups_codec, list_groups.handle),
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
    ),
    Api("DeleteTopics", Where.COORDINATOR, delete_topics_codec, delete_topics.handle, "quotas"),
    Api(
        "InitProducerId",
        Where.COORDINATOR,
        init_producer_id_codec,
        init_producer_id.handle,
        "transactions",
    ),
    Api(
        "OffsetForLeaderEpoch",
        Where.SHARD,
        offset_for_leader_epoch_codec,
        offset_for_leader_epoch.handle,
    ),
    Api(
        "DescribeConfigs",
        Where.COORDINATOR,
        describe_configs_codec,
        describe_configs.handle,
        "loggers, client metrics, groups",
    ),
    Api("DeleteGroups", Where.COORDINATOR, delete_groups_codec, delete_groups.handle),
    Api("DescribeCluster", Where.SHARD, describe_cluster_codec, describe_cluster.handle),
)

API_BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
assert list(API_BY_KEY) == sorted(API_BY_KEY)
assert len(API_BY_KEY) == len(APIS)
