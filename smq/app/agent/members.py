"""Members of groups: each instance that has streams is one, of the protocol type `seaweedmq`.

    enter, leave ──▶ Roll of a group ──HoldGroups──▶ coordinator     who is new waits for it
    note, forget ──▶ what each has  ────────────────▶                every TELL_S
                     all groups     ────────────────▶                every BEAT_S, as heartbeats do

The coordinator refuses a group that has consumers of Kafka's protocol, and such consumers while
we hold it. The partitions are ours to share (smq.agent.sharing): nobody joins again for them.

Members outlive this process by their session. Who comes after it is told whom it replaces, and what
each had: so an instance that comes back in time has its partitions again.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeAlias
from uuid import uuid4

import grpc

from smq.app.agent.refusals import CallRefused
from smq.app.process.clock import monotonic_ms
from smq.client.consuming.group.group_protocol import read_assignment, write_assignment
from smq.client.kafka.group_admin import OUTSIDE, GroupVoice
from smq.client.names import TopicPartition
from smq.model.errors import ErrorCode, PeerError, StoreError
from smq.wire.internal.groups import MEMBERS_MAX, GroupHeld, HeldGroup, HeldRow, HoldGroups

SESSION_MS = 10_000
BEAT_S = 3.0
TELL_S = 0.2
RELEASE_S_MAX = 1.0
ENTER_S_MAX = 10.0  # For a coordinator that is starting again.
NAME_MAX, CLIENT_MAX = 1024, 256  # Of the 4 MiB that a group has for what members say.
GROUP_BYTES_MAX = 2**15 - 1  # Kafka's strings have no more.
BYTES = "latin-1"
ASSIGNED_A_ROW = 500  # Bytes of an assignment that count as another member.
BEATEN_A_ROW = 20  # Members whose session begins again while one is taken.
_STALE = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}


class InstanceName(NamedTuple):
    """An instance of a group. `owner`: the principal, whose records nobody else acknowledges."""

    group: str
    instance: str
    owner: str = ""


Past: TypeAlias = Mapping[InstanceName, frozenset[int]]
"""The partitions of a topic that instances had before this process."""
AskHolder: TypeAlias = Callable[[HoldGroups], Awaitable[Sequence[GroupHeld]]]


@dataclass(slots=True, eq=False)
class _Member:
    name: InstanceName
    client_id: str
    host: str
    member_id: str
    entered: "asyncio.Future[None]"
    streams: int = 1
    has: Counter[TopicPartition] = field(default_factory=Counter)

    def row(self) -> HeldRow:
        said = json.dumps([self.name.instance, self.name.owner])
        assignment = write_assignment(+self.has).decode(BYTES)
        return HeldRow(self.member_id, self.client_id, self.host, said, assignment)


@dataclass(slots=True, eq=False)
class _Roll:
    """A group's members. `generation`: negative before the coordinator has taken them."""

    generation: int = -1
    is_known: bool = False  # It was taken once.
    members: dict[InstanceName, _Member] = field(default_factory=dict)
    changed: dict[InstanceName, None] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)
    refused: CallRefused | None = None

    @property
    def is_due(self) -> bool:
        return self.generation < 0 or bool(self.changed or self.gone)

    def start_over(self) -> None:
        """The coordinator is to be told of all."""
        self.generation = -1
        self.changed = dict.fromkeys(self.members)
        self.gone.clear()


