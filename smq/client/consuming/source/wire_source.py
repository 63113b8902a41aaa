"""Fetches records over Kafka's protocol.

Each broker always has one Fetch in flight: the next one is sent before the records of the last one
are handed out, with the positions after them. Answers for positions that are no longer wanted are
discarded. After a transient error it fetches again, with fresh metadata, RETRY_SECONDS later. If
no broker answers for longer than the deadline, `take` raises.

Many partitions are read in a session (fetch_session): requests then name only changes.

An answer has room for some partitions only, and a broker fills it in the order of the request. So
partitions that gave records come last in the next request.

Brokers that know topic ids are asked by id, so that no reader continues at an old position in a
topic that was deleted and created again: its partitions start over. If a topic is missing, or
cannot start over, `take` raises once the other topics have returned their records, and later tries
again. So it does for a partition that its leader refuses: after the deadline, if that may pass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shm.arrow import read_only
from shm.kernels.base.words import ATTRIBUTE_CONTROL, BATCH_HEADER_BYTES
from shm.kernels.reader.lend import F_FIELDS, F_ROW, F_START
from shm.kernels.record.records import (
    B_AT,
    B_ATTRIBUTES,
    B_BASE_OFFSET,
    B_LAST_OFFSET,
    scan_batches,
)
from smq.client.consuming.batch.chunk import PlacedBatches
from smq.client.consuming.source.aborted import in_aborted
from smq.client.consuming.source.beginnings import Beginnings
from smq.client.consuming.source.fetch_session import FetchSession, Spot
from smq.client.consuming.source.source import Partition, Taken, always_intact
from smq.client.errors import Act, NoSuchTopic
from smq.client.kafka.cluster import PASSING, Cluster, check
from smq.client.kafka.connection import KafkaConnection
from smq.client.kafka.offsets import READ_UNCOMMITTED
from smq.client.kafka.questions import FETCH, FETCH_BY_NAME
from smq.client.names import TopicPartition, by_topic
from smq.client.wait import wait_readable
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.wire.codec import ZERO_UUID
from smq.wire.generated.fetch import (
    AbortedTransaction,
    FetchResponse,
    PartitionData,
)

FETCH_WAIT_MS = 500  # How long a broker holds a fetch without records; Kafka's default.
RETRY_SECONDS = 0.1
UNPOLLED_SECONDS = 1.0  # Only this much of a pause between two takes counts as failing.
OFFSET_MAX = np.iinfo(np.int64).max  # Nothing is behind it.
FETCH_BYTES_FACTOR = 4  # Per answer, which serves several partitions.


@dataclass(slots=True)
class _Fetch:
    """A fetch in flight, or an idle connection for one (`asked` is None)."""

    connection: KafkaConnection
    session: FetchSession
    asked: dict[TopicPartition, Spot] | None = None
    has_ids: bool = True


class _Refusal(NamedTuple):
    """Why the leader of a partition gives none of its records, and since when."""

    error: BrokerError
    since: float


class WireSource:
    """Reads partitions from their leaders.

    _missing   topics that cannot be read, with the last reason
    _is_told   whether that was raised
    _left_at   when the last take ended: a caller's pause does not count as failing
    _refusals  of the partitions that were refused when they were last asked for
    _rests     until when some of these are left out
    _untold    one of them whose refusal the next take raises
    """

    def __init__(
        self,
        cluster: Cluster,
        batch_bytes_max: int,
        deadline_seconds: float,
        beginnings: Beginnings,
        *,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self._cluster, self._clock = cluster, cluster.clock
        self._bytes_max = batch_bytes_max
        self._deadline_seconds = deadline_seconds
        self._beginnings = beginnings
        self._isolation_level = isolation_level
        self._partitions: dict[TopicPartition, Partition] = {}
        self._fetches: dict[int, _Fetch] = {}
        self._retry_at = 0.0
        self._failing_since: float | None = None
        self._failing_code: ErrorCode | None = None
        self._left_at = 0.0
        self._missing: dict[str, BrokerError] = {}
        self._is_told = False
        self._refusals: dict[TopicPartition, _Refusal] = {}
        self._rests: dict[TopicPartition, float] = {}
        self._untold: TopicPartition | None = None
        self._forget_at = 0.0
        self._look_at = 0.0  # When to look for missing topics again.

    def add(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Read these from their positions on."""
        self._partitions |= {partition.name: partition for partition in partitions}
        return []

    def remove(self, partition: Partition) -> None:
        """Stop reading a partition."""
        self._partitions.pop(partition.name, None)
        self._missing.pop(partition.name.topic, None)
        self._refusals.pop(partition.name, None)
        self._rests.pop(partition.name, None)
        if not self._partitions:
            self._failing_since = None  # A later failure is a new one.

    def clear(self) -> None:
        """Stop reading all."""
        self._partitions.clear()
        self._missing.clear()
        self._refusals.clear()
        self._rests.clear()

    def leave(self) -> list[Partition]:
        """None: the wire has all records."""
        return []

    def __len__(self) -> int:
        return len(self._partitions)

    def close(self) -> None:
        """Close the connections."""
        for fetch in self._fetches.values():
            fetch.connection.close()
        self._fetches.clear()

    def filenos(self) -> list[int]:
        """Descriptors that become readable with an answer."""
        return [each.connection.fileno() for each in self._fetches.values() if each.asked]

    def retry_in_seconds(self) -> float:
        """How long to wait before the next `take`; 0: not at all."""
        retry_at = max(self._retry_at, self._look_at if self._missing else 0.0)
        retry_at = max(retry_at, min(self._rests.values(), default=0.0))
        return max(0.0, retry_at - self._clock.monotonic_s())

    def take(self) -> list[Taken]:
        """The answers received so far; sends the next fetches. Raises BrokerError."""
        unpolled = max(0.0, self._clock.monotonic_s() - self._left_at - UNPOLLED_SECONDS)
        if self._failing_since is not None:
            self._failing_since += unpolled
        if unpolled:
            for name, (error, since) in self._refusals.items():
                self._refusals[name] = _Refusal(error, since + unpolled)
        try:
            return self._take_answers()
        finally:
            self._left_at = self._clock.monotonic_s()

    def _take_answers(self) -> list[Taken]:
        if not self._partitions or self._clock.monotonic_s() < self._retry_at:
            return []
        self._tell_missing()  # The last take returned records first.
        self._tell_refused()
        taken: list[Taken] = []
        refused: list[TopicPartition] = []
        try:
            self._begin_anew()
            for fetch in self._answered():
                asked, fetch.asked = fetch.asked, None
                response = fetch.connection.finish()
                if fetch.session.answered(response):
                    taken += self._read(response, asked or {}, refused)
            self._note_refused(refused, has_others=bool(taken))
            moved = {each.name: offset for part in taken for each, offset in part.ends}
            self._ask(
                {
                    name: (moved.get(name, each.position), each.topic_id)
                    for name, each in self._partitions.items()
                    if name.topic not in self._missing and name not in self._rests
                }
            )
        except BrokerError as error:
            self._fail(error)
        except BaseException:  # An answer may have been read in part.
            self.close()
            raise
        if not taken:
            self._tell_missing()
            self._tell_refused()
        return taken

    def _tell_missing(self) -> None:
        if self._missing and not self._is_told:
            self._is_told = True
            raise next(iter(self._missing.values()))

    def _tell_refused(self) -> None:
        untold, self._untold = self._untold, None
        if untold is not None and untold in self._refusals:
            raise self._refusals[untold].error

    def _note_refused(self, refused: list[TopicPartition], *, has_others: bool) -> None:
        """Partitions were refused: have one of them told if its time has come. Without records of
        others they rest, for the next answer comes as soon."""
        now = self._clock.monotonic_s()
        self._rests = {name: until for name, until in self._rests.items() if until > now}
        if not refused:
            return
        if not has_others:
            self._rests |= dict.fromkeys(refused, now + RETRY_SECONDS)
        for name in refused:
            error, since = self._refusals[name]
            is_too_long = now - since > self._deadline_seconds
            if is_too_long or not _passes(error):
                self._untold = name
                self._refusals[name] = _Refusal(error, now)
        if now >= self._forget_at:  # The leaders may be others; but not for each answer.
            self._cluster.forget()
            self._forget_at = now + RETRY_SECONDS

    def _begin_anew(self) -> None:
        """Reset partitions whose topic was created again; note missing topics."""
        now = self._clock.monotonic_s()
        if now >= self._look_at:
            self._missing.clear()
        for partition in self._partitions.values():
            topic = partition.name.topic
            if topic in self._missing:
                continue
            try:
                self._follow_topic(partition)
            except BrokerError as error:
                if _passes(error):
                    raise
                self._missing[topic], self._is_told = error, False
                self._look_at = now + RETRY_SECONDS

    def _follow_topic(self, partition: Partition) -> None:
        topic_id = self._cluster.topic(partition.name.topic).topic_id
        if not partition.is_in(topic_id):
            partition.position = self._beginnings.in_another(partition)
            partition.topic_id = topic_id

    def _answered(self) -> list[_Fetch]:
        by_fileno = {f.connection.fileno(): f for f in self._fetches.values() if f.asked}
        return [by_fileno[fileno] for fileno in wait_readable(by_fileno, 0)] if by_fileno else []

    def _ask(self, spots: dict[TopicPartition, Spot]) -> None:
        """Send each leader a fetch from these positions on, unless it has one."""
        wanted: dict[int, dict[TopicPartition, Spot]] = {}
        for topic, partitions in by_topic(spots).items():
            for leader, led in self._cluster.by_leader(topic, partitions).items():
                names = (TopicPartition(topic, each) for each in led)
                wanted.setdefault(leader, {}).update((name, spots[name]) for name in names)
        leaders = {name: leader for leader, asked in wanted.items() for name in asked}
        for leader, fetch in self._fetches.items():
            if any(leaders.get(name, leader) != leader for name in fetch.asked or ()):
                # A partition has moved: of two answers for one position one would be given again.
                fetch.connection.close()
                fetch.asked = None
        for leader, asked in wanted.items():
            self._ask_leader(leader, asked)

    def _ask_leader(self, leader: int, asked: dict[TopicPartition, Spot]) -> None:
        fetch = self._fetches.get(leader)
        if fetch is not None and fetch.asked is not None:
            if fetch.asked.items() >= asked.items():
                return
            fetch.connection.close()  # Its fetch waits for positions that are no longer wanted.
        if fetch is None or fetch.connection.is_closed:
            session = fetch.session if fetch is not None else FetchSession(self._bytes_max)
            session.restart()
            fetch = self._fetches[leader] = _Fetch(self._cluster.connect(leader), session)
        has_ids = all(topic_id != ZERO_UUID for _, topic_id in asked.values())
        if has_ids != fetch.has_ids:
            fetch.session.restart()
        fetch.has_ids = has_ids
        request = fetch.session.request(asked)
        request.max_wait_ms, request.min_bytes = FETCH_WAIT_MS, 1
        request.max_bytes = FETCH_BYTES_FACTOR * self._bytes_max
        request.isolation_level = self._isolation_level
        fetch.connection.start(FETCH if has_ids else FETCH_BY_NAME, request)
        fetch.asked = asked

    def _read(
        self,
        response: FetchResponse,
        asked: dict[TopicPartition, Spot],
        refused: list[TopicPartition],
    ) -> list[Taken]:
        """What an answer gives. Partitions that it refuses are added to `refused`."""
        check(response.error_code)
        names = {topic_id: name.topic for name, (_, topic_id) in asked.items()}
        taken: list[Taken] = []
        for topic in response.responses:
            for data in topic.partitions:
                name = TopicPartition(
                    topic.topic or names.get(topic.topic_id, ""), data.partition_index
                )
                partition = self._partitions.get(name)
                if partition is None or asked.get(name) != (partition.position, partition.topic_id):
                    continue  # No longer wanted.
                try:
                    taken += self._take(partition, data)
                except BrokerError as error:
                    refused.append(name)
                    self._refuse(name, error)
                else:
                    self._refusals.pop(name, None)
        self._failing_since = None
        return taken

    def _refuse(self, name: TopicPartition, error: BrokerError) -> None:
        before = self._refusals.get(name)
        is_same = before is not None and before.error.code is error.code
        since = before.since if before is not None and is_same else self._clock.monotonic_s()
        self._refusals[name] = _Refusal(error, since)

    def _take(self, partition: Partition, data: PartitionData) -> list[Taken]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            partition.position = self._beginnings.reset(partition)
            return []
        check(data.error_code, act=Act("read", topic=partition.name.topic))
        if not data.records:
            return []
        self._partitions[partition.name] = self._partitions.pop(
            partition.name
        )  # Now it comes last.
        batches, after = _batches(read_only(data.records), partition, data.aborted_transactions)
        return [Taken(batches, [(partition, after)], lambda _: None, always_intact)]

    def _fail(self, error: BrokerError) -> None:
        """Retry later; raises errors that are not transient or last too long."""
        now = self._clock.monotonic_s()
        is_answer = error.code is ErrorCode.UNKNOWN_TOPIC_ID
        if is_answer and self._failing_code is not error.code:
            self._failing_since = now  # The broker is there again: what failed before is over.
        self._failing_code = error.code
        self._failing_since = self._failing_since or now
        is_too_long = now - self._failing_since > self._deadline_seconds
        self._retry_at = now + RETRY_SECONDS  # Also for a caller that polls again after an error.
        self._cluster.forget()
        self.close()
        if is_too_long or not _passes(error):
            raise error


