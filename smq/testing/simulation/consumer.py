"""Consumers, committers and administrators: read, commit offsets, create topics."""

from typing import NamedTuple

from smq.model.errors import ErrorCode
from smq.model.setting import INT64_MAX
from smq.testing.simulation.clients import MOVED, PAUSE_MS, Message, SimClient
from smq.testing.simulation.environment import Environment
from smq.testing.simulation.ledger import Broken, Commits, Incarnation, Part
from smq.testing.simulation.removed import removed_offsets
from smq.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from smq.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from smq.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from smq.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from smq.wire.records import read_batches

BY_NAME, BY_ID = 12, 13
COMMIT_VERSION, OFFSETS_VERSION = 8, 7
FETCH_BYTES_MAX, LARGE_FETCH_BYTES = 1 << 14, 1 << 16


class SimConsumer(SimClient):
    """Reads partitions from its positions."""

    def __init__(self, world: Environment, name: str) -> None:
        super().__init__(world, name)
        self.positions: dict[Part, int] = {}

    def fetch(  # noqa: PLR0913, PLR0917  (A request.)
        self,
        incarnations: list[Incarnation],
        node: int,
        wait_ms: int,
        min_bytes: int,
        version: int,
        bytes_max: int = FETCH_BYTES_MAX,
    ) -> None:
        """Fetch once the partitions of these topics that a node leads."""
        asked = (self._asked(each, node, version, bytes_max) for each in incarnations)
        topics = [topic for topic in asked if topic is not None]
        connection = self.connection(node) if topics else None
        if connection is None:
            return
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=bytes_max, topics=topics
        )
        by_key = {each.topic.id: each for each in incarnations} | {
            each.topic.name: each for each in incarnations
        }
        # Its answer may be delayed by a request before it.
        is_late = connection.asked or connection.is_paused
        sent_ns = None if is_late else self.world.clock.now_ns
        losses = {each: each.losses for each in incarnations}

        def answered(response: Message) -> None:
            seen: list[bytes] = []
            for each in response.responses if response is not None else ():
                incarnation = by_key[each.topic_id if version >= BY_ID else each.topic]
                for row in each.partitions:
                    found = Records([], 0) if row.error_code else records_of(row.records)
                    seen += [value for _, value in found.rows]
                    if not incarnation.is_dying and incarnation.losses == losses[incarnation]:
                        self._take(incarnation, row, found)
            if sent_ns is not None:
                self.world.fetched(seen, sent_ns, wait_ms, min_bytes)

        connection.ask("Fetch", version, request, answered, wait_ms)

    def fetch_and_pause(self, incarnations: list[Incarnation], node: int, ms: int) -> None:
        """Fetch from the starts, twice at once, and read no answer for a while."""
        connection = self.connection(node)
        if connection is None or connection.is_paused:
            return
        connection.pause(ms)
        self.world.disturb(2 * ms)
        for each in incarnations:
            for partition in range(each.topic.partition_count):
                self.positions[each, partition] = 0
        for _ in range(2):
            self.fetch(incarnations, node, 0, 1, BY_ID, LARGE_FETCH_BYTES)

    def _asked(
        self, incarnation: Incarnation, node: int, version: int, bytes_max: int
    ) -> FetchTopic | None:
        partitions = [
            FetchPartition(
                partition=i,
                fetch_offset=self.positions.get((incarnation, i), 0),
                partition_max_bytes=bytes_max,
            )
            for i in range(incarnation.topic.partition_count)
            if self.leader_of(incarnation, i) == node
        ]
        if not partitions:
            return None
        if version >= BY_ID:
            return FetchTopic(topic_id=incarnation.topic.id, partitions=partitions)
        return FetchTopic(topic=incarnation.topic.name, partitions=partitions)

    def _take(self, incarnation: Incarnation, row: Message, records: "Records") -> None:
        place = incarnation, row.partition_index
        position = self.positions.get(place, 0)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.positions[place] = 0
        elif row.error_code in MOVED:
            self.look_again(*place)
        for offset, value in records.rows:
            if offset >= position:
                incarnation.claim(row.partition_index, offset, value, "what a consumer sees")
        if records.end > position:
            self.positions[place] = records.end


class Records(NamedTuple):
    """Offsets and values, and the offset after them: the last batch may extend over a gap."""

    rows: list[tuple[int, bytes]]
    end: int


def records_of(data: bytes | memoryview | None) -> Records:
    """The records in a fetch response for a partition."""
    rows, end = [], 0
    for batch in read_batches(bytes(data or b"")):
        if not batch.is_control:
            rows += [(record.offset, record.value or b"") for record in batch.records()]
        end = batch.last_offset + 1
    return Records(rows, end)


