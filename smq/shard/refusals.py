"""What a client may not append: marked in the plan of its Produce requests before anything is.

The other batches of a request are appended, as in Kafka. An unknown id stays UNKNOWN_TOPIC_ID; an
unknown name is like one that the client may not write to.
"""

from collections.abc import Callable, Iterator
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
from smq.shard.shard import Shard
from smq.wire.generated.apis import PRODUCE

TOPICS_MAX = 100  # Asked about at once: some ten microseconds each, with ten thousand rules.
_CODES = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


def refuse_topics(
    data: np.ndarray, plan: np.ndarray, shard: Shard, rights: Rights, first: int = 0
) -> None:
    """Refuse the batches for topics that a client may not write to, of TOPICS_MAX topics at most,
    from this one of the plan on."""
    rows = rows_of(plan)
    rights.api = PRODUCE.name
    for topic, by_id in _topics(plan, range(first, first + TOPICS_MAX)):
        start = int(topic[words.TOPIC_KEY_AT])
        key = data[start : start + int(topic[words.TOPIC_KEY_BYTES])].tobytes()
        name = _name_of(key, shard.catalog, by_id=by_id)
        row = int(topic[words.TOPIC_ROW])
        those = rows[row : row + int(topic[words.TOPIC_ROW_COUNT])]
        if name is not None and rights.asks_topic(Operation.WRITE, name):
            if shard.bitmaps is not None:
                codes = those[:, words.ROW_CODE].tolist()
                shard.bitmaps.learn(rights.peer, Operation.WRITE, codes)
        elif name is not None:
            those[:, words.ROW_ERROR] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            those[_is_in_no_transaction(those, data), words.ROW_ERROR] = (
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
            those[:, words.ROW_STATE] = words.DONE


def _topics(plan: np.ndarray, some: range) -> Iterator[tuple[np.ndarray, bool]]:
    """Those of a plan's topics, each with whether it is named by its id."""
    for number in range(int(plan[words.HEAD_REQUEST_COUNT])):
        request = plan[request_at(number) :]
        first = int(request[words.REQUEST_TOPIC])
        end = first + int(request[words.REQUEST_TOPIC_COUNT])
        by_id = bool(request[words.REQUEST_VERSION] >= IDS_FROM)
        for index in range(max(first, some.start), min(end, some.stop)):
            yield plan[topic_at(plan, index) :], by_id


class Refusals:
    """Why batches are refused, of requests that are parsed again and again: their topics are asked
    about some at a time, and anew when the catalog or the rules have changed."""

    def __init__(self) -> None:
        self._versions = (-1, -1)
        self._asked_count = 0  # Topics.
        self._errors = np.zeros(0, np.int64)  # By the batches' numbers; 0: not refused.

    def go_on(
        self, plan: np.ndarray, versions: tuple[int, int], ask: Callable[[int], None]
    ) -> bool:
        """Refuse what is known to be refused, and ask about further topics: `ask` marks them in the
        plan, from this one on. Returns whether all topics have been asked about."""
        rows, count = rows_of(plan), int(plan[words.HEAD_TOPIC_COUNT])
        if versions != self._versions:
            self._versions, self._asked_count = versions, 0
            self._errors = np.zeros(len(rows), np.int64)
        [refused] = np.nonzero(self._errors)
        rows[refused, words.ROW_ERROR] = self._errors[refused]
        rows[refused, words.ROW_STATE] = words.DONE
        if self._asked_count < count:
            ask(self._asked_count)
            self._asked_count += TOPICS_MAX
            is_refused = np.isin(rows[:, words.ROW_ERROR], _CODES)
            self._errors = np.where(is_refused, rows[:, words.ROW_ERROR], 0)
        return self._asked_count >= count


def refuse_all(plan: np.ndarray) -> None:
    """Refuse every batch: the client may not use its transactional id."""
    rows = rows_of(plan)
    rows[:, words.ROW_ERROR] = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    rows[:, words.ROW_STATE] = words.DONE


def has_transactional(plan: np.ndarray, data: np.ndarray) -> bool:
    """Whether a batch of the plan is a transaction's, whatever else is wrong with it."""
    return bool(_are_transactional(rows_of(plan), data).any())


def _is_in_no_transaction(rows: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Which batches are a transaction's without its id: their client has no right for that either.

    A bool for each row.
    """
    found: np.ndarray = _are_transactional(rows, data) & (rows[:, words.ROW_TRANSACTIONAL] == 0)
    return found


def _are_transactional(rows: np.ndarray, data: np.ndarray) -> np.ndarray:
    """A bool for each row."""
    found: np.ndarray = rows[:, words.ROW_BYTES] >= words.BATCH_HEADER_BYTES
    at = rows[found, words.ROW_AT] + (words.BATCH_ATTRIBUTES_AT + 1)  # In a big-endian int16.
    found[found] = (data[at] & words.ATTRIBUTE_TRANSACTIONAL) != 0
    return found


def _name_of(key: bytes, catalog: Catalog, *, by_id: bool) -> str | None:
    """The name of a topic as a request has it; None: nobody knows it."""
    if not by_id:
        return key.decode(errors="replace")
    topic = catalog.find_by_id(UUID(bytes=key))
    return None if topic is None else topic.name
