"""Answers with error messages equal the kernel's in all other bytes."""

from collections.abc import Mapping

import numpy as np
import pytest

from shm.kernels.base.words import (
    DONE,
    HEAD_CLOSE,
    HEAD_OUT_BYTES,
    HEAD_REQUEST_COUNT,
    HEAD_ROW_COUNT,
    HEAD_THROTTLE_MS,
    HEAD_TOPIC_COUNT,
    REQUEST_ACKS,
    REQUEST_CORRELATION,
    REQUEST_TOPIC,
    REQUEST_TOPIC_COUNT,
    REQUEST_VERSION,
    ROW_APPEND_TIME,
    ROW_BASE_OFFSET,
    ROW_ERROR,
    ROW_LOG_START,
    ROW_PARTITION,
    ROW_STATE,
    TOPIC_KEY_AT,
    TOPIC_KEY_BYTES,
    TOPIC_ROW,
    TOPIC_ROW_COUNT,
)
from shm.kernels.log.plan import new_plan, request_at, row_at, topic_at
from shm.kernels.request.produce import (
    IDS_FROM,
    RECORD_ERRORS_FROM,
    VERSION_MAX,
    VERSION_MIN,
    write_answers,
)
from smq.shard.answers import RefusedRecord, answers_of
from smq.wire.generated.produce import read_produce_response
from smq.wire.headers import read_response_header

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)
KEY = b"sixteen bytes ok"


def put(plan: np.ndarray, at: int, words: Mapping[int, int]) -> None:
    for word, value in words.items():
        plan[at + word] = value


def a_plan(version: int, *, acks: int = -1, errors: tuple[int, ...] = (0, 87)) -> np.ndarray:
    """Two requests of one topic each, with a row for each error."""
    plan = new_plan(2, 2, 2 * len(errors))
    put(plan, 0, {HEAD_REQUEST_COUNT: 2, HEAD_TOPIC_COUNT: 2, HEAD_ROW_COUNT: 2 * len(errors)})
    plan[HEAD_THROTTLE_MS] = 17
    for i in range(2):
        request = {REQUEST_CORRELATION: 40 + i, REQUEST_VERSION: version, REQUEST_ACKS: acks}
        put(plan, request_at(i), request | {REQUEST_TOPIC: i, REQUEST_TOPIC_COUNT: 1})
        key = {TOPIC_KEY_AT: 0, TOPIC_KEY_BYTES: len(KEY)}
        rows = {TOPIC_ROW: i * len(errors), TOPIC_ROW_COUNT: len(errors)}
        put(plan, int(topic_at(plan, i)), key | rows)
        for j, error in enumerate(errors):
            row = {ROW_PARTITION: j, ROW_ERROR: error, ROW_STATE: DONE, ROW_BASE_OFFSET: 100 + j}
            row |= {ROW_APPEND_TIME: -1, ROW_LOG_START: 5}
            put(plan, int(row_at(plan, i * len(errors) + j)), row)
    return plan


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_sentence_they_are_the_kernels(version: int) -> None:
    data, out = np.frombuffer(KEY, np.uint8).copy(), np.zeros(1024, np.uint8)
    plan = a_plan(version)
    assert write_answers(data, plan, out) == 0
    assert answers_of(data, plan, {}) == out[: plan[HEAD_OUT_BYTES]].tobytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_that_can_say_why_do(version: int) -> None:
    refused = {1: [RefusedRecord(3, "because"), RefusedRecord(9, "that too")]}
    answers = answers_of(np.frombuffer(KEY, np.uint8), a_plan(version), refused)
    size = int.from_bytes(answers[:4])
    correlation, at = read_response_header(answers[4 : 4 + size], 0, 0, version)
    response = read_produce_response(answers[4 : 4 + size], at, version)
    first, second = response.responses[0].partition_responses
    assert correlation == 40
    assert response.throttle_time_ms == 17
    if version >= IDS_FROM:
        assert response.responses[0].topic_id.bytes == KEY
    assert (first.error_code, second.error_code) == (0, 87)
    said = [(each.batch_index, each.batch_index_error_message) for each in second.record_errors]
    can_say = version >= RECORD_ERRORS_FROM
    assert said == ([(3, "because"), (9, "that too")] if can_say else [])
    assert second.error_message == ("because" if can_say else None)
    assert not first.record_errors
    assert first.error_message is None


def test_without_acknowledgements_nothing_is_said_but_that_it_is_over() -> None:
    plan = a_plan(9, acks=0)
    assert answers_of(np.frombuffer(KEY, np.uint8), plan, {1: [RefusedRecord(0, "no")]}) == b""
    assert plan[HEAD_CLOSE] == 1
    plan = a_plan(9, acks=0, errors=(0, 0))
    assert answers_of(np.frombuffer(KEY, np.uint8), plan, {}) == b""
    assert plan[HEAD_CLOSE] == 0
