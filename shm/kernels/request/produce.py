"""Parses, appends and answers Produce requests, versions 3 to 13, many in one call.

    parse_requests   cuts the buffer into requests, and these into rows of a plan; touches no log
    append_rows      (shm.kernels.log.append) appends the rows of one log
    write_answers    writes the responses in the order of the requests; counts their errors
    produce          all three, for a shard with one log: one call for a whole recv
    produce_limited  likewise, for a client whose bitmap has all partitions

The plan ends before a request that is not Produce, has a transactional id, or breaks the protocol:
the requests before it are appended and answered first. Bytes after a request's last field are
ignored, as in Kafka. Unlike in Kafka, a partition named twice in a request is appended twice and
answered twice (Kafka silently drops all but the last), and answers come in the request's order.

Formats: ProduceRequest and ProduceResponse, 3 to 13; flexible from 9 (KIP-482), record errors from
8 (KIP-467), topic ids instead of names in 13 (KIP-516).
"""

import numpy as np

from shm.kernels.base import words
from shm.kernels.base.atomics import words_at
from shm.kernels.base.bytes import copy_bytes, get16, get32, put16, put32, put64
from shm.kernels.base.jit import kernel
from shm.kernels.base.memory import get_word, set_word
from shm.kernels.base.wire import BAD, read_length, skip_string, skip_tags, write_length
from shm.kernels.log.append import append_rows
from shm.kernels.log.bitmaps import is_set
from shm.kernels.log.directory import ID_BYTES, INTERNAL, LED_ELSEWHERE, find_topic
from shm.kernels.log.plan import request_at, row_at, topic_at

VERSION_MIN, VERSION_MAX = 3, 13
FLEXIBLE_FROM, RECORD_ERRORS_FROM, IDS_FROM, LOG_START_FROM = 9, 8, 13, 5
LEADERS_FROM = 10  # An error says who leads instead (KIP-951).
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
INVALID_TOPIC_EXCEPTION = 17
INVALID_REQUIRED_ACKS = 21
UNKNOWN_TOPIC_ID = 100
FULL = -2
OTHER = -3
GO_ON = -1
# Of a partition, and of what is around a topic's or a request's, without the topic's key.
ROW_ANSWER_BYTES_MAX, ANSWER_BYTES_MAX = 36, 64
# Index, error, offset and time; the log's start; no record errors; no message. The answers are
# written without another look at the room: what is too long overwrites memory behind it.
assert ROW_ANSWER_BYTES_MAX >= (4 + 2 + 8 + 8) + 8 + 4 + 2


@kernel
def _resolve(directory, topic, index, is_id):
    """The row's (code, error) of partition `index` of a topic at `topic` in the directory."""
    if topic < 0:
        return np.int64(-1), UNKNOWN_TOPIC_ID if is_id else UNKNOWN_TOPIC_OR_PARTITION
    if index < 0 or index >= directory[topic + 4]:
        return np.int64(-1), UNKNOWN_TOPIC_OR_PARTITION
    code = directory[directory[2] + directory[topic + 3] + index]
    if code == LED_ELSEWHERE:
        return code, NOT_LEADER_OR_FOLLOWER
    if code == INTERNAL:
        return code, INVALID_TOPIC_EXCEPTION
    return code, 0


@kernel
def _parse_partition(data, at, end, plan, row):
    """Read one partition's index and the place of its records into a row; after it, or BAD."""
    flexible = plan[row + words.ROW_VERSION] >= FLEXIBLE_FROM
    if end - at < 4:
        return np.int64(BAD)
    plan[row + words.ROW_PARTITION] = get32(data, at)
    length, at = read_length(data, at + 4, end, flexible, 4)
    if at == BAD:
        return at
    plan[row + words.ROW_AT] = at
    plan[row + words.ROW_BYTES] = length
    at += max(np.int64(0), length)
    return skip_tags(data, at, end) if flexible else at


