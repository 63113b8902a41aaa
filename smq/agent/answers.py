"""What a publisher is told of its records: merged where it does not read, and never in its way.

    interval ≤ 1    an answer for each record
    interval n      an answer for n records at most, LATE_MS after the first of them at the latest
    unread          beyond UNREAD_MAX answers the newest takes up what comes

An answer is of one partition, but for what was merged unread: it tells of the last of its records,
and of the first offset among them. While it waits, records of other partitions may come between:
so keys over many partitions do not cost an answer for each record. Where many partitions wait, they
may be later: a stream has an answer in APART_MS, on average, until that makes them LATEST_MS late
or no record has come for LATE_MS.

Answers leave in the order of their last records. A refused record has an answer of its own, and so
has a mark of the publisher's among its records. A publisher that reads nothing is owed UNREAD_MAX
answers, one more, and one for each partition: an answer that names a refused record takes up
refusals only, and the one behind it all the rest.
"""

from collections import deque
from dataclasses import dataclass

UNREAD_MAX = 1024
LATE_MS, LATEST_MS = 20, 100
APART_MS = 5  # Sixteen streams over as many partitions had two answers for three records.
INTERVAL_MAX = 2**31 - 1


@dataclass(slots=True)
class PublishAnswer:
    """Of `count` records that were appended, or of one that was refused (`error`), or of a mark.

    `tag` is what the publisher knows the last of them by: a time, or a number.
    """

    tag: int
    base_offset: int = -1
    last_offset: int = -1
    count: int = 0
    sequence: int | None = None
    error: str = ""
    error_code: int = 0
    merged_errors: int = 0
    partition: int = 0

    @property
    def is_single(self) -> bool:
        """Whether it is of a refusal or of a mark."""
        return not self.count

    def take(self, other: "PublishAnswer") -> None:
        """Tell of the other's records too, whatever they are."""
        if other.error:
            self.merged_errors += 1 + other.merged_errors
            return
        if other.count and (self.base_offset < 0 or self.partition != other.partition):
            self.base_offset, self.partition = other.base_offset, other.partition
        if other.last_offset >= 0:
            self.last_offset = other.last_offset
        self.tag, self.count = other.tag, self.count + other.count
        self.sequence = other.sequence if other.sequence is not None else self.sequence


class Answers:
    """The answers that a publisher has not read yet, in the order of their last records."""

    def __init__(self, interval: int) -> None:
        self._interval = max(1, interval)
        self._due: deque[PublishAnswer] = deque()
        self._waiting: dict[int, PublishAnswer] = {}  # By partition, for more of its records.
        self._since_ms = self._newest_ms = 0  # The first and the last record of those that wait.
        self.merged = 0
        """How many answers another one took up because they were not read."""

    def __len__(self) -> int:
        return len(self._due) + len(self._waiting)

    def add(self, answer: PublishAnswer, now_ms: int) -> None:
        """A record has been appended or refused, or the publisher's mark was reached."""
        if answer.is_single:
            self.flush()
            self._owe(answer)
            return
        if not self._waiting:
            self._since_ms = now_ms
        self._newest_ms = now_ms
        mine = self._waiting.pop(answer.partition, None)
        if mine is None:
            mine = answer
        else:
            mine.take(answer)
        self._waiting[answer.partition] = mine  # Behind the others: it has the last record.
        if mine.count >= self._interval:
            self.flush()

    def flush(self) -> None:
        """Let no answer wait for more records."""
        for each in self._waiting.values():
            self._owe(each)
        self._waiting.clear()

    def _owe(self, answer: PublishAnswer) -> None:
        newest = self._due[-1] if len(self._due) >= UNREAD_MAX else None
        if newest is None or self._is_apart(newest, answer):
            self._due.append(answer)
        else:
            newest.take(answer)
            self.merged += 1

    def _is_apart(self, newest: PublishAnswer, answer: PublishAnswer) -> bool:
        """Whether the newest answer names a record that was refused, and the other is of others.
        There is one such answer more than UNREAD_MAX at most."""
        return bool(newest.error) and not answer.error and len(self._due) == UNREAD_MAX

    def due_ms(self) -> int | None:
        """When there is an answer to take; None: not before another record."""
        if self._due:
            return 0
        if not self._waiting:
            return None
        late_ms = min(max(LATE_MS, APART_MS * len(self._waiting)), LATEST_MS)
        return min(self._since_ms + late_ms, self._newest_ms + LATE_MS)

    def take(self, now_ms: int) -> PublishAnswer | None:
        """The next answer, if it is due."""
        due_ms = self.due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        if not self._due:
            self.flush()
        return self._due.popleft()

    def invariants(self) -> None:
        assert len(self._due) <= UNREAD_MAX + 1
        assert all(each.count < self._interval for each in self._waiting.values())
        assert all(each.count <= self._interval for each in self._due) or self.merged
