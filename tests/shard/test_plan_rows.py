"""The rows of a plan belong to its requests, and those that are done survive a second parse."""

from pathlib import Path

import numpy as np

from shm.kernels.base import words
from shm.kernels.log.plan import new_plan, request_at, topic_at
from smq.shard.plan_rows import (
    closed_rows,
    done_rows,
    first_row,
    request_of,
    restore_rows,
    rows_of,
)
from tests.shard.shard_bench import new_shard, topic

ROWS_OF = [[2, 1], [], [0], [3]]  # Of the topics of each request.


def plan() -> np.ndarray:
    plan, row, topic = new_plan(8, 8, 16), 0, 0
    for request, counts in enumerate(ROWS_OF):
        at = int(request_at(request))
        plan[at + words.REQUEST_TOPIC], plan[at + words.REQUEST_TOPIC_COUNT] = topic, len(counts)
        for count in counts:
            plan[topic_at(plan, topic) + words.TOPIC_ROW] = row
            row, topic = row + count, topic + 1
    plan[words.HEAD_REQUEST_COUNT], plan[words.HEAD_ROW_COUNT] = len(ROWS_OF), row
    return plan


def test_each_row_belongs_to_a_request_and_some_requests_have_none() -> None:
    made = plan()
    assert [request_of(made, row) for row in range(6)] == [0, 0, 0, 3, 3, 3]
    assert [first_row(made, request) for request in range(5)] == [0, 3, 3, 3, 6]


def test_rows_that_are_done_are_restored_and_the_others_are_as_parsed() -> None:
    before, after = rows_of(plan()), rows_of(plan())
    before[[1, 4], words.ROW_STATE], before[:, words.ROW_BASE_OFFSET] = words.DONE, range(10, 16)
    after[4:, words.ROW_STATE] = words.DONE
    restore_rows(after, done_rows(before))
    assert after[:, words.ROW_STATE].tolist() == [0, words.DONE, 0, 0, words.DONE, words.DONE]
    assert after[:, words.ROW_BASE_OFFSET].tolist() == [0, 11, 0, 0, 14, 0]


def test_rows_of_closed_partitions_are_found_in_each_log_unless_they_are_done(
    tmp_path: Path,
) -> None:
    shard = new_shard(tmp_path, topic("one", range(1, 5), logs=(0, 0, 1, 1)), logs=2)
    made = rows_of(plan())
    codes = [led.code for led in shard.led()]
    made[:, words.ROW_CODE] = [*codes, codes[1], -1]
    made[4, words.ROW_STATE] = words.DONE
    assert closed_rows(made, shard.logs.values()).tolist() == []
    for led in shard.led()[1:3]:
        led.log.partitions.table[led.slot, words.P_FLAGS] |= words.FLAG_CLOSED
    assert closed_rows(made, shard.logs.values()).tolist() == [1, 2]
