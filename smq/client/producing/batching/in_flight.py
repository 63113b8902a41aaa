"""Requests that brokers have not answered, and channels that will not bring their answers.

A broker answers in the order of the requests.
"""

from collections import defaultdict, deque
from typing import TypeAlias

from smq.client.producing.batching.batch_queue import ParcelBatch, PartitionQueue

ANSWER_MS_MAX = 45_000  # Above PRODUCE_TIMEOUT_MS: a broker that is silent for longer is dead.
CORRELATION_ID_MAX = 0x7FFFFFFF


Request: TypeAlias = tuple[int, PartitionQueue, ParcelBatch]
"""A batch on its way to a broker: the correlation id, its queue, the batch."""


class LostChannels(set[int]):
    """The brokers whose channel is gone, is too small, or may hold a partial request.

    Their owner closes them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._request_bytes: dict[int, int] = {}

    def add_too_small(self, node_id: int, request_bytes: int) -> None:
        """A broker's channel can never take a request of this size."""
        self._request_bytes[node_id] = request_bytes
        self.add(node_id)

    def request_bytes(self, node_id: int) -> int:
        """The size of a request that the next channel to a broker must take at least."""
        return self._request_bytes.get(node_id, 0)

    def take(self) -> set[int]:
        """Take the brokers whose channels must be closed."""
        nodes = {*self}
        self.clear()
        return nodes


class InFlightRequests:
    """Requests by broker. Also maintains the queues' `in_flight`, which lists the same batches by
    partition.

    Requests have ids that only grow: `last_id` is that of the last one.
    lost  brokers whose channel is useless now
    """

    def __init__(self) -> None:
        self.last_id = 0
        self.lost = LostChannels()
        self._by_node: defaultdict[int, deque[Request]] = defaultdict(deque)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return any(self._by_node.values())

    def next_id(self) -> int:
        """The id of the request that is sent next."""
        return (self.last_id + 1) & CORRELATION_ID_MAX

    def add(self, queue: PartitionQueue, batch: ParcelBatch, now_ms: int) -> None:
        """A batch is in flight, or will be at once, as the next request."""
        self.last_id = correlation_id = (self.last_id + 1) & CORRELATION_ID_MAX
        batch.sent_ms = now_ms
        queue.in_flight.append(batch)
        self._by_node[queue.leader].append((correlation_id, queue, batch))

    def remove_last(self, queue: PartitionQueue) -> ParcelBatch:
        """Remove the last added request, which was not sent; returns its batch."""
        _, _, last = self._by_node[queue.leader].pop()
        batch = queue.in_flight.pop()
        assert batch is last, "the answer to another batch would be taken for this one's"
        return batch

    def remove_half_added(self, queue: PartitionQueue, batch: ParcelBatch) -> bool:
        """Remove a batch that an interrupted `add` recorded in part.

        False: it was complete.
        """
        requests = self._by_node.get(queue.leader, ())
        if any(each is batch for _, _, each in requests):
            return False
        queue.in_flight = [each for each in queue.in_flight if each is not batch]
        return True

    def oldest(self, node_id: int) -> Request | None:
        """The request that a broker answers next."""
        requests = self._by_node[node_id]
        return requests[0] if requests else None

    def remove_oldest(self, node_id: int) -> None:
        """It has been answered."""
        requests = self._by_node[node_id]
        _, queue, batch = requests[0]
        place = queue.in_flight.index(batch)
        del queue.in_flight[place], requests[0]  # Uninterruptible; see shm.interrupts.

    def remove_all(self, node_id: int) -> list[Request]:
        """No more answers come from a broker: remove and return its unanswered requests."""
        requests = [*self._by_node.pop(node_id, ())]
        for _, queue, batch in requests:
            queue.in_flight.remove(batch)
        return requests

    def all(self) -> list[Request]:
        """Every request without an answer."""
        return [each for requests in self._by_node.values() for each in requests]

    def overdue(self, now_ms: int) -> set[int]:
        """Brokers that have not answered for too long."""
        return {
            node_id
            for node_id, requests in self._by_node.items()
            if requests and now_ms - requests[0][2].sent_ms > ANSWER_MS_MAX
        }
