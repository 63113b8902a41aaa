"""Long polls that nothing wakes."""

from smq.app.shard.waiting.long_polls import LongPolls
from smq.testing.simulation.defects.mutant import TOPICS, Change, Mutant


def _look_and_stay(self: LongPolls) -> None:
    """A poll stays registered at the places of deleted topics."""
    for poll in list(self._all):
        if poll in self._all:
            self._settle(poll, poll.wait.attempt(is_last=False))


MUTANTS = (
    Mutant(
        "long-poll-stays",
        "a long poll stays behind when its topic is created again",
        TOPICS | {"fetch", "delete", "freeze"},
        (Change(LongPolls, "look_again", _look_and_stay),),
        seed=122,
    ),
)
