"""Changes a topic: its settings, its partitions, its log start."""

from collections.abc import Collection, Iterable, Mapping

from smq.client.errors import Act
from smq.client.kafka.admin import RESOURCE_TOPIC, TIMEOUT_MS
from smq.client.kafka.answers import check_partitions, only
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.config_changes import alter_configs
from smq.client.kafka.questions import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
)
from smq.model.errors import ErrorCode
from smq.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from smq.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

HIGH_WATERMARK = -1  # For DeleteRecords: all that readers see now.


def alter_topic(cluster: Cluster, name: str, new: Mapping[str, str], unset: Iterable[str]) -> None:
    """Set some configs of a topic, and reset others to their defaults: all of it, or nothing.

    Raises NoSuchTopic, BrokerError.
    """
    cluster.retrying(lambda: cluster.topic(name))
    alter_configs(cluster.anyone(), RESOURCE_TOPIC, name, new, unset)


def add_partitions(cluster: Cluster, name: str, added: int) -> int:
    """Add partitions to a topic; returns its new count. Raises NoSuchTopic, BrokerError."""
    count = len(cluster.retrying(lambda: cluster.topic(name)).leaders) + added
    grow_topic(cluster, name, count)
    return count


def grow_topic(cluster: Cluster, name: str, count: int) -> None:
    """Give a topic more partitions, `count` in all.

    Raises NoSuchTopic, BrokerError: INVALID_PARTITIONS if it has as many already.
    """
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    result = only(cluster.anyone().ask(CREATE_PARTITIONS, request).results, "topic")
    check(result.error_code, result.error_message, Act("add partitions to", topic=name))
    cluster.forget()


def delete_records(
    cluster: Cluster, name: str, before: int, partitions: Collection[int] | None = None
) -> dict[int, int]:
    """Delete the records before an offset, or with HIGH_WATERMARK all; of all partitions for None.

    Returns where each partition begins now. Raises NoSuchTopic, BrokerError.
    """
    count = len(cluster.retrying(lambda: cluster.topic(name)).leaders)
    wanted = range(count) if partitions is None else partitions
    starts: dict[int, int] = {}
    for leader, led in cluster.by_leader(name, wanted).items():
        asked = [DeleteRecordsPartition(partition_index=each, offset=before) for each in led]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=asked)], timeout_ms=TIMEOUT_MS
        )
        topic = only(cluster.broker(leader).ask(DELETE_RECORDS, request).topics, "topic")
        check_partitions(led, [each.partition_index for each in topic.partitions])
        for each in topic.partitions:
            check(
                each.error_code, _problem(name, each, before), Act("delete records of", topic=name)
            )
            starts[each.partition_index] = each.low_watermark
    return dict(sorted(starts.items()))


def _problem(name: str, result: DeleteRecordsPartitionResult, before: int) -> str | None:
    match result.error_code:
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return f"partition {result.partition_index} has no offset {before}"
        case ErrorCode.POLICY_VIOLATION:
            return f"{name} keeps the last record of each key (cleanup.policy=compact)"
    return None
