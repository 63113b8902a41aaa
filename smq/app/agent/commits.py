"""Commits the offsets of groups: what subscribers have acknowledged, at most LATE_S behind.

A commit is by a member of the group, of whichever stream (smq.app.agent.members), and of an asker:
the coordinator refuses it to who may not. Once the group is Kafka's, its subscribers are told at
their next step.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import NamedTuple, TypeAlias

import grpc

from smq.app.agent.broker import BrokerSide
from smq.app.agent.members import GroupMembers, mixed
from smq.app.agent.refusals import REFUSALS, CallRefused, refused_by
from smq.app.agent.topics import KnownTopic
from smq.client.kafka.cluster import Cluster, check
from smq.client.kafka.group_admin import OUTSIDE, GroupVoice, commit_offsets, committed_offsets
from smq.client.names import TopicPartition
from smq.model.errors import ErrorCode
from smq.security.principals import Peer

LATE_S = 0.2  # What is promised. A commit has the half of it, as has the wait for it.
EVERY_S = LATE_S / 2
STOP_S = 0.5
REFUSED_MAX = 1000
KAFKAS_PREFIX = "kafka-cg-"  # SeaweedMQ's name for a group of Kafka's; here it is the same one.
ATTEMPTS = 3  # While members come and go.
_AGAIN = frozenset({grpc.StatusCode.UNAVAILABLE})
_STALE = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def group_of(name: str) -> str:
    """Kafka's group of a name."""
    return name.removeprefix(KAFKAS_PREFIX)


class NamedGroup(NamedTuple):
    """A group, and in whose name it is asked and changed; None: in the broker's own. Without a name
    it is none, and has no commits."""

    name: str
    asker: Peer | None = None


class _NotedOffset(NamedTuple):
    """The newest offset of a partition, and who has it committed: whichever of the group's askers
    had the partition last."""

    topic: KnownTopic
    offset: int
    asker: Peer | None


_Noted: TypeAlias = dict[TopicPartition, _NotedOffset]


