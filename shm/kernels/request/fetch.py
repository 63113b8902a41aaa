"""Parses and answers a Fetch request, versions 4 to 18, of the frequent kind in one call.

This kernel serves consumers that ask repeatedly for a few partitions whose records are in the ring.
All other requests are LEFT to gateway.apis.fetch: errors, offsets that have left the ring, fetch
sessions, followers, tagged fields, many partitions, very many small batches. Both give the same
bytes as the answer to a request.

The response is written while the request is parsed, and dropped if the kernel leaves the request
after all. Up to a few KiB of records are copied into the response. Otherwise the batches are lent:
listed here, and sent from the ring by shm.kernels.turn.fetch_send.
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.bytes import copy_bytes, get16, get32, get64, put16, put32, put64
from shm.kernels.base.entries import LINK_NEXT
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import (
    entry_base_offset,
    entry_bytes,
    entry_position,
    entry_record_count,
    get_partition,
    get_word,
    ring_at,
    set_word,
)
from shm.kernels.base.wire import BAD, read_length, skip_string, skip_tags, write_length
from shm.kernels.log.bitmaps import is_set
from shm.kernels.log.directory import ID_BYTES, find_topic
from shm.kernels.log.index import find_entry

FETCH_KEY = 1
VERSION_MIN, VERSION_MAX = 4, 18
LOG_START_FROM, SESSIONS_FROM, EPOCHS_FROM, RACKS_FROM = 5, 7, 9, 11
FLEXIBLE_FROM, IDS_FROM, REPLICA_TAGGED_FROM = 12, 13, 15

LEFT = 0
ANSWERED = 1
WAITS = 2  # There is too little to read yet.

FETCH_BYTES_MAX = 55 * 1024 * 1024  # Kafka's fetch.max.bytes: the most that one answer may hold.
WAIT_MS_MAX = 600_000  # Kafka waits as long as asked, but hangs up after ten idle minutes.
RECORDS_BYTES_MAX = 48 * 1024  # Of a partition: what costs less to copy than to lend.
LEND_FROM_BYTES = 8 * 1024  # Batches that are smaller on average cost less to gather.
LENT_MAX = 960  # Batches; with what stands between them no more than a sendmsg takes, 1024.
PLACES_MAX = 16  # Partitions of one request.
PARTITION_BYTES_MAX = 64  # Of an answer without records; likewise of a topic without its key.

STATE_VERSION = 0
STATE_MAX_WAIT_MS = 1
STATE_MIN_BYTES = 2
STATE_BYTES_LEFT = 3
STATE_ISOLATION = 4
STATE_RECORDS_BYTES = 5
STATE_PLACE_COUNT = 6
STATE_CORRELATION = 7
STATE_OUT_BYTES = 8
STATE_TOPIC_COUNT = 9
STATE_START = 10  # in: where the request begins
STATE_LENT_COUNT = 11
STATE_LENT_BYTES = 12
STATE_PLACES = 16  # log << 32 | slot, each partition once
STATE_TOPICS = STATE_PLACES + PLACES_MAX  # Places in the directory, each topic once.
STATE_LENT = STATE_TOPICS + PLACES_MAX  # LENT_WORDS for each batch.
LENT_AT, LENT_POSITION, LENT_BYTES, LENT_WORDS = 0, 1, 2, 3  # Its place in `out`; the log's bytes.
STATE_MESSAGE = STATE_LENT + LENT_MAX * LENT_WORDS  # See shm.kernels.turn.fetch_send.
MESSAGE_WORDS = 9 + 2 * 1024
STATE_WORDS = STATE_MESSAGE + MESSAGE_WORDS
# The places begin behind the last word, or the first of them is how many bytes were lent.
assert STATE_LENT_BYTES < STATE_PLACES


@kernel
def _skip_header(data, at, end, version):
    """After the request's header and the replica's id, of which there is none; or BAD."""
    at = skip_string(data, at + 8, end, False)  # noqa: FBT003  (The client id is never compact.)
    if at != BAD and version >= FLEXIBLE_FROM:
        at = skip_tags(data, at, end)
    if at == BAD or version >= REPLICA_TAGGED_FROM:
        return at
    return np.int64(BAD) if end - at < 4 or get32(data, at) >= 0 else at + 4


@kernel
def _read_head(data, at, end, state):
    """Read the request up to its topics; the cursor there, or BAD."""
    version = get16(data, at + 2)
    if get16(data, at) != FETCH_KEY or version < VERSION_MIN or version > VERSION_MAX:
        return np.int64(BAD)
    state[STATE_VERSION] = version
    state[STATE_CORRELATION] = get32(data, at + 4)
    at = _skip_header(data, at, end, version)
    if at == BAD or end - at < 13 + 8 * (version >= SESSIONS_FROM):
        return np.int64(BAD)
    state[STATE_MAX_WAIT_MS] = min(get32(data, at), np.int64(WAIT_MS_MAX))
    state[STATE_MIN_BYTES] = get32(data, at + 4)
    state[STATE_BYTES_LEFT] = min(get32(data, at + 8), np.int64(FETCH_BYTES_MAX))
    state[STATE_ISOLATION] = np.int64(data[at + 12])
    if state[STATE_BYTES_LEFT] < 0 or state[STATE_ISOLATION] > 1:
        return np.int64(BAD)
    at += 13
    if version < SESSIONS_FROM:
        return at
    # So few partitions have no session: a full fetch that ends none.
    is_plain = get32(data, at) == 0 and get32(data, at + 4) in (0, -1)
    return at + 8 if is_plain else np.int64(BAD)


@kernel
def _ends_plainly(data, at, end, version):
    """Whether only empty fields are left: no forgotten topics, no tags."""
    flexible = version >= FLEXIBLE_FROM
    if version >= SESSIONS_FROM:
        count, at = read_length(data, at, end, flexible, 4)
        if at == BAD or count != 0:
            return False
    if version >= RACKS_FROM:
        at = skip_string(data, at, end, flexible)
    if at == BAD:
        return False
    return not flexible or (at < end and data[at] == 0)


@kernel
def _add_once(state, counter, first, value):
    """Add a value to a list in `state`; False when it is there already, or the list is full."""
    count = state[counter]
    for i in range(count):
        if state[first + i] == value:
            return False
    if count == PLACES_MAX:
        return False
    state[first + count] = value
    state[counter] = count + 1
    return True


@kernel
def _is_readable(memory, slot, offset, epoch):
    """Whether a partition can be read from an offset without an error, and here."""
    left = words.FLAG_FETCH_LEFT | words.FLAG_TAIL
    if get_partition(memory, slot, words.P_FLAGS) & left != 0:
        return False
    if epoch >= 0 and epoch != get_partition(memory, slot, words.P_EPOCH):
        return False
    log_start = max(
        get_partition(memory, slot, words.P_LOG_START),
        get_partition(memory, slot, words.P_SEALED_END),
        get_partition(memory, slot, words.P_LED_FROM),
    )
    return log_start <= offset <= get_partition(memory, slot, words.P_LOG_END)


@kernel
def _ring_oldest(memory):
    """The position from which the ring has every frame."""
    tail = get_word(memory, words.WORD_TAIL) - get_word(memory, words.WORD_RING_BYTES)
    return max(get_word(memory, words.WORD_RING_START), tail)


@kernel
def _choose(memory, links, entry, limit, budget, is_first):
    """(count, bytes) of the whole batches from an entry on that fit a budget; bytes -1: too many.

    The first batch of an answer counts whatever its size (KIP-74).
    """
    capacity, count, total = get_word(memory, words.WORD_INDEX_CAPACITY), np.int64(0), np.int64(0)
    while entry >= 0:
        i = entry % capacity
        size = entry_bytes(memory, i)
        if entry_base_offset(memory, i) >= limit:
            break
        if total + size > budget and not (is_first and total == 0):
            break
        count, total = count + 1, total + size
        if total > RECORDS_BYTES_MAX and total < count * LEND_FROM_BYTES:
            return count, np.int64(-1)
        entry = links[LINK_NEXT, i]
    return count, total


@kernel
def _copy_batches(memory, links, entry, total, out, at):
    """Copy batches with `total` bytes in all, from an entry on, to `out`."""
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    ring, ring_bytes = ring_at(memory), get_word(memory, words.WORD_RING_BYTES)
    end = at + total
    while at < end:
        i = entry % capacity
        place = ring + entry_position(memory, i) % ring_bytes + words.FRAME_HEADER_BYTES
        size = entry_bytes(memory, i)
        copy_bytes(out, at, memory, place, size)
        at += size
        entry = links[LINK_NEXT, i]


@kernel
def _lend_batches(memory, links, entry, count, state, at):
    """List `count` batches, from an entry on, to be sent at a place of the response."""
    capacity = get_word(memory, words.WORD_INDEX_CAPACITY)
    for _ in range(count):
        i = entry % capacity
        row = STATE_LENT + LENT_WORDS * state[STATE_LENT_COUNT]
        state[row + LENT_AT] = at
        state[row + LENT_POSITION] = entry_position(memory, i) + words.FRAME_HEADER_BYTES
        state[row + LENT_BYTES] = entry_bytes(memory, i)
        state[STATE_LENT_COUNT] += 1
        state[STATE_LENT_BYTES] += entry_bytes(memory, i)
        entry = links[LINK_NEXT, i]


@kernel
def _put_records(memory, links, entry, chosen, out, at, state):
    """Copy or lend the batches chosen from an entry on; the cursor, or BAD."""
    count, total = chosen
    if total <= RECORDS_BYTES_MAX and at + total + PARTITION_BYTES_MAX <= out.size:
        _copy_batches(memory, links, entry, total, out, at)
        return at + total
    if total < count * LEND_FROM_BYTES or state[STATE_LENT_COUNT] + count > LENT_MAX:
        return np.int64(BAD)
    _lend_batches(memory, links, entry, count, state, at)
    return np.int64(at)


@kernel
def _find(memory, links, slot, offset):
    """The entry that holds an offset, if it and all after it are in the ring; -1 if not."""
    entry = find_entry(memory, links, slot, offset)
    if entry < 0:
        return np.int64(-1)
    i = entry % get_word(memory, words.WORD_INDEX_CAPACITY)
    if entry_base_offset(memory, i) + entry_record_count(memory, i) <= offset:
        return np.int64(-1)
    if entry_position(memory, i) < _ring_oldest(memory):
        return np.int64(-1)
    return entry


@kernel
def _write_head(out, state, topic_count):
    """The response up to its topics; the cursor there."""
    version, at = state[STATE_VERSION], np.int64(8)
    put32(out, 4, state[STATE_CORRELATION])
    if version >= FLEXIBLE_FROM:
        out[at] = 0
        at += 1
    put32(out, at, 0)  # throttle_time_ms
    at += 4
    if version >= SESSIONS_FROM:
        put16(out, at, 0)  # error_code
        put32(out, at + 2, 0)  # session_id
        at += 6
    return write_length(out, at, topic_count, version >= FLEXIBLE_FROM, 4)


@kernel
def _write_partition(out, at, memory, slot, index, state):
    """Write the fields before the records; return the cursor there."""
    version = state[STATE_VERSION]
    put32(out, at, index)
    put16(out, at + 4, 0)
    put64(out, at + 6, get_partition(memory, slot, words.P_HIGH_WATERMARK))
    put64(out, at + 14, get_partition(memory, slot, words.P_LAST_STABLE))
    at += 22
    if version >= LOG_START_FROM:
        put64(out, at, get_partition(memory, slot, words.P_LOG_START))
        at += 8
    aborted = np.int64(0) if state[STATE_ISOLATION] == 1 else np.int64(-1)
    at = write_length(out, at, aborted, version >= FLEXIBLE_FROM, 4)
    if version >= RACKS_FROM:
        put32(out, at, -1)  # preferred_read_replica
        at += 4
    return np.int64(at)


@kernel
def _answer_partition(memory, links, slot, place, out, at, state):
    """Write one partition: `place` is (index, offset, bytes at most). The cursor, or BAD."""
    index, offset, bytes_max = place
    if state[STATE_ISOLATION] == 1 and offset < get_partition(memory, slot, words.P_ABORTED_END):
        return np.int64(BAD)  # Python must name the aborted transactions.
    limit = get_partition(
        memory, slot, words.P_LAST_STABLE if state[STATE_ISOLATION] == 1 else words.P_HIGH_WATERMARK
    )
    budget, chosen = min(state[STATE_BYTES_LEFT], bytes_max), (np.int64(0), np.int64(0))
    is_first = state[STATE_RECORDS_BYTES] == 0
    entry = np.int64(-1)
    if offset < limit and (budget > 0 or is_first):
        entry = _find(memory, links, slot, offset)
        if entry < 0:
            return np.int64(BAD)
        chosen = _choose(memory, links, entry, limit, budget, is_first)
    total = chosen[1]
    if total < 0 or at + 2 * PARTITION_BYTES_MAX > out.size:
        return np.int64(BAD)
    at = _write_partition(out, at, memory, slot, index, state)
    at = write_length(out, at, total, state[STATE_VERSION] >= FLEXIBLE_FROM, 4)
    at = _put_records(memory, links, entry, chosen, out, at, state)
    state[STATE_RECORDS_BYTES] += total
    state[STATE_BYTES_LEFT] -= total
    if at != BAD and state[STATE_VERSION] >= FLEXIBLE_FROM:
        out[at] = 0
        at += 1
    return np.int64(at)


@kernel
def _read_place(data, at, end, version):
    """A partition of the request: (index, offset, bytes at most), its epoch, the cursor or BAD."""
    bad = (np.int64(0), np.int64(0), np.int64(0)), np.int64(0), np.int64(BAD)
    needed = 16 + 8 * (version >= LOG_START_FROM) + 4 * (version >= EPOCHS_FROM)
    if end - at < needed + 5 * (version >= FLEXIBLE_FROM):
        return bad
    index, epoch = get32(data, at), np.int64(-1)
    at += 4
    if version >= EPOCHS_FROM:
        epoch = get32(data, at)
        at += 4
    offset = get64(data, at)
    at += 8
    if version >= FLEXIBLE_FROM:
        if get32(data, at) >= 0:  # last_fetched_epoch: Python finds where the logs diverge.
            return bad
        at += 4
    if version >= LOG_START_FROM:
        at += 8
    bytes_max = get32(data, at)
    at += 4
    if version >= FLEXIBLE_FROM:
        if data[at] != 0:
            return bad
        at += 1
    return (index, offset, bytes_max), epoch, np.int64(at)


@kernel
def _slot_of(memory, directory, topic, index):
    """The partition's row in this log; -1: it is not led here, or not in this log."""
    if index < 0 or index >= directory[topic + 4]:
        return np.int64(-1)
    code = directory[directory[2] + directory[topic + 3] + index]
    if code < 0 or code >> 32 != get_word(memory, words.WORD_LOG):
        return np.int64(-1)
    return code & 0xFFFFFFFF


