"""Members that are expelled while they live."""

from smq.coordinator.group import Group
from smq.testing.simulation.defects.mutant import MEMBERS, Change, Mutant


def _drop_one_by_one(self: Group) -> None:
    """The first that is dropped may complete the rebalance of the next ones in the list."""
    if self._members.pending.expire(self._members.now_ms):
        self._rebalance.complete_if_all_joined()
    for member in self._members.take_due():
        is_gone = member.is_new or not member.waits()
        if member.member_id in self.roster and is_gone:
            self._rebalance.drop(member.member_id)
            self._rebalance.start()
    self._rebalance.expire()


MUTANTS = (
    Mutant(
        "members-are-dropped-one-by-one",
        "live members are dropped in the moment in which their rebalance completes",
        MEMBERS,
        (Change(Group, "_pass_time", _drop_one_by_one),),
        seed=329,
    ),
)