@kernel
def _begin_row(plan, row, request):
    """Initialize a row."""
    plan[row + words.ROW_VERSION] = plan[request + words.REQUEST_VERSION]
    plan[row + words.ROW_TRANSACTIONAL] = plan[request + words.REQUEST_TRANSACTIONAL]
    plan[row + words.ROW_BASE_OFFSET] = plan[row + words.ROW_APPEND_TIME] = plan[
        row + words.ROW_LOG_START
    ] = -1


@kernel
def _parse_rows(data, at, end, directory, plan, request, found, count):
    """Read a topic's partitions into rows: after them, or BAD."""
    acks, is_id = (
        plan[request + words.REQUEST_ACKS],
        plan[request + words.REQUEST_VERSION] >= IDS_FROM,
    )
    for i in range(count):
        row = row_at(plan, plan[words.HEAD_ROW_COUNT] + i)
        _begin_row(plan, row, request)
        at = _parse_partition(data, at, end, plan, row)
        if at == BAD:
            return at
        code, error = _resolve(directory, found, plan[row + words.ROW_PARTITION], is_id)
        if error == NOT_LEADER_OR_FOLLOWER and plan[row + words.ROW_VERSION] >= LEADERS_FROM:
            plan[words.HEAD_LED_ELSEWHERE] = 1
        if acks < -1 or acks > 1:
            error = INVALID_REQUIRED_ACKS
        plan[row + words.ROW_CODE], plan[row + words.ROW_ERROR] = code, error
        plan[row + words.ROW_STATE] = words.DONE if error != 0 else 0
    plan[words.HEAD_ROW_COUNT] += count
    return np.int64(at)


@kernel
def _full(plan, capacity):
    """FULL, or BAD when one request asks for more than the largest plan holds."""
    return np.int64(
        BAD if plan[words.HEAD_REQUEST_COUNT] == 0 and capacity >= words.PLAN_ROWS_MAX else FULL
    )


@kernel
def _parse_topic(data, at, end, directory, plan, request):
    """Read one topic into the plan: after it, BAD or FULL."""
    version = plan[request + words.REQUEST_VERSION]
    flexible, is_id = version >= FLEXIBLE_FROM, version >= IDS_FROM
    if plan[words.HEAD_TOPIC_COUNT] == plan[words.HEAD_TOPIC_CAPACITY]:
        return _full(plan, plan[words.HEAD_TOPIC_CAPACITY])
    topic = topic_at(plan, plan[words.HEAD_TOPIC_COUNT])
    length = np.int64(ID_BYTES)
    if not is_id:
        length, at = read_length(data, at, end, flexible, 2)
    if at == BAD or length < 0 or length > end - at:
        return np.int64(BAD)
    plan[topic + words.TOPIC_KEY_AT], plan[topic + words.TOPIC_KEY_BYTES] = at, length
    found = find_topic(directory, data, at, length, is_id)
    count, at = read_length(data, at + length, end, flexible, 4)
    bytes_min = 6 if flexible else 8  # Per partition. No request gets a larger plan for less.
    if at == BAD or count < 0 or count * bytes_min > end - at:
        return np.int64(BAD)
    if count > plan[words.HEAD_ROW_CAPACITY] - plan[words.HEAD_ROW_COUNT]:
        return _full(plan, plan[words.HEAD_ROW_CAPACITY])
    plan[topic + words.TOPIC_ROW], plan[topic + words.TOPIC_ROW_COUNT] = (
        plan[words.HEAD_ROW_COUNT],
        count,
    )
    plan[words.HEAD_TOPIC_COUNT] += 1
    at = _parse_rows(data, at, end, directory, plan, request, found, count)
    return skip_tags(data, at, end) if flexible and at != BAD else at


