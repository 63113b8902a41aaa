"""Compiles the kernels that only programs on this host call, when a broker first starts here.

A broker does not load them. A program loads those that it uses in milliseconds; otherwise it would
wait for seconds when it first attaches.
"""

import os

import numpy as np

from shm.catalog import CatalogBlock
from shm.kernels.session.client import (
    await_room,
    fall_asleep_client,
    find_room,
    has_news,
    must_ring_for_room,
    publish_request,
    spin,
    take_answers,
    wake_client,
)
from shm.kernels.session.one_record import put_one, send_one
from shm.session import SessionMemory


def warm_client() -> None:
    """Compile these kernels, or load them."""
    session = SessionMemory.create(4096, 4096)
    catalog = CatalogBlock.create(4096)
    memory, side = session.memory, session.side
    find_room(memory, side, 8)
    await_room(memory, side, 8, 1)
    data = np.frombuffer(bytes(16), np.uint8)
    put_one(np.zeros(256, np.uint8), data, 0, data, 1, data, 1, data, 0, 0, 0, 0)
    send_one(memory, side, 256, data, 0, data, 1, data, 1, data, 0, 0, 0, 0)
    publish_request(memory, side, 0)
    has_news(memory, side)
    fall_asleep_client(memory, side)
    wake_client(memory, side)
    spin(memory, side, 1)
    take_answers(memory, side, np.zeros(8, np.uint8))
    must_ring_for_room(memory, side)
    session.watch([1])
    CatalogBlock.attach(catalog.fd).version()  # Over memory that cannot be written.
    os.close(session.fd)
    os.close(catalog.fd)
