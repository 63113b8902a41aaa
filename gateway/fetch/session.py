"""Fetch sessions (KIP-227): clients send changes, and get the partitions that have news.

- A full fetch (epoch 0) of more than PLACES_MAX partitions begins a session if there is room. A
  smaller one gets session id 0, as from a Kafka whose cache is full: reading it whole is quicker
  than keeping a session.
- A full fetch ends the session that it names. Epoch -1 does too, and begins no other.
- An incremental fetch changes what the session reads, and is answered with the partitions that
  have records, another high watermark or log start, or an error.
- Unknown sessions, and those of other principals, are FETCH_SESSION_ID_NOT_FOUND, other epochs
  than the next one INVALID_FETCH_SESSION_EPOCH, names after ids FETCH_SESSION_TOPIC_ID_ERROR. The
  client starts over.
- A session without partitions is over.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any
from uuid import UUID

from gateway.context import Ask, Later, Message, Result, ShardContext, Wait
from gateway.fetch.answer import Fetching, PartitionReader
from gateway.fetch.cold import with_cold
from gateway.fetch.rules import IDS_FROM, NO_SESSION_EPOCHS, READ_COMMITTED, is_follower
from shm.kernels.request.fetch import PLACES_MAX, WAIT_MS_MAX
from smq.log.files.background import JobLane
from smq.model.errors import ErrorCode
from smq.shard.fetch_sessions import (
    NAME_LENGTH_MAX,
    Asked,
    FetchSession,
    Told,
    hashed,
)
from smq.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NEW_EPOCH = 0
LIMITED_ANSWERED_MAX = 150  # Partitions of an answer, where each topic's rights are asked about.


def is_incremental(request: FetchRequest) -> bool:
    """Whether a request continues a session."""
    return request.session_epoch not in NO_SESSION_EPOCHS


def enter(request: FetchRequest, context: ShardContext) -> "Incremental | FetchResponse":
    """Continue a session: the request, or its refusal."""
    has_ids = context.header.api_version >= IDS_FROM
    session = context.shard.fetch_sessions.enter(
        request.session_id,
        request.session_epoch,
        context.now.monotonic_ms,
        has_ids=has_ids,
        owner=context.rights.peer.principal,
    )
    if isinstance(session, ErrorCode):
        return FetchResponse(error_code=session)
    return Incremental(session, request, context)


class Beginning:
    """The session that a full fetch begins, if any. Its answer may come in portions."""

    def __init__(self, request: FetchRequest, context: ShardContext) -> None:
        if request.session_id:
            owner = context.rights.peer.principal
            context.shard.fetch_sessions.leave(request.session_id, owner)
        self._is_wanted = request.session_epoch == NEW_EPOCH and not is_follower(request)
        self._context = context
        self._session = self._new()

    def _new(self) -> FetchSession:
        has_ids = self._context.header.api_version >= IDS_FROM
        peer, access = self._context.rights.peer, self._context.shard.access
        return FetchSession(has_ids, peer.principal, access.refresh(), peer.host)

    def portion(self, topics: Sequence[FetchTopic], response: FetchResponse) -> None:
        """Record the questions and the answers of a portion."""
        has_ids = self._session.has_ids
        if not self._is_wanted or not _are_names(topics):
            self._is_wanted = False
            return
        self._session.update(_asked(topics, has_ids=has_ids))
        self._session.told(told for _, told in _told(response, has_ids=has_ids))

    def end(self, response: FetchResponse) -> None:
        """All portions are answered: the last one carries the session's id."""
        if self._is_wanted and len(self._session) > PLACES_MAX:
            sessions, now_ms = self._context.shard.fetch_sessions, self._context.now.monotonic_ms
            response.session_id = sessions.add(self._session, now_ms)

    def again(self) -> None:
        """Start over: all portions are read again."""
        self._session = self._new()

    def answered(self, topics: Sequence[FetchTopic], response: FetchResponse) -> None:
        """The same for a request of one portion."""
        self.portion(topics, response)
        self.end(response)


