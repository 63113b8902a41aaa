"""The console's desk: opens one or a few connections per question and closes them afterwards.

Without access rules it speaks as the broker's user. With them it speaks for the user who asked,
through sockets that only the front has: what it gets and may change is what Kafka's API answers to
that user.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from smq.app.front.desk import access
from smq.app.front.desk.places import place_of
from smq.app.front.desk.reading import read, record
from smq.app.process.clock import monotonic_ns
from smq.client.client import Client, connect
from smq.client.consuming.group.group_protocol import read_assignment
from smq.client.kafka import admin
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.config_changes import ALL_BROKERS, alter_broker
from smq.client.kafka.group_admin import (
    WITHOUT_MEMBERS,
    commit_offsets,
    committed_offsets,
    delete_group,
    describe_group,
)
from smq.client.kafka.offsets import EARLIEST, LATEST, OffsetPlace, resolve
from smq.client.kafka.topic_changes import add_partitions, alter_topic
from smq.client.kafka.users import take, users
from smq.client.locate import KAFKA, Way, way_to
from smq.client.names import TopicPartition, by_topic
from smq.client.reach import Reach
from smq.client.secure.security import Security
from smq.front.console.desk import (
    BrokerSetting,
    Denial,
    FoundRecords,
    GroupRow,
    Move,
    NewRecord,
    Ruling,
    ShownGroup,
    ShownMember,
    ShownRecord,
    ShownReference,
    ShownSetting,
    ShownUser,
    Wanted,
)
from smq.model.config_values import SOURCES
from smq.model.errors import BrokerError, ErrorCode, PeerError
from smq.model.group_protocols import assigns_partitions
from smq.security.acls import AclBinding, Operation, ResourceType
from smq.security.external import NAME as EXTERNAL, Named
from smq.security.principals import Peer
from smq.store.config_changes import ConfigChange, open_config_changes
from smq.store.overview import open_overview
from smq.wire.generated.describe_groups import DescribedGroup

PATIENCE_S = 5.0  # Give up on a broker that does not answer.
ASSIGNED_BYTES_MAX = 1 << 20  # Of a group's members together: each four may be a partition.


class SdkDesk:
    """See smq.front.console.desk. Thread-safe."""

    def __init__(self, data_dir: Path, way: Way | None = None) -> None:
        self._data_dir, self._way = data_dir, way

    def _cluster(self) -> Cluster:
        way = self._way or way_to(self._data_dir)
        return Cluster(way.bootstrap, PATIENCE_S, security=way.security)

    def _client(self) -> Client:
        if self._way is None:
            return connect(self._data_dir, transport=KAFKA, timeout_s=PATIENCE_S)
        bootstrap, security = self._way
        return Client(Reach(bootstrap, deadline_seconds=PATIENCE_S, security=security))

    def _partition_count(self, topic: str) -> int:
        with self._cluster() as cluster:
            return len(cluster.retrying(lambda: cluster.topic(topic)).leaders)

    # --- records ---------------------------------------------------------------------------------

    def read(self, wanted: Wanted) -> FoundRecords:
        """Search for records within the bounds."""
        count = self._partition_count(wanted.topic)
        with self._client() as client:
            return read(client, count, wanted, _clock_s)

    def record(self, topic: str, partition: int, offset: int) -> ShownRecord | None:
        """One whole record."""
        if partition >= self._partition_count(topic):
            return None
        with self._client() as client:
            return record(client, TopicPartition(topic, partition), offset)

    def produce(self, record: NewRecord) -> tuple[int, int]:
        """Append a record; returns its partition and offset."""
        self._partition_count(record.topic)
        with self._client() as client, client.producer() as producer:
            future = producer.send(
                record.topic,
                record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
            )
            appended = future.result(PATIENCE_S)
            return appended.partition, appended.offset

    # --- topics ----------------------------------------------------------------------------------

    def settings(self, topic: str) -> list[ShownSetting]:
        """The settings of a topic."""
        with self._cluster() as cluster:
            cluster.retrying(lambda: cluster.topic(topic))
            found = admin.topic_configs(cluster, topic)
        return [
            ShownSetting(
                each.name,
                "" if each.value is None else each.value,
                each.config_source == admin.SOURCE_TOPIC,
                each.read_only,
            )
            for each in sorted(found, key=lambda each: each.name)
        ]

    def broker_settings(self) -> list[BrokerSetting]:
        """The settings of the broker."""
        with self._cluster() as cluster:
            found = admin.broker_configs(cluster)
        return [
            BrokerSetting(
                each.name,
                "" if each.value is None else each.value,
                SOURCES.get(each.config_source, "unknown"),
                each.read_only,
                each.is_sensitive,
            )
            for each in sorted(found, key=lambda each: each.name)
        ]

    def set_broker(self, name: str, value: str | None) -> None:
        """Set a setting for all brokers; None restores the value from their start."""
        with self._cluster() as cluster:
            new = {} if value is None else {name: value}
            alter_broker(cluster, ALL_BROKERS, new, [] if new else [name])

    def changes(self, count: int) -> list[ConfigChange]:
        """The newest configuration changes of all resources."""
        table = open_config_changes(self._data_dir / "store.sqlite")
        try:
            return list(table.newest(count, "", ""))
        finally:
            table.close()

    def references(self, payload: str) -> list[ShownReference]:
        """The sealed segments that refer to a payload, by payload id."""
        overview = open_overview(self._data_dir / "store.sqlite")
        try:
            return [ShownReference(*each) for each in overview.references(payload)]
        finally:
            overview.close()

    def create(self, topic: str, partitions: int | None, configs: Mapping[str, str]) -> int:
        """Create a topic; returns its number of partitions."""
        count = admin.DEFAULT_OF_THE_BROKER if partitions is None else partitions
        with self._cluster() as cluster:
            return admin.create_topic(cluster, topic, count, configs)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        with self._cluster() as cluster:
            admin.delete_topic(cluster, topic)

    def set(self, topic: str, name: str, value: str | None) -> None:
        """Set a topic config; None restores the default."""
        with self._cluster() as cluster:
            alter_topic(
                cluster,
                topic,
                {} if value is None else {name: value},
                [] if value is not None else [name],
            )

    def add_partitions(self, topic: str, added: int) -> int:
        """Add partitions to a topic; returns the new number."""
        with self._cluster() as cluster:
            return add_partitions(cluster, topic, added)

    # --- groups ----------------------------------------------------------------------------------

    def groups(self) -> list[GroupRow]:
        """All groups."""
        with self._cluster() as cluster:
            return [GroupRow(each.group_id, each.group_state) for each in admin.groups(cluster)]

    def group(self, group: str) -> ShownGroup:
        """A group and its members."""
        with self._cluster() as cluster:
            found = describe_group(cluster, group)
            if found.group_state == "Dead" and not committed_offsets(cluster, group):
                raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
        return ShownGroup(
            group,
            found.group_state,
            f"{found.protocol_type} {found.protocol_data}".strip(),
            tuple(members_of(found)),
        )

    def moves(self, group: str, topic: str, place: str) -> list[Move]:
        """The offsets that resetting the group to a place would change."""
        where = place_of(place)
        with self._cluster() as cluster:
            committed = committed_offsets(cluster, group)
            if topic:
                leaders = cluster.retrying(lambda: cluster.topic(topic)).leaders
                names = [TopicPartition(topic, each) for each in range(len(leaders))]
            else:
                names = sorted(committed)
            if not names:
                raise ValueError(f"group {group} has committed nothing yet; name a topic")
            firsts, ends, found = (_resolved(cluster, names, x) for x in (EARLIEST, LATEST, where))
        return [
            Move(
                *name,
                committed.get(name),
                min(max(found[name], firsts[name]), ends[name]),
                ends[name],
            )
            for name in names
        ]

    def reset(self, group: str, moves: Sequence[Move]) -> None:
        """Commit the moves. Refuses if the group has members."""
        with self._cluster() as cluster:
            if _has_members(cluster, group):
                raise BrokerError(
                    ErrorCode.NON_EMPTY_GROUP,
                    f"group {group} has members; stop its consumers first",
                )
            wanted = {TopicPartition(each.topic, each.partition): each.after for each in moves}
            for each in commit_offsets(cluster, group, wanted):
                check(each.error_code, f"{each.name.topic}-{each.name.partition} was not reset")

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets."""
        with self._cluster() as cluster:
            delete_group(cluster, group)

    # --- users and rules -------------------------------------------------------------------------

    def users(self) -> list[ShownUser]:
        """The users that have passwords."""
        with self._cluster() as cluster:
            return access.users_of(cluster)

    def delete_user(self, user: str) -> None:
        """Delete a user's passwords."""
        with self._cluster() as cluster:
            has = users(cluster).get(user)
            if not has:
                raise ValueError(f"there is no user {user}")
            take(cluster, user, has)

    def rules(self, kind: ResourceType, name: str) -> list[AclBinding]:
        """The access rules that apply to a resource; of the kind ANY all."""
        with self._cluster() as cluster:
            return access.rules_about(cluster, kind, name)

    def rulings(
        self, operation: Operation, kind: ResourceType, name: str, host: str
    ) -> list[Ruling]:
        """Who may do something with a resource from an address, and why."""
        with self._cluster() as cluster:
            return access.rulings_about(cluster, operation, kind, name, host)

    def denials(self, count: int) -> list[Denial]:
        """The newest refusals of the audit log."""
        return access.denials(self._data_dir, count)


