"""The plain twin of `last_of_key`: a dictionary, and MurmurHash3 as its author describes it.

https://github.com/aappleby/smhasher, MurmurHash3_x64_128.
"""

from collections.abc import Iterable

MASK = (1 << 64) - 1
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & MASK


def _finished(word: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = (word ^ word >> 33) * factor & MASK
    return word ^ word >> 33


def murmur3(key: bytes) -> tuple[int, int]:
    """Both halves of the hash of a key, unsigned."""
    first = second = 0
    whole = len(key) // 16 * 16
    for at in range(0, whole, 16):
        word = int.from_bytes(key[at : at + 8], "little")
        first ^= _rotated(word * C1 & MASK, 31) * C2 & MASK
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & MASK
        word = int.from_bytes(key[at + 8 : at + 16], "little")
        second ^= _rotated(word * C2 & MASK, 33) * C1 & MASK
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & MASK
    tail = key[whole:]
    second ^= _rotated(int.from_bytes(tail[8:], "little") * C2 & MASK, 33) * C1 & MASK
    first ^= _rotated(int.from_bytes(tail[:8], "little") * C1 & MASK, 31) * C2 & MASK
    first, second = first ^ len(key), second ^ len(key)
    first = (first + second) & MASK
    second = (second + first) & MASK
    first, second = _finished(first), _finished(second)
    first = (first + second) & MASK
    return first, (second + first) & MASK


def last_of_each(rows: Iterable[tuple[int, bytes | None]]) -> dict[bytes, int]:
    """The last offset of each key among (offset, key)."""
    last: dict[bytes, int] = {}
    for offset, key in rows:
        if key is not None:
            last[key] = max(offset, last.get(key, -1))
    return last