class Incremental:
    """A request of a session; the session already has the epoch of the next request."""

    def __init__(self, session: FetchSession, request: FetchRequest, context: ShardContext) -> None:
        self._session, self._context = session, context
        self._epoch = session.epoch
        self._request = copy(request)  # Without the portion's partitions.
        self._request.topics = self._request.forgotten_topics_data = ()
        self._is_good = True

    def change(self, portion: FetchRequest) -> None:
        """Apply a portion of the request to the session."""
        if _are_names(portion.topics):
            self._session.update(_asked(portion.topics, has_ids=self._session.has_ids))
        else:
            self._is_good = False

    def forget(self, request: FetchRequest) -> None:
        """Remove the partitions that the request drops, after all its portions."""
        has_ids, forgotten = self._session.has_ids, request.forgotten_topics_data
        self._session.forget(
            (each.topic_id if has_ids else each.topic, each.partitions) for each in forgotten
        )

    def answer(self) -> Result:
        """The response, Ask, or a wait."""
        sessions, session = self._context.shard.fetch_sessions, self._session
        if self._is_good and not len(session):
            sessions.end(session.id)
            return FetchResponse()
        if not self._is_good or not sessions.has_room(session):
            sessions.end(session.id)
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        result = self.attempt(is_last=self._request.max_wait_ms <= 0)
        if result is not None:
            return result
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        return Wait(session.codes, wait_ms, self.attempt)

    def attempt(self, *, is_last: bool) -> Message | Ask | None:
        """The response if there is enough to read, Ask if the sealer has it, or None."""
        request, session, shard = self._request, self._session, self._context.shard
        if session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        is_committed = request.isolation_level == READ_COMMITTED
        if not session.follow_rights(shard, self._context.rights):
            return Ask([Later(self._next_turn)], lambda _: self.attempt(is_last=True))
        most = None if self._context.rights.is_unlimited else LIMITED_ANSWERED_MAX
        news = session.news(shard, is_committed=is_committed, count_max=most)
        version = self._context.header.api_version
        reader, asked = PartitionReader(request, version), copy(request)
        asked.topics = _topics(news)
        response = Fetching(asked, self._context).read(reader)
        is_enough = reader.has_enough(request.min_bytes) or is_last
        cold = reader.take_cold()
        if not is_enough and not cold:
            return None
        self._tell(response, {id(each.data) for each in cold})
        shard.count_fetch(reader.total_bytes)
        return with_cold(response, cold, self._context.loan)

    def _next_turn(self, done: Callable[[Any], None]) -> None:
        log = next(iter(self._context.shard.logs.values()))
        log.background.submit(JobLane.SEARCHES, lambda: None, done)

    def _tell(self, response: FetchResponse, cold: set[int]) -> None:
        """Leave out what the client knows, and record what the answer tells it."""
        session, response.session_id = self._session, self._session.id
        telling = []
        kept: dict[int, PartitionData] = {}
        for data, told in _told(response, has_ids=session.has_ids):
            is_error = told.high_watermark < 0
            if data.records or is_error or id(data) in cold or not session.knows(told):
                kept[id(data)] = data
                telling.append(told)
        session.told(telling)
        for topic in response.responses:
            topic.partitions = [each for each in topic.partitions if id(each) in kept]
        response.responses = [each for each in response.responses if each.partitions]


def _are_names(topics: Sequence[FetchTopic]) -> bool:
    """Whether these are valid topic names: others are not kept."""
    return all(len(each.topic) <= NAME_LENGTH_MAX for each in topics)


def _asked(topics: Sequence[FetchTopic], *, has_ids: bool) -> Iterator[Asked]:
    for topic in topics:
        for each in topic.partitions:
            yield Asked(
                topic.topic_id if has_ids else topic.topic,
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.partition_max_bytes,
            )


def _topics(asked: Sequence[Asked]) -> list[FetchTopic]:
    """The request as rows, one a topic."""
    topics: dict[str | bytes, list[FetchPartition]] = {}
    for each in asked:
        topics.setdefault(hashed(each.topic), []).append(
            FetchPartition(
                partition=each.partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                last_fetched_epoch=each.last_fetched_epoch,
                partition_max_bytes=each.bytes_max,
            )
        )
    return [
        FetchTopic(topic_id=UUID(bytes=key), partitions=partitions)
        if isinstance(key, bytes)
        else FetchTopic(topic=key, partitions=partitions)
        for key, partitions in topics.items()
    ]


def _told(response: FetchResponse, *, has_ids: bool) -> Iterator[tuple[PartitionData, Told]]:
    """The ends that a response reports for each partition; -1 after an error, so that the next
    response reports them again."""
    for topic in response.responses:
        key = topic.topic_id if has_ids else topic.topic
        for data in topic.partitions:
            is_good = data.error_code == ErrorCode.NONE and data.diverging_epoch is None
            high = data.high_watermark if is_good else -1
            yield data, Told(key, data.partition_index, high, data.log_start_offset)
