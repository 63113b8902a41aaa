"""The plain twin of rights in kernels: a bitmap is a set of partitions, and a request is taken
whole or not at all. Read it first.

is_allowed    shm.kernels.log.bitmaps
may_append    shm.kernels.request.produce, of the rows of a plan
may_read      shm.kernels.request.fetch, of the places of a request
"""

from collections.abc import Iterable, Set as AbstractSet

LOG_SHIFT = 32


def is_allowed(allowed: AbstractSet[int], code: int) -> bool:
    """Whether a partition is one of those; a negative code is of none that is led here."""
    return code >= 0 and code % 2**LOG_SHIFT in allowed


def may_append(allowed: AbstractSet[int], codes: Iterable[int]) -> bool:
    """Whether a client may append to all partitions of its requests."""
    return all(is_allowed(allowed, code) for code in codes)


may_read = may_append
