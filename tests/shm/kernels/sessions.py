"""Both halves of a session in one process."""

from typing import NamedTuple

import numpy as np

from shm.kernels.session import client as client_kernels, words
from shm.kernels.session.shard import take_requests
from shm.kernels.session.words import RESTART_BYTES
from shm.session import SessionMemory

INBOX_BYTES, ANSWERS_BYTES = 4 * RESTART_BYTES, 4096


def request(body: bytes) -> bytes:
    """A request of these bytes, with its size."""
    return len(body).to_bytes(4) + body


class Pair(NamedTuple):
    """The shard's memory and the client's."""

    shard: SessionMemory
    client: SessionMemory

    def begin_at(self, head: int) -> None:
        """As if so much had gone through the inbox."""
        self.shard.side[words.IN_POSITION] = self.client.side[words.IN_POSITION] = head
        self.shard.words[words.INBOX_HEAD] = self.shard.words[words.INBOX_TAIL] = head

    def send(self, data: bytes) -> bool:
        """Put a request into the inbox, which has room; whether the client must ring."""
        at = client_kernels.find_room(self.client.memory, self.client.side, len(data))
        assert at >= 0
        self.client.memory[at : at + len(data)] = np.frombuffer(data, np.uint8)
        return bool(client_kernels.publish_request(self.client.memory, self.client.side, len(data)))

    def take(self, room: int) -> bytes:
        """What the shard takes into so much room."""
        out = np.zeros(room, np.uint8)
        count = take_requests(self.shard.memory, self.shard.side, out)
        assert count >= 0
        return out[:count].tobytes()

    def answers(self, room: int) -> bytes:
        """What the client takes into so much room."""
        out = np.zeros(room, np.uint8)
        count = client_kernels.take_answers(self.client.memory, self.client.side, out)
        return out[:count].tobytes()
