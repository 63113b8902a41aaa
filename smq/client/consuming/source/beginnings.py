"""Decides where partitions begin or are reset to: committed offsets, else the setting `start`."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from smq.client.arguments import partition_name
from smq.client.consuming.group.commits import Committing
from smq.client.consuming.source.source import Partition
from smq.client.errors import TopicReplaced
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    OffsetPlace,
    find_offsets,
    place_of_wanted,
    resolve,
    timestamp_of,
)
from smq.client.names import TopicPartition, by_topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.offset_types import LogEnds, OutOfRange, WantedPlace, resumes, start_of


class Beginnings:
    """Asks the cluster, retrying transient errors. Raises NoSuchTopic, BrokerError."""

    def __init__(
        self,
        cluster: Cluster,
        start: OffsetPlace | WantedPlace,
        committing: Committing | None = None,
        *,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> None:
        self._cluster = cluster
        self._wanted = None if isinstance(start, OffsetPlace) else start
        self._start = start if isinstance(start, OffsetPlace) else place_of_wanted(start)
        self._begun: set[TopicPartition] = set()
        self._committing = committing
        self._isolation_level = isolation_level
        self.resets = 0

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of some topics."""
        cluster = self._cluster
        return [
            TopicPartition(topic, each)
            for topic in topics
            for each in range(len(cluster.retrying(lambda t=topic: cluster.topic(t)).leaders))  # type: ignore[misc]
        ]

    def check(self, names: Iterable[TopicPartition]) -> None:
        """Check that the partitions exist."""
        for topic, wanted in by_topic(names).items():
            self._cluster.retrying(lambda t=topic, w=wanted: self._cluster.by_leader(t, w))  # type: ignore[misc]

    def positions(self, names: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where each begins: its committed offset, else `start`; or as an offset type says, which
        holds once for each: a partition that comes again resumes."""
        by_type = self._by_type(names)
        rest = [name for name in names if name not in by_type]
        return by_type if by_type and not rest else self._resumed(rest) | by_type

    def _by_type(self, names: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = self._wanted
        if wanted is None or resumes(wanted):
            return {}
        new = [name for name in names if name not in self._begun]
        firsts, ends, found = (self.find(new, each) for each in (EARLIEST, LATEST, self._start))
        self._begun.update(new)
        try:
            logs = {name: LogEnds(firsts[name], ends[name]) for name in new}
            return {name: start_of(wanted, logs[name], by_time=found[name]).offset for name in new}
        except OutOfRange as error:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, str(error)) from error

    def _resumed(self, names: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        committed = {} if self._committing is None else self._committing.fetch(names)
        missing = (name for name in names if name not in committed)
        return committed | self.find(missing, self._start)

    def positions_anew(self, names: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """As `positions`, with fresh metadata: topics may have gained partitions."""
        self._cluster.forget_topics()
        return self.positions(names)

    def of_new(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where partitions begin that were created later: at the first record, if at "latest"."""
        return self.find(names, EARLIEST if self._start == LATEST else self._start)

    def find(
        self, names: Iterable[TopicPartition], place: OffsetPlace
    ) -> dict[TopicPartition, int]:
        """The offset of a place in each partition."""
        found: dict[TopicPartition, int] = {}
        level = self._isolation_level
        for topic, partitions in by_topic(names).items():
            offsets = resolve(self._cluster, topic, partitions, place, isolation_level=level)
            found |= {TopicPartition(topic, each): offset for each, offset in offsets.items()}
        return found

    def at_times(
        self, times: Mapping[tuple[str, int], datetime | int]
    ) -> dict[TopicPartition, int | None]:
        """See Consumer.offsets_for_times."""
        if not isinstance(times, Mapping):
            raise TypeError(
                f"times is a mapping of partitions to times, not {type(times).__name__}"
            )
        found: dict[TopicPartition, int | None] = {}
        for pair, when in times.items():
            name = partition_name("times", pair)
            ms = timestamp_of(f"the time of {pair}", when)
            offsets = find_offsets(
                self._cluster,
                name.topic,
                [name.partition],
                ms,
                isolation_level=self._isolation_level,
            )
            offset = offsets[name.partition]
            found[name] = None if offset < 0 else offset
        return found

    def reset(self, partition: Partition) -> int:
        """The new position of a partition whose position does not exist. Raises BrokerError."""
        name = partition.name
        if self._start not in {EARLIEST, LATEST}:
            first, end = (self.find([name], place)[name] for place in (EARLIEST, LATEST))
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{name.topic}-{name.partition} has no offset {partition.position}: "
                f"its records are from {first} up to {end}",
            )
        self.resets += 1
        return self.find([name], self._start)[name]

    def in_another(self, partition: Partition) -> int:
        """The new position of a partition whose topic was created again: as of a new partition.

        Raises BrokerError.
        """
        name = partition.name
        if partition.is_pinned:
            raise TopicReplaced(name.topic)
        if self._committing is not None:
            self._committing.forget(name)  # The offsets were deleted with the topic.
        if self._start not in {EARLIEST, LATEST}:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"topic {name.topic} was deleted and created again; {partition.position} was the "
                f"position in partition {name.partition} of the old one: seek to go on in the new",
            )
        self.resets += 1
        return self.of_new([name])[name]
