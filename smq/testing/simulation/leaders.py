"""What holds of a partition's leaderships at any time, whoever leads (docs/leadership.md).

The catalog that the coordinator publishes and the rows of the shards are looked at after each turn:

- leaderships follow each other, their epochs and attempts rise, and what has ended stays as it was;
- an epoch of a partition is led in one log;
- a log takes no record behind the end of its leadership;
- within an epoch neither the last stable offset nor the log start falls;
- the next leader reaches each epoch that was shown: clients ignore all lower ones for ever.
"""

from shm.kernels.base.words import P_EPOCH, P_LAST_STABLE, P_LOG_END, P_LOG_START, P_NUMBER
from smq.log.log import Log
from smq.model.catalog import Catalog, Moved, Topic
from smq.shard.shard import Shard
from smq.testing.simulation.ledger import Broken, Ledger


class Leaders:
    """The leaderships of one simulation, as far as they were seen."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._moved: dict[int, Moved] = {}  # By partition number, as are those below.
        self._shown: dict[int, int] = {}  # The highest epoch that a client may have been told.
        self._log_of: dict[tuple[int, int], int] = {}  # By number and epoch.
        self._ends: dict[tuple[int, int], tuple[int, int]] = {}  # Likewise: log start, LSO.

    def published(self, catalog: Catalog) -> None:
        """The coordinator has published a catalog. Raises Broken."""
        for topic in catalog.by_name.values():
            for index, moved in topic.moves.items():
                number = topic.partition_numbers[index]
                moved.invariants()
                if moved.leaderships[-1].log != topic.logs[index]:
                    raise Broken(f"{topic.name}-{index}: {moved} is led in {topic.logs[index]}")
                if number in self._moved and not _follows(self._moved[number], moved):
                    raise Broken(f"{topic.name}-{index}: {moved} follows {self._moved[number]}")
                self._moved[number] = moved
                self._ledger.moved(topic, index, moved.leaderships[-1].start)

    def turned(self, shard: Shard) -> None:
        """A shard has had a turn. Raises Broken."""
        for led in shard.led():
            self._check_led(led.log, led.slot)
        for log in shard.logs.values():
            self._check_ends(log)
        nodes = shard.nodes()
        for topic in shard.catalog.by_name.values():
            for index in topic.moves:
                number = topic.partition_numbers[index]
                epoch = topic.leader(index, nodes).epoch
                self._shown[number] = max(self._shown.get(number, 0), epoch)

    def _check_led(self, log: Log, slot: int) -> None:
        row = log.partitions.table[slot]
        number, epoch, start, stable = row[[P_NUMBER, P_EPOCH, P_LOG_START, P_LAST_STABLE]].tolist()
        known = self._log_of.setdefault((number, epoch), log.number)
        if known != log.number:
            raise Broken(f"partition {number}: logs {known} and {log.number} lead in epoch {epoch}")
        start_before, stable_before = self._ends.get((number, epoch), (0, 0))
        if start < start_before or stable < stable_before:
            raise Broken(
                f"partition {number}: log start and last stable offset are {start} and {stable} "
                f"after {start_before} and {stable_before}, in epoch {epoch}"
            )
        self._ends[number, epoch] = start, stable

    def _check_ends(self, log: Log) -> None:
        """What a log has led is not continued there."""
        for number in self._moved.keys() & log.partitions.slots.keys():
            leaderships = self._moved[number].leaderships
            ends = [each.end for each in leaderships if each.log == log.number]
            end = int(log.partitions.table[log.partitions.slots[number], P_LOG_END])
            if ends and ends[-1] is not None and end > ends[-1]:
                raise Broken(f"partition {number}: log {log.number} leads to {ends[-1]}, has {end}")

    def check_reached(self, topic: Topic, index: int, epoch: int) -> None:
        """All is healed, and a partition is led in this epoch. Raises Broken."""
        shown = self._shown.get(topic.partition_numbers[index], 0)
        if epoch < shown:
            raise Broken(f"{topic.name}-{index}: epoch {epoch} leads, and {shown} was shown")


def _follows(before: Moved, now: Moved) -> bool:
    """Whether a partition's leaderships may be these after those."""
    if now.attempt < before.attempt or now.epoch < before.epoch:
        return False
    *_, led = before.leaderships
    *ended, newest = now.leaderships
    if newest == led:
        return now.leaderships == before.leaderships
    is_next = newest.epoch > max(before.epoch, led.epoch) and newest.log == before.target
    return (
        is_next and newest.start >= led.start and all(each.start < newest.start for each in ended)
    )
