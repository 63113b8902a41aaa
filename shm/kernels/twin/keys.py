"""The plain twin of `last_of_key`: a dictionary, and SipHash with an output of 128 bits.

https://github.com/veorq/SipHash, `siphash` with an output of 16 bytes.
"""

from collections.abc import Iterable

from shm.kernels.twin.produce import sip_blocks, sip_round, sip_start


def sip_hash_128(key: bytes, data: bytes) -> tuple[int, int]:
    """SipHash-1-3 of 128 bits, in two halves."""
    v = sip_start(key)
    v[1] ^= 0xEE
    for block in sip_blocks(data):
        v[3] ^= block
        sip_round(v)
        v[0] ^= block
    halves = []
    for word, mark in ((2, 0xEE), (1, 0xDD)):
        v[word] ^= mark
        for _ in range(3):
            sip_round(v)
        halves.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return halves[0], halves[1]


def last_of_each(rows: Iterable[tuple[int, bytes | None]]) -> dict[bytes, int]:
    """The last offset of each key among (offset, key)."""
    last: dict[bytes, int] = {}
    for offset, key in rows:
        if key is not None:
            last[key] = max(offset, last.get(key, -1))
    return last
