"""Which partitions this shard leads, for kernels: a hash table over the catalog.

One int64 array, maintained by smq.shard.directory, with spare room in each part:

    0 buckets (a power of two)   1 where topics begin   2 where slots begin   3 where names begin
    4, 5 the secret of the hash
    buckets   one word each: 0, or 1 + the topic's row
    topics    five words each: hash, key at (bytes from the names' begin), key bytes, first slot,
              partition count
    slots     one word a partition: log << 32 | row in the log's partition table; -1: led elsewhere;
              -3: of an internal topic, which is never written
    names     the keys as bytes

A topic has two adjacent rows: one under its name, one under its 16-byte id (with an inverted hash,
so that a name of 16 bytes is not mistaken for an id). The rows of a deleted topic stay, with a hash
that no key has.
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.base.siphash import sip_hash

TOPIC_WORDS = 5
DIRECTORY_HEADER_WORDS = 6
SECRET = 4  # Two words.
ID_BYTES = 16
LED_ELSEWHERE = -1
INTERNAL = -3
GONE = -1  # In place of a hash.


@kernel
def hash_key(directory, data, start, length, is_id):
    """The hash of a topic's name or id under the directory's secret; never negative."""
    k0, k1 = np.uint64(directory[SECRET]), np.uint64(directory[SECRET + 1])
    value = np.int64(sip_hash(k0, k1, data, start, length) >> np.uint64(1))
    return value ^ 0xFFFFFFFF if is_id else value


@kernel
def _byte(words, at):
    return (words[at >> 3] >> (8 * (at & 7))) & 255


@kernel
def find_topic(directory, data, start, length, is_id):
    """Where the topic's five words begin in the directory; -1: there is no such topic."""
    wanted = hash_key(directory, data, start, length, is_id)
    mask = directory[0] - 1
    bucket = wanted & mask
    while directory[DIRECTORY_HEADER_WORDS + bucket] != 0:
        row = directory[1] + TOPIC_WORDS * (directory[DIRECTORY_HEADER_WORDS + bucket] - 1)
        if directory[row] == wanted and directory[row + 2] == length:
            at = 8 * directory[3] + directory[row + 1]
            i = np.int64(0)
            while i < length and _byte(directory, at + i) == data[start + i]:
                i += 1
            if i == length:
                return row
        bucket = (bucket + 1) & mask
    return np.int64(-1)


@kernel
def enter_topics(directory, keys, first, end):
    """Hash the rows `first` to `end` of a directory and enter them into its buckets.

    Rows with even numbers are of names, with odd ones of ids. `keys` are the bytes of all keys
    (uint8); the rows already say where each lies.
    """
    mask = directory[0] - 1
    for i in range(first, end):
        row = directory[1] + TOPIC_WORDS * i
        value = hash_key(directory, keys, directory[row + 1], directory[row + 2], i % 2 == 1)
        directory[row] = value
        bucket = value & mask
        while directory[DIRECTORY_HEADER_WORDS + bucket] != 0:
            bucket = (bucket + 1) & mask
        directory[DIRECTORY_HEADER_WORDS + bucket] = i + 1
