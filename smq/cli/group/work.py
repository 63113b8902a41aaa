"""The work of `smq group`: describe a group, plan a reset, commit it."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from smq.app.process.clock import wall_ms
from smq.cli.client import refusal
from smq.cli.group.offset_plan import Move, PartitionRange, duration_ms, plan, read_offsets, shifted
from smq.cli.places import place
from smq.client.consuming.group.group_protocol import read_assignment
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.group_admin import (
    WITHOUT_MEMBERS,
    commit_offsets,
    committed_offsets,
    delete_offsets as ask_to_delete_offsets,
    describe_group,
)
from smq.client.kafka.offsets import EARLIEST, LATEST, OffsetPlace, resolve
from smq.client.names import TopicPartition, by_topic
from smq.model.errors import BrokerError, ErrorCode
from smq.model.group_protocols import assigns_partitions
from smq.model.named_files import read_named
from smq.wire.generated.describe_groups import DescribedGroup

OFFSETS_BYTES_MAX = 64 * 1024 * 1024  # Those of a million partitions.


class WantedReset:
    """The partitions of a reset, and their state at the brokers."""

    def __init__(
        self, cluster: Cluster, group: str, topics: list[str], partitions: list[int] | None
    ) -> None:
        self._cluster, self._group = cluster, group
        self._topics, self._partitions = topics, partitions
        self._committed = committed_offsets(cluster, group)

    def moves(
        self, *, to: str | None, by: int | None, duration: str | None, from_file: Path | None
    ) -> list[Move]:
        """The plan of the way that was chosen. Raises ValueError."""
        if from_file is not None:
            wanted = _offsets_of(from_file)
        elif by is not None:
            wanted = shifted(self._committed, self._names(), by)
        elif duration is not None:
            where = OffsetPlace(timestamp=max(0, wall_ms() - duration_ms(duration)))
            wanted = resolved(self._cluster, self._names(), where)
        else:
            assert to is not None
            wanted = resolved(self._cluster, self._names(), place(to, "--to"))
        return plan(wanted, self._committed, _ranges(self._cluster, wanted))

    def _names(self) -> list[TopicPartition]:
        names = self._of_topics() if self._topics else sorted(self._committed)
        if self._partitions is not None:
            names = [name for name in names if name.partition in self._partitions]
        if not names:
            raise ValueError(f"group {self._group} has committed nothing there; name a --topic")
        return names

    def _of_topics(self) -> list[TopicPartition]:
        counts = {
            topic: self._cluster.retrying(partial(partition_count, self._cluster, topic))
            for topic in self._topics
        }
        return [
            TopicPartition(topic, each)
            for topic, count in counts.items()
            for each in self._partitions or range(count)
        ]


def partition_count(cluster: Cluster, topic: str) -> int:
    """The number of a topic's partitions. Raises NoSuchTopic."""
    return len(cluster.topic(topic).leaders)


def _offsets_of(path: Path) -> dict[TopicPartition, int]:
    try:
        return read_offsets(read_named(path, OFFSETS_BYTES_MAX, passed_on_as="offsets").decode())
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise refusal(f"{path}: {error}") from error


def resolved(
    cluster: Cluster, names: Iterable[TopicPartition], where: OffsetPlace
) -> dict[TopicPartition, int]:
    """The offset of a place in each of these partitions."""
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in by_topic(names).items()
        for partition, offset in resolve(cluster, topic, partitions, where).items()
    }


def _ranges(
    cluster: Cluster, names: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionRange]:
    names = list(names)
    first, end = resolved(cluster, names, EARLIEST), resolved(cluster, names, LATEST)
    return {name: PartitionRange(first[name], end[name]) for name in names}


def commit(cluster: Cluster, group: str, moves: list[Move]) -> None:
    """Commit a plan. Refuses if the group has members."""
    try:
        _check_without_members(cluster, group)
        left = commit_offsets(cluster, group, {each.name: each.after for each in moves})
        for each in left:
            check(each.error_code)
    except BrokerError as error:
        raise refused(group, error) from error


def delete_offsets(cluster: Cluster, group: str, topics: list[str]) -> list[TopicPartition]:
    """Delete a group's offsets in these topics; returns which. Exits with a sentence if refused."""
    wanted = set(topics)
    names = [name for name in committed_offsets(cluster, group) if name.topic in wanted]
    try:
        refused_names = ask_to_delete_offsets(cluster, group, names)
    except BrokerError as error:
        raise refused(group, error) from error
    for each in refused_names:
        raise refusal(
            f"members of {group} read {each.name.topic}; stop them first"
            if each.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else f"{each.name.topic}-{each.name.partition}: {ErrorCode(each.error_code).name}"
        )
    return names


def _check_without_members(cluster: Cluster, group: str) -> None:
    try:
        state = describe_group(cluster, group).group_state
    except BrokerError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:  # The commit creates it.
            return
        raise
    if state not in WITHOUT_MEMBERS:
        raise BrokerError(ErrorCode.NON_EMPTY_GROUP)


def refused(group: str, error: BrokerError) -> SystemExit | BrokerError:
    """The exit for a coordinator's refusal; else the error itself."""
    if error.code in {ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID}:
        return refusal(
            f"group {group} has members; stop its consumers first: "
            f"`smq group describe {group}` shows them"
        )
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return refusal(f"there is no group {group}; `smq group list` shows the groups")
    return error


def facts_of(cluster: Cluster, group: str) -> dict[str, Any]:
    """The facts that `smq group describe --json` prints."""
    try:
        described = describe_group(cluster, group)
    except BrokerError as error:
        raise refused(group, error) from error
    committed = committed_offsets(cluster, group)
    if described.group_state == "Dead" and not committed:
        raise refused(group, BrokerError(ErrorCode.GROUP_ID_NOT_FOUND))
    members = _members(described)
    owners = {
        (each["topic"], each["partition"]): member["member_id"]
        for member in members
        for each in member["partitions"]
    }
    offsets = _offsets(cluster, committed, owners)
    return {
        "group": group,
        "state": described.group_state,
        "protocol": described.protocol_data,
        "members": members,
        "offsets": offsets,
        "lag": sum(each["lag"] or 0 for each in offsets),
    }


def _members(described: DescribedGroup) -> list[dict[str, Any]]:
    is_consumers = assigns_partitions(described.protocol_type)
    return [
        {
            "member_id": each.member_id,
            "instance_id": each.group_instance_id,
            "client_id": each.client_id,
            "client_host": each.client_host,
            "partitions": _partitions(each.member_assignment) if is_consumers else [],
        }
        for each in described.members
    ]


def _partitions(assignment: bytes) -> list[dict[str, Any]]:
    names = sorted(read_assignment(assignment))
    return [{"topic": topic, "partition": partition} for topic, partition in names]


def _offsets(
    cluster: Cluster,
    committed: dict[TopicPartition, int],
    owners: dict[tuple[str, int], str],
) -> list[dict[str, Any]]:
    names = sorted({*committed, *(TopicPartition(*each) for each in owners)})
    ends = resolved(cluster, names, LATEST)
    return [
        {
            "topic": name.topic,
            "partition": name.partition,
            "offset": committed.get(name),
            "end": ends[name],
            "lag": max(0, ends[name] - committed[name]) if name in committed else None,
            "member_id": owners.get(name),
        }
        for name in names
    ]