@kernel
def _open_topic(data, at, end, directory, state):
    """A topic's key: (its place in the directory, where the key begins, its bytes), or BADs."""
    version, length = state[STATE_VERSION], np.int64(ID_BYTES)
    bad = np.int64(BAD), np.int64(BAD), np.int64(BAD)
    if version < IDS_FROM:
        length, at = read_length(data, at, end, version >= FLEXIBLE_FROM, 2)
    if at == BAD or length < 0 or length > end - at:
        return bad
    topic = find_topic(directory, data, at, length, version >= IDS_FROM)
    if topic < 0 or not _add_once(state, STATE_TOPIC_COUNT, STATE_TOPICS, topic):
        return bad
    return topic, np.int64(at), np.int64(length)


@kernel
def _answer_next(data, at, end, logs, directory, topic, state, out):
    """Answer the partition at a cursor: the cursor after it, or BAD if it is left.

    `logs` is the log's (memory, links); the place in `out` is state[STATE_OUT_BYTES], moved on.
    """
    memory, links = logs
    place, epoch, at = _read_place(data, at, end, state[STATE_VERSION])
    slot = np.int64(-1) if at == BAD else _slot_of(memory, directory, topic, place[0])
    if slot < 0 or place[2] < 0 or not _is_readable(memory, slot, place[1], epoch):
        return np.int64(BAD)
    code = get_word(memory, words.WORD_LOG) << 32 | slot
    if not _add_once(state, STATE_PLACE_COUNT, STATE_PLACES, code):
        return np.int64(BAD)
    to = _answer_partition(memory, links, slot, place, out, state[STATE_OUT_BYTES], state)
    state[STATE_OUT_BYTES] = to
    return np.int64(BAD) if to == BAD else at


