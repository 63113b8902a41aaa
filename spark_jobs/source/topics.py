"""Topics for Spark's driver, from the manifest on this host and from the broker.

Segments are read in place if the broker's data directory is on this host and this user may read
it. Otherwise, and with `transport=kafka`, all records come from the broker.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from uuid import UUID

from smq.client.facts import BrokerFacts, broker_facts
from smq.client.kafka.admin import topic_configs
from smq.client.kafka.cluster import Cluster
from smq.client.kafka.group_admin import commit_offsets
from smq.client.kafka.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    find_offsets,
)
from smq.client.locate import AUTO, KAFKA, cluster_at, is_served_by
from smq.client.names import TopicPartition, by_topic
from smq.client.secure.security import security_of
from smq.filer.location import Location as Filer
from smq.model.catalog import NAMESPACE_DEFAULT, Topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.topic_settings import schema_of
from smq.sealer.cold import open_segment
from smq.store.manifest import Manifest, open_manifest, walk
from smq.store.store import FILE_NAME
from smq.tables.plan import SegmentPart, Unreadable, between
from smq.wire.codec import ZERO_UUID
from spark_jobs.source.options import BrokerLocation, TopicSelection

Offsets = dict[TopicPartition, int]


class BrokerPlace(NamedTuple):
    """Where executors read: the broker's address, and its files if they are on this host.

    `config` is a file of properties that says how to connect, `transport` how the broker's records
    travel.
    """

    bootstrap: str | None
    data_dir: Path | None
    filer: Filer | None
    config: str | None = None
    transport: str = AUTO


def find_place(location: BrokerLocation) -> BrokerPlace:
    """Locate a broker's records. Raises Unreadable, BrokerError."""
    if location.transport == KAFKA:  # Nothing is asked, which might be denied.
        address = location.bootstrap or location.data_dir
        return BrokerPlace(address, None, None, location.config, KAFKA)
    if location.data_dir is not None:
        data_dir = Path(location.data_dir)
        if not os.access(data_dir / FILE_NAME, os.R_OK):
            raise Unreadable(
                f"dataDir: {data_dir} is not the data directory of a broker of this user; give "
                "kafka.bootstrap.servers instead, and all records come from the broker"
            )
        root = location.filer_root or str(data_dir / "filer")
        filer = _filer(location, {"filer.root": root})
        if Path(filer.root).exists() and not may_read(filer):
            raise Unreadable(
                f"{filer.root} is a filer that this user may not read; with the option "
                "transport=kafka all records come from the broker"
            )
        address = location.bootstrap or location.data_dir
        return BrokerPlace(address, data_dir, filer, location.config)
    assert location.bootstrap is not None
    with cluster_at(location.bootstrap, location.security) as cluster:
        facts = cluster.retrying(lambda: _facts(cluster))
    settings = facts.settings
    data_dir = Path(settings.get("data.dir", ""))
    is_readable = "data.dir" in settings and os.access(data_dir / FILE_NAME, os.R_OK)
    if not (is_readable and is_served_by(data_dir, facts.cluster_id)):
        # It is another host's, or another user's.
        return BrokerPlace(location.bootstrap, None, None, location.config)
    filer = _filer(location, settings)
    if not may_read(filer):  # Likewise: that of a container, say.
        return BrokerPlace(location.bootstrap, None, None, location.config)
    return BrokerPlace(location.bootstrap, data_dir, filer, location.config)


def may_read(filer: Filer) -> bool:
    """Whether this user enters the filer; that of a bucket is tried by who reads it."""
    return filer.is_s3 or os.access(filer.root, os.R_OK | os.X_OK)


def _facts(cluster: Cluster) -> BrokerFacts:
    """The broker's facts; no settings where we may not see them: reading needs no such right."""
    try:
        return broker_facts(cluster)
    except BrokerError as error:
        if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return BrokerFacts("", {})


