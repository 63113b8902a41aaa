"""Cuts Kafka's record batches into columns: the position of each key, value and header.

Nothing is moved: columns hold positions in the original bytes. The steps are separate, so that
compressed records can be inflated in between:

    scan_batches   bytes            →  facts, a row for each whole batch
    walk_batches   bytes and facts  →  columns, a row for each record
    fill_headers   bytes, columns   →  headers, a row for each header

All three are int64 arrays [fields, rows], so that a field's column is contiguous. Every varint is
checked and every length bounded by what contains it: a good CRC does not make a batch well-formed.
Kafka's own reader takes any negative length as null; here only -1 is. The walk stops at a malformed
record, and nothing after it is used. Records with offsets that do not grow within their batch, or
with a timestamp beyond 64 bits, count as malformed too.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import get16, get32, get64, load16, load64
from shm.kernels.base.frames import batch_crc_is_good
from shm.kernels.base.jit import kernel

# Facts of a batch.
B_AT = 0
B_END = 1
B_BASE_OFFSET = 2
B_LAST_OFFSET = 3
B_LEADER_EPOCH = 4
B_ATTRIBUTES = 5
B_BASE_TIMESTAMP = 6
B_MAX_TIMESTAMP = 7
B_PRODUCER_ID = 8
B_COUNT = 9
B_RECORDS_AT = 10  # The inflated records: in the batch itself, or in an arena the caller made.
B_RECORDS_END = 11
B_INTACT = 12  # Whether its CRC is right.
B_FIELDS = 13

# Columns of a record. A length of -1 is null; its position means nothing then.
C_OFFSET = 0
C_TIMESTAMP = 1
C_KEY_AT = 2
C_KEY_LENGTH = 3
C_VALUE_AT = 4
C_VALUE_LENGTH = 5
C_HEADERS_AT = 6  # The first header's first byte, if there is one …
C_HEADERS_FIRST = 7  # … and its row, once fill_headers has been here.
C_HEADER_COUNT = 8
C_FIELDS = 9

# Headers.
H_KEY_AT = 0
H_KEY_LENGTH = 1
H_VALUE_AT = 2
H_VALUE_LENGTH = 3
H_FIELDS = 4
# Kernels check no bounds: a field more is written over memory behind the array.
assert B_INTACT < B_FIELDS
assert C_HEADER_COUNT < C_FIELDS
assert H_VALUE_LENGTH < H_FIELDS

RECORD_BYTES_MIN = 7  # A byte each for length, attributes, two deltas, two nulls, no headers.
# Inflated, of one batch: sixty times the default batch limit. What claims to be more is not sealed
# as rows, and no producer is believed that its records take more than this.
INFLATED_BYTES_MAX = 64 * 1024 * 1024
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


@kernel
def scan_batches(data, start, end, facts):
    """Fill `facts` from the batches in data[start:end]; how many, or ~(where it stopped).

    It stops at a batch that is cut or is no v2 batch, and when `facts` is full. A wrong CRC is just
    a fact: the batch still gets its row.
    """
    at = start
    for row in range(facts.shape[1]):
        if at == end:
            return row
        if end - at < words.BATCH_HEADER_BYTES or data[at + words.BATCH_MAGIC_AT] != 2:
            return ~at
        batch_bytes = get32(data, at + words.BATCH_LENGTH_AT) + words.BATCH_OVERHEAD_BYTES
        if not words.BATCH_HEADER_BYTES <= batch_bytes <= end - at:
            return ~at
        base_offset = get64(data, at + words.BATCH_BASE_OFFSET_AT)
        facts[B_AT, row] = at
        facts[B_END, row] = at + batch_bytes
        facts[B_BASE_OFFSET, row] = base_offset
        facts[B_LAST_OFFSET, row] = base_offset + get32(data, at + words.BATCH_LAST_OFFSET_DELTA_AT)
        facts[B_LEADER_EPOCH, row] = get32(data, at + words.BATCH_LEADER_EPOCH_AT)
        facts[B_ATTRIBUTES, row] = get16(data, at + words.BATCH_ATTRIBUTES_AT)
        facts[B_BASE_TIMESTAMP, row] = get64(data, at + words.BATCH_BASE_TIMESTAMP_AT)
        facts[B_MAX_TIMESTAMP, row] = get64(data, at + words.BATCH_MAX_TIMESTAMP_AT)
        facts[B_PRODUCER_ID, row] = get64(data, at + words.BATCH_PRODUCER_ID_AT)
        facts[B_COUNT, row] = get32(data, at + words.BATCH_RECORD_COUNT_AT)
        facts[B_RECORDS_AT, row] = at + words.BATCH_HEADER_BYTES
        facts[B_RECORDS_END, row] = at + batch_bytes
        facts[B_INTACT, row] = batch_crc_is_good(data, at, batch_bytes)
        at += batch_bytes
    return facts.shape[1]


@kernel
def get_varint(data, at, end):
    """A zigzag varint of at most 32 bits in data[at:end]: (value, where it ends), or (0, -1).

    A negative `at` gives (0, -1) too, so that a row of reads needs one check, at its end.
    """
    bits, shift = 0, 0
    while 0 <= at < end and shift < 35:
        byte = int(data[at])
        at += 1
        bits |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return ((bits >> 1) ^ -(bits & 1), at) if bits < 2**32 else (0, -1)
    return 0, -1


@kernel
def get_varlong(data, at, end):
    """A zigzag varint of at most 64 bits, as `get_varint`."""
    low, high, shift = 0, 0, 0  # The low 63 bits and the top one: an int64 holds no 64 bits.
    while 0 <= at < end and shift < 70:
        byte = int(data[at])
        at += 1
        if shift < 63:
            low |= (byte & 127) << shift
        else:
            high = byte
        shift += 7
        if byte < 128:
            value = (low >> 1) | (high << 62)
            return (value ^ -(low & 1), at) if high < 2 else (0, -1)
    return 0, -1


@kernel
def get_bytes(data, at, end, length_min):
    """A field, its length first: (its bytes' start, length, their end), or (0, 0, -1)."""
    length, at = get_varint(data, at, end)
    if at < 0 or length < length_min or length > end - at:
        return 0, 0, -1
    return at, length, at + max(length, 0)


@kernel
def skip_headers(data, at, end):
    """Behind the headers at data[at:end]: (how many, where the first begins, where they end).

    The end is -1 if they are malformed.
    """
    count, first = get_varint(data, at, end)
    if count < 0 or 2 * count > end - first:  # Before a loop that a hostile count would make long.
        return 0, 0, -1
    at = first
    for _ in range(count):
        _, _, at = get_bytes(data, at, end, 0)
        _, _, at = get_bytes(data, at, end, -1)
    return count, first, at


@kernel
def walk_record(data, at, end, base, columns, row):
    """Cut the record at data[at:end] into its column; where it ends, or -1.

    `base` is the batch's base offset and base timestamp.
    """
    length, at = get_varint(data, at, end)
    if at < 0 or not RECORD_BYTES_MIN - 1 <= length <= end - at:
        return -1
    end = at + length
    timestamp_delta, at = get_varlong(data, at + 1, end)
    offset_delta, at = get_varint(data, at, end)
    key_at, key_length, at = get_bytes(data, at, end, -1)
    value_at, value_length, at = get_bytes(data, at, end, -1)
    header_count, headers_at, at = skip_headers(data, at, end)
    base_offset, base_timestamp = base
    if at != end or sum_overflows(base_timestamp, timestamp_delta):
        return -1
    columns[C_OFFSET, row] = base_offset + offset_delta
    columns[C_TIMESTAMP, row] = base_timestamp + timestamp_delta
    columns[C_KEY_AT, row] = key_at
    columns[C_KEY_LENGTH, row] = key_length
    columns[C_VALUE_AT, row] = value_at
    columns[C_VALUE_LENGTH, row] = value_length
    columns[C_HEADERS_AT, row] = headers_at
    columns[C_HEADER_COUNT, row] = header_count
    return end


@kernel
def sum_overflows(left, right):
    """Whether left + right is no int64."""
    return right > INT64_MAX - left if left > 0 else right < INT64_MIN - left


@kernel
def varint_end(data, at, end):
    """Behind a varint that was read before; near `end` if a ring has overwritten it since."""
    while at < end and data[at] >= 128:
        at += 1
    return at + 1


@kernel
def delta_word(delta, width):
    """The varint of a delta of 0 or more in exactly `width` bytes, up to 4, as a number."""
    bits = delta << 1
    spread = bits & 0x7F | (bits & 0x3F80) << 1 | (bits & 0x1FC000) << 2 | (bits & 0xFE00000) << 3
    return spread | 0x808080 & ((1 << 8 * (width - 1)) - 1)


@kernel
def low_bytes(count):
    """The mask of a number's lowest bytes, up to 7."""
    return (1 << 8 * count) - 1


@kernel
def count_alike(data, places, at, stride, delta, most):
    """How many records from data[at] on, `stride` bytes each, have the shape of the one before
    them.

    `places` are those of the first one: where it begins, its offset delta, its key's length, its
    key, its value's length, its value. Of each the same bytes must be the same, and the deltas go
    up by one from `delta`.
    """
    start, delta_at, key_length_at, key_at, value_length_at, value_at = places
    head_mask, delta_mask = low_bytes(delta_at - start), low_bytes(key_length_at - delta_at)
    key_mask, value_mask = low_bytes(key_at - key_length_at), low_bytes(value_at - value_length_at)
    head, key = load64(data, start) & head_mask, load64(data, key_length_at) & key_mask
    value, width = load64(data, value_length_at) & value_mask, key_length_at - delta_at
    for alike in range(most):
        move = at - start + alike * stride
        word = load64(data, delta_at + move) & delta_mask
        if load64(data, start + move) & head_mask != head or word != delta_word(delta, width):
            return alike
        if load64(data, key_length_at + move) & key_mask != key:
            return alike
        if load64(data, value_length_at + move) & value_mask != value:
            return alike
        if data[at + alike * stride + stride - 1] != 0:  # It has headers.
            return alike
        delta += 1
    return most


@kernel
def repeat_column(columns, row, count, stride):
    """Fill the `count` columns behind a record's for records of its shape, `stride` bytes apart.

    They have no headers. Unused columns are not written: they are most of the memory that a cut
    would touch.
    """
    first, end = np.uint64(row + 1), np.uint64(row + 1 + count)
    for field in range(C_FIELDS):
        if field in (C_HEADERS_AT, C_HEADERS_FIRST):
            continue
        if field == C_KEY_AT and columns[C_KEY_LENGTH, row] < 0:
            continue
        moves = field in (C_KEY_AT, C_VALUE_AT)
        step = 1 if field == C_OFFSET else stride if moves else 0
        number = columns[field, row]
        for each in range(first, end):
            number += step
            columns[field, each] = number


@kernel
def walk_alike(data, start, at, end, base_offset, columns, row, behind):
    """Cut the records from data[at] on that have the shape of the one at data[start], in column
    `row`.

    Up to column `behind`; returns how many. Records of one producer often have keys and values of
    equal lengths: then the bytes between these are compared instead of parsed, without waiting for
    each place, in a third of the time.
    """
    stride, offset = at - start, columns[C_OFFSET, row]
    key_at, value_at = columns[C_KEY_AT, row], columns[C_VALUE_AT, row]
    value_end = value_at + max(columns[C_VALUE_LENGTH, row], 0)
    if row + 1 == behind or end - at < RECORD_BYTES_MIN or value_end + 1 != at:
        return 0
    if load16(data, start) != load16(data, at):  # Mostly it is the length that differs.
        return 0
    delta_at = varint_end(data, varint_end(data, start, at) + 1, at)
    key_length_at = varint_end(data, delta_at, at)
    value_length_at = key_at + max(columns[C_KEY_LENGTH, row], 0)
    width, delta = key_length_at - delta_at, offset - base_offset + 1
    if delta_at - start > 7 or width > 4 or delta <= 0:
        return 0
    # A word may reach beyond its record, and must not beyond the bytes.
    most = min(behind - row - 1, (end - at) // stride, (len(data) - 8 - at) // stride)
    most = min(most, INT64_MAX - offset, (1 << (7 * width - 1)) - delta)
    places = (start, delta_at, key_length_at, key_at, value_length_at, value_at)
    alike = count_alike(data, places, at, stride, delta, max(most, 0))
    repeat_column(columns, row, alike, stride)
    return alike


@kernel
def walk_batch(data, facts, batch, columns, row):
    """Cut the records of one batch into columns[:, row:]; the row behind them, or -1."""
    at, end = int(facts[B_RECORDS_AT, batch]), int(facts[B_RECORDS_END, batch])
    base = (int(facts[B_BASE_OFFSET, batch]), int(facts[B_BASE_TIMESTAMP, batch]))
    count = int(facts[B_COUNT, batch])
    if not 0 <= count <= min((end - at) // RECORD_BYTES_MIN, columns.shape[1] - row):
        return -1
    offset_before, behind = base[0] - 1, row + count
    while row < behind:
        start, at = at, walk_record(data, at, end, base, columns, row)
        if at < 0 or columns[C_OFFSET, row] <= offset_before:
            return -1
        alike = walk_alike(data, start, at, end, base[0], columns, row, behind)
        at += alike * (at - start)
        row += 1 + alike
        offset_before = int(columns[C_OFFSET, row - 1])
    if at != end or offset_before > facts[B_LAST_OFFSET, batch]:
        return -1
    return row


@kernel
def walk_batches(data, facts, first, end, columns):
    """Cut the records of batches facts[:, first:end] into columns; how many, or ~(a bad batch)."""
    row = 0
    for batch in range(first, end):
        row = walk_batch(data, facts, batch, columns, row)
        if row < 0:
            return ~batch
    return row


@kernel
def fill_headers(data, columns, headers):
    """A row for each header of all records of `columns`, which were walked; how many."""
    row = 0
    for record in range(columns.shape[1]):
        columns[C_HEADERS_FIRST, record] = row
        at = int(columns[C_HEADERS_AT, record])
        for _ in range(columns[C_HEADER_COUNT, record]):
            key_at, key_length, at = get_bytes(data, at, len(data), 0)
            value_at, value_length, at = get_bytes(data, at, len(data), -1)
            headers[H_KEY_AT, row] = key_at
            headers[H_KEY_LENGTH, row] = key_length
            headers[H_VALUE_AT, row] = value_at
            headers[H_VALUE_LENGTH, row] = value_length
            row += 1
    return row


@kernel
def rune_bytes(data, at, end):
    """How many bytes the UTF-8 character at data[at:end] takes; 0 if it is none (RFC 3629)."""
    lead = int(data[at])
    length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    if length == 1:
        return 1
    if not 0xC2 <= lead <= 0xF4 or length > end - at:
        return 0
    # The second byte is where overlong forms, surrogates and the end of Unicode are decided.
    second = int(data[at + 1])
    low = 0xA0 if lead == 0xE0 else 0x90 if lead == 0xF0 else 0x80
    high = 0x9F if lead == 0xED else 0x8F if lead == 0xF4 else 0xBF
    for place in range(at + 2, at + length):
        if data[place] & 0xC0 != 0x80:
            return 0
    return length if low <= second <= high else 0


@kernel
def count_utf8(data, ats, lengths):
    """How many of the strings data[ats[i]:ats[i] + lengths[i]], from the first on, are UTF-8."""
    for row in range(len(ats)):
        at = int(ats[row])
        end = at + int(lengths[row])
        while at < end:
            length = rune_bytes(data, at, end)
            if length == 0:
                return row
            at += length
    return len(ats)


def new_facts(data_bytes: int) -> np.ndarray:
    """Room for the facts of as many batches as fit in `data_bytes`."""
    return np.empty((B_FIELDS, data_bytes // words.BATCH_HEADER_BYTES + 1), np.int64)


def new_columns(record_count: int) -> np.ndarray:
    """Room for the columns of this many records."""
    return np.empty((C_FIELDS, record_count), np.int64)


def new_headers(header_count: int) -> np.ndarray:
    """Room for the columns of this many headers."""
    return np.empty((H_FIELDS, header_count), np.int64)
