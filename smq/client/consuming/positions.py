"""Where a consumer stands: which partitions are assigned to it, and its position in each.

Partitions are read from where `beginnings` finds them. Those of topics that are read as a whole
become more when the topics do.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from smq.client.arguments import iterator, partition_name
from smq.client.consuming.source.beginnings import Beginnings
from smq.client.consuming.source.reading import Reading
from smq.client.consuming.source.source import Partition
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.offsets import OffsetPlace
from smq.client.names import TopicPartition
from smq.client.reach import Reach
from smq.model.errors import BrokerError


class Positions:
    """The last batch must have been given back before anything here moves a position."""

    def __init__(
        self, reach: Reach, cluster: Cluster, beginnings: Beginnings, reading: Reading
    ) -> None:
        self._cluster, self._beginnings, self._reading = cluster, beginnings, reading
        self._clock, self._metadata_max_age_s = reach.clock, reach.metadata_max_age_s
        self._look_at = self._clock.monotonic_s() + self._metadata_max_age_s
        self._whole: Sequence[str] = ()  # All partitions of these are read, future ones too.

    def names(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return sorted(self._reading.partitions)

    def partition(self, topic: str, partition: int) -> Partition:
        """An assigned partition. Raises ValueError for any other."""
        name = partition_name("partition", (topic, partition))
        found = self._reading.partitions.get(name)
        if found is None:
            raise ValueError(f"{topic}-{partition} is not assigned; {self.names()} are")
        return found

    def assign(self, partitions: Iterable[tuple[str, int]], whole: Sequence[str] = ()) -> None:
        """Read these partitions and no others, and those that the topics `whole` will gain."""
        pairs = iterator("partitions", partitions, "a list of pairs of a topic and a partition")
        names = list(dict.fromkeys(partition_name("partitions", each) for each in pairs))
        self._cluster.forget_topics()  # A topic may have been created again.
        self._beginnings.check(names)
        self._whole = ()
        self._reading.assign(self._beginnings.positions(names))
        self._whole = whole

    def seek(self, name: TopicPartition, place: OffsetPlace) -> None:
        """Continue a partition at a place."""
        self._cluster.forget_topics()  # As in `assign`.
        self._reading.seek(name, self._beginnings.find([name], place)[name])

    def find(self, place: OffsetPlace) -> dict[TopicPartition, int]:
        """The offset of a place in each assigned partition."""
        return self._beginnings.find(self.names(), place)

    def have_reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether all records before these ends have been taken."""
        partitions = self._reading.partitions
        return all(partitions[name].position >= end for name, end in ends.items())

    def is_look_due(self) -> bool:
        """Whether it is time to look for new partitions of whole topics."""
        return bool(self._whole) and self._clock.monotonic_s() >= self._look_at

    def read_new(self) -> None:
        """Read partitions that the topics have gained since."""
        self._look_at = self._clock.monotonic_s() + self._metadata_max_age_s
        with suppress(BrokerError):  # Reading meets the error too, and retries.
            self._cluster.forget_topics()
            counts = [(topic, len(self._cluster.topic(topic).leaders)) for topic in self._whole]
            names = {
                TopicPartition(topic, each) for topic, count in counts for each in range(count)
            }
            self._reading.add(
                self._beginnings.of_new(sorted(names - self._reading.partitions.keys()))
            )