@kernel
def _answer_topic(data, at, end, logs, directory, state, out):
    """Answer one topic: the cursor after it, or BAD if it is left."""
    flexible = state[STATE_VERSION] >= FLEXIBLE_FROM
    topic, key_at, length = _open_topic(data, at, end, directory, state)
    to = state[STATE_OUT_BYTES]
    if topic == BAD or to + length + PARTITION_BYTES_MAX > out.size:
        return np.int64(BAD)
    if state[STATE_VERSION] < IDS_FROM:
        to = write_length(out, to, length, flexible, 2)
    copy_bytes(out, to, data, key_at, length)
    count, at = read_length(data, key_at + length, end, flexible, 4)
    if at == BAD or count <= 0:  # Topics without partitions have no row.
        return np.int64(BAD)
    state[STATE_OUT_BYTES] = write_length(out, to + length, count, flexible, 4)
    for _ in range(count):
        at = _answer_next(data, at, end, logs, directory, topic, state, out)
        if at == BAD:
            return at
    if not flexible:
        return at
    out[state[STATE_OUT_BYTES]] = 0
    state[STATE_OUT_BYTES] += 1
    return at + 1 if at < end and data[at] == 0 else np.int64(BAD)


@kernel
def _answer_topics(data, at, end, logs, directory, state, out):
    """Answer all topics: the cursor after them, or BAD if the request is left."""
    topics, at = read_length(data, at, end, state[STATE_VERSION] >= FLEXIBLE_FROM, 4)
    if at == BAD or topics <= 0 or topics > PLACES_MAX:
        return np.int64(BAD)
    state[STATE_OUT_BYTES] = _write_head(out, state, topics)
    for _ in range(topics):
        at = _answer_topic(data, at, end, logs, directory, state, out)
        if at == BAD:
            return at
    return at


