"""The last offset of each key, in a hash table of bounded size, for log compaction.

    slot    hash, first half | hash, second half | offset + 1, 0 in a free slot

A key is identified by 128 bits of MurmurHash3 (x64), as Kafka identifies it by its MD5
(SkimpyOffsetMap): among 100 million keys two share a hash with a probability of 10^-23. Probing is
linear. The caller must keep a slot free. The plain twin is `shm.kernels.twin.keys`.
"""

import numpy as np

from shm.kernels.base.crc32c import load_word
from shm.kernels.base.jit import kernel

SLOT_WORDS = 3
S_FIRST = 0
S_SECOND = 1
S_NEXT = 2  # The offset after the key's last one.
BLOCK_BYTES = 16
C1 = 0x87C37B91114253D5
C2 = 0x4CF5AD432745937F
MIX1 = 0xFF51AFD7ED558CCD
MIX2 = 0xC4CEB9FE1A85EC53


@kernel
def _rotated(word, bits):
    return word << np.uint64(bits) | word >> np.uint64(64 - bits)


@kernel
def _first_mixed(word):
    return _rotated(word * np.uint64(C1), 31) * np.uint64(C2)


@kernel
def _second_mixed(word):
    return _rotated(word * np.uint64(C2), 33) * np.uint64(C1)


@kernel
def _finished(word):
    word = (word ^ word >> np.uint64(33)) * np.uint64(MIX1)
    word = (word ^ word >> np.uint64(33)) * np.uint64(MIX2)
    return word ^ word >> np.uint64(33)


@kernel
def _tail_word(data, at, end):
    """The bytes data[at:end], fewer than nine, as a little-endian word."""
    word = np.uint64(0)
    for i in range(end - at):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@kernel
def murmur3(data, at, length):
    """Both halves of the 128-bit MurmurHash3 (x64, seed 0) of data[at:at + length]."""
    first, second, end = np.uint64(0), np.uint64(0), at + length
    while end - at >= BLOCK_BYTES:
        first = _rotated(first ^ _first_mixed(load_word(data, at)), 27) + second
        first = first * np.uint64(5) + np.uint64(0x52DCE729)
        second = _rotated(second ^ _second_mixed(load_word(data, at + 8)), 31) + first
        second = second * np.uint64(5) + np.uint64(0x38495AB5)
        at += BLOCK_BYTES
    if end - at > 8:
        second ^= _second_mixed(_tail_word(data, at + 8, end))
    if end > at:
        first ^= _first_mixed(_tail_word(data, at, min(at + 8, end)))
    first ^= np.uint64(length)
    second ^= np.uint64(length)
    first += second
    second += first
    first, second = _finished(first), _finished(second)
    first += second
    return first, second + first


@kernel
def _slot_of(table, first, second):
    """The row of `table` with this hash, or the free one where it belongs."""
    mask = np.uint64(len(table) - 1)
    slot = first & mask
    while table[slot, S_NEXT] != 0:
        if table[slot, S_FIRST] == first and table[slot, S_SECOND] == second:
            break
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@kernel
def note_keys(table, data, places, lengths, offsets):
    """Note the offsets of keys in `table` (uint64 [slots, SLOT_WORDS], slots a power of two).

    Key i is data[places[i]:][:lengths[i]]; a length of -1 is none. Returns how many are new.
    """
    added = 0
    for i in range(len(offsets)):
        if lengths[i] < 0:
            continue
        first, second = murmur3(data, places[i], lengths[i])
        slot = _slot_of(table, first, second)
        if table[slot, S_NEXT] == 0:
            table[slot, S_FIRST], table[slot, S_SECOND] = first, second
            added += 1
        table[slot, S_NEXT] = max(table[slot, S_NEXT], np.uint64(offsets[i] + 1))
    return added


@kernel
def find_last(table, data, places, lengths, offsets, out):
    """Set `out` for each key whether no later offset of it is recorded; False for no key."""
    kept = 0
    for i in range(len(offsets)):
        out[i] = False
        if lengths[i] >= 0:
            first, second = murmur3(data, places[i], lengths[i])
            out[i] = table[_slot_of(table, first, second), S_NEXT] <= np.uint64(offsets[i] + 1)
        kept += out[i]
    return kept
