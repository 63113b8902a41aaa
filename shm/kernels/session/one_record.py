"""Hands over a request of one record in one call: finds room, writes it, publishes the tail.

For a client that sends single records with pauses the caches are cold. This path is shorter than
`find_room`, `encode_one`, `publish_request` and a head written by Python; the bytes are the same.
"""

from shm.kernels.base.bytes import copy_bytes, put32
from shm.kernels.base.jit import kernel
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.record.records_encode import encode_one
from shm.kernels.session.client import find_room, publish_request

CORRELATION_AT = SIZE_BYTES + 4  # Behind the API's key and version.

NO_ROOM = 0  # Nothing was sent.
SENT = 1
MUST_RING = 2  # It was sent, and the shard sleeps.


@kernel
def put_one(
    out, head, correlation_id, value, value_length, key, key_length, headers, timestamp,
    producer_id, producer_epoch, base_sequence,
):  # fmt: skip
    """Write a request of one record, not compressed, to `out`, which has room; where it ends.

    `head` is a request up to its batch, with the request's size, the correlation and the batch's
    length left open; the other arguments are those of `encode_one`.
    """
    head_bytes = len(head)
    copy_bytes(out, 0, head, 0, head_bytes)
    end = encode_one(
        value, value_length, key, key_length, headers, timestamp, 0, producer_id, producer_epoch,
        base_sequence, out, head_bytes,
    )  # fmt: skip
    put32(out, 0, end - SIZE_BYTES)
    put32(out, CORRELATION_AT, correlation_id)
    put32(out, head_bytes - SIZE_BYTES, end - head_bytes)
    return end


@kernel
def send_one(
    memory, side, size, head, correlation_id, value, value_length, key, key_length, headers,
    timestamp, producer_id, producer_epoch, base_sequence,
):  # fmt: skip
    """As put_one, into a session's inbox: NO_ROOM, SENT or MUST_RING. `size` bytes suffice."""
    at = find_room(memory, side, size)
    if at < 0:
        return NO_ROOM
    end = put_one(
        memory[at : at + size], head, correlation_id, value, value_length, key, key_length,
        headers, timestamp, producer_id, producer_epoch, base_sequence,
    )  # fmt: skip
    return MUST_RING if publish_request(memory, side, end) else SENT
