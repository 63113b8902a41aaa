"""Of how many partitions each log has a row: those that it leads, those that it has led and keeps,
and those that are to come to it. A log with more rows than it has room for could not start again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from smq.model.catalog import Moved, Topic


class LogRoom:
    """The rows of the topics that count() was told of. led: by log, those that it leads."""

    def __init__(self, log_count: int, rows_max: int) -> None:
        self._rows_max = rows_max
        self.led = [0] * log_count
        self._kept = [0] * log_count

    def count(self, topic: Topic, sign: int) -> None:
        """There is one more topic, or one less."""
        for log in topic.logs:
            self.led[log] += sign
        for log in _kept_in(topic):
            self._kept[log] += sign

    def rows(self, log: int) -> int:
        """Those of a log."""
        return self.led[log] + self._kept[log]

    def room_to_lead(self, log: int) -> int:
        """How many partitions a log may lead, with those that it leads."""
        return self._rows_max - self._kept[log]

    def have_room(self, new: Mapping[int, int]) -> bool:
        """Whether the logs have room for new rows beside their own."""
        return all(
            self.rows(log) + new.get(log, 0) <= self._rows_max for log in range(len(self.led))
        )


def rows_of(topic: Topic) -> Counter[int]:
    """The rows of a topic, by log."""
    return Counter(chain(topic.logs, _kept_in(topic)))


def _kept_in(topic: Topic) -> Iterator[int]:
    """For each partition of a topic, the logs that have something of it and do not lead it."""
    for moved in topic.moves.values():
        yield from _logs_of(moved) - {moved.leaderships[-1].log}


def _logs_of(moved: Moved) -> set[int]:
    logs = {each.log for each in moved.leaderships}
    return logs if moved.target is None else logs | {moved.target}
