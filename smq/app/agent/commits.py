"""Commits the offsets of groups: what subscribers have acknowledged, at most EVERY_S late.

A commit is of a group without members of Kafka's protocol: the coordinator refuses it once Kafka's
consumers have joined, and the group's subscribers are told at their next step.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import grpc

from smq.app.agent.broker import BrokerSide
from smq.app.agent.refusals import REFUSALS, CallRefused, refused_by
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.group_admin import (
    WITHOUT_MEMBERS,
    commit_offsets,
    committed_offsets,
    describe_group,
)
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError, ErrorCode
from smq.security.principals import Peer

EVERY_S = 0.2
STOP_S = 0.5
REFUSED_MAX = 1000
KAFKAS_PREFIX = "kafka-cg-"  # SeaweedMQ's name for a group of Kafka's; here it is the same one.
_AGAIN = frozenset({grpc.StatusCode.UNAVAILABLE})


def group_of(name: str) -> str:
    """Kafka's group of a name."""
    return name.removeprefix(KAFKAS_PREFIX)


class NamedGroup(NamedTuple):
    """A group, and in whose name it is asked and changed; None: in the broker's own. Without a name
    it is none, and has no commits."""

    name: str
    asker: Peer | None = None


class _Turn:
    """Commits of a group, of which the later one must not come first."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class GroupCommits:
    """The offsets that are to be committed, and those of the groups that refuse them."""

    def __init__(self, broker: BrokerSide) -> None:
        self._broker = broker
        self._dirty: dict[NamedGroup, dict[TopicPartition, int]] = defaultdict(dict)
        self._refused: dict[NamedGroup, CallRefused] = {}
        self._turns: dict[str, _Turn] = defaultdict(_Turn)  # Of groups that commit now.
        self._patience_s: float | None = None

    async def keep_committing(self) -> None:
        """Commit what is new, for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            await asyncio.gather(*(self.flush(group) for group in [*self._dirty]))

    async def begin(self, group: NamedGroup) -> Mapping[TopicPartition, int]:
        """A subscriber of a group begins: the group's commits. Raises Refused, BrokerError."""
        await self.flush(group)
        self._refused.pop(group, None)
        return await self._broker.ask(partial(_commits_of, group=group.name), group.asker)

    def note(self, group: NamedGroup, name: TopicPartition, offset: int) -> None:
        """Everything below an offset is done with."""
        if group.name:
            self._dirty[group][name] = offset

    def check(self, group: NamedGroup) -> None:
        """Raises Refused if the group takes no commits of ours any more."""
        refused = self._refused.get(group)
        if refused is not None:
            raise refused

    def stop(self) -> None:
        """The broker stops, and the coordinator with it: wait for no commit for long."""
        self._patience_s = STOP_S

    async def flush(self, group: NamedGroup) -> None:
        """Commit what is new of a group; what cannot be committed now is, later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._flush(group)

    async def _flush(self, group: NamedGroup) -> None:
        turn = self._turns[group.name]  # All askers' commits, one after the other.
        turn.waiting += 1
        try:
            async with turn.lock:
                await self._commit(group)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[group.name]

    async def _commit(self, group: NamedGroup) -> None:
        offsets = self._dirty.pop(group, None)
        if not offsets:
            return
        try:
            commit = partial(_commit, group=group.name, offsets=offsets)
            await self._broker.ask(commit, group.asker)
        except REFUSALS as error:
            refused = refused_by(error)
            if refused.status in _AGAIN:
                self._dirty[group] = offsets | self._dirty[group]
            else:
                self._note_refused(group, refused)

    def _note_refused(self, group: NamedGroup, refused: CallRefused) -> None:
        if len(self._refused) >= REFUSED_MAX:  # Of groups that have gone; others come again.
            self._refused.clear()
        self._refused[group] = refused


def _commits_of(cluster: Cluster, group: str) -> Mapping[TopicPartition, int]:
    try:
        state = describe_group(cluster, group).group_state
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    if state not in WITHOUT_MEMBERS:
        raise _mixed(group)
    return committed_offsets(cluster, group)


def _commit(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    for refused in commit_offsets(cluster, group, offsets):
        if refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            raise _mixed(group)
        if refused.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # It was deleted.
            check(refused.error_code, f"group {group} does not take its offsets")


def _mixed(group: str) -> CallRefused:
    return CallRefused(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"group {group} has consumers of Kafka's protocol, who share its partitions without "
        "SeaweedMQ's; use another group",
    )
