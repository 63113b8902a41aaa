"""SipHash-1-3 under a secret key, for hash tables whose keys clients choose.

Without the secret a client cannot choose keys that collide in one bucket, as it can for every hash
without a secret, and for MurmurHash even with one.

https://131002.net/siphash/siphash.pdf. The plain twins are `sip_hash` of shm.kernels.twin.produce
and `sip_hash_128` of shm.kernels.twin.keys.
"""

import numpy as np

from shm.kernels.base.crc32c import load_word
from shm.kernels.base.jit import kernel

KEY_BYTES = 16
WORD_BYTES = 8


@kernel
def rotated(word, bits):
    """The word with its bits rotated to the left."""
    return word << np.uint64(bits) | word >> np.uint64(64 - bits)


@kernel
def sip_round(v0, v1, v2, v3):
    """One round."""
    v0 += v1
    v1 = rotated(v1, 13) ^ v0
    v0 = rotated(v0, 32)
    v2 += v3
    v3 = rotated(v3, 16) ^ v2
    v0 += v3
    v3 = rotated(v3, 21) ^ v0
    v2 += v1
    v1 = rotated(v1, 17) ^ v2
    v2 = rotated(v2, 32)
    return v0, v1, v2, v3


@kernel
def sip_start(k0, k1):
    """The state for a key, two words."""
    return (
        k0 ^ np.uint64(0x736F6D6570736575),
        k1 ^ np.uint64(0x646F72616E646F6D),
        k0 ^ np.uint64(0x6C7967656E657261),
        k1 ^ np.uint64(0x7465646279746573),
    )


@kernel
def sip_end(v0, v1, v2, v3):
    """The three last rounds."""
    for _ in range(3):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return v0, v1, v2, v3


@kernel
def _last_word(data, at, end, length):
    """The bytes data[at:end], fewer than eight, and the length's lowest byte on top."""
    word = np.uint64(length & 0xFF) << np.uint64(56)
    for i in range(end - at):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@kernel
def _absorbed(state, data, at, length):
    """The state after data[at:at + length]."""
    v0, v1, v2, v3 = state
    end = at + length
    while end - at >= WORD_BYTES:
        word = load_word(data, at)
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += WORD_BYTES
    word = _last_word(data, at, end, length)
    v3 ^= word
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@kernel
def sip_hash(k0, k1, data, at, length):
    """The hash of data[at:at + length], 64 bits; the key is two words (uint64)."""
    v0, v1, v2, v3 = _absorbed(sip_start(k0, k1), data, at, length)
    v0, v1, v2, v3 = sip_end(v0, v1, v2 ^ np.uint64(0xFF), v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def sip_hash_128(k0, k1, data, at, length):
    """The hash of data[at:at + length], twice 64 bits, as SipHash's authors extend it."""
    v0, v1, v2, v3 = sip_start(k0, k1)
    v0, v1, v2, v3 = _absorbed((v0, v1 ^ np.uint64(0xEE), v2, v3), data, at, length)
    v0, v1, v2, v3 = sip_end(v0, v1, v2 ^ np.uint64(0xEE), v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = sip_end(v0, v1 ^ np.uint64(0xDD), v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3