class FinalReader(SimClient):
    """Reads whole partitions at the end of a run; `found` has their records, `removed` the offsets
    that compaction had removed before the first was read."""

    def __init__(self, world: Environment, name: str) -> None:
        super().__init__(world, name)
        self.found: dict[Part, dict[int, bytes]] = {}
        self.unread: set[Part] = set()
        self.removed: dict[Part, set[int]] = {}

    @property
    def count(self) -> int:
        """The number of records that it has found."""
        return sum(map(len, self.found.values()))

    def read(self, incarnation: Incarnation, partition: int) -> None:
        """Read a partition from its start to its end."""
        if not self.found:
            self.removed = removed_offsets(self.world)
        place = incarnation, partition
        self.found[place] = {}
        self.unread.add(place)
        self._fetch(place, 0)

    def _fetch(self, place: Part, offset: int) -> None:
        incarnation, partition = place
        connection = self.connection(self.leader_of(incarnation, partition))
        if connection is None:
            self.look_again(*place)
            self.later(PAUSE_MS, lambda: self._fetch(place, offset))
            return
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX
        )
        topic = FetchTopic(topic_id=incarnation.topic.id, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, max_bytes=FETCH_BYTES_MAX, topics=[topic])
        connection.ask("Fetch", BY_ID, request, lambda r: self._answered(place, offset, r))

    def _answered(self, place: Part, offset: int, response: Message) -> None:
        incarnation = place[0]
        if response is None:
            self.later(PAUSE_MS, lambda: self._fetch(place, offset))
            return
        [row] = response.responses[0].partitions
        code = ErrorCode(row.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and row.log_start_offset > offset:
            self._fetch(place, row.log_start_offset)
        elif code != ErrorCode.NONE:
            name = incarnation.topic.name
            if incarnation.is_damaged:
                self.unread.discard(place)
                return
            if code != ErrorCode.OFFSET_OUT_OF_RANGE:
                self.look_again(*place)
                self.later(PAUSE_MS, lambda: self._fetch(place, offset))
                return
            raise Broken(f"reading {name}-{place[1]} at {offset}: {code.name}")
        else:
            self._keep(place, offset, records_of(row.records), row.high_watermark)

    def _keep(self, place: Part, offset: int, records: Records, end: int) -> None:
        found = self.found[place]
        found.update({at: value for at, value in records.rows if at >= offset})
        has_more = records.end > offset
        offset = max(offset, records.end)
        if offset < end and has_more:
            self._fetch(place, offset)
        elif offset < end and not self.world.ledger.is_damaged:
            name = place[0].topic.name
            raise Broken(f"{name}-{place[1]} ends at {end} and gives nothing from {offset} on")
        else:
            self.unread.discard(place)


class Committer(SimClient):
    """A group that commits each offset at most once. `unchecked`: those it has asked for."""

    def __init__(self, world: Environment, name: str) -> None:
        super().__init__(world, name)
        self.unchecked: set[Part] = set()

    def commit(self, incarnation: Incarnation, partition: int) -> None:
        """Commit the next offset."""
        connection = self.any_connection()
        if connection is None:
            return
        kept = self.world.ledger.commits.setdefault((self.name, incarnation, partition), Commits())
        offset, replaced = kept.ask()

        def answered(response: Message) -> None:
            if response is None:
                return
            if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                kept.acked(offset, replaced)
            else:
                kept.refused(offset)

        row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=incarnation.topic.name, partitions=[row])
        request = OffsetCommitRequest(group_id=self.name, topics=[topic])
        connection.ask("OffsetCommit", COMMIT_VERSION, request, answered)

    def check(self, incarnation: Incarnation, partition: int, kept: Commits) -> None:
        """Raises Broken if the group's offset is not the committed one."""

        def is_enough(response: Message) -> bool:
            [group] = response.groups
            row = group.topics[0].partitions[0] if group.topics else None
            if group.error_code or row is None or row.error_code:
                return False
            self.unchecked.discard((incarnation, partition))
            if row.committed_offset not in kept.possible:
                raise Broken(
                    f"group {self.name} has committed {sorted(kept.possible)} of "
                    f"{incarnation.topic.name}-{partition} and is told {row.committed_offset}"
                )
            return True

        self.unchecked.add((incarnation, partition))
        topic = OffsetFetchRequestTopics(name=incarnation.topic.name, partition_indexes=[partition])
        asked = OffsetFetchRequestGroup(group_id=self.name, topics=[topic])
        request = OffsetFetchRequest(groups=[asked])
        self.ask_until("OffsetFetch", OFFSETS_VERSION, request, is_enough, 1000)


class Administrator(SimClient):
    """Creates and deletes topics."""

    def create(self, name: str, partitions: int, level: str, attempts: int = 30) -> None:
        """Create the topic, retrying until it exists."""

        def is_enough(response: Message) -> bool:
            code = ErrorCode(response.topics[0].error_code)
            if code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                return False
            topic = self.world.topic(name)
            if topic is None:
                return False
            self.world.ledger.created(topic)
            return True

        # The host's clock, which is the clients' too, may be set between a record and its check.
        configs = {"smq.durability": level, "message.timestamp.after.max.ms": str(INT64_MAX)}
        if self.world.compacts(name):
            configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        self.ask_until("CreateTopics", 6, request, is_enough, attempts)

    def delete(self, name: str) -> None:
        """Delete the topic, retrying until it is gone."""
        incarnation = self.world.ledger.standing(name)
        if incarnation is None:
            return
        incarnation.is_dying = True
        # By its id: a late request must not delete the next topic of that name.
        state = DeleteTopicState(name=None, topic_id=incarnation.topic.id)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=1000)
        self.ask_until("DeleteTopics", 6, request, lambda _: True, 5)
