"""A consumer's part in its group: it takes and gives up partitions, and commits where it is.

What the group's thread has found out (group.py) is done here, inside poll. It may fail, or be
interrupted, at any step, and is then begun again by the next poll: an event is taken when it is
done, and what the group is still owed, a join, is remembered until it has it. What a cooperative
member gives up is nobody's until it has joined without it.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from smq.client.consuming.group.commits import Committing, Membership
from smq.client.consuming.group.group_member import Assigned, Event, Failed, GroupMember, Rebalance
from smq.client.consuming.source.beginnings import Beginnings
from smq.client.consuming.source.reading import Reading
from smq.client.names import TopicPartition
from smq.model.errors import BrokerError

if TYPE_CHECKING:
    from concurrent.futures import Future


class Sharing:
    """Of one consumer. `member` is None if the group has no part in what is read."""

    def __init__(
        self,
        reading: Reading,
        beginnings: Beginnings,
        committing: Committing,
        member: GroupMember | None,
    ) -> None:
        self._reading = reading
        self._beginnings = beginnings
        self._committing = committing
        self._member = member
        self._to_join: Iterable[TopicPartition] | None = None  # Still to be joined with.
        self.rebalances = 0

    @property
    def membership(self) -> Membership:
        """As whom commits are made now."""
        return Membership() if self._member is None else self._member.membership

    def commit(self, offsets: Mapping[TopicPartition, int] | None) -> "Future[None]":
        """Commit these, or where we are; the future has the BrokerError if it fails."""
        if offsets is None:
            offsets = self._where_we_are()
        return self._committing.commit(offsets, self.membership, self._renewed(offsets))

    def _where_we_are(self) -> dict[TopicPartition, int]:
        return {name: each.position for name, each in self._reading.partitions.items()}

    def _renewed(self, names: Iterable[TopicPartition]) -> Callable[[], Membership | None]:
        """As whom to commit of these once the group has shared anew.

        None: not all of them have been ours all the time.
        """
        partitions = self._reading.partitions
        held = [partitions.get(name) for name in names]

        def renewed() -> Membership | None:
            if self._member is None or not self._member.is_member:
                return None
            membership = self.membership  # First: who gives up partitions joins after that.
            is_ours = all(each is not None and partitions.get(each.name) is each for each in held)
            return membership if is_ours else None

        return renewed

    def turn(self) -> None:
        """What the group wants of us, and commits that are due. Raises BrokerError."""
        if self._committing.is_due():
            self._commit_if_moved()
        member = self._member
        if member is None:
            return
        member.polled()
        while member.events:
            event = member.events[0]
            if isinstance(event, Assigned):
                self._assigned(member, event.partitions)
            else:
                self._unsettled(member, event)
            member.take_event()  # Now: what failed is done again by the next poll.
            self._join(member)
            if isinstance(event, Failed):
                raise event.error
        self._join(member)

    def _assigned(self, member: GroupMember, partitions: frozenset[TopicPartition]) -> None:
        owned = self._reading.partitions.keys()
        revoked, added = owned - partitions, partitions - owned
        if revoked and member.is_cooperative:
            self._to_join = partitions  # What we give up can be another's only then.
        self.give_up(revoked)
        self._reading.add(self._beginnings.positions_anew(added))
        self.rebalances += 1

    def _unsettled(self, member: GroupMember, event: Event) -> None:
        owned = list(self._reading.partitions)
        if isinstance(event, Rebalance) and member.is_cooperative:
            self._to_join = owned
            return
        if isinstance(event, Rebalance):
            self.give_up(owned)
        elif not isinstance(event, Failed) or event.is_out:
            self._reading.drop(owned)
        if not isinstance(event, Failed) or event.is_out:
            self._to_join = ()

    def _join(self, member: GroupMember) -> None:
        if self._to_join is not None:
            member.join(self._to_join)
            self._to_join = None

    def give_up(self, names: Iterable[TopicPartition]) -> None:
        """Leave partitions to others, who go on where we say that we are.

        Nothing is on its way then: who joins, or leaves, may no longer commit as who he was.
        """
        names = set(names)
        if names and self._committing.is_automatic:
            with suppress(BrokerError):  # Then others read again what we have read.
                self._commit_if_moved().result()
        elif names:
            self._committing.settle()
        self._reading.drop(names)

    def _commit_if_moved(self) -> "Future[None]":
        offsets = self._where_we_are()
        return self._committing.commit_if_moved(offsets, self.membership, self._renewed(offsets))