@kernel
def _read_transactional_id(data, at, end, plan, request):
    """Note whether there is a transactional id: after it, BAD or OTHER."""
    length, at = read_length(
        data, at, end, plan[request + words.REQUEST_VERSION] >= FLEXIBLE_FROM, 2
    )
    at += max(np.int64(0), length)
    if at == BAD or end - at < 6:
        return np.int64(BAD)
    plan[request + words.REQUEST_TRANSACTIONAL] = length >= 0
    if (
        length >= 0 and plan[words.HEAD_TRANSACTIONS] == 0
    ):  # The coordinator may have to be asked first.
        return np.int64(OTHER)
    return np.int64(at)


@kernel
def _parse_request(data, at, end, directory, plan):
    """Read the request in data[at:end] into the plan: 0, or BAD, FULL, OTHER: it is unchanged."""
    request = request_at(plan[words.HEAD_REQUEST_COUNT])
    topics_before, rows_before = plan[words.HEAD_TOPIC_COUNT], plan[words.HEAD_ROW_COUNT]
    version = get16(data, at + 2)
    flexible = version >= FLEXIBLE_FROM
    plan[request + words.REQUEST_VERSION] = version
    plan[request + words.REQUEST_CORRELATION] = get32(data, at + 4)
    plan[request + words.REQUEST_TOPIC] = topics_before
    plan[request + words.REQUEST_START], plan[request + words.REQUEST_END] = at - 4, end
    at = skip_string(data, at + 8, end, False)  # noqa: FBT003  (The client id is never compact.)
    if flexible and at != BAD:
        at = skip_tags(data, at, end)
    if at == BAD:
        return at
    at = _read_transactional_id(data, at, end, plan, request)
    if at < 0:
        return at
    plan[request + words.REQUEST_ACKS] = get16(data, at)
    count, at = read_length(data, at + 6, end, flexible, 4)
    if at == BAD or count < 0:
        return np.int64(BAD)
    plan[request + words.REQUEST_TOPIC_COUNT] = count
    for _ in range(count):
        at = _parse_topic(data, at, end, directory, plan, request)
        if at < 0:
            plan[words.HEAD_TOPIC_COUNT], plan[words.HEAD_ROW_COUNT] = topics_before, rows_before
            return at
    if flexible and skip_tags(data, at, end) == BAD:
        plan[words.HEAD_TOPIC_COUNT], plan[words.HEAD_ROW_COUNT] = topics_before, rows_before
        return np.int64(BAD)
    plan[words.HEAD_REQUEST_COUNT] += 1
    return np.int64(0)


@kernel
def _look(data, at, end, plan):
    """GO_ON if a whole Produce request begins at data[at], otherwise why to stop."""
    if end - at < 4:
        return words.STOP_NEED_MORE
    size = get32(data, at)
    if size < 8 or size > plan[words.HEAD_REQUEST_BYTES_MAX]:
        return words.STOP_MALFORMED
    if end - at - 4 < size:
        return words.STOP_NEED_MORE
    version = get16(data, at + 6)
    if get16(data, at + 4) != 0 or version < VERSION_MIN or version > VERSION_MAX:
        return words.STOP_OTHER_API
    return (
        words.STOP_PLAN_FULL
        if plan[words.HEAD_REQUEST_COUNT] == plan[words.HEAD_REQUEST_CAPACITY]
        else GO_ON
    )


@kernel
def _stop_of(result):
    """Why parsing stops at a request that gave this result."""
    if result == OTHER:
        return words.STOP_OTHER_API
    return words.STOP_MALFORMED if result == BAD else words.STOP_PLAN_FULL


@kernel
def parse_requests(data, directory, plan):
    """Read every whole Produce request of data[start:end] (the plan's head) into the plan.

    Moves HEAD_START behind the last one read; returns why it stopped, one of STOP_NEED_MORE,
    STOP_OTHER_API, STOP_MALFORMED, STOP_PLAN_FULL.
    """
    plan[words.HEAD_REQUEST_COUNT] = plan[words.HEAD_TOPIC_COUNT] = plan[words.HEAD_ROW_COUNT] = 0
    plan[words.HEAD_OUT_BYTES] = plan[words.HEAD_CLOSE] = plan[words.HEAD_LED_ELSEWHERE] = 0
    plan[words.HEAD_LEVEL], plan[words.HEAD_BUDGET] = words.LEVEL_NONE, words.STEP_BYTES
    end = plan[words.HEAD_END]
    stop = _look(data, plan[words.HEAD_START], end, plan)
    while stop == GO_ON:
        at = plan[words.HEAD_START] + 4
        after = at + get32(data, plan[words.HEAD_START])
        result = _parse_request(data, at, after, directory, plan)
        if result < 0:
            return _stop_of(result)
        plan[words.HEAD_START] = after
        stop = _look(data, after, end, plan)
    return stop