def desk_of(data_dir: Path, front_fds: Mapping[int, int], peer: Peer | None) -> SdkDesk:
    """The desk of a user, None: of everybody, where no rules decide."""
    if peer is None:
        return SdkDesk(data_dir)
    assert front_fds, "where rules decide the front has its own way to each shard"
    named = Named(peer.principal.name, peer.host)
    security = Security(mechanism=EXTERNAL, user=named.token, socket_owner=os.getuid())
    return SdkDesk(
        data_dir, Way(",".join(map("/proc/self/fd/{}".format, front_fds.values())), security)
    )


def _clock_s() -> float:
    return monotonic_ns() / 1e9


def _resolved(
    cluster: Cluster, names: list[TopicPartition], place: OffsetPlace
) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in by_topic(names).items()
        for partition, offset in resolve(cluster, topic, partitions, place).items()
    }


def _has_members(cluster: Cluster, group: str) -> bool:
    try:
        return describe_group(cluster, group).group_state not in WITHOUT_MEMBERS
    except BrokerError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:  # The commit creates the group.
            return False
        raise


def members_of(group: DescribedGroup) -> Iterator[ShownMember]:
    """The members of a group: with partitions, as long as their assignments are not too long."""
    left = ASSIGNED_BYTES_MAX if assigns_partitions(group.protocol_type) else 0
    for each in group.members:
        left -= len(each.member_assignment)
        yield ShownMember(
            each.member_id,
            each.group_instance_id or "",
            each.client_id,
            each.client_host,
            _partitions(each.member_assignment) if left >= 0 else (),
        )


def _partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """The partitions in a member's assignment; empty if it uses another protocol."""
    try:
        return tuple(sorted(read_assignment(assignment)))
    except PeerError:
        return ()
