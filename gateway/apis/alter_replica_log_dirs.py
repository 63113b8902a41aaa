"""AlterReplicaLogDirs (key 34), versions 1-2 (KIP-113).

There is one log directory: moving a replica there succeeds and changes nothing. Any other directory
is LOG_DIR_NOT_FOUND.
"""

from gateway.context import ShardContext
from smq.model.errors import BrokerError, ErrorCode
from smq.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(
    request: AlterReplicaLogDirsRequest, context: ShardContext
) -> AlterReplicaLogDirsResponse:
    """Report for each partition whether it is already in the requested directory."""
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[
                AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=_verdict(wanted, topic.name, index, context)
                )
                for index in topic.partitions
            ],
        )
        for wanted in request.dirs
        for topic in wanted.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)


def refuse(request: AlterReplicaLogDirsRequest, why: BrokerError) -> AlterReplicaLogDirsResponse:
    """Refuse each partition."""
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=why.code)
                for index in topic.partitions
            ],
        )
        for wanted in request.dirs
        for topic in wanted.topics
    ]
    return AlterReplicaLogDirsResponse(results=results)


def _verdict(wanted: AlterReplicaLogDir, name: str, index: int, context: ShardContext) -> ErrorCode:
    shard = context.shard
    if wanted.path != str(shard.config.log_dir):
        return ErrorCode.LOG_DIR_NOT_FOUND
    found = shard.find_named(name, index)
    return found if isinstance(found, ErrorCode) else ErrorCode.NONE