@kernel
def _write_partition(out, at, plan, row, version):
    put32(out, at, plan[row + words.ROW_PARTITION])
    put16(out, at + 4, plan[row + words.ROW_ERROR])
    put64(out, at + 6, plan[row + words.ROW_BASE_OFFSET])
    put64(out, at + 14, plan[row + words.ROW_APPEND_TIME])
    at += 22
    if version >= LOG_START_FROM:
        put64(out, at, plan[row + words.ROW_LOG_START])
        at += 8
    flexible = version >= FLEXIBLE_FROM
    if version >= RECORD_ERRORS_FROM:
        at = write_length(out, at, np.int64(0), flexible, 4)  # No record errors …
        at = write_length(out, at, np.int64(-1), flexible, 2)  # … and no message.
    if flexible:
        out[at] = 0
        at += 1
    return at


@kernel
def _write_topic(data, out, at, plan, topic, version):
    flexible = version >= FLEXIBLE_FROM
    key_bytes, rows = plan[topic + words.TOPIC_KEY_BYTES], plan[topic + words.TOPIC_ROW_COUNT]
    if version < IDS_FROM:
        at = write_length(out, at, key_bytes, flexible, 2)
    copy_bytes(out, at, data, plan[topic + words.TOPIC_KEY_AT], key_bytes)
    at = write_length(out, at + key_bytes, rows, flexible, 4)
    for i in range(rows):
        at = _write_partition(
            out, at, plan, row_at(plan, plan[topic + words.TOPIC_ROW] + i), version
        )
    if flexible:
        out[at] = 0
        at += 1
    return at


@kernel
def _write_answer(data, out, at, plan, request):
    """One response with its size; after it."""
    version, start = plan[request + words.REQUEST_VERSION], at
    flexible, count = version >= FLEXIBLE_FROM, plan[request + words.REQUEST_TOPIC_COUNT]
    put32(out, at + 4, plan[request + words.REQUEST_CORRELATION])
    at += 8
    if flexible:
        out[at] = 0
        at += 1
    at = write_length(out, at, count, flexible, 4)
    for i in range(count):
        topic = topic_at(plan, plan[request + words.REQUEST_TOPIC] + i)
        at = _write_topic(data, out, at, plan, topic, version)
    put32(out, at, plan[words.HEAD_THROTTLE_MS])
    at += 4
    if flexible:
        out[at] = 0
        at += 1
    put32(out, start, at - start - 4)
    return at


@kernel
def _has_error(plan, request):
    """Whether any row of a request failed."""
    for i in range(plan[request + words.REQUEST_TOPIC_COUNT]):
        topic = topic_at(plan, plan[request + words.REQUEST_TOPIC] + i)
        for j in range(plan[topic + words.TOPIC_ROW_COUNT]):
            if plan[row_at(plan, plan[topic + words.TOPIC_ROW] + j) + words.ROW_ERROR] != 0:
                return True
    return False


@kernel
def answer_bytes_max(plan):
    """A bound of what the answers to a plan take."""
    total = ANSWER_BYTES_MAX * plan[words.HEAD_REQUEST_COUNT]
    total += ROW_ANSWER_BYTES_MAX * plan[words.HEAD_ROW_COUNT]
    for i in range(plan[words.HEAD_TOPIC_COUNT]):
        total += ANSWER_BYTES_MAX + plan[topic_at(plan, i) + words.TOPIC_KEY_BYTES]
    return total