def _passes(error: BrokerError) -> bool:
    return error.code in PASSING and not isinstance(error, NoSuchTopic)


def _batches(
    data: np.ndarray, partition: Partition, aborted: Sequence[AbortedTransaction] | None
) -> tuple[PlacedBatches, int]:
    """The batches of an answer from the partition's position on, and the position after them.

    Omits those of transactions that the answer lists as aborted.

    The last batch may be incomplete: brokers fill an answer up to its limit.
    """
    facts = np.empty((F_FIELDS, len(data) // BATCH_HEADER_BYTES + 1), np.int64)
    facts[B_AT] = -1
    stopped = scan_batches(data, 0, len(data), facts)
    count = int((facts[B_AT] >= 0).sum())
    if count == 0:
        raise PeerError(f"what was fetched of {partition.name} is no record batch at {~stopped}")
    facts = facts[:, :count]
    if not _is_in_order(facts):
        raise PeerError(f"what was fetched of {partition.name} has offsets that do not grow")
    after = int(facts[B_LAST_OFFSET, -1]) + 1
    wanted = (facts[B_LAST_OFFSET] >= partition.position) & (
        facts[B_ATTRIBUTES] & ATTRIBUTE_CONTROL == 0
    )
    if aborted:
        wanted &= ~in_aborted(facts, aborted)
    facts = np.ascontiguousarray(facts[:, wanted])
    facts[F_ROW], facts[F_START] = 0, partition.position
    return PlacedBatches(data, facts, [partition.name], is_lent=False), max(
        after, partition.position
    )


def _is_in_order(facts: np.ndarray) -> bool:
    """Whether each batch begins behind the one before it, and all end below the last int64."""
    firsts, lasts = facts[B_BASE_OFFSET], facts[B_LAST_OFFSET]
    befores = np.concatenate(([-1], lasts[:-1]))
    return bool(((firsts > befores) & (lasts >= firsts) & (lasts < OFFSET_MAX)).all())
