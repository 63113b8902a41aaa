"""How far a stream is behind."""

import json
from pathlib import Path

import pytest

from smq.client.names import TopicPartition
from smq.tables.plan import Unreadable
from spark_jobs import lag
from spark_jobs.lag import lags, offsets_of
from tests.sealer.sealed import batch
from tests.spark_jobs.conftest import RunJob, SealTopic

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def checkpoint(directory: Path, *sources: str) -> Path:
    (directory / "offsets").mkdir(parents=True)
    for number in (9, 10):
        text = "\n".join(["v1", '{"batchWatermarkMs":0}', *sources]) if number == 10 else "v1"
        (directory / "offsets" / str(number)).write_text(text)
    (directory / "offsets" / ".10.crc").write_bytes(b"")
    return directory


def test_the_last_batch_says_where_the_stream_is(tmp_path: Path) -> None:
    found = offsets_of(checkpoint(tmp_path, '{"orders":{"0":5,"1":7}}', "-", '{"b":{"0":1}}'))
    assert found == {A: 5, B: 7, TopicPartition("b", 0): 1}


@pytest.mark.parametrize("source", ["{", '{"orders": 5}', "7"])
def test_other_offsets_are_named(tmp_path: Path, source: str) -> None:
    with pytest.raises(Unreadable, match="are not the offsets of topics"):
        offsets_of(checkpoint(tmp_path, source))


def test_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="is not the checkpoint of a stream that has started"):
        offsets_of(tmp_path)


def test_a_new_partition_is_all_ahead() -> None:
    assert [each.lag for each in lags({A: 5}, {A: 7, B: 3})] == [2, 3]
    assert [each.lag for each in lags({A: 9}, {A: 7})] == [0]


def test_the_program_prints_a_line_for_each(
    seal_topic: SealTopic, tmp_path: Path, run_job: RunJob
) -> None:
    seal_topic([batch(0, 10)])
    place = checkpoint(tmp_path / "checkpoint", '{"orders":{"0":4}}')
    [line] = run_job(lag, place, "--data-dir", tmp_path, "--tail", "sealed").splitlines()
    assert json.loads(line) == {
        "topic": "orders", "partition": 0, "offset": 4, "end": 10, "lag": 6,
    }  # fmt: skip