@kernel
def count_errors(plan):
    """Count the errors of a plan whose rows are all done: the word of a code is code + 1, the last
    one is for all codes beyond."""
    if plan[words.HEAD_ERRORS] == 0:
        return
    counts = words_at(plan, words.HEAD_ERRORS)
    for i in range(plan[words.HEAD_ROW_COUNT]):
        error = plan[row_at(plan, i) + words.ROW_ERROR]
        if error != 0:
            is_known = error >= -1 and error + 1 < counts.size
            counts[error + 1 if is_known else counts.size - 1] += 1


@kernel
def write_answers(data, plan, out):
    """Write the responses to a plan whose rows are all done at HEAD_OUT_START; sets HEAD_OUT_BYTES.

    acks=0 gets no response; an error there sets HEAD_CLOSE and ends the answers, as Kafka closes
    the connection. Returns 0; STOP_OUT_FULL if `out` (uint8) is too small: nothing was written,
    pass a larger one; STOP_LED_ELSEWHERE: nothing was written, Python must answer.
    """
    start = plan[words.HEAD_OUT_START]
    if plan[words.HEAD_LED_ELSEWHERE]:
        plan[words.HEAD_STOP] = words.STOP_LED_ELSEWHERE
        return words.STOP_LED_ELSEWHERE
    if answer_bytes_max(plan) > out.size - start:
        plan[words.HEAD_STOP] = words.STOP_OUT_FULL
        return words.STOP_OUT_FULL
    at = start
    for i in range(plan[words.HEAD_REQUEST_COUNT]):
        request = request_at(i)
        if plan[request + words.REQUEST_ACKS] != 0:
            at = _write_answer(data, out, at, plan, request)
        elif _has_error(plan, request):
            plan[words.HEAD_CLOSE] = 1
            break
    plan[words.HEAD_OUT_BYTES] = at - start
    count_errors(plan)
    return 0


@kernel
def _append_and_answer(data, memory, links, producers, plan, out, parsed):
    """Append and answer what was parsed; see produce."""
    plan[words.HEAD_STOP] = plan[words.HEAD_PARSED] = parsed
    requests = get_word(memory, words.COUNTER_PRODUCE_REQUESTS) + plan[words.HEAD_REQUEST_COUNT]
    set_word(memory, words.COUNTER_PRODUCE_REQUESTS, requests)
    if append_rows(memory, links, producers, data, plan) != 0:
        return plan[words.HEAD_STOP]
    if write_answers(data, plan, out) != 0:
        return plan[words.HEAD_STOP]
    return parsed


@kernel
def produce(data, memory, links, producers, directory, plan, out):
    """Parse, append and answer everything that a recv brought, for a shard with one log.

    Returns why parsing stopped, or why appending did (STOP_LOG_FULL, STOP_REFERENCES, STOP_STEP,
    STOP_OUT_FULL, STOP_LED_ELSEWHERE): then resolve that, call append_rows until it returns 0, and
    write_answers; the next call continues parsing.
    """
    parsed = parse_requests(data, directory, plan)
    return _append_and_answer(data, memory, links, producers, plan, out, parsed)


@kernel
def may_append(plan, bitmaps, at):
    """Whether the bitmap at a place has every partition of a plan: none is unknown or led
    elsewhere."""
    may = True
    for i in range(plan[words.HEAD_ROW_COUNT]):
        may &= is_set(bitmaps, at, plan[row_at(plan, i) + words.ROW_CODE])
    return may


@kernel
def produce_limited(data, log, plan, out, bitmaps, at):
    """As produce, by the bitmap at a place (shm.kernels.log.bitmaps); `log` is (memory, links,
    producers, directory). STOP_RIGHTS: nothing was taken."""
    memory, links, producers, directory = log
    parsed = parse_requests(data, directory, plan)
    if not may_append(plan, bitmaps, at):
        return words.STOP_RIGHTS
    return _append_and_answer(data, memory, links, producers, plan, out, parsed)
