"""AlterReplicaLogDirs: there is one directory."""

from pathlib import Path

import pytest

from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import topic

E = ErrorCode


@pytest.mark.parametrize("version", range(1, 3))
@pytest.mark.parametrize(
    ("directory", "name", "index", "error"),
    [
        ("logs", "t", 1, E.NONE),
        ("logs", "t", 2, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("logs", "none", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("other", "t", 0, E.LOG_DIR_NOT_FOUND),
        ("other", "none", 0, E.LOG_DIR_NOT_FOUND),
    ],
)
def test_replicas_are_in_the_one_directory(  # noqa: PLR0913, PLR0917  (a case of the table)
    tmp_path: Path, version: int, directory: str, name: str, index: int, error: ErrorCode
) -> None:
    bench = ShardBench(tmp_path, topic("t", range(1, 3)), config=Config(data_dir=tmp_path))
    wanted = AlterReplicaLogDir(
        path=str(tmp_path / directory),
        topics=[AlterReplicaLogDirTopic(name=name, partitions=[index])],
    )
    answer = bench.ask("AlterReplicaLogDirs", version, AlterReplicaLogDirsRequest(dirs=[wanted]))
    [result] = answer.results
    assert result.topic_name == name
    assert [(each.partition_index, each.error_code) for each in result.partitions] == [
        (index, error)
    ]
