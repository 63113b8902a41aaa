"""A consumer that gets nothing, and passes records all the same."""

from smq.client.consuming.batch.batch import Batch
from smq.client.names import TopicPartition


class AbortedRecords:
    """Of records of aborted transactions, in a partition: each poll takes so long, and passes one.

    It is its own clock.
    """

    def __init__(self, poll_s: float) -> None:
        self.offset, self.now_s = 0, 0.0
        self._poll_s, self.clock = poll_s, self

    def monotonic_s(self) -> float:
        return self.now_s

    def position(self, _topic: str, _partition: int) -> int:
        return self.offset

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("paid", 0)]

    def pause(self, _topic: str, _partition: int) -> None:
        pass

    def poll_up_to(self, _ends: object, _timeout_s: float) -> Batch:
        self.offset, self.now_s = self.offset + 1, self.now_s + self._poll_s
        return Batch([])
