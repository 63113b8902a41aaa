"""A program: what a client calls of a session, once, without a broker."""

import os

import numpy as np

from shm.catalog import CatalogBlock
from shm.kernels.session import client as session_client
from shm.session import SessionMemory
from tests.shm.kernels.sessions import ANSWERS_BYTES, INBOX_BYTES


def live() -> None:
    """Send one request, look at the catalog, wait."""
    shard = SessionMemory.create(INBOX_BYTES, ANSWERS_BYTES)
    client = SessionMemory.attach(shard.fd)
    memory, side = client.memory, client.side
    at = session_client.await_room(memory, side, 16, 1000)
    assert at == session_client.find_room(memory, side, 16)
    session_client.publish_request(memory, side, 16)
    session_client.fall_asleep_client(memory, side)
    session_client.wake_client(memory, side)
    session_client.spin(memory, side, 3)
    session_client.has_news(memory, side)
    session_client.take_answers(memory, side, np.zeros(100, np.uint8))
    session_client.must_ring_for_room(memory, side)
    block = CatalogBlock.create(4096)
    assert CatalogBlock.attach(block.fd).read() == (0, b"")
    os.close(shard.fd)
    os.close(block.fd)


live()
