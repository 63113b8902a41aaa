"""A session's watch list: published by the client, read by the shard.

SYNC POINT of client and shard: the version is written after the list, with release, and read before
it, with acquire. So a shard that has read a version reads the list of that version, or of a later
one; then it finds the later version at its next look.
"""

from shm.kernels.base.atomics import load_acquire, store_release
from shm.kernels.base.bytes import store64
from shm.kernels.base.jit import kernel
from shm.kernels.session.words import WATCH_AT, WATCH_COUNT, WATCH_VERSION


@kernel
def publish_watch(memory, numbers, count):
    """The client: write the list, then that there is a new one; its version."""
    for i in range(len(numbers)):
        store64(memory, WATCH_AT + 8 * i, numbers[i])
    store64(memory, 8 * WATCH_COUNT, count)
    version = load_acquire(memory, 8 * WATCH_VERSION) + 1
    store_release(memory, 8 * WATCH_VERSION, version)
    return version


@kernel
def watch_version(memory):
    """The shard: the version of the list, which may be read afterwards."""
    return load_acquire(memory, 8 * WATCH_VERSION)