@kernel
def _count(memory, records_bytes):
    """Count a fetch and the bytes of records in its answer."""
    set_word(
        memory, words.COUNTER_FETCH_REQUESTS, get_word(memory, words.COUNTER_FETCH_REQUESTS) + 1
    )
    set_word(
        memory, words.COUNTER_BYTES_OUT, get_word(memory, words.COUNTER_BYTES_OUT) + records_bytes
    )


@kernel
def _read(data, end, memory, links, directory, state, out):
    """Parse the request and answer its topics; False: it is left."""
    start = state[STATE_START]
    state[STATE_RECORDS_BYTES] = state[STATE_PLACE_COUNT] = state[STATE_TOPIC_COUNT] = 0
    state[STATE_LENT_COUNT] = state[STATE_LENT_BYTES] = 0
    if end - start < 10:
        return False
    at = _read_head(data, start, end, state)
    if at != BAD:
        at = _answer_topics(data, at, end, (memory, links), directory, state, out)
    return at != BAD and _ends_plainly(data, at, end, state[STATE_VERSION])


@kernel
def _end(is_last, memory, state, out):
    """ANSWERED, or WAITS if a request that was read has too little to read."""
    is_last = is_last or state[STATE_MAX_WAIT_MS] <= 0
    if state[STATE_RECORDS_BYTES] < state[STATE_MIN_BYTES] and not is_last:
        return WAITS
    if state[STATE_VERSION] >= FLEXIBLE_FROM:
        out[state[STATE_OUT_BYTES]] = 0
        state[STATE_OUT_BYTES] += 1
    put32(out, 0, state[STATE_OUT_BYTES] + state[STATE_LENT_BYTES] - 4)
    _count(memory, state[STATE_RECORDS_BYTES])
    return ANSWERED


