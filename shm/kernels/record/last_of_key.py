"""The last offset of each key, in a hash table of bounded size, for log compaction.

    slot    hash, first half | hash, second half | offset + 1, 0 in a free slot

A key is identified by 128 bits of SipHash under the table's secret, as Kafka identifies it by its
MD5 (SkimpyOffsetMap). The probability that two of 100 million keys share a hash is 10^-23, and a
client cannot choose keys that do, or that fall into one slot. Probing is linear. The caller must
keep a slot free. The plain twin is `shm.kernels.twin.keys`.
"""

import numpy as np

from shm.kernels.base.jit import kernel
from shm.kernels.base.siphash import sip_hash_128

SLOT_WORDS = 3
S_FIRST = 0
S_SECOND = 1
S_NEXT = 2  # The offset after the key's last one.


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
def note_keys(table, secret, data, places, lengths, offsets):
    """Note the offsets of keys in `table` (uint64 [slots, SLOT_WORDS], slots a power of two).

    Key i is data[places[i]:][:lengths[i]]; a length of -1 is none. `secret` is two words (uint64),
    the same ones for a table's life. Returns how many are new.
    """
    added = 0
    for i in range(len(offsets)):
        if lengths[i] < 0:
            continue
        first, second = sip_hash_128(secret[0], secret[1], data, places[i], lengths[i])
        slot = _slot_of(table, first, second)
        if table[slot, S_NEXT] == 0:
            table[slot, S_FIRST], table[slot, S_SECOND] = first, second
            added += 1
        table[slot, S_NEXT] = max(table[slot, S_NEXT], np.uint64(offsets[i] + 1))
    return added


@kernel
def find_last(table, secret, data, places, lengths, offsets, out):
    """Set `out` for each key whether no later offset of it is recorded; False for no key."""
    kept = 0
    for i in range(len(offsets)):
        out[i] = False
        if lengths[i] >= 0:
            first, second = sip_hash_128(secret[0], secret[1], data, places[i], lengths[i])
            out[i] = table[_slot_of(table, first, second), S_NEXT] <= np.uint64(offsets[i] + 1)
        kept += out[i]
    return kept
