"""A consumer's side of its group: takes and gives up partitions, and commits positions, in poll.

The group's thread (group/group_member.py) reports events; poll handles them here. Handling may fail
or be interrupted at any point, and the next poll repeats it: an event is removed once it has been
handled, and a join that is due is remembered until it is made. A partition that a cooperative
member gives up has no owner until the member has joined without it.
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
    """One consumer's part in its group. `member` is None if the group only keeps offsets."""

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
        self._to_join: Iterable[TopicPartition] | None = (
            None  # The partitions to join with; None: no join is due.
        )
        self.rebalances = 0

    @property
    def membership(self) -> Membership:
        """The membership that commits are made with now."""
        return Membership() if self._member is None else self._member.membership

    def commit(self, offsets: Mapping[TopicPartition, int] | None) -> "Future[None]":
        """Commit these offsets, or the positions; the future raises BrokerError on failure."""
        if offsets is None:
            offsets = self._where_we_are()
        return self._committing.commit(offsets, self.membership, self._renewed(offsets))

    def _where_we_are(self) -> dict[TopicPartition, int]:
        return {name: each.position for name, each in self._reading.partitions.items()}

    def _renewed(self, names: Iterable[TopicPartition]) -> Callable[[], Membership | None]:
        """The membership to commit these partitions with after a rebalance.

        None: not all of them have stayed assigned to us.
        """
        partitions = self._reading.partitions
        held = [partitions.get(name) for name in names]

        def renewed() -> Membership | None:
            if self._member is None or not self._member.is_member:
                return None
            membership = self.membership  # First: partitions are given up before the next join.
            is_ours = all(each is not None and partitions.get(each.name) is each for each in held)
            return membership if is_ours else None

        return renewed

    def turn(self) -> None:
        """Handle the group's events, and make commits that are due. Raises BrokerError."""
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
            member.take_event()  # Only now: the next poll repeats what failed.
            self._join(member)
            if isinstance(event, Failed):
                raise event.error
        self._join(member)

    def _assigned(self, member: GroupMember, partitions: frozenset[TopicPartition]) -> None:
        owned = self._reading.partitions.keys()
        revoked, added = owned - partitions, sorted(partitions - owned)
        if revoked and member.is_cooperative:
            self._to_join = partitions  # Only then may others get our partitions.
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
        """Give up partitions, whose positions are committed first if commits are automatic.

        No commit is in flight afterwards: a member that joins or leaves must not commit under its
        old membership.
        """
        names = sorted(set(names))
        if names and self._committing.is_automatic:
            with suppress(BrokerError):  # Then the next owner reads records again.
                self._commit_if_moved().result()
        elif names:
            self._committing.settle()
        self._reading.drop(names)

    def _commit_if_moved(self) -> "Future[None]":
        offsets = self._where_we_are()
        return self._committing.commit_if_moved(offsets, self.membership, self._renewed(offsets))
