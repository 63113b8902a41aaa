"""Puts a reader to sleep in one call: discards bells, tells the shard, checks the log.

A consumer of one log does this after nearly every record. From Python, step by step, it would take
longer than handling a small record.

    polled    int32: two of struct pollfd, the session's socket and another descriptor, or -1
"""

from typing import NamedTuple

import numpy as np

from shm.kernels.base import libc
from shm.kernels.base.atomics import address
from shm.kernels.base.jit import kernel
from shm.kernels.base.publish import read_version
from shm.kernels.reader.lend import CURSOR_AWAY, CURSOR_ENTRY, lend_batches
from shm.kernels.session.client import fall_asleep_client, wake_client

POLLED_WORDS = 4
BELLS_MAX = 64  # Bells discarded per call; any left cause one needless check.


class ReaderState(NamedTuple):
    """The memory of a log, and the state of shm.kernels.reader.lend for its reader."""

    log: np.ndarray
    wanted: np.ndarray
    cursor: np.ndarray
    facts: np.ndarray


@kernel
def _has_something(log, wanted, cursor, facts):
    """Whether lend_batches would lend a batch, or make a partition W_AWAY."""
    before = cursor[CURSOR_ENTRY]
    count = lend_batches(log, wanted, cursor, facts, 1)
    cursor[CURSOR_ENTRY] = before
    return count != 0 or cursor[CURSOR_AWAY] != 0


@kernel
def sleep_reader(
    session, side, polled, bells, log, wanted, cursor, facts, catalog, version, timeout_ms
):
    """Sleep until there may be records, or for so long; False: the shard has hung up.

    `bells` is room for BELLS_MAX bytes; `log` to `facts` are a ReaderState. A signal, or another
    catalog than `version`, ends it early.
    """
    fd = polled[0]
    received = libc.recv(fd, address(bells, 0), np.int64(BELLS_MAX), np.int32(libc.MSG_DONTWAIT))
    wake_client(session, side)
    if received == 0:
        return False
    if not fall_asleep_client(session, side):
        return True
    if _has_something(log, wanted, cursor, facts) or read_version(catalog) != version:
        wake_client(session, side)  # Otherwise the shard would ring while we are awake.
        return True
    polled[1] = polled[3] = libc.POLLIN
    libc.poll(address(polled, 0), np.int64(2), np.int32(timeout_ms))
    return True
