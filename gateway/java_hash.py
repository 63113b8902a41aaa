"""String.hashCode of Java, by which Kafka finds the partition of a group or a transactional id."""

import numpy as np

_JAVA_MIN = 0x80000000
_CHUNK = 1024
# 31 to the power of each letter's distance from its chunk's end, in 32 bits.
_POWERS = np.cumprod(np.array([1] + [31] * (_CHUNK - 1), np.uint32), dtype=np.uint32)[::-1]


def java_hash(text: str) -> int:
    """The hash without its sign, as Kafka takes it: the least int is 0.

    Takes microseconds a name, and some tens of them at 32 KiB.
    """
    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), ">u2")
    value = 0
    for first in range(0, len(units), _CHUNK):
        chunk = units[first : first + _CHUNK].astype(np.uint32)
        added = (chunk * _POWERS[_CHUNK - len(chunk) :]).sum(dtype=np.uint32)
        value = (value * pow(31, len(chunk), 1 << 32) + int(added)) & 0xFFFFFFFF
    return 0 if value == _JAVA_MIN else abs((value ^ _JAVA_MIN) - _JAVA_MIN)
