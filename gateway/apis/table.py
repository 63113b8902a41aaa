"""The one table of APIs: from it come dispatch, the ApiVersions answer and docs/api_versions.md.

SHARD       every node answers it itself
COORDINATOR a node relays it, as it came, to the coordinator, which answers from the same table
KERNEL      Produce: parsed, appended and answered by shm.kernels.produce
"""

from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any, NamedTuple

from gateway.apis import (
    api_versions,
    describe_cluster,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from smq.wire.api import API_BY_NAME
from smq.wire.generated import (
    api_versions as api_versions_codec,
    describe_cluster as describe_cluster_codec,
    fetch as fetch_codec,
    list_offsets as list_offsets_codec,
    metadata as metadata_codec,
    offset_for_leader_epoch as offset_for_leader_epoch_codec,
    produce as produce_codec,
)


class Where(Enum):
    """Which process answers an API."""

    KERNEL = "kernel"
    SHARD = "shard"
    COORDINATOR = "coordinator"


class Api(NamedTuple):
    """One row of the table: key and versions come from the codecs."""

    name: str
    where: Where
    codec: ModuleType
    handle: Callable[..., Any] | None
    left_out: str = ""

    @property
    def key(self) -> int:
        return API_BY_NAME[self.name].key

    @property
    def versions(self) -> range:
        facts = API_BY_NAME[self.name]
        return range(facts.first_version, facts.last_version + 1)

    @property
    def advertised(self) -> tuple[int, int, int]:
        first = 0 if self.where is Where.KERNEL else self.versions.start
        return self.key, first, self.versions.stop - 1

    @property
    def read_request(self) -> Callable[..., Any]:
        return getattr(self.codec, f"read_{self._snake()}_request")  # type: ignore[no-any-return]

    @property
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
    Api("Metadata", Where.SHARD, metadata_codec, metadata.handle, "authorized operations"),
    Api(
        "ApiVersions",
        Where.SHARD,
        api_versions_codec,
        lambda request, context: api_versions.handle(request, context, _advertised()),
        "features",
    ),
    Api(
        "OffsetForLeaderEpoch",
        Where.SHARD,
        offset_for_leader_epoch_codec,
        offset_for_leader_epoch.handle,
    ),
    Api("DescribeCluster", Where.SHARD, describe_cluster_codec, describe_cluster.handle),
)

API_BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
assert len(API_BY_KEY) == len(APIS)
