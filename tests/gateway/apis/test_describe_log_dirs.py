"""DescribeLogDirs: the sizes of partitions, in the log and sealed."""

from pathlib import Path
from typing import Any

import pytest

from gateway.apis.describe_log_dirs import PART_PARTITIONS, handle
from gateway.context import Ask, ShardContext
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from smq.wire.headers import RequestHeader
from smq.wire.internal.form import Failed
from smq.wire.internal.messages import DescribeStorage, Storage
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import NOW, batch, topic

E = ErrorCode


def ask(bench: ShardBench, topics: dict[str, list[int]] | None, version: int = 5) -> Ask:
    asked = None
    if topics is not None:
        asked = [
            DescribableLogDirTopic(topic=name, partitions=each) for name, each in topics.items()
        ]
    result = bench.ask("DescribeLogDirs", version, DescribeLogDirsRequest(topics=asked))
    assert isinstance(result, Ask)
    return result


def numbers(asked: Ask) -> list[int]:
    [question] = asked.questions
    assert isinstance(question, DescribeStorage)
    return question.numbers


def sizes(answer: Any) -> dict[str, list[tuple[int, int]]]:
    [directory] = answer.results
    return {
        each.name: [(row.partition_index, row.partition_size) for row in each.partitions]
        for each in directory.topics
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_sealed_and_unsealed_bytes_are_added(tmp_path: Path, version: int) -> None:
    bench = ShardBench(tmp_path, topic("t", range(1, 3)), config=Config(data_dir=tmp_path))
    bench.appender.append("t", 1, data := batch(b"a", b"b"))
    asked = ask(bench, {"t": [1]}, version)
    assert numbers(asked) == [2]
    answer = bench.read(asked.then([Storage([1000], 50, 20)]))
    [(index, size)] = sizes(answer)["t"]
    assert (index, size - 1000) == (1, len(data))
    [directory] = answer.results
    assert directory.log_dir == str(tmp_path / "logs")
    disk = (50, 20) if version >= 4 else (-1, -1)
    assert (directory.total_bytes, directory.usable_bytes) == disk


def test_a_size_is_of_one_moment_though_a_seal_comes_meanwhile(tmp_path: Path) -> None:
    """Data fault 10: sealed bytes of one moment beside unsealed ones of a later one."""
    bench = ShardBench(tmp_path, topic("t", range(1, 3)), config=Config(data_dir=tmp_path))
    bench.appender.append("t", 1, data := batch(b"a", b"b"))
    asked = ask(bench, {"t": [1]})
    assert asked.questions == [DescribeStorage([2], [0])]
    for log in bench.shard.logs.values():
        if 2 in log.partitions.slots:
            log.partitions.set_unsealed(2, 0, 0)
    assert sizes(bench.read(asked.then([Storage([0], 50, 20)]))) == {"t": [(1, len(data))]}


def test_null_means_all_and_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("a", range(1, 3)), topic("b", range(3, 4)))
    assert numbers(ask(bench, None)) == [1, 2, 3]
    asked = ask(bench, {"a": [0, 0, 7], "none": [0], "b": []})
    assert numbers(asked) == [1]
    assert sizes(bench.read(asked.then([Storage([0], 1, 1)]))) == {"a": [(0, 0)]}
    assert sizes(bench.read(ask(bench, {}).then([Storage([], 1, 1)]))) == {}


def test_without_the_sealer_the_directory_has_an_error(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path, topic("t"))
    answer = bench.read(ask(bench, None).then([Failed("it is away")]))
    assert [each.error_code for each in answer.results] == [E.KAFKA_STORAGE_ERROR]


def test_many_partitions_come_in_parts_of_one_directory(tmp_path: Path) -> None:
    many = PART_PARTITIONS + 1
    bench = ShardBench(tmp_path, topic("t", range(1, many + 1)))
    context = ShardContext(RequestHeader(35, 5, 1, None), bench.shard, NOW)
    first, second = handle(DescribeLogDirsRequest(topics=None), context)
    assert (len(numbers(first)), len(numbers(second))) == (PART_PARTITIONS, 1)
    for asked, free_bytes in ((first, 5), (second, 4)):
        answer: Any = asked.then([Storage([0] * len(numbers(asked)), 9, free_bytes)])
        assert [(each.total_bytes, each.usable_bytes) for each in answer.results] == [(9, 5)]
