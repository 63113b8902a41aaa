"""What a publisher is told of its records: merged where it does not read, and never in its way.

    interval ≤ 1    an answer for each record
    interval n      an answer for n records at most, LATE_MS after the first of them at the latest
    unread          beyond UNREAD_MAX answers the newest takes up what comes

An answer tells of the last of its records, and of the first offset among them: its records are of
one partition, but for what was merged unread. A refused record has an answer of its own, and so has
a mark of the publisher's among its records. A publisher that reads nothing is owed UNREAD_MAX
answers, and no more.
"""

from collections import deque
from dataclasses import dataclass

UNREAD_MAX = 1024
LATE_MS = 20
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

    def takes(self, other: "PublishAnswer", interval: int) -> bool:
        """Whether it may tell of the other's records too."""
        if self.is_single or other.is_single or self.partition != other.partition:
            return False
        return self.count + other.count <= interval

    def take(self, other: "PublishAnswer") -> None:
        """Tell of the other's records too, whatever they are."""
        if other.error:
            self.merged_errors += 1 + other.merged_errors
            return
        if self.base_offset < 0 or self.partition != other.partition:
            self.base_offset, self.partition = other.base_offset, other.partition
        if other.last_offset >= 0:
            self.last_offset = other.last_offset
        self.tag, self.count = other.tag, self.count + other.count
        self.sequence = other.sequence if other.sequence is not None else self.sequence


class Answers:
    """The answers that a publisher has not read yet, in the order of its records.

    At most UNREAD_MAX, of which only the last grows.
    """

    def __init__(self, interval: int) -> None:
        self._interval = max(1, interval)
        self._unread: deque[PublishAnswer] = deque()
        self._since_ms = 0  # The first record of the last answer.
        self._is_flushed = False
        self.merged = 0
        """How many answers another one took up because they were not read."""

    def __len__(self) -> int:
        return len(self._unread)

    def add(self, answer: PublishAnswer, now_ms: int) -> None:
        """A record has been appended or refused, or the publisher's mark was reached."""
        last = self._unread[-1] if self._unread else None
        if last is not None and not self._is_flushed and last.takes(answer, self._interval):
            last.take(answer)
        elif last is not None and len(self._unread) >= UNREAD_MAX:
            last.take(answer)
            self.merged += 1
        else:
            self._unread.append(answer)
            self._since_ms, self._is_flushed = now_ms, False

    def flush(self) -> None:
        """Let the last answer wait for no more records."""
        self._is_flushed = True

    def due_ms(self) -> int | None:
        """When there is an answer to take; None: not before another record."""
        if not self._unread:
            return None
        first = self._unread[0]
        is_whole = len(self._unread) > 1 or self._is_flushed or first.count >= self._interval
        return 0 if is_whole or first.is_single else self._since_ms + LATE_MS

    def take(self, now_ms: int) -> PublishAnswer | None:
        """The next answer, if it is due."""
        due_ms = self.due_ms()
        return None if due_ms is None or due_ms > now_ms else self._unread.popleft()

    def invariants(self) -> None:
        assert len(self._unread) <= UNREAD_MAX
        assert all(each.count <= self._interval for each in self._unread) or self.merged
