"""A fetch session (KIP-227): the broker remembers what we read; a fetch names only changes.

A full fetch (epoch 0) begins a session, if the broker has room for one: its answer has an id. Each
further fetch has the next epoch, and names partitions that are new or have moved, and those no
longer read. A client that has lost count begins a new session, and ends the old one by naming it.
"""

from collections.abc import Mapping
from uuid import UUID

from smq.client.names import TopicPartition
from smq.model.errors import ErrorCode
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

EPOCH_MAX = 2**31 - 1
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Spot = tuple[int, UUID]
"""A position, and the id of its topic."""


class FetchSession:
    """The session with one broker. Invariant: between an answer and the next request, the broker's
    session holds `_known` if `_epoch` is above 0."""

    def __init__(self, partition_bytes_max: int) -> None:
        self._bytes_max = partition_bytes_max
        self._id = self._epoch = 0
        self._known: dict[TopicPartition, Spot] = {}

    def restart(self) -> None:
        """Begin anew with the next request: the broker's state is uncertain."""
        self._epoch = 0

    def request(self, asked: Mapping[TopicPartition, Spot]) -> FetchRequest:
        """Ask for these partitions, from these positions on."""
        known = self._known if self._epoch else {}
        self._known = dict(asked)
        gone: dict[tuple[str, UUID], list[int]] = {}
        for name, (_, topic_id) in known.items():
            spot = asked.get(name)
            if spot is None or spot[1] != topic_id:
                gone.setdefault((name.topic, topic_id), []).append(name.partition)
        changed: dict[tuple[str, UUID], list[FetchPartition]] = {}
        for name, spot in asked.items():
            if known.get(name) != spot:
                partition = FetchPartition(
                    partition=name.partition,
                    fetch_offset=spot[0],
                    partition_max_bytes=self._bytes_max,
                )
                changed.setdefault((name.topic, spot[1]), []).append(partition)
        return FetchRequest(
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[
                FetchTopic(topic=topic, topic_id=topic_id, partitions=each)
                for (topic, topic_id), each in changed.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=each)
                for (topic, topic_id), each in gone.items()
            ],
        )

    def answered(self, response: FetchResponse) -> bool:
        """Record a broker's answer; False: it knows no such session, ask again."""
        if response.error_code in SESSION_ERRORS:
            self.restart()
            return False
        self._id = response.session_id
        if not self._id:
            self._epoch = 0
        else:
            self._epoch = self._epoch + 1 if self._epoch < EPOCH_MAX else 1
        return True
