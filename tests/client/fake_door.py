"""A door to a log of this process, with a bell that tests ring."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from shm.cluster import Node
from smq.client.errors import ChannelGone
from smq.model.catalog import Catalog, Topic
from tests.shm.kernels.reader.test_lend import NUMBERS, Reader, Writer

if TYPE_CHECKING:
    from shm.kernels.reader.sleep import ReaderState
    from shm.reader import LogReader

TOPIC = Topic("t", UUID(int=1), NUMBERS, (0, 0, 0))


class FakeDoor:
    """Node 1, log 0, topic `t`: its three partitions."""

    def __init__(self, writer: Writer) -> None:
        self.readers: dict[int, LogReader] = {0: Reader(writer).log}
        self.closed = False
        self.watched: set[int] = set()
        self.slept: list[tuple[int, int]] = []
        self.topics = {"t": TOPIC}
        self.snapshot = Catalog("c", 1, self.topics)
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)

    def catalog(self) -> Catalog:
        return self.snapshot

    def nodes(self) -> list[Node]:
        return [Node(1, 1, 9092, 1, 0)]

    def fileno(self) -> int:
        return self._bell

    def ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def arm(self) -> bool:
        return not self.closed

    def disarm(self) -> bool:
        if self.closed:
            raise ChannelGone
        return False

    def sleep(self, reader: "ReaderState", also: int, timeout_ms: int) -> bool:
        if self.closed:
            return False
        self.slept.append((also, timeout_ms))
        return True

    def watch(self, numbers: Iterable[int]) -> None:
        if self.closed:
            raise ChannelGone
        self.watched = set(numbers)

    def close(self) -> None:
        self.closed = True