@kernel
def answer_fetch(data, end, is_last, memory, links, directory, state, out):
    """Answer the request in data[state[STATE_START]:end] (without its size); is_last: do not wait.

    ANSWERED: the response, with its size, is in out[:state[STATE_OUT_BYTES]], but for the
    state[STATE_LENT_COUNT] batches that are listed from STATE_LENT on. WAITS: it must wait for
    state[STATE_PLACES:][:state[STATE_PLACE_COUNT]]. LEFT: the caller must answer it.
    """
    if not _read(data, end, memory, links, directory, state, out):
        return LEFT
    return _end(is_last, memory, state, out)


@kernel
def may_read(state, bitmaps, at):
    """Whether the bitmap at a place has every partition of a request that was read."""
    may = True
    for i in range(state[STATE_PLACE_COUNT]):
        may &= is_set(bitmaps, at, state[STATE_PLACES + i])
    return may


@kernel
def answer_limited_fetch(data, end, log, state, out, bitmaps, at):
    """As answer_fetch, by the bitmap at a place (shm.kernels.log.bitmaps), which leaves a request
    for another partition too; `log` is (memory, links, directory)."""
    memory, links, directory = log
    if not _read(data, end, memory, links, directory, state, out):
        return LEFT
    if not may_read(state, bitmaps, at):
        return LEFT
    is_last = False
    return _end(is_last, memory, state, out)
