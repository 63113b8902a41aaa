"""Answers to Produce requests that say why: what the kernel writes, with sentences in it.

`shm.kernels.request.produce.write_answers` writes the answers of every ordinary plan, without error
messages. This module answers a plan with rows that were refused for their handles, through the
generated codec.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np

from shm.kernels.log.plan import (
    HEAD_CLOSE,
    HEAD_REQUEST_COUNT,
    HEAD_THROTTLE_MS,
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
    TOPIC_KEY_AT,
    TOPIC_KEY_BYTES,
    TOPIC_ROW,
    TOPIC_ROW_COUNT,
    request_at,
    row_at,
    topic_at,
)
from shm.kernels.request.produce import IDS_FROM
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    write_produce_response,
)
from smq.wire.headers import write_response_header

PRODUCE_KEY = 0


class Refused(NamedTuple):
    """A record that was refused: its place in the batch, and why."""

    record: int
    reason: str


def answers_of(
    data: np.ndarray, plan: np.ndarray, refused: Mapping[int, Sequence[Refused]]
) -> bytes:
    """The responses to a plan whose rows are all done; `refused` by the rows' numbers.

    As the kernel's: acks=0 gets none, and an error there sets HEAD_CLOSE and ends them.
    """
    answers = b""
    for number in range(int(plan[HEAD_REQUEST_COUNT])):
        request = plan[request_at(number) :]
        version = int(request[REQUEST_VERSION])
        first = int(request[REQUEST_TOPIC])
        topics = [
            _topic(data, plan, int(topic_at(plan, first + i)), version, refused)
            for i in range(int(request[REQUEST_TOPIC_COUNT]))
        ]
        if request[REQUEST_ACKS] != 0:
            writer = Writer()
            write_response_header(int(request[REQUEST_CORRELATION]), PRODUCE_KEY, version, writer)
            response = ProduceResponse(
                responses=topics, throttle_time_ms=int(plan[HEAD_THROTTLE_MS])
            )
            write_produce_response(response, version, writer)
            body = writer.to_bytes()
            answers += len(body).to_bytes(4) + body
        elif any(each.error_code for topic in topics for each in topic.partition_responses):
            plan[HEAD_CLOSE] = 1
            break
    return answers


def _topic(
    data: np.ndarray,
    plan: np.ndarray,
    topic: int,
    version: int,
    refused: Mapping[int, Sequence[Refused]],
) -> TopicProduceResponse:
    at, first = int(plan[topic + TOPIC_KEY_AT]), int(plan[topic + TOPIC_ROW])
    key = data[at : at + int(plan[topic + TOPIC_KEY_BYTES])].tobytes()
    rows = range(first, first + int(plan[topic + TOPIC_ROW_COUNT]))
    response = TopicProduceResponse(
        partition_responses=[_partition(plan, row, refused.get(row, ())) for row in rows]
    )
    if version >= IDS_FROM:
        response.topic_id = UUID(bytes=key)
    else:  # What is not UTF-8 is the name of no topic.
        response.name = key.decode(errors="replace")
    return response


def _partition(
    plan: np.ndarray, number: int, refused: Sequence[Refused]
) -> PartitionProduceResponse:
    row = plan[row_at(plan, number) :]
    return PartitionProduceResponse(
        index=int(row[ROW_PARTITION]),
        error_code=int(row[ROW_ERROR]),
        base_offset=int(row[ROW_BASE_OFFSET]),
        log_append_time_ms=int(row[ROW_APPEND_TIME]),
        log_start_offset=int(row[ROW_LOG_START]),
        record_errors=[
            BatchIndexAndErrorMessage(
                batch_index=each.record, batch_index_error_message=each.reason
            )
            for each in refused
        ],
        error_message=refused[0].reason if refused else None,
    )
