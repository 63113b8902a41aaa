"""Finds handles (records with the header `smq-ref`) in batches as they were sent.

    may_refer      whether the seven bytes of the key occur anywhere in a batch: runs on every batch
    count_plain    how many of some batches come before the first that may
    find_handles   which records have the header: runs on the batches that may

The first checks 64 places at a time; where the third and fourth byte match, it compares all seven.
This takes half the time of the CRC-32C of the same bytes (bench.reference). The length before the
key is not part of the search, because a varint can be written in more than one way. Compressed
batches are not searched.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import get16, get32
from shm.kernels.base.crc32c import load_word
from shm.kernels.base.jit import kernel
from shm.kernels.base.later import intrinsic, ir, types
from shm.kernels.record.records import RECORD_BYTES_MIN, get_bytes, get_varint, get_varlong

HEADER_KEY = b"smq-ref"
HEADER_VALUE = b"1"
KEY_BYTES = len(HEADER_KEY)
KEY_WORD = int.from_bytes(HEADER_KEY, "little")
KEY_MASK = (1 << 8 * KEY_BYTES) - 1
WORD_BYTES = 8  # A key is never the last of a batch: its value's length stands behind it.
LANES = 64  # Places checked in one step: a vector of the newest processors, two of others.
COMPARED = (2, 3)  # "q-": hardly a text has it.
assert KEY_BYTES == WORD_BYTES - 1

# What find_handles says of each.
R_RECORD = 0
R_VALUE_AT = 1
R_VALUE_LENGTH = 2
R_HEADER = 3
R_FIELDS = 4
NO_HEADER, GOOD_HEADER, OTHER_HEADER = 0, 1, 2


@intrinsic
def _candidates(_typing, array, at):
    """A bit for each of the LANES places from data[at] on where the key may begin."""

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        vector, found = ir.VectorType(ir.IntType(8), LANES), None
        for shift in COMPARED:
            place = builder.gep(data, [builder.add(args[1], ir.Constant(args[1].type, shift))])
            word = builder.load(builder.bitcast(place, ir.PointerType(vector)))
            word.align = 1
            wanted = ir.Constant(vector, [HEADER_KEY[shift]] * LANES)
            equal = builder.icmp_unsigned("==", word, wanted)
            found = equal if found is None else builder.and_(found, equal)
        return builder.bitcast(found, ir.IntType(LANES))

    return types.uint64(array, at), generate


@kernel
def _is_key(data, at):
    return load_word(data, at) & np.uint64(KEY_MASK) == np.uint64(KEY_WORD)


@kernel
def find_key(data, at, end):
    """Where the key's bytes first stand in data[at:end] (uint8) with one behind them, or -1."""
    while at + LANES + WORD_BYTES <= end:
        if _candidates(data, at) != 0:
            for place in range(at, at + LANES):
                if _is_key(data, place):
                    return place
        at += LANES
    while at + WORD_BYTES <= end:
        if _is_key(data, at):
            return at
        at += 1
    return -1


@kernel
def may_refer(data, at, size):
    """Whether the batch of `size` bytes at data[at] may hold a handle; never a compressed one."""
    if get16(data, at + words.BATCH_ATTRIBUTES_AT) & words.ATTRIBUTE_CODEC_MASK:
        return False
    return find_key(data, at + words.BATCH_HEADER_BYTES, at + size) >= 0


@kernel
def count_plain(ring, spans):
    """How many batches of a ring come before the first that may hold a handle, and the bytes of all
    that were searched, with that one.

    spans   int64 [n, 2]: (position of the batch, bytes)
    """
    searched = np.int64(0)
    for i in range(spans.shape[0]):
        searched += spans[i, 1]
        if may_refer(ring, spans[i, 0] % ring.size, spans[i, 1]):
            return np.int64(i), searched
    return np.int64(spans.shape[0]), searched


@kernel
def _look_for_header(data, at, end):
    """Parse the headers at data[at:end]: the result, and where they end; -1: they are malformed.

    Two such headers are ambiguous, and reported as another state.
    """
    said = NO_HEADER
    count, at = get_varint(data, at, end)
    if count < 0 or 2 * count > end - at:
        return said, -1
    for _ in range(count):
        key_at, key_length, at = get_bytes(data, at, end, 0)
        value_at, value_length, at = get_bytes(data, at, end, -1)
        if at < 0:
            return said, -1
        if key_length == KEY_BYTES and _is_key(data, key_at):
            good = said == NO_HEADER and value_length == 1 and data[value_at] == HEADER_VALUE[0]
            said = GOOD_HEADER if good else OTHER_HEADER
    return said, at


@kernel
def look_at_record(data, at, end):
    """Read the record at data[at:end]: the result of its headers, its value (place, length), its
    end.

    An end of -1: it is malformed.
    """
    length, at = get_varint(data, at, end)
    if at < 0 or not RECORD_BYTES_MIN - 1 <= length <= end - at:
        return NO_HEADER, np.int64(0), np.int64(0), np.int64(-1)
    stop = at + length
    _, at = get_varlong(data, at + 1, stop)
    _, at = get_varint(data, at, stop)
    _, _, at = get_bytes(data, at, stop, -1)
    value_at, value_length, at = get_bytes(data, at, stop, -1)
    said, at = _look_for_header(data, at, stop)
    return said, value_at, value_length, stop if at == stop else np.int64(-1)


@kernel
def find_handles(data, at, end, rows):
    """A row for each record with the header, of the uncompressed batch data[at:end].

    Returns how many there are, even if more than rows; -1: the batch is malformed.
    """
    count = get32(data, at + words.BATCH_RECORD_COUNT_AT)
    at += words.BATCH_HEADER_BYTES
    found = 0
    for record in range(count):
        said, value_at, value_length, at = look_at_record(data, at, end)
        if at < 0:
            return -1
        if said != NO_HEADER:
            if found < rows.shape[0]:
                rows[found, R_RECORD], rows[found, R_HEADER] = record, said
                rows[found, R_VALUE_AT], rows[found, R_VALUE_LENGTH] = value_at, value_length
            found += 1
    return found if at == end else -1
