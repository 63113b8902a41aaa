"""What a client may not append: marked in the plan of its Produce requests before anything is.

The other batches of a request are appended, as in Kafka. An unknown id stays UNKNOWN_TOPIC_ID; an
unknown name is like one that the client may not write to.
"""

from uuid import UUID

import numpy as np

from shm.kernels.base import words
from shm.kernels.log.plan import request_at, topic_at
from shm.kernels.request.produce import IDS_FROM
from smq.model.catalog import Catalog
from smq.model.errors import ErrorCode
from smq.security.acls import Operation
from smq.security.rights import Rights
from smq.shard.plan_rows import rows_of


def refuse_topics(data: np.ndarray, plan: np.ndarray, catalog: Catalog, rights: Rights) -> None:
    """Refuse the batches for topics that a client may not write to."""
    rows = rows_of(plan)
    for number in range(int(plan[words.HEAD_REQUEST_COUNT])):
        request = plan[request_at(number) :]
        first = int(request[words.REQUEST_TOPIC])
        for index in range(first, first + int(request[words.REQUEST_TOPIC_COUNT])):
            topic = plan[topic_at(plan, index) :]
            start = int(topic[words.TOPIC_KEY_AT])
            key = data[start : start + int(topic[words.TOPIC_KEY_BYTES])].tobytes()
            name = _name_of(key, catalog, by_id=request[words.REQUEST_VERSION] >= IDS_FROM)
            if name is not None and not rights.topic(Operation.WRITE, name):
                row = int(topic[words.TOPIC_ROW])
                for each in rows[row : row + int(topic[words.TOPIC_ROW_COUNT])]:
                    each[words.ROW_ERROR] = _why(each, data)
                    each[words.ROW_STATE] = words.DONE


def refuse_all(plan: np.ndarray) -> None:
    """Refuse every batch: the client may not use its transactional id."""
    rows = rows_of(plan)
    rows[:, words.ROW_ERROR] = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    rows[:, words.ROW_STATE] = words.DONE


def _why(row: np.ndarray, data: np.ndarray) -> ErrorCode:
    """Why a batch is refused for which its client has no right: perhaps it has none to write in a
    transaction either, without an id."""
    is_whole = row[words.ROW_BYTES] >= words.BATCH_HEADER_BYTES
    if is_whole and not row[words.ROW_TRANSACTIONAL]:
        low_byte = int(data[int(row[words.ROW_AT]) + words.BATCH_ATTRIBUTES_AT + 1])
        if low_byte & words.ATTRIBUTE_TRANSACTIONAL:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _name_of(key: bytes, catalog: Catalog, *, by_id: bool) -> str | None:
    """The name of a topic as a request has it; None: nobody knows it."""
    if not by_id:
        return key.decode(errors="replace")
    topic = catalog.find_by_id(UUID(bytes=key))
    return None if topic is None else topic.name