class _Turn:
    """Commits of a group, of which the later one must not come first. `waiting` counts the one in
    progress, too."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.committing: asyncio.Task[bool] | None = None  # The loop alone would not keep it.


class GroupCommits:
    """The offsets that are to be committed, and those of the groups that refuse them."""

    def __init__(
        self, broker: BrokerSide, members: GroupMembers, is_there: Callable[[KnownTopic], bool]
    ) -> None:
        self._broker, self.members, self.is_there = broker, members, is_there
        self._dirty: dict[str, _Noted] = defaultdict(dict)  # By group.
        self._refused: dict[NamedGroup, CallRefused] = {}
        self._turns: dict[str, _Turn] = defaultdict(_Turn)  # Of groups that commit now.
        self._patience_s: float | None = None

    async def keep_committing(self) -> None:
        """Commit what is new, for ever. A group whose commit takes long holds up no other one."""
        async with asyncio.TaskGroup() as flushes:
            while True:
                await asyncio.sleep(EVERY_S)
                for name in [*self._dirty]:
                    if name not in self._turns:
                        flushes.create_task(self.flush(name))

    async def begin(self, group: NamedGroup) -> Mapping[TopicPartition, int]:
        """A subscriber of a group begins: the group's commits. What cannot be committed now counts:
        its subscriber has acknowledged it. Raises CallRefused, BrokerError."""
        is_flushed = await self.flush(group.name)
        self._refused.pop(group, None)
        # What was not committed must not be on its way while the coordinator is asked.
        async with nullcontext() if is_flushed else self._turn_of(group.name):
            find = partial(committed_offsets, group_id=group.name)
            committed = await self._broker.ask(find, group.asker)
            noted = self._there(self._dirty.get(group.name, {}))
            return committed | {name: each.offset for name, each in noted.items()}

    def note(self, group: NamedGroup, topic: KnownTopic, partition: int, offset: int) -> None:
        """Everything below an offset is done with. Of a topic that is gone nothing is committed:
        another one may have its name."""
        if group.name and self.is_there(topic):
            name = TopicPartition(topic.kafka_name, partition)
            self._dirty[group.name][name] = _NotedOffset(topic, offset, group.asker)

    def check(self, group: NamedGroup) -> None:
        """Raises CallRefused if the group takes no commits of ours any more."""
        self.members.check(group.name)
        refused = self._refused.get(group)
        if refused is not None:
            raise refused

    def stop(self) -> None:
        """The broker stops, and the coordinator with it: wait for no commit for long."""
        self._patience_s = STOP_S

    async def flush(self, name: str) -> bool:
        """Commit what is new of a group; False: some of it could not be, and is later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                return await self._flush(name)
        return False

    async def _flush(self, name: str) -> bool:
        """A commit that has begun goes on if its caller is cancelled, and later ones wait for it:
        nobody else has what it takes, and its thread does not end before."""
        turn = await self._enter(name)
        turn.committing = asyncio.create_task(self._commit_in_turn(name, turn))
        return await asyncio.shield(turn.committing)

    async def _commit_in_turn(self, name: str, turn: _Turn) -> bool:
        try:
            noted = self._dirty.pop(name, {})
            askers = {each.asker for each in noted.values()}
            done = [
                await self._commit(
                    NamedGroup(name, asker),
                    {at: each for at, each in noted.items() if each.asker == asker},
                )
                for asker in askers
            ]
            return all(done)
        finally:
            turn.lock.release()
            self._leave(name, turn)

    @asynccontextmanager
    async def _turn_of(self, name: str) -> AsyncIterator[None]:
        """Meanwhile nothing of a group is being committed."""
        turn = await self._enter(name)
        try:
            yield
        finally:
            turn.lock.release()
            self._leave(name, turn)

    async def _enter(self, name: str) -> _Turn:
        turn = self._turns[name]
        turn.waiting += 1
        try:
            await turn.lock.acquire()
        except asyncio.CancelledError:
            self._leave(name, turn)
            raise
        return turn

    def _leave(self, name: str, turn: _Turn) -> None:
        turn.waiting -= 1
        if not turn.waiting:
            del self._turns[name]

    async def _commit(self, group: NamedGroup, noted: _Noted) -> bool:
        """False: it is to be tried again."""
        try:
            await self._commit_by_member(group, noted)
        except REFUSALS as error:
            refused = refused_by(error)
            if refused.status in _AGAIN:
                self._dirty[group.name] = noted | self._dirty[group.name]
                return False
            self._note_refused(group, refused)
        return True

    async def _commit_by_member(self, group: NamedGroup, noted: _Noted) -> None:
        """Raises BrokerError, CallRefused."""
        for _ in range(ATTEMPTS):
            there = self._there(noted)
            if not there:
                return
            voice = self.members.voice(group.name)
            commit = partial(_commit, group=group.name, noted=there, voice=voice)
            if await self._broker.ask(commit, group.asker):
                return
            await self.members.renew(group.name)
            self.members.check(group.name)
            if voice == self.members.voice(group.name) == OUTSIDE:
                if self.members.has(group.name):  # The coordinator has not heard of them yet.
                    break
                raise mixed(group.name)
        raise CallRefused(grpc.StatusCode.UNAVAILABLE, f"the members of {group.name} change")

    def _there(self, noted: _Noted) -> _Noted:
        return {name: each for name, each in noted.items() if self.is_there(each.topic)}

    def _note_refused(self, group: NamedGroup, refused: CallRefused) -> None:
        if len(self._refused) >= REFUSED_MAX:  # Of groups that have gone; others come again.
            self._refused.clear()
        self._refused[group] = refused


def _commit(cluster: Cluster, group: str, noted: _Noted, voice: GroupVoice) -> bool:
    """Commit; False if the coordinator does not know the member, or another generation. By ids: a
    topic may be replaced by another one of its name on the way."""
    offsets = {name: each.offset for name, each in noted.items()}
    ids = {name.topic: each.topic.id for name, each in noted.items()}
    for refused in commit_offsets(cluster, group, offsets, voice, ids):
        if refused.error_code in _STALE:
            return False
        if refused.error_code not in _GONE:
            check(refused.error_code, f"group {group} does not take its offsets")
    return True
