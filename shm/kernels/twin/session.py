"""The plain twins of shm.kernels.session.shard: the two rings, without atomics. Read it first.

The broker does not call them; the kernels' tests compare both.
"""

from collections.abc import Iterator

from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.session.words import (
    ALIGNMENT_BYTES,
    FAULT_CUT,
    FAULT_SIZE,
    FAULT_TAIL,
    PAD,
    RESTART_BYTES,
    WATCH_ALL,
    WATCH_MAX,
)

REQUEST_BYTES_MIN = 8


class Fault(Exception):
    """The inbox holds something impossible; the argument is one of FAULT_…"""


def aligned(size: int) -> int:
    """The space in the inbox of a request of `size` bytes."""
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def requests(
    inbox: bytes, head: int, tail: int, request_bytes_max: int
) -> Iterator[tuple[int, bytes]]:
    """Each whole request of an inbox with the head after it; raises Fault where there is none."""
    if not 0 <= tail - head <= len(inbox) or tail % ALIGNMENT_BYTES:
        raise Fault(FAULT_TAIL)
    while head < tail:
        at = head % len(inbox)
        to_end = len(inbox) - at
        size = int.from_bytes(inbox[at : at + SIZE_BYTES], signed=True)
        if size == PAD:
            if to_end > tail - head:
                raise Fault(FAULT_CUT)
            head += to_end
            yield head, b""
            continue
        if not REQUEST_BYTES_MIN <= size <= request_bytes_max:
            raise Fault(FAULT_SIZE)
        if aligned(SIZE_BYTES + size) > min(to_end, tail - head):
            raise Fault(FAULT_CUT)
        head += aligned(SIZE_BYTES + size)
        yield head, inbox[at : at + SIZE_BYTES + size]


def take(
    inbox: bytes, head: int, tail: int, request_bytes_max: int, room: int
) -> tuple[int, bytes]:
    """The head after what fits into `room`, and those requests. Raises Fault if the first is one.

    A pad is passed even if nothing fits behind it.
    """
    taken = b""
    try:
        for after, request in requests(inbox, head, tail, request_bytes_max):
            if len(taken) + len(request) > room:
                break
            head, taken = after, taken + request
    except Fault:
        if not taken:
            raise
    return head, taken


def room(inbox_bytes: int, head: int, tail: int, size: int) -> tuple[int, int] | None:
    """Where a request of `size` bytes may be written, and the bytes of pad before it."""
    at = tail % inbox_bytes
    begins_anew = head == tail and at >= max(RESTART_BYTES, aligned(size))
    pad = inbox_bytes - at if begins_anew or aligned(size) > inbox_bytes - at else 0
    if tail + pad + aligned(size) - head > inbox_bytes:
        return None
    return (0 if pad else at), pad


def watch_list(numbers: set[int]) -> tuple[int, list[int]]:
    """The count and the numbers of a watch list, as the client publishes them."""
    wanted = sorted(numbers)
    return (WATCH_ALL if len(wanted) > WATCH_MAX else len(wanted)), wanted[:WATCH_MAX]


def watched(count: int, numbers: list[int]) -> set[int] | None:
    """Parse a watch list, whatever its bytes; None: everything is watched."""
    return set(numbers[:count]) if 0 <= count <= WATCH_MAX else None