class GroupMembers:
    """The groups that this process holds. `ask` raises StoreError."""

    def __init__(self, ask: AskHolder) -> None:
        self._ask = ask
        self._rolls: dict[str, _Roll] = {}
        self._past: dict[str, tuple[int, dict[str, dict[InstanceName, frozenset[int]]]]] = {}
        self._news = asyncio.Event()
        self._telling = asyncio.Lock()
        self._has_stopped = False

    # --- streams ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def present(self, name: InstanceName, client_id: str, host: str) -> AsyncIterator[None]:
        """An instance has a stream. Raises CallRefused if its group cannot take it, ValueError."""
        if not name.group:
            yield
            return
        if len(name.instance) > NAME_MAX or len(name.group.encode()) > GROUP_BYTES_MAX:
            raise ValueError(
                f"names of instances have at most {NAME_MAX} characters, those of groups "
                f"{GROUP_BYTES_MAX} bytes"
            )
        member = self._entering(name, client_id, host)
        try:
            await self._entered(member)
            yield
        finally:
            if self._leave(member):  # Kafka's consumers may come now.
                await asyncio.shield(self._released(name.group))

    def _entering(self, name: InstanceName, client_id: str, host: str) -> _Member:
        roll = self._rolls.setdefault(name.group, _Roll())
        member = roll.members.get(name)
        if member is not None:
            member.streams += 1
            return member
        shown = client_id[:CLIENT_MAX]
        entered = asyncio.get_running_loop().create_future()
        member = _Member(name, shown, f"/{host}", f"{shown or 'smq'}-{uuid4()}", entered)
        roll.members[name] = member
        roll.changed[name] = None
        self._news.set()
        return member

    @staticmethod
    async def _entered(member: _Member) -> None:
        try:
            async with asyncio.timeout(ENTER_S_MAX):
                await asyncio.shield(member.entered)
        except TimeoutError:
            sentence = f"group {member.name.group}: its coordinator does not answer"
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, sentence) from None

    async def _released(self, group: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_S_MAX):
                await self._tell([group])

    def _leave(self, member: _Member) -> bool:
        """A stream has ended; whether it was the last one of its group."""
        member.streams -= 1
        roll = self._rolls.get(member.name.group)
        if member.streams or roll is None or roll.members.get(member.name) is not member:
            return False
        del roll.members[member.name]
        roll.changed.pop(member.name, None)
        roll.gone[member.member_id] = None
        self._news.set()
        return not roll.members

    def note(self, name: InstanceName, place: TopicPartition, change: int) -> None:
        """An instance has a partition once more (1), or once less (-1)."""
        roll = self._rolls.get(name.group)
        member = roll.members.get(name) if roll is not None else None
        if roll is not None and member is not None:
            member.has[place] += change
            roll.changed[name] = None

    # --- commits ---------------------------------------------------------------------------------

    def voice(self, group: str) -> GroupVoice:
        """In whose name a group's offsets are committed: of one of its members, while it has some
        that the coordinator knows."""
        roll = self._rolls.get(group)
        if roll is None or roll.generation < 0:
            return OUTSIDE
        known = (each for each in roll.members.values() if each.entered.done())
        member = next(known, None)
        return OUTSIDE if member is None else GroupVoice(member.member_id, roll.generation)

    def has(self, group: str) -> bool:
        """Whether a group has members, or the coordinator is still to hear that they have gone."""
        return group in self._rolls

    def check(self, group: str) -> None:
        """Raises CallRefused if the group is not ours any more."""
        roll = self._rolls.get(group)
        if roll is not None and roll.refused is not None:
            raise roll.refused

    async def renew(self, group: str) -> None:
        """The coordinator does not know what it was told of a group: tell it again."""
        roll = self._rolls.get(group)
        if roll is not None:
            roll.start_over()
            await self._tell([group])

    # --- what was before -------------------------------------------------------------------------

    def take_past(self, group: str, topic: str) -> tuple[float, Past]:
        """What instances of a group had of a topic before this process, and for how many seconds
        they may still come back. It is given once."""
        until_ms, of_topics = self._past.get(group, (0, {}))
        left_s = (until_ms - monotonic_ms()) / 1000
        return (left_s, of_topics.pop(topic, {})) if left_s > 0 else (0, {})

    def _recall(self, group: str, before: Iterable[tuple[str, str]]) -> None:
        now_ms = monotonic_ms()
        for over in [each for each, (until_ms, _) in self._past.items() if until_ms <= now_ms]:
            del self._past[over]
        of_topics: dict[str, dict[InstanceName, frozenset[int]]] = defaultdict(dict)
        for said, assignment in before:
            with suppress(ValueError, PeerError):  # Somebody else's, with our protocol.
                instance, owner = json.loads(said)
                name = InstanceName(group, str(instance), str(owner))
                for topic, partition in read_assignment(assignment.encode(BYTES)):
                    had = of_topics[topic].get(name, frozenset())
                    of_topics[topic][name] = had | {partition}
        if of_topics:
            self._past[group] = now_ms + SESSION_MS, dict(of_topics)

    # --- telling ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """This process ends: who comes after it replaces the members, who are to be known then."""
        self._has_stopped = True

    async def keep_telling(self) -> None:
        """Tell the coordinator what is new, for ever."""
        beat_ms = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TELL_S):
                    await self._news.wait()
            self._news.clear()
            is_beat = monotonic_ms() >= beat_ms
            if is_beat:
                beat_ms = monotonic_ms() + round(1000 * BEAT_S)
            groups = [name for name, each in self._rolls.items() if is_beat or each.is_due]
            if groups and not await self._tell(groups):
                await asyncio.sleep(TELL_S)

    async def _tell(self, groups: Sequence[str]) -> bool:
        """Tell of groups; False if that did not work, and the same is to be told again."""
        async with self._telling:
            while groups and not self._has_stopped:
                told, weight = list[HeldGroup](), 0
                for group in groups:
                    if weight >= MEMBERS_MAX:
                        break
                    told.append(self._message(group, MEMBERS_MAX - weight))
                    members = self._rolls[group].members if group in self._rolls else ()
                    weight += 1 + len(told[-1].gone) + len(members) // BEATEN_A_ROW
                    weight += sum(map(_weight, told[-1].members))
                try:
                    answers = await self._ask(HoldGroups(SESSION_MS, told))
                except StoreError:
                    for each in told:
                        self._not_told(each.group_id)
                    return False
                again = [
                    each.group_id
                    for each, answer in zip(told, answers, strict=True)
                    if self._take(each, answer)
                ]
                groups = [*again, *groups[len(told) :]]
        return True

    def _message(self, group: str, rows_max: int) -> HeldGroup:
        """What is new of a group; it counts as told."""
        roll = self._rolls.get(group) or _Roll()
        rows, weight = list[HeldRow](), 0
        for name in [*roll.changed]:
            if weight >= rows_max:
                break
            del roll.changed[name]
            rows.append(roll.members[name].row())
            weight += _weight(rows[-1])
        gone = [*islice(roll.gone, MEMBERS_MAX)] if roll.generation >= 0 else []
        for each in gone:
            del roll.gone[each]
        return HeldGroup(group, roll.generation, rows, gone)

    def _not_told(self, group: str) -> None:
        roll = self._rolls.get(group)
        if roll is not None:
            roll.start_over()

    def _take(self, told: HeldGroup, answer: GroupHeld) -> bool:
        """Take the coordinator's answer for a group; whether there is more to tell at once."""
        roll = self._rolls.get(told.group_id)
        if roll is None:
            return False
        if answer.error_code in _STALE and told.generation >= 0:
            roll.start_over()
            return True
        if answer.error_code:
            self._refuse(told.group_id, roll, answer.error_code)
            return False
        roll.generation, roll.refused = answer.generation, None
        if not roll.is_known:
            roll.is_known = True
            self._recall(told.group_id, answer.before)
        ids = {each.member_id for each in told.members}
        for member in roll.members.values():
            if member.member_id in ids and not member.entered.done():
                member.entered.set_result(None)
        if not roll.members and not roll.gone:
            del self._rolls[told.group_id]
        return bool(roll.changed or roll.gone)

    def _refuse(self, group: str, roll: _Roll, code: int) -> None:
        """Who waits may not enter; the others' streams end if the group is Kafka's now."""
        refused = _refusal(group, code)
        for member in [*roll.members.values()]:
            if not member.entered.done():
                member.entered.set_exception(refused)
                member.entered.exception()  # Nobody may wait any more.
                del roll.members[member.name]
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            roll.refused = refused
        roll.start_over()
        if not roll.members:
            del self._rolls[group]


def _weight(row: HeldRow) -> int:
    return 1 + len(row.assignment) // ASSIGNED_A_ROW


def _refusal(group: str, code: int) -> CallRefused:
    if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return mixed(group)
    if code == ErrorCode.GROUP_MAX_SIZE_REACHED:
        sentence = f"group {group} takes no more members (group.max.size, or what they say)"
        return CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence)
    sentence = f"group {group} takes no members now: {ErrorCode(code).name}"
    return CallRefused(grpc.StatusCode.UNAVAILABLE, sentence)


def mixed(group: str) -> CallRefused:
    """The refusal where Kafka's consumers have a group."""
    return CallRefused(
        grpc.StatusCode.FAILED_PRECONDITION,
        f"group {group} has consumers of Kafka's protocol, who share its partitions without "
        "SeaweedMQ's; use another group",
    )