def _filer(location: BrokerLocation, settings: Mapping[str, str]) -> Filer:
    """The filer of a broker with these settings; options win. Each executor opens its own."""
    named = Filer.named_by(settings, location.filer_endpoint or "")
    return Filer(
        location.filer_root or named.root,
        location.filer_endpoint or named.s3_endpoint,
        location.filer_region or settings.get("filer.s3.region", ""),
        location.filer_credentials or settings.get("filer.s3.credentials", ""),
    )


class Piece(NamedTuple):
    """Records [start, end) of a partition: in a sealed segment, or (None) from the broker.

    topic_id   of that topic; ZERO_UUID: the broker has no ids
    """

    topic: str
    part: SegmentPart | None
    partition: int
    start: int
    end: int
    topic_id: UUID = ZERO_UUID


class SparkTopics:
    """The driver's access to topics. Open one per query, and close it afterwards."""

    def __init__(self, place: BrokerPlace, *, reads_live: bool) -> None:
        self._place = place
        self._manifest: Manifest | None = None
        self._cluster: Cluster | None = None
        if place.data_dir is not None:
            self._manifest = open_manifest(place.data_dir / FILE_NAME)
        if reads_live:
            assert place.bootstrap is not None
            self._cluster = cluster_at(place.bootstrap, security_of(place.config))
        elif self._manifest is None:
            raise Unreadable(
                "tail=sealed reads the broker's files: run on its host as its user, or give "
                "dataDir; without it all records come from the broker"
            )

    def close(self) -> None:
        """Close connections and the manifest."""
        for each in (self._cluster, self._manifest):
            if each is not None:
                each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def selected(
        self, selection: TopicSelection, *, only_existing: bool = False
    ) -> list[TopicPartition]:
        """The partitions to read, sorted. Raises Unreadable if one does not exist.

        With `only_existing` missing ones are skipped.
        """
        counts = self.counts()
        if selection.pattern is not None:
            wanted = {each for each in counts if re.fullmatch(selection.pattern, each)}
        else:
            wanted = {*selection.topics, *(each.topic for each in selection.partitions)}
        if (missing := sorted(wanted - counts.keys())) and not only_existing:
            raise Unreadable(f"there is no topic {missing[0]}")
        names = {
            TopicPartition(each, number)
            for each in wanted & counts.keys()
            for number in range(counts[each])
        }
        if not selection.partitions:
            return sorted(names)
        if (unknown := sorted(selection.partitions - names)) and not only_existing:
            raise Unreadable(f"{unknown[0].topic} has no partition {unknown[0].partition}")
        return sorted(selection.partitions & names)

    def counts(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        if self._cluster is None:
            return {each.name: each.partition_count for each in self._sealed_topics().values()}
        cluster = self._cluster
        found = cluster.retrying(cluster.topics)
        return {each.name: len(each.leaders) for each in found if not each.is_internal}

    def ids(self, names: Iterable[TopicPartition]) -> dict[str, str]:
        """The ids of these partitions' topics; skips deleted topics."""
        wanted = {each.topic for each in names}
        if self._cluster is None:
            found = {each.name: each.id for each in self._sealed_topics().values()}
        else:
            topics = self._cluster.retrying(self._cluster.topics)
            found = {each.name: each.topic_id for each in topics}
        return {name: each.hex for name, each in found.items() if name in wanted and each.int}

    def schema(self, topic: str) -> str:
        """A topic's `smq.schema`; "" if it has none. Raises Unreadable, BrokerError.

        The broker tells it to those with DESCRIBE_CONFIGS on the topic.
        """
        if self._manifest is not None:
            found = self._sealed_topics().get(topic)
            if found is None:
                raise Unreadable(f"there is no topic {topic}")
            return schema_of(found.configs)
        cluster = self._cluster
        assert cluster is not None
        try:
            configs = cluster.retrying(lambda: topic_configs(cluster, topic))
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            raise Unreadable(
                f"typed: the broker tells the types of {topic} to users with DESCRIBE_CONFIGS on "
                "it; without typed READ is enough"
            ) from error
        return schema_of({each.name: each.value or "" for each in configs})

    def _sealed_topics(self) -> dict[str, Topic]:
        if self._manifest is None:
            return {}
        topics = self._manifest.topics()
        return {each.name: each for each in topics if each.namespace == NAMESPACE_DEFAULT}

    def starts(self, names: Iterable[TopicPartition]) -> Offsets:
        """The first offset of each partition."""
        if self._cluster is not None:
            return self._found(names, EARLIEST_TIMESTAMP)
        assert self._manifest is not None
        numbers = self._numbers(names)
        return {name: self._manifest.log_start(number) for name, number in numbers.items()}

    def ends(self, names: Iterable[TopicPartition]) -> Offsets:
        """The end offset of each partition: of sealed records, or of records visible to readers."""
        if self._cluster is not None:
            return self._found(names, LATEST_TIMESTAMP)
        manifest = self._manifest
        assert manifest is not None
        return {
            name: max(manifest.sealed_end(number), manifest.log_start(number))
            for name, number in self._numbers(names).items()
        }

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time (ms since 1970), by partition; None without one."""
        if self._cluster is None:
            numbers = self._numbers(times)
            return {name: self._sealed_at(numbers[name], time) for name, time in times.items()}
        found: dict[TopicPartition, int | None] = {}
        for time in sorted(set(times.values())):
            offsets = self._found([each for each in times if times[each] == time], time)
            found |= {name: None if offset < 0 else offset for name, offset in offsets.items()}
        return found

    def _sealed_at(self, number: int, time: int) -> int | None:
        assert self._manifest is not None
        assert self._place.filer is not None
        store = self._place.filer.open()
        log_start = self._manifest.log_start(number)
        for segment in walk(self._manifest, number, log_start, newest_ms=time, page=1):
            found = open_segment(store, segment).find_time(time, log_start)
            if found is not None:
                return found[0]
        return None

    def _found(self, names: Iterable[TopicPartition], time: int) -> Offsets:
        cluster = self._cluster
        assert cluster is not None
        found: Offsets = {}
        for topic, partitions in by_topic(names).items():
            offsets = find_offsets(cluster, topic, partitions, time, isolation_level=READ_COMMITTED)
            found |= {TopicPartition(topic, each): offset for each, offset in offsets.items()}
        return found

    def _numbers(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The number of each partition in the manifest. Raises Unreadable."""
        topics = self._sealed_topics()
        found: dict[TopicPartition, int] = {}
        for name in names:
            topic = topics.get(name.topic)
            if topic is None or name.partition >= topic.partition_count:
                raise Unreadable(f"{name.topic} has no partition {name.partition}")
            found[name] = topic.partition_numbers[name.partition]
        return found

    def commit(self, group: str, offsets: Offsets) -> list[str]:
        """Commit a group's offsets; returns the broker's refusals. Raises BrokerError."""
        assert self._cluster is not None
        refused = commit_offsets(self._cluster, group, offsets)
        return [
            f"{each.name.topic}-{each.name.partition}: error {each.error_code}" for each in refused
        ]

    def pieces(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str]
    ) -> list[Piece]:
        """Where to read these offsets: sealed parts, and the rest from the broker.

        `ids` are those of the topics that the offsets are of. Raises Unreadable.
        """
        found: list[Piece] = []
        topics = self._sealed_topics()
        for name, (start, end) in ranges.items():
            topic, sealed_end = topics.get(name.topic), start
            topic_id = UUID(ids[name.topic]) if name.topic in ids else ZERO_UUID
            if topic is not None and topic_id not in {ZERO_UUID, topic.id}:
                raise Unreadable(f"Topic {name.topic} was deleted and created again")
            if topic is not None and name.partition < topic.partition_count and start < end:
                assert self._manifest is not None
                number = topic.partition_numbers[name.partition]
                sealed_end = min(max(self._manifest.sealed_end(number), start), end)
                parts = between(self._manifest, topic, name.partition, start, sealed_end)
                found += [
                    Piece(name.topic, part, name.partition, part.start, part.end, topic_id)
                    for part in parts
                ]
            if sealed_end < end:
                place = name.topic, None, name.partition, sealed_end, end
                found.append(Piece(*place, topic_id))
        return found
