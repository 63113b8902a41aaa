"""Answers to Produce requests with error messages.

`shm.kernels.request.produce.write_answers` writes the answers of every ordinary plan, without error
messages. This module answers plans with rows that were refused for their handles or their
transaction, or belong to another leader (KIP-951), through the generated codec.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

import numpy as np

from shm.kernels.base import words
from shm.kernels.log.plan import request_at, row_at, topic_at
from shm.kernels.request.produce import IDS_FROM, LEADERS_FROM
from smq.model.catalog import Leader
from smq.model.errors import ErrorCode
from smq.wire.codec import Writer
from smq.wire.generated.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
    write_produce_response,
)
from smq.wire.headers import write_response_header

PRODUCE_KEY = 0
# What Kafka says to an error of a whole batch.
WORDS = {int(ErrorCode.INVALID_TXN_STATE): "Partition was not added to the transaction"}

LeaderOf: TypeAlias = Callable[[str | UUID, int, str], Leader | None]
"""The leader of a partition of a topic, with its address for a listener."""


def nobody(_topic: str | UUID, _index: int, _listener: str) -> Leader | None:
    """Says that no partition is led elsewhere."""
    return None


class RefusedRecord(NamedTuple):
    """A record that was refused: its place in the batch, and why."""

    record: int
    reason: str


def answers_of(
    data: np.ndarray,
    plan: np.ndarray,
    refused: Mapping[int, Sequence[RefusedRecord]],
    leader_of: LeaderOf = nobody,
    listener: str = "",
) -> bytes:
    """The responses to a plan whose rows are all done; `refused` by the rows' numbers. `listener`
    is the one that its client came through.

    As in the kernel, acks=0 gets none, and an error there sets HEAD_CLOSE and ends them.
    """
    answers = b""
    for number in range(int(plan[words.HEAD_REQUEST_COUNT])):
        request = plan[request_at(number) :]
        version = int(request[words.REQUEST_VERSION])
        first = int(request[words.REQUEST_TOPIC])
        topics = [
            _topic(data, plan, int(topic_at(plan, first + i)), version, refused)
            for i in range(int(request[words.REQUEST_TOPIC_COUNT]))
        ]
        leaders = _name_leaders(topics, leader_of, listener) if version >= LEADERS_FROM else []
        if request[words.REQUEST_ACKS] != 0:
            writer = Writer()
            write_response_header(
                int(request[words.REQUEST_CORRELATION]), PRODUCE_KEY, version, writer
            )
            response = ProduceResponse(
                responses=topics,
                throttle_time_ms=int(plan[words.HEAD_THROTTLE_MS]),
                node_endpoints=leaders,
            )
            write_produce_response(response, version, writer)
            body = writer.to_bytes()
            answers += len(body).to_bytes(4) + body
        elif any(each.error_code for topic in topics for each in topic.partition_responses):
            plan[words.HEAD_CLOSE] = 1
            break
    return answers


def _name_leaders(
    topics: Sequence[TopicProduceResponse], leader_of: LeaderOf, listener: str
) -> list[NodeEndpoint]:
    """Name the leaders of partitions led elsewhere, and those nodes' addresses."""
    named: dict[int, NodeEndpoint] = {}
    for topic in topics:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            key = topic.topic_id if topic.topic_id.int else topic.name
            leader = leader_of(key, partition.index, listener)
            if leader is not None:
                node = leader.node
                partition.current_leader = LeaderIdAndEpoch(
                    leader_id=node.id, leader_epoch=leader.epoch
                )
                named[node.id] = NodeEndpoint(
                    node_id=node.id, host=node.host, port=node.port, rack=node.rack
                )
    return list(named.values())


def _topic(
    data: np.ndarray,
    plan: np.ndarray,
    topic: int,
    version: int,
    refused: Mapping[int, Sequence[RefusedRecord]],
) -> TopicProduceResponse:
    at, first = int(plan[topic + words.TOPIC_KEY_AT]), int(plan[topic + words.TOPIC_ROW])
    key = data[at : at + int(plan[topic + words.TOPIC_KEY_BYTES])].tobytes()
    rows = range(first, first + int(plan[topic + words.TOPIC_ROW_COUNT]))
    response = TopicProduceResponse(
        partition_responses=[_partition(plan, row, refused.get(row, ())) for row in rows]
    )
    if version >= IDS_FROM:
        response.topic_id = UUID(bytes=key)
    else:  # Bytes that are not UTF-8 name no topic.
        response.name = key.decode(errors="replace")
    return response


def _partition(
    plan: np.ndarray, number: int, refused: Sequence[RefusedRecord]
) -> PartitionProduceResponse:
    row = plan[row_at(plan, number) :]
    sentence = WORDS.get(int(row[words.ROW_ERROR]))
    return PartitionProduceResponse(
        index=int(row[words.ROW_PARTITION]),
        error_code=int(row[words.ROW_ERROR]),
        base_offset=int(row[words.ROW_BASE_OFFSET]),
        log_append_time_ms=int(row[words.ROW_APPEND_TIME]),
        log_start_offset=int(row[words.ROW_LOG_START]),
        record_errors=[
            BatchIndexAndErrorMessage(
                batch_index=each.record, batch_index_error_message=each.reason
            )
            for each in refused
        ],
        error_message=refused[0].reason if refused else sentence,
    )
